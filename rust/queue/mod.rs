// SPDX-License-Identifier: GPL-2.0
//! The rules of a queue that software and hardware share.
//!
//! They are written once, here, depend on `core` alone, and are compiled into
//! the module (`pub mod queue;`), into the device model and into user space (the
//! crate `qpair-queue`). Nothing here touches memory, a register or the clock by
//! itself; it is handed traits and closures.
//!
//! Before either side of a queue writes an entry, it must know that the slot is free. A count of
//! free slots answers that, and here the count is a value that can be neither copied nor made
//! ([`credit`]). Filling a slot consumes one, so no code can overwrite a full SQ, overrun a CQ or
//! write an event into a full EQ.
//!
//! | file | rule | used by |
//! |---|---|---|
//! | [`index`] | free-running indices, depth, owner bit | all |
//! | [`credit`] | slots as values: minted once, then only moved | driver, library |
//! | [`account`] | slots that a message takes, and another one gives back | driver, library |
//! | [`storage`] | words of shared memory, and the four points of order | all |
//! | [`consumer`] | reading a ring that hardware writes | driver, library |
//! | [`deferred`] | slots of a destroyed queue, until their last entries are read | driver, library |
//! | [`producer`] | writing a ring that software writes | driver, library |
//! | [`descriptors`] | descriptors that are filled and complete in order | stream |
//! | [`chain`] | a chain of descriptors whose tail is an address, inclusive | stream |
//! | [`headtail`] | a ring of descriptors whose tail is an index, exclusive | stream, device |
//! | [`eq_slots`] | EQ slots: what holds them, when they become free | driver |
//! | [`pages`] | the pages of a fast registration | driver |
//! | [`pending`] | requests that are posted and not completed; the length of a receive | driver |
//! | [`poll`] | the event poll | driver |
//! | [`resize`] | a CQ that goes on in another ring | driver, device, library |
//! | [`buflist`] | page size and tables of a buffer | driver |
//! | [`receives`] | receives of an SRQ that are posted and not completed | driver |
//! | [`shared`] | receives that queue pairs share | library |

#![cfg_attr(not(MODULE), no_std)]
#![forbid(unsafe_code)]

#[cfg(not(MODULE))]
extern crate qpair_abi as abi;

pub mod account;
pub mod buflist;
#[cfg(not(MODULE))]
pub mod chain;
pub mod consumer;
pub mod credit;
pub mod deferred;
#[cfg(not(MODULE))]
pub mod descriptors;
pub mod eq_slots;
#[cfg(not(MODULE))]
pub mod headtail;
pub mod index;
pub mod pages;
pub mod pending;
pub mod poll;
pub mod producer;
pub mod receives;
pub mod resize;
#[cfg(not(MODULE))]
pub mod shared;
pub mod storage;
