// SPDX-License-Identifier: GPL-2.0
//! Frames of others: they parse, and are built again byte for byte.

use super::checks;
use qpair_roce::frame::build;
use qpair_roce::frame::Datagram;
use qpair_roce::frame::Mac;
use qpair_roce::frame::Route;
use qpair_roce::header::Headers;
use std::convert::Infallible;

checks![
    frames_of_others_parse,
    frames_of_others_are_built_again,
    what_routers_change_is_not_checked,
    all_else_is_checked,
];

/// The frames, each with what it is.
pub fn frames() -> Vec<(String, Vec<u8>)> {
    let text = include_str!("../frames.txt");
    let mut frames: Vec<(String, Vec<u8>)> = Vec::new();
    for line in text
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
    {
        if let Some(name) = line.strip_suffix(':') {
            frames.push((name.into(), Vec::new()));
            continue;
        }
        let digits: Vec<u8> = line.bytes().filter(u8::is_ascii_hexdigit).collect();
        let bytes = digits.chunks(2).map(|pair| {
            let pair = std::str::from_utf8(pair).unwrap();
            u8::from_str_radix(pair, 16).unwrap()
        });
        frames.last_mut().unwrap().1.extend(bytes);
    }
    assert!(frames.len() >= 8);
    frames
}

fn to(frame: &[u8]) -> Mac {
    *frame.first_chunk().unwrap()
}

pub fn opened(frame: &[u8]) -> (Datagram<'_>, Headers, &[u8]) {
    let datagram = Datagram::of(frame, &to(frame)).expect("a datagram");
    let (headers, payload) = datagram.open().expect("a packet");
    (datagram, headers, payload)
}

/// The sum of the words of a frame's IPv4 header.
pub fn sum_of_ipv4(frame: &[u8]) -> u32 {
    let words = frame[14..34].chunks(2);
    words.map(|w| u32::from(w[0]) << 8 | u32::from(w[1])).sum()
}

fn frames_of_others_parse() {
    for (name, frame) in frames() {
        let (datagram, headers, payload) = opened(&frame);
        assert_eq!(datagram.dest(), Some(headers.dest), "{name}");
        // The name begins with the opcode, and ends with the bytes of the payload.
        let shown = format!("{:?}", headers.operation);
        let first = name.split(' ').next().unwrap();
        assert!(shown.starts_with(first), "{name}: {shown}");
        let bytes = name.rsplit(' ').next().unwrap();
        assert_eq!(bytes.parse(), Ok(payload.len()), "{name}");
    }
}

fn frames_of_others_are_built_again() {
    for (name, frame) in frames() {
        let (datagram, headers, payload) = opened(&frame);
        let is_ipv4 = frame[12] == 8;
        let route = Route {
            from_mac: *frame[6..].first_chunk().unwrap(),
            to_mac: to(&frame),
            from: datagram.from,
            to: datagram.to,
            source_port: u16::from_be_bytes([
                frame[if is_ipv4 { 34 } else { 54 }],
                frame[if is_ipv4 { 35 } else { 55 }],
            ]),
            hops: frame[if is_ipv4 { 22 } else { 21 }],
            class: match is_ipv4 {
                true => frame[15],
                false => frame[14] << 4 | frame[15] >> 4,
            },
            flow: u32::from_be_bytes([0, frame[15] & 15, frame[16], frame[17]]),
        };
        let mut out = [0xee; 2000];
        let built = build::<Infallible>(&mut out, &route, &headers, payload.len(), |place| {
            place.copy_from_slice(payload);
            Ok(())
        });
        let built = &mut out[..built.unwrap()];
        assert_eq!(built.len(), frame.len(), "{name}");
        // What others choose otherwise: the identification of IPv4, so its checksum; MigReq, so the
        // ICRC.
        let bth = if is_ipv4 { 42 } else { 62 };
        let same_migreq = built[bth + 1] == frame[bth + 1];
        assert_eq!(built[bth + 1] & !0x40, frame[bth + 1] & !0x40);
        if is_ipv4 {
            let sum = sum_of_ipv4(built);
            assert_eq!((sum & 0xffff) + (sum >> 16), 0xffff, "the checksum of IPv4");
            let same_id = frame[18..20] == [0, 0];
            built[18..20].copy_from_slice(&frame[18..20]);
            if same_id {
                assert_eq!(built[24..26], frame[24..26], "{name}");
            }
            built[24..26].copy_from_slice(&frame[24..26]);
            if !same_id {
                continue;
            }
        }
        if same_migreq {
            assert_eq!(*built, frame[..], "{name}");
        } else {
            built[bth + 1] = frame[bth + 1];
            let end = frame.len() - 4;
            assert_eq!(built[..end], frame[..end], "{name}");
        }
    }
}

/// Places of what routers change, with the bits.
fn changed(frame: &[u8]) -> Vec<(usize, u8)> {
    match frame[12] {
        8 => vec![
            (15, 0xff),
            (22, 0xff),
            (24, 0xff),
            (25, 0xff),
            (40, 0xff),
            (41, 0xff),
            (46, 0xff),
        ],
        _ => {
            let ip = [(14, 0x0f), (15, 0xff), (16, 0xff), (17, 0xff), (21, 0xff)];
            let rest = [(60, 0xff), (61, 0xff), (66, 0xff)];
            ip.into_iter().chain(rest).collect()
        }
    }
}

fn what_routers_change_is_not_checked() {
    for (name, frame) in frames() {
        let (_, headers, payload) = opened(&frame);
        let mut other = frame.clone();
        for (at, bits) in changed(&frame) {
            other[at] ^= bits;
        }
        let (_, other_headers, other_payload) = opened(&other);
        assert_eq!((headers, payload), (other_headers, other_payload), "{name}");
    }
}

fn all_else_is_checked() {
    for (name, frame) in frames() {
        let allowed = changed(&frame);
        // The addresses of Ethernet are not of the packet.
        for bit in 12 * 8..frame.len() * 8 {
            let (at, bits) = (bit / 8, 1 << (bit % 8));
            if allowed
                .iter()
                .any(|&(place, may)| place == at && may & bits != 0)
            {
                continue;
            }
            let mut other = frame.clone();
            other[at] ^= bits;
            let mac = to(&frame);
            let opens = Datagram::of(&other, &mac).is_some_and(|datagram| datagram.open().is_ok());
            assert!(!opens, "{name}: bit {bits:#x} of byte {at}");
        }
    }
}
