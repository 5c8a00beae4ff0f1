// SPDX-License-Identifier: GPL-2.0
//! Destruction of objects: no further DMA, and no number means two objects.

use super::checks;
use crate::harness::*;
use qpair_abi::command::*;
use qpair_abi::counters::Counter;
use qpair_abi::doorbell;
use qpair_abi::entry::opcode as work;
use qpair_abi::entry::*;
use qpair_abi::status::AdminError;
use qpair_abi::status::Detail;
use qpair_abi::status::Event;
use qpair_abi::status::Status;
use qpair_abi::Number;

checks![
    a_destroyed_queue_pair_touches_nothing,
    a_destroyed_region_is_not_touched,
    a_number_waits_for_its_completions,
    a_number_waits_for_its_events,
    a_destroyed_cq_holds_nobody_up,
    indices_that_are_kept_are_counted_by_page,
    reset_makes_a_queue_pair_new,
    an_overrun_stops_its_queue_pairs_alone,
    an_overrun_by_flushing_ends,
    an_overrun_ends_the_turn,
    an_overrun_by_a_receive_ends_the_turn,
    nothing_lives_on_a_dead_cq,
    keys_do_not_follow_from_each_other,
    keys_follow_from_the_seed,
    drained_finishes_what_it_began,
    an_sq_that_has_drained_has_its_event,
    a_stale_doorbell_hits_nobody,
    the_number_of_a_queue_pair_has_24_bits,
];

fn a_destroyed_queue_pair_touches_nothing() {
    for opcode in [work::SEND, work::WRITE, work::READ] {
        let mut p = Pair::with(|a, b| (a.log_sq, b.log_rq) = (4, 4));
        p.recv(1, &[p.mr_b.sge(0, 1 << 20)]);
        let (request, sges) = (p.remote(opcode, 0), [p.mr_a.sge(0, 1 << 20)]);
        for _ in 0..3 {
            p.m.post(&mut p.a, request, &sges);
        }
        p.m.ring_sq(&p.a);
        p.m.f.run(1);
        let moved = p.m.query_moved();
        assert!(moved > 0 && moved < 1 << 20);
        p.m.destroy_now(kind::QP, p.a.number);
        // All its memory may be unpinned now.
        for addr in [p.a.sq, p.a.rq, p.mr_a.addr] {
            p.m.memory.revoke(addr);
        }
        let moved = p.m.query_moved();
        p.m.pass(1_000_000_000);
        assert_eq!(p.m.query_moved(), moved);
        assert_eq!(p.done_a(), []);
    }
}

fn a_destroyed_region_is_not_touched() {
    for (opcode, far) in [
        (work::WRITE, false),
        (work::WRITE, true),
        (work::READ, false),
        (work::READ, true),
        (work::SEND, false),
        (work::SEND, true),
    ] {
        let mut p = Pair::new();
        p.recv(1, &[p.mr_b.sge(0, 1 << 20)]);
        let (request, sges) = (p.remote(opcode, 0), [p.mr_a.sge(0, 1 << 20)]);
        p.m.post(&mut p.a, request, &sges);
        p.m.ring_sq(&p.a);
        p.m.f.run(1);
        let mr = if far { p.mr_b } else { p.mr_a };
        p.m.destroy_now(kind::MR, mr.key);
        p.m.memory.revoke(mr.addr);
        p.m.settle();
        let (status, detail) = outcome(&p.done_a()[0]);
        let expected = match (opcode, far) {
            (_, false) => Status::LocalProtection,
            (work::SEND, true) => Status::RemoteOperation,
            _ => Status::RemoteAccess,
        };
        assert_eq!((status, detail), (expected, Detail::Key));
    }
}

fn a_number_waits_for_its_completions() {
    for send in [true, false] {
        let mut p = Pair::new();
        p.recv(1, &[]);
        p.send(wqe(work::SEND, 2), &[]);
        // Read, but the slot is not freed.
        let (qp, spec) = if send {
            (p.a.number, Machine::spec(p.pd_a, &p.cq_a))
        } else {
            (p.b.number, Machine::spec(p.pd_b, &p.cq_b))
        };
        let told = p.m.destroy(kind::QP, qp).unwrap();
        assert_eq!((told.bytes, told.imm, told.src), (1, 1, p.m.eq0.ring.head));
        let other = p.m.qp(&spec);
        assert_ne!(other.number.index(), qp.index(), "its entry is unread");
        if send {
            p.done_a();
        } else {
            p.done_b();
        }
        let again = p.m.qp(&spec);
        assert_eq!(again.number, qp.next(), "read and published");
    }
}

