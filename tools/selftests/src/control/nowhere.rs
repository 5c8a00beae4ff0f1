// SPDX-License-Identifier: GPL-2.0
//! Results that cannot be written back.

use std::os::fd::AsFd;

use anyhow::ensure;
use anyhow::Context as _;
use anyhow::Result;
use nix::errno::Errno;
use qpair_abi::counters::Counter;
use qpair_abi::uapi::*;

use super::fails;
use crate::host::Host;
use crate::ktap::Setup;
use crate::pair::works;
use crate::pair::Peer;
use crate::raw::destroy;
use crate::raw::page_size;
use crate::raw::Arg;
use crate::raw::Buffer;
use crate::raw::Context;
use crate::wait;
use crate::world;
use crate::world::Baseline;

/// The state that a failed create must not change.
struct Nothing<'a> {
    ctx: &'a Context,
    host: Host,
    before: Baseline,
    charged: i64,
    objects: u64,
}

impl<'a> Nothing<'a> {
    fn new(ctx: &'a Context) -> Result<Self> {
        let mut host = Host::call()?;
        Ok(Self {
            ctx,
            before: Baseline::take()?,
            charged: world::charged_kib()?,
            objects: host.get(0, "objects")?,
            host,
        })
    }

    /// The ioctl fails, since its argument is read-only, and leaves nothing behind.
    fn stays_of<T: Arg>(&mut self, what: &str, nr: u8, arg: &T) -> Result<()> {
        fails(what, Errno::EFAULT, self.ctx.call_read_only(nr, arg)?)?;
        self.before.settled().with_context(|| what.to_string())?;
        let now = (world::charged_kib()?, self.host.get(0, "objects")?);
        ensure!(
            now == (self.charged, self.objects),
            "{what}: KiB charged and objects of the device are {now:?}, were {:?}",
            (self.charged, self.objects)
        );
        Ok(())
    }
}

/// If the result of a create cannot be written back, the driver destroys the new object.
pub(super) fn creates_without_a_result(setup: &Setup) -> Result<()> {
    let peer = Peer::new(&Context::open(0)?, 4096)?;
    let rings = Buffer::new(4 * page_size())?;
    let (at, bytes) = (rings.addr(), 8192);
    let mut nothing = Nothing::new(&peer.ctx)?;
    for _ in 0..3 {
        nothing.stays_of("ALLOC_PD", QPAIR_NR_ALLOC_PD, &qpair_alloc_pd::default())?;
        let arg = qpair_create_cq {
            buffer: at,
            buffer_bytes: bytes,
            depth: 256,
            eventfd: QPAIR_NO_EVENTFD,
            ..Default::default()
        };
        nothing.stays_of("CREATE_CQ", QPAIR_NR_CREATE_CQ, &arg)?;
        let arg = qpair_create_qp {
            sq_buffer: at,
            sq_buffer_bytes: bytes,
            rq_buffer: at + bytes,
            rq_buffer_bytes: bytes,
            sq_blocks: 128,
            rq_depth: 128,
            pd: peer.pd.handle,
            send_cq: peer.cq.handle,
            recv_cq: peer.cq.handle,
            ..Default::default()
        };
        nothing.stays_of("CREATE_QP", QPAIR_NR_CREATE_QP, &arg)?;
        let arg = qpair_reg_mr {
            addr: at,
            bytes: 2 * bytes,
            pd: peer.pd.handle,
            access: QPAIR_ACCESS_LOCAL_WRITE,
            ..Default::default()
        };
        nothing.stays_of("REG_MR", QPAIR_NR_REG_MR, &arg)?;
    }
    peer.destroy().context("what they used")?;
    works(0, &mut setup.rng())
}

/// If their results cannot be written back, queries change nothing; MODIFY and DESTROY have taken
/// effect.
pub(super) fn calls_without_a_result(setup: &Setup) -> Result<()> {
    let peer = Peer::new(&Context::open(0)?, 4096)?;
    let ctx = &peer.ctx;
    let mut nothing = Nothing::new(ctx)?;
    let arg = qpair_query_device::default();
    nothing.stays_of("QUERY_DEVICE", QPAIR_NR_QUERY_DEVICE, &arg)?;
    let (mut cq, mut qp) = (qpair_query_cq::default(), qpair_query_qp::default());
    let mut mr = qpair_query_mr::default();
    (cq.handle, qp.handle, mr.handle) = (peer.cq.handle, peer.qp.handle, peer.mr.arg.handle);
    nothing.stays_of("QUERY_CQ", QPAIR_NR_QUERY_CQ, &cq)?;
    nothing.stays_of("QUERY_QP", QPAIR_NR_QUERY_QP, &qp)?;
    nothing.stays_of("QUERY_MR", QPAIR_NR_QUERY_MR, &mr)?;
    // The array, and the number of its entries.
    let (array, read_only) = (Buffer::new(page_size())?, Buffer::new(page_size())?);
    read_only.protect(false)?;
    let mut arg = qpair_query_counters {
        counters: array.addr(),
        count: Counter::COUNT as u32,
        ..Default::default()
    };
    nothing.stays_of("QUERY_COUNTERS", QPAIR_NR_QUERY_COUNTERS, &arg)?;
    arg.counters = read_only.addr();
    fails(
        "counters to a page that is only read",
        Errno::EFAULT,
        ctx.call(QPAIR_NR_QUERY_COUNTERS, &mut arg),
    )?;
    // An event that could not be copied to the process stays for the next `read`.
    ctx.page.ring(0, u32::MAX, 0);
    wait::readable(ctx.fd(), "the event of a violation")?;
    for _ in 0..2 {
        let read = read_only.filled_from(ctx.fd().as_fd(), size_of::<qpair_async_event>());
        fails("a read to a page that is only read", Errno::EFAULT, read)?;
    }
    let event = ctx.async_event()?.context("the event is lost")?;
    ensure!(event.kind == QPAIR_EVENT_DOORBELL_VIOLATION, "{event:?}");

    let arg = qpair_modify_qp {
        handle: peer.qp.handle,
        mask: QPAIR_QP_STATE,
        state: QPAIR_QPS_ERROR,
        ..Default::default()
    };
    let result = ctx.call_read_only(QPAIR_NR_MODIFY_QP, &arg)?;
    fails("MODIFY_QP", Errno::EFAULT, result)?;
    ensure!(peer.qp.state()? == QPAIR_QPS_ERROR, "it was not changed");
    let arg = qpair_destroy {
        handle: peer.qp.handle,
        ..Default::default()
    };
    let result = ctx.call_read_only(QPAIR_NR_DESTROY_QP, &arg)?;
    fails("DESTROY_QP", Errno::EFAULT, result)?;
    let again = destroy(ctx, QPAIR_NR_DESTROY_QP, peer.qp.handle);
    fails("DESTROY_QP once more", Errno::ENOENT, again)?;
    peer.mr.destroy()?;
    peer.cq.destroy().context("the CQ of no queue pair")?;
    peer.pd.destroy().context("the empty domain")?;
    works(0, &mut setup.rng())
}
