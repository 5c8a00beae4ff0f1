// SPDX-License-Identifier: GPL-2.0
//! Connections by frames: operations, order, errors, and lines that lose frames.

use super::buffers::Pages;
use super::checks;
use crate::harness::*;
use qpair_abi::command::*;
use qpair_abi::counters::Counter;
use qpair_abi::entry::opcode;
use qpair_abi::entry::*;
use qpair_abi::status::Detail;
use qpair_abi::status::Status;
use qpair_testkit::with_seeds;
use qpair_testkit::Rng;

checks![
    messages_of_all_sizes,
    immediate_data,
    reads_of_all_sizes,
    a_read_of_no_bytes,
    one_read_at_least,
    memory_in_pages,
    data_in_the_request,
    a_connection_over_ipv6,
    atomics_act_once,
    a_flush_and_an_atomic_write,
    a_message_that_invalidates,
    any_program_on_a_bad_line,
    both_ways_on_a_bad_line,
];

const SIZES: [u32; 9] = [0, 1, 1023, 1024, 1025, 2048, 5000, 65536, 200_000];

fn success(cqe: &Cqe) {
    assert_eq!(outcome(cqe), (Status::Success, Detail::None), "{cqe:?}");
}

fn messages_of_all_sizes() {
    let mut f = Far::new();
    for (i, bytes) in SIZES.into_iter().enumerate() {
        let data = pattern(bytes as usize, i as u64);
        f.set_bytes(0, 3, &data);
        let halves = [
            f.mrs[0].sge(3, bytes / 2),
            f.mrs[0].sge(3 + u64::from(bytes / 2), bytes - bytes / 2),
        ];
        f.recv(
            5,
            &[f.mrs[1].sge(300_000, 7), f.mrs[1].sge(300_007, 1 << 18)],
        );
        f.send(wqe(opcode::SEND, 1), &halves);
        f.send(f.remote(opcode::WRITE, 11), &halves);
        let sent = f.done(0);
        assert_eq!(sent.len(), 2);
        sent.iter().for_each(success);
        let [came] = f.done(1)[..] else {
            panic!("one receive");
        };
        success(&came);
        assert_eq!(
            (came.wr_id, came.bytes, came.opcode),
            (5, bytes, opcode::RECV)
        );
        assert_eq!(f.bytes(1, 300_000, bytes as usize), data);
        assert_eq!(f.bytes(1, 11, bytes as usize), data);
        let after = f.bytes(1, 11 + u64::from(bytes), 8);
        assert_eq!(after, [0; 8].map(|_| after[0]).to_vec());
    }
    let m = f.m(0);
    assert_eq!(m.f.counter(Counter::Retries), 0);
    assert_eq!(
        m.f.counter(Counter::SendBytes),
        SIZES.iter().map(|b| u64::from(*b)).sum()
    );
}

fn immediate_data() {
    let mut f = Far::new();
    for (kind, bytes) in [
        (opcode::SEND_IMM, 0),
        (opcode::SEND_IMM, 3000),
        (opcode::WRITE_IMM, 0),
        (opcode::WRITE_IMM, 3000),
    ] {
        f.recv(5, &[f.mrs[1].sge(0, 4000)]);
        let request = SendWqe {
            imm: 0x0403_0201,
            flags: send_flags::SIGNALED | send_flags::SOLICITED,
            ..f.remote(kind, 0)
        };
        f.send(request, &[f.mrs[0].sge(0, bytes)]);
        success(&f.done(0)[0]);
        let came = f.done(1)[0];
        success(&came);
        assert_eq!((came.imm, came.bytes), (0x0403_0201, bytes));
        let both = cqe_flags::IMM | cqe_flags::SOLICITED;
        assert_eq!(came.flags & both, both);
        let expected = match kind {
            opcode::WRITE_IMM => opcode::RECV_WRITE_IMM,
            _ => opcode::RECV,
        };
        assert_eq!(came.opcode, expected);
    }
}

fn reads_of_all_sizes() {
    let mut f = Far::new();
    for (i, bytes) in SIZES.into_iter().enumerate() {
        let data = pattern(bytes as usize, i as u64);
        f.set_bytes(1, 9, &data);
        let into = [
            f.mrs[0].sge(1, bytes / 3),
            f.mrs[0].sge(1 + u64::from(bytes / 3), bytes - bytes / 3),
        ];
        f.send(f.remote(opcode::READ, 9), &into);
        let done = f.done(0)[0];
        success(&done);
        assert_eq!(done.bytes, bytes);
        assert_eq!(f.bytes(0, 1, bytes as usize), data);
    }
    assert!(f.done(1).is_empty());
}

