// SPDX-License-Identifier: GPL-2.0

//! The hardware: the device by its numbers and its memory. It knows no process.
//!
//! The poll of an EQ runs in BH. It never sleeps, issues no command, and owns its state while the EQ
//! is up. Process context accesses the state with the poll paused
//! ([`kernel::poller`](crate::kernel::poller)). Functions marked "Sleeps" are for process context:
//! those that allocate, and all commands.
//!
//! | file | is |
//! |---|---|
//! | [`life`] | health and epoch: the owner of the state machine |
//! | [`function`] | doorbells, limits, life |
//! | [`registers`] | limits, status, enable, reset; the way in to the device |
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

pub(crate) mod admin;
pub(crate) mod batch;
pub(crate) mod command;
pub(crate) mod cq;
pub(crate) mod eq;
pub(crate) mod eqs;
pub(crate) mod function;
pub(crate) mod handlers;
pub(crate) mod knobs;
pub(crate) mod life;
mod list;
pub(crate) mod qp;
pub(crate) mod registers;
pub(crate) mod ring;
pub(crate) mod table;
pub(crate) mod view;
