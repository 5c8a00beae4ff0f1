// SPDX-License-Identifier: GPL-2.0
//! Work requests, and the WQEs of SENDs, WRITEs and READs.

use qpair_abi::entry::{self, send_flags, SendWqe, Sge, BLOCK_WORDS, MAX_BLOCKS};
use qpair_queue::credit::{Kind, Sq};
use qpair_queue::producer::{Batch, Refused, Room};
use qpair_queue::storage::Storage;

/// Words of the largest work request.
pub(crate) const WORDS: usize = MAX_BLOCKS * BLOCK_WORDS;
/// Bytes of a word.
pub(crate) const WORD: usize = size_of::<u64>();

/// The data of a send request.
#[derive(Clone, Copy, Debug)]
pub enum Payload<'a> {
    /// SGEs of memory regions.
    Gather(&'a [Sge]),
    /// Memory of this process, copied into the request; the keys are not used.
    Inline(&'a [Sge]),
}

/// A send request, without its data.
#[derive(Clone, Copy, Debug, Default)]
pub struct Request {
    /// `wr_id` of the program, which the completion has too.
    pub wr_id: u64,
    /// An [opcode](entry::opcode) of the device.
    pub opcode: u8,
    /// [Flags](send_flags) that the program wants; INLINE is not used.
    pub flags: u8,
    /// Immediate data, in the program's byte order; a key of SEND_INV.
    pub imm: u32,
    /// The address in the peer's memory.
    pub remote_addr: u64,
    /// The key of the peer's memory.
    pub rkey: u32,
}

/// Whether an operation carries immediate data, or a key in its place.
#[inline(always)]
pub(crate) const fn has_imm(opcode: u8) -> bool {
    use entry::opcode::{SEND_IMM, SEND_INV, WRITE_IMM};
    matches!(opcode, SEND_IMM | WRITE_IMM | SEND_INV)
}

/// Whether an operation names memory of the peer.
#[inline(always)]
pub(crate) const fn has_remote(opcode: u8) -> bool {
    use entry::opcode::{SEND, SEND_IMM, SEND_INV};
    !matches!(opcode, SEND | SEND_IMM | SEND_INV)
}

/// Limits of the sends of a queue pair.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Most SGEs of a send.
    pub max_send_sge: u32,
    /// Most inline bytes of a send.
    pub max_inline_data: u32,
}

/// Why a request is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The queue has too few free slots, until completions are polled.
    Full,
    /// It exceeds a limit of the queue pair, or its data do not go with its opcode.
    Invalid,
    /// The queue pair's state does not permit it.
    State,
    /// The device has no such operation.
    Unsupported,
}

impl From<Refused> for Refusal {
    #[inline(always)]
    fn from(refused: Refused) -> Self {
        match refused {
            Refused::Full => Self::Full,
            Refused::TooLarge => Self::Invalid,
        }
    }
}

/// Blocks of a send request with `words` words of data.
#[inline(always)]
const fn blocks(words: usize) -> usize {
    (SendWqe::WORDS + words).div_ceil(BLOCK_WORDS)
}

/// Most blocks of a send request within limits.
pub fn most_blocks(sges: u32, inline: u32) -> u32 {
    let gather = sges as usize * Sge::WORDS;
    let inline = (inline as usize).div_ceil(WORD);
    // CAST: A small number, or one that the device refuses.
    blocks(gather.max(inline)) as u32
}

impl Request {
    /// A request of fields that were passed in registers, in pairs.
    #[inline(always)]
    fn of(
        (wr_id, imm): (u64, u32),
        (opcode, flags): (u8, u8),
        (remote_addr, rkey): (u64, u32),
    ) -> Self {
        Self {
            wr_id,
            opcode,
            flags,
            imm,
            remote_addr,
            rkey,
        }
    }

    /// The first words of a send of so many blocks, SGEs and inline bytes.
    #[inline(always)]
    pub(crate) fn head(
        &self,
        flags: u8,
        blocks: usize,
        sges: usize,
        inline_bytes: usize,
    ) -> SendWqe {
        SendWqe {
            opcode: self.opcode,
            flags,
            // CAST: Limits were checked.
            blocks: blocks as u8,
            sges: sges as u8,
            imm: self.imm,
            wr_id: self.wr_id,
            remote_addr: self.remote_addr,
            rkey: self.rkey,
            inline_bytes: inline_bytes as u32,
        }
    }
}

/// Finds room for a request that is signaled only if the program wants that.
#[inline(always)]
pub(crate) fn room<'b, 'a, V: Storage + 'a>(
    batch: &'b mut Batch<'a, V, Sq>,
    blocks: usize,
    flags: u8,
) -> Result<Room<&'b mut Batch<'a, V, Sq>, V, Sq>, Refusal> {
    let wanted = flags & send_flags::SIGNALED != 0;
    // CAST: Limits were checked.
    let room = batch.room(blocks as u32, wanted)?;
    // An SQ whose unsignaled requests leave no room for a signaled one could never free a slot.
    // To a program it is full.
    if room.signaled() != wanted {
        return Err(Refusal::Full);
    }
    Ok(room)
}

/// Posts a request of one block, of which the device reads no more than `words`.
#[inline(always)]
pub(crate) fn put_block<'a, V: Storage + 'a, const N: usize>(
    batch: &mut Batch<'a, V, Sq>,
    flags: u8,
    words: &[u64; N],
) -> Result<(), Refusal> {
    let mut room = room(batch, 1, flags)?;
    room.write(0, words);
    room.post();
    Ok(())
}

