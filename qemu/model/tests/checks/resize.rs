// SPDX-License-Identifier: GPL-2.0
//! MODIFY CQ: a completion queue that goes on in another ring.

use super::checks;
use crate::harness::*;
use qpair_abi::command::*;
use qpair_abi::counters::Counter;
use qpair_abi::doorbell;
use qpair_abi::entry::opcode as work;
use qpair_abi::entry::Cqe;
use qpair_abi::status::AdminError;
use qpair_abi::status::Event;
use qpair_abi::Number;

checks![
    entries_keep_their_order,
    a_resize_between_any_two,
    nothing_is_written_to_the_old_ring,
    below_what_is_unread,
    an_overrun_counts_in_the_new_ring,
    arms_and_notifies_go_on,
    an_unread_entry_keeps_its_number,
    what_is_refused,
];

/// The context of a resize.
fn context(addr: u64, log: u8) -> CqContext {
    CqContext {
        log_depth: log,
        buffer: block(addr, 32 << log),
        ..CqContext::default()
    }
}

impl Machine {
    /// A zeroed ring.
    fn new_ring(&mut self, log: u8) -> u64 {
        self.memory.alloc(32 << log, 64, Grant::Write)
    }

    fn modify_cq(&mut self, cq: Number, context: &CqContext) -> Outcome {
        self.with_context(kind::CQ, verb::MODIFY, cq, 0, &context.encode())
    }

    /// The ring in which a CQ goes on, and the index past the last entry in the old one.
    fn resize(&mut self, cq: &TestCq, log: u8) -> Result<(TestCq, u32), AdminError> {
        let addr = self.new_ring(log);
        let done = self.modify_cq(cq.number, &context(addr, log))?;
        let head = done.imm;
        let ring = Reader { addr, log, head };
        Ok((TestCq { ring, ..*cq }, done.bytes))
    }

    /// All entries of the ring before, then those of the new one; the head is published.
    fn drain_both(&mut self, old: &mut TestCq, new: &mut TestCq, end: u32) -> Vec<u64> {
        let mut cqes: Vec<Cqe> = std::iter::from_fn(|| self.poll(old)).collect();
        assert_eq!(
            old.ring.head, end,
            "the old ring ends where the answer says"
        );
        cqes.extend(self.drain(new));
        cqes.iter().map(|cqe| cqe.wr_id).collect()
    }
}

/// A queue pair that sends NOPs.
struct Nops {
    m: Machine,
    qp: TestQp,
    cq: TestCq,
    next: u64,
}

impl Nops {
    fn on(mut m: Machine, log: u8, flags: u8) -> Self {
        let pd = m.pd();
        let cq = m.cq_of(Number::ADMIN, log, 0, flags);
        let spec = Machine::spec(pd, &cq);
        let qp = m.qp(&spec);
        m.connect(qp.number, qp.number);
        Self { m, qp, cq, next: 0 }
    }

    fn new(log: u8) -> Self {
        Self::on(Machine::new(), log, cq_flags::USER)
    }

    fn post(&mut self, count: u64) {
        for _ in 0..count {
            self.m.send(&mut self.qp, wqe(work::NOP, self.next), &[]);
            self.next += 1;
        }
    }

    fn resize(&mut self, log: u8) -> Result<(TestCq, u32), AdminError> {
        self.m.resize(&self.cq, log)
    }

    /// Whether the device's ring, read up to its head, has a free slot.
    fn room(&mut self, ring: &TestCq) -> bool {
        let written = self.m.query_cq(self.cq.number).producer;
        written.wrapping_sub(ring.ring.head) < 1 << ring.ring.log
    }
}

