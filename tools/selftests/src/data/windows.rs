// SPDX-License-Identifier: GPL-2.0
//! Memory windows, and regions that are changed.

use anyhow::anyhow;
use anyhow::bail;
use anyhow::ensure;
use anyhow::Context as _;
use anyhow::Result;
use nix::errno::Errno;
use qpair_abi::entry::cqe_flags;
use qpair_abi::entry::opcode;
use qpair_abi::status::Detail;
use qpair_abi::status::Status;
use qpair_uverbs::abi::*;
use qpair_uverbs::Command;

use super::errors::all_fail;
use super::errors::wrong;
use crate::ktap::Setup;
use crate::pair::works;
use crate::pair::Pair;
use crate::raw::bound;
use crate::raw::page_size;
use crate::raw::Buffer;
use crate::raw::Context;
use crate::raw::Endless;
use crate::raw::Mr;
use crate::raw::Mw;
use crate::raw::Pd;
use crate::raw::Wqe;
use crate::raw::BINDABLE;
use crate::raw::EVERY_RIGHT;
use crate::raw::REMOTE_RIGHTS;
use crate::world;

/// Binds a window of the pair's second half to its memory: the key.
fn bind(pair: &mut Pair, window: u32, region: &Mr, at: u64, bytes: u64) -> Result<u32> {
    let b = &mut pair.b;
    let part = (b.memory.addr() + at, bytes, region.keys.lkey);
    b.qp.post(&Wqe::bind(70, window, part, REMOTE_RIGHTS));
    let cqe = b.done(70).context("the bind")?;
    ensure!(cqe.opcode == opcode::BIND, "{cqe:?}");
    Ok(bound(window))
}

/// Writes 8 bytes by a key; `Some` is the detail of a remote access error, after which the pair is
/// made new.
fn write(pair: &mut Pair, setup: &Setup, key: u32, at: u64) -> Result<Option<Detail>> {
    let word = setup.rng().u64(..);
    let addr = pair.b.memory.addr() + at;
    let a = &mut pair.a;
    a.memory.store(0, word);
    let wqe = a.with(Wqe::write(71, addr, key), 0, 8);
    a.qp.post(&wqe);
    let cqe = a.cq.take().context("a WRITE by a key")?;
    ensure!(cqe.wr_id == 71, "{cqe:?}");
    if cqe.status == Status::Success.code() {
        let found = pair.b.memory.load(at as usize);
        ensure!(found == word, "{found:#x} at {at:#x}, not {word:#x}");
        return Ok(None);
    }
    ensure!(cqe.status == Status::RemoteAccess.code(), "{cqe:?}");
    pair.renew()?;
    Ok(Detail::from_code(cqe.vendor))
}

/// A pair, and a region of the memory of its second half that windows can be bound to.
fn with_region() -> Result<(Pair, Mr)> {
    let pair = Pair::open(0)?;
    let memory = &pair.b.memory;
    let region = Mr::of(&pair.b.pd, memory.addr(), memory.bytes() as u64, BINDABLE)?;
    Ok((pair, region))
}

