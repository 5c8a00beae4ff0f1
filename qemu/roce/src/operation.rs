// SPDX-License-Identifier: GPL-2.0
//! What a packet is.
//!
//! An [`Operation`] has exactly the extended headers that its opcode has. So none can be missing, and
//! each operation has one encoding.

use crate::extended::Aeth;
use crate::extended::AtomicEth;
use crate::extended::Encoded;
use crate::extended::Feth;
use crate::extended::Reader;
use crate::extended::Reth;
use crate::extended::With;
use crate::segment::Form;
use crate::segment::Position;

/// What a packet is, with its extended headers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)] // The names of the architecture.
pub enum Operation {
    SendFirst,
    SendMiddle,
    SendLast(With),
    SendOnly(With),
    WriteFirst(Reth),
    WriteMiddle,
    WriteLast(Option<[u8; 4]>),
    WriteOnly(Reth, Option<[u8; 4]>),
    Read(Reth),
    ReadReplyFirst(Aeth),
    ReadReplyMiddle,
    ReadReplyLast(Aeth),
    ReadReplyOnly(Aeth),
    Acknowledge(Aeth),
    AtomicReply(Aeth, u64),
    CompareSwap(AtomicEth),
    FetchAdd(AtomicEth),
    Flush(Feth, Reth),
    AtomicWrite(Reth),
}

impl Operation {
    /// The low five bits of the opcode.
    pub const fn code(&self) -> u8 {
        match self {
            Self::SendFirst => 0x00,
            Self::SendMiddle => 0x01,
            Self::SendLast(With::Nothing) => 0x02,
            Self::SendLast(With::Immediate(_)) => 0x03,
            Self::SendOnly(With::Nothing) => 0x04,
            Self::SendOnly(With::Immediate(_)) => 0x05,
            Self::WriteFirst(_) => 0x06,
            Self::WriteMiddle => 0x07,
            Self::WriteLast(None) => 0x08,
            Self::WriteLast(Some(_)) => 0x09,
            Self::WriteOnly(_, None) => 0x0a,
            Self::WriteOnly(_, Some(_)) => 0x0b,
            Self::Read(_) => 0x0c,
            Self::ReadReplyFirst(_) => 0x0d,
            Self::ReadReplyMiddle => 0x0e,
            Self::ReadReplyLast(_) => 0x0f,
            Self::ReadReplyOnly(_) => 0x10,
            Self::Acknowledge(_) => 0x11,
            Self::AtomicReply(..) => 0x12,
            Self::CompareSwap(_) => 0x13,
            Self::FetchAdd(_) => 0x14,
            Self::SendLast(With::Invalidate(_)) => 0x16,
            Self::SendOnly(With::Invalidate(_)) => 0x17,
            Self::Flush(..) => 0x1c,
            Self::AtomicWrite(_) => 0x1d,
        }
    }

    /// The operation of a code, with its headers.
    pub(crate) fn read(code: u8, from: &mut Reader<'_>) -> Option<Self> {
        Some(match code {
            0x00 => Self::SendFirst,
            0x01 => Self::SendMiddle,
            0x02 => Self::SendLast(With::Nothing),
            0x03 => Self::SendLast(With::Immediate(from.take()?)),
            0x04 => Self::SendOnly(With::Nothing),
            0x05 => Self::SendOnly(With::Immediate(from.take()?)),
            0x06 => Self::WriteFirst(from.reth()?),
            0x07 => Self::WriteMiddle,
            0x08 => Self::WriteLast(None),
            0x09 => Self::WriteLast(Some(from.take()?)),
            0x0a => Self::WriteOnly(from.reth()?, None),
            0x0b => Self::WriteOnly(from.reth()?, Some(from.take()?)),
            0x0c => Self::Read(from.reth()?),
            0x0d => Self::ReadReplyFirst(from.aeth()?),
            0x0e => Self::ReadReplyMiddle,
            0x0f => Self::ReadReplyLast(from.aeth()?),
            0x10 => Self::ReadReplyOnly(from.aeth()?),
            0x11 => Self::Acknowledge(from.aeth()?),
            0x12 => Self::AtomicReply(from.aeth()?, from.u64()?),
            0x13 => Self::CompareSwap(from.atomic()?),
            0x14 => Self::FetchAdd(from.atomic()?),
            0x16 => Self::SendLast(With::Invalidate(from.u32()?)),
            0x17 => Self::SendOnly(With::Invalidate(from.u32()?)),
            0x1c => Self::Flush(from.feth()?, from.reth()?),
            0x1d => Self::AtomicWrite(from.reth()?),
            _ => return None,
        })
    }

