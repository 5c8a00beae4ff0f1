// SPDX-License-Identifier: GPL-2.0
//! Binds of memory windows.
//!
//! A bind has no data. What it has besides the fields of a [`Request`] is not part of that, since
//! other sends would have to carry it.

use qpair_abi::entry::{BindWqe, BLOCK_WORDS};
use qpair_queue::credit::Sq;
use qpair_queue::producer::Batch;
use qpair_queue::storage::Storage;

use crate::lock;
use crate::qp::{Qp, Sending, Sends};
use crate::request::{room, Refusal, Request};

/// The bits of a window's key that a program chooses.
const TAG: u32 = u8::MAX as u32;

/// The bind of a window.
#[derive(Clone, Copy, Debug)]
pub struct Bind {
    /// Opcode, flags and identifier; the other fields are not used.
    pub request: Request,
    /// Rights of the window.
    pub access: u32,
    /// Its key until now.
    pub window: u32,
    /// Has the tag of its key from now on, in the last 8 bits. A program may leave anything in the
    /// others.
    pub new_key: u32,
    /// The key of the region.
    pub region: u32,
    /// The first byte of the window, an address of the region.
    pub addr: u64,
    /// Its length.
    pub bytes: u64,
}

impl Bind {
    /// Writes it into the ring, and posts it.
    fn put<'a, V: Storage + 'a>(
        &self,
        batch: &mut Batch<'a, V, Sq>,
        always: u8,
    ) -> Result<(), Refusal> {
        let flags = self.request.flags | always;
        let wqe = BindWqe {
            opcode: self.request.opcode,
            flags,
            blocks: 1,
            sges: 0,
            access: self.access,
            wr_id: self.request.id,
            addr: self.addr,
            window: self.window,
            inline_bytes: 0,
            bytes: self.bytes,
            region: self.region,
            new_key: self.window & !TAG | self.new_key & TAG,
        };
        let mut words = [0; BLOCK_WORDS];
        words[..BindWqe::WORDS].copy_from_slice(&wqe.encode());
        let mut room = room(batch, 1, flags)?;
        room.write(0, &words);
        room.post();
        Ok(())
    }
}

impl Sends<'_> {
    /// Posts a bind.
    ///
    /// # Errors
    ///
    /// [`Refusal::Full`].
    pub fn put_bind(&mut self, bind: &Bind) -> Result<(), Refusal> {
        bind.put(&mut self.batch, self.always)
    }
}

impl Qp {
    /// Posts a bind in a series, which fails if the bind is refused.
    ///
    /// # Safety
    ///
    /// As of [`begin`](Self::begin).
    pub unsafe fn put_bind(&self, bind: Result<Bind, Refusal>) {
        // SAFETY: By the caller's promise.
        let mut sending = unsafe { lock::held(&self.send) };
        sending.post_begun(&self.limits());
        // An atomic that got no data has failed the series.
        sending.atomic = None;
        if sending.failed.is_none() {
            sending.failed = bind
                .and_then(|bind| sending.put_bind(&bind, self.always()))
                .err();
        }
        lock::keep(sending);
    }
}

impl Sending {
    fn put_bind(&mut self, bind: &Bind, always: u8) -> Result<(), Refusal> {
        let mut batch = self.work.batch();
        bind.put(&mut batch, always)
    }
}
