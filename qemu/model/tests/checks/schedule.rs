// SPDX-License-Identifier: GPL-2.0
//! Whose turn it is, and when.

use super::checks;
use crate::harness::*;
use qpair_abi::counters::Counter;
use qpair_abi::entry::opcode as work;
use qpair_abi::entry::*;
use qpair_model::Config;
use qpair_model::Run;

checks![
    many_requests_do_not_delay_one,
    a_long_message_does_not_delay_a_short_one,
    turns_are_as_many_as_asked_for,
    an_idle_core_begins_after_its_delay,
    each_request_takes_its_time,
    who_waits_for_the_clock_is_woken_when_there_is_none,
    the_core_may_work_inside_the_doorbell,
    long_work_leaves_the_doorbell,
    the_same_calls_give_the_same_results,
];

/// Queue pairs that talk to themselves, on one CQ.
fn loops(m: &mut Machine, count: usize, log_sq: u8) -> (TestCq, Vec<TestQp>, TestMr) {
    let (pd, cq) = (m.pd(), m.cq(10));
    let spec = QpSpec {
        log_sq,
        ..Machine::spec(pd, &cq)
    };
    let qps: Vec<_> = (0..count).map(|_| m.qp(&spec)).collect();
    for qp in &qps {
        m.connect(qp.number, qp.number);
    }
    let mr = m.mr(pd, 1 << 20);
    (cq, qps, mr)
}

fn many_requests_do_not_delay_one() {
    let mut m = Machine::new();
    let (mut cq, mut qps, _) = loops(&mut m, 3, 8);
    for i in 0..200 {
        m.post(&mut qps[0], wqe(work::NOP, i), &[]);
        m.post(&mut qps[1], wqe(work::NOP, i), &[]);
    }
    m.post(&mut qps[2], wqe(work::NOP, 1), &[]);
    for qp in &qps {
        m.ring_sq(qp);
    }
    m.settle();
    let order: Vec<_> = m.drain(&mut cq).iter().map(|cqe| cqe.qp).collect();
    assert_eq!(order.len(), 401);
    let lonely = order.iter().position(|qp| *qp == qps[2].number).unwrap();
    assert!(lonely <= 2 * 16, "it waited for {lonely} requests");
    // The two others take turns.
    let changes = order.windows(2).filter(|pair| pair[0] != pair[1]).count();
    assert!(changes >= 20, "{changes}");
}

fn a_long_message_does_not_delay_a_short_one() {
    let mut m = Machine::new();
    let (mut cq, mut qps, mr) = loops(&mut m, 2, 4);
    let write = |bytes: u32| SendWqe {
        rkey: mr.key.raw(),
        remote_addr: mr.va,
        ..wqe(work::WRITE, u64::from(bytes))
    };
    m.post(&mut qps[0], write(1 << 20), &[mr.sge(0, 1 << 20)]);
    m.post(&mut qps[1], write(8), &[mr.sge(0, 8)]);
    m.ring_sq(&qps[0]);
    m.ring_sq(&qps[1]);
    m.settle();
    let order: Vec<_> = m.drain(&mut cq).iter().map(|cqe| cqe.wr_id).collect();
    assert_eq!(order, [8, 1 << 20]);
}

fn turns_are_as_many_as_asked_for() {
    let mut m = Machine::new();
    let (_, mut qps, _) = loops(&mut m, 4, 8);
    for qp in &mut qps {
        for i in 0..100 {
            m.post(qp, wqe(work::NOP, i), &[]);
        }
    }
    for qp in &qps {
        m.ring_sq(qp);
    }
    for turns in [0, 1, 3] {
        let before = m.f.counter(Counter::Turns);
        assert_eq!(m.f.run(turns), Run::More);
        assert_eq!(m.f.counter(Counter::Turns) - before, u64::from(turns));
    }
    assert_eq!(m.f.run(1000), Run::Idle);
}

fn an_idle_core_begins_after_its_delay() {
    let mut p = Pair::new();
    p.m.f.set_core_delay(500);
    let nop = wqe(work::NOP, 1);
    p.send(nop, &[]);
    p.m.pass(499);
    assert_eq!(p.done_a(), []);
    p.m.pass(1);
    assert_eq!(p.done_a().len(), 1);
    // While it waits, more join; they begin with the first.
    p.send(nop, &[]);
    p.m.pass(400);
    p.send(nop, &[]);
    p.m.pass(100);
    assert_eq!(p.done_a().len(), 2);
}

fn each_request_takes_its_time() {
    let mut p = Pair::new();
    p.m.f.set_wqe_ns(100);
    for i in 0..10 {
        p.m.post(&mut p.a, wqe(work::NOP, i), &[]);
    }
    p.m.ring_sq(&p.a);
    p.m.settle();
    assert_eq!(p.done_a().len(), 1);
    p.m.pass(450);
    assert_eq!(p.done_a().len(), 4);
    p.m.pass(450);
    assert_eq!(p.done_a().len(), 5);
    p.m.f.set_wqe_ns(0);
    p.send(wqe(work::NOP, 1), &[]);
    assert_eq!(p.done_a().len(), 1);
}

