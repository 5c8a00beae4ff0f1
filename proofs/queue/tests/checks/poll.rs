// SPDX-License-Identifier: GPL-2.0
//! The poll, effect by effect, on a device that has already written all entries.

use super::checks;
use super::memory::Memory;
use qpair_abi::entry::Eqe;
use qpair_abi::status::Event;
use qpair_abi::Number;
use qpair_queue::consumer::EqConsumer;
use qpair_queue::credit::RingId;
use qpair_queue::eq_slots::EventSlots;
use qpair_queue::eq_slots::SlotShares;
use qpair_queue::index::Depth;
use qpair_queue::index::Index;
use qpair_queue::poll::Consumed;
use qpair_queue::poll::Node;
use qpair_queue::poll::Policy;
use qpair_queue::poll::Poller;
use qpair_queue::poll::Step;
use qpair_queue::poll::Tuning;

checks![
    an_idle_poll_unmasks_once,
    a_drained_cq_is_armed_at_once,
    the_head_is_published_after_n_events,
    out_of_slots_publishes_the_head_first,
    a_cq_that_is_not_drained_waits_unarmed,
    the_source_loop_reopens_and_unmasks,
    small_budgets_starve_no_cq,
    processes_are_signaled_and_charged,
    strangers_are_counted_and_give_nothing,
    unbinding_takes_a_cq_off_the_list,
];

/// An effect of the poll.
#[derive(Clone, Debug, PartialEq)]
enum Did {
    Consume(u16, u32),
    Head(u16),
    Arm(u16),
    Signal(u16),
    Async(u16),
    Keep(u32),
    Unmask(u32),
}
use Did::*;

/// A table of CQs with their numbers of completions.
#[derive(Default)]
struct Table {
    nodes: Vec<Option<Node>>,
    waiting: Vec<u32>,
    did: Vec<Did>,
}

fn number(index: u16) -> Number {
    Number::new(index, 1)
}

impl Table {
    fn node(&mut self, cq: Number) -> Option<&mut Node> {
        let known = cq.generation() == 1;
        self.nodes.get_mut(cq.index()).filter(|_| known)?.as_mut()
    }

    fn consume(&mut self, cq: u16, max: u32) -> Consumed {
        let waiting = &mut self.waiting[usize::from(cq)];
        let count = max.min(*waiting);
        *waiting -= count;
        let drained = *waiting == 0;
        self.did.push(Consume(cq, count));
        Consumed { count, drained }
    }

    fn ring(&mut self, head: Index, unmask: bool) {
        self.did.push(if unmask {
            Unmask(head.get())
        } else {
            Keep(head.get())
        });
    }
}

/// How a poll ended.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Verdict {
    Drained,
    Again,
}

struct Bench {
    poller: Poller<Memory>,
    table: Table,
    memory: Memory,
    written: Index,
}

/// More than any poll has, and more than any check has polls: a broken rule may make a loop endless.
const STEPS: usize = 1000;

const TUNING: Tuning = Tuning {
    events: 4,
    completions: 4,
    budget: 100,
    policy: Policy::Coalesce,
};

impl Bench {
    /// `kernel` CQs that are armed, then `process` CQs.
    fn new(kernel: u16, process: u16, spare: u32) -> Self {
        let depth = Depth::new(64).unwrap();
        let memory = Memory::new(128);
        let capacity = u32::from(kernel + process) + spare + 1;
        let (eq, pool) =
            EqConsumer::new(RingId::new(0, 0), memory.clone(), depth, capacity).unwrap();
        let shares = SlotShares {
            reserve: 1,
            spare,
            kernel: 0,
        };
        let mut poller = Poller::new(eq, EventSlots::new(pool, shares).unwrap());
        let mut table = Table::default();
        for index in 0..kernel + process {
            let kernel = index < kernel;
            table.waiting.push(0);
            table.nodes.push(Some(match kernel {
                true => poller.bind_kernel().unwrap(),
                false => poller.bind_process().unwrap(),
            }));
            if kernel {
                let node = table.nodes[usize::from(index)].as_mut().unwrap();
                poller.start(number(index), node);
            }
        }
        assert!(
            poller.bind_kernel().is_err() && poller.bind_process().is_err(),
            "full"
        );
        let mut bench = Self {
            poller,
            table,
            memory,
            written: Index::ZERO,
        };
        assert_eq!(bench.poll(TUNING), Verdict::Drained);
        let armed = bench
            .table
            .did
            .drain(..)
            .filter(|did| matches!(did, Arm(_)));
        assert_eq!(armed.count(), kernel as usize);
        bench
    }

