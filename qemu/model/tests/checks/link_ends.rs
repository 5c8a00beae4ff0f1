// SPDX-License-Identifier: GPL-2.0
//! Connections by frames that end: the last answer, and a link that goes down.

use super::checks;
use crate::harness::*;
use qpair_abi::command::*;
use qpair_abi::counters::Counter;
use qpair_abi::entry::opcode;
use qpair_abi::entry::*;
use qpair_abi::status::Status;
use qpair_roce::extended::Nak;
use qpair_roce::extended::Reth;
use qpair_roce::extended::Syndrome;
use qpair_roce::frame::Datagram;
use qpair_roce::operation::Operation;

checks![
    the_last_nak_waits_for_room,
    a_right_that_goes_before_the_answer,
    a_link_that_goes_down_ends_a_connection,
    a_link_that_comes_back_in_time,
    frames_that_wait_are_lost_without_a_link,
    frames_that_are_held_are_lost_without_a_link,
];

fn ends(cqes: &[Cqe]) -> Vec<(u64, Status)> {
    cqes.iter().map(|cqe| (cqe.wr_id, outcome(cqe).0)).collect()
}

/// The NAKs that a machine has sent.
fn naks(f: &mut Far, place: usize) -> Vec<Nak> {
    let frames = std::mem::take(&mut f.m(place).f.host_mut().frames);
    let nak = |frame: &Vec<u8>| {
        let datagram = Datagram::of(frame, frame.first_chunk().unwrap()).unwrap();
        match datagram.open().unwrap().0.operation {
            Operation::Acknowledge(aeth) => match aeth.syndrome {
                Syndrome::Nak(nak) => Some(nak),
                _ => None,
            },
            _ => None,
        }
    };
    frames.iter().filter_map(nak).collect()
}

fn the_last_nak_waits_for_room() {
    let mut f = Far::new();
    let key = Forged::reth(&f).key ^ 1 << 16;
    let reth = Reth {
        key,
        ..Forged::reth(&f)
    };
    let wrong = Forged::of(&f, 0, Operation::WriteOnly(reth, None), vec![7; 8]);
    f.m(1).f.host_mut().room = 0;
    wrong.send(&mut f, []);
    f.m(1).pass(1_000_000);
    assert_eq!(f.state(1), qp_state::ERROR);
    assert_eq!(naks(&mut f, 1), []);
    // There is room.
    f.m(1).f.host_mut().room = 8;
    f.m(1).f.host_mut().woken = true;
    f.m(1).settle();
    assert_eq!(naks(&mut f, 1), [Nak::RemoteAccess]);
    // Once: neither time nor another frame asks for it again.
    wrong.send(&mut f, []);
    f.m(1).f.host_mut().woken = true;
    f.m(1).pass(1_000_000_000);
    assert_eq!(naks(&mut f, 1), []);
}

fn a_right_that_goes_before_the_answer() {
    let mut f = Far::new();
    let read = Operation::Read(Forged::reth(&f));
    f.m(1).f.host_mut().room = 0;
    Forged::of(&f, 0, read, Vec::new()).send(&mut f, []);
    let (qp, none) = (f.qps[1].number, QpContext::default());
    f.m(1).modify(qp, qp_mask::ACCESS, &none).unwrap();
    f.m(1).f.host_mut().room = 8;
    f.m(1).f.host_mut().woken = true;
    f.m(1).settle();
    assert_eq!(naks(&mut f, 1), [Nak::RemoteAccess]);
}

/// A WRITE, a READ and a SEND of many packets each; some of the first have arrived.
fn midst() -> Far {
    let mut f = Far::with(Connection {
        retry: 2,
        ..Connection::default()
    });
    for place in [0, 1] {
        f.set_bytes(place, 0, &[7; 100_000]);
    }
    f.recv(5, &[f.mrs[1].sge(1 << 19, 100_000)]);
    let from = f.mrs[0].sge(0, 100_000);
    f.post(f.remote(opcode::WRITE, 1 << 18), &[from]);
    f.post(f.remote(opcode::READ, 0), &[f.mrs[0].sge(1 << 19, 100_000)]);
    f.post(wqe(opcode::SEND, 1), &[from]);
    f.lan.pass(FLIGHT_NS * 3 / 2);
    assert_ne!(f.bytes(1, 1 << 18, 1), [0]);
    assert!(f.done(0).is_empty());
    f
}

fn a_link_that_goes_down_ends_a_connection() {
    for down in [0, 1] {
        let mut f = midst();
        f.m(down).f.set_link_down(true);
        let memory = [0, 1].map(|place| f.bytes(place, 0, 1 << 20));
        let sent = f.m(down).f.counter(Counter::FramesOut);
        f.lan.settle();
        // No frame arrives where the link is down, so nothing is answered there.
        assert_eq!(f.m(down).f.counter(Counter::FramesOut), sent);
        assert!(f.bytes(down, 0, 1 << 20) == memory[down]);
        let done = [
            (1, Status::RetryExceeded),
            (1, Status::Flush),
            (1, Status::Flush),
        ];
        assert_eq!(ends(&f.done(0)), done);
        assert_eq!((f.state(0), f.state(1)), (qp_state::ERROR, qp_state::RTS));
        assert!(f.done(1).is_empty());
        // It is over, also if the link is up again.
        let memory = [0, 1].map(|place| f.bytes(place, 0, 1 << 20));
        f.m(down).f.set_link_down(false);
        f.lan.settle();
        assert!([0, 1].map(|place| f.bytes(place, 0, 1 << 20)) == memory);
        assert!(f.done(0).is_empty() && f.done(1).is_empty());
    }
}

fn a_link_that_comes_back_in_time() {
    for down in [0, 1] {
        let mut f = midst();
        f.m(down).f.set_link_down(true);
        f.lan.pass(5_000_000);
        f.m(down).f.set_link_down(false);
        f.lan.settle();
        assert_eq!(ends(&f.done(0)), [(1, Status::Success); 3]);
        assert_eq!(ends(&f.done(1)), [(5, Status::Success)]);
        assert_eq!(f.bytes(0, 1 << 19, 100_000), [7; 100_000]);
        assert_eq!(f.bytes(1, 1 << 18, 100_000), [7; 100_000]);
        assert_eq!(f.bytes(1, 1 << 19, 100_000), [7; 100_000]);
    }
}

/// Those that came before the link went down, and for which the core had no turn yet.
fn frames_that_wait_are_lost_without_a_link() {
    let mut f = Far::new();
    f.m(1).f.set_stall(true);
    let write = Forged::write(&f, 0);
    write.send(&mut f, []);
    f.m(1).f.set_link_down(true);
    f.m(1).f.set_stall(false);
    f.m(1).settle();
    assert_eq!(f.bytes(1, 0, 8), [0; 8]);
    assert_eq!(f.m(1).f.counter(Counter::FramesForeign), 1);
    f.m(1).f.set_link_down(false);
    write.send(&mut f, []);
    assert_eq!(f.bytes(1, 0, 8), [7; 8]);
}

/// Those that a fault delays.
fn frames_that_are_held_are_lost_without_a_link() {
    for place in [0, 1] {
        let mut f = Far::new();
        f.m(place).f.set_faults("wire=delay:1ms").unwrap();
        f.post(f.remote(opcode::WRITE, 0), &[f.mrs[0].sge(0, 8)]);
        f.lan.pass(500_000);
        f.m(place).f.set_link_down(true);
        f.lan.pass(1_000_000);
        assert_eq!(f.lan.frames, place as u64);
        assert_eq!(f.m(1).f.counter(Counter::FramesIn), 0);
    }
}
