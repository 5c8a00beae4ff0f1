// SPDX-License-Identifier: GPL-2.0
//! Atomics.
//!
//! An atomic has operands besides its one SGE. They are not part of a [`Request`], which other sends
//! would have to carry.

use qpair_abi::entry::AtomicWqe;
use qpair_queue::credit::Sq;
use qpair_queue::producer::Batch;
use qpair_queue::storage::Storage;

use crate::request::{put_block, Limits, Payload, Refusal, Request};

/// An atomic, without its SGE.
#[derive(Clone, Copy, Debug)]
pub struct Atomic {
    /// A compare-and-swap or a fetch-and-add.
    pub request: Request,
    /// The value to compare with, or to add.
    pub compare_add: u64,
    /// The new value of a compare-and-swap.
    pub swap: u64,
}

impl Atomic {
    /// Posts it.
    ///
    /// # Errors
    ///
    /// [`Refusal::Invalid`]: not one SGE. [`Refusal::Full`].
    pub(crate) fn put<'a, V: Storage + 'a>(
        &self,
        batch: &mut Batch<'a, V, Sq>,
        payload: Payload<'_>,
        limits: &Limits,
    ) -> Result<(), Refusal> {
        let Payload::Gather(&[sge]) = payload else {
            return Err(Refusal::Invalid);
        };
        if limits.max_send_sge == 0 {
            return Err(Refusal::Invalid);
        }
        let request = &self.request;
        let head = AtomicWqe {
            opcode: request.opcode,
            flags: request.flags,
            blocks: 1,
            sges: 1,
            wr_id: request.wr_id,
            remote_addr: request.remote_addr,
            rkey: request.rkey,
            inline_bytes: 0,
            compare_add: self.compare_add,
            swap: self.swap,
        };
        let ([a, b, c, d, e, f], [addr, bytes]) = (head.encode(), sge.encode());
        let words = [a, b, c, d, e, f, addr, bytes];
        put_block(batch, request.flags, &words)
    }
}
