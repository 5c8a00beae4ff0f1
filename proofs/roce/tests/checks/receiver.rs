// SPDX-License-Identifier: GPL-2.0
//! The responder against packets that the check makes: what is answered, how often, and what is
//! kept.

use super::checks;
use qpair_roce::extended::AtomicEth;
use qpair_roce::extended::Nak;
use qpair_roce::extended::Reth;
use qpair_roce::extended::Syndrome;
use qpair_roce::extended::With;
use qpair_roce::operation::Operation;
use qpair_roce::psn::Psn;
use qpair_roce::receiver::Receiver;
use qpair_roce::receiver::Refusal;
use qpair_roce::receiver::Step;
use qpair_roce::segment::Mtu;

checks![
    acknowledgements_are_one,
    messages_are_counted,
    a_gap_is_told_once,
    a_receiver_that_is_not_ready_tells_no_gap,
    what_comes_again_is_acknowledged_and_not_executed,
    an_atomic_is_answered_again_and_not_executed,
    a_read_is_answered_from_the_middle,
    a_read_of_another_range_is_not_answered,
    a_flush_is_answered_without_data,
    answers_leave_in_order,
    old_replies_are_not_kept,
    a_reply_hides_no_newer_one,
    a_peer_that_may_not_read_is_refused,
    what_breaks_the_rules_ends_it,
    a_range_that_goes_away_ends_a_read,
    a_range_that_goes_away_later_ends_nothing,
    a_packet_that_is_dropped_has_not_come,
];

type Responder = Receiver<2, 6>;

const SEND: Operation = Operation::SendOnly(With::Nothing);
const ADD: Operation = Operation::FetchAdd(AtomicEth {
    addr: 0,
    key: 0,
    swap_add: 1,
    compare: 0,
});

fn responder() -> Responder {
    Receiver::new(Mtu::from_code(1).unwrap(), 2, Psn::new(0))
}

fn read(addr: u64, bytes: u32) -> Operation {
    let key = 7;
    Operation::Read(Reth { addr, key, bytes })
}

/// Executes a packet: whether it was to be executed.
fn execute<const R: usize, const W: usize>(
    receiver: &mut Receiver<R, W>,
    psn: u32,
    operation: Operation,
    old: u64,
) -> bool {
    match receiver.receive(Psn::new(psn), true, &operation, 0) {
        Step::Execute(packet) => {
            packet.executed(old);
            true
        }
        _ => false,
    }
}

fn refuse(receiver: &mut Responder, psn: u32, operation: Operation, refusal: Refusal) {
    match receiver.receive(Psn::new(psn), true, &operation, 0) {
        Step::Execute(packet) => packet.refuse(refusal),
        step => panic!("{step:?}"),
    }
}

/// The acknowledgements that wait: PSN, syndrome, MSN.
fn acknowledgements(receiver: &mut Responder) -> Vec<(u32, Syndrome, u32)> {
    let answers = std::iter::from_fn(|| receiver.answer());
    let acknowledged = answers.map(|answer| match answer.operation {
        Operation::Acknowledge(aeth) => (answer.psn.get(), aeth.syndrome, aeth.msn),
        operation => panic!("{operation:?}"),
    });
    acknowledged.collect()
}

/// The answers to READs: the PSN, the code, and the range.
fn replies<const R: usize, const W: usize>(
    receiver: &mut Receiver<R, W>,
) -> Vec<(u32, u8, u64, u32)> {
    let answers = std::iter::from_fn(|| receiver.answer());
    let read = answers.map(|answer| {
        let range = answer.payload.unwrap_or_default();
        (
            answer.psn.get(),
            answer.operation.code(),
            range.addr,
            range.bytes,
        )
    });
    read.collect()
}

fn acknowledgements_are_one() {
    let mut receiver = responder();
    for psn in 0..5 {
        assert!(execute(&mut receiver, psn, SEND, 0));
    }
    assert_eq!(acknowledgements(&mut receiver), [(4, Syndrome::Ack, 5)]);
    let silent = receiver.receive(Psn::new(5), false, &SEND, 0);
    let Step::Execute(packet) = silent else {
        panic!("{silent:?}");
    };
    packet.executed(0);
    assert!(!receiver.has_answers(), "only if it is asked for");
}

