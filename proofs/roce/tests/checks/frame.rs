// SPDX-License-Identifier: GPL-2.0
//! Frames that are built are read, and of what is not the port's none is.

use super::captured::frames;
use super::captured::opened;
use super::captured::sum_of_ipv4;
use super::checks;
use super::header::headers;
use super::prop::holds;
use proptest::collection::vec;
use proptest::prelude::any;
use proptest::prop_oneof;
use proptest::strategy::Just;
use proptest::strategy::Strategy;
use qpair_roce::frame::build;
use qpair_roce::frame::mapped;
use qpair_roce::frame::Bad;
use qpair_roce::frame::Datagram;
use qpair_roce::frame::NoFrame;
use qpair_roce::frame::Route;
use qpair_roce::frame::AROUND;
use qpair_roce::header::Headers;
use std::convert::Infallible;

checks![
    frames_are_read_as_built,
    no_bytes_panic,
    what_is_not_the_ports_is_passed_on,
    lengths_are_those_of_ip_and_udp,
    the_checksum_of_ipv4_is_right,
    a_grh_is_the_ip_header,
    what_does_not_fit_is_not_built,
];

fn route() -> impl Strategy<Value = Route> {
    let ipv4 = any::<[u8; 4]>().prop_map(mapped);
    let gids = prop_oneof![(ipv4.clone(), ipv4), any::<([u8; 16], [u8; 16])>()];
    let rest = (any::<(u16, u8, u8)>(), 0..1u32 << 20);
    (any::<([u8; 6], [u8; 6])>(), gids, rest).prop_map(|(macs, (from, to), rest)| {
        let ((source_port, hops, class), flow) = rest;
        Route {
            from_mac: macs.0,
            to_mac: macs.1,
            from,
            to,
            source_port,
            hops,
            class,
            flow,
        }
    })
}

fn frames_are_read_as_built() {
    holds(2000, (route(), headers()), |(route, (headers, bytes))| {
        let mut out = [0xee; 1000];
        let fill = |place: &mut [u8]| {
            let bytes = place.iter_mut().zip(0u32..);
            bytes.for_each(|(place, n)| *place = n as u8);
            Ok::<(), Infallible>(())
        };
        let whole = build(&mut out, &route, &headers, bytes, fill).unwrap();
        let frame = &out[..whole];
        let transport = headers.encode(bytes).as_slice().len() + bytes.next_multiple_of(4);
        let ip = if frame[12] == 8 { 20 } else { 40 };
        assert_eq!(whole, AROUND - 40 + ip + transport);
        let datagram = Datagram::of(frame, &route.to_mac).unwrap();
        assert_eq!((datagram.from, datagram.to), (route.from, route.to));
        assert_eq!(datagram.dest(), Some(headers.dest));
        let bth = if frame[12] == 8 { 42 } else { 62 };
        assert_eq!(
            datagram.protected(),
            bth + 8..whole,
            "from the word of the PSN on"
        );
        let (read, payload) = datagram.open().unwrap();
        assert_eq!(read, headers);
        assert!(payload.iter().copied().eq((0..bytes).map(|n| n as u8)));
    });
}

fn no_bytes_panic() {
    let all = frames();
    let count = all.len();
    let edits = vec((any::<proptest::sample::Index>(), any::<u8>()), 0..6);
    let cut = prop_oneof![Just(usize::MAX), 0..120usize];
    holds(5000, (0..count, edits, cut), |(nth, edits, cut)| {
        let mut frame = all[nth].1.clone();
        let is_ipv4 = frame[12] == 8;
        for (at, value) in edits {
            let at = at.index(frame.len());
            frame[at] = value;
        }
        frame.truncate(cut);
        let mac = [0x52, 0x54, 0, 0, 0, 1];
        if let Some(datagram) = Datagram::of(&frame, &mac) {
            let _ = (datagram.dest(), datagram.open(), datagram.grh());
            let _ = datagram.protected();
        }
        // As if the checksum were right.
        let bth = if is_ipv4 { 42 } else { 62 };
        let _ = frame.get(bth..).map(Headers::parse);
    });
    holds(2000, vec(any::<u8>(), 0..200), |bytes| {
        let mac = bytes.first_chunk().copied().unwrap_or_default();
        if let Some(datagram) = Datagram::of(&bytes, &mac) {
            let _ = datagram.open();
        }
    });
}

