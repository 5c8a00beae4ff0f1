// SPDX-License-Identifier: GPL-2.0
//! The requester: gaps, answers that are not awaited, READs, rooms, failures.

use super::checks;
use super::peer::Peer;
use super::peer::LIMITS;
use qpair_roce::extended::Aeth;
use qpair_roce::extended::Nak;
use qpair_roce::extended::Syndrome;
use qpair_roce::operation::Operation;
use qpair_roce::psn::Psn;
use qpair_roce::request::Failure;
use qpair_roce::request::Kind;
use qpair_roce::request::Outcome;
use qpair_roce::request::Request;
use qpair_roce::segment::MESSAGE_BYTES;
use qpair_roce::sender::Next;
use qpair_roce::tries::Limits;

checks![
    a_gap_is_repeated_once,
    an_answer_past_a_lost_one_repeats_at_once,
    answers_that_are_not_awaited_change_nothing,
    answers_of_a_wrong_length_or_kind_are_none,
    a_read_is_repeated_from_the_middle,
    a_read_that_starts_anew_is_taken_by_its_psns,
    a_nak_in_a_read_fails_it,
    a_wrong_memory_fails_its_request_in_turn,
    the_room_shrinks_and_grows,
    some_packets_ask_for_an_acknowledgement,
    what_is_too_long_is_not_begun,
    after_a_failure_nothing_completes,
];

fn a_gap_is_repeated_once() {
    let mut peer = Peer::new(LIMITS);
    peer.begin(Kind::Message, 1000);
    assert!(!peer.sender.has_sent_all());
    assert_eq!(peer.send(), [0, 1, 2, 3]);
    assert!(peer.sender.has_sent_all());
    peer.acknowledge(1, Syndrome::Sequence);
    assert!(!peer.sender.has_sent_all(), "to be repeated");
    assert_eq!(peer.send(), [1, 2, 3]);
    assert!(peer.sender.has_sent_all());
    for _ in 0..20 {
        peer.acknowledge(1, Syndrome::Sequence);
    }
    assert_eq!(peer.send(), [0; 0]);
    peer.acknowledge(2, Syndrome::Sequence);
    assert_eq!(peer.send(), [2, 3], "there was progress");
}

/// The answer of the READ before it was lost.
fn an_answer_past_a_lost_one_repeats_at_once() {
    for syndrome in [
        Syndrome::Ack,
        Syndrome::NotReady(1),
        Syndrome::Nak(Nak::RemoteAccess),
    ] {
        let mut peer = Peer::new(LIMITS);
        peer.begin(Kind::Read, 300);
        peer.begin(Kind::Message, 1);
        assert_eq!(peer.send(), [0, 2]);
        peer.acknowledge(2, syndrome);
        assert_eq!(peer.completes(), None, "{syndrome:?}");
        assert_eq!(peer.send(), [0, 2], "{syndrome:?}");
    }
}

fn answers_that_are_not_awaited_change_nothing() {
    let mut peer = Peer::new(LIMITS);
    peer.begin(Kind::Message, 1000);
    peer.begin(Kind::Message, 1);
    assert_eq!(peer.send(), [0, 1, 2, 3, 4]);
    peer.acknowledge(1, Syndrome::Ack);
    let before = format!("{:?}", peer.sender);
    let nak = Syndrome::Nak(Nak::RemoteAccess);
    for syndrome in [
        Syndrome::Ack,
        Syndrome::Sequence,
        Syndrome::NotReady(1),
        nak,
    ] {
        for psn in [0, 1, 5, 6, 1 << 22, Psn::MASK, 0x80_0000] {
            peer.acknowledge(psn, syndrome);
            assert_eq!(
                format!("{:?}", peer.sender),
                before,
                "{syndrome:?} {psn:#x}"
            );
        }
    }
}

fn reply(bytes: usize) -> (Operation, usize) {
    (Operation::ReadReplyMiddle, bytes)
}

