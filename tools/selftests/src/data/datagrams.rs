// SPDX-License-Identifier: GPL-2.0
//! Queue pairs of UD: a datagram is delivered with its header, or dropped and counted. The sender
//! completes with success either way, and no other queue pair is affected.

use std::sync::Arc;

use anyhow::ensure;
use anyhow::Context as _;
use anyhow::Result;
use nix::errno::Errno;
use qpair_abi::counters::Counter;
use qpair_abi::entry::cqe_flags;
use qpair_abi::entry::opcode;
use qpair_abi::entry::DATAGRAM_BYTES;
use qpair_abi::entry::GRH_BYTES;
use qpair_abi::status::Detail;
use qpair_abi::status::Status;
use qpair_uverbs::abi::*;

use super::errors::is_fatal;
use crate::ktap::Setup;
use crate::pair::Bystander;
use crate::pair::Peer;
use crate::raw::address;
use crate::raw::change;
use crate::raw::change_ud;
use crate::raw::Context;
use crate::raw::Cq;
use crate::raw::Pd;
use crate::raw::Qp;
use crate::raw::QpShape;
use crate::raw::Wqe;

const KEY: u32 = 0x1111_1111;
const MEMORY: usize = 64 << 10;

/// A queue pair of UD in RTS, with its objects.
fn peer(ctx: &Arc<Context>) -> Result<Peer> {
    let peer = Peer::of_service(ctx, IB_UVERBS_QPT_UD, MEMORY)?;
    peer.qp.start_ud(KEY).context("to RTS")?;
    Ok(peer)
}

/// The GID of the port, by an address handle to its LID.
fn own_gid(peer: &Peer) -> Result<[u8; 16]> {
    let arg = address(&peer.pd, None, peer.ctx.info.port.lid);
    let (handle, gid) = peer.ctx.create_ah(&arg).context("CREATE_AH")?;
    peer.ctx.destroy_ah(handle).context("DESTROY_AH")?;
    ensure!(gid[..2] == [0xfe, 0x80], "a GID {gid:x?}");
    Ok(gid)
}

/// A SEND to a queue pair, of `bytes` bytes of the sender's memory.
fn send(from: &Peer, to: &Peer, gid: [u8; 16], wr_id: u64, bytes: usize) -> Wqe {
    from.with(Wqe::send(wr_id), 0, bytes)
        .to(gid, to.qp.number, KEY)
}

/// Sends random bytes, and checks all that arrives.
fn exchange(a: &mut Peer, b: &mut Peer, gid: [u8; 16], rng: &mut fastrand::Rng) -> Result<()> {
    let bytes = rng.usize(..=DATAGRAM_BYTES);
    let data: Vec<u8> = (0..bytes).map(|_| rng.u8(..)).collect();
    a.memory.write(0, &data);
    b.memory.clear();
    b.receive(7, 64, GRH_BYTES + bytes);
    a.qp.post(&send(a, b, gid, 6, bytes).imm(0x1234_5678));
    let cqe = b.done(7).context("the receive")?;
    let flags = cqe_flags::RECV | cqe_flags::IMM | cqe_flags::GRH;
    ensure!(
        (cqe.src, cqe.imm, cqe.flags) == (a.qp.number, 0x1234_5678, flags)
            && cqe.bytes as usize == GRH_BYTES + bytes
            && cqe.opcode == opcode::RECV,
        "{cqe:?} of {bytes} bytes from {:#x}",
        a.qp.number
    );
    a.done(6).context("the SEND")?;
    let grh = b.memory.read(64, GRH_BYTES);
    let length = u16::from_be_bytes([grh[4], grh[5]]);
    ensure!(
        grh[..4] == [0x60, 0, 0, 0]
            && usize::from(length) == 24 + bytes.next_multiple_of(4) + 4
            && grh[6] == 0x1b
            && grh[8..24] == gid
            && grh[24..] == gid,
        "a header {grh:x?} of {bytes} bytes"
    );
    ensure!(
        b.memory.read(64 + GRH_BYTES, bytes) == data,
        "{bytes} bytes differ"
    );
    let behind = b.memory.read(64 + GRH_BYTES + bytes, 8);
    ensure!(behind == [0; 8], "{behind:x?} is behind the payload");
    Ok(())
}

pub(super) fn between_contexts(setup: &Setup) -> Result<()> {
    let mut rng = setup.rng();
    let mut a = peer(&Context::open(0)?)?;
    let mut b = peer(&Context::open(0)?)?;
    let gid = own_gid(&a)?;
    ensure!(gid == own_gid(&b)?, "two GIDs of one port");
    for _ in 0..20 {
        exchange(&mut a, &mut b, gid, &mut rng)?;
        exchange(&mut b, &mut a, gid, &mut rng)?;
    }
    // A third one, to the first as well.
    let mut c = peer(&a.ctx)?;
    exchange(&mut c, &mut a, gid, &mut rng)?;
    for peer in [&a, &b, &c] {
        ensure!(peer.ctx.async_event()?.is_none(), "an event");
        peer.destroy()?;
    }
    Ok(())
}

