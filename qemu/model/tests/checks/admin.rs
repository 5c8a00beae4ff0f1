// SPDX-License-Identifier: GPL-2.0
//! Every command, and every error of a command.

use super::checks;
use crate::harness::*;
use qpair_abi::command::*;
use qpair_abi::counters::Counter;
use qpair_abi::entry::send_flags;
use qpair_abi::status::AdminError;
use qpair_abi::Number;

checks![
    a_command_that_makes_no_sense,
    a_context_that_makes_no_sense,
    an_eq_is_what_it_was_made,
    a_cq_is_what_it_was_made,
    a_queue_pair_is_what_it_was_made,
    a_region_is_what_it_was_made,
    what_is_used_stays,
    every_way_between_states,
    attributes_have_their_time_and_range,
    a_refused_change_changes_nothing,
    there_is_an_end_to_everything,
    counters_can_be_read,
    commands_complete_in_order,
];

fn a_command_that_makes_no_sense() {
    let mut m = Machine::new();
    let base = Command {
        opcode: opcode(kind::PD, verb::CREATE),
        blocks: 1,
        ..Command::default()
    };
    let words = Machine::command_words;
    let mut dirty = words(&base);
    dirty[7] = 1;
    let mut reserved = words(&base);
    reserved[0] |= 1 << 24;
    let cases = [
        dirty,
        reserved,
        words(&Command { blocks: 2, ..base }),
        words(&Command { blocks: 0, ..base }),
        words(&Command {
            flags: send_flags::INLINE,
            ..base
        }),
        words(&Command { opcode: 0, ..base }),
        words(&Command {
            opcode: opcode(10, verb::CREATE),
            ..base
        }),
        words(&Command {
            opcode: opcode(kind::PD, verb::QUERY),
            ..base
        }),
        words(&Command {
            opcode: 0xff,
            ..base
        }),
    ];
    for words in cases {
        m.post_command(&words);
        m.settle();
        let cqe = m.admin_done().unwrap();
        assert_eq!(cqe.vendor, AdminError::Command.code(), "{words:x?}");
    }
    // A command completes whether it is signaled or not.
    m.post_command(&words(&base));
    m.settle();
    assert_eq!(m.admin_done().unwrap().status, 0);
}

fn a_context_that_makes_no_sense() {
    let mut m = Machine::new();
    let create = |m: &mut Machine, context, bytes| {
        m.command(Command {
            opcode: opcode(kind::EQ, verb::CREATE),
            context,
            context_bytes: bytes,
            ..Command::default()
        })
    };
    let context = m.context;
    for bytes in [0, 4, 57, 4104, u32::MAX] {
        assert_eq!(create(&mut m, context, bytes), Err(AdminError::Context));
    }
    assert_eq!(create(&mut m, context + 8, 64), Err(AdminError::Context));
    m.memory.set_lenient(true);
    for context in [0, 1 << 40, !63] {
        assert_eq!(create(&mut m, context, 64), Err(AdminError::Context));
    }
    // A query whose context cannot be written.
    let query = Command {
        opcode: opcode(kind::EQ, verb::QUERY),
        context: 1 << 40,
        context_bytes: 64,
        ..Command::default()
    };
    assert_eq!(m.command(query), Err(AdminError::Context));
    // A command without a context.
    let bare = Command {
        opcode: opcode(kind::PD, verb::CREATE),
        context,
        ..Command::default()
    };
    assert_eq!(m.command(bare), Err(AdminError::Context));
}

/// CREATEs with one change each; each must fail with its error.
fn refusals<const N: usize>(
    m: &mut Machine,
    kind: u8,
    good: &[u64; N],
    cases: &[([u64; N], AdminError)],
    reserved: &[u64; N],
) {
    for (words, error) in cases {
        assert_eq!(m.create(kind, words), Err(*error), "{words:x?}");
    }
    for word in 0..N {
        for bit in (0..64).filter(|bit| reserved[word] >> bit & 1 != 0) {
            let mut words = *good;
            words[word] |= 1 << bit;
            assert_eq!(m.create(kind, &words), Err(AdminError::Reserved));
        }
    }
}

