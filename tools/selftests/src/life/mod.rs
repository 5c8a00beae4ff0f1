// SPDX-License-Identifier: GPL-2.0
//! Killed processes, fork and descriptor passing; devices that are removed, reset or suspended
//! while they are in use.

mod endings;
mod fault;
mod garbage;
mod inherit;
mod kill;
mod knobs;
mod load;
mod points;
mod recovery;
mod roce;
pub(crate) mod sleep;
mod unbind;
mod worlds;

pub use self::endings::set_rounds;
use crate::ktap::cases;
use crate::ktap::Group;

pub(crate) const PROCESSES: Group = Group {
    name: "processes",
    cases: cases![
        inherit::fork_without_doorbells,
        inherit::fork_with_open_files,
        inherit::fork_outlives_the_parent,
        inherit::passed_to_another_process,
        inherit::passed_in_a_circle,
        inherit::exit_without_a_word * 2,
        kill::peer * 8,
        endings::ended_by_sigkill * 32,
    ],
};

/// The guest unbinds the driver, or removes or resets the device.
pub(crate) const DEVICE: Group = Group {
    name: "device",
    cases: cases![
        unbind::with_files_open * 2,
        unbind::everybody_is_told * 2,
        unbind::module_goes_under_files * 2,
        unbind::module_comes_back * 4,
        unbind::remove_and_rescan * 2,
        unbind::reset_by_sysfs * 2,
        fault::hung_in_an_ioctl * 4,
        fault::hung_while_killed * 2,
        fault::hung_in_an_answer * 4,
        endings::ended_by_the_guest * 64,
    ],
};

/// Misbehaviour of the device, caused by QEMU.
pub(crate) const KNOBS: Group = Group {
    name: "knobs",
    cases: cases![
        knobs::counters,
        knobs::late_interrupts,
        knobs::stalled_core,
        knobs::unanswered_create * 4,
        knobs::slow_commands * 2,
        knobs::more_waiters_than_slots * 2,
        knobs::failing_commands * 8,
        knobs::garbage_completions * 4,
        knobs::garbage_events * 4,
        garbage::garbage_in_each_word * 40,
        knobs::link * 4,
        points::fault_points * 2,
        knobs::device_fatal * 2,
        knobs::gone_silent * 4,
        worlds::the_same_numbers * 2,
        worlds::the_same_slots * 2,
        knobs::hot_unplug * 4,
        endings::ended_by_the_host * 40,
    ],
};

/// Suspend and hibernation.
pub(crate) const SLEEP: Group = Group {
    name: "sleep",
    cases: cases![
        // First: it needs the host.
        sleep::refused * 2,
        sleep::suspended * 4,
        endings::ended_by_sleep * 16,
        sleep::asleep_the_driver_rests * 2,
        sleep::frozen_and_thawed * 4,
        sleep::restored_from_an_image * 8,
    ],
};

/// The link fails, or the device does not recover at once.
pub(crate) const RECOVERY: Group = Group {
    name: "recovery",
    cases: cases![
        recovery::non_fatal_error,
        recovery::fatal_error * 2,
        recovery::frozen_link * 4,
        endings::ended_by_the_link * 8,
        recovery::permanent_failure * 2,
        recovery::comes_up_late * 2,
        recovery::stops_again * 2,
        recovery::reset_late * 2,
        recovery::reset_once * 2,
    ],
};

/// A port of RoCE, and so kernel ULPs.
pub(crate) const ROCE: Group = Group {
    name: "roce",
    cases: cases![
        roce::flushed_when_quiet * 4,
        roce::lost_while_registered * 2,
        roce::unbound_when_unmapped * 2,
    ],
};