pub(super) fn dropped(setup: &Setup) -> Result<()> {
    let mut others = Bystander::new(0, setup.rng())?;
    let ctx = Context::open(0)?;
    let (mut a, mut b) = (peer(&ctx)?, peer(&Context::open(0)?)?);
    let gid = own_gid(&a)?;
    let gone = {
        let gone = peer(&ctx)?;
        gone.destroy()?;
        gone.qp.number
    };
    // One that is posted all the time.
    let good = send(&a, &b, gid, 1, 64);
    b.receive(7, 0, GRH_BYTES + 64);
    let to = |gid, qp, q_key| a.with(Wqe::send(1), 0, 64).to(gid, qp, q_key);
    let number = b.qp.number;
    let mut foreign = gid;
    foreign[15] ^= 1;
    let cases = [
        ("a wrong Q_Key", to(gid, number, KEY + 1)),
        ("another Q_Key of its own", to(gid, number, 0)),
        ("an unknown number", to(gid, 0x12_3456, KEY)),
        ("a destroyed queue pair", to(gid, gone, KEY)),
        ("the admin queue pair", to(gid, 0, KEY)),
        ("management", to(gid, 1, KEY)),
        ("more than 24 bits", to(gid, number | 1 << 24, KEY)),
        ("another GID", to(foreign, number, KEY)),
        ("no GID", to([0; 16], number, KEY)),
        ("longer than the receive", send(&a, &b, gid, 1, 65)),
    ];
    for (what, wqe) in cases {
        is_dropped(&mut a, &wqe, what)?;
        b.idle().with_context(|| what.to_string())?;
    }
    a.qp.post(&good);
    b.done(7).context("the receive of all that")?;
    a.done(1)?;
    is_dropped(&mut a, &good, "no receive")?;
    for state in [qp_state::ERR, qp_state::RESET] {
        b.qp.modify(change(qp_state::RTS, state))?;
        is_dropped(&mut a, &good, "a state that does not receive")?;
    }
    b.qp.reset()?;
    b.qp.modify(change_ud(qp_state::RESET, KEY))?;
    b.receive(8, 0, 4096);
    is_dropped(&mut a, &good, "INIT")?;
    b.qp.modify(change_ud(qp_state::INIT, KEY))?;
    a.qp.post(&good);
    b.done(8).context("in RTR")?;
    a.done(1)?;
    b.qp.modify(change_ud(qp_state::RTR, KEY))?;
    exchange(&mut a, &mut b, gid, &mut setup.rng())?;
    ensure!(ctx.async_event()?.is_none(), "an event of a drop");
    others.unharmed()
}

/// Posts a message, which is dropped: it is counted, and its sender completes with success.
pub(super) fn is_dropped(from: &mut Peer, wqe: &Wqe, what: &str) -> Result<()> {
    let before = from.ctx.counter(Counter::Dropped)?;
    from.qp.post(wqe);
    let context = || what.to_string();
    from.done(1).with_context(context)?;
    let after = from.ctx.counter(Counter::Dropped)?;
    ensure!(after == before + 1, "{what}: {before} drops, then {after}");
    let state = from.qp.state()?;
    ensure!(state == qp_state::RTS, "{what}: the sender is in {state}");
    Ok(())
}

/// Posts the request 2, which must fail its queue pair with this status, and the request 1 behind
/// it, which is flushed. Nothing arrives.
pub(super) fn fails_alone(
    from: &mut Peer,
    to: &mut Peer,
    (wqe, status): (&Wqe, Status),
    behind: &Wqe,
) -> Result<()> {
    from.qp.put(wqe);
    from.qp.put(behind);
    from.qp.ring_sq();
    from.ends(2, status)?;
    from.ends(1, Status::Flush)?;
    is_fatal(from, "a bad request")?;
    to.idle().context("the destination")
}

