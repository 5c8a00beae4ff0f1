// SPDX-License-Identifier: GPL-2.0
//! The moderation controller against the device's own rule ([`EventQueue`]) and loads of all kinds.

use super::checks;
use super::prop::holds;
use proptest::collection::vec;
use qpair_model::rules::eq_irq::EventQueue;
use qpair_model::rules::eq_irq::Line;
use qpair_model::rules::eq_irq::Moderation;
use qpair_queue::index::Depth;
use qpair_queue::policy::moderation::Controller;
use qpair_queue::policy::moderation::Pace;
use qpair_queue::policy::moderation::Sample;
use qpair_queue::policy::moderation::Setting;
use qpair_queue::policy::moderation::CAP;
use qpair_queue::policy::moderation::TARGET;
use qpair_queue::policy::moderation::TOP;
use qpair_testkit::Rng;
use std::collections::VecDeque;

checks![
    low_rates_are_left_alone,
    high_rates_come_down_to_the_target,
    a_steady_load_moves_nothing,
    closed_loops_are_not_slowed,
    what_cannot_be_collected_is_capped,
    a_load_that_ends_leaves_nothing,
    recorded_loads,
    bursts_are_sampled_from_their_beginning,
    any_samples_give_bounded_delays,
];

/// Between two samples.
const WINDOW: u64 = 2_000_000;
/// From an interrupt to its poll.
const POLL: u64 = 5_000;

/// The source of completions.
enum Load {
    /// Independent arrivals: this many nanoseconds apart on average.
    Open(u64),
    /// This many in flight, each after one was consumed, by a device that takes this many
    /// nanoseconds.
    Closed(u32, u64),
}

/// A device, an EQ, a poll, and a controller if there is one.
struct World {
    now: u64,
    eq: EventQueue,
    load: Load,
    /// All completions are in one CQ, which the poll arms; otherwise each has its own CQ.
    single: bool,
    armed: bool,
    unread: u32,
    due: VecDeque<u64>,
    free: u64,
    poll_at: Option<u64>,
    look_at: Option<u64>,
    rng: Rng,
    seen: Sample,
    controller: Option<Controller>,
    changes: u32,
}

impl World {
    fn new(load: Load, single: bool, controlled: bool) -> Self {
        let mut world = Self {
            now: 0,
            eq: EventQueue::new(Depth::new(4096).unwrap(), Moderation::default()),
            load,
            single,
            armed: true,
            unread: 0,
            due: VecDeque::new(),
            free: 0,
            poll_at: None,
            look_at: None,
            rng: Rng::new(4711),
            seen: Sample::default(),
            controller: controlled.then(|| Controller::new(TARGET)),
            changes: 0,
        };
        world.start();
        world
    }

    fn start(&mut self) {
        let count = match self.load {
            Load::Open(_) => 1,
            Load::Closed(depth, _) => depth,
        };
        self.free = self.now;
        self.due.clear();
        (0..count).for_each(|_| self.request());
    }

    /// Posts a request to the device.
    fn request(&mut self) {
        let takes = match self.load {
            Load::Open(gap) => self.rng.below(2 * gap + 1),
            Load::Closed(_, service) => service,
        };
        self.free = self.free.max(self.now) + takes;
        self.due.push_back(self.free);
    }

    fn look(&mut self) {
        self.look_at = None;
        match self.eq.line(self.now) {
            Line::Quiet => {}
            Line::At(when) => self.look_at = Some(when),
            Line::Raise => {
                self.seen.interrupts += 1;
                self.poll_at = Some(self.now + POLL);
            }
        }
    }

    fn complete(&mut self) {
        self.due.pop_front();
        self.unread += 1;
        if !self.single || self.armed {
            self.armed = false;
            let _ = self.eq.push(self.now);
            self.look();
        }
        if let Load::Open(_) = self.load {
            self.request();
        }
    }

    fn poll(&mut self) {
        self.poll_at = None;
        let read = std::mem::take(&mut self.unread);
        self.seen.completions += u64::from(read);
        self.armed = true;
        let head = self.eq.window().tail();
        self.eq.head(head, true).unwrap();
        self.look();
        if let Load::Closed(..) = self.load {
            (0..read).for_each(|_| self.request());
        }
    }

