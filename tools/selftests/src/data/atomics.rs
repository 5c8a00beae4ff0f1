// SPDX-License-Identifier: GPL-2.0
//! Atomics: what they return and leave, among many queue pairs, and refused.

use anyhow::ensure;
use anyhow::Context as _;
use anyhow::Result;
use qpair_abi::counters::Counter;
use qpair_abi::entry::opcode;
use qpair_abi::status::Detail;
use qpair_abi::status::Status;
use qpair_uverbs::abi::*;

use super::errors::all_fail;
use super::errors::wrong;
use crate::ktap::Setup;
use crate::pair::Pair;
use crate::pair::Peer;
use crate::raw::Context;
use crate::raw::Mr;
use crate::raw::Wqe;

pub(super) fn values_of_atomics(setup: &Setup) -> Result<()> {
    let mut rng = setup.rng();
    let bytes = 64 << 10;
    let peers = [Context::open(0)?, Context::open(0)?];
    let mut pair = Pair::of(Peer::new(&peers[0], bytes)?, Peer::new(&peers[1], bytes)?)?;
    let before = peers[0].counter(Counter::Atomics)?;
    let Pair { a, b } = &mut pair;
    for round in 0..200 {
        let (at, into) = (rng.usize(..bytes / 8) * 8, rng.usize(..bytes - 8));
        let old = rng.u64(..);
        b.memory.write(at, &old.to_le_bytes());
        let (remote, rkey) = (b.memory.addr() + at as u64, b.mr.keys.rkey);
        let operand = rng.u64(..);
        let (wqe, new) = match rng.u8(..3) {
            0 => {
                let wqe = Wqe::fetch_add(round, remote, rkey, operand);
                (wqe, old.wrapping_add(operand))
            }
            1 => {
                let wqe = Wqe::compare_swap(round, remote, rkey, (old, operand));
                (wqe, operand)
            }
            _ => {
                let other = old ^ 1 << rng.u32(..64);
                let wqe = Wqe::compare_swap(round, remote, rkey, (other, operand));
                (wqe, old)
            }
        };
        let code = wqe.head.opcode;
        a.qp.post(&a.with(wqe, into, 8));
        let cqe = a.done(round)?;
        ensure!((cqe.opcode, cqe.bytes) == (code, 8), "{cqe:?}");
        let found = (a.memory.read(into, 8), b.memory.read(at, 8));
        let expected = (old.to_le_bytes().to_vec(), new.to_le_bytes().to_vec());
        ensure!(
            found == expected,
            "opcode {code}: {found:x?}, not {expected:x?}"
        );
    }
    b.idle().context("the peer")?;
    let after = peers[0].counter(Counter::Atomics)?;
    ensure!(after - before == 200, "{before} atomics, then {after}");
    pair.destroy()
}

pub(super) fn atomics_among_queue_pairs(_: &Setup) -> Result<()> {
    const PAIRS: usize = 6;
    const EACH: usize = 40;
    let contexts = [Context::open(0)?, Context::open(0)?, Context::open(0)?];
    // The word is in the memory of the first context, in a region for each peer.
    let target = Peer::new(&contexts[0], 4096)?;
    let mut pairs = Vec::new();
    for at in 0..PAIRS {
        let pair = Pair::of(
            Peer::new(&contexts[at % 3], 4096)?,
            Peer::new(&contexts[0], 4096)?,
        )?;
        let bytes = target.memory.bytes() as u64;
        let region = Mr::of(
            &pair.b.pd,
            target.memory.addr(),
            bytes,
            IB_UVERBS_ACCESS_LOCAL_WRITE | IB_UVERBS_ACCESS_REMOTE_ATOMIC,
        )?;
        pairs.push((pair, region));
    }
    // Each adds by fetch-and-add, and then by compare-and-swap until it succeeds.
    let word = target.memory.addr() + 64;
    for (pair, region) in &mut pairs {
        let a = &mut pair.a;
        for id in 0..EACH {
            let wqe = Wqe::fetch_add(id as u64, word, region.keys.rkey, 1);
            let wqe = a.with(wqe, id * 8, 8);
            a.qp.put(&wqe);
        }
    }
    for (pair, _) in &pairs {
        pair.a.qp.ring_sq();
    }
    let mut seen = Vec::new();
    for (pair, _) in &mut pairs {
        for id in 0..EACH {
            pair.a.done(id as u64)?;
            seen.push(pair.a.memory.load(id * 8));
        }
    }
    seen.sort_unstable();
    let all = (PAIRS * EACH) as u64;
    ensure!(seen.iter().copied().eq(0..all), "old values {seen:?}");
    let sum = target.memory.load(64);
    ensure!(sum == all, "{sum} after {all} times 1");
    let (mut added, mut guess) = (0, [all; PAIRS]);
    for round in 0..20 {
        for ((pair, region), guess) in pairs.iter_mut().zip(&guess) {
            let operands = (*guess, *guess + 1);
            let wqe = Wqe::compare_swap(round, word, region.keys.rkey, operands);
            let wqe = pair.a.with(wqe, 0, 8);
            pair.a.qp.post(&wqe);
        }
        for ((pair, _), guess) in pairs.iter_mut().zip(&mut guess) {
            pair.a.done(round)?;
            let old = pair.a.memory.load(0);
            added += u64::from(old == *guess);
            *guess = if old == *guess { old + 1 } else { old };
        }
    }
    let sum = target.memory.load(64);
    ensure!(sum == all + added, "{sum} after {all} and {added} swaps");
    ensure!(added >= 20, "{added} swaps in 20 rounds");
    Ok(())
}

