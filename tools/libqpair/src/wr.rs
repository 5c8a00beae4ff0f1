// SPDX-License-Identifier: GPL-2.0
//! Work requests and completions.
//!
//! A request borrows its pieces and is encoded into the ring when it is posted; the library keeps
//! nothing of it.

use std::fmt;

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

/// The data of a work request.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Payload<'a> {
    Gather(&'a [Sge]),
    Inline(&'a [u8]),
    /// The operands of an atomic, and where the old value goes.
    Atomic([u64; 2], Sge),
}

/// Words of the operands of an atomic and of its piece.
const ATOMIC_WORDS: usize = 2 + Sge::WORDS;
/// Words of the largest work request.
pub(crate) const WORDS: usize = MAX_BLOCKS * BLOCK_WORDS;

impl Payload<'_> {
    /// Blocks that it takes behind a head of so many words, if the device has such.
    #[inline(always)]
    pub(crate) fn blocks(&self, head: usize, limits: &Limits) -> Result<u32, &'static str> {
        let words = match self {
            Payload::Gather(sges) if sges.len() > limits.send_sges => {
                return Err("more pieces than a work request may have (max_send_sge; 12 of UD)")
            }
            Payload::Gather(sges) => sges.len() * Sge::WORDS,
            Payload::Inline(bytes) if bytes.len() > limits.inline => {
                return Err(
                    "more inline bytes than a work request may have (max_inline; 192 of UD)",
                )
            }
            Payload::Inline(bytes) => bytes.len().div_ceil(8),
            Payload::Atomic(..) => ATOMIC_WORDS,
        };
        match (head + words).div_ceil(BLOCK_WORDS) {
            blocks @ 1..=MAX_BLOCKS => Ok(blocks as u32),
            _ => Err("it takes more than four blocks"),
        }
    }

    /// Pieces, and inline bytes.
    #[inline(always)]
    pub(crate) fn counts(&self) -> (usize, usize) {
        match self {
            Payload::Gather(sges) => (sges.len(), 0),
            Payload::Inline(bytes) => (0, bytes.len()),
            Payload::Atomic(..) => (1, 0),
        }
    }

    /// Writes it behind the head.
    #[inline(always)]
    pub(crate) fn put(&self, body: &mut [u64]) {
        match self {
            Payload::Gather(sges) => put(body, sges),
            Payload::Inline(bytes) => {
                for (word, bytes) in body.iter_mut().zip(bytes.chunks(8)) {
                    let mut whole = [0; 8];
                    whole[..bytes.len()].copy_from_slice(bytes);
                    *word = u64::from_le_bytes(whole);
                }
            }
            Payload::Atomic(operands, old) => {
                let (first, rest) = body.split_at_mut(operands.len());
                first.copy_from_slice(operands);
                put(rest, &[*old]);
            }
        }
    }
}

/// A work request for a send queue, as it is written there.
pub(crate) trait Encode: Copy {
    /// Whether it requests a completion.
    fn wants_signal(&self) -> bool;

    /// Blocks that it takes, if the device has such.
    fn blocks(&self, limits: &Limits) -> Result<u32, &'static str>;

    /// What encodes the request, signaled or not, if it is one block without inline data: the
    /// common case.
    fn one_block(self) -> Option<impl FnOnce(bool) -> [u64; BLOCK_WORDS]>;

    /// What is written into the queue.
    fn encode(&self, blocks: u32, signaled: bool) -> [u64; WORDS];
}

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

    /// Adds to 8 aligned bytes of the peer's memory. Their old value goes into `old`, a piece of 8
    /// bytes. It is atomic among the queue pairs of the device, and not among them and the CPUs.
    pub const fn fetch_add(id: u64, old: Sge, remote: Remote, add: u64) -> Self {
        let payload = Payload::Atomic([add, 0], old);
        let mut request = Self::new(id, opcode::FETCH_ADD, payload);
        request.remote = remote;
        request
    }

    /// The same, but replaces them by `swap` if they are `compare`.
    pub const fn compare_swap(id: u64, old: Sge, remote: Remote, compare: u64, swap: u64) -> Self {
        let payload = Payload::Atomic([compare, swap], old);
        let mut request = Self::new(id, opcode::COMPARE_SWAP, payload);
        request.remote = remote;
        request
    }

    /// Carries 32 bits to the peer's completion. Of a WRITE this takes the peer's next receive;
    /// READs, atomics and NOPs carry nothing.
    pub const fn imm(mut self, imm: u32) -> Self {
        self.opcode = match self.opcode {
            opcode::SEND => opcode::SEND_IMM,
            opcode::WRITE => opcode::WRITE_IMM,
            _ => return self,
        };
        self.imm = imm;
        self
    }

    /// Requests a completion. A failed request always has one, and the library requests one where
    /// the queue could otherwise not free its slots.
    pub const fn signaled(mut self) -> Self {
        self.flags |= send_flags::SIGNALED;
        self
    }

    /// Makes the peer's completion a solicited one.
    pub const fn solicited(mut self) -> Self {
        self.flags |= send_flags::SOLICITED;
        self
    }

    /// Waits until all READs and atomics before it are done.
    pub const fn fence(mut self) -> Self {
        self.flags |= send_flags::FENCE;
        self
    }

    #[inline(always)]
    fn head(&self, blocks: u32, signaled: bool) -> SendWqe {
        let (sges, inline_bytes) = self.payload.counts();
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
}

