// SPDX-License-Identifier: GPL-2.0

//! Shared receive queues.

use super::{
    prelude::*,
    request::{
        depth,
        ring, //
    },
    ulp::{
        self,
        UlpSrq, //
    }, //
};
use crate::{
    abi::{
        command::{
            srq_mask,
            SrqContext, //
        },
        entry::{
            recv_stride,
            BLOCK_BYTES,
            MAX_STRIDE_SHIFT, //
        },
        uverbs::{
            qpair_ureq_create_srq,
            qpair_ureq_modify_srq,
            qpair_uresp_create_srq, //
        }, //
    },
    hw::ring::Ring,
    kernel::{
        rdma::{
            srq,
            RecvRequest,
            SrqAttributes,
            SrqChange,
            SrqRequest, //
        },
        umem::Access, //
    }, //
};
use kernel::sync::atomic::{
    Atomic,
    Relaxed, //
};

/// A shared receive queue: in the memory of a process, or a ring that a kernel ULP posts to.
pub(crate) struct Srq {
    owner: Owner<MemoryId, Arc<UlpSrq>>,
    pub(super) number: Number,
    /// SGEs of a receive, as requested.
    max_sge: u32,
    /// Receives that it holds: the depth of its ring.
    max_wr: Atomic<u32>,
    /// Bytes of a slot of its ring.
    slot: u64,
}

impl Srq {
    /// The ring that a kernel ULP posts to.
    ///
    /// # Errors
    ///
    /// `EOPNOTSUPP`: a process posts.
    #[inline]
    pub(super) fn ulp(&self) -> Result<&Arc<UlpSrq>> {
        Ok(self.owner.ulp()?.1)
    }

    fn of_process(
        process: &Arc<Process>,
        request: SrqRequest<'_, Verbs>,
        udata: Udata<'_>,
    ) -> Result<(Self, u32)> {
        let (asked, reply) = udata.read::<qpair_ureq_create_srq>(qpair_ureq_create_srq::LEAST)?;
        let device = &process.device;
        let (limits, max_sge) = (device.limits(), request.attr.max_sge);
        let fits = request.attr.max_wr <= asked.depth
            && max_sge <= limits.recv_sges
            && asked.stride <= u32::from(MAX_STRIDE_SHIFT);
        if !fits {
            return Err(EINVAL);
        }
        let depth = depth(asked.depth, limits.log_rq)?;
        let slot = (BLOCK_BYTES as u64) << asked.stride;
        // The device only reads what the process posts.
        let (start, bytes) = (asked.buffer, asked.buffer_bytes);
        let memory = ring(start, bytes, depth, slot, Access::Read)?;
        let (number, id) = process.create(
            Kind::Srq,
            |pass| UserBuffer::new(pass, memory, limits),
            |pass, ring| {
                let create = command::Create::<command::Srq>(SrqContext {
                    pd: request.pd.number,
                    page: process.page(),
                    log_depth: depth.log2(),
                    // CAST: Checked above.
                    stride: asked.stride as u8,
                    buffer: ring.list,
                    ..SrqContext::default()
                });
                device.create_reporting(pass, create, ring, request.events)
            },
            |_, ring| ObjectMemory::Queue(ring),
        )?;
        let srq = Self {
            owner: Owner::Process(process.clone(), id),
            number,
            max_sge,
            max_wr: Atomic::new(depth.entries()),
            slot,
        };
        let answer = qpair_uresp_create_srq {
            number: number.raw(),
            depth: depth.entries(),
        };
        let srq = answered(srq, reply.write(&answer), srq::Operations::destroy)?;
        Ok((srq, depth.entries()))
    }

    fn of_ulp(registered: &Registered, request: SrqRequest<'_, Verbs>) -> Result<(Self, u32)> {
        let (device, max_sge) = (&registered.device, request.attr.max_sge);
        let limits = device.limits();
        if max_sge > limits.recv_sges {
            return Err(EINVAL);
        }
        let depth = depth(request.attr.max_wr, limits.log_rq)?;
        let stride = recv_stride(max_sge as usize).ok_or(EINVAL)?;
        let slot = (BLOCK_BYTES as u64) << stride;
        let pass = registered.enter()?;
        let ring = Ring::new(&pass, (BLOCK_BYTES << stride) * depth.entries() as usize)?;
        let create = command::Create::<command::Srq>(SrqContext {
            pd: request.pd.number,
            log_depth: depth.log2(),
            stride,
            buffer: ring.list(),
            ..SrqContext::default()
        });
        let (number, ring) = device.create_reporting(&pass, create, ring, request.events)?;
        let shape = (depth, stride, max_sge);
        let queue = UlpSrq::new(registered, &pass, number, ring.clone(), shape);
        let destroy = || device.destroy_reporting::<command::Srq>(&pass, number, || ());
        let queue = ulp::admit(device, queue, ring, destroy)?;
        let srq = Self {
            owner: Owner::Ulp(registered.clone(), queue),
            number,
            max_sge,
            max_wr: Atomic::new(depth.entries()),
            slot,
        };
        Ok((srq, depth.entries()))
    }
}

impl srq::Operations<Verbs> for Srq {
    fn create(request: SrqRequest<'_, Verbs>, caller: Caller<'_, Verbs>) -> Result<(Self, u32)> {
        match caller {
            Caller::Process(process, udata) => Self::of_process(process, request, udata),
            Caller::Ulp(registered) => Self::of_ulp(registered, request),
        }
    }

    fn modify(&self, change: SrqChange, udata: Option<Udata<'_>>) -> Result {
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
            let _reply = udata.map(Udata::without_request).transpose()?;
            return self.owner.execute(modify);
        };
        let (process, id) = self.owner.process()?;
        let (device, udata) = (&process.device, udata.ok_or(EOPNOTSUPP)?);
        let (asked, _reply) = udata.read::<qpair_ureq_modify_srq>(qpair_ureq_modify_srq::LEAST)?;
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
                process.replace_ring(&pass, *id, memory)
            })?;
            before
        };
        // The device does not access it any more.
        drop(before);
        Ok(())
    }

    fn query(&self) -> Result<SrqAttributes> {
        let now = self.owner.query::<command::Srq>(self.number)?;
        Ok(SrqAttributes {
            max_wr: self.max_wr.load(Relaxed),
            max_sge: self.max_sge,
            srq_limit: now.limit,
        })
    }

    fn destroy(self) {
        let device = self.owner.device();
        ulp::destroy(&self.owner, Kind::Srq, |pass| {
            device.destroy_reporting::<command::Srq>(pass, self.number, || ())
        });
    }

    #[inline]
    fn post_recv<'a>(&self, requests: impl Iterator<Item = Result<RecvRequest<'a>>>) -> Result {
        self.ulp()?.post_recv(requests)
    }
}
