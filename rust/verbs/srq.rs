// SPDX-License-Identifier: GPL-2.0

//! Shared receive queues.

use super::{
    buffer::Buffer,
    memory::{
        Object,
        Place,
        Room, //
    },
    process::Process,
    request::{
        answered,
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
        status::Event,
        uverbs::{
            qpair_ureq_create_srq,
            qpair_ureq_modify_srq,
            qpair_uresp_create_srq, //
        },
        Number, //
    },
    control::{
        command,
        device::Device, //
    },
    data::handlers::EventHandler,
    kernel::{
        rdma::{
            Events,
            SrqChange,
            SrqEvent,
            SrqRequest,
            Udata, //
        },
        umem::Access, //
    },
    queue::quota::Kind,
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

/// A shared receive queue.
pub(crate) struct Srq {
    process: Arc<Process>,
    number: Number,
    /// SGEs of a receive, as requested.
    sges: u32,
    /// Receives that it holds: the depth of its ring.
    recvs: Atomic<u32>,
    /// Bytes of a slot of its ring.
    slot: u64,
    place: Place,
}

/// What the poll reports an SRQ's events to.
pub(super) struct SrqHandler(pub(super) Events<SrqEvent>);

impl EventHandler for SrqHandler {
    fn reported(&self, event: Event) {
        self.0.raise(match event {
            Event::SrqLimit => SrqEvent::Limit,
            _ => SrqEvent::Error,
        });
    }
}

impl Srq {
    /// The device's number.
    pub(super) fn number(&self) -> Number {
        self.number
    }

    /// Creates one in the memory of the process. Returns also how many receives it holds.
    ///
    /// # Errors
    ///
    /// `EINVAL`: the memory does not hold what is requested, or that is beyond the limits. Those of
    /// the command.
    pub(super) fn create(
        process: &Arc<Process>,
        pd: Number,
        request: SrqRequest,
        handler: Arc<SrqHandler>,
        udata: Udata<'_>,
    ) -> Result<(Self, u32)> {
        let (asked, reply): (qpair_ureq_create_srq, _) = udata.read(24)?;
        let device = &process.device;
        let limits = device.limits();
        let fits = request.recvs <= asked.depth
            && request.sges <= limits.recv_sges
            && asked.stride <= u32::from(MAX_STRIDE_SHIFT);
        if !fits {
            return Err(EINVAL);
        }
        let depth = depth(asked.depth, limits.log_rq)?;
        let slot = (BLOCK_BYTES as u64) << asked.stride;
        // The device only reads what the process posts.
        let (start, bytes) = (asked.buffer, asked.buffer_bytes);
        let memory = ring(start, bytes, depth, slot, Access::Read)?;
        let room = Room::new()?;
        let srq = {
            let pass = process.enter()?;
            let mut charge = device.charge(&pass, process.page(), Kind::Srq)?;
            let memory = Buffer::new(&pass, memory, limits)?;
            let create = command::Create::<command::Srq>(SrqContext {
                pd,
                page: process.page(),
                log_depth: depth.log2(),
                // CAST: Checked above.
                stride: asked.stride as u8,
                buffer: memory.list(),
                ..SrqContext::default()
            });
            let (number, ring) =
                device.create_reporting(&pass, create, memory, handler, &mut charge)?;
            charge.keep();
            let object = Object::Srq { number, pd, ring };
            Self {
                process: process.clone(),
                number,
                sges: request.sges,
                recvs: Atomic::new(depth.entries()),
                slot,
                place: process.keep(&pass, room, object),
            }
        };
        let answer = qpair_uresp_create_srq {
            number: srq.number.raw(),
            depth: depth.entries(),
        };
        let srq = answered(srq, reply.write(&answer), Self::destroy)?;
        Ok((srq, depth.entries()))
    }

    /// Arms the event of the limit, makes it go on in other memory of the process, or both.
    ///
    /// # Errors
    ///
    /// `EINVAL`: the limit is more than the depth; the memory does not hold so many receives, that
    /// is beyond the limits, or more are left. Those of the command.
    pub(super) fn change(&self, change: SrqChange, udata: Udata<'_>) -> Result {
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
        let Some(recvs) = change.recvs else {
            // It has no answer of the driver.
            let _reply = udata.without_request()?;
            let pass = process.enter()?;
            return device.admin().execute(&pass, modify).map(drop);
        };
        let (asked, _reply): (qpair_ureq_modify_srq, _) = udata.read(24)?;
        let limits = device.limits();
        if recvs == 0 || recvs > asked.depth || asked.reserved != 0 {
            return Err(EINVAL);
        }
        let depth = depth(asked.depth, limits.log_rq)?;
        let (start, bytes) = (asked.buffer, asked.buffer_bytes);
        let memory = ring(start, bytes, depth, self.slot, Access::Read)?;
        let before = {
            let pass = process.enter()?;
            let memory = Buffer::new(&pass, memory, limits)?;
            modify.mask |= srq_mask::RING;
            modify.context.log_depth = depth.log2();
            modify.context.buffer = memory.list();
            let (_, before) = device.resize(&pass, modify, memory, |memory| {
                self.recvs.store(depth.entries(), Relaxed);
                process.keep_ring(&pass, self.place, memory)
            })?;
            before
        };
        // The device does not access it any more.
        drop(before);
        Ok(())
    }

    /// What it is, and the limit as it is now.
    ///
    /// # Errors
    ///
    /// Those of the command.
    pub(super) fn query(&self) -> Result<(SrqRequest, u32)> {
        let pass = self.process.enter()?;
        let query = command::Query::<command::Srq>::new(self.number);
        let now = self.process.device.admin().execute(&pass, query)?;
        let request = SrqRequest {
            recvs: self.recvs.load(Relaxed),
            sges: self.sges,
        };
        Ok((request, now.limit))
    }

    /// Destroys it.
    pub(super) fn destroy(self) {
        let (process, number) = (self.process, self.number);
        process.end(Kind::Srq, Some(self.place), |pass| {
            let destroy = Device::destroy_reporting::<command::Srq>;
            destroy(&process.device, pass, number).map(drop)
        });
    }
}
