// SPDX-License-Identifier: GPL-2.0
//! Peers that do not exist, that name another peer, or that have no receive.

use super::checks;
use crate::harness::*;
use qpair_abi::command::*;
use qpair_abi::counters::Counter;
use qpair_abi::entry::opcode;
use qpair_abi::status::AdminError;
use qpair_abi::status::Detail;
use qpair_abi::status::Status;
use qpair_abi::Number;

checks![
    nobody_sends_to_whom_did_not_name_him,
    a_peer_must_be_ready,
    a_reused_number_is_another_peer,
    other_functions_are_gone,
    retries_are_counted_and_take_time,
    the_time_of_an_answer,
    the_time_of_a_receive,
    waits_of_several_lengths,
    the_two_steps_have_a_budget_each,
    a_peer_that_posts_prolongs_no_wait,
    a_shared_queue_prolongs_no_wait,
    a_wait_begins_again_with_other_limits,
    a_peer_that_comes_in_time,
    no_receive_and_no_patience,
    finite_patience_for_a_receive,
    endless_patience_for_a_receive,
    who_waits_for_ever_is_told_of_the_end,
    a_waiting_sender_can_be_destroyed,
    a_peer_that_goes_in_the_middle,
    a_sender_that_begins_anew,
    senders_without_a_timer,
];

const RETRY_NS: u64 = 4_000_000;

fn nobody_sends_to_whom_did_not_name_him() {
    let mut p = Pair::new();
    // A third one names b; b names a.
    let mut cq = p.m.cq(4);
    let mut c = p.m.qp(&Machine::spec(p.pd_a, &cq));
    p.m.connect(c.number, p.b.number);
    p.recv(1, &[p.mr_b.sge(0, 100)]);
    for opcode in [opcode::SEND, opcode::WRITE, opcode::READ, opcode::WRITE_IMM] {
        p.m.send(&mut c, p.remote(opcode, 0), &[p.mr_a.sge(0, 8)]);
        let cqes = p.m.drain(&mut cq);
        let expected = (Status::RetryExceeded, Detail::NotNamed);
        assert_eq!(outcome(&cqes[0]), expected);
        p.m.set_state(c.number, qp_state::RESET).unwrap();
        (c.sq_tail, c.rq_tail) = (0, 0);
        p.m.connect(c.number, p.b.number);
    }
    assert_eq!(p.state(p.b.number), qp_state::RTS, "b is not affected");
    p.send(wqe(opcode::SEND, 2), &[p.mr_a.sge(0, 8)]);
    assert_eq!(p.done_b()[0].wr_id, 1, "nor its receive");
    // The admin queue pair cannot be a peer.
    p.m.set_state(c.number, qp_state::RESET).unwrap();
    c.sq_tail = 0;
    p.m.connect(c.number, Number::ADMIN);
    p.m.send(&mut c, wqe(opcode::SEND, 3), &[]);
    let expected = (Status::RetryExceeded, Detail::NoPeer);
    assert_eq!(outcome(&p.m.drain(&mut cq)[0]), expected);
}

fn a_peer_must_be_ready() {
    for (state, detail) in [
        (qp_state::RESET, Detail::NotNamed),
        (qp_state::INIT, Detail::NotReady),
        (qp_state::ERROR, Detail::NotReady),
    ] {
        let mut p = Pair::new();
        if state == qp_state::INIT {
            p.m.set_state(p.b.number, qp_state::RESET).unwrap();
            p.m.set_state(p.b.number, qp_state::INIT).unwrap();
            let context = QpContext {
                peer: p.a.number,
                ..QpContext::default()
            };
            p.m.modify(p.b.number, qp_mask::PEER, &context).unwrap();
        } else {
            p.m.set_state(p.b.number, state).unwrap();
        }
        p.send(p.remote(opcode::WRITE, 0), &[p.mr_a.sge(0, 8)]);
        assert_eq!(outcome(&p.done_a()[0]), (Status::RetryExceeded, detail));
    }
    // RTR suffices, and so does SQD.
    let mut p = Pair::new();
    p.m.set_state(p.b.number, qp_state::SQD).unwrap();
    p.send(p.remote(opcode::WRITE, 0), &[p.mr_a.sge(0, 8)]);
    p.m.set_state(p.b.number, qp_state::RESET).unwrap();
    p.m.set_rtr(p.b.number, p.a.number);
    p.send(p.remote(opcode::WRITE, 0), &[p.mr_a.sge(0, 8)]);
    assert!(p.done_a().iter().all(|cqe| cqe.status == 0));
}

