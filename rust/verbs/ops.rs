// SPDX-License-Identifier: GPL-2.0

//! What each operation of the RDMA core does.
//!
//! # Page faults first
//!
//! A copy from or to a process and pinning last as long as the process likes. So each operation
//! copies its request in and pins; then it enters the device, with a [`Pass`], and creates the
//! object; it leaves the device, and copies the answer out.

use super::{
    address::{
        self,
        Ah, //
    },
    buffer::Buffer,
    change,
    handlers::{
        CqHandler,
        QpHandler, //
    },
    memory::{
        Object,
        Place,
        Room, //
    },
    mr::{
        end_abandoned,
        Mr,
        Mw, //
    },
    process::Process,
    request::{
        answered,
        buffer,
        depth,
        flags_of,
        ring, //
    },
    srq::{
        Srq,
        SrqHandler, //
    },
    ulp::{
        KernelCq,
        KernelMr,
        KernelPd,
        KernelQp, //
    },
    Registered, //
};
use crate::{
    abi::{
        command::{
            qp_state,
            service,
            BufferList,
            CqContext,
            QpContext,
            GIDS, //
        },
        counters::Counter,
        entry::{
            inline_bytes,
            ud_inline_bytes,
            ud_sges,
            BLOCK_BYTES,
            MAX_BLOCKS,
            MAX_STRIDE_SHIFT, //
        },
        uverbs::*,
        Number,
        PCI_DEVICE,
        PCI_REVISION,
        PCI_VENDOR, //
    },
    control::{
        command,
        device::Device, //
    },
    data::function::Limits,
    kernel::{
        eventfd::EventFd,
        mmio::Frame,
        rdma::{
            self,
            Address,
            CqEvent,
            CqRequest,
            Details,
            DeviceAttributes,
            Events,
            Gid,
            MrChange,
            MrRequest,
            MwType,
            PortAttributes,
            QpChange,
            QpEvent,
            QpRequest,
            QpState,
            Service,
            SrqChange,
            SrqEvent,
            SrqRequest,
            Udata, //
        },
        umem::Access, //
    },
    queue::{
        index::Depth,
        quota::Kind, //
    },
};
use kernel::{
    page::PAGE_SIZE,
    prelude::*,
    str::CStr,
    sync::Arc, //
};

/// Bytes of a CQE.
pub(super) const CQE_BYTES: u64 = 32;

/// SGEs of a send or receive of a queue pair. Verbs have one limit for all types and both queues, and
/// a send of UD holds the fewest.
fn sges(limits: &Limits) -> u32 {
    // CAST: A small number.
    let of_ud = ud_sges(MAX_BLOCKS) as u32;
    of_ud.min(limits.send_sges).min(limits.recv_sges)
}

/// The driver.
pub(crate) struct Verbs;

/// A protection domain.
pub(crate) struct Pd {
    process: Arc<Process>,
    number: Number,
}

/// A completion queue.
pub(crate) struct Cq {
    pub(super) process: Arc<Process>,
    pub(super) number: Number,
    pub(super) vector: u32,
    pub(super) place: Place,
}

/// A queue pair.
pub(crate) struct Qp {
    pub(super) process: Arc<Process>,
    pub(super) number: Number,
    place: Place,
}

impl rdma::Driver for Verbs {
    type Data = Registered;
    type Context = Arc<Process>;
    type Pd = Pd;
    type Ah = Ah;
    type Srq = Srq;
    type QpModified = qpair_uresp_modify_qp;
    type Cq = Cq;
    type Qp = Qp;
    type Mr = Mr;
    type Mw = Mw;
    type KernelPd = KernelPd;
    type KernelMr = KernelMr;
    type KernelCq = KernelCq;
    type KernelQp = KernelQp;

