// SPDX-License-Identifier: GPL-2.0
//! Work requests, and two queue pairs that are ready for them.

use super::driver::*;
use super::objects::*;
use qpair_abi::command::access;
use qpair_abi::command::qp_state;
use qpair_abi::doorbell;
use qpair_abi::entry::*;
use qpair_abi::status::Detail;
use qpair_abi::status::Status;
use qpair_abi::Number;

impl Machine {
    /// Writes blocks into an SQ, without a doorbell.
    pub fn post_words(&mut self, qp: &mut TestQp, words: &[u64]) {
        for block in words.chunks(8) {
            let position = qp.sq_tail & ((1 << qp.log_sq) - 1);
            self.memory
                .set_words(qp.sq + u64::from(position) * 64, block);
            qp.sq_tail = qp.sq_tail.wrapping_add(1);
        }
    }

    pub fn post(&mut self, qp: &mut TestQp, wqe: SendWqe, sges: &[Sge]) {
        self.post_words(qp, &wqe_words(wqe, sges));
    }

    pub fn ring_sq(&mut self, qp: &TestQp) {
        self.ring(qp.page, doorbell::SQ, qp.number, qp.sq_tail);
    }

    pub fn send(&mut self, qp: &mut TestQp, wqe: SendWqe, sges: &[Sge]) {
        self.post(qp, wqe, sges);
        self.ring_sq(qp);
        self.settle();
    }

    pub fn post_recv(&mut self, qp: &mut TestQp, wr_id: u64, sges: &[Sge]) {
        let wqe = RecvWqe {
            sges: sges.len() as u8,
            wr_id,
        };
        let mut words = wqe.encode().to_vec();
        words.extend(sges.iter().flat_map(|sge| sge.encode()));
        let position = qp.rq_tail & ((1 << qp.log_rq) - 1);
        let at = qp.rq + ((u64::from(position) * 64) << qp.stride);
        self.memory.set_words(at, &words);
        qp.rq_tail = qp.rq_tail.wrapping_add(1);
    }

    /// Makes a queue pair fail its peer, which has an event.
    pub fn fail_peer(&mut self, qp: &mut TestQp) {
        self.post_words(qp, &denied());
        self.ring_sq(qp);
        self.settle();
    }

    pub fn recv(&mut self, qp: &mut TestQp, wr_id: u64, sges: &[Sge]) {
        self.post_recv(qp, wr_id, sges);
        self.ring(qp.page, doorbell::RQ, qp.number, qp.rq_tail);
        self.settle();
    }
}

/// A signaled work request.
pub fn wqe(opcode: u8, wr_id: u64) -> SendWqe {
    SendWqe {
        opcode,
        flags: send_flags::SIGNALED,
        wr_id,
        ..SendWqe::default()
    }
}

/// Blocks of a WQE with `bytes` after its head of `head` bytes.
pub fn blocks(head: usize, bytes: usize) -> u8 {
    (head + bytes).div_ceil(BLOCK_BYTES) as u8
}

/// The words of a head with SGEs after it, in whole blocks.
pub fn with_sges(head: &[u64], sges: &[Sge]) -> Vec<u64> {
    let mut all = head.to_vec();
    all.extend(sges.iter().flat_map(|sge| sge.encode()));
    all.resize(all.len().next_multiple_of(BLOCK_WORDS), 0);
    all
}

/// The words of a head with bytes after it, in whole blocks.
pub fn with_bytes(head: &[u64], bytes: &[u8]) -> Vec<u64> {
    let mut all = head.to_vec();
    for chunk in bytes.chunks(8) {
        let mut le = [0; 8];
        le[..chunk.len()].copy_from_slice(chunk);
        all.push(u64::from_le_bytes(le));
    }
    all.resize(all.len().next_multiple_of(BLOCK_WORDS), 0);
    all
}

