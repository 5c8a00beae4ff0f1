// SPDX-License-Identifier: GPL-2.0
//! Arms, events, masks and interrupts, moderation, asynchronous events.

use super::checks;
use crate::harness::*;
use qpair_abi::command::*;
use qpair_abi::counters::Counter;
use qpair_abi::doorbell;
use qpair_abi::entry::opcode as work;
use qpair_abi::entry::*;
use qpair_abi::status::AdminError;
use qpair_abi::status::Event;
use qpair_abi::Number;
use std::cell::Cell;
use std::rc::Rc;

checks![
    an_arm_causes_one_event,
    an_arm_looks_at_what_is_there,
    an_arm_means_entries_at_or_past_its_index,
    solicited_means_solicited_or_failed,
    a_notify_looks_at_nothing_that_is_there,
    a_notify_counts_from_its_doorbell,
    a_notify_waits_for_what_it_says,
    a_producer_index_is_published_between_its_entry_and_the_event,
    a_new_cq_is_published_as_empty,
    notifies_of_a_process_have_one_event_in_the_eq,
    an_event_follows_its_completion_and_an_interrupt_its_event,
    an_entry_is_written_whole,
    raising_masks,
    each_eq_has_its_vector,
    moderation_delays_raising,
    moderation_can_be_changed,
    a_process_has_one_event_in_the_eq,
    asynchronous_events_wait_their_turn,
    repeats_are_counted,
    the_link_reports_what_it_is,
    events_of_the_dead_are_dropped,
    an_event_of_a_dead_cq_frees_nobody,
];

fn completion(cq: &TestCq) -> Eqe {
    Eqe {
        number: cq.number,
        count: 1,
        kind: Event::Completion.code(),
        code: 0,
    }
}

fn kinds(events: &[Eqe]) -> Vec<u8> {
    // Without the owner bit, which shares their word.
    events.iter().map(|event| event.kind).collect()
}

fn an_arm_causes_one_event() {
    let mut p = Pair::new();
    let nop = wqe(work::NOP, 1);
    p.send(nop, &[]);
    assert_eq!(p.m.events0(), [], "no arm");
    p.done_a();
    p.m.arm(&p.cq_a);
    assert_eq!(p.m.events0(), []);
    p.send(nop, &[]);
    p.send(nop, &[]);
    assert_eq!(p.m.events0(), [completion(&p.cq_a)]);
    assert_eq!(p.done_a().len(), 2);
    p.send(nop, &[]);
    assert_eq!(p.m.events0(), []);
}

fn an_arm_looks_at_what_is_there() {
    let mut p = Pair::new();
    p.send(wqe(work::NOP, 1), &[]);
    p.m.arm(&p.cq_a);
    assert_eq!(
        p.m.events0(),
        [completion(&p.cq_a)],
        "the entry was written before the arm"
    );
    // Another thread has published more: the arm fires at once.
    p.done_a();
    p.m.ring(0, doorbell::CQ_ARM_NEXT, p.cq_a.number, 0);
    assert_eq!(p.m.events0(), [completion(&p.cq_a)]);
}

fn an_arm_means_entries_at_or_past_its_index() {
    // The arm's index, with entries 0 and 1 written, and whether it fires.
    for (index, fires) in [(0, true), (1, true), (2, false)] {
        let mut p = Pair::new();
        for _ in 0..2 {
            p.send(wqe(work::NOP, 1), &[]);
        }
        p.m.ring(0, doorbell::CQ_ARM_NEXT, p.cq_a.number, index);
        let events = p.m.events0();
        assert_eq!(!events.is_empty(), fires, "{index}");
        p.send(wqe(work::NOP, 1), &[]);
        assert_eq!(p.m.events0().is_empty(), fires, "{index}: once");
    }
}

fn solicited_means_solicited_or_failed() {
    let mut p = Pair::new();
    for i in 0..4 {
        p.recv(i, &[p.mr_b.sge(0, 4)]);
    }
    p.m.arm_solicited(&p.cq_b);
    let send = wqe(work::SEND, 1);
    p.send(send, &[]);
    assert_eq!(p.m.events0(), []);
    let asks = SendWqe {
        flags: send_flags::SOLICITED,
        ..send
    };
    p.send(asks, &[]);
    assert_eq!(p.m.events0(), [completion(&p.cq_b)]);
    // The entry is there already, past the index.
    p.m.arm_solicited(&p.cq_b);
    assert_eq!(p.m.events0(), [completion(&p.cq_b)]);
    p.done_b();
    p.m.arm_solicited(&p.cq_b);
    p.send(send, &[p.mr_a.sge(0, 5)]);
    let events = p.m.events0();
    assert!(events.contains(&completion(&p.cq_b)), "it failed");
}

