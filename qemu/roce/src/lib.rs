// SPDX-License-Identifier: GPL-2.0
//! RoCEv2, as far as it is neither memory nor network nor clock.
//!
//! [`frame`] parses and builds frames. The transport of a reliable connection is a [`Sender`] of
//! requests and a [`Receiver`] of the peer's; [`unreliable`] has that of an unreliable one. These
//! never see a byte of a message: they say which part of which request a packet carries, what a
//! packet that came is allowed to do, what is answered, and what completes. They have no clock: the
//! caller says what time it is, in ticks of any length, and asks for the next deadline. They allocate
//! nothing.
//!
//! ```text
//!   requests ---> Sender --- packets --->  network  --- packets ---> Receiver ---> memory
//!                   ^                                                   |
//!   completions <---+----- answers <----   network  <--- answers -------+
//! ```
//!
//! **Nothing from the network is trusted.** Parsing is total. A packet or an answer that is not the
//! next of its connection changes nothing in a message, a request or a completion.
//!
//! The files, in order: a file imports only files above it.
//!
//! | file | has |
//! |---|---|
//! | [`psn`] | packet sequence numbers |
//! | [`fifo`] | queues of bounded length |
//! | [`segment`] | messages in packets, and back |
//! | [`extended`] | the extended headers |
//! | [`operation`] | what a packet is, with its headers |
//! | [`header`] | all headers of a packet |
//! | [`icrc`] | the invariant CRC |
//! | [`frame`] | frames, of IPv4 and IPv6 |
//! | [`request`] | requests, and what becomes of them |
//! | [`tries`] | how often a sender tries, and when again |
//! | [`sender`] | the requester of a reliable connection |
//! | [`answer`] | what answers do at the requester |
//! | [`replies`] | answers that wait, and those that are kept |
//! | [`receiver`] | the responder of a reliable connection |
//! | [`unreliable`] | unreliable connections |
//!
//! [`Sender`]: sender::Sender
//! [`Receiver`]: receiver::Receiver

#![no_std]
#![forbid(unsafe_code)]

pub mod answer;
pub mod extended;
pub mod fifo;
pub mod frame;
pub mod header;
pub mod icrc;
pub mod operation;
pub mod psn;
pub mod receiver;
pub mod replies;
pub mod request;
pub mod segment;
pub mod sender;
pub mod tries;
pub mod unreliable;
