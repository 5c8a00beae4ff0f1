// SPDX-License-Identifier: GPL-2.0
//! The control path: the effects and the errors of every command.
//!
//! Errors are checked with a table: a valid argument, one change that makes it invalid, and the
//! errno. After each row the driver must accept the valid argument, so
//! that no row fails for another reason than its own.

mod charge;
mod groups;
mod limits;
mod multicast;
mod nowhere;
mod objects;
mod refused;
mod refused_srq;
mod sane;
mod shares;
mod windows;

use anyhow::ensure;
use anyhow::Context as _;
use anyhow::Result;
use nix::errno::Errno;

use crate::ktap::cases;
use crate::ktap::Group;

pub(crate) const GROUP: Group = Group {
    name: "control",
    cases: cases![
        sane::device_file,
        sane::query_device,
        sane::query_counters,
        sane::doorbell_page,
        sane::no_events_to_read,
        sane::debugfs_tables,
        objects::protection_domain,
        objects::completion_queue,
        objects::queue_pair,
        objects::memory_region,
        objects::depths_are_rounded_up,
        objects::states_of_a_queue_pair,
        objects::transitions_that_do_not_exist,
        objects::a_number_changes_every_time,
        objects::in_use,
        refused::private_requests,
        refused::private_addresses,
        refused::completion_queues,
        refused::queue_pairs,
        refused_srq::shared_receive_queues,
        refused::attributes,
        refused::memory_regions,
        windows::memory_windows,
        windows::changes_of_regions,
        multicast::groups_of_multicast,
        multicast::limits_of_multicast,
        nowhere::creates_without_a_result,
        nowhere::calls_without_a_result,
        refused::mappings,
        refused::the_log_stays_quiet * 2,
        limits::quotas * 8,
        limits::locked_memory,
        limits::locked_memory_of_queues,
        limits::locked_memory_with_the_capability,
        charge::a_child_that_exits,
        charge::a_file_that_is_passed_on,
        limits::races * 4,
        shares::destroyed_queue_pairs * 4,
        shares::refused_creates,
        shares::address_handles * 4,
        shares::failed_creates,
        shares::files_of_a_user * 4,
        shares::an_empty_file,
        groups::memory_of_a_group,
        groups::objects_of_a_group,
    ],
};

/// The call must fail with this errno.
fn fails<T>(what: &str, expected: Errno, result: Result<T, Errno>) -> Result<()> {
    match result {
        Ok(_) => anyhow::bail!("{what} succeeded, expected {expected}"),
        Err(errno) => {
            ensure!(
                errno == expected,
                "{what} failed with {errno}, expected {expected}"
            );
            Ok(())
        }
    }
}

/// The mistake, the errno, and a function that puts the mistake into an argument.
type Row<'a, T> = (&'a str, Errno, &'a dyn Fn(&mut T));

/// Tries each row of a table: `good` with the mistake must fail with the errno, and `good` itself
/// must succeed afterwards.
fn refuses<T: Copy>(
    good: impl Fn() -> T,
    rows: &[Row<'_, T>],
    mut call: impl FnMut(T) -> Result<(), Errno>,
) -> Result<()> {
    call(good()).context("the valid one")?;
    for (what, errno, spoil) in rows {
        let mut arg = good();
        spoil(&mut arg);
        fails(what, *errno, call(arg))?;
        call(good()).with_context(|| format!("the valid one after {what}"))?;
    }
    Ok(())
}
