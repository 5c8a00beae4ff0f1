// SPDX-License-Identifier: GPL-2.0
//! Sends of UD queue pairs.
//!
//! A send of UD has an address besides its data, and a program may set them in either order. So it
//! is composed in memory of its own, and then copied into the ring.

use qpair_abi::entry::{self, opcode, send_flags, UdWqe, BLOCK_WORDS, MAX_BLOCKS};
use qpair_abi::Number;
use qpair_queue::credit::Sq;
use qpair_queue::producer::Batch;
use qpair_queue::storage::Storage;

use crate::lock;
use crate::qp::{Qp, Sending, Sends};
use crate::request::{copy_inline, put_pieces, room, write};
use crate::request::{Limits, Payload, Piece, Refusal, Request, Row, WORD, WORDS};

/// Bytes by which the head of a send of UD is longer than that of other sends.
pub const ADDRESS_BYTES: usize = UdWqe::BYTES - entry::SendWqe::BYTES;

/// Where a send goes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Address {
    /// GID of the destination's port, as in memory.
    pub gid: [u64; 2],
    /// Where the port's table has the GID that it is sent from, if its queue pair has none, and what
    /// the header has besides the GIDs: [`UdWqe::route`].
    pub route: u64,
    /// The destination.
    pub qpn: u32,
    /// Its Q_Key.
    pub q_key: u32,
}

/// The head of a send.
type Head = [u64; UdWqe::WORDS];

/// A send of UD is a SEND, with immediate data or without.
pub(crate) fn check(request: &Request) -> Result<(), Refusal> {
    match request.opcode {
        opcode::SEND | opcode::SEND_IMM => Ok(()),
        _ => Err(Refusal::Unsupported),
    }
}

/// The head of a send of so many blocks.
#[inline(always)]
fn head(request: &Request, address: &Address, blocks: usize, data: (usize, usize)) -> Head {
    let (pieces, inline_bytes) = data;
    let wqe = UdWqe {
        opcode: request.opcode,
        flags: request.flags,
        // CAST: Limits were checked.
        blocks: blocks as u8,
        sges: pieces as u8,
        imm: request.imm,
        wr_id: request.id,
        dest: Number::from_raw(address.qpn),
        q_key: address.q_key,
        inline_bytes: inline_bytes as u8,
        gid: address.gid[0],
        gid_high: address.gid[1],
        ..UdWqe::default()
    };
    let [a, b, c, d, e, f] = wqe.encode();
    [a, b, c, d | address.route, e, f]
}

/// A send that is being composed.
#[derive(Debug)]
pub struct Datagram {
    request: Request,
    address: Option<Address>,
    words: [u64; WORDS],
    pieces: usize,
    inline_bytes: usize,
}

impl Datagram {
    /// Without address and data.
    ///
    /// # Errors
    ///
    /// [`Refusal::Unsupported`]: not a SEND.
    pub fn new(request: Request) -> Result<Self, Refusal> {
        check(&request)?;
        Ok(Self {
            request,
            address: None,
            words: [0; WORDS],
            pieces: 0,
            inline_bytes: 0,
        })
    }

    /// Sets its address.
    pub fn to(&mut self, address: Address) {
        self.address = Some(address);
    }

    /// Sets its data.
    ///
    /// # Errors
    ///
    /// [`Refusal::Invalid`]: they exceed a limit.
    ///
    /// # Safety
    ///
    /// The memory of inline data can be read.
    pub unsafe fn data(&mut self, payload: Payload<'_>, limits: &Limits) -> Result<(), Refusal> {
        let body = &mut self.words[UdWqe::WORDS..];
        match payload {
            Payload::Gather(pieces) => {
                let most = entry::ud_sges(MAX_BLOCKS).min(limits.send_pieces as usize);
                if pieces.len() > most {
                    return Err(Refusal::Invalid);
                }
                put_pieces(body, pieces);
                (self.pieces, self.inline_bytes) = (pieces.len(), 0);
            }
            Payload::Inline(pieces) => {
                // SAFETY: By the caller's promise.
                let bytes = unsafe { copy_inline(body, pieces, limits) }?;
                (self.pieces, self.inline_bytes) = (0, bytes);
                self.request.flags |= send_flags::INLINE;
            }
        }
        Ok(())
    }

    /// Writes it into the ring, and posts it.
    fn put<'a, V: Storage + 'a>(mut self, batch: &mut Batch<'a, V, Sq>) -> Result<(), Refusal> {
        let address = self.address.ok_or(Refusal::Invalid)?;
        let words = self.pieces * entry::Sge::WORDS + self.inline_bytes.div_ceil(WORD);
        let blocks = (UdWqe::WORDS + words).div_ceil(BLOCK_WORDS);
        let data = (self.pieces, self.inline_bytes);
        let head = head(&self.request, &address, blocks, data);
        self.words[..UdWqe::WORDS].copy_from_slice(&head);
        let room = room(batch, blocks, self.request.flags)?;
        write(room, &self.words, blocks);
        Ok(())
    }
}

