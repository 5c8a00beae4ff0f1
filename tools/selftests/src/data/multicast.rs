// SPDX-License-Identifier: GPL-2.0
//! Groups of multicast: a datagram to one is copied to each member that takes it.

use std::sync::Arc;

use anyhow::ensure;
use anyhow::Context as _;
use anyhow::Result;
use nix::errno::Errno;
use qpair_abi::counters::Counter;
use qpair_abi::entry::cqe_flags;
use qpair_abi::entry::Cqe;
use qpair_abi::entry::Sge;
use qpair_abi::entry::GRH_BYTES;
use qpair_abi::status::Status;
use qpair_abi::Number;
use qpair_uverbs::abi::*;

use crate::host::Host;
use crate::ktap::Setup;
use crate::pair::works;
use crate::pair::Bystander;
use crate::pair::Peer;
use crate::raw::group;
use crate::raw::Buffer;
use crate::raw::Context;
use crate::raw::Cq;
use crate::raw::Mr;
use crate::raw::Pd;
use crate::raw::Qp;
use crate::raw::QpShape;
use crate::raw::Wqe;

const KEY: u32 = 0x2222_2222;
const MEMORY: usize = 16 << 10;

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

/// What was sent to a group.
struct Sent {
    from: u32,
    gid: [u8; 16],
    data: Vec<u8>,
}

impl Sent {
    /// Checks the completion of a copy, which is at this place of the memory.
    fn check(&self, cqe: &Cqe, memory: &Buffer, at: usize) -> Result<()> {
        let bytes = self.data.len();
        ensure!(
            (cqe.src, cqe.flags) == (self.from, cqe_flags::RECV | cqe_flags::GRH)
                && cqe.status == Status::Success.code()
                && cqe.bytes as usize == GRH_BYTES + bytes,
            "{cqe:?}"
        );
        let grh = memory.read(at, GRH_BYTES);
        ensure!(grh[24..] == self.gid, "a header {grh:x?}");
        let got = memory.read(at + GRH_BYTES, bytes);
        ensure!(got == self.data, "{bytes} bytes differ");
        Ok(())
    }
}

