// SPDX-License-Identifier: GPL-2.0
//! Groups: a datagram to one is copied to its members.

use super::checks;
use crate::harness::*;
use qpair_abi::command::*;
use qpair_abi::counters::Counter;
use qpair_abi::entry::opcode as work;
use qpair_abi::entry::*;
use qpair_abi::status::AdminError;
use qpair_abi::status::Detail;
use qpair_abi::status::Status;
use qpair_abi::Number;
use qpair_model::Config;
use qpair_testkit::with_seeds;
use std::collections::BTreeSet;
use std::collections::VecDeque;

checks![
    each_member_has_a_copy,
    a_group_on_a_port_with_a_table,
    a_member_drops_its_copy_alone,
    what_is_not_for_a_group_is_dropped,
    a_sender_without_a_copy_of_its_own,
    membership_ends,
    attaching_is_checked,
    groups_have_limits,
    a_turn_has_a_bounded_number_of_copies,
    members_change_between_turns,
    a_sender_stops_between_turns,
    memory_of_the_sender_is_gone,
    a_sender_that_its_own_copy_fails,
    a_source_that_is_gone_between_turns,
    no_other_gid_is_a_group,
    anything_between_members,
];

/// 239.1.2.3, mapped.
const GROUP4: [u64; 2] = [0, 0x0302_01ef_ffff_0000];

fn change(m: &mut Machine, verb: u8, qp: Number, gid: [u64; 2]) -> Result<(), AdminError> {
    m.with_context(kind::QP, verb, qp, 0, &gid).map(drop)
}

impl Port {
    fn attach(&mut self, at: usize, gid: [u64; 2]) {
        change(&mut self.m, verb::ATTACH, self.qps[at].number, gid).unwrap();
    }

    fn detach(&mut self, at: usize, gid: [u64; 2]) {
        change(&mut self.m, verb::DETACH, self.qps[at].number, gid).unwrap();
    }

    /// A SEND to a group.
    fn to_group(&self, [gid, gid_high]: [u64; 2], wr_id: u64) -> UdWqe {
        UdWqe {
            dest: Number::GROUP,
            gid,
            gid_high,
            ..self.to(0, wr_id)
        }
    }

    /// How many receives each queue pair has completed; its own sends are not counted.
    fn copies(&mut self) -> Vec<usize> {
        let all = 0..self.qps.len();
        let is_receive = |cqe: &Cqe| cqe.flags & cqe_flags::RECV != 0;
        all.map(|at| self.done(at).into_iter().filter(is_receive).count())
            .collect()
    }

    fn give(&mut self, receives: u64) {
        for at in 0..self.qps.len() {
            for id in 0..receives {
                let into = self.mrs[at].sge(id * 4200, 4200);
                self.recv(at, id, &[into]);
            }
        }
    }
}

/// Queue pairs that are all members of a group.
fn members(count: usize) -> Port {
    let mut w = Port::new(count);
    for at in 0..count {
        w.attach(at, GROUP);
    }
    w
}

/// Queue pairs on one CQ, which send from the port's table of GIDs.
fn with_table(count: usize) -> Port {
    let mut w = Port::new(0);
    let (pd, cq) = (w.m.pd(), w.m.cq(9));
    for _ in 0..count {
        let spec = QpSpec {
            gid: [0; 2],
            ..ud_spec(pd, &cq)
        };
        let qp = w.m.qp(&spec);
        ud_start(&mut w.m, qp.number, KEY);
        w.mrs.push(w.m.mr(pd, 1 << 16));
        w.qps.push(qp);
        w.cqs.push(cq);
    }
    w
}

