// SPDX-License-Identifier: GPL-2.0
//! FLUSH and atomic WRITE: sends of one block, whose data, if any, come with their operands.

use qpair_abi::entry::{opcode, send_flags, FlushWqe, SendWqe, ATOMIC_BYTES, BLOCK_WORDS};

use crate::lock;
use crate::qp::Qp;
use crate::request::{room, Request};

/// A FLUSH.
#[derive(Clone, Copy, Debug)]
pub struct Flush {
    /// The address in the peer's memory, and its key.
    pub remote: (u64, u32),
    /// Bytes of the range.
    pub bytes: u64,
    /// What it waits for: [kinds](qpair_abi::entry::flush).
    pub kinds: u8,
    /// 0: the range; 1: the whole region.
    pub whole: u8,
}

impl Flush {
    fn words(&self, request: &Request) -> [u64; BLOCK_WORDS] {
        let (remote_addr, rkey) = self.remote;
        let head = FlushWqe {
            opcode: opcode::FLUSH,
            flags: request.flags,
            blocks: 1,
            kinds: self.kinds,
            whole: self.whole,
            wr_id: request.id,
            remote_addr,
            rkey,
            bytes: self.bytes,
            ..FlushWqe::default()
        };
        let [a, b, c, d, e, f] = head.encode();
        [a, b, c, d, e, f, 0, 0]
    }
}

/// An atomic WRITE of a value, as it is in memory.
fn atomic_write(request: &Request, value: u64) -> [u64; BLOCK_WORDS] {
    let head = SendWqe {
        opcode: opcode::ATOMIC_WRITE,
        flags: request.flags | send_flags::INLINE,
        blocks: 1,
        wr_id: request.id,
        remote_addr: request.remote_addr,
        rkey: request.rkey,
        inline_bytes: ATOMIC_BYTES as u32,
        ..SendWqe::default()
    };
    let [a, b, c, d] = head.encode();
    [a, b, c, d, u64::from_le(value), 0, 0, 0]
}

impl Qp {
    /// Posts a FLUSH in a series; of `request` its identifier and flags count.
    ///
    /// # Safety
    ///
    /// As of [`begin`](Self::begin).
    pub unsafe fn flush(&self, request: Request, flush: Flush) {
        // SAFETY: By the caller's promise.
        unsafe { self.put_whole(request, |request| flush.words(request)) }
    }

    /// Posts an atomic WRITE of `value`, as it is in memory, in a series.
    ///
    /// # Safety
    ///
    /// As of [`begin`](Self::begin).
    pub unsafe fn atomic_write(&self, request: Request, value: u64) {
        // SAFETY: By the caller's promise.
        unsafe { self.put_whole(request, |request| atomic_write(request, value)) }
    }

    /// Posts a send of one block, which needs no data; the next data are of none.
    ///
    /// # Safety
    ///
    /// As of [`begin`](Self::begin).
    unsafe fn put_whole(
        &self,
        mut request: Request,
        words: impl FnOnce(&Request) -> [u64; BLOCK_WORDS],
    ) {
        // SAFETY: By the caller's promise.
        let mut sending = unsafe { lock::held(&self.send) };
        sending.post_begun(&self.limits());
        // One that got no data has failed the series.
        sending.atomic = None;
        if sending.failed.is_none() {
            request.flags |= self.always();
            let mut batch = sending.work.batch();
            let posted = room(&mut batch, 1, request.flags).map(|mut room| {
                room.write(0, &words(&request));
                room.post();
            });
            drop(batch);
            sending.failed = posted.err();
        }
        lock::keep(sending);
    }
}
