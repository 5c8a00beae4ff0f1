// SPDX-License-Identifier: GPL-2.0
//! Atomics: what they do, what they return, and what refuses them.

use super::checks;
use crate::harness::*;
use qpair_abi::command::*;
use qpair_abi::counters::Counter;
use qpair_abi::entry::opcode as work;
use qpair_abi::entry::*;
use qpair_abi::status::Detail;
use qpair_abi::status::Event;
use qpair_abi::status::Status;

checks![
    an_atomic_returns_the_old_value,
    a_compare_and_swap_compares,
    operands_may_wrap_and_lie_across_pages,
    every_add_counts_once,
    the_result_is_checked,
    the_peers_memory_is_checked,
    an_address_that_is_not_aligned,
    memory_that_cannot_be_accessed,
    an_atomic_on_its_own_result,
    a_region_for_atomics_alone,
    atomics_are_in_the_order_of_the_queue,
];

fn an_atomic_returns_the_old_value() {
    let mut p = Pair::new();
    let (target, result) = (p.mr_b.addr + 64, p.mr_a.addr + 16);
    p.m.memory.set_words(target - 8, &[1, 40, 2]);
    p.m.memory.set_words(result - 8, &[3, 4, 5]);
    let wqe = p.atomic(work::FETCH_ADD, 64, 2, u64::MAX);
    p.send_atomic(wqe, &[p.mr_a.sge(16, 8)]);
    let done = Cqe {
        wr_id: 1,
        qp: p.a.number,
        bytes: 8,
        index: 1,
        opcode: work::FETCH_ADD,
        ..Cqe::default()
    };
    assert_eq!(p.done_a(), [done]);
    assert_eq!(p.m.memory.words(target - 8), [1, 42, 2], "8 bytes, no more");
    assert_eq!(p.m.memory.words(result - 8), [3, 40, 5]);
    let fence = AtomicWqe {
        flags: send_flags::SIGNALED | send_flags::FENCE,
        ..p.atomic(work::COMPARE_SWAP, 64, 42, 7)
    };
    p.send_atomic(fence, &[p.mr_a.sge(16, 8)]);
    let done = Cqe {
        index: 2,
        opcode: work::COMPARE_SWAP,
        ..done
    };
    assert_eq!(p.done_a(), [done]);
    assert_eq!(p.m.memory.words(target - 8), [1, 7, 2]);
    assert_eq!(p.m.memory.words(result - 8), [3, 42, 5]);
    assert_eq!(p.done_b(), [], "the peer is not affected");
    let counts = [Counter::Atomics, Counter::ReadBytes, Counter::WriteBytes];
    assert_eq!(counts.map(|one| p.m.f.counter(one)), [2, 0, 0]);
}

fn a_compare_and_swap_compares() {
    let mut p = Pair::new();
    p.m.memory.set_word(p.mr_b.addr, 5);
    for (compare, swap, old, new) in [
        (4, 9, 5, 5),
        (5 | 1 << 63, 9, 5, 5),
        (5 | 1 << 32, 9, 5, 5),
        (5, u64::MAX, 5, u64::MAX),
        (5, 9, u64::MAX, u64::MAX),
        (u64::MAX, 5, u64::MAX, 5),
    ] {
        let wqe = p.atomic(work::COMPARE_SWAP, 0, compare, swap);
        p.send_atomic(wqe, &[p.mr_a.sge(0, 8)]);
        assert_eq!(p.done_a()[0].status, 0, "also if nothing is swapped");
        let is = (p.m.memory.word(p.mr_a.addr), p.m.memory.word(p.mr_b.addr));
        assert_eq!(is, (old, new), "{compare:x}");
    }
}

/// Makes a region of the peer of two pages that are not neighbours, whose first byte has the
/// address `va`.
fn scattered(p: &mut Pair, va: u64, offset: u32) -> (TestMr, [u64; 2]) {
    let pages = [4, 8].map(|gap| p.m.memory.alloc(gap << 12, 4096, Grant::Write));
    let table = p.m.memory.alloc(16, 8, Grant::Read);
    p.m.memory.set_words(table, &pages);
    let context = MrContext {
        pd: p.pd_b,
        access: access::ALL,
        addr: va,
        buffer: BufferList {
            root: table,
            bytes: 4096 + 64,
            offset,
            page_shift: 12,
            levels: 1,
        },
        ..MrContext::default()
    };
    let key = p.m.create(kind::MR, &context.encode()).unwrap();
    let mr = TestMr {
        key,
        va,
        addr: pages[0],
        bytes: 4096 + 64,
    };
    (mr, pages)
}

