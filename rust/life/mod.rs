// SPDX-License-Identifier: GPL-2.0

//! The life of a device: bring-up, shutdown and recovery, and what it has while it is referred to.
//! In process context.
//!
//! | file | does |
//! |---|---|
//! | [`state`] | health and epoch: the owner of the state machine |
//! | [`client`] | clients: users of the device that may outlive its binding |
//! | [`moderate`] | interrupt moderation: off, fixed, adaptive |
//! | [`device`] | the device: its hardware, and the three above; the way in |
//! | [`bringup`] | bring-up, and the one shutdown |
//! | [`watch`] | once a second: lost interrupts, health; more often: the load |
//!
//! The section Locks of `Documentation/driver.rst` has the order of the locks.

mod bringup;
pub(crate) mod client;
pub(crate) mod device;
pub(crate) mod moderate;
pub(crate) mod state;
pub(crate) mod watch;
