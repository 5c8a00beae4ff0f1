// SPDX-License-Identifier: GPL-2.0

//! The requests of a queue that are posted and not completed.

use crate::{
    abi::{
        entry::{
            cqe_flags,
            opcode,
            Cqe, //
        },
        status::Status, //
    },
    queue::index::Index,
    sys::rdma::{
        Completed,
        Completion,
        QpRef, //
    }, //
};
use kernel::prelude::*;

/// A request that is posted and not completed.
#[derive(Clone, Copy)]
pub(super) struct Request {
    /// Its user's own.
    pub(super) id: u64,
    pub(super) what: Completed,
    /// The index past it.
    pub(super) past: Index,
    /// Its user asked for its completion. One that fails completes either way.
    pub(super) signal: bool,
}

impl Request {
    /// What a completion of it says, of the queue pair `qp`.
    pub(super) fn completed(&self, cqe: &Cqe, qp: QpRef) -> Completion {
        let succeeded = cqe.status == Status::Success.code();
        let received = cqe.flags & cqe_flags::RECV != 0;
        Completion {
            id: self.id,
            what: match self.what {
                Completed::Received if cqe.opcode == opcode::RECV_WRITE_IMM => Completed::Written,
                what => what,
            },
            status: match Status::from_code(cqe.status) {
                Some(status) => status.code(),
                None => Status::General.code(),
            },
            vendor: cqe.vendor,
            bytes: if succeeded { cqe.bytes } else { 0 },
            imm: (succeeded && cqe.flags & cqe_flags::IMM != 0).then_some(cqe.imm),
            from: (succeeded && received && cqe.flags & cqe_flags::GRH != 0).then_some(cqe.src),
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
            what: Completed::Received,
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
        let ahead = (0..self.count).find(|ahead| {
            let slot = self.slots.get((self.first + ahead) % depth);
            slot.is_some_and(|request| request.past == past)
        })?;
        self.first = (self.first + ahead) % depth;
        self.count -= ahead;
        self.pop()
    }
}

#[kernel::macros::kunit_tests(qpair_ulp)]
mod tests {
    use super::*;
    use crate::sys::rdma::Operation;

    fn request(id: u64, past: u32) -> Request {
        Request {
            id,
            what: Completed::Sent(Operation::Send),
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