fn operands_may_wrap_and_lie_across_pages() {
    let mut p = Pair::new();
    // An aligned address of the region, 4 bytes of which are in either page.
    let (mr, pages) = scattered(&mut p, 0x1000, 4);
    p.m.memory.set_bytes(pages[0] + 4092, &[0xff; 4]);
    p.m.memory.set_bytes(pages[1], &[0xff; 4]);
    for old in [u64::MAX, 1] {
        let wqe = AtomicWqe {
            rkey: mr.key.raw(),
            remote_addr: 0x1000 + 4088,
            ..p.atomic(work::FETCH_ADD, 0, 2, 0)
        };
        p.send_atomic(wqe, &[p.mr_a.sge(1, 8)]);
        assert_eq!(p.done_a()[0].status, 0);
        let result = p.m.memory.bytes(p.mr_a.addr + 1, 8);
        assert_eq!(result, old.to_le_bytes(), "where it is need not be aligned");
    }
    assert_eq!(p.m.memory.bytes(pages[0] + 4092, 4), [3, 0, 0, 0]);
    assert_eq!(p.m.memory.bytes(pages[1], 5), [0; 5]);
}

fn every_add_counts_once() {
    // Four queue pairs of two domains and two pages add to one word, in any turns.
    let config = qpair_model::Config {
        turn_wqes: 3,
        ..Default::default()
    };
    let mut m = Machine::with(config);
    let (pd_a, pd_b) = (m.pd(), m.pd());
    let target = m.mr(pd_b, 4096);
    let results = m.mr(pd_a, 4096);
    let mut cqs = Vec::new();
    let mut senders = Vec::new();
    for at in 0..4 {
        let cq = m.cq_of(qpair_abi::Number::ADMIN, 6, at % 2, 0);
        let near = QpSpec {
            page: at % 2,
            ..Machine::spec(pd_a, &cq)
        };
        let far = Machine::spec(pd_b, &cq);
        senders.push(m.pair(&near, &far).0);
        cqs.push(cq);
    }
    m.f.set_stall(true);
    for (at, qp) in (0..).zip(&mut senders) {
        for id in 0..16 {
            let wqe = AtomicWqe {
                opcode: work::FETCH_ADD,
                flags: send_flags::SIGNALED,
                wr_id: id,
                remote_addr: target.va,
                rkey: target.key.raw(),
                compare_add: 1,
                ..AtomicWqe::default()
            };
            let into = results.sge((at * 16 + id) * 8, 8);
            m.post_words(qp, &atomic_words(wqe, &[into]));
        }
        m.ring_sq(qp);
    }
    m.f.set_stall(false);
    m.settle();
    let mut seen: Vec<_> = (0..64)
        .map(|at| m.memory.word(results.addr + at * 8))
        .collect();
    assert!(!seen.is_sorted(), "they took turns");
    seen.sort_unstable();
    assert!(seen.into_iter().eq(0..64), "each value was seen once");
    assert_eq!(m.memory.word(target.addr), 64);
    for mut cq in cqs {
        assert_eq!(m.drain(&mut cq).len(), 16);
    }
}

/// Checks that an atomic with these SGEs is refused, and that neither end was changed.
fn is_refused(p: &mut Pair, wqe: AtomicWqe, sges: &[Sge], expected: (Status, Detail)) {
    p.m.memory.set_word(p.mr_a.addr, 11);
    p.m.memory.set_word(p.mr_b.addr, 5);
    p.send_atomic(wqe, sges);
    let cqes = p.done_a();
    assert_eq!(cqes.len(), 1);
    assert_eq!(outcome(&cqes[0]), expected, "{wqe:?} {sges:?}");
    assert_eq!((cqes[0].bytes, cqes[0].opcode), (0, wqe.opcode));
    assert_eq!(p.state(p.a.number), qp_state::ERROR);
    assert_eq!(p.m.memory.word(p.mr_a.addr), 11);
    assert_eq!(p.m.memory.word(p.mr_b.addr), 5);
    assert_eq!(p.m.f.counter(Counter::Atomics), 0);
    assert_eq!(p.done_b(), []);
}

