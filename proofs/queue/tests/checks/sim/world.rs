// SPDX-License-Identifier: GPL-2.0
//! The driver's and the processes' half of the simulation.

use super::device::source;
use super::device::Device;
use super::device::SOURCES;
use crate::checks::memory::Memory;
use qpair_abi::entry::Cqe;
use qpair_abi::entry::Eqe;
use qpair_abi::Number;
use qpair_model::rules::channel::Wants;
use qpair_model::rules::eq_irq::Moderation;
use qpair_queue::consumer::CqConsumer;
use qpair_queue::consumer::EqConsumer;
use qpair_queue::credit::Cq;
use qpair_queue::credit::Pool;
use qpair_queue::credit::RingId;
use qpair_queue::credit::Slots;
use qpair_queue::deferred::DeferredFree;
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
use qpair_queue::producer::SqProducer;
use qpair_testkit::Rng;
use std::collections::VecDeque;

const EQ: RingId = RingId::new(0, 0);
const CQS: usize = 6;
const QPS: usize = 6;
const CQ_DEPTH: u32 = 8;
const SQ_DEPTH: u32 = 8;
/// More than any poll has: a broken rule may make one endless.
const STEPS: usize = 10_000;

/// Options of the schedules.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    pub policy: Policy,
    pub spare: Option<u32>,
    pub moderated: bool,
    /// All CQs are the kernel's, and stay.
    pub kernel_only: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            policy: Policy::Coalesce,
            spare: None,
            moderated: true,
            kernel_only: false,
        }
    }
}

