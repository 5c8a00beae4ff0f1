// SPDX-License-Identifier: GPL-2.0
//! Calls that the control path refuses, with the errno of each.

use std::os::fd::AsRawFd;

use anyhow::ensure;
use anyhow::Context as _;
use anyhow::Result;
use nix::errno::Errno;
use qpair_abi::uverbs::qpair_ureq_create_qp;
use qpair_abi::uverbs::qpair_uresp_create_cq;
use qpair_abi::uverbs::qpair_uresp_create_qp;
use qpair_abi::uverbs::qpair_uresp_create_srq;
use qpair_uverbs::abi::*;
use qpair_uverbs::Command;

use super::fails;
use super::refuses;
use crate::ktap::Setup;
use crate::pair::works;
use crate::pair::Bystander;
use crate::pair::Pair;
use crate::raw::change;
use crate::raw::page_size;
use crate::raw::region;
use crate::raw::Buffer;
use crate::raw::Context;
use crate::raw::Cq;
use crate::raw::CqArg;
use crate::raw::Kind;
use crate::raw::Mr;
use crate::raw::Page;
use crate::raw::Pd;
use crate::raw::Qp;
use crate::raw::QpArg;
use crate::raw::QpShape;
use crate::raw::SrqArg;
use crate::world;
use crate::world::Log;

/// The driver's request of a command: a shorter one is refused, and in a longer one the rest must
/// be zero, so that a later version may add fields.
fn sized(what: &str, good: &[u8], run: impl Fn(u16, u64) -> Result<(), Errno>) -> Result<()> {
    let memory = Buffer::new(2 * page_size())?;
    let attempt = |bytes: usize| run(bytes as u16, memory.addr());
    memory.write(0, good);
    attempt(good.len()).with_context(|| format!("{what} as it is"))?;
    for short in [0, 1, 8, 16, good.len() - 1] {
        // Up to 8 bytes are a value, not an address: here, of zeros.
        let refused = if short <= 8 {
            run(short as u16, 0)
        } else {
            attempt(short)
        };
        let what = format!("{short} bytes of {what}");
        fails(&what, Errno::EINVAL, refused)?;
    }
    for more in [1, 8, 64, 4096] {
        memory.clear();
        memory.write(0, good);
        let what = format!("{what} and {more} bytes more");
        attempt(good.len() + more).with_context(|| format!("{what}, zero"))?;
        memory.write(good.len() + more - 1, &[1]);
        fails(&what, Errno::EOPNOTSUPP, attempt(good.len() + more))?;
    }
    Ok(())
}

fn bytes(words: &[u64]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_ne_bytes()).collect()
}

