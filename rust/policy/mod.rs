// SPDX-License-Identifier: GPL-2.0
//! Decisions by numbers: what the driver does next, how much, and how often. They depend on `core`
//! alone and do no I/O; the clock is an argument.
//!
//! | file | decides |
//! |---|---|
//! | [`moderation`] | how many interrupts an EQ is worth |
//! | [`share`] | how much CPU time the event poll may take in softirq context |
//! | [`quota`] | how many objects a context, a user and all users may have |
//! | [`recovery`] | when a device that failed is reset |
//! | [`lifecycle`] | health and epoch of a device; the order of start, shutdown and recovery |

pub mod lifecycle;
pub mod moderation;
pub mod quota;
pub mod recovery;
pub mod share;
