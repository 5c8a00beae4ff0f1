// SPDX-License-Identifier: GPL-2.0
//! Shared receive queues: which queue pair gets a receive, what frees it, and what is reported.

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
use qpair_model::Config;

checks![
    receives_go_to_the_queue_pair_that_needs_one,
    a_receive_may_stay_while_others_go_round,
    immediate_takes_a_receive,
    only_what_is_filled_has_to_be_in_the_region,
    every_sender_that_waits_is_woken,
    senders_take_turns,
    the_domain_is_that_of_the_srq,
    a_queue_pair_that_is_reset_or_destroyed_gives_back,
    an_error_flushes_the_receive_and_ends_with_an_event,
    a_limit_has_one_event,
    an_srq_that_cannot_be_read_fails,
    an_invalid_receive_fails_its_queue_pair,
    datagrams_share_receives,
    what_makes_no_srq_is_refused,
    an_srq_lives_as_long_as_its_queue_pairs,
    doorbells_of_an_srq,
    indices_wrap,
    a_function_without_srqs,
    events_by_request,
];

/// A rule of faults raises an event of an SRQ for a queue pair that has one, and for no other.
fn events_by_request() {
    for (name, kind) in [
        ("last-receive", Event::LastReceive),
        ("srq-limit", Event::SrqLimit),
        ("srq-fatal", Event::SrqFatal),
    ] {
        let mut c = Crowd::new(1);
        let rules = format!("event={name},opcode=nop");
        c.m.f.set_faults(&rules).unwrap();
        let (mut sender, mut receiver) = (c.senders[0], c.receivers[0]);
        c.m.send(&mut sender, wqe(work::NOP, 1), &[]);
        assert_eq!(events(&mut c.m), []);
        c.m.send(&mut receiver, wqe(work::NOP, 2), &[]);
        let number = match kind {
            Event::LastReceive => receiver.number,
            _ => c.srq.number,
        };
        assert_eq!(events(&mut c.m), [event(kind, number)]);
        // The SRQ goes on.
        c.senders[0] = sender;
        c.recv(0..1);
        c.send(0, 8);
        assert_eq!(c.ids(0), [2, 0]);
    }
}

fn event(kind: Event, number: Number) -> (u8, Number) {
    (kind.code(), number)
}

/// Kinds and numbers of the events of EQ 0.
pub(super) fn events(m: &mut Machine) -> Vec<(u8, Number)> {
    let events = m.events0();
    events.iter().map(|eqe| (eqe.kind, eqe.number)).collect()
}

fn receives_go_to_the_queue_pair_that_needs_one() {
    let mut c = Crowd::new(3);
    let data = pattern(1000, 1);
    c.m.memory.set_bytes(c.from.addr, &data);
    c.recv(10..16);
    for to in [2, 0, 0, 1, 2, 0] {
        c.send(to, 1000);
    }
    assert_eq!(c.left(), 0);
    let received = c.received(1);
    let wanted = Cqe {
        wr_id: 13,
        qp: c.receivers[1].number,
        bytes: 1000,
        index: 4,
        opcode: work::RECV,
        flags: cqe_flags::RECV,
        ..Cqe::default()
    };
    assert_eq!(received, [wanted], "the index past this receive");
    assert_eq!(c.ids(0), [11, 12, 15]);
    assert_eq!(c.ids(2), [10, 14]);
    assert_eq!(c.m.memory.bytes(c.mr.addr + (15 << 10), 1000), data);
    assert_eq!(c.sent().len(), 6);
    let context = c.m.query_srq(c.srq.number);
    assert_eq!((context.producer, context.consumer), (6, 6));
    assert_eq!(c.m.query_qp(c.receivers[0].number).srq, c.srq.number);
    assert_eq!(events(&mut c.m), []);
}