fn each_member_has_a_copy() {
    for gid in [GROUP, GROUP4] {
        let mut w = Port::new(5);
        for at in [4, 1, 2] {
            w.attach(at, gid);
        }
        w.give(1);
        let data = pattern(100, 3);
        w.m.memory.set_bytes(w.mrs[0].addr + 8192, &data);
        let wqe = UdWqe {
            opcode: work::SEND_IMM,
            flags: send_flags::SIGNALED | send_flags::SOLICITED,
            imm: 77,
            ..w.to_group(gid, 8)
        };
        w.send(0, wqe, &[w.mrs[0].sge(8192, 100)]);
        let mut header = grh(100, true);
        let words = gid.into_iter().flat_map(u64::to_le_bytes);
        header.splice(24.., words);
        for at in [1, 2, 4] {
            let expected = Cqe {
                qp: w.qps[at].number,
                bytes: 140,
                imm: 77,
                index: 1,
                src: w.qps[0].number.raw(),
                opcode: work::RECV,
                flags: cqe_flags::RECV | cqe_flags::GRH | cqe_flags::SOLICITED | cqe_flags::IMM,
                ..Cqe::default()
            };
            assert_eq!(w.done(at), [expected]);
            let got = w.m.memory.bytes(w.mrs[at].addr, 141);
            assert_eq!(got[..GRH], header);
            assert_eq!((&got[GRH..140], got[140]), (&data[..], 0));
        }
        assert_eq!(w.done(3), []);
        let sent = w.done(0);
        assert_eq!((sent.len(), sent[0].wr_id, sent[0].status), (1, 8, 0));
        assert_eq!(w.m.f.counter(Counter::SendBytes), 300);
        assert_eq!(w.dropped(), 0);
        // Inline, from a member: the sender has a copy too.
        let words = ud_inline(w.to_group(gid, 9), &data);
        let mut qp = w.qps[1];
        let into = w.mrs[1].sge(0, 140);
        w.m.recv(&mut qp, 3, &[into]);
        w.m.post_words(&mut qp, &words);
        w.qps[1] = qp;
        w.ring(1);
        let done = w.done(1);
        assert_eq!((done.len(), done[0].src), (2, qp.number.raw()));
        assert_eq!(w.dropped(), 2, "the others have no receive");
        assert_eq!(w.m.memory.bytes(w.mrs[1].addr + 40, 100), data);
    }
}

fn a_group_on_a_port_with_a_table() {
    const FIRST: [u64; 2] = [0x80fe, 0x11];
    let mut w = with_table(2);
    w.attach(1, GROUP);
    w.give(1);
    let wqe = UdWqe {
        source: 3,
        ..w.to_group(GROUP, 1)
    };
    // No GID to send from.
    w.send(0, wqe, &[]);
    assert_eq!((w.done(0).len(), w.dropped()), (1, 1));
    let context = GidContext {
        gid: FIRST[0],
        gid_high: FIRST[1],
    };
    let entry = Number::from_raw(3);
    w.m.with_context(kind::GID, verb::MODIFY, entry, 0, &context.encode())
        .unwrap();
    w.send(0, wqe, &[]);
    assert_eq!(w.dropped(), 1);
    let bytes = w.m.memory.bytes(w.mrs[1].addr + 8, 32);
    let gids = [FIRST, GROUP].concat();
    let gids: Vec<u8> = gids.into_iter().flat_map(u64::to_le_bytes).collect();
    assert_eq!(bytes, gids, "from, to");
}

