// SPDX-License-Identifier: GPL-2.0
//! UC: what is delivered, what is dropped, and that a drop harms neither end.

use super::checks;
use crate::harness::*;
use qpair_abi::command::*;
use qpair_abi::counters::Counter;
use qpair_abi::doorbell;
use qpair_abi::entry::opcode as work;
use qpair_abi::entry::*;
use qpair_abi::status::Detail;
use qpair_abi::status::Status;
use qpair_abi::Number;

checks![
    messages_are_those_of_a_connection,
    a_drop_is_a_success_of_the_sender,
    a_receive_that_is_too_short_stays,
    an_invalid_receive_fails_only_its_queue_pair,
    faults_of_the_sender_are_its_own,
    operations_that_need_an_answer_are_refused,
    connected_services_do_not_mix,
    attributes_are_those_of_the_service,
    a_long_message_to_a_peer_that_goes,
    a_queue_pair_to_itself,
    drops_are_not_a_way_around_turns,
];

fn pair() -> Pair {
    Pair::with(|a, b| (a.service, b.service) = (service::UC, service::UC))
}

fn dropped(p: &Pair) -> u64 {
    p.m.f.counter(Counter::Dropped)
}

/// Checks that a message is dropped: success, and nothing at the peer.
fn is_dropped(wqe: SendWqe, sges: &[Sge], p: &mut Pair) {
    let before = dropped(p);
    p.send(wqe, sges);
    let cqes = p.done_a();
    assert_eq!(cqes.len(), 1, "{wqe:?}");
    assert_eq!((cqes[0].status, cqes[0].bytes), (0, 0), "{wqe:?}");
    assert_eq!(dropped(p), before + 1);
    assert_eq!(p.state(p.a.number), qp_state::RTS);
    assert_eq!(p.done_b(), []);
}

/// Checks that a message arrives, in the receive `id`.
fn arrives(p: &mut Pair, id: u64) {
    p.m.memory.set_bytes(p.mr_a.addr, b"message");
    p.send(wqe(work::SEND, 3), &[p.mr_a.sge(0, 7)]);
    assert_eq!(p.done_a()[0].status, 0);
    let cqes = p.done_b();
    assert_eq!((cqes.len(), cqes[0].wr_id, cqes[0].bytes), (1, id, 7));
    assert_eq!(cqes[0].status, 0);
}

fn messages_are_those_of_a_connection() {
    let mut p = pair();
    let data = pattern(300_000, 2);
    p.m.memory.set_bytes(p.mr_a.addr, &data);
    for id in 0..3 {
        p.recv(id, &[p.mr_b.sge(0, 400_000)]);
    }
    let imm = |wqe| SendWqe { imm: 77, ..wqe };
    let requests = [
        wqe(work::SEND, 1),
        imm(wqe(work::SEND_IMM, 2)),
        p.remote(work::WRITE, 500_000),
        imm(p.remote(work::WRITE_IMM, 400_000)),
        wqe(work::NOP, 3),
    ];
    for request in requests {
        p.send(request, &[p.mr_a.sge(0, 300_000)]);
        let done = p.done_a();
        assert_eq!((done.len(), done[0].status, done[0].bytes), (1, 0, 0));
        let at = match request.opcode {
            work::WRITE => 500_000,
            work::WRITE_IMM => 400_000,
            _ => 0,
        };
        assert_eq!(p.m.memory.bytes(p.mr_b.addr + at, 300_000), data);
    }
    let seen: Vec<_> = p
        .done_b()
        .iter()
        .map(|cqe| (cqe.opcode, cqe.imm, cqe.bytes, cqe.src))
        .collect();
    let expected = [
        (work::RECV, 0, 300_000, 0),
        (work::RECV, 77, 300_000, 0),
        (work::RECV_WRITE_IMM, 77, 300_000, 0),
    ];
    assert_eq!((seen, dropped(&p)), (expected.to_vec(), 0));
}

