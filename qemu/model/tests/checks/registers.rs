// SPDX-License-Identifier: GPL-2.0
//! Registers, bring-up and reset.

use super::checks;
use crate::harness::*;
use qpair_abi::command::kind;
use qpair_abi::command::qp_state;
use qpair_abi::command::EqContext;
use qpair_abi::counters::Counter;
use qpair_abi::doorbell;
use qpair_abi::entry::opcode;
use qpair_abi::entry::Cqe;
use qpair_abi::entry::Eqe;
use qpair_abi::regs;
use qpair_abi::regs::offset;
use qpair_abi::status::EnableError;
use qpair_abi::status::Event;
use qpair_abi::status::Status;
use qpair_abi::Number;
use qpair_model::Config;

checks![
    limits_are_told,
    enabling_is_refused_with_a_cause,
    the_first_queues_are_as_deep_as_the_registers_say,
    registers_keep_still_while_enabled,
    reset_returns_to_power_on,
    reset_forgets_the_work_that_waited,
    a_gone_function_reads_as_ones,
    a_gone_function_comes_back_with_its_timers,
    a_stopped_machine_is_left_alone,
    a_stopped_machine_has_no_event,
    properties_have_ranges,
];

fn limits_are_told() {
    let config = Config {
        qps: 17,
        cqs: 18,
        eqs: 19,
        mrs: 20,
        pds: 21,
        pages: 22,
        groups: 23,
        group_members: 24,
        srqs: 25,
        frmrs: 26,
        async_events: 5,
        ..Config::default()
    };
    let mut m = Machine::off(config);
    let read = |m: &mut Machine, at| m.f.reg_read(at);
    assert_eq!(read(&mut m, offset::MAGIC), regs::MAGIC_VALUE);
    assert_eq!(read(&mut m, offset::VERSION), 2 << 16);
    assert_eq!(read(&mut m, offset::CTRL), 0);
    assert_eq!(read(&mut m, offset::STATUS), 1 << 3);
    let counts = [
        (offset::LIMIT_QP, 17),
        (offset::LIMIT_CQ, 18),
        (offset::LIMIT_EQ, 19),
        (offset::LIMIT_MR, 20),
        (offset::LIMIT_PD, 21),
        (offset::LIMIT_SRQ, 25),
        (offset::LIMIT_PAGE, 22),
        (offset::LIMIT_ASYNC, 5),
        (offset::LIMIT_RING, 15 << 24 | 17 << 16 | 15 << 8 | 15),
        (offset::LIMIT_WQE, 224 << 16 | 15 << 8 | 14),
        (offset::LIMIT_MESSAGE, 1 << 30),
        (offset::LIMIT_REGION, 30 << 16 | 12 << 8 | 36),
        (offset::LIMIT_MW, 1024),
        (offset::LIMIT_GROUP, 24 << 16 | 23),
        (offset::LIMIT_FRMR, 26),
        (0x60, 0),
        (0xffc, 0),
    ];
    for (at, value) in counts {
        assert_eq!(read(&mut m, at), value, "{at:#x}");
        m.f.reg_write(at, 0xffff_ffff);
        assert_eq!(read(&mut m, at), value, "{at:#x} cannot be written");
    }
}

fn cause(m: &mut Machine) -> (u32, Option<EnableError>) {
    let status = m.f.reg_read(offset::STATUS);
    (status & 3, EnableError::from_code((status >> 8) as u8))
}

fn enabling_is_refused_with_a_cause() {
    let mut m = Machine::off(Config::default());
    let ring = m.memory.alloc(4096, 4096, Grant::Write);
    let enable = |m: &mut Machine, addr: [u64; 3], depth: u32| {
        m.reg_write64(offset::EQ0_BASE_LO, addr[0]);
        m.reg_write64(offset::ASQ_BASE_LO, addr[1]);
        m.reg_write64(offset::ACQ_BASE_LO, addr[2]);
        m.f.reg_write(offset::ADMIN_DEPTH, depth);
        m.f.reg_write(offset::CTRL, 1);
        cause(m)
    };
    let good = [ring, ring + 1024, ring + 2048];
    for depth in [3, 16, 31, 4 | 16 << 8, 4 | 18 << 16] {
        let refused = enable(&mut m, good, depth);
        assert_eq!(refused, (0, Some(EnableError::Depth)), "{depth:#x}");
    }
    for which in 0..3 {
        let mut addr = good;
        addr[which] += 8;
        let refused = enable(&mut m, addr, 4);
        assert_eq!(refused, (0, Some(EnableError::Alignment)));
    }
    m.f.host_mut().bus_master = false;
    assert_eq!(enable(&mut m, good, 4), (0, Some(EnableError::BusMaster)));
    m.f.host_mut().bus_master = true;
    m.memory.set_lenient(true);
    for bad in [[0, good[1], good[2]], [good[0], !63, good[2]]] {
        assert_eq!(enable(&mut m, bad, 4), (0, Some(EnableError::Dma)));
    }
    // The end of a ring must be readable as well.
    let long = 4 | 7 << 16;
    assert_eq!(enable(&mut m, good, long), (0, Some(EnableError::Dma)));
    assert_eq!(enable(&mut m, good, 4), (1, Some(EnableError::None)));
    assert_eq!(m.f.reg_read(offset::CTRL), 1);
}