    const NAME: &'static CStr = c"qpair%d";
    const ABI: u32 = QPAIR_UVERBS_ABI_VERSION;
    const GIDS: u32 = GIDS;
    const COUNTERS: &'static [&'static CStr] = Counter::SYSFS;

    fn device(Registered { device, .. }: &Registered) -> DeviceAttributes {
        let limits = device.limits();
        DeviceAttributes {
            firmware: limits.version.into(),
            vendor: PCI_VENDOR,
            part: PCI_DEVICE,
            revision: PCI_REVISION.into(),
            max_mr_bytes: 1 << limits.region_log_bytes.min(63),
            page_sizes: PAGE_SIZE as u64,
            max_qp: device.quota(Kind::Qp),
            max_cq: device.quota(Kind::Cq),
            max_mr: device.quota(Kind::Mr),
            max_pd: device.quota(Kind::Pd),
            max_ah: device.quota(Kind::Ah),
            max_srq: device.quota(Kind::Srq),
            max_mw: device.quota(Kind::Mw),
            max_groups: match limits.group_members {
                0 => 0,
                _ => device.quota(Kind::Member),
            },
            max_group_members: limits.group_members.min(device.quota(Kind::Member)),
            max_srq_wr: 1 << limits.log_rq.min(31),
            // A request of all SGEs has four blocks.
            max_wr: (1u32 << limits.log_sq.min(31)) / 4,
            max_cqe: 1 << limits.log_cq.min(31),
            max_send_sges: sges(limits),
            max_recv_sges: sges(limits),
            max_srq_sges: limits.recv_sges,
            max_reads: 16,
            // Since 1.1.
            atomics: limits.version & 0xffff >= 1,
            flush: limits.version & 0xffff >= 1,
            atomic_write: limits.version & 0xffff >= 1,
        }
    }

    fn port(registered: &Registered) -> PortAttributes {
        let device = &registered.device;
        PortAttributes {
            active: registered.enter().is_ok_and(|pass| device.link_up(&pass)),
            max_message: device.limits().message,
        }
    }

    fn counters(registered: &Registered, values: &mut [u64]) -> Result {
        let pass = registered.enter()?;
        let counters = registered
            .device
            .admin()
            .execute(&pass, command::QueryCounters)?;
        for (value, counter) in values.iter_mut().zip(counters) {
            *value = counter;
        }
        Ok(())
    }

    fn open(registered: &Registered, udata: Udata<'_>) -> Result<Arc<Process>> {
        let reply = udata.without_request()?;
        let limits = registered.device.limits();
        let process = Process::open(registered)?;
        let answer = qpair_uresp_alloc_ucontext {
            max_sq_blocks: 1 << limits.log_sq.min(31),
            max_rq_depth: 1 << limits.log_rq.min(31),
            max_cq_depth: 1 << limits.log_cq.min(31),
            max_send_sge: limits.send_sges,
            max_recv_sge: limits.recv_sges,
            max_inline: limits.inline_bytes,
            epoch: process.epoch,
            page: process.page().into(),
        };
        answered(process, reply.write(&answer), Process::close)
    }

    fn doorbells(process: &Arc<Process>, map: impl FnOnce(Frame) -> Result) -> Result {
        process.doorbells(map)
    }

    fn close(process: Arc<Process>) {
        process.close();
    }

    fn alloc_pd(process: &Arc<Process>, udata: Udata<'_>) -> Result<Pd> {
        let reply = udata.without_request()?;
        let device = &process.device;
        let number = {
            let pass = process.enter()?;
            let charge = device.charge(&pass, process.page(), Kind::Pd)?;
            let create = command::Create::<command::Pd>(());
            let number = device.admin().execute(&pass, create)?;
            charge.keep();
            number
        };
        let pd = Pd {
            process: process.clone(),
            number,
        };
        answered(pd, reply.write(&()), Pd::destroy)
    }

    fn dealloc_pd(pd: Pd) {
        pd.destroy();
    }

    fn create_ah(process: &Arc<Process>, address: Address, udata: Udata<'_>) -> Result<Ah> {
        let reply = udata.without_request()?;
        let ah = Ah::new(process)?;
        let answer = address::resolve(&process.device, address);
        answered(ah, reply.write(&answer), drop)
    }

    fn destroy_ah(ah: Ah) {
        drop(ah);
    }

    fn create_cq(
        process: &Arc<Process>,
        request: CqRequest,
        events: Events<CqEvent>,
        udata: Udata<'_>,
    ) -> Result<(Cq, u32)> {
        let (asked, reply): (qpair_ureq_create_cq, _) = udata.read(24)?;
        if asked.reserved != 0 {
            return Err(EINVAL);
        }
        let device = &process.device;
        let depth = depth(request.entries, device.limits().log_cq)?;
        let eventfd = match asked.eventfd {
            QPAIR_NO_COMPLETION_FD => None,
            fd => Some(EventFd::from_fd(fd)?),
        };
        let memory = ring(
            asked.buffer,
            asked.buffer_bytes,
            depth,
            CQE_BYTES,
            Access::Write,
        )?;
        let handler = Arc::new(CqHandler::new(eventfd, events), GFP_KERNEL_ACCOUNT)?;
        let room = Room::new()?;
        let cq = {
            let pass = process.enter()?;
            let mut charge = device.charge(&pass, process.page(), Kind::Cq)?;
            let memory = Buffer::new(&pass, memory, device.limits())?;
            let context = CqContext {
                page: process.page(),
                log_depth: depth.log2(),
                buffer: memory.list(),
                ..CqContext::default()
            };
            let (number, ring) = device.create_process_cq(
                &pass,
                request.vector,
                context,
                memory,
                handler,
                &mut charge,
            )?;
            charge.keep();
            let vector = request.vector;
            let object = Object::Cq {
                number,
                vector,
                ring,
            };
            Cq {
                process: process.clone(),
                number,
                vector,
                place: process.keep(&pass, room, object),
            }
        };
        let answer = qpair_uresp_create_cq {
            number: cq.number.raw(),
            depth: depth.entries(),
        };
        let cq = answered(cq, reply.write(&answer), Cq::destroy)?;
        Ok((cq, depth.entries()))
    }

    fn resize_cq(cq: &Cq, entries: u32, udata: Udata<'_>) -> Result<u32> {
        cq.resize(entries, udata)
    }

    fn destroy_cq(cq: Cq) {
        cq.destroy();
    }

    fn create_srq(
        process: &Arc<Process>,
        pd: &Pd,
        request: SrqRequest,
        events: Events<SrqEvent>,
        udata: Udata<'_>,
    ) -> Result<(Srq, u32)> {
        let handler = Arc::new(SrqHandler(events), GFP_KERNEL_ACCOUNT)?;
        Srq::create(process, pd.number, request, handler, udata)
    }

    fn modify_srq(srq: &Srq, change: SrqChange, udata: Udata<'_>) -> Result {
        srq.change(change, udata)
    }

    fn query_srq(srq: &Srq) -> Result<(SrqRequest, u32)> {
        srq.query()
    }

    fn destroy_srq(srq: Srq) {
        srq.destroy();
    }

    fn create_qp(
        process: &Arc<Process>,
        pd: &Pd,
        (send, recv): (&Cq, &Cq),
        srq: Option<&Srq>,
        request: QpRequest,
        events: Events<QpEvent>,
        udata: Udata<'_>,
    ) -> Result<(Qp, u32)> {
        let (asked, reply): (qpair_ureq_create_qp, _) = udata.read(48)?;
        if asked.reserved != 0 || asked.rq_stride > u32::from(MAX_STRIDE_SHIFT) {
            return Err(EINVAL);
        }
        let device = &process.device;
        let limits = device.limits();
        let most_inline = match request.service {
            Service::Rc | Service::Uc => inline_bytes(MAX_BLOCKS),
            Service::Ud => ud_inline_bytes(MAX_BLOCKS),
        };
        let shares = srq.is_some();
        if shares && request.service == Service::Uc {
            return Err(EOPNOTSUPP);
        }
        let of_rq = asked.rq_buffer | asked.rq_buffer_bytes | u64::from(asked.rq_depth);
        if shares && (of_rq | u64::from(asked.rq_stride)) != 0 {
            return Err(EINVAL);
        }
        let fits = request.sends <= asked.sq_blocks
            && (shares || request.recvs <= asked.rq_depth)
            && request.send_sges <= sges(limits)
            && (shares || request.recv_sges <= sges(limits))
            && request.inline_bytes as usize <= most_inline
            && request.inline_bytes <= limits.inline_bytes;
        if !fits {
            return Err(EINVAL);
        }
        let sq_depth = depth(asked.sq_blocks, limits.log_sq)?;
        let rq_depth = match srq {
            None => Some(depth(asked.rq_depth, limits.log_rq)?),
            Some(_) => None,
        };
        let block = BLOCK_BYTES as u64;
        let stride = block << asked.rq_stride;
        // The device only reads what the process posts.
        let sq = ring(
            asked.sq_buffer,
            asked.sq_buffer_bytes,
            sq_depth,
            block,
            Access::Read,
        )?;
        let rq = match rq_depth {
            Some(depth) => Some(ring(
                asked.rq_buffer,
                asked.rq_buffer_bytes,
                depth,
                stride,
                Access::Read,
            )?),
            None => None,
        };
        let handler = Arc::new(QpHandler(events), GFP_KERNEL_ACCOUNT)?;
        let room = Room::new()?;
        let qp = {
            let pass = process.enter()?;
            let mut charge = device.charge(&pass, process.page(), Kind::Qp)?;
            let sq = Buffer::new(&pass, sq, limits)?;
            let rq = match rq {
                Some(rq) => Some(Buffer::new(&pass, rq, limits)?),
                None => None,
            };
            let (service, (gid, gid_high)) = match request.service {
                Service::Rc => (service::RC, (0, 0)),
                Service::Uc => (service::UC, (0, 0)),
                Service::Ud => (service::UD, address::own(device)),
            };
            let context = QpContext {
                pd: pd.number,
                page: process.page(),
                service,
                gid,
                gid_high,
                flags: flags_of(&request),
                state: qp_state::RESET,
                send_cq: send.number,
                recv_cq: recv.number,
                srq: srq.map_or(Number::default(), Srq::number),
                log_sq: sq_depth.log2(),
                log_rq: rq_depth.map_or(0, Depth::log2),
                // CAST: Checked above.
                rq_stride: asked.rq_stride as u8,
                sq: sq.list(),
                rq: rq.as_ref().map_or(BufferList::default(), Buffer::list),
                ..QpContext::default()
            };
            let create = command::Create::<command::Qp>(context);
            let (number, (sq, rq)) =
                device.create_reporting(&pass, create, (sq, rq), handler, &mut charge)?;
            charge.keep();
            let object = Object::Qp {
                number,
                pd: pd.number,
                cqs: (send.number, recv.number),
                sq,
                rq,
            };
            Qp {
                process: process.clone(),
                number,
                place: process.keep(&pass, room, object),
            }
        };
        let answer = qpair_uresp_create_qp {
            number: qp.number.raw(),
            sq_blocks: sq_depth.entries(),
            rq_depth: rq_depth.map_or(0, Depth::entries),
            reserved: 0,
        };
        let qp = answered(qp, reply.write(&answer), Qp::destroy)?;
        let number = qp.number.raw();
        Ok((qp, number))
    }

    fn modify_qp(qp: &Qp, change: QpChange) -> Result<qpair_uresp_modify_qp> {
        let (mask, context) = change::of(&qp.process.device, &change)?;
        let mut answer = qpair_uresp_modify_qp::default();
        if mask != 0 {
            let pass = qp.process.enter()?;
            let modify = command::Modify::<command::Qp> {
                number: qp.number,
                mask,
                context,
            };
            let ended = qp.process.device.admin().execute(&pass, modify)?;
            answer.send_cq_index = ended.send_cq.get();
            answer.recv_cq_index = ended.recv_cq.get();
        }
        Ok(answer)
    }

    fn query_qp(qp: &Qp) -> Result<(QpState, bool)> {
        let pass = qp.process.enter()?;
        let query = command::Query::<command::Qp>::new(qp.number);
        let now = qp.process.device.admin().execute(&pass, query)?;
        Ok(change::state(&now))
    }

    fn destroy_qp(qp: Qp) {
        qp.destroy();
    }

    fn attach(qp: &Qp, group: Gid) -> Result {
        qp.attach(group)
    }

    fn attach_again(qp: &Qp, group: Gid) -> Result {
        qp.attach_again(group)
    }

    fn detach(qp: &Qp, group: Gid) {
        qp.detach(group);
    }

    fn cq_details(cq: &Cq, details: &mut Details<'_>) -> Result {
        let pass = cq.process.enter()?;
        let query = command::Query::<command::Cq>::new(cq.number);
        let now = cq.process.device.admin().execute(&pass, query)?;
        details.number(c"number", cq.number.raw())?;
        details.number(c"producer", now.producer)?;
        details.number(c"consumer", now.consumer)?;
        buffer(details, &now.buffer)
    }

    fn qp_details(qp: &Qp, details: &mut Details<'_>) -> Result {
        let pass = qp.process.enter()?;
        let query = command::Query::<command::Qp>::new(qp.number);
        let now = qp.process.device.admin().execute(&pass, query)?;
        details.number(c"number", qp.number.raw())?;
        details.number(c"sq_producer", now.sq_producer)?;
        details.number(c"sq_consumer", now.sq_consumer)?;
        details.number(c"rq_producer", now.rq_producer)?;
        details.number(c"rq_consumer", now.rq_consumer)
    }

    fn mr_details(mr: &Mr, details: &mut Details<'_>) -> Result {
        mr.details(details)
    }

    fn reg_mr(
        process: &Arc<Process>,
        pd: &Pd,
        request: MrRequest,
        udata: Udata<'_>,
    ) -> Result<(Mr, u32, u32)> {
        Mr::register(process, pd.number, request, udata)
    }

    fn rereg_mr(mr: &Mr, change: MrChange, pd: Option<&Pd>, udata: Udata<'_>) -> Result {
        mr.change(change, pd.map(|pd| pd.number), udata)
    }

    fn alloc_mw(
        process: &Arc<Process>,
        pd: &Pd,
        kind: MwType,
        udata: Udata<'_>,
    ) -> Result<(Mw, u32)> {
        Mw::create(process, pd.number, kind, udata)
    }

    fn dealloc_mw(mw: Mw) {
        mw.destroy();
    }

    fn dereg_mr(mr: Mr) -> Result<(), (Mr, Error)> {
        mr.deregister()
    }

    fn set_gid(registered: &Registered, index: u16, gid: Gid) -> Result {
        address::set_gid(registered, index, gid)
    }

    fn kernel_alloc_pd(registered: &Registered) -> Result<KernelPd> {
        KernelPd::create(registered)
    }

    fn kernel_dealloc_pd(pd: KernelPd) {
        pd.destroy();
    }

    fn kernel_all_memory(pd: &KernelPd, access: u32) -> Result<(KernelMr, u32)> {
        KernelMr::create(pd, access)
    }

    fn kernel_dereg_mr(mr: KernelMr) {
        mr.destroy();
    }

    fn kernel_create_cq(
        registered: &Registered,
        request: CqRequest,
        events: Events<CqEvent>,
    ) -> Result<(KernelCq, u32)> {
        KernelCq::create(registered, request, events)
    }

    fn kernel_destroy_cq(cq: KernelCq) {
        cq.destroy();
    }

    fn kernel_create_qp(
        pd: &KernelPd,
        cqs: (&KernelCq, &KernelCq),
        request: QpRequest,
        events: Events<QpEvent>,
    ) -> Result<(KernelQp, u32)> {
        KernelQp::create(pd, cqs, request, events)
    }

    fn kernel_modify_qp(qp: &KernelQp, change: QpChange) -> Result {
        qp.modify(change)
    }

    fn kernel_query_qp(qp: &KernelQp) -> Result<(QpState, bool)> {
        qp.query()
    }

    fn kernel_attach(qp: &KernelQp, group: Gid) -> Result {
        qp.attach(group)
    }

    fn kernel_attach_again(qp: &KernelQp, group: Gid) -> Result {
        qp.attach_again(group)
    }

    fn kernel_detach(qp: &KernelQp, group: Gid) {
        qp.detach(group);
    }

    fn kernel_destroy_qp(qp: KernelQp) {
        qp.destroy();
    }
}

impl Pd {
    fn destroy(self) {
        let (process, number) = (self.process, self.number);
        end_abandoned(&process, number);
        process.end(Kind::Pd, None, |pass| {
            let destroy = command::Destroy::<command::Pd>::new(number);
            process.device.admin().execute(pass, destroy).map(drop)
        });
    }
}

impl Qp {
    fn destroy(self) {
        let (process, number) = (self.process, self.number);
        process.end(Kind::Qp, Some(self.place), |pass| {
            let destroy = Device::destroy_reporting::<command::Qp>;
            destroy(&process.device, pass, number).map(drop)
        });
    }
}
