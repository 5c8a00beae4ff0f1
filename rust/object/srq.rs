// SPDX-License-Identifier: GPL-2.0

//! Shared receive queues.

use super::{
    buffer::UserBuffer,
    file::{
        answered,
        Process,
        Verbs, //
    },
    memory::{
        ObjectMemory,
        Place, //
    },
    pd::Pd,
    request::{
        depth,
        ring, //
    }, //
};
use crate::{
    abi::{
        command::{
            srq_mask,
            SrqContext, //
        },
        entry::{
            BLOCK_BYTES,
            MAX_STRIDE_SHIFT, //
        },
        uverbs::{
            qpair_ureq_create_srq,
            qpair_ureq_modify_srq,
            qpair_uresp_create_srq, //
        },
        Number, //
    },
    hw::command,
    kernel::{
        rdma::{
            srq,
            Caller,
            Events,
            SrqChange,
            SrqEvent,
            SrqRequest,
            Udata, //
        },
        umem::Access, //
    },
    policy::quota::Kind, //
};
use kernel::{
    prelude::*,
    sync::{
        atomic::{
            Atomic,
            Relaxed, //
        },
        Arc, //
    }, //
};

/// A shared receive queue of a process; kernel ULPs have none.
pub(crate) struct Srq {
    process: Arc<Process>,
    pub(super) number: Number,
    /// SGEs of a receive, as requested.
    max_sge: u32,
    /// Receives that it holds: the depth of its ring.
    max_wr: Atomic<u32>,
    /// Bytes of a slot of its ring.
    slot: u64,
    place: Place,
}

impl srq::Operations<Verbs> for Srq {
    // `EINVAL`: the memory does not hold what is requested, or that is beyond the limits.
    fn create(
        pd: &Pd,
        request: SrqRequest,
        events: Events<SrqEvent>,
        caller: Caller<'_, Verbs>,
    ) -> Result<(Self, u32)> {
        let (process, udata) = caller.process()?;
        let (asked, reply): (qpair_ureq_create_srq, _) = udata.read(24)?;
        let device = &process.device;
        let limits = device.limits();
        let fits = request.max_wr <= asked.depth
            && request.max_sge <= limits.recv_sges
            && asked.stride <= u32::from(MAX_STRIDE_SHIFT);
        if !fits {
            return Err(EINVAL);
        }
        let depth = depth(asked.depth, limits.log_rq)?;
        let slot = (BLOCK_BYTES as u64) << asked.stride;
        // The device only reads what the process posts.
        let (start, bytes) = (asked.buffer, asked.buffer_bytes);
        let memory = ring(start, bytes, depth, slot, Access::Read)?;
        let (number, place) = process.create(
            Kind::Srq,
            |pass| UserBuffer::new(pass, memory, limits),
            |pass, ring| {
                let create = command::Create::<command::Srq>(SrqContext {
                    pd: pd.number,
                    page: process.page(),
                    log_depth: depth.log2(),
                    // CAST: Checked above.
                    stride: asked.stride as u8,
                    buffer: ring.list,
                    ..SrqContext::default()
                });
                device.create_reporting(pass, create, ring, events)
            },
            |_, ring| ObjectMemory::Queue(ring),
        )?;
        let srq = Self {
            process: process.clone(),
            number,
            max_sge: request.max_sge,
            max_wr: Atomic::new(depth.entries()),
            slot,
            place,
        };
        let answer = qpair_uresp_create_srq {
            number: number.raw(),
            depth: depth.entries(),
        };
        let srq = answered(srq, reply.write(&answer), srq::Operations::destroy)?;
        Ok((srq, depth.entries()))
    }

    // `EINVAL`: the limit is more than the depth; the memory does not hold so many receives, that
    // is beyond the limits, or more are left.
    fn modify(&self, change: SrqChange, udata: Udata<'_>) -> Result {
        let (process, device) = (&self.process, &self.process.device);
        let mut modify = command::Modify::<command::Srq> {
            number: self.number,
            mask: 0,
            context: SrqContext::default(),
        };
        if let Some(limit) = change.limit {
            modify.mask |= srq_mask::LIMIT;
            modify.context.limit = limit;
        }
        let Some(max_wr) = change.max_wr else {
            // It has no answer of the driver.
            let _reply = udata.without_request()?;
            let pass = process.enter()?;
            return device.admin.execute(&pass, modify);
        };
        let (asked, _reply): (qpair_ureq_modify_srq, _) = udata.read(24)?;
        let limits = device.limits();
        if max_wr == 0 || max_wr > asked.depth || asked.reserved != 0 {
            return Err(EINVAL);
        }
        let depth = depth(asked.depth, limits.log_rq)?;
        let (start, bytes) = (asked.buffer, asked.buffer_bytes);
        let memory = ring(start, bytes, depth, self.slot, Access::Read)?;
        let before = {
            let pass = process.enter()?;
            let memory = UserBuffer::new(&pass, memory, limits)?;
            modify.mask |= srq_mask::RING;
            modify.context.log_depth = depth.log2();
            modify.context.buffer = memory.list;
            let ((), before) = device.resize(&pass, modify, memory, |memory| {
                self.max_wr.store(depth.entries(), Relaxed);
                process.replace_ring(&pass, self.place, memory)
            })?;
            before
        };
        // The device does not access it any more.
        drop(before);
        Ok(())
    }

    fn query(&self) -> Result<(SrqRequest, u32)> {
        let pass = self.process.enter()?;
        let query = command::Query::<command::Srq>::new(self.number);
        let now = self.process.device.admin.execute(&pass, query)?;
        let request = SrqRequest {
            max_wr: self.max_wr.load(Relaxed),
            max_sge: self.max_sge,
        };
        Ok((request, now.limit))
    }

    fn destroy(self) {
        let process = &self.process;
        process.end(Kind::Srq, Some(self.place), |pass| {
            let device = &process.device;
            device.destroy_reporting::<command::Srq>(pass, self.number)
        });
    }
}