fn a_drop_is_a_success_of_the_sender() {
    let mut p = pair();
    let sge = [p.mr_a.sge(0, 8)];
    p.m.memory.set_word(p.mr_a.addr, u64::MAX);
    // No receive: at once, also for a message without bytes.
    is_dropped(wqe(work::SEND, 1), &sge, &mut p);
    is_dropped(wqe(work::SEND_IMM, 1), &[], &mut p);
    is_dropped(p.remote(work::WRITE_IMM, 0), &sge, &mut p);
    assert_eq!(p.m.memory.word(p.mr_b.addr), 0, "nothing of it is written");
    p.recv(5, &[p.mr_b.sge(100, 100)]);
    let weak = p.m.mr_at(p.pd_b, p.mr_b.va, 1 << 20, access::LOCAL_WRITE);
    for opcode in [work::WRITE, work::WRITE_IMM] {
        let good = p.remote(opcode, 0);
        let cases = [
            SendWqe { rkey: 0, ..good },
            SendWqe {
                rkey: p.mr_b.key.next().raw(),
                ..good
            },
            SendWqe {
                rkey: p.mr_a.key.raw(),
                ..good
            },
            SendWqe {
                rkey: weak.key.raw(),
                ..good
            },
            SendWqe {
                remote_addr: good.remote_addr - 1,
                ..good
            },
            SendWqe {
                remote_addr: good.remote_addr + (1 << 20) - 7,
                ..good
            },
        ];
        for wqe in cases {
            is_dropped(wqe, &sge, &mut p);
        }
    }
    let stale = p.m.f.counter(Counter::Stale);
    assert_eq!(stale, 2, "the keys of another generation");
    // The queue pair does not permit WRITEs.
    let (b, none) = (p.b.number, QpContext::default());
    p.m.modify(b, qp_mask::ACCESS, &none).unwrap();
    is_dropped(p.remote(work::WRITE, 0), &sge, &mut p);
    assert_eq!(p.m.memory.word(p.mr_b.addr), 0);
    assert!(p.m.events0().is_empty(), "no drop is an event");
    assert_eq!(p.m.f.counter(Counter::WriteBytes), 0);
    arrives(&mut p, 5);
    // A peer that is not ready, or gone.
    for state in [qp_state::ERROR, qp_state::RESET, qp_state::INIT] {
        p.m.set_state(b, state).unwrap();
        is_dropped(wqe(work::SEND, 1), &sge, &mut p);
    }
    p.m.destroy(kind::QP, b).unwrap();
    is_dropped(p.remote(work::WRITE, 0), &sge, &mut p);
    assert!(p.m.events0().is_empty());
}

fn a_receive_that_is_too_short_stays() {
    let mut p = pair();
    p.recv(5, &[p.mr_b.sge(0, 4), p.mr_b.sge(100, 3)]);
    for bytes in [8, 9, 100_000] {
        is_dropped(wqe(work::SEND, 1), &[p.mr_a.sge(0, bytes)], &mut p);
    }
    arrives(&mut p, 5);
    assert_eq!(p.m.memory.bytes(p.mr_b.addr, 5), b"mess\0");
    assert_eq!(p.m.memory.bytes(p.mr_b.addr + 100, 4), b"age\0");
}

fn an_invalid_receive_fails_only_its_queue_pair() {
    for case in 0..5 {
        let mut p = pair();
        let read_only = p.m.mr_at(p.pd_b, 0, 4096, 0);
        let into = match case {
            0 => p.mr_a.sge(0, 100),
            1 => read_only.sge(0, 100),
            _ => p.mr_b.sge(0, 100),
        };
        // The message begins in memory that is good.
        p.m.post_recv(&mut p.b, 5, &[p.mr_b.sge(0, 4), into]);
        match case {
            2 => p.m.memory.set_word(p.b.rq, 1 << 8),
            3 => p.m.memory.set_word(p.b.rq, 99),
            4 => {
                p.m.memory.set_lenient(true);
                p.m.memory.revoke(p.mr_b.addr);
            }
            _ => {}
        }
        p.m.ring(0, doorbell::RQ, p.b.number, p.b.rq_tail);
        p.send(wqe(work::SEND, 1), &[p.mr_a.sge(0, 8)]);
        let (status, detail) = [
            (Status::LocalProtection, Detail::Domain),
            (Status::LocalProtection, Detail::Rights),
            (Status::LocalQpOperation, Detail::Flags),
            (Status::LocalQpOperation, Detail::Sges),
            (Status::LocalProtection, Detail::Dma),
        ][case];
        assert_eq!(p.done_a()[0].status, 0);
        let cqes = p.done_b();
        assert_eq!((cqes.len(), cqes[0].wr_id), (1, 5));
        assert_eq!(outcome(&cqes[0]), (status, detail));
        assert_eq!(p.state(p.b.number), qp_state::ERROR);
        assert_eq!((p.state(p.a.number), dropped(&p)), (qp_state::RTS, 1));
        assert_eq!(p.m.events0(), [], "the completion reports it");
    }
}