fn a_read_of_no_bytes() {
    let mut f = Far::new();
    let no_key = SendWqe {
        rkey: 1,
        ..f.remote(opcode::READ, 0)
    };
    f.send(no_key, &[]);
    success(&f.done(0)[0]);
}

fn one_read_at_least() {
    let mut f = Far::new();
    f.reset(0);
    f.connection.reads = 0;
    f.connect(0);
    f.send(f.remote(opcode::READ, 0), &[f.mrs[0].sge(0, 3000)]);
    success(&f.done(0)[0]);
}

fn memory_in_pages() {
    const BYTES: u32 = 9000;
    let mut f = Far::new();
    // A page ends in the midst of a packet.
    let pages = Pages::new(f.m(1), BYTES.into(), 1, 12, 100);
    let (key, data) = (f.mrs[1].key, pattern(BYTES as usize, 1));
    let memory = MrContext {
        addr: f.mrs[1].va,
        buffer: pages.list,
        ..MrContext::default()
    };
    f.m(1).modify_mr(key, mr_mask::MEMORY, &memory).unwrap();
    f.set_bytes(0, 0, &data);
    f.send(f.remote(opcode::WRITE, 0), &[f.mrs[0].sge(0, BYTES)]);
    f.send(f.remote(opcode::READ, 0), &[f.mrs[0].sge(1 << 16, BYTES)]);
    f.done(0).iter().for_each(success);
    assert_eq!(pages.read(f.m(1), 0, BYTES.into()), data);
    assert_eq!(f.bytes(0, 1 << 16, BYTES as usize), data);
}

fn data_in_the_request() {
    let mut f = Far::with(Connection {
        log_mtu: 8,
        ..Connection::default()
    });
    for length in [0, 1, 100, 200] {
        let data = pattern(length, 3);
        f.post_words(&inline_words(f.remote(opcode::WRITE, 40), &data));
        f.lan.settle();
        success(&f.done(0)[0]);
        assert_eq!(f.bytes(1, 40, length), data);
    }
}

fn a_connection_over_ipv6() {
    for service in [service::RC, service::UC] {
        let mut f = Far::with(Connection {
            service,
            ipv6: true,
            ..Connection::default()
        });
        let data = pattern(5000, 2);
        f.set_bytes(0, 0, &data);
        f.send(f.remote(opcode::WRITE, 0), &[f.mrs[0].sge(0, 5000)]);
        success(&f.done(0)[0]);
        assert_eq!(f.bytes(1, 0, 5000), data);
    }
}

fn atomics_act_once() {
    let mut f = Far::new();
    f.set_bytes(1, 8, &7u64.to_le_bytes());
    let swaps = [
        (opcode::FETCH_ADD, 5, 0, 7, 12),
        (opcode::COMPARE_SWAP, 12, 100, 12, 100),
        (opcode::COMPARE_SWAP, 12, 200, 100, 100),
    ];
    for (kind, compare_add, swap, old, new) in swaps {
        let wqe = f.atomic(kind, 8, compare_add, swap);
        f.post_words(&atomic_words(wqe, &[f.mrs[0].sge(16, 8)]));
        f.lan.settle();
        let done = f.done(0)[0];
        success(&done);
        assert_eq!(done.bytes, 8);
        assert_eq!(f.bytes(0, 16, 8), u64::to_le_bytes(old));
        assert_eq!(f.bytes(1, 8, 8), u64::to_le_bytes(new));
    }
    assert_eq!(f.m(0).f.counter(Counter::Atomics), 3);
}

fn a_flush_and_an_atomic_write() {
    let mut f = Far::new();
    let flush = FlushWqe {
        opcode: opcode::FLUSH,
        flags: send_flags::SIGNALED,
        blocks: 1,
        kinds: flush::GLOBAL,
        wr_id: 4,
        remote_addr: f.mrs[1].va,
        rkey: f.mrs[1].key.raw(),
        bytes: 100,
        ..FlushWqe::default()
    };
    f.post_words(&with_sges(&flush.encode(), &[]));
    f.post_words(&inline_words(f.remote(opcode::ATOMIC_WRITE, 64), &[9; 8]));
    f.lan.settle();
    let done = f.done(0);
    assert_eq!(done.len(), 2);
    done.iter().for_each(success);
    assert_eq!(f.bytes(1, 64, 8), [9; 8]);
}