impl Row<'_> {
    /// Posts a send of UD, as [`put`](Self::put).
    ///
    /// # Errors
    ///
    /// As there.
    #[inline(always)]
    pub fn put_datagram<const IMM: bool>(
        &mut self,
        (id, imm): (u64, u32),
        address: Address,
        piece: &Piece,
    ) -> Result<(), Refusal> {
        let request = Request {
            id,
            imm: if IMM { imm } else { 0 },
            ..Request::default()
        };
        let [first, b, c, d, e, f] = head(&request, &address, 0, (0, 0));
        let [g, h] = piece.encode();
        self.write(&[self.first() | first, b, c, d, e, f, g, h], false)
    }
}

impl Sends<'_> {
    /// Posts a send of UD.
    ///
    /// # Errors
    ///
    /// [`Refusal::Unsupported`]: not a SEND. [`Refusal::Invalid`]: the data exceed a limit.
    ///
    /// # Safety
    ///
    /// The memory of inline data can be read.
    pub unsafe fn put_datagram(
        &mut self,
        mut request: Request,
        address: Address,
        payload: Payload<'_>,
    ) -> Result<(), Refusal> {
        request.flags |= self.always;
        let mut datagram = Datagram::new(request)?;
        datagram.to(address);
        // SAFETY: By the caller's promise.
        unsafe { datagram.data(payload, &self.limits) }?;
        datagram.put(&mut self.batch)
    }
}

impl Qp {
    /// Locks the send queue for a series of sends of UD.
    pub fn start_datagrams(&self) {
        let mut sending = self.send.lock();
        sending.composed = None;
        sending.failed = (!sending.ready_datagrams).then_some(Refusal::State);
        lock::keep(sending);
    }

    /// Begins a send of UD; the one that was begun before is complete.
    ///
    /// # Safety
    ///
    /// This thread is between [`start_datagrams`](Self::start_datagrams) and
    /// [`complete_datagrams`](Self::complete_datagrams) or [`abort`](Self::abort).
    pub unsafe fn begin_datagram(&self, mut request: Request) {
        request.flags |= self.always();
        let begin = |sending: &mut Sending| {
            sending.post_composed()?;
            sending.composed = Some(Datagram::new(request)?);
            Ok(())
        };
        // SAFETY: By the caller's promise.
        unsafe { self.compose(begin) }
    }

    /// Sets the address of the send that was begun.
    ///
    /// # Safety
    ///
    /// As of [`begin_datagram`](Self::begin_datagram).
    pub unsafe fn datagram_to(&self, address: Address) {
        let set = |sending: &mut Sending| {
            let composed = sending.composed.as_mut();
            composed.ok_or(Refusal::Invalid)?.to(address);
            Ok(())
        };
        // SAFETY: By the caller's promise.
        unsafe { self.compose(set) }
    }

    /// Sets the data of the send that was begun.
    ///
    /// # Safety
    ///
    /// As of [`begin_datagram`](Self::begin_datagram). The memory of inline data can be read.
    pub unsafe fn datagram_data(&self, payload: Payload<'_>) {
        let limits = self.limits();
        let set = |sending: &mut Sending| {
            let composed = sending.composed.as_mut().ok_or(Refusal::Invalid)?;
            // SAFETY: By the caller's promise.
            unsafe { composed.data(payload, &limits) }
        };
        // SAFETY: By the caller's promise.
        unsafe { self.compose(set) }
    }

    /// Hands the series over and unlocks the queue; if any of it is refused, nothing is posted.
    ///
    /// # Safety
    ///
    /// As of [`begin_datagram`](Self::begin_datagram).
    pub unsafe fn complete_datagrams(&self) -> Result<(), Refusal> {
        // SAFETY: By the caller's promise. `complete` finds no request that was begun.
        unsafe {
            self.compose(Sending::post_composed);
            self.complete()
        }
    }

    /// Calls `f`, unless the series has failed; its error fails the series.
    ///
    /// # Safety
    ///
    /// As of [`begin_datagram`](Self::begin_datagram).
    unsafe fn compose(&self, f: impl FnOnce(&mut Sending) -> Result<(), Refusal>) {
        // SAFETY: By the caller's promise.
        let mut sending = unsafe { lock::held(&self.send) };
        if sending.failed.is_none() {
            sending.failed = f(&mut sending).err();
        }
        lock::keep(sending);
    }
}

impl Sending {
    /// Posts the send that was composed.
    fn post_composed(&mut self) -> Result<(), Refusal> {
        match self.composed.take() {
            Some(composed) => composed.put(&mut self.work.batch()),
            None => Ok(()),
        }
    }
}
