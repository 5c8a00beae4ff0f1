// SPDX-License-Identifier: GPL-2.0
//! Queue pairs of UC: a message is delivered, or dropped and counted. The sender completes with
//! success either way.

use std::sync::Arc;

use anyhow::ensure;
use anyhow::Context as _;
use anyhow::Result;
use nix::errno::Errno;
use qpair_abi::entry::opcode;
use qpair_abi::status::Status;
use qpair_uverbs::abi::*;

use super::datagrams::fails_alone;
use super::datagrams::is_dropped;
use super::errors::is_fatal;
use crate::ktap::Setup;
use crate::pair::Bystander;
use crate::pair::Pair;
use crate::pair::Peer;
use crate::raw::change;
use crate::raw::change_uc;
use crate::raw::Context;
use crate::raw::Mr;
use crate::raw::Wqe;
use crate::raw::REMOTE_RIGHTS;

const MEMORY: usize = 256 << 10;

/// Two connected queue pairs of UC.
fn connected(a: &Arc<Context>, b: &Arc<Context>) -> Result<Pair> {
    let peer = |ctx| Peer::of_service(ctx, IB_UVERBS_QPT_UC, MEMORY);
    let (a, b) = (peer(a)?, peer(b)?);
    a.qp.start_uc(b.qp.number).context("a to RTS")?;
    b.qp.start_uc(a.qp.number).context("b to RTS")?;
    Ok(Pair { a, b })
}

/// Sends random bytes by each operation, and checks what arrives.
fn exchange(from: &mut Peer, to: &mut Peer, rng: &mut fastrand::Rng) -> Result<()> {
    for (code, imm) in [
        (opcode::SEND, false),
        (opcode::SEND, true),
        (opcode::WRITE, false),
        (opcode::WRITE, true),
    ] {
        let bytes = rng.usize(..=MEMORY / 2);
        let at = rng.usize(..MEMORY / 2);
        let data: Vec<u8> = (0..bytes).map(|_| rng.u8(..)).collect();
        from.memory.write(0, &data);
        to.memory.clear();
        let remote = to.memory.addr() + at as u64;
        let wqe = match code {
            opcode::SEND => Wqe::send(6),
            _ => Wqe::write(6, remote, to.mr.keys.rkey),
        };
        let receives = imm || code == opcode::SEND;
        if receives {
            to.receive(7, at, bytes);
        }
        let wqe = from.with(wqe, 0, bytes);
        from.qp.post(&if imm { wqe.imm(0x1234_5678) } else { wqe });
        if receives {
            let cqe = to.done(7).context("the receive")?;
            let expected = (bytes as u32, if imm { 0x1234_5678 } else { 0 });
            ensure!((cqe.bytes, cqe.imm) == expected, "{cqe:?}");
        }
        from.done(6).context("the message")?;
        ensure!(to.memory.read(at, bytes) == data, "{bytes} bytes differ");
    }
    Ok(())
}

pub(super) fn uc_messages(setup: &Setup) -> Result<()> {
    let mut rng = setup.rng();
    let mut pair = connected(&Context::open(0)?, &Context::open(0)?)?;
    for _ in 0..10 {
        exchange(&mut pair.a, &mut pair.b, &mut rng)?;
        exchange(&mut pair.b, &mut pair.a, &mut rng)?;
    }
    for peer in [&pair.a, &pair.b] {
        ensure!(peer.ctx.async_event()?.is_none(), "an event");
    }
    pair.destroy()
}