fn a_member_drops_its_copy_alone() {
    let mut w = members(8);
    let send = |w: &mut Port, bytes: u32| {
        let before = w.dropped();
        let wqe = w.to_group(GROUP, 5);
        let sge = w.mrs[0].sge(0, bytes);
        w.send(0, wqe, &[sge]);
        assert_eq!(w.state(0), qp_state::RTS);
        (w.copies(), w.dropped() - before)
    };
    assert_eq!(send(&mut w, 8), (vec![0; 8], 8), "no receives");
    w.give(3);
    assert_eq!(send(&mut w, 8), (vec![1; 8], 0));
    // Another Q_Key; not ready; a receive of a wrong region; one that is too short comes again.
    let other = QpContext {
        q_key: KEY + 1,
        ..QpContext::default()
    };
    w.m.modify(w.qps[1].number, qp_mask::Q_KEY, &other).unwrap();
    w.m.set_state(w.qps[2].number, qp_state::ERROR).unwrap();
    w.m.set_state(w.qps[3].number, qp_state::SQD).unwrap();
    let short = w.mrs[4].sge(0, 40);
    w.recv(4, 9, &[short]);
    let foreign = w.mrs[0].sge(0, 4000);
    w.recv(5, 9, &[foreign]);
    let (flushed, _) = (w.done(2), w.m.events0());
    assert_eq!(flushed.len(), 2);
    assert_eq!(send(&mut w, 8), (vec![1, 0, 0, 1, 1, 1, 1, 1], 2));
    assert_eq!(send(&mut w, 8), (vec![1, 0, 0, 1, 1, 1, 1, 1], 2));
    for at in [0, 3, 6, 7] {
        let into = w.mrs[at].sge(0, 100);
        w.recv(at, 1, &[into]);
    }
    let wqe = w.to_group(GROUP, 6);
    let sge = w.mrs[0].sge(0, 8);
    let before = w.dropped();
    w.send(0, wqe, &[sge]);
    assert_eq!(w.dropped() - before, 4);
    let failed = w.done(5);
    let protection = (Status::LocalProtection, Detail::Domain);
    assert_eq!(outcome(&failed[0]), protection);
    assert_eq!(w.state(5), qp_state::ERROR);
    assert_eq!(w.copies(), [1, 0, 0, 1, 0, 0, 1, 1]);
    // The one that was too short is the next.
    let wqe = w.to_group(GROUP, 6);
    w.send(0, wqe, &[]);
    assert_eq!(w.copies(), [0, 0, 0, 0, 1, 0, 0, 0]);
}

fn what_is_not_for_a_group_is_dropped() {
    let mut w = members(3);
    w.give(2);
    let good = w.to_group(GROUP, 1);
    let member = w.qps[1].number;
    let sge = [w.mrs[0].sge(0, 8)];
    for wrong in [
        UdWqe {
            dest: member,
            ..good
        },
        UdWqe {
            dest: Number::from_raw(u32::MAX),
            ..good
        },
        UdWqe {
            gid: 0x13ff,
            ..good
        },
        UdWqe {
            gid: GID[0],
            gid_high: GID[1],
            ..good
        },
    ] {
        w.is_dropped(0, wrong, &sge);
    }
    let wrong = UdWqe { q_key: 0, ..good };
    w.send(0, wrong, &sge);
    assert_eq!(w.dropped(), 4 + 3, "one by each member");
    assert_eq!(w.copies(), [0; 3]);
    let own = UdWqe {
        q_key: OWN_Q_KEY,
        ..good
    };
    w.send(0, own, &sge);
    assert_eq!((w.copies(), w.dropped()), (vec![1; 3], 7));
}

fn a_sender_without_a_copy_of_its_own() {
    let mut w = members(2);
    let spec = ud_spec(w.m.pd(), &w.cqs[0]);
    let good = QpContext {
        flags: qp_flags::NO_OWN_COPY,
        ..w.m.qp_context(&spec)
    };
    let made = w.m.create(kind::QP, &good.encode()).unwrap();
    assert_eq!(w.m.query_qp(made).flags, qp_flags::NO_OWN_COPY);
    ud_start(&mut w.m, made, KEY);
    change(&mut w.m, verb::ATTACH, made, GROUP).unwrap();
    w.give(2);
    // It has the rings of the context.
    let mut qp = TestQp {
        number: made,
        sq: good.sq.root,
        rq: good.rq.root,
        sq_tail: 0,
        rq_tail: 0,
        ..w.qps[0]
    };
    let into = w.mrs[0].sge(0, 40);
    w.m.recv(&mut qp, 50, &[into]);
    let words = ud_words(w.to_group(GROUP, 51), &[]);
    w.m.post_words(&mut qp, &words);
    w.m.ring_sq(&qp);
    w.m.settle();
    let ids: Vec<_> = w.done(0).iter().map(|cqe| (cqe.qp, cqe.wr_id)).collect();
    assert_eq!(ids, [(w.qps[0].number, 0), (made, 51)]);
    assert_eq!((w.done(1).len(), w.dropped()), (1, 0));
    for wrong in [
        QpContext { flags: 4, ..good },
        QpContext {
            flags: 0x80,
            ..good
        },
    ] {
        let made = w.m.create(kind::QP, &wrong.encode());
        assert_eq!(made, Err(AdminError::Reserved));
    }
    for service in [service::RC, service::UC] {
        let wrong = QpContext {
            service,
            gid: 0,
            gid_high: 0,
            ..good
        };
        let made = w.m.create(kind::QP, &wrong.encode());
        assert_eq!(made, Err(AdminError::Attribute));
    }
}

