// SPDX-License-Identifier: GPL-2.0
//! Datagrams of arbitrary software: each is delivered or dropped as the manual has it.

use super::checks;
use crate::harness::*;
use qpair_abi::command::*;
use qpair_abi::entry::*;
use qpair_testkit::with_seeds;
use qpair_testkit::Rng;

checks![anything_between_queue_pairs, garbage_in_datagrams,];

/// What a queue pair of the test may do, as the test knows it.
#[derive(Clone, Default)]
struct Known {
    q_key: u32,
    state: u8,
    /// Identifier and room of each receive that is posted.
    receives: std::collections::VecDeque<(u64, u32)>,
}

fn anything_between_queue_pairs() {
    with_seeds("anything_between_queue_pairs", 30, |rng| {
        let mut w = Port::new(4);
        let mut known = vec![
            Known {
                q_key: KEY,
                state: qp_state::RTS,
                ..Known::default()
            };
            4
        ];
        for step in 0..300 {
            let (from, to) = (rng.below(4) as usize, rng.below(4) as usize);
            match rng.below(10) {
                0..3 => post_receive(&mut w, &mut known, rng, to, step),
                3 => change(&mut w, &mut known, rng, to),
                _ => send(&mut w, &mut known, rng, (from, to), step),
            }
        }
        assert!(w.m.events0().is_empty());
    });
}

fn post_receive(w: &mut Port, known: &mut [Known], rng: &mut Rng, at: usize, id: u64) {
    if known[at].receives.len() == 16 || known[at].state == qp_state::RESET {
        return;
    }
    let room = 1 + rng.below(200) as u32;
    let first = rng.below(room.into()) as u32;
    let sges = [
        w.mrs[at].sge(1000, first),
        w.mrs[at].sge(2000, room - first),
    ];
    w.recv(at, id, &sges);
    known[at].receives.push_back((id, room));
}

fn change(w: &mut Port, known: &mut [Known], rng: &mut Rng, at: usize) {
    let qp = w.qps[at].number;
    if rng.one_in(2) {
        let context = QpContext {
            q_key: rng.pick(&[KEY, KEY + 1, OWN_Q_KEY]),
            ..QpContext::default()
        };
        w.m.modify(qp, qp_mask::Q_KEY, &context).unwrap();
        known[at].q_key = context.q_key;
        return;
    }
    w.m.set_state(qp, qp_state::RESET).unwrap();
    (w.qps[at].sq_tail, w.qps[at].rq_tail) = (0, 0);
    known[at].receives.clear();
    let path = [qp_state::INIT, qp_state::RTR, qp_state::RTS, qp_state::SQD];
    known[at].state = qp_state::RESET;
    for state in &path[..rng.below(5) as usize] {
        w.m.set_state(qp, *state).unwrap();
        known[at].state = *state;
    }
}

fn send(w: &mut Port, known: &mut [Known], rng: &mut Rng, (from, to): (usize, usize), id: u64) {
    if known[from].state != qp_state::RTS {
        return;
    }
    let mut wqe = UdWqe {
        q_key: rng.pick(&[KEY, KEY, KEY + 1, OWN_Q_KEY]),
        ..w.to(to, id)
    };
    if rng.one_in(10) {
        wqe.gid_high = rng.odd();
    }
    let bytes = rng.below(150) as u32;
    let data = pattern(bytes as usize, id);
    w.m.memory.set_bytes(w.mrs[from].addr + 4096, &data);
    let q_key = match wqe.q_key {
        OWN_Q_KEY => known[from].q_key,
        given => given,
    };
    let ready = matches!(
        known[to].state,
        qp_state::RTR | qp_state::RTS | qp_state::SQD
    );
    let accepted = ready && q_key == known[to].q_key && wqe.gid_high == GID[1];
    let fits = |receive: &&(u64, u32)| accepted && receive.1 >= bytes + GRH as u32;
    let expected = known[to].receives.front().filter(fits).copied();
    let before = w.dropped();
    w.send(from, wqe, &[w.mrs[from].sge(4096, bytes)]);
    let received = match from == to {
        true => vec![],
        false => w.done(to),
    };
    let all: Vec<_> = w.done(from).into_iter().chain(received).collect();
    let (receives, sends): (Vec<_>, Vec<_>) = all
        .into_iter()
        .partition(|cqe| cqe.flags & cqe_flags::RECV != 0);
    assert_eq!((sends.len(), sends[0].wr_id, sends[0].status), (1, id, 0));
    let Some((receive, room)) = expected else {
        assert_eq!((receives.len(), w.dropped()), (0, before + 1));
        return;
    };
    known[to].receives.pop_front();
    assert_eq!((receives.len(), w.dropped()), (1, before));
    assert_eq!(
        (receives[0].wr_id, receives[0].bytes),
        (receive, bytes + GRH as u32)
    );
    assert_eq!(receives[0].src, w.qps[from].number.raw());
    // Where the first piece ends is the receive's; the whole is the packet.
    let posted = w.m.memory.bytes(w.mrs[to].addr + 1000, room as usize);
    let rest = w.m.memory.bytes(w.mrs[to].addr + 2000, room as usize);
    let packet: Vec<u8> = grh(bytes as u16, false).into_iter().chain(data).collect();
    let split = (0..=packet.len())
        .any(|at| posted[..at] == packet[..at] && rest[..packet.len() - at] == packet[at..]);
    assert!(split, "the packet is in the pieces");
}

fn garbage_in_datagrams() {
    // The machine is strict: no other memory is accessed.
    with_seeds("garbage_in_datagrams", 60, |rng| {
        let mut w = Port::new(2);
        for id in 0..60 {
            if w.state(0) == qp_state::ERROR {
                w.m.set_state(w.qps[0].number, qp_state::RESET).unwrap();
                w.qps[0].sq_tail = 0;
                ud_start(&mut w.m, w.qps[0].number, KEY);
            }
            if rng.one_in(2) && w.state(1) == qp_state::RTS {
                let into = w.mrs[1].sge(rng.below(1 << 15), rng.below(5000) as u32);
                w.recv(1, id, &[into]);
            }
            let mut wqe = w.to(1, id);
            wqe.opcode = rng.below(4) as u8;
            wqe.flags = rng.pick(&[0, 1, 1, 3, 8, 9, 255]);
            let sge = w.mrs[0].sge(rng.below(1 << 15), rng.below(5000) as u32);
            let mut words = ud_words(wqe, &vec![sge; rng.below(3) as usize]);
            if rng.one_in(3) {
                let at = rng.below(words.len() as u64) as usize;
                words[at] = rng.odd();
            }
            let mut qp = w.qps[0];
            w.m.post_words(&mut qp, &words);
            w.qps[0] = qp;
            w.ring(0);
            w.done(0);
            w.done(1);
            w.m.events0();
        }
        w.add();
        w.add();
        w.works(2, 3);
    });
}
