// SPDX-License-Identifier: GPL-2.0
//! Invalid doorbells change nothing, and are reported once.

use super::checks;
use crate::harness::*;
use qpair_abi::command::*;
use qpair_abi::counters::Counter;
use qpair_abi::doorbell;
use qpair_abi::entry::opcode as work;
use qpair_abi::status::AdminError;
use qpair_abi::status::Event;
use qpair_abi::Number;

checks![
    what_makes_no_sense_changes_nothing,
    an_object_answers_to_its_page,
    only_page_0_has_event_doorbells,
    a_storm_is_one_event,
    the_count_can_be_taken,
    a_count_that_was_taken_is_not_told,
    an_old_index_is_no_violation,
    a_reset_queue_takes_no_doorbell,
    work_is_taken_before_it_may_begin,
];

/// The pages with reported violations, and the counts.
fn told(m: &mut Machine) -> Vec<(u32, u32)> {
    let events = m.events0();
    let violation = Event::DoorbellViolation.code();
    assert!(events.iter().all(|event| event.kind == violation));
    let told = |event: &qpair_abi::entry::Eqe| (event.number.raw(), event.count);
    events.iter().map(told).collect()
}

fn what_makes_no_sense_changes_nothing() {
    let p = Pair::new();
    let (qp, cq) = (p.a.number, p.cq_a.number);
    let stale = |number: Number| Number::new(number.index() as u16, number.generation() + 1);
    let cases = [
        (doorbell::SQ, Number::new(999, 1), 1, 8),
        (doorbell::SQ, stale(qp), 1, 8),
        (doorbell::SQ, qp, 17, 8),
        (doorbell::SQ, qp, u32::MAX, 8),
        (doorbell::SQ, qp, 1 << 31, 8),
        (doorbell::RQ, qp, 17, 8),
        (doorbell::RQ, stale(qp), 1, 8),
        (doorbell::RQ, Number::ADMIN, 1, 8),
        (doorbell::SRQ, qp, 1, 8),
        (doorbell::CQ_HEAD, cq, 1, 8),
        (doorbell::CQ_HEAD, stale(cq), 0, 8),
        (doorbell::CQ_ARM_NEXT, cq, 1, 8),
        (doorbell::CQ_ARM_SOLICITED, cq, 5000, 8),
        (doorbell::EQ_HEAD, Number::ADMIN, 1, 8),
        (doorbell::EQ_HEAD, Number::new(1, 1), 0, 8),
        (doorbell::EQ_HEAD_MASKED, Number::ADMIN, 1 << 30, 8),
        (doorbell::CQ_NOTIFY, cq, 1, 8),
        (doorbell::CQ_NOTIFY, stale(cq), 0, 8),
        (doorbell::CQ_NOTIFY, Number::new(999, 1), 0, 8),
        (doorbell::CQ_NOTIFY, Number::from_raw(u32::MAX), 0, 8),
        (doorbell::CQ_NOTIFY_SOLICITED, cq, u32::MAX, 8),
        (0x50, qp, 0, 8),
        (0xff8, qp, 0, 8),
        (doorbell::SQ, qp, 1, 4),
        (doorbell::SQ + 4, qp, 1, 8),
        (doorbell::CQ_ARM_NEXT, cq, 0, 1),
        (doorbell::CQ_NOTIFY, cq, 0, 4),
    ];
    drop(p);
    for (place, number, index, width) in cases {
        let mut p = Pair::new();
        let before = (p.m.query_qp(p.a.number), p.m.query_cq(p.cq_a.number));
        let eqes = p.m.f.counter(Counter::Eqes);
        p.m.f.doorbell(place, doorbell::value(number, index), width);
        p.m.settle();
        assert_eq!(p.m.f.counter(Counter::Violations), 1, "{place:#x} {number}");
        assert_eq!(p.m.f.counter(Counter::Eqes), eqes + 1);
        assert_eq!(told(&mut p.m), [(0, 1)]);
        let after = (p.m.query_qp(p.a.number), p.m.query_cq(p.cq_a.number));
        assert_eq!(after, before, "{place:#x} {number}");
        // Everything still works.
        p.send(wqe(work::NOP, 1), &[]);
        assert_eq!(p.done_a().len(), 1);
    }
    // Beyond the pages there is no event.
    let mut m = Machine::new();
    m.f.doorbell(1024 * 4096, 0, 8);
    m.f.doorbell(u64::MAX, 0, 8);
    assert_eq!(m.f.counter(Counter::Violations), 2);
    assert_eq!(m.events0(), []);
}

