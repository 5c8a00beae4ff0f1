// SPDX-License-Identifier: GPL-2.0
//! Objects that a test creates.

use super::driver::*;
use super::Grant;
use qpair_abi::command::*;
use qpair_abi::entry::*;
use qpair_abi::status::AdminError;
use qpair_abi::Number;

#[derive(Clone, Copy, Debug)]
pub struct TestQp {
    pub number: Number,
    pub page: u16,
    pub sq: u64,
    pub log_sq: u8,
    pub sq_tail: u32,
    pub rq: u64,
    pub log_rq: u8,
    pub stride: u8,
    pub rq_tail: u32,
    pub send_cq: Number,
    pub recv_cq: Number,
}

/// The parameters of a QP.
#[derive(Clone, Copy, Debug)]
pub struct QpSpec {
    pub pd: Number,
    pub send_cq: Number,
    pub recv_cq: Number,
    /// An SRQ in place of an RQ.
    pub srq: Option<Number>,
    pub page: u16,
    pub log_sq: u8,
    pub log_rq: u8,
    pub stride: u8,
    pub access: u8,
    pub retry: u8,
    pub rnr_retry: u8,
    pub service: u8,
    pub flags: u8,
    pub gid: [u64; 2],
}

/// A region of contiguous memory, whose address space begins at `va`.
#[derive(Clone, Copy, Debug)]
pub struct TestMr {
    pub key: Number,
    pub va: u64,
    pub addr: u64,
    pub bytes: u64,
}

impl TestMr {
    pub fn sge(&self, from: u64, bytes: u32) -> Sge {
        Sge {
            addr: self.va + from,
            bytes,
            lkey: self.key.raw(),
        }
    }
}

/// A level-0 list.
pub fn block(root: u64, bytes: u64) -> BufferList {
    BufferList {
        root,
        bytes,
        ..BufferList::default()
    }
}
impl Machine {
    pub fn pd(&mut self) -> Number {
        let cqe = self.simple(kind::PD, verb::CREATE, Number::default());
        Number::from_raw(cqe.expect("a PD").bytes)
    }

    pub fn eq(&mut self, log: u8, vector: u16, count: u16, usecs: u16) -> TestEq {
        let addr = self.memory.alloc(16 << log, 64, Grant::Write);
        let context = EqContext {
            vector,
            log_depth: log,
            moderation_count: count,
            moderation_usecs: usecs,
            buffer: block(addr, 16 << log),
            ..EqContext::default()
        };
        let number = self.create(kind::EQ, &context.encode()).expect("an EQ");
        TestEq {
            number,
            vector,
            ring: Reader {
                addr,
                log,
                head: self.first,
            },
        }
    }

    pub fn cq_of(&mut self, eq: Number, log: u8, page: u16, flags: u8) -> TestCq {
        let addr = self.memory.alloc(32 << log, 64, Grant::Write);
        let context = CqContext {
            eq,
            page,
            log_depth: log,
            flags,
            buffer: block(addr, 32 << log),
            ..CqContext::default()
        };
        let number = self.create(kind::CQ, &context.encode()).expect("a CQ");
        TestCq {
            number,
            page,
            ring: Reader {
                addr,
                log,
                head: self.first,
            },
        }
    }

    pub fn cq(&mut self, log: u8) -> TestCq {
        self.cq_of(Number::ADMIN, log, 0, 0)
    }

    pub fn spec(pd: Number, cq: &TestCq) -> QpSpec {
        QpSpec {
            pd,
            send_cq: cq.number,
            recv_cq: cq.number,
            srq: None,
            page: 0,
            log_sq: 4,
            log_rq: 4,
            stride: 0,
            access: access::GRANTS,
            retry: 0,
            rnr_retry: 0,
            service: service::RC,
            flags: 0,
            gid: [0; 2],
        }
    }

    pub fn qp_context(&mut self, spec: &QpSpec) -> QpContext {
        let sq_bytes = 64 << spec.log_sq;
        let rq_bytes = (64 << spec.stride) << spec.log_rq;
        if let Some(srq) = spec.srq {
            let spec = QpSpec { srq: None, ..*spec };
            return QpContext {
                srq,
                log_rq: 0,
                rq_stride: 0,
                rq: BufferList::default(),
                ..self.qp_context(&spec)
            };
        }
        QpContext {
            pd: spec.pd,
            page: spec.page,
            send_cq: spec.send_cq,
            recv_cq: spec.recv_cq,
            log_sq: spec.log_sq,
            log_rq: spec.log_rq,
            rq_stride: spec.stride,
            access: spec.access,
            retry: spec.retry,
            rnr_retry: spec.rnr_retry,
            service: spec.service,
            flags: spec.flags,
            gid: spec.gid[0],
            gid_high: spec.gid[1],
            sq: block(self.memory.alloc(sq_bytes, 64, Grant::Read), sq_bytes),
            rq: block(self.memory.alloc(rq_bytes, 64, Grant::Read), rq_bytes),
            ..QpContext::default()
        }
    }