/// The ring goes round although its first receive is still at a queue pair.
fn a_receive_may_stay_while_others_go_round() {
    let mut c = Crowd::new(2);
    let big = c.mr.sge(0x8_0000, 1 << 18);
    c.m.post_shared(&mut c.srq, 99, &[big]);
    c.m.ring_srq(&c.srq);
    c.begin(0, 1 << 18);
    c.m.f.set_stall(true);
    let mut next = 0;
    c.recv(0..15);
    c.m.f.set_stall(false);
    // The long message has a turn now and then, in which it moves 64 KiB.
    for _ in 0..2 {
        let mut qp = c.senders[1];
        let sge = c.from.sge(0, 8);
        c.m.post(&mut qp, wqe(work::SEND, 1), &[sge]);
        c.senders[1] = qp;
        c.m.ring_sq(&qp);
        c.m.f.run(1);
        next += 1;
    }
    let early = c.ids(1);
    assert!(early.len() as u64 <= next && !early.is_empty(), "{early:?}");
    c.m.settle();
    assert_eq!(c.ids(0), [99]);
    for round in 0..3 {
        c.recv([20 + round]);
        c.send(1, 8);
    }
    assert_eq!(c.sent().len(), 6);
}

fn immediate_takes_a_receive() {
    let mut c = Crowd::new(1);
    c.recv([1, 2]);
    let region = c.m.mr(c.pd, 4096);
    let mut qp = c.senders[0];
    let write = SendWqe {
        imm: 77,
        remote_addr: region.va,
        rkey: region.key.raw(),
        ..wqe(work::WRITE_IMM, 5)
    };
    let sge = c.from.sge(0, 100);
    c.m.send(&mut qp, write, &[sge]);
    c.senders[0] = qp;
    let cqes = c.received(0);
    assert_eq!((cqes.len(), cqes[0].wr_id, cqes[0].imm), (1, 1, 77));
    assert_eq!(cqes[0].opcode, work::RECV_WRITE_IMM);
    assert_eq!(c.left(), 1);
}

/// As perftest posts them: receives that end beyond their region.
fn only_what_is_filled_has_to_be_in_the_region() {
    let mut c = Crowd::new(1);
    let end = c.mr.bytes;
    for (id, before, bytes) in [(1, 64, 64), (2, 64, 65)] {
        let sge = Sge {
            bytes: 4096,
            ..c.mr.sge(end - before, 0)
        };
        c.m.post_shared(&mut c.srq, id, &[sge]);
        c.m.ring_srq(&c.srq);
        c.send(0, bytes);
        let cqes = c.received(0);
        let wanted = if u64::from(bytes) <= before {
            (Status::Success, Detail::None)
        } else {
            (Status::LocalProtection, Detail::Range)
        };
        assert_eq!((cqes.len(), outcome(&cqes[0])), (1, wanted));
    }
}

/// A sender with many messages does not get each receive.
fn senders_take_turns() {
    let mut c = Crowd::new(3);
    for _ in 0..10 {
        c.send(0, 8);
    }
    c.send(1, 8);
    c.send(2, 8);
    for id in 0..3 {
        c.recv([id]);
    }
    let got: Vec<_> = (0..3).map(|at| c.ids(at).len()).collect();
    assert_eq!(got, [1, 1, 1]);
}

fn every_sender_that_waits_is_woken() {
    let mut c = Crowd::new(4);
    for to in 0..4 {
        c.send(to, 8);
    }
    assert_eq!(c.sent(), []);
    c.recv([1]);
    assert_eq!(c.sent().len(), 1);
    c.recv([2]);
    assert_eq!(c.sent().len(), 1);
    // One that waits goes, and is not in the way of the last.
    let qp = c.receivers[2].number;
    c.m.set_state(qp, qp_state::ERROR).unwrap();
    c.recv([3, 4]);
    let mut cqes = c.sent();
    cqes.retain(|cqe| cqe.status == 0);
    assert_eq!(cqes.len(), 1, "{cqes:?}");
    let got: usize = (0..4).map(|at| c.ids(at).len()).sum();
    assert_eq!((got, c.left()), (3, 1));
    // A retry with a limit ends by itself.
    c.add(1);
    c.recv([]);
    c.send(0, 8);
    c.send(4, 8);
    c.m.pass(20_000_000);
    let cqes = c.sent();
    let statuses: Vec<_> = cqes.iter().map(|cqe| cqe.status).collect();
    assert!(
        statuses.contains(&Status::RnrRetryExceeded.code()),
        "{cqes:?}"
    );
}