impl Encode for WorkRequest<'_> {
    #[inline(always)]
    fn wants_signal(&self) -> bool {
        self.flags & send_flags::SIGNALED != 0
    }

    #[inline(always)]
    fn blocks(&self, limits: &Limits) -> Result<u32, &'static str> {
        self.payload.blocks(SendWqe::WORDS, limits)
    }

    /// Of at most two pieces.
    #[inline(always)]
    fn one_block(self) -> Option<impl FnOnce(bool) -> [u64; BLOCK_WORDS]> {
        let (first, second) = match self.payload {
            Payload::Gather([]) => ([0; Sge::WORDS], [0; Sge::WORDS]),
            Payload::Gather([one]) => (one.encode(), [0; Sge::WORDS]),
            Payload::Gather([one, two]) => (one.encode(), two.encode()),
            _ => return None,
        };
        Some(move |signaled| {
            let head = self.head(1, signaled).encode();
            [
                head[0], head[1], head[2], head[3], first[0], first[1], second[0], second[1],
            ]
        })
    }

    #[inline]
    fn encode(&self, blocks: u32, signaled: bool) -> [u64; WORDS] {
        let mut words = [0; WORDS];
        let (head, body) = words.split_at_mut(SendWqe::WORDS);
        self.payload.put(body);
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
            return Err(
                "more pieces than the receive queue was made for (QpOptions::max_recv_sge)",
            );
        }
        Ok(())
    }

    /// The encoded request, if it is one block of at most one piece: the common case.
    #[inline(always)]
    pub(crate) fn one_block(&self) -> Option<[u64; BLOCK_WORDS]> {
        let piece = match self.sges {
            [] => [0; Sge::WORDS],
            [one] => one.encode(),
            _ => return None,
        };
        let head = self.head().encode();
        Some([head[0], head[1], piece[0], piece[1], 0, 0, 0, 0])
    }

    #[inline(always)]
    fn head(&self) -> RecvWqe {
        RecvWqe {
            sges: self.sges.len() as u8,
            wr_id: self.id,
        }
    }

    #[inline]
    pub(crate) fn encode(&self) -> [u64; WORDS] {
        let mut words = [0; WORDS];
        let (head, body) = words.split_at_mut(RecvWqe::WORDS);
        head.copy_from_slice(&self.head().encode());
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

/// The device's limits of a work request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    pub(crate) send_sges: usize,
    pub(crate) inline: usize,
}

/// What was done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Done {
    /// A NOP, which moves nothing.
    #[default]
    Nop,
    /// A SEND, with immediate data or without.
    Send,
    /// A WRITE, with immediate data or without.
    Write,
    /// A READ: its data have arrived.
    Read,
    /// A compare and swap: the old value has arrived.
    CompareSwap,
    /// A fetch and add: the old value has arrived.
    FetchAdd,
    /// A receive that a SEND filled.
    Receive,
    /// A receive that a WRITE with immediate took.
    ReceiveWrite,
    /// One that this version does not know.
    Other(u8),
}

/// The result of a work request, and of all unsignaled ones before it in its queue.
///
/// This is a snapshot of the device's entry, decoded on demand. Values that this version does not
/// know are [`Done::Other`], [`Status::General`] and [`Detail::None`].
#[derive(Clone, Copy)]
pub struct Completion {
    words: [u64; Cqe::WORDS],
}

impl Completion {
    #[inline(always)]
    pub(crate) const fn new(words: [u64; Cqe::WORDS]) -> Self {
        Self { words }
    }

    #[inline(always)]
    fn cqe(&self) -> Cqe {
        Cqe::decode(&self.words)
    }

    /// The identifier that the work request was posted with.
    #[inline(always)]
    pub fn id(&self) -> u64 {
        self.cqe().wr_id
    }

    /// The number of the queue pair that the work request was posted to.
    #[inline(always)]
    pub fn qp(&self) -> Number {
        self.cqe().qp
    }

