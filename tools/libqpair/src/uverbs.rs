// SPDX-License-Identifier: GPL-2.0
//! The kernel by an open `/dev/infiniband/uverbsN`.
//!
//! # The end of the device
//!
//! When the device is removed or reset, the RDMA core destroys all objects of the file. Each call
//! fails with `EIO` from then on. The core replaces the doorbell page by ordinary memory, so a
//! doorbell does nothing.

mod change;
mod numbers;
#[cfg(test)]
mod requests;
#[cfg(test)]
mod tests;

use std::fs;
use std::net::Ipv6Addr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::ptr::{self, NonNull};
use std::thread;
use std::time::Duration;

use qpair_abi::counters::Counter;
use qpair_abi::uverbs::{
    qpair_ureq_create_cq, qpair_ureq_create_qp, qpair_ureq_create_srq, qpair_uresp_alloc_ucontext,
    qpair_uresp_create_ah, qpair_uresp_create_cq, qpair_uresp_create_qp, qpair_uresp_create_srq,
    qpair_uresp_modify_qp, QPAIR_NO_COMPLETION_FD,
};
use qpair_abi::{doorbell, Number};
use qpair_uverbs::abi::*;
use qpair_uverbs::{open_events, Command};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags};

use crate::kernel::{
    Address, AsyncEvent, Attributes, Change, CounterValues, Gid, Kernel, Keys, NewCq, NewMr, NewQp,
    NewSrq, Object, QpAttributes, QpType, ResetAt, Resolved, Retries, Service,
};

use self::change::{address, modify, state};
use self::numbers::Numbers;

/// The only port of a device.
const PORT: u8 = 1;
/// An open `/dev/infiniband/uverbsN`, its asynchronous events and its doorbell page.
#[derive(Debug)]
pub struct File {
    fd: OwnedFd,
    events: OwnedFd,
    page: NonNull<u64>,
    vectors: u32,
    limits: qpair_uresp_alloc_ucontext,
    /// The folder of the port in sysfs.
    port: PathBuf,
    cqs: Numbers,
    srqs: Numbers,
    qps: Numbers,
}

// SAFETY: The page is only ever written, by whole stores that the device takes in any order.
unsafe impl Send for File {}
// SAFETY: As above.
unsafe impl Sync for File {}

impl File {
    /// Opens it, and maps its doorbells. `ibdev` is the name of its RDMA device.
    pub fn open(path: &Path, ibdev: &str) -> Result<Self, Errno> {
        let flags = OFlags::RDWR | OFlags::CLOEXEC;
        let fd = rustix::fs::open(path, flags, Mode::empty())?;
        let mut vectors = 0;
        let mut limits = qpair_uresp_alloc_ucontext::default();
        let command = Command::get_context(&mut vectors).driver_answer(&mut limits);
        // SAFETY: It names no memory besides its parts.
        unsafe { command.run(fd.as_fd())? };
        let events = open_events(fd.as_fd())?;
        rustix::fs::fcntl_setfl(&events, OFlags::NONBLOCK)?;
        // SAFETY: A new mapping, at an address of the kernel's choice.
        let page = unsafe {
            rustix::mm::mmap(
                ptr::null_mut(),
                doorbell::PAGE_BYTES as usize,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED,
                &fd,
                0,
            )?
        };
        Ok(Self {
            fd,
            events,
            page: NonNull::new(page.cast()).ok_or(Errno::NOMEM)?,
            vectors,
            limits,
            port: Path::new("/sys/class/infiniband")
                .join(ibdev)
                .join("ports/1"),
            cqs: Numbers::default(),
            srqs: Numbers::default(),
            qps: Numbers::default(),
        })
    }

    fn run(&self, command: Command<'_>) -> Result<(), Errno> {
        #[cfg(test)]
        let Some(command) = requests::play(command) else {
            return Ok(());
        };
        // SAFETY: The library keeps rings and regions mapped until their objects are destroyed, in
        // `Drop`.
        unsafe { command.run(self.fd.as_fd()) }
    }

