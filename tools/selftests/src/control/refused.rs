// SPDX-License-Identifier: GPL-2.0
//! Calls that the control path refuses, with the errno of each.

use std::os::fd::AsRawFd;

use anyhow::ensure;
use anyhow::Context as _;
use anyhow::Result;
use nix::errno::Errno;
use qpair_abi::counters::Counter;
use qpair_abi::uapi;
use qpair_abi::uapi::*;

use super::fails;
use super::handles::handles;
use super::handles::handles_of_others;
use super::refuses;
use crate::ktap::Setup;
use crate::pair::works;
use crate::pair::Bystander;
use crate::pair::Pair;
use crate::raw::destroy;
use crate::raw::page_size;
use crate::raw::Buffer;
use crate::raw::Context;
use crate::raw::Cq;
use crate::raw::Mr;
use crate::raw::Page;
use crate::raw::Pd;
use crate::raw::Qp;
use crate::raw::QpShape;
use crate::world;
use crate::world::Log;

/// Each ioctl and the size of its argument.
pub(super) const CALLS: [(u8, usize); 14] = [
    (QPAIR_NR_QUERY_DEVICE, size_of::<qpair_query_device>()),
    (QPAIR_NR_QUERY_COUNTERS, size_of::<qpair_query_counters>()),
    (QPAIR_NR_ALLOC_PD, size_of::<qpair_alloc_pd>()),
    (QPAIR_NR_DEALLOC_PD, size_of::<qpair_destroy>()),
    (QPAIR_NR_CREATE_CQ, size_of::<qpair_create_cq>()),
    (QPAIR_NR_QUERY_CQ, size_of::<qpair_query_cq>()),
    (QPAIR_NR_DESTROY_CQ, size_of::<qpair_destroy>()),
    (QPAIR_NR_CREATE_QP, size_of::<qpair_create_qp>()),
    (QPAIR_NR_MODIFY_QP, size_of::<qpair_modify_qp>()),
    (QPAIR_NR_QUERY_QP, size_of::<qpair_query_qp>()),
    (QPAIR_NR_DESTROY_QP, size_of::<qpair_destroy>()),
    (QPAIR_NR_REG_MR, size_of::<qpair_reg_mr>()),
    (QPAIR_NR_QUERY_MR, size_of::<qpair_query_mr>()),
    (QPAIR_NR_DEREG_MR, size_of::<qpair_destroy>()),
];

/// A bit that no flag and no limit has.
const UNKNOWN: u32 = 1 << 30;

pub(super) fn sizes(setup: &Setup) -> Result<()> {
    let ctx = Context::open(0)?;
    for (nr, size) in CALLS {
        for short in [0, 1, 4, size - 8, size - 1] {
            if short < size {
                let mut bytes = vec![0; short];
                fails(
                    &format!("ioctl {nr:#x} of {short} bytes"),
                    Errno::EINVAL,
                    ctx.call_bytes(nr, &mut bytes),
                )?;
            }
        }
        for more in [1, 8, 64, 4096] {
            let mut bytes = vec![0; size + more];
            if let Some(last) = bytes.last_mut() {
                *last = 1;
            }
            let what = format!("ioctl {nr:#x} with {more} bytes more, not zero");
            fails(&what, Errno::E2BIG, ctx.call_bytes(nr, &mut bytes))?;
        }
    }
    // Fields that a later version might add are accepted if they are zero.
    let mut bytes = vec![0; size_of::<qpair_alloc_pd>() + 64];
    ctx.call_bytes(QPAIR_NR_ALLOC_PD, &mut bytes)
        .context("a larger argument that ends with zeros")?;
    ensure!(bytes[4..8] != [0; 4], "no handle was returned");
    let mut bytes = vec![0; size_of::<qpair_query_device>() + 64];
    ctx.call_bytes(QPAIR_NR_QUERY_DEVICE, &mut bytes)
        .context("a larger argument that ends with zeros")?;
    ensure!(
        bytes[0] == QPAIR_UAPI_VERSION as u8,
        "no version was returned"
    );
    works(0, &mut setup.rng())
}

