// SPDX-License-Identifier: GPL-2.0
//! Successful work requests.

use super::checks;
use crate::harness::*;
use qpair_abi::command::access;
use qpair_abi::counters::Counter;
use qpair_abi::entry::*;
use qpair_abi::status::Status;

checks![
    nop_completes,
    send_fills_the_next_receive,
    write_and_read_move_the_peers_memory,
    write_with_immediate_takes_a_receive,
    inline_data_come_from_the_wqe,
    only_signaled_requests_complete,
    a_wqe_may_wrap,
    messages_without_bytes,
    long_lists_and_long_strides,
    a_queue_pair_may_talk_to_itself,
    both_ways_at_once,
    bytes_are_counted_by_operation,
    data_are_there_before_the_completion,
];

fn nop_completes() {
    let mut p = Pair::new();
    p.send(wqe(opcode::NOP, 77), &[]);
    let expected = Cqe {
        wr_id: 77,
        qp: p.a.number,
        index: 1,
        ..Cqe::default()
    };
    assert_eq!(p.done_a(), [expected]);
}

fn send_fills_the_next_receive() {
    let mut p = Pair::new();
    let data = pattern(5000, 1);
    p.m.memory.set_bytes(p.mr_a.addr + 3, &data);
    let (first, second) = (p.mr_b.sge(100, 1001), p.mr_b.sge(5001, 4000));
    p.recv(9, &[first, p.mr_b.sge(0, 0), second]);
    let request = SendWqe {
        imm: 0xdead_beef,
        ..wqe(opcode::SEND_IMM, 8)
    };
    p.send(request, &[p.mr_a.sge(3, 7), p.mr_a.sge(10, 4993)]);
    let received = Cqe {
        wr_id: 9,
        qp: p.b.number,
        bytes: 5000,
        imm: 0xdead_beef,
        index: 1,
        opcode: opcode::RECV,
        flags: cqe_flags::RECV | cqe_flags::IMM,
        ..Cqe::default()
    };
    assert_eq!(p.done_b(), [received]);
    let sent = Cqe {
        wr_id: 8,
        qp: p.a.number,
        index: 1,
        opcode: opcode::SEND_IMM,
        ..Cqe::default()
    };
    assert_eq!(p.done_a(), [sent]);
    let mut got = p.m.memory.bytes(p.mr_b.addr + 100, 1001);
    got.extend(p.m.memory.bytes(p.mr_b.addr + 5001, 3999));
    assert_eq!(got, data);
    assert_eq!(p.m.memory.bytes(p.mr_b.addr + 9000, 2), [0, 0]);
}

fn write_and_read_move_the_peers_memory() {
    let mut p = Pair::new();
    let data = pattern(300_000, 2);
    p.m.memory.set_bytes(p.mr_a.addr, &data);
    p.send(p.remote(opcode::WRITE, 77), &[p.mr_a.sge(0, 300_000)]);
    assert_eq!(p.m.memory.bytes(p.mr_b.addr + 77, 300_000), data);
    let into = [p.mr_a.sge(400_000, 1), p.mr_a.sge(500_000, 299_999)];
    p.send(p.remote(opcode::READ, 77), &into);
    let cqes = p.done_a();
    assert_eq!(cqes.len(), 2);
    assert!(cqes.iter().all(|cqe| cqe.status == Status::Success.code()));
    assert_eq!((cqes[0].bytes, cqes[1].bytes), (0, 300_000));
    assert_eq!(p.m.memory.bytes(p.mr_a.addr + 500_000, 299_999), data[1..]);
    assert_eq!(p.done_b(), [], "the peer is not affected");
}

fn write_with_immediate_takes_a_receive() {
    let mut p = Pair::new();
    p.recv(5, &[]);
    p.recv(6, &[p.mr_b.sge(0, 8)]);
    let request = SendWqe {
        imm: 42,
        flags: send_flags::SIGNALED | send_flags::SOLICITED,
        ..p.remote(opcode::WRITE_IMM, 64)
    };
    p.m.memory.set_bytes(p.mr_a.addr, &[7; 100]);
    p.send(request, &[p.mr_a.sge(0, 100)]);
    let received = Cqe {
        wr_id: 5,
        qp: p.b.number,
        bytes: 100,
        imm: 42,
        index: 1,
        opcode: opcode::RECV_WRITE_IMM,
        flags: cqe_flags::RECV | cqe_flags::IMM | cqe_flags::SOLICITED,
        ..Cqe::default()
    };
    assert_eq!(p.done_b(), [received]);
    assert_eq!(p.done_a().len(), 1);
    assert_eq!(p.m.memory.bytes(p.mr_b.addr + 63, 102)[1..101], [7; 100]);
    assert_eq!(p.m.memory.bytes(p.mr_b.addr, 64), [0; 64], "not its SGEs");
}

