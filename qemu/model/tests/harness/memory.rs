// SPDX-License-Identifier: GPL-2.0
//! Guest memory: sparse, and granted to the device piece by piece.

use qpair_model::DmaFault;
use qpair_model::Host;
use qpair_model::Mapping;
use qpair_model::Trace;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::collections::HashMap;
use std::ops::Range;
use std::rc::Rc;

/// The permitted accesses of a piece of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Grant {
    Read,
    Write,
}

/// An action of the device, for the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Done {
    Write(u64, u64),
    Raise(u16),
}

#[derive(Default)]
struct Inner {
    pages: HashMap<u64, Box<[u8; 4096]>>,
    /// By first byte: length, and permitted accesses. None overlaps another.
    grants: BTreeMap<u64, (u64, Grant)>,
    next: u64,
    /// An access outside of the grants is a DMA fault, and does not fail the test.
    lenient: bool,
    /// Memory where it fails the test nevertheless.
    guarded: Vec<Range<u64>>,
    /// Accesses, and their bytes.
    work: u64,
    live_maps: usize,
    done: Vec<Done>,
    keep_done: bool,
    at_each: Option<Box<dyn FnMut(Done)>>,
}

impl Inner {
    fn page(&mut self, addr: u64) -> &mut [u8; 4096] {
        let page = self.pages.entry(addr >> 12);
        page.or_insert_with(|| Box::new([0; 4096]))
    }

    /// Whether some of these bytes are granted.
    fn overlaps(&self, addr: u64, bytes: u64) -> bool {
        let last = self.grants.range(..addr.saturating_add(bytes)).next_back();
        last.is_some_and(|(&first, &(length, _))| addr.saturating_sub(first) < length)
    }
}

/// Guest memory; a handle.
#[derive(Clone, Default)]
pub struct Memory(Rc<RefCell<Inner>>);

impl Memory {
    pub fn new() -> Self {
        let memory = Self::default();
        memory.0.borrow_mut().next = 0x10_0000;
        memory
    }

    /// Allocates zeroed memory, and grants it.
    pub fn alloc(&self, bytes: u64, align: u64, grant: Grant) -> u64 {
        let addr = {
            let mut inner = self.0.borrow_mut();
            let addr = inner.next.next_multiple_of(align.max(64));
            // An unused gap: accesses past an end are detected.
            inner.next = addr + bytes + 4096;
            addr
        };
        self.grant(addr, bytes, grant);
        addr
    }

    pub fn grant(&self, addr: u64, bytes: u64, grant: Grant) {
        let mut inner = self.0.borrow_mut();
        inner.grants.remove(&addr);
        assert!(!inner.overlaps(addr, bytes), "{addr:#x} is granted");
        inner.grants.insert(addr, (bytes, grant));
    }

    /// Revokes the grant.
    pub fn revoke(&self, addr: u64) {
        let revoked = self.0.borrow_mut().grants.remove(&addr);
        assert!(revoked.is_some(), "{addr:#x} was not granted");
    }

    pub fn set_lenient(&self, lenient: bool) {
        self.0.borrow_mut().lenient = lenient;
    }

    /// Lets no access to these addresses pass that is not granted.
    pub fn guard(&self, addresses: Range<u64>) {
        self.0.borrow_mut().guarded.push(addresses);
    }

    /// The accesses since the last call, and their bytes, as one sum.
    pub fn take_work(&self) -> u64 {
        std::mem::take(&mut self.0.borrow_mut().work)
    }

    pub fn live_maps(&self) -> usize {
        self.0.borrow().live_maps
    }

    pub fn keep_done(&self) {
        self.0.borrow_mut().keep_done = true;
    }

    pub fn take_done(&self) -> Vec<Done> {
        std::mem::take(&mut self.0.borrow_mut().done)
    }

    /// Calls `act` after each write and interrupt.
    pub fn at_each(&self, act: impl FnMut(Done) + 'static) {
        self.0.borrow_mut().at_each = Some(Box::new(act));
    }

    fn note(&self, done: Done) {
        let act = self.0.borrow_mut().at_each.take();
        if let Some(mut act) = act {
            act(done);
            self.0.borrow_mut().at_each = Some(act);
        }
        let mut inner = self.0.borrow_mut();
        if inner.keep_done {
            inner.done.push(done);
        }
    }

    /// What these bytes are granted for.
    fn granted(&self, addr: u64, bytes: u64) -> Option<Grant> {
        let inner = self.0.borrow();
        let (&first, &(length, granted)) = inner.grants.range(..=addr).next_back()?;
        let inside = addr - first <= length && bytes <= length - (addr - first);
        inside.then_some(granted)
    }

