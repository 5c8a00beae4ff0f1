// SPDX-License-Identifier: GPL-2.0
//! What work requests do when all is well.

mod harness;

use harness::*;
use qpair_abi::entry::*;
use qpair_abi::status::Status;

struct Pair {
    m: Machine,
    a: TestQp,
    b: TestQp,
    cq_a: TestCq,
    cq_b: TestCq,
    mr_a: TestMr,
    mr_b: TestMr,
}

fn pair() -> Pair {
    let mut m = Machine::new();
    let (pd_a, pd_b) = (m.pd(), m.pd());
    let (cq_a, cq_b) = (m.cq(6), m.cq(6));
    let spec_b = QpSpec {
        stride: 1,
        ..Machine::spec(pd_b, &cq_b)
    };
    let (a, b) = m.pair(&Machine::spec(pd_a, &cq_a), &spec_b);
    let mr_a = m.mr(pd_a, 1 << 20);
    let mr_b = m.mr(pd_b, 1 << 20);
    Pair {
        m,
        a,
        b,
        cq_a,
        cq_b,
        mr_a,
        mr_b,
    }
}

#[test]
fn nop_completes() {
    let mut p = pair();
    p.m.send(&mut p.a, wqe(opcode::NOP, 77), &[]);
    let cqe = p.m.poll(&mut p.cq_a).unwrap();
    assert_eq!(
        cqe,
        Cqe {
            wr_id: 77,
            qp: p.a.number,
            index: 1,
            ..Cqe::default()
        }
    );
    assert_eq!(p.m.poll(&mut p.cq_a), None);
}

#[test]
fn send_fills_the_next_receive() {
    let mut p = pair();
    let data = pattern(5000, 1);
    p.m.memory.set_bytes(p.mr_a.addr + 3, &data);
    let into = [
        p.mr_b.sge(100, 1001),
        p.mr_b.sge(0, 0),
        p.mr_b.sge(5001, 4000),
    ];
    p.m.recv(&mut p.b, 9, &into);
    let from = [p.mr_a.sge(3, 7), p.mr_a.sge(10, 4993)];
    let request = SendWqe {
        imm: 0xdead_beef,
        ..wqe(opcode::SEND_IMM, 8)
    };
    p.m.send(&mut p.a, request, &from);
    let cqe = p.m.poll(&mut p.cq_b).unwrap();
    assert_eq!(
        cqe,
        Cqe {
            wr_id: 9,
            qp: p.b.number,
            bytes: 5000,
            imm: 0xdead_beef,
            index: 1,
            opcode: opcode::RECV,
            flags: cqe_flags::RECV | cqe_flags::IMM,
            ..Cqe::default()
        }
    );
    let cqe = p.m.poll(&mut p.cq_a).unwrap();
    assert_eq!((cqe.status, cqe.wr_id, cqe.bytes), (0, 8, 0));
    let mut got = p.m.memory.bytes(p.mr_b.addr + 100, 1001);
    got.extend(p.m.memory.bytes(p.mr_b.addr + 5001, 3999));
    assert_eq!(got, data);
    assert_eq!(p.m.memory.bytes(p.mr_b.addr + 9000, 2), [0, 0]);
}

#[test]
fn write_and_read_move_the_peers_memory() {
    let mut p = pair();
    let data = pattern(300_000, 2);
    p.m.memory.set_bytes(p.mr_a.addr, &data);
    let request = SendWqe {
        remote_addr: p.mr_b.va + 77,
        rkey: p.mr_b.key.raw(),
        ..wqe(opcode::WRITE, 1)
    };
    p.m.send(&mut p.a, request, &[p.mr_a.sge(0, 300_000)]);
    assert_eq!(p.m.memory.bytes(p.mr_b.addr + 77, 300_000), data);
    let request = SendWqe {
        opcode: opcode::READ,
        wr_id: 2,
        ..request
    };
    let into = [p.mr_a.sge(400_000, 1), p.mr_a.sge(500_000, 299_999)];
    p.m.send(&mut p.a, request, &into);
    let cqes = p.m.drain(&mut p.cq_a);
    assert_eq!(cqes.len(), 2);
    assert!(cqes.iter().all(|cqe| cqe.status == Status::Success.code()));
    assert_eq!(cqes[1].bytes, 300_000);
    assert_eq!(p.m.memory.bytes(p.mr_a.addr + 500_000, 299_999), data[1..]);
    assert_eq!(p.m.poll(&mut p.cq_b), None, "the peer notices nothing");
}
