// SPDX-License-Identifier: GPL-2.0
//! Atomics: compare-and-swap, fetch-and-add.
//!
//! An atomic reads 8 bytes of the responder's memory and writes them in one step of a turn. So no
//! other atomic of the function comes between. A CPU may: the device has no atomic accesses of memory.

use crate::answer::Answer;
use crate::datapath::DataPath;
use crate::host::DmaFault;
use crate::host::Host;
use crate::message::sges;
use crate::message::Message;
use crate::message::Piece;
use crate::region::Range;
use crate::responder::Responder;
use qpair_abi::entry::opcode;
use qpair_abi::entry::AtomicWqe;
use qpair_abi::entry::ATOMIC_BYTES;
use qpair_abi::status::Detail;
use qpair_abi::status::Status;
use qpair_abi::Number;

/// The operands of an atomic.
pub(crate) struct Operands {
    compare_add: u64,
    swap: u64,
}

impl Operands {
    /// What is compared or added, and what is swapped in.
    pub(crate) fn new(compare_add: u64, swap: u64) -> Self {
        Self { compare_add, swap }
    }
}

/// Those in a block.
pub(crate) fn operands(words: &[u64]) -> Operands {
    let wqe = words.first_chunk().map(AtomicWqe::decode);
    let wqe = wqe.unwrap_or_default();
    Operands {
        compare_add: wqe.compare_add,
        swap: wqe.swap,
    }
}

/// Where the old value goes, if there is one SGE.
fn result(words: &[u64]) -> Option<Range> {
    let sge = sges(words, AtomicWqe::WORDS).next()?;
    Some(Range {
        key: Number::from_raw(sge.lkey),
        addr: sge.addr,
        bytes: u64::from(sge.bytes),
    })
}

/// Checks the SGE of an atomic. Its region is checked when the old value is written there.
pub(crate) fn check_atomic(message: &mut Message, words: &[u64]) -> Result<(), (Status, Detail)> {
    let range = result(words).filter(|_| message.wqe.sges == 1);
    let range = range.ok_or((Status::LocalQpOperation, Detail::Sges))?;
    let longer = range.bytes > ATOMIC_BYTES as u64;
    if range.bytes < ATOMIC_BYTES as u64 || longer {
        return Err((Status::LocalLength, Detail::Message));
    }
    message.bytes = ATOMIC_BYTES as u32;
    Ok(())
}

impl<H: Host> DataPath<H> {
    /// Performs an atomic that was admitted: the old value.
    pub(crate) fn atomic(
        &mut self,
        by: Responder,
        piece: &Piece,
        operands: &Operands,
    ) -> Answer<u64> {
        if piece.is_misaligned() {
            return Err(self.nak_alignment(by));
        }
        let (place, _) = self.place_in_memory(by, piece)?;
        let (regions, bus) = (&mut self.regions, &mut self.core.bus);
        let mut bytes = [0; ATOMIC_BYTES];
        let read = regions.read(bus, place, &mut bytes);
        let old = u64::from_le_bytes(bytes);
        let compares = piece.opcode == opcode::COMPARE_SWAP;
        let new = if compares {
            (old == operands.compare_add).then_some(operands.swap)
        } else {
            Some(old.wrapping_add(operands.compare_add))
        };
        let done = read.and_then(|()| match new {
            Some(new) => regions.write(bus, place, &new.to_le_bytes()),
            None => Ok(()),
        });
        match done {
            Ok(()) => Ok(old),
            Err(DmaFault) => Err(self.nak_dma(by, *piece)),
        }
    }

    /// Writes the old value of an atomic into the sender's memory.
    pub(crate) fn write_old(
        &mut self,
        pd: Number,
        message: &Message,
        words: &[u64],
        old: u64,
    ) -> Result<(), Detail> {
        let range = result(words).ok_or(Detail::Sges)?;
        let (regions, bus) = (&mut self.regions, &mut self.core.bus);
        let (place, _) = regions.resolve(bus, pd, message.kind.local, range)?;
        let written = regions.write(bus, place, &old.to_le_bytes());
        written.map_err(|DmaFault| Detail::Dma)
    }
}
