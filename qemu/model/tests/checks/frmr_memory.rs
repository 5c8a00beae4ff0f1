// SPDX-License-Identifier: GPL-2.0
//! The memory of fast registration memory regions, and what an invalidation ends.

use super::buffers::Pages;
use super::checks;
use super::frmr::bind_error;
use super::frmr::memory;
use super::frmr::pair;
use super::frmr::wqe_of;
use super::frmr::PAGE;
use super::frmr::VA;
use crate::harness::*;
use qpair_abi::command::*;
use qpair_abi::entry::opcode as work;
use qpair_abi::entry::*;
use qpair_abi::status::Detail;
use qpair_abi::status::Status;
use qpair_abi::Number;
use qpair_model::Config;

checks![
    registrations_that_are_malformed,
    registrations_that_have_no_memory,
    registrations_of_any_memory,
    tables_are_read_at_the_first_use,
    other_pages_in_the_same_table,
    old_keys_are_refused,
    nothing_moves_after_an_invalidation,
    a_mapping_ends_with_its_registration,
    frmrs_keep_so_many_mappings,
    a_registration_takes_the_room_of_the_one_before,
    a_request_finds_what_the_one_before_has_done,
];

fn registrations_that_are_malformed() {
    let (mut p, frmr, key) = pair();
    let good = registration(key, VA, block(memory(&p.m), PAGE));
    let free = p.m.query_frmr(frmr);
    let mut fails = |words: [u64; RegWqe::WORDS], detail, what: u32| {
        p.m.post_words(&mut p.b, &words);
        p.m.ring_sq(&p.b);
        p.m.settle();
        let expected = (Status::LocalQpOperation, detail);
        assert_eq!(outcome(&p.done_b()[0]), expected, "{what}");
        assert_eq!(p.m.query_frmr(frmr), free);
        again(&mut p);
    };
    for (word, reserved) in RegWqe::RESERVED.into_iter().enumerate() {
        for bit in (0..64).filter(|bit| reserved >> bit & 1 != 0) {
            let mut words = good.encode();
            words[word] |= 1 << bit;
            fails(words, Detail::Flags, bit);
        }
    }
    for bit in (0..32).filter(|bit| u32::from(FRMR_RIGHTS) >> bit & 1 == 0) {
        let access = good.access | 1 << bit;
        fails(RegWqe { access, ..good }.encode(), Detail::Flags, bit);
    }
    for bit in [1, 3, 4, 5, 6, 7] {
        let flags = good.flags | 1 << bit;
        fails(RegWqe { flags, ..good }.encode(), Detail::Flags, bit);
    }
    let (sges, inline_bytes) = (1, 1);
    fails(RegWqe { sges, ..good }.encode(), Detail::Sges, 1);
    fails(
        RegWqe {
            inline_bytes,
            ..good
        }
        .encode(),
        Detail::Inline,
        1,
    );
    // Of several faults the first counts.
    let all = RegWqe {
        access: 1 << 31,
        sges: 1,
        inline_bytes: 1,
        ..good
    };
    fails(all.encode(), Detail::Flags, 2);
    let access = good.access;
    fails(RegWqe { access, ..all }.encode(), Detail::Sges, 2);
    // A fence is a flag of each opcode.
    let flags = good.flags | send_flags::FENCE;
    assert_eq!(p.register(RegWqe { flags, ..good }), DONE);
}

fn registrations_that_have_no_memory() {
    let config = Config {
        log_region: 20,
        ..Config::default()
    };
    let mut p = Pair::registering(Machine::with(config));
    let (frmr, key) = p.m.frmr(p.pd_b);
    let pages = Pages::new(&p.m, 3 * PAGE, 1, 12, 100);
    let good = registration(key | 3, VA, pages.list);
    let list = |change: fn(&mut BufferList)| {
        let mut buffer = good.buffer;
        change(&mut buffer);
        RegWqe { buffer, ..good }
    };
    let free = p.m.query_frmr(frmr);
    for (case, wqe) in [
        list(|list| list.levels = 3),
        list(|list| list.levels = 0),
        list(|list| list.page_shift = 11),
        list(|list| list.page_shift = 31),
        list(|list| list.offset = 4096),
        list(|list| list.bytes = 0),
        list(|list| list.bytes = (1 << 20) + 1),
        list(|list| list.root += 4),
        list(|list| list.root = u64::MAX - 7),
        RegWqe {
            addr: u64::MAX - 3 * PAGE + 2,
            ..good
        },
        RegWqe {
            buffer: block(u64::MAX - 62, 64),
            ..good
        },
    ]
    .into_iter()
    .enumerate()
    {
        assert_eq!(p.register(wqe), bind_error(Detail::Range), "{case}");
        assert_eq!(p.m.query_frmr(frmr), free, "a tag of its own included");
        again(&mut p);
    }
    assert_eq!(p.register(good), DONE);
}

