// SPDX-License-Identifier: GPL-2.0
//! The driver's ring code against the device, in one process: the rules of `rust/queue` post,
//! poll and arm, over every wrap, in random order. With their accounting no ring overflows.

use super::checks;
use crate::harness::*;
use qpair_abi::command::*;
use qpair_abi::counters::Counter;
use qpair_abi::doorbell;
use qpair_abi::entry::opcode as work;
use qpair_abi::entry::*;
use qpair_abi::Number;
use qpair_queue::consumer::CqConsumer;
use qpair_queue::consumer::EqConsumer;
use qpair_queue::credit::Cq;
use qpair_queue::credit::Eq;
use qpair_queue::credit::Pool;
use qpair_queue::credit::RingId;
use qpair_queue::credit::Slots;
use qpair_queue::index::Depth;
use qpair_queue::index::Index;
use qpair_queue::producer::RqProducer;
use qpair_queue::producer::SqProducer;
use qpair_queue::storage::Storage;
use qpair_testkit::with_seeds;
use qpair_testkit::Rng;
use std::collections::VecDeque;

checks![
    every_index_wraps,
    the_drivers_rings_and_the_device_in_any_order,
    a_ring_that_is_not_paid_for_overflows,
];

/// A ring's words in the machine's memory.
pub struct Words {
    memory: Memory,
    addr: u64,
    count: usize,
}

impl Storage for Words {
    fn words(&self) -> usize {
        self.count
    }
    fn load(&self, at: usize) -> u64 {
        assert!(at < self.count);
        self.memory.word(self.addr + 8 * at as u64)
    }
    fn store(&self, at: usize, word: u64) {
        assert!(at < self.count);
        self.memory.set_word(self.addr + 8 * at as u64, word);
    }
    fn after_owner(&self) {}
    fn before_head(&self) {}
    fn before_tail(&self) {}
}

impl Words {
    pub fn new(memory: &Memory, addr: u64, bytes: u64) -> Self {
        Self {
            memory: memory.clone(),
            addr,
            count: (bytes / 8) as usize,
        }
    }
}

pub fn words(m: &Machine, addr: u64, bytes: u64) -> Words {
    Words::new(&m.memory, addr, bytes)
}

fn every_index_wraps() {
    // Zeroed memory is empty memory only where two passes begin.
    for passes in [1, 2] {
        let first = 0u32.wrapping_sub(passes << 7);
        let mut p = Pair::on(Machine::starting_at(first), |_, _| {});
        for i in 0..300 {
            p.m.arm(&p.cq_a.clone());
            p.m.arm(&p.cq_b.clone());
            p.recv(i, &[p.mr_b.sge(0, 64)]);
            let sges = [p.mr_a.sge(0, 10); 3];
            p.send(wqe(work::SEND, i), &sges);
            let (sent, received) = (p.done_a(), p.done_b());
            assert_eq!((sent.len(), sent[0].wr_id, sent[0].status), (1, i, 0));
            assert_eq!((received.len(), received[0].wr_id), (1, i));
            assert_eq!(sent[0].index, p.a.sq_tail);
            assert_eq!(received[0].index, p.b.rq_tail);
            assert_eq!(p.m.events0().len(), 2);
        }
        assert_eq!(p.m.f.counter(Counter::Violations), 0);
        // The admin rings have wrapped on the way as well, or do so now.
        for _ in 0..40 {
            let pd = p.m.pd();
            p.m.destroy(kind::PD, pd).unwrap();
        }
    }
}

struct Queue {
    number: Number,
    sq: SqProducer<Words>,
    rq: RqProducer<Words>,
    /// The CQ's slots that it holds.
    held: Slots<Cq>,
    sent: VecDeque<u64>,
    received: VecDeque<u64>,
}

struct Completions {
    number: Number,
    ring: CqConsumer<Words>,
    pool: Pool<Cq>,
    armed: Option<Slots<Eq>>,
}

/// A driver of two connected queue pairs that share a CQ, by the rules.
struct Driver {
    m: Machine,
    events: EqConsumer<Words>,
    event_slots: Pool<Eq>,
    /// The asynchronous events'.
    reserve: Slots<Eq>,
    /// Slots of events that were read and not freed.
    passed: Slots<Eq>,
    cq: Completions,
    queues: [Queue; 2],
    mr: TestMr,
    next: u64,
}