fn the_result_is_checked() {
    use Status::*;
    for case in 0..8 {
        let mut p = Pair::new();
        let good = p.mr_a.sge(0, 8);
        let wqe = p.atomic(work::FETCH_ADD, 0, 1, 0);
        let with = |flags| AtomicWqe { flags, ..wqe };
        let (wqe, sges, expected) = match case {
            0 => (wqe, vec![], (LocalQpOperation, Detail::Sges)),
            1 => (wqe, vec![good; 2], (LocalQpOperation, Detail::Sges)),
            2 => (wqe, vec![p.mr_a.sge(0, 7)], (LocalLength, Detail::Message)),
            3 => (wqe, vec![p.mr_a.sge(0, 0)], (LocalLength, Detail::Message)),
            4 => (wqe, vec![p.mr_a.sge(0, 9)], (LocalLength, Detail::Message)),
            5 => (wqe, vec![p.mr_a.sge(0, 16)], (LocalLength, Detail::Message)),
            6 => {
                let inline = with(send_flags::INLINE);
                (inline, vec![good], (LocalQpOperation, Detail::Flags))
            }
            _ => {
                let bytes = AtomicWqe {
                    inline_bytes: 8,
                    ..wqe
                };
                (bytes, vec![good], (LocalQpOperation, Detail::Inline))
            }
        };
        is_refused(&mut p, wqe, &sges, expected);
        assert_eq!(p.state(p.b.number), qp_state::RTS);
    }
    // Its region is looked up when the old value has come: the peer's memory has changed.
    for case in 0..3 {
        let mut p = Pair::new();
        let read_only =
            p.m.mr_at(p.pd_a, 0, 4096, access::ALL & !access::LOCAL_WRITE);
        let (sge, detail) = match case {
            0 => (p.mr_a.sge((1 << 20) - 7, 8), Detail::Range),
            1 => (p.mr_b.sge(0, 8), Detail::Domain),
            _ => (read_only.sge(0, 8), Detail::Rights),
        };
        p.m.memory.set_word(p.mr_b.addr, 5);
        p.send_atomic(p.atomic(work::COMPARE_SWAP, 0, 5, 6), &[sge]);
        assert_eq!(outcome(&p.done_a()[0]), (LocalProtection, detail));
        assert_eq!(p.m.memory.word(p.mr_b.addr), 6);
        assert_eq!(p.state(p.b.number), qp_state::RTS);
    }
}

fn the_peers_memory_is_checked() {
    for (case, detail) in [
        (0, Detail::Key),
        (1, Detail::Domain),
        (2, Detail::Range),
        (3, Detail::Range),
        (4, Detail::Rights),
    ] {
        for opcode in [work::COMPARE_SWAP, work::FETCH_ADD] {
            let mut p = Pair::new();
            let others = access::ALL & !access::REMOTE_ATOMIC;
            let weak = p.m.mr_at(p.pd_b, p.mr_b.va, 1 << 20, others);
            let mut wqe = p.atomic(opcode, 0, 5, 1);
            match case {
                0 => wqe.rkey = p.mr_b.key.next().raw(),
                1 => wqe.rkey = p.mr_a.key.raw(),
                2 => wqe.remote_addr -= 8,
                3 => wqe.remote_addr += 1 << 20,
                _ => wqe.rkey = weak.key.raw(),
            }
            let into = p.mr_a.sge(0, 8);
            is_refused(&mut p, wqe, &[into], (Status::RemoteAccess, detail));
            assert_eq!(p.state(p.b.number), qp_state::ERROR);
        }
    }
    // The peer's queue pair permits other operations only.
    let others = access::REMOTE_WRITE | access::REMOTE_READ;
    let mut p = Pair::with(|_, b| b.access = others);
    let (wqe, into) = (p.atomic(work::FETCH_ADD, 0, 1, 0), p.mr_a.sge(0, 8));
    let expected = (Status::RemoteInvalidRequest, Detail::Rights);
    is_refused(&mut p, wqe, &[into], expected);
    let codes: Vec<_> =
        p.m.events0()
            .iter()
            .map(|event| (event.kind, event.code))
            .collect();
    let invalid = (Event::QpRequest.code(), Status::LocalAccess.code());
    assert_eq!(codes, [invalid], "of the peer alone");
}

fn an_address_that_is_not_aligned() {
    for at in 1..8 {
        let mut p = Pair::new();
        let wqe = p.atomic(work::FETCH_ADD, at, 1, 0);
        let into = p.mr_a.sge(0, 8);
        let expected = (Status::RemoteInvalidRequest, Detail::Alignment);
        is_refused(&mut p, wqe, &[into], expected);
        assert_eq!(p.state(p.b.number), qp_state::ERROR);
        assert_eq!(p.m.events0()[0].kind, Event::QpRequest.code());
    }
}

