// SPDX-License-Identifier: GPL-2.0

//! The ioctls: what each takes, in which order things are checked and done.
//!
//! Every one of them is: argument in, checks that need nothing, pinning; then the device (a pass
//! and `state`); then the result out. A call whose result cannot be written back is undone.

use super::{
    args::{
        byte,
        zero,
        Argument, //
    },
    events::Watch,
    objects::{
        Mr,
        Objects,
        Place,
        Qp, //
    },
    Context,
};
use crate::{
    abi::{
        command::{
            access,
            cq_flags,
            qp_mask,
            qp_state,
            service,
            CqContext,
            MrContext,
            QpContext, //
        },
        counters::Counter,
        entry::{
            BLOCK_BYTES,
            MAX_STRIDE_SHIFT, //
        },
        uapi::*,
        Number, //
    },
    control::command,
    queue::{
        index::Depth,
        quota::Kind, //
    },
    sys::{
        chardev::Ioctl,
        eventfd::EventFd,
        gate::Pass,
        umem::{
            Access,
            Pinned, //
        }, //
    },
    verbs::buffer::Buffer,
};
use kernel::{
    page::PAGE_SIZE,
    prelude::*,
    uaccess::{
        UserPtr,
        UserSlice, //
    }, //
};

/// Bytes of a CQE.
const CQE_BYTES: u64 = 32;
/// Most retries.
const MAX_RETRY: u32 = 7;
/// What may be changed.
const QP_MASK: u32 = QPAIR_QP_STATE | QPAIR_QP_PEER | QPAIR_QP_ACCESS | QPAIR_QP_RETRY;
/// Rights of a region. Atomics are not served yet.
const MR_ACCESS: u32 =
    QPAIR_ACCESS_LOCAL_WRITE | QPAIR_ACCESS_REMOTE_WRITE | QPAIR_ACCESS_REMOTE_READ;

// The interface gives the device's own numbers.
const _: () = {
    assert!(QPAIR_QP_STATE == qp_mask::STATE && QPAIR_QP_PEER == qp_mask::PEER);
    assert!(QPAIR_QP_ACCESS == qp_mask::ACCESS && QPAIR_QP_RETRY == qp_mask::RETRY);
    assert!(QPAIR_QPS_RESET == qp_state::RESET as u32 && QPAIR_QPS_INIT == qp_state::INIT as u32);
    assert!(QPAIR_QPS_RTR == qp_state::RTR as u32 && QPAIR_QPS_RTS == qp_state::RTS as u32);
    assert!(QPAIR_QPS_SQD == qp_state::SQD as u32 && QPAIR_QPS_ERROR == qp_state::ERROR as u32);
    assert!(QPAIR_ACCESS_LOCAL_WRITE == access::LOCAL_WRITE as u32);
    assert!(QPAIR_ACCESS_REMOTE_WRITE == access::REMOTE_WRITE as u32);
    assert!(QPAIR_ACCESS_REMOTE_READ == access::REMOTE_READ as u32);
    assert!(QPAIR_RC == service::RC as u32 && QPAIR_CQ_OVERRUN == 1);
};

/// The depth that a caller gets who wants `wanted`, at most `1 << log_most`.
fn depth(wanted: u32, log_most: u8) -> Result<Depth> {
    match Depth::at_least(wanted) {
        Some(depth) if wanted != 0 && depth.log2() <= log_most => Ok(depth),
        _ => Err(EINVAL),
    }
}

/// Pins a ring of `entries` entries of `each` bytes at `address`.
fn pin_ring(address: u64, bytes: u64, entries: Depth, each: u64, access: Access) -> Result<Pinned> {
    let needed = u64::from(entries.entries()) * each;
    // Of what was said, not only of what is used.
    address.checked_add(bytes).ok_or(EOVERFLOW)?;
    if address % PAGE_SIZE as u64 != 0 || bytes < needed {
        return Err(EINVAL);
    }
    Pinned::new(address, needed, access)
}

