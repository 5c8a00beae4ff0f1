// SPDX-License-Identifier: GPL-2.0
//! Accesses to guest memory, which are counted, and the other counters.

use crate::host::DmaFault;
use crate::host::Host;
use qpair_abi::stream::counters::Counter;

/// The machine, and the function's counters.
pub(crate) struct Bus<H: Host> {
    pub(crate) host: H,
    pub(crate) counts: [u64; Counter::COUNT],
}

impl<H: Host> Bus<H> {
    pub(crate) fn new(host: H) -> Self {
        Self {
            host,
            counts: [0; Counter::COUNT],
        }
    }

    pub(crate) fn count(&mut self, counter: Counter) {
        self.add(counter, 1);
    }

    pub(crate) fn add(&mut self, counter: Counter, more: u64) {
        if let Some(count) = self.counts.get_mut(counter as usize) {
            *count = count.wrapping_add(more);
        }
    }

    /// Counts an access; whether its range ends inside of the address space, or with it.
    fn begin(&mut self, which: [Counter; 2], addr: u64, bytes: usize) -> bool {
        let [accesses, sum] = which;
        self.count(accesses);
        self.add(sum, bytes as u64);
        addr.checked_add((bytes as u64).saturating_sub(1)).is_some()
    }

    fn end(&mut self, done: bool) -> Result<(), DmaFault> {
        if !done {
            self.count(Counter::DmaFaults);
            return Err(DmaFault);
        }
        Ok(())
    }

    pub(crate) fn read(&mut self, addr: u64, bytes: &mut [u8]) -> Result<(), DmaFault> {
        let which = [Counter::DmaReads, Counter::DmaReadBytes];
        let done = self.begin(which, addr, bytes.len()) && self.host.read(addr, bytes).is_ok();
        self.end(done)
    }

    pub(crate) fn write(&mut self, addr: u64, bytes: &[u8]) -> Result<(), DmaFault> {
        let which = [Counter::DmaWrites, Counter::DmaWriteBytes];
        let done = self.begin(which, addr, bytes.len()) && self.host.write(addr, bytes).is_ok();
        self.end(done)
    }

    /// Reads the words of a descriptor.
    pub(crate) fn load<const N: usize>(&mut self, addr: u64) -> Result<[u64; N], DmaFault> {
        let mut bytes = [[0; 8]; N];
        self.read(addr, bytes.as_flattened_mut())?;
        Ok(bytes.map(u64::from_le_bytes))
    }

    /// Writes words of a descriptor. A single one is written at once, after all earlier writes.
    pub(crate) fn store<const N: usize>(
        &mut self,
        addr: u64,
        words: [u64; N],
    ) -> Result<(), DmaFault> {
        self.write(addr, words.map(u64::to_le_bytes).as_flattened())
    }
}