fn memory_that_cannot_be_accessed() {
    let mut p = Pair::new();
    let gone = p.m.mr_at(p.pd_b, 0, 4096, access::ALL);
    p.m.memory.set_lenient(true);
    p.m.memory.revoke(gone.addr);
    let wqe = AtomicWqe {
        rkey: gone.key.raw(),
        remote_addr: 0,
        ..p.atomic(work::FETCH_ADD, 0, 1, 0)
    };
    let into = p.mr_a.sge(0, 8);
    is_refused(&mut p, wqe, &[into], (Status::RemoteOperation, Detail::Dma));
    assert_eq!(p.state(p.b.number), qp_state::ERROR);
    // The peer's memory has changed when the result cannot be written.
    let mut p = Pair::new();
    let gone = p.m.mr_at(p.pd_a, 0, 4096, access::ALL);
    p.m.memory.set_lenient(true);
    p.m.memory.revoke(gone.addr);
    let wqe = p.atomic(work::FETCH_ADD, 0, 1, 0);
    p.send_atomic(wqe, &[gone.sge(0, 8)]);
    let expected = (Status::LocalProtection, Detail::Dma);
    assert_eq!(outcome(&p.done_a()[0]), expected);
    assert_eq!(p.m.memory.word(p.mr_b.addr), 1);
    assert_eq!(p.state(p.b.number), qp_state::RTS);
}

fn an_atomic_on_its_own_result() {
    let mut m = Machine::new();
    let (pd, mut cq) = (m.pd(), m.cq(4));
    let mut qp = m.qp(&Machine::spec(pd, &cq));
    m.connect(qp.number, qp.number);
    let mr = m.mr(pd, 4096);
    m.memory.set_word(mr.addr, 5);
    let wqe = AtomicWqe {
        opcode: work::FETCH_ADD,
        remote_addr: mr.va,
        rkey: mr.key.raw(),
        compare_add: 3,
        flags: send_flags::SIGNALED,
        ..AtomicWqe::default()
    };
    m.post_words(&mut qp, &atomic_words(wqe, &[mr.sge(0, 8)]));
    m.ring_sq(&qp);
    m.settle();
    assert_eq!(m.drain(&mut cq)[0].status, 0);
    assert_eq!(m.memory.word(mr.addr), 5, "the result is written last");
}

fn a_region_for_atomics_alone() {
    let mut p = Pair::new();
    let mr = p.m.mr_at(p.pd_b, 0, 4096, access::REMOTE_ATOMIC);
    for round in 0..4 {
        let wqe = AtomicWqe {
            rkey: mr.key.raw(),
            remote_addr: 8,
            ..p.atomic(work::FETCH_ADD, 0, 1, 0)
        };
        p.send_atomic(wqe, &[p.mr_a.sge(0, 8)]);
        assert_eq!(p.done_a()[0].status, 0);
        assert_eq!(p.m.memory.word(p.mr_a.addr), round);
    }
    // It can be neither written nor read.
    for opcode in [work::WRITE, work::READ] {
        let mut p = Pair::new();
        let mr = p.m.mr_at(p.pd_b, 0, 4096, access::REMOTE_ATOMIC);
        let request = SendWqe {
            rkey: mr.key.raw(),
            remote_addr: 0,
            ..p.remote(opcode, 0)
        };
        p.send(request, &[p.mr_a.sge(0, 8)]);
        let expected = (Status::RemoteAccess, Detail::Rights);
        assert_eq!(outcome(&p.done_a()[0]), expected);
    }
}

fn atomics_are_in_the_order_of_the_queue() {
    let mut p = Pair::new();
    p.m.memory.set_word(p.mr_a.addr, 100);
    let (write, read) = (p.remote(work::WRITE, 0), p.remote(work::READ, 0));
    let add = p.atomic(work::FETCH_ADD, 0, 11, 0);
    let (one, two, three) = (p.mr_a.sge(0, 8), p.mr_a.sge(8, 8), p.mr_a.sge(16, 8));
    p.m.post(&mut p.a, write, &[one]);
    p.m.post_words(&mut p.a, &atomic_words(add, &[two]));
    p.m.post(&mut p.a, read, &[three]);
    p.m.ring_sq(&p.a);
    p.m.settle();
    let opcodes: Vec<_> = p.done_a().iter().map(|cqe| cqe.opcode).collect();
    assert_eq!(opcodes, [work::WRITE, work::FETCH_ADD, work::READ]);
    assert_eq!(p.m.memory.words(p.mr_a.addr), [100, 100, 111]);
}
