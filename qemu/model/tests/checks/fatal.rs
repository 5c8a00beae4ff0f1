// SPDX-License-Identifier: GPL-2.0
//! Fatal errors of the function, and the knobs for tests.

use super::checks;
use crate::harness::*;
use qpair_abi::command::*;
use qpair_abi::counters::Counter;
use qpair_abi::doorbell;
use qpair_abi::entry::opcode as work;
use qpair_abi::entry::Cqe;
use qpair_abi::entry::Eqe;
use qpair_abi::regs::offset;
use qpair_abi::status::AdminError;
use qpair_abi::status::EnableError;
use qpair_abi::status::Event;
use qpair_abi::Number;

checks![
    a_fatal_function_says_so_and_stops,
    the_last_event_has_a_place_of_its_own,
    an_eq_overrun_is_the_drivers_fault,
    a_turn_ends_where_the_function_stops,
    an_admin_cq_overrun_is_the_drivers_fault,
    rings_of_the_function_that_go_away,
    the_bus_is_taken_away,
    bus_mastering_ends_before_the_mappings_go,
    what_control_does_in_each_state,
    a_command_fails_by_request,
    stops_are_ignored_by_request,
    interrupts_are_lost_and_late_by_request,
    entries_appear_by_request,
    the_core_stalls_by_request,
];

fn status(m: &mut Machine) -> (u32, Option<EnableError>) {
    let status = m.f.reg_read(offset::STATUS);
    (status & 3, EnableError::from_code((status >> 8) as u8))
}

fn a_fatal_function_says_so_and_stops() {
    let mut p = Pair::new();
    p.m.raised();
    p.m.f.go_fatal();
    assert_eq!(status(&mut p.m), (2, Some(EnableError::Injected)));
    assert_eq!(p.m.raised(), [0]);
    p.send(wqe(work::NOP, 1), &[]);
    p.m.arm(&p.cq_a.clone());
    p.m.pass(1_000_000_000);
    assert_eq!(p.done_a(), []);
    let events = p.m.events0();
    assert_eq!(events.len(), 1);
    assert_eq!(events[0].kind, Event::DeviceFatal.code());
    assert_eq!(events[0].code, EnableError::Injected.code());
    p.m.f.reg_write(offset::CTRL, 2);
    p.m.bring_up(6, 4, 5);
    p.m.pd();
}

fn the_last_event_has_a_place_of_its_own() {
    let mut m = Machine::new();
    let (pd, cq) = (m.pd(), m.cq(8));
    for _ in 0..40 {
        let mut qp = m.qp(&Machine::spec(pd, &cq));
        m.connect(qp.number, qp.number);
        m.fail_peer(&mut qp);
    }
    m.f.go_fatal();
    let mut eq = m.eq0;
    let events: Vec<_> = std::iter::from_fn(|| m.event(&mut eq)).collect();
    assert_eq!(events.len(), 16, "the limit");
    assert_eq!(events[15].kind, Event::DeviceFatal.code());
    // Masked before, it is raised when the driver unmasks.
    m.raised();
    m.ring(0, doorbell::EQ_HEAD, Number::ADMIN, 15);
    assert_eq!(m.raised(), [0]);
    m.ring(0, doorbell::EQ_HEAD, Number::ADMIN, 16);
    assert_eq!(m.raised(), []);
}

fn an_eq_overrun_is_the_drivers_fault() {
    let mut m = Machine::new();
    let pd = m.pd();
    let eq = m.eq(1, 1, 0, 0);
    let mut cq = m.cq_of(eq.number, 4, 0, 0);
    let mut qp = m.qp(&Machine::spec(pd, &cq));
    m.connect(qp.number, qp.number);
    for i in 0..3 {
        assert_eq!(status(&mut m).0, 1, "{i}");
        m.arm(&cq);
        m.send(&mut qp, wqe(work::NOP, 1), &[]);
        m.drain(&mut cq);
    }
    assert_eq!(status(&mut m), (2, Some(EnableError::EqOverrun)));
    assert_eq!(m.events0()[0].kind, Event::DeviceFatal.code());
}

