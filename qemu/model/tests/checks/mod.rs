// SPDX-License-Identifier: GPL-2.0
//! The suite: plain functions that panic when the device breaks a guarantee.
//!
//! `tests/model.rs` runs each as a test; `tests/mutants.rs` runs all of them under
//! each wrong variant.

pub mod admin;
pub mod any_datagram;
pub mod any_faults;
pub mod atomics;
pub mod buffers;
pub mod datagrams;
pub mod doorbells;
pub mod errors;
pub mod events;
pub mod fatal;
pub mod faults;
pub mod flush;
pub mod frmr;
pub mod frmr_memory;
pub mod frmr_objects;
pub mod frmr_uses;
pub mod garbage;
pub mod garbled;
pub mod groups;
pub mod in_doorbells;
pub mod life;
pub mod limits;
pub mod line;
pub mod link_ends;
pub mod link_errors;
pub mod link_states;
pub mod links;
pub mod links_uc;
pub mod net;
pub mod net_corpus;
pub mod net_faults;
pub mod net_hostile;
pub mod operations;
pub mod order;
pub mod paths;
pub mod poll;
pub mod port;
pub mod regions;
pub mod registers;
pub mod reserved;
pub mod resize;
pub mod retries;
pub mod rings;
pub mod runs;
pub mod schedule;
pub mod shared_resize;
pub mod srq;
pub mod stream;
pub mod unreliable;
pub mod windows;

pub(crate) use qpair_testkit::checks;
use qpair_testkit::Check;

/// Every check.
pub fn all() -> impl Iterator<Item = Check> {
    let parts = [
        registers::CHECKS,
        admin::CHECKS,
        reserved::CHECKS,
        operations::CHECKS,
        errors::CHECKS,
        order::CHECKS,
        atomics::CHECKS,
        flush::CHECKS,
        windows::CHECKS,
        frmr::CHECKS,
        frmr_memory::CHECKS,
        frmr_objects::CHECKS,
        frmr_uses::CHECKS,
        regions::CHECKS,
        unreliable::CHECKS,
        datagrams::CHECKS,
        any_datagram::CHECKS,
        groups::CHECKS,
        any_faults::CHECKS,
        resize::CHECKS,
        retries::CHECKS,
        srq::CHECKS,
        line::CHECKS,
        shared_resize::CHECKS,
        events::CHECKS,
        fatal::CHECKS,
        faults::CHECKS,
        doorbells::CHECKS,
        life::CHECKS,
        buffers::CHECKS,
        schedule::CHECKS,
        in_doorbells::CHECKS,
        runs::CHECKS,
        rings::CHECKS,
        poll::CHECKS,
        port::CHECKS,
        links::CHECKS,
        link_errors::CHECKS,
        link_ends::CHECKS,
        link_states::CHECKS,
        links_uc::CHECKS,
        net::CHECKS,
        net_faults::CHECKS,
        net_hostile::CHECKS,
        net_corpus::CHECKS,
        paths::CHECKS,
        garbage::CHECKS,
        garbled::CHECKS,
        limits::CHECKS,
        stream::chains::CHECKS,
        stream::rings::CHECKS,
        stream::peers::CHECKS,
        stream::hostile::CHECKS,
        stream::ladder::CHECKS,
    ];
    parts.into_iter().flatten().copied()
}
