// SPDX-License-Identifier: GPL-2.0
//! Numbers that wrap, compared with 64-bit ones; messages in pieces, and back.

use super::checks;
use super::prop::holds;
use proptest::prelude::any;
use proptest::prop_oneof;
use proptest::strategy::Strategy;
use qpair_roce::psn::Psn;
use qpair_roce::segment::Form;
use qpair_roce::segment::Mtu;
use qpair_roce::segment::Partial;
use qpair_roce::segment::Piece;
use qpair_roce::segment::Position;
use qpair_roce::segment::MESSAGE_BYTES;

checks![
    psns_are_as_unwrapped_numbers,
    path_mtus_are_those_of_verbs,
    pieces_are_a_message,
    pieces_come_back_as_the_message,
    what_is_no_piece_of_a_message_is_none,
];

fn psns_are_as_unwrapped_numbers() {
    let far = prop_oneof![0..3u32, Psn::SPAN - 3..=Psn::SPAN, 0..Psn::SPAN];
    let near_wrap = prop_oneof![any::<u32>(), Psn::MASK - 3..=Psn::MASK + 3];
    holds(2000, (near_wrap, far), |(at, count)| {
        let base = Psn::new(at);
        let later = base.plus(count);
        assert_eq!(
            u64::from(later.get()),
            (u64::from(at) + u64::from(count)) % (1 << 24)
        );
        assert_eq!(later.since(base), count as i32);
        assert_eq!(base.since(later), -(count as i32));
        assert_eq!(base.is_before(later), count != 0);
        assert!(!later.is_before(base));
        assert_eq!(base.plus(1).previous(), base);
    });
}

fn path_mtus_are_those_of_verbs() {
    for (code, bytes) in [(1, 256), (2, 512), (3, 1024), (4, 2048), (5, 4096)] {
        let mtu = Mtu::from_code(code).unwrap();
        assert_eq!(mtu.bytes(), bytes);
    }
    assert_eq!((Mtu::from_code(0), Mtu::from_code(6)), (None, None));
}

/// An MTU, and a length near a boundary.
fn message() -> impl Strategy<Value = (Mtu, u32)> {
    let bytes = prop_oneof![
        0..20_000u32,
        (0..40u32, -1..=1i32).prop_map(|(n, by)| (n * 256).saturating_add_signed(by)),
        MESSAGE_BYTES - 2..=MESSAGE_BYTES,
    ];
    (1..6u8, bytes).prop_map(|(code, bytes)| (Mtu::from_code(code).unwrap(), bytes))
}

fn pieces_are_a_message() {
    holds(1000, message(), |(mtu, bytes)| {
        let count = mtu.packets(bytes);
        assert_eq!(mtu.piece(bytes, count), None);
        let ends = [0, 1, count / 2, count.saturating_sub(2), count - 1];
        for nth in ends.into_iter().filter(|nth| *nth < count) {
            let piece = mtu.piece(bytes, nth).unwrap();
            assert_eq!(piece.position.begins(), nth == 0);
            assert_eq!(piece.position.ends(), nth == count - 1);
            assert_eq!(piece.offset, nth * mtu.bytes());
            let rest = bytes - piece.offset;
            assert_eq!(piece.bytes, rest.min(mtu.bytes()));
            assert_eq!(rest <= mtu.bytes(), piece.position.ends());
            assert!(rest != 0 || piece.position == Position::Only);
        }
    });
}

fn pieces_come_back_as_the_message() {
    holds(1000, (message(), any::<bool>()), |((mtu, bytes), sends)| {
        let bytes = bytes % 20_000;
        let form = |at: u32| match (sends, at) {
            (true, _) => Form::Send,
            (false, 0) => Form::Write(bytes),
            (false, _) => Form::Write(0),
        };
        let mut begun = None;
        for nth in 0..mtu.packets(bytes) {
            let piece = mtu.piece(bytes, nth).unwrap();
            let joined = Partial::join(begun, form(nth), piece.position, piece.bytes, mtu);
            let (same, next) = joined.unwrap();
            assert_eq!(same, piece);
            assert_eq!(next.is_some(), !piece.position.ends());
            begun = next;
        }
        assert_eq!(begun, None);
    });
}

fn what_is_no_piece_of_a_message_is_none() {
    use Position::*;
    let mtu = Mtu::from_code(1).unwrap();
    let join = |begun, form, position, bytes| Partial::join(begun, form, position, bytes, mtu).ok();
    let begin = |form| join(None, form, First, 256).and_then(|(_, begun)| begun);
    let (send, write) = (begin(Form::Send), begin(Form::Write(300)));
    assert!(send.is_some() && write.is_some());
    let rest = Form::Write(0);
    for (begun, form, position, bytes) in [
        // Nothing has begun, or something has.
        (None, Form::Send, Middle, 256),
        (None, Form::Send, Last, 1),
        (send, Form::Send, First, 256),
        (send, Form::Send, Only, 1),
        // It is the other kind.
        (send, rest, Last, 44),
        (write, Form::Send, Last, 44),
        // Not full, too long, empty.
        (None, Form::Send, First, 255),
        (None, Form::Send, First, 257),
        (send, Form::Send, Middle, 255),
        (send, Form::Send, Last, 0),
        (send, Form::Send, Last, 257),
        (None, Form::Send, Only, 257),
        // Not as long as the RETH says.
        (write, rest, Middle, 256),
        (write, rest, Last, 43),
        (write, rest, Last, 45),
        (None, Form::Write(256), First, 256),
        (None, Form::Write(2), Only, 1),
        (None, Form::Write(MESSAGE_BYTES + 1), First, 256),
    ] {
        let found = join(begun, form, position, bytes);
        assert_eq!(found, None, "{begun:?} {form:?} {position:?} {bytes}");
    }
    let last = Piece {
        position: Last,
        offset: 256,
        bytes: 44,
    };
    assert_eq!(join(write, rest, Last, 44), Some((last, None)));
}