fn an_object_answers_to_its_page() {
    let mut m = Machine::new();
    let pd = m.pd();
    let mut cq = m.cq_of(Number::ADMIN, 4, 5, 0);
    let spec = QpSpec {
        page: 6,
        ..Machine::spec(pd, &cq)
    };
    let mut qp = m.qp(&spec);
    m.connect(qp.number, qp.number);
    m.post(&mut qp, wqe(work::NOP, 1), &[]);
    for page in [0, 5, 7] {
        m.ring(page, doorbell::SQ, qp.number, 1);
        m.ring(page, doorbell::RQ, qp.number, 1);
    }
    m.ring(6, doorbell::CQ_ARM_NEXT, cq.number, 0);
    m.ring(0, doorbell::CQ_HEAD, cq.number, 0);
    m.ring(6, doorbell::CQ_NOTIFY, cq.number, 0);
    m.settle();
    assert_eq!(m.drain(&mut cq), []);
    assert_eq!(m.f.counter(Counter::Violations), 9);
    m.ring_sq(&qp);
    m.settle();
    assert_eq!(m.drain(&mut cq).len(), 1);
    let events = m.events0();
    assert!(events
        .iter()
        .all(|event| event.kind == Event::DoorbellViolation.code()));
    let pages: Vec<_> = events.iter().map(|event| event.number.raw()).collect();
    assert_eq!(pages, [0, 5, 7, 6], "the page that was misused");
}

fn only_page_0_has_event_doorbells() {
    let mut m = Machine::new();
    m.arm(&m.cq0.clone());
    m.pd();
    m.raised();
    m.ring(1, doorbell::EQ_HEAD, Number::ADMIN, 1);
    m.ring(1, doorbell::EQ_HEAD_MASKED, Number::ADMIN, 0);
    assert_eq!(m.f.counter(Counter::Violations), 2);
    let eq = EqContext::decode(&m.query(kind::EQ, Number::ADMIN));
    assert_eq!(eq.consumer, 0, "nothing was passed");
}

fn a_storm_is_one_event() {
    let mut m = Machine::new();
    let (eqes, raised) = (m.f.counter(Counter::Eqes), m.raised().len());
    for i in 0..1000 {
        m.ring(9, doorbell::SQ, Number::new(i, 1), 0);
    }
    assert_eq!(m.f.counter(Counter::Violations), 1000);
    assert_eq!(m.f.counter(Counter::Eqes), eqes + 1);
    assert_eq!(told(&mut m), [(9, 1)]);
    m.ring(9, doorbell::SQ, Number::new(77, 1), 0);
    assert_eq!(told(&mut m), [], "until the driver has read the count");
    assert_eq!(raised, 0);
}

fn the_count_can_be_taken() {
    let mut m = Machine::new();
    for page in [3, 4] {
        for _ in 0..10 {
            m.ring(page, doorbell::SQ, Number::new(77, 1), 0);
        }
    }
    assert_eq!(told(&mut m), [(3, 1), (4, 1)]);
    let page = |index| Number::new(index, 0);
    let take = |m: &mut Machine, index| m.simple(kind::PAGE, verb::MODIFY, page(index));
    assert_eq!(take(&mut m, 3).unwrap().bytes, 10);
    assert_eq!(take(&mut m, 3).unwrap().bytes, 0);
    assert_eq!(take(&mut m, 1024), Err(AdminError::Number));
    for page in [3, 4] {
        m.ring(page, doorbell::SQ, Number::new(77, 1), 0);
    }
    assert_eq!(
        told(&mut m),
        [(3, 1)],
        "the count of the other was not read"
    );
    assert_eq!(take(&mut m, 4).unwrap().bytes, 11);
}

