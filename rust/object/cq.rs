// SPDX-License-Identifier: GPL-2.0

//! Completion queues.
//!
//! That of a process is in its memory, and answers to its doorbell page: the driver reports its events.
//! That of a kernel ULP is in memory of the driver, which polls and arms it for the ULP.

use super::{
    prelude::*,
    request::{
        self,
        depth,
        ring, //
    },
    ulp::{
        self,
        UlpCq,
        UlpQp, //
    }, //
};
use crate::{
    abi::{
        command::CqContext,
        entry::Cqe,
        uverbs::{
            qpair_ureq_create_cq,
            qpair_ureq_resize_cq,
            qpair_uresp_create_cq,
            qpair_uresp_resize_cq,
            QPAIR_NO_COMPLETION_FD, //
        }, //
    },
    hw::{
        cq::CqRing,
        handlers::CompletionHandler, //
    },
    kernel::{
        eventfd::EventFd,
        rdma::{
            cq,
            Armed,
            Completions,
            CqEvent,
            CqRequest,
            Details,
            Events, //
        },
        umem::Access, //
    }, //
};

/// A completion queue: in the memory of a process, or rings that a kernel ULP polls.
pub(crate) struct Cq {
    owner: Owner<MemoryId, Arc<UlpCq<UlpQp>>>,
    pub(super) number: Number,
    vector: u32,
}

/// What the poll of an EQ signals the completions of a process's CQ to.
struct CqHandler {
    eventfd: Option<EventFd>,
    events: Events<CqEvent>,
}

impl CompletionHandler for CqHandler {
    fn completion(&self) {
        if let Some(eventfd) = &self.eventfd {
            eventfd.signal();
        }
        self.events.complete();
    }
}

impl Cq {
    /// The rings that a kernel ULP polls.
    ///
    /// # Errors
    ///
    /// `EOPNOTSUPP`: a process polls it.
    #[inline]
    pub(super) fn ulp(&self) -> Result<&Arc<UlpCq<UlpQp>>> {
        Ok(self.owner.ulp()?.1)
    }

    fn of_process(
        process: &Arc<Process>,
        request: CqRequest,
        udata: Udata<'_>,
    ) -> Result<(Self, u32)> {
        let (asked, reply) = udata.read::<qpair_ureq_create_cq>(qpair_ureq_create_cq::LEAST)?;
        if asked.reserved != 0 {
            return Err(EINVAL);
        }
        let (device, vector) = (&process.device, request.vector);
        let depth = depth(request.entries, device.limits().log_cq)?;
        let eventfd = match asked.eventfd {
            QPAIR_NO_COMPLETION_FD => None,
            fd => Some(EventFd::from_fd(fd)?),
        };
        let (start, bytes) = (asked.buffer, asked.buffer_bytes);
        let memory = ring(start, bytes, depth, Cqe::BYTES as u64, Access::Write)?;
        let handler = CqHandler {
            eventfd,
            events: request.events.clone(),
        };
        let handler = Arc::new(handler, GFP_KERNEL_ACCOUNT)?;
        let (number, id) = process.create(
            Kind::Cq,
            |pass| UserBuffer::new(pass, memory, device.limits()),
            |pass, ring| {
                let context = CqContext {
                    page: process.page(),
                    log_depth: depth.log2(),
                    buffer: ring.list,
                    ..CqContext::default()
                };
                device.create_cq(pass, vector, context, ring, request.events, handler)
            },
            |_, ring| ObjectMemory::Queue(ring),
        )?;
        let owner = Owner::Process(process.clone(), id);
        let cq = Self {
            owner,
            number,
            vector,
        };
        let answer = qpair_uresp_create_cq {
            number: number.raw(),
            depth: depth.entries(),
        };
        let cq = answered(cq, reply.write(&answer), cq::Operations::destroy)?;
        Ok((cq, depth.entries()))
    }

    fn of_ulp(registered: &Registered, request: CqRequest) -> Result<(Self, u32)> {
        let (device, vector, events) = (&registered.device, request.vector, request.events);
        let depth = depth(request.entries, device.limits().log_cq)?;
        let armed = Armed::new(events.clone())?;
        let pass = registered.enter()?;
        let ring = CqRing::new(&pass, depth)?;
        let context = ring.context();
        let (number, ring) =
            device.create_cq(&pass, vector, context, ring, events, armed.clone())?;
        let queue = UlpCq::new(registered, &pass, number, ring.clone(), armed);
        let destroy = || device.destroy_cq(&pass, vector, number);
        let queue = ulp::admit(device, queue, ring, destroy)?;
        let cq = Self {
            owner: Owner::Ulp(registered.clone(), queue),
            number,
            vector,
        };
        Ok((cq, depth.entries()))
    }
}

impl cq::Operations<Verbs> for Cq {
    fn create(request: CqRequest, caller: Caller<'_, Verbs>) -> Result<(Self, u32)> {
        match caller {
            Caller::Process(process, udata) => Self::of_process(process, request, udata),
            Caller::Ulp(registered) => Self::of_ulp(registered, request),
        }
    }

    // An answer that cannot be written does not undo it: the process has lost its place in the queue.
    fn resize(&self, entries: u32, udata: Udata<'_>) -> Result<u32> {
        let (asked, reply) = udata.read::<qpair_ureq_resize_cq>(qpair_ureq_resize_cq::LEAST)?;
        let (process, id) = self.owner.process()?;
        let device = &process.device;
        let depth = depth(entries, device.limits().log_cq)?;
        let (start, bytes) = (asked.buffer, asked.buffer_bytes);
        let memory = ring(start, bytes, depth, Cqe::BYTES as u64, Access::Write)?;
        let (switch, before) = {
            let pass = process.enter()?;
            let memory = UserBuffer::new(&pass, memory, device.limits())?;
            let modify = command::Modify::<command::Cq> {
                number: self.number,
                mask: 0,
                context: CqContext {
                    log_depth: depth.log2(),
                    buffer: memory.list,
                    ..CqContext::default()
                },
            };
            device.resize(&pass, modify, memory, |memory| {
                process.replace_ring(&pass, *id, memory)
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

    fn destroy(self) {
        let device = self.owner.device();
        ulp::destroy(&self.owner, Kind::Cq, |pass| {
            device.destroy_cq(pass, self.vector, self.number)
        });
        if let Owner::Ulp(_, queue) = &self.owner {
            queue.armed.flush();
        }
    }

    fn poll(&self, into: &mut Completions<'_>) -> Result {
        self.ulp()?.poll(into);
        Ok(())
    }

    fn notify(&self, solicited: bool) -> Result<bool> {
        Ok(self.ulp()?.notify(solicited))
    }

    fn details(&self, details: &mut Details<'_>) -> Result {
        self.owner.details::<command::Cq>(self.number, |now| {
            details.number(c"number", self.number.raw())?;
            details.number(c"producer", now.producer)?;
            details.number(c"consumer", now.consumer)?;
            request::buffer(details, &now.buffer)
        })
    }
}