fn the_domain_is_that_of_the_srq() {
    let mut c = Crowd::new(1);
    // The region of the queue pair's domain is none of the SRQ's.
    c.send(0, 8);
    assert_eq!(c.sent(), []);
    let foreign = c.from.sge(0, 100);
    c.m.post_shared(&mut c.srq, 1, &[foreign]);
    c.m.ring_srq(&c.srq);
    c.m.settle();
    let cqes = c.received(0);
    let wrong = (Status::LocalProtection, Detail::Domain);
    assert_eq!((cqes.len(), outcome(&cqes[0])), (1, wrong));
    let number = c.receivers[0].number;
    assert_eq!(events(&mut c.m), [event(Event::LastReceive, number)]);
}

fn a_queue_pair_that_is_reset_or_destroyed_gives_back() {
    for destroys in [false, true] {
        let mut c = Crowd::new(2);
        let big = c.mr.sge(0x8_0000, 1 << 18);
        c.m.post_shared(&mut c.srq, 50, &[big]);
        c.m.post_shared(&mut c.srq, 51, &[big]);
        c.m.ring_srq(&c.srq);
        c.begin(0, 1 << 18);
        let number = c.receivers[0].number;
        if destroys {
            c.m.destroy_now(kind::QP, number);
        } else {
            c.m.set_state_now(number, qp_state::RESET);
        }
        assert_eq!(c.left(), 2, "destroyed: {destroys}");
        assert_eq!(c.received(0), []);
        // It is the next one, whole, and the other follows.
        c.send(1, 1000);
        c.send(1, 1 << 18);
        let cqes = c.received(1);
        let got: Vec<_> = cqes.iter().map(|cqe| (cqe.wr_id, cqe.index)).collect();
        assert_eq!(got, [(50, 1), (51, 2)]);
        assert_eq!(cqes[1].bytes, 1 << 18);
        assert_eq!(c.left(), 0);
    }
}

fn an_error_flushes_the_receive_and_ends_with_an_event() {
    let mut c = Crowd::new(2);
    c.recv([1]);
    let second = c.receivers[1].number;
    // Without a receive of its own: nothing is flushed.
    c.m.set_state(second, qp_state::ERROR).unwrap();
    c.m.settle();
    assert_eq!(c.received(1), []);
    assert_eq!(events(&mut c.m), [event(Event::LastReceive, second)]);
    c.m.set_state(second, qp_state::ERROR).unwrap();
    c.m.settle();
    assert_eq!(events(&mut c.m), [], "once");
    assert_eq!(c.left(), 1);
    // A second command before the turn that reports it.
    let first = c.receivers[0].number;
    c.m.set_state_now(first, qp_state::ERROR);
    c.m.set_state_now(first, qp_state::ERROR);
    c.m.settle();
    assert_eq!(events(&mut c.m), [event(Event::LastReceive, first)]);

    let mut c = Crowd::new(1);
    let big = c.mr.sge(0x8_0000, 1 << 18);
    c.m.post_shared(&mut c.srq, 50, &[big]);
    c.m.ring_srq(&c.srq);
    c.begin(0, 1 << 18);
    let number = c.receivers[0].number;
    c.m.memory.keep_done();
    c.m.set_state_now(number, qp_state::ERROR);
    c.m.settle();
    // The completion is in memory before the event.
    let done = c.m.memory.take_done();
    let at = |entry: u64, bytes: u64| {
        let within =
            |done: &Done| matches!(done, Done::Write(at, _) if (entry..entry + bytes).contains(at));
        done.iter().position(within)
    };
    let found = events(&mut c.m);
    let wanted = event(Event::LastReceive, number);
    let which = found.iter().position(|event| *event == wanted);
    let ring = c.m.eq0.ring.addr;
    let eqe = at(ring + 16 * which.expect("the event") as u64, 16);
    let cqe = at(c.cqs[0].ring.addr, 32);
    assert!(cqe.is_some() && cqe < eqe, "{cqe:?} {eqe:?}");
    let cqes = c.received(0);
    assert_eq!(outcome(&cqes[0]), (Status::Flush, Detail::None));
    assert_eq!((cqes.len(), cqes[0].wr_id), (1, 50));
    // A reset takes the event along.
    c.m.set_state(number, qp_state::RESET).unwrap();
    assert_eq!(events(&mut c.m), []);
}