    fn event(&mut self, kind: Event, number: Number) {
        let event = Eqe {
            number,
            count: 1,
            kind: kind.code(),
            code: 0,
        };
        self.memory
            .write(self.poller.eq().depth(), self.written, event.encode());
        self.written = self.written.plus(1);
    }

    fn completions(&mut self, cq: u16, count: u32) {
        self.table.waiting[cq as usize] += count;
        self.event(Event::Completion, number(cq));
    }

    /// Runs all steps of a poll.
    fn run(&mut self, tuning: Tuning) -> Verdict {
        let Self { poller, table, .. } = self;
        let mut run = poller.begin(tuning);
        let mut cq = Number::new(u16::MAX, 0);
        for _ in 0..STEPS {
            let at = cq.index() as u16;
            match poller.step(&mut run, table.node(cq)) {
                None => {}
                Some(Step::Event(event)) => cq = event.number,
                Some(Step::Turn(number)) => cq = number,
                Some(Step::Consume(max)) => poller.consumed(&mut run, table.consume(at, max)),
                Some(Step::Publish(arm)) => table.did.push(if arm { Arm(at) } else { Head(at) }),
                Some(Step::Signal) => table.did.push(Signal(at)),
                Some(Step::Async(event)) => table.did.push(Async(event.number.index() as u16)),
                Some(Step::EqHead) => poller.publish(&run, |head, unmask| table.ring(head, unmask)),
                Some(Step::Done) => {
                    poller.publish(&run, |head, unmask| table.ring(head, unmask));
                    return Verdict::Drained;
                }
                Some(Step::Again) => return Verdict::Again,
            }
        }
        panic!("the poll does not end");
    }

    fn poll(&mut self, tuning: Tuning) -> Verdict {
        let verdict = self.run(tuning);
        let held = self.table.nodes.iter().flatten().map(Node::held).sum();
        self.poller.audit(held).expect("EQ slots");
        assert_eq!(self.poller.eq().unpublished(), 0);
        verdict
    }

    /// Polls once; what it did.
    fn did(&mut self, tuning: Tuning, verdict: Verdict) -> Vec<Did> {
        assert_eq!(self.poll(tuning), verdict);
        std::mem::take(&mut self.table.did)
    }
}

fn an_idle_poll_unmasks_once() {
    let mut bench = Bench::new(1, 0, 0);
    assert_eq!(bench.did(TUNING, Verdict::Drained), [Unmask(0)]);
}

fn a_drained_cq_is_armed_at_once() {
    let mut bench = Bench::new(1, 0, 1);
    bench.completions(0, 3);
    let did = bench.did(TUNING, Verdict::Drained);
    assert_eq!(
        did,
        [Consume(0, 3), Arm(0), Unmask(1)],
        "one doorbell for each queue"
    );
}

fn the_head_is_published_after_n_events() {
    let mut bench = Bench::new(5, 0, 5);
    for cq in 0..5 {
        bench.completions(cq, 1);
    }
    let did = bench.did(
        Tuning {
            events: 2,
            ..TUNING
        },
        Verdict::Drained,
    );
    let heads: Vec<&Did> = did
        .iter()
        .filter(|did| matches!(did, Keep(_) | Unmask(_)))
        .collect();
    assert_eq!(heads, [&Keep(2), &Keep(4), &Unmask(5)]);
}

fn out_of_slots_publishes_the_head_first() {
    let mut bench = Bench::new(2, 0, 0);
    bench.completions(0, 1);
    bench.completions(1, 1);
    let did = bench.did(TUNING, Verdict::Drained);
    let expected = [
        Consume(0, 1),
        Keep(1),
        Arm(0),
        Consume(1, 1),
        Keep(2),
        Arm(1),
        Unmask(2),
    ];
    assert_eq!(did, expected);
    assert_eq!(bench.poller.counts().short, 2);
    // One spare slot: the head waits for one more event.
    let mut bench = Bench::new(2, 0, 1);
    bench.completions(0, 1);
    bench.completions(1, 1);
    let did = bench.did(TUNING, Verdict::Drained);
    let expected = [
        Consume(0, 1),
        Arm(0),
        Consume(1, 1),
        Keep(2),
        Arm(1),
        Unmask(2),
    ];
    assert_eq!(did, expected);
}

fn a_cq_that_is_not_drained_waits_unarmed() {
    let mut bench = Bench::new(2, 0, 2);
    bench.completions(0, 9);
    bench.completions(1, 1);
    let expected = [
        Consume(0, 4),
        Head(0),
        Consume(1, 1),
        Arm(1),
        Keep(2),
        Consume(0, 4),
        Head(0),
        Consume(0, 1),
        Arm(0),
        Unmask(2),
    ];
    assert_eq!(bench.did(TUNING, Verdict::Drained), expected);
    assert_eq!(bench.poller.pending(), 0);
}

