// SPDX-License-Identifier: GPL-2.0
//! Shared receive queues.

use super::driver::*;
use super::objects::*;
use super::ud::*;
use super::work::wqe;
use super::Grant;
use qpair_abi::command::*;
use qpair_abi::doorbell;
use qpair_abi::entry::opcode as work;
use qpair_abi::entry::*;
use qpair_abi::status::AdminError;
use qpair_abi::Number;

#[derive(Clone, Copy, Debug)]
pub struct TestSrq {
    pub number: Number,
    pub page: u16,
    pub addr: u64,
    pub log: u8,
    pub stride: u8,
    pub tail: u32,
}

impl Machine {
    pub fn srq_context(&mut self, pd: Number, page: u16, log: u8, stride: u8) -> SrqContext {
        let bytes = (64 << stride) << log;
        SrqContext {
            pd,
            page,
            log_depth: log,
            stride,
            buffer: block(self.memory.alloc(bytes, 64, Grant::Read), bytes),
            ..SrqContext::default()
        }
    }

    pub fn srq_of(&mut self, context: &SrqContext) -> Result<TestSrq, AdminError> {
        Ok(TestSrq {
            number: self.create(kind::SRQ, &context.encode())?,
            page: context.page,
            addr: context.buffer.root,
            log: context.log_depth,
            stride: context.stride,
            tail: self.first,
        })
    }

    pub fn srq(&mut self, pd: Number, log: u8) -> TestSrq {
        let context = self.srq_context(pd, 0, log, 0);
        self.srq_of(&context).expect("an SRQ")
    }

    pub fn query_srq(&mut self, number: Number) -> SrqContext {
        SrqContext::decode(&self.query(kind::SRQ, number))
    }

    pub fn arm_limit(&mut self, number: Number, limit: u32) -> Outcome {
        let context = SrqContext {
            limit,
            ..SrqContext::default()
        };
        self.modify_srq(number, srq_mask::LIMIT, &context)
    }

    pub fn modify_srq(&mut self, number: Number, mask: u32, context: &SrqContext) -> Outcome {
        self.with_context(kind::SRQ, verb::MODIFY, number, mask, &context.encode())
    }

    /// A ring in which an SRQ can go on, with all its WQEs that fit.
    pub fn next_ring(&mut self, srq: &TestSrq, log: u8) -> SrqContext {
        let next = self.srq_context(Number::default(), 0, log, srq.stride);
        let bytes = 64 << srq.stride;
        for back in 1..=1u32 << log.min(srq.log) {
            let index = srq.tail.wrapping_sub(back);
            let place = |root: u64, log: u8| root + u64::from(index & ((1 << log) - 1)) * bytes;
            let wqe = self.memory.bytes(place(srq.addr, srq.log), bytes as usize);
            let to = place(next.buffer.root, log);
            self.memory.set_bytes(to, &wqe);
        }
        next
    }

    /// Makes an SRQ go on in another ring, and takes the memory of the one before away.
    pub fn resize_srq(&mut self, srq: &mut TestSrq, log: u8) -> Result<(), AdminError> {
        let next = self.next_ring(srq, log);
        self.modify_srq(srq.number, srq_mask::RING, &next)?;
        self.switched(srq, &next);
        Ok(())
    }

    /// The same before any queue pair has another turn.
    pub fn resize_srq_now(&mut self, srq: &mut TestSrq, log: u8) {
        let next = self.next_ring(srq, log);
        let command = Command {
            opcode: opcode(kind::SRQ, verb::MODIFY),
            number: srq.number,
            mask: srq_mask::RING,
            ..Command::default()
        };
        self.command_now(command, &next.encode());
        self.switched(srq, &next);
    }

    fn switched(&mut self, srq: &mut TestSrq, next: &SrqContext) {
        self.memory.revoke(srq.addr);
        (srq.addr, srq.log) = (next.buffer.root, next.log_depth);
    }

    /// Writes a receive into the ring, without a doorbell.
    pub fn post_shared(&mut self, srq: &mut TestSrq, wr_id: u64, sges: &[Sge]) {
        let wqe = RecvWqe {
            sges: sges.len() as u8,
            wr_id,
        };
        let mut words = wqe.encode().to_vec();
        words.extend(sges.iter().flat_map(|sge| sge.encode()));
        let position = srq.tail & ((1 << srq.log) - 1);
        let at = srq.addr + ((u64::from(position) * 64) << srq.stride);
        self.memory.set_words(at, &words);
        srq.tail = srq.tail.wrapping_add(1);
    }

    pub fn ring_srq(&mut self, srq: &TestSrq) {
        self.ring(srq.page, doorbell::SRQ, srq.number, srq.tail);
    }
}

