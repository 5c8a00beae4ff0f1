// SPDX-License-Identifier: GPL-2.0
//! Work requests, and their form in a ring.

use qpair_abi::entry::{self, send_flags, SendWqe, BLOCK_WORDS, MAX_BLOCKS};
use qpair_queue::credit::{Kind, Sq};
use qpair_queue::producer::{Batch, Refused, Room};
use qpair_queue::storage::Storage;

use crate::ring::Ring;

/// Words of the largest work request.
pub(crate) const WORDS: usize = MAX_BLOCKS * BLOCK_WORDS;
/// Bytes of a word.
pub(crate) const WORD: usize = size_of::<u64>();

/// A piece of memory: `struct ibv_sge`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Piece {
    /// Its address: that of the region, or of this process for inline data.
    pub addr: u64,
    /// Its bytes.
    pub bytes: u32,
    /// The key of its region; unused for inline data.
    pub key: u32,
}

/// The data of a send request.
#[derive(Clone, Copy, Debug)]
pub enum Payload<'a> {
    /// Pieces of memory regions.
    Gather(&'a [Piece]),
    /// Pieces of the memory of this process, copied into the request.
    Inline(&'a [Piece]),
}

/// A send request, without its data.
#[derive(Clone, Copy, Debug, Default)]
pub struct Request {
    /// The program's own, given back in the completion.
    pub id: u64,
    /// What to do: an [opcode](entry::opcode).
    pub opcode: u8,
    /// How: [flags](send_flags). SIGNALED is what the program wants; INLINE is not used.
    pub flags: u8,
    /// Immediate data, as it is.
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

/// Limits of the requests of a queue pair.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Pieces of a send.
    pub send_pieces: u32,
    /// Inline bytes of a send.
    pub inline: u32,
    /// Pieces of a receive.
    pub recv_pieces: u32,
}

/// Why a request is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The queue is full.
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
pub const fn most_blocks(pieces: u32, inline: u32) -> u32 {
    let gather = pieces as usize * entry::Sge::WORDS;
    let inline = (inline as usize).div_ceil(WORD);
    // CAST: A small number, or one that the device refuses.
    blocks(if gather > inline { gather } else { inline }) as u32
}

impl Piece {
    #[inline(always)]
    pub(crate) fn encode(&self) -> [u64; entry::Sge::WORDS] {
        let Self { addr, bytes, key } = *self;
        entry::Sge {
            addr,
            bytes,
            lkey: key,
        }
        .encode()
    }
}

impl Request {
    /// Its form, if it has one piece.
    fn template(&self) -> Template {
        let [first, ..] = self.head(self.flags, 1, 1, 0).encode();
        Template(first)
    }

    #[inline(always)]
    fn head(&self, flags: u8, blocks: usize, pieces: usize, inline_bytes: usize) -> SendWqe {
        SendWqe {
            opcode: self.opcode,
            flags,
            // CAST: Limits were checked.
            blocks: blocks as u8,
            sges: pieces as u8,
            imm: self.imm,
            wr_id: self.id,
            remote_addr: self.remote_addr,
            rkey: self.rkey,
            inline_bytes: inline_bytes as u32,
        }
    }
}

/// Operations, and combinations of flags, by the numbers of verbs.
const WAYS: u32 = 8;

/// The common forms of sends, of one piece, for each operation with flags.
#[derive(Clone, Copy, Debug)]
pub struct Templates([Template; (WAYS * WAYS) as usize]);

/// A common form of sends: the first word, without immediate data.
#[derive(Clone, Copy, Debug)]
pub struct Template(u64);

impl Template {
    /// No form.
    const NONE: Self = Self(0);

    #[inline(always)]
    fn head(self) -> SendWqe {
        SendWqe::decode(&[self.0, 0, 0, 0])
    }

    /// Whether it names memory of the peer.
    #[inline(always)]
    pub fn has_remote(self) -> bool {
        has_remote(self.head().opcode)
    }

    /// Whether it is signalled.
    #[inline(always)]
    pub fn is_signalled(self) -> bool {
        self.head().flags & send_flags::SIGNALED != 0
    }

    /// Whether it carries immediate data, or a key in its place.
    #[inline(always)]
    pub fn has_imm(self) -> bool {
        has_imm(self.head().opcode)
    }
}

impl Templates {
    /// Without any.
    pub const NONE: Self = Self([Template::NONE; (WAYS * WAYS) as usize]);

    /// Those of the requests that `request` makes of an operation and flags.
    pub fn new(request: impl Fn(u32, u32) -> Option<Request>) -> Self {
        let mut all = Self::NONE;
        for (way, template) in (0..).zip(&mut all.0) {
            let made = request(way % WAYS, way / WAYS);
            *template = made.map_or(Template::NONE, |it| it.template());
        }
        all
    }

    /// The form of a send of one piece, if it is a common one.
    #[inline(always)]
    pub fn get(&self, operation: u32, flags: u32) -> Option<Template> {
        if (operation | flags) >= WAYS {
            return None;
        }
        let template = *self.0.get((flags * WAYS + operation) as usize)?;
        (template.0 != 0).then_some(template)
    }
}

/// Sends of a common form, each of one piece.
#[derive(Debug)]
pub struct Row<'a> {
    batch: Batch<'a, Ring, Sq>,
    template: Template,
}