/// Writes and reads at the ends of a registration of `bytes` bytes, whose byte `n` is at `at(n)`.
fn ends(p: &mut Pair, key: u32, va: u64, bytes: u64, at: impl Fn(u64) -> u64) {
    for from in [0, bytes - 8] {
        let word = 0x0123_4567_89ab_cdef ^ va.wrapping_add(from);
        p.m.memory.set_word(p.mr_a.addr, word);
        let got = try_key(p, work::WRITE, key, va.wrapping_add(from));
        assert_eq!(got, DONE);
        for (nth, byte) in word.to_le_bytes().into_iter().enumerate() {
            let there = p.m.memory.bytes(at(from + nth as u64), 1);
            assert_eq!(there, [byte]);
        }
        p.m.memory.set_word(p.mr_a.addr, 0);
        let got = try_key(p, work::READ, key, va.wrapping_add(from));
        assert_eq!(got, DONE);
        assert_eq!(p.m.memory.word(p.mr_a.addr), word);
    }
    for addr in [va.wrapping_sub(1), va.wrapping_add(bytes - 7)] {
        let got = try_key(p, work::WRITE, key, addr);
        assert_eq!(got, refused(Detail::Range));
        again(p);
    }
}

fn registrations_of_any_memory() {
    let (mut p, _, key) = pair();
    for (levels, shift, offset, bytes) in [
        (1, 12, 0, PAGE),
        (1, 12, 100, 3 * PAGE),
        (1, 14, 9000, 40_000),
        (2, 12, 4095, 600 * PAGE),
    ] {
        // The lower bits of an address need not be those of the memory.
        for va in [0, VA + 77, u64::MAX - bytes + 1] {
            let pages = Pages::new(&p.m, bytes, levels, shift, offset);
            let wqe = registration(key, va, pages.list);
            assert_eq!(p.register(wqe), DONE);
            ends(&mut p, key, va, bytes, |byte| pages.at(byte));
            assert_eq!(p.invalidate(key), DONE);
        }
    }
    // A block, which needs no alignment.
    let at = p.m.memory.alloc(PAGE, PAGE, Grant::Write) + 3;
    assert_eq!(p.register(registration(key, 1, block(at, 99))), DONE);
    ends(&mut p, key, 1, 99, |byte| at + byte);
    assert_eq!(p.invalidate(key), DONE);
    // One without a byte has none.
    let none = registration(key, VA, BufferList::default());
    assert_eq!(p.register(none), DONE);
    let got = try_key(&mut p, work::WRITE, key, VA);
    assert_eq!(got, refused(Detail::Range));
}

fn tables_are_read_at_the_first_use() {
    let (mut p, frmr, key) = pair();
    let root = p.m.memory.alloc(64, 64, Grant::Read);
    p.m.memory.set_words(root, &[memory(&p.m) + 8]);
    for root in [0x7000, root] {
        let list = BufferList {
            root,
            bytes: PAGE,
            offset: 0,
            page_shift: 12,
            levels: 1,
        };
        // An access to the first one fails the test here.
        p.m.memory.set_lenient(false);
        assert_eq!(p.register(registration(key, 0, list)), DONE);
        p.m.memory.set_lenient(true);
        let got = try_key(&mut p, work::WRITE, key, 0);
        assert_eq!(got, (Status::RemoteOperation, Detail::Dma));
        again(&mut p);
        assert_eq!(p.m.query_frmr(frmr).valid, 1);
        assert_eq!(p.invalidate(key), DONE);
    }
}