pub(super) fn private_requests(setup: &Setup) -> Result<()> {
    let ctx = Context::open(0)?;
    let (pd, cq) = (Pd::new(&ctx)?, Cq::new(&ctx, 256)?);
    let ring = Buffer::new(32 << 10)?;
    let (at, size) = (ring.addr(), 8192);
    let arg = CqArg::new(at, size, 256);
    // The eventfd is in the low half of the last word.
    let good = bytes(&[at, size, u64::from(u32::MAX)]);
    sized("CREATE_CQ", &good, |bytes, addr| {
        let mut core = ib_uverbs_create_cq_resp::default();
        let mut driver = qpair_uresp_create_cq::default();
        ctx.run(
            Command::new(IB_USER_VERBS_CMD_CREATE_CQ)
                .request(&arg.core)
                .answer(&mut core)
                .driver_answer(&mut driver)
                .part(UVERBS_ATTR_UHW_IN, bytes, addr),
        )?;
        ctx.destroy(Kind::Cq, core.cq_handle)
    })?;
    let arg = QpArg::new(&pd, (&cq, &cq), Default::default());
    let good = bytes(&[at, size, at + size, size, 128 << 32 | 128, 0]);
    sized("CREATE_QP", &good, |bytes, addr| {
        let mut core = ib_uverbs_create_qp_resp::default();
        let mut driver = qpair_uresp_create_qp::default();
        ctx.run(
            Command::new(IB_USER_VERBS_CMD_CREATE_QP)
                .request(&arg.core)
                .answer(&mut core)
                .driver_answer(&mut driver)
                .part(UVERBS_ATTR_UHW_IN, bytes, addr),
        )?;
        ctx.destroy(Kind::Qp, core.qp_handle)
    })?;
    let arg = SrqArg::new(&pd, at, size, 128);
    let good = bytes(&[at, size, 128]);
    sized("CREATE_SRQ", &good, |bytes, addr| {
        let mut core = ib_uverbs_create_srq_resp::default();
        let mut driver = qpair_uresp_create_srq::default();
        ctx.run(
            Command::new(IB_USER_VERBS_CMD_CREATE_SRQ)
                .request(&arg.core)
                .answer(&mut core)
                .driver_answer(&mut driver)
                .part(UVERBS_ATTR_UHW_IN, bytes, addr),
        )?;
        ctx.destroy(Kind::Srq, core.srq_handle)
    })?;
    // Commands without a request of the driver.
    let qp = Qp::new(&pd, &cq, &cq, QpShape::default())?;
    let (words, room) = (Buffer::new(page_size())?, Buffer::new(page_size())?);
    let pd_arg = ib_uverbs_alloc_pd::default();
    let mr_arg = region(&pd, at, size, IB_UVERBS_ACCESS_LOCAL_WRITE);
    let modify = ib_uverbs_modify_qp {
        qp_handle: qp.handle,
        ..change(qp_state::RESET, qp_state::RESET)
    };
    for which in [
        IB_USER_VERBS_CMD_ALLOC_PD,
        IB_USER_VERBS_CMD_REG_MR,
        IB_USER_VERBS_CMD_MODIFY_QP,
    ] {
        let run = || {
            let command = Command::new(which).part(UVERBS_ATTR_UHW_IN, 64, words.addr());
            let command = command.part(UVERBS_ATTR_CORE_OUT, 512, room.addr());
            ctx.run(match which {
                IB_USER_VERBS_CMD_REG_MR => command.request(&mr_arg),
                IB_USER_VERBS_CMD_MODIFY_QP => command.request(&modify),
                _ => command.request(&pd_arg),
            })
        };
        words.clear();
        run().with_context(|| format!("command {which} with zeros"))?;
        words.write(63, &[1]);
        let what = format!("command {which} with more than the driver knows");
        fails(&what, Errno::EOPNOTSUPP, run())?;
    }
    works(0, &mut setup.rng())
}

/// A request of the driver that is not mapped.
pub(super) fn private_addresses(setup: &Setup) -> Result<()> {
    let ctx = Context::open(0)?;
    let (pd, cq) = (Pd::new(&ctx)?, Cq::new(&ctx, 256)?);
    let hole = Buffer::new(2 * page_size())?;
    hole.punch(page_size(), page_size())?;
    let (ring, room) = (Buffer::new(8192)?, Buffer::new(page_size())?);
    let cq_arg = CqArg::new(ring.addr(), 8192, 256);
    let qp_arg = QpArg::new(&pd, (&cq, &cq), Default::default());
    for (what, addr) in [
        ("no address", 0),
        ("an address of the kernel's", 0xffff_8000_0000_0000),
        ("an address at the end of the address space", u64::MAX - 3),
        (
            "a request that ends in a hole",
            hole.addr() + page_size() as u64 - 4,
        ),
    ] {
        let run = |command: Command<'_>, bytes| {
            let command = command.part(UVERBS_ATTR_CORE_OUT, 512, room.addr());
            ctx.run(command.part(UVERBS_ATTR_UHW_IN, bytes, addr))
        };
        let command = Command::new(IB_USER_VERBS_CMD_CREATE_CQ).request(&cq_arg.core);
        fails(
            &format!("CREATE_CQ, {what}"),
            Errno::EFAULT,
            run(command, 24),
        )?;
        let command = Command::new(IB_USER_VERBS_CMD_CREATE_QP).request(&qp_arg.core);
        fails(
            &format!("CREATE_QP, {what}"),
            Errno::EFAULT,
            run(command, 48),
        )?;
    }
    works(0, &mut setup.rng())
}

/// The address and the length of a buffer in an argument.
pub(super) type Place<T> = fn(&mut T) -> (&mut u64, &mut u64);

/// Buffers that make no sense, for an argument with an address and a length: the same rows for
/// each kind of queue.
pub(super) struct BadBuffers {
    read_only: Buffer,
    hole: Buffer,
    small: Buffer,
    doorbells: u64,
}

