// SPDX-License-Identifier: GPL-2.0
//! Datagrams: what is delivered, what is dropped, and that a drop harms nothing.

use super::checks;
use crate::harness::*;
use qpair_abi::command::*;
use qpair_abi::counters::Counter;
use qpair_abi::doorbell;
use qpair_abi::entry::opcode as work;
use qpair_abi::entry::*;
use qpair_abi::status::Detail;
use qpair_abi::status::Status;
use qpair_abi::Number;

checks![
    a_datagram_fills_a_receive_behind_its_grh,
    the_header_has_what_the_address_says,
    immediate_and_inline_data,
    datagrams_of_many_pieces,
    one_queue_pair_has_many_correspondents,
    what_is_not_for_the_destination_is_dropped,
    the_senders_own_q_key,
    a_receive_that_is_too_short_stays,
    the_longest_datagram,
    an_invalid_receive_fails_only_its_queue_pair,
    a_wqe_that_makes_no_sense_fails_its_queue_pair,
    memory_of_the_sender_is_checked,
    services_do_not_mix,
    attributes_are_those_of_the_service,
    an_overrun_cq_of_the_destination,
    a_turn_has_a_bounded_number_of_datagrams,
];

fn a_datagram_fills_a_receive_behind_its_grh() {
    let mut w = Port::new(2);
    let data = pattern(333, 1);
    w.m.memory.set_bytes(w.mrs[0].addr + 7, &data);
    w.recv(1, 5, &[w.mrs[1].sge(100, 1000)]);
    let wqe = UdWqe {
        flags: send_flags::SIGNALED | send_flags::SOLICITED | send_flags::FENCE,
        ..w.to(1, 8)
    };
    w.send(0, wqe, &[w.mrs[0].sge(7, 333)]);
    let received = Cqe {
        wr_id: 5,
        qp: w.qps[1].number,
        bytes: 373,
        index: 1,
        src: w.qps[0].number.raw(),
        opcode: work::RECV,
        flags: cqe_flags::RECV | cqe_flags::GRH | cqe_flags::SOLICITED,
        ..Cqe::default()
    };
    assert_eq!(w.done(1), [received]);
    let sent = Cqe {
        wr_id: 8,
        qp: w.qps[0].number,
        index: 2,
        opcode: work::SEND,
        ..Cqe::default()
    };
    assert_eq!(w.done(0), [sent]);
    let got = w.m.memory.bytes(w.mrs[1].addr + 100, 374);
    assert_eq!(got[..GRH], grh(333, false));
    assert_eq!((&got[GRH..373], got[373]), (&data[..], 0));
    assert_eq!(w.m.f.counter(Counter::SendBytes), 333, "the payload");
    assert_eq!(w.dropped(), 0);
}

fn the_header_has_what_the_address_says() {
    let mut w = Port::new(2);
    let cases = [
        (64, 0xb8, 0xa_5c31),
        (255, 0xff, MAX_FLOW_LABEL),
        (1, 0x01, 1 << 16),
        (0, 0, 0),
    ];
    for (hop_limit, traffic_class, label) in cases {
        for bytes in [0, 9, 192] {
            let mut wqe = UdWqe {
                hop_limit,
                traffic_class,
                ..w.to(1, 6)
            };
            wqe.set_flow_label(label);
            assert_eq!(wqe.flow_label(), label);
            let data = pattern(bytes, 3);
            w.m.memory.set_bytes(w.mrs[0].addr, &data);
            let sge = w.mrs[0].sge(0, bytes as u32);
            for words in [ud_inline(wqe, &data), ud_words(wqe, &[sge])] {
                w.recv(1, 5, &[w.mrs[1].sge(0, 300)]);
                let mut qp = w.qps[0];
                w.m.post_words(&mut qp, &words);
                w.qps[0] = qp;
                w.ring(0);
                assert_eq!((w.done(0)[0].status, w.done(1).len()), (0, 1));
                let mut header = grh(bytes as u16, false);
                let first = 6 << 28 | u32::from(traffic_class) << 20 | label;
                header[..4].copy_from_slice(&first.to_be_bytes());
                // An older program has 0 there, and its header 1.
                header[7] = hop_limit.max(1);
                let got = w.m.memory.bytes(w.mrs[1].addr, GRH + bytes);
                assert_eq!((&got[..GRH], &got[GRH..]), (&header[..], &data[..]));
            }
        }
    }
}

