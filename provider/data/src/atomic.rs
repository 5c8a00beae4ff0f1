// SPDX-License-Identifier: GPL-2.0
//! Atomics.
//!
//! An atomic has operands besides its one piece. They are not part of a [`Request`], which other
//! sends would have to carry.

use qpair_abi::entry::AtomicWqe;
use qpair_queue::credit::Sq;
use qpair_queue::producer::Batch;
use qpair_queue::storage::Storage;

use crate::lock;
use crate::qp::{Qp, Sending, Sends};
use crate::request::{room, Limits, Payload, Refusal, Request};

/// An atomic, without its piece.
#[derive(Clone, Copy, Debug)]
pub struct Atomic {
    /// The request: a compare-and-swap or a fetch-and-add.
    pub request: Request,
    /// The value to compare with, or to add.
    pub compare_add: u64,
    /// The new value of a compare-and-swap.
    pub swap: u64,
}

impl Atomic {
    /// Writes it into the ring, and posts it.
    fn put<'a, V: Storage + 'a>(
        &self,
        batch: &mut Batch<'a, V, Sq>,
        payload: Payload<'_>,
        limits: &Limits,
    ) -> Result<(), Refusal> {
        let Payload::Gather(&[piece]) = payload else {
            return Err(Refusal::Invalid);
        };
        if limits.send_pieces == 0 {
            return Err(Refusal::Invalid);
        }
        let request = &self.request;
        let head = AtomicWqe {
            opcode: request.opcode,
            flags: request.flags,
            blocks: 1,
            sges: 1,
            wr_id: request.id,
            remote_addr: request.remote_addr,
            rkey: request.rkey,
            inline_bytes: 0,
            compare_add: self.compare_add,
            swap: self.swap,
        };
        let ([first, id, addr, key, compare_add, swap], [at, bytes]) =
            (head.encode(), piece.encode());
        let mut room = room(batch, 1, request.flags)?;
        room.write(0, &[first, id, addr, key, compare_add, swap, at, bytes]);
        room.post();
        Ok(())
    }
}

impl Sends<'_> {
    /// Posts an atomic.
    ///
    /// # Errors
    ///
    /// [`Refusal::Invalid`]: not one piece of a region. [`Refusal::Full`].
    pub fn put_atomic(&mut self, mut atomic: Atomic, payload: Payload<'_>) -> Result<(), Refusal> {
        atomic.request.flags |= self.always;
        atomic.put(&mut self.batch, payload, &self.limits)
    }
}

impl Qp {
    /// Begins an atomic, as [`begin`](Self::begin); one without data fails the series.
    ///
    /// # Safety
    ///
    /// As of [`begin`](Self::begin).
    pub unsafe fn begin_atomic(&self, mut atomic: Atomic) {
        // SAFETY: By the caller's promise.
        let mut sending = unsafe { lock::held(&self.send) };
        sending.post_begun(&self.limits());
        // One that got no data has failed the series.
        sending.atomic = None;
        if sending.failed.is_none() {
            atomic.request.flags |= self.always();
            sending.atomic = Some(atomic);
            sending.failed = Some(Refusal::Invalid);
        }
        lock::keep(sending);
    }
}

impl Sending {
    /// Posts the atomic that was begun, unless another send was begun after it.
    #[cold]
    pub(crate) fn post_atomic(&mut self, is_last: bool, payload: Payload<'_>, limits: &Limits) {
        let Some(atomic) = self.atomic.take().filter(|_| is_last) else {
            return;
        };
        let mut batch = self.work.batch();
        self.failed = atomic.put(&mut batch, payload, limits).err();
    }
}