    /// Whether this access is permitted.
    fn allows(&self, addr: u64, bytes: u64, grant: Grant) -> bool {
        let granted = self.granted(addr, bytes);
        let allowed = granted == Some(Grant::Write) || granted == Some(grant);
        let inner = self.0.borrow();
        let end = addr.saturating_add(bytes);
        let mut guarded = inner.guarded.iter();
        let is_guarded = guarded.any(|range| addr < range.end && range.start < end);
        assert!(
            allowed || inner.lenient && !is_guarded,
            "DMA of {bytes} bytes at {addr:#x} ({grant:?}) was not granted"
        );
        allowed
    }

    /// The same, of an access, whose range ends inside of the address space.
    fn takes(&self, addr: u64, bytes: u64, grant: Grant) -> bool {
        let last = addr.checked_add(bytes.saturating_sub(1));
        assert!(last.is_some(), "{bytes} bytes at {addr:#x}");
        self.0.borrow_mut().work += 1 + bytes;
        self.allows(addr, bytes, grant)
    }

    pub fn word(&self, addr: u64) -> u64 {
        let mut bytes = [0; 8];
        self.get_bytes(addr, &mut bytes);
        u64::from_le_bytes(bytes)
    }

    pub fn set_word(&self, addr: u64, word: u64) {
        assert_eq!(addr % 8, 0);
        self.set_bytes(addr, &word.to_le_bytes());
    }

    pub fn set_words(&self, addr: u64, words: &[u64]) {
        for (i, word) in words.iter().enumerate() {
            self.set_word(addr + 8 * i as u64, *word);
        }
    }

    pub fn words<const N: usize>(&self, addr: u64) -> [u64; N] {
        std::array::from_fn(|i| self.word(addr + 8 * i as u64))
    }

    pub fn bytes(&self, addr: u64, count: usize) -> Vec<u8> {
        let mut bytes = vec![0; count];
        self.get_bytes(addr, &mut bytes);
        bytes
    }

    /// All that is not zero, by address.
    pub fn contents(&self) -> BTreeMap<u64, Vec<u8>> {
        let inner = self.0.borrow();
        let pages = inner.pages.iter().filter(|(_, page)| ***page != [0; 4096]);
        pages.map(|(&addr, page)| (addr, page.to_vec())).collect()
    }

    fn get_bytes(&self, addr: u64, bytes: &mut [u8]) {
        let inner = self.0.borrow();
        let mut at = addr;
        let mut rest = bytes;
        while !rest.is_empty() {
            let from = (at & 4095) as usize;
            let (part, others) = rest.split_at_mut(rest.len().min(4096 - from));
            match inner.pages.get(&(at >> 12)) {
                Some(page) => part.copy_from_slice(&page[from..from + part.len()]),
                None => part.fill(0),
            }
            at = at.wrapping_add(part.len() as u64);
            rest = others;
        }
    }

    pub fn set_bytes(&self, addr: u64, bytes: &[u8]) {
        let mut inner = self.0.borrow_mut();
        let mut at = addr;
        let mut rest = bytes;
        while !rest.is_empty() {
            let to = (at & 4095) as usize;
            let (part, others) = rest.split_at(rest.len().min(4096 - to));
            inner.page(at)[to..to + part.len()].copy_from_slice(part);
            at = at.wrapping_add(part.len() as u64);
            rest = others;
        }
    }
}

/// A mapping: its range must be granted at every access.
pub struct TestMap {
    memory: Memory,
    addr: u64,
    bytes: u64,
    writable: bool,
}

impl Drop for TestMap {
    fn drop(&mut self) {
        self.memory.0.borrow_mut().live_maps -= 1;
    }
}

impl TestMap {
    fn check(&self, at: usize, bytes: usize, grant: Grant) -> u64 {
        let (at, bytes) = (at as u64, bytes as u64);
        assert!(at + bytes <= self.bytes, "outside of the mapping");
        assert!(grant == Grant::Read || self.writable);
        let addr = self.addr + at;
        assert!(
            self.memory.takes(addr, bytes, grant),
            "a mapping outlived its grant"
        );
        addr
    }
}

impl Mapping for TestMap {
    fn load(&self, at: usize, words: &mut [u64]) {
        let addr = self.check(at, words.len() * 8, Grant::Read);
        assert_eq!(addr % 8, 0);
        for (i, word) in words.iter_mut().enumerate() {
            *word = self.memory.word(addr + 8 * i as u64);
        }
    }

