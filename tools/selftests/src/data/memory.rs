// SPDX-License-Identifier: GPL-2.0
//! Memory of every kind, and changes to it by the process while the device uses it.

use std::os::fd::AsFd;
use std::sync::Arc;

use anyhow::ensure;
use anyhow::Context as _;
use anyhow::Result;
use nix::sys::memfd;
use qpair_abi::status::Status;
use qpair_uverbs::abi::*;

use crate::children::Child;
use crate::ktap::skip;
use crate::ktap::Setup;
use crate::pair::Bystander;
use crate::pair::Pair;
use crate::pair::Peer;
use crate::raw::Buffer;
use crate::raw::Context;
use crate::raw::Cq;
use crate::raw::Kind;
use crate::raw::Mr;
use crate::raw::Pd;
use crate::raw::Qp;
use crate::raw::QpShape;
use crate::raw::Wqe;
use crate::wait;
use crate::world;

/// Whether the function is behind an IOMMU, so that its DMA addresses are contiguous.
fn behind_an_iommu() -> Result<bool> {
    let address = world::function(0)?;
    Ok(std::path::Path::new(&format!("/sys/bus/pci/devices/{address}/iommu_group")).exists())
}

/// Moves random bytes through two buffers and compares them.
fn through(ctx: &Arc<Context>, a: Buffer, b: Buffer, setup: &Setup) -> Result<Pair> {
    let mut pair = Pair::of(
        Peer::shaped(ctx, a, QpShape::default())?,
        Peer::shaped(ctx, b, QpShape::default())?,
    )?;
    for _ in 0..3 {
        pair.exchange(&mut setup.rng())?;
    }
    Ok(pair)
}

/// Reserves huge pages of 2 MiB, or skips the case.
fn need_huge_pages(count: i64) -> Result<()> {
    let free = || world::field("/proc/meminfo", "HugePages_Free");
    if free()? < count {
        world::put("/proc/sys/vm/nr_hugepages", &count.to_string())?;
    }
    ensure!(
        free()? >= count,
        "the guest has no memory for {count} huge pages"
    );
    Ok(())
}

pub(super) fn huge_pages(setup: &Setup) -> Result<()> {
    need_huge_pages(4)?;
    let ctx = Context::open(0)?;
    let huge = || Buffer::huge(4 << 20).context("huge pages");
    through(&ctx, huge()?, huge()?, setup)?.destroy()?;
    world::put("/proc/sys/vm/nr_hugepages", "0")
}

/// Levels and page shift of a region in two huge pages.
fn levels_of_huge_pages(pd: &Pd) -> Result<(u32, u32)> {
    need_huge_pages(2)?;
    let buffer = Buffer::huge(4 << 20).context("huge pages")?;
    buffer.write(0, &[1]);
    buffer.write(2 << 20, &[1]);
    let mr = Mr::all(pd, &buffer)?;
    let told = mr.query()?;
    mr.destroy()?;
    drop(buffer);
    world::put("/proc/sys/vm/nr_hugepages", "0")?;
    Ok((told.levels, told.page_shift))
}

pub(super) fn scattered_pages(setup: &Setup) -> Result<()> {
    let ctx = Context::open(0)?;
    let mut rng = setup.rng();
    for bytes in [8 << 10, 60 << 10, 1 << 20, 6 << 20] {
        let (a, _between) = Buffer::scattered(bytes, &mut rng)?;
        let (b, _between) = Buffer::scattered(bytes, &mut rng)?;
        through(&ctx, a, b, setup)?.destroy()?;
    }
    // Rings of scattered pages, too.
    let pd = Pd::new(&ctx)?;
    let (ring, _between) = Buffer::scattered(256 << 10, &mut rng)?;
    let mut cq = Cq::in_buffer(&ctx, 8192, 0, ring, None)?;
    let (sq, _between) = Buffer::scattered(256 << 10, &mut rng)?;
    let (rq, _between) = Buffer::scattered(256 << 10, &mut rng)?;
    let shape = QpShape {
        sq_blocks: 4096,
        rq_depth: 4096,
        rq_stride: 0,
    };
    let mut qp = Qp::in_buffers(&pd, &cq, &cq, shape, sq, rq)?;
    qp.connect(qp.number)?;
    let memory = Buffer::new(4096)?;
    let mr = Mr::all(&pd, &memory)?;
    for number in 0..10_000u64 {
        memory.store(0, number);
        qp.post_recv(
            number,
            &[qpair_abi::entry::Sge {
                addr: memory.addr() + 8,
                bytes: 8,
                lkey: mr.keys.lkey,
            }],
        );
        qp.post(&Wqe::send(number).sge(memory.addr(), 8, mr.keys.lkey));
        for _ in 0..2 {
            let cqe = cq.take()?;
            ensure!(
                cqe.status == 0 && cqe.wr_id == number,
                "{cqe:?}, expected {number}"
            );
        }
        ensure!(memory.load(8) == number, "message {number}");
    }
    Ok(())
}

