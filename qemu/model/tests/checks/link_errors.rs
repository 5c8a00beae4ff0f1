// SPDX-License-Identifier: GPL-2.0
//! Connections by frames that fail, wait, end, or get frames that are not theirs.

use super::checks;
use crate::harness::*;
use qpair_abi::command::*;
use qpair_abi::counters::Counter;
use qpair_abi::entry::opcode;
use qpair_abi::entry::*;
use qpair_abi::status::Detail;
use qpair_abi::status::Event;
use qpair_abi::status::Status;
use qpair_roce::extended::Aeth;
use qpair_roce::extended::Feth;
use qpair_roce::extended::Reth;
use qpair_roce::extended::Syndrome;
use qpair_roce::extended::With;
use qpair_roce::header::Service;
use qpair_roce::operation::Operation;

checks![
    a_key_that_is_none,
    rights_of_the_peer,
    a_send_needs_no_right,
    a_range_is_checked_at_once,
    a_receive_too_short,
    a_receiver_that_is_not_ready,
    a_receiver_that_becomes_ready,
    a_peer_that_is_silent,
    a_read_that_comes_again_late,
    a_flood_leaves_room_for_answers,
    answers_to_all_requests_wait,
    own_memory_that_is_wrong,
    memory_that_goes_in_the_midst,
    requests_are_read_once,
    what_is_in_flight_is_flushed,
    a_queue_drains,
    what_waits_costs_no_turn,
    packets_in_flight_are_bounded,
    more_requests_than_fit,
    an_invalidation_waits,
    frames_of_another_connection,
    packets_out_of_order,
    requests_against_the_rules,
    the_old_connection_is_over,
];

fn outcomes(cqes: &[Cqe]) -> Vec<(u64, Status)> {
    cqes.iter().map(|cqe| (cqe.wr_id, outcome(cqe).0)).collect()
}

/// The first sends a WRITE that `wrong` has changed, between two that are right.
fn among_others(f: &mut Far, wrong: impl FnOnce(&mut SendWqe)) -> Vec<(u64, Status)> {
    let mut request = f.remote(opcode::WRITE, 0);
    for wr_id in 0..2 {
        let good = SendWqe { wr_id, ..request };
        f.post(good, &[f.mrs[0].sge(0, 3000)]);
    }
    request.wr_id = 2;
    let behind = SendWqe {
        wr_id: 3,
        ..request
    };
    wrong(&mut request);
    f.post(request, &[f.mrs[0].sge(0, 3000)]);
    f.post(behind, &[f.mrs[0].sge(0, 3000)]);
    f.lan.settle();
    outcomes(&f.done(0))
}

fn fails_with(status: Status) -> Vec<(u64, Status)> {
    vec![
        (0, Status::Success),
        (1, Status::Success),
        (2, status),
        (3, Status::Flush),
    ]
}

fn a_key_that_is_none() {
    let mut f = Far::new();
    let done = among_others(&mut f, |wqe| wqe.rkey = 1);
    assert_eq!(done, fails_with(Status::RemoteAccess));
    for place in [0, 1] {
        assert_eq!(f.state(place), qp_state::ERROR);
    }
    let qp = f.qps[1].number;
    let events = f.m(1).events0();
    assert_eq!(
        (events[0].kind, events[0].number),
        (Event::QpAccess.code(), qp)
    );
}

fn rights_of_the_peer() {
    let mut f = Far::new();
    let (qp, context) = (
        f.qps[1].number,
        QpContext {
            access: access::REMOTE_READ,
            ..QpContext::default()
        },
    );
    f.m(1).modify(qp, qp_mask::ACCESS, &context).unwrap();
    f.send(f.remote(opcode::READ, 0), &[f.mrs[0].sge(0, 3000)]);
    assert_eq!(outcomes(&f.done(0)), [(1, Status::Success)]);
    f.send(f.remote(opcode::WRITE, 0), &[f.mrs[0].sge(0, 3000)]);
    assert_eq!(outcomes(&f.done(0)), [(1, Status::RemoteInvalidRequest)]);
}

fn a_send_needs_no_right() {
    let mut f = Far::new();
    let qp = f.qps[1].number;
    let context = QpContext::default();
    f.m(1).modify(qp, qp_mask::ACCESS, &context).unwrap();
    f.recv(5, &[f.mrs[1].sge(0, 3000)]);
    f.send(wqe(opcode::SEND, 1), &[f.mrs[0].sge(0, 3000)]);
    assert_eq!(outcomes(&f.done(0)), [(1, Status::Success)]);
}

