// SPDX-License-Identifier: GPL-2.0
//! Requests, and what becomes of them.

use crate::extended::Nak;
use crate::psn::Psn;

/// What a request is to the transport.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// A SEND or WRITE: as many packets as pieces, which are acknowledged.
    Message,
    /// A READ: one packet, answered with as many packets as pieces.
    Read,
    /// An atomic: one packet, answered with the old value.
    Atomic,
    /// FLUSH or atomic WRITE: one packet, answered with a READ response without data.
    Confirmed,
    /// It needs no peer.
    Local,
}

impl Kind {
    /// Whether an answer of its own completes it, and not an acknowledgement.
    #[inline]
    pub const fn is_answered(self) -> bool {
        matches!(self, Self::Read | Self::Atomic | Self::Confirmed)
    }
}

/// A request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Request {
    /// The caller's name for it.
    pub id: u32,
    /// What it is.
    pub kind: Kind,
    /// The bytes of a message or READ.
    pub bytes: u32,
    /// It begins when all before it that have answers of their own are answered.
    pub fence: bool,
}

/// A request that was begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Flying {
    pub(crate) request: Request,
    /// Its first PSN.
    pub(crate) first: Psn,
    /// How many PSNs it has; a local one has none.
    pub(crate) packets: u32,
    /// A local one was performed.
    pub(crate) performed: bool,
    /// Its own memory is wrong: it fails when all before it are completed.
    pub(crate) refused: bool,
}

impl Flying {
    /// The PSN past its last.
    pub(crate) fn end(&self) -> Psn {
        self.first.plus(self.packets)
    }

    /// Whether nothing of it is awaited.
    pub(crate) fn is_acknowledged(&self, acked: Psn) -> bool {
        match self.request.kind {
            Kind::Local => self.performed,
            _ => !acked.is_before(self.end()),
        }
    }
}

/// Why a request failed, and with it the queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Failure {
    /// The caller's memory for it is wrong.
    Local,
    /// No answer came.
    Retries,
    /// The receiver was not ready.
    RnrRetries,
    /// The peer refused it.
    Remote(Nak),
}

/// What became of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// It was executed.
    Done,
    /// It is the reason why the queue pair fails.
    Failed(Failure),
}