fn entries_keep_their_order() {
    // The last one begins beyond the wrap.
    for (first, log) in [
        (0, 4),
        (0u32.wrapping_sub(128), 4),
        (0u32.wrapping_sub(128), 6),
    ] {
        let mut n = Nops::on(Machine::starting_at(first), 3, 0);
        n.post(5);
        let (mut new, end) = n.resize(log).unwrap();
        assert_eq!(end, first.wrapping_add(5));
        let begin = new.ring.head;
        assert_eq!(begin % (2 << log), 0, "a multiple of twice the new depth");
        assert!(begin.wrapping_sub(end) < 2 << log);
        n.post(9);
        let mut old = n.cq;
        let ids = n.m.drain_both(&mut old, &mut new, end);
        assert_eq!(ids, (0..14).collect::<Vec<_>>());
        let now = n.m.query_cq(n.cq.number);
        assert_eq!((now.log_depth, now.buffer.root), (log, new.ring.addr));
        let at = begin.wrapping_add(9);
        assert_eq!((now.producer, now.consumer), (at, at));
        assert_eq!(n.m.f.counter(Counter::Violations), 0);
    }
}

/// Up and down, again and again, with any number of unread entries in the rings before.
fn a_resize_between_any_two() {
    let mut rng = qpair_testkit::Rng::new(41);
    for _ in 0..60 {
        let mut n = Nops::new(2);
        // Rings that are not read to their ends, with these; the last is that of the device.
        let mut rings = std::collections::VecDeque::from([n.cq]);
        let mut ends = std::collections::VecDeque::new();
        let mut read = 0;
        for _ in 0..60 {
            match rng.next() % 3 {
                0 if n.room(&rings[rings.len() - 1]) => {
                    n.post(1);
                }
                1 => {
                    let log = (rng.next() % 4) as u8;
                    if let Ok((new, end)) = n.resize(log) {
                        rings.push_back(new);
                        ends.push_back(end);
                    }
                }
                _ => {
                    let found = n.m.poll(&mut rings[0]);
                    if let Some(cqe) = found {
                        assert_eq!(cqe.wr_id, read, "in order");
                        read += 1;
                    } else if let Some(end) = ends.pop_front() {
                        let old = rings.pop_front().unwrap();
                        assert_eq!(old.ring.head, end);
                    }
                    let (number, head) = (n.cq.number, rings[0].ring.head);
                    n.m.ring(0, doorbell::CQ_HEAD, number, head);
                }
            }
        }
        while let Some(end) = ends.pop_front() {
            let mut old = rings.pop_front().unwrap();
            while let Some(cqe) = n.m.poll(&mut old) {
                assert_eq!(cqe.wr_id, read);
                read += 1;
            }
            assert_eq!(old.ring.head, end);
        }
        read += n.m.drain(&mut rings[0]).len() as u64;
        assert_eq!(read, n.next, "each once");
        assert_eq!(n.m.f.counter(Counter::Violations), 0);
        assert_eq!(n.m.f.counter(Counter::CqOverruns), 0);
    }
}

fn nothing_is_written_to_the_old_ring() {
    let mut n = Nops::new(2);
    n.post(2);
    let (new, _) = n.resize(2).unwrap();
    let before: [u64; 16] = n.m.memory.words(n.cq.ring.addr);
    // Its memory may be taken away at once.
    n.post(4);
    assert_eq!(n.m.memory.words::<16>(n.cq.ring.addr), before);
    let mut new = new;
    assert_eq!(n.m.drain(&mut new).len(), 4);
}

fn below_what_is_unread() {
    let mut n = Nops::new(3);
    n.post(5);
    assert_eq!(n.resize(2).err(), Some(AdminError::Depth));
    n.post(1);
    let mut cq = n.cq;
    assert_eq!(n.m.drain(&mut cq).len(), 6, "the CQ is as it was");
    n.cq = cq;
    n.post(4);
    let (mut new, end) = n.resize(2).unwrap();
    n.post(4);
    let mut old = n.cq;
    assert_eq!(n.m.drain_both(&mut old, &mut new, end).len(), 8);
    // Of the rings before nothing counts.
    n.cq = new;
    n.post(3);
    n.resize(2).unwrap();
    n.resize(0).unwrap();
}