fn answers_of_a_wrong_length_or_kind_are_none() {
    let aeth = Aeth {
        syndrome: Syndrome::Ack,
        msn: 0,
    };
    let mut peer = Peer::new(LIMITS);
    peer.begin(Kind::Read, 300);
    peer.begin(Kind::Atomic, 0);
    assert_eq!(peer.send(), [0, 2]);
    let before = format!("{:?}", peer.sender);
    for (operation, bytes) in [
        reply(255),
        reply(257),
        reply(0),
        (Operation::AtomicReply(aeth, 1), 0),
        (Operation::SendMiddle, 256),
    ] {
        assert_eq!(peer.answer(0, operation, bytes), None);
        assert_eq!(
            format!("{:?}", peer.sender),
            before,
            "{operation:?} {bytes}"
        );
    }
    let (operation, bytes) = reply(256);
    assert_eq!(peer.answer(0, operation, bytes), Some(0));
    assert_eq!(peer.answer(0, operation, bytes), None, "taken once");
    let (operation, bytes) = reply(44);
    assert_eq!(peer.answer(1, operation, bytes), Some(256));
    assert_eq!(peer.completes(), Some((0, Outcome::Done)));
    let (operation, _) = reply(0);
    assert_eq!(
        peer.answer(2, operation, 0),
        None,
        "an atomic has its own answer"
    );
    assert_eq!(peer.answer(2, Operation::AtomicReply(aeth, 1), 0), Some(0));
    assert_eq!(peer.completes(), Some((1, Outcome::Done)));
}

/// The READ that is sent next: its PSN, and the piece.
fn read_again(peer: &mut Peer) -> (u32, u32, u32) {
    match peer.sender.next(peer.now) {
        Some(Next::Packet { psn, piece, .. }) => (psn.get(), piece.offset, piece.bytes),
        other => panic!("{other:?}"),
    }
}

fn a_read_is_repeated_from_the_middle() {
    let mut peer = Peer::new(LIMITS);
    peer.begin(Kind::Read, 1000);
    assert_eq!(read_again(&mut peer), (0, 0, 1000));
    let (operation, bytes) = reply(256);
    assert_eq!(peer.answer(0, operation, bytes), Some(0));
    assert_eq!(peer.answer(2, operation, bytes), None, "one is missing");
    assert_eq!(read_again(&mut peer), (1, 256, 744));
    assert_eq!(peer.answer(1, operation, bytes), Some(256));
    peer.deadline();
    assert_eq!(read_again(&mut peer), (2, 512, 488));
}

fn a_read_that_starts_anew_is_taken_by_its_psns() {
    let aeth = Aeth {
        syndrome: Syndrome::Ack,
        msn: 1,
    };
    let mut peer = Peer::new(LIMITS);
    peer.begin(Kind::Read, 700);
    assert_eq!(peer.send(), [0]);
    let (operation, bytes) = reply(256);
    assert_eq!(peer.answer(0, operation, bytes), Some(0));
    peer.deadline();
    assert_eq!(peer.send(), [1]);
    // Hardware begins the rest with FIRST.
    let first = Operation::ReadReplyFirst(aeth);
    assert_eq!(peer.answer(1, first, 256), Some(256));
    assert_eq!(
        peer.answer(2, Operation::ReadReplyLast(aeth), 188),
        Some(512)
    );
    assert_eq!(peer.completes(), Some((0, Outcome::Done)));
}

fn a_nak_in_a_read_fails_it() {
    let mut peer = Peer::new(LIMITS);
    peer.begin(Kind::Read, 700);
    assert_eq!(peer.send(), [0]);
    let (operation, bytes) = reply(256);
    assert_eq!(peer.answer(0, operation, bytes), Some(0));
    peer.acknowledge(1, Syndrome::Nak(Nak::RemoteAccess));
    peer.fails(Failure::Remote(Nak::RemoteAccess));
}

