// SPDX-License-Identifier: GPL-2.0
//! Frames of soft-RoCE and of scapy, changed at random, to queue pairs of each service in each state.

use super::checks;
use crate::harness::*;
use qpair_abi::command::*;
use qpair_roce::extended::Reth;
use qpair_testkit::with_seeds;
use qpair_testkit::Rng;

checks![changed_frames_of_others_do_no_harm];

const ETH: usize = 14;
const UDP: usize = 8;
const ICRC: usize = 4;

/// The frames of `proofs/roce`, which has the names of them.
fn corpus() -> Vec<Vec<u8>> {
    let mut frames: Vec<Vec<u8>> = Vec::new();
    for line in include_str!("../../../../proofs/roce/tests/frames.txt").lines() {
        if line.ends_with(':') {
            frames.push(Vec::new());
        } else if !line.starts_with('#') {
            let digits: Vec<u32> = line.chars().filter_map(|it| it.to_digit(16)).collect();
            let bytes = digits.chunks(2).map(|pair| (pair[0] << 4 | pair[1]) as u8);
            frames
                .last_mut()
                .into_iter()
                .for_each(|it| it.extend(bytes.clone()));
        }
    }
    assert!(frames.len() >= 8);
    frames
}

/// As if the first machine had sent it to the queue pair of the second: its Q_Key, or memory of its
/// region.
fn addressed(f: &Far, mut frame: Vec<u8>) -> Vec<u8> {
    let bth = ETH + ip_bytes(&frame) + UDP;
    frame[..6].copy_from_slice(&[0x52, 0x54, 0, 0, 0, 2]);
    let gids = match ip_bytes(&frame) {
        20 => [0, 1].map(|place| gid_bytes(gid_at(place))[12..].to_vec()),
        _ => [0, 1].map(|place| gid_bytes(gid6_at(place)).to_vec()),
    };
    let gids = gids.concat();
    frame[bth - UDP - gids.len()..bth - UDP].copy_from_slice(&gids);
    let [_, number @ ..] = f.qps[1].number.raw().to_be_bytes();
    frame[bth + 5..bth + 8].copy_from_slice(&number);
    let behind = &mut frame[bth + 12..];
    match f.connection.service {
        service::UD => behind[..4].copy_from_slice(&KEY.to_be_bytes()),
        _ if behind.len() >= 16 + ICRC => {
            let Reth { addr, key, .. } = Forged::reth(f);
            behind[..8].copy_from_slice(&addr.to_be_bytes());
            behind[8..12].copy_from_slice(&key.to_be_bytes());
        }
        _ => {}
    }
    frame
}

/// Other bytes behind the IP header, and another length.
fn mutated(rng: &mut Rng, frame: &mut Vec<u8>, service: u8, psn: u32) {
    let udp = ETH + ip_bytes(frame);
    let bth = udp + UDP;
    if rng.one_in(2) {
        // A packet near the one that is expected, or it.
        let psn = psn.wrapping_add(rng.below32(5)).wrapping_sub(2);
        frame[bth + 9..bth + 12].copy_from_slice(&psn.to_be_bytes()[1..]);
    }
    let of_service = match service {
        service::RC => 0,
        service::UC => 0x20,
        _ => 0x60,
    };
    if !rng.one_in(4) {
        frame[bth] = of_service | frame[bth] & 0x1f;
    } else if rng.one_in(2) {
        frame[bth] = of_service ^ rng.below(0x80) as u8;
    }
    if rng.one_in(3) {
        let bytes = bth + rng.below(1200) as usize;
        frame.resize(bytes, rng.odd() as u8);
    }
    for _ in 0..rng.below(4) {
        let from = if rng.one_in(8) { udp } else { bth };
        let most = (frame.len() - from).min(40) as u64;
        if most != 0 {
            frame[from + rng.below(most) as usize] = rng.odd() as u8;
        }
    }
}

fn changed_frames_of_others_do_no_harm() {
    let corpus = corpus();
    with_seeds("changed_frames_of_others_do_no_harm", 60, |rng| {
        let service = rng.pick(&[service::RC, service::UC, service::UD]);
        let mut f = Far::with(Connection {
            service,
            ipv6: service != service::UD && rng.one_in(2),
            ..Connection::default()
        });
        // Memory of the device that no key is for.
        let other = f.m(1).memory.alloc(1 << 16, 64, Grant::Write);
        for state in qp_state::RESET..=qp_state::ERROR {
            f.reset(1);
            f.bring_to(1, state);
            for _ in 0..4 {
                f.recv(5, &[f.mrs[1].sge(1 << 16, 4096)]);
            }
            let qp = f.qps[1].number;
            for _ in 0..100 {
                let now = f.m(1).query_qp(qp);
                if now.state != state {
                    // A request in its place was refused.
                    f.reset(1);
                    f.bring_to(1, state);
                }
                let psn = now.rq_psn;
                let nth = rng.below(corpus.len() as u64) as usize;
                let frame = &corpus[nth];
                if service != service::UD && f.connection.ipv6 != (ip_bytes(frame) == 40) {
                    continue;
                }
                let mut frame = addressed(&f, frame.clone());
                mutated(rng, &mut frame, service, psn);
                if !rng.one_in(8) {
                    frame = sealed(frame);
                }
                f.lan.deliver(1, &frame);
                // A request has one answer: a READ has as many packets as its bytes.
                f.m(1).f.host_mut().frames.clear();
            }
            f.done(1);
            f.m(1).events0();
        }
        assert_eq!(f.m(1).memory.bytes(other, 1 << 16), vec![0; 1 << 16]);
        // The queue pair works.
        for place in [0, 1] {
            f.reset(place);
            f.connect(place);
            f.done(place);
        }
        if service != service::UD {
            f.send(
                f.remote(qpair_abi::entry::opcode::WRITE, 0),
                &[f.mrs[0].sge(0, 8)],
            );
            assert_eq!(f.done(0).len(), 1);
        }
    });
}
