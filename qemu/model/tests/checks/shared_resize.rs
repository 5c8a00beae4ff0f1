// SPDX-License-Identifier: GPL-2.0
//! MODIFY SRQ: a shared receive queue that goes on in another ring.

use super::checks;
use super::srq::events;
use crate::harness::*;
use qpair_abi::command::*;
use qpair_abi::counters::Counter;
use qpair_abi::status::AdminError;
use qpair_abi::status::Event;
use qpair_abi::Number;

checks![
    a_resize_between_any_two,
    the_old_ring_is_not_read,
    below_what_is_left,
    indices_are_those_of_the_new_depth,
    what_was_given_back_is_in_no_ring,
    a_limit_is_at_most_the_depth,
    what_is_refused,
];

/// Each receive is filled once and in order, whatever the sizes and the moment.
fn a_resize_between_any_two() {
    for (to, taken) in [(3, 0), (3, 3), (4, 5), (5, 0), (5, 7), (6, 8)] {
        for first in [0, 0u32.wrapping_sub(512)] {
            let mut c = Crowd::on(Machine::starting_at(first), 1);
            c.recv(0..8);
            for _ in 0..taken {
                c.send(0, 8);
            }
            c.resize(to).unwrap();
            assert_eq!(c.m.query_srq(c.srq.number).log_depth, to);
            let mut got = c.ids(0);
            for next in 8..48 {
                c.send(0, 8);
                c.recv([next]);
                got.extend(c.ids(0));
                if next == 20 {
                    c.resize(4).unwrap();
                }
            }
            let wanted: Vec<u64> = (0..got.len() as u64).collect();
            assert_eq!((got.len() as u64, got), (40 + taken, wanted));
            assert_eq!(events(&mut c.m), []);
        }
    }
}

fn the_old_ring_is_not_read() {
    let mut c = Crowd::new(2);
    c.recv(0..4);
    c.send(0, 8);
    // Its memory is taken away.
    c.resize(6).unwrap();
    c.send(0, 8);
    c.recv(4..60);
    for _ in 0..30 {
        c.send(1, 8);
        assert_eq!(c.ids(1).len(), 1);
    }
    assert_eq!(c.ids(0), [0, 1]);
    assert_eq!(c.m.query_srq(c.srq.number).flags, 0);
}

fn below_what_is_left() {
    let mut c = Crowd::new(1);
    let number = c.srq.number;
    c.recv(0..6);
    let before = c.m.query_srq(number);
    assert_eq!(c.resize(2), Err(AdminError::Depth));
    assert_eq!(c.m.query_srq(number), before);
    c.send(0, 8);
    assert_eq!(c.resize(2), Err(AdminError::Depth));
    c.send(0, 8);
    c.resize(2).unwrap();
    assert_eq!(c.m.query_srq(number).left, 4);
    for _ in 0..4 {
        c.send(0, 8);
    }
    assert_eq!(c.ids(0), [0, 1, 2, 3, 4, 5]);
}

fn indices_are_those_of_the_new_depth() {
    let mut c = Crowd::new(1);
    c.resize(2).unwrap();
    let violations = |m: &Machine| m.f.counter(Counter::Violations);
    let before = violations(&c.m);
    let mut beyond = c.srq;
    beyond.tail += 5;
    c.m.ring_srq(&beyond);
    assert_eq!((violations(&c.m), c.left()), (before + 1, 0));
    c.recv(0..4);
    assert_eq!((violations(&c.m), c.left()), (before + 1, 4));
    c.resize(5).unwrap();
    c.recv(4..32);
    assert_eq!((violations(&c.m), c.left()), (before + 1, 32));
}

