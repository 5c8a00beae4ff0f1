// SPDX-License-Identifier: GPL-2.0
//! The machine that the device is plugged into: this process.

use std::sync::atomic::{AtomicU64, Ordering};

use qpair_model::{DmaFault, Host, Mapping};

/// Memory of this process, for the device.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    pub(crate) pinned: Vec<(u64, u64)>,
    pub(crate) interrupts: u32,
    pub(crate) woken: bool,
    pub(crate) now: u64,
    pub(crate) deadline: Option<u64>,
}

impl Memory {
    fn has(&self, addr: u64, bytes: u64) -> bool {
        self.pinned
            .iter()
            .any(|&(start, len)| addr >= start && bytes <= len && addr - start <= len - bytes)
    }

    pub(crate) fn pin(&mut self, addr: u64, bytes: u64) {
        self.pinned.push((addr, bytes));
    }

    pub(crate) fn unpin(&mut self, addr: u64, bytes: u64) {
        let at = self.pinned.iter().position(|&range| range == (addr, bytes));
        self.pinned.swap_remove(at.expect("it was pinned"));
    }
}

/// Words of this process, for the device.
#[derive(Debug)]
pub(crate) struct Map {
    start: *const AtomicU64,
    bytes: u64,
}

// SAFETY: Only ever used as atomics, and only while it is pinned.
unsafe impl Send for Map {}

impl Map {
    fn words(&self) -> &[AtomicU64] {
        // SAFETY: It was pinned when it was mapped, and the model drops it with its object, which
        // it does before the process may unmap.
        unsafe { std::slice::from_raw_parts(self.start, self.bytes as usize / 8) }
    }
}

impl Mapping for Map {
    fn load(&self, at: usize, words: &mut [u64]) {
        for (i, word) in words.iter_mut().enumerate() {
            *word = self.words()[at / 8 + i].load(Ordering::Acquire);
        }
    }

    fn store(&self, at: usize, words: &[u64]) {
        for (i, word) in words.iter().enumerate() {
            self.words()[at / 8 + i].store(*word, Ordering::Release);
        }
    }

    fn read(&self, at: usize, bytes: &mut [u8]) {
        assert!(at + bytes.len() <= self.bytes as usize);
        // SAFETY: Inside, and pinned, so mapped; there is no reference to it (`Memory::bytes` of
        // the library).
        unsafe {
            let from = self.start.cast::<u8>().add(at);
            std::ptr::copy_nonoverlapping(from, bytes.as_mut_ptr(), bytes.len());
        }
    }

    fn write(&self, at: usize, bytes: &[u8]) {
        assert!(at + bytes.len() <= self.bytes as usize);
        // SAFETY: As above.
        unsafe {
            let to = self.start.cast::<u8>().cast_mut().add(at);
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len());
        }
    }

    fn copy(&self, at: usize, from: &Self, from_at: usize, bytes: usize) {
        assert!(at + bytes <= self.bytes as usize && from_at + bytes <= from.bytes as usize);
        // SAFETY: As above.
        unsafe {
            let to = self.start.cast::<u8>().cast_mut().add(at);
            std::ptr::copy(from.start.cast::<u8>().add(from_at), to, bytes);
        }
    }
}

impl Host for Memory {
    type Map = Map;

    fn read(&mut self, addr: u64, bytes: &mut [u8]) -> Result<(), DmaFault> {
        if !self.has(addr, bytes.len() as u64) {
            return Err(DmaFault);
        }
        // SAFETY: Pinned, so mapped; there is no reference to it (`Memory::bytes` of the library).
        unsafe { std::ptr::copy_nonoverlapping(addr as *const u8, bytes.as_mut_ptr(), bytes.len()) }
        Ok(())
    }

    fn write(&mut self, addr: u64, bytes: &[u8]) -> Result<(), DmaFault> {
        if !self.has(addr, bytes.len() as u64) {
            return Err(DmaFault);
        }
        // SAFETY: As above.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), addr as *mut u8, bytes.len()) }
        Ok(())
    }

    fn map(&mut self, addr: u64, bytes: u64, _writable: bool) -> Option<Map> {
        self.has(addr, bytes).then_some(Map {
            start: addr as *const AtomicU64,
            bytes,
        })
    }

    fn raise(&mut self, _vector: u16) {
        self.interrupts += 1;
    }

    fn now(&self) -> u64 {
        self.now
    }

    fn random(&mut self) -> u64 {
        1
    }

    fn wake(&mut self) {
        self.woken = true;
    }

    fn wake_at(&mut self, nanos: u64) {
        self.deadline = (nanos != u64::MAX).then_some(nanos);
    }
}
