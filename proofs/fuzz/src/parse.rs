// SPDX-License-Identifier: GPL-2.0
//! The target `parse`: a frame, which is refused, or is the same when it is built again.

use crate::harness::sealed;
use qpair_roce::frame::build;
use qpair_roce::frame::Datagram;
use qpair_roce::frame::Route;
use qpair_roce::frame::AROUND;
use qpair_roce::header::Headers;
use std::convert::Infallible;

/// Bytes before those of the IP header.
const ETH: usize = 14;

/// Takes any bytes as a frame. The first says whether its lengths and checksum are made right.
pub fn run(bytes: &[u8]) {
    let Some((first, frame)) = bytes.split_first() else {
        return;
    };
    let frame = match first & 1 {
        0 => frame.to_vec(),
        _ => sealed(frame.to_vec()),
    };
    let mac = frame.first_chunk().copied().unwrap_or_default();
    let Some(datagram) = Datagram::of(&frame, &mac) else {
        return;
    };
    assert!(datagram.protected().end <= frame.len());
    let dest = datagram.dest();
    let Ok((headers, payload)) = datagram.open() else {
        return;
    };
    assert_eq!(dest, Some(headers.dest));
    let again = rebuilt(&datagram, mac, &headers, payload);
    let datagram_again = Datagram::of(&again, &mac).expect("a frame that was built");
    assert_eq!(datagram_again.from, datagram.from);
    assert_eq!(datagram_again.to, datagram.to);
    assert_eq!(datagram_again.open(), Ok((headers, payload)));
}

/// A frame with the same contents.
fn rebuilt(datagram: &Datagram<'_>, mac: [u8; 6], headers: &Headers, payload: &[u8]) -> Vec<u8> {
    let route = Route {
        from_mac: [2; 6],
        to_mac: mac,
        from: datagram.from,
        to: datagram.to,
        source_port: 0xc000,
        hops: 1,
        class: 0,
        flow: 0,
    };
    let mut frame = vec![0; ETH + AROUND + 64 + payload.len()];
    let fill = |place: &mut [u8]| {
        place.copy_from_slice(payload);
        Ok::<(), Infallible>(())
    };
    let built = build(&mut frame, &route, headers, payload.len(), fill);
    frame.truncate(built.expect("it was in a frame"));
    frame
}
