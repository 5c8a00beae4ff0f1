// SPDX-License-Identifier: GPL-2.0
//! Work requests that the device refuses, each with its status. The requests behind them are
//! flushed, and after RESET the same queue pairs work again.

use anyhow::ensure;
use anyhow::Context as _;
use anyhow::Result;
use qpair_abi::entry::opcode;
use qpair_abi::entry::Sge;
use qpair_abi::status::Detail;
use qpair_abi::status::Status;
use qpair_uverbs::abi::*;

use crate::ktap::Setup;
use crate::pair::state_name;
use crate::pair::Bystander;
use crate::pair::Pair;
use crate::pair::Peer;
use crate::raw::Context;
use crate::raw::Mr;
use crate::raw::Pd;
use crate::raw::Wqe;
use crate::wait;

/// A request that must fail.
pub(super) struct Wrong {
    what: &'static str,
    wqe: Wqe,
    status: Status,
    detail: Detail,
}

pub(super) fn wrong(what: &'static str, status: Status, detail: Detail, wqe: Wqe) -> Wrong {
    Wrong {
        what,
        wqe,
        status,
        detail,
    }
}

/// A WQE with a changed head.
fn spoilt(mut wqe: Wqe, spoil: impl FnOnce(&mut Wqe)) -> Wqe {
    spoil(&mut wqe);
    wqe
}

/// The queue pair is in the error state.
pub(super) fn is_fatal(peer: &Peer, what: &str) -> Result<()> {
    let state = peer.qp.state()?;
    ensure!(
        state == qp_state::ERR,
        "{what}: the queue pair is in {}",
        state_name(state)
    );
    Ok(())
}

/// Checks that the process has one event of the peer if the sender's request failed there, and no
/// receive reports it; none of the sender, whose completion does.
fn has_event(pair: &Pair, status: Status) -> Result<()> {
    let kind = match status {
        Status::RemoteAccess => Some(event::QP_ACCESS_ERR),
        Status::RemoteInvalidRequest => Some(event::QP_REQ_ERR),
        _ => None,
    };
    let peer = &pair.b;
    if let Some(kind) = kind {
        let event = wait::for_some("an event", || Ok(peer.ctx.async_event()?))?;
        let expected = (kind, peer.qp.element());
        ensure!((event.kind, event.element) == expected, "{event:?}");
    }
    for side in [&pair.a, peer] {
        let event = side.ctx.async_event()?;
        ensure!(event.is_none(), "{event:?}");
    }
    Ok(())
}

/// Posts each of them between two valid ones: the first succeeds, the invalid one fails with its
/// status, the last is flushed. Then the pair is reset and works.
pub(super) fn all_fail(setup: &Setup, pair: &mut Pair, all: Vec<Wrong>) -> Result<()> {
    let mut others = Bystander::new(0, setup.rng())?;
    for Wrong {
        what,
        wqe,
        status,
        detail,
    } in all
    {
        let context = || what.to_string();
        let a = &mut pair.a;
        let mut wqe = wqe;
        wqe.head.wr_id = 2;
        a.qp.put(&Wqe::new(opcode::NOP, 1));
        a.qp.put(&wqe);
        a.qp.put(&Wqe::new(opcode::NOP, 3));
        a.qp.ring_sq();
        a.done(1).with_context(context)?;
        let cqe = a.ends(2, status).with_context(context)?;
        let got = Detail::from_code(cqe.vendor);
        ensure!(
            got == Some(detail),
            "{what}: {cqe:?} has detail {got:?}, expected {detail:?}"
        );
        // A request with an invalid number of blocks hides the ones behind it.
        if !matches!(detail, Detail::Blocks) {
            a.ends(3, Status::Flush).with_context(context)?;
        }
        is_fatal(a, what)?;
        has_event(pair, status).with_context(context)?;
        pair.renew().with_context(context)?;
        pair.exchange(&mut setup.rng())
            .with_context(|| format!("made new after {what}"))?;
    }
    others.unharmed()
}

