// SPDX-License-Identifier: GPL-2.0

//! An EQ as it is shown to people: copied out while its poll is paused.

use super::{
    cq::{
        Body,
        KernelCq, //
    },
    effects::Live, //
};
use crate::{
    abi::Number,
    queue::poll::{
        Counts,
        Node, //
    },
};
use kernel::prelude::*;

/// An EQ, to look at.
pub(crate) struct View<'a> {
    pub(super) live: &'a Live,
}

impl View<'_> {
    /// What the poll has counted.
    pub(crate) fn counts(&self) -> &Counts {
        self.live.poll.counts()
    }

    /// Depth, next entry.
    pub(crate) fn ring(&self) -> (u32, u32) {
        let eq = self.live.poll.eq();
        (eq.depth().entries(), eq.head().get())
    }

    /// Slots for CQs to come, to arm with, of destroyed CQs; CQs pending; spurious events.
    pub(crate) fn slots(&self) -> [u32; 5] {
        let slots = self.live.poll.slots();
        [
            slots.unbound(),
            slots.spare(),
            slots.limbo(),
            self.live.poll.pending(),
            slots.spurious(),
        ]
    }

    /// CQs in the table; asynchronous events of nobody.
    pub(crate) fn table(&self) -> (u32, u64) {
        (self.live.world.cqs.len(), self.live.world.unclaimed)
    }

    /// Numbers of the CQs on it, from the `at`th, as many as `numbers` has room for.
    pub(crate) fn nth_cqs(&self, mut at: usize, numbers: &mut KVec<Number>) {
        for (number, _) in self.live.world.cqs.iter() {
            from(&mut at, number, numbers);
        }
    }

    /// The same of the queue pairs on its kernel CQs; on EQ 0 of those of processes as well.
    pub(crate) fn nth_qps(&self, mut at: usize, numbers: &mut KVec<Number>) {
        for (_, cq) in self.kernel_cqs() {
            for pair in cq.pairs() {
                from(&mut at, pair.number(), numbers);
            }
        }
        for (number, _) in self.live.world.owners.qps.iter() {
            from(&mut at, number, numbers);
        }
    }

    /// The kernel's CQs.
    pub(crate) fn kernel_cqs(&self) -> impl Iterator<Item = (&Node, &KernelCq)> {
        self.live
            .world
            .cqs
            .iter()
            .filter_map(|(_, entry)| match &entry.body {
                Body::Kernel(kernel) => Some((&entry.node, &**kernel)),
                _ => None,
            })
    }
}

/// Copies past the first `at`, while there is room; allocates nothing, for the poll is paused.
fn from(at: &mut usize, number: Number, numbers: &mut KVec<Number>) {
    match at.checked_sub(1) {
        Some(rest) => *at = rest,
        // Where there is no room, the next look begins here.
        None => drop(numbers.push_within_capacity(number)),
    }
}
