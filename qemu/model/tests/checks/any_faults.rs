// SPDX-License-Identifier: GPL-2.0
//! Any rules of fault points, changed at any time: each work request completes once, in order.

use super::checks;
use crate::harness::*;
use qpair_abi::command::qp_state;
use qpair_abi::entry::cqe_flags;
use qpair_abi::entry::opcode;
use qpair_abi::entry::send_flags;
use qpair_abi::entry::SendWqe;
use qpair_testkit::with_seeds;
use qpair_testkit::Rng;

checks![anything_under_any_rules];

const MS: u64 = 1_000_000;
/// Entries of each ring.
const DEPTH: u64 = 16;
/// All actions but those after which completions are lost.
const ACTIONS: [&str; 11] = [
    "fail=rem-access",
    "fail=wr-flush",
    "fail=loc-prot,opcode=recv",
    "delay=1ns",
    "delay=9ms",
    "drop-ack",
    "rnr=1",
    "rnr=9",
    "freeze",
    "event=qp-fatal",
    "event=cq-overrun",
];
const WHEN: [&str; 5] = ["", ",every=3", ",nth=2", ",chance=0.2", ",times=1"];

fn rules(rng: &mut Rng) -> String {
    let mut all = vec![format!("seed={}", rng.below(9))];
    for _ in 0..rng.below(4) {
        all.push(format!("{}{}", rng.pick(&ACTIONS), rng.pick(&WHEN)));
    }
    all.join(";")
}

/// One side's work requests: sends, and receives.
#[derive(Clone, Copy, Default)]
struct Side {
    posted: [u64; 2],
    completed: [u64; 2],
}

impl Side {
    fn has_room(&self, receives: bool) -> bool {
        let queue = usize::from(receives);
        self.posted[queue] - self.completed[queue] < DEPTH
    }

    /// The identifier of the next work request.
    fn post(&mut self, receives: bool) -> u64 {
        let queue = usize::from(receives);
        self.posted[queue] += 1;
        self.posted[queue]
    }
}

fn anything_under_any_rules() {
    with_seeds("anything_under_any_rules", 200, |rng| {
        let retries = [(); 4].map(|()| rng.below(8) as u8);
        let mut p = Pair::with(|a, b| {
            [a.retry, a.rnr_retry, b.retry, b.rnr_retry] = retries;
        });
        let mut sides = [Side::default(); 2];
        for _ in 0..80 {
            match rng.below(12) {
                0 => p.m.f.set_faults(&rules(rng)).unwrap(),
                1..4 => p.m.pass(rng.below(9) * MS),
                4..7 => receive(&mut p, &mut sides, rng),
                _ => send(&mut p, &mut sides, rng),
            }
            completions(&mut p, &mut sides);
        }
        // What is left is flushed, whether or not the rules hold it.
        if rng.one_in(2) {
            p.m.f.set_faults("").unwrap();
        }
        for qp in [p.a.number, p.b.number] {
            p.m.set_state(qp, qp_state::ERROR).unwrap();
        }
        p.m.pass(1_000 * MS);
        completions(&mut p, &mut sides);
        for side in sides {
            assert_eq!(side.posted, side.completed);
        }
    });
}

fn receive(p: &mut Pair, sides: &mut [Side; 2], rng: &mut Rng) {
    let at = rng.below(2) as usize;
    if !sides[at].has_room(true) {
        return;
    }
    let id = sides[at].post(true);
    if at == 0 {
        let mut a = p.a;
        p.m.recv(&mut a, id, &[]);
        p.a = a;
    } else {
        p.recv(id, &[p.mr_b.sge(0, 64)]);
    }
}

fn send(p: &mut Pair, sides: &mut [Side; 2], rng: &mut Rng) {
    let from = rng.below(2) as usize;
    if !sides[from].has_room(false) {
        return;
    }
    let known = [
        opcode::NOP,
        opcode::SEND,
        opcode::WRITE,
        opcode::WRITE_IMM,
        opcode::READ,
    ];
    let (own, other) = if from == 0 {
        (p.mr_a, p.mr_b)
    } else {
        (p.mr_b, p.mr_a)
    };
    let request = SendWqe {
        opcode: rng.pick(&known),
        flags: send_flags::SIGNALED,
        wr_id: sides[from].post(false),
        remote_addr: other.va,
        rkey: other.key.raw(),
        ..SendWqe::default()
    };
    // Into a receive without memory, nothing fits. A NOP has none.
    let bytes = if request.opcode == opcode::NOP || from == 1 {
        0
    } else {
        64
    };
    let sges = [own.sge(0, bytes)];
    let mut qp = if from == 0 { p.a } else { p.b };
    p.m.send(&mut qp, request, &sges[..usize::from(bytes != 0)]);
    if from == 0 {
        p.a = qp;
    } else {
        p.b = qp;
    }
}

fn completions(p: &mut Pair, sides: &mut [Side; 2]) {
    for (side, cqes) in sides.iter_mut().zip([p.done_a(), p.done_b()]) {
        for cqe in cqes {
            let queue = usize::from(cqe.flags & cqe_flags::RECV != 0);
            side.completed[queue] += 1;
            assert_eq!(cqe.wr_id, side.completed[queue], "in order, once: {cqe:?}");
            assert_eq!(u64::from(cqe.index), cqe.wr_id, "one block each");
        }
    }
    // Room for the asynchronous events.
    p.m.events0();
}
