// SPDX-License-Identifier: GPL-2.0
//! Processes that notify, poll until their CQ is empty, and sleep. The device acts on a notify at
//! any time after it was written.

use super::found;
use super::found_as;
use super::model::ASKED;
use super::model::HOSTILITY;
use super::model::NOTIFIES;
use super::model::PROMISES;
use super::model::WAKE_UPS;
use super::shown;
use super::state::Instance;
use super::world::Wrong;
use super::HOSTILE;
use super::ONE;
use super::SOLICITED;
use qpair_queue::mutant::Mutant;

/// A process with a CQ of two slots; a notify at a time, for any completion or for solicited ones.
const PROCESS: Instance = Instance {
    kernel: 0,
    process: 1,
    blocks: 2,
    rearm: false,
    notifies: true,
    lags: true,
    wants: SOLICITED.wants,
    ..ONE
};

/// It notifies and arms at any time, from several threads.
const THREADS: Instance = Instance {
    rearm: true,
    lags: false,
    ..PROCESS
};

/// Its CQ is destroyed with notifies that the device has not acted on, and created again; and a CQ
/// of the kernel never drains.
const GOES: Instance = Instance {
    kernel: 1,
    blocks: 1,
    cqs_go: 0b10,
    hog: Some(0),
    ..PROCESS
};

#[test]
fn a_process_notifies_and_polls_and_sleeps() {
    shown("a process notifies", NOTIFIES, [PROCESS]);
    shown("several threads notify and arm", NOTIFIES, [THREADS]);
    shown("the same, and the CQ goes", &NOTIFIES[..3], [GOES]);
}

#[test]
fn a_hostile_process_notifies() {
    let hostile = Instance {
        notifies: true,
        wants: ONE.wants,
        ..HOSTILE
    };
    shown("a hostile process notifies", HOSTILITY, [hostile]);
    found(Mutant::SecondUserEvent, hostile, PROMISES, "second event");
}

#[test]
fn faults_of_notifies_are_found() {
    let small = Instance {
        blocks: 1,
        ..THREADS
    };
    let exact = Instance {
        lags: false,
        ..PROCESS
    };
    for (mutant, instance, property, what) in [
        (Mutant::NotifySampledLate, PROCESS, WAKE_UPS, WAKE_UPS),
        (Mutant::NotifySampledLate, GOES, WAKE_UPS, WAKE_UPS),
        (Mutant::OldNotifyWaits, PROCESS, WAKE_UPS, WAKE_UPS),
        (Mutant::NotifyReplaces, small, WAKE_UPS, WAKE_UPS),
        (Mutant::NextWeakened, small, WAKE_UPS, WAKE_UPS),
        (Mutant::NotifyLooksBack, exact, ASKED, ASKED),
        (Mutant::SolicitedIsNext, PROCESS, ASKED, ASKED),
        (Mutant::SecondUserEvent, PROCESS, PROMISES, "EQ overflow"),
    ] {
        found(mutant, instance, property, what);
    }
    let first = Instance {
        wrong: Some(Wrong::PollsFirst),
        ..PROCESS
    };
    let name = "a process polls, notifies and sleeps";
    found_as(name, None, first, WAKE_UPS, WAKE_UPS);
}