/// A WQE with its SGEs and the required number of blocks, unless `wqe` has one.
pub fn wqe_words(mut wqe: SendWqe, sges: &[Sge]) -> Vec<u64> {
    if wqe.blocks == 0 {
        wqe.blocks = blocks(SendWqe::BYTES, Sge::BYTES * sges.len());
    }
    wqe.sges = sges.len() as u8;
    with_sges(&wqe.encode(), sges)
}

/// An atomic with its SGEs, in one block.
pub fn atomic_words(mut wqe: AtomicWqe, sges: &[Sge]) -> Vec<u64> {
    wqe.blocks = blocks(AtomicWqe::BYTES, Sge::BYTES * sges.len());
    wqe.sges = sges.len() as u8;
    with_sges(&wqe.encode(), sges)
}

/// The words of a BIND.
pub fn bind_words(mut wqe: BindWqe) -> Vec<u64> {
    wqe.opcode = opcode::BIND;
    wqe.blocks = 1;
    with_sges(&wqe.encode(), &[])
}

/// A WQE with inline data.
pub fn inline_words(mut wqe: SendWqe, bytes: &[u8]) -> Vec<u64> {
    wqe.flags |= send_flags::INLINE;
    wqe.inline_bytes = bytes.len() as u32;
    wqe.blocks = blocks(SendWqe::BYTES, bytes.len());
    with_bytes(&wqe.encode(), bytes)
}

/// A WRITE to no region, which fails the peer: no completion of it reports that.
pub fn denied() -> Vec<u64> {
    let to_none = SendWqe {
        rkey: 1,
        ..wqe(opcode::WRITE, 1)
    };
    inline_words(to_none, &[1])
}

/// Bytes that differ at every offset.
pub fn pattern(count: usize, seed: u64) -> Vec<u8> {
    let mut rng = qpair_testkit::Rng::new(seed);
    (0..count).map(|_| rng.next() as u8).collect()
}

/// Two connected queue pairs, each with a CQ, a PD and a region of 1 MiB of its own.
pub struct Pair {
    pub m: Machine,
    pub a: TestQp,
    pub b: TestQp,
    pub cq_a: TestCq,
    pub cq_b: TestCq,
    pub pd_a: Number,
    pub pd_b: Number,
    pub mr_a: TestMr,
    pub mr_b: TestMr,
}

impl Pair {
    pub fn new() -> Self {
        Self::on(Machine::new(), |_, _| {})
    }

    /// With specifications that the test has changed.
    pub fn with(change: impl FnOnce(&mut QpSpec, &mut QpSpec)) -> Self {
        Self::on(Machine::new(), change)
    }

    pub fn on(mut m: Machine, change: impl FnOnce(&mut QpSpec, &mut QpSpec)) -> Self {
        let (pd_a, pd_b) = (m.pd(), m.pd());
        let (cq_a, cq_b) = (m.cq(6), m.cq(6));
        let mut spec_a = Machine::spec(pd_a, &cq_a);
        let mut spec_b = QpSpec {
            stride: 1,
            ..Machine::spec(pd_b, &cq_b)
        };
        change(&mut spec_a, &mut spec_b);
        let (a, b) = m.pair(&spec_a, &spec_b);
        let mr_a = m.mr(pd_a, 1 << 20);
        let mr_b = m.mr(pd_b, 1 << 20);
        Self {
            m,
            a,
            b,
            cq_a,
            cq_b,
            pd_a,
            pd_b,
            mr_a,
            mr_b,
        }
    }

    /// A request to the peer's region.
    pub fn remote(&self, opcode: u8, at: u64) -> SendWqe {
        SendWqe {
            remote_addr: self.mr_b.va + at,
            rkey: self.mr_b.key.raw(),
            ..wqe(opcode, 1)
        }
    }

    /// An atomic on the peer's region.
    pub fn atomic(&self, opcode: u8, at: u64, compare_add: u64, swap: u64) -> AtomicWqe {
        AtomicWqe {
            opcode,
            flags: send_flags::SIGNALED,
            wr_id: 1,
            remote_addr: self.mr_b.va + at,
            rkey: self.mr_b.key.raw(),
            compare_add,
            swap,
            ..AtomicWqe::default()
        }
    }