    fn query_port(&self) -> Result<ib_uverbs_query_port_resp, Errno> {
        let mut port = ib_uverbs_query_port_resp::default();
        let query = ib_uverbs_query_port {
            port_num: PORT,
            ..Default::default()
        };
        self.run(
            Command::new(IB_USER_VERBS_CMD_QUERY_PORT)
                .request(&query)
                .answer(&mut port),
        )?;
        Ok(port)
    }
}

impl Drop for File {
    fn drop(&mut self) {
        // SAFETY: It was mapped by `open`, and the address is private to `self`.
        let unmapped =
            unsafe { rustix::mm::munmap(self.page.as_ptr().cast(), doorbell::PAGE_BYTES as usize) };
        debug_assert_eq!(unmapped, Ok(()));
    }
}

impl Kernel for File {
    fn query(&self) -> Result<Attributes, Errno> {
        let mut device = ib_uverbs_query_device_resp::default();
        self.run(
            Command::new(IB_USER_VERBS_CMD_QUERY_DEVICE)
                .request(&ib_uverbs_query_device::default())
                .answer(&mut device),
        )?;
        let port = self.query_port()?;
        let limits = &self.limits;
        Ok(Attributes {
            model: device.fw_ver as u32,
            max_qp: device.max_qp,
            max_cq: device.max_cq,
            max_srq: device.max_srq,
            max_mr: device.max_mr,
            max_pd: device.max_pd,
            max_sq_blocks: limits.max_sq_blocks,
            max_rq_depth: limits.max_rq_depth,
            max_cq_depth: limits.max_cq_depth,
            max_send_sge: limits.max_send_sge,
            max_recv_sge: limits.max_recv_sge,
            max_inline: limits.max_inline,
            max_message: port.max_msg_sz,
            max_mr_bytes: device.max_mr_size,
            vectors: self.vectors,
            link_up: port.state == PORT_ACTIVE,
            lid: port.lid,
            doorbell_page: limits.page,
            epoch: limits.epoch,
        })
    }

    fn counters(&self) -> Result<CounterValues, Errno> {
        // The core returns values of up to this age, in whole ticks of up to 10 ms.
        let folder = self.port.join("hw_counters");
        let age = counter(&folder, "lifespan")?;
        thread::sleep(Duration::from_millis(age.saturating_add(11)));
        let mut values = [0; Counter::COUNT];
        for (value, which) in values.iter_mut().zip(Counter::ALL) {
            *value = counter(&folder, &which.name().replace('-', "_"))?;
        }
        Ok(values)
    }

    fn alloc_pd(&self) -> Result<u32, Errno> {
        let mut answer = ib_uverbs_alloc_pd_resp::default();
        self.run(
            Command::new(IB_USER_VERBS_CMD_ALLOC_PD)
                .request(&ib_uverbs_alloc_pd::default())
                .answer(&mut answer),
        )?;
        Ok(answer.pd_handle)
    }

    fn dealloc_pd(&self, pd: u32) -> Result<(), Errno> {
        let request = ib_uverbs_dealloc_pd { pd_handle: pd };
        self.run(Command::new(IB_USER_VERBS_CMD_DEALLOC_PD).request(&request))
    }

    fn create_cq(&self, cq: &NewCq<'_>) -> Result<(Object, u32), Errno> {
        let request = qpair_ureq_create_cq {
            buffer: cq.buffer,
            buffer_bytes: cq.buffer_bytes,
            eventfd: cq
                .eventfd
                .map_or(QPAIR_NO_COMPLETION_FD, |fd| fd.as_raw_fd()),
            reserved: 0,
        };
        let create = |user_handle| {
            let core = ib_uverbs_create_cq {
                user_handle,
                cqe: cq.depth,
                comp_vector: cq.vector,
                comp_channel: NO_COMP_CHANNEL,
                ..Default::default()
            };
            let mut answer = ib_uverbs_create_cq_resp::default();
            let mut made = qpair_uresp_create_cq::default();
            let requests = (&core, &request);
            let answers = (&mut answer, &mut made);
            let command = Command::create(IB_USER_VERBS_CMD_CREATE_CQ, requests, answers);
            self.run(command)?;
            let object = Object {
                handle: answer.cq_handle,
                number: Number::from_raw(made.number),
            };
            Ok((object, made.depth))
        };
        self.cqs.with(create, |made| made.0.number)
    }