fn a_number_waits_for_its_events() {
    let mut m = Machine::new();
    let (pd, eq) = (m.pd(), m.eq(4, 1, 0, 0));
    // A CQ's completion event in its EQ, its overrun in EQ 0; a queue pair's fatal event in EQ 0.
    let cq = m.cq_of(eq.number, 0, 0, 0);
    let mut qp = m.qp(&Machine::spec(pd, &cq));
    m.connect(qp.number, qp.number);
    m.arm(&cq);
    m.post(&mut qp, wqe(work::NOP, 1), &[]);
    m.send(&mut qp, wqe(work::NOP, 2), &[]);
    assert_eq!(m.query_cq(cq.number).flags, cq_flags::OVERRUN);
    m.destroy(kind::QP, qp.number).unwrap();
    let told = m.destroy(kind::CQ, cq.number).unwrap();
    assert_eq!((told.bytes, told.src), (1, 2));
    let made = |m: &mut Machine| {
        let cq = m.cq_of(eq.number, 0, 0, 0);
        let qp = m.qp(&Machine::spec(pd, &cq));
        (cq.number.index(), qp.number.index())
    };
    let (cq_index, qp_index) = (cq.number.index(), qp.number.index());
    let other = made(&mut m);
    assert!(other.0 != cq_index && other.1 != qp_index);
    assert_eq!(m.events0().len(), 2);
    let other = made(&mut m);
    assert!(other.0 != cq_index && other.1 == qp_index, "{other:?}");
    m.ring(0, doorbell::EQ_HEAD, eq.number, 1);
    assert_eq!(made(&mut m).0, cq_index);
}

fn a_destroyed_cq_holds_nobody_up() {
    let mut p = Pair::new();
    p.recv(1, &[]);
    p.send(wqe(work::SEND, 2), &[]);
    p.m.destroy(kind::QP, p.a.number).unwrap();
    p.m.destroy(kind::CQ, p.cq_a.number).unwrap();
    let spec = Machine::spec(p.pd_a, &p.cq_b);
    let again = p.m.qp(&spec);
    assert_eq!(again.number, p.a.number.next());
}

fn indices_that_are_kept_are_counted_by_page() {
    let mut m = Machine::new();
    let (pd, eq) = (m.pd(), m.eq(4, 1, 0, 0));
    let kept = |m: &mut Machine, page| {
        let told = m.simple(kind::PAGE, verb::QUERY, Number::new(page, 0));
        told.map(|cqe| (cqe.bytes, cqe.imm, cqe.src))
    };
    let mut cqs = [3, 4].map(|page| m.cq_of(eq.number, 4, page, 0));
    for cq in &mut cqs {
        for _ in 0..3 {
            let mut qp = m.qp(&QpSpec {
                page: cq.page,
                ..Machine::spec(pd, cq)
            });
            m.connect(qp.number, qp.number);
            m.send(&mut qp, wqe(work::NOP, 1), &[]);
            m.destroy(kind::QP, qp.number).unwrap();
        }
    }
    assert_eq!(kept(&mut m, 3), Ok((3, 0, 0)));
    m.ring(3, doorbell::CQ_HEAD, cqs[0].number, 2);
    assert_eq!(kept(&mut m, 3), Ok((1, 0, 0)), "two are read");
    assert_eq!(kept(&mut m, 4), Ok((3, 0, 0)), "of the other page none");
    // Destroying a CQ frees the indices of its queue pairs; its own index waits for its event.
    m.arm(&cqs[1]);
    m.destroy(kind::CQ, cqs[1].number).unwrap();
    assert_eq!(kept(&mut m, 4), Ok((0, 1, 0)));
    m.ring(0, doorbell::EQ_HEAD, eq.number, 1);
    assert_eq!(kept(&mut m, 4), Ok((0, 0, 0)));
    assert_eq!(kept(&mut m, 5), Ok((0, 0, 0)));
    assert_eq!(kept(&mut m, 1024), Err(AdminError::Number));
}