fn what_was_given_back_is_in_no_ring() {
    let mut c = Crowd::new(2);
    let big = c.mr.sge(0x8_0000, 1 << 19);
    c.m.post_shared(&mut c.srq, 50, &[big]);
    c.recv([1, 2]);
    // The first receive is at a queue pair.
    c.begin(0, 1 << 19);
    c.m.resize_srq_now(&mut c.srq, 1);
    c.m.set_state_now(c.receivers[0].number, qp_state::RESET);
    assert_eq!((c.left(), c.received(0)), (3, vec![]));
    for _ in 0..3 {
        c.send(1, 8);
    }
    assert_eq!((c.ids(0), c.ids(1)), (vec![], vec![50, 1, 2]));
}

fn a_limit_is_at_most_the_depth() {
    let mut c = Crowd::new(1);
    let number = c.srq.number;
    c.recv(0..6);
    c.m.arm_limit(number, 5).unwrap();
    c.send(0, 8);
    c.send(0, 8);
    assert_eq!(events(&mut c.m), [(Event::SrqLimit.code(), number)]);
    c.m.arm_limit(number, 4).unwrap();
    let both = srq_mask::LIMIT | srq_mask::RING;
    let change = |c: &mut Crowd, mask, log, limit| {
        let ring = c.m.next_ring(&c.srq, log);
        let changed = c.m.modify_srq(number, mask, &SrqContext { limit, ..ring });
        if changed.is_ok() {
            (c.srq.addr, c.srq.log) = (ring.buffer.root, log);
        }
        changed.map(drop)
    };
    let refused = Err(AdminError::Attribute);
    // The limit that is armed, and one that comes with the ring.
    assert_eq!(change(&mut c, srq_mask::RING, 1, 0), refused);
    assert_eq!(change(&mut c, both, 2, 5), refused);
    assert_eq!(change(&mut c, both, 5, 33), refused);
    let context = c.m.query_srq(number);
    assert_eq!((context.log_depth, context.limit), (4, 4));
    assert_eq!(change(&mut c, srq_mask::RING, 2, 99), Ok(()));
    assert_eq!(
        c.m.query_srq(number).limit,
        4,
        "of no meaning without its bit"
    );
    assert_eq!(change(&mut c, both, 5, 20), Ok(()));
    assert_eq!(
        events(&mut c.m),
        [(Event::SrqLimit.code(), number)],
        "due at once"
    );
    assert_eq!(c.m.query_srq(number).limit, 0);
    assert_eq!((c.left(), c.ids(0)), (4, vec![0, 1]));
}

fn what_is_refused() {
    let mut c = Crowd::new(1);
    let number = c.srq.number;
    let good = c.m.next_ring(&c.srq, 5);
    let before = c.m.query_srq(number);
    let bad_list = SrqContext {
        buffer: BufferList {
            root: good.buffer.root + 8,
            ..good.buffer
        },
        ..good
    };
    let deep = SrqContext {
        log_depth: 16,
        ..good
    };
    let long = SrqContext {
        log_depth: 6,
        ..good
    };
    for (number, mask, context, error) in [
        (number, srq_mask::ALL + 1, good, AdminError::Reserved),
        (number, srq_mask::RING, bad_list, AdminError::Buffer),
        (number, srq_mask::RING, deep, AdminError::Depth),
        (number, srq_mask::RING, long, AdminError::Buffer),
        (number.next(), srq_mask::RING, good, AdminError::Number),
        (Number::ADMIN, srq_mask::RING, good, AdminError::Number),
    ] {
        let refused = c.m.modify_srq(number, mask, &context).unwrap_err();
        assert_eq!(refused, error, "{context:?}");
    }
    // Nothing is selected, so nothing else counts.
    c.m.modify_srq(number, 0, &SrqContext { limit: 3, ..deep })
        .unwrap();
    let mut words = good.encode();
    words[7] = 1;
    let refused =
        c.m.with_context(kind::SRQ, verb::MODIFY, number, srq_mask::RING, &words);
    assert_eq!(refused.unwrap_err(), AdminError::Reserved);
    assert_eq!(c.m.query_srq(number), before);
}