fn an_overrun_counts_in_the_new_ring() {
    let mut n = Nops::new(3);
    n.post(4);
    let (new, _) = n.resize(2).unwrap();
    n.post(4);
    assert_eq!(n.m.f.counter(Counter::CqOverruns), 0);
    n.post(1);
    assert_eq!(n.m.f.counter(Counter::CqOverruns), 1);
    let refused = n.m.resize(&new, 4).err();
    assert_eq!(refused, Some(AdminError::Overrun));
}

fn arms_and_notifies_go_on() {
    let completion = |n: &mut Nops| {
        let events = n.m.events0();
        let kinds: Vec<_> = events.iter().map(|eqe| eqe.kind).collect();
        kinds == [Event::Completion.code()]
    };
    // Armed before the resize.
    let mut n = Nops::new(2);
    n.m.arm(&n.cq);
    let (mut new, _) = n.resize(3).unwrap();
    assert!(!completion(&mut n));
    n.post(1);
    assert!(completion(&mut n));
    // Armed after it, with an index of the new ring.
    assert_eq!(n.m.drain(&mut new).len(), 1);
    n.m.arm(&new);
    assert!(!completion(&mut n));
    n.post(1);
    assert!(completion(&mut n));
    // A notify that is written after the resize has the new ring's sample.
    n.m.drain(&mut new);
    n.cq = new;
    let (new, _) = n.resize(1).unwrap();
    let notify = n.m.written(doorbell::CQ_NOTIFY, &new);
    n.m.execute(notify);
    n.m.settle();
    assert!(!completion(&mut n), "nothing came after it");
    n.post(1);
    assert!(completion(&mut n));
    // One that is written before and executed after it fires for what came between.
    let notify = n.m.written(doorbell::CQ_NOTIFY, &new);
    n.cq = new;
    n.post(1);
    n.resize(3).unwrap();
    n.m.execute(notify);
    n.m.settle();
    assert!(completion(&mut n));
}

/// The number of a queue pair is not used again while an entry of it is unread in the old ring.
fn an_unread_entry_keeps_its_number() {
    let mut n = Nops::new(3);
    n.post(2);
    n.m.destroy(kind::QP, n.qp.number).unwrap();
    let (new, end) = n.resize(3).unwrap();
    let pd = n.m.pd();
    let spec = Machine::spec(pd, &new);
    let kept = |m: &mut Machine| {
        let done = m.simple(kind::PAGE, verb::QUERY, Number::default());
        done.unwrap().bytes
    };
    assert_eq!(kept(&mut n.m), 1);
    let number = n.cq.number;
    n.m.ring(0, doorbell::CQ_HEAD, number, end - 1);
    assert_eq!(kept(&mut n.m), 1, "one is unread");
    n.m.ring(0, doorbell::CQ_HEAD, number, end);
    assert_eq!(kept(&mut n.m), 0);
    let again = n.m.qp(&spec).number;
    assert_eq!(again.index(), n.qp.number.index());
}

fn what_is_refused() {
    let mut n = Nops::new(2);
    let addr = n.m.new_ring(2);
    let good = context(addr, 2);
    let number = n.cq.number;
    let mut refused = |cq, context: &CqContext, why| {
        assert_eq!(n.m.modify_cq(cq, context).err(), Some(why));
    };
    refused(Number::ADMIN, &good, AdminError::Number);
    refused(Number::new(9, 9), &good, AdminError::Number);
    let deep = CqContext {
        log_depth: 40,
        ..good
    };
    refused(number, &deep, AdminError::Depth);
    let short = context(addr, 3);
    let short = CqContext {
        buffer: good.buffer,
        ..short
    };
    refused(number, &short, AdminError::Buffer);
    n.post(1);
    let mut cq = n.cq;
    assert_eq!(n.m.drain(&mut cq).len(), 1, "the CQ is as it was");
    // Fields that it does not use are ignored.
    let other = CqContext {
        eq: Number::new(7, 7),
        page: 9,
        flags: 3,
        producer: 1,
        consumer: 2,
        ..good
    };
    n.m.modify_cq(number, &other).unwrap();
    let now = n.m.query_cq(number);
    assert_eq!(
        (now.eq, now.page, now.flags),
        (Number::ADMIN, 0, cq_flags::USER)
    );
}
