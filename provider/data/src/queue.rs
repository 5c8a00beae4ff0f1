// SPDX-License-Identifier: GPL-2.0
//! A work queue, and the slots that a program may fill.

use qpair_queue::consumer::{CqConsumer, Seen};
use qpair_queue::credit::{Cq, Kind};
use qpair_queue::index::Index;
use qpair_queue::producer::{Batch, Producer, Row};

use crate::ring::Ring;

/// A work queue with its slack.
#[derive(Debug)]
pub(crate) struct Work<K: Kind> {
    pub(crate) producer: Producer<Ring, K>,
    /// Slots that may be completed and not free.
    pub(crate) slack: u32,
}

impl<K: Kind> Work<K> {
    /// A queue of which the program may use `asked` slots, at most its capacity.
    pub(crate) fn new(producer: Producer<Ring, K>, asked: u32) -> Self {
        let slack = producer.capacity().saturating_sub(asked);
        Self { producer, slack }
    }

    /// Begins a batch of posts. They are refused beyond what was asked.
    #[inline(always)]
    pub(crate) fn batch(&mut self) -> Batch<'_, Ring, K> {
        self.producer.batch_beside(self.slack, |ring| *ring)
    }

    /// Reports completions in a row: the first, and those that `more` takes. `None` if the first is
    /// stale; then `more` is not called.
    #[inline(always)]
    pub(crate) fn complete<R>(
        &mut self,
        first: Index,
        seen: Seen<Cq>,
        more: impl FnOnce(&mut Row<'_, K>) -> (R, Seen<Cq>),
    ) -> Option<R> {
        let mut row = self.producer.row();
        if !row.is_of(seen) {
            return None;
        }
        row.complete(first)?;
        let (result, seen) = more(&mut row);
        row.end(seen).ok()?;
        Some(result)
    }

    /// Frees completed slots, if they exceed the slack: by the head that is published, or by
    /// publishing it.
    #[inline(always)]
    pub(crate) fn settle(&mut self, consumer: &mut CqConsumer<Ring>, doorbell: impl FnOnce(Index)) {
        if self.producer.completed() > self.slack
            && self.producer.reclaim(consumer.published()) == 0
        {
            consumer.publish(doorbell);
            // No comparison of indices: any number of entries of other queues may have passed since
            // this queue's last one.
            if let Some(flushed) = consumer.flushed() {
                self.producer.reclaim_all(&flushed);
            }
        }
    }
}