impl Context {
    /// One ioctl. The smallest size of each structure is that of its first version.
    pub(super) fn call(&self, call: Ioctl) -> Result {
        self.alive()?;
        match byte(call.number())? {
            QPAIR_NR_QUERY_DEVICE => self.query_device(Argument::read(call, 96)?),
            QPAIR_NR_QUERY_COUNTERS => self.query_counters(Argument::read(call, 16)?),
            QPAIR_NR_ALLOC_PD => self.alloc_pd(Argument::read(call, 8)?),
            QPAIR_NR_DEALLOC_PD => self.dealloc_pd(Argument::read(call, 16)?),
            QPAIR_NR_CREATE_CQ => self.create_cq(Argument::read(call, 40)?),
            QPAIR_NR_QUERY_CQ => self.query_cq(Argument::read(call, 32)?),
            QPAIR_NR_DESTROY_CQ => self.destroy_cq(Argument::read(call, 16)?),
            QPAIR_NR_CREATE_QP => self.create_qp(Argument::read(call, 72)?),
            QPAIR_NR_MODIFY_QP => self.modify_qp(Argument::read(call, 40)?),
            QPAIR_NR_QUERY_QP => self.query_qp(Argument::read(call, 48)?),
            QPAIR_NR_DESTROY_QP => self.destroy_qp(Argument::read(call, 16)?),
            QPAIR_NR_REG_MR => self.reg_mr(Argument::read(call, 40)?),
            QPAIR_NR_QUERY_MR => self.query_mr(Argument::read(call, 32)?),
            QPAIR_NR_DEREG_MR => self.dereg_mr(Argument::read(call, 16)?),
            _ => Err(ENOTTY),
        }
    }