pub(super) fn bad_requests(setup: &Setup) -> Result<()> {
    use Detail::*;
    let mut pair = Pair::open(0)?;
    let (remote, rkey) = (pair.b.memory.addr(), pair.b.mr.keys.rkey);
    let nop = || Wqe::new(opcode::NOP, 0);
    let send = |bytes| pair.a.with(Wqe::send(0), 0, bytes);
    let flag = |bit: u8| spoilt(nop(), |it| it.head.flags |= bit);
    let limit = pair.a.ctx.info.limits.max_inline;
    let refused = Status::LocalQpOperation;
    let all = vec![
        wrong("REG_MR", refused, Opcode, Wqe::new(opcode::REG_MR, 0)),
        wrong("opcode 14", refused, Opcode, Wqe::new(14, 0)),
        wrong("opcode 0x7f", refused, Opcode, Wqe::new(0x7f, 0)),
        wrong("RECV in an SQ", refused, Opcode, Wqe::new(opcode::RECV, 0)),
        wrong("opcode 0xff", refused, Opcode, Wqe::new(0xff, 0)),
        wrong("flag 4", refused, Flags, flag(1 << 4)),
        wrong("flag 7", refused, Flags, flag(1 << 7)),
        wrong(
            "an inline READ",
            refused,
            Flags,
            Wqe::read(0, remote, rkey).inline(b"x"),
        ),
        wrong(
            "no blocks",
            refused,
            Blocks,
            spoilt(send(8), |it| it.head.blocks = 0),
        ),
        wrong(
            "five blocks",
            refused,
            Blocks,
            spoilt(send(8), |it| it.head.blocks = 5),
        ),
        wrong(
            "255 blocks",
            refused,
            Blocks,
            spoilt(send(8), |it| it.head.blocks = 255),
        ),
        wrong(
            "four blocks, and two were handed over",
            refused,
            Blocks,
            spoilt(send(8), |it| it.head.blocks = 4),
        ),
        wrong(
            "three SGEs in a block",
            refused,
            Sges,
            spoilt(send(8), |it| it.head.sges = 3),
        ),
        wrong(
            "255 SGEs",
            refused,
            Sges,
            spoilt(send(8), |it| it.head.sges = 255),
        ),
        wrong(
            "33 inline bytes in a block",
            refused,
            Inline,
            spoilt(Wqe::send(0).inline(&[1; 32]), |it| {
                it.head.inline_bytes = 33
            }),
        ),
        wrong(
            "more inline bytes than the limit",
            refused,
            Inline,
            spoilt(Wqe::send(0).inline(&[1; 32]), |it| {
                it.head.inline_bytes = limit + 1
            }),
        ),
        wrong(
            "4 GiB of inline bytes",
            refused,
            Inline,
            spoilt(Wqe::send(0).inline(&[1; 32]), |it| {
                it.head.inline_bytes = u32::MAX
            }),
        ),
    ];
    all_fail(setup, &mut pair, all)
}

/// A region of another domain in the same context, and one with few rights.
struct Regions {
    _domain: Pd,
    foreign: Mr,
    poor: Mr,
    gone: u32,
}

impl Regions {
    fn of(peer: &Peer) -> Result<Self> {
        let domain = Pd::new(&peer.ctx)?;
        let foreign = Mr::all(&domain, &peer.memory)?;
        let poor = Mr::of(&peer.pd, peer.memory.addr(), 4096, 0)?;
        let gone = Mr::all(&peer.pd, &peer.memory)?;
        gone.destroy()?;
        Ok(Self {
            _domain: domain,
            foreign,
            poor,
            gone: gone.keys.lkey,
        })
    }
}

/// SGEs that no region covers, for a buffer of this address, length and key.
fn bad_pieces(
    addr: u64,
    bytes: u64,
    key: u32,
    regions: &Regions,
) -> Vec<(&'static str, Detail, u64, u32, u32)> {
    let last = addr + bytes;
    vec![
        ("no key", Detail::Key, addr, 8, 0),
        ("a key without a region", Detail::Key, addr, 8, 0xfff0),
        (
            "the next variant of a key",
            Detail::Key,
            addr,
            8,
            key.wrapping_add(1 << 16),
        ),
        (
            "the key of one that is gone",
            Detail::Key,
            addr,
            8,
            regions.gone,
        ),
        (
            "a key of another domain",
            Detail::Domain,
            addr,
            8,
            regions.foreign.keys.lkey,
        ),
        ("one byte before", Detail::Range, addr - 1, 8, key),
        ("one byte past", Detail::Range, last - 7, 8, key),
        ("just behind", Detail::Range, last, 1, key),
        (
            "all of it and one more",
            Detail::Range,
            addr,
            bytes as u32 + 1,
            key,
        ),
        ("an address of 0", Detail::Range, 0, 8, key),
        (
            "past the end of the address space",
            Detail::Range,
            u64::MAX - 3,
            8,
            key,
        ),
    ]
}

