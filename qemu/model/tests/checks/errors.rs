// SPDX-License-Identifier: GPL-2.0
//! Every status of a work request, and its effect on both queue pairs.

use super::checks;
use crate::harness::*;
use qpair_abi::command::access;
use qpair_abi::command::qp_state;
use qpair_abi::counters::Counter;
use qpair_abi::entry::*;
use qpair_abi::status::Detail;
use qpair_abi::status::Event;
use qpair_abi::status::Status;
use qpair_abi::Number;

checks![
    a_wqe_that_makes_no_sense,
    blocks_that_make_no_sense_end_the_queue,
    a_message_may_be_too_long,
    local_memory_is_checked,
    remote_memory_is_checked,
    a_peer_allows_only_what_it_said,
    a_receive_may_be_too_short,
    a_receive_may_make_no_sense,
    a_receives_memory_is_checked,
    a_write_with_immediate_fails_its_receive,
    what_is_behind_an_error_is_flushed,
    memory_that_goes_away,
    rings_that_go_away,
    an_unsignaled_request_that_fails_completes,
    what_no_completion_reports_has_an_event,
];

/// Status and detail of the failed request. Checks that its queue pair is in ERROR, without an event.
fn failed(p: &mut Pair) -> (Status, Detail) {
    let cqes = p.done_a();
    assert_eq!(cqes.len(), 1);
    assert_eq!(p.state(p.a.number), qp_state::ERROR);
    let a = p.a.number;
    let of_a = p.m.events0().iter().any(|event| event.number == a);
    assert!(!of_a, "the completion reports it");
    outcome(&cqes[0])
}

/// The status of the peer's receive, if it failed.
fn peer(p: &mut Pair) -> Option<(Status, Detail)> {
    let cqes = p.done_b();
    assert!(cqes.len() <= 1);
    let stopped = p.state(p.b.number) == qp_state::ERROR;
    assert!(stopped || cqes.is_empty());
    cqes.first().map(outcome)
}

fn a_wqe_that_makes_no_sense() {
    let nop = wqe(opcode::NOP, 1);
    let with = |opcode, flags| SendWqe {
        opcode,
        flags,
        ..nop
    };
    let inline = |bytes| SendWqe {
        opcode: opcode::WRITE,
        flags: send_flags::INLINE,
        inline_bytes: bytes,
        blocks: 1,
        ..nop
    };
    let cases = [
        (with(0x7f, 0), 0, Detail::Opcode),
        (with(opcode::RECV, 0), 0, Detail::Opcode),
        (with(opcode::NOP, 0x10), 0, Detail::Flags),
        (with(opcode::SEND, 0x80), 0, Detail::Flags),
        (with(opcode::READ, send_flags::INLINE), 0, Detail::Flags),
        (with(opcode::NOP, send_flags::INLINE), 0, Detail::Flags),
        (with(opcode::WRITE, send_flags::SOLICITED), 0, Detail::Flags),
        (inline(33), 0, Detail::Inline),
        (inline(u32::MAX), 0, Detail::Inline),
        (
            SendWqe {
                inline_bytes: 1,
                ..with(opcode::WRITE, 0)
            },
            0,
            Detail::Inline,
        ),
        (inline(8), 1, Detail::Sges),
        (
            SendWqe {
                blocks: 1,
                ..with(opcode::SEND, 0)
            },
            3,
            Detail::Sges,
        ),
    ];
    for (wqe, sges, detail) in cases {
        let mut p = Pair::new();
        let sges = vec![p.mr_a.sge(0, 1); sges];
        let mut words = wqe_words(wqe, &sges);
        words.truncate(8);
        p.m.post_words(&mut p.a, &words);
        p.m.ring_sq(&p.a);
        p.m.settle();
        let got = failed(&mut p);
        assert_eq!(got, (Status::LocalQpOperation, detail), "{wqe:?}");
        assert_eq!(peer(&mut p), None);
    }
    // 4 blocks hold 14 SGEs, and the limit may be lower.
    let config = qpair_model::Config {
        send_sges: 2,
        inline_bytes: 10,
        ..Default::default()
    };
    let mut p = Pair::on(Machine::with(config.clone()), |_, _| {});
    let sges = [p.mr_a.sge(0, 1); 3];
    p.send(p.remote(opcode::WRITE, 0), &sges);
    assert_eq!(failed(&mut p).1, Detail::Sges);
    let mut p = Pair::on(Machine::with(config), |_, _| {});
    let words = inline_words(p.remote(opcode::WRITE, 0), &[0; 11]);
    p.m.post_words(&mut p.a, &words);
    p.m.ring_sq(&p.a);
    p.m.settle();
    assert_eq!(failed(&mut p).1, Detail::Inline);
}