fn messages_are_counted() {
    let mut receiver = responder();
    let message = [
        (Operation::SendFirst, 256),
        (Operation::SendMiddle, 256),
        (Operation::SendLast(With::Nothing), 1),
    ];
    for (psn, (operation, bytes)) in message.into_iter().enumerate() {
        match receiver.receive(Psn::new(psn as u32), true, &operation, bytes) {
            Step::Execute(packet) => packet.executed(0),
            step => panic!("{step:?}"),
        }
        let msn = u32::from(psn == 2);
        let expected = [(psn as u32, Syndrome::Ack, msn)];
        assert_eq!(acknowledgements(&mut receiver), expected);
    }
}

fn a_gap_is_told_once() {
    let mut receiver = responder();
    assert!(execute(&mut receiver, 0, SEND, 0));
    for psn in [2, 3, 5, 2] {
        assert!(!execute(&mut receiver, psn, SEND, 0));
    }
    let nak = (1, Syndrome::Sequence, 1);
    assert_eq!(
        acknowledgements(&mut receiver),
        [(0, Syndrome::Ack, 1), nak]
    );
    assert!(execute(&mut receiver, 1, SEND, 0));
    assert!(!execute(&mut receiver, 3, SEND, 0));
    let nak = (2, Syndrome::Sequence, 2);
    assert_eq!(
        acknowledgements(&mut receiver),
        [(1, Syndrome::Ack, 2), nak]
    );
}

fn a_receiver_that_is_not_ready_tells_no_gap() {
    let mut receiver = responder();
    let not_ready = Refusal::NotReady(12);
    refuse(&mut receiver, 0, SEND, not_ready);
    assert!(!execute(&mut receiver, 1, SEND, 0));
    refuse(&mut receiver, 0, SEND, not_ready);
    let nak = (0, Syndrome::NotReady(12), 0);
    assert_eq!(acknowledgements(&mut receiver), [nak]);
    refuse(&mut receiver, 0, SEND, not_ready);
    assert_eq!(
        acknowledgements(&mut receiver),
        [nak],
        "each time that it is tried"
    );
    assert!(execute(&mut receiver, 0, SEND, 0));
}

fn what_comes_again_is_acknowledged_and_not_executed() {
    let mut receiver = responder();
    for psn in 0..3 {
        assert!(execute(&mut receiver, psn, SEND, 0));
    }
    acknowledgements(&mut receiver);
    for psn in [0, 2, 0x80_0003] {
        assert!(!execute(&mut receiver, psn, SEND, 0));
        assert_eq!(acknowledgements(&mut receiver), [(2, Syndrome::Ack, 3)]);
    }
}

fn an_atomic_is_answered_again_and_not_executed() {
    let mut receiver = responder();
    assert!(execute(&mut receiver, 0, ADD, 41));
    assert!(execute(&mut receiver, 1, ADD, 42));
    let old = |receiver: &mut Responder| match receiver.answer() {
        Some(answer) => match answer.operation {
            Operation::AtomicReply(_, old) => (answer.psn.get(), old),
            operation => panic!("{operation:?}"),
        },
        None => panic!("no answer"),
    };
    assert_eq!((old(&mut receiver), old(&mut receiver)), ((0, 41), (1, 42)));
    assert!(!execute(&mut receiver, 0, ADD, 99));
    assert_eq!(old(&mut receiver), (0, 41));
    assert!(!execute(&mut receiver, 0, read(0, 1), 0), "it was no READ");
    assert!(!receiver.has_answers());
}

