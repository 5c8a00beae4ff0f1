// SPDX-License-Identifier: GPL-2.0
//! Frames that no queue pair has sent.

use super::far::*;
use super::lan::*;
use super::ud::KEY;
use qpair_abi::command::*;
use qpair_abi::counters::Counter;
use qpair_roce::extended::Deth;
use qpair_roce::extended::Reth;
use qpair_roce::extended::With;
use qpair_roce::frame;
use qpair_roce::header::Headers;
use qpair_roce::header::Service;
use qpair_roce::icrc::icrc;
use qpair_roce::operation::Operation;
use qpair_roce::psn::Psn;

const ETH: usize = 14;
const UDP: usize = 8;
const ICRC: usize = 4;

/// Bytes of the IP header of a frame.
pub fn ip_bytes(frame: &[u8]) -> usize {
    match frame.get(12) {
        Some(8) => 20,
        _ => 40,
    }
}

/// A frame with the lengths and the checksum that its bytes have.
pub fn sealed(mut frame: Vec<u8>) -> Vec<u8> {
    let (udp, bytes) = (ETH + ip_bytes(&frame), frame.len());
    if bytes < udp + UDP + ICRC {
        return frame;
    }
    let whole = (bytes - udp) as u16;
    let (at, counted) = match udp - ETH {
        20 => (ETH + 2, whole.wrapping_add(20)),
        _ => (ETH + 4, whole),
    };
    frame[at..at + 2].copy_from_slice(&counted.to_be_bytes());
    frame[udp + 4..udp + 6].copy_from_slice(&whole.to_be_bytes());
    let (ip, rest) = frame[ETH..bytes - ICRC].split_at(udp - ETH);
    if let Some(sum) = icrc(ip, rest) {
        frame[bytes - ICRC..].copy_from_slice(&sum);
    }
    frame
}

/// A frame of the first to the second, as its connection has it.
pub struct Forged {
    pub route: frame::Route,
    pub headers: Headers,
    pub payload: Vec<u8>,
}

pub fn gid_bytes([low, high]: [u64; 2]) -> [u8; 16] {
    (u128::from(high) << 64 | u128::from(low)).to_le_bytes()
}

impl Forged {
    /// The memory of the second, for 8 bytes.
    pub fn reth(f: &Far) -> Reth {
        Reth {
            addr: f.mrs[1].va,
            key: f.mrs[1].key.raw(),
            bytes: 8,
        }
    }

    /// A WRITE of 8 bytes, the next that is expected after `after` packets.
    pub fn write(f: &Far, after: u32) -> Self {
        Self::of(
            f,
            after,
            Operation::WriteOnly(Self::reth(f), None),
            vec![7; 8],
        )
    }

    /// A SEND of 8 bytes, of any service.
    pub fn send_only(f: &Far) -> Self {
        Self::of(f, 0, Operation::SendOnly(With::Nothing), vec![7; 8])
    }

    pub fn of(f: &Far, after: u32, operation: Operation, payload: Vec<u8>) -> Self {
        let mac = |place: u8| [0x52, 0x54, 0, 0, 0, place + 1];
        Self {
            route: frame::Route {
                from_mac: mac(0),
                to_mac: mac(1),
                from: gid_bytes(gid_at(0)),
                to: gid_bytes(gid_at(1)),
                source_port: 0xc000,
                hops: 64,
                class: 0,
                flow: 0,
            },
            headers: Headers {
                service: match f.connection.service {
                    service::RC => Service::Rc,
                    service::UC => Service::Uc,
                    _ => Service::Ud(Deth {
                        q_key: KEY,
                        source: f.qps[0].number.raw(),
                    }),
                },
                operation,
                solicited: false,
                ack: true,
                dest: f.qps[1].number.raw(),
                psn: Psn::new(f.connection.psns[0]).plus(after),
            },
            payload,
        }
    }

    pub fn frame(&self) -> Vec<u8> {
        let mut frame = vec![0; 8192];
        let fill = |to: &mut [u8]| {
            to.copy_from_slice(&self.payload);
            Ok::<(), ()>(())
        };
        let bytes = self.payload.len();
        let bytes = frame::build(&mut frame, &self.route, &self.headers, bytes, fill);
        frame.truncate(bytes.unwrap());
        frame
    }

    /// Sends it; returns what it has changed of these counters.
    pub fn send<const N: usize>(&self, f: &mut Far, counters: [Counter; N]) -> [u64; N] {
        let before = counters.map(|counter| f.m(1).f.counter(counter));
        f.lan.deliver(1, &self.frame());
        let mut after = counters.map(|counter| f.m(1).f.counter(counter));
        after
            .iter_mut()
            .zip(before)
            .for_each(|(after, before)| *after -= before);
        after
    }
}
