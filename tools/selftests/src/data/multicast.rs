// SPDX-License-Identifier: GPL-2.0
//! Groups of multicast: a datagram to one is copied to each member that takes it.

use std::sync::Arc;

use anyhow::ensure;
use anyhow::Context as _;
use anyhow::Result;
use nix::errno::Errno;
use qpair_abi::counters::Counter;
use qpair_abi::entry::cqe_flags;
use qpair_abi::entry::GRH_BYTES;
use qpair_abi::Number;
use qpair_uverbs::abi::*;

use crate::host::Host;
use crate::ktap::Setup;
use crate::pair::works;
use crate::pair::Bystander;
use crate::pair::Peer;
use crate::raw::Context;
use crate::raw::Qp;
use crate::raw::QpShape;
use crate::raw::Wqe;

const KEY: u32 = 0x2222_2222;
const MEMORY: usize = 16 << 10;

/// A GID of multicast.
pub fn group(number: u16) -> [u8; 16] {
    let [high, low] = number.to_be_bytes();
    [
        0xff, 0x12, 0x60, 0x1b, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, high, low,
    ]
}

/// 239.1.2.3, mapped to an address of IPv6.
const MAPPED: [u8; 16] = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 239, 1, 2, 3];

/// A queue pair of UD in RTS, with its objects.
fn peer(ctx: &Arc<Context>) -> Result<Peer> {
    let peer = Peer::of_service(ctx, IB_UVERBS_QPT_UD, MEMORY)?;
    peer.qp.start_ud(KEY).context("to RTS")?;
    Ok(peer)
}

/// A SEND to a group.
fn send(from: &Peer, gid: [u8; 16], bytes: usize) -> Wqe {
    let wqe = from.with(Wqe::send(6), 0, bytes);
    wqe.to(gid, Number::GROUP.raw(), KEY)
}

/// Sends random bytes to a group, and checks that these peers have a copy, and that so many were
/// dropped. The sender is none of them.
fn exchange(
    from: &mut Peer,
    gid: [u8; 16],
    members: &mut [&mut Peer],
    dropped: u64,
    rng: &mut fastrand::Rng,
) -> Result<()> {
    let data: Vec<u8> = (0..rng.usize(1..4096)).map(|_| rng.u8(..)).collect();
    from.memory.write(0, &data);
    for member in &mut *members {
        member.memory.clear();
        member.receive(7, 64, GRH_BYTES + data.len());
    }
    let before = from.ctx.counter(Counter::Dropped)?;
    from.qp.post(&send(from, gid, data.len()));
    from.done(6).context("the SEND")?;
    let now = from.ctx.counter(Counter::Dropped)? - before;
    ensure!(now == dropped, "{now} copies were dropped, not {dropped}");
    for (at, member) in members.iter_mut().enumerate() {
        let cqe = member.done(7).with_context(|| format!("member {at}"))?;
        let flags = cqe_flags::RECV | cqe_flags::GRH;
        ensure!(
            (cqe.src, cqe.flags) == (from.qp.number, flags)
                && cqe.bytes as usize == GRH_BYTES + data.len(),
            "{cqe:?} of member {at}"
        );
        let grh = member.memory.read(64, GRH_BYTES);
        ensure!(grh[24..] == gid, "a header {grh:x?}");
        let got = member.memory.read(64 + GRH_BYTES, data.len());
        ensure!(got == data, "{} bytes differ", data.len());
    }
    Ok(())
}

pub(super) fn copies_to_members(setup: &Setup) -> Result<()> {
    let (mut others, mut rng) = (Bystander::new(0, setup.rng())?, setup.rng());
    let ctx = Context::open(0)?;
    let (mut a, mut b) = (peer(&ctx)?, peer(&ctx)?);
    let mut c = peer(&Context::open(0)?)?;
    for gid in [group(1), MAPPED] {
        exchange(&mut a, gid, &mut [], 1, &mut rng).context("no group")?;
        b.qp.attach(gid)?;
        c.qp.attach(gid)?;
        for _ in 0..10 {
            exchange(&mut a, gid, &mut [&mut b, &mut c], 0, &mut rng)?;
            // A member has no receive for its own.
            exchange(&mut c, gid, &mut [&mut b], 1, &mut rng)?;
        }
        exchange(&mut a, group(2), &mut [], 1, &mut rng).context("another group")?;
        // Another number at the GID of the group, and another Q_Key.
        let before = ctx.counter(Counter::Dropped)?;
        let wqe = a.with(Wqe::send(6), 0, 8);
        a.qp.post(&wqe.clone().to(gid, b.qp.number, KEY));
        a.done(6)?;
        a.qp.post(&wqe.to(gid, Number::GROUP.raw(), KEY + 1));
        a.done(6)?;
        let dropped = ctx.counter(Counter::Dropped)? - before;
        ensure!(dropped == 3, "{dropped} were dropped");
        // A receive that is too short drops one copy.
        c.receive(7, 0, GRH_BYTES);
        b.receive(8, 0, GRH_BYTES + 1);
        a.qp.post(&send(&a, gid, 1));
        a.done(6)?;
        b.done(8)?;
        c.idle()?;
        a.qp.post(&send(&a, gid, 0));
        a.done(6)?;
        c.done(7).context("the receive that stays")?;
        b.qp.detach(gid)?;
        exchange(&mut a, gid, &mut [&mut c], 0, &mut rng).context("the other has left")?;
        c.qp.detach(gid)?;
    }
    for peer in [&a, &b, &c] {
        ensure!(peer.ctx.async_event()?.is_none(), "an event");
        peer.destroy()?;
    }
    others.unharmed()
}

