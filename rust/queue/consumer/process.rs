// SPDX-License-Identifier: GPL-2.0
//! What CQs of processes need besides.

use super::super::credit::Kind;
use super::super::credit::RingId;
use super::super::index::Depth;
use super::super::resize::Stays;
use super::super::resize::Switch;
use super::super::storage::Storage;
use super::Consumer;
use core::marker::PhantomData;

/// Everything read of this ring has been published; nothing more can be read while this lives.
#[derive(Debug)]
pub struct Flushed<'a, K: Kind> {
    ring: RingId,
    kind: PhantomData<&'a fn() -> K>,
}

impl<K: Kind> Flushed<'_, K> {
    /// The ring that it is of.
    #[inline(always)]
    pub const fn ring(&self) -> RingId {
        self.ring
    }
}

impl<S: Storage, K: Kind, const N: usize> Consumer<S, K, N> {
    /// The memory of the ring.
    #[inline(always)]
    pub const fn storage(&self) -> &S {
        &self.storage
    }

    /// `Some` if everything read so far has been published.
    #[inline(always)]
    pub fn flushed(&self) -> Option<Flushed<'_, K>> {
        let flushed = self.unpublished() == 0;
        flushed.then_some(Flushed {
            ring: self.ring,
            kind: PhantomData,
        })
    }

    /// Goes on in another ring, zeroed and with `depth` entries, in which the device writes since
    /// `switch`; returns the memory of the ring before. What was read there is still to be
    /// published.
    ///
    /// # Errors
    ///
    /// Entries of the ring before are unread, or the new one is too small: it gets the memory back.
    pub fn switch(&mut self, switch: Switch, storage: S, depth: Depth) -> Result<S, (S, Stays)> {
        let words = (depth.entries() as usize).checked_mul(N);
        if words.is_none_or(|words| words > storage.words()) {
            return Err((storage, Stays::BadRing));
        }
        if self.head != switch.end {
            return Err((storage, Stays::Unread));
        }
        self.depth = depth;
        self.head = switch.begin;
        Ok(core::mem::replace(&mut self.storage, storage))
    }
}