fn the_first_queues_are_as_deep_as_the_registers_say() {
    let mut m = Machine::off(Config::default());
    m.bring_up(7, 4, 5);
    let eq = EqContext::decode(&m.query(kind::EQ, Number::ADMIN));
    let qp = m.query_qp(Number::ADMIN);
    let cq = m.query_cq(Number::ADMIN);
    let depths = [eq.log_depth, qp.log_sq, cq.log_depth];
    assert_eq!(depths, [7, 4, 5]);
}

fn registers_keep_still_while_enabled() {
    let mut m = Machine::new();
    let before: Vec<_> = regs_of(&mut m);
    for (_, at) in offset::ALL.iter().filter(|(name, _)| *name != "CTRL") {
        m.f.reg_write(*at, 0x5555_5555);
    }
    m.f.reg_write(offset::CTRL, 1);
    m.f.reg_write(offset::CTRL, 0);
    assert_eq!(regs_of(&mut m), before);
    m.pd();
}

fn regs_of(m: &mut Machine) -> Vec<u32> {
    let offsets = offset::ALL.iter();
    offsets.map(|(_, at)| m.f.reg_read(*at)).collect()
}

fn reset_returns_to_power_on() {
    let mut fresh = Machine::off(Config::default());
    let power_on = regs_of(&mut fresh);
    let mut p = Pair::new();
    p.recv(1, &[p.mr_b.sge(0, 100)]);
    p.send(
        wqe(qpair_abi::entry::opcode::SEND, 2),
        &[p.mr_a.sge(0, 100)],
    );
    assert_eq!((p.done_a().len(), p.done_b().len()), (1, 1));
    assert!(p.m.memory.live_maps() > 4);
    p.m.f.reg_write(offset::CTRL, 2);
    assert_eq!(regs_of(&mut p.m), power_on);
    assert_eq!(p.m.memory.live_maps(), 0, "no memory stays mapped");
    assert_eq!(p.m.f.host().wake_at, u64::MAX);
    assert!(p.m.f.counters().iter().all(|count| *count == 0));
    // Only registers work.
    p.m.ring_sq(&p.a.clone());
    p.m.settle();
    assert_eq!(p.m.f.counter(Counter::SqDoorbells), 0);
    p.m.bring_up(5, 3, 3);
    let pd = p.m.pd();
    let cq = p.m.cq(2);
    let qp = p.m.qp(&Machine::spec(pd, &cq));
    assert_eq!(qp.number.index(), 1);
}

fn reset_forgets_the_work_that_waited() {
    let mut p = Pair::new();
    p.m.f.set_stall(true);
    let (mut a, sge) = (p.a, p.mr_a.sge(0, 64));
    p.m.post(&mut a, p.remote(opcode::WRITE, 0), &[sge]);
    p.m.ring_sq(&a);
    p.m.f.reset();
    p.m.memory.revoke(p.a.sq);
    p.m.memory.revoke(p.mr_a.addr);
    p.m.f.set_stall(false);
    p.m.pass(1_000_000_000);
}

fn a_gone_function_reads_as_ones() {
    let mut p = Pair::new();
    p.m.f.set_vanish(true);
    for at in (0..0x1000).step_by(4) {
        assert_eq!(p.m.f.reg_read(at), u32::MAX);
    }
    let before = *p.m.f.counters();
    p.send(wqe(0, 1), &[]);
    p.m.f.reg_write(offset::CTRL, 2);
    assert_eq!(p.done_a(), []);
    assert_eq!(*p.m.f.counters(), before);
    assert!(!p.m.f.inject_eqe(0, [0; 2]) && !p.m.f.inject_cqe(0, [0; 4]));
    p.m.f.set_vanish(false);
    assert_eq!(
        p.m.f.reg_read(offset::STATUS) & 1,
        1,
        "the state is unchanged"
    );
}