fn random(rng: &mut fastrand::Rng, bytes: usize) -> Vec<u8> {
    (0..bytes).map(|_| rng.u8(..)).collect()
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
    let bytes = rng.usize(1..4096);
    let sent = Sent {
        from: from.qp.number,
        gid,
        data: random(rng, bytes),
    };
    from.memory.write(0, &sent.data);
    for member in &mut *members {
        member.memory.clear();
        member.receive(7, 64, GRH_BYTES + bytes);
    }
    let before = from.ctx.counter(Counter::Dropped)?;
    from.qp.post(&send(from, gid, bytes));
    from.done(6).context("the SEND")?;
    let now = from.ctx.counter(Counter::Dropped)? - before;
    ensure!(now == dropped, "{now} copies were dropped, not {dropped}");
    for (at, member) in members.iter_mut().enumerate() {
        let cqe = member.done(7).with_context(|| format!("member {at}"))?;
        sent.check(&cqe, &member.memory, 64)
            .with_context(|| format!("the copy of member {at}"))?;
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

/// Takes the completions of so many messages, of which the senders posted one after the other in
/// turn, and checks that each member has a copy of each. Returns the members and the completions of
/// the copies, by message.
fn take_copies(
    cq: &mut Cq,
    senders: &[Qp],
    members: &[Qp],
    messages: usize,
) -> Result<Vec<Vec<(usize, Cqe)>>> {
    let mut copies = vec![Vec::new(); messages];
    // The message of each sender whose SEND completes next.
    let mut next: Vec<usize> = (0..senders.len()).collect();
    for _ in 0..messages * (members.len() + 1) {
        let cqe = cq.take()?;
        let is_copy = cqe.flags & cqe_flags::RECV != 0;
        let from = if is_copy { cqe.src } else { cqe.qp.raw() };
        let sender = senders.iter().position(|qp| qp.number == from);
        let sender = sender.with_context(|| format!("an unknown sender: {cqe:?}"))?;
        let at = next[sender];
        let taken: &mut Vec<(usize, Cqe)> = copies
            .get_mut(at)
            .with_context(|| format!("one message too many: {cqe:?}"))?;
        if is_copy {
            let member = members.iter().position(|qp| qp.number == cqe.qp.raw());
            taken.push((member.with_context(|| format!("no member: {cqe:?}"))?, cqe));
            continue;
        }
        ensure!(
            (cqe.wr_id, cqe.status) == (at as u64, Status::Success.code()),
            "the SEND of message {at}: {cqe:?}"
        );
        // It is the last.
        let mut served: Vec<usize> = taken.iter().map(|(member, _)| *member).collect();
        served.sort_unstable();
        ensure!(
            served.iter().copied().eq(0..members.len()),
            "message {at} was copied to {served:?} before its SEND completed"
        );
        next[sender] += senders.len();
    }
    Ok(copies)
}

/// More members than a turn has copies, all on one CQ. The turns of two senders alternate, so the
/// copies of a message come between those of another.
pub(super) fn many_members(setup: &Setup) -> Result<()> {
    const MEMBERS: usize = 60;
    const SENDERS: usize = 2;
    /// Message `i` is of sender `i % SENDERS`.
    const MESSAGES: usize = 2 * SENDERS;
    /// Copies of a turn.
    const TURN: usize = 16;
    const BYTES: usize = 1024;
    const RECEIVE: usize = GRH_BYTES + BYTES;
    let (mut host, mut rng) = (Host::call()?, setup.rng());
    let mut others = Bystander::new(0, setup.rng())?;
    let ctx = Context::open(0)?;
    let pd = Pd::new(&ctx)?;
    let mut cq = Cq::new(&ctx, (MESSAGES * (MEMBERS + 1)) as u32)?;
    // The messages, then the receives of each member.
    let memory = Buffer::new(MESSAGES * (BYTES + MEMBERS * RECEIVE))?;
    let mr = Mr::all(&pd, &memory)?;
    let sge = |at: usize, bytes: usize| Sge {
        addr: memory.addr() + at as u64,
        bytes: bytes as u32,
        lkey: mr.keys.lkey,
    };
    let place =
        |member: usize, receive: usize| MESSAGES * BYTES + (member * MESSAGES + receive) * RECEIVE;
    let shape = QpShape {
        sq_blocks: 16,
        rq_depth: MESSAGES as u32,
        rq_stride: 0,
    };
    let ud = || -> Result<Qp> {
        let qp = Qp::of_service(IB_UVERBS_QPT_UD, &pd, &cq, shape)?;
        qp.start_ud(KEY)?;
        Ok(qp)
    };
    let mut members = Vec::new();
    for member in 0..MEMBERS {
        let mut qp = ud()?;
        qp.attach(group(1))?;
        for receive in 0..MESSAGES {
            qp.post_recv(receive as u64, &[sge(place(member, receive), RECEIVE)]);
        }
        members.push(qp);
    }
    let mut senders = [ud()?, ud()?];
    let turns = ctx.counter(Counter::Turns)?;
    let mut messages = Vec::new();
    for at in 0..MESSAGES {
        let sent = Sent {
            from: senders[at % SENDERS].number,
            gid: group(1),
            data: random(&mut rng, BYTES),
        };
        memory.write(at * BYTES, &sent.data);
        messages.push(sent);
    }
    // Both senders have work when the core goes on, so they alternate.
    host.set(0, "stall", true)?;
    for (at, sent) in messages.iter().enumerate() {
        let Sge { addr, bytes, lkey } = sge(at * BYTES, BYTES);
        let wqe = Wqe::send(at as u64).sge(addr, bytes, lkey);
        senders[at % SENDERS].post(&wqe.to(sent.gid, Number::GROUP.raw(), KEY));
    }
    host.set(0, "stall", false)?;

    let copies = take_copies(&mut cq, &senders, &members, MESSAGES)?;
    let turns = ctx.counter(Counter::Turns)? - turns;
    let least = (MESSAGES * MEMBERS / TURN) as u64;
    ensure!(turns >= least, "{turns} turns, at least {least} expected");
    // Only now, so that a copy over another one shows.
    for (at, (sent, copies)) in messages.iter().zip(copies).enumerate() {
        for (member, cqe) in copies {
            let receive = cqe.wr_id as usize;
            ensure!(receive < MESSAGES, "an unknown receive: {cqe:?}");
            sent.check(&cqe, &memory, place(member, receive))
                .with_context(|| format!("message {at} at member {member}"))?;
        }
    }
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