fn a_range_is_checked_at_once() {
    let mut f = Far::new();
    f.set_bytes(0, 0, &[7; 3000]);
    f.send(
        f.remote(opcode::WRITE, (1 << 20) - 2999),
        &[f.mrs[0].sge(0, 3000)],
    );
    assert_eq!(outcomes(&f.done(0)), [(1, Status::RemoteAccess)]);
    assert_eq!(f.bytes(1, (1 << 20) - 2999, 8), [0; 8]);
}

fn a_receive_too_short() {
    for (room, bytes) in [(10, 11), (1500, 3000)] {
        let mut f = Far::new();
        f.recv(5, &[f.mrs[1].sge(0, room)]);
        f.send(wqe(opcode::SEND, 1), &[f.mrs[0].sge(0, bytes)]);
        assert_eq!(outcomes(&f.done(0)), [(1, Status::RemoteInvalidRequest)]);
        assert_eq!(outcomes(&f.done(1)), [(5, Status::LocalLength)]);
        assert_eq!(f.state(1), qp_state::ERROR);
    }
}

/// What `min_rnr_timer` 12 says.
const RNR_NS: u64 = 640_000;

fn a_receiver_that_is_not_ready() {
    // Also when each answer comes twice.
    for repeated in [0, 1000] {
        let mut f = Far::with(Connection {
            rnr_retry: 3,
            ..Connection::default()
        });
        f.lan.line.repeated = repeated;
        f.post(wqe(opcode::SEND, 1), &[f.mrs[0].sge(0, 3000)]);
        f.lan.pass(3 * RNR_NS);
        assert!(f.done(0).is_empty());
        f.lan.pass(RNR_NS);
        assert_eq!(outcomes(&f.done(0)), [(1, Status::RnrRetryExceeded)]);
        assert_eq!(f.m(0).f.counter(Counter::RnrRetries), 3);
        assert_eq!(f.m(0).f.counter(Counter::Retries), 0);
    }
}

fn a_receiver_that_becomes_ready() {
    let mut f = Far::new();
    let data = pattern(3000, 1);
    f.set_bytes(0, 0, &data);
    f.post(wqe(opcode::SEND, 1), &[f.mrs[0].sge(0, 3000)]);
    f.lan.pass(20 * RNR_NS);
    assert!(f.done(0).is_empty());
    f.recv(5, &[f.mrs[1].sge(0, 3000)]);
    f.lan.settle();
    assert_eq!(outcomes(&f.done(0)), [(1, Status::Success)]);
    assert_eq!(outcomes(&f.done(1)), [(5, Status::Success)]);
    assert_eq!(f.bytes(1, 0, 3000), data);
}

/// What `timeout` 10 is.
const TIMEOUT_NS: u64 = 4096 << 10;

fn a_peer_that_is_silent() {
    let mut f = Far::with(Connection {
        retry: 2,
        ..Connection::default()
    });
    f.lan.line.lost = 1000;
    let before = f.lan.now();
    f.send(f.remote(opcode::WRITE, 0), &[f.mrs[0].sge(0, 8)]);
    let done = f.done(0);
    assert_eq!(outcome(&done[0]), (Status::RetryExceeded, Detail::None));
    // Once, twice and three times the interval.
    assert_eq!(f.lan.now() - before, 6 * TIMEOUT_NS);
    assert_eq!(f.lan.frames, 3);
    assert_eq!(f.m(0).f.counter(Counter::Retries), 2);
    // Other limits take effect in the wait.
    f.reset(0);
    f.connect(0);
    f.post(f.remote(opcode::WRITE, 0), &[f.mrs[0].sge(0, 8)]);
    f.lan.pass(TIMEOUT_NS / 2);
    let (qp, none) = (
        f.qps[0].number,
        QpContext {
            timeout: 10,
            ..QpContext::default()
        },
    );
    let both = qp_mask::RETRY | qp_mask::TIMERS;
    f.m(0).modify(qp, both, &none).unwrap();
    f.lan.settle();
    assert_eq!(f.lan.frames, 4);
    assert_eq!(outcomes(&f.done(0)), [(1, Status::RetryExceeded)]);
}

