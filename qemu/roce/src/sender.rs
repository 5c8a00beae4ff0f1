// SPDX-License-Identifier: GPL-2.0
//! The requester of a reliable connection.
//!
//! The window has the requests that were begun and not completed. Each packet of theirs has a PSN,
//! from `acked` on, which is the oldest that is not acknowledged, to `sent`. What is lost is sent
//! again from `acked` on. Three things limit what is in flight: the room, which shrinks when
//! packets are lost and grows with progress; the number of READs and atomics; and half of all PSNs.
//!
//! [`next`](Sender::next) says what to send, [`complete`](Sender::complete) what to complete;
//! `answer` has the rest.

use crate::fifo::Fifo;
use crate::psn::Psn;
use crate::request::Failure;
use crate::request::Flying;
use crate::request::Kind;
use crate::request::Outcome;
use crate::request::Request;
use crate::segment::Mtu;
use crate::segment::Piece;
use crate::segment::Position;
use crate::segment::MESSAGE_BYTES;
use crate::tries::Expired;
use crate::tries::Limits;
use crate::tries::Tries;
use crate::tries::Verdict;

/// What to do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Next {
    /// Send a packet of the request: this piece, or for a READ the request for all bytes from
    /// `offset` on.
    Packet {
        /// The request.
        id: u32,
        /// The number of the packet.
        psn: Psn,
        /// Its part of the message.
        piece: Piece,
        /// It asks for an acknowledgement.
        ack: bool,
    },
    /// Perform a request that needs no peer.
    Perform {
        /// The request.
        id: u32,
    },
}

/// Whether the queue pair works.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Life {
    Works,
    /// The oldest request fails.
    Fails(Failure),
    /// It has failed.
    Ended,
}

/// The packet that is sent next: of which request of the window, and which.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct At {
    nth: usize,
    packet: u32,
}

/// Room of a connection that begins, if it may have so much.
const FIRST_ROOM: u32 = 32;
/// Packets between two that ask for an acknowledgement.
const ACK_EVERY: u32 = 16;

/// The requester of a queue pair, with at most `N` requests in flight.
#[derive(Debug)]
pub struct Sender<const N: usize> {
    mtu: Mtu,
    pub(crate) limits: Limits,
    pub(crate) window: Fifo<Flying, N>,
    at: At,
    /// The PSN of the next request.
    next: Psn,
    pub(crate) acked: Psn,
    pub(crate) sent: Psn,
    room: u32,
    pub(crate) tries: Tries,
    /// What is in flight was sent again since the last progress.
    repeats: bool,
    life: Life,
}

impl<const N: usize> Sender<N> {
    /// One whose first packet has this PSN.
    pub fn new(mtu: Mtu, limits: Limits, first: Psn) -> Self {
        Self {
            mtu,
            limits,
            window: Fifo::new(),
            at: At { nth: 0, packet: 0 },
            next: first,
            acked: first,
            sent: first,
            room: limits.window.min(FIRST_ROOM),
            tries: Tries::NEW,
            repeats: false,
            life: Life::Works,
        }
    }

    /// Changes the limits, also for what is in flight.
    pub fn set_limits(&mut self, now: u64, limits: Limits) {
        self.limits = limits;
        self.room = self.room.min(limits.window);
        self.tries.restart(now, &self.limits);
    }

    /// Begins a request; false if it is too long, no other fits, or the queue pair failed.
    pub fn begin(&mut self, request: Request) -> bool {
        let packets = match request.kind {
            Kind::Message | Kind::Read => self.mtu.packets(request.bytes),
            Kind::Atomic | Kind::Confirmed => 1,
            Kind::Local => 0,
        };
        if request.bytes > MESSAGE_BYTES || packets > Psn::SPAN || self.life != Life::Works {
            return false;
        }
        let begun = self.window.push(Flying {
            request,
            first: self.next,
            packets,
            performed: false,
            refused: false,
        });
        if begun {
            self.next = self.next.plus(packets);
        }
        begun
    }

    pub(crate) const fn mtu(&self) -> Mtu {
        self.mtu
    }

    /// Whether each request that was begun has been sent.
    pub const fn has_sent_all(&self) -> bool {
        self.at.nth >= self.window.len()
    }

    /// The PSN past the newest that was sent.
    pub const fn sent(&self) -> Psn {
        self.sent
    }

    /// The PSN of the oldest packet that is not acknowledged.
    pub const fn acked(&self) -> Psn {
        self.acked
    }

    /// Packets that may be in flight.
    pub const fn room(&self) -> u32 {
        self.room
    }

    /// The budgets, and what it waits for.
    pub const fn tries(&self) -> &Tries {
        &self.tries
    }

    /// Whether it waits for a receiver that was not ready.
    pub const fn waits_for_receiver(&self) -> bool {
        self.tries.waits_for_receiver()
    }

    /// When [`expire`](Self::expire) is due.
    pub const fn deadline(&self) -> Option<u64> {
        self.tries.deadline()
    }

    /// How many before the `nth` wait for an answer of their own.
    fn unanswered(&self, nth: usize) -> usize {
        let before = self.window.iter().take(nth);
        let waits = |it: &&Flying| it.request.kind.is_answered() && self.acked.is_before(it.end());
        before.filter(waits).count()
    }

    /// The next packet to send, or what to perform; `None` until something else happens.
    pub fn next(&mut self, now: u64) -> Option<Next> {
        if self.life != Life::Works || self.tries.waits_for_receiver() {
            return None;
        }
        loop {
            let At { nth, packet } = self.at;
            let flying = *self.window.get(nth)?;
            let request = flying.request;
            if flying.refused || request.fence && self.unanswered(nth) != 0 {
                return None;
            }
            if request.kind == Kind::Local {
                self.at = At {
                    nth: nth.wrapping_add(1),
                    packet: 0,
                };
                let id = request.id;
                if let Some(flying) = self.window.get_mut(nth).filter(|it| !it.performed) {
                    flying.performed = true;
                    return Some(Next::Perform { id });
                }
                continue;
            }
            return self.packet(now, flying, packet);
        }
    }