    pub fn qp(&mut self, spec: &QpSpec) -> TestQp {
        let context = self.qp_context(spec);
        self.qp_of(spec, &context)
    }

    /// Of a context that was made from `spec`.
    pub fn qp_of(&mut self, spec: &QpSpec, context: &QpContext) -> TestQp {
        let number = self.create(kind::QP, &context.encode()).expect("a QP");
        TestQp {
            number,
            page: spec.page,
            sq: context.sq.root,
            log_sq: spec.log_sq,
            sq_tail: self.first,
            rq: context.rq.root,
            log_rq: spec.log_rq,
            stride: spec.stride,
            rq_tail: self.first,
            send_cq: spec.send_cq,
            recv_cq: spec.recv_cq,
        }
    }

    /// A queue pair in INIT of the context `good`. Checks that its service has not the attributes of
    /// the contexts `bad`, nor those of `masks`.
    pub fn has_only(&mut self, good: &QpContext, bad: &[QpContext], masks: &[u32]) -> Number {
        for bad in bad {
            let made = self.create(kind::QP, &bad.encode());
            assert_eq!(made, Err(AdminError::Attribute), "{bad:?}");
        }
        let qp = self.create(kind::QP, &good.encode()).unwrap();
        self.set_state(qp, qp_state::INIT).unwrap();
        for mask in masks {
            let done = self.modify(qp, *mask, &QpContext::default());
            assert_eq!(done, Err(AdminError::Attribute));
        }
        qp
    }

    pub fn modify(&mut self, qp: Number, mask: u32, context: &QpContext) -> Outcome {
        self.with_context(kind::QP, verb::MODIFY, qp, mask, &context.encode())
    }

    pub fn set_state(&mut self, qp: Number, state: u8) -> Outcome {
        let context = QpContext {
            state,
            ..QpContext::default()
        };
        self.modify(qp, qp_mask::STATE, &context)
    }

    /// From RESET to RTR, with this peer.
    pub fn set_rtr(&mut self, qp: Number, peer: Number) {
        self.set_state(qp, qp_state::INIT).unwrap();
        let context = QpContext {
            state: qp_state::RTR,
            peer,
            ..QpContext::default()
        };
        self.modify(qp, qp_mask::STATE | qp_mask::PEER, &context)
            .unwrap();
    }

    pub fn connect(&mut self, qp: Number, peer: Number) {
        self.set_rtr(qp, peer);
        self.set_state(qp, qp_state::RTS).unwrap();
    }

    /// Two queue pairs that name each other.
    pub fn pair(&mut self, first: &QpSpec, second: &QpSpec) -> (TestQp, TestQp) {
        let (a, b) = (self.qp(first), self.qp(second));
        self.connect(a.number, b.number);
        self.connect(b.number, a.number);
        (a, b)
    }

    pub fn mr_at(&mut self, pd: Number, va: u64, bytes: u64, access: u8) -> TestMr {
        let addr = self.memory.alloc(bytes, 64, Grant::Write);
        self.mr_over(pd, va, addr, bytes, access)
    }

    /// A region of memory that the test grants.
    pub fn mr_over(&mut self, pd: Number, va: u64, addr: u64, bytes: u64, access: u8) -> TestMr {
        let context = MrContext {
            pd,
            access,
            addr: va,
            buffer: block(addr, bytes),
            ..MrContext::default()
        };
        let key = self.create(kind::MR, &context.encode()).expect("an MR");
        TestMr {
            key,
            va,
            addr,
            bytes,
        }
    }

    /// A window of a type: its number, and its key.
    pub fn mw(&mut self, pd: Number, kind: u8) -> (Number, u32) {
        let context = MwContext {
            pd,
            kind,
            ..MwContext::default()
        };
        let number = self.create(kind::MW, &context.encode()).expect("an MW");
        (number, window_key(number, 0))
    }

    /// An FRMR: its number, and its key.
    pub fn frmr(&mut self, pd: Number) -> (Number, u32) {
        let context = FrmrContext {
            pd,
            ..FrmrContext::default()
        };
        let number = self.create(kind::FRMR, &context.encode());
        let number = number.expect("an FRMR");
        (number, frmr_key(number, 0))
    }

    pub fn query_frmr(&mut self, frmr: Number) -> FrmrContext {
        FrmrContext::decode(&self.query(kind::FRMR, frmr))
    }

    pub fn modify_mr(&mut self, key: Number, mask: u32, context: &MrContext) -> Outcome {
        self.with_context(kind::MR, verb::MODIFY, key, mask, &context.encode())
    }

    pub fn mr(&mut self, pd: Number, bytes: u64) -> TestMr {
        self.mr_at(pd, 0x7000_0000_0000, bytes, access::ALL)
    }
}