/// The calls that it has asked for come while it is gone.
fn a_gone_function_comes_back_with_its_timers() {
    // A retry.
    let mut p = Pair::with(|a, _| a.retry = 1);
    p.m.set_state(p.b.number, qp_state::ERROR).unwrap();
    p.send(wqe(0, 1), &[]);
    p.send(wqe(opcode::SEND, 2), &[]);
    p.m.f.set_vanish(true);
    p.m.pass(1_000_000_000);
    p.m.f.set_vanish(false);
    p.m.settle();
    let ids: Vec<_> = p.done_a().iter().map(|cqe| cqe.wr_id).collect();
    assert_eq!(ids, [1, 2]);
    // A moderated interrupt.
    let mut m = Machine::new();
    let eq = m.eq(4, 1, 8, 100);
    let (pd, cq) = (m.pd(), m.cq_of(eq.number, 4, 0, 0));
    let spec = Machine::spec(pd, &cq);
    let (mut a, _) = m.pair(&spec, &spec);
    m.arm(&cq);
    m.send(&mut a, wqe(0, 1), &[]);
    m.raised();
    m.f.set_vanish(true);
    m.pass(1_000_000);
    m.f.set_vanish(false);
    m.settle();
    assert_eq!(m.raised(), [1]);
}

/// Doorbells and times that are due do nothing until the machine goes on.
fn a_stopped_machine_is_left_alone() {
    let inline = Config {
        inline: true,
        ..Config::default()
    };
    for config in [Config::default(), inline] {
        let mut p = Pair::on(Machine::with(config), |a, _| a.retry = 1);
        p.m.set_state(p.b.number, qp_state::ERROR).unwrap();
        p.send(wqe(opcode::SEND, 2), &[]);
        p.m.f.set_halted(true);
        p.send(wqe(0, 3), &[]);
        let (mut b, nop) = (p.b, wqe(0, 1));
        p.m.send(&mut b, nop, &[]);
        p.m.pass(1_000_000_000);
        assert_eq!((p.done_a(), p.done_b()), (vec![], vec![]));
        p.m.f.set_halted(false);
        p.m.settle();
        let ids = |cqes: Vec<Cqe>| cqes.iter().map(|cqe| cqe.wr_id).collect::<Vec<_>>();
        assert_eq!((ids(p.done_a()), ids(p.done_b())), (vec![2, 3], vec![1]));
    }
}

/// Nor is it written to, or interrupted, for an arm, an event or a fault that a test injects.
fn a_stopped_machine_has_no_event() {
    let mut p = Pair::with(|a, _| a.retry = 7);
    p.m.f.set_faults("drop-ack").unwrap();
    p.send(p.remote(opcode::WRITE, 0), &[p.mr_a.sge(0, 8)]);
    let mut b = p.b;
    p.m.send(&mut b, wqe(0, 1), &[]);
    p.m.raised();
    p.m.memory.keep_done();
    p.m.f.set_halted(true);
    // An entry is there, so it has an event at once.
    p.m.arm(&p.cq_b);
    p.m.f.set_link_down(true);
    let words = Eqe {
        kind: 77,
        ..Eqe::default()
    };
    assert!(p.m.f.inject_eqe(0, words.encode()));
    assert!(p.m.f.inject_cqe(p.cq_b.number.index() as u16, [9; 4]));
    p.m.f.set_faults("").unwrap();
    p.m.ring(0, doorbell::EQ_HEAD, p.m.eq0.number, p.m.eq0.ring.head);
    p.m.pass(1_000_000_000);
    assert_eq!(p.m.memory.take_done(), []);
    p.m.f.set_vanish(true);
    p.m.f.set_halted(false);
    assert_eq!(p.m.memory.take_done(), []);
    p.m.f.set_vanish(false);
    assert_eq!(p.m.raised(), [0]);
    let kinds: Vec<_> = p.m.events0().iter().map(|event| event.kind).collect();
    let (armed, down) = (Event::Completion.code(), Event::LinkDown.code());
    assert_eq!(kinds, [armed, down, 77]);
    assert_eq!(p.done_b().len(), 2);
    assert_eq!(p.done_a()[0].status, Status::RetryExceeded.code());
    // A reset drops what waits.
    p.m.f.set_halted(true);
    assert!(p.m.f.inject_eqe(0, words.encode()));
    assert!(p.m.f.inject_cqe(0, [9; 4]));
    p.m.f.reg_write(offset::CTRL, 2);
    p.m.f.set_halted(false);
    p.m.bring_up(6, 4, 5);
    p.m.memory.take_done();
    p.m.f.set_halted(false);
    assert_eq!(p.m.memory.take_done(), []);
}

fn properties_have_ranges() {
    let bad = [
        Config {
            qps: 0,
            ..Config::default()
        },
        Config {
            qps: 65537,
            ..Config::default()
        },
        Config {
            eqs: 2049,
            ..Config::default()
        },
        Config {
            min_page_shift: 13,
            max_page_shift: 12,
            ..Config::default()
        },
        Config {
            async_events: 1,
            ..Config::default()
        },
        Config {
            send_sges: 15,
            ..Config::default()
        },
        Config {
            retry_ns: 0,
            ..Config::default()
        },
    ];
    for config in bad {
        let refused = config.check().unwrap_err();
        assert!(refused.to_string().contains("must be from"));
    }
    Config::default().check().unwrap();
}
