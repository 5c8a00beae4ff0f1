// SPDX-License-Identifier: GPL-2.0
//! Connections by frames in the states of their queue pairs, and beside others.

use super::checks;
use crate::harness::*;
use qpair_abi::command::*;
use qpair_abi::counters::Counter;
use qpair_abi::entry::opcode;
use qpair_abi::entry::*;
use qpair_abi::status::Detail;
use qpair_abi::status::Status;
use qpair_testkit::Rng;

checks![
    a_peer_that_only_receives,
    a_peer_whose_queue_is_drained,
    a_query_tells_the_next_numbers,
    a_query_tells_what_is_awaited,
    no_path_no_frames,
    receives_of_a_shared_queue,
    many_connections_and_little_room,
    a_restart_at_the_wrap_of_the_ring,
];

fn ends(cqes: &[Cqe]) -> Vec<(u64, Status)> {
    cqes.iter().map(|cqe| (cqe.wr_id, outcome(cqe).0)).collect()
}

fn a_peer_that_only_receives() {
    let mut f = Far::new();
    f.reset(1);
    let (qp, path) = (f.qps[1].number, f.path(1));
    f.m(1).set_state(qp, qp_state::INIT).unwrap();
    let mask = qp_mask::STATE | qp_mask::PEER | qp_mask::PATH;
    f.m(1).modify(qp, mask, &path).unwrap();
    f.recv(5, &[f.mrs[1].sge(0, 4000)]);
    f.post(wqe(opcode::SEND, 1), &[f.mrs[0].sge(0, 3000)]);
    f.post(f.remote(opcode::READ, 0), &[f.mrs[0].sge(0, 3000)]);
    f.lan.settle();
    assert_eq!(ends(&f.done(0)), [(1, Status::Success); 2]);
    assert_eq!(ends(&f.done(1)), [(5, Status::Success)]);
    assert_eq!(f.m(0).f.counter(Counter::Retries), 0);
}

fn a_peer_whose_queue_is_drained() {
    let mut f = Far::new();
    let qp = f.qps[1].number;
    f.m(1).set_state(qp, qp_state::SQD).unwrap();
    f.send(f.remote(opcode::WRITE, 0), &[f.mrs[0].sge(0, 3000)]);
    assert_eq!(ends(&f.done(0)), [(1, Status::Success)]);
}

fn a_query_tells_the_next_numbers() {
    for service in [service::RC, service::UC] {
        let mut f = Far::with(Connection {
            service,
            ..Connection::default()
        });
        f.send(f.remote(opcode::WRITE, 0), &[f.mrs[0].sge(0, 3000)]);
        let next = [0, 1].map(|place| {
            let qp = f.qps[place].number;
            let is = f.m(place).query_qp(qp);
            (is.sq_psn, is.rq_psn)
        });
        // Three packets, past the wrap.
        assert_eq!(f.connection.psns, [0xff_fffd, 7]);
        assert_eq!(next, [(0, 7), (7, 0)]);
    }
}

fn a_query_tells_what_is_awaited() {
    // The peer answers nothing, or has no receive.
    for (is_reset, waits) in [(true, waits_for::ANSWER), (false, waits_for::RECEIVER)] {
        let mut f = Far::new();
        let [first, _] = f.connection.psns;
        if is_reset {
            f.reset(1);
        }
        f.post(wqe(opcode::SEND, 1), &[f.mrs[0].sge(0, 3000)]);
        f.lan.pass(20_000);
        let qp = f.qps[0].number;
        let is = f.m(0).query_qp(qp);
        assert_eq!((is.acked_psn, is.sq_psn), (first, 0));
        assert_eq!((is.in_flight, is.room, is.repeats), (1, 32, 0));
        assert_eq!(is.waits_for, waits);
        if is_reset {
            f.lan.pass(1 << 32);
            assert_eq!(f.m(0).query_qp(qp).in_flight, 0);
        } else {
            f.recv(5, &[f.mrs[1].sge(0, 4000)]);
            f.lan.settle();
            let is = f.m(0).query_qp(qp);
            assert_eq!((is.acked_psn, is.sq_psn), (0, 0));
            assert_eq!((is.in_flight, is.repeats, is.waits_for), (0, 0, 0));
        }
    }
}

