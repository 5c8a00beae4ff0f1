// SPDX-License-Identifier: GPL-2.0

//! A request that is posted, and what a completion of the device says of it to its ULP.

use crate::{
    abi::{
        entry::{
            cqe_flags,
            Cqe,
            Sge, //
        },
        status::Status, //
    },
    kernel::rdma::{
        Completed,
        CoreSge,
        Events,
        Operation,
        QpEvent,
        RecvRequest,
        WorkCompletion, //
    },
    queue::{
        index::Index,
        pending::{
            self,
            Memory, //
        },
        producer::Refused, //
    }, //
};
use kernel::prelude::*;

/// A request that is posted, until it completes.
#[derive(Clone, Copy)]
pub(super) enum Posted {
    Send(Operation),
    Receive(Memory),
}

impl Posted {
    /// What was completed, the bytes of it, and how it went: a success that cannot be true is a
    /// general error.
    fn completed(self, cqe: &Cqe) -> (Completed, u32, Status) {
        let (what, bytes) = match self {
            Self::Send(operation) => (Completed::Sent(operation), Some(cqe.bytes)),
            Self::Receive(memory) if memory.is_written(cqe) => {
                (Completed::Written, memory.bytes(cqe))
            }
            Self::Receive(memory) => (Completed::Received, memory.bytes(cqe)),
        };
        match (Status::from_code(cqe.status), bytes) {
            (Some(Status::Success), Some(bytes)) => (what, bytes, Status::Success),
            (Some(Status::Success) | None, _) => (what, 0, Status::General),
            (Some(status), _) => (what, 0, status),
        }
    }
}

/// The immediate data of a completion, and the key that the peer has invalidated, which a ULP
/// compares with the one that it expects.
fn carried(cqe: &Cqe, status: Status) -> (Option<u32>, Option<u32>) {
    let has = |flag: u8| status == Status::Success && cqe.flags & flag != 0;
    (
        has(cqe_flags::IMM).then_some(cqe.imm),
        has(cqe_flags::INV).then_some(cqe.imm),
    )
}

/// A request that is posted and not completed.
#[derive(Clone, Copy)]
pub(crate) struct Request {
    /// Its ULP's own: `wr_id`.
    pub(super) id: u64,
    pub(super) what: Posted,
    /// Its ULP asked for its completion. One that fails completes either way.
    pub(super) signal: bool,
}

impl Request {
    /// What a slot without a request holds.
    const NONE: Self = Self {
        id: 0,
        what: Posted::Receive(Memory::Message(0)),
        signal: false,
    };

    /// A receive, as its queue pair has it: of a datagram if `datagrams`.
    pub(super) fn receive(recv: Recv, datagrams: bool) -> Self {
        let Recv { id, bytes } = recv;
        let memory = match datagrams {
            true => Memory::Datagram(bytes),
            false => Memory::Message(bytes),
        };
        Self {
            id,
            what: Posted::Receive(memory),
            signal: true,
        }
    }

    /// What a completion of it says, of the queue pair `qp`.
    pub(super) fn completed<'a>(&self, cqe: &Cqe, qp: &'a Events<QpEvent>) -> WorkCompletion<'a> {
        let (what, bytes, status) = self.what.completed(cqe);
        let succeeded = status == Status::Success;
        let (imm, invalidated) = carried(cqe, status);
        let is_datagram = matches!(self.what, Posted::Receive(Memory::Datagram(_)));
        WorkCompletion {
            id: self.id,
            what,
            status: status.code(),
            vendor: cqe.vendor,
            bytes,
            imm,
            invalidated,
            from: (succeeded && is_datagram).then_some(cqe.src),
            qp,
        }
    }
}

/// A receive that is posted, to a queue pair or to an SRQ.
#[derive(Clone, Copy)]
pub(super) struct Recv {
    /// Its ULP's own: `wr_id`.
    id: u64,
    /// Of its memory.
    bytes: u64,
}

impl Recv {
    /// As it is requested.
    pub(super) fn new(request: &RecvRequest<'_>) -> Self {
        let bytes = request.sges.iter().map(|sge| u64::from(sge.length));
        Self {
            id: request.id,
            bytes: bytes.fold(0, u64::saturating_add),
        }
    }
}

/// A piece, as the device has it.
pub(super) fn sge(sge: &CoreSge) -> Sge {
    Sge {
        addr: sge.addr,
        bytes: sge.length,
        lkey: sge.lkey,
    }
}

/// The errno of a post that is refused.
pub(super) fn refused(refused: Refused) -> Error {
    match refused {
        Refused::Full => ENOMEM,
        Refused::TooLarge => EINVAL,
    }
}

/// The requests of a queue.
pub(super) type Pending = pending::Pending<KVVec<(Index, Request)>>;

/// None, and room for `most`. Sleeps.
///
/// # Errors
///
/// `ENOMEM`.
pub(super) fn none(most: u32) -> Result<Pending> {
    let mut slots = KVVec::new();
    slots.resize(most as usize, (Index::ZERO, Request::NONE), GFP_KERNEL)?;
    Ok(Pending::new(slots))
}

#[kernel::macros::kunit_tests(qpair_ulp)]
mod tests {
    use super::*;
    use crate::abi::entry::opcode;

    #[test]
    fn a_success_that_cannot_be_true_is_an_error() {
        let posted = Posted::Receive(Memory::Message(64));
        let cqe = |bytes| Cqe {
            bytes,
            flags: cqe_flags::RECV,
            opcode: opcode::RECV,
            ..Cqe::default()
        };
        let received = Completed::Received;
        let (success, general) = (Status::Success, Status::General);
        assert_eq!(posted.completed(&cqe(64)), (received, 64, success));
        assert_eq!(posted.completed(&cqe(65)), (received, 0, general));
        let unknown = Cqe {
            status: u8::MAX,
            ..cqe(0)
        };
        assert_eq!(posted.completed(&unknown), (received, 0, general));
        let flushed = Cqe {
            status: Status::Flush.code(),
            ..cqe(65)
        };
        assert_eq!(posted.completed(&flushed), (received, 0, Status::Flush));
        let written = Cqe {
            opcode: opcode::RECV_WRITE_IMM,
            ..cqe(65)
        };
        let written = posted.completed(&written);
        assert_eq!(written, (Completed::Written, 64, success));
    }

    #[test]
    fn a_key_or_immediate_data_is_of_a_success() {
        let key = 0x4000_1234;
        let cqe = |flags| Cqe {
            flags: cqe_flags::RECV | flags,
            imm: key,
            ..Cqe::default()
        };
        let found = |flags, status| carried(&cqe(flags), status);
        let (imm, inv) = (cqe_flags::IMM, cqe_flags::INV);
        assert_eq!(found(0, Status::Success), (None, None));
        assert_eq!(found(imm, Status::Success), (Some(key), None));
        assert_eq!(found(inv, Status::Success), (None, Some(key)));
        assert_eq!(found(inv, Status::Flush), (None, None));
    }
}
