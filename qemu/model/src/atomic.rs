// SPDX-License-Identifier: GPL-2.0
//! Atomics: compare-and-swap, fetch-and-add.
//!
//! An atomic reads 8 bytes of the peer's memory and writes them in one step of a turn. So no other
//! atomic of the function comes between. A CPU may: the device has no atomic accesses of memory.

use crate::datapath::DataPath;
use crate::host::Host;
use crate::message::is_misaligned;
use crate::message::sges;
use crate::message::Message;
use crate::message::Sender;
use crate::region::Range;
use crate::transfer::Fault;
use qpair_abi::entry::opcode;
use qpair_abi::entry::AtomicWqe;
use qpair_abi::entry::ATOMIC_BYTES;
use qpair_abi::status::Detail;
use qpair_abi::status::Status;
use qpair_abi::Number;

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
    /// Performs an atomic that both ends admit.
    pub(crate) fn atomic(
        &mut self,
        sender: &Sender,
        message: &Message,
        words: &[u64],
    ) -> Result<(), Fault> {
        let wqe = words.first_chunk().map(AtomicWqe::decode);
        let wqe = wqe.unwrap_or_default();
        if is_misaligned(&message.wqe) {
            return Err(Fault::Remote(Detail::Alignment));
        }
        let range = result(words).ok_or(Fault::Local(Detail::Sges))?;
        let (remote, _) = self.remote_end(sender.peer, message)?;
        let (regions, bus) = (&mut self.regions, &mut self.core.bus);
        let mut bytes = [0; ATOMIC_BYTES];
        let failed = |_| Fault::Remote(Detail::Dma);
        regions.read(bus, remote, &mut bytes).map_err(failed)?;
        let old = u64::from_le_bytes(bytes);
        let compares = wqe.opcode == opcode::COMPARE_SWAP;
        let new = if compares {
            (old == wqe.compare_add).then_some(wqe.swap)
        } else {
            Some(old.wrapping_add(wqe.compare_add))
        };
        if let Some(new) = new {
            let written = regions.write(bus, remote, &new.to_le_bytes());
            written.map_err(failed)?;
        }
        let local = regions.resolve(bus, sender.pd, message.kind.local, range);
        let (local, _) = local.map_err(Fault::Local)?;
        let written = regions.write(bus, local, &old.to_le_bytes());
        written.map_err(|_| Fault::Local(Detail::Dma))?;
        bus.count(message.kind.counter);
        Ok(())
    }
}