fn a_reused_number_is_another_peer() {
    let mut p = Pair::new();
    p.m.destroy(kind::QP, p.b.number).unwrap();
    p.done_b();
    p.m.events0();
    let spec = Machine::spec(p.pd_b, &p.cq_b);
    let c = p.m.qp(&spec);
    assert_eq!(c.number, p.b.number.next(), "the same index");
    p.m.connect(c.number, p.a.number);
    p.send(p.remote(opcode::WRITE, 0), &[p.mr_a.sge(0, 8)]);
    let expected = (Status::RetryExceeded, Detail::NoPeer);
    assert_eq!(outcome(&p.done_a()[0]), expected);
    assert_eq!(p.m.memory.word(p.mr_b.addr), 0);
}

fn other_functions_are_gone() {
    let mut p = Pair::new();
    p.m.set_state(p.a.number, qp_state::RESET).unwrap();
    p.m.set_state(p.a.number, qp_state::INIT).unwrap();
    let context = QpContext {
        peer: p.b.number,
        peer_function: 1,
        state: qp_state::RTR,
        ..QpContext::default()
    };
    let mask = qp_mask::PEER | qp_mask::STATE;
    let refused = p.m.modify(p.a.number, mask, &context);
    assert_eq!(refused, Err(AdminError::Attribute), "there is none");
    let is = p.m.query_qp(p.a.number);
    assert_eq!((is.state, is.peer), (qp_state::INIT, Number::default()));
}

fn retries_are_counted_and_take_time() {
    for (retry, opcode) in [
        (0, opcode::SEND),
        (1, opcode::SEND),
        (3, opcode::SEND),
        (7, opcode::SEND),
        (2, opcode::SEND_INV),
    ] {
        let mut p = Pair::with(|a, _| a.retry = retry);
        p.recv(5, &[]);
        if opcode == opcode::SEND {
            p.m.set_state(p.b.number, qp_state::ERROR).unwrap();
        }
        // A SEND_INV of no window fails the peer.
        p.send(wqe(opcode, 1), &[]);
        assert_eq!(p.state(p.b.number), qp_state::ERROR);
        if retry != 0 {
            p.m.pass(u64::from(retry) * RETRY_NS - 1);
            assert_eq!(p.done_a(), [], "{retry}");
            p.m.pass(1);
        }
        assert_eq!(outcome(&p.done_a()[0]).0, Status::RetryExceeded, "{retry}");
        p.m.pass(u64::MAX >> 8);
        assert_eq!(p.done_a(), []);
    }
}

/// Sets the timers of a queue pair.
fn set_timers(p: &mut Pair, qp: Number, timeout: u8, min_rnr_timer: u8) {
    let context = QpContext {
        timeout,
        min_rnr_timer,
        ..QpContext::default()
    };
    p.m.modify(qp, qp_mask::TIMERS, &context).unwrap();
    let is = p.m.query_qp(qp);
    assert_eq!((is.timeout, is.min_rnr_timer), (timeout, min_rnr_timer));
}

