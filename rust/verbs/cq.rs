// SPDX-License-Identifier: GPL-2.0

//! Completion queues: their events, resize and destruction.

use super::{
    buffer::Buffer,
    ops::{
        Cq,
        CQE_BYTES, //
    },
    request::{
        depth,
        ring, //
    }, //
};
use crate::{
    abi::{
        command::CqContext,
        uverbs::{
            qpair_ureq_resize_cq,
            qpair_uresp_resize_cq, //
        }, //
    },
    control::command::Resize,
    kernel::{
        rdma::Udata,
        umem::Access, //
    },
    queue::quota::Kind,
};
use kernel::prelude::*;

impl Cq {
    /// Makes it go on in other memory of the process; returns its entries. An answer that cannot be
    /// written does not undo it: the process has lost its place in the queue.
    ///
    /// # Errors
    ///
    /// `EINVAL`: the memory does not hold so many entries, that is beyond the limits, or more are
    /// unread. `EPIPE`: it was overrun. Those of the command.
    pub(super) fn resize(&self, entries: u32, udata: Udata<'_>) -> Result<u32> {
        let (asked, reply): (qpair_ureq_resize_cq, _) = udata.read(16)?;
        let device = &self.process.device;
        let depth = depth(entries, device.limits().log_cq)?;
        let (start, bytes) = (asked.buffer, asked.buffer_bytes);
        let memory = ring(start, bytes, depth, CQE_BYTES, Access::Write)?;
        let (switch, before) = {
            let pass = self.process.enter()?;
            let memory = Buffer::new(&pass, memory, device.limits())?;
            let context = CqContext {
                log_depth: depth.log2(),
                buffer: memory.list(),
                ..CqContext::default()
            };
            let number = self.number;
            device.resize(&pass, Resize { number, context }, memory, |memory| {
                self.process.keep_ring(&pass, self.place, memory)
            })?
        };
        // The device does not access it any more.
        drop(before);
        reply.write(&qpair_uresp_resize_cq {
            depth: depth.entries(),
            end: switch.end.get(),
            begin: switch.begin.get(),
            reserved: 0,
        })?;
        Ok(depth.entries())
    }

    /// Destroys it.
    pub(super) fn destroy(self) {
        let (process, number, vector) = (self.process, self.number, self.vector);
        process.end(Kind::Cq, Some(self.place), |pass| {
            process.device.destroy_process_cq(pass, vector, number)
        });
    }
}
