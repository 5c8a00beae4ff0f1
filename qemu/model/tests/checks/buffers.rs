// SPDX-License-Identifier: GPL-2.0
//! Rings and regions in pages: every number of levels, page size and offset; mapping and unmapping.

use super::checks;
use crate::harness::*;
use qpair_abi::command::*;
use qpair_abi::counters::Counter;
use qpair_abi::doorbell;
use qpair_abi::entry::opcode as work;
use qpair_abi::entry::*;
use qpair_abi::status::AdminError;
use qpair_abi::status::Detail;
use qpair_abi::status::Status;
use qpair_abi::Number;
use qpair_model::Config;
use qpair_testkit::Rng;

checks![
    rings_lie_in_pages,
    regions_lie_in_pages,
    tables_are_read_and_not_one_word_more,
    tables_may_lie,
    page_sizes_have_limits,
    mappings_come_and_go,
    memory_that_cannot_be_mapped,
    a_ring_is_mapped_once,
    a_region_keeps_one_run_mapped,
    a_regions_mapping_is_taken_away,
    a_region_is_mapped_when_it_can_be,
    regions_keep_so_many_mappings,
    contiguous_pages_are_one_piece,
    both_ends_are_in_one_region,
    the_last_byte_of_the_address_space,
    the_smallest_rings,
];

/// Pages in random order, with their tables. Returns the address of each byte.
pub struct Pages {
    pub list: BufferList,
    pages: Vec<u64>,
    shift: u8,
}

impl Pages {
    pub fn new(m: &Machine, bytes: u64, levels: u8, shift: u8, offset: u64) -> Self {
        let size = 1u64 << shift;
        let count = (offset + bytes).div_ceil(size);
        let mut pages: Vec<u64> = (0..count)
            .map(|_| m.memory.alloc(size, size, Grant::Write))
            .collect();
        // In pairs of reverse order.
        for pair in pages.chunks_mut(2) {
            pair.reverse();
        }
        let table = |entries: &[u64], align| {
            let bytes = entries.len() as u64 * 8;
            let at = m.memory.alloc(bytes, align, Grant::Read);
            m.memory.set_words(at, entries);
            at
        };
        let root = if levels == 1 {
            table(&pages, 64)
        } else {
            let leaves: Vec<u64> = pages
                .chunks(512)
                .map(|chunk| {
                    let mut leaf = chunk.to_vec();
                    // Entries past the end may have any value.
                    leaf.resize(512, 0xdead_0000_dead_1000);
                    table(&leaf, 4096)
                })
                .collect();
            table(&leaves, 64)
        };
        let list = BufferList {
            root,
            bytes,
            offset: offset as u32,
            page_shift: shift,
            levels,
        };
        Self { list, pages, shift }
    }

    pub fn at(&self, byte: u64) -> u64 {
        let at = u64::from(self.list.offset) + byte;
        self.pages[(at >> self.shift) as usize] + (at & ((1 << self.shift) - 1))
    }

    fn write(&self, m: &Machine, from: u64, bytes: &[u8]) {
        for (at, byte) in (from..).zip(bytes) {
            m.memory.set_bytes(self.at(at), &[*byte]);
        }
    }

    pub fn read(&self, m: &Machine, from: u64, count: u64) -> Vec<u8> {
        (from..from + count)
            .flat_map(|at| m.memory.bytes(self.at(at), 1))
            .collect()
    }
}

/// Contiguous pages, and their table.
fn in_a_row(m: &Machine, pages: u64) -> (u64, BufferList) {
    let addr = m.memory.alloc(pages << 12, 4096, Grant::Write);
    let root = m.memory.alloc(pages * 8, 64, Grant::Read);
    for page in 0..pages {
        m.memory.set_word(root + 8 * page, addr + (page << 12));
    }
    let list = BufferList {
        root,
        bytes: pages << 12,
        page_shift: 12,
        levels: 1,
        offset: 0,
    };
    (addr, list)
}