    /// Runs until the next sample, and returns it.
    fn window(&mut self) -> Sample {
        let end = self.now + WINDOW;
        self.seen = Sample::default();
        loop {
            let times = [self.due.front().copied(), self.poll_at, self.look_at];
            let next = times.iter().flatten().min().copied().unwrap_or(end);
            if next >= end {
                break;
            }
            self.now = next;
            if self.poll_at == Some(next) {
                self.poll();
            } else if self.look_at == Some(next) {
                self.look();
            } else {
                self.complete();
            }
        }
        self.now = end;
        self.seen.nanos = WINDOW;
        if let Some(controller) = &mut self.controller {
            let before = controller.setting();
            controller.sample(self.seen);
            let Setting { count, usecs } = controller.setting();
            if before != controller.setting() {
                self.changes += 1;
                self.eq.moderate(Moderation {
                    count: count.into(),
                    nanos: u64::from(usecs) * 1000,
                });
                self.look();
            }
        }
        self.seen
    }

    fn windows(&mut self, count: u32) -> Sample {
        let mut sum = Sample::default();
        for _ in 0..count {
            let one = self.window();
            sum.completions += one.completions;
            sum.interrupts += one.interrupts;
            sum.nanos += one.nanos;
        }
        sum
    }

    fn setting(&self) -> Setting {
        self.controller.as_ref().unwrap().setting()
    }
}

fn per_second(count: u64, sample: &Sample) -> u64 {
    count * 1_000_000_000 / sample.nanos
}

/// Rates below the target, with a margin for randomness, are not moderated.
fn low_rates_are_left_alone() {
    for gap in [250_000, 500_000, 10_000_000] {
        let mut world = World::new(Load::Open(gap), false, true);
        for _ in 0..100 {
            world.window();
            assert_eq!(world.setting(), Setting::OFF, "one in {gap} ns");
        }
    }
}

/// From any rate, within a few samples; a hundred thousand a second need sixteen events for each
/// interrupt.
fn high_rates_come_down_to_the_target() {
    for gap in [10_000, 8_000, 4_000, 2_000, 1_000] {
        for single in [false, true] {
            let mut world = World::new(Load::Open(gap), single, true);
            world.windows(10);
            let sum = world.windows(20);
            let interrupts = per_second(sum.interrupts, &sum);
            assert!(
                interrupts <= u64::from(TARGET) * 11 / 10,
                "{interrupts} interrupts a second for one in {gap} ns"
            );
            let ratio = sum.completions / sum.interrupts;
            assert!(ratio >= 10_000 / gap * 8, "{ratio} for one in {gap} ns");
            let Setting { usecs, .. } = world.setting();
            assert!(
                u64::from(usecs) <= 4_000_000 / u64::from(TARGET),
                "{usecs} us"
            );
        }
    }
}

/// At any rate the controller settles, and does not change although arrivals are random.
fn a_steady_load_moves_nothing() {
    holds(
        60,
        (1_000..200_000u64, proptest::bool::ANY),
        |(gap, single)| {
            let mut world = World::new(Load::Open(gap), single, true);
            world.windows(80);
            assert!(
                world.changes <= 4,
                "{} changes for one in {gap} ns",
                world.changes
            );
        },
    );
}

/// A closed loop with fewer interrupts than the cap is as fast as without moderation, except for
/// the trials.
fn closed_loops_are_not_slowed() {
    let loads = (1..64u32, 1_000..100_000u64, proptest::bool::ANY);
    holds(40, loads, |(depth, service, single)| {
        const WINDOWS: u32 = 300;
        let mut free = World::new(Load::Closed(depth, service), single, false);
        let plain = free.windows(WINDOWS);
        if per_second(plain.interrupts, &plain) > u64::from(TARGET) * CAP {
            return;
        }
        let mut world = World::new(Load::Closed(depth, service), single, true);
        let sum = world.windows(WINDOWS);
        assert!(
            sum.completions * 10 >= plain.completions * 8,
            "{} of {} completions",
            sum.completions,
            plain.completions
        );
        assert!(world.changes <= 24, "{} changes", world.changes);
    });
}

/// A fast closed loop with an interrupt for each iteration is held at the cap, without oscillation,
/// and released when it slows down.
fn what_cannot_be_collected_is_capped() {
    for service in [1_000, 5_000, 12_000, 17_000, 19_000] {
        let mut world = World::new(Load::Closed(1, service), true, true);
        world.windows(20);
        let changes = world.changes;
        let sum = world.windows(40);
        let interrupts = per_second(sum.interrupts, &sum);
        assert!(
            interrupts <= u64::from(TARGET) * CAP,
            "{interrupts} interrupts a second"
        );
        assert_eq!(world.changes, changes, "a wavering cap");
        world.load = Load::Closed(1, 200_000);
        world.windows(5);
        assert_eq!(world.setting(), Setting::OFF, "still capped");
    }
}