pub(super) fn windows_of_both_types(setup: &Setup) -> Result<()> {
    for mw_type in [1, 2] {
        let (mut pair, region) = with_region()?;
        let window = Mw::new(&pair.b.pd, mw_type)?;
        let refused = write(&mut pair, setup, window.key, 0)?;
        ensure!(refused == Some(Detail::Key), "not bound: {refused:?}");
        let key = bind(&mut pair, window.key, &region, 64, 64)?;
        for at in [64, 120] {
            ensure!(write(&mut pair, setup, key, at)?.is_none());
        }
        let busy = region.destroy();
        ensure!(busy == Err(Errno::EBUSY), "a bound region: {busy:?}");
        let arg = ib_uverbs_rereg_mr {
            flags: rereg::ACCESS,
            access_flags: BINDABLE,
            ..Default::default()
        };
        let busy = region.change(arg);
        ensure!(busy == Err(Errno::EBUSY), "a change of one: {busy:?}");
        ensure!(write(&mut pair, setup, key, 64)?.is_none(), "after both");
        let refused = write(&mut pair, setup, key, 128)?;
        // A reset of the queue pair ends type 2 alone.
        ensure!(refused == Some(Detail::Range), "past the end: {refused:?}");
        let refused = write(&mut pair, setup, key, 64)?;
        let expected = if mw_type == 1 {
            None
        } else {
            Some(Detail::Key)
        };
        ensure!(refused == expected, "after a reset: {refused:?}");
        let old = key;
        let key = bind(&mut pair, key, &region, 1024, 8)?;
        ensure!(write(&mut pair, setup, key, 1024)?.is_none());
        let refused = write(&mut pair, setup, old, 1024)?;
        ensure!(refused == Some(Detail::Key), "the key before: {refused:?}");
        let other = Mw::new(&pair.b.pd, mw_type)?;
        bind(&mut pair, other.key, &region, 0, 4096)?;
        window.destroy().context("a bound window")?;
        other.destroy().context("another one")?;
        region.destroy().context("a region without windows")?;
        let refused = write(&mut pair, setup, key, 1024)?;
        ensure!(
            refused == Some(Detail::Key),
            "of a window that is gone: {refused:?}"
        );
        pair.exchange(&mut setup.rng())?;
        pair.destroy()?;
    }
    Ok(())
}

pub(super) fn windows_that_are_invalidated(setup: &Setup) -> Result<()> {
    let (mut pair, region) = with_region()?;
    let window = Mw::new(&pair.b.pd, 2)?;
    let mut key = window.key;
    for round in 0..40 {
        key = bind(&mut pair, key, &region, 0, 4096)?;
        ensure!(write(&mut pair, setup, key, 8 * round)?.is_none());
        if round % 2 == 0 {
            pair.b.qp.post(&Wqe::invalidate(72, key));
            let cqe = pair.b.done(72)?;
            ensure!(cqe.opcode == opcode::LOCAL_INV, "{cqe:?}");
        } else {
            pair.b.receive(73, 0, 64);
            let wqe = pair.a.with(Wqe::send_invalidate(74, key), 0, 16);
            pair.a.qp.post(&wqe);
            pair.a.done(74)?;
            let cqe = pair.b.done(73)?;
            let got = (cqe.bytes, cqe.imm, cqe.flags);
            let expected = (16, key, cqe_flags::RECV | cqe_flags::INV);
            ensure!(got == expected, "{cqe:?}");
        }
        // Each eighth time, since a failed WRITE makes the pair new.
        if round % 8 < 2 {
            let refused = write(&mut pair, setup, key, 0)?;
            ensure!(refused == Some(Detail::Key), "{refused:?}");
        }
    }
    // One that cannot be invalidated fails the peer, which gives no answer.
    pair.b.receive(73, 0, 64);
    pair.a.qp.post(&Wqe::send_invalidate(74, key));
    pair.b.ends(73, Status::LocalAccess)?;
    let cqe = pair.a.ends(74, Status::RetryExceeded)?;
    ensure!(cqe.vendor == Detail::NotReady.code(), "{cqe:?}");
    pair.renew()?;
    region.destroy().context("a region without windows")
}

