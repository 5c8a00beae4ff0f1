// SPDX-License-Identifier: GPL-2.0
//! The rings' memory, as part of a state.
//!
//! The ring's contents are a function of the rest of the state: of the ring's index, and of the
//! device's record of each entry. So the memory is laid out again after each action, and is not
//! part of the comparison of states.

use qpair_queue::index::Depth;
use qpair_queue::index::Index;
use qpair_queue::storage::Storage;
use std::cell::Cell;
use std::hash::Hash;
use std::hash::Hasher;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::AtomicU8;
use std::sync::atomic::Ordering::Relaxed;

const OWNER: u64 = 1 << 63;

thread_local! {
    static MET: Cell<bool> = const { Cell::new(false) };
}

/// Another actor may observe this step, or influence its result; see `State::hasten`.
pub fn met() {
    MET.set(true);
}

/// Whether `act` called [`met`].
pub fn meets(act: impl FnOnce()) -> bool {
    MET.set(false);
    act();
    MET.get()
}

/// A ring that the device writes.
#[derive(Debug)]
pub struct Written<const WORDS: usize>([AtomicU64; WORDS]);

impl<const WORDS: usize> Written<WORDS> {
    pub fn new() -> Self {
        Self(std::array::from_fn(|_| AtomicU64::new(0)))
    }

    /// Lays out the ring from `first` on: these entries, of `N` words, and after them those of the
    /// pass before.
    pub fn lay_out<const N: usize>(
        &self,
        depth: Depth,
        first: Index,
        entries: impl Iterator<Item = [u64; N]>,
    ) {
        let mut entries = entries.fuse();
        for i in 0..depth.entries() {
            let index = first.plus(i);
            let entry = entries.next();
            let owner = depth.owner(index) == entry.is_some();
            let mut words = entry.unwrap_or([0; N]);
            words[N - 1] = words[N - 1] & !OWNER | if owner { OWNER } else { 0 };
            let at = depth.position(index) as usize * N;
            for (word, new) in self.0[at..at + N].iter().zip(words) {
                word.store(new, Relaxed);
            }
        }
    }
}

impl<const WORDS: usize> Clone for Written<WORDS> {
    fn clone(&self) -> Self {
        Self(std::array::from_fn(|i| {
            AtomicU64::new(self.0[i].load(Relaxed))
        }))
    }
}

impl<const WORDS: usize> PartialEq for Written<WORDS> {
    fn eq(&self, _other: &Self) -> bool {
        true
    }
}

impl<const WORDS: usize> Eq for Written<WORDS> {}

impl<const WORDS: usize> Hash for Written<WORDS> {
    fn hash<H: Hasher>(&self, _state: &mut H) {}
}

impl<const WORDS: usize> Storage for Written<WORDS> {
    fn words(&self) -> usize {
        WORDS
    }
    fn load(&self, at: usize) -> u64 {
        self.0[at].load(Relaxed)
    }
    fn store(&self, _at: usize, _word: u64) {
        panic!("software never writes an entry of the device's");
    }
    fn load_entry<const N: usize>(
        &self,
        at: usize,
        there: impl FnOnce(u64) -> bool,
    ) -> Option<[u64; N]> {
        if !there(self.load(at + N - 1)) {
            // The device may write an entry right after this.
            met();
            return None;
        }
        Some(std::array::from_fn(|i| self.load(at + i)))
    }
    fn after_owner(&self) {}
    fn before_head(&self) {}
    fn before_tail(&self) {}
}

/// A send queue, reduced to the blocks that the device may still read, and to whether one of them
/// was overwritten.
#[derive(Debug)]
pub struct Blocks {
    depth: Depth,
    given: AtomicU8,
    twice: AtomicBool,
}

impl Blocks {
    pub fn new(depth: Depth) -> Self {
        Self {
            depth,
            given: AtomicU8::new(0),
            twice: AtomicBool::new(false),
        }
    }

    /// Marks the blocks that belong to the device, which reads `first` next.
    pub fn lay_out(&self, first: Index, count: u32) {
        let at = (0..count.min(self.depth.entries())).map(|i| self.depth.position(first.plus(i)));
        self.given
            .store(at.fold(0, |bits, at| bits | 1 << at), Relaxed);
    }

    /// Whether a block was overwritten that the device may still read.
    pub fn twice(&self) -> bool {
        self.twice.load(Relaxed)
    }
}

impl Clone for Blocks {
    fn clone(&self) -> Self {
        Self {
            depth: self.depth,
            given: AtomicU8::new(self.given.load(Relaxed)),
            twice: AtomicBool::new(self.twice()),
        }
    }
}

impl PartialEq for Blocks {
    fn eq(&self, _other: &Self) -> bool {
        true
    }
}

impl Eq for Blocks {}

impl Hash for Blocks {
    fn hash<H: Hasher>(&self, _state: &mut H) {}
}

impl Storage for Blocks {
    fn words(&self) -> usize {
        8 * self.depth.entries() as usize
    }
    fn load(&self, _at: usize) -> u64 {
        0
    }
    fn store(&self, at: usize, _word: u64) {
        if self.given.load(Relaxed) & 1 << (at / 8) != 0 {
            self.twice.store(true, Relaxed);
        }
    }
    fn after_owner(&self) {}
    fn before_head(&self) {}
    fn before_tail(&self) {}
}
