// SPDX-License-Identifier: GPL-2.0
//! The rules of the device's side of a queue. Nothing here touches memory, a register or the clock.
//!
//! They are public for the proofs, which run them against those of the driver.
//!
//! | file | rule |
//! |---|---|
//! | [`window`] | what is in use in a ring |
//! | [`channel`] | when a CQ writes an event |
//! | [`eq_irq`] | when an EQ interrupts; how asynchronous events are queued |
//! | [`shape`] | how to walk the tables of a buffer |
//! | [`supply`] | which receive of an SRQ is next; when few are left |

pub mod channel;
pub mod eq_irq;
pub mod shape;
pub mod supply;
pub mod window;
