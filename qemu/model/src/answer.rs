// SPDX-License-Identifier: GPL-2.0
//! Answers: what a responder says to a request, and why a request fails.

use crate::subject::Subject;
use qpair_abi::status::Detail;
use qpair_abi::status::Status;
use qpair_abi::Number;
use qpair_roce::extended;

/// The responder's words for a request that it refuses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Nak {
    InvalidRequest,
    RemoteAccess,
    RemoteOperation,
}

impl Nak {
    /// The status of the work request.
    pub(crate) fn status(self) -> Status {
        match self {
            Self::InvalidRequest => Status::RemoteInvalidRequest,
            Self::RemoteAccess => Status::RemoteAccess,
            Self::RemoteOperation => Status::RemoteOperation,
        }
    }

    /// The event of a responder that has failed, if no receive reports it.
    pub(crate) fn subject(self, qp: Number) -> Subject {
        match self {
            Self::InvalidRequest => Subject::Request(qp),
            Self::RemoteAccess => Subject::Access(qp),
            Self::RemoteOperation => Subject::Fatal(qp),
        }
    }
}

impl From<Nak> for extended::Nak {
    fn from(nak: Nak) -> Self {
        match nak {
            Nak::InvalidRequest => Self::InvalidRequest,
            Nak::RemoteAccess => Self::RemoteAccess,
            Nak::RemoteOperation => Self::RemoteOperation,
        }
    }
}

/// Why a responder does not serve a request.
pub(crate) enum Refusal {
    /// It has no receive. The sender waits for as long as the code of this timer says.
    NotReady { timer: u8 },
    /// It refuses the request, and has failed. The detail is not part of the protocol.
    Nak(Nak, Detail),
    /// It does not answer.
    Silent(Detail),
}

/// The answer of a responder.
pub(crate) type Answer<T> = Result<T, Refusal>;

/// Why a work request fails, or has to wait.
pub(crate) enum Failure {
    /// By a fault of its own.
    Own(Status, Detail),
    /// By the answer of the responder.
    Peer(Refusal),
}

impl Failure {
    /// There is no peer to answer.
    pub(crate) const NO_PEER: Self = Self::Peer(Refusal::Silent(Detail::NoPeer));

    /// The sender's memory is at fault.
    pub(crate) fn memory(detail: Detail) -> Self {
        Self::Own(Status::LocalProtection, detail)
    }
}

impl From<Refusal> for Failure {
    fn from(refusal: Refusal) -> Self {
        Self::Peer(refusal)
    }
}
