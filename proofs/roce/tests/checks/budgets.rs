// SPDX-License-Identifier: GPL-2.0
//! How often a requester tries, and when: budgets and deadlines.

use super::checks;
use super::peer::Peer;
use super::peer::LIMITS;
use super::peer::RNR;
use qpair_roce::extended::Syndrome;
use qpair_roce::request::Failure;
use qpair_roce::request::Kind;
use qpair_roce::request::Outcome;
use qpair_roce::tries::Limits;

checks![
    a_silent_peer_is_tried_as_often_as_permitted,
    intervals_grow_to_four_times_the_attribute,
    progress_moves_the_deadline,
    limits_change_in_flight,
    without_a_timeout_there_is_no_deadline,
    a_receiver_is_waited_for_as_often_as_permitted,
    nothing_is_sent_to_a_receiver_that_is_not_ready,
    the_two_budgets_are_apart,
];

fn a_silent_peer_is_tried_as_often_as_permitted() {
    for retry in 0..8 {
        let mut peer = Peer::new(Limits { retry, ..LIMITS });
        peer.begin(Kind::Message, 1);
        for _ in 0..=retry {
            assert_eq!(peer.send(), [0]);
            assert_eq!(peer.completes(), None);
            peer.deadline();
        }
        assert_eq!(peer.send(), [0; 0]);
        peer.fails(Failure::Retries);
    }
}

fn intervals_grow_to_four_times_the_attribute() {
    let mut peer = Peer::new(Limits { retry: 7, ..LIMITS });
    peer.begin(Kind::Message, 1);
    for times in [1, 2, 3, 4, 4, 4] {
        let (before, _) = (peer.now, peer.send());
        peer.sender.expire(before + times * 100 - 1);
        assert_eq!(peer.send(), [0; 0], "a deadline that has not come");
        peer.deadline();
        assert_eq!(peer.now, before + times * 100);
    }
}

fn progress_moves_the_deadline() {
    let mut peer = Peer::new(LIMITS);
    peer.begin(Kind::Message, 600);
    assert_eq!(peer.send(), [0, 1, 2]);
    peer.now = 60;
    peer.acknowledge(0, Syndrome::Ack);
    assert_eq!(peer.sender.deadline(), Some(160));
    peer.now = 90;
    peer.acknowledge(2, Syndrome::Ack);
    assert_eq!(peer.sender.deadline(), None);
    assert_eq!(peer.completes(), Some((0, Outcome::Done)));
    peer.now = 500;
    peer.begin(Kind::Message, 1);
    assert_eq!(peer.send(), [3]);
    assert_eq!(peer.sender.deadline(), Some(600));
}

fn limits_change_in_flight() {
    let mut peer = Peer::new(LIMITS);
    peer.begin(Kind::Message, 1000);
    assert_eq!(peer.send(), [0, 1, 2, 3]);
    peer.now = 30;
    let shorter = Limits {
        timeout: Some(5),
        retry: 0,
        window: 2,
        ..LIMITS
    };
    peer.sender.set_limits(peer.now, shorter);
    assert_eq!(peer.sender.deadline(), Some(35));
    assert_eq!(peer.sender.room(), 2);
    peer.deadline();
    peer.fails(Failure::Retries);
    // What waits for nothing, or for a receiver, goes on so.
    let mut peer = Peer::new(LIMITS);
    peer.sender.set_limits(0, shorter);
    assert_eq!(peer.sender.deadline(), None);
    peer.begin(Kind::Message, 1);
    assert_eq!(peer.send(), [0]);
    peer.acknowledge(0, Syndrome::NotReady(1));
    peer.sender.set_limits(7, LIMITS);
    assert_eq!(peer.sender.deadline(), Some(RNR));
}

fn without_a_timeout_there_is_no_deadline() {
    let mut peer = Peer::new(Limits {
        timeout: None,
        ..LIMITS
    });
    peer.begin(Kind::Message, 1);
    assert_eq!(peer.send(), [0]);
    assert_eq!(peer.sender.deadline(), None);
    peer.sender.expire(u64::MAX);
    assert_eq!(peer.send(), [0; 0]);
    peer.acknowledge(0, Syndrome::NotReady(1));
    assert_eq!(
        peer.sender.deadline(),
        Some(RNR),
        "of the receiver there is"
    );
}

fn a_receiver_is_waited_for_as_often_as_permitted() {
    for most in 0..7 {
        let mut peer = Peer::new(Limits {
            rnr_retry: Some(most),
            ..LIMITS
        });
        peer.begin(Kind::Message, 1);
        for _ in 0..most {
            assert_eq!(peer.send(), [0]);
            peer.acknowledge(0, Syndrome::NotReady(1));
            assert_eq!(peer.send(), [0; 0]);
            let before = peer.now;
            peer.deadline();
            assert_eq!(peer.now, before + RNR);
        }
        assert_eq!(peer.send(), [0]);
        peer.acknowledge(0, Syndrome::NotReady(1));
        peer.fails(Failure::RnrRetries);
    }
    let mut peer = Peer::new(Limits {
        rnr_retry: None,
        ..LIMITS
    });
    peer.begin(Kind::Message, 1);
    for _ in 0..1000 {
        assert_eq!(peer.send(), [0]);
        peer.acknowledge(0, Syndrome::NotReady(1));
        peer.deadline();
    }
}

fn nothing_is_sent_to_a_receiver_that_is_not_ready() {
    let mut peer = Peer::new(LIMITS);
    peer.begin(Kind::Message, 1);
    assert_eq!(peer.send(), [0]);
    peer.acknowledge(0, Syndrome::NotReady(1));
    peer.begin(Kind::Message, 1);
    assert_eq!(peer.send(), [0; 0]);
    peer.deadline();
    assert_eq!(peer.send(), [0, 1]);
}

fn the_two_budgets_are_apart() {
    let mut peer = Peer::new(LIMITS);
    peer.begin(Kind::Message, 1);
    // The receiver's answer shows that the peer is there.
    for _ in 0..2 {
        for _ in 0..3 {
            assert_eq!(peer.send(), [0]);
            peer.deadline();
        }
        assert_eq!(peer.send(), [0]);
        peer.acknowledge(0, Syndrome::NotReady(1));
        // A second one of the same is none.
        peer.acknowledge(0, Syndrome::NotReady(1));
        peer.deadline();
    }
    assert_eq!(peer.send(), [0]);
    peer.acknowledge(0, Syndrome::Ack);
    assert_eq!(peer.completes(), Some((0, Outcome::Done)));
    // Progress gives both back.
    peer.begin(Kind::Message, 1);
    for _ in 0..2 {
        assert_eq!(peer.send(), [1]);
        peer.acknowledge(1, Syndrome::NotReady(1));
        peer.deadline();
    }
    assert_eq!(peer.send(), [1]);
    assert_eq!(peer.completes(), None);
}