    fn destroy_cq(&self, cq: Object) -> Result<(), Errno> {
        let request = ib_uverbs_destroy_cq {
            cq_handle: cq.handle,
            ..Default::default()
        };
        let mut answer = ib_uverbs_destroy_cq_resp::default();
        let destroyed = self.run(
            Command::new(IB_USER_VERBS_CMD_DESTROY_CQ)
                .request(&request)
                .answer(&mut answer),
        );
        self.cqs.give_back(cq.number);
        destroyed
    }

    fn create_srq(&self, srq: &NewSrq) -> Result<Object, Errno> {
        let request = qpair_ureq_create_srq {
            buffer: srq.buffer,
            buffer_bytes: srq.buffer_bytes,
            depth: srq.depth,
            stride: srq.stride.into(),
        };
        let create = |user_handle| {
            let core = ib_uverbs_create_srq {
                user_handle,
                pd_handle: srq.pd,
                // The driver's request has the sizes.
                max_wr: 1,
                max_sge: 1,
                ..Default::default()
            };
            let mut answer = ib_uverbs_create_srq_resp::default();
            let mut made = qpair_uresp_create_srq::default();
            let requests = (&core, &request);
            let answers = (&mut answer, &mut made);
            let command = Command::create(IB_USER_VERBS_CMD_CREATE_SRQ, requests, answers);
            self.run(command)?;
            Ok(Object {
                handle: answer.srq_handle,
                number: Number::from_raw(made.number),
            })
        };
        self.srqs.with(create, |made| made.number)
    }

    fn arm_srq(&self, srq: Object, limit: u32) -> Result<(), Errno> {
        let request = ib_uverbs_modify_srq {
            srq_handle: srq.handle,
            attr_mask: srq_mask::LIMIT,
            srq_limit: limit,
            ..Default::default()
        };
        self.run(Command::new(IB_USER_VERBS_CMD_MODIFY_SRQ).request(&request))
    }

    fn query_srq(&self, srq: Object) -> Result<u32, Errno> {
        let request = ib_uverbs_query_srq {
            srq_handle: srq.handle,
            ..Default::default()
        };
        let mut answer = ib_uverbs_query_srq_resp::default();
        let command = Command::new(IB_USER_VERBS_CMD_QUERY_SRQ);
        self.run(command.request(&request).answer(&mut answer))?;
        Ok(answer.srq_limit)
    }

    fn destroy_srq(&self, srq: Object) -> Result<(), Errno> {
        let request = ib_uverbs_destroy_srq {
            srq_handle: srq.handle,
            ..Default::default()
        };
        let mut answer = ib_uverbs_destroy_srq_resp::default();
        let command = Command::new(IB_USER_VERBS_CMD_DESTROY_SRQ);
        let destroyed = self.run(command.request(&request).answer(&mut answer));
        self.srqs.give_back(srq.number);
        destroyed
    }

    fn create_qp(&self, qp: &NewQp) -> Result<Object, Errno> {
        let request = qpair_ureq_create_qp {
            sq_buffer: qp.sq_buffer,
            sq_buffer_bytes: qp.sq_buffer_bytes,
            rq_buffer: qp.rq_buffer,
            rq_buffer_bytes: qp.rq_buffer_bytes,
            sq_blocks: qp.sq_blocks,
            rq_depth: qp.rq_depth,
            rq_stride: qp.rq_stride.into(),
            reserved: 0,
        };
        let create = |user_handle| {
            let core = ib_uverbs_create_qp {
                user_handle,
                pd_handle: qp.pd,
                send_cq_handle: qp.send_cq.handle,
                recv_cq_handle: qp.recv_cq.handle,
                // The driver's request has the sizes.
                max_send_wr: 1,
                max_recv_wr: 1,
                max_send_sge: 1,
                max_recv_sge: 1,
                srq_handle: qp.srq.map_or(0, |srq| srq.handle),
                is_srq: qp.srq.is_some().into(),
                qp_type: match qp.qp_type {
                    QpType::Connected(Service::Rc) => IB_UVERBS_QPT_RC,
                    QpType::Connected(Service::Uc) => IB_UVERBS_QPT_UC,
                    QpType::Ud => IB_UVERBS_QPT_UD,
                },
                ..Default::default()
            };
            let mut answer = ib_uverbs_create_qp_resp::default();
            let mut made = qpair_uresp_create_qp::default();
            let requests = (&core, &request);
            let answers = (&mut answer, &mut made);
            let command = Command::create(IB_USER_VERBS_CMD_CREATE_QP, requests, answers);
            self.run(command)?;
            Ok(Object {
                handle: answer.qp_handle,
                number: Number::from_raw(made.number),
            })
        };
        self.qps.with(create, |made| made.number)
    }

