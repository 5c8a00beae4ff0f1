// SPDX-License-Identifier: GPL-2.0
//! The line of senders that wait for a receive of an SRQ.

use super::checks;
use crate::harness::*;
use qpair_abi::command::*;
use qpair_abi::counters::Counter;
use qpair_abi::status::Status;

checks![
    a_receive_wakes_one_sender,
    receives_feed_as_many_senders,
    a_place_is_kept,
    a_sender_that_needs_none_lets_the_next_go,
    a_sender_that_goes_lets_the_next_go,
    a_datagram_joins_no_line,
];

/// Senders of which each waits for a receive.
fn waiting(count: usize) -> Crowd {
    let mut c = Crowd::new(count);
    for to in 0..count {
        c.send(to, 8);
    }
    assert_eq!(c.sent(), []);
    c
}

/// Posts receives, and runs nothing.
fn post(c: &mut Crowd, ids: core::ops::Range<u64>) {
    c.m.f.set_stall(true);
    c.recv(ids);
    c.m.f.set_stall(false);
}

/// Those that have sent, in this order.
fn served(c: &mut Crowd) -> Vec<u64> {
    let sent = c.sent();
    assert!(sent.iter().all(|cqe| cqe.status == 0), "{sent:?}");
    sent.iter().map(|cqe| cqe.wr_id).collect()
}

fn a_receive_wakes_one_sender() {
    let mut c = waiting(100);
    let turns = |c: &Crowd| c.m.f.counter(Counter::Turns);
    for id in 0..100 {
        let before = turns(&c);
        c.recv([id % 16]);
        assert_eq!(served(&mut c), [id]);
        assert_eq!(turns(&c) - before, 1);
        c.ids(id as usize);
    }
}

fn receives_feed_as_many_senders() {
    let mut c = waiting(20);
    let before = c.m.f.counter(Counter::Turns);
    c.recv(0..12);
    let first: Vec<_> = (0..12).collect();
    assert_eq!(served(&mut c), first);
    assert_eq!(c.m.f.counter(Counter::Turns) - before, 12);
    // More than there are senders.
    c.recv(0..12);
    let rest: Vec<_> = (12..20).collect();
    assert_eq!((served(&mut c), c.left()), (rest, 4));
}

/// A sender that does not wait takes the receive of one that is woken.
fn a_place_is_kept() {
    let mut c = waiting(3);
    for _ in 0..3 {
        // It is queued before the receive comes.
        c.add(7);
        let thief = c.senders.len() - 1;
        c.post(thief, 8);
        c.recv([0]);
        assert_eq!(served(&mut c), [thief as u64]);
    }
    for id in 0..3 {
        c.recv([id]);
        assert_eq!(served(&mut c), [id]);
    }
}

/// Its queue pair is drained, its peer is in ERROR, or it takes part in no message any more.
fn a_sender_that_needs_none_lets_the_next_go() {
    for change in 0..4 {
        let mut c = waiting(3);
        let (sender, receiver) = (c.senders[0].number, c.receivers[0].number);
        post(&mut c, 0..1);
        // The sender is woken, and has had no turn.
        match change {
            0 => c.m.set_state_now(sender, qp_state::SQD),
            1 => c.m.set_state_now(sender, qp_state::ERROR),
            2 => c.m.set_state_now(receiver, qp_state::ERROR),
            _ => {
                let rules = format!("delay=1s,qp={}", sender.index());
                c.m.f.set_faults(&rules).unwrap();
            }
        }
        c.m.settle();
        let sent = c.sent();
        let served: Vec<_> = sent.iter().filter(|cqe| cqe.status == 0).collect();
        assert_eq!(served.len(), 1, "{change}: {sent:?}");
        assert_eq!((served[0].wr_id, c.left()), (1, 0), "{change}");
        c.recv([1]);
        assert_eq!(c.sent().last().unwrap().wr_id, 2, "{change}");
    }
}

fn a_sender_that_goes_lets_the_next_go() {
    for change in 0..4 {
        let mut c = waiting(3);
        let (sender, receiver) = (c.senders[0].number, c.receivers[0].number);
        post(&mut c, 0..1);
        match change {
            0 => c.m.set_state_now(sender, qp_state::RESET),
            1 => c.m.destroy_now(kind::QP, sender),
            2 => c.m.destroy_now(kind::QP, receiver),
            _ => c.m.set_state_now(receiver, qp_state::RESET),
        }
        c.m.settle();
        let mut sent = c.sent();
        // The first one fails if its peer is gone.
        sent.retain(|cqe| cqe.status != Status::RetryExceeded.code());
        let ids: Vec<_> = sent.iter().map(|cqe| cqe.wr_id).collect();
        assert_eq!((ids, c.left()), (vec![1], 0), "{change}");
        // It comes back, and waits behind the last.
        if change == 0 {
            c.senders[0].sq_tail = 0;
            c.m.connect(sender, receiver);
            c.send(0, 8);
            c.recv([1]);
            assert_eq!(self::served(&mut c), [2]);
            c.recv([2]);
            assert_eq!(self::served(&mut c), [0]);
        }
    }
}

/// Its sender does not wait, so a doorbell need not remove its queue pair.
fn a_datagram_joins_no_line() {
    const COUNT: usize = 20;
    let mut c = waiting(2);
    let qps = c.datagrams(COUNT);
    let mut from = qps[0];
    for to in &qps {
        c.send_datagram(&mut from, to.number, 8);
    }
    assert_eq!(c.m.f.counter(Counter::Dropped), COUNT as u64);
    assert_eq!(c.m.f.waiting(), 2, "those of RC");
    c.recv(0..2);
    assert_eq!((served(&mut c), c.m.f.waiting()), (vec![0, 1], 0));
}