fn a_limit_has_one_event() {
    let mut c = Crowd::new(1);
    let srq = c.srq.number;
    c.recv(0..6);
    c.m.arm_limit(srq, 4).unwrap();
    assert_eq!(c.m.query_srq(srq).limit, 4);
    c.send(0, 8);
    c.send(0, 8);
    assert_eq!(events(&mut c.m), [], "4 are left");
    c.send(0, 8);
    assert_eq!(events(&mut c.m), [event(Event::SrqLimit, srq)]);
    assert_eq!((c.m.query_srq(srq).limit, c.left()), (0, 3));
    c.send(0, 8);
    assert_eq!(events(&mut c.m), []);
    // Below the limit already.
    c.m.arm_limit(srq, 3).unwrap();
    assert_eq!(events(&mut c.m), [event(Event::SrqLimit, srq)]);
    c.m.arm_limit(srq, 2).unwrap();
    c.m.arm_limit(srq, 0).unwrap();
    c.send(0, 8);
    assert_eq!(events(&mut c.m), [], "disarmed");
    let refused = c.m.arm_limit(srq, 17).unwrap_err();
    assert_eq!(refused, AdminError::Attribute);
    let unknown = c.m.arm_limit(srq.next(), 1).unwrap_err();
    assert_eq!(unknown, AdminError::Number);
}

fn an_srq_that_cannot_be_read_fails() {
    let mut c = Crowd::new(2);
    let number = c.srq.number;
    c.recv([1, 2]);
    c.m.memory.revoke(c.srq.addr);
    c.m.memory.set_lenient(true);
    let bytes = 64 << c.srq.log;
    c.m.f.unmap(c.srq.addr, bytes);
    c.send(0, 8);
    let broken = (Status::RemoteOperation, Detail::Dma);
    assert_eq!(outcome(&c.sent()[0]), broken);
    let found = events(&mut c.m);
    assert!(found.contains(&event(Event::SrqFatal, number)), "{found:?}");
    assert_eq!(c.m.query_srq(number).flags, srq_flags::FAILED);
    // Readable again: too late.
    c.m.memory.grant(c.srq.addr, bytes, Grant::Read);
    c.send(1, 8);
    assert_eq!(outcome(&c.sent()[0]), broken);
    let found = events(&mut c.m);
    assert!(
        !found.contains(&event(Event::SrqFatal, number)),
        "{found:?}"
    );
    for at in 0..2 {
        assert_eq!(c.received(at), []);
        let state = c.m.query_qp(c.receivers[at].number).state;
        assert_eq!(state, qp_state::ERROR);
    }
}

fn an_invalid_receive_fails_its_queue_pair() {
    let mut c = Crowd::new(2);
    let sges = [c.mr.sge(0, 8); 3];
    c.m.post_shared(&mut c.srq, 1, &sges);
    let at = c.srq.addr;
    c.m.memory.set_word(at, 4);
    c.recv([2]);
    c.send(0, 8);
    let cqes = c.received(0);
    assert_eq!(outcome(&cqes[0]), (Status::LocalQpOperation, Detail::Sges));
    assert_eq!((cqes.len(), cqes[0].wr_id), (1, 1));
    c.send(1, 8);
    assert_eq!(c.ids(1), [2]);
}

