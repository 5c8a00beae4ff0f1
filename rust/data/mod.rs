// SPDX-License-Identifier: GPL-2.0

//! The data path: the poll of an EQ, in BH.
//!
//! While an EQ is up, its poll owns this state. The poll never sleeps and issues no command. Process
//! context accesses the state with the poll paused ([`kernel::poller`](crate::kernel::poller)).
//! Functions that allocate are marked "Sleeps" and are for
//! process context.
//!
//! | file | is |
//! |---|---|
//! | [`life`] | health and epoch: the owner of the state machine |
//! | [`function`] | doorbells, limits, life |
//! | [`ring`], [`list`] | the memory of the driver's rings, and its buffer list |
//! | [`table`] | objects by number |
//! | [`handlers`] | the handlers of events, and the way of an asynchronous event to its handler |
//! | [`qp`] | queue pairs: posting and doorbells |
//! | [`batch`] | completions between the two steps of a turn |
//! | [`cq`] | a CQ with the queue pairs on it, and their client |
//! | [`knobs`] | tunables of polls |
//! | [`eq`] | an EQ: its interrupt, its poll, and changes of the poll's state from process context |
//! | [`view`] | what debugfs copies of an EQ |

pub(crate) mod batch;
pub(crate) mod cq;
pub(crate) mod eq;
pub(crate) mod function;
pub(crate) mod handlers;
pub(crate) mod knobs;
pub(crate) mod life;
mod list;
pub(crate) mod qp;
pub(crate) mod ring;
pub(crate) mod table;
pub(crate) mod view;