fn reset_makes_a_queue_pair_new() {
    let mut p = Pair::new();
    for i in 0..20 {
        p.recv(i, &[]);
        p.send(wqe(work::SEND, i), &[]);
        p.done_a();
        p.done_b();
    }
    p.recv(99, &[]);
    p.m.f.set_stall(true);
    p.m.post(&mut p.a, wqe(work::SEND, 99), &[]);
    p.m.ring_sq(&p.a);
    p.m.f.set_stall(false);
    for qp in [p.a.number, p.b.number] {
        p.m.set_state_now(qp, qp_state::RESET);
        let is = p.m.query_qp(qp);
        let indices = [
            is.sq_producer,
            is.sq_consumer,
            is.rq_producer,
            is.rq_consumer,
        ];
        assert_eq!(indices, [0; 4]);
        assert_eq!((is.peer, is.state), (Number::default(), qp_state::RESET));
    }
    p.m.settle();
    (p.a.sq_tail, p.b.rq_tail) = (0, 0);
    p.m.connect(p.a.number, p.b.number);
    p.m.connect(p.b.number, p.a.number);
    p.done_a();
    p.done_b();
    p.recv(5, &[]);
    p.send(wqe(work::SEND, 6), &[]);
    let (sent, received) = (p.done_a(), p.done_b());
    assert_eq!((sent.len(), sent[0].wr_id, sent[0].index), (1, 6, 1));
    assert_eq!(
        (received.len(), received[0].wr_id, received[0].index),
        (1, 5, 1)
    );
}

fn an_overrun_stops_its_queue_pairs_alone() {
    let mut m = Machine::new();
    let (pd, mut small, mut other) = (m.pd(), m.cq(1), m.cq(4));
    let spec = Machine::spec(pd, &small);
    let (mut a, mut b) = m.pair(&spec, &spec);
    let (mut c, _) = m.pair(&Machine::spec(pd, &other), &Machine::spec(pd, &other));
    for i in 0..3 {
        m.send(&mut a, wqe(work::NOP, i), &[]);
    }
    for qp in [a.number, b.number] {
        assert_eq!(m.query_qp(qp).state, qp_state::ERROR);
    }
    assert_eq!(m.query_cq(small.number).flags, cq_flags::OVERRUN);
    let events = m.events0();
    assert_eq!(events[0].kind, Event::CqOverrun.code());
    assert_eq!(events[0].number, small.number);
    let stopped: Vec<_> = events[1..].iter().map(|event| event.number).collect();
    assert_eq!(stopped, [a.number, b.number]);
    assert!(events[1..]
        .iter()
        .all(|event| event.code == Status::General.code()));
    // The written entries are there; none is added, and nothing is reported again.
    assert_eq!(m.drain(&mut small).len(), 2);
    m.send(&mut b, wqe(work::NOP, 9), &[]);
    assert_eq!(m.drain(&mut small), []);
    assert_eq!(m.f.counter(Counter::CqOverruns), 1);
    m.send(&mut c, wqe(work::NOP, 1), &[]);
    assert_eq!(m.drain(&mut other).len(), 1, "other CQs are not affected");
}

fn an_overrun_by_flushing_ends() {
    let mut m = Machine::new();
    let (pd, mut cq) = (m.pd(), m.cq(1));
    let mut qp = m.qp(&Machine::spec(pd, &cq));
    m.connect(qp.number, qp.number);
    for i in 0..16 {
        m.post_recv(&mut qp, i, &[]);
    }
    m.ring(0, doorbell::RQ, qp.number, 16);
    m.set_state(qp.number, qp_state::ERROR).unwrap();
    m.settle();
    assert_eq!(m.drain(&mut cq).len(), 2);
    assert_eq!(m.query_qp(qp.number).rq_consumer, 16);
    let kinds: Vec<_> = m.events0().iter().map(|event| event.kind).collect();
    assert_eq!(kinds, [Event::CqOverrun.code()], "it was in error already");
}