impl<'a> Row<'a> {
    #[inline(always)]
    pub(crate) fn new(batch: Batch<'a, Ring, Sq>, template: Template) -> Self {
        Self { batch, template }
    }

    /// Posts a send. `REMOTE` and `IMM` are what its form has; `remote` and the second of `own` are
    /// not used without them. `SIGNALED` is set only if its form [is](Template::is_signalled).
    ///
    /// # Errors
    ///
    /// [`Refusal::Full`].
    #[inline(always)]
    pub fn put<const REMOTE: bool, const IMM: bool, const SIGNALED: bool>(
        &mut self,
        (id, imm): (u64, u32),
        (remote_addr, rkey): (u64, u32),
        piece: &Piece,
    ) -> Result<(), Refusal> {
        let own = SendWqe {
            imm: if IMM { imm } else { 0 },
            wr_id: id,
            remote_addr: if REMOTE { remote_addr } else { 0 },
            rkey: if REMOTE { rkey } else { 0 },
            ..SendWqe::default()
        };
        let ([first, id, addr, key], [at, bytes]) = (own.encode(), piece.encode());
        // The device reads no further than the piece.
        let words = [self.first() | first, id, addr, key, at, bytes];
        self.write(&words, SIGNALED)
    }

    /// The first word, without immediate data.
    #[inline(always)]
    pub(crate) fn first(&self) -> u64 {
        self.template.0
    }

    /// Posts a send of one block; `signalled` if that is known.
    #[inline(always)]
    pub(crate) fn write<const N: usize>(
        &mut self,
        words: &[u64; N],
        signalled: bool,
    ) -> Result<(), Refusal> {
        let flags = match signalled {
            true => send_flags::SIGNALED,
            false => self.template.head().flags,
        };
        let mut room = room(&mut self.batch, 1, flags)?;
        room.write(0, words);
        room.post();
        Ok(())
    }
}

/// Finds room for a request that is signalled only if the program wants that.
#[inline(always)]
pub(crate) fn room<'b, 'a, V: Storage + 'a>(
    batch: &'b mut Batch<'a, V, Sq>,
    blocks: usize,
    flags: u8,
) -> Result<Room<&'b mut Batch<'a, V, Sq>, V, Sq>, Refusal> {
    let wanted = flags & send_flags::SIGNALED != 0;
    // CAST: Limits were checked.
    let room = batch.room(blocks as u32, wanted)?;
    // An SQ whose unsignalled requests leave no room for a signalled one could never free a slot.
    // To a program it is full.
    if room.signalled() != wanted {
        return Err(Refusal::Full);
    }
    Ok(room)
}