pub(super) fn bad_local_keys(setup: &Setup) -> Result<()> {
    let mut pair = Pair::open(0)?;
    let regions = Regions::of(&pair.a)?;
    let a = &pair.a;
    let (remote, rkey) = (pair.b.memory.addr(), pair.b.mr.keys.rkey);
    let (addr, bytes, key) = (a.memory.addr(), a.memory.bytes() as u64, a.mr.keys.lkey);
    let mut all = Vec::new();
    for (what, detail, addr, bytes, key) in bad_pieces(addr, bytes, key, &regions) {
        let write = Wqe::write(0, remote, rkey);
        all.push(wrong(
            what,
            Status::LocalProtection,
            detail,
            write.clone().sge(addr, bytes, key),
        ));
        // The second SGE is checked too, before the first byte is written.
        let first = pair.a.with(write, 0, 8);
        all.push(wrong(
            what,
            Status::LocalProtection,
            detail,
            first.sge(addr, bytes, key),
        ));
    }
    let read = Wqe::read(0, remote, rkey).sge(addr, 8, regions.poor.keys.lkey);
    all.push(wrong(
        "a READ into what is not writable",
        Status::LocalProtection,
        Detail::Rights,
        read,
    ));
    all_fail(setup, &mut pair, all)?;
    // With 0 bytes the key is not checked.
    let nothing = Wqe::write(9, remote, rkey).sge(1, 0, 0xffff);
    pair.a.qp.post(&nothing);
    pair.a.done(9).context("an empty piece")?;
    // Reading from a region needs no right.
    pair.a
        .qp
        .post(&Wqe::write(10, remote, rkey).sge(addr, 8, regions.poor.keys.lkey));
    pair.a
        .done(10)
        .map(drop)
        .context("a WRITE from what is not writable")
}

pub(super) fn bad_remote_keys(setup: &Setup) -> Result<()> {
    let mut pair = Pair::open(0)?;
    let regions = Regions::of(&pair.b)?;
    let b = &pair.b;
    let mut all = Vec::new();
    let good = (b.memory.addr(), b.memory.bytes() as u64, b.mr.keys.rkey);
    for (what, detail, addr, bytes, key) in bad_pieces(good.0, good.1, good.2, &regions) {
        if bytes as usize <= pair.a.memory.bytes() {
            let write = pair.a.with(Wqe::write(0, addr, key), 0, bytes as usize);
            all.push(wrong(what, Status::RemoteAccess, detail, write));
            let read = pair.a.with(Wqe::read(0, addr, key), 0, bytes as usize);
            all.push(wrong(what, Status::RemoteAccess, detail, read));
        }
    }
    for (what, wqe) in [
        (
            "a WRITE without the right",
            Wqe::write(0, good.0, regions.poor.keys.rkey),
        ),
        (
            "a READ without the right",
            Wqe::read(0, good.0, regions.poor.keys.rkey),
        ),
    ] {
        all.push(wrong(
            what,
            Status::RemoteAccess,
            Detail::Rights,
            pair.a.with(wqe, 0, 8),
        ));
    }
    all_fail(setup, &mut pair, all)?;

    // The queue pair's access rights apply, whatever the region permits.
    for (access, write) in [
        (IB_UVERBS_ACCESS_REMOTE_READ, true),
        (IB_UVERBS_ACCESS_REMOTE_WRITE, false),
    ] {
        pair.renew()?;
        pair.b.qp.modify(ib_uverbs_modify_qp {
            attr_mask: qp_mask::ACCESS_FLAGS,
            qp_access_flags: access,
            ..Default::default()
        })?;
        let [mut allowed, mut refused] =
            [Wqe::read(1, good.0, good.2), Wqe::write(2, good.0, good.2)];
        if !write {
            std::mem::swap(&mut allowed, &mut refused);
        }
        pair.a
            .qp
            .post(&pair.a.with(spoilt(allowed, |it| it.head.wr_id = 1), 0, 8));
        pair.a
            .done(1)
            .with_context(|| format!("what access {access} allows"))?;
        pair.a
            .qp
            .post(&pair.a.with(spoilt(refused, |it| it.head.wr_id = 2), 0, 8));
        pair.a
            .ends(2, Status::RemoteInvalidRequest)
            .with_context(|| format!("what access {access} forbids"))?;
    }
    Ok(())
}