fn membership_ends() {
    let mut w = members(4);
    w.attach(1, GROUP4);
    let objects = w.m.f.objects();
    w.m.set_state(w.qps[1].number, qp_state::ERROR).unwrap();
    assert_eq!(w.m.f.objects(), objects, "an error ends none");
    w.m.events0();
    w.m.set_state(w.qps[1].number, qp_state::RESET).unwrap();
    assert_eq!(w.m.f.objects(), objects - 2);
    ud_start(&mut w.m, w.qps[1].number, KEY);
    w.detach(2, GROUP);
    w.give(1);
    let wqe = w.to_group(GROUP, 1);
    w.send(0, wqe, &[]);
    assert_eq!((w.copies(), w.dropped()), (vec![1, 0, 0, 1], 0));
    let gone = w.qps[3].number;
    w.m.destroy(kind::QP, gone).unwrap();
    assert_eq!(w.m.f.objects(), objects - 5, "itself, too");
    let again = change(&mut w.m, verb::DETACH, gone, GROUP);
    assert_eq!(again, Err(AdminError::Number));
    let wqe = w.to_group(GROUP, 2);
    w.send(0, wqe, &[]);
    assert_eq!(w.dropped(), 1, "the sender has no other receive");
    // The last one ends the group.
    w.detach(0, GROUP);
    let wqe = w.to_group(GROUP, 3);
    w.send(0, wqe, &[]);
    assert_eq!(w.dropped(), 2);
    // A member that comes back has no copy of before.
    w.attach(1, GROUP);
    let wqe = w.to_group(GROUP, 4);
    w.send(0, wqe, &[]);
    assert_eq!(w.done(1).len(), 1);
    w.attach(0, GROUP);
    w.m.f.reset();
    assert_eq!(w.m.f.objects(), 0);
}

fn attaching_is_checked() {
    let mut w = members(2);
    let qp = w.qps[0].number;
    let cq = w.m.cq(3);
    let pd = w.m.pd();
    let rc = w.m.qp(&Machine::spec(pd, &cq)).number;
    for verb in [verb::ATTACH, verb::DETACH] {
        let objects = w.m.f.objects();
        let again = match verb {
            verb::ATTACH => (qp, GROUP, AdminError::Busy),
            _ => (qp, GROUP4, AdminError::Number),
        };
        let not_ud = match verb {
            verb::ATTACH => AdminError::Attribute,
            _ => AdminError::Number,
        };
        for (qp, gid, error) in [
            again,
            (rc, GROUP, not_ud),
            (Number::ADMIN, GROUP, not_ud),
            (qp, GID, not_ud),
            (qp, [0; 2], not_ud),
            (qp.next(), GROUP, AdminError::Number),
            (Number::GROUP, GROUP, AdminError::Number),
        ] {
            assert_eq!(change(&mut w.m, verb, qp, gid), Err(error), "{qp} {gid:x?}");
        }
        // More words must be zero, and there must be some.
        let long = [GROUP[0], GROUP[1], 0, 1];
        let refused = w.m.with_context(kind::QP, verb, qp, 0, &long);
        assert_eq!(refused, Err(AdminError::Reserved));
        let refused = w.m.simple(kind::QP, verb, qp);
        assert_eq!(refused, Err(AdminError::Context));
        let refused = w.m.with_context(kind::QP, verb, qp, 1, &GROUP);
        assert_eq!(refused, Err(AdminError::Command));
        assert_eq!(w.m.f.objects(), objects);
    }
}

