// SPDX-License-Identifier: GPL-2.0
//! The requests of a queue that are posted and not completed, and the length that a completion may
//! report of a receive.
//!
//! A kernel ULP relies on both, whatever the device writes. It gets each of its requests
//! back once: by a completion in the queue's own CQ, or flushed when the device is lost. And it
//! takes as many bytes out of a receive's memory as the completion says, so these are at most those
//! that it has posted.

use super::consumer::Seen;
use super::credit::Cq;
use super::credit::Kind;
use super::index::Index;
use super::producer::Producer;
use super::storage::Storage;
use crate::abi::entry::cqe_flags;
use crate::abi::entry::opcode;
use crate::abi::entry::Cqe;
use crate::abi::entry::GRH_BYTES;
use core::ops::DerefMut;

/// The requests of a queue, in order, each with the index past it.
#[derive(Debug)]
pub struct Pending<S> {
    slots: S,
    first: usize,
    count: usize,
    /// Completions up to this count of the CQ's entries are from before the last reset.
    old: Option<u64>,
}

impl<T: Copy, S: DerefMut<Target = [(Index, T)]>> Pending<S> {
    /// None, and room for as many as there are slots, whatever these hold.
    pub const fn new(slots: S) -> Self {
        Self {
            slots,
            first: 0,
            count: 0,
            old: None,
        }
    }

    /// Requests that are posted and not completed.
    pub const fn count(&self) -> usize {
        self.count
    }

    /// Whether there is no room.
    pub fn is_full(&self) -> bool {
        self.count >= self.slots.len()
    }

    /// Adds one that ends at `past`, if there is room.
    pub fn push(&mut self, past: Index, request: T) {
        let last = self.place(self.count);
        if let (false, Some(slot)) = (self.is_full(), self.slots.get_mut(last)) {
            *slot = (past, request);
            self.count = self.count.wrapping_add(1);
        }
    }

    /// Takes the oldest one.
    pub fn pop(&mut self) -> Option<T> {
        (self.count != 0).then(|| self.take(0)).flatten()
    }

    /// The queue was reset: drops all. Its completions up to the `old`th entry of its CQ are of what
    /// was dropped.
    pub fn reset(&mut self, old: Option<u64>) {
        self.count = 0;
        self.old = old;
    }

    /// The `nth` entry of a CQ was read. It completes the request that ends at `past`: takes this one,
    /// and all before it. `None`, and nothing is taken or completed: it is of another CQ than that of
    /// `producer`, from before the reset, or there is no such request.
    pub fn complete<M: Storage, K: Kind>(
        &mut self,
        producer: &mut Producer<M, K>,
        past: Index,
        seen: Seen<Cq>,
        nth: u64,
    ) -> Option<T> {
        // What another CQ has counts neither its entries nor the requests.
        if !producer.completes_in(seen) {
            return None;
        }
        if self.old.is_some_and(|old| nth <= old) {
            return None;
        }
        self.old = None;
        let ahead = self.find(past)?;
        // Before the take, which cannot be undone.
        producer.complete(past, seen).ok()?;
        self.take(ahead)
    }

    /// The slot of the one that is `ahead` of the first.
    fn place(&self, ahead: usize) -> usize {
        self.first.wrapping_add(ahead) % self.slots.len().max(1)
    }

    /// How far ahead of the first the one is that ends at `past`.
    fn find(&self, past: Index) -> Option<usize> {
        // They end in order, at growing distances from the end of the first: an entry of the device
        // that names none costs no more than one that does.
        let end = |ahead: usize| Some(self.slots.get(self.place(ahead))?.0);
        let first = end(0)?;
        let (mut ahead, mut beyond) = (0, self.count);
        while beyond.wrapping_sub(ahead) > 1 && ahead < beyond {
            let middle = ahead.wrapping_add(beyond.wrapping_sub(ahead) / 2);
            if end(middle)?.since(first) <= past.since(first) {
                ahead = middle;
            } else {
                beyond = middle;
            }
        }
        (self.count != 0 && end(ahead) == Some(past)).then_some(ahead)
    }

    /// Takes the one that is `ahead` of the first, and all before it.
    fn take(&mut self, ahead: usize) -> Option<T> {
        let place = self.place(ahead);
        let (_, request) = *self.slots.get(place)?;
        let taken = ahead.wrapping_add(1);
        self.first = self.place(taken);
        self.count = self.count.saturating_sub(taken);
        Some(request)
    }
}

/// The memory of a receive, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Memory {
    /// The bytes of a message.
    Message(u64),
    /// Of a datagram, which begins with a GRH.
    Datagram(u64),
}

impl Memory {
    /// Whether the completion says that a WRITE has taken it.
    pub const fn is_written(self, cqe: &Cqe) -> bool {
        matches!(self, Self::Message(_)) && cqe.opcode == opcode::RECV_WRITE_IMM
    }

    /// The bytes that a successful completion reports to its user. `None`: it cannot be true.
    ///
    /// Those of a WRITE are in the memory that the peer has named. A user that expects a message may
    /// take them out of the receive all the same, so they are cut to what that has room for. A
    /// receive without memory has nothing to take: there they are the bytes of the WRITE.
    pub fn bytes(self, cqe: &Cqe) -> Option<u32> {
        let bytes = u64::from(cqe.bytes);
        let is_possible = match self {
            Self::Message(room) if self.is_written(cqe) => {
                let is_cut = room != 0 && bytes > room;
                // CAST: Less than `bytes`.
                return Some(if is_cut { room as u32 } else { cqe.bytes });
            }
            Self::Message(room) => bytes <= room,
            Self::Datagram(room) => {
                let has_grh = cqe.flags & cqe_flags::GRH != 0 && bytes >= GRH_BYTES as u64;
                has_grh && bytes <= room
            }
        };
        is_possible.then_some(cqe.bytes)
    }
}
