// SPDX-License-Identifier: GPL-2.0

//! The control path: registers and admin commands, in process context.
//!
//! | file | does |
//! |---|---|
//! | [`registers`] | limits, status, enable, reset; the way in to the device |
//! | [`command`] | typed commands |
//! | [`admin`] | the admin queue: slots, posting, waiting |
//! | [`qp`] | creates, connects and destroys queue pairs of the kernel |
//! | [`eqs`] | the EQs of a device: setup, teardown, the check for lost interrupts |
//! | [`moderate`] | interrupt moderation: off, fixed, adaptive |
//! | [`shares`] | doorbell pages of processes; object counts of contexts and users |
//! | [`client`] | clients: users of the device that may outlive its binding |
//! | [`device`] | the device: its admin queue, and the four above |
//! | [`objects`] | creates and destroys objects, and keeps the EQs' tables in step |
//! | [`quota`] | charges objects to contexts and users |
//! | [`bringup`] | bring-up, and the one shutdown |
//! | [`watch`] | once a second: lost interrupts, health; more often: the load |
//!
//! The section Locks of `Documentation/driver.rst` has the order of the locks.

pub(crate) mod admin;
mod bringup;
pub(crate) mod client;
pub(crate) mod command;
pub(crate) mod device;
mod eqs;
pub(crate) mod moderate;
mod objects;
pub(crate) mod qp;
mod quota;
mod registers;
mod shares;
pub(crate) mod watch;
