// SPDX-License-Identifier: GPL-2.0
//! Receives of an RQ or SRQ, and their WQEs.

use qpair_abi::entry::{self, RecvWqe, Sge};
use qpair_queue::credit::Kind;
use qpair_queue::producer::{Batch, Producer};

use crate::request::{put_sges, write, Refusal, WORDS};
use crate::ring::Ring;

/// Receives that one doorbell submits.
#[derive(Debug)]
pub struct Receives<'a, K: Kind> {
    producer: &'a mut Producer<Ring, K>,
    /// Slots for completed receives, which posts may not use (see [`Producer::batch_beside`]).
    slack: u32,
    /// Most SGEs of a receive.
    max_sge: u32,
}

impl<'a, K: Kind> Receives<'a, K> {
    /// Of a queue whose receives have `64 << stride` bytes, and at most `max_sge` SGEs.
    #[inline(always)]
    pub(crate) fn new(
        producer: &'a mut Producer<Ring, K>,
        slack: u32,
        max_sge: u32,
        stride: u8,
    ) -> Self {
        Self {
            producer,
            slack,
            // CAST: A small number.
            max_sge: max_sge.min(entry::recv_sges(stride) as u32),
        }
    }

    #[inline(always)]
    fn batch(&mut self) -> Batch<'_, Ring, K> {
        self.producer.batch_beside(self.slack, |ring| *ring)
    }

    /// Receives of one SGE. Their batch is their own, so that its indices stay in registers.
    ///
    /// # Errors
    ///
    /// [`Refusal::Invalid`]: a receive of the queue has no SGEs.
    #[inline(always)]
    pub fn row(&mut self) -> Result<RecvRow<'_, K>, Refusal> {
        match self.max_sge {
            0 => Err(Refusal::Invalid),
            _ => Ok(RecvRow(self.batch())),
        }
    }

    /// Posts a receive.
    ///
    /// # Errors
    ///
    /// [`Refusal::Invalid`]: it has too many SGEs. [`Refusal::Full`].
    // Not inlined: it would take the registers of rows.
    #[inline(never)]
    pub fn put(&mut self, wr_id: u64, sges: &[Sge]) -> Result<(), Refusal> {
        if sges.len() > self.max_sge as usize {
            return Err(Refusal::Invalid);
        }
        let mut words = [0; WORDS];
        let (start, body) = words.split_at_mut(RecvWqe::WORDS);
        start.copy_from_slice(&head(wr_id, sges.len()));
        put_sges(body, sges);
        // The device reads no further than the SGEs.
        let blocks = (RecvWqe::WORDS + sges.len() * Sge::WORDS).div_ceil(entry::BLOCK_WORDS);
        write(self.batch().room(1, true)?, &words, blocks);
        Ok(())
    }
}

/// The head of a receive.
#[inline(always)]
fn head(wr_id: u64, sges: usize) -> [u64; RecvWqe::WORDS] {
    let head = RecvWqe {
        // CAST: Limits were checked.
        sges: sges as u8,
        wr_id,
    };
    head.encode()
}

/// Receives of one SGE each.
#[derive(Debug)]
pub struct RecvRow<'a, K: Kind>(Batch<'a, Ring, K>);

impl<K: Kind> RecvRow<'_, K> {
    /// Posts a receive.
    ///
    /// # Errors
    ///
    /// [`Refusal::Full`].
    #[inline(always)]
    pub fn put(&mut self, wr_id: u64, sge: &Sge) -> Result<(), Refusal> {
        let ([a, b], [addr, bytes]) = (head(wr_id, 1), sge.encode());
        let mut room = self.0.room(1, true)?;
        // The device reads no further than the SGE.
        room.write(0, &[a, b, addr, bytes]);
        room.post();
        Ok(())
    }
}