pub(super) fn bad_binds(setup: &Setup) -> Result<()> {
    use Detail::*;
    let mut pair = Pair::open(0)?;
    let a = &pair.a;
    let (addr, bytes) = (a.memory.addr(), a.memory.bytes() as u64);
    let region = Mr::of(&a.pd, addr, bytes, BINDABLE)?;
    let read_only = Mr::of(&a.pd, addr, 4096, IB_UVERBS_ACCESS_MW_BIND)?;
    let foreign = Mr::of(&pair.b.pd, pair.b.memory.addr(), 4096, BINDABLE)?;
    let (two, of_b) = (Mw::new(&a.pd, 2)?, Mw::new(&pair.b.pd, 2)?);
    let key = region.keys.lkey;
    let to = |region: &Mr| (addr, 64, region.keys.lkey);
    let bind = |window, part| Wqe::bind(0, window, part, REMOTE_RIGHTS);
    let (status, malformed) = (Status::WindowBind, Status::LocalQpOperation);
    let mut rights = bind(two.key, to(&region));
    rights.head.imm = 1 << 6;
    let with_sge = a.with(bind(two.key, to(&region)), 0, 8);
    let all = vec![
        wrong("no window", status, Key, bind(key, to(&region))),
        wrong(
            "of another domain",
            status,
            Domain,
            bind(of_b.key, to(&region)),
        ),
        wrong("no region", status, Key, bind(two.key, (addr, 64, 0))),
        wrong(
            "a foreign region",
            status,
            Domain,
            bind(two.key, to(&foreign)),
        ),
        wrong(
            "a region without the right",
            status,
            Rights,
            bind(two.key, to(&a.mr)),
        ),
        wrong(
            "a region to be read",
            status,
            Rights,
            bind(two.key, to(&read_only)),
        ),
        wrong(
            "before its start",
            status,
            Range,
            bind(two.key, (addr - 1, 64, key)),
        ),
        wrong(
            "past its end",
            status,
            Range,
            bind(two.key, (addr, bytes + 1, key)),
        ),
        wrong(
            "type 2 of nothing",
            status,
            Range,
            bind(two.key, (addr, 0, key)),
        ),
        wrong("an unknown right", malformed, Flags, rights),
        wrong("an SGE", malformed, Sges, with_sge),
        wrong("not bound", status, State, Wqe::invalidate(0, two.key)),
        wrong("the key of a region", status, Key, Wqe::invalidate(0, key)),
    ];
    all_fail(setup, &mut pair, all)
}

pub(super) fn changed_regions(setup: &Setup) -> Result<()> {
    let mut pair = Pair::open(0)?;
    let (memory, other) = (Buffer::new(8192)?, Buffer::new(3 << 20)?);
    let own = pair.b.memory.addr();
    let region = Mr::of(&pair.b.pd, own, 4096, EVERY_RIGHT)?;
    let key = region.keys.rkey;
    ensure!(write(&mut pair, setup, key, 0)?.is_none());
    let to = |buffer: &Buffer, iova| ib_uverbs_rereg_mr {
        flags: rereg::TRANS,
        start: buffer.addr(),
        length: buffer.bytes() as u64,
        hca_va: iova,
        ..Default::default()
    };
    // Other memory, of another size each time, at the old address.
    for buffer in [&memory, &other, &memory] {
        region.change(to(buffer, own))?;
        let last = buffer.bytes() - 8;
        pair.a.memory.store(8, last as u64);
        let wqe = Wqe::write(75, own + last as u64, key);
        let wqe = pair.a.with(wqe, 8, 8);
        pair.a.qp.post(&wqe);
        pair.a.done(75)?;
        ensure!(buffer.load(last) == last as u64, "not in the new memory");
        let now = region.query()?;
        ensure!(now.bytes == buffer.bytes() as u64, "{now:?}");
    }
    region.change(to(&pair.b.memory, own))?;
    // Rights, then the domain, then all of it.
    let rights = |access_flags| ib_uverbs_rereg_mr {
        flags: rereg::ACCESS,
        access_flags,
        ..Default::default()
    };
    region.change(rights(IB_UVERBS_ACCESS_LOCAL_WRITE))?;
    let refused = write(&mut pair, setup, key, 0)?;
    ensure!(refused == Some(Detail::Rights), "{refused:?}");
    region.change(rights(EVERY_RIGHT))?;
    ensure!(write(&mut pair, setup, key, 0)?.is_none());
    let pd = Pd::new(&pair.b.ctx)?;
    let domain = |pd: &Pd| ib_uverbs_rereg_mr {
        flags: rereg::PD,
        pd_handle: pd.handle,
        ..Default::default()
    };
    region.change(domain(&pd))?;
    let refused = write(&mut pair, setup, key, 0)?;
    ensure!(refused == Some(Detail::Domain), "{refused:?}");
    let busy = pd.destroy();
    ensure!(
        busy == Err(Errno::EBUSY),
        "the domain of a region: {busy:?}"
    );
    region.change(domain(&pair.b.pd))?;
    pd.destroy().context("a domain without regions")?;
    ensure!(write(&mut pair, setup, key, 0)?.is_none());
    region.change(ib_uverbs_rereg_mr {
        flags: rereg::TRANS | rereg::PD | rereg::ACCESS,
        pd_handle: pair.b.pd.handle,
        access_flags: EVERY_RIGHT,
        ..to(&pair.b.memory, own)
    })?;
    ensure!(write(&mut pair, setup, key, 0)?.is_none());
    region.destroy()?;
    pair.destroy()
}