/// The key of a new region, with all rights, whose addresses begin at 0.
fn region(m: &mut Machine, pd: Number, buffer: BufferList) -> Number {
    let context = MrContext {
        pd,
        access: access::ALL,
        addr: 0,
        buffer,
        ..MrContext::default()
    };
    m.create(kind::MR, &context.encode()).unwrap()
}

fn rings_lie_in_pages() {
    for (levels, shift, offset) in [
        (1, 12, 0),
        (1, 12, 64),
        (1, 12, 4032),
        (1, 14, 8192 + 64),
        (2, 12, 0),
        (2, 12, 1024 + 192),
        (2, 13, 64),
    ] {
        let mut m = Machine::new();
        let pd = m.pd();
        let pages = |m: &Machine, bytes| Pages::new(m, bytes, levels, shift, offset);
        let (eq, cq) = (pages(&m, 16 << 9), pages(&m, 32 << 8));
        let (sq, rq) = (pages(&m, 64 << 8), pages(&m, 256 << 6));
        let context = EqContext {
            vector: 1,
            log_depth: 9,
            buffer: eq.list,
            ..EqContext::default()
        };
        let eq_number = m.create(kind::EQ, &context.encode()).unwrap();
        let context = CqContext {
            eq: eq_number,
            log_depth: 8,
            buffer: cq.list,
            ..CqContext::default()
        };
        let cq_number = m.create(kind::CQ, &context.encode()).unwrap();
        let context = QpContext {
            pd,
            send_cq: cq_number,
            recv_cq: cq_number,
            log_sq: 8,
            log_rq: 6,
            rq_stride: 2,
            sq: sq.list,
            rq: rq.list,
            ..QpContext::default()
        };
        let qp = m.create(kind::QP, &context.encode()).unwrap();
        m.connect(qp, qp);
        let mr = m.mr(pd, 4096);
        let (mut head, mut eq_head) = (0u32, 0u32);
        for i in 0..1200u32 {
            m.ring(0, doorbell::CQ_ARM_NEXT, cq_number, head);
            // A receive with 15 SGEs crosses pages, and so does a WQE of two blocks.
            let sges = [mr.sge(u64::from(i % 64), 1); 15];
            let mut words = RecvWqe {
                sges: 15,
                wr_id: u64::from(i),
            }
            .encode()
            .to_vec();
            words.extend(sges.iter().flat_map(|sge| sge.encode()));
            for (n, word) in words.iter().enumerate() {
                let at = u64::from(i % 64) * 256 + 8 * n as u64;
                m.memory.set_word(rq.at(at), *word);
            }
            m.ring(0, doorbell::RQ, qp, i + 1);
            let words = wqe_words(wqe(work::SEND, u64::from(i)), &[mr.sge(0, 1); 3]);
            assert_eq!(words.len(), 16);
            for (n, word) in words.iter().enumerate() {
                let at = u64::from(2 * i % 256) * 64 + 8 * n as u64;
                m.memory.set_word(sq.at(at % (64 << 8)), *word);
            }
            m.ring(0, doorbell::SQ, qp, 2 * i + 2);
            m.settle();
            for opcode in [work::RECV, work::SEND] {
                let at = u64::from(head % 256) * 32;
                let words = std::array::from_fn(|n| m.memory.word(cq.at(at + 8 * n as u64)));
                assert_eq!(words[3] >> 63, u64::from(head >> 8 & 1 == 0));
                let cqe = Cqe::decode(&words);
                let got = (cqe.wr_id, cqe.opcode, cqe.status);
                assert_eq!(got, (u64::from(i), opcode, 0));
                head += 1;
            }
            let at = u64::from(eq_head % 512) * 16;
            let last = m.memory.word(eq.at(at + 8));
            assert_eq!(last >> 63, u64::from(eq_head >> 9 & 1 == 0));
            assert_eq!(m.memory.word(eq.at(at)) as u32, cq_number.raw());
            eq_head += 1;
            m.ring(0, doorbell::EQ_HEAD, eq_number, eq_head);
        }
    }
}

