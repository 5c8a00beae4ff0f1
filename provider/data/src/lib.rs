// SPDX-License-Identifier: GPL-2.0
//! The data path of the provider of rdma-core.
//!
//! libibverbs loads a provider for each kind of device. The part in C (`provider/*.c`) creates
//! objects by commands to the kernel; this crate posts and polls, in memory that the process shares
//! with the device. The rules of the rings are those of [`qpair_queue`].
//!
//! The files, in order: a file imports only files above it.
//!
//! | file | contents |
//! |---|---|
//! | [`lock`] | locks that single-threaded objects leave out |
//! | [`ring`] | the memory of a ring, and the page of doorbells |
//! | [`request`] | SENDs, WRITEs and READs, and how requests are posted |
//! | [`template`] | common forms of requests |
//! | [`atomic`] | atomics |
//! | [`datagram`] | sends of UD queue pairs |
//! | [`flush`] | FLUSH and atomic WRITE |
//! | [`window`] | binds of memory windows |
//! | [`receive`] | receives |
//! | [`shape`] | how deep rings are |
//! | `queue` | a work queue, and the slots that a program may fill |
//! | [`list`] | lists of sends: `ibv_post_send()` |
//! | `builder` | builders of sends: `ibv_wr_*()` |
//! | [`srq`] | shared receive queues |
//! | `queues` | the queues of a queue pair, as its posts and its CQs share them |
//! | [`cq`] | completion queues |
//! | [`qp`] | queue pairs |
//! | `ops` | the operations as libibverbs calls them (feature `provider`) |
//!
//! # Slots
//!
//! A program counts work requests, the rings count slots: blocks of an SQ, requests of an RQ,
//! entries of a CQ. A slot is free again after the CQ's head past its completion has been
//! published, by a doorbell. A program knows nothing of that: after it has polled a completion, it
//! posts again. So each ring is deeper than the program asked, and the difference is its *slack*:
//!
//! - At the end of a poll, at most the slack of a CQ is read and unpublished.
//! - When a completion has been reported, at most the slack of its work queue is completed and not
//!   free.
//!
//! A poll publishes the head when either would be exceeded. So a post never needs the CQ, and no
//! lock of a CQ is taken with that of a work queue held.
//!
//! # Locks
//!
//! The lock of a CQ is taken before that of a work queue. Between `ibv_start_poll()` and
//! `ibv_end_poll()` the CQ is locked, and between `ibv_wr_start()` and `ibv_wr_complete()` the send
//! queue is.

pub mod atomic;
mod builder;
pub mod cq;
pub mod datagram;
pub mod flush;
pub mod list;
pub mod lock;
#[cfg(feature = "provider")]
pub mod ops;
pub mod qp;
mod queue;
mod queues;
pub mod receive;
pub mod request;
pub mod ring;
pub mod shape;
pub mod srq;
pub mod template;
pub mod window;