fn no_path_no_frames() {
    let mut f = Far::new();
    f.reset(0);
    let (qp, peer) = (f.qps[0].number, f.path(0));
    f.m(0).set_state(qp, qp_state::INIT).unwrap();
    let with_peer = qp_mask::STATE | qp_mask::PEER;
    f.m(0).modify(qp, with_peer, &peer).unwrap();
    f.m(0).set_state(qp, qp_state::RTS).unwrap();
    let retry = QpContext::default();
    f.m(0).modify(qp, qp_mask::RETRY, &retry).unwrap();
    f.send(f.remote(opcode::WRITE, 0), &[f.mrs[0].sge(0, 8)]);
    let expected = (Status::RetryExceeded, Detail::NoPeer);
    assert_eq!(outcome(&f.done(0)[0]), expected);
    assert_eq!(f.lan.frames, 0);
}

fn receives_of_a_shared_queue() {
    let mut f = Far::new();
    let (pd, cq) = (f.pds[1], f.cqs[1]);
    let m = f.m(1);
    let mut srq = m.srq(pd, 4);
    let spec = QpSpec {
        srq: Some(srq.number),
        ..Machine::spec(pd, &cq)
    };
    let qp = m.qp(&spec);
    f.qps[1] = qp;
    f.reset(0);
    f.connect(0);
    f.connect(1);
    let data = pattern(3000, 1);
    f.set_bytes(0, 0, &data);
    // The receive comes while the sender waits.
    f.post(wqe(opcode::SEND, 1), &[f.mrs[0].sge(0, 3000)]);
    f.lan.pass(1_000_000);
    let sge = f.mrs[1].sge(0, 4000);
    f.m(1).post_shared(&mut srq, 9, &[sge]);
    f.m(1).ring_srq(&srq);
    f.lan.settle();
    assert_eq!(ends(&f.done(0)), [(1, Status::Success)]);
    assert_eq!(ends(&f.done(1)), [(9, Status::Success)]);
    assert_eq!(f.bytes(1, 0, 3000), data);
}

fn many_connections_and_little_room() {
    let mut lan = Lan::with(
        2,
        Rng::new(3),
        Line {
            lost: 10,
            ..Line::default()
        },
    );
    for m in &mut lan.machines {
        m.f.host_mut().room = 4;
    }
    let connection = Connection::default();
    let mut all = Vec::new();
    for _ in 0..16 {
        let mut f = Far::on(lan, connection);
        let data = pattern(40_000, all.len() as u64);
        f.set_bytes(0, 0, &data);
        f.set_bytes(1, 1 << 19, &data);
        f.post(f.remote(opcode::WRITE, 0), &[f.mrs[0].sge(0, 40_000)]);
        f.post(
            f.remote(opcode::READ, 1 << 19),
            &[f.mrs[0].sge(1 << 19, 40_000)],
        );
        // The next ones are on the same machines.
        lan = std::mem::replace(&mut f.lan, Lan::new(0));
        all.push((f, data));
    }
    lan.settle();
    for (mut f, data) in all {
        f.lan = lan;
        assert_eq!(ends(&f.done(0)), [(1, Status::Success); 2]);
        assert_eq!(f.bytes(1, 0, 40_000), data);
        assert_eq!(f.bytes(0, 1 << 19, 40_000), data);
        lan = f.lan;
    }
}

fn a_restart_at_the_wrap_of_the_ring() {
    let mut f = Far::new();
    // Of several blocks each, past the end of the ring.
    let data = pattern(150, 5);
    for round in 0..200u64 {
        let request = SendWqe {
            wr_id: round,
            ..f.remote(opcode::WRITE, round * 150)
        };
        f.post_words(&inline_words(request, &data));
        f.lan.settle();
        assert_eq!(ends(&f.done(0)), [(round, Status::Success)]);
        assert_eq!(f.bytes(1, round * 150, 150), data);
    }
}
