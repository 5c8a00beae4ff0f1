// SPDX-License-Identifier: GPL-2.0

//! The control path: what is done by registers and admin commands, in process context.
//!
//! | file | does |
//! |---|---|
//! | [`registers`] | limits, status, enable, reset; the way in to the device |
//! | [`command`] | typed commands |
//! | [`admin`] | the admin queue: slots, posting, waiting |
//! | [`qp`] | creates, connects and destroys queue pairs of the kernel |
//! | [`mr`] | memory regions of the kernel, protection domains |
//! | [`eqs`] | the EQs of a device: set up, torn down; which interrupts were lost |
//! | [`moderate`] | moderation of interrupts: off, fixed, by load |
//! | [`shares`] | doorbell pages of processes; how many objects their contexts and users have |
//! | [`tenant`] | users of the device that may stay when it goes |
//! | [`device`] | the device: its admin queue, and each of the four above |
//! | [`objects`] | objects, by command and in the tables of the EQs |
//! | [`quota`] | charges objects to contexts and users |
//! | [`bringup`] | bring-up, and the one shutdown |
//! | [`watch`] | once a second: lost interrupts, CPUs, fatal, gone; more often: the load |
//!
//! # Locks, from the outside in
//!
//! | lock | guards |
//! |---|---|
//! | the device lock (PCI core) | probe, unbind, reset, sleep and error recovery exclude each other |
//! | gate (a pass) | the device stays bound, and up unless it fails |
//! | `told` | that what is done about a device that failed is done in the epoch in which it failed |
//! | the loopback client's `run` | its run |
//! | a context's own | its objects |
//! | `moderation` | how interrupts are moderated, and that the device is told so |
//! | `objects` | that the device's and our tables of CQs and queue pairs change together |
//! | the pause of a poll | what the poll owns |
//! | `watched` | what the check for lost interrupts remembers; a leaf |
//! | `shares` | which doorbell pages of this epoch are taken, and what their contexts have |
//! | `tenants` | the list of tenants; held for moments |

pub(crate) mod admin;
mod bringup;
pub(crate) mod command;
pub(crate) mod device;
mod eqs;
pub(crate) mod moderate;
pub(crate) mod mr;
mod objects;
pub(crate) mod qp;
mod quota;
mod registers;
mod shares;
pub(crate) mod tenant;
pub(crate) mod watch;
