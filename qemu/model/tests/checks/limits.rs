// SPDX-License-Identifier: GPL-2.0
//! As many and as deep as limits permit.

use super::buffers::Pages;
use super::checks;
use crate::harness::*;
use qpair_abi::command::*;
use qpair_abi::counters::Counter;
use qpair_abi::doorbell;
use qpair_abi::entry::opcode as work;
use qpair_abi::entry::*;
use qpair_abi::status::AdminError;
use qpair_abi::Number;
use qpair_model::Config;

checks![
    all_objects_at_once,
    the_deepest_rings,
    the_largest_regions,
    the_longest_message,
    rings_have_so_many_pages,
];

fn all_objects_at_once() {
    let mut m = Machine::with(qpair_model::Config {
        qps: 1024,
        cqs: 2048,
        mrs: 4096,
        ..qpair_model::Config::default()
    });
    let pd = m.pd();
    let eqs: Vec<_> = (1..64).map(|vector| m.eq(6, vector, 0, 0)).collect();
    // One ring for many: only a few of them are used.
    let ring = m.memory.alloc(32 << 6, 64, Grant::Write);
    let mut cqs = Vec::new();
    for i in 0..2047 {
        let context = CqContext {
            eq: eqs[i % 63].number,
            log_depth: 6,
            buffer: block(ring, 32 << 6),
            ..CqContext::default()
        };
        cqs.push(m.create(kind::CQ, &context.encode()).expect("a CQ"));
    }
    let addr = m.memory.alloc(1 << 16, 4096, Grant::Write);
    let mut keys = Vec::new();
    for i in 0..4096 {
        let context = MrContext {
            pd,
            access: access::ALL,
            addr: i,
            buffer: block(addr, 1 << 16),
            ..MrContext::default()
        };
        keys.push(m.create(kind::MR, &context.encode()).expect("an MR"));
    }
    let mut qps = Vec::new();
    for number in cqs.into_iter().take(1023) {
        let cq = TestCq {
            number,
            page: 0,
            ring: Reader {
                addr: ring,
                log: 6,
                head: 0,
            },
        };
        let spec = QpSpec {
            log_sq: 2,
            log_rq: 1,
            ..Machine::spec(pd, &cq)
        };
        let qp = m.qp(&spec);
        m.connect(qp.number, qp.number);
        qps.push(qp);
    }
    for (i, qp) in qps.iter_mut().enumerate() {
        let request = SendWqe {
            rkey: keys[4095 - i].raw(),
            remote_addr: 5000,
            ..wqe(work::WRITE, 1)
        };
        let sge = Sge {
            addr: 4100,
            bytes: 8,
            lkey: keys[i].raw(),
        };
        m.post(qp, request, &[sge]);
    }
    for qp in &qps {
        m.ring_sq(qp);
    }
    m.settle();
    assert_eq!(m.f.counter(Counter::WriteBytes), 1023 * 8);
    assert_eq!(m.f.counter(Counter::Errors), 0);
    for qp in qps {
        m.destroy(kind::QP, qp.number).unwrap();
    }
}

fn the_deepest_rings() {
    let mut m = Machine::new();
    let pd = m.pd();
    let eq = m.eq(15, 1, 0, 0);
    let cq = m.cq_of(eq.number, 16, 0, 0);
    let spec = QpSpec {
        log_sq: 15,
        log_rq: 15,
        stride: 0,
        ..Machine::spec(pd, &cq)
    };
    let mut qp = m.qp(&spec);
    m.connect(qp.number, qp.number);
    for round in 0..2 {
        for i in 0..1 << 15 {
            m.post_recv(&mut qp, i, &[]);
            m.post_words(&mut qp, &wqe(work::SEND, i).encode_block());
        }
        m.ring(0, doorbell::RQ, qp.number, qp.rq_tail);
        m.ring_sq(&qp);
        m.settle();
        let counted = m.query_cq(cq.number);
        assert_eq!(counted.producer, (round + 1) << 16, "full, and not overrun");
        assert_eq!(counted.flags, 0);
        m.ring(0, doorbell::CQ_HEAD, cq.number, counted.producer);
    }
}

trait Block {
    fn encode_block(self) -> [u64; 8];
}

impl Block for SendWqe {
    fn encode_block(mut self) -> [u64; 8] {
        self.blocks = 1;
        let head = self.encode();
        [head[0], head[1], head[2], head[3], 0, 0, 0, 0]
    }
}