fn other_pages_in_the_same_table() {
    let (mut p, _, key) = pair();
    let first = Pages::new(&p.m, 4 * PAGE, 1, 12, 0);
    let root = first.list.root;
    let mut old: Vec<(u64, u64)> = Vec::new();
    for round in 1..20_u32 {
        let pages = Pages::new(&p.m, 4 * PAGE, 1, 12, 0);
        let entries: [u64; 4] = p.m.memory.words(pages.list.root);
        p.m.memory.set_words(root, &entries);
        let key = key | round;
        assert_eq!(p.register(registration(key, 0, first.list)), DONE);
        for page in [0, 3, 3, 3, 1, 0, 0] {
            p.m.memory.set_word(p.mr_a.addr, round.into());
            let got = try_key(&mut p, work::WRITE, key, page * PAGE);
            assert_eq!(got, DONE);
            assert_eq!(p.m.memory.word(pages.at(page * PAGE)), round.into());
        }
        // The old pages are software's: they were revoked.
        assert!(old
            .iter()
            .all(|(page, word)| p.m.memory.word(*page) == *word));
        assert_eq!(p.invalidate(key), DONE);
        for entry in entries {
            p.m.memory.revoke(entry);
            old.push((entry, p.m.memory.word(entry)));
        }
    }
}

fn old_keys_are_refused() {
    let (mut p, _, key) = pair();
    let at = memory(&p.m);
    for tag in 0..=u8::MAX {
        let wqe = registration(key | u32::from(tag), VA, block(at, PAGE));
        assert_eq!(p.register(wqe), DONE);
        assert_eq!(p.invalidate(wqe.key), DONE);
    }
    let last = registration(key | 0x55, VA, block(at, PAGE));
    assert_eq!(p.register(last), DONE);
    for tag in 0..=u8::MAX {
        let named = key | u32::from(tag);
        let got = try_key(&mut p, work::WRITE, named, VA);
        if named == last.key {
            assert_eq!(got, DONE);
        } else {
            assert_eq!(got, refused(Detail::Key), "{tag}");
            again(&mut p);
        }
    }
}

/// Which part a message has in an FRMR.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Written,
    Read,
    Sent,
    Received,
    /// It is in a receive of an SRQ.
    Shared,
}

/// What takes it away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Invalidated,
    ByPeer,
    Destroyed,
    RegisteredAnew,
    /// It is registered anew with the same key, which the message names.
    SameKey,
}

const WAYS: [Way; 5] = [
    Way::Invalidated,
    Way::ByPeer,
    Way::Destroyed,
    Way::RegisteredAnew,
    Way::SameKey,
];

const LONG: u32 = 1 << 16;
/// Bytes of a turn.
const TURN: u32 = 4096;

fn nothing_moves_after_an_invalidation() {
    use Part::*;
    for way in WAYS {
        for part in [Written, Read, Sent, Received, Shared] {
            // Its last turn may be before that of the invalidation.
            for turns in 1..LONG / TURN - 1 {
                taken_away(service::RC, part, way, turns);
            }
        }
        for part in [Written, Sent, Received] {
            for turns in [3, 8] {
                taken_away(service::UC, part, way, turns);
            }
        }
    }
}