fn a_notify_looks_at_nothing_that_is_there() {
    let mut p = Pair::new();
    let nop = wqe(work::NOP, 1);
    p.send(nop, &[]);
    p.m.notify(&p.cq_a);
    assert_eq!(p.m.events0(), [], "the entry was written before it");
    p.send(nop, &[]);
    p.send(nop, &[]);
    assert_eq!(p.m.events0(), [completion(&p.cq_a)], "one event");
    let cq = p.m.query_cq(p.cq_a.number);
    assert_eq!((cq.producer, cq.consumer), (3, 0), "no slot is free");
    assert_eq!(p.done_a().len(), 3);
    p.m.notify(&p.cq_a);
    assert_eq!(p.m.events0(), []);
    assert_eq!(p.m.f.counter(Counter::CqArmDoorbells), 2);
    assert_eq!(p.m.f.counter(Counter::Violations), 0);
}

/// The device executes it later than it was written.
fn a_notify_counts_from_its_doorbell() {
    let mut p = Pair::new();
    let nop = wqe(work::NOP, 1);
    p.send(nop, &[]);
    let [first, second] = [(); 2].map(|()| p.m.written(doorbell::CQ_NOTIFY, &p.cq_a));
    p.m.execute(first);
    assert_eq!(p.m.events0(), []);
    p.send(nop, &[]);
    assert_eq!(p.m.events0(), [completion(&p.cq_a)]);
    p.m.execute(second);
    assert_eq!(
        p.m.events0(),
        [completion(&p.cq_a)],
        "the entry was written after the doorbell"
    );
    // Another thread publishes what was written since.
    let late = p.m.written(doorbell::CQ_NOTIFY_SOLICITED, &p.cq_a);
    p.send(nop, &[]);
    p.done_a();
    p.m.execute(late);
    assert_eq!(p.m.events0(), [completion(&p.cq_a)]);
}

fn a_notify_waits_for_what_it_says() {
    let mut p = Pair::new();
    for i in 0..6 {
        p.recv(i, &[p.mr_b.sge(0, 4)]);
    }
    let send = wqe(work::SEND, 1);
    let asks = SendWqe {
        flags: send_flags::SOLICITED,
        ..send
    };
    let notify = doorbell::CQ_NOTIFY_SOLICITED;
    p.send(asks, &[]);
    p.m.ring(0, notify, p.cq_b.number, 0);
    p.send(send, &[]);
    assert_eq!(p.m.events0(), []);
    p.send(asks, &[]);
    assert_eq!(p.m.events0(), [completion(&p.cq_b)]);
    // Of those since the doorbell the last is not solicited.
    let late = p.m.written(notify, &p.cq_b);
    p.send(asks, &[]);
    p.send(send, &[]);
    p.m.execute(late);
    assert_eq!(p.m.events0(), [completion(&p.cq_b)]);
    // One for solicited does not weaken one for any.
    p.m.notify(&p.cq_b);
    p.m.ring(0, notify, p.cq_b.number, 0);
    p.send(send, &[]);
    assert_eq!(p.m.events0(), [completion(&p.cq_b)]);
}

fn a_producer_index_is_published_between_its_entry_and_the_event() {
    // Without a mapping an entry is written in two parts, and the last word is the second.
    let mut m = Machine::off(qpair_model::Config::default());
    m.f.host_mut().maps = false;
    m.bring_up(6, 4, 5);
    let mut p = Pair::on(m, |_, _| {});
    // A notify that is written at the first part of the CQE, and one at that of the EQE.
    for fires in [true, false] {
        let (cq, eq) = (p.cq_a.ring, p.m.eq0.ring);
        let at = match fires {
            true => cq.addr + Cqe::BYTES as u64 * u64::from(cq.head),
            false => eq.addr + Eqe::BYTES as u64 * u64::from(eq.head),
        };
        p.m.arm(&p.cq_a);
        let (producers, written) = (p.m.f.producers(), Rc::new(Cell::new(None)));
        let (value, bell) = (doorbell::value(p.cq_a.number, 0), written.clone());
        p.m.memory.at_each(move |done| {
            if matches!(done, Done::Write(addr, _) if addr == at) {
                bell.set(Some(producers.doorbell(doorbell::CQ_NOTIFY, value, 8)));
            }
        });
        p.send(wqe(work::NOP, 1), &[]);
        assert_eq!(p.m.events0(), [completion(&p.cq_a)]);
        p.m.execute(written.take().expect("a write of the entry"));
        assert_eq!(p.m.events0().len(), usize::from(fires));
        p.done_a();
    }
}

