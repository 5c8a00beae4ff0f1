// SPDX-License-Identifier: GPL-2.0

//! What debugfs copies of an EQ while its poll is paused.

use super::{
    cq::{
        Body,
        PolledCq, //
    },
    eq::Live,
    handlers::Handlers,
    prelude::*, //
};
use crate::queue::poll::Counts;

impl Live {
    /// What polls have done since the EQ is up.
    pub(crate) fn counts(&self) -> &Counts {
        self.poll.counts()
    }

    /// Entries of its ring, and the index of the next.
    pub(crate) fn ring(&self) -> (u32, u32) {
        let eq = self.poll.eq();
        (eq.depth().entries(), eq.head().get())
    }

    /// Slots that are unbound, spare, or of a deferred free; pending CQs; spurious events.
    pub(crate) fn slots(&self) -> [u32; 5] {
        let slots = self.poll.slots();
        [
            slots.unbound(),
            slots.spare(),
            slots.deferred(),
            self.poll.pending(),
            slots.spurious(),
        ]
    }

    /// CQs on it, queue pairs on its polled CQs, and for EQ 0 those of processes and kernel ULPs, and
    /// SRQs; asynchronous events without a handler.
    pub(crate) fn table(&self) -> ([u32; 3], u64) {
        let Handlers {
            qps,
            srqs,
            unclaimed,
            ..
        } = &self.handlers;
        // CAST: At most the queue pairs of the device.
        let pairs = self.polled_cqs().map(|cq| cq.queues.pairs().len() as u32);
        let qps = pairs.sum::<u32>() + qps.len();
        ([self.cqs.len(), qps, srqs.len()], *unclaimed)
    }

    /// Copies numbers of the CQs on it from the `at`th on, as many as `numbers` has room for.
    pub(crate) fn nth_cqs(&self, mut at: usize, numbers: &mut KVec<Number>) {
        for (number, _) in self.cqs.iter() {
            from(&mut at, number, numbers);
        }
    }

    /// The same for the queue pairs on its polled CQs; for EQ 0 also for those of processes.
    pub(crate) fn nth_qps(&self, mut at: usize, numbers: &mut KVec<Number>) {
        for cq in self.polled_cqs() {
            for pair in cq.queues.pairs() {
                from(&mut at, pair.number, numbers);
            }
        }
        for (number, _) in self.handlers.qps.iter() {
            from(&mut at, number, numbers);
        }
    }

    /// The CQs that the poll reads itself.
    fn polled_cqs(&self) -> impl Iterator<Item = &PolledCq> {
        self.cqs.iter().filter_map(|(_, entry)| match &entry.body {
            Body::Polled(polled) => Some(&**polled),
            _ => None,
        })
    }
}

/// Skips the first `at` numbers, then copies while there is room. Does not allocate: the poll is
/// paused.
fn from(at: &mut usize, number: Number, numbers: &mut KVec<Number>) {
    match at.checked_sub(1) {
        Some(rest) => *at = rest,
        // If there is no room, the next call starts here.
        None => drop(numbers.push_within_capacity(number)),
    }
}