fn a_read_that_comes_again_late() {
    let mut f = Far::new();
    let pd = f.pds[1];
    let mr = f.m(1).mr(pd, 1 << 16);
    f.lan.sent = Some(Vec::new());
    let read = SendWqe {
        remote_addr: mr.va,
        rkey: mr.key.raw(),
        ..wqe(opcode::READ, 1)
    };
    f.send(read, &[f.mrs[0].sge(0, 3000)]);
    assert_eq!(outcomes(&f.done(0)), [(1, Status::Success)]);
    let (_, late) = f.lan.sent.take().unwrap().remove(0);
    f.m(1).destroy(kind::MR, mr.key).unwrap();
    f.lan.deliver(1, &late);
    f.lan.settle();
    assert_eq!(f.m(1).f.counter(Counter::Duplicates), 1);
    assert_eq!([f.state(0), f.state(1)], [qp_state::RTS; 2]);
    assert_eq!(f.m(1).events0(), []);
    f.send(f.remote(opcode::WRITE, 0), &[f.mrs[0].sge(0, 3000)]);
    assert_eq!(outcomes(&f.done(0)), [(1, Status::Success)]);
}

fn a_flood_leaves_room_for_answers() {
    let mut f = Far::with(Connection {
        log_mtu: 12,
        ..Connection::default()
    });
    f.post(f.remote(opcode::WRITE, 0), &[f.mrs[0].sge(0, 4096)]);
    f.m(0).settle();
    let right = f.m(0).f.host_mut().frames.remove(0);
    let mut wrong = right.clone();
    *wrong.last_mut().unwrap() ^= 1;
    let m = f.m(1);
    m.f.set_stall(true);
    m.f.frame(&right);
    for _ in 0..200 {
        m.f.frame(&wrong);
    }
    m.f.set_stall(false);
    for _ in 0..3 {
        m.f.run(1);
    }
    assert_eq!(m.f.host().frames.len(), 1, "the acknowledgement");
    assert!(m.f.counter(Counter::FramesCorrupt) < 100);
}

fn answers_to_all_requests_wait() {
    let mut f = Far::with(Connection {
        reads: READS,
        ..Connection::default()
    });
    f.m(1).f.host_mut().room = 0;
    for i in 0..READS.into() {
        let read = Operation::Read(Forged::reth(&f));
        let read = Forged::of(&f, 2 * i, read, Vec::new());
        let write = Forged::write(&f, 2 * i + 1);
        for request in [read, write] {
            f.lan.deliver(1, &request.frame());
        }
    }
    let host = f.m(1).f.host_mut();
    (host.room, host.woken) = (usize::MAX, true);
    f.m(1).settle();
    assert_eq!(f.m(1).f.host().frames.len(), 2 * usize::from(READS));
}

fn own_memory_that_is_wrong() {
    let mut f = Far::new();
    let wrong = Sge {
        lkey: 1,
        ..f.mrs[0].sge(0, 8)
    };
    f.post(f.remote(opcode::WRITE, 0), &[f.mrs[0].sge(0, 8)]);
    f.post(f.remote(opcode::WRITE, 0), &[wrong]);
    f.post(f.remote(opcode::WRITE, 0), &[f.mrs[0].sge(0, 8)]);
    f.lan.settle();
    let expected = [Status::Success, Status::LocalProtection, Status::Flush];
    assert_eq!(outcomes(&f.done(0)), expected.map(|status| (1, status)));
    // The peer goes on: it has seen nothing of it.
    assert_eq!(f.state(1), qp_state::RTS);
    // Where an answer goes is looked at when it comes.
    f.reset(0);
    f.reset(1);
    f.connect(0);
    f.connect(1);
    f.post(f.remote(opcode::READ, 0), &[wrong]);
    f.lan.settle();
    assert_eq!(outcomes(&f.done(0)), [(1, Status::LocalProtection)]);
}