fn the_time_of_an_answer() {
    for (timeout, nanos) in [(1, 8192), (14, 67_108_864), (31, 4096 << 31)] {
        let mut p = Pair::with(|a, _| a.retry = 2);
        let (a, b) = (p.a.number, p.b.number);
        // The receiver's timer is another.
        set_timers(&mut p, a, timeout, 5);
        set_timers(&mut p, b, 0, 6);
        p.m.set_state(b, qp_state::ERROR).unwrap();
        p.send(wqe(opcode::SEND, 1), &[]);
        p.m.pass(2 * nanos - 1);
        assert_eq!(p.done_a(), [], "{timeout}");
        p.m.pass(1);
        assert_eq!(outcome(&p.done_a()[0]).0, Status::RetryExceeded);
        assert_eq!(p.m.f.counter(Counter::Retries), 2);
    }
    // Without end: the peer wakes it, or its own end does.
    let mut p = Pair::with(|a, _| a.retry = 1);
    let (a, b) = (p.a.number, p.b.number);
    set_timers(&mut p, a, timer::ZERO, 0);
    p.m.set_state(b, qp_state::RESET).unwrap();
    p.send(p.remote(opcode::WRITE, 0), &[p.mr_a.sge(0, 8)]);
    p.m.pass(1 << 50);
    assert_eq!((p.done_a(), p.m.f.host().wake_at), (vec![], u64::MAX));
    p.m.set_rtr(b, a);
    p.m.settle();
    assert_eq!(outcome(&p.done_a()[0]).0, Status::Success);
    for bad in [timer::ZERO + 1, 255] {
        let one = QpContext {
            timeout: bad,
            ..QpContext::default()
        };
        let other = QpContext {
            min_rnr_timer: bad,
            ..QpContext::default()
        };
        for context in [one, other] {
            let done = p.m.modify(a, qp_mask::TIMERS, &context);
            assert_eq!(done, Err(AdminError::Attribute));
        }
    }
}

fn the_time_of_a_receive() {
    for (code, nanos) in [
        (1, 10_000),
        (12, 640_000),
        (31, 491_520_000),
        (timer::ZERO, 655_360_000),
        (0, RETRY_NS),
    ] {
        let mut p = Pair::with(|a, _| a.rnr_retry = 3);
        let (a, b) = (p.a.number, p.b.number);
        // That of the receiver counts, and no time of an answer.
        set_timers(&mut p, a, 3, 7);
        set_timers(&mut p, b, 4, code);
        p.send(wqe(opcode::SEND, 1), &[]);
        p.m.pass(3 * nanos - 1);
        assert_eq!(p.done_a(), [], "{code}");
        p.m.pass(1);
        assert_eq!(outcome(&p.done_a()[0]).0, Status::RnrRetryExceeded);
        assert_eq!(p.m.f.counter(Counter::RnrRetries), 3);
    }
}

/// The one that is due first is not the one that began first.
fn waits_of_several_lengths() {
    let mut p = Pair::with(|a, b| (a.retry, b.retry) = (1, 1));
    let (a, b) = (p.a.number, p.b.number);
    let mut cq = p.m.cq(4);
    let mut spec = Machine::spec(p.pd_a, &cq);
    spec.retry = 1;
    let mut c = p.m.qp(&spec);
    p.m.connect(c.number, b);
    set_timers(&mut p, a, 20, 0);
    set_timers(&mut p, c.number, 10, 0);
    p.m.set_state(b, qp_state::ERROR).unwrap();
    p.send(wqe(opcode::SEND, 1), &[]);
    p.m.send(&mut c, wqe(opcode::SEND, 2), &[]);
    p.m.pass(4096 << 10);
    assert_eq!((p.done_a().len(), p.m.drain(&mut cq).len()), (0, 1));
    p.m.pass(4096 << 20);
    assert_eq!(p.done_a().len(), 1);
}

fn the_two_steps_have_a_budget_each() {
    // All retries for an answer, then all for a receive.
    let mut p = Pair::with(|a, _| (a.retry, a.rnr_retry) = (3, 2));
    let (a, b) = (p.a.number, p.b.number);
    p.m.set_state(b, qp_state::RESET).unwrap();
    p.send(wqe(opcode::SEND, 1), &[p.mr_a.sge(0, 8)]);
    p.m.pass(3 * RETRY_NS - 1);
    p.m.set_rtr(b, a);
    p.m.pass(2 * RETRY_NS - 1);
    assert_eq!(p.done_a(), []);
    p.m.pass(1);
    assert_eq!(outcome(&p.done_a()[0]).0, Status::RnrRetryExceeded);
    assert_eq!(waits(&p), (3, 2));
    // The other way round.
    let mut p = Pair::with(|a, _| (a.retry, a.rnr_retry) = (2, 3));
    p.send(wqe(opcode::SEND, 1), &[p.mr_a.sge(0, 8)]);
    p.m.pass(3 * RETRY_NS - 1);
    p.m.set_state(p.b.number, qp_state::RESET).unwrap();
    p.m.pass(2 * RETRY_NS - 1);
    assert_eq!(p.done_a(), []);
    p.m.pass(1);
    assert_eq!(outcome(&p.done_a()[0]).0, Status::RetryExceeded);
    assert_eq!(waits(&p), (2, 3));
}

