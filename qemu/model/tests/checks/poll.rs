// SPDX-License-Identifier: GPL-2.0
//! The driver's event poll against the device, in one process.
//!
//! Four CQs of the kernel and one of a process are on an EQ with just enough slots. Software posts,
//! the device works, the interrupt schedules the poll and the poll goes on, one step of each at a
//! time, in random order. Nothing but the interrupt starts the poll: an interrupt, event or arm
//! that is lost leaves completions unread at the end.

use super::checks;
use super::rings::words;
use super::rings::Words;
use crate::harness::*;
use qpair_abi::command::cq_flags;
use qpair_abi::counters::Counter;
use qpair_abi::doorbell;
use qpair_abi::entry::opcode as work;
use qpair_abi::entry::*;
use qpair_abi::Number;
use qpair_model::Doorbell;
use qpair_queue::consumer::CqConsumer;
use qpair_queue::consumer::EqConsumer;
use qpair_queue::credit::Cq;
use qpair_queue::credit::Pool;
use qpair_queue::credit::RingId;
use qpair_queue::credit::Slots;
use qpair_queue::eq_slots::EventSlots;
use qpair_queue::eq_slots::SlotShares;
use qpair_queue::index::Depth;
use qpair_queue::index::Index;
use qpair_queue::poll::Consumed;
use qpair_queue::poll::Node;
use qpair_queue::poll::Policy;
use qpair_queue::poll::Poller;
use qpair_queue::poll::Run;
use qpair_queue::poll::Step;
use qpair_queue::poll::Tuning;
use qpair_queue::producer::SqProducer;
use qpair_testkit::with_seeds;
use qpair_testkit::Rng;
use std::collections::VecDeque;

checks![
    no_completion_is_left_behind,
    the_driver_pays_for_every_event
];

const KERNEL: usize = 4;
const LOG_SQ: u8 = 2;

/// A CQ with a queue pair that is its own peer.
struct Side {
    number: Number,
    cq: TestCq,
    qp: TestQp,
    ring: CqConsumer<Words>,
    sq: SqProducer<Words>,
    pool: Pool<Cq>,
    held: Slots<Cq>,
    node: Node,
    posted: u64,
    seen: u64,
    /// The CQ of a process: an event has been signaled.
    signaled: bool,
}

impl Side {
    fn post(&mut self) {
        let Ok(mut room) = self.sq.room(1, true) else {
            return;
        };
        let words = wqe_words(wqe(work::NOP, self.posted), &[]);
        room.write::<BLOCK_WORDS>(0, words[..].try_into().unwrap());
        room.post();
        self.posted += 1;
    }

    fn consume(&mut self, max: u32) -> Consumed {
        let mut count = 0;
        while count < max {
            let Some(entry) = self.ring.take() else {
                return Consumed {
                    count,
                    drained: true,
                };
            };
            let cqe = Cqe::decode(&entry.words);
            assert_eq!((cqe.status, cqe.wr_id), (0, self.seen), "in order");
            self.sq.complete(Index::new(cqe.index), entry.seen).unwrap();
            self.seen += 1;
            count += 1;
        }
        Consumed {
            count,
            drained: !self.ring.is_ready(),
        }
    }

    fn publish(&mut self, m: &mut Machine, place: u64) {
        let (page, number) = (self.cq.page, self.number);
        let ring = |head: Index| m.ring(page, place, number, head.get());
        let published = self.ring.publish(ring);
        self.sq.reclaim(published);
    }
}

struct World {
    m: Machine,
    sides: Vec<Side>,
    eq: TestEq,
}

impl World {
    fn side(&self, cq: Number) -> Option<usize> {
        self.sides.iter().position(|side| side.number == cq)
    }

    fn ring(&mut self, head: Index, unmask: bool) {
        let place = if unmask {
            doorbell::EQ_HEAD
        } else {
            doorbell::EQ_HEAD_MASKED
        };
        self.m.ring(0, place, self.eq.number, head.get());
    }
}

struct Sim {
    w: World,
    poller: Poller<Words>,
    run: Option<Run>,
    /// The CQ that the poll looked up last.
    side: Option<usize>,
    tuning: Tuning,
    scheduled: bool,
    /// The process notifies, and then polls; else it polls, and arms.
    notifies: bool,
    /// Its notifies, which the device executes later.
    written: VecDeque<Doorbell>,
}