fn groups_have_limits() {
    let ports = |groups, group_members| {
        let mut w = Port::new(0);
        w.m = Machine::with(Config {
            groups,
            group_members,
            ..Config::default()
        });
        (0..3).for_each(|_| w.add());
        w
    };
    let group = |at: u64| [0x12ff, at];
    let mut w = ports(2, 2);
    w.attach(0, group(0));
    w.attach(0, group(1));
    let attach =
        |w: &mut Port, at: usize, gid| change(&mut w.m, verb::ATTACH, w.qps[at].number, gid);
    assert_eq!(attach(&mut w, 0, group(2)), Err(AdminError::Full));
    w.attach(1, group(1));
    assert_eq!(attach(&mut w, 2, group(1)), Err(AdminError::Full));
    w.detach(0, group(0));
    w.attach(2, group(2));
    w.detach(1, group(1));
    w.attach(2, group(1));
    for (groups, members) in [(0, 4), (4, 0)] {
        let mut w = ports(groups, members);
        assert_eq!(attach(&mut w, 0, group(0)), Err(AdminError::Full));
    }
}

fn turns(w: &Port) -> u64 {
    w.m.f.counter(Counter::Turns)
}

fn a_turn_has_a_bounded_number_of_copies() {
    // 40 members are three turns, of 16 copies each: of no bytes, and of the longest.
    for bytes in [0, 4096] {
        let mut w = members(40);
        w.give(1);
        let before = turns(&w);
        let wqe = w.to_group(GROUP, 1);
        let sge = w.mrs[0].sge(0, bytes);
        w.send(0, wqe, &[sge]);
        assert_eq!(turns(&w) - before, 3);
        assert_eq!(w.copies(), [1; 40]);
    }
    // Another queue pair does not wait for all of them.
    let mut w = members(40);
    w.give(2);
    w.m.f.set_stall(true);
    let (wqe, sge) = (w.to_group(GROUP, 1), w.mrs[0].sge(0, 64));
    w.post(0, wqe, &[sge]);
    w.post(0, wqe, &[sge]);
    w.m.ring_sq(&w.qps[0]);
    let nop = UdWqe {
        opcode: work::NOP,
        ..w.to(1, 9)
    };
    w.post(1, nop, &[]);
    w.m.ring_sq(&w.qps[1]);
    w.m.f.set_stall(false);
    w.m.f.run(1);
    let served = w.copies();
    assert_eq!(served.iter().sum::<usize>(), 16);
    w.m.f.run(1);
    let done = w.done(1);
    assert_eq!((done.len(), done[0].opcode), (1, work::NOP));
    w.m.settle();
    let rest = w.copies();
    let mut all = served.iter().zip(rest);
    assert!(all.all(|(first, then)| first + then == 2));
}

fn members_change_between_turns() {
    let mut w = members(24);
    w.give(2);
    let wqe = w.to_group(GROUP, 1);
    w.post(0, wqe, &[]);
    w.m.ring_sq(&w.qps[0]);
    w.m.f.run(1);
    assert_eq!(w.copies().iter().sum::<usize>(), 16);
    // Some that were served leave, and one that was not.
    w.detach_now(&[0, 1, 2, 15, 20]);
    w.m.settle();
    let copies = w.copies();
    assert_eq!(copies[..16], [0; 16]);
    assert_eq!(copies[16..], [1, 1, 1, 1, 0, 1, 1, 1]);
    // All that are left leave.
    let wqe = w.to_group(GROUP, 2);
    w.post(0, wqe, &[]);
    w.m.ring_sq(&w.qps[0]);
    w.m.f.run(1);
    w.detach_now(&[21, 22, 23]);
    w.m.settle();
    assert_eq!(w.copies().iter().sum::<usize>(), 16);
    assert_eq!((w.state(0), w.dropped()), (qp_state::RTS, 0));
}