/// For each value of the sum's low half: with some, the addition of the carry carries again.
fn the_checksum_of_ipv4_is_right() {
    let (_, frame) = &frames()[0];
    let (_, headers, payload) = opened(frame);
    let nothing = |_: &mut [u8]| Ok::<(), Infallible>(());
    for host in 0..=u16::MAX {
        let [high, low] = host.to_be_bytes();
        let route = Route {
            from_mac: [2; 6],
            to_mac: [2; 6],
            from: mapped([10, 0, 255, 255]),
            to: mapped([10, 0, high, low]),
            source_port: 49152,
            hops: 64,
            class: 0,
            flow: 0,
        };
        let mut out = [0; 2000];
        build(&mut out, &route, &headers, payload.len(), nothing).unwrap();
        assert_eq!(sum_of_ipv4(&out) % 0xffff, 0, "to {host:#x}");
    }
}

fn what_is_not_the_ports_is_passed_on() {
    for (name, frame) in frames() {
        let mac = *frame.first_chunk().unwrap();
        let is_ipv4 = frame[12] == 8;
        let udp = if is_ipv4 { 34 } else { 54 };
        let with = |at: usize, value: u8| {
            let mut other = frame.clone();
            other[at] = value;
            Datagram::of(&other, &mac).is_some()
        };
        assert!(with(0, frame[0]), "{name}");
        assert!(!with(5, 9), "another address of Ethernet");
        assert!(with(0, 0x33), "a group");
        assert!(!with(13, 6), "ARP");
        assert!(!with(udp + 3, 0xb6), "another port");
        assert!(!with(if is_ipv4 { 23 } else { 20 }, 6), "TCP");
        assert!(!with(14, 0x46), "options, or another version");
        if is_ipv4 {
            assert!(!with(20, 0x20), "the first fragment");
            assert!(!with(21, 1), "another fragment");
        }
    }
}

fn lengths_are_those_of_ip_and_udp() {
    for (name, frame) in frames() {
        let mac = *frame.first_chunk().unwrap();
        let wanted = opened(&frame);
        let longer = [&frame[..], &[0xab; 9]].concat();
        let found = opened(&longer);
        assert_eq!((found.1, found.2), (wanted.1, wanted.2), "{name}");
        for end in 0..frame.len() {
            let opens = Datagram::of(&frame[..end], &mac);
            assert!(opens.is_none(), "{name}: {end} bytes");
        }
        let is_ipv4 = frame[12] == 8;
        let length = if is_ipv4 { 38 } else { 58 };
        const LEAST: u16 = 8 + 12 + 4; // UDP, BTH, ICRC
        for bytes in 0..LEAST {
            let mut other = frame.clone();
            other[length..length + 2].copy_from_slice(&bytes.to_be_bytes());
            let found = Datagram::of(&other, &mac).unwrap().open();
            assert_eq!(found.err(), Some(Bad::Malformed), "{name}: {bytes} bytes");
        }
        let mut other = frame.clone();
        other[length + 1] ^= 1;
        let found = Datagram::of(&other, &mac).unwrap().open();
        assert_eq!(found.err(), Some(Bad::Malformed), "{name}");
        let mut other = frame.clone();
        *other.last_mut().unwrap() ^= 1;
        let found = Datagram::of(&other, &mac).unwrap().open();
        assert_eq!(found.err(), Some(Bad::Checksum), "{name}");
    }
}

fn a_grh_is_the_ip_header() {
    for (name, frame) in frames() {
        let (datagram, ..) = opened(&frame);
        let grh = datagram.grh();
        match frame[12] == 8 {
            true => {
                assert_eq!(grh[..20], [0; 20], "{name}");
                assert_eq!(grh[20..], frame[14..34], "{name}");
            }
            false => assert_eq!(grh[..], frame[14..54], "{name}"),
        }
    }
}

fn what_does_not_fit_is_not_built() {
    holds(500, (route(), headers()), |(route, (headers, bytes))| {
        let mut out = [0; 1000];
        let fill = |_: &mut [u8]| Ok::<(), Infallible>(());
        let whole = build(&mut out, &route, &headers, bytes, fill).unwrap();
        let less = build(&mut out[..whole - 1], &route, &headers, bytes, fill);
        assert_eq!(less, Err(NoFrame::Room));
        let none = build(&mut out, &route, &headers, bytes, |_| Err("no memory"));
        assert_eq!(none, Err(NoFrame::Payload("no memory")));
        let mut large = vec![0; 80_000];
        let much = build(&mut large, &route, &headers, 65_536, fill);
        assert_eq!(much, Err(NoFrame::Room));
    });
}