fn taken_away(service: u8, part: Part, way: Way, turns: u32) {
    let what = format!("{service} {part:?} {way:?} {turns}");
    let mut m = Machine::with(Config {
        turn_bytes: TURN,
        ..Config::default()
    });
    let of_srq = m.pd();
    let mut srq = m.srq(of_srq, 4);
    let is_shared = part == Part::Shared;
    let mut p = Pair::on(m, |a, b| {
        (a.service, b.service) = (service, service);
        b.srq = is_shared.then_some(srq.number);
    });
    let pd = if is_shared { of_srq } else { p.pd_b };
    // A second pair of the same domains, on a page whose turns alternate with the first one's.
    let (mut cq_c, mut cq_d) = (
        p.m.cq_of(Number::ADMIN, 4, 1, 0),
        p.m.cq_of(Number::ADMIN, 4, 1, 0),
    );
    let of_page = |spec: QpSpec| QpSpec {
        page: 1,
        flags: qp_flags::REGISTERS,
        ..spec
    };
    let spec_c = of_page(Machine::spec(p.pd_a, &cq_c));
    let spec_d = of_page(Machine::spec(pd, &cq_d));
    let (mut c, mut d) = p.m.pair(&spec_c, &spec_d);
    let pages = Pages::new(&p.m, LONG.into(), 1, 12, 0);
    let block_at = |p: &Pair| p.m.memory.alloc(LONG.into(), PAGE, Grant::Write);
    let (at, other) = (block_at(&p), block_at(&p));
    let paged = turns % 2 == 0;
    let list = match paged {
        true => pages.list,
        false => block(at, LONG.into()),
    };
    // Region, FRMR, and FRMR as it is registered anew.
    p.m.memory.set_bytes(p.mr_a.addr, &[1; LONG as usize]);
    p.m.memory.set_bytes(at, &[2; LONG as usize]);
    for page in 0..u64::from(LONG) / PAGE {
        let at = pages.at(page * PAGE);
        p.m.memory.set_bytes(at, &[2; PAGE as usize]);
    }
    p.m.memory.set_bytes(other, &[3; LONG as usize]);
    let key = p.m.registered(pd, VA, list);
    let own = Sge {
        addr: VA,
        bytes: LONG,
        lkey: key,
    };
    let far = by_key(&p, work::WRITE, key, VA);
    let to_a = SendWqe {
        remote_addr: p.mr_a.va,
        rkey: p.mr_a.key.raw(),
        ..wqe(work::WRITE, 1)
    };
    let all = p.mr_a.sge(0, LONG);
    let request = |opcode| SendWqe { opcode, ..far };
    match part {
        Part::Written => p.m.post(&mut p.a, far, &[all]),
        Part::Read => p.m.post(&mut p.a, request(work::READ), &[all]),
        Part::Sent => p.m.post(&mut p.b, to_a, &[own]),
        Part::Received => {
            p.recv(5, &[own]);
            p.m.post(&mut p.a, request(work::SEND), &[all]);
        }
        Part::Shared => {
            p.m.post_shared(&mut srq, 5, &[own]);
            p.m.ring_srq(&srq);
            p.m.settle();
            p.m.post(&mut p.a, request(work::SEND), &[all]);
        }
    }
    let sender = if part == Part::Sent { p.b } else { p.a };
    p.m.ring_sq(&sender);
    for _ in 0..turns {
        p.m.f.run(1);
    }
    let moved = p.m.query_moved();
    assert!(moved > 0 && moved < LONG.into(), "{what}: {moved}");
    match way {
        Way::Destroyed => {
            let (frmr, _) = frmr_of(key).unwrap();
            p.m.destroy_now(kind::FRMR, frmr);
        }
        Way::ByPeer => {
            p.m.post_recv(&mut d, 6, &[]);
            p.m.ring(1, qpair_abi::doorbell::RQ, d.number, d.rq_tail);
            let wqe = SendWqe {
                imm: key,
                ..wqe(work::SEND_INV, 1)
            };
            p.m.post(&mut c, wqe, &[]);
            p.m.ring_sq(&c);
        }
        _ => {
            p.m.post(&mut d, invalidation(key), &[]);
            let anew = match way {
                Way::RegisteredAnew => Some(key + 1),
                Way::SameKey => Some(key),
                _ => None,
            };
            if let Some(key) = anew {
                let anew = registration(key, VA, block(other, LONG.into()));
                p.m.post_words(&mut d, &anew.encode());
            }
            p.m.ring_sq(&d);
        }
    }
    let expected = match way {
        Way::Destroyed => 0,
        Way::RegisteredAnew | Way::SameKey => 2,
        _ => 1,
    };
    let mut done = Vec::new();
    for _ in 0..8 {
        if done.len() == expected {
            break;
        }
        p.m.f.run(1);
        done.extend(p.m.drain(&mut cq_d));
    }
    assert_eq!(
        done.len(),
        expected,
        "{what}: it waits for a turn of the other page"
    );
    assert!(done.iter().all(|cqe| cqe.status == 0), "{what}");
    // The memory is software's from here on: the machine fails the test if it is accessed.
    let moved = p.m.query_moved();
    assert!(moved < LONG.into(), "{what}: {moved}");
    if paged {
        for page in 0..u64::from(LONG) / PAGE {
            p.m.memory.revoke(pages.at(page * PAGE));
        }
        p.m.memory.revoke(pages.list.root);
    } else {
        p.m.memory.revoke(at);
    }
    p.m.settle();
    let goes_on = way == Way::SameKey;
    let end = if goes_on { u64::from(LONG) } else { moved };
    assert_eq!(p.m.query_moved(), end, "{what}");
    let near = p.done_a().first().map(outcome);
    let far = p.done_b().first().map(outcome);
    let is_rc = service == service::RC;
    let protection = (Status::LocalProtection, Detail::Key);
    let unless_dropped = |why| Some(if is_rc { why } else { DONE });
    let expected = match part {
        _ if goes_on => match part {
            Part::Written | Part::Read => (Some(DONE), None),
            Part::Sent => (None, Some(DONE)),
            Part::Received | Part::Shared => (Some(DONE), Some(DONE)),
        },
        Part::Written | Part::Read => (unless_dropped(refused(Detail::Key)), None),
        Part::Sent => (None, Some(protection)),
        Part::Received | Part::Shared => {
            let near = unless_dropped((Status::RemoteOperation, Detail::Key));
            (near, Some(protection))
        }
    };
    assert_eq!((near, far), expected, "{what}");
    p.m.drain(&mut cq_c);
    // The rest is where it was, or comes from the new memory or goes there.
    let reads = matches!(part, Part::Read | Part::Sent);
    let (target, before, after) = match (reads, goes_on) {
        (true, true) => (p.mr_a.addr, 2, 3),
        (true, false) => (p.mr_a.addr, 2, 1),
        (false, true) => (other, 3, 1),
        (false, false) => (other, 3, 3),
    };
    let bytes = p.m.memory.bytes(target, LONG as usize);
    let (first, rest) = bytes.split_at(moved as usize);
    assert!(first.iter().all(|byte| *byte == before), "{what}");
    assert!(rest.iter().all(|byte| *byte == after), "{what}");
}