fn inline_data_come_from_the_wqe() {
    let mut p = Pair::new();
    for (i, length) in [0, 1, 7, 32, 33, 100, 224].into_iter().enumerate() {
        let data = pattern(length, length as u64);
        let at = 1000 * i as u64;
        let words = inline_words(p.remote(opcode::WRITE, at), &data);
        p.m.post_words(&mut p.a, &words);
        p.m.ring_sq(&p.a);
        p.m.settle();
        assert_eq!(p.m.memory.bytes(p.mr_b.addr + at, length), data);
        assert_eq!(p.m.memory.bytes(p.mr_b.addr + at + length as u64, 1), [0]);
        assert_eq!(p.done_a().len(), 1);
    }
}

fn only_signaled_requests_complete() {
    let mut p = Pair::new();
    for i in 0..9 {
        let flags = if i % 3 == 2 { send_flags::SIGNALED } else { 0 };
        let request = SendWqe {
            flags,
            ..wqe(opcode::NOP, i)
        };
        p.m.post(&mut p.a, request, &[]);
    }
    p.m.ring_sq(&p.a);
    p.m.settle();
    let seen: Vec<_> = p
        .done_a()
        .iter()
        .map(|cqe| (cqe.wr_id, cqe.index))
        .collect();
    assert_eq!(seen, [(2, 3), (5, 6), (8, 9)]);
    assert_eq!(p.m.query_qp(p.a.number).sq_consumer, 9);
}

fn a_wqe_may_wrap() {
    let mut p = Pair::new();
    p.m.memory.set_bytes(p.mr_a.addr, &pattern(4096, 3));
    for round in 0..40u64 {
        // 3 blocks in a ring of 16: WQEs wrap at every position.
        let sges: Vec<_> = (0..9).map(|i| p.mr_a.sge(round + i * 16, 16)).collect();
        p.send(p.remote(opcode::WRITE, 0), &sges);
        let cqes = p.done_a();
        assert_eq!((cqes.len(), cqes[0].status), (1, 0));
        let expected = p.m.memory.bytes(p.mr_a.addr + round, 144);
        assert_eq!(p.m.memory.bytes(p.mr_b.addr, 144), expected);
    }
}

fn messages_without_bytes() {
    let mut p = Pair::new();
    // Keys of 0 bytes are ignored at both ends.
    let nothing = Sge {
        addr: 1,
        bytes: 0,
        lkey: 99,
    };
    let remote = |opcode| SendWqe {
        rkey: 12345,
        remote_addr: 7,
        ..wqe(opcode, 1)
    };
    p.send(remote(opcode::WRITE), &[nothing]);
    p.send(remote(opcode::READ), &[]);
    p.recv(1, &[]);
    p.send(wqe(opcode::SEND, 3), &[nothing, nothing]);
    let cqes = p.done_a();
    assert_eq!(cqes.len(), 3);
    assert!(cqes.iter().all(|cqe| cqe.status == 0));
    assert_eq!(p.done_b()[0].bytes, 0);
}

fn long_lists_and_long_strides() {
    let mut p = Pair::with(|_, b| b.stride = 2);
    let data = pattern(15 * 100, 4);
    p.m.memory.set_bytes(p.mr_a.addr, &data);
    let into: Vec<_> = (0..15).map(|i| p.mr_b.sge(i * 1000, 100)).collect();
    let from: Vec<_> = (0..14).map(|i| p.mr_a.sge(i * 107, 107)).collect();
    for round in 0..20 {
        p.recv(round, &into);
        p.send(wqe(opcode::SEND, round), &from);
        assert_eq!(p.done_b()[0].bytes, 1498);
        p.done_a();
    }
    let got: Vec<_> = (0..15)
        .flat_map(|i| p.m.memory.bytes(p.mr_b.addr + i * 1000, 100))
        .collect();
    assert_eq!(got[..1498], data[..1498]);
    assert_eq!(got[1498..], [0; 2]);
}

fn a_queue_pair_may_talk_to_itself() {
    let mut m = Machine::new();
    let (pd, mut cq) = (m.pd(), m.cq(5));
    let mut qp = m.qp(&Machine::spec(pd, &cq));
    m.connect(qp.number, qp.number);
    let mr = m.mr(pd, 4096);
    m.memory.set_bytes(mr.addr, b"myself");
    m.recv(&mut qp, 1, &[mr.sge(1000, 10)]);
    m.send(&mut qp, wqe(opcode::SEND, 2), &[mr.sge(0, 6)]);
    let opcodes: Vec<_> = m.drain(&mut cq).iter().map(|cqe| cqe.opcode).collect();
    assert_eq!(opcodes, [opcode::RECV, opcode::SEND]);
    assert_eq!(m.memory.bytes(mr.addr + 1000, 6), b"myself");
    // And fail with itself.
    m.recv(&mut qp, 3, &[mr.sge(0, 1)]);
    m.send(&mut qp, wqe(opcode::SEND, 4), &[mr.sge(0, 6)]);
    let statuses: Vec<_> = m.drain(&mut cq).iter().map(|cqe| cqe.status).collect();
    let expected = [Status::LocalLength, Status::RemoteInvalidRequest];
    assert_eq!(statuses, expected.map(Status::code));
}