    /// Sends a packet of a request, if there is room.
    fn packet(&mut self, now: u64, flying: Flying, packet: u32) -> Option<Next> {
        let (nth, request) = (self.at.nth, flying.request);
        let is_answered = request.kind.is_answered();
        if is_answered && self.unanswered(nth) >= usize::from(self.limits.reads) {
            return None;
        }
        let psn = flying.first.plus(packet);
        // The PSN past those that the packet uses.
        let past = if is_answered {
            flying.end()
        } else {
            psn.plus(1)
        };
        let before = psn.since(self.acked).unsigned_abs();
        let after = past.since(self.acked).unsigned_abs();
        if before >= self.room || after > Psn::SPAN {
            return None;
        }
        let piece = match request.kind {
            Kind::Message => self.mtu.piece(request.bytes, packet)?,
            _ => {
                let offset = packet.wrapping_mul(self.mtu.bytes());
                Piece {
                    position: Position::Only,
                    offset,
                    bytes: request.bytes.saturating_sub(offset),
                }
            }
        };
        let ends = is_answered || piece.position.ends();
        self.at = if ends {
            At {
                nth: nth.wrapping_add(1),
                packet: 0,
            }
        } else {
            At {
                nth,
                packet: packet.wrapping_add(1),
            }
        };
        if self.sent.is_before(past) {
            self.sent = past;
        }
        self.tries.sent(now, &self.limits);
        Some(Next::Packet {
            id: request.id,
            psn,
            piece,
            // The one that fills the room has to ask, or nothing opens it again.
            ack: ends || after >= self.room || psn.get() % ACK_EVERY == ACK_EVERY - 1,
        })
    }

    /// The caller's memory for a request is wrong: the request fails when it is the oldest.
    pub fn refuse(&mut self, id: u32) {
        for nth in 0..self.window.len() {
            if let Some(flying) = self.window.get_mut(nth).filter(|it| it.request.id == id) {
                flying.refused = true;
            }
        }
    }

    /// Takes the oldest request, if it is completed. After one that failed the rest is the caller's to flush.
    pub fn complete(&mut self) -> Option<(u32, Outcome)> {
        let oldest = self.window.get(0)?;
        let outcome = match self.life {
            Life::Ended => return None,
            Life::Works | Life::Fails(_) if oldest.refused => self.end(Failure::Local),
            Life::Works | Life::Fails(_) if oldest.is_acknowledged(self.acked) => Outcome::Done,
            Life::Fails(failure) => self.end(failure),
            Life::Works => return None,
        };
        let oldest = self.window.pop()?;
        match self.at.nth.checked_sub(1) {
            Some(nth) => self.at.nth = nth,
            None => self.at.packet = 0,
        }
        Some((oldest.request.id, outcome))
    }

    fn end(&mut self, failure: Failure) -> Outcome {
        self.life = Life::Ended;
        self.tries.stop();
        Outcome::Failed(failure)
    }

    /// The oldest request that is not acknowledged fails.
    pub(crate) fn fail(&mut self, failure: Failure) {
        self.life = Life::Fails(failure);
        self.tries.stop();
    }

    pub(crate) fn works(&self) -> bool {
        self.life == Life::Works
    }

    /// The deadline has come: whether packets are sent again, as an answer is missing.
    pub fn expire(&mut self, now: u64) -> bool {
        if !self.works() {
            return false;
        }
        match self.tries.expire(now) {
            Expired::Not => {}
            Expired::Receiver => self.go_back(),
            Expired::Answer => match self.tries.missing(now, &self.limits) {
                Verdict::Exhausted => self.fail(Failure::Retries),
                Verdict::Again => {
                    self.repeats = true;
                    self.room = 1;
                    self.go_back();
                    return true;
                }
            },
        }
        false
    }

    /// Packets are missing: sends again what is in flight, once until there is progress.
    pub(crate) fn repeat(&mut self, now: u64) {
        if self.repeats || self.tries.waits_for_receiver() {
            return;
        }
        match self.tries.missing(now, &self.limits) {
            Verdict::Exhausted => self.fail(Failure::Retries),
            Verdict::Again => {
                self.repeats = true;
                self.room = (self.room / 2).max(1);
                self.go_back();
            }
        }
    }

    /// All before this PSN were executed.
    pub(crate) fn advance(&mut self, now: u64, to: Psn) {
        if !self.acked.is_before(to) {
            return;
        }
        self.acked = to;
        self.repeats = false;
        self.room = self.room.saturating_add(2).min(self.limits.window);
        let rest = self.acked.is_before(self.sent);
        self.tries.progress(now, &self.limits, rest);
        self.skip();
    }

    /// The next packet is the oldest that is not acknowledged.
    fn go_back(&mut self) {
        self.at = At { nth: 0, packet: 0 };
        self.skip();
    }

    /// What is acknowledged is not sent again.
    fn skip(&mut self) {
        while let Some(flying) = self.window.get(self.at.nth) {
            if !flying.is_acknowledged(self.acked) {
                let done = self.acked.since(flying.first).max(0).unsigned_abs();
                self.at.packet = self.at.packet.max(done.min(flying.packets));
                return;
            }
            self.at = At {
                nth: self.at.nth.wrapping_add(1),
                packet: 0,
            };
        }
    }
}