    fn modify_qp(&self, qp: Object, change: Change) -> Result<ResetAt, Errno> {
        let mut core = modify(change);
        core.qp_handle = qp.handle;
        if core.attr_mask & qp_mask::PATH_MTU != 0 {
            // That of a port of RoCE is the network device's, which may change.
            core.path_mtu = self.query_port()?.active_mtu;
        }
        let mut answer = qpair_uresp_modify_qp::default();
        self.run(
            Command::new(IB_USER_VERBS_CMD_MODIFY_QP)
                .request(&core)
                .driver_answer(&mut answer),
        )?;
        Ok(ResetAt {
            send_cq: answer.send_cq_index,
            recv_cq: answer.recv_cq_index,
        })
    }

    fn query_qp(&self, qp: Object) -> Result<QpAttributes, Errno> {
        let request = ib_uverbs_query_qp {
            qp_handle: qp.handle,
            attr_mask: qp_mask::STATE,
            ..Default::default()
        };
        let mut answer = ib_uverbs_query_qp_resp::default();
        self.run(
            Command::new(IB_USER_VERBS_CMD_QUERY_QP)
                .request(&request)
                .answer(&mut answer),
        )?;
        Ok(QpAttributes {
            state: state(answer.qp_state),
            peer: Number::from_raw(answer.dest_qp_num),
            access: answer.qp_access_flags,
            retries: Retries {
                answer: answer.retry_cnt,
                receive: answer.rnr_retry,
            },
            q_key: answer.qkey,
        })
    }

    fn destroy_qp(&self, qp: Object) -> Result<(), Errno> {
        let request = ib_uverbs_destroy_qp {
            qp_handle: qp.handle,
            ..Default::default()
        };
        let mut answer = ib_uverbs_destroy_qp_resp::default();
        let destroyed = self.run(
            Command::new(IB_USER_VERBS_CMD_DESTROY_QP)
                .request(&request)
                .answer(&mut answer),
        );
        self.qps.give_back(qp.number);
        destroyed
    }

    fn gid(&self, index: u8) -> Result<Gid, Errno> {
        let text = line(&self.port.join("gids"), &index.to_string())?;
        // As an address of IPv6, all of it written out.
        let gid: Ipv6Addr = text.trim().parse().map_err(|_| Errno::IO)?;
        Ok(gid.octets())
    }

    fn create_ah(&self, pd: u32, to: Address) -> Result<Resolved, Errno> {
        let request = address(pd, to);
        let mut answer = ib_uverbs_create_ah_resp::default();
        let mut made = qpair_uresp_create_ah::default();
        self.run(
            Command::new(IB_USER_VERBS_CMD_CREATE_AH)
                .request(&request)
                .answer(&mut answer)
                .driver_answer(&mut made),
        )?;
        Ok(Resolved {
            handle: answer.ah_handle,
            gid: made.gid,
            source: made.source as u16,
            mac: made.mac,
        })
    }

    fn destroy_ah(&self, handle: u32) -> Result<(), Errno> {
        let request = ib_uverbs_destroy_ah { ah_handle: handle };
        self.run(Command::new(IB_USER_VERBS_CMD_DESTROY_AH).request(&request))
    }