impl BadBuffers {
    pub(super) fn new(ctx: &Context) -> Result<Self> {
        let read_only = Buffer::new(16 << 10)?;
        read_only.clear();
        read_only.protect(false)?;
        let hole = Buffer::new(16 << 10)?;
        hole.punch(8 << 10, page_size())?;
        Ok(Self {
            read_only,
            hole,
            small: Buffer::new(4096)?,
            doorbells: ctx.page.addr() as u64,
        })
    }

    /// Tries each of them in `place` of what `good` makes, where a valid buffer of 8 KiB is at
    /// `address`.
    pub(super) fn refused<T: Copy>(
        &self,
        name: &str,
        address: u64,
        place: Place<T>,
        good: impl Fn() -> T,
        mut call: impl FnMut(T) -> Result<(), Errno>,
    ) -> Result<()> {
        for (what, errno, addr, bytes) in self.rows(address) {
            let spoil = |arg: &mut T| {
                let (at, length) = place(arg);
                (*at, *length) = (addr, bytes);
            };
            let what = format!("{name} {what}");
            refuses(&good, &[(&what, errno, &spoil)], &mut call)?;
        }
        Ok(())
    }

    /// The mistake, the errno, and the address and length that replace those of a valid buffer of 8
    /// KiB.
    fn rows(&self, good: u64) -> Vec<(&'static str, Errno, u64, u64)> {
        vec![
            ("not aligned by 64", Errno::EINVAL, good + 64, 8192),
            ("not aligned by 1", Errno::EINVAL, good + 1, 8192),
            ("no length", Errno::EINVAL, good, 0),
            ("too short by a byte", Errno::EINVAL, good, 8191),
            ("too short by half", Errno::EINVAL, good, 4096),
            ("not mapped", Errno::EFAULT, 0, 8192),
            (
                "not mapped at its end",
                Errno::EFAULT,
                self.hole.addr() + 4096,
                8192,
            ),
            ("of the kernel", Errno::EFAULT, 0xffff_8000_0000_0000, 8192),
            (
                "past the end of the address space",
                Errno::EOVERFLOW,
                u64::MAX - 4095,
                8192,
            ),
            ("doorbells", Errno::EFAULT, self.doorbells, 8192),
        ]
    }
}

pub(super) fn completion_queues(setup: &Setup) -> Result<()> {
    let mut others = Bystander::new(0, setup.rng())?;
    let ctx = Context::open(0)?;
    let ring = Buffer::new(16 << 10)?;
    let bad = BadBuffers::new(&ctx)?;
    let not_an_eventfd = std::fs::File::open("/dev/null")?;
    let closed = {
        let file = std::fs::File::open("/dev/null")?;
        file.as_raw_fd()
    };
    let good = || CqArg::new(ring.addr(), 8192, 256);
    let create = |arg: CqArg| {
        let made = ctx.create_cq(&arg)?;
        ctx.destroy(Kind::Cq, made.core.cq_handle)
    };
    refuses(
        good,
        &[
            ("depth 0", Errno::EINVAL, &|arg| arg.core.cqe = 0),
            ("a depth above the limit", Errno::EINVAL, &|arg| {
                arg.core.cqe = ctx.info.limits.max_cq_depth + 1
            }),
            ("a depth that cannot be rounded", Errno::EINVAL, &|arg| {
                arg.core.cqe = u32::MAX
            }),
            ("2^31 entries", Errno::EINVAL, &|arg| arg.core.cqe = 1 << 31),
            (
                "a depth that is too large when rounded",
                Errno::EINVAL,
                &|arg| arg.core.cqe = 257,
            ),
            ("a vector that is not there", Errno::EINVAL, &|arg| {
                arg.core.comp_vector = ctx.info.vectors
            }),
            ("the last vector that can be named", Errno::EINVAL, &|arg| {
                arg.core.comp_vector = u32::MAX
            }),
            ("reserved", Errno::EINVAL, &|arg| arg.driver.reserved = 1),
            ("an eventfd that is none", Errno::EINVAL, &|arg| {
                arg.driver.eventfd = not_an_eventfd.as_raw_fd()
            }),
            ("an eventfd that is closed", Errno::EBADF, &|arg| {
                arg.driver.eventfd = closed
            }),
            ("an eventfd below zero", Errno::EBADF, &|arg| {
                arg.driver.eventfd = -2
            }),
            ("the device's own file", Errno::EINVAL, &|arg| {
                arg.driver.eventfd = ctx.fd().as_raw_fd()
            }),
            ("memory that is not writable", Errno::EFAULT, &|arg| {
                arg.driver.buffer = bad.read_only.addr()
            }),
        ],
        create,
    )?;
    let place: Place<CqArg> = |arg| (&mut arg.driver.buffer, &mut arg.driver.buffer_bytes);
    bad.refused("a buffer", ring.addr(), place, good, create)?;
    others.unharmed()
}