/// The next owner of a page gets no report of violations of the one before.
fn a_count_that_was_taken_is_not_told() {
    let mut m = Machine::new();
    let limit = m.f.config().async_events;
    let bad = |m: &mut Machine, page| m.ring(page, doorbell::SQ, Number::new(77, 1), 0);
    let take = |m: &mut Machine, page| m.simple(kind::PAGE, verb::MODIFY, Number::new(page, 0));
    // EQ 0 holds no more of them; the last one is pending in the device.
    let last = u16::try_from(limit).unwrap();
    for page in 1..=last {
        bad(&mut m, page);
    }
    assert_eq!(take(&mut m, last).unwrap().bytes, 1);
    let expected: Vec<_> = (1..last).map(|page| (page.into(), 1)).collect();
    assert_eq!(told(&mut m), expected);
    assert_eq!(told(&mut m), [], "its count was read before it was written");
    bad(&mut m, last);
    assert_eq!(told(&mut m), [(last.into(), 1)], "the next one is reported");
    // The same if it waits until the head passes the one before.
    assert_eq!(take(&mut m, last).unwrap().bytes, 1);
    for _ in 0..2 {
        bad(&mut m, last);
        assert_eq!(take(&mut m, last).unwrap().bytes, 1);
    }
    assert_eq!(told(&mut m), [(last.into(), 1)], "the written event stays");
    assert_eq!(told(&mut m), []);
}

fn an_old_index_is_no_violation() {
    let mut p = Pair::new();
    for _ in 0..5 {
        p.send(wqe(work::NOP, 1), &[]);
    }
    p.done_a();
    for index in [4, 0, 5] {
        p.m.ring(0, doorbell::CQ_HEAD, p.cq_a.number, index);
    }
    assert_eq!(p.m.f.counter(Counter::Violations), 0);
    assert_eq!(p.m.query_cq(p.cq_a.number).consumer, 5);
    // A producer index must not go back.
    p.m.ring(0, doorbell::SQ, p.a.number, 5);
    p.m.ring(0, doorbell::SQ, p.a.number, 4);
    assert_eq!(p.m.f.counter(Counter::Violations), 1);
}

fn a_reset_queue_takes_no_doorbell() {
    let mut m = Machine::new();
    let (pd, cq) = (m.pd(), m.cq(4));
    let qp = m.qp(&Machine::spec(pd, &cq));
    m.ring(0, doorbell::SQ, qp.number, 1);
    m.ring(0, doorbell::RQ, qp.number, 1);
    assert_eq!(m.f.counter(Counter::Violations), 2);
    assert_eq!(m.query_qp(qp.number).sq_producer, 0);
}

fn work_is_taken_before_it_may_begin() {
    let mut m = Machine::new();
    let (pd, mut cq) = (m.pd(), m.cq(4));
    let mut qp = m.qp(&Machine::spec(pd, &cq));
    m.set_state(qp.number, qp_state::INIT).unwrap();
    m.send(&mut qp, wqe(work::NOP, 1), &[]);
    m.set_state(qp.number, qp_state::RTR).unwrap();
    m.settle();
    assert_eq!(m.drain(&mut cq), []);
    m.set_state(qp.number, qp_state::RTS).unwrap();
    m.settle();
    assert_eq!(m.drain(&mut cq).len(), 1);
    m.set_state(qp.number, qp_state::SQD).unwrap();
    m.send(&mut qp, wqe(work::NOP, 2), &[]);
    assert_eq!(m.drain(&mut cq), [], "drained: nothing new begins");
    m.set_state(qp.number, qp_state::RTS).unwrap();
    m.settle();
    assert_eq!(m.drain(&mut cq)[0].wr_id, 2);
}
