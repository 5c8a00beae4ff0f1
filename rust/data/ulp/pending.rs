// SPDX-License-Identifier: GPL-2.0

//! The requests of a queue that are posted and not completed, and what a completion of the device may
//! say of them.
//!
//! A user relies on the length of a receive, to take as much out of its memory. So it is compared
//! with what was posted.

use crate::{
    abi::{
        entry::{
            cqe_flags,
            opcode,
            Cqe,
            GRH_BYTES, //
        },
        status::Status, //
    },
    queue::index::Index,
    sys::rdma::{
        Completed,
        Completion,
        Operation,
        QpRef, //
    }, //
};
use kernel::prelude::*;

/// What is posted; of a receive the bytes that it has room for.
#[derive(Clone, Copy)]
pub(super) enum Posted {
    Send(Operation),
    Receive(u64),
    /// A receive of UD, which begins with a GRH.
    Datagram(u64),
}

impl Posted {
    /// What was completed, and how it went: a success that cannot be true is a general error.
    fn completed(self, cqe: &Cqe) -> (Completed, Status) {
        let bytes = u64::from(cqe.bytes);
        let (what, is_possible) = match self {
            Self::Send(operation) => (Completed::Sent(operation), true),
            // Its bytes are in the memory that the peer has named.
            Self::Receive(_) if cqe.opcode == opcode::RECV_WRITE_IMM => (Completed::Written, true),
            Self::Receive(room) => (Completed::Received, bytes <= room),
            Self::Datagram(room) => {
                let has_grh = cqe.flags & cqe_flags::GRH != 0 && bytes >= GRH_BYTES as u64;
                (Completed::Received, has_grh && bytes <= room)
            }
        };
        let status = match Status::from_code(cqe.status) {
            Some(status) if is_possible || status != Status::Success => status,
            _ => Status::General,
        };
        (what, status)
    }
}

/// A request that is posted and not completed.
#[derive(Clone, Copy)]
pub(super) struct Request {
    /// Its user's own.
    pub(super) id: u64,
    pub(super) what: Posted,
    /// The index past it.
    pub(super) past: Index,
    /// Its user asked for its completion. One that fails completes either way.
    pub(super) signal: bool,
}

impl Request {
    /// What a completion of it says, of the queue pair `qp`.
    pub(super) fn completed(&self, cqe: &Cqe, qp: QpRef) -> Completion {
        let (what, status) = self.what.completed(cqe);
        let succeeded = status == Status::Success;
        let is_datagram = matches!(self.what, Posted::Datagram(_));
        Completion {
            id: self.id,
            what,
            status: status.code(),
            vendor: cqe.vendor,
            bytes: if succeeded { cqe.bytes } else { 0 },
            imm: (succeeded && cqe.flags & cqe_flags::IMM != 0).then_some(cqe.imm),
            from: (succeeded && is_datagram).then_some(cqe.src),
            qp,
        }
    }
}

/// The requests of a queue, in order.
pub(super) struct Pending {
    slots: KVVec<Request>,
    first: usize,
    pub(super) count: usize,
}

impl Pending {
    /// None, and room for `most`.
    pub(super) fn new(most: u32) -> Result<Self> {
        let none = Request {
            id: 0,
            what: Posted::Receive(0),
            past: Index::ZERO,
            signal: false,
        };
        let mut slots = KVVec::new();
        slots.resize(most as usize, none, GFP_KERNEL)?;
        Ok(Self {
            slots,
            first: 0,
            count: 0,
        })
    }

    /// Whether there is no room.
    pub(super) fn is_full(&self) -> bool {
        self.count == self.slots.len()
    }

    /// Adds one, if there is room.
    pub(super) fn push(&mut self, request: Request) {
        let last = (self.first + self.count) % self.slots.len().max(1);
        if let (false, Some(slot)) = (self.is_full(), self.slots.get_mut(last)) {
            *slot = request;
            self.count += 1;
        }
    }

    /// Takes the first one.
    pub(super) fn pop(&mut self) -> Option<Request> {
        if self.count == 0 {
            return None;
        }
        let request = self.slots.get(self.first).copied();
        self.first = (self.first + 1) % self.slots.len().max(1);
        self.count -= 1;
        request
    }