fn blocks_that_make_no_sense_end_the_queue() {
    for (blocks, posted) in [(0, 1), (5, 8), (255, 3), (2, 1), (4, 3)] {
        let mut p = Pair::new();
        let bad = SendWqe {
            blocks,
            ..wqe(opcode::NOP, 5)
        };
        p.m.post_words(&mut p.a, &bad.encode());
        p.a.sq_tail = posted;
        p.m.ring_sq(&p.a);
        p.m.settle();
        let cqes = p.done_a();
        assert_eq!(cqes.len(), 1, "the next WQE cannot be found");
        let expected = (Status::LocalQpOperation, Detail::Blocks);
        assert_eq!(outcome(&cqes[0]), expected);
        assert_eq!((cqes[0].wr_id, cqes[0].index), (5, posted));
    }
}

fn a_message_may_be_too_long() {
    let config = qpair_model::Config {
        message_bytes: 10_000,
        ..Default::default()
    };
    let mut p = Pair::on(Machine::with(config), |_, _| {});
    p.send(p.remote(opcode::WRITE, 0), &[p.mr_a.sge(0, 10_000)]);
    assert_eq!(outcome(&p.done_a()[0]).0, Status::Success);
    let sges = [p.mr_a.sge(0, 10_000), p.mr_a.sge(0, 1)];
    p.send(p.remote(opcode::WRITE, 0), &sges);
    assert_eq!(failed(&mut p), (Status::LocalLength, Detail::Message));
    // A sum that overflows 32 bits does not evade the check.
    let mut p = Pair::new();
    let sges = [p.mr_a.sge(0, u32::MAX), p.mr_a.sge(0, 2)];
    p.send(p.remote(opcode::WRITE, 0), &sges);
    assert_eq!(failed(&mut p), (Status::LocalLength, Detail::Message));
}

fn local_memory_is_checked() {
    let mut p = Pair::new();
    let read_only = p.m.mr_at(p.pd_a, 0, 4096, 0);
    let other = p.m.mr_at(p.pd_b, 0, 4096, access::ALL);
    let key = |key: Number| Sge {
        addr: 0,
        bytes: 8,
        lkey: key.raw(),
    };
    let wrong = read_only.key.next();
    let cases = [
        (opcode::WRITE, key(Number::from_raw(0)), Detail::Key),
        (opcode::WRITE, key(Number::from_raw(u32::MAX)), Detail::Key),
        (opcode::WRITE, key(wrong), Detail::Key),
        (opcode::WRITE, key(other.key), Detail::Domain),
        (opcode::WRITE, read_only.sge(0, 4097), Detail::Range),
        (opcode::WRITE, read_only.sge(4096, 1), Detail::Range),
        (opcode::WRITE, read_only.sge(u64::MAX, 2), Detail::Range),
        (opcode::SEND, read_only.sge(u64::MAX - 7, 8), Detail::Range),
        (opcode::READ, key(read_only.key), Detail::Rights),
    ];
    drop(p);
    for (opcode, sge, detail) in cases {
        let mut p = Pair::new();
        p.m.mr_at(p.pd_a, 0, 4096, 0);
        p.m.mr_at(p.pd_b, 0, 4096, access::ALL);
        let good = p.mr_a.sge(0, 8);
        p.m.memory.set_bytes(p.mr_a.addr, &[0xa5; 64]);
        p.recv(1, &[p.mr_b.sge(0, 100)]);
        p.send(p.remote(opcode, 0), &[good, sge]);
        let got = failed(&mut p);
        assert_eq!(got, (Status::LocalProtection, detail), "{sge:?}");
        assert_eq!(peer(&mut p), None, "its receive is not consumed");
        assert_eq!(p.m.memory.word(p.mr_b.addr), 0, "its memory is not written");
    }
}