/// Waits for an answer and for a receive.
fn waits(p: &Pair) -> (u64, u64) {
    let count = |counter| p.m.f.counter(counter);
    (count(Counter::Retries), count(Counter::RnrRetries))
}

/// A peer that is not ready wakes its sender by each receive.
fn a_peer_that_posts_prolongs_no_wait() {
    let mut p = Pair::with(|a, b| (a.retry, b.log_rq) = (2, 6));
    let (a, b) = (p.a.number, p.b.number);
    p.m.set_state(b, qp_state::RESET).unwrap();
    p.m.set_state(b, qp_state::INIT).unwrap();
    let named = QpContext {
        peer: a,
        ..QpContext::default()
    };
    p.m.modify(b, qp_mask::PEER, &named).unwrap();
    (p.b.sq_tail, p.b.rq_tail) = (0, 0);
    p.send(wqe(opcode::SEND, 1), &[p.mr_a.sge(0, 8)]);
    for i in 0..15 {
        p.m.pass(RETRY_NS / 8);
        p.recv(i, &[]);
        assert_eq!(p.done_a(), [], "{i}");
    }
    p.m.pass(RETRY_NS / 8);
    let expected = (Status::RetryExceeded, Detail::NotReady);
    assert_eq!(outcome(&p.done_a()[0]), expected);
    assert_eq!(waits(&p).0, 2);
}

/// Another sender takes each receive that is posted.
fn a_shared_queue_prolongs_no_wait() {
    let mut c = Crowd::new(1);
    c.add(2);
    c.send(1, 8);
    for i in 0..15 {
        c.m.pass(RETRY_NS / 8);
        // It is queued before the one that waits.
        c.post(0, 8);
        c.recv([i]);
        assert_eq!(c.sent().len(), 1, "{i}");
    }
    c.m.pass(RETRY_NS / 8);
    assert_eq!(outcome(&c.sent()[0]).0, Status::RnrRetryExceeded);
}

fn a_wait_begins_again_with_other_limits() {
    let limits = |retry, rnr_retry| QpContext {
        retry,
        rnr_retry,
        ..QpContext::default()
    };
    // A wait for a receive without a limit gets one.
    let mut p = Pair::with(|a, _| a.rnr_retry = 7);
    let a = p.a.number;
    p.send(wqe(opcode::SEND, 1), &[]);
    p.m.pass(100 * RETRY_NS);
    p.m.modify(a, qp_mask::RETRY, &limits(0, 1)).unwrap();
    p.m.pass(RETRY_NS - 1);
    assert_eq!(p.done_a(), []);
    p.m.pass(1);
    assert_eq!(outcome(&p.done_a()[0]).0, Status::RnrRetryExceeded);
    // A wait without a time gets one, and keeps its place in the budget.
    let mut p = Pair::with(|a, _| a.retry = 2);
    let a = p.a.number;
    set_timers(&mut p, a, timer::ZERO, 0);
    p.m.set_state(p.b.number, qp_state::ERROR).unwrap();
    p.send(wqe(opcode::SEND, 1), &[]);
    p.m.pass(100 * RETRY_NS);
    set_timers(&mut p, a, 1, 0);
    p.m.pass(2 * 8192 - 1);
    assert_eq!(p.done_a(), []);
    p.m.pass(1);
    assert_eq!(outcome(&p.done_a()[0]).0, Status::RetryExceeded);
    // One that has used up its retries fails at once with fewer, and the earlier ones count.
    for (left, due) in [(1, 0), (2, 0), (3, RETRY_NS)] {
        let mut p = Pair::with(|a, _| a.retry = 7);
        let a = p.a.number;
        p.m.set_state(p.b.number, qp_state::ERROR).unwrap();
        p.send(wqe(opcode::SEND, 1), &[]);
        p.m.pass(2 * RETRY_NS + RETRY_NS / 2);
        p.m.modify(a, qp_mask::RETRY, &limits(left, 0)).unwrap();
        if due != 0 {
            p.m.pass(due - 1);
            assert_eq!(p.done_a(), [], "{left}");
            p.m.pass(1);
        }
        assert_eq!(p.done_a().len(), 1, "{left}");
    }
}