fn immediate_and_inline_data() {
    let mut w = Port::new(2);
    for (i, length) in [0, 1, 64, 65, 128, 192].into_iter().enumerate() {
        let data = pattern(length, i as u64);
        w.recv(1, 5, &[w.mrs[1].sge(0, 300)]);
        let wqe = UdWqe {
            opcode: work::SEND_IMM,
            imm: 0xdead_beef,
            ..w.to(1, 6)
        };
        let words = ud_inline(wqe, &data);
        let mut qp = w.qps[0];
        w.m.post_words(&mut qp, &words);
        w.qps[0] = qp;
        w.ring(0);
        let cqes = w.done(1);
        assert_eq!((cqes.len(), cqes[0].imm), (1, 0xdead_beef));
        assert_eq!(cqes[0].bytes as usize, GRH + length);
        let flags = cqe_flags::RECV | cqe_flags::GRH | cqe_flags::IMM;
        assert_eq!(cqes[0].flags, flags);
        let got = w.m.memory.bytes(w.mrs[1].addr, GRH + length);
        assert_eq!(got[..GRH], grh(length as u16, true));
        assert_eq!(got[GRH..], data);
        assert_eq!(w.done(0)[0].status, 0);
    }
}

fn datagrams_of_many_pieces() {
    let mut w = Port::new(2);
    let data = pattern(1200, 4);
    w.m.memory.set_bytes(w.mrs[0].addr, &data);
    // 12 pieces fit behind the head; receives may split the GRH anywhere.
    let from: Vec<_> = (0..12).map(|i| w.mrs[0].sge(i * 100, 100)).collect();
    let into = [
        w.mrs[1].sge(0, 1),
        w.mrs[1].sge(8, 0),
        w.mrs[1].sge(1000, 38),
        w.mrs[1].sge(2000, 700),
        w.mrs[1].sge(4000, 2000),
    ];
    for round in 0..20 {
        w.recv(1, round, &into);
        let wqe = w.to(1, round);
        w.send(0, wqe, &from);
        assert_eq!(w.done(1)[0].bytes, 1240);
        assert_eq!(w.done(0)[0].status, 0);
        let mut got = Vec::new();
        for (at, count) in [(0, 1), (1000, 38), (2000, 700), (4000, 501)] {
            got.extend(w.m.memory.bytes(w.mrs[1].addr + at, count));
        }
        assert_eq!(got[..GRH], grh(1200, false));
        assert_eq!(got[GRH..], data);
    }
}

fn one_queue_pair_has_many_correspondents() {
    let mut w = Port::new(4);
    for i in 0..4u64 {
        w.recv(0, 10 + i, &[w.mrs[0].sge(i * 64, 64)]);
    }
    // To itself, too.
    for i in 0..4 {
        let wqe = w.to(0, i as u64);
        let sge = w.mrs[i].sge(0, 8);
        w.send(i, wqe, &[sge]);
    }
    let of_receives = |cqe: &&Cqe| cqe.flags & cqe_flags::RECV != 0;
    let sources: Vec<_> = w
        .done(0)
        .iter()
        .filter(of_receives)
        .map(|cqe| cqe.src)
        .collect();
    let numbers: Vec<_> = w.qps.iter().map(|qp| qp.number.raw()).collect();
    assert_eq!(sources, numbers);
}