pub(super) fn shared_memory(setup: &Setup) -> Result<()> {
    let ctx = Context::open(0)?;
    let file = memfd::memfd_create(c"qpair", memfd::MFdFlags::MFD_CLOEXEC)?;
    nix::unistd::ftruncate(&file, 256 << 10)?;
    let map = || Buffer::of_file(file.as_fd(), 256 << 10, true);
    let (mine, other) = (map()?, map()?);
    let pair = through(&ctx, mine, Buffer::new(256 << 10)?, setup)?;
    pair.a.memory.write(1000, b"the same page");
    ensure!(
        other.read(1000, 13) == b"the same page",
        "the mapping lost its file"
    );
    // The device's writes are in the file.
    let mut pair = pair;
    pair.b.memory.write(0, b"by the device");
    let remote = pair.a.memory.addr() + 5000;
    let wqe = pair
        .b
        .with(Wqe::write(1, remote, pair.a.mr.keys.rkey), 0, 13);
    pair.b.qp.post(&wqe);
    pair.b.done(1)?;
    ensure!(
        other.read(5000, 13) == b"by the device",
        "{:?}",
        other.read(5000, 13)
    );
    Ok(())
}

/// The device can send from read-only memory, and the peer can read it.
pub(super) fn read_only_memory(setup: &Setup) -> Result<()> {
    let mut pair = Pair::open(0)?;
    let memory = Buffer::new(8192)?;
    memory.write(100, b"only to be read");
    memory.protect(false)?;
    let mr = Mr::of(
        &pair.a.pd,
        memory.addr(),
        8192,
        IB_UVERBS_ACCESS_REMOTE_READ,
    )?;
    let wqe = pair
        .b
        .with(Wqe::read(1, memory.addr() + 100, mr.keys.rkey), 0, 15);
    pair.b.qp.post(&wqe);
    pair.b.done(1)?;
    ensure!(pair.b.memory.read(0, 15) == b"only to be read");
    let wqe = pair
        .b
        .with(Wqe::write(2, memory.addr(), mr.keys.rkey), 0, 15);
    pair.b.qp.post(&wqe);
    pair.b.ends(2, Status::RemoteAccess)?;
    ensure!(memory.read(0, 15) == [0; 15], "it was written");
    pair.renew()?;
    pair.exchange(&mut setup.rng())
}

/// The pages stay pinned until the region is destroyed, whatever happens to the process's mapping.
pub(super) fn unmapped_while_in_use(setup: &Setup) -> Result<()> {
    let mut others = Bystander::new(0, setup.rng())?;
    let pinned = world::pinned_pages()?;
    let mut pair = Pair::open(0)?;
    let memory = Buffer::new(1 << 20)?;
    let (addr, pages) = (memory.addr(), 256);
    memory.write(0, b"before it went");
    let mr = Mr::all(&pair.a.pd, &memory)?;
    drop(memory);
    ensure!(
        world::pinned_pages()? - pinned >= pages,
        "the pages went with the mapping"
    );
    // Other memory at the same address must not be written.
    let other = Buffer::new(1 << 20)?;
    let at_same_place = other.addr() == addr;
    let wqe = pair.b.with(Wqe::read(1, addr, mr.keys.rkey), 0, 14);
    pair.b.qp.post(&wqe);
    pair.b.done(1)?;
    ensure!(
        pair.b.memory.read(0, 14) == b"before it went",
        "READ of unmapped memory"
    );
    for at in (0..1 << 20).step_by(64 << 10) {
        let wqe = pair
            .b
            .with(Wqe::write(2, addr + at, mr.keys.rkey), 0, 64 << 10);
        pair.b.qp.post(&wqe);
        pair.b.done(2)?;
    }
    ensure!(
        other.read(0, 1 << 20).iter().all(|byte| *byte == 0),
        "new memory was hit ({at_same_place})"
    );
    mr.destroy()?;
    pair.exchange(&mut setup.rng())?;
    others.unharmed()
}

