// SPDX-License-Identifier: GPL-2.0
//! Operations of an open file: each command, and `open`, `mmap`, `close`.

use anyhow::Context as _;
use anyhow::Result;
use nix::errno::Errno;
use qpair_uverbs::abi::ib_uverbs_rereg_mr;
use qpair_uverbs::abi::qp_state;
use qpair_uverbs::abi::rereg;
use qpair_uverbs::abi::IB_UVERBS_QPT_UD;

use super::nth::Faults;
use crate::ktap::Setup;
use crate::pair::Pair;
use crate::raw::group;
use crate::raw::page_size;
use crate::raw::Buffer;
use crate::raw::Context;
use crate::raw::Cq;
use crate::raw::Mr;
use crate::raw::Mw;
use crate::raw::Page;
use crate::raw::Pd;
use crate::raw::Qp;
use crate::raw::QpShape;
use crate::raw::Srq;
use crate::raw::EVERY_RIGHT;

/// The set-up of operations that need none.
fn nothing() -> Result<()> {
    Ok(())
}

/// Accepts that an object is already destroyed: its destroy may fail before or after taking effect.
fn ended<T>(result: Result<T, Errno>) -> Result<()> {
    match result {
        Ok(_) | Err(Errno::ENOENT) => Ok(()),
        Err(errno) => Err(errno).context("ending it"),
    }
}

pub(super) fn creates(setup: &Setup) -> Result<()> {
    let ctx = Context::open(0)?;
    let (pd, cq) = (Pd::new(&ctx)?, Cq::new(&ctx, 256)?);
    let mut faults = Faults::new(setup)?;
    faults.try_all(
        "ALLOC_PD",
        1,
        nothing,
        |()| Ok(Pd::new(&ctx)?),
        |(), pd| Ok(pd.map_or(Ok(()), |pd| pd.destroy())?),
    )?;
    faults.try_all(
        "ALLOC_MW",
        1,
        nothing,
        |()| Ok(Mw::new(&pd, 2)?),
        |(), mw| Ok(mw.map_or(Ok(()), |mw| mw.destroy())?),
    )?;
    // Its ring is untouched memory: pinning must allocate it.
    faults.try_all(
        "CREATE_CQ",
        6,
        nothing,
        |()| Cq::new(&ctx, 256),
        |(), cq| Ok(cq.map_or(Ok(()), |cq| cq.destroy())?),
    )?;
    faults.try_all(
        "CREATE_QP",
        8,
        nothing,
        |()| Qp::new(&pd, &cq, &cq, QpShape::default()),
        |(), qp| qp.map_or(Ok(()), |qp| ended(qp.destroy())),
    )?;
    faults.try_all(
        "CREATE_SRQ",
        6,
        nothing,
        |()| Srq::new(&pd, 64),
        |(), srq| srq.map_or(Ok(()), |srq| ended(srq.destroy())),
    )
}

/// Regions with one block, with a table of pages, and with tables of tables, whose list of pages is
/// allocated in one piece and in several.
pub(super) fn regions(setup: &Setup) -> Result<()> {
    let ctx = Context::open(0)?;
    let pd = Pd::new(&ctx)?;
    let mut faults = Faults::new(setup)?;
    for (name, least, pages) in [
        ("REG_MR of a page", 4, 1),
        ("REG_MR of 200 pages", 8, 200),
        ("REG_MR of 600 pages", 10, 600),
    ] {
        let (memory, _between) = Buffer::scattered(pages * page_size(), &mut setup.rng())?;
        // The pages are present and stay: only the driver's own steps are fault points.
        faults.settle_here()?;
        faults.try_all(
            name,
            least,
            nothing,
            |()| Ok(Mr::all(&pd, &memory)?),
            |(), mr| Ok(mr.map_or(Ok(()), |mr| mr.destroy())?),
        )?;
    }
    Ok(())
}