/// A service that this device does not have: `IB_UVERBS_QPT_XRC_INI`.
const XRC_INITIATOR: u8 = 9;

pub(super) fn queue_pairs(setup: &Setup) -> Result<()> {
    let mut others = Bystander::new(0, setup.rng())?;
    let ctx = Context::open(0)?;
    let (pd, cq) = (Pd::new(&ctx)?, Cq::new(&ctx, 256)?);
    let (sq, rq) = (Buffer::new(16 << 10)?, Buffer::new(16 << 10)?);
    let bad = BadBuffers::new(&ctx)?;
    let good = || {
        let driver = qpair_ureq_create_qp {
            sq_buffer: sq.addr(),
            sq_buffer_bytes: 8192,
            rq_buffer: rq.addr(),
            rq_buffer_bytes: 8192,
            sq_blocks: 128,
            rq_depth: 128,
            ..Default::default()
        };
        QpArg::new(&pd, (&cq, &cq), driver)
    };
    let create = |arg: QpArg| {
        let made = ctx.create_qp(&arg)?;
        ctx.destroy(Kind::Qp, made.core.qp_handle)
    };
    refuses(
        good,
        &[
            ("an SQ of 0", Errno::EINVAL, &|arg| arg.driver.sq_blocks = 0),
            ("an RQ of 0", Errno::EINVAL, &|arg| arg.driver.rq_depth = 0),
            ("an SQ above the limit", Errno::EINVAL, &|arg| {
                arg.driver.sq_blocks = ctx.info.limits.max_sq_blocks + 1
            }),
            ("an RQ above the limit", Errno::EINVAL, &|arg| {
                arg.driver.rq_depth = ctx.info.limits.max_rq_depth + 1
            }),
            ("an SQ that cannot be rounded", Errno::EINVAL, &|arg| {
                arg.driver.sq_blocks = u32::MAX
            }),
            ("an RQ that cannot be rounded", Errno::EINVAL, &|arg| {
                arg.driver.rq_depth = u32::MAX
            }),
            ("an SQ too large when rounded", Errno::EINVAL, &|arg| {
                arg.driver.sq_blocks = 129
            }),
            ("an RQ too large when rounded", Errno::EINVAL, &|arg| {
                arg.driver.rq_depth = 129
            }),
            ("a stride above the limit", Errno::EINVAL, &|arg| {
                arg.driver.rq_stride = 3
            }),
            ("a stride that cannot be shifted", Errno::EINVAL, &|arg| {
                arg.driver.rq_stride = 64
            }),
            ("a stride too large for the buffer", Errno::EINVAL, &|arg| {
                arg.driver.rq_stride = 1
            }),
            ("reserved", Errno::EINVAL, &|arg| arg.driver.reserved = 1),
            ("another service", Errno::EOPNOTSUPP, &|arg| {
                arg.core.qp_type = XRC_INITIATOR
            }),
            ("more sends than blocks", Errno::EINVAL, &|arg| {
                arg.core.max_send_wr = 129
            }),
            ("more receives than the RQ has", Errno::EINVAL, &|arg| {
                arg.core.max_recv_wr = 129
            }),
            ("too many SGEs of a send", Errno::EINVAL, &|arg| {
                arg.core.max_send_sge = ctx.info.device.max_sge + 1
            }),
            ("too many SGEs of a receive", Errno::EINVAL, &|arg| {
                arg.core.max_recv_sge = ctx.info.device.max_sge + 1
            }),
            ("too many inline bytes", Errno::EINVAL, &|arg| {
                arg.core.max_inline_data = ctx.info.limits.max_inline + 1
            }),
        ],
        create,
    )?;
    let place: Place<QpArg> = |arg| (&mut arg.driver.sq_buffer, &mut arg.driver.sq_buffer_bytes);
    bad.refused("an SQ", sq.addr(), place, good, create)?;
    let place: Place<QpArg> = |arg| (&mut arg.driver.rq_buffer, &mut arg.driver.rq_buffer_bytes);
    bad.refused("an RQ", rq.addr(), place, good, create)?;
    // The failed create leaves nothing: the CQ and the domain are free again.
    cq.destroy()?;
    pd.destroy()?;
    others.unharmed()
}

