// SPDX-License-Identifier: GPL-2.0
//! Unreliable connections by frames.

use super::checks;
use crate::harness::*;
use qpair_abi::command::*;
use qpair_abi::counters::Counter;
use qpair_abi::entry::opcode;
use qpair_abi::entry::*;
use qpair_abi::status::Status;
use qpair_roce::extended::Reth;
use qpair_roce::operation::Operation;
use qpair_testkit::with_seeds;
use qpair_testkit::Rng;

checks![
    unreliable_messages_of_all_sizes,
    nothing_at_the_peer_fails_the_sender,
    the_rest_of_a_refused_message,
    whole_messages_or_none,
];

fn unreliable() -> Connection {
    Connection {
        service: service::UC,
        ..Connection::default()
    }
}

fn unreliable_messages_of_all_sizes() {
    let mut f = Far::with(unreliable());
    for (i, bytes) in [0u32, 1, 1024, 1025, 5000, 100_000].into_iter().enumerate() {
        let data = pattern(bytes as usize, i as u64);
        f.set_bytes(0, 0, &data);
        for kind in [
            opcode::SEND,
            opcode::SEND_IMM,
            opcode::WRITE,
            opcode::WRITE_IMM,
        ] {
            f.set_bytes(1, 0, &vec![0; bytes as usize]);
            f.recv(5, &[f.mrs[1].sge(0, 1 << 18)]);
            let request = SendWqe {
                imm: 9,
                ..f.remote(kind, 0)
            };
            f.send(request, &[f.mrs[0].sge(0, bytes)]);
            assert_eq!(outcome(&f.done(0)[0]).0, Status::Success);
            assert_eq!(f.bytes(1, 0, bytes as usize), data);
            let came = f.done(1);
            if kind != opcode::WRITE {
                assert_eq!(
                    (came[0].bytes, outcome(&came[0]).0),
                    (bytes, Status::Success)
                );
            }
        }
    }
    // No frame has an answer.
    assert_eq!(f.m(1).f.counter(Counter::FramesOut), 0);
}

fn nothing_at_the_peer_fails_the_sender() {
    let mut f = Far::with(unreliable());
    // No receive; one too short; no key; no right.
    f.send(wqe(opcode::SEND, 1), &[f.mrs[0].sge(0, 3000)]);
    f.recv(5, &[f.mrs[1].sge(0, 2000)]);
    f.send(wqe(opcode::SEND, 1), &[f.mrs[0].sge(0, 3000)]);
    let no_key = SendWqe {
        rkey: 1,
        ..f.remote(opcode::WRITE, 0)
    };
    f.send(no_key, &[f.mrs[0].sge(0, 3000)]);
    assert_eq!(f.done(0).len(), 3);
    assert_eq!([f.state(0), f.state(1)], [qp_state::RTS; 2]);
    assert!(f.m(1).f.counter(Counter::Dropped) >= 3);
    // The receive is the next one.
    f.send(wqe(opcode::SEND, 2), &[f.mrs[0].sge(0, 2000)]);
    let came = f.done(1);
    assert_eq!((came.len(), came[0].wr_id, came[0].bytes), (1, 5, 2000));
}

fn the_rest_of_a_refused_message() {
    let mut f = Far::with(unreliable());
    let at = (1 << 20) - 2048;
    let reth = Reth {
        addr: f.mrs[1].va + at,
        bytes: 3072,
        ..Forged::reth(&f)
    };
    Forged::of(&f, 0, Operation::WriteFirst(reth), vec![7; 1024]).send(&mut f, []);
    // This packet alone would fit.
    Forged::of(&f, 1, Operation::WriteMiddle, vec![7; 1024]).send(&mut f, []);
    assert_eq!(f.bytes(1, at, 2048), [0; 2048]);
}

fn whole_messages(rng: &mut Rng) {
    let line = Line {
        lost: 50,
        repeated: 50,
        late: 50,
        corrupt: 20,
    };
    let mut f = Far::on_line(line, rng.next(), unreliable());
    let mut sizes = Vec::new();
    for wr_id in 0..60u64 {
        f.recv(wr_id, &[f.mrs[1].sge(wr_id * 8192, 8192)]);
    }
    for wr_id in 0..60u64 {
        let bytes = rng.below(8192) as u32;
        f.set_bytes(0, wr_id * 8192, &pattern(bytes as usize, wr_id));
        let request = SendWqe {
            imm: wr_id as u32,
            ..wqe(opcode::SEND_IMM, wr_id)
        };
        f.post(request, &[f.mrs[0].sge(wr_id * 8192, bytes)]);
        f.lan.pass(rng.below(500_000));
        sizes.push(bytes);
    }
    f.lan.settle();
    let sent = f.done(0);
    assert_eq!(sent.len(), 60);
    assert!(sent.iter().all(|cqe| cqe.status == 0));
    let came = f.done(1);
    assert!((20..60).contains(&came.len()), "{} came", came.len());
    // Those that came are in order, and whole.
    assert!(came.windows(2).all(|two| two[0].imm < two[1].imm));
    for cqe in came {
        let (bytes, message) = (sizes[cqe.imm as usize], u64::from(cqe.imm));
        assert_eq!(cqe.bytes, bytes);
        let data = pattern(bytes as usize, message);
        assert_eq!(f.bytes(1, cqe.wr_id * 8192, bytes as usize), data);
    }
}

fn whole_messages_or_none() {
    with_seeds("whole_messages_or_none", 8, whole_messages);
}
