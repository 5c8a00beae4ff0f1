// SPDX-License-Identifier: GPL-2.0

//! The hardware: the device by its numbers and its memory. It knows no file,
//! user or quota, and not whether the device is up.
//!
//! The poll of an EQ runs in BH. It never sleeps, issues no command, and owns its state while the EQ
//! is up. Process context accesses the state with the poll paused
//! ([`kernel::poller`](crate::kernel::poller)). Functions marked "Sleeps" are for process context:
//! those that allocate, and all commands.
//!
//! | file | is |
//! |---|---|
//! | [`function`] | doorbells, limits; what has its state |
//! | [`registers`] | limits, status, enable, reset |
//! | [`ring`], [`list`] | the memory of the driver's rings, and its buffer list |
//! | [`table`] | objects by number |
//! | [`handlers`] | the handlers of events, and the way of an asynchronous event to its handler |
//! | [`qp`] | queue pairs of the kernel: posting, doorbells, slots |
//! | [`batch`] | completions between the two steps of a turn |
//! | [`cq`] | a CQ with the queue pairs on it, and their client |
//! | [`knobs`] | tunables of polls |
//! | [`eq`] | an EQ: its interrupt, its poll, and changes of the poll's state from process context |
//! | [`view`] | what debugfs copies of an EQ |
//! | [`eqs`] | the EQs of a device: setup, teardown, the check for lost interrupts |
//! | [`command`] | typed commands |
//! | [`admin`] | the admin queue: slots, posting, waiting |
//! | [`device`] | the hardware of a device: its function, its EQs, its admin queue |
//! | [`objects`] | creates and destroys objects, and keeps the EQs' tables in step |

pub(crate) mod admin;
pub(crate) mod batch;
pub(crate) mod command;
pub(crate) mod cq;
pub(crate) mod device;
pub(crate) mod eq;
pub(crate) mod eqs;
pub(crate) mod function;
pub(crate) mod handlers;
pub(crate) mod knobs;
mod list;
mod objects;
mod prelude;
pub(crate) mod qp;
pub(crate) mod registers;
pub(crate) mod ring;
pub(crate) mod table;
pub(crate) mod view;