/// Checks that a request fails its queue pair, and nothing else.
fn fails(mut p: Pair, wqe: SendWqe, sges: &[Sge], expected: (Status, Detail)) {
    p.recv(5, &[p.mr_b.sge(0, 100)]);
    p.send(wqe, sges);
    let cqes = p.done_a();
    assert_eq!(cqes.len(), 1);
    assert_eq!(outcome(&cqes[0]), expected, "{wqe:?}");
    assert_eq!(p.state(p.a.number), qp_state::ERROR);
    assert_eq!((p.state(p.b.number), dropped(&p)), (qp_state::RTS, 0));
    assert_eq!((p.done_b(), p.m.events0()), (vec![], vec![]));
}

fn faults_of_the_sender_are_its_own() {
    let p = pair();
    let sge = p.mr_b.sge(0, 8);
    let expected = (Status::LocalProtection, Detail::Domain);
    fails(p, wqe(work::SEND, 1), &[sge], expected);
    let p = pair();
    let sge = p.mr_a.sge(0, u32::MAX);
    let expected = (Status::LocalLength, Detail::Message);
    fails(p, wqe(work::SEND, 1), &[sge], expected);
    let p = pair();
    let write = SendWqe {
        flags: 0x80,
        ..p.remote(work::WRITE, 0)
    };
    let expected = (Status::LocalQpOperation, Detail::Flags);
    fails(p, write, &[], expected);
    let mut p = pair();
    let gone = p.m.mr_at(p.pd_a, 0, 4096, 0);
    p.m.memory.set_lenient(true);
    p.m.memory.revoke(gone.addr);
    let expected = (Status::LocalProtection, Detail::Dma);
    fails(p, wqe(work::SEND, 1), &[gone.sge(0, 8)], expected);
}

fn operations_that_need_an_answer_are_refused() {
    for opcode in [work::READ, work::COMPARE_SWAP, work::FETCH_ADD, 8] {
        let p = pair();
        let (request, sge) = (p.remote(opcode, 0), p.mr_a.sge(0, 8));
        let expected = (Status::LocalQpOperation, Detail::Opcode);
        fails(p, request, &[sge], expected);
    }
}

fn connected_services_do_not_mix() {
    let mut p = Pair::with(|a, _| a.service = service::UC);
    p.recv(5, &[p.mr_b.sge(0, 100)]);
    is_dropped(wqe(work::SEND, 1), &[], &mut p);
    is_dropped(p.remote(work::WRITE, 0), &[p.mr_a.sge(0, 8)], &mut p);
    assert_eq!(p.m.memory.word(p.mr_b.addr), 0);
    let mut p = Pair::with(|_, b| b.service = service::UC);
    p.recv(5, &[p.mr_b.sge(0, 100)]);
    p.send(p.remote(work::READ, 0), &[p.mr_a.sge(0, 8)]);
    p.m.pass(100_000_000);
    let expected = (Status::RetryExceeded, Detail::NotNamed);
    assert_eq!(outcome(&p.done_a()[0]), expected);
    assert_eq!((p.done_b(), p.state(p.b.number)), (vec![], qp_state::RTS));
}

