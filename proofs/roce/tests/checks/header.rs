// SPDX-License-Identifier: GPL-2.0
//! Headers: what is written is read, and nothing that is read panics.

use super::checks;
use super::prop::holds;
use proptest::collection::vec;
use proptest::prelude::any;
use proptest::prop_oneof;
use proptest::strategy::Just;
use proptest::strategy::Strategy;
use qpair_roce::extended::Aeth;
use qpair_roce::extended::AtomicEth;
use qpair_roce::extended::Deth;
use qpair_roce::extended::Feth;
use qpair_roce::extended::Nak;
use qpair_roce::extended::Reth;
use qpair_roce::extended::Syndrome;
use qpair_roce::extended::With;
use qpair_roce::header::padding;
use qpair_roce::header::Headers;
use qpair_roce::header::Service;
use qpair_roce::operation::Operation;
use qpair_roce::psn::Psn;

checks![
    headers_are_read_as_written,
    what_is_read_is_written_again,
    opcodes_are_those_of_the_architecture,
    acknowledgements_have_their_codes,
    what_a_service_lacks_is_refused,
    short_and_foreign_headers_are_refused,
];

const BITS24: u32 = (1 << 24) - 1;

fn reth() -> impl Strategy<Value = Reth> {
    any::<(u64, u32, u32)>().prop_map(|(addr, key, bytes)| Reth { addr, key, bytes })
}

fn aeth() -> impl Strategy<Value = Aeth> {
    let syndrome = prop_oneof![
        Just(Syndrome::Ack),
        (0..32u8).prop_map(Syndrome::NotReady),
        Just(Syndrome::Sequence),
        Just(Syndrome::Nak(Nak::InvalidRequest)),
        Just(Syndrome::Nak(Nak::RemoteAccess)),
        Just(Syndrome::Nak(Nak::RemoteOperation)),
    ];
    (syndrome, 0..=BITS24).prop_map(|(syndrome, msn)| Aeth { syndrome, msn })
}

fn with() -> impl Strategy<Value = With> {
    prop_oneof![
        Just(With::Nothing),
        any::<[u8; 4]>().prop_map(With::Immediate),
        any::<u32>().prop_map(With::Invalidate),
    ]
}

fn atomic() -> impl Strategy<Value = AtomicEth> {
    any::<(u64, u32, u64, u64)>().prop_map(|(addr, key, swap_add, compare)| AtomicEth {
        addr,
        key,
        swap_add,
        compare,
    })
}

pub fn operation() -> impl Strategy<Value = Operation> {
    use Operation::*;
    let sends = prop_oneof![
        Just(SendFirst),
        Just(SendMiddle),
        with().prop_map(SendLast),
        with().prop_map(SendOnly),
    ];
    let writes = prop_oneof![
        reth().prop_map(WriteFirst),
        Just(WriteMiddle),
        any::<Option<[u8; 4]>>().prop_map(WriteLast),
        (reth(), any::<Option<[u8; 4]>>()).prop_map(|(reth, imm)| WriteOnly(reth, imm)),
        reth().prop_map(AtomicWrite),
    ];
    let replies = prop_oneof![
        aeth().prop_map(ReadReplyFirst),
        Just(ReadReplyMiddle),
        aeth().prop_map(ReadReplyLast),
        aeth().prop_map(ReadReplyOnly),
        aeth().prop_map(Acknowledge),
        (aeth(), any::<u64>()).prop_map(|(aeth, old)| AtomicReply(aeth, old)),
    ];
    let feth = (0..16u8, 0..4u8).prop_map(|(placement, selectivity)| Feth {
        placement,
        selectivity,
    });
    let rest = prop_oneof![
        reth().prop_map(Read),
        atomic().prop_map(CompareSwap),
        atomic().prop_map(FetchAdd),
        (feth, reth()).prop_map(|(feth, reth)| Flush(feth, reth)),
    ];
    prop_oneof![sends, writes, replies, rest]
}

