// SPDX-License-Identifier: GPL-2.0
//! The producer indices of CQs, for the writers of doorbells.
//!
//! A doorbell is executed some time after it was written, perhaps by another thread. A notify asks
//! for what comes after its write, so the write samples the CQ's producer index: one load, without
//! a lock. The device publishes an index when all entries before it are in memory, so a sample is
//! never ahead of memory; it may be behind.

use qpair_abi::doorbell;
use qpair_queue::index::Index;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering;
use std::sync::Arc;

/// A doorbell that was written.
#[derive(Clone, Copy, Debug)]
pub struct Doorbell {
    pub(crate) offset: u64,
    pub(crate) value: u64,
    pub(crate) bytes: u32,
    /// Of a notify: the producer index of its CQ when it was written.
    pub(crate) sample: Index,
}

/// The producer indices of all CQs; a handle.
#[derive(Clone)]
pub struct Producers(Arc<[AtomicU32]>);

/// The producer index of a CQ; a handle.
pub(crate) struct Producer {
    all: Producers,
    cq: usize,
}

impl Producers {
    pub(crate) fn new(cqs: u32) -> Self {
        Self((0..cqs).map(|_| AtomicU32::new(0)).collect())
    }

    /// That of the CQ with this index, which is new.
    pub(crate) fn begin(&self, cq: usize, first: Index) -> Producer {
        let producer = Producer {
            all: self.clone(),
            cq,
        };
        producer.publish(first);
        producer
    }

    /// A doorbell that is being written: `bytes` bytes at an offset of BAR 2. The write must not be
    /// complete before this returns.
    #[inline]
    pub fn doorbell(&self, offset: u64, value: u64, bytes: u32) -> Doorbell {
        let place = offset % doorbell::PAGE_BYTES;
        let sample = match place {
            doorbell::CQ_NOTIFY | doorbell::CQ_NOTIFY_SOLICITED => self.sample(value),
            _ => Index::ZERO,
        };
        Doorbell {
            offset,
            value,
            bytes,
            sample,
        }
    }

    fn sample(&self, value: u64) -> Index {
        let (cq, _) = doorbell::parts(value);
        let producer = self.0.get(cq.index());
        // With what the core has stored before: software reads the entries before the sample.
        let sample = producer.map_or(0, |producer| producer.load(Ordering::Acquire));
        Index::new(sample)
    }
}

impl Producer {
    /// All entries before `index` are in memory.
    #[inline(always)]
    pub(crate) fn publish(&self, index: Index) {
        if let Some(producer) = self.all.0.get(self.cq) {
            producer.store(index.get(), Ordering::Release);
        }
    }
}