fn regions_lie_in_pages() {
    let mut rng = Rng::new(5);
    for (levels, shift, offset) in [
        (1, 12, 0),
        (1, 12, 17),
        (2, 12, 4095),
        (1, 16, 65_535),
        (2, 14, 1),
        (1, 21, 12_345),
    ] {
        let mut p = Pair::new();
        let bytes = 3_000_001.min(700 << shift);
        let pages = Pages::new(&p.m, bytes, levels, shift, offset);
        let context = MrContext {
            pd: p.pd_b,
            access: access::ALL,
            addr: 0x5000,
            buffer: pages.list,
            ..MrContext::default()
        };
        let key = p.m.create(kind::MR, &context.encode()).unwrap();
        for round in 0..12 {
            let length = 1 + rng.below(100_000);
            let at = match round {
                0 => bytes - length,
                _ => rng.below(bytes - length),
            };
            let data = pattern(length as usize, round);
            p.m.memory.set_bytes(p.mr_a.addr, &data);
            let request = SendWqe {
                rkey: key.raw(),
                remote_addr: 0x5000 + at,
                ..wqe(work::WRITE, round)
            };
            p.send(request, &[p.mr_a.sge(0, length as u32)]);
            assert_eq!(pages.read(&p.m, at, length), data);
            let back = pattern(length as usize, round + 100);
            pages.write(&p.m, at, &back);
            let request = SendWqe {
                opcode: work::READ,
                ..request
            };
            p.send(request, &[p.mr_a.sge(200_000, length as u32)]);
            let got = p.m.memory.bytes(p.mr_a.addr + 200_000, length as usize);
            assert_eq!(got, back);
            assert!(p.done_a().iter().all(|cqe| cqe.status == 0));
        }
    }
}

fn tables_are_read_and_not_one_word_more() {
    // The machine grants exactly the tables, and fails the test on an access outside of them.
    for pages in [1, 15, 16, 17, 511, 512, 513] {
        for levels in [1, 2] {
            let mut p = Pair::new();
            let bytes = pages * 4096;
            let pages = Pages::new(&p.m, bytes, levels, 12, 0);
            let key = region(&mut p.m, p.pd_b, pages.list);
            for at in [0, bytes / 2, bytes - 1] {
                let request = SendWqe {
                    rkey: key.raw(),
                    remote_addr: at,
                    ..wqe(work::READ, 1)
                };
                p.send(request, &[p.mr_a.sge(0, 1)]);
                assert_eq!(p.done_a()[0].status, 0);
            }
        }
    }
}

fn tables_may_lie() {
    // A misaligned page, a misaligned leaf, a page that was not granted.
    for (levels, entry, detail) in [
        (1, 0x1234_5678, Detail::Dma),
        (1, 0x7777_7777_7000, Detail::Dma),
        (2, 0x1234_5678, Detail::Dma),
        (2, !0xfff, Detail::Dma),
    ] {
        let mut p = Pair::new();
        p.m.memory.set_lenient(true);
        let pages = Pages::new(&p.m, 8192, levels, 12, 0);
        p.m.memory.set_word(pages.list.root, entry);
        let key = region(&mut p.m, p.pd_b, pages.list);
        let request = SendWqe {
            rkey: key.raw(),
            ..wqe(work::WRITE, 1)
        };
        p.send(request, &[p.mr_a.sge(0, 8)]);
        assert_eq!(outcome(&p.done_a()[0]), (Status::RemoteOperation, detail));
        // A ring's table is read when the ring is created.
        let context = CqContext {
            log_depth: 8,
            buffer: pages.list,
            ..CqContext::default()
        };
        let made = p.m.create(kind::CQ, &context.encode());
        if entry & 0xfff != 0 || levels == 2 {
            assert_eq!(made, Err(AdminError::Buffer));
        }
    }
}

