// SPDX-License-Identifier: GPL-2.0
//! Binds of memory windows.
//!
//! A bind has no data. What it has besides the fields of a [`Request`] is not part of that, since
//! other sends would have to carry it.

use qpair_abi::entry::BindWqe;
use qpair_queue::credit::Sq;
use qpair_queue::producer::Batch;
use qpair_queue::storage::Storage;

use crate::request::{put_block, Refusal, Request};

/// The bits of a window's key that a program chooses.
const TAG: u32 = u8::MAX as u32;

/// The bind of a window.
#[derive(Clone, Copy, Debug)]
pub struct Bind {
    /// Opcode, flags and identifier; the other fields are not used.
    pub request: Request,
    /// Rights of the window.
    pub access: u32,
    /// The key of the window until now.
    pub window: u32,
    /// The key from now on, of which the last 8 bits count: a program may leave anything in the
    /// others.
    pub new_key: u32,
    /// The key of the region.
    pub region: u32,
    /// The first byte of the window, an address of the region.
    pub addr: u64,
    /// Bytes of the window.
    pub bytes: u64,
}

impl Bind {
    /// Posts it.
    ///
    /// # Errors
    ///
    /// [`Refusal::Full`].
    pub(crate) fn put<'a, V: Storage + 'a>(
        &self,
        batch: &mut Batch<'a, V, Sq>,
    ) -> Result<(), Refusal> {
        let request = &self.request;
        let wqe = BindWqe {
            opcode: request.opcode,
            flags: request.flags,
            blocks: 1,
            sges: 0,
            access: self.access,
            wr_id: request.wr_id,
            addr: self.addr,
            window: self.window,
            inline_bytes: 0,
            bytes: self.bytes,
            region: self.region,
            new_key: self.window & !TAG | self.new_key & TAG,
        };
        put_block(batch, request.flags, &wqe.encode())
    }
}