fn both_ways_at_once() {
    let mut p = Pair::new();
    let (mut a, mut b) = (p.a, p.b);
    for i in 0..16 {
        p.m.post_recv(&mut a, 100 + i, &[p.mr_a.sge(i * 8, 8)]);
        p.m.post_recv(&mut b, 200 + i, &[p.mr_b.sge(i * 8, 8)]);
    }
    p.m.ring(0, qpair_abi::doorbell::RQ, a.number, a.rq_tail);
    p.m.ring(0, qpair_abi::doorbell::RQ, b.number, b.rq_tail);
    for i in 0..16u64 {
        let word = |what: u64| (what + i).to_le_bytes();
        p.m.memory
            .set_bytes(p.mr_a.addr + 4096 + i * 8, &word(0xa0));
        p.m.memory
            .set_bytes(p.mr_b.addr + 4096 + i * 8, &word(0xb0));
        p.m.post(&mut a, wqe(opcode::SEND, i), &[p.mr_a.sge(4096 + i * 8, 8)]);
        p.m.post(&mut b, wqe(opcode::SEND, i), &[p.mr_b.sge(4096 + i * 8, 8)]);
    }
    p.m.ring_sq(&a);
    p.m.ring_sq(&b);
    p.m.settle();
    for cqes in [p.done_a(), p.done_b()] {
        assert_eq!(cqes.len(), 32);
        for receive in [false, true] {
            let of = |cqe: &&Cqe| (cqe.flags & cqe_flags::RECV != 0) == receive;
            let indices: Vec<_> = cqes.iter().filter(of).map(|cqe| cqe.index).collect();
            assert_eq!(indices, Vec::from_iter(1..=16), "each queue in its order");
        }
    }
    for i in 0..16 {
        assert_eq!(p.m.memory.word(p.mr_a.addr + i * 8), 0xb0 + i);
        assert_eq!(p.m.memory.word(p.mr_b.addr + i * 8), 0xa0 + i);
    }
}

fn bytes_are_counted_by_operation() {
    let mut p = Pair::new();
    p.recv(1, &[p.mr_b.sge(0, 1000)]);
    p.recv(1, &[]);
    p.send(wqe(opcode::SEND, 1), &[p.mr_a.sge(0, 1000)]);
    p.send(p.remote(opcode::WRITE, 0), &[p.mr_a.sge(0, 200_000)]);
    p.send(p.remote(opcode::WRITE_IMM, 0), &[p.mr_a.sge(0, 30)]);
    p.send(p.remote(opcode::READ, 0), &[p.mr_a.sge(0, 4)]);
    let count = |counter| p.m.f.counter(counter);
    assert_eq!(count(Counter::SendBytes), 1000);
    assert_eq!(count(Counter::WriteBytes), 200_030);
    assert_eq!(count(Counter::ReadBytes), 4);
    assert_eq!(count(Counter::SendWqes), 4);
    assert_eq!(count(Counter::RecvWqes), 2);
    assert_eq!(count(Counter::SqDoorbells), count(Counter::Commands) + 4);
    assert_eq!(count(Counter::RqDoorbells), 2);
    assert_eq!(count(Counter::Cqes), count(Counter::Commands) + 6);
    assert_eq!(count(Counter::Errors), 0);
}

fn data_are_there_before_the_completion() {
    let mut p = Pair::new();
    let local = access::LOCAL_WRITE;
    let into = p.m.mr_at(p.pd_b, 0, 4096, local);
    p.recv(1, &[into.sge(0, 100)]);
    p.m.memory.keep_done();
    p.send(wqe(opcode::SEND, 1), &[p.mr_a.sge(0, 100)]);
    p.send(p.remote(opcode::WRITE, 0), &[p.mr_a.sge(0, 100)]);
    let done: Vec<_> = p.m.memory.take_done();
    let (cq_a, cq_b) = (p.cq_a.ring.addr, p.cq_b.ring.addr);
    let expected = [
        Done::Write(into.addr, 100),
        Done::Write(cq_b, 32),
        Done::Write(cq_a, 32),
        Done::Write(p.mr_b.addr, 100),
        Done::Write(cq_a + 32, 32),
    ];
    assert_eq!(done, expected);
}