/// A file is closed with bound windows: the kernel destroys regions and windows in any order.
pub(super) fn windows_of_a_file_that_is_closed(setup: &Setup) -> Result<()> {
    for round in 0..6 {
        let (mut pair, region) = with_region()?;
        let mut windows = Vec::new();
        for mw_type in [1, 2, 2, 1] {
            let window = Mw::new(&pair.b.pd, mw_type)?;
            bind(&mut pair, window.key, &region, 0, 512)?;
            windows.push(window);
        }
        let later = Mr::of(&pair.b.pd, pair.b.memory.addr(), 4096, BINDABLE)?;
        let last = Mw::new(&pair.b.pd, 2)?;
        bind(&mut pair, last.key, &later, 0, 8)?;
        if round % 2 == 0 {
            pair.b.qp.destroy()?;
        }
        drop(pair);
    }
    drop(Context::open(0)?);
    works(0, &mut setup.rng())
}

/// The answer to a register spans two pages. The keys are in the first; the second blocks, then the
/// write to it fails. Meanwhile another thread binds a window to the region. The register is undone,
/// and the kernel has nothing to warn of.
pub(super) fn bound_to_an_undone_region(setup: &Setup) -> Result<()> {
    let mut pair = Pair::open(0)?;
    let ctx = pair.b.ctx.clone();
    let regions = || world::of_context(0, ctx.info.limits.page, "mrs");
    let before = regions()?;
    let page = page_size();
    let answer = Endless::new(2 * page)?;
    answer.fill(page)?;
    let window = Mw::new(&pair.b.pd, 1)?;
    let arg = ib_uverbs_reg_mr {
        start: pair.b.memory.addr(),
        hca_va: pair.b.memory.addr(),
        length: page as u64,
        pd_handle: pair.b.pd.handle,
        access_flags: BINDABLE,
        ..Default::default()
    };
    // The handle and the local key are in the first page.
    let (at, bytes) = (answer.memory.addr() + page as u64 - 8, 12);
    let undone = std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            let command = Command::new(IB_USER_VERBS_CMD_REG_MR).request(&arg);
            ctx.run(command.part(UVERBS_ATTR_CORE_OUT, bytes, at))
        });
        answer.caught()?;
        let [.., a, b, c, d] = answer.memory.read(page - 8, 8)[..] else {
            bail!("no keys");
        };
        let lkey = u32::from_le_bytes([a, b, c, d]);
        let part = (pair.b.memory.addr(), 64, lkey);
        pair.b
            .qp
            .post(&Wqe::bind(75, window.key, part, REMOTE_RIGHTS));
        let bound = pair.b.done(75).context("the bind");
        answer.refuse()?;
        let result = thread.join().map_err(|_| anyhow!("the thread panicked"))?;
        bound?;
        Ok(result)
    })?;
    ensure!(undone == Err(Errno::EFAULT), "registered: {undone:?}");
    // It counts, until its domain goes.
    ensure!(regions()? == before + 1, "{} regions", regions()?);
    window.destroy().context("a window of an undone region")?;
    ensure!(regions()? == before + 1, "{} regions", regions()?);
    let pair = pair.destroy();
    pair.context("the domain of an undone region")?;
    ensure!(regions()? == 0, "{} regions are left", regions()?);
    works(0, &mut setup.rng())
}