fn the_largest_regions() {
    // 64 GiB in pages of 4 KiB and two levels: 16 Mi entries in 32 Ki leaves, of which a few exist.
    for shift in [12, 21, 30] {
        let mut p = Pair::new();
        let bytes = 1u64 << 36;
        let pages = bytes >> shift;
        let leaves = pages.div_ceil(512);
        let root = p.m.memory.alloc(leaves * 8, 4096, Grant::Read);
        let context = MrContext {
            pd: p.pd_b,
            access: access::ALL,
            addr: 1 << 47,
            buffer: BufferList {
                root,
                bytes,
                page_shift: shift,
                levels: 2,
                offset: 0,
            },
            ..MrContext::default()
        };
        let key = p.m.create(kind::MR, &context.encode()).unwrap();
        let places = [0, 1 << 35, (1 << 36) - 100, (12_345_678 << 12) + 77];
        // Of a page only the accessed bytes are granted.
        let base = |page: u64| (7u64 << 40) + (page << shift);
        for page in places.map(|at| at >> shift) {
            let entry = root + page / 512 * 8;
            if p.m.memory.word(entry) == 0 {
                let leaf = p.m.memory.alloc(4096, 4096, Grant::Read);
                p.m.memory.set_word(entry, leaf);
            }
            let leaf = p.m.memory.word(entry);
            p.m.memory.set_word(leaf + page % 512 * 8, base(page));
        }
        for at in places {
            let addr = base(at >> shift) + (at & ((1 << shift) - 1));
            p.m.memory.grant(addr, 100, Grant::Write);
            let request = SendWqe {
                rkey: key.raw(),
                remote_addr: (1 << 47) + at,
                ..wqe(work::WRITE, 1)
            };
            let data = pattern(100, at);
            p.m.memory.set_bytes(p.mr_a.addr, &data);
            p.send(request, &[p.mr_a.sge(0, 100)]);
            assert_eq!(p.done_a()[0].status, 0, "{shift} {at}");
            assert_eq!(p.m.memory.bytes(addr, 100), data);
            p.m.memory.revoke(addr);
        }
        let request = SendWqe {
            rkey: key.raw(),
            remote_addr: (1 << 47) + (1 << 36) - 99,
            ..wqe(work::WRITE, 1)
        };
        p.send(request, &[p.mr_a.sge(0, 100)]);
        assert_ne!(p.done_a()[0].status, 0);
    }
}

fn the_longest_message() {
    // As long as the limit: the same few pages repeatedly.
    let config = qpair_model::Config {
        message_bytes: 1 << 24,
        ..Default::default()
    };
    let mut p = Pair::on(Machine::with(config), |_, _| {});
    let page = p.m.memory.alloc(1 << 16, 1 << 16, Grant::Write);
    let table = p.m.memory.alloc(8 << 8, 64, Grant::Read);
    p.m.memory.set_words(table, &[page; 256]);
    let mut region = |pd: Number| {
        let context = MrContext {
            pd,
            access: access::ALL,
            addr: 0,
            buffer: BufferList {
                root: table,
                bytes: 1 << 24,
                page_shift: 16,
                levels: 1,
                offset: 0,
            },
            ..MrContext::default()
        };
        p.m.create(kind::MR, &context.encode()).unwrap()
    };
    let (near, far) = (region(p.pd_a), region(p.pd_b));
    let request = SendWqe {
        rkey: far.raw(),
        ..wqe(work::READ, 1)
    };
    let sge = Sge {
        addr: 0,
        bytes: 1 << 24,
        lkey: near.raw(),
    };
    p.send(request, &[sge]);
    let cqe = p.done_a()[0];
    assert_eq!((cqe.status, cqe.bytes), (0, 1 << 24));
    assert_eq!(p.m.f.counter(Counter::ReadBytes), 1 << 24);
}

/// All rings in pages share a limit: one that is gone, or was refused, has none.
fn rings_have_so_many_pages() {
    let mut m = Machine::with(Config {
        ring_pages: 8,
        ..Config::default()
    });
    let pd = m.pd();
    let context = |list| CqContext {
        log_depth: 8,
        buffer: list,
        ..CqContext::default()
    };
    let create = |m: &mut Machine, list| m.create(kind::CQ, &context(list).encode());
    // Two pages each.
    let lists: Vec<_> = (0..5)
        .map(|_| Pages::new(&m, 32 << 8, 1, 12, 0).list)
        .collect();
    let mut cqs: Vec<_> = lists[..4]
        .iter()
        .map(|list| create(&mut m, *list).unwrap())
        .collect();
    assert_eq!(create(&mut m, lists[4]), Err(AdminError::Full));
    // A block needs none.
    let cq = m.cq(8);
    m.qp(&Machine::spec(pd, &cq));
    // A queue pair takes those of both rings, or none.
    m.destroy(kind::CQ, cqs.remove(0)).unwrap();
    let two = QpContext {
        pd,
        send_cq: cq.number,
        recv_cq: cq.number,
        log_sq: 7,
        log_rq: 6,
        sq: Pages::new(&m, 64 << 7, 1, 12, 0).list,
        rq: Pages::new(&m, 64 << 6, 1, 12, 0).list,
        ..QpContext::default()
    };
    assert_eq!(m.create(kind::QP, &two.encode()), Err(AdminError::Full));
    // A list that cannot be read.
    m.memory.set_lenient(true);
    let unreadable = BufferList {
        root: 0,
        ..lists[0]
    };
    assert_eq!(create(&mut m, unreadable), Err(AdminError::Buffer));
    // One that is resized has both rings at once, for the command.
    let resized = context(lists[0]).encode();
    let resize = |m: &mut Machine, cq| m.with_context(kind::CQ, verb::MODIFY, cq, 0, &resized);
    resize(&mut m, cqs[0]).unwrap();
    cqs.push(create(&mut m, lists[4]).unwrap());
    assert_eq!(resize(&mut m, cqs[0]), Err(AdminError::Full));
    m.destroy(kind::CQ, cqs.remove(0)).unwrap();
    let one = QpContext {
        log_sq: 6,
        sq: BufferList {
            bytes: 64 << 6,
            ..two.sq
        },
        ..two
    };
    m.create(kind::QP, &one.encode()).unwrap();
    m.f.reset();
    m.bring_up(6, 4, 5);
    for list in &lists[..4] {
        create(&mut m, *list).unwrap();
    }
}