fn page_sizes_have_limits() {
    let mut m = Machine::with(Config {
        min_page_shift: 13,
        max_page_shift: 16,
        ..Config::default()
    });
    for shift in 12..=17 {
        let pages = Pages::new(&m, 32 << 4, 1, shift, 0);
        let context = CqContext {
            log_depth: 4,
            buffer: pages.list,
            ..CqContext::default()
        };
        let made = m.create(kind::CQ, &context.encode());
        assert_eq!(made.is_ok(), (13..=16).contains(&shift), "{shift}");
    }
}

fn exchange(p: &mut Pair, wr_id: u64) {
    p.recv(wr_id, &[p.mr_b.sge(0, 64)]);
    p.m.arm(&p.cq_a.clone());
    p.send(wqe(work::SEND, wr_id), &[p.mr_a.sge(0, 64)]);
    let (sent, received) = (p.done_a(), p.done_b());
    assert_eq!((sent.len(), sent[0].wr_id, sent[0].status), (1, wr_id, 0));
    assert_eq!((received.len(), received[0].wr_id), (1, wr_id));
    assert_eq!(p.m.events0().len(), 1);
}

fn mappings_come_and_go() {
    let mut p = Pair::new();
    // Twice: a region is mapped at its second use.
    exchange(&mut p, 1);
    exchange(&mut p, 1);
    let maps = p.m.memory.live_maps();
    assert!(maps >= 6 + 2);
    p.m.f.unmap(p.a.sq + 64, 1);
    assert_eq!(p.m.memory.live_maps(), maps - 1, "only what overlaps");
    p.m.f.unmap(p.a.sq - 100, 100);
    p.m.f.unmap(p.a.sq + 1024, 100);
    p.m.f.unmap(0, 0);
    assert_eq!(p.m.memory.live_maps(), maps - 1);
    exchange(&mut p, 2);
    assert_eq!(p.m.memory.live_maps(), maps, "made anew");
    p.m.f.unmap_all();
    assert_eq!(p.m.memory.live_maps(), 0);
    exchange(&mut p, 3);
    // Without bus mastering nothing can be mapped; with it, all can be mapped again.
    p.m.f.unmap_all();
    p.m.f.host_mut().bus_master = false;
    p.m.f.host_mut().bus_master = true;
    exchange(&mut p, 4);
}

fn memory_that_cannot_be_mapped() {
    let mut m = Machine::off(Config::default());
    m.f.host_mut().maps = false;
    m.bring_up(6, 4, 5);
    let mut p = Pair::on(m, |_, _| {});
    for i in 0..100 {
        exchange(&mut p, i);
    }
    assert_eq!(p.m.memory.live_maps(), 0);
}

fn a_ring_is_mapped_once() {
    let mut p = Pair::new();
    for i in 0..40 {
        exchange(&mut p, i);
    }
    let maps = p.m.memory.live_maps();
    let before = p.m.f.counter(Counter::DmaReads);
    // Four requests in a row are fetched at once, and each moves one piece.
    for _ in 0..4 {
        let (request, sge) = (p.remote(work::WRITE, 0), p.mr_a.sge(0, 64));
        p.m.post(&mut p.a, request, &[sge]);
    }
    p.m.ring_sq(&p.a);
    p.m.settle();
    // One or, where the ring wraps, two fetches.
    let reads = p.m.f.counter(Counter::DmaReads) - before;
    assert!(reads <= 2 + 4, "{reads}");
    assert_eq!(p.m.memory.live_maps(), maps);
}