fn datagrams_share_receives() {
    let mut c = Crowd::new(0);
    let qps = c.datagrams(2);
    let mut from = qps[0];
    let mut send = |c: &mut Crowd, to: usize, bytes: u32| {
        c.send_datagram(&mut from, qps[to].number, bytes);
    };
    let short = c.mr.sge(0, 60);
    c.m.post_shared(&mut c.srq, 1, &[short]);
    c.recv([2]);
    // Too short for the first, which drops it: it stays the next of all, and the limit is not met.
    c.m.arm_limit(c.srq.number, 2).unwrap();
    send(&mut c, 0, 100);
    assert_eq!((c.left(), c.m.f.counter(Counter::Dropped)), (2, 1));
    assert_eq!(events(&mut c.m), []);
    assert_eq!(c.m.query_srq(c.srq.number).limit, 2);
    send(&mut c, 1, 20);
    assert_eq!(c.ids(1), [1]);
    send(&mut c, 0, 100);
    assert_eq!(c.ids(0), [2]);
}

fn what_makes_no_srq_is_refused() {
    let mut m = Machine::new();
    let pd = m.pd();
    let good = m.srq_context(pd, 3, 4, 1);
    let refused = |m: &mut Machine, context: SrqContext| m.srq_of(&context).unwrap_err();
    for (context, error) in [
        (
            SrqContext {
                pd: pd.next(),
                ..good
            },
            AdminError::Reference,
        ),
        (SrqContext { page: 1024, ..good }, AdminError::Reference),
        (
            SrqContext {
                log_depth: 16,
                ..good
            },
            AdminError::Depth,
        ),
        (SrqContext { stride: 3, ..good }, AdminError::Depth),
        (
            SrqContext {
                log_depth: 5,
                ..good
            },
            AdminError::Buffer,
        ),
        (SrqContext { limit: 1, ..good }, AdminError::Reserved),
        (SrqContext { left: 1, ..good }, AdminError::Reserved),
        (SrqContext { flags: 1, ..good }, AdminError::Reserved),
        (
            SrqContext {
                producer: 1,
                ..good
            },
            AdminError::Reserved,
        ),
        (
            SrqContext {
                consumer: 1,
                ..good
            },
            AdminError::Reserved,
        ),
    ] {
        assert_eq!(refused(&mut m, context), error, "{context:?}");
    }
    let mut words = good.encode();
    words[7] = 1;
    let error = m.create(kind::SRQ, &words).unwrap_err();
    assert_eq!(error, AdminError::Reserved);
    let srq = m.srq_of(&good).unwrap();
    assert_eq!(m.query_srq(srq.number), good);

    // A queue pair on an SRQ has no RQ.
    let cq = m.cq(4);
    let spec = QpSpec {
        srq: Some(srq.number),
        ..Machine::spec(pd, &cq)
    };
    let good = m.qp_context(&spec);
    let list = block(good.sq.root, 64);
    for (context, error) in [
        (
            QpContext {
                srq: srq.number.next(),
                ..good
            },
            AdminError::Reference,
        ),
        (
            QpContext {
                srq: Number::from_raw(1),
                ..good
            },
            AdminError::Reference,
        ),
        (QpContext { log_rq: 1, ..good }, AdminError::Reserved),
        (
            QpContext {
                rq_stride: 1,
                ..good
            },
            AdminError::Reserved,
        ),
        (QpContext { rq: list, ..good }, AdminError::Reserved),
    ] {
        let refused = m.create(kind::QP, &context.encode()).unwrap_err();
        assert_eq!(refused, error, "{context:?}");
    }
    m.create(kind::QP, &good.encode()).unwrap();
}