fn what_is_not_for_the_destination_is_dropped() {
    let mut w = Port::new(2);
    let sge = [w.mrs[0].sge(0, 8)];
    w.is_dropped(0, w.to(1, 1), &sge);
    assert_eq!(w.done(1), [], "no receive");
    let into = w.mrs[1].sge(0, 100);
    w.recv(1, 5, &[into]);
    let good = w.to(1, 2);
    let cases = [
        UdWqe {
            q_key: KEY + 1,
            ..good
        },
        UdWqe { q_key: 0, ..good },
        UdWqe {
            gid: 0,
            gid_high: 0,
            ..good
        },
        UdWqe {
            gid: GID[0] ^ 1,
            ..good
        },
        UdWqe {
            gid_high: GID[1] ^ 1 << 63,
            ..good
        },
        UdWqe {
            dest: Number::ADMIN,
            ..good
        },
        UdWqe {
            dest: Number::from_raw(1),
            ..good
        },
        UdWqe {
            dest: Number::from_raw(0xff_ffff),
            ..good
        },
        UdWqe {
            dest: Number::from_raw(u32::MAX),
            ..good
        },
        UdWqe {
            dest: good.dest.next(),
            ..good
        },
    ];
    for wqe in cases {
        w.is_dropped(0, wqe, &sge);
        assert_eq!(w.done(1), []);
    }
    let dest = w.qps[1].number;
    for state in [qp_state::ERROR, qp_state::RESET, qp_state::INIT] {
        w.m.set_state(dest, state).unwrap();
        w.is_dropped(0, good, &sge);
        w.done(1);
    }
    w.m.set_state(dest, qp_state::RTR).unwrap();
    w.qps[1].rq_tail = 0;
    w.recv(1, 6, &[into]);
    w.send(0, good, &sge);
    assert_eq!((w.done(0).len(), w.done(1).len()), (1, 1), "RTR receives");
    w.m.set_state(dest, qp_state::RTS).unwrap();
    w.m.set_state(dest, qp_state::SQD).unwrap();
    w.recv(1, 6, &[into]);
    w.send(0, good, &sge);
    assert_eq!((w.done(0).len(), w.done(1).len()), (1, 1), "SQD receives");
    w.m.destroy(kind::QP, dest).unwrap();
    w.is_dropped(0, good, &sge);
    let stale = w.m.f.counter(Counter::Stale);
    assert_eq!(stale, 1, "another generation of the destination");
    assert!(w.m.events0().is_empty(), "no drop is an event");
    assert_eq!(w.m.f.counter(Counter::SendBytes), 16);
}

fn the_senders_own_q_key() {
    let mut w = Port::new(2);
    w.recv(1, 5, &[w.mrs[1].sge(0, 100)]);
    let own = UdWqe {
        q_key: OWN_Q_KEY | 77,
        ..w.to(1, 1)
    };
    w.send(0, own, &[]);
    assert_eq!(w.done(1).len(), 1);
    w.done(0);
    // A Q_Key with this bit can be had, and only a sender that has it reaches it.
    let special = QpContext {
        q_key: OWN_Q_KEY | 77,
        ..QpContext::default()
    };
    let (a, b) = (w.qps[0].number, w.qps[1].number);
    w.m.modify(b, qp_mask::Q_KEY, &special).unwrap();
    w.recv(1, 6, &[w.mrs[1].sge(0, 100)]);
    w.is_dropped(0, own, &[]);
    w.is_dropped(0, w.to(1, 1), &[]);
    w.m.modify(a, qp_mask::Q_KEY, &special).unwrap();
    w.send(0, own, &[]);
    assert_eq!(w.done(1).len(), 1);
}

fn a_receive_that_is_too_short_stays() {
    let mut w = Port::new(2);
    let into = [w.mrs[1].sge(0, 39), w.mrs[1].sge(100, 11)];
    w.recv(1, 5, &into);
    for bytes in [11, 12, 4096] {
        w.is_dropped(0, w.to(1, 1), &[w.mrs[0].sge(0, bytes)]);
        assert_eq!(w.done(1), []);
    }
    w.m.memory.set_bytes(w.mrs[0].addr, b"0123456789");
    let wqe = w.to(1, 2);
    w.send(0, wqe, &[w.mrs[0].sge(0, 10)]);
    let cqes = w.done(1);
    assert_eq!((cqes.len(), cqes[0].wr_id, cqes[0].bytes), (1, 5, 50));
    let got = w.m.memory.bytes(w.mrs[1].addr + 101, 10);
    assert_eq!(got, b"0123456789", "from the first byte");
    w.done(0);
    // A receive that was too short is flushed like any other.
    w.recv(1, 6, &into);
    w.is_dropped(0, w.to(1, 1), &[w.mrs[0].sge(0, 11)]);
    w.m.set_state(w.qps[1].number, qp_state::ERROR).unwrap();
    w.m.settle();
    let cqes = w.done(1);
    assert_eq!((cqes.len(), cqes[0].wr_id), (1, 6));
    assert_eq!(outcome(&cqes[0]).0, Status::Flush);
}