fn a_read_is_answered_from_the_middle() {
    let mut receiver = responder();
    assert!(execute(&mut receiver, 0, read(1000, 600), 0));
    assert_eq!(receiver.expected(), Psn::new(3));
    let whole = [(0, 13, 1000, 256), (1, 14, 1256, 256), (2, 15, 1512, 88)];
    assert_eq!(replies(&mut receiver), whole);
    // As soft-RoCE does, and expects.
    assert!(!execute(&mut receiver, 1, read(1256, 344), 0));
    assert_eq!(replies(&mut receiver), whole[1..]);
    assert!(execute(&mut receiver, 3, read(0, 0), 0));
    assert_eq!(replies(&mut receiver), [(3, 16, 0, 0)]);
}

fn a_read_of_another_range_is_not_answered() {
    let mut receiver = responder();
    assert!(execute(&mut receiver, 0, read(1000, 600), 0));
    replies(&mut receiver);
    let other = Operation::Read(Reth {
        addr: 1000,
        key: 8,
        bytes: 600,
    });
    for (psn, operation) in [
        (0, read(1001, 600)),
        (0, read(1000, 601)),
        (1, read(1000, 600)),
        (1, read(1256, 345)),
        (0, other),
        (0, ADD),
    ] {
        assert!(!execute(&mut receiver, psn, operation, 0));
        assert!(!receiver.has_answers(), "{psn} {operation:?}");
    }
}

fn a_flush_is_answered_without_data() {
    let flush = Operation::Flush(Default::default(), Default::default());
    let write = Operation::AtomicWrite(Default::default());
    let mut receiver = responder();
    assert!(execute(&mut receiver, 0, flush, 0));
    assert!(execute(&mut receiver, 1, write, 0));
    assert_eq!(replies(&mut receiver), [(0, 16, 0, 0), (1, 16, 0, 0)]);
    assert!(!execute(&mut receiver, 0, flush, 0));
    assert_eq!(replies(&mut receiver), [(0, 16, 0, 0)]);
}

fn answers_leave_in_order() {
    let mut receiver = responder();
    assert!(execute(&mut receiver, 0, SEND, 0));
    assert!(execute(&mut receiver, 1, read(0, 300), 0));
    assert!(execute(&mut receiver, 3, SEND, 0));
    assert!(execute(&mut receiver, 4, ADD, 0));
    let order = replies(&mut receiver);
    let order: Vec<_> = order.iter().map(|answer| (answer.0, answer.1)).collect();
    assert_eq!(order, [(0, 17), (1, 13), (2, 15), (3, 17), (4, 18)]);
    // One that is asked for again while it waits is answered once.
    assert!(execute(&mut receiver, 5, read(0, 300), 0));
    assert!(receiver.answer().is_some());
    assert!(!execute(&mut receiver, 5, read(0, 300), 0));
    assert_eq!(replies(&mut receiver).len(), 2);
}

fn old_replies_are_not_kept() {
    let mut receiver = responder();
    for psn in 0..3 {
        assert!(execute(&mut receiver, psn, ADD, 0));
    }
    assert_eq!(replies(&mut receiver).len(), 2, "more than it may await");
    assert!(!execute(&mut receiver, 0, ADD, 0));
    assert!(!receiver.has_answers());
    for psn in [1, 2] {
        assert!(!execute(&mut receiver, psn, ADD, 0));
        assert_eq!(replies(&mut receiver).len(), 1);
    }
}

fn a_reply_hides_no_newer_one() {
    let mtu = Mtu::from_code(1).unwrap();
    let mut receiver: Receiver<4, 10> = Receiver::new(mtu, 4, Psn::new(0));
    assert!(execute(&mut receiver, 0, read(0, 1), 0));
    // READs of all other numbers, of which the last packets alone are asked for.
    let half = 1 << 23;
    for (psn, packets) in [(1, half), (1 + half, half - 1)] {
        assert!(execute(&mut receiver, psn, read(0, packets * 256), 0));
        let last = packets - 1;
        let rest = read(u64::from(last) * 256, 256);
        assert!(!execute(&mut receiver, psn + last, rest, 0));
    }
    // The first number again.
    assert!(execute(&mut receiver, 0, ADD, 41));
    assert!(!execute(&mut receiver, 0, ADD, 99));
    let order = replies(&mut receiver);
    let order: Vec<_> = order.iter().map(|answer| (answer.0, answer.1)).collect();
    assert_eq!(order, [(0, 16), (half, 15), (0xff_ffff, 15), (0, 18)]);
    assert!(!execute(&mut receiver, 0, ADD, 99));
    let again = receiver.answer().map(|answer| answer.operation);
    let is_old = matches!(again, Some(Operation::AtomicReply(_, 41)));
    assert!(is_old, "{again:?}");
}