/// Headers, and the bytes of a payload that they may have.
pub fn headers() -> impl Strategy<Value = (Headers, usize)> {
    let numbers = (
        0..=BITS24,
        0..=BITS24,
        any::<(bool, bool)>(),
        any::<(u32, u8)>(),
    );
    (operation(), numbers, 0..600usize).prop_map(|(operation, numbers, bytes)| {
        let (dest, psn, (solicited, ack), (q_key, choice)) = numbers;
        let deth = Deth {
            q_key,
            source: dest ^ 0x55,
        };
        let service = match (operation.code(), choice % 3) {
            (4 | 5, 0) => Service::Ud(deth),
            (0..=0x0b, 1) => Service::Uc,
            _ => Service::Rc,
        };
        let bytes = match operation.code() {
            0x0c | 0x11..=0x14 | 0x1c => 0,
            0x1d => 8,
            _ => bytes,
        };
        let headers = Headers {
            service,
            operation,
            solicited,
            ack,
            dest,
            psn: Psn::new(psn),
        };
        (headers, bytes)
    })
}

fn packet(headers: &Headers, bytes: usize) -> Vec<u8> {
    let mut packet = headers.encode(bytes).as_slice().to_vec();
    packet.extend((0..bytes).map(|at| at as u8));
    packet.extend(vec![0; padding(bytes)]);
    packet
}

fn headers_are_read_as_written() {
    holds(2000, headers(), |(headers, bytes)| {
        let packet = packet(&headers, bytes);
        assert_eq!(packet.len() % 4, 0);
        let (read, payload) = Headers::parse(&packet).unwrap();
        assert_eq!(read, headers);
        assert!(payload.iter().copied().eq((0..bytes).map(|at| at as u8)));
    });
}

fn what_is_read_is_written_again() {
    let codes = prop_oneof![any::<u8>(), 0..0x20u8, 0x64..0x66u8];
    let bytes = vec(any::<u8>(), 0..100);
    holds(
        5000,
        (codes, any::<u8>(), bytes),
        |(code, flags, mut bytes)| {
            for (place, value) in bytes.iter_mut().zip([code, flags & 0xf0, 0xff, 0xff]) {
                *place = value;
            }
            let Ok((headers, payload)) = Headers::parse(&bytes) else {
                return;
            };
            let again = headers.encode(payload.len());
            let again = again.as_slice();
            let (head, _) = bytes.split_at(again.len());
            let (read, _) =
                Headers::parse(&[again, payload].concat()[..]).unwrap_or((headers, payload));
            assert_eq!(read, headers);
            // All but the pad count, MigReq, and what is reserved.
            let [code, flags, ..] = *again else {
                panic!("no headers");
            };
            assert_eq!((code, flags & 0x8f), (head[0], head[1] & 0x8f));
            assert_eq!(again[5..8], head[5..8]);
            assert_eq!(again[9..12], head[9..12]);
        },
    );
}

fn opcodes_are_those_of_the_architecture() {
    use Operation::*;
    let (imm, key) = (With::Immediate([1; 4]), With::Invalidate(1));
    let aeth = Aeth {
        syndrome: Syndrome::Ack,
        msn: 0,
    };
    let (reth, eth) = (Reth::default(), AtomicEth::default());
    // The code, and the bytes of the extended headers.
    for (operation, code, bytes) in [
        (SendFirst, 0, 0),
        (SendMiddle, 1, 0),
        (SendLast(With::Nothing), 2, 0),
        (SendLast(imm), 3, 4),
        (SendOnly(With::Nothing), 4, 0),
        (SendOnly(imm), 5, 4),
        (WriteFirst(reth), 6, 16),
        (WriteMiddle, 7, 0),
        (WriteLast(None), 8, 0),
        (WriteLast(Some([0; 4])), 9, 4),
        (WriteOnly(reth, None), 10, 16),
        (WriteOnly(reth, Some([0; 4])), 11, 20),
        (Read(reth), 12, 16),
        (ReadReplyFirst(aeth), 13, 4),
        (ReadReplyMiddle, 14, 0),
        (ReadReplyLast(aeth), 15, 4),
        (ReadReplyOnly(aeth), 16, 4),
        (Acknowledge(aeth), 17, 4),
        (AtomicReply(aeth, 0), 18, 12),
        (CompareSwap(eth), 19, 28),
        (FetchAdd(eth), 20, 28),
        (SendLast(key), 22, 4),
        (SendOnly(key), 23, 4),
        (Flush(Feth::default(), reth), 28, 20),
        (AtomicWrite(reth), 29, 16),
    ] {
        let headers = Headers {
            service: Service::Rc,
            operation,
            solicited: false,
            ack: false,
            dest: 0,
            psn: Psn::new(0),
        };
        let encoded = headers.encode(0);
        let encoded = encoded.as_slice();
        assert_eq!(
            (encoded[0], encoded.len()),
            (code, 12 + bytes),
            "{operation:?}"
        );
        assert_eq!(operation.is_answer(), (13..=18).contains(&code));
    }
}

