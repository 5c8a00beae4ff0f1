// SPDX-License-Identifier: GPL-2.0
//! Work requests, and what becomes of them.
//!
//! A request borrows what it names and is encoded into the ring when it is posted: nothing of it is kept.

use qpair_abi::entry::{
    cqe_flags, opcode, recv_sges, send_flags, Cqe, RecvWqe, SendWqe, BLOCK_WORDS, MAX_BLOCKS,
};
use qpair_abi::status::{Detail, Status};
use qpair_abi::Number;

pub use qpair_abi::entry::Sge;

use crate::error::CompletionError;

/// A place in the peer's memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Remote {
    /// Address in the peer's region.
    pub addr: u64,
    /// The region's key.
    pub rkey: u32,
}

#[derive(Clone, Copy, Debug)]
enum Payload<'a> {
    Gather(&'a [Sge]),
    Inline(&'a [u8]),
}

/// Words of the largest work request.
const WORDS: usize = MAX_BLOCKS * BLOCK_WORDS;

/// A work request for a send queue.
#[derive(Clone, Copy, Debug)]
pub struct WorkRequest<'a> {
    id: u64,
    opcode: u8,
    flags: u8,
    imm: u32,
    remote: Remote,
    payload: Payload<'a>,
}

impl<'a> WorkRequest<'a> {
    const fn new(id: u64, opcode: u8, payload: Payload<'a>) -> Self {
        Self {
            id,
            opcode,
            flags: 0,
            imm: 0,
            remote: Remote { addr: 0, rkey: 0 },
            payload,
        }
    }

    /// Does nothing, and completes.
    pub const fn nop(id: u64) -> Self {
        Self::new(id, opcode::NOP, Payload::Gather(&[]))
    }

    /// Fills the peer's next receive with these pieces.
    pub const fn send(id: u64, sges: &'a [Sge]) -> Self {
        Self::new(id, opcode::SEND, Payload::Gather(sges))
    }

    /// Fills the peer's next receive with these bytes, which go into the queue itself.
    pub const fn send_inline(id: u64, bytes: &'a [u8]) -> Self {
        let mut request = Self::new(id, opcode::SEND, Payload::Inline(bytes));
        request.flags = send_flags::INLINE;
        request
    }

    /// Writes these pieces to the peer's memory.
    pub const fn write(id: u64, sges: &'a [Sge], remote: Remote) -> Self {
        let mut request = Self::new(id, opcode::WRITE, Payload::Gather(sges));
        request.remote = remote;
        request
    }

    /// Writes these bytes, which go into the queue itself, to the peer's memory.
    pub const fn write_inline(id: u64, bytes: &'a [u8], remote: Remote) -> Self {
        let mut request = Self::send_inline(id, bytes);
        request.opcode = opcode::WRITE;
        request.remote = remote;
        request
    }

    /// Reads the peer's memory into these pieces.
    pub const fn read(id: u64, sges: &'a [Sge], remote: Remote) -> Self {
        let mut request = Self::new(id, opcode::READ, Payload::Gather(sges));
        request.remote = remote;
        request
    }

    /// Carries 32 bits to the peer's completion. Of a WRITE this takes the peer's next receive; a READ and a NOP
    /// carry nothing.
    pub const fn imm(mut self, imm: u32) -> Self {
        self.opcode = match self.opcode {
            opcode::SEND => opcode::SEND_IMM,
            opcode::WRITE => opcode::WRITE_IMM,
            other => {
                return Self {
                    opcode: other,
                    ..self
                }
            }
        };
        self.imm = imm;
        self
    }

    /// Asks for a completion. One that fails has one anyway, and the library asks where
    /// the queue would never get its slots back otherwise.
    pub const fn signaled(mut self) -> Self {
        self.flags |= send_flags::SIGNALED;
        self
    }

    /// Makes the peer's completion a solicited one.
    pub const fn solicited(mut self) -> Self {
        self.flags |= send_flags::SOLICITED;
        self
    }