pub(super) fn changes_and_ends(setup: &Setup) -> Result<()> {
    let ctx = Context::open(0)?;
    let (pd, cq) = (Pd::new(&ctx)?, Cq::new(&ctx, 256)?);
    let memory = Buffer::new(page_size())?;
    let new_qp = || Qp::new(&pd, &cq, &cq, QpShape::default());
    let mut faults = Faults::new(setup)?;
    // The change may have taken effect although its result cannot be written back.
    faults.try_all(
        "MODIFY_QP",
        1,
        new_qp,
        |qp| Ok(qp.to(qp_state::INIT)?),
        |qp, _| ended(qp.destroy()),
    )?;
    // A member is not destroyed: what was attached can be detached.
    let leave = |qp: Qp| match qp.detach(group(1)) {
        Ok(()) | Err(Errno::EINVAL) => ended(qp.destroy()),
        Err(errno) => Err(errno).context("DETACH_MCAST"),
    };
    let new_ud = || Qp::of_service(IB_UVERBS_QPT_UD, &pd, &cq, QpShape::default());
    faults.try_all(
        "ATTACH_MCAST",
        1,
        new_ud,
        |qp| Ok(qp.attach(group(1))?),
        |qp, _| leave(qp),
    )?;
    faults.try_all(
        "DETACH_MCAST",
        0,
        || {
            let qp = new_ud()?;
            qp.attach(group(1))?;
            Ok(qp)
        },
        |qp| Ok(qp.detach(group(1))?),
        |qp, _| leave(qp),
    )?;
    faults.try_all(
        "DESTROY_QP",
        0,
        new_qp,
        |qp| Ok(qp.destroy()?),
        |qp, _| ended(qp.destroy()),
    )?;
    faults.try_all(
        "MODIFY_SRQ",
        0,
        || Srq::new(&pd, 64),
        |srq| Ok(srq.arm(1)?),
        |srq, _| ended(srq.destroy()),
    )?;
    faults.try_all(
        "MODIFY_SRQ, another ring",
        4,
        || Srq::new(&pd, 64),
        |srq| srq.resize(256),
        |srq, _| ended(srq.destroy()),
    )?;
    faults.try_all(
        "DESTROY_SRQ",
        0,
        || Srq::new(&pd, 64),
        |srq| Ok(srq.destroy()?),
        |srq, _| ended(srq.destroy()),
    )?;
    faults.try_all(
        "DESTROY_CQ",
        0,
        || Cq::new(&ctx, 256),
        |cq| Ok(cq.destroy()?),
        |cq, _| ended(cq.destroy()),
    )?;
    let other = Buffer::new(200 * page_size())?;
    other.clear();
    // The region is the old or the new one, whatever fails.
    faults.try_all(
        "REREG_MR",
        4,
        || Ok(Mr::all(&pd, &memory)?),
        |mr| {
            Ok(mr.change(ib_uverbs_rereg_mr {
                flags: rereg::TRANS | rereg::ACCESS,
                start: other.addr(),
                length: other.bytes() as u64,
                hca_va: other.addr(),
                access_flags: EVERY_RIGHT,
                ..Default::default()
            })?)
        },
        |mr, _| Ok(mr.destroy()?),
    )?;
    faults.try_all(
        "DEALLOC_MW",
        0,
        || Ok(Mw::new(&pd, 1)?),
        |mw| Ok(mw.destroy()?),
        |mw, _| ended(mw.destroy()),
    )?;
    faults.try_all(
        "DEREG_MR",
        0,
        || Ok(Mr::all(&pd, &memory)?),
        |mr| Ok(mr.destroy()?),
        |mr, _| ended(mr.destroy()),
    )?;
    faults.try_all(
        "DEALLOC_PD",
        0,
        || Ok(Pd::new(&ctx)?),
        |pd| Ok(pd.destroy()?),
        |pd, _| ended(pd.destroy()),
    )
}

pub(super) fn files(setup: &Setup) -> Result<()> {
    let mut faults = Faults::new(setup)?;
    faults.try_all(
        "open",
        4,
        nothing,
        |()| Ok(Context::open_file(0)?),
        |(), file| {
            drop(file);
            Ok(())
        },
    )?;
    let file = Context::open_file(0)?;
    faults.settle_here()?;
    faults.try_all(
        "mmap, and the first doorbell",
        0,
        nothing,
        |()| {
            // The core has this errno for a lack of memory.
            let page = Page::map(std::os::fd::AsFd::as_fd(&file)).map_err(|errno| match errno {
                Errno::EAGAIN => Errno::ENOMEM,
                other => other,
            })?;
            page.load(0);
            Ok(page)
        },
        |(), page| {
            drop(page);
            Ok(())
        },
    )?;
    drop(file);
    faults.settle_here()?;
    faults.try_all(
        "close",
        0,
        || Ok(Some(Pair::open(0)?)),
        |pair| {
            drop(pair.take());
            Ok(())
        },
        |_, _| Ok(()),
    )
}