fn a_new_cq_is_published_as_empty() {
    let mut m = Machine::new();
    let pd = m.pd();
    for _ in 0..2 {
        let mut cq = m.cq(4);
        let mut qp = m.qp(&Machine::spec(pd, &cq));
        m.connect(qp.number, qp.number);
        let written = m.written(doorbell::CQ_NOTIFY, &cq);
        m.execute(written);
        assert_eq!(m.events0(), [], "it is empty");
        m.send(&mut qp, wqe(work::NOP, 1), &[]);
        assert_eq!(m.events0(), [completion(&cq)]);
        m.drain(&mut cq);
        m.destroy(kind::QP, qp.number).unwrap();
        m.destroy(kind::CQ, cq.number).unwrap();
        assert_eq!(cq.number.index(), 1, "the same index");
    }
}

fn notifies_of_a_process_have_one_event_in_the_eq() {
    let mut m = Machine::new();
    let pd = m.pd();
    let mut cq = m.cq_of(Number::ADMIN, 6, 3, cq_flags::USER);
    let mut qp = m.qp(&QpSpec {
        page: 3,
        ..Machine::spec(pd, &cq)
    });
    m.connect(qp.number, qp.number);
    for _ in 0..20 {
        m.notify(&cq);
        m.send(&mut qp, wqe(work::NOP, 1), &[]);
        m.drain(&mut cq);
    }
    m.notify(&cq);
    assert_eq!(m.events0(), [completion(&cq)], "however often it notifies");
    assert_eq!(m.events0(), [completion(&cq)], "one was deferred");
    assert_eq!(m.events0(), []);
}

fn an_event_follows_its_completion_and_an_interrupt_its_event() {
    let mut p = Pair::new();
    p.m.arm(&p.cq_a);
    p.m.memory.keep_done();
    p.send(wqe(work::NOP, 1), &[]);
    let done = p.m.memory.take_done();
    let cqe = Done::Write(p.cq_a.ring.addr, 32);
    let eqe = Done::Write(p.m.eq0.ring.addr, 16);
    assert_eq!(done, [cqe, eqe, Done::Raise(0)]);
}

fn an_entry_is_written_whole() {
    // Without a mapping the last word is written last, too.
    let mut m = Machine::off(qpair_model::Config::default());
    m.f.host_mut().maps = false;
    m.bring_up(6, 4, 5);
    let mut p = Pair::on(m, |_, _| {});
    p.m.arm(&p.cq_a);
    p.m.memory.keep_done();
    p.send(wqe(work::NOP, 1), &[]);
    let (cq, eq) = (p.cq_a.ring.addr, p.m.eq0.ring.addr);
    let expected = [
        Done::Write(cq, 24),
        Done::Write(cq + 24, 8),
        Done::Write(eq, 8),
        Done::Write(eq + 8, 8),
        Done::Raise(0),
    ];
    assert_eq!(p.m.memory.take_done(), expected);
    assert_eq!(p.done_a().len(), 1);
    assert_eq!(p.m.events0(), [completion(&p.cq_a)]);
}

fn raising_masks() {
    let mut p = Pair::new();
    p.m.raised();
    let nop = wqe(work::NOP, 1);
    let (mut eq, page) = (p.m.eq0, 0);
    for _ in 0..3 {
        p.m.arm(&p.cq_a);
        p.send(nop, &[]);
        p.done_a();
    }
    assert_eq!(p.m.raised(), [0], "raising masked it");
    p.m.event(&mut eq).unwrap();
    p.m.ring(page, doorbell::EQ_HEAD_MASKED, eq.number, eq.ring.head);
    assert_eq!(p.m.raised(), [], "the mask is kept");
    p.m.ring(page, doorbell::EQ_HEAD, eq.number, eq.ring.head);
    assert_eq!(p.m.raised(), [0], "unmasked and not empty");
    while p.m.event(&mut eq).is_some() {}
    p.m.ring(page, doorbell::EQ_HEAD, eq.number, eq.ring.head);
    assert_eq!(p.m.raised(), []);
    p.m.arm(&p.cq_a);
    p.send(nop, &[]);
    assert_eq!(p.m.raised(), [0]);
    assert_eq!(p.m.f.counter(Counter::Interrupts), 3);
}