pub(super) fn attributes(setup: &Setup) -> Result<()> {
    let mut pair = Pair::open(0)?;
    let qp = &pair.a.qp;
    let (before, queues) = (qp.query()?, qp.queues()?);
    let rts = change(qp_state::RTS, qp_state::RTS);
    for (what, errno, arg) in [
        (
            "an attribute of newer commands",
            Errno::EOPNOTSUPP,
            ib_uverbs_modify_qp {
                attr_mask: qp_mask::STATE | 1 << 25,
                ..rts
            },
        ),
        (
            "an unknown state",
            Errno::EINVAL,
            ib_uverbs_modify_qp { qp_state: 7, ..rts },
        ),
        (
            "a peer when it has one",
            Errno::EINVAL,
            ib_uverbs_modify_qp {
                attr_mask: qp_mask::STATE | qp_mask::DEST_QPN,
                dest_qp_num: 0x1_0005,
                ..rts
            },
        ),
    ] {
        fails(what, errno, qp.modify(arg).map(drop))?;
    }
    let after = (qp.query()?, qp.queues()?);
    ensure!(
        (before, queues) == after,
        "{before:?}, {queues:?} became {after:?}"
    );
    // Retries above the limit, with the change that sets them.
    let cq = Cq::new(&pair.a.ctx, 128)?;
    let other = Qp::new(&pair.a.pd, &cq, &cq, QpShape::default())?;
    for retries in [(8, 0), (0, 8), (255, 255)] {
        let refused = other.connect_as(other.number, 0, retries);
        fails(&format!("retries {retries:?}"), Errno::EINVAL, refused)?;
        ensure!(other.state()? == qp_state::RTR, "the state was changed");
        other.to(qp_state::RESET)?;
    }
    pair.exchange(&mut setup.rng())
        .context("after all were refused")
}