/// Posts a SEND, WRITE or READ.
///
/// # Safety
///
/// The memory of inline data can be read.
#[inline(always)]
pub(crate) unsafe fn put_send<'a, V: Storage + 'a>(
    batch: &mut Batch<'a, V, Sq>,
    request: Request,
    payload: Payload<'_>,
    limits: &Limits,
) -> Result<(), Refusal> {
    const NONE: [u64; Sge::WORDS] = [0; Sge::WORDS];
    match payload {
        Payload::Gather(sges) => {
            if sges.len() > limits.max_send_sge as usize {
                return Err(Refusal::Invalid);
            }
            // Each has code of its own: the first is the common case.
            match *sges {
                [one] => put_short(batch, &request, 1, one.encode(), NONE),
                [] => put_short(batch, &request, 0, NONE, NONE),
                [one, two] => put_short(batch, &request, 2, one.encode(), two.encode()),
                _ => put_many(
                    batch,
                    (request.wr_id, request.imm),
                    (request.opcode, request.flags),
                    (request.remote_addr, request.rkey),
                    sges,
                ),
            }
        }
        // SAFETY: By the caller's promise.
        Payload::Inline(parts) => unsafe {
            put_inline(
                batch,
                (request.wr_id, request.imm),
                (request.opcode, request.flags),
                (request.remote_addr, request.rkey),
                parts,
                limits,
            )
        },
    }
}

/// Posts a SEND, WRITE or READ of at most two SGEs.
#[inline(always)]
fn put_short<'a, V: Storage + 'a>(
    batch: &mut Batch<'a, V, Sq>,
    request: &Request,
    sges: usize,
    [a, b]: [u64; Sge::WORDS],
    [c, d]: [u64; Sge::WORDS],
) -> Result<(), Refusal> {
    let head = request.head(request.flags, 1, sges, 0).encode();
    let words = [head[0], head[1], head[2], head[3], a, b, c, d];
    put_block(batch, request.flags, &words)
}

// Pairs are passed in registers. A request in memory would be written there for the common case as
// well.
#[inline(never)]
fn put_many<'a, V: Storage + 'a>(
    batch: &mut Batch<'a, V, Sq>,
    own: (u64, u32),
    operation: (u8, u8),
    remote: (u64, u32),
    sges: &[Sge],
) -> Result<(), Refusal> {
    let request = Request::of(own, operation, remote);
    let mut words = [0; WORDS];
    let blocks = blocks(sges.len() * Sge::WORDS);
    if blocks > MAX_BLOCKS {
        return Err(Refusal::Invalid);
    }
    let (head, body) = words.split_at_mut(SendWqe::WORDS);
    let encoded = request.head(request.flags, blocks, sges.len(), 0);
    head.copy_from_slice(&encoded.encode());
    put_sges(body, sges);
    let room = room(batch, blocks, request.flags)?;
    write(room, &words, blocks);
    Ok(())
}

/// # Safety
///
/// The memory of the parts can be read.
#[inline(never)]
unsafe fn put_inline<'a, V: Storage + 'a>(
    batch: &mut Batch<'a, V, Sq>,
    own: (u64, u32),
    operation: (u8, u8),
    remote: (u64, u32),
    parts: &[Sge],
    limits: &Limits,
) -> Result<(), Refusal> {
    let request = Request::of(own, operation, remote);
    if request.opcode == entry::opcode::READ {
        return Err(Refusal::Invalid);
    }
    let mut words = [0; WORDS];
    // SAFETY: By the caller's promise.
    let bytes = unsafe { copy_inline(&mut words[SendWqe::WORDS..], parts, limits) }?;
    let blocks = blocks(bytes.div_ceil(WORD));
    let head = request.head(request.flags | send_flags::INLINE, blocks, 0, bytes);
    words[..SendWqe::WORDS].copy_from_slice(&head.encode());
    let room = room(batch, blocks, request.flags)?;
    write(room, &words, blocks);
    Ok(())
}

/// Copies inline data into the body of a request; returns how many bytes.
///
/// # Safety
///
/// The memory of the parts can be read.
#[inline(always)]
pub(crate) unsafe fn copy_inline(
    body: &mut [u64],
    parts: &[Sge],
    limits: &Limits,
) -> Result<usize, Refusal> {
    let most = (limits.max_inline_data as usize).min(body.len() * WORD);
    let mut bytes = 0;
    for part in parts {
        let more = part.bytes as usize;
        if more > most - bytes {
            return Err(Refusal::Invalid);
        }
        let to = body.as_mut_ptr().cast::<u8>();
        // SAFETY: `bytes + more` is at most the size of the body. By the caller's promise the
        // source can be read; a null pointer is not read, since it has no bytes.
        unsafe {
            if more != 0 {
                std::ptr::copy_nonoverlapping(part.addr as *const u8, to.add(bytes), more);
            }
        }
        bytes += more;
    }
    // The ring's words are little-endian, and memory is as the device reads it.
    for word in body {
        *word = u64::from_le(*word);
    }
    Ok(bytes)
}

#[inline(always)]
pub(crate) fn put_sges(body: &mut [u64], sges: &[Sge]) {
    for (words, sge) in body.chunks_exact_mut(Sge::WORDS).zip(sges) {
        words.copy_from_slice(&sge.encode());
    }
}

#[inline(always)]
pub(crate) fn write<'a, 'b, V: Storage + 'a, K: Kind>(
    mut room: Room<&'b mut Batch<'a, V, K>, V, K>,
    words: &[u64; WORDS],
    blocks: usize,
) {
    for (block, words) in (0..).zip(words.chunks_exact(BLOCK_WORDS)).take(blocks) {
        let mut whole = [0; BLOCK_WORDS];
        whole.copy_from_slice(words);
        room.write(block, &whole);
    }
    room.post();
}