impl Driver {
    fn new(first: u32) -> Self {
        let mut m = Machine::off(qpair_model::Config {
            async_events: 2,
            ..Default::default()
        });
        m.first = first;
        m.bring_up(2, 4, 5);
        let pd = m.pd();
        let start = Index::new(first);
        let depth = |log| Depth::from_log2(log).unwrap();
        let eq_id = RingId::new(0, 1);
        let storage = words(&m, m.eq0.ring.addr, 16 << 2);
        let (events, mut event_slots) =
            EqConsumer::starting_at(eq_id, storage, depth(2), 3, start).unwrap();
        // Two slots are reserved for asynchronous events, and CQ 0 is not armed.
        let reserve = event_slots.take(2).unwrap();
        // 8 and 4 for each of two queue pairs: 24.
        let cq = m.cq(5);
        let cq_id = RingId::new(cq.number.raw(), 1);
        let storage = words(&m, cq.ring.addr, 32 << 5);
        let (ring, mut pool) =
            CqConsumer::starting_at(cq_id, storage, depth(5), 24, start).unwrap();
        let spec = QpSpec {
            log_sq: 3,
            log_rq: 2,
            rnr_retry: 7,
            ..Machine::spec(pd, &cq)
        };
        let (a, b) = m.pair(&spec, &spec);
        let queues = [a, b].map(|qp| {
            let id = RingId::new(qp.number.raw(), 1);
            let sq = words(&m, qp.sq, 64 << 3);
            let rq = words(&m, qp.rq, 64 << 2);
            Queue {
                number: qp.number,
                sq: SqProducer::starting_at(id, cq_id, sq, depth(3), 0, 8, start).unwrap(),
                rq: RqProducer::starting_at(id, cq_id, rq, depth(2), 0, 4, start).unwrap(),
                held: pool.take(12).unwrap(),
                sent: VecDeque::new(),
                received: VecDeque::new(),
            }
        });
        let mr = m.mr(pd, 4096);
        Self {
            m,
            events,
            event_slots,
            reserve,
            passed: Slots::none(eq_id),
            cq: Completions {
                number: cq.number,
                ring,
                pool,
                armed: None,
            },
            queues,
            mr,
            next: 1,
        }
    }

    fn send(&mut self, which: usize, rng: &mut Rng) {
        let queue = &mut self.queues[which];
        let sges = rng.below(6) as usize;
        let wants = rng.one_in(3);
        let mut request = wqe(rng.pick(&[work::NOP, work::SEND]), self.next);
        let sges = vec![self.mr.sge(0, 8); sges];
        let all = wqe_words(request, &sges);
        let Ok(mut room) = queue.sq.room(all.len() as u32 / 8, wants) else {
            return;
        };
        request.flags = if room.signaled() {
            send_flags::SIGNALED
        } else {
            0
        };
        let all = wqe_words(request, &sges);
        for (i, block) in all.chunks_exact(8).enumerate() {
            room.write::<BLOCK_WORDS>(i as u32, block.try_into().unwrap());
        }
        room.post();
        if request.flags != 0 {
            queue.sent.push_back(self.next);
        }
        self.next += 1;
    }

    fn receive(&mut self, which: usize) {
        let queue = &mut self.queues[which];
        let Ok(mut room) = queue.rq.room(1, true) else {
            return;
        };
        let head = RecvWqe {
            sges: 1,
            wr_id: self.next,
        }
        .encode();
        let sge = self.mr.sge(1024, 64).encode();
        room.write(0, &[head[0], head[1], sge[0], sge[1], 0, 0, 0, 0]);
        room.post();
        queue.received.push_back(self.next);
        self.next += 1;
    }

    fn ring(&mut self, which: usize) {
        let (queue, m) = (&mut self.queues[which], &mut self.m);
        let number = queue.number;
        queue
            .sq
            .ring(|tail| m.ring(0, doorbell::SQ, number, tail.get()));
        queue
            .rq
            .ring(|tail| m.ring(0, doorbell::RQ, number, tail.get()));
    }