impl Sim {
    fn new(rng: &mut Rng) -> Self {
        let mut m = Machine::off(qpair_model::Config {
            inline: rng.one_in(3),
            ..Default::default()
        });
        m.first = 0u32.wrapping_sub((rng.below(4) as u32) << 7);
        m.bring_up(6, 4, 5);
        let start = Index::new(m.first);
        let pd = m.pd();
        let (count, usecs) = rng.pick(&[(0, 0), (2, 3), (5, 1)]);
        let eq = m.eq(3, 1, count, usecs);
        let eq_id = RingId::new(eq.number.raw(), 1);
        let storage = words(&m, eq.ring.addr, 16 << 3);
        let depth = |log| Depth::from_log2(log).unwrap();
        let room = KERNEL as u32 + 1;
        let (consumer, pool) =
            EqConsumer::starting_at(eq_id, storage, depth(3), room, start).unwrap();
        let shares = SlotShares {
            reserve: 0,
            spare: 0,
            kernel: 0,
        };
        let slots = EventSlots::new(pool, shares).unwrap();
        let mut poller = Poller::new(consumer, slots);
        let mut sides = Vec::new();
        for which in 0..=KERNEL {
            let process = which == KERNEL;
            let (page, flags) = if process { (1, cq_flags::USER) } else { (0, 0) };
            let cq = m.cq_of(eq.number, LOG_SQ, page, flags);
            // Its RQ is unused.
            let qp = m.qp(&QpSpec {
                log_sq: LOG_SQ,
                log_rq: 0,
                page,
                ..Machine::spec(pd, &cq)
            });
            m.connect(qp.number, qp.number);
            let cq_id = RingId::new(cq.number.raw(), 1);
            let ring = words(&m, cq.ring.addr, 32 << LOG_SQ);
            let (ring, mut pool) =
                CqConsumer::starting_at(cq_id, ring, depth(LOG_SQ), 4, start).unwrap();
            let id = RingId::new(qp.number.raw(), 1);
            let sq = words(&m, qp.sq, 64 << LOG_SQ);
            let sq = SqProducer::starting_at(id, cq_id, sq, depth(LOG_SQ), 0, 4, start);
            let node = if process {
                poller.bind_process()
            } else {
                poller.bind_kernel()
            };
            sides.push(Side {
                number: cq.number,
                cq,
                qp,
                ring,
                sq: sq.unwrap(),
                held: pool.take(4).unwrap(),
                pool,
                node: node.unwrap(),
                posted: 0,
                seen: 0,
                signaled: true,
            });
        }
        m.raised();
        let mut w = World { m, sides, eq };
        for which in 0..KERNEL {
            let side = &mut w.sides[which];
            poller.start(side.number, &mut side.node);
        }
        let tuning = Tuning {
            events: 1 + rng.below(4) as u32,
            completions: 1 + rng.below(4) as u32,
            budget: 1 + rng.below(9) as u32,
            policy: rng.pick(&[Policy::Coalesce, Policy::Reopen]),
        };
        Self {
            w,
            poller,
            run: None,
            side: None,
            tuning,
            scheduled: true,
            notifies: rng.one_in(2),
            written: VecDeque::new(),
        }
    }

    /// A step of the poll, if one is running or scheduled.
    fn step(&mut self) {
        // Both the new interrupt and the vector's old one.
        self.scheduled |= !self.w.m.raised().is_empty();
        if self.run.is_none() && std::mem::take(&mut self.scheduled) {
            self.run = Some(self.poller.begin(self.tuning));
        }
        let (w, poller) = (&mut self.w, &mut self.poller);
        let Some(run) = &mut self.run else { return };
        let mut side = self.side.map(|at| &mut w.sides[at]);
        let step = poller.step(run, side.as_mut().map(|side| &mut side.node));
        match (step, side) {
            (Some(Step::Event(event)), _) => self.side = w.side(event.number),
            (Some(Step::Turn(number)), _) => self.side = w.side(number),
            (Some(Step::Consume(max)), Some(side)) => poller.consumed(run, side.consume(max)),
            (Some(Step::Publish(arm)), Some(side)) => {
                let place = if arm {
                    doorbell::CQ_ARM_NEXT
                } else {
                    doorbell::CQ_HEAD
                };
                side.publish(&mut w.m, place);
            }
            (Some(Step::Signal), Some(side)) => side.signaled = true,
            (Some(Step::EqHead), _) => poller.publish(run, |head, unmask| w.ring(head, unmask)),
            (Some(Step::Done), _) => {
                poller.publish(run, |head, unmask| w.ring(head, unmask));
                self.run = None;
            }
            (Some(Step::Again), _) => {
                self.run = None;
                self.scheduled = true;
            }
            (None, _) => {}
            (Some(step), _) => panic!("{step:?}"),
        }
    }

