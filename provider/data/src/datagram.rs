// SPDX-License-Identifier: GPL-2.0
//! Sends of UD queue pairs.
//!
//! A send of UD has an address besides its data, and a program may set them in either order. So it
//! is composed in memory of its own, and then copied into the ring.

use qpair_abi::entry::{self, opcode, send_flags, Sge, UdWqe, BLOCK_WORDS, MAX_BLOCKS};
use qpair_abi::Number;
use qpair_queue::credit::Sq;
use qpair_queue::producer::Batch;
use qpair_queue::storage::Storage;

use crate::request::{copy_inline, put_sges, room, write};
use crate::request::{Limits, Payload, Refusal, Request, WORD, WORDS};
use crate::template::Row;

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
    /// The network device that leads there: [`UdWqe::mac`].
    pub mac: u64,
    /// `qp_num` of the destination.
    pub qpn: u32,
    /// The Q_Key that the destination must have.
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
    let (sges, inline_bytes) = data;
    let wqe = UdWqe {
        opcode: request.opcode,
        flags: request.flags,
        // CAST: Limits were checked.
        blocks: blocks as u8,
        sges: sges as u8,
        imm: request.imm,
        wr_id: request.wr_id,
        dest: Number::from_raw(address.qpn),
        q_key: address.q_key,
        inline_bytes: inline_bytes as u8,
        gid: address.gid[0],
        gid_high: address.gid[1],
        ..UdWqe::default()
    };
    let [a, b, c, d, e, f, ..] = wqe.encode();
    [a, b, c, d | address.route, e, f, address.mac, 0]
}

/// A send that is being composed.
#[derive(Debug)]
pub struct Datagram {
    request: Request,
    address: Option<Address>,
    words: [u64; WORDS],
    sges: usize,
    inline_bytes: usize,
}

impl Datagram {
    /// A send without address and data.
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
            sges: 0,
            inline_bytes: 0,
        })
    }

    /// Sets where the send goes; the last call counts.
    pub fn to(&mut self, address: Address) {
        self.address = Some(address);
    }

    /// Sets the data; the last call counts.
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
        self.request.flags &= !send_flags::INLINE;
        match payload {
            Payload::Gather(sges) => {
                let most = entry::ud_sges(MAX_BLOCKS).min(limits.max_send_sge as usize);
                if sges.len() > most {
                    return Err(Refusal::Invalid);
                }
                put_sges(body, sges);
                (self.sges, self.inline_bytes) = (sges.len(), 0);
            }
            Payload::Inline(parts) => {
                // SAFETY: By the caller's promise.
                let bytes = unsafe { copy_inline(body, parts, limits) }?;
                (self.sges, self.inline_bytes) = (0, bytes);
                self.request.flags |= send_flags::INLINE;
            }
        }
        Ok(())
    }

    /// Posts it.
    ///
    /// # Errors
    ///
    /// [`Refusal::Invalid`]: it has no address. [`Refusal::Full`].
    pub(crate) fn put<'a, V: Storage + 'a>(
        &mut self,
        batch: &mut Batch<'a, V, Sq>,
    ) -> Result<(), Refusal> {
        let address = self.address.ok_or(Refusal::Invalid)?;
        let words = self.sges * Sge::WORDS + self.inline_bytes.div_ceil(WORD);
        let blocks = (UdWqe::WORDS + words).div_ceil(BLOCK_WORDS);
        let data = (self.sges, self.inline_bytes);
        let head = head(&self.request, &address, blocks, data);
        self.words[..UdWqe::WORDS].copy_from_slice(&head);
        let room = room(batch, blocks, self.request.flags)?;
        write(room, &self.words, blocks);
        Ok(())
    }
}

impl Row<'_> {
    /// Posts a send of UD, whose form has immediate data if `IMM`; `imm` is not used without.
    ///
    /// # Errors
    ///
    /// [`Refusal::Full`].
    #[inline(always)]
    pub fn put_datagram<const IMM: bool>(
        &mut self,
        (wr_id, imm): (u64, u32),
        address: Address,
        sge: &Sge,
    ) -> Result<(), Refusal> {
        let request = Request {
            wr_id,
            imm: if IMM { imm } else { 0 },
            ..Request::default()
        };
        let mut head = head(&request, &address, 0, (0, 0));
        head[0] |= self.first();
        self.write_behind(&head, &sge.encode())
    }
}
