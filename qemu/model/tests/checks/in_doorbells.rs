// SPDX-License-Identifier: GPL-2.0
//! Work in the thread of a doorbell.

use super::checks;
use super::schedule::loops;
use crate::harness::*;
use qpair_abi::command::kind;
use qpair_abi::command::opcode as command_opcode;
use qpair_abi::command::qp_state;
use qpair_abi::command::verb;
use qpair_abi::command::Command;
use qpair_abi::counters::Counter;
use qpair_abi::doorbell;
use qpair_abi::entry::opcode as work;
use qpair_abi::entry::*;
use qpair_model::Budget;
use qpair_model::Config;

checks![
    a_doorbell_does_little_work,
    a_doorbell_may_do_more_than_a_page,
    many_requests_are_the_cores,
    a_long_message_goes_on_in_the_core,
    others_are_served_first,
    doorbells_of_one_call_share_a_spare,
    a_thread_without_a_spare_does_no_work,
    a_receive_lets_its_sender_go_on,
    a_flush_may_be_little_work,
    commands_are_the_cores,
    a_core_with_a_pace_begins_by_the_clock,
    a_stalled_core_does_no_work,
    a_hold_ends_by_the_clock,
    a_function_that_stops_calls_no_core,
];

/// The thread of a doorbell does 4 work requests and 4096 bytes.
fn machine() -> Machine {
    Machine::with(Config {
        doorbell_wqes: 4,
        doorbell_bytes: 4096,
        ..Config::default()
    })
}

fn pair() -> Pair {
    Pair::on(machine(), |_, _| {})
}

fn is_called(m: &mut Machine) -> bool {
    std::mem::take(&mut m.f.host_mut().woken)
}

/// Posts `count` NOPs, which are numbered from `first`, and rings once.
fn nops(m: &mut Machine, qp: &mut TestQp, first: u64, count: u64) {
    for i in 0..count {
        m.post(qp, wqe(work::NOP, first + i), &[]);
    }
    m.ring_sq(qp);
}

fn ids(done: &[Cqe]) -> Vec<u64> {
    done.iter().map(|cqe| cqe.wr_id).collect()
}

fn a_doorbell_does_little_work() {
    let mut p = pair();
    let turns = p.m.f.counter(Counter::Turns);
    for round in 0..100 {
        p.recv(round, &[p.mr_b.sge(0, 8)]);
        p.m.post(&mut p.a, wqe(work::SEND, round), &[p.mr_a.sge(0, 8)]);
        p.m.ring_sq(&p.a);
        assert!(!is_called(&mut p.m), "no work is left");
        assert_eq!(
            (ids(&p.done_a()), ids(&p.done_b())),
            (vec![round], vec![round])
        );
    }
    assert_eq!(p.m.f.counter(Counter::Turns) - turns, 100);
}

fn a_doorbell_may_do_more_than_a_page() {
    let mut m = Machine::with(Config {
        doorbell_wqes: 40,
        ..Config::default()
    });
    let (mut cq, mut qps, _) = loops(&mut m, 1, 8);
    let turns = m.f.counter(Counter::Turns);
    nops(&mut m, &mut qps[0], 0, 40);
    assert_eq!(m.drain(&mut cq).len(), 40);
    assert_eq!(m.f.counter(Counter::Turns) - turns, 1);
    assert!(!is_called(&mut m));
}

fn many_requests_are_the_cores() {
    let mut m = machine();
    let (mut cq, mut qps, _) = loops(&mut m, 1, 8);
    for (count, inside) in [(4, 4), (5, 0)] {
        nops(&mut m, &mut qps[0], 0, count);
        assert_eq!(m.drain(&mut cq).len(), inside);
        assert_eq!(m.f.host().woken, inside == 0);
        m.settle();
    }
    assert_eq!(m.drain(&mut cq).len(), 5);
}

fn a_long_message_goes_on_in_the_core() {
    let mut m = machine();
    let (mut cq, mut qps, mr) = loops(&mut m, 1, 4);
    let write = SendWqe {
        rkey: mr.key.raw(),
        remote_addr: mr.va,
        ..wqe(work::WRITE, 1)
    };
    let before = m.query_moved();
    m.post(&mut qps[0], write, &[mr.sge(0, 1 << 20)]);
    m.ring_sq(&qps[0]);
    assert_eq!(m.query_moved() - before, 4096);
    assert!(m.f.host().woken, "the core has the rest");
    // The core has not begun: the next doorbell does nothing before it.
    nops(&mut m, &mut qps[0], 2, 1);
    assert_eq!(m.query_moved() - before, 4096);
    m.settle();
    assert_eq!(ids(&m.drain(&mut cq)), [1, 2]);
}

fn others_are_served_first() {
    let mut m = machine();
    let (mut cq, mut qps, _) = loops(&mut m, 3, 8);
    nops(&mut m, &mut qps[0], 0, 18);
    assert!(is_called(&mut m));
    m.f.run(1);
    assert_eq!(m.drain(&mut cq).len(), 16);
    nops(&mut m, &mut qps[1], 100, 1);
    nops(&mut m, &mut qps[2], 101, 1);
    assert_eq!(m.drain(&mut cq), [], "the core has work");
    assert!(!is_called(&mut m), "it has been called");
    m.f.run(8);
    assert_eq!(ids(&m.drain(&mut cq)), [16, 17, 100, 101]);
}

