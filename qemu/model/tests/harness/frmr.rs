// SPDX-License-Identifier: GPL-2.0
//! Registrations and invalidations of FRMRs.

use super::driver::*;
use super::objects::*;
use super::work::*;
use qpair_abi::command::*;
use qpair_abi::entry::opcode as work;
use qpair_abi::entry::*;
use qpair_abi::status::Detail;
use qpair_abi::status::Status;
use qpair_abi::Number;

/// All rights of an FRMR.
pub const FRMR_RIGHTS: u8 = access::LOCAL_WRITE | access::REMOTE;

/// A signaled registration with all rights.
pub fn registration(key: u32, addr: u64, buffer: BufferList) -> RegWqe {
    RegWqe {
        opcode: work::REG_MR,
        flags: send_flags::SIGNALED,
        blocks: 1,
        access: FRMR_RIGHTS.into(),
        wr_id: 11,
        addr,
        key,
        buffer,
        ..RegWqe::default()
    }
}

/// A signaled invalidation.
pub fn invalidation(key: u32) -> SendWqe {
    SendWqe {
        rkey: key,
        ..wqe(work::LOCAL_INV, 12)
    }
}

impl Machine {
    /// A registered FRMR of this domain: its key.
    pub fn registered(&mut self, pd: Number, addr: u64, buffer: BufferList) -> u32 {
        let key = self.frmr(pd).1 | 1;
        let mut cq = self.cq(2);
        let spec = QpSpec {
            flags: qp_flags::REGISTERS,
            ..Machine::spec(pd, &cq)
        };
        let mut qp = self.qp(&spec);
        self.connect(qp.number, qp.number);
        self.post_words(&mut qp, &registration(key, addr, buffer).encode());
        self.ring_sq(&qp);
        self.settle();
        assert_eq!(self.drain(&mut cq)[0].status, 0);
        key
    }
}

impl Pair {
    /// Two queue pairs that register.
    pub fn registering(m: Machine) -> Self {
        Self::on(m, |a, b| {
            (a.flags, b.flags) = (qp_flags::REGISTERS, qp_flags::REGISTERS);
        })
    }

    /// Executes a request of one block, which moves nothing, by the second queue pair.
    fn at_b(&mut self, words: &[u64]) -> (Status, Detail) {
        self.m.post_words(&mut self.b, words);
        self.m.ring_sq(&self.b);
        self.m.settle();
        let (cqes, wqe) = (self.done_b(), SendWqe::decode(words.first_chunk().unwrap()));
        let Cqe { status, vendor, .. } = cqes[0];
        let done = Cqe {
            wr_id: wqe.wr_id,
            qp: self.b.number,
            index: self.b.sq_tail,
            opcode: wqe.opcode,
            status,
            vendor,
            ..Cqe::default()
        };
        assert_eq!(cqes, [done]);
        let is_done = status == Status::Success.code();
        assert_eq!(self.state(self.b.number) == qp_state::RTS, is_done);
        outcome(&cqes[0])
    }

    /// Registers by the second queue pair: status and detail.
    pub fn register(&mut self, wqe: RegWqe) -> (Status, Detail) {
        self.at_b(&wqe.encode())
    }

    /// Invalidates by the second queue pair: status and detail.
    pub fn invalidate(&mut self, key: u32) -> (Status, Detail) {
        self.at_b(&wqe_words(invalidation(key), &[]))
    }

    /// Invalidates by a SEND of 8 bytes to the second queue pair: status and detail of both.
    pub fn send_inv(&mut self, key: u32) -> [(Status, Detail); 2] {
        self.recv(5, &[self.mr_b.sge(0, 8)]);
        let wqe = SendWqe {
            imm: key,
            ..wqe(work::SEND_INV, 13)
        };
        self.send(wqe, &[self.mr_a.sge(0, 8)]);
        let (sent, got) = (self.done_a(), self.done_b());
        assert_eq!((sent.len(), got.len()), (1, 1));
        let is_done = got[0].status == Status::Success.code();
        let inv = cqe_flags::RECV | (u8::from(is_done) * cqe_flags::INV);
        let expected = (5, u32::from(is_done) * key, inv);
        assert_eq!((got[0].wr_id, got[0].imm, got[0].flags), expected);
        [outcome(&sent[0]), outcome(&got[0])]
    }
}
