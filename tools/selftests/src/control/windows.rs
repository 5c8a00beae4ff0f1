// SPDX-License-Identifier: GPL-2.0
//! Memory windows, and changes of regions: what is refused, and that nothing is left.

use anyhow::ensure;
use anyhow::Context as _;
use anyhow::Result;
use nix::errno::Errno;
use qpair_uverbs::abi::*;

use super::fails;
use super::refuses;
use crate::ktap::Setup;
use crate::pair::works;
use crate::pair::Bystander;
use crate::raw::Buffer;
use crate::raw::Context;
use crate::raw::Kind;
use crate::raw::Mr;
use crate::raw::Mw;
use crate::raw::Pd;
use crate::raw::EVERY_RIGHT;

/// `IB_DEVICE_MEM_WINDOW` and `IB_DEVICE_MEM_WINDOW_TYPE_2B`.
const OF_WINDOWS: u32 = 1 << 17 | 1 << 24;

pub(super) fn memory_windows(setup: &Setup) -> Result<()> {
    let mut others = Bystander::new(0, setup.rng())?;
    let ctx = Context::open(0)?;
    let pd = Pd::new(&ctx)?;
    let device = ctx.query_device()?;
    let flags = device.device_cap_flags & OF_WINDOWS;
    ensure!(flags == OF_WINDOWS, "{:#x}", device.device_cap_flags);
    let good = || ib_uverbs_alloc_mw {
        pd_handle: pd.handle,
        mw_type: 2,
        ..Default::default()
    };
    let allocate = |arg: ib_uverbs_alloc_mw| {
        let made = ctx.alloc_mw(&arg)?;
        ctx.destroy(Kind::Mw, made.mw_handle)
    };
    refuses(
        good,
        &[
            ("no type", Errno::EINVAL, &|arg| arg.mw_type = 0),
            ("a third type", Errno::EINVAL, &|arg| arg.mw_type = 3),
            ("no domain", Errno::ENOENT, &|arg| arg.pd_handle = u32::MAX),
        ],
        allocate,
    )?;
    // All that a file may have.
    let mut windows = Vec::new();
    for count in 0..device.max_mw {
        let window = Mw::new(&pd, 1 + (count % 2) as u8);
        windows.push(window.with_context(|| format!("window {count}"))?);
    }
    fails("one more", Errno::EDQUOT, Mw::new(&pd, 1).map(drop))?;
    fails("their domain", Errno::EBUSY, pd.destroy())?;
    let mut keys: Vec<_> = windows.iter().map(|window| window.key).collect();
    keys.sort_unstable();
    keys.dedup();
    ensure!(keys.len() == windows.len(), "keys that are alike");
    for window in &windows {
        window.destroy()?;
    }
    fails("one that is gone", Errno::ENOENT, windows[0].destroy())?;
    pd.destroy().context("the domain, now empty")?;
    others.unharmed()
}

pub(super) fn changes_of_regions(setup: &Setup) -> Result<()> {
    let mut others = Bystander::new(0, setup.rng())?;
    let ctx = Context::open(0)?;
    let pd = Pd::new(&ctx)?;
    let (memory, read_only) = (Buffer::new(16 << 10)?, Buffer::new(8192)?);
    read_only.clear();
    read_only.protect(false)?;
    let region = Mr::of(&pd, memory.addr(), 8192, EVERY_RIGHT)?;
    let before = region.query()?;
    let good = || ib_uverbs_rereg_mr {
        mr_handle: region.keys.mr_handle,
        flags: rereg::TRANS | rereg::PD | rereg::ACCESS,
        start: memory.addr(),
        length: 8192,
        hca_va: memory.addr(),
        pd_handle: pd.handle,
        access_flags: EVERY_RIGHT,
        ..Default::default()
    };
    let change = |arg: ib_uverbs_rereg_mr| ctx.rereg_mr(&arg).map(drop);
    refuses(
        good,
        &[
            ("nothing", Errno::EINVAL, &|arg| arg.flags = 0),
            ("an unknown change", Errno::EOPNOTSUPP, &|arg| arg.flags = 8),
            ("no region", Errno::ENOENT, &|arg| arg.mr_handle = u32::MAX),
            ("no domain", Errno::ENOENT, &|arg| arg.pd_handle = u32::MAX),
            ("another offset in the page", Errno::EINVAL, &|arg| {
                arg.hca_va += 8
            }),
            ("more than the device allows", Errno::EOVERFLOW, &|arg| {
                arg.length = ctx.info.device.max_mr_size + 1
            }),
            ("no memory", Errno::EFAULT, &|arg| {
                (arg.start, arg.hca_va) = (0, 0)
            }),
            ("memory that is not writable", Errno::EFAULT, &|arg| {
                (arg.start, arg.hca_va) = (read_only.addr(), read_only.addr())
            }),
            ("a right of the peer alone", Errno::EINVAL, &|arg| {
                arg.access_flags = IB_UVERBS_ACCESS_REMOTE_WRITE
            }),
            ("a right of windows", Errno::EOPNOTSUPP, &|arg| {
                arg.access_flags = 1 << 5
            }),
        ],
        change,
    )?;
    ensure!(region.query()? == before, "the region is another");
    // Memory that was registered to be read.
    let weak = Mr::of(&pd, read_only.addr(), 8192, IB_UVERBS_ACCESS_REMOTE_READ)?;
    let rights = |access_flags| ib_uverbs_rereg_mr {
        flags: rereg::ACCESS,
        access_flags,
        ..Default::default()
    };
    fails(
        "a right to write",
        Errno::EACCES,
        weak.change(rights(EVERY_RIGHT)),
    )?;
    weak.change(rights(IB_UVERBS_ACCESS_MW_BIND))?;
    weak.change(ib_uverbs_rereg_mr {
        flags: rereg::ACCESS | rereg::TRANS,
        ..good()
    })
    .context("the right, and memory for it")?;
    weak.change(rights(IB_UVERBS_ACCESS_REMOTE_READ))?;
    weak.change(rights(EVERY_RIGHT))
        .context("it is writable now")?;
    weak.destroy()?;
    region.destroy()?;
    pd.destroy()?;
    others.unharmed()?;
    works(0, &mut setup.rng())
}