/// A region is destroyed while the device uses it: nothing is written afterwards.
pub(super) fn deregistered_while_in_use(setup: &Setup) -> Result<()> {
    let mut others = Bystander::new(0, setup.rng())?;
    let mut rng = setup.rng();
    let ctx = Context::open(0)?;
    for round in 0..world::rounds(100, 100) {
        let bytes = 256 << 10;
        let a = Peer::shaped(&ctx, Buffer::new(bytes)?, QpShape::default())?;
        let b = Peer::shaped(&ctx, Buffer::new(bytes)?, QpShape::default())?;
        let Pair { mut a, mut b } = Pair::of(a, b)?;
        a.memory.write(0, &vec![0xaa; bytes]);
        for number in 0..16 {
            let remote = b.memory.addr();
            a.qp.put(&a.with(Wqe::write(number, remote, b.mr.keys.rkey), 0, bytes));
        }
        a.qp.ring_sq();
        let wanted = rng.u32(0..16);
        wait::until("the first of them", || Ok(a.cq.query()?.producer >= wanted))?;
        let which = if rng.bool() { &a.mr } else { &b.mr };
        which.destroy().with_context(|| format!("round {round}"))?;
        if which.keys.mr_handle == b.mr.keys.mr_handle {
            // From here on the device must not write the memory.
            b.memory.clear();
            for number in 0..16 {
                let cqe = a.cq.take()?;
                ensure!(cqe.wr_id == number, "{cqe:?}");
            }
            ensure!(
                b.memory.read(0, bytes).iter().all(|byte| *byte == 0),
                "written after the end of its region"
            );
        }
        for peer in [&mut a, &mut b] {
            peer.qp.destroy()?;
            peer.cq.destroy()?;
            let _ = peer.mr.destroy();
            peer.pd.destroy()?;
        }
        while ctx.async_event()?.is_some() {}
    }
    others.unharmed()
}

/// The rings' memory is unmapped while the queue pair works.
pub(super) fn rings_unmapped_while_in_use(setup: &Setup) -> Result<()> {
    let mut others = Bystander::new(0, setup.rng())?;
    let ctx = Context::open(0)?;
    let pd = Pd::new(&ctx)?;
    let cq = Cq::new(&ctx, 256)?;
    let mut qp = Qp::new(&pd, &cq, &cq, QpShape::default())?;
    qp.connect(qp.number)?;
    for number in 0..60 {
        qp.put(&Wqe::new(qpair_abi::entry::opcode::NOP, number));
    }
    qp.ring_sq();
    let (qp_handle, cq_handle) = (qp.handle, cq.handle);
    drop((qp, cq));
    ctx.destroy(Kind::Qp, qp_handle)?;
    ctx.destroy(Kind::Cq, cq_handle)?;
    pd.destroy()?;
    others.unharmed()
}

/// After a fork the pinned pages are still the parent's, whichever process writes first.
pub(super) fn fork_keeps_the_pages(setup: &Setup) -> Result<()> {
    let mut pair = Pair::open(0)?;
    pair.exchange(&mut setup.rng())?;
    let mut child = Child::start(|link| {
        // Wait until the parent has written, then write to the same pages.
        link.hear()?;
        for at in (0..pair.b.memory.bytes()).step_by(4096) {
            pair.b.memory.store(at, 0xdead);
        }
        link.tell(1)?;
        link.hear().map(drop)
    })?;
    for at in (0..pair.b.memory.bytes()).step_by(4096) {
        pair.b.memory.store(at + 8, 0x1234);
    }
    child.link().tell(1)?;
    child.link().hear()?;
    for _ in 0..5 {
        pair.exchange(&mut setup.rng())
            .context("after the child wrote to its copy")?;
    }
    child.link().tell(1)?;
    child.done()?;
    pair.exchange(&mut setup.rng())
        .context("after the child has ended")
}