fn a_message_that_invalidates() {
    let mut f = Far::new();
    let (pd, mr) = (f.pds[1], f.mrs[1]);
    let (_, key) = f.m(1).mw(pd, mw_type::TWO);
    let bind = Pair::bind(key, &mr, 0, 4096);
    let (m, qp) = (&mut f.lan.machines[1], &mut f.qps[1]);
    m.post_words(qp, &bind_words(bind));
    m.ring_sq(qp);
    f.lan.settle();
    success(&f.done(1)[0]);
    let to_window = SendWqe {
        rkey: bind.new_key,
        ..f.remote(opcode::WRITE, 0)
    };
    f.send(to_window, &[f.mrs[0].sge(0, 2000)]);
    f.recv(5, &[f.mrs[1].sge(0, 4000)]);
    let invalidates = SendWqe {
        imm: bind.new_key,
        ..wqe(opcode::SEND_INV, 2)
    };
    f.send(invalidates, &[f.mrs[0].sge(0, 2000)]);
    f.done(0).iter().for_each(success);
    let came = f.done(1)[0];
    assert_eq!(
        (came.imm, came.flags & cqe_flags::INV),
        (bind.new_key, cqe_flags::INV)
    );
    f.send(to_window, &[f.mrs[0].sge(0, 8)]);
    assert_eq!(outcome(&f.done(0)[0]).0, Status::RemoteAccess);
}

/// What the programs move.
const AREA: usize = 4096;

/// A request of a program.
fn any_request(f: &mut Far, rng: &mut Rng, wr_id: u64) {
    let bytes = rng.below(AREA as u64) as u32;
    let kinds = [
        opcode::SEND,
        opcode::SEND_IMM,
        opcode::WRITE,
        opcode::WRITE_IMM,
        opcode::READ,
        opcode::FETCH_ADD,
    ];
    let kind = kinds[rng.below(6) as usize];
    // Each has an area of its own at both ends; a counter is behind them.
    let at = wr_id * AREA as u64;
    let fence = match rng.below(4) {
        0 => send_flags::FENCE,
        _ => 0,
    };
    let flags = send_flags::SIGNALED | fence;
    if kind == opcode::FETCH_ADD {
        let wqe = AtomicWqe {
            wr_id,
            flags,
            ..f.atomic(kind, COUNTER, 1, 0)
        };
        let words = atomic_words(wqe, &[f.mrs[0].sge(at, 8)]);
        f.post_words(&words);
        return;
    }
    let request = SendWqe {
        wr_id,
        flags,
        imm: wr_id as u32,
        ..f.remote(kind, at)
    };
    f.post(request, &[f.mrs[0].sge(at, bytes)]);
}

const COUNTER: u64 = (1 << 20) - 8;
const REQUESTS: u64 = 60;

/// A program, and what is in memory afterwards.
fn any_program(rng: &mut Rng, line: Line) {
    let connection = Connection {
        log_mtu: 8 + rng.below(3) as u8,
        psns: [rng.next() as u32 & 0xff_ffff, rng.next() as u32 & 0xff_ffff],
        reads: 1 + rng.below(4) as u8,
        ..Connection::default()
    };
    let mut f = Far::on_line(line, rng.next(), connection);
    let (own, peers) = (pattern(1 << 19, rng.next()), pattern(1 << 19, rng.next()));
    f.set_bytes(0, 0, &own);
    f.set_bytes(1, 0, &peers);
    if rng.below(3) == 0 {
        f.m(0).f.host_mut().room = 3;
        f.m(1).f.host_mut().room = 2;
    }
    let receives = |f: &mut Far, from: u64, to: u64| {
        for nth in from..to {
            // Behind the areas.
            let sge = f.mrs[1].sge((REQUESTS + nth) * AREA as u64, AREA as u32);
            f.recv(nth, &[sge]);
        }
    };
    let early = rng.below(REQUESTS);
    receives(&mut f, 0, early);
    let mut wqes = Vec::new();
    for wr_id in 0..REQUESTS {
        let before = f.qps[0].sq_tail;
        any_request(&mut f, rng, wr_id);
        let at = f.qps[0].sq + u64::from(before & 255) * 64;
        wqes.push(SendWqe::decode(&f.m(0).memory.words(at)));
        if rng.below(4) == 0 {
            f.lan.pass(rng.below(200_000));
        }
    }
    f.lan.pass(rng.below(5_000_000));
    receives(&mut f, early, REQUESTS);
    f.lan.settle();
    // Completions are in order, and all succeed.
    let sent = f.done(0);
    assert_eq!(sent.len() as u64, REQUESTS);
    for (nth, cqe) in sent.iter().enumerate() {
        success(cqe);
        assert_eq!((cqe.wr_id, cqe.opcode), (nth as u64, wqes[nth].opcode));
    }
    let mut came = f.done(1).into_iter();
    let mut count = 0u64;
    for wqe in wqes {
        let at = wqe.wr_id * AREA as u64;
        let area = at as usize..at as usize + AREA;
        let at_sge = f.qps[0].sq + wqe.wr_id * 64 + 32;
        let sge = Sge::decode(&f.m(0).memory.words(at_sge));
        let bytes = sge.bytes as usize;
        if wqe.opcode == opcode::FETCH_ADD {
            assert_eq!(f.bytes(0, at, 8), count.to_le_bytes());
            count += 1;
            continue;
        }
        let data = &own[area.clone()][..bytes];
        match wqe.opcode {
            opcode::READ => assert_eq!(f.bytes(0, at, bytes), peers[area][..bytes]),
            opcode::WRITE => assert_eq!(f.bytes(1, at, bytes), data),
            _ => {
                let cqe = came.next().expect("a receive");
                success(&cqe);
                assert_eq!(cqe.bytes as usize, bytes);
                let is_write = wqe.opcode == opcode::WRITE_IMM;
                let into = if is_write {
                    at
                } else {
                    (REQUESTS + cqe.wr_id) * AREA as u64
                };
                assert_eq!(f.bytes(1, into, bytes), data);
                if wqe.opcode != opcode::SEND {
                    assert_eq!(cqe.imm, wqe.wr_id as u32);
                }
            }
        }
    }
    assert!(came.next().is_none());
    assert_eq!(f.bytes(1, COUNTER, 8), count.to_le_bytes());
}