    /// The bind of a window, with all rights, to `bytes` of a region from `at` on; its tag counts up.
    pub fn bind(window: u32, mr: &TestMr, at: u64, bytes: u64) -> BindWqe {
        let tag = (window as u8).wrapping_add(1);
        BindWqe {
            flags: send_flags::SIGNALED,
            wr_id: 9,
            access: access::REMOTE.into(),
            addr: mr.va + at,
            window,
            bytes,
            region: mr.key.raw(),
            new_key: window & !0xff | u32::from(tag),
            ..BindWqe::default()
        }
    }

    /// Binds a window by the second queue pair: its key, or status and detail.
    pub fn bind_at_b(&mut self, wqe: BindWqe) -> Result<u32, (Status, Detail)> {
        self.m.post_words(&mut self.b, &bind_words(wqe));
        self.m.ring_sq(&self.b);
        self.m.settle();
        let cqes = self.done_b();
        let done = Cqe {
            wr_id: wqe.wr_id,
            qp: self.b.number,
            index: self.b.sq_tail,
            opcode: opcode::BIND,
            ..Cqe::default()
        };
        match outcome(&cqes[0]) {
            (Status::Success, _) => {
                assert_eq!(cqes, [done]);
                Ok(wqe.new_key)
            }
            wrong => {
                let Cqe { status, vendor, .. } = cqes[0];
                let failed = Cqe {
                    status,
                    vendor,
                    ..done
                };
                assert_eq!(cqes, [failed]);
                assert_eq!(self.state(self.b.number), qp_state::ERROR);
                Err(wrong)
            }
        }
    }

    pub fn send(&mut self, wqe: SendWqe, sges: &[Sge]) {
        self.m.send(&mut self.a, wqe, sges);
    }

    pub fn send_atomic(&mut self, wqe: AtomicWqe, sges: &[Sge]) {
        self.m.post_words(&mut self.a, &atomic_words(wqe, sges));
        self.m.ring_sq(&self.a);
        self.m.settle();
    }

    /// A WRITE the other way: of the second queue pair, to the region of the first.
    pub fn write_back(&mut self, wr_id: u64) {
        let request = SendWqe {
            remote_addr: self.mr_a.va,
            rkey: self.mr_a.key.raw(),
            ..wqe(opcode::WRITE, wr_id)
        };
        self.m.send(&mut self.b, request, &[self.mr_b.sge(0, 8)]);
    }

    pub fn recv(&mut self, wr_id: u64, sges: &[Sge]) {
        self.m.recv(&mut self.b, wr_id, sges);
    }

    /// Completions of the first queue pair.
    pub fn done_a(&mut self) -> Vec<Cqe> {
        let mut cq = self.cq_a;
        let cqes = self.m.drain(&mut cq);
        self.cq_a = cq;
        cqes
    }

    /// Completions of the second one.
    pub fn done_b(&mut self) -> Vec<Cqe> {
        let mut cq = self.cq_b;
        let cqes = self.m.drain(&mut cq);
        self.cq_b = cq;
        cqes
    }

    pub fn state(&mut self, qp: Number) -> u8 {
        self.m.query_qp(qp).state
    }
}

/// Checks that a queue pair that sent to itself failed with its receive 5: the message 1 was sent,
/// and 2 is behind it.
pub fn failed_by_itself(cqes: &[Cqe]) {
    let seen: Vec<_> = cqes.iter().map(|cqe| (cqe.wr_id, outcome(cqe).0)).collect();
    let expected = [
        (5, Status::LocalProtection),
        (1, Status::Success),
        (2, Status::Flush),
    ];
    assert_eq!(seen, expected);
}

/// Status and detail of a completion.
pub fn outcome(cqe: &Cqe) -> (Status, Detail) {
    (
        Status::from_code(cqe.status).unwrap(),
        Detail::from_code(cqe.vendor).unwrap(),
    )
}