/// Invalid lists for a ring of `bytes` bytes.
fn bad_lists(good: &BufferList) -> Vec<BufferList> {
    let paged = BufferList {
        levels: 1,
        page_shift: 12,
        ..*good
    };
    vec![
        BufferList { levels: 3, ..*good },
        BufferList {
            page_shift: 12,
            ..*good
        },
        BufferList {
            offset: 64,
            ..*good
        },
        BufferList {
            root: good.root + 8,
            ..*good
        },
        BufferList { root: !63, ..*good },
        BufferList {
            bytes: good.bytes - 1,
            ..*good
        },
        BufferList { bytes: 0, ..*good },
        BufferList {
            page_shift: 11,
            ..paged
        },
        BufferList {
            page_shift: 31,
            ..paged
        },
        BufferList {
            offset: 4096,
            ..paged
        },
        BufferList { offset: 8, ..paged },
        BufferList {
            root: good.root + 4,
            ..paged
        },
    ]
}

fn an_eq_is_what_it_was_made() {
    let mut m = Machine::new();
    let addr = m.memory.alloc(16 << 5, 64, Grant::Write);
    let good = EqContext {
        vector: 63,
        log_depth: 5,
        moderation_count: 4,
        moderation_usecs: 20,
        buffer: block(addr, 16 << 5),
        ..EqContext::default()
    };
    let with = |change: fn(&mut EqContext)| {
        let mut context = good;
        change(&mut context);
        context.encode()
    };
    let mut cases = vec![
        (with(|eq| eq.vector = 64), AdminError::Reference),
        (with(|eq| eq.log_depth = 16), AdminError::Depth),
        (with(|eq| eq.log_depth = 255), AdminError::Depth),
        (with(|eq| eq.moderation_count = 0), AdminError::Attribute),
        (with(|eq| eq.moderation_usecs = 0), AdminError::Attribute),
    ];
    for buffer in bad_lists(&good.buffer) {
        cases.push((EqContext { buffer, ..good }.encode(), AdminError::Buffer));
    }
    refusals(
        &mut m,
        kind::EQ,
        &good.encode(),
        &cases,
        &EqContext::RESERVED,
    );
    let eq = m.create(kind::EQ, &good.encode()).unwrap();
    assert_eq!(eq, Number::new(1, 1));
    assert_eq!(EqContext::decode(&m.query(kind::EQ, eq)), good);
    assert_eq!(m.destroy(kind::EQ, eq.next()), Err(AdminError::Number));
    m.destroy(kind::EQ, eq).unwrap();
    assert_eq!(m.destroy(kind::EQ, eq), Err(AdminError::Number));
    assert_eq!(m.create(kind::EQ, &good.encode()), Ok(Number::new(1, 2)));
}

fn a_cq_is_what_it_was_made() {
    let mut m = Machine::new();
    let addr = m.memory.alloc(32 << 3, 64, Grant::Write);
    let good = CqContext {
        eq: Number::ADMIN,
        page: 1023,
        log_depth: 3,
        flags: cq_flags::USER,
        buffer: block(addr, 32 << 3),
        ..CqContext::default()
    };
    let with = |change: fn(&mut CqContext)| {
        let mut context = good;
        change(&mut context);
        context.encode()
    };
    let mut cases = vec![
        (with(|cq| cq.eq = Number::new(1, 1)), AdminError::Reference),
        (with(|cq| cq.eq = Number::new(0, 1)), AdminError::Reference),
        (with(|cq| cq.page = 1024), AdminError::Reference),
        (with(|cq| cq.log_depth = 18), AdminError::Depth),
        (
            with(|cq| cq.flags = cq_flags::OVERRUN),
            AdminError::Reserved,
        ),
        (with(|cq| cq.flags = 0x80), AdminError::Reserved),
    ];
    for buffer in bad_lists(&good.buffer) {
        cases.push((CqContext { buffer, ..good }.encode(), AdminError::Buffer));
    }
    refusals(
        &mut m,
        kind::CQ,
        &good.encode(),
        &cases,
        &CqContext::RESERVED,
    );
    let cq = m.create(kind::CQ, &good.encode()).unwrap();
    assert_eq!(m.query_cq(cq), good);
}