fn an_srq_lives_as_long_as_its_queue_pairs() {
    let mut c = Crowd::new(1);
    let (srq, qp) = (c.srq.number, c.receivers[0].number);
    let error = c.m.destroy(kind::SRQ, srq).unwrap_err();
    assert_eq!(error, AdminError::Busy);
    let pd = c.m.query_srq(srq).pd;
    c.m.destroy(kind::QP, qp).unwrap();
    c.m.arm_limit(srq, 1).unwrap();
    let ended = c.m.destroy(kind::SRQ, srq).unwrap();
    assert_eq!((ended.bytes, ended.imm, ended.src), (0, 0, 1));
    // The domain may go, but the index stays while its event is unread.
    c.m.destroy(kind::MR, c.mr.key).unwrap();
    let page = |m: &mut Machine| {
        let cqe = m
            .simple(kind::PAGE, verb::QUERY, Number::default())
            .unwrap();
        cqe.src
    };
    assert_eq!(page(&mut c.m), 1);
    let other = c.m.srq(pd, 2).number;
    assert_ne!(other.index(), srq.index());
    assert_eq!(events(&mut c.m), [event(Event::SrqLimit, srq)]);
    assert_eq!(page(&mut c.m), 0);
    let again = c.m.srq(pd, 2).number;
    assert_eq!(again, srq.next());
    for number in [other, again] {
        c.m.destroy(kind::SRQ, number).unwrap();
    }
    c.m.destroy(kind::PD, pd).unwrap();
    let error = c.m.destroy(kind::SRQ, srq).unwrap_err();
    assert_eq!(error, AdminError::Number);
}

fn doorbells_of_an_srq() {
    let mut c = Crowd::new(1);
    let (srq, qp) = (c.srq.number, c.receivers[0].number);
    let violations = |m: &Machine| m.f.counter(Counter::Violations);
    let mut before = violations(&c.m);
    for (page, place, number, index) in [
        (0, doorbell::SRQ, srq, 17),
        (0, doorbell::SRQ, srq, u32::MAX),
        (1, doorbell::SRQ, srq, 1),
        (0, doorbell::SRQ, srq.next(), 1),
        (0, doorbell::SRQ, qp, 1),
        (0, doorbell::RQ, qp, 1),
        (0, doorbell::RQ, qp, 0),
    ] {
        c.m.ring(page, place, number, index);
        before += 1;
        assert_eq!(
            violations(&c.m),
            before,
            "{page} {place:x} {number} {index}"
        );
        assert_eq!(c.left(), 0);
    }
    c.m.ring(0, doorbell::SRQ, srq, 16);
    c.m.ring(0, doorbell::SRQ, srq, 16);
    assert_eq!((violations(&c.m), c.left()), (before, 16));
    let counted = c.m.f.counter(Counter::RqDoorbells);
    assert_eq!(counted, 9);
}

fn indices_wrap() {
    // All rings begin in an even pass.
    let first = 0u32.wrapping_sub(512);
    let mut c = Crowd::on(Machine::starting_at(first), 2);
    for round in 0..300u64 {
        c.recv([round % 16, 16 + round % 16]);
        c.send(0, 10);
        c.send(1, 10);
        assert_eq!(c.ids(0), [round % 16]);
        let cqes = c.received(1);
        let past = first.wrapping_add(2 * round as u32 + 2);
        assert_eq!((cqes[0].wr_id, cqes[0].index), (16 + round % 16, past));
        assert_eq!(c.sent().len(), 2);
    }
}

fn a_function_without_srqs() {
    let config = Config {
        srqs: 0,
        ..Config::default()
    };
    let mut m = Machine::with(config);
    let pd = m.pd();
    let context = m.srq_context(pd, 0, 1, 0);
    assert_eq!(m.srq_of(&context).unwrap_err(), AdminError::Full);
}
