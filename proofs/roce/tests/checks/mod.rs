// SPDX-License-Identifier: GPL-2.0
//! The suite: plain functions that panic when a rule is broken.
//!
//! `tests/rules.rs` runs each as a test; `tests/mutants.rs` runs all of them under each wrong
//! variant.

pub mod budgets;
pub mod captured;
pub mod fifo;
pub mod frame;
pub mod header;
pub mod link;
pub mod peer;
#[path = "../../../queue/tests/checks/prop.rs"]
pub mod prop;
pub mod receiver;
pub mod segment;
pub mod sender;
pub mod unreliable;

pub(crate) use qpair_testkit::checks;
use qpair_testkit::Check;

/// Every check; first those whose failures are the most specific, and the shortest.
pub fn all() -> impl Iterator<Item = Check> {
    let parts = [
        budgets::CHECKS,
        fifo::CHECKS,
        sender::CHECKS,
        receiver::CHECKS,
        unreliable::CHECKS,
        segment::CHECKS,
        captured::CHECKS,
        header::CHECKS,
        frame::CHECKS,
        link::CHECKS,
    ];
    parts.into_iter().flatten().copied()
}
