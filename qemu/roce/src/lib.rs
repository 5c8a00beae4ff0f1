// SPDX-License-Identifier: GPL-2.0
//! RoCEv2, as far as it is neither memory nor network nor clock.
//!
//! [`frame`] parses and builds frames.
//!
//! **Nothing from the network is trusted.** Parsing is total.
//!
//! The files, in order: a file imports only files above it.
//!
//! | file | has |
//! |---|---|
//! | [`psn`] | packet sequence numbers |
//! | [`segment`] | messages in packets, and back |
//! | [`extended`] | the extended headers |
//! | [`operation`] | what a packet is, with its headers |
//! | [`header`] | all headers of a packet |
//! | [`icrc`] | the invariant CRC |
//! | [`frame`] | frames, of IPv4 and IPv6 |

#![no_std]
#![forbid(unsafe_code)]

pub mod extended;
pub mod frame;
pub mod header;
pub mod icrc;
pub mod operation;
pub mod psn;
pub mod segment;