pub(super) fn uc_messages_dropped(setup: &Setup) -> Result<()> {
    let mut others = Bystander::new(0, setup.rng())?;
    let mut pair = connected(&Context::open(0)?, &Context::open(0)?)?;
    let Pair { a, b } = &mut pair;
    let (remote, rkey) = (b.memory.addr(), b.mr.keys.rkey);
    let end = remote + MEMORY as u64;
    let weak = Mr::of(&b.pd, remote, 4096, IB_UVERBS_ACCESS_LOCAL_WRITE)?;
    let send = a.with(Wqe::send(1), 0, 64);
    let write = |addr, key| a.with(Wqe::write(1, addr, key), 0, 64);
    let cases = [
        ("no key", write(remote, 0)),
        ("a key of its own", write(remote, a.mr.keys.rkey)),
        ("no right", write(remote, weak.keys.rkey)),
        ("before the start", write(remote - 1, rkey)),
        ("behind the end", write(end - 63, rkey)),
    ];
    let long = a.with(Wqe::send(1), 0, 65);
    let good = write(remote, rkey);
    a.memory.write(0, &[0xa5; 64]);
    is_dropped(a, &send, "no receive")?;
    is_dropped(a, &good.clone().imm(5), "no receive to take")?;
    b.receive(7, 128, 64);
    is_dropped(a, &long, "longer than the receive")?;
    for (what, wqe) in &cases {
        is_dropped(a, wqe, what)?;
        is_dropped(a, &wqe.clone().imm(5), what)?;
    }
    ensure!(b.memory.read(0, 64) == [0; 64], "some of it was written");
    b.idle()?;
    a.qp.post(&send);
    b.done(7).context("the receive of all that")?;
    a.done(1)?;
    for state in [qp_state::ERR, qp_state::RESET] {
        b.qp.modify(change(qp_state::RTS, state))?;
        is_dropped(a, &good, "a state that does not receive")?;
    }
    b.qp.reset()?;
    b.qp.start_uc(a.qp.number)?;
    exchange(a, b, &mut setup.rng())?;
    b.qp.destroy()?;
    is_dropped(a, &good, "a peer that is gone")?;
    for peer in [a, b] {
        ensure!(peer.ctx.async_event()?.is_none(), "an event of a drop");
    }
    others.unharmed()
}

pub(super) fn uc_queue_pairs_that_fail(setup: &Setup) -> Result<()> {
    let mut others = Bystander::new(0, setup.rng())?;
    let mut pair = connected(&Context::open(0)?, &Context::open(0)?)?;
    let Pair { a, b } = &mut pair;
    let (remote, rkey) = (b.memory.addr(), b.mr.keys.rkey);
    let good = a.with(Wqe::send(1), 0, 64);
    // Operations that UC lacks, and memory of another.
    let spoilt = [
        (Wqe::read(2, remote, rkey), Status::LocalQpOperation),
        (Wqe::fetch_add(2, remote, rkey, 1), Status::LocalQpOperation),
        (b.with(Wqe::send(2), 0, 8), Status::LocalProtection),
    ];
    for (wqe, status) in spoilt {
        b.receive(7, 0, 4096);
        fails_alone(a, b, (&wqe, status), &good)?;
        a.qp.reset()?;
        a.qp.start_uc(b.qp.number)?;
        a.qp.post(&good);
        b.done(7)?;
        a.done(1)?;
    }
    // A receive of another's memory: only its queue pair fails.
    let sge = a.sge(0, 4096);
    b.qp.post_recv(8, &[sge]);
    is_dropped(a, &good, "an invalid receive")?;
    b.ends(8, Status::LocalProtection)?;
    is_fatal(b, "an invalid receive")?;
    b.qp.reset()?;
    b.qp.start_uc(a.qp.number)?;
    exchange(a, b, &mut setup.rng())?;
    others.unharmed()
}

pub(super) fn uc_attributes(_: &Setup) -> Result<()> {
    let ctx = Context::open(0)?;
    let Peer { qp, .. } = Peer::of_service(&ctx, IB_UVERBS_QPT_UC, 4096)?;
    let with = |change: ib_uverbs_modify_qp, more: u32| ib_uverbs_modify_qp {
        attr_mask: change.attr_mask | more,
        ..change
    };
    let next = |from| change_uc(from, 0x12_3456, REMOTE_RIGHTS);
    let refused = |what: &str, arg| {
        let got = qp.modify(arg).map(drop);
        ensure!(got == Err(Errno::EINVAL), "{what}: {got:?}");
        Ok(())
    };
    let init = next(qp_state::RESET);
    refused("a Q_Key", with(init, qp_mask::QKEY))?;
    qp.modify(init)?;
    let rtr = next(qp_state::INIT);
    refused("READs of the peer", with(rtr, qp_mask::MAX_DEST_RD_ATOMIC))?;
    refused("a time", with(rtr, qp_mask::MIN_RNR_TIMER))?;
    qp.modify(rtr)?;
    let rts = next(qp_state::RTR);
    refused("retries", with(rts, qp_mask::RETRY_CNT))?;
    refused("retries of RNR", with(rts, qp_mask::RNR_RETRY))?;
    qp.modify(rts)?;
    let now = qp.query()?;
    ensure!(
        (now.dest_qp_num, now.qp_access_flags) == (0x12_3456, REMOTE_RIGHTS)
            && (now.qp_state, now.retry_cnt) == (qp_state::RTS, 0),
        "{now:?}"
    );
    qp.destroy()?;
    Ok(())
}