fn the_source_loop_reopens_and_unmasks() {
    let mut bench = Bench::new(1, 0, 1);
    let tuning = Tuning {
        policy: Policy::Reopen,
        events: 1,
        ..TUNING
    };
    bench.completions(0, 9);
    // The device would write the next event at once; here it has not.
    let did = bench.did(tuning, Verdict::Drained);
    assert_eq!(did, [Consume(0, 4), Arm(0), Unmask(1), Unmask(1)]);
}

/// Budget 1, an endless stream of a process's events, and two CQs that never drain.
fn small_budgets_starve_no_cq() {
    let mut bench = Bench::new(2, 1, 0);
    bench.completions(0, 1000);
    bench.completions(1, 1000);
    let mut did = Vec::new();
    for _ in 0..60 {
        if bench.written.since(bench.poller.eq().head()) == 0 {
            bench.event(Event::Completion, number(2));
        }
        did.extend(bench.did(
            Tuning {
                budget: 1,
                ..TUNING
            },
            Verdict::Again,
        ));
    }
    let count = |what: Did| did.iter().filter(|did| **did == what).count();
    for (who, turns) in [("0", count(Consume(0, 1))), ("1", count(Consume(1, 1)))] {
        assert!(turns >= 12, "CQ {who} had {turns} of 60 turns");
    }
    assert!(count(Signal(2)) >= 12);
}

fn processes_are_signaled_and_charged() {
    let mut bench = Bench::new(0, 1, 0);
    for _ in 0..3 {
        bench.event(Event::Completion, number(0));
    }
    bench.event(Event::QpFatal, Number::new(9, 9));
    let tuning = Tuning {
        budget: 2,
        ..TUNING
    };
    assert_eq!(
        bench.did(tuning, Verdict::Again),
        [Signal(0), Signal(0), Keep(2)]
    );
    let did = bench.did(tuning, Verdict::Again);
    assert_eq!(did, [Signal(0), Async(9), Keep(4)]);
    assert_eq!(bench.did(tuning, Verdict::Drained), [Unmask(4)]);
}

fn strangers_are_counted_and_give_nothing() {
    let mut bench = Bench::new(1, 0, 0);
    bench.event(Event::Completion, Number::new(0, 2));
    bench.event(Event::Completion, Number::new(500, 1));
    assert_eq!(bench.did(TUNING, Verdict::Drained), [Unmask(2)]);
    assert_eq!(bench.poller.counts().stale, 2);
    // An event of a CQ that is not armed: two events for one arm.
    bench.completions(0, 1);
    assert_eq!(bench.did(TUNING, Verdict::Drained).len(), 4);
    bench.table.waiting[0] = 50;
    bench.event(Event::Completion, number(0));
    bench.event(Event::Completion, number(0));
    let tuning = Tuning {
        budget: 4,
        ..TUNING
    };
    assert_eq!(bench.poll(tuning), Verdict::Again);
    let again = |_: &usize| bench.poll(tuning) == Verdict::Again;
    let polls = (0..STEPS).take_while(again).count();
    assert!(polls < STEPS, "never drained");
    assert_eq!(bench.poller.slots().spurious(), 1);
    assert_eq!(bench.poller.slots().spare(), 0);
}

fn unbinding_takes_a_cq_off_the_list() {
    let mut bench = Bench::new(3, 0, 3);
    for cq in 0..3 {
        bench.completions(cq, 100);
    }
    let tuning = Tuning {
        budget: 3,
        completions: 1,
        ..TUNING
    };
    assert_eq!(bench.poll(tuning), Verdict::Again);
    assert_eq!(bench.poller.pending(), 3);
    // The one in the middle, then the last, then the first.
    for (cq, left) in [(1u16, 2), (2, 1), (0, 0)] {
        let node = bench.table.nodes[cq as usize].take().unwrap();
        let (poller, table) = (&mut bench.poller, &mut bench.table);
        poller.remove(number(cq), &node, table, Table::node);
        poller.unbind(node, bench.written);
        assert_eq!(bench.poller.pending(), left);
        bench.table.did.clear();
        let did = bench.did(
            tuning,
            if left == 0 {
                Verdict::Drained
            } else {
                Verdict::Again
            },
        );
        assert!(!did
            .iter()
            .any(|did| matches!(did, Consume(gone, _) if *gone == cq)));
    }
    let Bench { poller, .. } = bench;
    assert_eq!(poller.audit(0), Ok(()));
}