    /// Enters the device and takes the objects.
    fn inside<R>(&self, f: impl FnOnce(&Pass<'_>, &mut Objects) -> Result<R>) -> Result<R> {
        let pass = self.enter()?;
        let mut objects = self.state.lock();
        f(&pass, &mut objects)
    }

    fn query_device(&self, mut argument: Argument<qpair_query_device>) -> Result {
        let link_up = {
            let pass = self.enter()?;
            self.device.link_up(&pass)
        };
        let limits = self.device.limits();
        argument.value = qpair_query_device {
            uapi_version: QPAIR_UAPI_VERSION,
            device_version: limits.version,
            max_qp: limits.qp,
            max_cq: limits.cq,
            max_eq: limits.eq,
            max_mr: limits.mr,
            max_pd: limits.pd,
            max_sq_blocks: 1 << limits.log_sq.min(31),
            max_rq_depth: 1 << limits.log_rq.min(31),
            max_cq_depth: 1 << limits.log_cq.min(31),
            max_send_sge: limits.send_sges,
            max_recv_sge: limits.recv_sges,
            max_inline: limits.inline_bytes,
            max_message: limits.message,
            max_mr_bytes: 1 << limits.region_log_bytes.min(63),
            vectors: self.device.vectors(),
            link_up: u32::from(link_up),
            quota_qp: self.device.quota(Kind::Qp),
            quota_cq: self.device.quota(Kind::Cq),
            quota_mr: self.device.quota(Kind::Mr),
            quota_pd: self.device.quota(Kind::Pd),
            doorbell_page: u32::from(self.page),
            epoch: self.epoch,
        };
        argument.write_back()
    }

    fn query_counters(&self, mut argument: Argument<qpair_query_counters>) -> Result {
        zero(&[argument.value.reserved])?;
        let counters = {
            let pass = self.enter()?;
            self.device.admin().execute(&pass, command::QueryCounters)?
        };
        let room = (argument.value.count as usize).min(counters.len());
        let address = usize::try_from(argument.value.counters).map_err(|_| EFAULT)?;
        let mut out = UserSlice::new(UserPtr::from_addr(address), room * 8).writer();
        for counter in counters.iter().take(room) {
            out.write(counter)?;
        }
        argument.value.count = Counter::COUNT as u32;
        argument.write_back()
    }

    fn alloc_pd(&self, mut argument: Argument<qpair_alloc_pd>) -> Result {
        zero(&[argument.value.flags])?;
        let place = Place::new()?;
        let pd = self.inside(|pass, objects| {
            let charge = self.device.charge(pass, self.page, Kind::Pd)?;
            let pd = self
                .device
                .admin()
                .execute(pass, command::Create::<command::Pd>(()))?;
            objects.add_pd(place, pd);
            charge.keep();
            Ok(pd)
        })?;
        argument.value.handle = pd.raw();
        argument.write_back().inspect_err(|_| {
            let _ = self.inside(|pass, objects| objects.destroy_pd(&self.device, pass, pd));
        })
    }

    fn dealloc_pd(&self, argument: Argument<qpair_destroy>) -> Result {
        zero(&[argument.value.reserved])?;
        let pd = Number::from_raw(argument.value.handle);
        self.inside(|pass, objects| objects.destroy_pd(&self.device, pass, pd))
    }

    fn create_cq(&self, mut argument: Argument<qpair_create_cq>) -> Result {
        let value = &mut argument.value;
        zero(&[value.flags, value.reserved])?;
        let limits = self.device.limits();
        let depth = depth(value.depth, limits.log_cq)?;
        if value.vector >= self.device.vectors() {
            // Of a device that is going there are none: then that is what is wrong.
            drop(self.enter()?);
            return Err(EINVAL);
        }
        let eventfd = match value.eventfd {
            QPAIR_NO_EVENTFD => None,
            fd => Some(EventFd::from_fd(fd).map_err(|_| EBADF)?),
        };
        let ring = pin_ring(
            value.buffer,
            value.buffer_bytes,
            depth,
            CQE_BYTES,
            Access::Write,
        )?;
        let watch = Watch::new(&self.bell, eventfd)?;
        let place = Place::new()?;
        let vector = value.vector;
        let cq = self.inside(|pass, objects| {
            let mut charge = self.device.charge(pass, self.page, Kind::Cq)?;
            let ring = Buffer::new(pass, ring, limits)?;
            let context = CqContext {
                page: self.page,
                log_depth: depth.log2(),
                buffer: ring.list(),
                ..Default::default()
            };
            let (cq, ring) = self.device.create_process_cq(
                pass,
                vector,
                context,
                ring,
                watch.clone(),
                &mut charge,
            )?;
            objects.add_cq(place, cq, vector, watch, ring);
            charge.keep();
            Ok(cq)
        })?;
        value.depth = depth.entries();
        value.handle = cq.raw();
        argument.write_back().inspect_err(|_| {
            let _ = self.inside(|pass, objects| objects.destroy_cq(&self.device, pass, cq));
        })
    }

    fn query_cq(&self, mut argument: Argument<qpair_query_cq>) -> Result {
        let number = Number::from_raw(argument.value.handle);
        argument.value = self.inside(|pass, objects| {
            let cq = objects.cqs.get(number)?;
            let now = self
                .device
                .admin()
                .execute(pass, command::Query::<command::Cq>::new(number))?;
            let list = cq.ring.list();
            Ok(qpair_query_cq {
                handle: number.raw(),
                depth: 1 << now.log_depth.min(31),
                producer: now.producer,
                consumer: now.consumer,
                vector: cq.vector,
                flags: match now.flags & cq_flags::OVERRUN {
                    0 => 0,
                    _ => QPAIR_CQ_OVERRUN,
                },
                levels: u32::from(list.levels),
                page_shift: u32::from(list.page_shift),
            })
        })?;
        argument.write_back()
    }

    fn destroy_cq(&self, argument: Argument<qpair_destroy>) -> Result {
        zero(&[argument.value.reserved])?;
        let cq = Number::from_raw(argument.value.handle);
        self.inside(|pass, objects| objects.destroy_cq(&self.device, pass, cq))
    }

    fn create_qp(&self, mut argument: Argument<qpair_create_qp>) -> Result {
        let value = &mut argument.value;
        zero(&[value.flags, value.reserved])?;
        let limits = self.device.limits();
        if value.service != QPAIR_RC || value.rq_stride > u32::from(MAX_STRIDE_SHIFT) {
            return Err(EINVAL);
        }
        let stride = byte(value.rq_stride)?;
        let sq_depth = depth(value.sq_blocks, limits.log_sq)?;
        let rq_depth = depth(value.rq_depth, limits.log_rq)?;
        let block = BLOCK_BYTES as u64;
        // The device only reads what the process posts.
        let sq = pin_ring(
            value.sq_buffer,
            value.sq_buffer_bytes,
            sq_depth,
            block,
            Access::Read,
        )?;
        let rq = pin_ring(
            value.rq_buffer,
            value.rq_buffer_bytes,
            rq_depth,
            block << stride,
            Access::Read,
        )?;
        let watch = Watch::new(&self.bell, None)?;
        let place = Place::new()?;
        let (pd, send_cq, recv_cq) = (
            Number::from_raw(value.pd),
            Number::from_raw(value.send_cq),
            Number::from_raw(value.recv_cq),
        );
        let qp = self.inside(|pass, objects| {
            let mut charge = self.device.charge(pass, self.page, Kind::Qp)?;
            objects.pds.get(pd)?;
            objects.cqs.get(send_cq)?;
            objects.cqs.get(recv_cq)?;
            let sq = Buffer::new(pass, sq, limits)?;
            let rq = Buffer::new(pass, rq, limits)?;
            let context = QpContext {
                pd,
                page: self.page,
                service: service::RC,
                state: qp_state::RESET,
                send_cq,
                recv_cq,
                log_sq: sq_depth.log2(),
                log_rq: rq_depth.log2(),
                rq_stride: stride,
                sq: sq.list(),
                rq: rq.list(),
                ..Default::default()
            };
            let (number, (sq, rq)) =
                self.device
                    .create_qp(pass, context, (sq, rq), watch.clone(), &mut charge)?;
            let qp = Qp {
                pd,
                send_cq,
                recv_cq,
                watch,
                sq,
                rq,
            };
            objects.add_qp(place, number, qp);
            charge.keep();
            Ok(number)
        })?;
        value.sq_blocks = sq_depth.entries();
        value.rq_depth = rq_depth.entries();
        value.handle = qp.raw();
        argument.write_back().inspect_err(|_| {
            let _ = self.inside(|pass, objects| objects.destroy_qp(&self.device, pass, qp));
        })
    }

    fn modify_qp(&self, mut argument: Argument<qpair_modify_qp>) -> Result {
        let value = &mut argument.value;
        zero(&[value.reserved])?;
        if value.mask == 0 || value.mask & !QP_MASK != 0 {
            return Err(EINVAL);
        }
        if value.retry > MAX_RETRY || value.rnr_retry > MAX_RETRY {
            return Err(EINVAL);
        }
        let remote = u32::from(access::REMOTE_WRITE | access::REMOTE_READ);
        if value.access & !remote != 0 {
            return Err(EINVAL);
        }
        let number = Number::from_raw(value.handle);
        let context = QpContext {
            state: byte(value.state)?,
            peer: Number::from_raw(value.peer),
            access: byte(value.access)?,
            retry: byte(value.retry)?,
            rnr_retry: byte(value.rnr_retry)?,
            ..Default::default()
        };
        let mask = value.mask;
        let ended = self.inside(|pass, objects| {
            let qp = objects.qps.get(number)?;
            let ended = self.device.admin().execute(
                pass,
                command::Modify::<command::Qp> {
                    number,
                    mask,
                    context,
                },
            )?;
            // Made new: what it said before is no longer true.
            if mask & QPAIR_QP_STATE != 0 && context.state == qp_state::RESET {
                let _unread = qp.watch.alarm.take();
            }
            Ok(ended)
        })?;
        value.send_cq_index = ended.send_cq.get();
        value.recv_cq_index = ended.recv_cq.get();
        argument.write_back()
    }

    fn query_qp(&self, mut argument: Argument<qpair_query_qp>) -> Result {
        let number = Number::from_raw(argument.value.handle);
        argument.value = self.inside(|pass, objects| {
            let qp = objects.qps.get(number)?;
            let now = self
                .device
                .admin()
                .execute(pass, command::Query::<command::Qp>::new(number))?;
            let list = qp.sq.list();
            Ok(qpair_query_qp {
                handle: number.raw(),
                state: u32::from(now.state),
                peer: now.peer.raw(),
                access: u32::from(now.access),
                retry: u32::from(now.retry),
                rnr_retry: u32::from(now.rnr_retry),
                sq_producer: now.sq_producer,
                sq_consumer: now.sq_consumer,
                rq_producer: now.rq_producer,
                rq_consumer: now.rq_consumer,
                sq_levels: u32::from(list.levels),
                sq_page_shift: u32::from(list.page_shift),
            })
        })?;
        argument.write_back()
    }

    fn destroy_qp(&self, mut argument: Argument<qpair_destroy>) -> Result {
        zero(&[argument.value.reserved])?;
        let qp = Number::from_raw(argument.value.handle);
        let ended = self.inside(|pass, objects| objects.destroy_qp(&self.device, pass, qp))?;
        argument.value.send_cq_index = ended.send_cq.get();
        argument.value.recv_cq_index = ended.recv_cq.get();
        argument.write_back()
    }

    fn reg_mr(&self, mut argument: Argument<qpair_reg_mr>) -> Result {
        let value = &mut argument.value;
        zero(&[value.reserved])?;
        if value.access & !MR_ACCESS != 0 || value.bytes == 0 {
            return Err(EINVAL);
        }
        let limits = self.device.limits();
        if value.bytes > 1 << limits.region_log_bytes.min(63) {
            return Err(EOVERFLOW);
        }
        let writable = QPAIR_ACCESS_LOCAL_WRITE | QPAIR_ACCESS_REMOTE_WRITE;
        let access = match value.access & writable {
            0 => Access::Read,
            _ => Access::Write,
        };
        let memory = Pinned::new(value.addr, value.bytes, access)?;
        let place = Place::new()?;
        let (pd, addr, rights) = (Number::from_raw(value.pd), value.addr, byte(value.access)?);
        let mr = self.inside(|pass, objects| {
            let charge = self.device.charge(pass, self.page, Kind::Mr)?;
            objects.pds.get(pd)?;
            let memory = Buffer::new(pass, memory, limits)?;
            let context = MrContext {
                pd,
                access: rights,
                addr,
                buffer: memory.list(),
            };
            let create = command::Create::<command::Mr>(context);
            let (mr, memory) = self.device.admin().create(pass, create, memory)?;
            objects.add_mr(place, mr, Mr { pd, memory });
            charge.keep();
            Ok(mr)
        })?;
        value.handle = mr.raw();
        value.lkey = mr.raw();
        value.rkey = mr.raw();
        argument.write_back().inspect_err(|_| {
            let _ = self.inside(|pass, objects| objects.destroy_mr(&self.device, pass, mr));
        })
    }

    fn query_mr(&self, mut argument: Argument<qpair_query_mr>) -> Result {
        let number = Number::from_raw(argument.value.handle);
        argument.value = self.inside(|pass, objects| {
            objects.mrs.get(number)?;
            let now = self
                .device
                .admin()
                .execute(pass, command::Query::<command::Mr>::new(number))?;
            Ok(qpair_query_mr {
                handle: number.raw(),
                access: u32::from(now.access),
                addr: now.addr,
                bytes: now.buffer.bytes,
                levels: u32::from(now.buffer.levels),
                page_shift: u32::from(now.buffer.page_shift),
            })
        })?;
        argument.write_back()
    }

    fn dereg_mr(&self, argument: Argument<qpair_destroy>) -> Result {
        zero(&[argument.value.reserved])?;
        let mr = Number::from_raw(argument.value.handle);
        self.inside(|pass, objects| objects.destroy_mr(&self.device, pass, mr))
    }
}