    fn reg_mr(&self, mr: &NewMr) -> Result<Keys, Errno> {
        let request = ib_uverbs_reg_mr {
            start: mr.addr,
            length: mr.bytes,
            hca_va: mr.addr,
            pd_handle: mr.pd,
            access_flags: mr.access,
            ..Default::default()
        };
        let mut answer = ib_uverbs_reg_mr_resp::default();
        self.run(
            Command::new(IB_USER_VERBS_CMD_REG_MR)
                .request(&request)
                .answer(&mut answer),
        )?;
        Ok(Keys {
            handle: answer.mr_handle,
            lkey: answer.lkey,
            rkey: answer.rkey,
        })
    }

    fn dereg_mr(&self, mr: u32) -> Result<(), Errno> {
        let request = ib_uverbs_dereg_mr { mr_handle: mr };
        self.run(Command::new(IB_USER_VERBS_CMD_DEREG_MR).request(&request))
    }

    #[inline]
    fn doorbell(&self, offset: u64, value: u64) {
        let at = offset as usize / size_of::<u64>();
        if at < doorbell::PAGE_BYTES as usize / size_of::<u64>() {
            // SAFETY: Inside the page, which is mapped as long as `self` lives. Volatile, since the
            // device sees every store.
            unsafe { self.page.as_ptr().add(at).write_volatile(value) };
        }
    }

    fn async_event(&self) -> Result<Option<AsyncEvent>, Errno> {
        // The kernel returns one event, and waits if `ib_uverbs_async_event_desc` does not fit.
        let mut event = [0; size_of::<ib_uverbs_async_event_desc>()];
        match rustix::io::read(&self.events, &mut event) {
            Ok(_) => {}
            Err(Errno::AGAIN) => return Ok(None),
            Err(errno) => return Err(errno),
        }
        let [e0, e1, e2, e3, e4, e5, e6, e7, k0, k1, k2, k3, ..] = event;
        let handle = u64::from_ne_bytes([e0, e1, e2, e3, e4, e5, e6, e7]);
        let kind = u32::from_ne_bytes([k0, k1, k2, k3]);
        let other = AsyncEvent::Other(kind);
        Ok(Some(match kind {
            event::CQ_ERR => self.cqs.get(handle).map_or(other, AsyncEvent::CqOverrun),
            event::QP_FATAL => self.qps.get(handle).map_or(other, AsyncEvent::QpFatal),
            event::QP_ACCESS_ERR => self.qps.get(handle).map_or(other, AsyncEvent::QpAccess),
            event::QP_REQ_ERR => self.qps.get(handle).map_or(other, AsyncEvent::QpRequest),
            event::SRQ_LIMIT_REACHED => self.srqs.get(handle).map_or(other, AsyncEvent::SrqLimit),
            event::SRQ_ERR => self.srqs.get(handle).map_or(other, AsyncEvent::SrqFatal),
            event::QP_LAST_WQE_REACHED => {
                self.qps.get(handle).map_or(other, AsyncEvent::LastReceive)
            }
            event::DEVICE_FATAL => AsyncEvent::DeviceFatal,
            _ => other,
        }))
    }

    fn async_fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.events.as_fd())
    }
}

/// A number in a file of the counters' folder.
///
/// # Errors
///
/// As of [`line()`].
fn counter(folder: &Path, name: &str) -> Result<u64, Errno> {
    line(folder, name)?.trim().parse().map_err(|_| Errno::IO)
}

/// A file of a folder of the port.
///
/// # Errors
///
/// `ENODEV`: the device is gone. `ENOSYS`: the port has no such file.
fn line(folder: &Path, name: &str) -> Result<String, Errno> {
    fs::read_to_string(folder.join(name)).map_err(|error| {
        let device_is_there = folder.parent().is_some_and(Path::exists);
        match Errno::from_io_error(&error) {
            Some(Errno::NOENT) if device_is_there => Errno::NOSYS,
            Some(Errno::NOENT) => Errno::NODEV,
            Some(errno) => errno,
            None => Errno::IO,
        }
    })
}
