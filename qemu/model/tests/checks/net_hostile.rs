// SPDX-License-Identifier: GPL-2.0
//! Frames with right checksums and wrong contents, to queue pairs of all services in all states. Memory
//! that the device may not access fails the test, so does a panic.

use super::checks;
use crate::harness::*;
use qpair_abi::command::*;
use qpair_abi::entry::opcode as work;
use qpair_abi::Number;
use qpair_roce::icrc::icrc;
use qpair_testkit::with_seeds;
use qpair_testkit::Rng;

checks![any_frame_does_no_harm];

/// Where an IPv4 frame has its headers.
const IP: usize = 14;
const UDP: usize = IP + 20;
const BTH: usize = UDP + 8;
const ICRC: usize = 4;

/// The lengths and the checksum of a frame as its bytes have them.
fn sealed(mut frame: Vec<u8>) -> Vec<u8> {
    let bytes = frame.len();
    frame[IP + 2..IP + 4].copy_from_slice(&((bytes - IP) as u16).to_be_bytes());
    frame[UDP + 4..UDP + 6].copy_from_slice(&((bytes - UDP) as u16).to_be_bytes());
    let (ip, rest) = frame[IP..bytes - ICRC].split_at(UDP - IP);
    let sum = icrc(ip, rest).unwrap();
    frame[bytes - ICRC..].copy_from_slice(&sum);
    frame
}

/// Another frame, which is like this one.
fn changed(rng: &mut Rng, frame: &[u8], dest: Number) -> Vec<u8> {
    let mut frame = frame.to_vec();
    if rng.one_in(3) {
        let bytes = BTH + 12 + ICRC + 4 * rng.below(300) as usize;
        frame.resize(bytes, 0);
    }
    for _ in 0..rng.below(4) {
        let most = if rng.one_in(2) { BTH + 40 } else { frame.len() };
        let at = BTH + rng.below((most.min(frame.len()) - BTH) as u64) as usize;
        frame[at] = rng.odd() as u8;
    }
    if rng.one_in(3) {
        // An operation of this or of another service.
        frame[BTH] = rng.pick(&[0, 0x20, 0x60]) | rng.below(0x1e) as u8;
    }
    if !rng.one_in(4) {
        let [_, number @ ..] = dest.raw().to_be_bytes();
        frame[BTH + 5..BTH + 8].copy_from_slice(&number);
    }
    if rng.one_in(2) {
        // Near its number.
        let psn = u32::from_be_bytes(frame[BTH + 8..BTH + 12].try_into().unwrap());
        let psn = psn.wrapping_add(rng.below32(40)).wrapping_sub(20);
        frame[BTH + 8..BTH + 12].copy_from_slice(&psn.to_be_bytes());
    }
    sealed(frame)
}

/// Requests of all kinds.
fn requests(f: &mut Far, rng: &mut Rng) {
    let bytes = 1 + rng.below32(5000);
    let sge = f.mrs[0].sge(0, bytes);
    for opcode in [work::SEND, work::WRITE, work::READ] {
        let into = f.mrs[1].sge(1 << 16, 5000);
        f.recv(1, &[into]);
        let wqe = f.remote(opcode, 0);
        let has = f.connection.service == service::RC || opcode != work::READ;
        if has {
            f.post(wqe, &[sge]);
        }
    }
}

fn any_frame_does_no_harm() {
    with_seeds("any_frame_does_no_harm", 12, |rng| {
        let connection = Connection {
            service: rng.pick(&[service::RC, service::RC, service::UC]),
            log_mtu: 8 + rng.below(3) as u8,
            ..Connection::default()
        };
        let mut f = Far::with(connection);
        f.lan.sent = Some(Vec::new());
        requests(&mut f, rng);
        f.lan.settle();
        let frames = f.lan.sent.take().unwrap();
        assert!(frames.len() >= 2);
        for _ in 0..40 {
            let place = rng.below(2) as usize;
            match rng.below(6) {
                0 => {
                    f.reset(place);
                    if rng.one_in(4) {
                        f.connect(place);
                    }
                }
                1 if f.state(place) == qp_state::RESET => f.connect(place),
                2 if f.state(0) == qp_state::RTS => requests(&mut f, rng),
                _ => {}
            }
            for _ in 0..10 {
                let (from, frame) = &frames[rng.below(frames.len() as u64) as usize];
                let frame = changed(rng, frame, f.qps[1 - from].number);
                assert!(f.lan.deliver(1 - from, &frame));
            }
            f.lan.pass(rng.below(1_000_000));
            f.done(0);
            f.done(1);
        }
        // They still work.
        for place in [0, 1] {
            f.reset(place);
        }
        f.lan.settle();
        for place in [0, 1] {
            f.connect(place);
            f.done(place);
        }
        let (from, into) = (f.mrs[0].sge(0, 3000), f.mrs[1].sge(1 << 16, 5000));
        f.recv(1, &[into]);
        let wqe = f.remote(work::SEND, 0);
        f.send(wqe, &[from]);
        assert_eq!(f.done(0).len(), 1);
        assert_eq!(f.done(1).len(), 1);
    });
}
