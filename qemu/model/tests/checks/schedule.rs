// SPDX-License-Identifier: GPL-2.0
//! The order and the time of turns.

use super::checks;
use crate::harness::*;
use qpair_abi::command::access;
use qpair_abi::command::kind;
use qpair_abi::command::opcode as command_opcode;
use qpair_abi::command::verb;
use qpair_abi::command::Command;
use qpair_abi::counters::Counter;
use qpair_abi::entry::opcode as work;
use qpair_abi::entry::*;
use qpair_abi::Number;
use qpair_model::Config;
use qpair_model::Run;
use qpair_testkit::with_seeds;
use qpair_testkit::Rng;

checks![
    many_requests_do_not_delay_one,
    a_long_message_does_not_delay_a_short_one,
    commands_do_not_wait_for_queue_pairs,
    commands_leave_every_second_turn,
    a_page_has_no_more_with_more_queue_pairs,
    a_ping_waits_for_one_turn_of_each_other_page,
    random_pages_keep_the_bound,
    a_run_ends_after_the_bytes_of_a_turn,
    turns_are_as_many_as_asked_for,
    another_pace_holds_at_once,
    an_idle_core_begins_after_its_delay,
    a_core_that_works_is_not_delayed,
    a_core_that_works_is_not_woken,
    a_delayed_core_ends_its_runs,
    each_request_takes_its_time,
    who_waits_for_the_clock_is_woken_when_there_is_none,
    the_core_may_work_inside_the_doorbell,
    long_work_leaves_the_doorbell,
    the_same_calls_give_the_same_results,
];