    /// The process notifies, and polls its CQ until it is empty; the device works in between.
    fn notify(&mut self) {
        let World { m, sides, .. } = &mut self.w;
        let side = &mut sides[KERNEL];
        let written = &mut self.written;
        let ring = || written.push_back(m.written(doorbell::CQ_NOTIFY, &side.cq));
        side.ring.notify(ring);
        m.f.run(1);
        while side.consume(4).count != 0 {}
        side.publish(m, doorbell::CQ_HEAD);
    }

    /// The device executes a notify.
    fn execute(&mut self) {
        if let Some(written) = self.written.pop_front() {
            self.w.m.execute(written);
        }
    }

    /// The process polls its CQ, and arms it.
    fn process(&mut self, rng: &mut Rng) {
        let side = &mut self.w.sides[KERNEL];
        if self.notifies {
            // Not again without an event: that would make up for a lost one.
            if std::mem::take(&mut side.signaled) {
                self.notify();
            }
            return;
        }
        if std::mem::take(&mut side.signaled) || rng.one_in(4) {
            side.consume(rng.pick(&[1, 4]));
        }
        let place = rng.pick(&[
            doorbell::CQ_ARM_NEXT,
            doorbell::CQ_ARM_NEXT,
            doorbell::CQ_HEAD,
        ]);
        side.publish(&mut self.w.m, place);
    }

    fn any(&mut self, rng: &mut Rng) {
        match rng.below(8) {
            0 | 1 => {
                let which = rng.below(self.w.sides.len() as u64) as usize;
                self.w.sides[which].post();
            }
            2 => {
                let which = rng.below(self.w.sides.len() as u64) as usize;
                self.ring(which);
            }
            3 => _ = self.w.m.f.run(1),
            4 => {
                self.w.m.f.host_mut().now += rng.below(3000);
                self.execute();
            }
            5 => self.process(rng),
            _ => self.step(),
        }
    }

    fn ring(&mut self, which: usize) {
        let (side, m) = (&mut self.w.sides[which], &mut self.w.m);
        let qp = side.qp;
        side.sq
            .ring(|tail| m.ring(qp.page, doorbell::SQ, qp.number, tail.get()));
    }

    /// Nothing more is posted: all pending work must complete by interrupts alone.
    fn finish(&mut self) {
        for which in 0..self.w.sides.len() {
            self.ring(which);
        }
        for _ in 0..2000 {
            self.w.m.pass(1000);
            self.step();
            self.execute();
            let side = &mut self.w.sides[KERNEL];
            if std::mem::take(&mut side.signaled) {
                if self.notifies {
                    self.notify();
                    continue;
                }
                while side.consume(4).count != 0 {}
                side.publish(&mut self.w.m, doorbell::CQ_ARM_NEXT);
            }
        }
    }
}

fn simulate(rng: &mut Rng, steps: u32) -> Sim {
    let mut sim = Sim::new(rng);
    for _ in 0..steps {
        sim.any(rng);
    }
    sim
}

fn no_completion_is_left_behind() {
    with_seeds("no_completion_is_left_behind", 60, |rng| {
        let mut sim = simulate(rng, 4000);
        // A process that was signaled and did not poll polls once more.
        sim.w.sides[KERNEL].signaled |= !sim.notifies;
        sim.finish();
        let counts: Vec<_> = sim
            .w
            .sides
            .iter()
            .map(|side| (side.posted, side.seen))
            .collect();
        assert!(
            counts.iter().all(|(posted, seen)| posted == seen),
            "{counts:?}"
        );
        assert!(counts.iter().all(|(posted, _)| *posted > 20), "{counts:?}");
        assert_eq!(sim.poller.pending(), 0);
        assert!(sim.w.m.f.counter(Counter::Interrupts) > 0);
    });
}

fn the_driver_pays_for_every_event() {
    with_seeds("the_driver_pays_for_every_event", 60, |rng| {
        // Other schedules than those above.
        let rng = &mut Rng::new(rng.next());
        let mut sim = Sim::new(rng);
        for _ in 0..3000 {
            sim.any(rng);
            // After every step every slot is accounted for, and the EQ never holds more events than
            // slots were taken.
            let held = sim.w.sides.iter().map(|side| side.node.held()).sum();
            sim.poller.audit(held).unwrap();
            for side in &sim.w.sides {
                side.sq.audit().unwrap();
                side.pool.audit(side.held.count()).unwrap();
            }
        }
        let f = &sim.w.m.f;
        for counter in [Counter::Violations, Counter::CqOverruns, Counter::Errors] {
            assert_eq!(f.counter(counter), 0, "{}", counter.text());
        }
        assert_eq!(f.status() & 3, 1, "no EQ was overrun");
        assert_eq!(sim.poller.slots().spurious(), 0);
        assert_eq!(sim.poller.counts().stale, 0);
    });
}