fn any_program_on_a_bad_line() {
    let lines = [
        Line::default(),
        Line {
            lost: 10,
            ..Line::default()
        },
        Line {
            lost: 50,
            ..Line::default()
        },
        Line {
            lost: 200,
            ..Line::default()
        },
        Line {
            repeated: 100,
            ..Line::default()
        },
        Line {
            late: 50,
            ..Line::default()
        },
        Line {
            corrupt: 20,
            ..Line::default()
        },
        Line {
            lost: 20,
            repeated: 50,
            late: 50,
            corrupt: 20,
        },
    ];
    with_seeds("any_program_on_a_bad_line", 3, |rng| {
        for line in lines {
            any_program(rng, line);
        }
    });
}

/// Both ends write to and read from the other at once.
fn both_ways(rng: &mut Rng) {
    const COUNT: u64 = 50;
    const BYTES: u32 = 3000;
    // What is sent, where WRITEs go, and where answers to READs go.
    let (from, written, read) = (0, 1 << 18, 1 << 19);
    let line = Line {
        lost: 50,
        repeated: 50,
        late: 50,
        corrupt: 20,
    };
    let mut f = Far::on_line(line, rng.next(), Connection::default());
    let data = [0, 1].map(|seed| pattern(COUNT as usize * 4096, seed));
    for place in [0, 1] {
        f.set_bytes(place, from, &data[place]);
    }
    for wr_id in 0..COUNT {
        let at = wr_id * 4096;
        for place in [0, 1] {
            let peer = f.mrs[1 - place];
            for (kind, to, local) in [
                (opcode::WRITE, written + at, from + at),
                (opcode::READ, from + at, read + at),
            ] {
                let request = SendWqe {
                    remote_addr: peer.va + to,
                    rkey: peer.key.raw(),
                    ..wqe(kind, wr_id)
                };
                let words = wqe_words(request, &[f.mrs[place].sge(local, BYTES)]);
                let (m, qp) = (&mut f.lan.machines[place], &mut f.qps[place]);
                m.post_words(qp, &words);
                m.ring_sq(qp);
            }
        }
        f.lan.pass(rng.below(100_000));
    }
    f.lan.settle();
    for place in [0, 1] {
        let done = f.done(place);
        assert_eq!(done.len() as u64, 2 * COUNT);
        done.iter().for_each(success);
        assert!(done.windows(2).all(|two| two[0].wr_id <= two[1].wr_id));
        for at in (0..COUNT).map(|wr_id| wr_id * 4096) {
            let peers = &data[1 - place][at as usize..][..BYTES as usize];
            for came in [written, read] {
                assert_eq!(f.bytes(place, came + at, BYTES as usize), peers);
            }
        }
    }
}

fn both_ways_on_a_bad_line() {
    with_seeds("both_ways_on_a_bad_line", 3, both_ways);
}