/// WRITEs 64 bytes from one offset of the first region to one of the second, and compares them.
fn write_at(p: &mut Pair, from: u64, to: u64, seed: u64) {
    let bytes = pattern(64, seed);
    p.m.memory.set_bytes(p.mr_a.addr + from, &bytes);
    let sge = p.mr_a.sge(from, 64);
    p.send(p.remote(work::WRITE, to), &[sge]);
    assert_eq!(p.done_a()[0].status, 0);
    assert_eq!(p.m.memory.bytes(p.mr_b.addr + to, 64), bytes);
}

fn a_region_keeps_one_run_mapped() {
    let mut p = Pair::new();
    exchange(&mut p, 1);
    let rings = p.m.memory.live_maps();
    // The exchange has used each region once already.
    write_at(&mut p, 64, 4096, 1);
    assert_eq!(
        p.m.memory.live_maps(),
        rings + 2,
        "mapped at the second use"
    );
    for (i, at) in [0, 1, 4095, 70_000, (1 << 20) - 64].into_iter().enumerate() {
        write_at(&mut p, at, at / 3, i as u64);
    }
    assert_eq!(p.m.memory.live_maps(), rings + 2);
    // In pages: the run that was used last.
    let pages = Pages::new(&p.m, 3 * 4096, 1, 12, 100);
    let key = region(&mut p.m, p.pd_b, pages.list);
    for (at, maps) in [(5000, 2), (5008, 3), (4096, 3), (0, 2), (200, 3), (9000, 2)] {
        let request = SendWqe {
            rkey: key.raw(),
            remote_addr: at,
            ..wqe(work::WRITE, 1)
        };
        let bytes = pattern(64, at);
        p.m.memory.set_bytes(p.mr_a.addr, &bytes);
        p.send(request, &[p.mr_a.sge(0, 64)]);
        assert_eq!(p.done_a()[0].status, 0);
        assert_eq!(pages.read(&p.m, at, 64), bytes);
        assert_eq!(p.m.memory.live_maps(), rings + maps, "{at}");
    }
    p.m.destroy(kind::MR, p.mr_b.key).unwrap();
    assert_eq!(p.m.memory.live_maps(), rings + 1, "gone with its region");
    p.m.f.reset();
    assert_eq!(p.m.memory.live_maps(), 0);
}

fn a_regions_mapping_is_taken_away() {
    for (opcode, near) in [
        (work::WRITE, true),
        (work::WRITE, false),
        (work::READ, true),
        (work::READ, false),
    ] {
        let mut p = Pair::new();
        for i in 0..3 {
            write_at(&mut p, 0, 0, i);
        }
        let maps = p.m.memory.live_maps();
        let mr = if near { p.mr_a } else { p.mr_b };
        p.m.f.unmap(mr.addr - 64, 64);
        p.m.f.unmap(mr.addr + mr.bytes, 64);
        assert_eq!(p.m.memory.live_maps(), maps);
        p.m.memory.set_lenient(true);
        p.m.memory.revoke(mr.addr);
        p.m.f.unmap(mr.addr + 4096, 1);
        assert_eq!(p.m.memory.live_maps(), maps - 1, "only what overlaps");
        p.send(p.remote(opcode, 0), &[p.mr_a.sge(0, 64)]);
        let (status, detail) = outcome(&p.done_a()[0]);
        assert!(status != Status::Success && detail == Detail::Dma);
        assert_eq!(p.m.f.counter(Counter::DmaFaults), 1);
    }
}

/// A failed mapping is tried again when the system has changed its addresses, and not before.
fn a_region_is_mapped_when_it_can_be() {
    let mut p = Pair::new();
    // The rings are mapped, the regions used once.
    exchange(&mut p, 1);
    let rings = p.m.memory.live_maps();
    p.m.f.host_mut().maps = false;
    for i in 0..3 {
        write_at(&mut p, 0, 0, i);
    }
    p.m.f.host_mut().maps = true;
    write_at(&mut p, 0, 0, 3);
    assert_eq!(p.m.memory.live_maps(), rings, "tried at each use");
    p.m.f.unmap(p.mr_a.addr + 4096, 1);
    write_at(&mut p, 0, 0, 4);
    assert_eq!(p.m.memory.live_maps(), rings + 1, "only what overlaps");
    p.m.f.unmap(p.mr_b.addr, 1);
    write_at(&mut p, 0, 0, 5);
    assert_eq!(p.m.memory.live_maps(), rings + 2);
}