/// Rings for one NOP of each queue pair, in one call of a thread.
fn in_one_call(m: &mut Machine, qps: &mut [TestQp], spare: &mut Budget) {
    for (i, qp) in (0..).zip(qps) {
        m.post(qp, wqe(work::NOP, i), &[]);
        let at = u64::from(qp.page) * doorbell::PAGE_BYTES + doorbell::SQ;
        let value = doorbell::value(qp.number, qp.sq_tail);
        let written = m.f.producers().doorbell(at, value, 8);
        m.f.execute(written, spare);
    }
}

fn doorbells_of_one_call_share_a_spare() {
    let mut m = machine();
    let (mut cq, mut qps, _) = loops(&mut m, 7, 4);
    let mut spare = m.f.spare();
    in_one_call(&mut m, &mut qps, &mut spare);
    assert_eq!(ids(&m.drain(&mut cq)), [0, 1, 2, 3]);
    assert!(m.f.host().woken);
    m.settle();
    assert_eq!(m.drain(&mut cq).len(), 3);
}

fn a_thread_without_a_spare_does_no_work() {
    let mut m = machine();
    let (mut cq, mut qps, _) = loops(&mut m, 1, 4);
    in_one_call(&mut m, &mut qps, &mut Budget::none());
    assert_eq!(m.drain(&mut cq), []);
    m.settle();
    assert_eq!(m.drain(&mut cq).len(), 1);
}

fn a_receive_lets_its_sender_go_on() {
    let mut p = Pair::on(machine(), |a, _| a.rnr_retry = 7);
    p.send(wqe(work::SEND, 2), &[p.mr_a.sge(0, 8)]);
    assert_eq!(p.done_a(), []);
    let (mut b, sge) = (p.b, p.mr_b.sge(0, 8));
    p.m.post_recv(&mut b, 1, &[sge]);
    p.m.ring(b.page, doorbell::RQ, b.number, b.rq_tail);
    assert!(!is_called(&mut p.m));
    assert_eq!((ids(&p.done_a()), ids(&p.done_b())), (vec![2], vec![1]));
}

fn a_flush_may_be_little_work() {
    let mut p = pair();
    p.send(wqe(99, 0), &[]);
    assert_eq!(p.state(p.a.number), qp_state::ERROR);
    nops(&mut p.m, &mut p.a, 1, 3);
    assert!(!is_called(&mut p.m));
    assert_eq!(ids(&p.done_a()), [0, 1, 2, 3]);
}

fn commands_are_the_cores() {
    let mut m = machine();
    let command = Command {
        opcode: command_opcode(kind::PD, verb::CREATE),
        flags: send_flags::SIGNALED,
        blocks: 1,
        ..Command::default()
    };
    m.post_command(&Machine::command_words(&command));
    assert!(m.admin_done().is_none());
    m.settle();
    assert!(m.admin_done().is_some());
}

fn a_core_with_a_pace_begins_by_the_clock() {
    let mut m = machine();
    let (mut cq, mut qps, _) = loops(&mut m, 1, 4);
    m.f.set_core_delay(500);
    nops(&mut m, &mut qps[0], 0, 1);
    m.pass(499);
    assert_eq!(m.drain(&mut cq), []);
    m.pass(1);
    assert_eq!(m.drain(&mut cq).len(), 1);
}

fn a_stalled_core_does_no_work() {
    let mut m = machine();
    let (mut cq, mut qps, _) = loops(&mut m, 1, 4);
    m.f.set_stall(true);
    nops(&mut m, &mut qps[0], 0, 1);
    m.settle();
    assert_eq!(m.drain(&mut cq), []);
    m.f.set_stall(false);
    m.settle();
    assert_eq!(m.drain(&mut cq).len(), 1);
}

fn a_hold_ends_by_the_clock() {
    let mut p = pair();
    p.m.f.set_faults("delay=5us,nth=1").unwrap();
    nops(&mut p.m, &mut p.a, 1, 2);
    assert!(!is_called(&mut p.m));
    p.m.pass(4999);
    assert_eq!(p.done_a(), []);
    p.m.pass(1);
    assert_eq!(ids(&p.done_a()), [1, 2]);
}

fn a_function_that_stops_calls_no_core() {
    let mut m = machine();
    // Two events fill this EQ.
    let eq = m.eq(1, 1, 0, 0);
    let cq = m.cq_of(eq.number, 4, 0, 0);
    let mut p = Pair::on(m, |a, _| a.send_cq = cq.number);
    for id in 0..3 {
        assert!(p.m.f.status() & 1 != 0);
        p.m.arm(&cq);
        // An SQ that still has work requests when the function stops.
        nops(&mut p.m, &mut p.a, id, 4);
        assert!(!is_called(&mut p.m));
    }
    assert_eq!(p.m.f.status() & 3, 2);
}