fn a_wrong_memory_fails_its_request_in_turn() {
    let mut peer = Peer::new(LIMITS);
    peer.begin(Kind::Message, 1);
    peer.begin(Kind::Message, 1);
    peer.begin(Kind::Message, 1);
    assert!(peer.sender.next(0).is_some());
    peer.sender.refuse(1);
    assert_eq!(peer.send(), [0; 0], "nothing is sent past it");
    assert_eq!(peer.completes(), None);
    peer.acknowledge(0, Syndrome::Ack);
    let ends: Vec<_> = std::iter::from_fn(|| peer.completes()).collect();
    let failed = Outcome::Failed(Failure::Local);
    assert_eq!(ends, [(0, Outcome::Done), (1, failed)]);
}

fn the_room_shrinks_and_grows() {
    let mut peer = Peer::new(Limits {
        window: 34,
        ..LIMITS
    });
    peer.begin(Kind::Message, 256 * 300);
    assert_eq!(peer.send().len(), 32, "at the beginning");
    peer.acknowledge(3, Syndrome::Ack);
    assert_eq!(peer.send().last(), Some(&37), "34 from 4 on");
    peer.acknowledge(5, Syndrome::Ack);
    assert_eq!(peer.send().last(), Some(&39), "never more than the limit");
    peer.acknowledge(6, Syndrome::Sequence);
    assert_eq!(peer.send(), (6..23).collect::<Vec<_>>(), "half of it");
    peer.deadline();
    assert_eq!(peer.send(), [6], "one");
    peer.acknowledge(6, Syndrome::Ack);
    assert_eq!(peer.send(), [7, 8, 9]);
}

fn some_packets_ask_for_an_acknowledgement() {
    let asked = |limits, bytes| {
        let mut peer = Peer::new(limits);
        peer.begin(Kind::Message, bytes);
        let mut asked = Vec::new();
        while let Some(Next::Packet { psn, ack, .. }) = peer.sender.next(0) {
            asked.extend(ack.then_some(psn.get()));
        }
        asked
    };
    let few = Limits {
        window: 5,
        ..LIMITS
    };
    assert_eq!(asked(LIMITS, 1), [0], "the last");
    assert_eq!(asked(LIMITS, 256 * 20), [15, 19], "each 16th");
    assert_eq!(asked(few, 256 * 20), [4], "the one that fills the room");
}

fn what_is_too_long_is_not_begun() {
    let request = |kind, bytes| Request {
        id: 0,
        kind,
        bytes,
        fence: false,
    };
    let mut peer = Peer::new(LIMITS);
    for kind in [Kind::Message, Kind::Read] {
        assert!(!peer.sender.begin(request(kind, MESSAGE_BYTES + 1)));
        assert!(
            !peer.sender.begin(request(kind, MESSAGE_BYTES)),
            "2^23 packets"
        );
        assert!(peer.sender.begin(request(kind, MESSAGE_BYTES - 256)));
    }
    // With the packet before it a READ would have more numbers than have a direction.
    let mut peer = Peer::new(LIMITS);
    peer.begin(Kind::Message, 1);
    peer.begin(Kind::Read, MESSAGE_BYTES - 256);
    assert_eq!(peer.send(), [0]);
    peer.acknowledge(0, Syndrome::Ack);
    assert_eq!(peer.send(), [1]);
    let (mut peer, request) = (Peer::new(LIMITS), request(Kind::Message, 1));
    for _ in 0..8 {
        assert!(peer.sender.begin(request));
    }
    assert!(!peer.sender.begin(request), "eight are in flight");
}

fn after_a_failure_nothing_completes() {
    let mut peer = Peer::new(LIMITS);
    peer.begin(Kind::Message, 1);
    peer.begin(Kind::Read, 1);
    peer.begin(Kind::Message, 1);
    assert_eq!(peer.send(), [0, 1, 2]);
    peer.acknowledge(0, Syndrome::Nak(Nak::RemoteOperation));
    peer.acknowledge(0, Syndrome::Ack);
    peer.fails(Failure::Remote(Nak::RemoteOperation));
    assert_eq!(peer.send(), [0; 0]);
    let again = Request {
        id: 3,
        kind: Kind::Message,
        bytes: 1,
        fence: false,
    };
    assert!(!peer.sender.begin(again));
    assert_eq!(peer.completes(), None);
}