fn each_eq_has_its_vector() {
    let mut m = Machine::new();
    let pd = m.pd();
    let mut eqs: Vec<_> = (0..3).map(|i| m.eq(4, 10 + i, 0, 0)).collect();
    for eq in &mut eqs {
        let cq = m.cq_of(eq.number, 4, 0, 0);
        let mut qp = m.qp(&Machine::spec(pd, &cq));
        m.connect(qp.number, qp.number);
        m.arm(&cq);
        m.send(&mut qp, wqe(work::NOP, 1), &[]);
        assert_eq!(m.raised(), [eq.vector]);
        assert_eq!(m.events(eq), [completion(&cq)]);
    }
    assert_eq!(m.events0(), []);
}

fn moderation_delays_raising() {
    let mut m = Machine::new();
    let pd = m.pd();
    let mut eq = m.eq(6, 5, 3, 50);
    let mut cq = m.cq_of(eq.number, 6, 0, 0);
    let mut qp = m.qp(&Machine::spec(pd, &cq));
    m.connect(qp.number, qp.number);
    let mut complete = |m: &mut Machine| {
        m.arm(&cq);
        m.send(&mut qp, wqe(work::NOP, 1), &[]);
        m.drain(&mut cq);
    };
    complete(&mut m);
    m.pass(49_999);
    complete(&mut m);
    assert_eq!(m.raised(), []);
    m.pass(1);
    assert_eq!(m.raised(), [5], "the oldest event's time is over");
    assert_eq!(
        m.events(&mut eq).len(),
        2,
        "the events themselves were written"
    );
    for _ in 0..3 {
        assert_eq!(m.raised(), []);
        complete(&mut m);
    }
    assert_eq!(m.raised(), [5], "enough of them");
    m.pass(1_000_000);
    assert_eq!(m.raised(), []);
}

fn moderation_can_be_changed() {
    let mut m = Machine::new();
    let modify = |m: &mut Machine, count, usecs| {
        let context = EqContext {
            moderation_count: count,
            moderation_usecs: usecs,
            ..EqContext::default()
        };
        m.with_context(kind::EQ, verb::MODIFY, Number::ADMIN, 0, &context.encode())
    };
    assert_eq!(modify(&mut m, 5, 0), Err(AdminError::Attribute));
    assert_eq!(modify(&mut m, 0, 5), Err(AdminError::Attribute));
    modify(&mut m, 9, 9).unwrap();
    m.arm(&m.cq0.clone());
    let pd = m.pd();
    assert_eq!(m.raised(), []);
    modify(&mut m, 0, 0).unwrap();
    assert_eq!(m.raised(), [0], "unmasking checks the EQ again");
    assert_eq!(m.events0().len(), 1);
    m.destroy(kind::PD, pd).unwrap();
}

fn a_process_has_one_event_in_the_eq() {
    let mut m = Machine::new();
    let pd = m.pd();
    let mut cq = m.cq_of(Number::ADMIN, 6, 3, cq_flags::USER);
    let mut qp = m.qp(&QpSpec {
        page: 3,
        ..Machine::spec(pd, &cq)
    });
    m.connect(qp.number, qp.number);
    for _ in 0..20 {
        m.arm(&cq);
        m.send(&mut qp, wqe(work::NOP, 1), &[]);
        m.drain(&mut cq);
    }
    m.arm(&cq);
    m.send(&mut qp, wqe(work::NOP, 1), &[]);
    assert_eq!(m.events0(), [completion(&cq)], "however often it is armed");
    assert_eq!(m.events0(), [completion(&cq)], "the arm was deferred");
    assert_eq!(m.events0(), []);
}

/// Creates `count` queue pairs that fail, on one CQ.
fn failing(m: &mut Machine, count: usize) -> Vec<TestQp> {
    let (pd, cq) = (m.pd(), m.cq(8));
    let mut qps: Vec<_> = (0..count).map(|_| m.qp(&Machine::spec(pd, &cq))).collect();
    for qp in &mut qps {
        m.connect(qp.number, qp.number);
        m.fail_peer(qp);
    }
    qps
}