/// Queue pairs that are their own peers, on one CQ.
pub fn loops(m: &mut Machine, count: usize, log_sq: u8) -> (TestCq, Vec<TestQp>, TestMr) {
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

/// Queue pairs of one doorbell page, each its own peer, and their work requests.
struct Process {
    cq: TestCq,
    qps: Vec<TestQp>,
    mr: TestMr,
}

impl Process {
    fn new(m: &mut Machine, page: u16, count: usize) -> Self {
        let (pd, cq) = (m.pd(), m.cq_of(Number::ADMIN, 12, page, 0));
        let spec = QpSpec {
            page,
            access: access::REMOTE_WRITE | access::REMOTE_READ,
            ..Machine::spec(pd, &cq)
        };
        let qps: Vec<_> = (0..count).map(|_| m.qp(&spec)).collect();
        for qp in &qps {
            m.connect(qp.number, qp.number);
        }
        let mr = m.mr(pd, 2 << 20);
        Self { cq, qps, mr }
    }

    /// Posts a work request of `bytes` bytes to the queue pair at `index`, and rings.
    fn post(&mut self, m: &mut Machine, index: usize, opcode: u8, bytes: u32) {
        let request = SendWqe {
            rkey: self.mr.key.raw(),
            remote_addr: self.mr.va + (1 << 20),
            ..wqe(opcode, index as u64)
        };
        let sge = [self.mr.sge(0, bytes)];
        let sges = &sge[..usize::from(opcode != work::NOP)];
        m.post(&mut self.qps[index], request, sges);
        m.ring_sq(&self.qps[index]);
    }

    /// Fills all SQs.
    fn flood(&mut self, m: &mut Machine, opcode: u8, bytes: u32) {
        for index in 0..self.qps.len() {
            for _ in 0..16 {
                self.post(m, index, opcode, bytes);
            }
        }
    }

    /// Posts one for each completed one; returns their number.
    fn go_on(&mut self, m: &mut Machine, opcode: u8, bytes: u32) -> usize {
        let mut cq = self.cq;
        let done = m.drain(&mut cq);
        self.cq = cq;
        for cqe in &done {
            assert_eq!(cqe.status, 0);
            self.post(m, cqe.wr_id as usize, opcode, bytes);
        }
        done.len()
    }
}

/// Posts a command that creates a PD.
fn post_command(m: &mut Machine) {
    let command = Command {
        opcode: command_opcode(kind::PD, verb::CREATE),
        flags: send_flags::SIGNALED,
        blocks: 1,
        ..Command::default()
    };
    m.post_command(&Machine::command_words(&command));
}

/// Bytes of a turn.
const TURN: u64 = 64 << 10;
/// Work requests of a turn.
pub(super) const WQES: u64 = 16;

fn commands_do_not_wait_for_queue_pairs() {
    let mut m = Machine::new();
    // As many as the limit, the kernel's included, with 16 MiB each.
    let mut all: Vec<_> = [(0, 100), (1, 1), (2, 500), (3, 399)]
        .map(|(page, count)| Process::new(&mut m, page, count))
        .into();
    for process in &mut all {
        process.flood(&mut m, work::WRITE, 1 << 20);
    }
    for round in 0..100 {
        m.f.run(round % 7);
        post_command(&mut m);
        let turns = (1..2000).find(|_| {
            m.f.run(1);
            m.admin_done().is_some()
        });
        // One that was due after the previous command, and its own.
        assert!(turns.is_some_and(|turns| turns <= 2), "{turns:?} turns");
    }
}

fn commands_leave_every_second_turn() {
    let mut m = Machine::new();
    let mut process = Process::new(&mut m, 1, 1);
    process.flood(&mut m, work::WRITE, 1 << 20);
    let mut done = 0;
    for _ in 0..12 {
        post_command(&mut m);
    }
    for _ in 0..100 {
        m.f.run(1);
        while m.admin_done().is_some() {
            done += 1;
            post_command(&mut m);
        }
    }
    assert_eq!((done, m.query_moved()), (12 * 50, 50 * TURN));
}

/// The bytes that a page with `count` queue pairs and a page with one move in the same time.
fn shares(count: usize, bytes: u32, of_one: u32) -> (u64, u64) {
    let mut m = Machine::new();
    let mut many = Process::new(&mut m, 1, count);
    let mut one = Process::new(&mut m, 2, 1);
    many.flood(&mut m, work::WRITE, bytes);
    one.flood(&mut m, work::READ, of_one);
    for _ in 0..4000 {
        m.f.run(1);
        many.go_on(&mut m, work::WRITE, bytes);
        one.go_on(&mut m, work::READ, of_one);
    }
    let moved = |counter| m.f.counter(counter);
    (moved(Counter::WriteBytes), moved(Counter::ReadBytes))
}

fn a_page_has_no_more_with_more_queue_pairs() {
    // Large messages, as many small ones as a turn has bytes for, and small ones that all
    // queue pairs of a page have a few of.
    for (bytes, of_one) in [
        (1 << 20, 1 << 20),
        (1 << 20, 4096),
        (4096, 4096),
        (512, 512),
    ] {
        for count in [1, 3, 128] {
            let (many, one) = shares(count, bytes, of_one);
            assert!(
                many.abs_diff(one) <= TURN,
                "{count} of {bytes} moved {many}, one of {of_one} {one}"
            );
        }
    }
}

fn a_ping_waits_for_one_turn_of_each_other_page() {
    for (pages, count) in [(1, 1), (1, 128), (3, 40)] {
        let mut m = Machine::new();
        let mut pinger = Process::new(&mut m, 0, 1);
        let mut floods: Vec<_> = (1..=pages)
            .map(|page| Process::new(&mut m, page, count))
            .collect();
        for flood in &mut floods {
            flood.flood(&mut m, work::WRITE, 1 << 20);
        }
        let mut rng = Rng::new(5);
        for _ in 0..200 {
            m.f.run(rng.below(5) as u32);
            let (moved, turns) = (m.query_moved(), m.f.counter(Counter::Turns));
            pinger.post(&mut m, 0, work::READ, 64);
            while m.drain(&mut pinger.cq).is_empty() {
                m.f.run(1);
                let waited = m.f.counter(Counter::Turns) - turns;
                assert!(waited <= u64::from(pages) * WQES + 1, "{waited} turns");
            }
            let moved = m.query_moved() - moved - 64;
            assert!(moved <= u64::from(pages) * TURN, "{moved} bytes");
        }
    }
}

fn random_pages_keep_the_bound() {
    with_seeds("random_pages_keep_the_bound", 12, |rng| {
        let mut m = Machine::new();
        let pages = 2 + rng.below(6);
        let mut all: Vec<_> = (0..pages)
            .map(|page| {
                let count = [1, 1, 5, 40][rng.below(4) as usize];
                (Process::new(&mut m, page as u16, count), 0u32)
            })
            .collect();
        for _ in 0..150 {
            // Any of them gets random work, some of it while it is served.
            let busy = rng.below(pages) as usize;
            let index = rng.below(all[busy].0.qps.len() as u64) as usize;
            let mut cq = all[busy].0.cq;
            let done = m.drain(&mut cq).len() as u32;
            all[busy].0.cq = cq;
            all[busy].1 -= done;
            if busy != 0 && all[busy].1 == 0 {
                let bytes = [1, 64, 5000, 70_000, 1 << 20][rng.below(5) as usize];
                for _ in 0..=rng.below(15) {
                    all[busy].0.post(&mut m, index, work::WRITE, bytes);
                    all[busy].1 += 1;
                }
            }
            m.f.run(rng.below(3) as u32);
            if all[0].1 == 0 {
                all[0].0.post(&mut m, 0, work::READ, 64);
                let others = pages - 1;
                let (moved, wqes) = (m.query_moved(), m.f.counter(Counter::SendWqes));
                let mut cq = all[0].0.cq;
                while m.drain(&mut cq).is_empty() {
                    m.f.run(1);
                    let moved = m.query_moved() - moved;
                    let wqes = m.f.counter(Counter::SendWqes) - wqes;
                    assert!(moved <= others * TURN + 64, "{moved} bytes");
                    assert!(wqes <= others * WQES + 1, "{wqes} work requests");
                }
                all[0].0.cq = cq;
            }
        }
    });
}

fn a_run_ends_after_the_bytes_of_a_turn() {
    for (count, bytes) in [(1, 1 << 20), (128, 1 << 20), (40, 5000)] {
        let mut m = Machine::new();
        let mut flood = Process::new(&mut m, 1, count);
        flood.flood(&mut m, work::WRITE, bytes);
        for _ in 0..20 {
            let before = m.query_moved();
            assert_eq!(m.f.run(64), Run::More);
            let moved = m.query_moved() - before;
            assert!((TURN..2 * TURN).contains(&moved), "{moved} bytes in a run");
        }
    }
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

/// A core that waits by the former delay waits no longer than by the new one.
fn another_pace_holds_at_once() {
    let mut p = Pair::new();
    p.m.f.set_core_delay(1 << 40);
    p.send(wqe(work::NOP, 1), &[]);
    p.m.pass(1000);
    p.m.f.set_core_delay(500);
    p.m.pass(499);
    assert_eq!(p.done_a(), []);
    p.m.pass(1);
    assert_eq!(p.done_a().len(), 1);
    // A longer one begins with the next work.
    p.send(wqe(work::NOP, 2), &[]);
    p.m.f.set_core_delay(1 << 40);
    p.m.pass(500);
    assert_eq!(p.done_a().len(), 1);
    // The time of a request that the core is at.
    p.m.f.set_core_delay(0);
    p.m.f.set_wqe_ns(1 << 40);
    for i in 0..2 {
        p.m.post(&mut p.a, wqe(work::NOP, i), &[]);
    }
    p.m.ring_sq(&p.a);
    p.m.settle();
    p.m.f.set_wqe_ns(100);
    p.m.pass(100);
    assert_eq!(p.done_a().len(), 2);
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
    // Requests posted while it waits start with the first one.
    p.send(nop, &[]);
    p.m.pass(400);
    p.send(nop, &[]);
    p.m.pass(100);
    assert_eq!(p.done_a().len(), 2);
}

fn a_core_that_works_is_not_delayed() {
    // More than a turn of one queue pair.
    let mut m = Machine::new();
    let (mut cq, mut qps, _) = loops(&mut m, 1, 8);
    m.f.set_core_delay(500);
    for i in 0..17 {
        m.post(&mut qps[0], wqe(work::NOP, i), &[]);
    }
    m.ring_sq(&qps[0]);
    m.pass(499);
    assert_eq!(m.drain(&mut cq), []);
    m.pass(1);
    assert_eq!(m.drain(&mut cq).len(), 17);

    // More than a turn of the admin queue pair.
    let mut m = Machine::with(Config {
        turn_wqes: 4,
        core_delay_ns: 500,
        ..Config::default()
    });
    for _ in 0..5 {
        m.post_command(&Machine::command_words(&Command::default()));
    }
    m.pass(499);
    assert_eq!(m.f.counter(Counter::Commands), 0);
    m.pass(1);
    assert_eq!(m.f.counter(Counter::Commands), 5);
}

fn a_core_that_works_is_not_woken() {
    let mut m = Machine::new();
    let (_, mut qps, _) = loops(&mut m, 1, 8);
    for i in 0..3 * WQES {
        m.post(&mut qps[0], wqe(work::NOP, i), &[]);
    }
    m.ring_sq(&qps[0]);
    assert!(std::mem::take(&mut m.f.host_mut().woken));
    assert_eq!(m.f.run(2), Run::More, "a turn is left");
    assert_eq!(m.f.run(2), Run::Idle);
    assert!(!m.f.host().woken, "nothing is left");
    m.post(&mut qps[0], wqe(work::NOP, 0), &[]);
    m.ring_sq(&qps[0]);
    assert!(m.f.host().woken, "the core is idle again");
}

fn a_delayed_core_ends_its_runs() {
    let mut m = Machine::new();
    let mut process = Process::new(&mut m, 1, 2);
    m.f.set_core_delay(500);
    for index in 0..2 {
        process.post(&mut m, index, work::WRITE, 4 * TURN as u32);
    }
    let first = m.f.host().now + 500;
    for run in 0..8 {
        // Each run requests a later time, so the machine can do other work before the next one.
        let host = m.f.host_mut();
        host.now = std::mem::replace(&mut host.wake_at, u64::MAX);
        assert_eq!(host.now, first + run);
        assert_eq!(m.f.run(64), Run::Idle);
        assert_eq!(m.query_moved(), (run + 1) * TURN);
    }
    let mut cq = process.cq;
    assert_eq!(m.drain(&mut cq).len(), 2);
    assert_eq!(m.f.host().wake_at, u64::MAX);
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
    assert!(p.m.f.host().woken, "the rest of the run queue needs a call");
    p.m.settle();
    assert_eq!(p.done_a().len(), 2);
}

pub(super) fn in_doorbells() -> Config {
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
    assert!(!p.m.f.host().woken, "no work is left");
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
    // 5 times 8 turns and 4 times 16, repeatedly.
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
        "the rest runs by the clock"
    );
    p.m.pass(1_000_000);
    assert_eq!(p.done_a().len() + p.done_b().len(), 30);
}

/// A workload of all operations; returns the device's counters.
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