    /// Waits until all READs before it are done.
    pub const fn fence(mut self) -> Self {
        self.flags |= send_flags::FENCE;
        self
    }

    #[inline(always)]
    pub(crate) fn wants_signal(&self) -> bool {
        self.flags & send_flags::SIGNALED != 0
    }

    /// Blocks that it takes, if the device has such.
    #[inline(always)]
    pub(crate) fn blocks(&self, limits: &Limits) -> Result<u32, &'static str> {
        let words = match self.payload {
            Payload::Gather(sges) if sges.len() > limits.send_sges => {
                return Err("more pieces than a work request may have (max_send_sge)")
            }
            Payload::Gather(sges) => sges.len() * Sge::WORDS,
            Payload::Inline(bytes) if bytes.len() > limits.inline => {
                return Err("more inline bytes than a work request may have (max_inline)")
            }
            Payload::Inline(bytes) => bytes.len().div_ceil(8),
        };
        match (SendWqe::WORDS + words).div_ceil(BLOCK_WORDS) {
            blocks @ 1..=MAX_BLOCKS => Ok(blocks as u32),
            _ => Err("it takes more than four blocks"),
        }
    }

    /// What is written into the queue, if that is one block of at most two pieces: the common case.
    #[inline(always)]
    pub(crate) fn one_block(&self, signaled: bool) -> Option<[u64; BLOCK_WORDS]> {
        let Payload::Gather(sges) = self.payload else {
            return None;
        };
        let (first, second) = match sges {
            [] => ([0; Sge::WORDS], [0; Sge::WORDS]),
            [one] => (one.encode(), [0; Sge::WORDS]),
            [one, two] => (one.encode(), two.encode()),
            _ => return None,
        };
        let head = self.head(1, signaled).encode();
        Some([
            head[0], head[1], head[2], head[3], first[0], first[1], second[0], second[1],
        ])
    }

    #[inline(always)]
    fn head(&self, blocks: u32, signaled: bool) -> SendWqe {
        let (sges, inline_bytes) = match self.payload {
            Payload::Gather(sges) => (sges.len(), 0),
            Payload::Inline(bytes) => (0, bytes.len()),
        };
        SendWqe {
            opcode: self.opcode,
            flags: if signaled {
                self.flags | send_flags::SIGNALED
            } else {
                self.flags
            },
            blocks: blocks as u8,
            sges: sges as u8,
            imm: self.imm,
            wr_id: self.id,
            remote_addr: self.remote.addr,
            rkey: self.remote.rkey,
            inline_bytes: inline_bytes as u32,
        }
    }

    /// What is written into the queue.
    #[inline]
    pub(crate) fn encode(&self, blocks: u32, signaled: bool) -> [u64; WORDS] {
        let mut words = [0; WORDS];
        let (head, body) = words.split_at_mut(SendWqe::WORDS);
        match self.payload {
            Payload::Gather(sges) => put(body, sges),
            Payload::Inline(bytes) => {
                for (word, bytes) in body.iter_mut().zip(bytes.chunks(8)) {
                    let mut whole = [0; 8];
                    whole[..bytes.len()].copy_from_slice(bytes);
                    *word = u64::from_le_bytes(whole);
                }
            }
        }
        head.copy_from_slice(&self.head(blocks, signaled).encode());
        words
    }
}

/// A work request for a receive queue: where the next message goes.
#[derive(Clone, Copy, Debug)]
pub struct Receive<'a> {
    id: u64,
    sges: &'a [Sge],
}

impl<'a> Receive<'a> {
    /// Takes a message into these pieces.
    pub const fn new(id: u64, sges: &'a [Sge]) -> Self {
        Self { id, sges }
    }