fn an_overrun_ends_the_turn() {
    for opcode in [work::WRITE, work::READ] {
        let mut m = Machine::new();
        let mut small = m.cq(1);
        let mut p = Pair::on(m, |a, _| a.send_cq = small.number);
        let (request, sges) = (p.remote(opcode, 0), [p.mr_a.sge(0, 64)]);
        for _ in 0..12 {
            p.m.post(&mut p.a, request, &sges);
        }
        p.m.ring_sq(&p.a);
        p.m.settle();
        // The third request has moved its bytes before its completion overruns the CQ.
        assert_eq!(p.m.query_moved(), 3 * 64);
        assert_eq!(p.m.drain(&mut small).len(), 2);
        assert_eq!(p.state(p.a.number), qp_state::ERROR);
        assert_eq!(p.m.f.counter(Counter::Flushes), 9);
        assert_eq!(p.m.query_qp(p.a.number).sq_consumer, 12);
    }
}

fn an_overrun_by_a_receive_ends_the_turn() {
    // The sender's own RQ completes to the CQ that the peer's receives fill.
    let mut m = Machine::new();
    let mut small = m.cq(1);
    let mut p = Pair::on(m, |a, b| {
        (a.recv_cq, b.recv_cq) = (small.number, small.number);
    });
    let unsignaled = SendWqe {
        flags: 0,
        ..wqe(work::SEND, 7)
    };
    for i in 0..5 {
        p.recv(i, &[p.mr_b.sge(0, 64)]);
        p.m.post(&mut p.a, unsignaled, &[p.mr_a.sge(0, 64)]);
    }
    p.m.ring_sq(&p.a);
    p.m.settle();
    assert_eq!(p.m.query_moved(), 3 * 64);
    assert_eq!(p.m.drain(&mut small).len(), 2);
    let flushed: Vec<_> = p.done_a().iter().map(outcome).collect();
    assert_eq!(flushed, [(Status::Flush, Detail::None); 2]);
}

fn nothing_lives_on_a_dead_cq() {
    let mut m = Machine::new();
    let (pd, small, other) = (m.pd(), m.cq(1), m.cq(4));
    let mut a = m.qp(&Machine::spec(pd, &small));
    let mixed = |send: &TestCq, recv: &TestCq| QpSpec {
        recv_cq: recv.number,
        ..Machine::spec(pd, send)
    };
    let (b, c) = (m.qp(&mixed(&small, &other)), m.qp(&mixed(&other, &small)));
    m.connect(a.number, a.number);
    for i in 0..3 {
        m.send(&mut a, wqe(work::NOP, i), &[]);
    }
    assert_eq!(m.query_cq(small.number).flags, cq_flags::OVERRUN);
    let dead = Err(AdminError::Overrun);
    for qp in [a.number, b.number, c.number] {
        for _ in 0..2 {
            m.set_state(qp, qp_state::RESET).unwrap();
            assert_eq!(m.set_state(qp, qp_state::INIT), dead);
            assert_eq!(m.query_qp(qp).state, qp_state::RESET);
            m.set_state(qp, qp_state::ERROR).unwrap();
        }
        let wrong = m.set_state(qp, qp_state::RTS);
        assert_eq!(wrong, Err(AdminError::Transition), "not a valid transition");
        let attributes = QpContext::default();
        m.modify(qp, qp_mask::RETRY, &attributes).unwrap();
    }
    for spec in [
        mixed(&small, &small),
        mixed(&small, &other),
        mixed(&other, &small),
    ] {
        let context = m.qp_context(&spec).encode();
        assert_eq!(m.create(kind::QP, &context), Err(AdminError::Overrun));
    }
    // A dead CQ can be read, and destroyed.
    for qp in [a.number, b.number, c.number] {
        m.destroy(kind::QP, qp).unwrap();
    }
    let mut small = small;
    assert_eq!(m.drain(&mut small).len(), 2);
    m.destroy(kind::CQ, small.number).unwrap();
    let mut qp = m.qp(&mixed(&other, &other));
    m.connect(qp.number, qp.number);
    m.send(&mut qp, wqe(work::NOP, 1), &[]);
    assert_eq!(m.query_cq(other.number).producer, 1);
}