/// Situations that a schedule met, so that a run can show that it has met all of them.
pub struct Seen(pub [(&'static str, u64); 8]);

fn cq_ring(number: Number) -> RingId {
    RingId::new(number.raw(), 1)
}

/// The software side of a CQ.
struct SoftCq {
    number: Number,
    consumer: CqConsumer<Memory>,
    pool: Pool<Cq>,
    deferred: DeferredFree<Cq>,
    node: Node,
    user: bool,
    /// For a process: it has been woken, or has never slept.
    awake: bool,
    /// For a sleeping process: the completions that it waits for.
    sleeps: Wants,
}

impl SoftCq {
    fn reclaim(&mut self) {
        let freed = self.deferred.release(self.consumer.published());
        self.pool.give(freed).unwrap();
    }
}

/// A queue pair with both sides of its SQ.
struct Qp {
    number: Number,
    cq: Number,
    sq: SqProducer<Memory>,
    slots: Slots<Cq>,
    memory: Memory,
    depth: Depth,
    /// Posted and not fetched: id, blocks, signaled.
    posted: VecDeque<(u32, u32, bool)>,
    /// The index of the last doorbell.
    tail: Index,
    /// The index up to which the device has executed.
    done: Index,
    /// Blocks that a completion was consumed for, and the CQ head published.
    freed: Index,
}

pub struct World {
    rng: Rng,
    options: Options,
    poller: Option<Poller<Memory>>,
    side: Side,
    scheduled: bool,
}

/// Everything but the poller.
struct Side {
    rng: Rng,
    device: Device,
    cqs: Vec<Option<SoftCq>>,
    qps: Vec<Option<Qp>>,
    next_qp: u16,
    next_id: u32,
    told: [u64; SOURCES],
    happened: [u64; SOURCES],
    consumed: u32,
    policy: Policy,
    gone: u64,
    posting: bool,
    /// Maximum blocks of a work request, and the rarity of signaled ones.
    blocks: u32,
    unsignaled: u32,
}

impl World {
    pub fn new(mut rng: Rng, options: Options) -> Self {
        let depth = Depth::new(16).unwrap();
        let first = Index::new(rng.pick(&[0, u32::MAX - 40, 0x7fff_ffe0, 123]));
        let memory = Memory::aged::<2>(depth, first);
        let reserve = rng.below32(2) + 1;
        let spare = options.spare.unwrap_or(rng.below32(4));
        let capacity = reserve + spare + CQS as u32;
        let moderation = if options.moderated && rng.one_in(2) {
            Moderation {
                count: rng.below32(5) + 2,
                nanos: 50,
            }
        } else {
            Moderation::default()
        };
        let (eq, pool) =
            EqConsumer::starting_at(EQ, memory.clone(), depth, capacity, first).unwrap();
        let device = Device::new(depth, first, memory, CQS, capacity, reserve, moderation);
        let shares = SlotShares {
            reserve,
            spare,
            kernel: 0,
        };
        Self {
            options,
            poller: Some(Poller::new(eq, EventSlots::new(pool, shares).unwrap())),
            side: Side {
                rng: Rng::new(rng.next()),
                device,
                cqs: (0..CQS).map(|_| None).collect(),
                qps: (0..QPS).map(|_| None).collect(),
                next_qp: 0,
                next_id: 0,
                told: [0; SOURCES],
                happened: [0; SOURCES],
                consumed: 0,
                policy: options.policy,
                gone: 0,
                posting: true,
                blocks: rng.pick(&[1, 4]),
                unsignaled: rng.pick(&[1, 3]),
            },
            rng,
            scheduled: false,
        }
    }

    /// One random step.
    pub fn step(&mut self) {
        match self.rng.below32(20) {
            0 => self.create_cq(),
            1 if self.rng.one_in(4) && !self.options.kernel_only => self.destroy_cq(),
            2 => self.side.create_qp(),
            3 if self.rng.one_in(4) => self.side.destroy_qp(),
            4..=8 => self.side.post(),
            9 if self.rng.one_in(3) => self.side.asynchronous_happens(),
            10..=13 => self.side.device_steps(3),
            14 => self.side.device.tick(20),
            15..=17 => self.poll(),
            _ => self.side.processes_step(),
        }
        self.audit();
    }

    fn poller(&mut self) -> (&mut Poller<Memory>, &mut Side) {
        (self.poller.as_mut().unwrap(), &mut self.side)
    }

    fn create_cq(&mut self) {
        let user = self.rng.one_in(2) && !self.options.kernel_only;
        let first = Index::new(self.rng.pick(&[0, u32::MAX - 20, 0x8000_0000 - 7]));
        let (poller, side) = self.poller();
        let node = if user {
            poller.bind_process()
        } else {
            poller.bind_kernel()
        };
        // Bound CQs are those that exist and those whose slot is not free yet.
        let Ok(node) = node else { return };
        let depth = Depth::new(CQ_DEPTH).unwrap();
        let Some(number) = side.device.create_cq(depth, first, user) else {
            let until = poller.eq().head();
            poller.unbind(node, until);
            return;
        };
        let memory = side.device.cq(number).unwrap().memory.clone();
        let (consumer, pool) =
            CqConsumer::starting_at(cq_ring(number), memory, depth, CQ_DEPTH, first).unwrap();
        let cq = side.cqs[number.index()].insert(SoftCq {
            number,
            consumer,
            deferred: DeferredFree::new(pool.ring()),
            pool,
            node,
            user,
            awake: true,
            sleeps: Wants::Next,
        });
        if !user {
            poller.start(number, &mut cq.node);
            self.scheduled = true;
        }
    }

    fn destroy_cq(&mut self) {
        let index = self.rng.below32(CQS as u32) as usize;
        let Some(cq) = &self.side.cqs[index] else {
            return;
        };
        let number = cq.number;
        if self.side.qps.iter().flatten().any(|qp| qp.cq == number) {
            return;
        }
        self.destroy_cq_at(index);
    }

    fn destroy_cq_at(&mut self, index: usize) {
        let (poller, side) = self.poller();
        let Some(cq) = side.cqs[index].take() else {
            return;
        };
        let until = side.device.destroy_cq(cq.number);
        poller.remove(cq.number, &cq.node, side, Side::node);
        poller.unbind(cq.node, until);
        // Its queues are destroyed; their slots wait for a head that is never published.
        cq.pool.audit(cq.deferred.count()).expect("CQ slots");
    }

    fn tuning(&mut self) -> Tuning {
        Tuning {
            events: self.rng.pick(&[1, 1, 2, 3, 32]),
            completions: self.rng.pick(&[1, 1, 2, 4, 64]),
            budget: self.rng.pick(&[1, 2, 3, 8, 256]),
            policy: self.options.policy,
        }
    }

    fn poll(&mut self) {
        if self.side.device.interrupt {
            self.side.device.interrupt = false;
            self.scheduled = true;
        }
        if !self.scheduled {
            return;
        }
        let tuning = self.tuning();
        self.side.consumed = 0;
        self.scheduled = self.run(tuning);
        let (poller, side) = self.poller();
        assert_eq!(
            poller.eq().unpublished(),
            0,
            "a poll ended with its events unpublished"
        );
        assert!(side.consumed <= tuning.budget, "more than the budget");
    }

    /// Runs all steps of a poll. Returns whether it must come again.
    fn run(&mut self, tuning: Tuning) -> bool {
        let (poller, side) = self.poller();
        let mut run = poller.begin(tuning);
        let mut cq = Number::new(0, 0);
        for _ in 0..STEPS {
            match poller.step(&mut run, side.node(cq)) {
                None => {}
                Some(Step::Event(event)) => cq = event.number,
                Some(Step::Turn(number)) => cq = number,
                Some(Step::Consume(max)) => poller.consumed(&mut run, side.consume(cq, max)),
                Some(Step::Publish(arm)) => side.publish(cq, arm),
                Some(Step::Signal) => side.signal(cq),
                Some(Step::Async(event)) => side.asynchronous(event),
                Some(Step::EqHead) => poller.publish(&run, |head, unmask| side.ring(head, unmask)),
                Some(Step::Done) => {
                    poller.publish(&run, |head, unmask| side.ring(head, unmask));
                    return false;
                }
                Some(Step::Again) => return true,
            }
        }
        panic!("the poll does not end");
    }

    fn audit(&mut self) {
        let (poller, side) = self.poller();
        let cqs = side.cqs.iter().flatten();
        let held = cqs.map(|cq| cq.node.held()).sum();
        poller.audit(held).expect("EQ slots");
        assert_eq!(poller.slots().spurious(), 0);
        for qp in side.qps.iter().flatten() {
            qp.sq.audit().expect("SQ slots");
        }
        for cq in side.cqs.iter().flatten() {
            let number = cq.number;
            let held = side.qps.iter().flatten().filter(|qp| qp.cq == number);
            let held: u32 = held.map(|qp| qp.slots.count()).sum();
            cq.pool.audit(held + cq.deferred.count()).expect("CQ slots");
        }
    }

    /// After the last post: all work is executed, all events are read, and no sleeper has work.
    pub fn come_to_rest(&mut self) -> Seen {
        self.side.posting = false;
        for _ in 0..4000 {
            self.side.device_steps(8);
            self.side.processes_step();
            self.poll();
            self.side.device.tick(20);
        }
        assert!(
            !self.scheduled && !self.side.device.interrupt,
            "never comes to rest"
        );
        assert_eq!(
            self.side
                .device
                .timer()
                .filter(|at| *at > self.side.device.now),
            None
        );
        assert_eq!(self.side.told, self.side.happened, "asynchronous events");
        for cq in self.side.cqs.iter().flatten() {
            let device = self.side.device.cqs[cq.number.index()].as_ref().unwrap();
            assert!(!cq.user || !cq.awake, "a process that never sleeps");
            if cq.user && cq.sleeps == Wants::Solicited {
                let told = cq.consumer.head().reaches(device.solicited);
                assert!(told, "a solicited completion without an event");
            } else {
                let used = device.channel.window().used();
                assert_eq!(used, 0, "completions without an event");
            }
        }
        for qp in self.side.qps.iter_mut().flatten() {
            let largest = qp.sq.capacity().min(4);
            let unread = qp.sq.completed() != 0 || {
                let cq = self.side.cqs[qp.cq.index()].as_ref().unwrap();
                cq.user && cq.sleeps == Wants::Solicited
            };
            let room = qp.sq.room(largest, false).is_ok();
            assert!(room || unread, "a queue that nothing comes back to");
        }
        self.audit();
        for i in 0..QPS {
            self.side.destroy_qp_at(i);
        }
        for i in 0..CQS {
            self.destroy_cq_at(i);
        }
        for _ in 0..8 {
            self.poll();
        }
        let poller = self.poller.take().unwrap();
        let counts = *poller.counts();
        assert_eq!(poller.audit(0), Ok(()), "EQ slots at the end");
        Seen([
            ("interrupts", self.side.device.raised),
            ("completions", counts.completions),
            ("polls that were cut short", counts.again),
            ("CQs that waited for another turn", counts.deferred),
            ("head updates for want of a slot", counts.short),
            ("events of CQs that are gone", counts.stale),
            ("completions of queues that are gone", self.side.gone),
            ("asynchronous events", self.side.told.iter().sum()),
        ])
    }
}

impl Side {
    fn cq(&mut self, number: Number) -> Option<&mut SoftCq> {
        self.cqs[number.index()]
            .as_mut()
            .filter(|cq| cq.number == number)
    }

    fn create_qp(&mut self) {
        let Some(index) = self.qps.iter().position(Option::is_none) else {
            return;
        };
        let cqs: Vec<Number> = self.cqs.iter().flatten().map(|cq| cq.number).collect();
        if cqs.is_empty() {
            return;
        }
        let cq_number = self.rng.pick(&cqs);
        let capacity = self.rng.pick(&[1, 3, 5, SQ_DEPTH]);
        let first = Index::new(self.rng.pick(&[0, u32::MAX - 9, 77]));
        let Some(slots) = self.cq(cq_number).unwrap().pool.take(capacity) else {
            return;
        };
        self.next_qp += 1;
        let number = Number::new(index as u16, self.next_qp);
        let depth = Depth::new(SQ_DEPTH).unwrap();
        let memory = Memory::new(SQ_DEPTH as usize * 8);
        let ring = RingId::new(number.raw(), 2);
        let cq = cq_ring(cq_number);
        let sq =
            SqProducer::starting_at(ring, cq, memory.clone(), depth, 0, capacity, first).unwrap();
        self.qps[index] = Some(Qp {
            number,
            cq: cq_number,
            sq,
            slots,
            memory,
            depth,
            posted: VecDeque::new(),
            tail: first,
            done: first,
            freed: first,
        });
    }

    fn destroy_qp(&mut self) {
        let index = self.rng.below32(QPS as u32) as usize;
        self.destroy_qp_at(index);
    }

    /// With completions unread, if there are any.
    fn destroy_qp_at(&mut self, index: usize) {
        let Some(qp) = self.qps[index].take() else {
            return;
        };
        let until = self.device.cq(qp.cq).unwrap().channel.window().tail();
        assert!(qp.sq.retire().is_ok(), "SQ slots at the end");
        let cq = self.cq(qp.cq).unwrap();
        cq.deferred.admit(qp.slots, until).unwrap();
        cq.reclaim();
    }

    fn post(&mut self) {
        if !self.posting {
            return;
        }
        let index = self.rng.below32(QPS as u32) as usize;
        let blocks = self.rng.below32(self.blocks) + 1;
        let signal = self.rng.one_in(self.unsignaled);
        let Self { qps, cqs, .. } = self;
        let Some(qp) = &mut qps[index] else {
            return;
        };
        // Only when needed, as the library does.
        let cq = cqs[qp.cq.index()].as_ref().unwrap();
        let freed = qp.sq.reclaim(cq.consumer.published());
        qp.freed = qp.freed.plus(freed);
        let Ok(mut room) = qp.sq.room(blocks, signal) else {
            return;
        };
        self.next_id += 1;
        let (id, signaled, at) = (self.next_id, room.signaled(), room.index());
        for block in 0..blocks {
            room.write(block, &[u64::from(id) << 8 | u64::from(block); 8]);
        }
        let past = room.post();
        assert_eq!(past, at.plus(blocks));
        assert!(
            past.since(qp.freed) <= qp.sq.capacity(),
            "an SQ slot is used twice"
        );
        qp.posted.push_back((id, blocks, signaled));
        if self.rng.one_in(2) {
            qp.sq.ring(|tail| qp.tail = tail);
        }
    }

    fn asynchronous_happens(&mut self) {
        let i = self.rng.below32(SOURCES as u32) as usize;
        self.happened[i] += 1;
        self.device.happens(i);
    }

    /// The device works on some queue pairs.
    fn device_steps(&mut self, most: u32) {
        for _ in 0..self.rng.below32(most + 1) {
            if self.rng.one_in(4) {
                self.device.hear();
            }
            let index = self.rng.below32(QPS as u32) as usize;
            let solicited = self.rng.one_in(3);
            let Some(qp) = &mut self.qps[index] else {
                continue;
            };
            // Later than the post, and at the end in any case.
            qp.sq.ring(|tail| qp.tail = tail);
            if qp.done == qp.tail {
                continue;
            }
            let (id, blocks, signaled) = qp.posted.pop_front().unwrap();
            for block in 0..blocks {
                let at = qp.depth.position(qp.done.plus(block)) as usize * 8;
                let word = u64::from(id) << 8 | u64::from(block);
                assert!(
                    (0..8).all(|i| qp.memory.word(at + i) == word),
                    "a WQE was overwritten"
                );
            }
            qp.done = qp.done.plus(blocks);
            if signaled {
                let cqe = Cqe {
                    wr_id: id.into(),
                    qp: qp.number,
                    index: qp.done.get(),
                    ..Cqe::default()
                };
                let cq = qp.cq;
                self.device.complete(cq, cqe, solicited);
            }
        }
    }

    /// A process, or the poll, reads completions.
    fn read(&mut self, number: Number, max: u32) -> Consumed {
        let mut count = 0;
        while count < max {
            let Some(entry) = self.cq(number).unwrap().consumer.take() else {
                return Consumed {
                    count,
                    drained: true,
                };
            };
            count += 1;
            let cqe = Cqe::decode(&entry.words);
            let qp = self.qps[cqe.qp.index()].as_mut();
            match qp.filter(|qp| qp.number == cqe.qp) {
                Some(qp) => {
                    qp.sq.complete(Index::new(cqe.index), entry.seen).unwrap();
                }
                None => self.gone += 1,
            }
        }
        let drained = !self.cq(number).unwrap().consumer.is_ready();
        Consumed { count, drained }
    }

    fn publish_cq(&mut self, number: Number, arm: Option<Wants>) {
        let Self { device, cqs, .. } = self;
        let cq = cqs[number.index()].as_mut().unwrap();
        let published = cq.consumer.publish(|head| match arm {
            Some(wants) => device.cq_arm(number, wants, head),
            None => device.cq_head(number, head),
        });
        cq.reclaim();
        for qp in self.qps.iter_mut().flatten().filter(|qp| qp.cq == number) {
            let freed = qp.sq.reclaim(published);
            qp.freed = qp.freed.plus(freed);
        }
    }

    /// A process reads, publishes, arms, sleeps; or it notifies, reads, publishes, sleeps; and
    /// sometimes it arms unnecessarily, with an old index.
    fn processes_step(&mut self) {
        for index in 0..CQS {
            let Some(cq) = &mut self.cqs[index] else {
                continue;
            };
            let number = cq.number;
            if !cq.user {
                continue;
            }
            if !cq.awake {
                // It polls without an event; its arm remains.
                if self.posting && self.rng.one_in(10) {
                    self.read(number, 1);
                    self.publish_cq(number, None);
                }
                continue;
            }
            let wants = self.rng.pick(&[Wants::Next, Wants::Next, Wants::Solicited]);
            if self.rng.one_in(6) {
                let back = self.rng.below32(3);
                let head = self.cq(number).unwrap().consumer.published().head();
                let behind = Index::new(head.get().wrapping_sub(back));
                self.device.cq_arm(number, wants, behind);
            }
            let notifies = self.rng.one_in(2);
            if notifies {
                let Self { device, cqs, .. } = &mut *self;
                let cq = cqs[index].as_ref().unwrap();
                cq.consumer.notify(|| device.cq_notify(number, wants));
                self.device_steps(2);
            }
            let max = self.rng.below32(4) + 1;
            let consumed = self.read(number, max);
            // Publishing the head now and then suffices.
            if self.rng.one_in(5) {
                self.publish_cq(number, None);
            }
            // The device goes on between the last poll and the arm, or the sleep.
            self.device_steps(2);
            if consumed.drained {
                let cq = self.cq(number).unwrap();
                cq.awake = false;
                cq.sleeps = wants;
                self.publish_cq(number, (!notifies).then_some(wants));
                // Another thread of the process arms for solicited only, at the same index.
                if self.rng.one_in(3) {
                    let cq = self.cq(number).unwrap();
                    let head = cq.consumer.head();
                    if self.device.cq(number).unwrap().channel.window().head() == head {
                        self.device.cq_arm(number, Wants::Solicited, head);
                    }
                }
            }
        }
    }
}

impl Side {
    /// All other actors may act before and after each effect.
    fn meanwhile(&mut self) {
        self.device_steps(2);
        if self.rng.one_in(3) {
            self.processes_step();
        }
        if self.rng.one_in(8) {
            self.post();
        }
    }
}

/// The poll's effects.
impl Side {
    fn node(&mut self, number: Number) -> Option<&mut Node> {
        Some(&mut self.cq(number)?.node)
    }

    fn asynchronous(&mut self, event: Eqe) {
        let i = event.number.index();
        assert_eq!(event.number, source(i));
        self.told[i] += u64::from(event.count);
    }

    fn ring(&mut self, head: Index, unmask: bool) {
        self.meanwhile();
        assert!(unmask || self.policy == Policy::Coalesce);
        self.device.eq_head(head, unmask);
        self.meanwhile();
    }

    fn consume(&mut self, number: Number, max: u32) -> Consumed {
        self.meanwhile();
        let consumed = self.read(number, max);
        self.consumed += consumed.count;
        self.meanwhile();
        consumed
    }

    fn publish(&mut self, number: Number, arm: bool) {
        self.meanwhile();
        self.publish_cq(number, arm.then_some(Wants::Next));
        self.meanwhile();
    }

    fn signal(&mut self, number: Number) {
        if let Some(cq) = self.cq(number) {
            cq.awake = true;
        }
        self.meanwhile();
    }
}