    pub(crate) fn check(&self, stride: u8) -> Result<(), &'static str> {
        if self.sges.len() > recv_sges(stride) {
            return Err("more pieces than the receive queue was made for (QpOptions::recv_sges)");
        }
        Ok(())
    }

    #[inline]
    pub(crate) fn encode(&self) -> [u64; WORDS] {
        let mut words = [0; WORDS];
        let (head, body) = words.split_at_mut(RecvWqe::WORDS);
        let wqe = RecvWqe {
            sges: self.sges.len() as u8,
            wr_id: self.id,
        };
        head.copy_from_slice(&wqe.encode());
        put(body, self.sges);
        words
    }
}

#[inline]
fn put(body: &mut [u64], sges: &[Sge]) {
    for (words, sge) in body.chunks_exact_mut(Sge::WORDS).zip(sges) {
        words.copy_from_slice(&sge.encode());
    }
}

/// What the device lets a work request have.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    pub(crate) send_sges: usize,
    pub(crate) inline: usize,
}

/// What was done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Done {
    /// Nothing.
    #[default]
    Nop,
    /// A SEND.
    Send,
    /// A WRITE.
    Write,
    /// A READ.
    Read,
    /// A receive that a SEND filled.
    Receive,
    /// A receive that a WRITE with immediate took.
    ReceiveWrite,
    /// One that this version does not know.
    Other(u8),
}

/// What became of a work request, and of all unsignalled ones before it in its queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion {
    /// The work request's own.
    pub id: u64,
    /// Its queue pair.
    pub qp: Number,
    /// What was done. Of a failed one it says little.
    pub done: Done,
    /// Whether it was of the receive queue.
    pub is_receive: bool,
    /// Bytes received or read.
    pub bytes: u32,
    /// The peer's 32 bits.
    pub imm: Option<u32>,
    /// How it went.
    pub status: Status,
    /// Which check refused it.
    pub detail: Detail,
}

impl Default for Completion {
    fn default() -> Self {
        Self::from(&Cqe::default())
    }
}

/// What a byte of an entry says; a table is the quickest way to it.
struct Codes {
    done: [Done; 256],
    status: [Status; 256],
    detail: [Detail; 256],
}

static CODES: Codes = {
    let mut codes = Codes {
        done: [Done::Nop; 256],
        status: [Status::General; 256],
        detail: [Detail::None; 256],
    };
    let mut code = 0;
    while code < 256 {
        let byte = code as u8;
        codes.done[code] = match byte {
            opcode::NOP => Done::Nop,
            opcode::SEND | opcode::SEND_IMM => Done::Send,
            opcode::WRITE | opcode::WRITE_IMM => Done::Write,
            opcode::READ => Done::Read,
            opcode::RECV => Done::Receive,
            opcode::RECV_WRITE_IMM => Done::ReceiveWrite,
            other => Done::Other(other),
        };
        if let Some(status) = Status::from_code(byte) {
            codes.status[code] = status;
        }
        if let Some(detail) = Detail::from_code(byte) {
            codes.detail[code] = detail;
        }
        code += 1;
    }
    codes
};

impl From<&Cqe> for Completion {
    #[inline(always)]
    fn from(cqe: &Cqe) -> Self {
        Self {
            id: cqe.wr_id,
            qp: cqe.qp,
            done: CODES.done[usize::from(cqe.opcode)],
            is_receive: cqe.flags & cqe_flags::RECV != 0,
            bytes: cqe.bytes,
            imm: (cqe.flags & cqe_flags::IMM != 0).then_some(cqe.imm),
            status: CODES.status[usize::from(cqe.status)],
            detail: CODES.detail[usize::from(cqe.vendor)],
        }
    }
}

impl Completion {
    /// Itself if it went well, else the error.
    #[inline]
    pub fn check(&self) -> Result<&Self, CompletionError> {
        if self.status == Status::Success {
            return Ok(self);
        }
        Err(CompletionError {
            id: self.id,
            qp: self.qp,
            status: self.status,
            detail: self.detail,
        })
    }
}