/// Writes a send request into the ring, and posts it.
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
    const NONE: [u64; entry::Sge::WORDS] = [0; entry::Sge::WORDS];
    match payload {
        Payload::Gather(pieces) => {
            if pieces.len() > limits.send_pieces as usize {
                return Err(Refusal::Invalid);
            }
            // Each has code of its own: the first is the common case.
            match *pieces {
                [one] => put_block(batch, &request, 1, one.encode(), NONE),
                [] => put_block(batch, &request, 0, NONE, NONE),
                [one, two] => put_block(batch, &request, 2, one.encode(), two.encode()),
                _ => put_many(
                    batch,
                    (request.id, request.imm),
                    (request.opcode, request.flags),
                    (request.remote_addr, request.rkey),
                    pieces,
                ),
            }
        }
        // SAFETY: By the caller's promise.
        Payload::Inline(pieces) => unsafe {
            put_inline(
                batch,
                (request.id, request.imm),
                (request.opcode, request.flags),
                (request.remote_addr, request.rkey),
                pieces,
                limits,
            )
        },
    }
}

/// Writes and posts a send request of one block.
#[inline(always)]
fn put_block<'a, V: Storage + 'a>(
    batch: &mut Batch<'a, V, Sq>,
    request: &Request,
    pieces: usize,
    first: [u64; entry::Sge::WORDS],
    second: [u64; entry::Sge::WORDS],
) -> Result<(), Refusal> {
    let mut room = room(batch, 1, request.flags)?;
    let head = request.head(request.flags, 1, pieces, 0).encode();
    let words = [
        head[0], head[1], head[2], head[3], first[0], first[1], second[0], second[1],
    ];
    room.write(0, &words);
    room.post();
    Ok(())
}

// Pairs are passed in registers. A request in memory would be written there for the common case as
// well.
#[inline(never)]
fn put_many<'a, V: Storage + 'a>(
    batch: &mut Batch<'a, V, Sq>,
    (id, imm): (u64, u32),
    (opcode, flags): (u8, u8),
    (remote_addr, rkey): (u64, u32),
    pieces: &[Piece],
) -> Result<(), Refusal> {
    let request = Request {
        id,
        opcode,
        flags,
        imm,
        remote_addr,
        rkey,
    };
    let mut words = [0; WORDS];
    let blocks = blocks(pieces.len() * entry::Sge::WORDS);
    if blocks > MAX_BLOCKS {
        return Err(Refusal::Invalid);
    }
    let (head, body) = words.split_at_mut(SendWqe::WORDS);
    let encoded = request.head(request.flags, blocks, pieces.len(), 0);
    head.copy_from_slice(&encoded.encode());
    put_pieces(body, pieces);
    let room = room(batch, blocks, request.flags)?;
    write(room, &words, blocks);
    Ok(())
}

/// # Safety
///
/// The memory of the pieces can be read.
#[inline(never)]
unsafe fn put_inline<'a, V: Storage + 'a>(
    batch: &mut Batch<'a, V, Sq>,
    (id, imm): (u64, u32),
    (opcode, flags): (u8, u8),
    (remote_addr, rkey): (u64, u32),
    pieces: &[Piece],
    limits: &Limits,
) -> Result<(), Refusal> {
    let request = Request {
        id,
        opcode,
        flags,
        imm,
        remote_addr,
        rkey,
    };
    if request.opcode == entry::opcode::READ {
        return Err(Refusal::Invalid);
    }
    let mut words = [0; WORDS];
    // SAFETY: By the caller's promise.
    let bytes = unsafe { copy_inline(&mut words[SendWqe::WORDS..], pieces, limits) }?;
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
/// The memory of the pieces can be read.
#[inline(always)]
pub(crate) unsafe fn copy_inline(
    body: &mut [u64],
    pieces: &[Piece],
    limits: &Limits,
) -> Result<usize, Refusal> {
    let most = (limits.inline as usize).min(body.len() * WORD);
    let mut bytes = 0;
    for piece in pieces {
        let more = piece.bytes as usize;
        if more > most - bytes {
            return Err(Refusal::Invalid);
        }
        let to = body.as_mut_ptr().cast::<u8>();
        // SAFETY: `bytes + more` is at most the size of the body. By the caller's promise the
        // source can be read; a null pointer is not read, since it has no bytes.
        unsafe {
            if more != 0 {
                std::ptr::copy_nonoverlapping(piece.addr as *const u8, to.add(bytes), more);
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
pub(crate) fn put_pieces(body: &mut [u64], pieces: &[Piece]) {
    for (words, piece) in body.chunks_exact_mut(entry::Sge::WORDS).zip(pieces) {
        words.copy_from_slice(&piece.encode());
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