fn a_queue_pair_is_what_it_was_made() {
    let mut m = Machine::new();
    let (pd, cq) = (m.pd(), m.cq(4));
    let spec = QpSpec {
        page: 1023,
        log_sq: 3,
        log_rq: 0,
        stride: 2,
        retry: 7,
        rnr_retry: 6,
        ..Machine::spec(pd, &cq)
    };
    let good = m.qp_context(&spec);
    let with = |change: fn(&mut QpContext)| {
        let mut context = good;
        change(&mut context);
        context.encode()
    };
    let gone = AdminError::Reference;
    let mut cases = vec![
        (with(|qp| qp.pd = Number::new(9, 1)), gone),
        (with(|qp| qp.page = 1024), gone),
        (with(|qp| qp.send_cq = Number::ADMIN), gone),
        (with(|qp| qp.recv_cq = Number::ADMIN), gone),
        (with(|qp| qp.send_cq = Number::new(1, 2)), gone),
        (with(|qp| qp.srq = Number::new(1, 1)), gone),
        (with(|qp| qp.service = 2), AdminError::Attribute),
        (with(|qp| qp.service = service::UD), AdminError::Attribute),
        (with(|qp| qp.gid = 1), AdminError::Attribute),
        (with(|qp| qp.gid_high = 1), AdminError::Attribute),
        (with(|qp| qp.state = qp_state::INIT), AdminError::Attribute),
        (
            with(|qp| qp.peer = Number::new(1, 1)),
            AdminError::Attribute,
        ),
        (with(|qp| qp.peer_function = 1), AdminError::Attribute),
        (
            with(|qp| qp.access = access::LOCAL_WRITE),
            AdminError::Reserved,
        ),
        (with(|qp| qp.retry = 8), AdminError::Attribute),
        (with(|qp| qp.rnr_retry = 8), AdminError::Attribute),
        (with(|qp| qp.log_sq = 16), AdminError::Depth),
        (with(|qp| qp.log_rq = 16), AdminError::Depth),
        (with(|qp| qp.rq_stride = 3), AdminError::Depth),
        (with(|qp| qp.log_sq = 4), AdminError::Buffer),
        (with(|qp| qp.log_rq = 1), AdminError::Buffer),
    ];
    for sq in bad_lists(&good.sq) {
        cases.push((QpContext { sq, ..good }.encode(), AdminError::Buffer));
    }
    for rq in bad_lists(&good.rq) {
        cases.push((QpContext { rq, ..good }.encode(), AdminError::Buffer));
    }
    refusals(
        &mut m,
        kind::QP,
        &good.encode(),
        &cases,
        &QpContext::RESERVED,
    );
    let qp = m.create(kind::QP, &good.encode()).unwrap();
    assert_eq!(m.query_qp(qp), good);
    assert_eq!(m.query_qp(Number::ADMIN).state, qp_state::RTS);
}

fn a_region_is_what_it_was_made() {
    let mut m = Machine::new();
    let pd = m.pd();
    let addr = m.memory.alloc(100, 64, Grant::Write);
    let good = MrContext {
        pd,
        access: access::LOCAL_WRITE | access::REMOTE_READ,
        addr: 0x1234_5677,
        // A region may begin at any address.
        buffer: block(addr + 3, 97),
        ..MrContext::default()
    };
    let with = |change: fn(&mut MrContext)| {
        let mut context = good;
        change(&mut context);
        context.encode()
    };
    let cases = [
        (with(|mr| mr.pd = Number::ADMIN), AdminError::Reference),
        (with(|mr| mr.access = 0x20), AdminError::Reserved),
        (
            with(|mr| {
                mr.buffer = BufferList {
                    bytes: 0,
                    levels: 1,
                    page_shift: 12,
                    ..mr.buffer
                }
            }),
            AdminError::Buffer,
        ),
        (with(|mr| mr.addr = u64::MAX - 95), AdminError::Buffer),
        (
            with(|mr| mr.buffer.root = u64::MAX - 50),
            AdminError::Buffer,
        ),
        (
            with(|mr| mr.buffer.bytes = (1 << 36) + 1),
            AdminError::Buffer,
        ),
        (with(|mr| mr.buffer.levels = 3), AdminError::Buffer),
        (with(|mr| mr.buffer.page_shift = 12), AdminError::Buffer),
        (with(|mr| mr.buffer.offset = 1), AdminError::Buffer),
    ];
    refusals(
        &mut m,
        kind::MR,
        &good.encode(),
        &cases,
        &MrContext::RESERVED,
    );
    let key = m.create(kind::MR, &good.encode()).unwrap();
    assert_eq!(MrContext::decode(&m.query(kind::MR, key)), good);
    m.destroy(kind::MR, key).unwrap();
    let next = m.create(kind::MR, &good.encode()).unwrap();
    assert_eq!(next.index(), key.index());
    assert_ne!(next.generation(), key.generation());
}

