// SPDX-License-Identifier: GPL-2.0
//! The life of a device, on random schedules and step by step.

#[path = "../lifecycle/world.rs"]
mod world;

use super::checks;
use super::prop::holds;
use proptest::collection::vec;
use proptest::prelude::any;
use qpair_queue::policy::lifecycle::Failure;
use qpair_queue::policy::lifecycle::Health;
use qpair_queue::policy::lifecycle::Lifecycle;
use qpair_queue::policy::lifecycle::Lost;
use qpair_queue::policy::lifecycle::Step;
use qpair_queue::policy::lifecycle::Task;
use qpair_queue::policy::recovery::LONGEST;
use world::World;

checks![
    any_order_of_events_is_right,
    a_shutdown_from_top_to_bottom,
    a_device_that_does_not_stop,
    a_suspended_device_is_left_alone,
    a_failure_before_a_reset_is_not_one_after_it,
    the_watchdog_announces_once_and_resets,
];

fn any_order_of_events_is_right() {
    holds(400, vec(any::<u16>(), 1..200), |steps| {
        let mut world = World::new();
        for step in steps {
            let actions = world.actions();
            world.act(actions[usize::from(step) % actions.len()]);
            assert_eq!(world.wrong, None);
        }
    });
}

/// The steps of a task; it finds the device `quiet`.
fn run(life: &mut Lifecycle, mut task: Task, quiet: bool) -> Vec<Step> {
    let mut steps = Vec::new();
    while let Some(step) = life.step(&mut task) {
        match step {
            Step::Quiesce => life.quiesced(&mut task, quiet),
            Step::NextEpoch => life.next_epoch(),
            _ => {}
        }
        steps.push(step);
    }
    assert!(!life.is_busy(), "the task has ended");
    steps
}

fn stop(life: &mut Lifecycle, why: Lost, quiet: bool) -> Vec<Step> {
    let task = life.shut_down(why, true).expect("it is not suspended");
    run(life, task, quiet)
}

fn up() -> Lifecycle {
    let mut life = Lifecycle::new();
    bring_up(&mut life);
    life
}

fn bring_up(life: &mut Lifecycle) -> Vec<Step> {
    let task = life.start().expect("it is down");
    let steps = run(life, task, true);
    assert!(life.up());
    steps
}

fn a_shutdown_from_top_to_bottom() {
    let mut life = up();
    let steps = stop(&mut life, Lost::Reset, true);
    let all = [
        Step::Look,
        Step::Close,
        Step::NextEpoch,
        Step::Quiesce,
        Step::FailCommands,
        Step::Cut,
        Step::Flush,
        Step::Notify,
        Step::Release,
    ];
    assert_eq!(steps, all);
    assert_eq!((life.health(), life.epoch()), (Health::Down, 1));
    assert!(life.is_quiet(0) && !life.is_quiet(1));
    assert_eq!(bring_up(&mut life), [Step::Master]);
    // The commands of a device that has failed are failed before the gate waits for them.
    life.fail(1, Failure::Timeout);
    let steps = stop(&mut life, Lost::Gone, true);
    assert_eq!(steps[..3], [Step::Look, Step::FailCommands, Step::Close]);
    assert_eq!((life.health(), life.epoch()), (Health::Unbound, 1));
    assert!(life.is_quiet(1));
    assert!(life.start().is_none(), "for ever");
}

fn a_device_that_does_not_stop() {
    let mut life = up();
    let steps = stop(&mut life, Lost::Reset, false);
    let all = [
        Step::Look,
        Step::Close,
        Step::NextEpoch,
        Step::Quiesce,
        Step::FailCommands,
        Step::Cut,
        Step::Notify,
    ];
    assert_eq!(steps, all, "nothing is flushed or freed");
    assert!(!life.is_quiet(0));
    assert!(!life.sleep(), "it may access memory");
    assert_eq!(life.health(), Health::Down);
    assert_eq!(
        bring_up(&mut life),
        [Step::Flush, Step::Release, Step::Master],
        "the reset of the bring-up has stopped it"
    );
    assert!(life.is_quiet(0));
    let steps = stop(&mut life, Lost::Gone, false);
    assert_eq!(steps.last(), Some(&Step::Leak));
    assert!(!life.is_quiet(1));
}

fn a_suspended_device_is_left_alone() {
    let mut life = up();
    stop(&mut life, Lost::Reset, true);
    assert!(life.sleep());
    assert_eq!(life.health(), Health::Asleep);
    assert!(life.shut_down(Lost::Reset, true).is_none(), "it is down");
    assert!(life.start().is_none());
    assert!(life.fail(1, Failure::Gone).is_none());
    assert!(life.look().is_none());
    life.wake();
    assert_eq!(life.health(), Health::Down);
    stop(&mut life, Lost::Reset, true);
    assert!(life.sleep());
    let steps = stop(&mut life, Lost::Gone, true);
    for step in [Step::Look, Step::Quiesce] {
        assert!(!steps.contains(&step), "{step:?} of a suspended device");
    }
    life.wake();
    assert_eq!(life.health(), Health::Unbound);
}

fn a_failure_before_a_reset_is_not_one_after_it() {
    let mut life = up();
    stop(&mut life, Lost::Reset, true);
    assert_eq!(life.fail(0, Failure::Stopped(1)), None);
    assert_eq!(life.fail(1, Failure::NotReady), None, "it is down");
    assert_eq!(life.fail(1, Failure::BringUp), Some(Health::Down));
    assert!(life.start().is_none() && !life.up());
    assert_eq!(life.fail(1, Failure::Timeout), None, "once");
    assert_eq!(life.fail(1, Failure::Gone), Some(Health::Fatal));
    assert_eq!(life.health(), Health::Gone);
}

fn the_watchdog_announces_once_and_resets() {
    let mut life = up();
    assert!(life.look().is_none());
    life.fail(0, Failure::Destroy);
    for quiet in [false, true] {
        let failed = life.look().expect("it has failed");
        assert_eq!(failed.reset, Some(0));
        let task = failed.announce.expect("a loss is announced");
        assert!(life.look().expect("still").announce.is_none(), "one task");
        let steps = run(&mut life, task, quiet);
        match quiet {
            false => assert_eq!(steps, [Step::FailCommands, Step::Quiesce]),
            true => assert_eq!(
                steps,
                [
                    Step::FailCommands,
                    Step::Quiesce,
                    Step::Cut,
                    Step::Flush,
                    Step::Notify
                ]
            ),
        }
        assert_eq!(life.is_quiet(0), quiet);
    }
    assert!(life.look().expect("still").announce.is_none());
    // Another loss.
    life.fail(0, Failure::Gone);
    let failed = life.look().expect("it is gone");
    assert_eq!(failed.reset, None);
    let task = failed.announce.expect("it is gone for good");
    assert_eq!(task.why(), Lost::Gone);
    run(&mut life, task, true);
    // What is failed is reset in the end.
    stop(&mut life, Lost::Reset, true);
    for _ in 0..9 {
        life.tried(life.epoch());
    }
    life.fail(1, Failure::BringUp);
    let looks = (1..).find(|_| life.look().expect("failed").reset.is_some());
    assert_eq!(looks, Some(LONGEST + 1));
    assert!(life.needs_reset(1) && !life.needs_reset(0));
}