/// A receive that is too short, or whose memory may not be written: both sides get an error.
pub(super) fn bad_receives(setup: &Setup) -> Result<()> {
    let mut others = Bystander::new(0, setup.rng())?;
    let mut pair = Pair::open(0)?;
    let regions = Regions::of(&pair.b)?;
    let (addr, key) = (pair.b.memory.addr(), pair.b.mr.keys.lkey);
    let sge = |addr, bytes, lkey| Sge { addr, bytes, lkey };
    for (what, receive, status) in [
        (
            "too short by a byte",
            sge(addr, 99, key),
            Status::LocalLength,
        ),
        ("of no length", sge(addr, 0, key), Status::LocalLength),
        ("with no key", sge(addr, 100, 0), Status::LocalProtection),
        (
            "with a key of another domain",
            sge(addr, 100, regions.foreign.keys.lkey),
            Status::LocalProtection,
        ),
        (
            "that may not be written",
            sge(addr, 100, regions.poor.keys.lkey),
            Status::LocalProtection,
        ),
        (
            "past its region",
            sge(addr + (64 << 10) - 50, 100, key),
            Status::LocalProtection,
        ),
    ] {
        pair.b.qp.post_recv(1, &[receive]);
        pair.b.qp.post_recv(2, &[sge(addr, 100, key)]);
        pair.a.qp.post(&pair.a.with(Wqe::send(3), 0, 100));
        let context = || format!("a receive {what}");
        pair.b.ends(1, status).with_context(context)?;
        pair.b.ends(2, Status::Flush).with_context(context)?;
        let cqe = pair.a.cq.take().with_context(context)?;
        let theirs = match status {
            Status::LocalLength => Status::RemoteInvalidRequest,
            _ => Status::RemoteOperation,
        };
        ensure!(
            cqe.status == theirs.code() && cqe.wr_id == 3,
            "{what}: the sender got {cqe:?}"
        );
        is_fatal(&pair.a, what)?;
        is_fatal(&pair.b, what)?;
        pair.renew()?;
        has_event(&pair, status).with_context(context)?;
        pair.exchange(&mut setup.rng()).with_context(context)?;
    }
    // A receive of 0 bytes accepts only messages of 0 bytes.
    pair.b.qp.post_recv(1, &[]);
    pair.a
        .qp
        .post(&Wqe::send(2).inline(b"does not fit into nothing"));
    pair.b
        .ends(1, Status::LocalLength)
        .context("a receive without SGEs")?;
    pair.renew()?;
    has_event(&pair, Status::LocalLength)?;
    pair.exchange(&mut setup.rng())?;
    others.unharmed()
}

/// A queue pair receives only from the peer that it names, and requests to a missing peer fail.
pub(super) fn nobody_there(setup: &Setup) -> Result<()> {
    let mut others = Bystander::new(0, setup.rng())?;
    let ctx = Context::open(0)?;
    let mut victim = Pair::open(0)?;
    let (addr, key) = (victim.b.memory.addr(), victim.b.mr.keys.rkey);
    let before = victim.b.memory.read(0, 64 << 10);
    let number = victim.b.qp.number;
    let gone = {
        let peer = Peer::new(&ctx, 4096)?;
        peer.qp.connect(peer.qp.number)?;
        peer.destroy()?;
        peer.qp.number
    };
    let fresh = Peer::new(&ctx, 4096)?;
    let ready = Peer::new(&ctx, 4096)?;
    ready.qp.to(qp_state::INIT)?;
    let failed = Peer::new(&ctx, 4096)?;
    failed.qp.connect(failed.qp.number)?;
    failed.qp.to(qp_state::ERR)?;
    victim.b.receive(77, 0, 4096);
    for (what, peer) in [
        (
            "a queue pair of another process, which names another",
            number,
        ),
        ("the next generation of it", number.wrapping_add(1 << 16)),
        ("the generation before", number.wrapping_sub(1 << 16)),
        ("an index without an object", 0x1_fff0),
        ("no queue pair", 0),
        ("the admin queue pair's number with a generation", 1 << 16),
        ("all ones", u32::MAX),
        ("one that is gone", gone),
        ("one in RESET", fresh.qp.number),
        ("one in INIT", ready.qp.number),
        ("one in ERROR", failed.qp.number),
    ] {
        for wqe in [
            Wqe::send(1).inline(b"stolen"),
            Wqe::write(1, addr, key).inline(b"stolen"),
            { Wqe::read(1, addr, key) },
        ] {
            let mut thief = Peer::new(&ctx, 4096)?;
            thief
                .qp
                .connect(peer)
                .with_context(|| format!("naming {what}"))?;
            let wqe = if wqe.head.opcode == opcode::READ {
                thief.with(wqe, 0, 64)
            } else {
                wqe
            };
            thief.qp.post(&wqe);
            let cqe = thief
                .ends(1, Status::RetryExceeded)
                .with_context(|| format!("to {what}"))?;
            let expected = [Detail::NoPeer, Detail::NotNamed, Detail::NotReady].map(Detail::code);
            ensure!(expected.contains(&cqe.vendor), "to {what}: {cqe:?}");
            ensure!(thief.memory.read(0, 64) == [0; 64], "{what} was read");
            thief.destroy()?;
        }
    }
    ensure!(
        victim.b.memory.read(0, 64 << 10) == before,
        "the victim's memory was written"
    );
    victim.b.idle().context("the victim's receive was taken")?;
    victim.a.memory.write(0, b"from its peer");
    victim.a.qp.post(&victim.a.with(Wqe::send(78), 0, 13));
    victim.b.done(77)?;
    victim.a.done(78)?;
    ensure!(
        victim.b.ctx.async_event()?.is_none() && victim.b.memory.read(0, 13) == b"from its peer"
    );
    others.unharmed()
}