/// The first keys of one index.
fn keys(m: &mut Machine, pd: Number) -> Vec<u16> {
    (0..64)
        .map(|_| {
            let mr = m.mr(pd, 64);
            m.destroy(kind::MR, mr.key).unwrap();
            mr.key.generation()
        })
        .collect()
}

fn keys_do_not_follow_from_each_other() {
    let mut m = Machine::new();
    let pd = m.pd();
    let first = keys(&mut m, pd);
    let mut seen = first.clone();
    seen.sort_unstable();
    seen.dedup();
    assert_eq!(seen.len(), first.len(), "no key is repeated soon");
    let steps = |keys: &[u16]| -> Vec<u16> {
        let pairs = keys.windows(2);
        pairs.map(|pair| pair[1].wrapping_sub(pair[0])).collect()
    };
    let mut seen = steps(&first);
    seen.sort_unstable();
    seen.dedup();
    assert!(seen.len() > 55, "the steps between keys differ");
    // The keys of another index, and those after a reset, do not help to predict it.
    let (other, held) = (m.mr(pd, 64), m.mr(pd, 64));
    m.destroy(kind::MR, other.key).unwrap();
    let second = keys(&mut m, pd);
    assert_ne!(held.key.index(), other.key.index());
    m.f.reset();
    m.bring_up(6, 4, 5);
    let pd = m.pd();
    let third = keys(&mut m, pd);
    for others in [&second, &third] {
        assert_ne!(*others, first);
        assert_ne!(steps(others), steps(&first));
    }
}

fn keys_follow_from_the_seed() {
    let with = |seed| {
        let mut m = Machine::with(qpair_model::Config {
            key_seed: seed,
            ..Default::default()
        });
        let pd = m.pd();
        let before = keys(&mut m, pd);
        m.f.reset();
        m.bring_up(6, 4, 5);
        let pd = m.pd();
        assert_eq!(keys(&mut m, pd), before, "a reset starts over");
        before
    };
    assert_eq!(with(7), with(7));
    // A change at run time takes effect at the next reset.
    let mut m = Machine::new();
    m.f.set_key_seed(7);
    m.f.reset();
    m.bring_up(6, 4, 5);
    let pd = m.pd();
    assert_eq!(keys(&mut m, pd), with(7));
    assert_ne!(with(7), with(8));
}

fn drained_finishes_what_it_began() {
    let mut p = Pair::new();
    let (request, sges) = (p.remote(work::WRITE, 0), [p.mr_a.sge(0, 1 << 20)]);
    for _ in 0..2 {
        p.m.post(&mut p.a, request, &sges);
    }
    p.m.ring_sq(&p.a);
    p.m.f.run(1);
    p.m.set_state_now(p.a.number, qp_state::SQD);
    p.m.f.set_stall(true);
    let is = {
        let draining = Command {
            opcode: opcode(kind::QP, verb::QUERY),
            number: p.a.number,
            blocks: 1,
            context: p.m.context,
            context_bytes: QpContext::BYTES as u32,
            ..Command::default()
        };
        p.m.post_command(&Machine::command_words(&draining));
        p.m.f.set_stall(false);
        while p.m.admin_done().is_none() {
            p.m.f.run(1);
        }
        QpContext::decode(&p.m.memory.words(p.m.context))
    };
    assert_eq!((is.sq_consumer, is.draining), (0, 1), "at its message");
    p.m.settle();
    assert_eq!(p.done_a().len(), 1);
    let is = p.m.query_qp(p.a.number);
    assert_eq!((is.sq_consumer, is.draining), (1, 0));
    p.m.set_state(p.a.number, qp_state::RTS).unwrap();
    p.m.settle();
    assert_eq!(p.done_a().len(), 1);
}