fn memory_that_goes_in_the_midst() {
    for (kind, state) in [
        (opcode::WRITE, qp_state::ERROR),
        // All answers were given, and some did not arrive.
        (opcode::READ, qp_state::RTS),
    ] {
        let mut f = Far::new();
        f.post(f.remote(kind, 0), &[f.mrs[0].sge(0, 1 << 19)]);
        f.lan.pass(FLIGHT_NS * 3);
        let key = f.mrs[1].key;
        f.m(1).destroy(kind::MR, key).unwrap();
        let moved = f.bytes(1, 0, 1 << 19);
        f.set_bytes(0, 0, &pattern(1 << 19, 7));
        f.lan.settle();
        assert_eq!(outcomes(&f.done(0)), [(1, Status::RemoteAccess)]);
        assert_eq!(f.bytes(1, 0, 1 << 19), moved);
        assert_eq!(f.state(1), state);
    }
    // Before all answers to a READ were given.
    let mut f = Far::new();
    f.post(f.remote(opcode::READ, 0), &[f.mrs[0].sge(0, 1 << 19)]);
    f.m(0).settle();
    let request = f.m(0).f.host_mut().frames.remove(0);
    let key = f.mrs[1].key;
    let m = f.m(1);
    m.f.frame(&request);
    m.f.run(1);
    assert!((1..512).contains(&m.f.host().frames.len()));
    m.destroy(kind::MR, key).unwrap();
    f.lan.settle();
    assert_eq!(outcomes(&f.done(0)), [(1, Status::RemoteAccess)]);
    assert_eq!(f.state(1), qp_state::ERROR);
    // That of the sender.
    let mut f = Far::new();
    f.post(f.remote(opcode::WRITE, 0), &[f.mrs[0].sge(0, 1 << 19)]);
    f.lan.pass(FLIGHT_NS * 3);
    let key = f.mrs[0].key;
    f.m(0).destroy(kind::MR, key).unwrap();
    f.lan.settle();
    assert_eq!(outcomes(&f.done(0)), [(1, Status::LocalProtection)]);
    assert_eq!(f.state(1), qp_state::RTS);
}

fn requests_are_read_once() {
    let mut f = Far::new();
    let data = pattern(3000, 1);
    f.set_bytes(0, 0, &data);
    f.lan.line.lost = 1000;
    f.post(f.remote(opcode::WRITE, 0), &[f.mrs[0].sge(0, 3000)]);
    f.lan.pass(TIMEOUT_NS / 2);
    // It names other memory at both ends now.
    let other = wqe_words(
        f.remote(opcode::WRITE, 500_000),
        &[f.mrs[0].sge(500_000, 9)],
    );
    let at = f.qps[0].sq;
    f.m(0).memory.set_words(at, &other);
    f.lan.line.lost = 0;
    f.lan.settle();
    assert_eq!(outcomes(&f.done(0)), [(1, Status::Success)]);
    assert_eq!(f.bytes(1, 0, 3000), data);
}

fn what_is_in_flight_is_flushed() {
    let mut f = Far::new();
    f.lan.line.lost = 1000;
    for wr_id in 0..100 {
        let request = SendWqe {
            wr_id,
            ..f.remote(opcode::WRITE, 0)
        };
        f.post(request, &[f.mrs[0].sge(0, 8)]);
    }
    f.lan.pass(TIMEOUT_NS / 2);
    let (qp, sq) = (f.qps[0].number, f.qps[0].sq);
    // What was read is flushed as it was read.
    f.m(0).memory.set_words(sq, &[0; 8]);
    f.m(0).set_state(qp, qp_state::ERROR).unwrap();
    f.lan.settle();
    let expected: Vec<_> = (0..100).map(|wr_id| (wr_id, Status::Flush)).collect();
    assert_eq!(outcomes(&f.done(0)), expected);
    let sent = f.lan.frames;
    f.lan.pass(TIMEOUT_NS * 10);
    assert_eq!(f.lan.frames, sent, "nothing is sent again");
}

fn a_queue_drains() {
    let mut f = Far::new();
    for _ in 0..2 {
        f.post(f.remote(opcode::WRITE, 0), &[f.mrs[0].sge(0, 3000)]);
    }
    f.m(0).settle();
    let qp = f.qps[0].number;
    let context = QpContext {
        state: qp_state::SQD,
        ..QpContext::default()
    };
    let mask = qp_mask::STATE | qp_mask::NOTIFY;
    f.m(0).modify(qp, mask, &context).unwrap();
    assert_eq!(f.m(0).query_qp(qp).draining, 1);
    assert!(f.m(0).events0().is_empty());
    // What is posted now waits.
    f.post(f.remote(opcode::WRITE, 0), &[f.mrs[0].sge(0, 8)]);
    f.lan.settle();
    assert_eq!(f.done(0).len(), 2);
    assert_eq!(f.m(0).events0()[0].kind, Event::SqDrained.code());
    assert_eq!(f.m(0).query_qp(qp).draining, 0);
    f.m(0).set_state(qp, qp_state::RTS).unwrap();
    f.lan.settle();
    assert_eq!(f.done(0).len(), 1);
}