impl Port {
    /// Detaches members from the group, in one turn before any other.
    fn detach_now(&mut self, members: &[usize]) {
        self.m.memory.set_words(self.m.context, &GROUP);
        for at in members {
            let command = Command {
                opcode: opcode(kind::QP, verb::DETACH),
                number: self.qps[*at].number,
                blocks: 1,
                context: self.m.context,
                context_bytes: 16,
                ..Command::default()
            };
            self.m.post_command(&Machine::command_words(&command));
        }
        self.m.f.run(1);
        for _ in members {
            assert_eq!(self.m.admin_done().expect("its turn").status, 0);
        }
    }
}

fn a_sender_stops_between_turns() {
    for state in [qp_state::SQD, qp_state::ERROR, qp_state::RESET] {
        let mut w = members(40);
        w.give(1);
        let wqe = w.to_group(GROUP, 1);
        w.post(0, wqe, &[]);
        w.m.ring_sq(&w.qps[0]);
        w.m.f.run(1);
        w.m.set_state_now(w.qps[0].number, state);
        w.m.settle();
        let all: Vec<_> = (0..40).flat_map(|at| w.done(at)).collect();
        let is_copy = |cqe: &&Cqe| cqe.flags & cqe_flags::RECV != 0 && cqe.status == 0;
        let copies = all.iter().filter(is_copy).count();
        let sent = all.iter().find(|cqe| cqe.opcode == work::SEND);
        let sent = sent.map(|cqe| outcome(cqe).0);
        let expected = match state {
            qp_state::SQD => (40, Some(Status::Success)),
            qp_state::ERROR => (16, Some(Status::Flush)),
            _ => (16, None),
        };
        assert_eq!((copies, sent), expected, "{state}");
        if state == qp_state::SQD {
            assert_eq!(w.m.query_qp(w.qps[0].number).draining, 0);
        }
    }
}

fn memory_of_the_sender_is_gone() {
    let mut w = members(40);
    w.give(1);
    let (wqe, sge) = (w.to_group(GROUP, 1), w.mrs[0].sge(0, 64));
    w.post(0, wqe, &[sge]);
    w.m.ring_sq(&w.qps[0]);
    w.m.f.run(1);
    w.m.destroy_now(kind::MR, w.mrs[0].key);
    w.m.settle();
    let sent = w.done(0);
    let sent = sent.iter().find(|cqe| cqe.opcode == work::SEND).unwrap();
    assert_eq!(outcome(sent).0, Status::LocalProtection);
    assert_eq!(w.m.query_qp(w.qps[0].number).state, qp_state::ERROR);
    assert_eq!(w.copies()[1..].iter().sum::<usize>(), 15);
}

fn a_sender_that_its_own_copy_fails() {
    let mut w = members(3);
    for at in 1..3 {
        let into = w.mrs[at].sge(0, 4200);
        w.recv(at, 1, &[into]);
    }
    let bad = Sge {
        lkey: 0,
        ..w.mrs[0].sge(0, 4200)
    };
    w.recv(0, 1, &[bad]);
    let wqe = w.to_group(GROUP, 1);
    w.send(0, wqe, &[]);
    let done = w.done(0);
    let sent = done.iter().find(|cqe| cqe.opcode == work::SEND).unwrap();
    assert_eq!(outcome(sent).0, Status::Flush);
    assert_eq!(w.m.query_qp(w.qps[0].number).state, qp_state::ERROR);
    assert_eq!(w.copies()[1..], [0, 0]);
}

