// SPDX-License-Identifier: GPL-2.0
//! The order in which a request of RC is checked: of two faults the first one counts.

use super::checks;
use crate::harness::*;
use qpair_abi::command::qp_state;
use qpair_abi::entry::opcode as work;
use qpair_abi::entry::*;
use qpair_abi::status::Detail;
use qpair_abi::status::Status;
use qpair_model::Config;

checks![
    the_first_fault_counts,
    a_read_fills_the_pieces_before_the_fault,
    a_result_without_a_place_harms_no_peer,
];

/// A fault of a request or of its peer, in the order of the manual's table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wrong {
    Flags,
    Length,
    OwnMemory,
    Peer,
    NoReceive,
    Receive,
    ShortReceive,
    Operation,
    Alignment,
    PeersMemory,
    Result,
    ReceivesMemory,
}

use Wrong::*;

/// The faults that a request may have.
fn faults(opcode: u8) -> &'static [Wrong] {
    match opcode {
        work::SEND | work::SEND_INV => &[
            Flags,
            Length,
            OwnMemory,
            Peer,
            NoReceive,
            Receive,
            ShortReceive,
            ReceivesMemory,
        ],
        work::WRITE => &[Flags, Length, OwnMemory, Peer, Operation, PeersMemory],
        work::WRITE_IMM => &[
            Flags,
            Length,
            OwnMemory,
            Peer,
            NoReceive,
            Receive,
            Operation,
            PeersMemory,
        ],
        work::READ => &[Flags, Length, Peer, Operation, PeersMemory, Result],
        work::ATOMIC_WRITE => &[Flags, Peer, Operation, Alignment, PeersMemory],
        _ => &[
            Flags,
            Length,
            Peer,
            Operation,
            Alignment,
            PeersMemory,
            Result,
        ],
    }
}

/// What the sender gets.
fn expected(wrong: Wrong) -> (Status, Detail) {
    match wrong {
        Flags => (Status::LocalQpOperation, Detail::Flags),
        Length => (Status::LocalLength, Detail::Message),
        OwnMemory | Result => (Status::LocalProtection, Detail::Key),
        Peer => (Status::RetryExceeded, Detail::NotReady),
        NoReceive => (Status::RnrRetryExceeded, Detail::None),
        Receive => (Status::RemoteOperation, Detail::Sges),
        ShortReceive => (Status::RemoteInvalidRequest, Detail::ShortReceive),
        Operation => (Status::RemoteInvalidRequest, Detail::Rights),
        Alignment => (Status::RemoteInvalidRequest, Detail::Alignment),
        PeersMemory => (Status::RemoteAccess, Detail::Key),
        ReceivesMemory => (Status::RemoteOperation, Detail::Key),
    }
}

/// The outcome of a request with these faults. A SEND_INV names no window besides.
fn outcome_of(opcode: u8, wrong: &[Wrong]) -> (Status, Detail) {
    let is = |one| wrong.contains(&one);
    let config = Config {
        message_bytes: 4096,
        ..Config::default()
    };
    let mut p = Pair::on(Machine::with(config), |_, b| {
        if is(Operation) {
            b.access = 0;
        }
    });
    let mut into = p.mr_b.sge(0, if is(ShortReceive) { 7 } else { 8 });
    if is(ReceivesMemory) {
        into.lkey = 1;
    }
    if !is(NoReceive) {
        p.recv(5, &[into]);
    }
    if is(Receive) {
        p.m.memory.set_word(p.b.rq, 99);
    }
    if is(Peer) {
        p.m.set_state(p.b.number, qp_state::ERROR).unwrap();
    }
    let mut wqe = p.remote(opcode, 64);
    let mut sge = p.mr_a.sge(0, 8);
    if is(Flags) {
        wqe.flags |= 1 << 7;
    }
    if is(Alignment) {
        wqe.remote_addr += 4;
    }
    if is(PeersMemory) {
        wqe.rkey = 1;
    }
    let is_atomic = matches!(opcode, work::COMPARE_SWAP | work::FETCH_ADD);
    if is(Length) {
        sge.bytes = if is_atomic { 9 } else { 4097 };
    }
    if is(OwnMemory) || is(Result) {
        sge.lkey = 1;
    }
    let words = match opcode {
        work::ATOMIC_WRITE => inline_words(wqe, &[1; 8]),
        _ if is_atomic => {
            let (blocks, sges) = (1, 1);
            let [a, b, c, d] = SendWqe {
                blocks,
                sges,
                ..wqe
            }
            .encode();
            with_sges(&[a, b, c, d, 0, 0], &[sge])
        }
        _ => wqe_words(wqe, &[sge]),
    };
    p.m.post_words(&mut p.a, &words);
    p.m.ring_sq(&p.a);
    p.m.settle();
    outcome(&p.done_a()[0])
}

/// Whether one receive may have both.
fn go_together(first: Wrong, second: Wrong) -> bool {
    let of_receive = [Receive, ShortReceive, ReceivesMemory];
    first != NoReceive || !of_receive.contains(&second)
}

fn the_first_fault_counts() {
    for opcode in [
        work::SEND,
        work::SEND_INV,
        work::WRITE,
        work::WRITE_IMM,
        work::READ,
        work::COMPARE_SWAP,
        work::FETCH_ADD,
        work::ATOMIC_WRITE,
    ] {
        let all = faults(opcode);
        for (at, &first) in all.iter().enumerate() {
            for &second in &all[at..] {
                if go_together(first, second) {
                    let got = outcome_of(opcode, &[first, second]);
                    assert_eq!(got, expected(first), "{opcode}: {first:?}, {second:?}");
                }
            }
        }
    }
    // The window is the last that a SEND_INV may fail for.
    let got = outcome_of(work::SEND_INV, &[]);
    assert_eq!(got, (Status::RetryExceeded, Detail::NotReady));
}

fn a_read_fills_the_pieces_before_the_fault() {
    let mut p = Pair::new();
    p.m.memory.set_words(p.mr_b.addr, &[7, 8, 9]);
    let bad = Sge {
        lkey: 1,
        ..p.mr_a.sge(8, 8)
    };
    let pieces = [p.mr_a.sge(0, 8), bad, p.mr_a.sge(16, 8)];
    p.send(p.remote(work::READ, 0), &pieces);
    assert_eq!(outcome(&p.done_a()[0]), expected(Result));
    assert_eq!(p.m.memory.words(p.mr_a.addr), [7, 0, 0]);
}

fn a_result_without_a_place_harms_no_peer() {
    for opcode in [work::READ, work::FETCH_ADD] {
        let mut p = Pair::new();
        let bad = Sge {
            lkey: 1,
            ..p.mr_a.sge(0, 8)
        };
        match opcode {
            work::READ => p.send(p.remote(opcode, 0), &[bad]),
            _ => p.send_atomic(p.atomic(opcode, 0, 3, 0), &[bad]),
        }
        assert_eq!(outcome(&p.done_a()[0]), expected(Result));
        assert_eq!(p.state(p.a.number), qp_state::ERROR);
        assert_eq!(p.state(p.b.number), qp_state::RTS);
        let added = u64::from(opcode == work::FETCH_ADD) * 3;
        assert_eq!(p.m.memory.word(p.mr_b.addr), added, "an atomic has acted");
    }
}