pub(super) fn of_a_queue_pair_that_fails(setup: &Setup) -> Result<()> {
    let mut others = Bystander::new(0, setup.rng())?;
    let (mut a, mut b) = (peer(&Context::open(0)?)?, peer(&Context::open(0)?)?);
    let gid = own_gid(&a)?;
    let good = send(&a, &b, gid, 1, 64);
    let long = |bytes| a.with(Wqe::send(2), 0, bytes);
    // An operation that UD lacks, memory of another, and more than one packet.
    let spoilt = [
        (Wqe::write(2, 0, 0), Status::LocalQpOperation),
        (b.with(Wqe::send(2), 0, 8), Status::LocalProtection),
        (long(DATAGRAM_BYTES + 1), Status::LocalLength),
        (long(MEMORY), Status::LocalLength),
    ];
    for (wqe, status) in spoilt {
        let wqe = wqe.to(gid, b.qp.number, KEY);
        b.receive(7, 0, 4096);
        fails_alone(&mut a, &mut b, (&wqe, status), &good)?;
        a.qp.reset()?;
        a.qp.start_ud(KEY)?;
        a.qp.post(&good);
        b.done(7)?;
        a.done(1)?;
    }
    // A receive of another's memory: only its queue pair fails.
    let sge = a.sge(0, 4096);
    b.qp.post_recv(8, &[sge]);
    is_dropped(&mut a, &good, "an invalid receive")?;
    let cqe = b.ends(8, Status::LocalProtection)?;
    ensure!(Detail::from_code(cqe.vendor).is_some(), "{cqe:?}");
    is_fatal(&b, "an invalid receive")?;
    b.qp.reset()?;
    b.qp.start_ud(KEY)?;
    exchange(&mut a, &mut b, gid, &mut setup.rng())?;
    others.unharmed()
}

pub(super) fn attributes(_setup: &Setup) -> Result<()> {
    let ctx = Context::open(0)?;
    let pd = Pd::new(&ctx)?;
    let cq = Cq::new(&ctx, 16)?;
    let qp = Qp::of_service(IB_UVERBS_QPT_UD, &pd, &cq, QpShape::default())?;
    let with = |change: ib_uverbs_modify_qp, more: u32| ib_uverbs_modify_qp {
        attr_mask: change.attr_mask | more,
        ..change
    };
    let init = change_ud(qp_state::RESET, KEY);
    let refused = [
        ("no Q_Key", with(change(qp_state::RESET, qp_state::INIT), 0)),
        ("rights", with(init, qp_mask::ACCESS_FLAGS)),
        ("retries", with(init, qp_mask::RETRY_CNT)),
    ];
    for (what, arg) in refused {
        let got = qp.modify(arg).map(drop);
        ensure!(got == Err(Errno::EINVAL), "{what}: {got:?}");
    }
    qp.modify(init)?;
    let peer = with(change_ud(qp_state::INIT, 0), qp_mask::DEST_QPN);
    let got = qp.modify(peer).map(drop);
    ensure!(got == Err(Errno::EINVAL), "a peer: {got:?}");
    qp.modify(change_ud(qp_state::INIT, 0))?;
    qp.modify(change_ud(qp_state::RTR, 0))?;
    let now = qp.query()?;
    ensure!((now.qkey, now.qp_state) == (KEY, qp_state::RTS), "{now:?}");
    // RTS to RTS, with another Q_Key.
    let other = ib_uverbs_modify_qp {
        attr_mask: qp_mask::STATE | qp_mask::QKEY,
        qp_state: qp_state::RTS,
        qkey: KEY + 1,
        ..Default::default()
    };
    qp.modify(other)?;
    let now = qp.query()?;
    ensure!(now.qkey == KEY + 1, "{now:?}");
    qp.destroy()?;
    Ok(())
}

pub(super) fn address_handles(setup: &Setup) -> Result<()> {
    let ctx = Context::open(0)?;
    let pd = Pd::new(&ctx)?;
    let (handle, own) = ctx.create_ah(&address(&pd, None, ctx.info.port.lid))?;
    ctx.destroy_ah(handle)?;
    let got = ctx.destroy_ah(handle);
    ensure!(got == Err(Errno::ENOENT), "destroyed twice: {got:?}");
    let any: [u8; 16] = setup.rng().u128(..).to_le_bytes();
    for (what, gid, lid, expected) in [
        ("one's own GID", Some(own), 0, own),
        ("any GID", Some(any), 1, any),
        ("another LID", None, 7, [0; 16]),
    ] {
        let (_, got) = ctx.create_ah(&address(&pd, gid, lid))?;
        ensure!(got == expected, "{what}: {got:x?}");
    }
    let mut port = address(&pd, Some(own), 1);
    port.attr.port_num = 2;
    let got = ctx.create_ah(&port);
    ensure!(got == Err(Errno::EINVAL), "another port: {got:?}");
    let mut domain = address(&pd, Some(own), 1);
    domain.pd_handle = u32::MAX;
    let got = ctx.create_ah(&domain);
    ensure!(got.is_err(), "no domain: {got:?}");
    // Three of them are there.
    let most = ctx.info.device.max_ah;
    for count in 3..most {
        let made = ctx.create_ah(&address(&pd, Some(own), 1));
        made.with_context(|| format!("handle {count} of {most}"))?;
    }
    let got = ctx.create_ah(&address(&pd, Some(own), 1));
    ensure!(got == Err(Errno::EDQUOT), "one too many: {got:?}");
    // Another file has its own, and the domain is in use.
    let other = Context::open(0)?;
    other.create_ah(&address(&Pd::new(&other)?, Some(own), 1))?;
    let got = pd.destroy();
    ensure!(got == Err(Errno::EBUSY), "a domain in use: {got:?}");
    Ok(())
}