fn the_longest_datagram() {
    let mut w = Port::new(2);
    let data = pattern(DATAGRAM_BYTES, 3);
    w.m.memory.set_bytes(w.mrs[0].addr, &data);
    w.recv(1, 5, &[w.mrs[1].sge(0, 10_000)]);
    let wqe = w.to(1, 1);
    let long = [
        vec![w.mrs[0].sge(0, DATAGRAM_BYTES as u32 + 1)],
        vec![w.mrs[0].sge(0, 1 << 15)],
        vec![w.mrs[0].sge(0, 1 << 16); 12],
    ];
    for sges in &long {
        let mut qp = w.qps[0];
        w.m.post_words(&mut qp, &ud_words(wqe, sges));
        w.ring_and_restart(qp, (Status::LocalLength, Detail::Message));
        assert_eq!((w.done(1), w.dropped()), (vec![], 0));
    }
    w.send(0, wqe, &[w.mrs[0].sge(0, DATAGRAM_BYTES as u32)]);
    assert_eq!(w.done(1)[0].bytes as usize, GRH + DATAGRAM_BYTES);
    let got = w.m.memory.bytes(w.mrs[1].addr, GRH + DATAGRAM_BYTES);
    assert_eq!(got[..GRH], grh(DATAGRAM_BYTES as u16, false));
    assert_eq!(got[GRH..], data);
}

fn an_invalid_receive_fails_only_its_queue_pair() {
    let foreign = |w: &Port| w.mrs[0].sge(0, 100);
    let read_only = |w: &mut Port| {
        let pd = w.m.query_qp(w.qps[1].number).pd;
        w.m.mr_at(pd, 0, 4096, 0).sge(0, 100)
    };
    for case in 0..4 {
        let mut w = Port::new(3);
        let into = match case {
            0 => foreign(&w),
            1 => read_only(&mut w),
            _ => w.mrs[1].sge(0, 100),
        };
        let mut qp = w.qps[1];
        w.m.post_recv(&mut qp, 5, &[into]);
        match case {
            2 => w.m.memory.set_word(qp.rq, 1 << 8),
            3 => w.m.memory.set_word(qp.rq, 99),
            _ => {}
        }
        w.m.ring(0, doorbell::RQ, qp.number, qp.rq_tail);
        w.m.settle();
        w.qps[1] = qp;
        w.is_dropped(0, w.to(1, 1), &[w.mrs[0].sge(0, 8)]);
        let expected = [
            (Status::LocalProtection, Detail::Domain),
            (Status::LocalProtection, Detail::Rights),
            (Status::LocalQpOperation, Detail::Flags),
            (Status::LocalQpOperation, Detail::Sges),
        ][case];
        let cqes = w.done(1);
        assert_eq!((cqes.len(), cqes[0].wr_id), (1, 5));
        assert_eq!(outcome(&cqes[0]), expected);
        assert_eq!(w.state(1), qp_state::ERROR);
        assert_eq!(w.m.events0(), [], "the completion reports it");
        w.works(0, 2);
    }
    // To itself: its next request is flushed.
    let mut w = Port::new(1);
    let into = Sge {
        lkey: 1,
        ..w.mrs[0].sge(0, 100)
    };
    w.recv(0, 5, &[into]);
    for id in 1..3 {
        let wqe = w.to(0, id);
        w.post(0, wqe, &[]);
    }
    w.ring(0);
    failed_by_itself(&w.done(0));
}