    /// Takes the one that ends at `past`, and all before it. `None`, and nothing is taken, if there
    /// is none.
    pub(super) fn take(&mut self, past: Index) -> Option<Request> {
        let depth = self.slots.len().max(1);
        // They end in order, at growing distances from the end of the first: an entry of the device
        // that names none costs no more than one that does.
        let end = |ahead: usize| Some(self.slots.get((self.first + ahead) % depth)?.past);
        let first = end(0)?;
        let (mut ahead, mut beyond) = (0, self.count);
        while beyond - ahead > 1 {
            let middle = ahead + (beyond - ahead) / 2;
            if end(middle)?.since(first) <= past.since(first) {
                ahead = middle;
            } else {
                beyond = middle;
            }
        }
        if self.count == 0 || end(ahead) != Some(past) {
            return None;
        }
        self.first = (self.first + ahead) % depth;
        self.count -= ahead;
        self.pop()
    }
}

#[kernel::macros::kunit_tests(qpair_ulp)]
mod tests {
    use super::*;

    fn request(id: u64, past: u32) -> Request {
        Request {
            id,
            what: Posted::Send(Operation::Send),
            past: Index::new(past),
            signal: true,
        }
    }

    fn id(request: Option<Request>) -> Option<u64> {
        request.map(|request| request.id)
    }

    #[test]
    fn a_completion_takes_its_request_and_those_before() {
        let mut pending = Pending::new(4).unwrap();
        for (id, past) in [(1, 2), (2, 3), (3, 7)] {
            pending.push(request(id, past));
        }
        assert_eq!(id(pending.take(Index::new(3))), Some(2));
        assert_eq!(pending.count, 1);
        assert_eq!(id(pending.pop()), Some(3));
        assert_eq!(id(pending.pop()), None);
    }

    #[test]
    fn an_index_between_requests_takes_nothing() {
        let mut pending = Pending::new(4).unwrap();
        pending.push(request(1, 4));
        assert_eq!(id(pending.take(Index::new(2))), None);
        assert_eq!(id(pending.take(Index::new(5))), None);
        assert_eq!(pending.count, 1);
    }

    #[test]
    fn indices_wrap_and_each_request_is_found() {
        const ENDS: [u32; 5] = [u32::MAX - 2, u32::MAX, 0, 3, 4];
        for last in 0..ENDS.len() {
            let mut pending = Pending::new(7).unwrap();
            // The first is not in the first slot.
            for _ in 0..4 {
                pending.push(request(9, 0));
                pending.pop();
            }
            for (id, past) in ENDS.iter().enumerate() {
                pending.push(request(id as u64, *past));
            }
            for wrong in [u32::MAX - 3, u32::MAX - 1, 1, 2, 5, 1 << 31] {
                assert_eq!(id(pending.take(Index::new(wrong))), None);
            }
            assert_eq!(id(pending.take(Index::new(ENDS[last]))), Some(last as u64));
            assert_eq!(pending.count, ENDS.len() - 1 - last);
        }
        assert_eq!(id(Pending::new(4).unwrap().take(Index::ZERO)), None);
    }

    #[test]
    fn no_receive_is_longer_than_what_was_posted() {
        let (success, general) = (Status::Success, Status::General);
        let status = |what: Posted, cqe: Cqe| what.completed(&cqe).1;
        let cqe = |bytes, flags| Cqe {
            bytes,
            flags,
            opcode: opcode::RECV,
            ..Cqe::default()
        };
        let recv = cqe_flags::RECV;
        assert_eq!(status(Posted::Receive(64), cqe(64, recv)), success);
        assert_eq!(status(Posted::Receive(64), cqe(65, recv)), general);
        let written = Cqe {
            opcode: opcode::RECV_WRITE_IMM,
            ..cqe(65, recv)
        };
        let written = Posted::Receive(64).completed(&written);
        assert_eq!(written, (Completed::Written, success));
        let grh = recv | cqe_flags::GRH;
        for (bytes, expected) in [(39, general), (40, success), (64, success), (65, general)] {
            assert_eq!(status(Posted::Datagram(64), cqe(bytes, grh)), expected);
            assert_eq!(status(Posted::Datagram(64), cqe(bytes, recv)), general);
        }
        let failed = Cqe {
            status: Status::Flush.code(),
            ..cqe(0, recv)
        };
        assert_eq!(status(Posted::Datagram(64), failed), Status::Flush);
    }

    #[test]
    fn it_wraps_and_is_full() {
        let mut pending = Pending::new(3).unwrap();
        for round in 0..10 {
            for nth in 0..3 {
                pending.push(request(round * 3 + nth, nth as u32));
            }
            assert!(pending.is_full());
            pending.push(request(99, 99));
            assert_eq!(id(pending.pop()), Some(round * 3));
            assert_eq!(id(pending.take(Index::new(2))), Some(round * 3 + 2));
            assert_eq!(id(pending.pop()), None);
        }
    }
}