fn a_turn_ends_where_the_function_stops() {
    let mut m = Machine::new();
    let eq = m.eq(1, 1, 0, 0);
    let mut cq = m.cq_of(eq.number, 4, 0, 0);
    let mut p = Pair::on(m, |a, _| a.send_cq = cq.number);
    for _ in 0..2 {
        p.m.arm(&cq);
        p.send(wqe(work::NOP, 1), &[]);
        p.m.drain(&mut cq);
    }
    // The event of the first of these finds the EQ full.
    p.m.arm(&cq);
    let (request, sges) = (p.remote(work::WRITE, 0), [p.mr_a.sge(0, 64)]);
    for _ in 0..4 {
        p.m.post(&mut p.a, request, &sges);
    }
    p.m.ring_sq(&p.a);
    p.m.settle();
    assert_eq!(status(&mut p.m), (2, Some(EnableError::EqOverrun)));
    assert_eq!(p.m.query_moved(), 64);
}

fn an_admin_cq_overrun_is_the_drivers_fault() {
    let mut m = Machine::off(qpair_model::Config::default());
    m.bring_up(5, 5, 2);
    let create = Command {
        opcode: opcode(kind::PD, verb::CREATE),
        blocks: 1,
        ..Command::default()
    };
    for _ in 0..5 {
        m.post_command(&Machine::command_words(&create));
    }
    m.settle();
    assert_eq!(status(&mut m), (2, Some(EnableError::AdminCqOverrun)));
}

fn rings_of_the_function_that_go_away() {
    for which in 0..3 {
        let mut m = Machine::new();
        m.memory.set_lenient(true);
        m.f.host_mut().maps = false;
        m.f.unmap_all();
        let (eq, cq) = (m.eq0.ring.addr, m.cq0.ring.addr);
        m.arm(&m.cq0.clone());
        m.memory.revoke([eq, cq, cq - 4096 - 1024][which]);
        m.post_command(&[0; 8]);
        m.settle();
        let (state, cause) = status(&mut m);
        assert_eq!(state, 2, "{which}");
        let expected = [
            EnableError::Dma,
            EnableError::AdminCqOverrun,
            EnableError::Dma,
        ];
        assert_eq!(cause, Some(expected[which]));
    }
}

/// An idle function does not detect it; the first DMA that fails is fatal, and no event can be
/// written.
fn the_bus_is_taken_away() {
    for which in 0..4 {
        let mut p = Pair::new();
        p.m.arm(&p.cq_a.clone());
        p.m.raised();
        p.m.f.host_mut().bus_master = false;
        p.m.f.unmap_all();
        p.m.pass(1_000_000_000);
        assert_eq!(status(&mut p.m), (1, Some(EnableError::None)), "{which}");
        match which {
            0 => p.m.post_command(&[0; 8]),
            1 => p.send(wqe(work::NOP, 1), &[]),
            2 => p.m.ring(3, doorbell::SQ, Number::new(77, 1), 0),
            _ => _ = p.m.f.inject_cqe(p.cq_a.number.index() as u16, [0; 4]),
        }
        p.m.settle();
        assert_eq!(
            status(&mut p.m),
            (2, Some(EnableError::BusMaster)),
            "{which}"
        );
        p.m.f.host_mut().bus_master = true;
        p.m.pass(1_000_000_000);
        assert_eq!(p.m.events0(), [], "no event, and none later");
        assert_eq!(status(&mut p.m), (2, Some(EnableError::BusMaster)));
        p.m.f.reg_write(offset::CTRL, 2);
        p.m.bring_up(6, 4, 5);
        p.m.pd();
    }
}

/// In the host, bus mastering ends before the mappings of memory go. A DMA that fails meanwhile has
/// no completion, though its CQ is still mapped.
fn bus_mastering_ends_before_the_mappings_go() {
    let mut p = Pair::new();
    // The rings are mapped, and the memory of the message is not.
    p.send(wqe(work::NOP, 1), &[]);
    assert_eq!(p.done_a().len(), 1);
    let sge = p.mr_a.sge(0, 64);
    p.m.f.host_mut().bus_master = false;
    p.send(p.remote(work::WRITE, 2), &[sge]);
    assert_eq!(p.done_a(), []);
    assert_eq!(status(&mut p.m), (2, Some(EnableError::BusMaster)));
}

