// SPDX-License-Identifier: GPL-2.0
//! The suite: plain functions that panic when a rule is broken.
//!
//! `tests/rules.rs` runs each as a test; `tests/mutants.rs` runs all of them under
//! each wrong variant.

pub mod buflist;
pub mod channel;
pub mod credit;
pub mod eq_irq;
pub mod flow;
pub mod index;
pub mod ladder;
pub mod lifecycle;
pub mod memory;
pub mod moderation;
pub mod notify;
pub mod pages;
pub mod pending;
pub mod poll;
pub mod prop;
pub mod quota;
pub mod receives;
pub mod recovery;
pub mod refusal;
pub mod resize;
pub mod ring;
pub mod share;
pub mod shared;
pub mod sim;
pub mod unread;

pub(crate) use qpair_testkit::checks;
use qpair_testkit::Check;

/// Whether indices are kept small, so that states that differ in passes alone are the same.
pub const EXPLORES: bool = false;

/// Every check; first those whose failures are the most specific.
pub fn all() -> impl Iterator<Item = Check> {
    let parts = [
        sim::CHECKS,
        index::CHECKS,
        credit::CHECKS,
        ring::CHECKS,
        notify::CHECKS,
        pending::CHECKS,
        channel::CHECKS,
        eq_irq::CHECKS,
        moderation::CHECKS,
        poll::CHECKS,
        share::CHECKS,
        shared::CHECKS,
        receives::CHECKS,
        unread::CHECKS,
        quota::CHECKS,
        recovery::CHECKS,
        lifecycle::CHECKS,
        resize::CHECKS,
        buflist::CHECKS,
        pages::CHECKS,
        flow::CHECKS,
        ladder::CHECKS,
        refusal::CHECKS,
    ];
    parts.into_iter().flatten().copied()
}