pub(super) fn bad_atomics(setup: &Setup) -> Result<()> {
    use Detail::*;
    let mut pair = Pair::open(0)?;
    let (remote, rkey) = (pair.b.memory.addr(), pair.b.mr.keys.rkey);
    let end = remote + pair.b.memory.bytes() as u64;
    let others = IB_UVERBS_ACCESS_REMOTE_WRITE | IB_UVERBS_ACCESS_REMOTE_READ;
    let owners = IB_UVERBS_ACCESS_LOCAL_WRITE;
    let poor = Mr::of(&pair.b.pd, remote, 4096, others | owners)?;
    let read_only = Mr::of(&pair.a.pd, pair.a.memory.addr(), 4096, 0)?;
    let add = |addr, key| Wqe::fetch_add(0, addr, key, 1);
    let swap = |addr, key| Wqe::compare_swap(0, addr, key, (0, 1));
    let into = |wqe| pair.a.with(wqe, 0, 8);
    let (refused, protection) = (Status::LocalQpOperation, Status::LocalProtection);
    let (access, invalid) = (Status::RemoteAccess, Status::RemoteInvalidRequest);
    let mine = pair.a.memory.addr();
    let no_lkey = add(remote, rkey).sge(mine, 8, 0);
    let weak = swap(remote, rkey).sge(mine, 8, read_only.keys.lkey);
    let room = |bytes| pair.a.with(add(remote, rkey), 0, bytes);
    let mut inline = into(add(remote, rkey));
    inline.head.flags |= qpair_abi::entry::send_flags::INLINE;
    let all = vec![
        wrong("no SGE", refused, Sges, add(remote, rkey)),
        wrong("two SGEs", refused, Sges, into(into(swap(remote, rkey)))),
        wrong("inline data", refused, Flags, inline),
        wrong("7 bytes", Status::LocalLength, Message, room(7)),
        wrong("9 bytes", Status::LocalLength, Message, room(9)),
        wrong("no key of the result", protection, Key, no_lkey),
        wrong("a result that is read-only", protection, Rights, weak),
        wrong("no key", access, Key, into(add(remote, 0))),
        wrong(
            "a key of its own",
            access,
            Domain,
            into(add(mine, pair.a.mr.keys.rkey)),
        ),
        wrong("behind the end", access, Range, into(swap(end, rkey))),
        wrong(
            "before the start",
            access,
            Range,
            into(add(remote - 8, rkey)),
        ),
        wrong(
            "no right",
            access,
            Rights,
            into(add(remote, poor.keys.rkey)),
        ),
        wrong(
            "no right to swap",
            access,
            Rights,
            into(swap(remote, poor.keys.rkey)),
        ),
        wrong(
            "1 past a multiple",
            invalid,
            Alignment,
            into(add(remote + 1, rkey)),
        ),
        wrong(
            "4 past a multiple",
            invalid,
            Alignment,
            into(swap(remote + 4, rkey)),
        ),
        wrong(
            "not aligned, and no key",
            invalid,
            Alignment,
            into(swap(remote + 4, 0)),
        ),
    ];
    all_fail(setup, &mut pair, all)?;

    // The queue pair's access rights apply, whatever the region permits.
    pair.b.qp.modify(ib_uverbs_modify_qp {
        attr_mask: qp_mask::ACCESS_FLAGS,
        qp_access_flags: others,
        ..Default::default()
    })?;
    pair.b.memory.store(0, 77);
    let wqe = pair.a.with(Wqe::fetch_add(5, remote, rkey, 1), 0, 8);
    pair.a.qp.post(&wqe);
    let cqe = pair.a.ends(5, invalid)?;
    let rights = (Detail::from_code(cqe.vendor), cqe.opcode);
    ensure!(rights == (Some(Rights), opcode::FETCH_ADD), "{cqe:?}");
    let word = pair.b.memory.load(0);
    ensure!(word == 77, "an atomic that was refused wrote {word}");
    Ok(())
}