fn acknowledgements_have_their_codes() {
    for code in 0..=u8::MAX {
        let packet = [&[0x11, 0, 0xff, 0xff, 0, 0, 0, 1, 0, 0, 0, 2, code, 0, 0, 3][..]].concat();
        let syndrome = match code {
            0..=0x1f => Some(Syndrome::Ack),
            0x20..=0x3f => Some(Syndrome::NotReady(code - 0x20)),
            0x60 => Some(Syndrome::Sequence),
            0x61 => Some(Syndrome::Nak(Nak::InvalidRequest)),
            0x62 => Some(Syndrome::Nak(Nak::RemoteAccess)),
            0x63 => Some(Syndrome::Nak(Nak::RemoteOperation)),
            _ => None,
        };
        let read = Headers::parse(&packet)
            .ok()
            .map(|(headers, _)| headers.operation);
        let wanted = syndrome.map(|syndrome| Operation::Acknowledge(Aeth { syndrome, msn: 3 }));
        assert_eq!(read, wanted, "{code:#x}");
    }
}

fn what_a_service_lacks_is_refused() {
    holds(2000, headers(), |(headers, bytes)| {
        let mut packet = packet(&headers, bytes);
        let code = headers.operation.code();
        let deth = [0; 8];
        // As if it were of UC, of UD, of RD.
        for (service, has) in [(1, code <= 0x0b), (3, matches!(code, 4 | 5)), (2, false)] {
            let is_ud = matches!(headers.service, Service::Ud(_));
            packet[0] = service << 5 | code;
            let mut other = packet.clone();
            if service == 3 && !is_ud {
                other.splice(12..12, deth);
            }
            if service == 1 && is_ud {
                other.drain(12..20);
            }
            assert_eq!(Headers::parse(&other).is_ok(), has, "{service} {code:#x}");
        }
    });
}

fn short_and_foreign_headers_are_refused() {
    holds(2000, headers(), |(headers, bytes)| {
        let whole = packet(&headers, bytes);
        let head = headers.encode(bytes).as_slice().len();
        for end in 0..head {
            assert!(Headers::parse(&whole[..end]).is_err());
        }
        let with = |at: usize, value: u8| {
            let mut other = whole.clone();
            other[at] = value;
            Headers::parse(&other).is_ok()
        };
        assert!(
            !with(1, whole[1] | 1),
            "a version of the transport that there is not"
        );
        assert!(!with(3, 0xfe), "another P_Key");
        assert!(with(2, 0x7f), "the default P_Key of a limited member");
        assert!(with(1, whole[1] ^ 0x40), "MigReq says nothing");
        if bytes == 0 {
            assert!(!with(1, whole[1] | 0x10), "more padding than bytes");
        }
        let code = headers.operation.code();
        if matches!(code, 0x0c | 0x11..=0x14 | 0x1c | 0x1d) {
            let longer = [&whole[..], &[0; 4]].concat();
            assert!(Headers::parse(&longer).is_err(), "data that it has not");
        }
    });
}