pub(super) fn memory_regions(setup: &Setup) -> Result<()> {
    let mut others = Bystander::new(0, setup.rng())?;
    let ctx = Context::open(0)?;
    let pd = Pd::new(&ctx)?;
    let buffer = Buffer::new(16 << 10)?;
    let bad = BadBuffers::new(&ctx)?;
    fn at(arg: &mut ib_uverbs_reg_mr, addr: u64) {
        (arg.start, arg.hca_va) = (addr, addr);
    }
    let good = || region(&pd, buffer.addr(), 8192, IB_UVERBS_ACCESS_LOCAL_WRITE);
    let register = |arg: ib_uverbs_reg_mr| {
        let made = ctx.reg_mr(&arg)?;
        ctx.destroy(Kind::Mr, made.mr_handle)
    };
    // Of no bytes, wherever: no page is pinned.
    for addr in [0, 1, buffer.addr(), u64::MAX] {
        let mut empty = ib_uverbs_reg_mr {
            length: 0,
            ..good()
        };
        at(&mut empty, addr);
        register(empty)?;
    }
    refuses(
        good,
        &[
            (
                "a right of the peer without the owner's",
                Errno::EINVAL,
                &|arg| arg.access_flags = IB_UVERBS_ACCESS_REMOTE_WRITE,
            ),
            (
                "a right to atomics without the owner's",
                Errno::EINVAL,
                &|arg| arg.access_flags = IB_UVERBS_ACCESS_REMOTE_ATOMIC,
            ),
            ("a right of windows", Errno::EOPNOTSUPP, &|arg| {
                arg.access_flags = 1 << 5
            }),
            ("an unknown right", Errno::EINVAL, &|arg| {
                arg.access_flags = 1 << 31
            }),
            ("no address", Errno::EFAULT, &|arg| at(arg, 0)),
            ("the kernel's memory", Errno::EFAULT, &|arg| {
                at(arg, 0xffff_8000_0000_0000)
            }),
            ("the end of the address space", Errno::EOVERFLOW, &|arg| {
                at(arg, u64::MAX - 4095)
            }),
            (
                "one byte past the end of the address space",
                Errno::EOVERFLOW,
                &|arg| at(arg, u64::MAX - 8190),
            ),
            ("more than there is", Errno::EOVERFLOW, &|arg| {
                arg.length = u64::MAX - 4095
            }),
            ("more than the device allows", Errno::EOVERFLOW, &|arg| {
                arg.length = ctx.info.device.max_mr_size + 1
            }),
            ("a hole in the middle", Errno::EFAULT, &|arg| {
                at(arg, bad.hole.addr());
                arg.length = 16 << 10
            }),
            ("a hole at the end", Errno::EFAULT, &|arg| {
                at(arg, bad.hole.addr());
                arg.length = 8193
            }),
            ("memory that is not writable", Errno::EFAULT, &|arg| {
                at(arg, bad.read_only.addr())
            }),
            ("... for the peer", Errno::EFAULT, &|arg| {
                at(arg, bad.read_only.addr());
                arg.access_flags = IB_UVERBS_ACCESS_LOCAL_WRITE | IB_UVERBS_ACCESS_REMOTE_WRITE
            }),
            ("... for atomics", Errno::EFAULT, &|arg| {
                at(arg, bad.read_only.addr());
                arg.access_flags = IB_UVERBS_ACCESS_LOCAL_WRITE | IB_UVERBS_ACCESS_REMOTE_ATOMIC
            }),
            ("the doorbells", Errno::EFAULT, &|arg| {
                at(arg, bad.doorbells);
                arg.length = 4096
            }),
            ("past the buffer", Errno::EFAULT, &|arg| {
                at(arg, bad.small.addr());
                arg.length = 1 << 30
            }),
        ],
        register,
    )?;
    // Read-only memory suffices for a region that is only read.
    register(region(
        &pd,
        bad.read_only.addr(),
        8192,
        IB_UVERBS_ACCESS_REMOTE_READ,
    ))
    .context("memory that is only read, to be read")?;
    others.unharmed()
}

pub(super) fn mappings(setup: &Setup) -> Result<()> {
    let ctx = Context::open(0)?;
    let both = libc::PROT_READ | libc::PROT_WRITE;
    for (what, bytes, prot, flags, offset) in [
        ("a private one", 4096, both, libc::MAP_PRIVATE, 0),
        ("two pages", 8192, both, libc::MAP_SHARED, 0),
        ("many pages", 1 << 20, both, libc::MAP_SHARED, 0),
        ("the next page", 4096, both, libc::MAP_SHARED, 4096),
        (
            "a page that is far away",
            4096,
            both,
            libc::MAP_SHARED,
            1 << 40,
        ),
    ] {
        fails(
            what,
            Errno::EINVAL,
            Page::map_as(ctx.fd(), bytes, prot, flags, offset),
        )?;
    }
    works(0, &mut setup.rng())
}

/// No error of a process writes to the log.
pub(super) fn the_log_stays_quiet(setup: &Setup) -> Result<()> {
    let mut log = Log::mark()?;
    for case in [
        private_requests,
        private_addresses,
        completion_queues,
        queue_pairs,
        memory_regions,
    ] {
        case(setup)?;
    }
    let ctx = Context::open(0)?;
    let (pd, cq) = (Pd::new(&ctx)?, Cq::new(&ctx, 64)?);
    let qp = Qp::new(&pd, &cq, &cq, QpShape::default())?;
    for _ in 0..world::rounds(1000, 1000) {
        fails("SQD from RESET", Errno::EINVAL, qp.to(qp_state::SQD))?;
        fails(
            "a region of nothing",
            Errno::EFAULT,
            Mr::of(&pd, 4096, 4096, 0).map(drop),
        )?;
    }
    // A kernel with debug assertions also prints the `dev_dbg!` messages, of level 7: that is
    // intended.
    let mut lines = log.lines()?;
    lines.retain(|(level, _)| *level < 7);
    ensure!(
        lines.len() < 10,
        "{} lines in the log, the first: {:?}",
        lines.len(),
        lines.first()
    );
    if let Some((level, text)) = lines.iter().find(|(level, _)| *level <= 4) {
        anyhow::bail!("in the log at level {level}: {text}");
    }
    Ok(())
}