fn regions_keep_so_many_mappings() {
    let mut p = Pair::new();
    for i in 0..2 {
        write_at(&mut p, 0, 0, i);
    }
    let maps = p.m.memory.live_maps();
    let mut regions: Vec<TestMr> = (0..300).map(|_| p.m.mr(p.pd_b, 4096)).collect();
    for round in 0..4 {
        for mr in &regions {
            let request = SendWqe {
                rkey: mr.key.raw(),
                remote_addr: mr.va,
                ..wqe(work::WRITE, 1)
            };
            for _ in 0..2 {
                p.send(request, &[p.mr_a.sge(0, 64)]);
                assert_eq!(p.done_a()[0].status, 0);
            }
        }
        assert!(p.m.memory.live_maps() <= maps - 2 + 256);
        if round == 1 {
            for mr in regions.drain(..150) {
                p.m.destroy(kind::MR, mr.key).unwrap();
                p.m.memory.revoke(mr.addr);
            }
        }
    }
    p.m.f.unmap_all();
    assert_eq!(p.m.memory.live_maps(), 0);
}

fn contiguous_pages_are_one_piece() {
    let mut p = Pair::new();
    let (_, list) = in_a_row(&p.m, 16);
    let key = region(&mut p.m, p.pd_b, list);
    let before = p.m.f.counter(Counter::DmaWrites);
    let request = SendWqe {
        rkey: key.raw(),
        ..wqe(work::WRITE, 1)
    };
    p.send(request, &[p.mr_a.sge(0, 16 << 12)]);
    assert_eq!(p.done_a()[0].status, 0);
    let writes = p.m.f.counter(Counter::DmaWrites) - before;
    assert!(writes <= 3, "{writes}");
}

/// A region keeps one run of its list, which both ends of a message may need at different places.
fn both_ends_are_in_one_region() {
    const PAGES: u64 = 48;
    let mut p = Pair::with(|a, b| b.pd = a.pd);
    let (addr, list) = in_a_row(&p.m, PAGES);
    let key = region(&mut p.m, p.pd_a, list);
    for distance in 1..=20u64 {
        let bytes = distance << 12;
        let (from, to) = (20 << 12, (20 - distance) << 12);
        let sge = |addr| Sge {
            addr,
            bytes: bytes as u32,
            lkey: key.raw(),
        };
        for opcode in [work::WRITE, work::READ, work::SEND] {
            let data = pattern(bytes as usize, distance << 8 | u64::from(opcode));
            p.m.memory.set_bytes(addr + from, &data);
            let (near, remote_addr) = match opcode {
                work::READ => (to, from),
                _ => (from, to),
            };
            let request = SendWqe {
                remote_addr,
                rkey: key.raw(),
                ..wqe(opcode, 1)
            };
            if opcode == work::SEND {
                p.recv(1, &[sge(to)]);
                p.send(wqe(opcode, 1), &[sge(near)]);
                p.done_b();
            } else {
                p.send(request, &[sge(near)]);
            }
            let place = format!("{distance} pages apart, opcode {opcode}");
            assert_eq!(outcome(&p.done_a()[0]).0, Status::Success, "{place}");
            assert!(
                p.m.memory.bytes(addr + to, bytes as usize) == data,
                "{place}"
            );
        }
    }
}