    fn store(&self, at: usize, words: &[u64]) {
        let addr = self.check(at, words.len() * 8, Grant::Write);
        self.memory.set_words(addr, words);
        self.memory.note(Done::Write(addr, words.len() as u64 * 8));
    }

    fn read(&self, at: usize, bytes: &mut [u8]) {
        let addr = self.check(at, bytes.len(), Grant::Read);
        self.memory.get_bytes(addr, bytes);
    }

    fn write(&self, at: usize, bytes: &[u8]) {
        let addr = self.check(at, bytes.len(), Grant::Write);
        self.memory.set_bytes(addr, bytes);
        self.memory.note(Done::Write(addr, bytes.len() as u64));
    }

    fn copy(&self, at: usize, from: &Self, from_at: usize, bytes: usize) {
        let mut bounce = vec![0; bytes];
        from.read(from_at, &mut bounce);
        self.write(at, &bounce);
    }
}

/// The machine that the device is plugged into.
pub struct TestHost {
    pub memory: Memory,
    pub now: u64,
    pub raised: Vec<u16>,
    pub woken: bool,
    pub wake_at: u64,
    pub bus_master: bool,
    /// Counts up, so that tests are deterministic.
    pub random: u64,
    /// Whether a run has taken long enough.
    pub time_is_up: bool,
    /// Whether memory can be mapped at all.
    pub maps: bool,
    /// A mapping is refused, and does not fail the test, if only a part of its memory is granted, or
    /// if it is to write what may only be read.
    pub refuses: bool,
    pub traces: Vec<Trace>,
    pub keep_traces: bool,
    /// Frames that were sent.
    pub frames: Vec<Vec<u8>>,
    /// How many of them there may be.
    pub room: usize,
}

impl TestHost {
    pub fn new(memory: Memory) -> Self {
        Self {
            memory,
            now: 1_000,
            raised: Vec::new(),
            woken: false,
            wake_at: u64::MAX,
            bus_master: true,
            random: 0,
            time_is_up: false,
            maps: true,
            refuses: false,
            traces: Vec::new(),
            keep_traces: false,
            frames: Vec::new(),
            room: 1024,
        }
    }
}

impl Host for TestHost {
    type Map = TestMap;

    fn read(&mut self, addr: u64, bytes: &mut [u8]) -> Result<(), DmaFault> {
        if !self.bus_master || !self.memory.takes(addr, bytes.len() as u64, Grant::Read) {
            return Err(DmaFault);
        }
        self.memory.get_bytes(addr, bytes);
        Ok(())
    }

    fn write(&mut self, addr: u64, bytes: &[u8]) -> Result<(), DmaFault> {
        if !self.bus_master || !self.memory.takes(addr, bytes.len() as u64, Grant::Write) {
            return Err(DmaFault);
        }
        self.memory.set_bytes(addr, bytes);
        self.memory.note(Done::Write(addr, bytes.len() as u64));
        Ok(())
    }

    fn map(&mut self, addr: u64, bytes: u64, writable: bool) -> Option<TestMap> {
        let grant = if writable { Grant::Write } else { Grant::Read };
        let memory = &self.memory;
        let refused = self.refuses
            && match memory.granted(addr, bytes) {
                Some(granted) => writable && granted == Grant::Read,
                None => memory.0.borrow().overlaps(addr, bytes),
            };
        let may = self.maps && self.bus_master && !refused && memory.allows(addr, bytes, grant);
        may.then(|| {
            self.memory.0.borrow_mut().live_maps += 1;
            TestMap {
                memory: self.memory.clone(),
                addr,
                bytes,
                writable,
            }
        })
    }

    fn random(&mut self) -> u64 {
        self.random = self.random.wrapping_add(1);
        self.random
    }

    fn raise(&mut self, vector: u16) {
        self.raised.push(vector);
        self.memory.note(Done::Raise(vector));
    }

    fn now(&self) -> u64 {
        self.now
    }

    fn time_is_up(&self) -> bool {
        self.time_is_up
    }

    fn wake(&mut self) {
        self.woken = true;
    }

    fn wake_at(&mut self, nanos: u64) {
        self.wake_at = nanos;
    }

    fn room(&mut self) -> usize {
        self.room.saturating_sub(self.frames.len())
    }

    fn transmit(&mut self, frame: &[u8]) {
        assert!(self.frames.len() < self.room, "a frame without room");
        self.frames.push(frame.to_vec());
    }

    fn bus_master(&self) -> bool {
        self.bus_master
    }

    fn trace(&mut self, what: Trace) {
        if self.keep_traces {
            self.traces.push(what);
        }
    }
}