    /// Writes its headers.
    pub(crate) fn write(&self, to: &mut Encoded) {
        match *self {
            Self::SendLast(With::Immediate(imm))
            | Self::SendOnly(With::Immediate(imm))
            | Self::WriteLast(Some(imm)) => to.put(imm),
            Self::SendLast(With::Invalidate(key)) | Self::SendOnly(With::Invalidate(key)) => {
                to.put(key.to_be_bytes())
            }
            Self::WriteOnly(reth, Some(imm)) => to.reth(reth).put(imm),
            Self::WriteFirst(reth)
            | Self::WriteOnly(reth, None)
            | Self::Read(reth)
            | Self::AtomicWrite(reth) => to.reth(reth),
            Self::ReadReplyFirst(aeth)
            | Self::ReadReplyLast(aeth)
            | Self::ReadReplyOnly(aeth)
            | Self::Acknowledge(aeth) => to.put(aeth.encode()),
            Self::AtomicReply(aeth, old) => to.put(aeth.encode()).put(old.to_be_bytes()),
            Self::CompareSwap(eth) | Self::FetchAdd(eth) => to
                .put(eth.addr.to_be_bytes())
                .put(eth.key.to_be_bytes())
                .put(eth.swap_add.to_be_bytes())
                .put(eth.compare.to_be_bytes()),
            Self::Flush(feth, reth) => {
                let word = u32::from(feth.selectivity & 3) << 4 | u32::from(feth.placement & 0xf);
                to.put(word.to_be_bytes()).reth(reth)
            }
            Self::SendFirst
            | Self::SendMiddle
            | Self::SendLast(With::Nothing)
            | Self::SendOnly(With::Nothing)
            | Self::WriteMiddle
            | Self::WriteLast(None)
            | Self::ReadReplyMiddle => to,
        };
    }

    /// Of SENDs and WRITEs the form of the message, and the packet's place in it.
    pub const fn part(&self) -> Option<(Form, Position)> {
        Some(match *self {
            Self::SendFirst => (Form::Send, Position::First),
            Self::SendMiddle => (Form::Send, Position::Middle),
            Self::SendLast(_) => (Form::Send, Position::Last),
            Self::SendOnly(_) => (Form::Send, Position::Only),
            Self::WriteFirst(reth) => (Form::Write(reth.bytes), Position::First),
            Self::WriteMiddle => (Form::Write(0), Position::Middle),
            Self::WriteLast(_) => (Form::Write(0), Position::Last),
            Self::WriteOnly(reth, _) => (Form::Write(reth.bytes), Position::Only),
            _ => return None,
        })
    }

    /// A packet of a SEND.
    pub const fn send(position: Position, with: With) -> Self {
        match position {
            Position::First => Self::SendFirst,
            Position::Middle => Self::SendMiddle,
            Position::Last => Self::SendLast(with),
            Position::Only => Self::SendOnly(with),
        }
    }

    /// A packet of a WRITE.
    pub const fn write_to(position: Position, reth: Reth, imm: Option<[u8; 4]>) -> Self {
        match position {
            Position::First => Self::WriteFirst(reth),
            Position::Middle => Self::WriteMiddle,
            Position::Last => Self::WriteLast(imm),
            Position::Only => Self::WriteOnly(reth, imm),
        }
    }

    /// A packet of the response to a READ.
    pub const fn read_reply(position: Position, aeth: Aeth) -> Self {
        match position {
            Position::First => Self::ReadReplyFirst(aeth),
            Position::Middle => Self::ReadReplyMiddle,
            Position::Last => Self::ReadReplyLast(aeth),
            Position::Only => Self::ReadReplyOnly(aeth),
        }
    }

    /// Whether it answers a request, and so goes to the requester of its queue pair.
    pub const fn is_answer(&self) -> bool {
        matches!(self.code(), 0x0d..=0x12)
    }

    /// Whether a packet of it may have so many bytes.
    pub(crate) const fn takes(&self, bytes: usize) -> bool {
        match self.code() {
            0x0c | 0x11..=0x14 | 0x1c => bytes == 0,
            0x1d => bytes == 8,
            _ => true,
        }
    }
}