/// The end of a range is exclusive, so a region, a block, a table may end at 2^64.
fn the_last_byte_of_the_address_space() {
    const PAGE: u64 = 0u64.wrapping_sub(4096);
    let mut p = Pair::new();
    p.m.memory.set_lenient(true);
    p.m.memory.grant(PAGE, 4096, Grant::Write);
    let data = pattern(64, 1);
    p.m.memory.set_bytes(p.mr_a.addr, &data);
    // Its own addresses, then those of its memory.
    let high = p.m.mr_at(p.pd_b, PAGE, 4096, access::ALL);
    let plain = p.m.memory.alloc(4096, 4096, Grant::Write);
    let list = |root, pages: u64, levels| BufferList {
        root,
        bytes: pages << 12,
        page_shift: 12,
        levels,
        ..BufferList::default()
    };
    // The last entries of a table, then of a leaf, are the last of the address space.
    p.m.memory.set_words(PAGE + (4096 - 64), &[plain; 8]);
    let leaves = p.m.memory.alloc(8, 64, Grant::Read);
    p.m.memory.set_word(leaves, PAGE);
    let lists = [
        (block(PAGE, 4096), PAGE + (4096 - 64)),
        (list(PAGE + (4096 - 64), 8, 1), plain + 4096 - 64),
        (list(leaves, 512, 2), plain + 4096 - 64),
    ];
    let mut regions = vec![(high.key, PAGE, 4096, high.addr + 4096 - 64)];
    for (buffer, last) in lists.into_iter().rev() {
        let key = region(&mut p.m, p.pd_b, buffer);
        regions.push((key, 0, buffer.bytes, last));
    }
    for (key, va, bytes, last) in regions {
        p.m.memory.set_bytes(last, &[0; 64]);
        // In the block this is the place of the table, which is not used again.
        let request = |past: u64| SendWqe {
            remote_addr: (va + (bytes - 64)).wrapping_add(past),
            rkey: key.raw(),
            ..wqe(work::WRITE, 1)
        };
        p.send(request(0), &[p.mr_a.sge(0, 64)]);
        assert_eq!(p.done_a()[0].status, 0, "{va:#x} {bytes:#x}");
        assert_eq!(p.m.memory.bytes(last, 64), data);
        p.send(request(1), &[p.mr_a.sge(0, 64)]);
        let expected = (Status::RemoteAccess, Detail::Range);
        assert_eq!(outcome(&p.done_a()[0]), expected);
        for (qp, peer) in [(p.a.number, p.b.number), (p.b.number, p.a.number)] {
            p.m.set_state(qp, qp_state::RESET).unwrap();
            p.m.connect(qp, peer);
        }
        p.a.sq_tail = 0;
        p.m.events0();
    }
    // One byte more is out of range.
    let over = MrContext {
        pd: p.pd_b,
        addr: PAGE + 1,
        buffer: block(plain, 4096),
        ..MrContext::default()
    };
    let refused = p.m.create(kind::MR, &over.encode());
    assert_eq!(refused, Err(AdminError::Buffer));
    let over = MrContext {
        addr: 0,
        buffer: block(PAGE + 1, 4096),
        ..over
    };
    let refused = p.m.create(kind::MR, &over.encode());
    assert_eq!(refused, Err(AdminError::Buffer));
}

/// A depth of 1 is valid, also for the admin queues; only EQ 0 must be deeper.
fn the_smallest_rings() {
    let mut m = Machine::off(Config::default());
    m.bring_up(4, 0, 0);
    let pd = m.pd();
    let mut eq = m.eq(0, 1, 0, 0);
    let mut cq = m.cq_of(eq.number, 0, 0, 0);
    let mut qp = m.qp(&QpSpec {
        log_sq: 0,
        log_rq: 0,
        ..Machine::spec(pd, &cq)
    });
    m.connect(qp.number, qp.number);
    for i in 0..5 {
        m.arm(&cq);
        m.send(&mut qp, wqe(work::NOP, i), &[]);
        assert_eq!(m.events(&mut eq).len(), 1);
        assert_eq!(m.drain(&mut cq)[0].wr_id, i);
    }
}
