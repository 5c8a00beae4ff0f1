// SPDX-License-Identifier: GPL-2.0
//! Queue pairs of UD.

use super::driver::*;
use super::objects::*;
use super::work::blocks;
use super::work::outcome;
use super::work::with_bytes;
use super::work::with_sges;
use qpair_abi::command::*;
use qpair_abi::counters::Counter;
use qpair_abi::entry::opcode as work;
use qpair_abi::entry::*;
use qpair_abi::status::Detail;
use qpair_abi::status::Status;
use qpair_abi::Number;

/// ff12::1, a group, in words of memory.
pub const GROUP: [u64; 2] = [0x12ff, 1 << 56];

pub const GID: [u64; 2] = [0x80fe, 0x0100_50fe_ff51_0002];
pub const KEY: u32 = 0x1234;
pub const GRH: usize = GRH_BYTES;

/// Queue pairs of UD that are ready, each with a CQ, a PD and a region of its own.
pub struct Port {
    pub m: Machine,
    pub qps: Vec<TestQp>,
    pub cqs: Vec<TestCq>,
    pub mrs: Vec<TestMr>,
}

pub fn ud_spec(pd: Number, cq: &TestCq) -> QpSpec {
    QpSpec {
        access: 0,
        // A send of a piece takes two blocks.
        log_sq: 5,
        stride: 1,
        service: service::UD,
        gid: GID,
        ..Machine::spec(pd, cq)
    }
}

/// From RESET to RTS.
pub fn ud_start(m: &mut Machine, qp: Number, q_key: u32) {
    let init = QpContext {
        state: qp_state::INIT,
        q_key,
        ..QpContext::default()
    };
    m.modify(qp, qp_mask::STATE | qp_mask::Q_KEY, &init)
        .unwrap();
    m.set_state(qp, qp_state::RTR).unwrap();
    m.set_state(qp, qp_state::RTS).unwrap();
}

impl Port {
    pub fn new(count: usize) -> Self {
        let mut world = Self {
            m: Machine::new(),
            qps: Vec::new(),
            cqs: Vec::new(),
            mrs: Vec::new(),
        };
        for _ in 0..count {
            world.add();
        }
        world
    }

    pub fn add(&mut self) {
        let m = &mut self.m;
        let (pd, cq) = (m.pd(), m.cq(6));
        let qp = m.qp(&ud_spec(pd, &cq));
        ud_start(m, qp.number, KEY);
        self.mrs.push(m.mr(pd, 1 << 16));
        self.qps.push(qp);
        self.cqs.push(cq);
    }

    /// A SEND to a queue pair, which it would accept.
    pub fn to(&self, dest: usize, wr_id: u64) -> UdWqe {
        UdWqe {
            opcode: work::SEND,
            flags: send_flags::SIGNALED,
            wr_id,
            dest: self.qps[dest].number,
            q_key: KEY,
            gid: GID[0],
            gid_high: GID[1],
            ..UdWqe::default()
        }
    }

    pub fn post(&mut self, from: usize, wqe: UdWqe, sges: &[Sge]) {
        let mut qp = self.qps[from];
        self.m.post_words(&mut qp, &ud_words(wqe, sges));
        self.qps[from] = qp;
    }

    pub fn ring(&mut self, from: usize) {
        self.m.ring_sq(&self.qps[from]);
        self.m.settle();
    }

    pub fn send(&mut self, from: usize, wqe: UdWqe, sges: &[Sge]) {
        self.post(from, wqe, sges);
        self.ring(from);
    }

    pub fn recv(&mut self, at: usize, wr_id: u64, sges: &[Sge]) {
        let mut qp = self.qps[at];
        self.m.recv(&mut qp, wr_id, sges);
        self.qps[at] = qp;
    }

    pub fn done(&mut self, at: usize) -> Vec<Cqe> {
        let mut cq = self.cqs[at];
        let cqes = self.m.drain(&mut cq);
        self.cqs[at] = cq;
        cqes
    }

    pub fn dropped(&self) -> u64 {
        self.m.f.counter(Counter::Dropped)
    }

    pub fn state(&mut self, at: usize) -> u8 {
        self.m.query_qp(self.qps[at].number).state
    }

    /// Sends a datagram that is dropped, and completes with success.
    pub fn is_dropped(&mut self, from: usize, wqe: UdWqe, sges: &[Sge]) {
        let before = self.dropped();
        self.send(from, wqe, sges);
        assert_eq!(self.dropped(), before + 1, "{wqe:?}");
        let cqes = self.done(from);
        assert_eq!(cqes.len(), 1, "{wqe:?}");
        assert_eq!(outcome(&cqes[0]), (Status::Success, Detail::None));
        assert_eq!((cqes[0].wr_id, cqes[0].bytes), (wqe.wr_id, 0));
        assert_eq!(self.state(from), qp_state::RTS);
    }

    /// Rings for one request of the first queue pair, which fails it, and brings it to RTS again.
    pub fn ring_and_restart(&mut self, qp: TestQp, expected: (Status, Detail)) {
        self.qps[0] = qp;
        self.ring(0);
        let cqes = self.done(0);
        assert_eq!(cqes.len(), 1);
        assert_eq!(outcome(&cqes[0]), expected);
        assert_eq!(self.state(0), qp_state::ERROR);
        assert_eq!(self.m.events0(), [], "the completion reports it");
        self.m.set_state(qp.number, qp_state::RESET).unwrap();
        self.qps[0].sq_tail = 0;
        ud_start(&mut self.m, qp.number, KEY);
    }

    /// Checks that datagrams go from one queue pair to another.
    pub fn works(&mut self, from: usize, to: usize) {
        let into = self.mrs[to].sge(0, 100);
        self.recv(to, 99, &[into]);
        let wqe = self.to(to, 98);
        let sge = self.mrs[from].sge(0, 60);
        self.send(from, wqe, &[sge]);
        let (sent, received) = (self.done(from), self.done(to));
        assert_eq!((sent.len(), sent[0].wr_id, sent[0].status), (1, 98, 0));
        assert_eq!((received.len(), received[0].wr_id), (1, 99));
        assert_eq!((received[0].bytes, received[0].status), (100, 0));
    }
}

/// A WQE with its SGEs and the required number of blocks, unless `wqe` has one.
pub fn ud_words(mut wqe: UdWqe, sges: &[Sge]) -> Vec<u64> {
    if wqe.blocks == 0 {
        wqe.blocks = blocks(UdWqe::BYTES, Sge::BYTES * sges.len());
    }
    wqe.sges = sges.len() as u8;
    with_sges(&wqe.encode(), sges)
}

/// A WQE with inline data.
pub fn ud_inline(mut wqe: UdWqe, data: &[u8]) -> Vec<u64> {
    wqe.flags |= send_flags::INLINE;
    wqe.inline_bytes = data.len() as u8;
    wqe.blocks = blocks(UdWqe::BYTES, data.len());
    with_bytes(&wqe.encode(), data)
}

/// The GRH of a datagram between queue pairs of this port.
pub fn grh(payload: u16, imm: bool) -> Vec<u8> {
    // Base transport, datagram and immediate data headers, the padded payload, the checksum.
    let bytes = 12 + 8 + if imm { 4 } else { 0 } + payload.next_multiple_of(4) + 4;
    let gid: Vec<u8> = GID.iter().flat_map(|word| word.to_le_bytes()).collect();
    let mut all = vec![0x60, 0, 0, 0];
    all.extend(bytes.to_be_bytes());
    all.extend([0x1b, 1]);
    all.extend(&gid);
    all.extend(&gid);
    all
}
