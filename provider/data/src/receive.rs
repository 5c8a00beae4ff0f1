// SPDX-License-Identifier: GPL-2.0
//! Receives, and their form in a ring: of an RQ or of an SRQ.

use qpair_abi::entry::{self, RecvWqe};
use qpair_queue::credit::Kind;
use qpair_queue::producer::{Batch, Producer};

use crate::request::{put_pieces, write, Piece, Refusal, WORDS};
use crate::ring::Ring;

/// Receives that are handed over together.
#[derive(Debug)]
pub struct Receives<'a, K: Kind> {
    producer: &'a mut Producer<Ring, K>,
    /// Slots for completed receives, which posts may not use (see [`Producer::batch_beside`]).
    slack: u32,
    /// Most pieces of a receive.
    pieces: u32,
}

impl<'a, K: Kind> Receives<'a, K> {
    /// Of a queue whose receives have `64 << stride` bytes, and at most `pieces` pieces.
    #[inline(always)]
    pub(crate) fn new(
        producer: &'a mut Producer<Ring, K>,
        slack: u32,
        pieces: u32,
        stride: u8,
    ) -> Self {
        Self {
            producer,
            slack,
            // CAST: A small number.
            pieces: pieces.min(entry::recv_sges(stride) as u32),
        }
    }

    #[inline(always)]
    fn batch(&mut self) -> Batch<'_, Ring, K> {
        self.producer.batch_beside(self.slack, |ring| *ring)
    }

    /// Receives of one piece. They have a batch of their own, whose indices stay in registers.
    ///
    /// # Errors
    ///
    /// [`Refusal::Invalid`]: a receive of the queue has no pieces.
    #[inline(always)]
    pub fn row(&mut self) -> Result<RecvRow<'_, K>, Refusal> {
        match self.pieces {
            0 => Err(Refusal::Invalid),
            _ => Ok(RecvRow(self.batch())),
        }
    }

    /// Posts a receive.
    ///
    /// # Errors
    ///
    /// [`Refusal::Invalid`]: it has too many pieces. [`Refusal::Full`].
    // Not inlined: it would take the registers of rows.
    #[inline(never)]
    pub fn put(&mut self, id: u64, pieces: &[Piece]) -> Result<(), Refusal> {
        if pieces.len() > self.pieces as usize {
            return Err(Refusal::Invalid);
        }
        let mut words = [0; WORDS];
        let (start, body) = words.split_at_mut(RecvWqe::WORDS);
        start.copy_from_slice(&head(id, pieces.len()));
        put_pieces(body, pieces);
        // The device reads no further than the pieces.
        let blocks =
            (RecvWqe::WORDS + pieces.len() * entry::Sge::WORDS).div_ceil(entry::BLOCK_WORDS);
        write(self.batch().room(1, true)?, &words, blocks);
        Ok(())
    }

    /// Posts the receives that `next` returns until it returns none, or an error.
    ///
    /// # Errors
    ///
    /// The first one.
    pub fn put_all<'r>(
        &mut self,
        mut next: impl FnMut() -> Option<Result<(u64, &'r [Piece]), Refusal>>,
    ) -> Result<(), Refusal> {
        while let Some(receive) = next() {
            let (id, pieces) = receive?;
            self.put(id, pieces)?;
        }
        Ok(())
    }
}

/// The head of a receive.
#[inline(always)]
fn head(id: u64, pieces: usize) -> [u64; RecvWqe::WORDS] {
    let head = RecvWqe {
        // CAST: Limits were checked.
        sges: pieces as u8,
        wr_id: id,
    };
    head.encode()
}

/// Receives of one piece each.
#[derive(Debug)]
pub struct RecvRow<'a, K: Kind>(Batch<'a, Ring, K>);

impl<K: Kind> RecvRow<'_, K> {
    /// Posts a receive.
    ///
    /// # Errors
    ///
    /// [`Refusal::Full`].
    #[inline(always)]
    pub fn put(&mut self, id: u64, piece: &Piece) -> Result<(), Refusal> {
        let ([first, id], [at, bytes]) = (head(id, 1), piece.encode());
        let mut room = self.0.room(1, true)?;
        // The device reads no further than the piece.
        room.write(0, &[first, id, at, bytes]);
        room.post();
        Ok(())
    }
}