fn what_waits_costs_no_turn() {
    let mut f = Far::new();
    f.lan.line.lost = 1000;
    f.post(f.remote(opcode::WRITE, 0), &[f.mrs[0].sge(0, 1 << 19)]);
    f.lan.pass(TIMEOUT_NS / 4);
    let turns = f.m(0).f.counter(Counter::Turns);
    f.lan.pass(TIMEOUT_NS / 2);
    assert_eq!(f.m(0).f.counter(Counter::Turns), turns);
}

fn packets_in_flight_are_bounded() {
    let mut f = Far::new();
    f.lan.line.lost = 1000;
    f.post(f.remote(opcode::WRITE, 0), &[f.mrs[0].sge(0, 1 << 19)]);
    f.lan.pass(TIMEOUT_NS / 2);
    assert_eq!(f.lan.frames, 32, "the room of one that begins");
    f.lan.pass(TIMEOUT_NS);
    assert_eq!(f.lan.frames, 33, "after a time without an answer");
    f.lan.line.lost = 0;
    f.lan.settle();
    assert_eq!(outcomes(&f.done(0)), [(1, Status::Success)]);
}

fn more_requests_than_fit() {
    let mut f = Far::new();
    let data = pattern(200 * 8, 1);
    f.set_bytes(0, 0, &data);
    for wr_id in 0..200 {
        let request = SendWqe {
            wr_id,
            ..f.remote(opcode::WRITE, wr_id * 8)
        };
        let words = wqe_words(request, &[f.mrs[0].sge(wr_id * 8, 8)]);
        let (m, qp) = (&mut f.lan.machines[0], &mut f.qps[0]);
        m.post_words(qp, &words);
    }
    let (m, qp) = (&mut f.lan.machines[0], &f.qps[0]);
    m.ring_sq(qp);
    f.lan.settle();
    let expected: Vec<_> = (0..200).map(|wr_id| (wr_id, Status::Success)).collect();
    assert_eq!(outcomes(&f.done(0)), expected);
    assert_eq!(f.bytes(1, 0, 200 * 8), data);
    assert_eq!(f.m(0).f.counter(Counter::Retries), 0);
}

fn an_invalidation_waits() {
    let mut f = Far::new();
    let (pd, mr) = (f.pds[0], f.mrs[0]);
    let (_, key) = f.m(0).mw(pd, mw_type::TWO);
    let bind = Pair::bind(key, &mr, 0, 4096);
    f.post_words(&bind_words(bind));
    f.lan.settle();
    f.lan.line.lost = 1000;
    f.post(f.remote(opcode::WRITE, 0), &[f.mrs[0].sge(0, 8)]);
    let ends = SendWqe {
        rkey: bind.new_key,
        ..wqe(opcode::LOCAL_INV, 7)
    };
    f.post(ends, &[]);
    f.lan.pass(TIMEOUT_NS / 2);
    assert_eq!(f.m(0).f.counter(Counter::Invalidations), 0);
    f.lan.line.lost = 0;
    f.lan.settle();
    assert_eq!(f.m(0).f.counter(Counter::Invalidations), 1);
    let done = [
        (9, Status::Success),
        (1, Status::Success),
        (7, Status::Success),
    ];
    assert_eq!(outcomes(&f.done(0)), done);
}

const JUDGED: [Counter; 3] = [
    Counter::FramesForeign,
    Counter::OutOfSequence,
    Counter::Duplicates,
];

fn frames_of_another_connection() {
    let mut f = Far::new();
    let changes: [fn(&mut Forged); 4] = [
        |forged| forged.route.from = gid_bytes(gid_at(7)),
        |forged| forged.headers.service = Service::Uc,
        |forged| forged.headers.dest ^= 1,
        |forged| forged.headers.dest ^= 1 << 16,
    ];
    for change in changes {
        let mut forged = Forged::write(&f, 0);
        change(&mut forged);
        assert_eq!(forged.send(&mut f, JUDGED), [1, 0, 0]);
    }
    // Another GID of the port is not that of the connection.
    let other = gid_at(9);
    f.m(1).set_gid(5, other).unwrap();
    let mut forged = Forged::write(&f, 0);
    forged.route.to = gid_bytes(other);
    assert_eq!(forged.send(&mut f, JUDGED), [1, 0, 0]);
    assert_eq!(f.bytes(1, 0, 8), [0; 8]);
    assert_eq!(f.state(1), qp_state::RTS);
    assert_eq!(Forged::write(&f, 0).send(&mut f, JUDGED), [0, 0, 0]);
    assert_eq!(f.bytes(1, 0, 8), [7; 8]);
}

