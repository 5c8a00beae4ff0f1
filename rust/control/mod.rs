// SPDX-License-Identifier: GPL-2.0

//! The control path: registers and admin commands, in process context.
//!
//! | file | does |
//! |---|---|
//! | [`registers`] | limits, status, enable, reset; the way in to the device |
//! | [`command`] | typed commands |
//! | [`admin`] | the admin queue: slots, posting, waiting |
//! | [`qp`] | creates, connects and destroys queue pairs of the kernel |
//! | [`mr`] | memory regions of the kernel, protection domains |
//! | [`eqs`] | the EQs of a device: setup, teardown, the check for lost interrupts |
//! | [`moderate`] | interrupt moderation: off, fixed, adaptive |
//! | [`shares`] | doorbell pages of processes; object counts of contexts and users |
//! | [`tenant`] | clients: users of the device that may outlive its binding |
//! | [`device`] | the device: its admin queue, and the four above |
//! | [`objects`] | creates and destroys objects, and keeps the EQs' tables in step |
//! | [`quota`] | charges objects to contexts and users |
//! | [`bringup`] | bring-up, and the one shutdown |
//! | [`watch`] | once a second: lost interrupts, CPUs, health; more often: the load |
//!
//! # Locks, from the outside in
//!
//! | lock | guards |
//! |---|---|
//! | the device lock (PCI core) | probe, unbind, reset, sleep and error recovery exclude each other |
//! | gate (a pass) | the device stays bound; it stays up unless it fails |
//! | `told` | a failure is handled in the epoch in which it happened |
//! | the loopback client's `run` | the run |
//! | a context's own | the objects of the context |
//! | `moderation` | the mode of moderation and the commands that set it |
//! | `objects` | the device's and the driver's tables of CQs and queue pairs change together |
//! | the pause of a poll | what the poll owns |
//! | `watched` | the state of the check for lost interrupts; a leaf |
//! | `shares` | the doorbell pages taken in this epoch, and the object counts of their contexts |
//! | `tenants` | the list of clients; held briefly |

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