fn a_wqe_that_makes_no_sense_fails_its_queue_pair() {
    let mut w = Port::new(2);
    w.recv(1, 5, &[w.mrs[1].sge(0, 100)]);
    let good = w.to(1, 1);
    let with = |opcode, flags| UdWqe {
        opcode,
        flags,
        ..good
    };
    let inline = |bytes: u8| UdWqe {
        inline_bytes: bytes,
        blocks: 1,
        ..with(work::SEND, send_flags::INLINE)
    };
    let cases = [
        (with(work::WRITE, 0), 0, Detail::Opcode),
        (with(work::WRITE_IMM, 0), 0, Detail::Opcode),
        (with(work::READ, 0), 0, Detail::Opcode),
        (with(work::COMPARE_SWAP, 0), 0, Detail::Opcode),
        (with(work::RECV, 0), 0, Detail::Opcode),
        (with(work::SEND, 0x10), 0, Detail::Flags),
        (with(work::NOP, send_flags::SOLICITED), 0, Detail::Flags),
        (inline(1), 0, Detail::Inline),
        (inline(8), 1, Detail::Sges),
        (UdWqe { blocks: 1, ..good }, 2, Detail::Sges),
        (UdWqe { blocks: 5, ..good }, 1, Detail::Blocks),
    ];
    for (wqe, sges, detail) in cases {
        let sges = vec![w.mrs[0].sge(0, 1); sges];
        let mut words = ud_words(wqe, &sges);
        words.truncate(8);
        let mut qp = w.qps[0];
        w.m.post_words(&mut qp, &words);
        w.ring_and_restart(qp, (Status::LocalQpOperation, detail));
    }
    for bit in 44..48 {
        let mut words = ud_words(good, &[]);
        words[3] |= 1 << bit;
        let mut qp = w.qps[0];
        w.m.post_words(&mut qp, &words);
        w.ring_and_restart(qp, (Status::LocalQpOperation, Detail::Flags));
    }
    assert_eq!((w.done(1).len(), w.dropped()), (0, 0));
    w.send(0, with(work::NOP, send_flags::SIGNALED), &[]);
    assert_eq!(w.done(0)[0].status, 0, "a NOP has no destination");
    assert_eq!(w.dropped(), 0);
}

fn memory_of_the_sender_is_checked() {
    let (mut key, mut fault) = (Port::new(2), Port::new(2));
    key.recv(1, 5, &[key.mrs[1].sge(0, 100)]);
    let wqe = key.to(1, 1);
    key.send(0, wqe, &[key.mrs[1].sge(0, 8)]);
    let expected = (Status::LocalProtection, Detail::Domain);
    assert_eq!(outcome(&key.done(0)[0]), expected);
    assert_eq!((key.done(1).len(), key.dropped()), (0, 0));
    // Memory that cannot be read leaves the receive as it was.
    let into = fault.mrs[1].sge(0, 100);
    fault.recv(1, 5, &[into]);
    let pd = fault.m.query_qp(fault.qps[0].number).pd;
    let gone = fault.m.mr_at(pd, 0, 4096, 0);
    fault.m.memory.set_lenient(true);
    fault.m.memory.revoke(gone.addr);
    let wqe = fault.to(1, 1);
    fault.send(0, wqe, &[gone.sge(0, 8)]);
    let expected = (Status::LocalProtection, Detail::Dma);
    assert_eq!(outcome(&fault.done(0)[0]), expected);
    assert_eq!(fault.state(0), qp_state::ERROR);
    assert_eq!((fault.done(1).len(), fault.state(1)), (0, qp_state::RTS));
    fault.add();
    let wqe = fault.to(1, 7);
    fault.send(2, wqe, &[]);
    assert_eq!(fault.done(1)[0].wr_id, 5);
}

fn services_do_not_mix() {
    let mut p = Pair::new();
    let cq = p.cq_a;
    let ud = p.m.qp(&ud_spec(p.pd_a, &cq));
    ud_start(&mut p.m, ud.number, 0);
    p.recv(9, &[p.mr_b.sge(0, 100)]);
    let wqe = UdWqe {
        opcode: work::SEND,
        flags: send_flags::SIGNALED,
        dest: p.b.number,
        gid: GID[0],
        gid_high: GID[1],
        ..UdWqe::default()
    };
    let mut from = ud;
    p.m.post_words(&mut from, &ud_words(wqe, &[]));
    p.m.ring_sq(&from);
    p.m.settle();
    assert_eq!(p.done_a()[0].status, 0);
    assert_eq!((p.done_b(), p.m.f.counter(Counter::Dropped)), (vec![], 1));
    // An RC queue pair that names one of UD.
    let mut rc = p.m.qp(&Machine::spec(p.pd_a, &cq));
    p.m.connect(rc.number, ud.number);
    p.m.send(&mut rc, wqe_of_send(), &[]);
    p.m.pass(100_000_000);
    let expected = (Status::RetryExceeded, Detail::NotNamed);
    assert_eq!(outcome(&p.done_a()[0]), expected);
}