fn a_mapping_ends_with_its_registration() {
    for way in 0..5 {
        let (mut p, frmr, key) = pair();
        let at = memory(&p.m);
        let wqe = registration(key, VA, block(at, PAGE));
        // All else is mapped, and stays so.
        for _ in 0..3 {
            p.recv(5, &[p.mr_b.sge(0, 8)]);
            p.send(wqe_of(work::SEND), &[p.mr_a.sge(0, 8)]);
            assert_eq!((p.done_a().len(), p.done_b().len()), (1, 1));
        }
        assert_eq!(p.register(wqe), DONE);
        let others = p.m.memory.live_maps();
        for mapped in [0, 1, 1] {
            assert_eq!(try_key(&mut p, work::WRITE, key, VA), DONE);
            assert_eq!(p.m.memory.live_maps(), others + mapped);
        }
        match way {
            0 => assert_eq!(p.invalidate(key), DONE),
            1 => assert_eq!(p.send_inv(key), [DONE; 2]),
            2 => _ = p.m.destroy(kind::FRMR, frmr).unwrap(),
            3 => p.m.f.unmap(at + 64, 1),
            _ => {
                p.m.f.reset();
                assert_eq!(p.m.memory.live_maps(), 0);
                continue;
            }
        }
        assert_eq!(p.m.memory.live_maps(), others, "{way}");
        if way == 3 {
            // The system took the addresses away, and gave them back.
            assert_eq!(try_key(&mut p, work::WRITE, key, VA), DONE);
            assert_eq!(p.m.memory.live_maps(), others + 1);
        }
    }
}

