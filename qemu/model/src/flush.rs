// SPDX-License-Identifier: GPL-2.0
//! FLUSH and atomic WRITE.
//!
//! The device performs the requests of an SQ in order, and a write is in memory when its request
//! completes. So a FLUSH checks rights and range, and completes at once. An atomic WRITE writes its 8
//! bytes in one step of a turn.

use crate::answer::Answer;
use crate::answer::Nak;
use crate::datapath::DataPath;
use crate::host::DmaFault;
use crate::host::Host;
use crate::message::Message;
use crate::message::Piece;
use crate::region::Range;
use crate::responder::Responder;
use qpair_abi::command::access;
use qpair_abi::entry::flush;
use qpair_abi::entry::FlushWqe;
use qpair_abi::entry::SendWqe;
use qpair_abi::entry::ATOMIC_BYTES;
use qpair_abi::status::Detail;
use qpair_abi::Number;

/// The FLUSH in a block.
pub(crate) fn decode(words: &[u64]) -> FlushWqe {
    let wqe = words.first_chunk().map(FlushWqe::decode);
    wqe.unwrap_or_default()
}

/// The rights that a FLUSH needs. `None` if it has no kind, or an unknown one.
fn rights(wqe: &FlushWqe) -> Option<u8> {
    let right = |kind, right| if wqe.kinds & kind != 0 { right } else { 0 };
    let known = wqe.kinds & !(flush::GLOBAL | flush::PERSISTENT) == 0 && wqe.kinds != 0;
    let rights = right(flush::GLOBAL, access::FLUSH_GLOBAL)
        | right(flush::PERSISTENT, access::FLUSH_PERSISTENT);
    (known && wqe.whole <= 1).then_some(rights)
}

/// Whether a FLUSH has known kinds, and no reserved bit is set.
pub(crate) fn is_valid(wqe: &SendWqe, words: &[u64]) -> bool {
    // Of the immediate data, kinds and `whole` are the lower half; the rest is reserved.
    wqe.imm >> 16 == 0 && rights(&decode(words)).is_some()
}

/// Checks an atomic WRITE, whose data are in the WQE.
pub(crate) fn check_atomic_write(message: &mut Message) -> Result<(), Detail> {
    if message.wqe.sges != 0 {
        return Err(Detail::Sges);
    }
    if message.wqe.inline_bytes as usize != ATOMIC_BYTES || !message.is_inline() {
        return Err(Detail::Inline);
    }
    message.bytes = ATOMIC_BYTES as u32;
    Ok(())
}

impl<H: Host> DataPath<H> {
    /// Performs an atomic WRITE that was admitted.
    pub(crate) fn atomic_write(&mut self, by: Responder, piece: &Piece, value: u64) -> Answer<()> {
        if piece.is_misaligned() {
            return Err(self.nak_alignment(by));
        }
        let (place, _) = self.place_in_memory(by, piece)?;
        let (regions, bus) = (&mut self.regions, &mut self.core.bus);
        let written = regions.write(bus, place, &value.to_le_bytes());
        written.map_err(|DmaFault| self.nak_dma(by, *piece))?;
        self.core.bus.add(piece.kind.counter, ATOMIC_BYTES as u64);
        Ok(())
    }

    /// Performs a FLUSH: checks the rights and the range.
    pub(crate) fn flush_remote(&mut self, by: Responder, wqe: &FlushWqe) -> Answer<()> {
        let Some(right) = rights(wqe) else {
            return Err(self.nak_access(by, Nak::InvalidRequest, Detail::Flags));
        };
        if by.access & right != right {
            return Err(self.nak_access(by, Nak::InvalidRequest, Detail::Rights));
        }
        let found = self.find_flushed(by.pd, right, wqe);
        found.map_err(|detail| self.nak_access(by, Nak::RemoteAccess, detail))
    }

    fn find_flushed(&self, pd: Number, right: u8, wqe: &FlushWqe) -> Result<(), Detail> {
        let key = Number::from_raw(wqe.rkey);
        let start = self.regions.get(key).map(|region| region.addr);
        let start = start.ok_or(Detail::Key)?;
        let (addr, bytes) = match wqe.whole {
            0 => (wqe.remote_addr, wqe.bytes),
            _ => (start, 0),
        };
        let range = Range { key, addr, bytes };
        self.regions.find(pd, right, range).map(drop)
    }
}