fn packets_out_of_order() {
    let mut f = Far::new();
    assert_eq!(Forged::write(&f, 1).send(&mut f, JUDGED), [0, 1, 0]);
    assert_eq!(Forged::write(&f, 0xff_ffff).send(&mut f, JUDGED), [0, 0, 1]);
    assert_eq!(f.bytes(1, 0, 8), [0; 8]);
    assert_eq!(Forged::write(&f, 0).send(&mut f, JUDGED), [0, 0, 0]);
    f.set_bytes(1, 0, &[0; 8]);
    assert_eq!(Forged::write(&f, 0).send(&mut f, JUDGED), [0, 0, 1]);
    assert_eq!(f.bytes(1, 0, 8), [0; 8]);
    // Answers to nothing.
    let aeth = Aeth {
        syndrome: Syndrome::Sequence,
        msn: 0,
    };
    for operation in [
        Operation::Acknowledge(aeth),
        Operation::AtomicReply(aeth, 1),
        Operation::ReadReplyOnly(aeth),
    ] {
        let forged = Forged::of(&f, 0, operation, Vec::new());
        assert_eq!(forged.send(&mut f, JUDGED), [0, 0, 0]);
    }
    assert_eq!(f.state(1), qp_state::RTS);
}

fn requests_against_the_rules() {
    let first = |bytes| Reth {
        addr: 0,
        key: 0,
        bytes,
    };
    let flush = |placement, selectivity| {
        let feth = Feth {
            placement,
            selectivity,
        };
        Operation::Flush(feth, first(0))
    };
    for (operation, bytes) in [
        // A message without its beginning, of a wrong length, or of more than one packet.
        (Operation::WriteMiddle, 1024),
        (Operation::SendLast(With::Nothing), 10),
        (Operation::SendFirst, 1000),
        (Operation::WriteOnly(first(9), None), 8),
        // A FLUSH of no kind, or of an unknown one.
        (flush(0, 0), 0),
        (flush(4, 0), 0),
        (flush(1, 2), 0),
    ] {
        let mut f = Far::new();
        f.recv(5, &[f.mrs[1].sge(0, 4000)]);
        let forged = Forged::of(&f, 0, operation, vec![7; bytes]);
        assert_eq!(forged.send(&mut f, JUDGED), [0, 0, 0]);
        assert_eq!(f.state(1), qp_state::ERROR, "{operation:?}");
        assert_eq!(f.m(1).events0()[0].kind, Event::QpRequest.code());
        assert_eq!(f.bytes(1, 0, 8), [0; 8]);
    }
}

fn the_old_connection_is_over() {
    let mut f = Far::new();
    f.lan.sent = Some(Vec::new());
    f.post(f.remote(opcode::WRITE, 0), &[f.mrs[0].sge(0, 1 << 19)]);
    f.lan.pass(FLIGHT_NS * 5);
    for place in [0, 1] {
        f.reset(place);
    }
    // Numbers of the old one are not those of the new one.
    f.connection.psns = [0x40_0000, 0x50_0000];
    for place in [0, 1] {
        f.connect(place);
    }
    let sent = f.lan.frames;
    f.lan.settle();
    assert!(
        f.lan.frames <= sent + 1,
        "a frame that is late gets one answer"
    );
    for (from, frame) in f.lan.sent.take().unwrap() {
        f.lan.deliver(1 - from, &frame);
    }
    f.lan.settle();
    assert_eq!(f.bytes(1, 1 << 18, 8), [0; 8]);
    assert!(f.done(0).is_empty() && f.done(1).is_empty());
    f.send(f.remote(opcode::WRITE, 0), &[f.mrs[0].sge(0, 3000)]);
    assert_eq!(outcomes(&f.done(0)), [(1, Status::Success)]);
}