    fn poll(&mut self, budget: u64) {
        for _ in 0..budget {
            let Some(entry) = self.cq.ring.take() else {
                break;
            };
            let cqe = Cqe::decode(&entry.words);
            assert_eq!(cqe.status, 0);
            let queue = self.queues.iter_mut().find(|queue| queue.number == cqe.qp);
            let queue = queue.expect("a queue pair that there is");
            let index = Index::new(cqe.index);
            if cqe.flags & cqe_flags::RECV != 0 {
                queue.rq.complete(index, entry.seen).unwrap();
                assert_eq!(queue.received.pop_front(), Some(cqe.wr_id));
            } else {
                queue.sq.complete(index, entry.seen).unwrap();
                assert_eq!(queue.sent.pop_front(), Some(cqe.wr_id));
            }
        }
        let (m, number) = (&mut self.m, self.cq.number);
        // With an arm if there is a free EQ slot.
        let slot = self.cq.armed.is_none().then(|| self.event_slots.take(1));
        let place = match slot.flatten() {
            Some(slot) => {
                self.cq.armed = Some(slot);
                doorbell::CQ_ARM_NEXT
            }
            None => doorbell::CQ_HEAD,
        };
        let published = self
            .cq
            .ring
            .publish(|head| m.ring(0, place, number, head.get()));
        for queue in &mut self.queues {
            queue.sq.reclaim(published);
            queue.rq.reclaim(published);
        }
    }

    fn events(&mut self, unmask: bool) {
        while let Some(entry) = self.events.take() {
            let eqe = Eqe::decode(&entry.words);
            assert_eq!(eqe.number, self.cq.number);
            let slot = self.cq.armed.take().expect("an event that was paid for");
            self.passed.merge(slot).unwrap();
        }
        let m = &mut self.m;
        let place = if unmask {
            doorbell::EQ_HEAD
        } else {
            doorbell::EQ_HEAD_MASKED
        };
        self.events
            .publish(|head| m.ring(0, place, Number::ADMIN, head.get()));
        self.event_slots.give(self.passed.take()).unwrap();
    }
}

fn the_drivers_rings_and_the_device_in_any_order() {
    with_seeds("the_drivers_rings_and_the_device_in_any_order", 30, |rng| {
        let mut d = Driver::new(0u32.wrapping_sub((rng.below(5) as u32) << 6));
        for _ in 0..3000 {
            let which = rng.below(2) as usize;
            match rng.below(8) {
                0..2 => d.send(which, rng),
                2..4 => d.receive(which),
                4 => d.ring(which),
                5 => d.poll(rng.below(8)),
                6 => d.events(rng.one_in(2)),
                _ => _ = d.m.f.run(rng.below(3) as u32),
            }
        }
        // Finish: execute everything that was posted.
        for _ in 0..200 {
            for which in [0, 1] {
                d.receive(which);
                d.ring(which);
            }
            d.m.settle();
            d.poll(100);
            d.events(true);
        }
        assert!(d.queues.iter().all(|queue| queue.sent.is_empty()));
        for counter in [Counter::Violations, Counter::CqOverruns, Counter::Errors] {
            assert_eq!(d.m.f.counter(counter), 0, "{}", counter.text());
        }
        assert_eq!(d.m.f.status() & 3, 1);
        for queue in &d.queues {
            queue.sq.audit().unwrap();
            queue.rq.audit().unwrap();
        }
        let armed = d.cq.armed.as_ref().map_or(0, Slots::count);
        d.event_slots.audit(d.reserve.count() + armed).unwrap();
        d.cq.pool
            .audit(d.queues[0].held.count() + d.queues[1].held.count())
            .unwrap();
        assert!(d.m.f.counter(Counter::Cqes) > 200);
    });
}

fn a_ring_that_is_not_paid_for_overflows() {
    // One CQE more than there are slots: the device detects it. So the capacity above suffices and
    // one less does not.
    let mut m = Machine::new();
    let (pd, cq) = (m.pd(), m.cq(3));
    let mut qp = m.qp(&Machine::spec(pd, &cq));
    m.connect(qp.number, qp.number);
    for i in 0..9 {
        assert_eq!(m.f.counter(Counter::CqOverruns), 0);
        m.send(&mut qp, wqe(work::NOP, i), &[]);
    }
    assert_eq!(m.f.counter(Counter::CqOverruns), 1);
    // And an SQ whose producer runs a whole ring ahead is a violation.
    let mut p = Pair::new();
    p.m.f.set_stall(true);
    p.m.ring(0, doorbell::SQ, p.a.number, 16);
    assert_eq!(p.m.f.counter(Counter::Violations), 0);
    p.m.ring(0, doorbell::SQ, p.a.number, 17);
    assert_eq!(p.m.f.counter(Counter::Violations), 1);
}