fn asynchronous_events_wait_their_turn() {
    let mut m = Machine::new();
    let limit = m.f.config().async_events as usize;
    let qps = failing(&mut m, 3 * limit);
    let mut eq = m.eq0;
    let first: Vec<_> = std::iter::from_fn(|| m.event(&mut eq)).collect();
    assert!(
        first.len() < limit,
        "one slot is reserved for the last event"
    );
    assert_eq!(kinds(&first), vec![Event::QpAccess.code(); limit - 1]);
    // The head passes three: three more.
    m.ring(0, doorbell::EQ_HEAD_MASKED, eq.number, 3);
    let more: Vec<_> = std::iter::from_fn(|| m.event(&mut eq)).collect();
    assert_eq!(more.len(), 3);
    let mut seen: Vec<_> = first
        .iter()
        .chain(&more)
        .map(|event| event.number)
        .collect();
    loop {
        m.ring(0, doorbell::EQ_HEAD, eq.number, eq.ring.head);
        let Some(event) = m.event(&mut eq) else { break };
        seen.push(event.number);
        while let Some(event) = m.event(&mut eq) {
            seen.push(event.number);
        }
    }
    let expected: Vec<_> = qps.iter().map(|qp| qp.number).collect();
    assert_eq!(seen, expected, "in order, and none is lost");
    assert_eq!(m.f.counter(Counter::AsyncEvents), 3 * limit as u64);
}

fn repeats_are_counted() {
    let mut p = Pair::new();
    for _ in 0..2 {
        p.m.fail_peer(&mut p.a);
        again(&mut p);
    }
    p.m.fail_peer(&mut p.a);
    let mut eq = p.m.eq0;
    assert_eq!(p.m.event(&mut eq).unwrap().count, 1);
    assert_eq!(
        p.m.event(&mut eq),
        None,
        "one event for each object and kind"
    );
    p.m.ring(0, doorbell::EQ_HEAD, eq.number, eq.ring.head);
    // RESET dropped the event from before.
    let again = p.m.event(&mut eq).unwrap();
    assert_eq!((again.kind, again.count), (Event::QpAccess.code(), 1));
    p.m.eq0 = eq;
}

fn the_link_reports_what_it_is() {
    const LINK_UP: u32 = 1 << 3;
    let mut m = Machine::new();
    let is_up = |m: &Machine| m.f.status() & LINK_UP != 0;
    assert!(is_up(&m));
    m.f.set_link_down(false);
    assert_eq!(m.events0(), [], "it is up already");
    m.f.set_link_down(true);
    assert!(!is_up(&m));
    let mut eq = m.eq0;
    let event = m.event(&mut eq).unwrap();
    let down = Event::LinkDown.code();
    assert_eq!(
        (event.kind, event.count, event.number),
        (down, 1, Number::ADMIN)
    );
    // The event was not passed yet: changes are counted in the next, which has the state then.
    for down in [false, true, false] {
        m.f.set_link_down(down);
    }
    assert_eq!(m.event(&mut eq), None);
    m.ring(0, doorbell::EQ_HEAD, eq.number, eq.ring.head);
    let event = m.event(&mut eq).unwrap();
    assert_eq!((event.kind, event.count), (Event::LinkUp.code(), 3));
    assert!(is_up(&m));
    m.eq0 = eq;
}

fn events_of_the_dead_are_dropped() {
    let mut m = Machine::new();
    let limit = m.f.config().async_events as usize;
    let qps = failing(&mut m, limit + 3);
    // The events that are still pending in the device.
    for qp in &qps[limit - 1..limit + 2] {
        m.destroy(kind::QP, qp.number).unwrap();
    }
    let mut numbers: Vec<_> = m.events0().iter().map(|event| event.number).collect();
    numbers.extend(m.events0().iter().map(|event| event.number));
    let mut expected: Vec<_> = qps[..limit - 1].iter().map(|qp| qp.number).collect();
    expected.push(qps[limit + 2].number);
    assert_eq!(numbers, expected);
}

fn an_event_of_a_dead_cq_frees_nobody() {
    let mut m = Machine::new();
    let pd = m.pd();
    let cq = m.cq_of(Number::ADMIN, 4, 0, cq_flags::USER);
    let mut qp = m.qp(&Machine::spec(pd, &cq));
    m.connect(qp.number, qp.number);
    m.arm(&cq);
    m.send(&mut qp, wqe(work::NOP, 1), &[]);
    m.destroy(kind::QP, qp.number).unwrap();
    let told = m.destroy(kind::CQ, cq.number).unwrap();
    let eq = m.eq0.ring.head.wrapping_add(1);
    assert_eq!((told.bytes, told.imm, told.src), (eq, 0, eq));
    assert_eq!(m.events0(), [completion(&cq)]);
    assert_eq!(m.events0(), []);
}