fn a_source_that_is_gone_between_turns() {
    const FIRST: [u64; 2] = [0x80fe, 0x11];
    let mut w = with_table(40);
    let entry = Number::from_raw(3);
    w.m.with_context(kind::GID, verb::MODIFY, entry, 0, &FIRST)
        .unwrap();
    for at in 0..40 {
        w.attach(at, GROUP);
    }
    w.give(1);
    let wqe = UdWqe {
        source: 3,
        ..w.to_group(GROUP, 1)
    };
    w.post(0, wqe, &[]);
    w.m.ring_sq(&w.qps[0]);
    w.m.f.run(1);
    w.m.empty_gid_now(3);
    w.m.settle();
    let done = w.done(0);
    let copies = done.iter().filter(|cqe| cqe.flags & cqe_flags::RECV != 0);
    assert_eq!((copies.count(), w.dropped()), (16, 24));
}

fn no_other_gid_is_a_group() {
    let mut w = members(1);
    let asked =
        w.m.with_context(kind::GID, verb::MODIFY, Number::from_raw(0), 0, &GROUP);
    assert_eq!(asked.map(drop), Err(AdminError::Attribute));
    let (pd, cq) = (w.m.pd(), w.m.cq(4));
    let spec = QpSpec {
        gid: GROUP,
        ..ud_spec(pd, &cq)
    };
    let context = w.m.qp_context(&spec);
    let created = w.m.create(kind::QP, &context.encode());
    assert_eq!(created.map(drop), Err(AdminError::Attribute));
}

/// Against sets and counts: members of two groups, receives, and copies that are dropped.
fn anything_between_members() {
    with_seeds("anything_between_members", 20, |rng| {
        let mut w = Port::new(6);
        let mut groups = [(GROUP, BTreeSet::new()), (GROUP4, BTreeSet::new())];
        let mut receives = vec![VecDeque::new(); 6];
        for id in 0..200 {
            let at = rng.below(6) as usize;
            let (gid, members) = &mut groups[rng.below(2) as usize];
            match rng.below(10) {
                0 => {
                    let done = change(&mut w.m, verb::ATTACH, w.qps[at].number, *gid);
                    let busy = Err(AdminError::Busy);
                    assert_eq!(done, if members.insert(at) { Ok(()) } else { busy });
                }
                1 => {
                    let done = change(&mut w.m, verb::DETACH, w.qps[at].number, *gid);
                    let none = Err(AdminError::Number);
                    assert_eq!(done, if members.remove(&at) { Ok(()) } else { none });
                }
                2 if rng.one_in(4) => {
                    let qp = w.qps[at].number;
                    w.m.set_state(qp, qp_state::RESET).unwrap();
                    (w.qps[at].sq_tail, w.qps[at].rq_tail) = (0, 0);
                    ud_start(&mut w.m, qp, KEY);
                    receives[at].clear();
                    for (_, members) in &mut groups {
                        members.remove(&at);
                    }
                }
                2..6 if receives[at].len() < 16 => {
                    let room = 30 + rng.below(60) as u32;
                    let into = w.mrs[at].sge(rng.below(1000), room);
                    w.recv(at, id, &[into]);
                    receives[at].push_back(room);
                }
                _ => {
                    let bytes = rng.below(60) as u32;
                    let wqe = w.to_group(*gid, id);
                    let from = w.mrs[at].sge(2000, bytes);
                    let fits = |to: &usize| {
                        let room = receives[*to].front();
                        room.is_some_and(|room| *room >= bytes + GRH as u32)
                    };
                    let (served, lost): (Vec<usize>, Vec<_>) =
                        members.iter().partition(|to| fits(to));
                    let before = w.dropped();
                    w.send(at, wqe, &[from]);
                    let lost = if members.is_empty() { 1 } else { lost.len() };
                    assert_eq!(w.dropped() - before, lost as u64);
                    let copies = w.copies();
                    for (to, count) in copies.into_iter().enumerate() {
                        assert_eq!(count, usize::from(served.contains(&to)));
                    }
                    for to in served {
                        receives[to].pop_front();
                    }
                }
            }
        }
        assert!(w.m.events0().is_empty());
    });
}
