// SPDX-License-Identifier: GPL-2.0
//! Ring memory for tests.

use qpair_queue::index::Depth;
use qpair_queue::index::Index;
use qpair_queue::producer::Rows;
use qpair_queue::storage::Storage;
use std::sync::atomic::fence;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering;
use std::sync::Arc;

const OWNER: u64 = 1 << 63;

/// Words that both sides share.
#[derive(Clone, Debug)]
pub struct Memory(Arc<[AtomicU64]>);

impl Memory {
    /// Zeroed.
    pub fn new(words: usize) -> Self {
        Self((0..words).map(|_| AtomicU64::new(0)).collect())
    }

    /// The memory after the pass before `first`: no entry from `first` on is valid.
    pub fn aged<const N: usize>(depth: Depth, first: Index) -> Self {
        let memory = Self::new(depth.entries() as usize * N);
        for i in 0..depth.entries() {
            let index = first.plus(i);
            let at = depth.position(index) as usize * N + N - 1;
            if (index.get() >> depth.log2()) & 1 == 1 {
                memory.0[at].store(OWNER, Ordering::Relaxed);
            }
        }
        memory
    }

    /// The device's side of an entry: body, then owner word.
    pub fn write<const N: usize>(&self, depth: Depth, index: Index, mut words: [u64; N]) {
        let at = depth.position(index) as usize * N;
        let owner = (index.get() >> depth.log2()) & 1 == 0;
        words[N - 1] = words[N - 1] & !OWNER | if owner { OWNER } else { 0 };
        for (i, word) in words[..N - 1].iter().enumerate() {
            self.0[at + i].store(*word, Ordering::Relaxed);
        }
        self.0[at + N - 1].store(words[N - 1], Ordering::Release);
    }

    /// A word.
    pub fn word(&self, at: usize) -> u64 {
        self.0[at].load(Ordering::Relaxed)
    }
}

impl Storage for Memory {
    fn words(&self) -> usize {
        self.0.len()
    }
    fn load(&self, at: usize) -> u64 {
        self.0[at].load(Ordering::Relaxed)
    }
    fn store(&self, at: usize, word: u64) {
        self.0[at].store(word, Ordering::Relaxed);
    }
    fn after_owner(&self) {
        fence(Ordering::Acquire);
    }
    fn before_head(&self) {
        fence(Ordering::Release);
    }
    fn before_tail(&self) {
        fence(Ordering::Release);
    }
}

impl Rows for Memory {}