/// Connected pairs of RC whose second queue pairs have one SRQ, and each a CQ of its own. The SRQ
/// has another domain than its queue pairs.
pub struct Crowd {
    pub m: Machine,
    pub srq: TestSrq,
    /// Of the SRQ's domain.
    pub mr: TestMr,
    pub pd: Number,
    pub senders: Vec<TestQp>,
    pub receivers: Vec<TestQp>,
    pub sent: TestCq,
    pub cqs: Vec<TestCq>,
    /// Of the senders' domain.
    pub from: TestMr,
}

impl Crowd {
    /// Queue pairs of UD that take their receives from the SRQ, each with a CQ.
    pub fn datagrams(&mut self, count: usize) -> Vec<TestQp> {
        let mut qp = || {
            let spec = QpSpec {
                access: 0,
                service: service::UD,
                gid: GID,
                ..self.spec()
            };
            let qp = self.m.qp(&spec);
            ud_start(&mut self.m, qp.number, KEY);
            qp
        };
        (0..count).map(|_| qp()).collect()
    }

    /// A queue pair of UD sends so many bytes to one of them.
    pub fn send_datagram(&mut self, from: &mut TestQp, to: Number, bytes: u32) {
        let wqe = UdWqe {
            opcode: work::SEND,
            dest: to,
            q_key: KEY,
            gid: GID[0],
            gid_high: GID[1],
            ..UdWqe::default()
        };
        let sge = self.from.sge(0, bytes);
        self.m.post_words(from, &ud_words(wqe, &[sge]));
        self.m.ring_sq(from);
        self.m.settle();
    }

    pub fn new(count: usize) -> Self {
        Self::on(Machine::new(), count)
    }

    pub fn on(mut m: Machine, count: usize) -> Self {
        let (of_srq, pd) = (m.pd(), m.pd());
        let srq = m.srq(of_srq, 4);
        let sent = m.cq(8);
        let mut crowd = Self {
            srq,
            mr: m.mr(of_srq, 1 << 20),
            from: m.mr(pd, 1 << 20),
            pd,
            senders: Vec::new(),
            receivers: Vec::new(),
            sent,
            cqs: Vec::new(),
            m,
        };
        for _ in 0..count {
            crowd.add(7);
        }
        crowd
    }

    pub fn spec(&mut self) -> QpSpec {
        let cq = self.m.cq(5);
        self.cqs.push(cq);
        QpSpec {
            srq: Some(self.srq.number),
            ..Machine::spec(self.pd, &cq)
        }
    }

    /// Adds a pair whose sender has these retries without a receive.
    pub fn add(&mut self, rnr_retry: u8) {
        let second = self.spec();
        let first = QpSpec {
            rnr_retry,
            ..Machine::spec(self.pd, &self.sent)
        };
        let (sender, receiver) = self.m.pair(&first, &second);
        self.senders.push(sender);
        self.receivers.push(receiver);
    }

    pub fn resize(&mut self, log: u8) -> Result<(), AdminError> {
        self.m.resize_srq(&mut self.srq, log)
    }

    /// Posts receives of 1 KiB each, whose identifier says where.
    pub fn recv(&mut self, ids: impl IntoIterator<Item = u64>) {
        for id in ids {
            let sge = self.mr.sge(id << 10, 1 << 10);
            self.m.post_shared(&mut self.srq, id, &[sge]);
        }
        self.m.ring_srq(&self.srq);
        self.m.settle();
    }

    /// Posts a message of so many bytes to a receiver.
    pub fn post(&mut self, to: usize, bytes: u32) {
        let sge = self.from.sge(0, bytes);
        let mut qp = self.senders[to];
        self.m.post(&mut qp, wqe(work::SEND, to as u64), &[sge]);
        self.senders[to] = qp;
        self.m.ring_sq(&qp);
    }

    /// Sends so many bytes to a receiver.
    pub fn send(&mut self, to: usize, bytes: u32) {
        self.post(to, bytes);
        self.m.settle();
    }

    /// Completions of a receiver.
    pub fn received(&mut self, at: usize) -> Vec<Cqe> {
        let mut cq = self.cqs[at];
        let cqes = self.m.drain(&mut cq);
        self.cqs[at] = cq;
        cqes
    }

    /// Identifiers of the completions of a receiver, all of them successful.
    pub fn ids(&mut self, at: usize) -> Vec<u64> {
        let cqes = self.received(at);
        assert!(cqes.iter().all(|cqe| cqe.status == 0), "{cqes:?}");
        cqes.iter().map(|cqe| cqe.wr_id).collect()
    }

    /// Completions of all senders.
    pub fn sent(&mut self) -> Vec<Cqe> {
        let mut cq = self.sent;
        let cqes = self.m.drain(&mut cq);
        self.sent = cq;
        cqes
    }

    /// Begins a message that takes more turns than it gets: the receiver has its receive.
    pub fn begin(&mut self, to: usize, bytes: u32) {
        self.post(to, bytes);
        self.m.f.run(1);
    }

    pub fn left(&mut self) -> u32 {
        self.m.query_srq(self.srq.number).left
    }
}