fn what_is_used_stays() {
    let mut m = Machine::new();
    let (pd, other_pd) = (m.pd(), m.pd());
    let eq = m.eq(4, 1, 0, 0);
    let send_cq = m.cq_of(eq.number, 4, 0, 0);
    let recv_cq = m.cq_of(Number::ADMIN, 4, 0, 0);
    let qp = m.qp(&QpSpec {
        recv_cq: recv_cq.number,
        ..Machine::spec(pd, &send_cq)
    });
    let mr = m.mr(other_pd, 64);
    // The admin queue pair, its CQ and EQ 0 count as well.
    assert_eq!(m.f.objects(), 10);
    let busy = Err(AdminError::Busy);
    for (kind, number) in [
        (kind::PD, pd),
        (kind::PD, other_pd),
        (kind::EQ, eq.number),
        (kind::CQ, send_cq.number),
        (kind::CQ, recv_cq.number),
        (kind::EQ, Number::ADMIN),
        (kind::CQ, Number::ADMIN),
        (kind::QP, Number::ADMIN),
    ] {
        assert_eq!(m.destroy(kind, number), busy, "{kind} {number}");
    }
    m.destroy(kind::QP, qp.number).unwrap();
    m.destroy(kind::MR, mr.key).unwrap();
    for (kind, number) in [
        (kind::CQ, send_cq.number),
        (kind::CQ, recv_cq.number),
        (kind::EQ, eq.number),
        (kind::PD, pd),
        (kind::PD, other_pd),
    ] {
        m.destroy(kind, number).unwrap();
        assert_eq!(m.destroy(kind, number), Err(AdminError::Number));
    }
    assert_eq!(m.f.objects(), 3);
}

fn every_way_between_states() {
    use qp_state::*;
    let ways = [
        (RESET, INIT),
        (INIT, RTR),
        (RTR, RTS),
        (RTS, SQD),
        (SQD, RTS),
    ];
    for from in 0..=ERROR {
        for to in 0..=ERROR + 1 {
            let mut m = Machine::new();
            let (pd, cq) = (m.pd(), m.cq(4));
            let qp = m.qp(&Machine::spec(pd, &cq)).number;
            if from == ERROR {
                m.set_state(qp, ERROR).unwrap();
            } else {
                for state in INIT..=from {
                    m.set_state(qp, state).unwrap();
                }
            }
            let may = to == RESET || to == ERROR || ways.contains(&(from, to));
            let expected = if may {
                Ok(())
            } else {
                Err(AdminError::Transition)
            };
            assert_eq!(m.set_state(qp, to).map(|_| ()), expected, "{from} {to}");
            assert_eq!(m.query_qp(qp).state, if may { to } else { from });
        }
    }
}

fn attributes_have_their_time_and_range() {
    let mut m = Machine::new();
    let (pd, cq) = (m.pd(), m.cq(4));
    let qp = m.qp(&Machine::spec(pd, &cq)).number;
    let all = QpContext {
        peer: Number::new(7, 7),
        access: access::REMOTE_READ,
        retry: 5,
        rnr_retry: 4,
        q_key: 0x1111,
        ..QpContext::default()
    };
    let peer = qp_mask::PEER;
    assert_eq!(
        m.modify(qp, peer, &all),
        Err(AdminError::Transition),
        "RESET"
    );
    m.set_state(qp, qp_state::INIT).unwrap();
    let wired = qp_mask::PATH | qp_mask::SQ_PSN;
    let attributes = qp_mask::ALL & !(qp_mask::STATE | qp_mask::NOTIFY | wired);
    m.modify(qp, attributes, &all).unwrap();
    let is = m.query_qp(qp);
    assert_eq!((is.peer, is.peer_function), (all.peer, 0));
    assert_eq!(
        (is.access, is.retry, is.rnr_retry, is.q_key),
        (4, 5, 4, 0x1111)
    );
    // Only the fields that the mask selects.
    m.modify(qp, qp_mask::RETRY, &QpContext::default()).unwrap();
    let is = m.query_qp(qp);
    assert_eq!(
        (is.access, is.retry, is.rnr_retry, is.q_key),
        (4, 0, 0, 0x1111)
    );
    let bad = |change: fn(&mut QpContext)| {
        let mut context = all;
        change(&mut context);
        context
    };
    for (mask, context) in [
        (qp_mask::PEER, bad(|qp| qp.peer_function = 1)),
        (qp_mask::RETRY, bad(|qp| qp.retry = 8)),
        (qp_mask::RETRY, bad(|qp| qp.rnr_retry = 8)),
        (qp_mask::PEER | qp_mask::PATH, all),
        (qp_mask::SQ_PSN, all),
    ] {
        assert_eq!(m.modify(qp, mask, &context), Err(AdminError::Attribute));
    }
    let own = bad(|qp| qp.access = access::LOCAL_WRITE);
    assert_eq!(
        m.modify(qp, qp_mask::ACCESS, &own),
        Err(AdminError::Reserved)
    );
    let unknown = qp_mask::ALL + 1;
    assert_eq!(m.modify(qp, unknown, &all), Err(AdminError::Reserved));
    let to_rtr = QpContext {
        state: qp_state::RTR,
        ..all
    };
    m.modify(qp, qp_mask::STATE | peer, &to_rtr).unwrap();
    assert_eq!(m.modify(qp, peer, &all), Err(AdminError::Transition), "RTR");
    assert_eq!(
        m.modify(Number::ADMIN, 0, &all),
        Err(AdminError::Number),
        "the admin queue pair cannot be changed"
    );
}