fn remote_memory_is_checked() {
    for opcode in [opcode::WRITE, opcode::READ] {
        let right = match opcode {
            opcode::WRITE => access::REMOTE_READ | access::LOCAL_WRITE,
            _ => access::REMOTE_WRITE,
        };
        for (case, detail) in [
            (0, Detail::Key),
            (1, Detail::Domain),
            (2, Detail::Range),
            (3, Detail::Range),
            (4, Detail::Range),
            (5, Detail::Rights),
        ] {
            let mut p = Pair::new();
            let weak = p.m.mr_at(p.pd_b, p.mr_b.va, 1 << 20, right);
            let mut request = p.remote(opcode, 0);
            match case {
                0 => request.rkey = p.mr_b.key.next().raw(),
                1 => request.rkey = p.mr_a.key.raw(),
                2 => request.remote_addr -= 1,
                3 => request.remote_addr += (1 << 20) - 7,
                4 => request.remote_addr = u64::MAX - 3,
                _ => request.rkey = weak.key.raw(),
            }
            p.m.memory.set_bytes(p.mr_a.addr, &[0xa5; 8]);
            p.m.memory
                .set_bytes(p.mr_b.addr + (1 << 20) - 8, &[0x5a; 8]);
            p.send(request, &[p.mr_a.sge(0, 8)]);
            assert_eq!(failed(&mut p), (Status::RemoteAccess, detail), "{case}");
            // Neither end was accessed, nor the valid part of the range.
            assert_eq!(p.m.memory.bytes(p.mr_a.addr, 8), [0xa5; 8]);
            let end = p.m.memory.bytes(p.mr_b.addr + (1 << 20) - 8, 8);
            assert_eq!(end, [0x5a; 8]);
            assert_eq!(peer(&mut p), None);
            assert_eq!(p.state(p.b.number), qp_state::ERROR);
        }
    }
}

fn a_peer_allows_only_what_it_said() {
    for (opcode, access) in [
        (opcode::WRITE, access::REMOTE_READ),
        (opcode::READ, access::REMOTE_WRITE),
        (opcode::WRITE, 0),
    ] {
        let mut p = Pair::with(|_, b| b.access = access);
        p.send(p.remote(opcode, 0), &[p.mr_a.sge(0, 8)]);
        let expected = (Status::RemoteInvalidRequest, Detail::Rights);
        assert_eq!(failed(&mut p), expected);
        assert_eq!(p.state(p.b.number), qp_state::ERROR);
    }
}

fn a_receive_may_be_too_short() {
    let mut p = Pair::new();
    p.recv(3, &[p.mr_b.sge(0, 50), p.mr_b.sge(100, 49)]);
    p.send(wqe(opcode::SEND, 1), &[p.mr_a.sge(0, 100)]);
    let expected = (Status::RemoteInvalidRequest, Detail::ShortReceive);
    assert_eq!(failed(&mut p), expected);
    let expected = (Status::LocalLength, Detail::ShortReceive);
    assert_eq!(peer(&mut p), Some(expected));
    assert_eq!(p.m.memory.word(p.mr_b.addr), 0);
}

fn a_receive_may_make_no_sense() {
    // A stride of 128 bytes holds 7 SGEs.
    for (first, detail) in [
        (8, Detail::Sges),
        (255, Detail::Sges),
        (1 << 8, Detail::Flags),
    ] {
        let mut p = Pair::new();
        p.m.memory.set_words(p.b.rq, &[first, 21]);
        p.b.rq_tail = 1;
        p.m.ring(0, qpair_abi::doorbell::RQ, p.b.number, 1);
        p.send(wqe(opcode::SEND, 1), &[]);
        assert_eq!(failed(&mut p), (Status::RemoteOperation, detail));
        let cqes = p.done_b();
        assert_eq!(outcome(&cqes[0]), (Status::LocalQpOperation, detail));
        assert_eq!((cqes[0].wr_id, cqes[0].index, cqes.len()), (21, 1, 1));
    }
}

fn a_receives_memory_is_checked() {
    for case in 0..4 {
        let mut p = Pair::new();
        let read_only = p.m.mr_at(p.pd_b, 0, 4096, access::REMOTE_WRITE);
        let (sge, detail) = match case {
            0 => (read_only.sge(0, 8), Detail::Rights),
            1 => (p.mr_a.sge(0, 8), Detail::Domain),
            2 => (p.mr_b.sge(1 << 20, 8), Detail::Range),
            _ => (
                Sge {
                    lkey: 0,
                    ..p.mr_b.sge(0, 8)
                },
                Detail::Key,
            ),
        };
        p.recv(4, &[p.mr_b.sge(0, 4), sge]);
        p.send(wqe(opcode::SEND, 1), &[p.mr_a.sge(0, 12)]);
        assert_eq!(failed(&mut p), (Status::RemoteOperation, detail));
        assert_eq!(peer(&mut p), Some((Status::LocalProtection, detail)));
    }
}