/// After a pause events are reported at once.
fn a_load_that_ends_leaves_nothing() {
    for load in [Load::Open(2_000), Load::Closed(1, 2_000)] {
        let mut world = World::new(load, false, true);
        world.windows(20);
        assert_ne!(world.setting(), Setting::OFF);
        world.load = Load::Open(u64::from(u32::MAX / 4));
        world.windows(10);
        assert_eq!(world.setting(), Setting::OFF);
    }
}

/// Completions of an EQ in each 10 ms, recorded in a guest (TCG, one EQ, moderation off) under the
/// named load of the loopback client.
const RECORDED: &[(&str, &[u64])] = &[
    (
        "two queue pairs, 64 writes in flight, then nothing",
        &[
            12, 6016, 5600, 3296, 768, 8384, 4672, 6304, 4966, 0, 0, 0, 0, 0, 0, 0,
        ],
    ),
    (
        "runs of 600 sends, 16 in flight, with pauses",
        &[0, 1216, 4, 1216, 620, 994, 822, 1218, 10, 1208, 0, 0, 0],
    ),
    (
        "one write at a time",
        &[
            28, 108, 207, 131, 247, 110, 312, 197, 431, 300, 345, 254, 273, 209, 136, 0, 0,
        ],
    ),
];

/// Each load as recorded, four times in a row, with the interrupts according to the device's rule.
fn recorded_loads() {
    const IDLE: u64 = u32::MAX as u64 / 4;
    for (name, counts) in RECORDED {
        let mut world = World::new(Load::Open(IDLE), false, true);
        let mut sum = Sample::default();
        let mut busiest = 0;
        for count in counts.iter().cycle().take(4 * counts.len()) {
            world.load = Load::Open(10_000_000u64.checked_div(*count).unwrap_or(IDLE));
            world.start();
            let one = world.windows(5);
            busiest = busiest.max(per_second(one.interrupts, &one));
            sum.completions += one.completions;
            sum.interrupts += one.interrupts;
            sum.nanos += one.nanos;
        }
        let target = u64::from(TARGET);
        let interrupts = per_second(sum.interrupts, &sum);
        assert!(
            interrupts <= target && busiest <= CAP * target,
            "{name}: {interrupts} interrupts a second, {busiest} in the worst 10 ms"
        );
        // Far fewer than the samples; each is a command to the device.
        let samples = 5 * 4 * counts.len() as u32;
        assert!(
            world.changes * 5 <= samples,
            "{name}: {} changes in {samples} samples",
            world.changes
        );
    }
}

/// A slow sampler would detect a burst only when it is over.
fn bursts_are_sampled_from_their_beginning() {
    let mut pace = Pace::default();
    assert!(pace.slows(false), "an idle device is sampled often");
    for _burst in 0..3 {
        assert!(!pace.slows(true));
        for idle in 1..100 {
            assert!(!pace.slows(false), "slow after {idle} idle samples");
        }
    }
    assert!(pace.slows(false) && pace.slows(false));
}

/// Impossible samples: still a count and a time or neither, and never a long time.
fn any_samples_give_bounded_delays() {
    let sample = (0..1u64 << 40, 0..1u64 << 40, 0..1u64 << 40, 0..40u32);
    holds(
        300,
        (1..200_000u32, vec(sample, 1..60)),
        |(target, samples)| {
            let mut controller = Controller::new(target);
            for (completions, interrupts, nanos, shift) in samples {
                controller.sample(Sample {
                    completions: completions >> shift,
                    interrupts: interrupts >> (shift + 2).min(39),
                    nanos: nanos >> (shift / 2),
                });
                let Setting { count, usecs } = controller.setting();
                assert_eq!(count == 0, usecs == 0);
                assert!(controller.level() <= TOP && count <= 1 << TOP);
                assert!(
                    u64::from(usecs) <= 4_000_000 / u64::from(target) + 1,
                    "{usecs} us"
                );
                assert_eq!(controller.is_off(), controller.setting() == Setting::OFF);
            }
            for _ in 0..4 {
                controller.sample(Sample {
                    nanos: WINDOW,
                    ..Sample::default()
                });
            }
            assert_eq!(controller.setting(), Setting::OFF);
        },
    );
}