fn a_peer_that_may_not_read_is_refused() {
    let mtu = Mtu::from_code(1).unwrap();
    for operation in [read(0, 1), ADD] {
        let mut receiver: Responder = Receiver::new(mtu, 0, Psn::new(0));
        let step = receiver.receive(Psn::new(0), true, &operation, 0);
        assert!(matches!(step, Step::Invalid), "{step:?}");
    }
}

fn what_breaks_the_rules_ends_it() {
    let too_long = read(0, (1 << 31) + 1);
    for (operation, bytes) in [
        (Operation::SendMiddle, 256),
        (Operation::SendLast(With::Nothing), 1),
        (Operation::SendFirst, 255),
        (Operation::ReadReplyMiddle, 256),
        (too_long, 0),
    ] {
        let mut receiver = responder();
        assert!(execute(&mut receiver, 0, SEND, 0));
        let step = receiver.receive(Psn::new(1), false, &operation, bytes);
        assert!(matches!(step, Step::Invalid), "{operation:?}");
        let nak = Syndrome::Nak(Nak::InvalidRequest);
        assert!(receiver.has_failed());
        assert_eq!(
            acknowledgements(&mut receiver),
            [(0, Syndrome::Ack, 1), (1, nak, 1)]
        );
        assert!(!execute(&mut receiver, 1, SEND, 0));
        assert!(!execute(&mut receiver, 0, SEND, 0));
        assert!(!receiver.has_answers());
    }
    // In the midst of a message.
    let mut receiver = responder();
    let step = receiver.receive(Psn::new(0), false, &Operation::SendFirst, 256);
    let Step::Execute(packet) = step else {
        panic!("{step:?}");
    };
    packet.executed(0);
    let step = receiver.receive(Psn::new(1), false, &ADD, 0);
    assert!(matches!(step, Step::Invalid), "{step:?}");
}

fn a_range_that_goes_away_ends_a_read() {
    let mut receiver = responder();
    assert!(execute(&mut receiver, 0, read(0, 600), 0));
    assert!(execute(&mut receiver, 3, SEND, 0));
    assert!(receiver.answer().is_some());
    let second = receiver.answer().expect("an answer");
    receiver.read_failed(&second);
    let nak = Syndrome::Nak(Nak::RemoteAccess);
    assert_eq!(acknowledgements(&mut receiver), [(1, nak, 2)]);
    assert!(!execute(&mut receiver, 4, SEND, 0));
}

fn a_range_that_goes_away_later_ends_nothing() {
    let mut receiver = responder();
    assert!(execute(&mut receiver, 0, read(0, 600), 0));
    assert_eq!(replies(&mut receiver).len(), 3);
    assert!(!execute(&mut receiver, 0, read(0, 600), 0));
    let first = receiver.answer().expect("an answer");
    receiver.read_failed(&first);
    let nak = Syndrome::Nak(Nak::RemoteAccess);
    assert_eq!(acknowledgements(&mut receiver), [(0, nak, 1)]);
    assert!(!receiver.has_failed());
    assert!(execute(&mut receiver, 3, SEND, 0));
}

fn a_packet_that_is_dropped_has_not_come() {
    let mut receiver = responder();
    let before = format!("{receiver:?}");
    drop(receiver.receive(Psn::new(0), true, &SEND, 0));
    assert_eq!(format!("{receiver:?}"), before);
    assert!(execute(&mut receiver, 0, SEND, 0));
}