fn a_write_with_immediate_fails_its_receive() {
    let mut p = Pair::new();
    p.recv(4, &[]);
    let mut request = p.remote(opcode::WRITE_IMM, 0);
    request.rkey = 0;
    p.send(request, &[p.mr_a.sge(0, 12)]);
    assert_eq!(failed(&mut p), (Status::RemoteAccess, Detail::Key));
    assert_eq!(peer(&mut p), Some((Status::LocalAccess, Detail::Key)));
}

fn what_is_behind_an_error_is_flushed() {
    let mut p = Pair::new();
    let (mut a, mut b) = (p.a, p.b);
    for i in 0..3 {
        p.m.post_recv(&mut b, 50 + i, &[p.mr_b.sge(0, 4)]);
    }
    p.m.ring(0, qpair_abi::doorbell::RQ, b.number, b.rq_tail);
    let silent = SendWqe {
        flags: 0,
        ..wqe(opcode::SEND, 10)
    };
    p.m.post(&mut a, wqe(opcode::SEND, 9), &[p.mr_a.sge(0, 4)]);
    p.m.post(&mut a, silent, &[p.mr_a.sge(0, 5)]);
    p.m.post(&mut a, silent, &[p.mr_a.sge(0, 4); 5]);
    p.m.post(&mut a, wqe(opcode::NOP, 11), &[]);
    p.m.ring_sq(&a);
    p.m.settle();
    let told = |cqes: Vec<Cqe>| -> Vec<_> {
        cqes.iter()
            .map(|cqe| (cqe.wr_id, cqe.index, outcome(cqe).0))
            .collect()
    };
    let sent = told(p.done_a());
    let expected = [
        (9, 1, Status::Success),
        (10, 2, Status::RemoteInvalidRequest),
        (10, 4, Status::Flush),
        (11, 5, Status::Flush),
    ];
    assert_eq!(sent, expected, "unsignaled ones too");
    let expected = [
        (50, 1, Status::Success),
        (51, 2, Status::LocalLength),
        (52, 3, Status::Flush),
    ];
    assert_eq!(told(p.done_b()), expected);
    // Requests that are posted afterwards are flushed as well.
    p.m.send(&mut a, wqe(opcode::NOP, 12), &[]);
    p.m.recv(&mut b, 60, &[]);
    assert_eq!(told(p.done_a()), [(12, 6, Status::Flush)]);
    assert_eq!(told(p.done_b()), [(60, 4, Status::Flush)]);
    assert_eq!(p.m.f.counter(Counter::Flushes), 5);
    assert_eq!(p.m.events0(), [], "completions report both");
}

fn memory_that_goes_away() {
    // The system revokes the payload's memory: the end that owns it gets the error.
    for (opcode, side, sender, receiver) in [
        (opcode::SEND, 0, Status::LocalProtection, None),
        (
            opcode::SEND,
            1,
            Status::RemoteOperation,
            Some(Status::LocalProtection),
        ),
        (opcode::WRITE, 0, Status::LocalProtection, None),
        (opcode::WRITE, 1, Status::RemoteOperation, None),
        (opcode::READ, 0, Status::LocalProtection, None),
        (opcode::READ, 1, Status::RemoteOperation, None),
    ] {
        let mut p = Pair::new();
        if opcode == opcode::SEND {
            p.recv(1, &[p.mr_b.sge(0, 100)]);
        }
        p.m.memory.set_lenient(true);
        p.m.memory.revoke([p.mr_a.addr, p.mr_b.addr][side]);
        p.send(p.remote(opcode, 0), &[p.mr_a.sge(0, 100)]);
        assert_eq!(failed(&mut p), (sender, Detail::Dma), "{opcode} {side}");
        assert_eq!(peer(&mut p).map(|(status, _)| status), receiver);
        assert!(p.m.f.counter(Counter::DmaFaults) > 0);
    }
}

