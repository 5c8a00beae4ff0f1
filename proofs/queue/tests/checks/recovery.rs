// SPDX-License-Identifier: GPL-2.0
//! Recovery of devices that fail repeatedly.

use super::checks;
use qpair_queue::policy::recovery::Recovery;
use qpair_queue::policy::recovery::LONGEST;

checks![
    pauses_grow,
    a_device_that_fails_at_once_gets_pauses,
    a_device_that_has_worked_for_long_is_reset_at_once,
    a_reset_from_elsewhere_begins_anew,
];

/// A device, its watchdog, and the number of watchdog runs.
#[derive(Default)]
struct World {
    recovery: Recovery,
    epoch: u32,
    looks: u32,
}

impl World {
    /// The device has failed: the number of watchdog runs until it is reset.
    fn until_reset(&mut self) -> u32 {
        let begin = self.looks;
        loop {
            assert!(self.looks - begin <= LONGEST, "it is not reset any more");
            self.looks += 1;
            if self.recovery.failed(self.epoch) {
                self.epoch += 1;
                self.recovery.tried(self.epoch);
                return self.looks - begin;
            }
        }
    }

    fn works(&mut self, looks: u32) {
        for _ in 0..looks {
            self.looks += 1;
            self.recovery.works(self.epoch);
        }
    }
}

/// The device does not come up.
fn pauses_grow() {
    let mut world = World::default();
    let looks: Vec<u32> = (0..10).map(|_| world.until_reset()).collect();
    assert_eq!(looks, [1, 2, 3, 5, 9, 17, 33, 65, 65, 65]);
    for _ in 0..100 {
        world.recovery.tried(world.epoch);
    }
    assert_eq!(world.until_reset(), LONGEST + 1);
}

/// The device comes up, and fails before it has worked for long.
fn a_device_that_fails_at_once_gets_pauses() {
    for works in [0, 1, 2, LONGEST - 1] {
        let mut world = World::default();
        let mut looks = Vec::new();
        for _ in 0..9 {
            looks.push(world.until_reset());
            world.works(works);
        }
        assert_eq!(looks, [1, 2, 3, 5, 9, 17, 33, 65, 65], "{works}");
        assert_eq!(world.recovery.attempts(), 9);
    }
}

fn a_device_that_has_worked_for_long_is_reset_at_once() {
    let mut world = World::default();
    for _ in 0..5 {
        world.until_reset();
    }
    world.works(LONGEST);
    assert_eq!(world.recovery.attempts(), 0);
    assert_eq!(world.until_reset(), 1);
    // A failure in between restarts the count.
    world.works(LONGEST - 1);
    assert_eq!(world.until_reset(), 2);
    world.works(LONGEST - 1);
    assert_eq!(world.until_reset(), 3);
}

/// Also if the device is about to be reset, and if the watchdog sees only the next failure.
fn a_reset_from_elsewhere_begins_anew() {
    for seen in [false, true] {
        let mut world = World::default();
        for _ in 0..5 {
            world.until_reset();
        }
        assert!(!world.recovery.failed(world.epoch));
        world.epoch += 1;
        if seen {
            world.works(1);
            assert_eq!(world.recovery.attempts(), 0);
        }
        assert_eq!(world.until_reset(), 1);
        assert_eq!(world.until_reset(), 2);
    }
}
