// SPDX-License-Identifier: GPL-2.0

//! The life of a device: bring-up, shutdown and recovery, and what it has while it is referred to.
//! In process context.
//!
//! | file | does |
//! |---|---|
//! | [`client`] | clients: users of the device that may outlive its binding |
//! | [`shares`] | doorbell pages of processes; object counts of contexts and users |
//! | [`moderate`] | interrupt moderation: off, fixed, adaptive |
//! | [`device`] | the device: its EQs and its admin queue, and the three above |
//! | [`quota`] | charges objects to contexts and users |
//! | [`objects`] | creates and destroys objects, and keeps the EQs' tables in step |
//! | [`bringup`] | bring-up, and the one shutdown |
//! | [`watch`] | once a second: lost interrupts, health; more often: the load |
//!
//! The section Locks of `Documentation/driver.rst` has the order of the locks.

mod bringup;
pub(crate) mod client;
pub(crate) mod device;
pub(crate) mod moderate;
mod objects;
mod quota;
mod shares;
pub(crate) mod watch;