fn rings_that_go_away() {
    // An SQ that cannot be read: posted requests are dropped, then and later, and an event reports
    // it.
    let mut p = Pair::new();
    p.m.memory.set_lenient(true);
    p.m.f.host_mut().maps = false;
    p.m.memory.revoke(p.a.sq);
    p.m.f.unmap(p.a.sq, 1024);
    p.send(wqe(opcode::NOP, 1), &[]);
    assert_eq!(p.done_a(), []);
    assert_eq!(p.state(p.a.number), qp_state::ERROR);
    assert_eq!(p.m.events0()[0].kind, Event::QpFatal.code());
    assert_eq!(p.m.query_qp(p.a.number).sq_consumer, 1);
    p.send(wqe(opcode::NOP, 2), &[]);
    assert_eq!(p.done_a(), []);
    assert_eq!(p.m.query_qp(p.a.number).sq_consumer, 2);
    // An RQ.
    let mut p = Pair::new();
    p.m.memory.set_lenient(true);
    p.m.f.host_mut().maps = false;
    p.recv(1, &[]);
    p.m.memory.revoke(p.b.rq);
    p.send(wqe(opcode::SEND, 1), &[]);
    assert_eq!(failed(&mut p), (Status::RemoteOperation, Detail::Dma));
    assert_eq!(p.state(p.b.number), qp_state::ERROR);
    assert_eq!(p.m.query_qp(p.b.number).rq_consumer, 1);
    // A CQ: only its queue pairs stop.
    let mut p = Pair::new();
    p.m.memory.set_lenient(true);
    p.m.f.host_mut().maps = false;
    p.m.memory.revoke(p.cq_a.ring.addr);
    p.send(wqe(opcode::NOP, 1), &[]);
    assert_eq!(p.state(p.a.number), qp_state::ERROR);
    assert_eq!(p.state(p.b.number), qp_state::RTS);
    let kinds: Vec<_> = p.m.events0().iter().map(|event| event.kind).collect();
    assert_eq!(kinds, [Event::CqOverrun, Event::QpFatal].map(Event::code));
}

fn an_unsignaled_request_that_fails_completes() {
    let mut p = Pair::new();
    let request = SendWqe {
        flags: 0,
        ..wqe(99, 3)
    };
    p.send(request, &[]);
    assert_eq!(p.done_a()[0].wr_id, 3);
}

/// The event of the peer, if a request to it fails.
fn event_at_peer(change: fn(&mut Pair) -> SendWqe, access: u8) -> Option<(Event, Status)> {
    let mut p = Pair::with(|_, b| b.access = access);
    p.m.memory.set_lenient(true);
    p.m.f.host_mut().maps = false;
    let request = change(&mut p);
    p.send(request, &[p.mr_a.sge(0, 8)]);
    assert_ne!(p.done_a()[0].status, Status::Success.code());
    assert_eq!(p.state(p.b.number), qp_state::ERROR);
    let events = p.m.events0();
    assert!(events.len() <= 1, "{events:?}");
    let event = events.first().map(|event| {
        assert_eq!((event.number, event.count), (p.b.number, 1));
        let status = Status::from_code(event.code).unwrap();
        (Event::from_code(event.kind).unwrap(), status)
    });
    let failed = p.done_b().iter().any(|cqe| cqe.status != 0);
    assert_eq!(failed, event.is_none(), "one of the two");
    event
}

fn what_no_completion_reports_has_an_event() {
    let denied = Some((Event::QpAccess, Status::LocalAccess));
    let invalid = Some((Event::QpRequest, Status::LocalAccess));
    let fatal = |status| Some((Event::QpFatal, status));
    let all = access::REMOTE;
    /// A request, the rights of the peer's queue pair, and its event.
    type Case = (fn(&mut Pair) -> SendWqe, u8, Option<(Event, Status)>);
    let cases: [Case; 9] = [
        (|p| p.remote(opcode::WRITE, 1 << 20), all, denied),
        (|p| p.remote(opcode::READ, 1 << 20), all, denied),
        (|p| p.remote(opcode::WRITE, 0), 0, invalid),
        (|p| p.remote(opcode::READ, 0), access::REMOTE_WRITE, invalid),
        (
            |p| {
                p.m.memory.revoke(p.mr_b.addr);
                p.remote(opcode::WRITE, 0)
            },
            all,
            fatal(Status::LocalAccess),
        ),
        (
            |p| {
                p.recv(1, &[]);
                p.m.memory.revoke(p.b.rq);
                wqe(opcode::SEND, 1)
            },
            all,
            fatal(Status::LocalQpOperation),
        ),
        // The receive reports these.
        (
            |p| {
                p.recv(1, &[]);
                wqe(opcode::SEND, 1)
            },
            all,
            None,
        ),
        (
            |p| {
                p.recv(1, &[]);
                p.remote(opcode::WRITE_IMM, 1 << 20)
            },
            all,
            None,
        ),
        (
            |p| {
                p.recv(1, &[p.mr_b.sge(0, 8)]);
                wqe(opcode::SEND_INV, 1)
            },
            all,
            None,
        ),
    ];
    for (request, access, event) in cases {
        assert_eq!(event_at_peer(request, access), event);
    }
}