fn an_sq_that_has_drained_has_its_event() {
    let mut p = Pair::new();
    let qp = p.a.number;
    let to_sqd = QpContext {
        state: qp_state::SQD,
        ..QpContext::default()
    };
    let asked = qp_mask::STATE | qp_mask::NOTIFY;
    let drained = |p: &mut Pair| {
        let events = p.m.events0();
        let all: Vec<_> = events.iter().map(|eqe| (eqe.kind, eqe.number)).collect();
        assert!(all.iter().all(|one| *one == (Event::SqDrained.code(), qp)));
        all.len()
    };
    // At once, since nothing was begun.
    p.m.modify(qp, asked, &to_sqd).unwrap();
    assert_eq!(drained(&mut p), 1);
    for mask in [asked, qp_mask::NOTIFY] {
        assert_eq!(p.m.modify(qp, mask, &to_sqd), Err(AdminError::Transition));
    }
    p.m.set_state(qp, qp_state::RTS).unwrap();
    // Not asked for.
    p.m.set_state(qp, qp_state::SQD).unwrap();
    assert_eq!(drained(&mut p), 0);
    p.m.set_state(qp, qp_state::RTS).unwrap();
    // After the completion of the request that was begun, and before the next one.
    let (request, sges) = (p.remote(work::WRITE, 0), [p.mr_a.sge(0, 1 << 20)]);
    for _ in 0..2 {
        p.m.post(&mut p.a, request, &sges);
    }
    p.m.ring_sq(&p.a);
    p.m.f.run(1);
    p.m.memory.set_words(p.m.context, &to_sqd.encode());
    p.m.f.set_stall(true);
    p.m.post_command(&Machine::command_words(&Command {
        opcode: opcode(kind::QP, verb::MODIFY),
        number: qp,
        mask: asked,
        blocks: 1,
        context: p.m.context,
        context_bytes: QpContext::BYTES as u32,
        ..Command::default()
    }));
    p.m.f.set_stall(false);
    while p.m.admin_done().is_none() {
        p.m.f.run(1);
    }
    assert_eq!(drained(&mut p), 0, "a request was begun");
    while drained(&mut p) == 0 {
        assert_eq!(p.done_a(), [], "the completion comes first, or with it");
        p.m.f.run(1);
    }
    assert_eq!(p.done_a().len(), 1);
    p.m.settle();
    assert_eq!((p.done_a().len(), drained(&mut p)), (0, 0));
    p.m.set_state(qp, qp_state::RTS).unwrap();
    p.m.settle();
    assert_eq!((p.done_a().len(), drained(&mut p)), (1, 0));
}

fn a_stale_doorbell_hits_nobody() {
    let mut p = Pair::new();
    let old = p.a;
    p.m.destroy(kind::QP, old.number).unwrap();
    let spec = Machine::spec(p.pd_a, &p.cq_a);
    let new = p.m.qp(&spec);
    assert_eq!(new.number, old.number.next());
    p.m.connect(new.number, new.number);
    p.m.ring(0, doorbell::SQ, old.number, 3);
    p.m.ring(0, doorbell::RQ, old.number, 3);
    p.m.settle();
    let is = p.m.query_qp(new.number);
    assert_eq!((is.sq_producer, is.rq_producer), (0, 0));
    assert_eq!(p.m.f.counter(Counter::Stale), 2);
    let gone = Err(AdminError::Number);
    assert_eq!(p.m.destroy(kind::QP, old.number), gone);
    assert_eq!(p.m.set_state(old.number, qp_state::ERROR), gone);
    // The key of a destroyed region, when another has its index.
    p.m.destroy(kind::MR, p.mr_a.key).unwrap();
    let mr = p.m.mr(p.pd_a, 1 << 20);
    assert_eq!(mr.key.index(), p.mr_a.key.index());
    assert_ne!(mr.key, p.mr_a.key);
    let mut new = new;
    let request = SendWqe {
        rkey: p.mr_a.key.raw(),
        remote_addr: mr.va,
        ..wqe(work::WRITE, 1)
    };
    p.m.send(&mut new, request, &[mr.sge(0, 8)]);
    let expected = (Status::RemoteAccess, Detail::Key);
    assert_eq!(outcome(&p.done_a()[0]), expected);
}

fn the_number_of_a_queue_pair_has_24_bits() {
    let mut m = Machine::new();
    let (pd, cq) = (m.pd(), m.cq(4));
    let mut numbers = Vec::new();
    for _ in 0..300 {
        let qp = m.qp(&Machine::spec(pd, &cq));
        m.destroy(kind::QP, qp.number).unwrap();
        numbers.push(qp.number.raw());
    }
    // Index 1 each time, and generations from 1 on.
    let expected = (0..300).map(|i| (i % 254 + 1) << 16 | 1);
    assert!(numbers.into_iter().eq(expected));
}