/// More members than a turn has copies, all on one CQ.
pub(super) fn many_members(setup: &Setup) -> Result<()> {
    const MEMBERS: usize = 60;
    let mut others = Bystander::new(0, setup.rng())?;
    let ctx = Context::open(0)?;
    let mut a = Peer::of_service(&ctx, IB_UVERBS_QPT_UD, MEMORY)?;
    a.qp.start_ud(KEY)?;
    let shape = QpShape {
        sq_blocks: 4,
        rq_depth: 2,
        rq_stride: 0,
    };
    let mut members = Vec::new();
    for _ in 0..MEMBERS {
        let mut qp = Qp::of_service(IB_UVERBS_QPT_UD, &a.pd, &a.cq, shape)?;
        qp.start_ud(KEY)?;
        qp.attach(group(1))?;
        let sge = a.sge(4096, 4096);
        qp.post_recv(7, &[sge]);
        members.push(qp);
    }
    let turns = ctx.counter(Counter::Turns)?;
    a.qp.post(&send(&a, group(1), 1024));
    let mut served: Vec<u32> = Vec::new();
    for _ in 0..MEMBERS {
        served.push(a.cq.take()?.qp.raw());
    }
    a.done(6).context("the SEND is the last")?;
    served.sort_unstable();
    let mut all: Vec<u32> = members.iter().map(|qp| qp.number).collect();
    all.sort_unstable();
    ensure!(served == all, "{served:x?} had a copy, not {all:x?}");
    let turns = ctx.counter(Counter::Turns)? - turns;
    ensure!(turns >= 4, "{turns} turns for {MEMBERS} copies");
    others.unharmed()
}

/// A membership outlives RESET, and ends with the queue pair or its file.
pub(super) fn membership_ends(setup: &Setup) -> Result<()> {
    let (mut host, mut rng) = (Host::call()?, setup.rng());
    drop(Context::open(0)?);
    let objects = host.get(0, "objects")?;
    let mut a = peer(&Context::open(0)?)?;
    let mut b = peer(&Context::open(0)?)?;
    b.qp.attach(group(1))?;
    b.qp.attach(group(2))?;
    let attached = host.get(0, "objects")?;
    b.qp.reset()?;
    let now = host.get(0, "objects")?;
    ensure!(now == attached - 2, "{attached} objects, {now} in RESET");
    b.qp.start_ud(KEY)?;
    let now = host.get(0, "objects")?;
    ensure!(now == attached, "{attached} objects, {now} after RESET");
    exchange(&mut a, group(2), &mut [&mut b], 0, &mut rng).context("after RESET")?;
    let kept = b.qp.destroy();
    ensure!(kept == Err(Errno::EBUSY), "a member is destroyed: {kept:?}");
    b.qp.detach(group(1))?;
    let now = host.get(0, "objects")?;
    ensure!(now == attached - 1, "{now} objects after it was detached");
    drop(b);
    exchange(&mut a, group(2), &mut [], 1, &mut rng).context("its file is closed")?;
    // A process that ends in the midst of datagrams to itself.
    for _ in 0..4 {
        let mut c = peer(&Context::open(0)?)?;
        for number in 0..8 {
            c.qp.attach(group(number))?;
        }
        for _ in 0..8 {
            c.receive(7, 64, 4096);
            let wqe = send(&c, group(rng.u16(..8)), 1024);
            c.qp.post(&wqe);
        }
        drop(c);
    }
    drop(a);
    drop(Context::open(0)?);
    let now = host.get(0, "objects")?;
    ensure!(now == objects, "{now} objects are left, not {objects}");
    works(0, &mut setup.rng())
}
