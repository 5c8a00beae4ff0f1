// SPDX-License-Identifier: GPL-2.0
//! Accesses to guest memory, which are counted, and the other counters.

use crate::host::DmaFault;
use crate::host::Host;
use qpair_abi::counters::Counter;

/// The machine, and the device's counters.
pub(crate) struct Bus<H: Host> {
    pub(crate) host: H,
    counts: [u64; Counter::COUNT],
}

impl<H: Host> Bus<H> {
    pub(crate) fn new(host: H) -> Self {
        Self {
            host,
            counts: [0; Counter::COUNT],
        }
    }

    /// Adds one to a counter.
    #[inline]
    pub(crate) fn count(&mut self, counter: Counter) {
        self.add(counter, 1);
    }

    /// Adds to a counter.
    #[inline]
    pub(crate) fn add(&mut self, counter: Counter, more: u64) {
        if let Some(count) = self.counts.get_mut(counter as usize) {
            *count = count.wrapping_add(more);
        }
    }

    pub(crate) fn counts(&self) -> &[u64; Counter::COUNT] {
        &self.counts
    }

    pub(crate) fn clear(&mut self) {
        self.counts = [0; Counter::COUNT];
    }

    /// Reads bytes.
    pub(crate) fn read(&mut self, addr: u64, bytes: &mut [u8]) -> Result<(), DmaFault> {
        self.count(Counter::DmaReads);
        let fits = ends(addr, bytes.len());
        if fits && self.host.read(addr, bytes).is_ok() {
            return Ok(());
        }
        self.count(Counter::DmaFaults);
        Err(DmaFault)
    }

    /// Writes bytes.
    pub(crate) fn write(&mut self, addr: u64, bytes: &[u8]) -> Result<(), DmaFault> {
        self.count(Counter::DmaWrites);
        let fits = ends(addr, bytes.len());
        if fits && self.host.write(addr, bytes).is_ok() {
            return Ok(());
        }
        self.count(Counter::DmaFaults);
        Err(DmaFault)
    }

    /// Reads words.
    pub(crate) fn load(&mut self, addr: u64, words: &mut [u64]) -> Result<(), DmaFault> {
        if !ends(addr, words.len().saturating_mul(8)) {
            return Err(DmaFault);
        }
        let mut bytes = [0; LOAD_BYTES];
        let mut at = addr;
        for words in words.chunks_mut(LOAD_BYTES / 8) {
            let bytes = bytes.get_mut(..words.len() * 8).ok_or(DmaFault)?;
            self.read(at, bytes)?;
            from_bytes(bytes, words);
            at = at.wrapping_add(bytes.len() as u64);
        }
        Ok(())
    }

    /// Writes words, the last one after all others.
    pub(crate) fn store(&mut self, addr: u64, words: &[u64]) -> Result<(), DmaFault> {
        let Some((last, others)) = words.split_last() else {
            return Ok(());
        };
        let mut bytes = [0; STORE_BYTES];
        let body = bytes.get_mut(..others.len() * 8).ok_or(DmaFault)?;
        to_bytes(others, body);
        self.write(addr, body)?;
        let at = addr.checked_add(body.len() as u64).ok_or(DmaFault)?;
        self.write(at, &last.to_le_bytes())
    }
}

/// Bytes that a load of words moves at once.
const LOAD_BYTES: usize = 4096;
/// Bytes that a store of words moves at most.
const STORE_BYTES: usize = 64;

/// Whether a range ends inside of the address space, or with it.
fn ends(addr: u64, bytes: usize) -> bool {
    let last = (bytes as u64).saturating_sub(1);
    addr.checked_add(last).is_some()
}

/// Converts bytes to words.
pub(crate) fn from_bytes(bytes: &[u8], words: &mut [u64]) {
    for (word, bytes) in words.iter_mut().zip(bytes.chunks_exact(8)) {
        let mut le = [0; 8];
        le.copy_from_slice(bytes);
        *word = u64::from_le_bytes(le);
    }
}

/// Converts words to bytes; the last word may be cut.
pub(crate) fn to_bytes(words: &[u64], bytes: &mut [u8]) {
    for (bytes, word) in bytes.chunks_mut(8).zip(words) {
        if let Some(le) = word.to_le_bytes().get(..bytes.len()) {
            bytes.copy_from_slice(le);
        }
    }
}