fn attributes_are_those_of_the_service() {
    let mut m = Machine::new();
    let (pd, cq) = (m.pd(), m.cq(4));
    let spec = QpSpec {
        service: service::UC,
        ..Machine::spec(pd, &cq)
    };
    let good = m.qp_context(&spec);
    let cases = [
        QpContext { service: 3, ..good },
        QpContext { retry: 1, ..good },
        QpContext {
            rnr_retry: 7,
            ..good
        },
        QpContext { gid: 1, ..good },
        QpContext {
            gid_high: 1,
            ..good
        },
    ];
    let qp = m.has_only(&good, &cases, &[qp_mask::RETRY]);
    let context = QpContext {
        peer: Number::from_raw(0x2_0003),
        access: access::REMOTE_WRITE,
        state: qp_state::RTR,
        ..QpContext::default()
    };
    let mask = qp_mask::STATE | qp_mask::PEER | qp_mask::ACCESS;
    m.modify(qp, mask, &context).unwrap();
    let is = m.query_qp(qp);
    assert_eq!((is.service, is.peer), (service::UC, context.peer));
    assert_eq!(is.access, access::REMOTE_WRITE);
}

fn a_long_message_to_a_peer_that_goes() {
    for (opcode, state) in [
        (work::SEND, qp_state::ERROR),
        (work::WRITE, qp_state::RESET),
        (work::WRITE_IMM, qp_state::ERROR),
    ] {
        let mut p = pair();
        p.recv(5, &[p.mr_b.sge(0, 400_000)]);
        let mut a = p.a;
        let long = p.remote(opcode, 0);
        p.m.post(&mut a, long, &[p.mr_a.sge(0, 400_000)]);
        p.m.post(&mut a, wqe(work::NOP, 9), &[]);
        p.m.ring_sq(&a);
        p.m.f.run(1);
        assert_eq!(p.done_a(), [], "it takes many turns");
        p.m.set_state_now(p.b.number, state);
        p.m.settle();
        let done: Vec<_> = p
            .done_a()
            .iter()
            .map(|cqe| (cqe.wr_id, cqe.status))
            .collect();
        assert_eq!(done, [(1, 0), (9, 0)]);
        assert_eq!((dropped(&p), p.state(p.a.number)), (1, qp_state::RTS));
        let flushed = p.done_b();
        assert_eq!(flushed.len(), usize::from(state == qp_state::ERROR));
        assert!(flushed.iter().all(|cqe| outcome(cqe).0 == Status::Flush));
    }
}

fn a_queue_pair_to_itself() {
    let mut m = Machine::new();
    let (pd, mut cq) = (m.pd(), m.cq(4));
    let spec = QpSpec {
        service: service::UC,
        ..Machine::spec(pd, &cq)
    };
    let mut qp = m.qp(&spec);
    m.connect(qp.number, qp.number);
    // The receive fails, and so does what is behind the message.
    m.recv(
        &mut qp,
        5,
        &[Sge {
            bytes: 8,
            ..Sge::default()
        }],
    );
    let mr = m.mr(pd, 4096);
    m.post(&mut qp, wqe(work::SEND, 1), &[mr.sge(0, 8)]);
    m.post(&mut qp, wqe(work::NOP, 2), &[]);
    m.ring_sq(&qp);
    m.settle();
    failed_by_itself(&m.drain(&mut cq));
}

fn drops_are_not_a_way_around_turns() {
    let config = qpair_model::Config {
        turn_wqes: 4,
        ..Default::default()
    };
    let mut p = Pair::on(Machine::with(config), |a, b| {
        (a.service, b.service) = (service::UC, service::UC);
    });
    let mut a = p.a;
    for id in 0..12 {
        p.m.post(&mut a, wqe(work::SEND, id), &[]);
    }
    let before = p.m.f.counter(Counter::Turns);
    p.m.ring_sq(&a);
    p.m.settle();
    assert_eq!(p.m.f.counter(Counter::Turns) - before, 3);
    let done: Vec<_> = p.done_a().iter().map(|cqe| cqe.wr_id).collect();
    assert_eq!((done, dropped(&p)), ((0..12).collect(), 12));
}