fn a_peer_that_comes_in_time() {
    let mut p = Pair::with(|a, _| a.retry = 3);
    p.m.set_state(p.b.number, qp_state::RESET).unwrap();
    p.send(p.remote(opcode::WRITE, 0), &[p.mr_a.sge(0, 8)]);
    p.m.pass(RETRY_NS * 2);
    p.m.set_rtr(p.b.number, p.a.number);
    p.m.settle();
    let cqes = p.done_a();
    assert_eq!(outcome(&cqes[0]).0, Status::Success, "and at once");
}

fn no_receive_and_no_patience() {
    let mut p = Pair::new();
    p.send(p.remote(opcode::WRITE_IMM, 0), &[p.mr_a.sge(0, 8)]);
    assert_eq!(outcome(&p.done_a()[0]).0, Status::RnrRetryExceeded);
    assert_eq!(p.state(p.b.number), qp_state::RTS, "only the sender stops");
    assert_eq!(p.m.events0(), []);
}

fn finite_patience_for_a_receive() {
    let mut p = Pair::with(|a, _| a.rnr_retry = 2);
    p.m.memory.set_bytes(p.mr_a.addr, &[9]);
    p.send(wqe(opcode::SEND, 1), &[p.mr_a.sge(0, 1)]);
    p.m.pass(RETRY_NS);
    p.recv(1, &[p.mr_b.sge(0, 1)]);
    assert_eq!((p.done_a().len(), p.done_b().len()), (1, 1));
    // Each request starts with a new count.
    p.send(wqe(opcode::SEND, 2), &[p.mr_a.sge(0, 1)]);
    p.m.pass(2 * RETRY_NS - 1);
    assert_eq!(p.done_a(), []);
    p.m.pass(1);
    assert_eq!(outcome(&p.done_a()[0]).0, Status::RnrRetryExceeded);
}

fn endless_patience_for_a_receive() {
    let mut p = Pair::with(|a, _| a.rnr_retry = 7);
    for i in 0..4 {
        p.m.post(&mut p.a, wqe(opcode::SEND, i), &[p.mr_a.sge(0, 1)]);
    }
    p.m.ring_sq(&p.a);
    p.m.pass(1_000_000_000_000);
    assert_eq!(p.m.f.host().wake_at, u64::MAX, "waiting costs nothing");
    for i in 0..4 {
        assert_eq!(p.done_a(), []);
        p.recv(i, &[p.mr_b.sge(0, 1)]);
        assert_eq!((p.done_a().len(), p.done_b().len()), (1, 1));
    }
}

fn who_waits_for_ever_is_told_of_the_end() {
    for end in 0..3 {
        let mut p = Pair::with(|a, _| a.rnr_retry = 7);
        p.send(wqe(opcode::SEND, 1), &[]);
        assert_eq!(p.done_a(), []);
        match end {
            0 => _ = p.m.destroy(kind::QP, p.b.number).unwrap(),
            1 => _ = p.m.set_state(p.b.number, qp_state::ERROR).unwrap(),
            _ => _ = p.m.set_state(p.b.number, qp_state::RESET).unwrap(),
        }
        p.m.settle();
        assert_eq!(outcome(&p.done_a()[0]).0, Status::RetryExceeded);
    }
}

fn a_waiting_sender_can_be_destroyed() {
    for patience in [6, 7] {
        let mut p = Pair::with(|a, _| a.rnr_retry = patience);
        p.send(wqe(opcode::SEND, 1), &[]);
        p.m.destroy(kind::QP, p.a.number).unwrap();
        p.m.memory.revoke(p.a.sq);
        p.m.memory.revoke(p.a.rq);
        p.recv(1, &[p.mr_b.sge(0, 8)]);
        p.m.pass(100 * RETRY_NS);
        assert_eq!(p.done_a(), []);
        assert_eq!(p.done_b(), []);
    }
    // In the error state a waiting request is flushed.
    let mut p = Pair::with(|a, _| a.rnr_retry = 6);
    p.send(wqe(opcode::SEND, 1), &[]);
    p.m.set_state(p.a.number, qp_state::ERROR).unwrap();
    p.m.settle();
    assert_eq!(outcome(&p.done_a()[0]).0, Status::Flush);
    p.m.pass(100 * RETRY_NS);
    assert_eq!(p.done_a(), []);
}