fn who_waits_for_the_clock_is_woken_when_there_is_none() {
    let mut p = Pair::new();
    p.m.f.set_wqe_ns(1_000_000);
    for i in 0..3 {
        p.m.post(&mut p.a, wqe(work::NOP, i), &[]);
    }
    p.m.ring_sq(&p.a);
    p.m.settle();
    assert_eq!(p.done_a().len(), 1);
    p.m.f.host_mut().woken = false;
    p.m.f.set_wqe_ns(0);
    assert!(p.m.f.host().woken, "nobody else comes for what is in line");
    p.m.settle();
    assert_eq!(p.done_a().len(), 2);
}

fn in_doorbells() -> Config {
    Config {
        inline: true,
        ..Config::default()
    }
}

fn the_core_may_work_inside_the_doorbell() {
    let mut p = Pair::on(Machine::with(in_doorbells()), |_, _| {});
    p.recv(1, &[p.mr_b.sge(0, 8)]);
    p.m.post(&mut p.a, wqe(work::SEND, 2), &[p.mr_a.sge(0, 8)]);
    p.m.ring_sq(&p.a);
    assert!(!p.m.f.host().woken, "nothing is left for later");
    assert_eq!((p.done_a().len(), p.done_b().len()), (1, 1));
}

fn long_work_leaves_the_doorbell() {
    let mut p = Pair::on(Machine::with(in_doorbells()), |_, _| {});
    let (request, sge) = (p.remote(work::WRITE, 0), p.mr_a.sge(0, 1 << 20));
    for _ in 0..5 {
        p.m.post(
            &mut p.a,
            request,
            &[sge; 10].map(|sge| Sge {
                bytes: 1 << 19,
                ..sge
            })[..1],
        );
    }
    for _ in 0..4 {
        p.m.post(&mut p.a, request, &[sge]);
    }
    // 5 times 8 turns and 4 times 16, and that again and again.
    for _ in 0..2 {
        p.m.ring_sq(&p.a);
        p.m.settle();
    }
    assert_eq!(p.done_a().len(), 9);
    for _ in 0..15 {
        p.m.post(&mut p.a, request, &[sge]);
    }
    p.m.f.set_stall(true);
    p.m.ring_sq(&p.a);
    p.m.f.set_stall(false);
    for _ in 0..100 {
        p.m.pass(1000);
    }
    let first = p.done_a().len();
    assert_eq!(first, 15);
    let mut b = p.b;
    for _ in 0..15 {
        p.m.post(&mut p.a, request, &[sge]);
        let back = SendWqe {
            remote_addr: p.mr_a.va,
            rkey: p.mr_a.key.raw(),
            ..request
        };
        p.m.post(&mut b, back, &[p.mr_b.sge(0, 1 << 20)]);
    }
    p.m.f.set_stall(true);
    p.m.ring_sq(&p.a);
    p.m.ring_sq(&b);
    p.m.f.host_mut().woken = false;
    let before = p.m.query_moved();
    p.m.f.set_stall(false);
    p.m.f.host_mut().woken = false;
    p.m.ring(
        0,
        qpair_abi::doorbell::CQ_HEAD,
        p.cq_a.number,
        p.cq_a.ring.head,
    );
    let inside = p.m.query_moved() - before;
    assert!(inside > 0 && inside < 30 << 20, "{inside}");
    let at = p.m.f.host().wake_at;
    assert!(
        at > p.m.f.host().now && at < u64::MAX,
        "the rest by the clock"
    );
    p.m.pass(1_000_000);
    assert_eq!(p.done_a().len() + p.done_b().len(), 30);
}

/// A workload of everything, and what the device counted.
fn workload(config: Config) -> (Vec<u64>, Vec<Cqe>, u64) {
    let mut p = Pair::on(Machine::with(config), |a, b| {
        (a.retry, a.rnr_retry, b.rnr_retry) = (2, 5, 7);
    });
    let mut rng = Rng::new(77);
    let mut cqes = Vec::new();
    for i in 0..300 {
        p.m.arm(&p.cq_a.clone());
        match rng.below(4) {
            0 => p.recv(i, &[p.mr_b.sge(0, 5000)]),
            1 => p.send(wqe(work::SEND, i), &[p.mr_a.sge(0, rng.below(5000) as u32)]),
            2 => p.send(
                p.remote(work::WRITE, 0),
                &[p.mr_a.sge(0, rng.below(200_000) as u32)],
            ),
            _ => p.send(
                p.remote(work::READ, 0),
                &[p.mr_a.sge(0, rng.below(9000) as u32)],
            ),
        }
        p.m.pass(rng.below(3000));
        cqes.extend(p.done_a());
        cqes.extend(p.done_b());
        p.m.events0();
    }
    p.m.pass(1_000_000_000);
    cqes.extend(p.done_a());
    (p.m.f.counters().to_vec(), cqes, p.m.f.host().now)
}

fn the_same_calls_give_the_same_results() {
    for config in [
        Config::default(),
        in_doorbells(),
        Config {
            core_delay_ns: 300,
            wqe_ns: 70,
            inline: true,
            ..Config::default()
        },
    ] {
        assert_eq!(workload(config.clone()), workload(config));
    }
}