fn wqe_of_send() -> SendWqe {
    wqe(work::SEND, 3)
}

fn attributes_are_those_of_the_service() {
    let mut m = Machine::new();
    let (pd, cq) = (m.pd(), m.cq(4));
    let good = m.qp_context(&ud_spec(pd, &cq));
    let cases = [
        QpContext { service: 2, ..good },
        QpContext { retry: 1, ..good },
        QpContext {
            rnr_retry: 1,
            ..good
        },
        QpContext {
            access: access::REMOTE_READ,
            ..good
        },
        QpContext {
            service: service::RC,
            ..good
        },
    ];
    let masks = [qp_mask::PEER, qp_mask::ACCESS, qp_mask::RETRY];
    let qp = m.has_only(&good, &cases, &masks);
    let context = QpContext {
        q_key: 0x8765_4321,
        ..QpContext::default()
    };
    m.modify(qp, qp_mask::Q_KEY, &context).unwrap();
    let is = m.query_qp(qp);
    assert_eq!((is.service, is.q_key), (service::UD, 0x8765_4321));
    assert_eq!([is.gid, is.gid_high], GID);
    m.set_state(qp, qp_state::RESET).unwrap();
    let is = m.query_qp(qp);
    assert_eq!(([is.gid, is.gid_high], is.service), (GID, service::UD));
}

fn an_overrun_cq_of_the_destination() {
    let mut w = Port::new(1);
    let (pd, mut cq) = (w.m.pd(), w.m.cq(0));
    let qp = w.m.qp(&ud_spec(pd, &cq));
    ud_start(&mut w.m, qp.number, KEY);
    w.mrs.push(w.m.mr(pd, 4096));
    w.qps.push(qp);
    w.cqs.push(cq);
    for id in 0..3 {
        w.recv(1, id, &[w.mrs[1].sge(0, 100)]);
    }
    for id in 0..3 {
        let wqe = w.to(1, id);
        w.post(0, wqe, &[]);
    }
    w.ring(0);
    assert!(w.done(0).iter().all(|cqe| cqe.status == 0));
    assert_eq!(w.state(1), qp_state::ERROR);
    assert_eq!(w.m.drain(&mut cq).len(), 1);
    assert_eq!((w.state(0), w.dropped()), (qp_state::RTS, 1));
}

fn a_turn_has_a_bounded_number_of_datagrams() {
    let mut w = Port::new(2);
    let turns = |w: &Port| w.m.f.counter(Counter::Turns);
    w.m.f.set_stall(true);
    let mut other = w.qps[1];
    for id in 0..16 {
        let wqe = UdWqe {
            q_key: 0,
            ..w.to(1, id)
        };
        w.post(0, wqe, &[]);
        w.m.post_words(
            &mut other,
            &ud_words(
                UdWqe {
                    opcode: work::NOP,
                    ..wqe
                },
                &[],
            ),
        );
    }
    w.qps[1] = other;
    w.m.ring_sq(&w.qps[0]);
    w.m.ring_sq(&w.qps[1]);
    let before = turns(&w);
    w.m.f.set_stall(false);
    w.m.settle();
    assert_eq!(turns(&w) - before, 2, "16 each, and no more");
    // 64 KiB are 16 of the longest.
    w.done(0);
    w.done(1);
    w.m.f.set_stall(true);
    for id in 0..16 {
        w.recv(1, id, &[w.mrs[1].sge(0, 5000)]);
        let wqe = w.to(1, id);
        w.post(0, wqe, &[w.mrs[0].sge(0, 4096)]);
    }
    w.m.ring_sq(&w.qps[0]);
    let before = turns(&w);
    w.m.f.set_stall(false);
    w.m.settle();
    assert_eq!(turns(&w) - before, 1);
    assert_eq!((w.done(0).len(), w.done(1).len()), (16, 16));
}