/// STATUS and CTRL after each value written to CTRL.
fn what_control_does_in_each_state() {
    let none = EnableError::None;
    let stopped = (2, Some(EnableError::Injected));
    for (value, off, ready, fatal) in [
        (0, (0, Some(none)), (1, Some(none)), stopped),
        (1, (1, Some(none)), (1, Some(none)), stopped),
        (2, (0, Some(none)), (0, Some(none)), (0, Some(none))),
        (3, (0, Some(none)), (0, Some(none)), (0, Some(none))),
    ] {
        for (state, expected) in [off, ready, fatal].into_iter().enumerate() {
            let mut m = Machine::new();
            if state == 0 {
                let rings: Vec<_> = (0x40..0x5c)
                    .step_by(4)
                    .map(|at| (at, m.f.reg_read(at)))
                    .collect();
                m.f.reg_write(offset::CTRL, 2);
                for (at, value) in rings {
                    m.f.reg_write(at, value);
                }
            } else if state == 2 {
                m.f.go_fatal();
            }
            let before = m.f.reg_read(offset::EQ0_BASE_LO);
            m.f.reg_write(offset::CTRL, value);
            assert_eq!(status(&mut m), expected, "{value} in state {state}");
            assert_eq!(m.f.reg_read(offset::CTRL), expected.0 & 1);
            let kept = if value & 2 == 0 { before } else { 0 };
            assert_eq!(m.f.reg_read(offset::EQ0_BASE_LO), kept);
        }
    }
}

fn a_command_fails_by_request() {
    let mut m = Machine::new();
    m.f.fail_command(2);
    let pd = m.pd();
    let refused = m.destroy(kind::PD, pd);
    assert_eq!(refused, Err(AdminError::Injected));
    m.destroy(kind::PD, pd).unwrap();
    assert_eq!(m.f.counter(Counter::Commands), 3);
}

fn stops_are_ignored_by_request() {
    let mut m = Machine::new();
    m.f.ignore_stops(2);
    assert!(m.f.ignores_stop());
    m.f.reg_write(offset::CTRL, 2);
    assert_eq!(status(&mut m).0, 1, "it was reset");
    assert!(!m.f.ignores_stop());
    m.f.reg_write(offset::CTRL, 2);
    assert_eq!(status(&mut m).0, 0);
}

fn interrupts_are_lost_and_late_by_request() {
    let mut p = Pair::new();
    let event = |p: &mut Pair| {
        p.m.arm(&p.cq_a);
        p.send(wqe(work::NOP, 1), &[]);
        p.done_a();
    };
    p.m.f.drop_interrupts(1);
    event(&mut p);
    assert_eq!(p.m.raised(), []);
    assert_eq!(p.m.events0().len(), 1, "the event was written");
    event(&mut p);
    assert_eq!(p.m.raised(), [0]);
    p.m.events0();
    p.m.f.delay_interrupts(700);
    event(&mut p);
    p.m.pass(699);
    assert_eq!(p.m.raised(), []);
    p.m.pass(1);
    assert_eq!(p.m.raised(), [0]);
    assert_eq!(p.m.f.counter(Counter::Interrupts), 2);
}

fn entries_appear_by_request() {
    let mut p = Pair::new();
    let index = p.cq_a.number.index() as u16;
    assert!(p.m.f.inject_cqe(index, [1, 2, 3, 4]));
    let expected = Cqe::decode(&[1, 2, 3, 4]);
    assert_eq!(p.done_a(), [expected]);
    assert!(p.m.f.inject_eqe(0, [5, 6]));
    assert_eq!(p.m.events0(), [Eqe::decode(&[5, 6])]);
    assert!(!p.m.f.inject_cqe(999, [0; 4]) && !p.m.f.inject_eqe(9, [0; 2]));
    // The rings continue behind the injected entries.
    p.send(wqe(work::NOP, 9), &[]);
    assert_eq!(p.done_a()[0].wr_id, 9);
}

fn the_core_stalls_by_request() {
    let mut p = Pair::new();
    p.m.f.set_stall(true);
    p.send(wqe(work::NOP, 1), &[]);
    p.m.pass(1_000_000);
    assert_eq!(p.done_a(), []);
    p.m.f.set_stall(false);
    p.m.settle();
    assert_eq!(p.done_a().len(), 1);
}