fn frmrs_keep_so_many_mappings() {
    let mut p = Pair::registering(Machine::new());
    let pd = p.pd_b;
    let keys: Vec<u32> = (0..300).map(|_| p.m.frmr(pd).1).collect();
    let rings = p.m.memory.live_maps();
    let mut blocks = Vec::new();
    for round in 0..3 {
        for key in &keys {
            let at = memory(&p.m);
            let wqe = registration(key | round, VA, block(at, PAGE));
            assert_eq!(p.register(wqe), DONE);
            for _ in 0..2 {
                assert_eq!(try_key(&mut p, work::WRITE, wqe.key, VA), DONE);
            }
            blocks.push((wqe.key, at));
        }
        // The rings, and the region of the sender.
        let maps = p.m.memory.live_maps();
        assert!(maps <= rings + 8 + 256, "{maps}");
        for (key, at) in blocks.drain(..) {
            assert_eq!(p.invalidate(key), DONE);
            p.m.memory.revoke(at);
        }
        assert!(p.m.memory.live_maps() <= rings + 8);
    }
}

/// Of at most 256 regions that keep a mapping, an FRMR is one, whatever its tag.
fn a_registration_takes_the_room_of_the_one_before() {
    let mut p = Pair::registering(Machine::new());
    let pd = p.pd_b;
    let keys: Vec<u32> = (0..200).map(|_| p.m.frmr(pd).1).collect();
    let (other, at) = (p.m.frmr(pd).1, memory(&p.m));
    let use_twice = |p: &mut Pair, key, at| {
        assert_eq!(p.register(registration(key, VA, block(at, PAGE))), DONE);
        for _ in 0..2 {
            assert_eq!(try_key(p, work::WRITE, key, VA), DONE);
        }
    };
    // The rings and the region of the sender are mapped, and stay so.
    use_twice(&mut p, other, at);
    let others = p.m.memory.live_maps();
    for round in 0..3 {
        for key in &keys {
            use_twice(&mut p, key | round, at);
        }
        assert_eq!(p.m.memory.live_maps(), others + keys.len(), "{round}");
        for key in &keys {
            assert_eq!(p.invalidate(key | round), DONE);
        }
    }
}

fn a_request_finds_what_the_one_before_has_done() {
    for turn_wqes in [16, 1] {
        let config = Config {
            turn_wqes,
            ..Config::default()
        };
        let mut p = Pair::registering(Machine::with(config));
        let key = p.m.frmr(p.pd_b).1;
        // One doorbell: each registration is of other memory, and the WRITE after it reads there.
        let mut expected = Vec::new();
        for round in 0..4_u32 {
            let at = memory(&p.m);
            p.m.memory.set_word(at, u64::from(round) + 70);
            let key = key | round;
            // Without a completion of their own.
            let wqe = RegWqe {
                flags: 0,
                ..registration(key, VA, block(at, PAGE))
            };
            p.m.post_words(&mut p.b, &wqe.encode());
            let write = SendWqe {
                remote_addr: p.mr_a.va + 8 * u64::from(round),
                rkey: p.mr_a.key.raw(),
                flags: 0,
                ..wqe_of(work::WRITE)
            };
            let own = Sge {
                addr: VA,
                bytes: 8,
                lkey: key,
            };
            p.m.post(&mut p.b, write, &[own]);
            let inval = SendWqe {
                flags: send_flags::SIGNALED,
                ..invalidation(key)
            };
            p.m.post(&mut p.b, inval, &[]);
            expected.push(u64::from(round) + 70);
        }
        p.m.ring_sq(&p.b);
        p.m.settle();
        assert!(p.done_b().iter().all(|cqe| cqe.status == 0));
        let got: [u64; 4] = p.m.memory.words(p.mr_a.addr);
        assert_eq!(got, *expected);
        // A registration, and the message that names its key: the peer may use it at once.
        let at = memory(&p.m);
        let wqe = RegWqe {
            flags: 0,
            ..registration(key | 9, VA, block(at, PAGE))
        };
        p.m.post_words(&mut p.b, &wqe.encode());
        p.m.recv(&mut p.a, 7, &[]);
        p.m.send(&mut p.b, wqe_of(work::SEND), &[]);
        assert_eq!(outcome(&p.done_b()[0]), DONE);
        assert_eq!(p.done_a()[0].wr_id, 7);
        assert_eq!(try_key(&mut p, work::WRITE, key | 9, VA), DONE);
    }
}