fn a_refused_change_changes_nothing() {
    let mut m = Machine::new();
    let (pd, cq) = (m.pd(), m.cq(4));
    let qp = m.qp(&Machine::spec(pd, &cq)).number;
    m.set_state(qp, qp_state::INIT).unwrap();
    let before = m.query_qp(qp);
    let change = QpContext {
        state: qp_state::RTR,
        peer: qp,
        access: access::REMOTE_READ,
        retry: 8,
        ..QpContext::default()
    };
    let mask = qp_mask::ALL & !(qp_mask::NOTIFY | qp_mask::PATH | qp_mask::SQ_PSN);
    assert_eq!(m.modify(qp, mask, &change), Err(AdminError::Attribute));
    assert_eq!(m.query_qp(qp), before);
}

fn there_is_an_end_to_everything() {
    let config = qpair_model::Config {
        qps: 3,
        cqs: 4,
        eqs: 2,
        mrs: 3,
        pds: 2,
        ..Default::default()
    };
    let mut m = Machine::with(config);
    let (pd, _) = (m.pd(), m.pd());
    let full = Err(AdminError::Full);
    assert_eq!(m.simple(kind::PD, verb::CREATE, Number::ADMIN), full);
    let eq = m.eq(4, 1, 0, 0);
    let context: [u64; 8] = m.query(kind::EQ, eq.number);
    assert_eq!(m.create(kind::EQ, &context), Err(AdminError::Full));
    let cqs: Vec<_> = (0..3).map(|_| m.cq(4)).collect();
    let context: [u64; 8] = m.query(kind::CQ, cqs[2].number);
    assert_eq!(m.create(kind::CQ, &context), Err(AdminError::Full));
    let spec = Machine::spec(pd, &cqs[0]);
    let qps: Vec<_> = (0..2).map(|_| m.qp(&spec)).collect();
    let context: [u64; 16] = m.query(kind::QP, qps[0].number);
    assert_eq!(m.create(kind::QP, &context), Err(AdminError::Full));
    let mrs: Vec<_> = (0..3).map(|_| m.mr(pd, 64)).collect();
    let context: [u64; 8] = m.query(kind::MR, mrs[0].key);
    assert_eq!(m.create(kind::MR, &context), Err(AdminError::Full));
    // The refused commands lost nothing.
    m.destroy(kind::QP, qps[1].number).unwrap();
    assert_eq!(m.qp(&spec).number, qps[1].number.next());
}

fn counters_can_be_read() {
    let mut m = Machine::new();
    let context = m
        .memory
        .alloc(qpair_abi::counters::BYTES as u64, 64, Grant::Write);
    let query = Command {
        opcode: opcode(kind::DEVICE, verb::QUERY),
        context,
        context_bytes: qpair_abi::counters::BYTES as u32,
        ..Command::default()
    };
    m.pd();
    m.command(query).unwrap();
    let counts = m.memory.words::<{ Counter::COUNT }>(context);
    assert_eq!(counts[Counter::Commands as usize], 2);
    assert_eq!(counts[Counter::SqDoorbells as usize], 2);
    assert_eq!(counts[Counter::Cqes as usize], 1);
}

fn commands_complete_in_order() {
    let mut m = Machine::new();
    for round in 0..10u64 {
        for i in 0..15 {
            let create = Command {
                opcode: opcode(kind::PD, if i % 3 == 0 { 9 } else { verb::CREATE }),
                blocks: 1,
                wr_id: 100 * round + i,
                ..Command::default()
            };
            m.post_command(&Machine::command_words(&create));
        }
        m.settle();
        for i in 0..15 {
            let cqe = m.admin_done().unwrap();
            assert_eq!(cqe.wr_id, 100 * round + i);
            assert_eq!(cqe.status == 0, i % 3 != 0);
        }
    }
}