    /// What was done. Not meaningful if it failed.
    #[inline]
    pub fn done(&self) -> Done {
        match self.cqe().opcode {
            opcode::NOP => Done::Nop,
            opcode::SEND | opcode::SEND_IMM => Done::Send,
            opcode::WRITE | opcode::WRITE_IMM => Done::Write,
            opcode::READ => Done::Read,
            opcode::COMPARE_SWAP => Done::CompareSwap,
            opcode::FETCH_ADD => Done::FetchAdd,
            opcode::RECV => Done::Receive,
            opcode::RECV_WRITE_IMM => Done::ReceiveWrite,
            other => Done::Other(other),
        }
    }

    /// Whether it was of the receive queue.
    #[inline(always)]
    pub fn is_receive(&self) -> bool {
        self.cqe().flags & cqe_flags::RECV != 0
    }

    /// The number of the queue pair that sent a datagram; `None` of other completions.
    #[inline(always)]
    pub fn src(&self) -> Option<Number> {
        let cqe = self.cqe();
        (cqe.flags & cqe_flags::GRH != 0).then_some(Number::from_raw(cqe.src))
    }

    /// Bytes received or read; of a datagram with the [`GRH_BYTES`](crate::GRH_BYTES) before it.
    #[inline(always)]
    pub fn bytes(&self) -> u32 {
        self.cqe().bytes
    }

    /// Immediate data of the peer's; `None` of a message without.
    #[inline(always)]
    pub fn imm(&self) -> Option<u32> {
        let cqe = self.cqe();
        (cqe.flags & cqe_flags::IMM != 0).then_some(cqe.imm)
    }

    /// Success, or the kind of the error.
    #[inline]
    pub fn status(&self) -> Status {
        Status::from_code(self.cqe().status).unwrap_or(Status::General)
    }

    /// The check of the device that failed, for messages.
    #[inline]
    pub fn detail(&self) -> Detail {
        Detail::from_code(self.cqe().vendor).unwrap_or(Detail::None)
    }

    /// `self` if it succeeded, else the error.
    #[inline(always)]
    pub fn check(&self) -> Result<&Self, CompletionError> {
        if self.cqe().status == Status::Success.code() {
            return Ok(self);
        }
        Err(self.error())
    }

    #[cold]
    fn error(&self) -> CompletionError {
        CompletionError {
            id: self.id(),
            qp: self.qp(),
            status: self.status(),
            detail: self.detail(),
        }
    }
}

/// That of a NOP without a queue pair, to poll into.
impl Default for Completion {
    fn default() -> Self {
        Self::new(Cqe::default().encode())
    }
}

impl fmt::Debug for Completion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Completion")
            .field("id", &self.id())
            .field("qp", &self.qp())
            .field("done", &self.done())
            .field("is_receive", &self.is_receive())
            .field("bytes", &self.bytes())
            .field("imm", &self.imm())
            .field("src", &self.src())
            .field("status", &self.status())
            .field("detail", &self.detail())
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PIECE: Sge = Sge {
        addr: 1,
        bytes: 2,
        lkey: 3,
    };

    #[test]
    fn each_modifier_sets_its_flag() {
        let (send, all) = (WorkRequest::send(1, &[]), send_flags::ALL);
        let inline = WorkRequest::send_inline(1, b"");
        assert_eq!(send.flags, 0);
        assert_eq!(send.signaled().flags, send_flags::SIGNALED);
        assert_eq!(send.solicited().flags, send_flags::SOLICITED);
        assert_eq!(send.fence().flags, send_flags::FENCE);
        assert_eq!(inline.signaled().solicited().fence().flags, all);
        assert_eq!(inline.fence().fence().solicited().signaled().flags, all);
    }

    #[test]
    fn one_block_is_as_it_is_encoded() {
        let to = Remote { addr: 4, rkey: 5 };
        for count in 0..4 {
            let pieces = &[PIECE; 3][..count];
            let write = WorkRequest::write(6, pieces, to).imm(7).solicited();
            for signaled in [false, true] {
                let right = write.encode(1, signaled);
                let block = write.one_block().map(|block| block(signaled));
                assert_eq!(block.is_some(), count < 3);
                assert!(block.is_none_or(|block| block == right[..BLOCK_WORDS]));
            }
            let receive = Receive::new(6, pieces);
            let block = receive.one_block();
            assert_eq!(block.is_some(), count < 2);
            assert!(block.is_none_or(|block| block == receive.encode()[..BLOCK_WORDS]));
        }
        let atomic = WorkRequest::fetch_add(6, PIECE, to, 1);
        assert!(atomic.one_block().is_none());
    }

    #[test]
    fn a_completion_shows_what_it_has() {
        let shown = format!("{:?}", Completion::default());
        assert!(shown.starts_with("Completion { id: 0, "), "{shown}");
        assert!(shown.ends_with("detail: None }"), "{shown}");
    }
}