/// One turn of a message that takes many.
fn begin(p: &mut Pair, opcode: u8) {
    let sges = [p.mr_a.sge(0, 1 << 20)];
    let request = p.remote(opcode, 0);
    p.m.post(&mut p.a, request, &sges);
    p.m.ring_sq(&p.a);
    p.m.f.run(1);
    let moved = p.m.query_moved();
    assert!(moved > 0 && moved < 1 << 20);
}

fn a_peer_that_goes_in_the_middle() {
    for opcode in [opcode::SEND, opcode::WRITE, opcode::READ] {
        for end in 0..3 {
            let mut p = Pair::new();
            p.recv(7, &[p.mr_b.sge(0, 1 << 20)]);
            begin(&mut p, opcode);
            let qp = p.b.number;
            match end {
                0 => p.m.destroy_now(kind::QP, qp),
                1 => p.m.set_state_now(qp, qp_state::ERROR),
                _ => p.m.set_state_now(qp, qp_state::RESET),
            }
            p.m.memory.revoke(p.mr_b.addr);
            p.m.settle();
            let cqes = p.done_a();
            assert_eq!(outcome(&cqes[0]).0, Status::RetryExceeded);
            let flushed: Vec<_> = p.done_b().iter().map(|cqe| cqe.wr_id).collect();
            // The receive that was being filled, or was not consumed, is flushed.
            assert_eq!(flushed, if end == 1 { vec![7] } else { vec![] });
        }
    }
}

fn a_sender_that_begins_anew() {
    let mut p = Pair::new();
    p.recv(7, &[p.mr_b.sge(0, 1 << 20)]);
    begin(&mut p, opcode::SEND);
    p.m.set_state_now(p.a.number, qp_state::RESET);
    p.m.settle();
    assert_eq!((p.done_a(), p.done_b()), (vec![], vec![]));
    p.a.sq_tail = 0;
    p.m.connect(p.a.number, p.b.number);
    p.m.memory.set_bytes(p.mr_a.addr, b"again");
    p.send(wqe(opcode::SEND, 2), &[p.mr_a.sge(0, 5)]);
    let cqes = p.done_b();
    assert_eq!((cqes[0].wr_id, cqes[0].bytes, cqes[0].index), (7, 5, 1));
    assert_eq!(p.m.memory.bytes(p.mr_b.addr, 5), b"again");
}

/// A sender that waits without limit goes on when its frozen peer does. A lost answer for which it
/// waits without limit freezes nothing.
fn senders_without_a_timer() {
    let without_limit = |p: &mut Pair| set_timers(p, p.a.number, timer::ZERO, 0);
    let write = |p: &mut Pair| {
        let request = p.remote(opcode::WRITE, 0);
        p.send(request, &[p.mr_a.sge(0, 8)]);
    };
    let mut p = Pair::with(|a, _| a.retry = 7);
    without_limit(&mut p);
    // Freezes the peer with its own request.
    let rules = format!("freeze,qp={}", p.b.number.index());
    p.m.f.set_faults(&rules).unwrap();
    let mut b = p.b;
    p.m.send(&mut b, wqe(opcode::NOP, 3), &[]);
    write(&mut p);
    p.m.pass(250_000 * RETRY_NS);
    assert_eq!(p.done_a(), []);
    p.m.f.set_faults("").unwrap();
    p.m.settle();
    assert_eq!(outcome(&p.done_a()[0]).0, Status::Success);

    let mut p = Pair::with(|a, _| a.retry = 7);
    without_limit(&mut p);
    p.m.f.set_faults("drop-ack,times=1").unwrap();
    write(&mut p);
    assert_eq!(p.done_a(), []);
    p.write_back(3);
    assert_eq!(outcome(&p.done_b()[0]).0, Status::Success);
}
