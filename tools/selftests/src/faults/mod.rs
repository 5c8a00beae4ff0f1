// SPDX-License-Identifier: GPL-2.0
//! Each allocation and each user copy of an operation fails in turn, and nothing leaks.
//!
//! `nth` has the mechanism. An operation is one call of `Faults::try_all` or `Faults::try_some`: a
//! name, the minimum number of points, set-up, call, teardown. Debug kernel only.

mod ioctls;
mod nth;
mod whole;

pub use self::nth::fail_every_point;
use crate::ktap::cases;
use crate::ktap::Group;

pub(crate) const GROUP: Group = Group {
    name: "faults",
    cases: cases![
        ioctls::creates,
        ioctls::regions,
        ioctls::changes_and_ends,
        ioctls::files,
        whole::debug_files,
        whole::loopback,
        whole::reset * 2,
        whole::probe * 4,
        whole::sleep * 2,
    ],
};