pub(super) fn numbers(setup: &Setup) -> Result<()> {
    let ctx = Context::open(0)?;
    let mut arg = [0u64; 64];
    for nr in 0..=255u8 {
        if CALLS.iter().all(|(known, _)| *known != nr) {
            let result = ctx.call_at(uapi::request::<[u64; 4]>(nr), arg.as_mut_ptr() as usize);
            fails(&format!("ioctl {nr:#x}"), Errno::ENOTTY, result)?;
        }
    }
    let other_type = uapi::request::<qpair_query_device>(0) ^ 1 << 8;
    fails(
        "another type",
        Errno::ENOTTY,
        ctx.call_at(other_type, arg.as_mut_ptr() as usize),
    )?;
    // FIONREAD and TCGETS belong to other drivers.
    for request in [0x541b, 0x5401] {
        fails(
            "another driver's ioctl",
            Errno::ENOTTY,
            ctx.call_at(request, arg.as_mut_ptr() as usize),
        )?;
    }
    works(0, &mut setup.rng())
}

pub(super) fn arguments(setup: &Setup) -> Result<()> {
    let ctx = Context::open(0)?;
    let hole = Buffer::new(2 * page_size())?;
    hole.punch(page_size(), page_size())?;
    for (nr, size) in CALLS {
        let request = uapi::request::<()>(nr) | (size as u32) << 16;
        for (what, addr) in [
            ("no address", 0),
            ("an address of the kernel's", 0xffff_8000_0000_0000),
            ("an address at the end of the address space", usize::MAX - 3),
            (
                "an argument that ends in a hole",
                hole.addr() as usize + page_size() - 4,
            ),
        ] {
            fails(
                &format!("ioctl {nr:#x} with {what}"),
                Errno::EFAULT,
                ctx.call_at(request, addr),
            )?;
        }
    }
    for (what, spoil) in [
        (
            "reserved",
            (|arg| arg.reserved = 1) as fn(&mut qpair_query_counters),
        ),
        ("reserved, the top bit", |arg| arg.reserved = 1 << 31),
    ] {
        let mut arg = qpair_query_counters::default();
        spoil(&mut arg);
        fails(
            what,
            Errno::EINVAL,
            ctx.call(QPAIR_NR_QUERY_COUNTERS, &mut arg),
        )?;
    }
    let mut arg = qpair_query_counters {
        counters: 8,
        count: Counter::COUNT as u32,
        reserved: 0,
    };
    fails(
        "counters to nowhere",
        Errno::EFAULT,
        ctx.call(QPAIR_NR_QUERY_COUNTERS, &mut arg),
    )?;
    refuses(
        qpair_alloc_pd::default,
        &[
            ("an unknown flag of a PD", Errno::EINVAL, &|arg| {
                arg.flags = UNKNOWN
            }),
            ("flag 1 of a PD", Errno::EINVAL, &|arg| arg.flags = 1),
        ],
        |mut arg| {
            ctx.call(QPAIR_NR_ALLOC_PD, &mut arg)?;
            destroy(&ctx, QPAIR_NR_DEALLOC_PD, arg.handle).map(drop)
        },
    )?;
    let pair = Pair::new(&ctx)?;
    for (nr, handle) in handles(&pair) {
        if matches!(
            nr,
            QPAIR_NR_DEALLOC_PD | QPAIR_NR_DESTROY_CQ | QPAIR_NR_DESTROY_QP | QPAIR_NR_DEREG_MR
        ) {
            let mut arg = qpair_destroy {
                handle,
                reserved: 1,
                ..Default::default()
            };
            fails(
                &format!("reserved of ioctl {nr:#x}"),
                Errno::EINVAL,
                ctx.call(nr, &mut arg),
            )?;
        }
    }
    pair.destroy().context("after it was refused")?;
    works(0, &mut setup.rng())
}

/// Buffers that make no sense, for an argument with an address and a length: the same rows for
/// each kind of queue.
struct BadBuffers {
    read_only: Buffer,
    hole: Buffer,
    small: Buffer,
    doorbells: u64,
}

