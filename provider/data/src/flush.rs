// SPDX-License-Identifier: GPL-2.0
//! FLUSH and atomic WRITE: sends of one block, whose data, if any, come with their operands.

use qpair_abi::entry::{opcode, send_flags, FlushWqe, SendWqe, ATOMIC_BYTES};
use qpair_queue::credit::Sq;
use qpair_queue::producer::Batch;
use qpair_queue::storage::Storage;

use crate::request::{put_block, Refusal, Request};

/// The operands of a FLUSH.
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
    /// Posts it; of `request` the identifier and the flags count.
    pub(crate) fn put<'a, V: Storage + 'a>(
        &self,
        batch: &mut Batch<'a, V, Sq>,
        request: &Request,
    ) -> Result<(), Refusal> {
        let (remote_addr, rkey) = self.remote;
        let head = FlushWqe {
            opcode: opcode::FLUSH,
            flags: request.flags,
            blocks: 1,
            kinds: self.kinds,
            whole: self.whole,
            wr_id: request.wr_id,
            remote_addr,
            rkey,
            bytes: self.bytes,
            ..FlushWqe::default()
        };
        put_block(batch, request.flags, &head.encode())
    }
}

/// Posts an atomic WRITE of `value`, as it is in memory.
pub(crate) fn put_atomic_write<'a, V: Storage + 'a>(
    batch: &mut Batch<'a, V, Sq>,
    request: &Request,
    value: u64,
) -> Result<(), Refusal> {
    let head = SendWqe {
        opcode: opcode::ATOMIC_WRITE,
        flags: request.flags | send_flags::INLINE,
        blocks: 1,
        wr_id: request.wr_id,
        remote_addr: request.remote_addr,
        rkey: request.rkey,
        inline_bytes: ATOMIC_BYTES as u32,
        ..SendWqe::default()
    };
    let [a, b, c, d] = head.encode();
    put_block(batch, request.flags, &[a, b, c, d, u64::from_le(value)])
}
