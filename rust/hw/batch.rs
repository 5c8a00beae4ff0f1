// SPDX-License-Identifier: GPL-2.0

//! Completions between the two steps of a turn: consumed, but not yet completed.

use super::qp::{
    self,
    Tag, //
};
use crate::abi::entry::{
    cqe_flags,
    Cqe, //
};
use kernel::prelude::*;

/// The most completions consumed before the head is published.
pub(crate) const BATCH: usize = 64;

/// A completion, as a client sees it. Each accessor decodes only the fields it returns.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Done {
    pub(super) words: [u64; Cqe::WORDS],
    /// Blocks or receives that it covers, including unsignaled ones before it.
    pub(crate) covers: u32,
}

impl Done {
    const NONE: Self = Self {
        words: [0; Cqe::WORDS],
        covers: 0,
    };

    /// The entry. Its `wr_id` is in the driver's format.
    #[inline(always)]
    pub(crate) fn cqe(&self) -> Cqe {
        Cqe::decode(&self.words)
    }

    /// The place of its queue pair in the CQ.
    #[inline(always)]
    pub(crate) fn place(&self) -> usize {
        qp::split(self.cqe().wr_id).0
    }

    /// The tag of the poster, as the device returned it.
    #[inline(always)]
    pub(crate) fn tag(&self) -> Tag {
        qp::split(self.cqe().wr_id).1
    }

    /// Whether it belongs to the queue pair at `place` and the request with this tag.
    #[inline(always)]
    pub(crate) fn is_request(&self, place: usize, tag: Tag) -> bool {
        qp::split(self.cqe().wr_id) == (place, tag)
    }

    /// Whether it completes a send successfully.
    #[inline(always)]
    pub(crate) fn is_sent(&self) -> bool {
        let [.., last] = self.words;
        last & Cqe::NOT_SENT == 0
    }

    /// Whether it belongs to the receive queue.
    #[inline(always)]
    pub(crate) fn is_recv(&self) -> bool {
        self.cqe().flags & cqe_flags::RECV != 0
    }
}

/// The completions that a turn has consumed but not yet completed. Owned by the poll; allocated
/// once.
pub(crate) struct DoneBatch {
    /// Places for completions, of which the first `count` are taken.
    done: KVec<Done>,
    count: usize,
    places: KVec<u16>,
}

impl DoneBatch {
    /// Allocates room for [`BATCH`] completions. Sleeps.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn new() -> Result<Self> {
        let mut done = KVec::with_capacity(BATCH, GFP_KERNEL)?;
        done.resize(BATCH, Done::NONE, GFP_KERNEL)?;
        Ok(Self {
            done,
            count: 0,
            places: KVec::with_capacity(BATCH, GFP_KERNEL)?,
        })
    }

    /// A batch without room.
    pub(super) const fn none() -> Self {
        Self {
            done: KVec::new(),
            count: 0,
            places: KVec::new(),
        }
    }

    #[inline]
    pub(super) fn clear(&mut self) {
        self.count = 0;
        self.places.clear();
    }

    /// Adds a completion of the queue pair at `place`.
    #[inline]
    pub(super) fn push(&mut self, place: u16, done: Done) {
        // There is room: a turn consumes at most what the batch holds.
        if let Some(slot) = self.done.get_mut(self.count) {
            *slot = done;
            self.count += 1;
        }
        if self.places.last() != Some(&place) {
            let _: Result<_, _> = self.places.push_within_capacity(place);
        }
    }

    /// Adds the first `count` completions that were written to [`room`](Self::room). They are of
    /// the same queue pair as the last one added.
    #[inline]
    pub(super) fn push_row(&mut self, count: usize) {
        self.count += count;
    }

    /// Room for up to `max` more completions.
    #[inline]
    pub(super) fn room(&mut self, max: usize) -> &mut [Done] {
        let room = self.done.get_mut(self.count..).unwrap_or_default();
        let max = max.min(room.len());
        room.get_mut(..max).unwrap_or_default()
    }

    /// The completions of the batch.
    #[inline]
    pub(super) fn done(&self) -> &[Done] {
        self.done.get(..self.count).unwrap_or_default()
    }

    /// The places of the queue pairs with completions in the batch. A place may occur more than
    /// once.
    #[inline]
    pub(super) fn places(&self) -> &[u16] {
        &self.places
    }
}