impl BadBuffers {
    fn new(ctx: &Context) -> Result<Self> {
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
            (
                "longer than the world",
                Errno::EOVERFLOW,
                good,
                u64::MAX - 4095,
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
    let good = || qpair_create_cq {
        buffer: ring.addr(),
        buffer_bytes: 8192,
        depth: 256,
        eventfd: QPAIR_NO_EVENTFD,
        ..Default::default()
    };
    let create = |mut arg: qpair_create_cq| {
        ctx.call(QPAIR_NR_CREATE_CQ, &mut arg)?;
        destroy(&ctx, QPAIR_NR_DESTROY_CQ, arg.handle).map(drop)
    };
    refuses(
        good,
        &[
            ("depth 0", Errno::EINVAL, &|arg| arg.depth = 0),
            ("a depth above the limit", Errno::EINVAL, &|arg| {
                arg.depth = ctx.info.max_cq_depth + 1
            }),
            ("a depth that cannot be rounded", Errno::EINVAL, &|arg| {
                arg.depth = u32::MAX
            }),
            ("2^31 entries", Errno::EINVAL, &|arg| arg.depth = 1 << 31),
            (
                "a depth that is too large when rounded",
                Errno::EINVAL,
                &|arg| arg.depth = 257,
            ),
            ("a vector that is not there", Errno::EINVAL, &|arg| {
                arg.vector = ctx.info.vectors
            }),
            ("the last vector that can be named", Errno::EINVAL, &|arg| {
                arg.vector = u32::MAX
            }),
            ("an unknown flag", Errno::EINVAL, &|arg| arg.flags = UNKNOWN),
            ("flag 1", Errno::EINVAL, &|arg| arg.flags = 1),
            ("reserved", Errno::EINVAL, &|arg| arg.reserved = 1),
            ("an eventfd that is none", Errno::EBADF, &|arg| {
                arg.eventfd = not_an_eventfd.as_raw_fd()
            }),
            ("an eventfd that is closed", Errno::EBADF, &|arg| {
                arg.eventfd = closed
            }),
            ("an eventfd below zero", Errno::EBADF, &|arg| {
                arg.eventfd = -2
            }),
            ("the device's own file", Errno::EBADF, &|arg| {
                arg.eventfd = ctx.fd().as_raw_fd()
            }),
            ("memory that is not writable", Errno::EFAULT, &|arg| {
                arg.buffer = bad.read_only.addr()
            }),
        ],
        create,
    )?;
    for (what, errno, addr, bytes) in bad.rows(ring.addr()) {
        refuses(
            good,
            &[(what, errno, &|arg| {
                (arg.buffer, arg.buffer_bytes) = (addr, bytes)
            })],
            create,
        )?;
    }
    others.unharmed()
}

pub(super) fn queue_pairs(setup: &Setup) -> Result<()> {
    let mut others = Bystander::new(0, setup.rng())?;
    let ctx = Context::open(0)?;
    let (pd, cq) = (Pd::new(&ctx)?, Cq::new(&ctx, 256)?);
    let (sq, rq) = (Buffer::new(16 << 10)?, Buffer::new(16 << 10)?);
    let bad = BadBuffers::new(&ctx)?;
    let good = || qpair_create_qp {
        sq_buffer: sq.addr(),
        sq_buffer_bytes: 8192,
        rq_buffer: rq.addr(),
        rq_buffer_bytes: 8192,
        sq_blocks: 128,
        rq_depth: 128,
        pd: pd.handle,
        send_cq: cq.handle,
        recv_cq: cq.handle,
        ..Default::default()
    };
    let create = |mut arg: qpair_create_qp| {
        ctx.call(QPAIR_NR_CREATE_QP, &mut arg)?;
        destroy(&ctx, QPAIR_NR_DESTROY_QP, arg.handle).map(drop)
    };
    refuses(
        good,
        &[
            ("an SQ of 0", Errno::EINVAL, &|arg| arg.sq_blocks = 0),
            ("an RQ of 0", Errno::EINVAL, &|arg| arg.rq_depth = 0),
            ("an SQ above the limit", Errno::EINVAL, &|arg| {
                arg.sq_blocks = ctx.info.max_sq_blocks + 1
            }),
            ("an RQ above the limit", Errno::EINVAL, &|arg| {
                arg.rq_depth = ctx.info.max_rq_depth + 1
            }),
            ("an SQ that cannot be rounded", Errno::EINVAL, &|arg| {
                arg.sq_blocks = u32::MAX
            }),
            ("an RQ that cannot be rounded", Errno::EINVAL, &|arg| {
                arg.rq_depth = u32::MAX
            }),
            ("an SQ too large when rounded", Errno::EINVAL, &|arg| {
                arg.sq_blocks = 129
            }),
            ("an RQ too large when rounded", Errno::EINVAL, &|arg| {
                arg.rq_depth = 129
            }),
            ("a stride above the limit", Errno::EINVAL, &|arg| {
                arg.rq_stride = 3
            }),
            ("a stride that cannot be shifted", Errno::EINVAL, &|arg| {
                arg.rq_stride = 64
            }),
            ("a stride too large for the buffer", Errno::EINVAL, &|arg| {
                arg.rq_stride = 1
            }),
            ("an unknown service", Errno::EINVAL, &|arg| arg.service = 1),
            ("an unknown flag", Errno::EINVAL, &|arg| arg.flags = UNKNOWN),
            ("reserved", Errno::EINVAL, &|arg| arg.reserved = 1),
            ("no domain", Errno::ENOENT, &|arg| arg.pd = 0),
            ("no send CQ", Errno::ENOENT, &|arg| arg.send_cq = 0),
            ("no receive CQ", Errno::ENOENT, &|arg| arg.recv_cq = 0),
            ("a domain of another generation", Errno::ENOENT, &|arg| {
                arg.pd ^= 1 << 16
            }),
            ("a CQ that never was", Errno::ENOENT, &|arg| {
                arg.send_cq = u32::MAX
            }),
        ],
        create,
    )?;
    for (what, errno, addr, bytes) in bad.rows(sq.addr()) {
        let what = format!("an SQ {what}");
        refuses(
            good,
            &[(&what, errno, &|arg| {
                (arg.sq_buffer, arg.sq_buffer_bytes) = (addr, bytes)
            })],
            create,
        )?;
    }
    for (what, errno, addr, bytes) in bad.rows(rq.addr()) {
        let what = format!("an RQ {what}");
        refuses(
            good,
            &[(&what, errno, &|arg| {
                (arg.rq_buffer, arg.rq_buffer_bytes) = (addr, bytes)
            })],
            create,
        )?;
    }
    // The failed create leaves nothing: the CQ and the domain are free again.
    cq.destroy()?;
    pd.destroy()?;
    others.unharmed()
}

pub(super) fn attributes(setup: &Setup) -> Result<()> {
    let mut pair = Pair::open(0)?;
    let qp = &pair.a.qp;
    let before = qp.query()?;
    for (what, spoil) in [
        (
            "an unknown attribute",
            (|arg| arg.mask |= 1 << 4) as fn(&mut qpair_modify_qp),
        ),
        ("the last attribute", |arg| arg.mask |= 1 << 31),
        ("an unknown state", |arg| {
            (arg.mask, arg.state) = (QPAIR_QP_STATE, 6)
        }),
        ("a state that is far away", |arg| {
            (arg.mask, arg.state) = (QPAIR_QP_STATE, u32::MAX)
        }),
        ("retry 8", |arg| (arg.mask, arg.retry) = (QPAIR_QP_RETRY, 8)),
        ("RNR retry 8", |arg| {
            (arg.mask, arg.rnr_retry) = (QPAIR_QP_RETRY, 8)
        }),
        ("retry 256", |arg| {
            (arg.mask, arg.retry) = (QPAIR_QP_RETRY, 256)
        }),
        ("an unknown right", |arg| {
            (arg.mask, arg.access) = (QPAIR_QP_ACCESS, 1 << 4)
        }),
        ("a right past the first byte", |arg| {
            (arg.mask, arg.access) = (QPAIR_QP_ACCESS, 1 << 8)
        }),
        ("a right that is no peer's", |arg| {
            (arg.mask, arg.access) = (QPAIR_QP_ACCESS, QPAIR_ACCESS_LOCAL_WRITE)
        }),
        ("a peer when it has one", |arg| {
            (arg.mask, arg.peer) = (QPAIR_QP_PEER, 0x1_0005)
        }),
        ("reserved", |arg| arg.reserved = 1),
    ] {
        fails(what, Errno::EINVAL, qp.modify(spoil))?;
    }
    let after = qp.query()?;
    ensure!(
        format!("{before:?}") == format!("{after:?}"),
        "{before:?} became {after:?}"
    );
    pair.exchange(&mut setup.rng())
        .context("after all were refused")
}

pub(super) fn memory_regions(setup: &Setup) -> Result<()> {
    let mut others = Bystander::new(0, setup.rng())?;
    let ctx = Context::open(0)?;
    let pd = Pd::new(&ctx)?;
    let buffer = Buffer::new(16 << 10)?;
    let bad = BadBuffers::new(&ctx)?;
    let good = || qpair_reg_mr {
        addr: buffer.addr(),
        bytes: 8192,
        pd: pd.handle,
        access: QPAIR_ACCESS_LOCAL_WRITE,
        ..Default::default()
    };
    let register = |mut arg: qpair_reg_mr| {
        ctx.call(QPAIR_NR_REG_MR, &mut arg)?;
        destroy(&ctx, QPAIR_NR_DEREG_MR, arg.handle).map(drop)
    };
    refuses(
        good,
        &[
            ("no bytes", Errno::EINVAL, &|arg| arg.bytes = 0),
            ("an unknown right", Errno::EINVAL, &|arg| {
                arg.access = 1 << 4
            }),
            ("a right past the first byte", Errno::EINVAL, &|arg| {
                arg.access = 1 << 8
            }),
            ("reserved", Errno::EINVAL, &|arg| arg.reserved = 1),
            ("no domain", Errno::ENOENT, &|arg| arg.pd = 0),
            ("no address", Errno::EFAULT, &|arg| arg.addr = 0),
            ("the kernel's memory", Errno::EFAULT, &|arg| {
                arg.addr = 0xffff_8000_0000_0000
            }),
            ("the end of the address space", Errno::EOVERFLOW, &|arg| {
                arg.addr = u64::MAX - 4095
            }),
            (
                "one byte past the end of the address space",
                Errno::EOVERFLOW,
                &|arg| arg.addr = u64::MAX - 8190,
            ),
            ("more than there is", Errno::EOVERFLOW, &|arg| {
                arg.bytes = u64::MAX - 4095
            }),
            ("more than the device allows", Errno::EOVERFLOW, &|arg| {
                arg.bytes = ctx.info.max_mr_bytes + 1
            }),
            ("a hole in the middle", Errno::EFAULT, &|arg| {
                (arg.addr, arg.bytes) = (bad.hole.addr(), 16 << 10)
            }),
            ("a hole at the end", Errno::EFAULT, &|arg| {
                (arg.addr, arg.bytes) = (bad.hole.addr(), 8193)
            }),
            ("memory that is not writable", Errno::EFAULT, &|arg| {
                arg.addr = bad.read_only.addr()
            }),
            ("... for the peer", Errno::EFAULT, &|arg| {
                (arg.addr, arg.access) = (bad.read_only.addr(), QPAIR_ACCESS_REMOTE_WRITE)
            }),
            ("the doorbells", Errno::EFAULT, &|arg| {
                (arg.addr, arg.bytes) = (bad.doorbells, 4096)
            }),
            ("past the buffer", Errno::EFAULT, &|arg| {
                (arg.addr, arg.bytes) = (bad.small.addr(), 1 << 30)
            }),
        ],
        register,
    )?;
    // Read-only memory suffices for a region that is only read.
    let mut arg = qpair_reg_mr {
        addr: bad.read_only.addr(),
        access: QPAIR_ACCESS_REMOTE_READ,
        ..good()
    };
    ctx.call(QPAIR_NR_REG_MR, &mut arg)
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

pub(super) fn reads(setup: &Setup) -> Result<()> {
    let ctx = Context::open(0)?;
    for bytes in [0, 1, 15] {
        match ctx.read(&mut vec![0; bytes]) {
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => (),
            other => anyhow::bail!("reading {bytes} bytes gave {other:?}, expected EINVAL"),
        }
    }
    match ctx.read(&mut [0; 16]) {
        Err(error) if error.raw_os_error() == Some(libc::EAGAIN) => (),
        other => anyhow::bail!("reading without an event gave {other:?}, expected EAGAIN"),
    }
    works(0, &mut setup.rng())
}

/// No error of a process writes to the log.
pub(super) fn the_log_stays_quiet(setup: &Setup) -> Result<()> {
    let mut log = Log::mark()?;
    for case in [
        sizes,
        numbers,
        arguments,
        completion_queues,
        queue_pairs,
        memory_regions,
        handles_of_others,
    ] {
        case(setup)?;
    }
    let ctx = Context::open(0)?;
    let (pd, cq) = (Pd::new(&ctx)?, Cq::new(&ctx, 64)?);
    let qp = Qp::new(&pd, &cq, &cq, QpShape::default())?;
    for _ in 0..world::rounds(1000, 1000) {
        fails("SQD from RESET", Errno::EINVAL, qp.to(QPAIR_QPS_SQD))?;
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