fn levels_of(ctx: &Arc<Context>, pd: &Pd, bytes: usize, setup: &Setup) -> Result<(u32, u32)> {
    let (buffer, _between) = Buffer::scattered(bytes, &mut setup.rng())?;
    let mr = Mr::all(pd, &buffer)?;
    let told = mr.query()?;
    mr.destroy()?;
    // The levels are meaningless if the bytes do not arrive.
    let (copy, _between) = Buffer::scattered(bytes, &mut setup.rng())?;
    through(ctx, buffer, copy, setup)?.destroy()?;
    Ok((told.levels, told.page_shift))
}

/// Without an IOMMU the device sees physical pages.
pub(super) fn levels_without_iommu(setup: &Setup) -> Result<()> {
    if behind_an_iommu()? {
        return Err(skip("behind an IOMMU"));
    }
    let ctx = Context::open(0)?;
    let pd = Pd::new(&ctx)?;
    for (bytes, expected) in [
        (4096, (0, 0)),
        (64 << 10, (1, 12)),
        (1 << 20, (1, 12)),
        (16 << 20, (2, 12)),
    ] {
        let got = levels_of(&ctx, &pd, bytes, setup)?;
        ensure!(
            got == expected,
            "{bytes} scattered bytes: levels and shift {got:?}, expected {expected:?}"
        );
    }
    // Rings use the same code: a CQ of 64 KiB on scattered pages, and an SQ, of
    // which only the work shows it.
    let (ring, _between) = Buffer::scattered(64 << 10, &mut setup.rng())?;
    let cq = Cq::in_buffer(&ctx, 2048, 0, ring, None)?;
    let told = cq.query()?;
    ensure!((told.levels, told.page_shift) == (1, 12), "{told:?}");
    let (sq, _between) = Buffer::scattered(64 << 10, &mut setup.rng())?;
    let qp = Qp::in_buffers(
        &pd,
        &cq,
        &cq,
        QpShape {
            sq_blocks: 1024,
            rq_depth: 16,
            rq_stride: 0,
        },
        sq,
        Buffer::new(4096)?,
    )?;
    qp.destroy()?;
    // Two huge pages are two pages, or one block if they are neighbours.
    let (levels, shift) = levels_of_huge_pages(&pd)?;
    ensure!(
        levels == 0 || (levels, shift) == (1, 21),
        "two huge pages: {levels} levels of pages of 2^{shift}"
    );
    Ok(())
}

/// Behind an IOMMU a scattered buffer is one block.
pub(super) fn levels_with_iommu(setup: &Setup) -> Result<()> {
    if !behind_an_iommu()? {
        return Err(skip("not behind an IOMMU"));
    }
    let ctx = Context::open(0)?;
    let pd = Pd::new(&ctx)?;
    for bytes in [4096, 64 << 10, 1 << 20, 16 << 20] {
        let (levels, shift) = levels_of(&ctx, &pd, bytes, setup)?;
        ensure!(
            levels == 0,
            "{bytes} scattered bytes: {levels} levels of pages of 2^{shift}"
        );
    }
    let (levels, shift) = levels_of_huge_pages(&pd)?;
    ensure!(
        levels == 0,
        "two huge pages: {levels} levels of pages of 2^{shift}"
    );
    Ok(())
}

/// Behind an IOMMU, with a device that supports only pages of 4 KiB.
pub(super) fn levels_with_small_pages(setup: &Setup) -> Result<()> {
    if !behind_an_iommu()? {
        return Err(skip("not behind an IOMMU"));
    }
    let ctx = Context::open(0)?;
    let pd = Pd::new(&ctx)?;
    for (bytes, expected) in [
        (4096, (0, 0)),
        (8192, (1, 12)),
        (1 << 20, (1, 12)),
        (16 << 20, (2, 12)),
    ] {
        let got = levels_of(&ctx, &pd, bytes, setup)?;
        ensure!(
            got == expected,
            "{bytes} bytes: levels and shift {got:?}, expected {expected:?}"
        );
    }
    let got = levels_of_huge_pages(&pd)?;
    ensure!(
        got == (2, 12),
        "two huge pages: levels and shift {got:?}, expected (2, 12)"
    );
    Ok(())
}
