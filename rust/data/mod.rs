// SPDX-License-Identifier: GPL-2.0

//! The data path: what the poll of an EQ does, in BH.
//!
//! What stands here belongs to a poll while its EQ is up. It never sleeps, takes no lock, and
//! issues no command. Process context reaches it with the poll paused
//! ([`sys::poller`](crate::sys::poller)). Functions that allocate say that they sleep; they are
//! for process context.
//!
//! | file | is |
//! |---|---|
//! | [`function`] | doorbells, limits, health |
//! | [`ring`] | the memory of the driver's rings |
//! | [`qp`] | queue pairs: posting and doorbells |
//! | [`batch`] | completions between the two steps of a turn |
//! | [`cq`] | a CQ with the queue pairs on it, and their client |
//! | [`table`] | objects by number |
//! | [`knobs`] | what may be changed about polls while they run |
//! | [`effects`] | what a poll owns, and what its steps do |
//! | [`eq`] | an EQ: its interrupt, its poll, and how process context changes what the poll owns |
//! | [`view`] | an EQ as it is shown |

pub(crate) mod batch;
pub(crate) mod cq;
pub(crate) mod effects;
pub(crate) mod eq;
pub(crate) mod function;
pub(crate) mod knobs;
pub(crate) mod qp;
pub(crate) mod ring;
pub(crate) mod table;
pub(crate) mod view;
