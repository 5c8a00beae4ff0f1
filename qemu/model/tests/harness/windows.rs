// SPDX-License-Identifier: GPL-2.0
//! Requests by keys: of windows, and of regions that are changed.

use super::driver::*;
use super::work::*;
use qpair_abi::command::*;
use qpair_abi::counters::Counter;
use qpair_abi::entry::opcode as work;
use qpair_abi::entry::*;
use qpair_abi::status::Detail;
use qpair_abi::status::Status;
use qpair_abi::Number;
use qpair_model::Config;

/// A pair, and a bound window of the second one's.
pub fn bound(kind: u8, at: u64, bytes: u64) -> (Pair, Number, u32) {
    let mut p = Pair::new();
    let (window, key) = p.m.mw(p.pd_b, kind);
    let wqe = Pair::bind(key, &p.mr_b, at, bytes);
    let key = p.bind_at_b(wqe).unwrap();
    (p, window, key)
}

/// Invalidates by a solicited SEND of 8 bytes into the first receive of the second queue pair, which
/// both complete.
pub fn send_inv_into(p: &mut Pair, sge: Sge, key: u32) {
    p.recv(5, &[sge]);
    let wqe = SendWqe {
        imm: key,
        flags: send_flags::SIGNALED | send_flags::SOLICITED,
        ..wqe(work::SEND_INV, 13)
    };
    p.send(wqe, &[p.mr_a.sge(0, 8)]);
    let sent = p.done_a();
    assert_eq!((outcome(&sent[0]), sent[0].opcode), (DONE, work::SEND_INV));
    let got = Cqe {
        wr_id: 5,
        qp: p.b.number,
        bytes: 8,
        imm: key,
        index: 1,
        opcode: work::RECV,
        flags: cqe_flags::RECV | cqe_flags::INV | cqe_flags::SOLICITED,
        ..Cqe::default()
    };
    assert_eq!(p.done_b(), [got]);
}

/// A request of the first queue pair by a key, at an address.
pub fn by_key(p: &Pair, opcode: u8, key: u32, addr: u64) -> SendWqe {
    SendWqe {
        rkey: key,
        remote_addr: addr,
        ..p.remote(opcode, 0)
    }
}

/// Sends 8 bytes by a key: status and detail.
pub fn try_key(p: &mut Pair, opcode: u8, key: u32, addr: u64) -> (Status, Detail) {
    let wqe = by_key(p, opcode, key, addr);
    p.send(wqe, &[p.mr_a.sge(0, 8)]);
    let (cqes, far) = (p.done_a(), p.done_b());
    assert_eq!((cqes.len(), far.len()), (1, 0));
    outcome(&cqes[0])
}

/// Brings both queue pairs to RTS again.
pub fn again(p: &mut Pair) {
    for qp in [p.a.number, p.b.number] {
        p.m.set_state(qp, qp_state::RESET).unwrap();
    }
    p.done_a();
    p.done_b();
    p.m.connect(p.a.number, p.b.number);
    p.m.connect(p.b.number, p.a.number);
    (p.a.sq_tail, p.a.rq_tail, p.b.sq_tail, p.b.rq_tail) = (0, 0, 0, 0);
}

/// Success.
pub const DONE: (Status, Detail) = (Status::Success, Detail::None);

/// A remote access error, with its detail.
pub fn refused(detail: Detail) -> (Status, Detail) {
    (Status::RemoteAccess, detail)
}

/// A pair whose first queue pair has begun a long WRITE by a key of a window.
pub fn long_write(key_of: impl FnOnce(&mut Pair) -> u32) -> (Pair, u32) {
    let config = Config {
        turn_bytes: 4096,
        ..Config::default()
    };
    let mut p = Pair::on(Machine::with(config), |_, _| {});
    let key = key_of(&mut p);
    let wqe = by_key(&p, work::WRITE, key, p.mr_b.va);
    let all = p.mr_a.sge(0, 1 << 16);
    p.m.post(&mut p.a, wqe, &[all]);
    p.m.ring_sq(&p.a);
    p.m.f.run(2);
    assert_eq!(p.done_a(), []);
    let moved = p.m.f.counter(Counter::WriteBytes);
    assert!(moved > 0 && moved < 1 << 16, "{moved}");
    (p, key)
}
