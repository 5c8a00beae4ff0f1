// SPDX-License-Identifier: GPL-2.0
//! The network: datagrams between machines, and frames that are for no queue pair.

use super::checks;
use crate::harness::*;
use qpair_abi::command::*;
use qpair_abi::counters::Counter;
use qpair_abi::entry::opcode as work;
use qpair_abi::entry::*;
use qpair_abi::regs::offset;
use qpair_abi::Number;
use qpair_model::Config;
use qpair_testkit::with_seeds;

checks![
    datagrams_between_machines,
    datagrams_between_ipv6_addresses,
    a_datagram_that_nobody_takes,
    frames_of_others_pass,
    a_frame_with_a_wrong_bit,
    a_frame_that_is_cut,
    random_frames,
    a_group_on_the_network,
    a_group_beyond_a_turn,
    long_frames_to_a_group,
    a_sender_waits_for_room,
    waiting_frames_are_bounded,
    a_flood_takes_its_share,
    a_reset_drops_waiting_frames,
    without_a_link,
    a_port_without_a_network,
];

/// A queue pair of UD on a machine, with a region.
#[derive(Clone, Copy)]
pub(super) struct End {
    at: usize,
    qp: TestQp,
    cq: TestCq,
    pub(super) mr: TestMr,
}

const GROUP: [u64; 2] = [0, 0x0302_01ef_ffff_0000];
const FIRST_V6: [u64; 2] = [0x80fe, 0x11];
const SECOND_V6: [u64; 2] = [0x80fe, 0x22];
/// Where an IPv4 datagram has its Ethernet, IP, UDP, BTH and DETH headers.
const IP: usize = 14;
const UDP: usize = IP + 20;
const BTH: usize = UDP + 8;

fn end(lan: &mut Lan, at: usize) -> End {
    let m = &mut lan.machines[at];
    let (pd, cq) = (m.pd(), m.cq(8));
    let spec = QpSpec {
        gid: [0; 2],
        log_sq: 8,
        log_rq: 8,
        ..ud_spec(pd, &cq)
    };
    let qp = m.qp(&spec);
    ud_start(m, qp.number, KEY);
    let mr = m.mr(pd, 1 << 16);
    End { at, qp, cq, mr }
}

pub(super) fn pair() -> (Lan, End, End) {
    let mut lan = Lan::new(2);
    let (a, b) = (end(&mut lan, 0), end(&mut lan, 1));
    (lan, a, b)
}

/// A SEND to a queue pair, which it would accept.
pub(super) fn to(end: &End, wr_id: u64) -> UdWqe {
    let (gid, mac) = (gid_at(end.at), mac_at(end.at));
    UdWqe {
        opcode: work::SEND,
        flags: send_flags::SIGNALED,
        wr_id,
        dest: end.qp.number,
        q_key: KEY,
        source: SOURCE,
        gid: gid[0],
        gid_high: gid[1],
        mac_low: mac.0,
        mac_high: mac.1,
        hop_limit: 64,
        ..UdWqe::default()
    }
}

impl End {
    pub(super) fn post(&mut self, lan: &mut Lan, words: &[u64]) {
        lan.machines[self.at].post_words(&mut self.qp, words);
        lan.machines[self.at].ring_sq(&self.qp);
    }

    fn send(&mut self, lan: &mut Lan, wqe: UdWqe, bytes: u32) {
        let sges: &[Sge] = &[self.mr.sge(0, bytes)];
        self.post(lan, &ud_words(wqe, sges));
        lan.settle();
    }

    pub(super) fn recv(&mut self, lan: &mut Lan, wr_id: u64) {
        let sge = self.mr.sge(0x8000, 5000);
        lan.machines[self.at].recv(&mut self.qp, wr_id, &[sge]);
    }

    pub(super) fn done(&mut self, lan: &mut Lan) -> Vec<Cqe> {
        lan.machines[self.at].drain(&mut self.cq)
    }

    fn got(&self, lan: &Lan, bytes: usize) -> Vec<u8> {
        let memory = &lan.machines[self.at].memory;
        memory.bytes(self.mr.addr + 0x8000, GRH + bytes)
    }
}

fn count(lan: &Lan, at: usize, counter: Counter) -> u64 {
    lan.machines[at].f.counter(counter)
}

/// A frame from the first to the second, which would take it.
fn frame(lan: &mut Lan, a: &mut End, b: &End, bytes: u32) -> Vec<u8> {
    frame_of(lan, a, to(b, 1), bytes)
}

/// The frame of a datagram.
fn frame_of(lan: &mut Lan, a: &mut End, wqe: UdWqe, bytes: u32) -> Vec<u8> {
    a.post(lan, &ud_words(wqe, &[a.mr.sge(0, bytes)]));
    lan.machines[a.at].settle();
    a.done(lan);
    let frames = &mut lan.machines[a.at].f.host_mut().frames;
    assert_eq!(frames.len(), 1);
    frames.remove(0)
}

fn datagrams_between_machines() {
    let (mut lan, mut a, mut b) = pair();
    for (i, bytes) in [0, 1, 333, 1024, 4096].into_iter().enumerate() {
        let data = pattern(bytes, i as u64);
        let memory = lan.machines[0].memory.clone();
        memory.set_bytes(a.mr.addr, &data);
        for (opcode, imm) in [(work::SEND, 0), (work::SEND_IMM, 0x1234_5678)] {
            b.recv(&mut lan, 5);
            let wqe = UdWqe {
                opcode,
                imm,
                flags: send_flags::SIGNALED | send_flags::SOLICITED,
                traffic_class: 0x68,
                ..to(&b, 6)
            };
            a.send(&mut lan, wqe, bytes as u32);
            let sent = a.done(&mut lan);
            assert_eq!((sent.len(), sent[0].status, sent[0].wr_id), (1, 0, 6));
            let got = b.done(&mut lan);
            assert_eq!((got.len(), got[0].status, got[0].wr_id), (1, 0, 5));
            assert_eq!(got[0].bytes as usize, GRH + bytes);
            assert_eq!((got[0].src, got[0].imm), (a.qp.number.raw(), imm));
            let flags = match opcode {
                work::SEND_IMM => cqe_flags::IMM,
                _ => 0,
            };
            let all = cqe_flags::RECV | cqe_flags::GRH | cqe_flags::IPV4 | cqe_flags::SOLICITED;
            assert_eq!(got[0].flags, all | flags);
            let got = b.got(&lan, bytes);
            assert_eq!(&got[GRH..], &data[..]);
            // The IPv4 header, at the end.
            assert_eq!(
                (&got[20..22], got[28], got[29]),
                (&[0x45, 0x68][..], 64, 17)
            );
            assert_eq!(&got[32..40], [10, 0, 0, 1, 10, 0, 0, 2]);
        }
    }
    assert_eq!(count(&lan, 0, Counter::FramesOut), 10);
    assert_eq!(count(&lan, 1, Counter::FramesIn), 10);
    assert_eq!(count(&lan, 0, Counter::Dropped), 0);
    let sent = count(&lan, 0, Counter::SendBytes);
    assert_eq!(sent, 2 * (1 + 333 + 1024 + 4096));
    assert_eq!(count(&lan, 1, Counter::SendBytes), 0, "not moved twice");
    // Inline data, and the way back.
    a.recv(&mut lan, 7);
    b.post(&mut lan, &ud_inline(to(&a, 8), b"inline"));
    lan.settle();
    assert_eq!(a.done(&mut lan)[0].src, b.qp.number.raw());
    assert_eq!(&a.got(&lan, 6)[GRH..], b"inline");
}

fn datagrams_between_ipv6_addresses() {
    let (mut lan, mut a, mut b) = pair();
    lan.machines[0].set_gid(7, FIRST_V6).unwrap();
    lan.machines[1].set_gid(9, SECOND_V6).unwrap();
    let mut wqe = UdWqe {
        source: 7,
        gid: SECOND_V6[0],
        gid_high: SECOND_V6[1],
        traffic_class: 0xb8,
        hop_limit: 0,
        ..to(&b, 6)
    };
    wqe.set_flow_label(0xa_5c31);
    b.recv(&mut lan, 5);
    a.send(&mut lan, wqe, 9);
    assert_eq!(b.done(&mut lan).len(), 1);
    let got = b.got(&lan, 9);
    let bytes = 8 + 12 + 8 + 12 + 4;
    assert_eq!(got[..8], [0x6b, 0x8a, 0x5c, 0x31, 0, bytes, 17, 1]);
    let gids = [FIRST_V6, SECOND_V6].concat();
    let gids: Vec<u8> = gids.into_iter().flat_map(u64::to_le_bytes).collect();
    assert_eq!(got[8..40], gids);
    // Between an IPv4 and an IPv6 address there is no frame.
    a.done(&mut lan);
    let wqe = UdWqe {
        source: SOURCE,
        ..wqe
    };
    a.send(&mut lan, wqe, 9);
    assert_eq!(a.done(&mut lan)[0].status, 0);
    assert_eq!(count(&lan, 0, Counter::Dropped), 1);
    assert_eq!(lan.frames, 1);
}

fn a_datagram_that_nobody_takes() {
    let (mut lan, mut a, mut b) = pair();
    let silent = end(&mut lan, 1);
    let m = &mut lan.machines[1];
    m.set_state(silent.qp.number, qp_state::RESET).unwrap();
    let spec = Machine::spec(m.pd(), &b.cq);
    let rc = m.qp(&spec);
    m.set_state(rc.number, qp_state::INIT).unwrap();
    b.recv(&mut lan, 5);
    let gone = |dest: Number| UdWqe { dest, ..to(&b, 1) };
    for (wqe, counter) in [
        (gone(Number::from_raw(0x77)), Counter::FramesForeign),
        (gone(Number::ADMIN), Counter::FramesForeign),
        (gone(Number::PORT_QP), Counter::FramesForeign),
        (gone(silent.qp.number), Counter::FramesForeign),
        (gone(rc.number), Counter::FramesForeign),
        (
            UdWqe {
                q_key: KEY + 1,
                ..to(&b, 1)
            },
            Counter::Dropped,
        ),
    ] {
        let before = count(&lan, 1, counter);
        a.send(&mut lan, wqe, 8);
        assert_eq!(count(&lan, 1, counter), before + 1, "{wqe:?}");
        assert_eq!(a.done(&mut lan)[0].status, 0);
    }
    assert_eq!(b.done(&mut lan), []);
    // Without a source there is no frame.
    let none = UdWqe {
        source: 3,
        ..to(&b, 1)
    };
    a.send(&mut lan, none, 8);
    assert_eq!(count(&lan, 0, Counter::Dropped), 1);
    // The receive was kept; without one it is dropped.
    for (received, dropped) in [(1, 1), (0, 2)] {
        a.send(&mut lan, to(&b, 1), 8);
        assert_eq!(b.done(&mut lan).len(), received);
        assert_eq!(count(&lan, 1, Counter::Dropped), dropped);
    }
    assert_eq!(lan.machines[1].query_qp(b.qp.number).state, qp_state::RTS);
}

fn frames_of_others_pass() {
    let (mut lan, mut a, mut b) = pair();
    b.recv(&mut lan, 5);
    let right = frame(&mut lan, &mut a, &b, 8);
    let changes: &[(usize, &[u8])] = &[
        (5, &[9]),                  // Another device.
        (0, &[0xff; 6]),            // Broadcast of an address of one machine.
        (12, &[0x08, 0x06]),        // ARP.
        (IP, &[0x46]),              // Options.
        (IP + 6, &[0x20, 0]),       // The first fragment.
        (IP + 6, &[0, 1]),          // Another one.
        (IP + 9, &[6]),             // TCP.
        (IP + 19, &[9]),            // Another address.
        (IP + 16, &[239, 1, 2, 3]), // A group.
        (UDP + 2, &[0x12, 0xb6]),   // Another port.
    ];
    for (at, bytes) in changes {
        let mut other = right.clone();
        other[*at..at + bytes.len()].copy_from_slice(bytes);
        assert!(!lan.deliver(1, &other), "{at}");
        assert_eq!(count(&lan, 1, Counter::FramesIn), 0);
    }
    // One that claims to be from here.
    let mut own = right.clone();
    own[IP + 15] = 2;
    assert!(lan.deliver(1, &own));
    assert_eq!(count(&lan, 1, Counter::FramesForeign), 1);
    assert_eq!(b.done(&mut lan), []);
    assert!(lan.deliver(1, &right));
    assert_eq!(b.done(&mut lan).len(), 1);
}

fn a_frame_with_a_wrong_bit() {
    let (mut lan, mut a, mut b) = pair();
    let right = frame(&mut lan, &mut a, &b, 8);
    b.recv(&mut lan, 5);
    // What routers change: the source MAC, the class, the time to live, both checksums, FECN and
    // BECN with the reserved bits.
    let changes = |at: usize| {
        matches!(at, 6..12)
            || [IP + 1, IP + 8, IP + 10, IP + 11, UDP + 6, UDP + 7, BTH + 4].contains(&at)
    };
    for bit in 0..right.len() * 8 {
        let mut wrong = right.clone();
        wrong[bit / 8] ^= 1 << (bit % 8);
        let in_before = count(&lan, 1, Counter::FramesIn);
        lan.deliver(1, &wrong);
        let got = b.done(&mut lan);
        assert_eq!(got.len(), usize::from(changes(bit / 8)), "bit {bit}");
        if !got.is_empty() {
            b.recv(&mut lan, 5);
        }
        let of = [
            Counter::FramesForeign,
            Counter::FramesMalformed,
            Counter::FramesCorrupt,
        ];
        let refused: u64 = of.map(|of| count(&lan, 1, of)).iter().sum();
        let taken = count(&lan, 1, Counter::FramesIn) - in_before;
        assert!(taken <= 1 && refused <= count(&lan, 1, Counter::FramesIn));
    }
    assert!(count(&lan, 1, Counter::FramesCorrupt) > 8 * 20);
    assert_eq!(count(&lan, 1, Counter::Dropped), 0);
}

fn a_frame_that_is_cut() {
    let (mut lan, mut a, mut b) = pair();
    b.recv(&mut lan, 5);
    let right = frame(&mut lan, &mut a, &b, 100);
    for bytes in 0..right.len() {
        lan.deliver(1, &right[..bytes]);
        // Also in what IP and UDP say.
        let mut cut = right[..bytes].to_vec();
        if let Some(length) = bytes.checked_sub(UDP + 8) {
            cut[IP + 2..IP + 4].copy_from_slice(&(length as u16 + 28).to_be_bytes());
            cut[UDP + 4..UDP + 6].copy_from_slice(&(length as u16 + 8).to_be_bytes());
            lan.deliver(1, &cut);
        }
    }
    assert_eq!(b.done(&mut lan), []);
    // Padding of Ethernet is no part of it.
    let mut padded = right;
    padded.extend([0; 20]);
    assert!(lan.deliver(1, &padded));
    assert_eq!(b.done(&mut lan).len(), 1);
    // The longest that is ever sent has 4096 bytes.
    padded.extend([0; 9000]);
    assert!(lan.deliver(1, &padded));
    assert!(count(&lan, 1, Counter::FramesMalformed) > 0);
    assert_eq!(b.done(&mut lan), []);
}

fn random_frames() {
    with_seeds("random_frames", 20, |rng| {
        let (mut lan, mut a, mut b) = pair();
        let right = frame(&mut lan, &mut a, &b, 64);
        for _ in 0..300 {
            let mut wrong = right.clone();
            for _ in 0..1 + rng.below(8) {
                let at = rng.below(wrong.len() as u64) as usize;
                wrong[at] = rng.odd() as u8;
            }
            wrong.truncate(rng.below(wrong.len() as u64 * 2) as usize);
            lan.deliver(1, &wrong);
        }
        b.recv(&mut lan, 5);
        assert!(lan.deliver(1, &right));
        assert_eq!(b.done(&mut lan).len(), 1);
        assert!(count(&lan, 1, Counter::FramesIn) > 50);
    });
}

fn attach(lan: &mut Lan, end: &End) {
    let context = GidContext {
        gid: GROUP[0],
        gid_high: GROUP[1],
    };
    let m = &mut lan.machines[end.at];
    m.with_context(kind::QP, verb::ATTACH, end.qp.number, 0, &context.encode())
        .unwrap();
}

/// A SEND to the group.
fn to_group(member: &End) -> UdWqe {
    UdWqe {
        dest: Number::GROUP,
        gid: GROUP[0],
        gid_high: GROUP[1],
        mac_low: u32::from_le_bytes([1, 0, 0x5e, 1]),
        mac_high: u16::from_le_bytes([2, 3]),
        ..to(member, 6)
    }
}

fn a_group_on_the_network() {
    let (mut lan, mut a, mut b) = pair();
    let (mut c, mut d) = (end(&mut lan, 1), end(&mut lan, 1));
    let wqe = to_group(&b);
    // The group has no members.
    lan.sent = Some(Vec::new());
    a.send(&mut lan, wqe, 8);
    assert_eq!(count(&lan, 1, Counter::FramesIn), 0);
    assert_eq!(count(&lan, 0, Counter::Dropped), 0, "it has left");
    let frame = lan.sent.take().unwrap().remove(0).1;
    for end in [&mut a, &mut b, &mut c] {
        attach(&mut lan, end);
    }
    for end in [&mut a, &mut b, &mut c, &mut d] {
        end.recv(&mut lan, 5);
    }
    a.done(&mut lan);
    a.send(&mut lan, wqe, 8);
    let own = a.done(&mut lan);
    assert_eq!(own.len(), 2, "its own copy, and that it was sent");
    for (end, copies) in [(&mut b, 1), (&mut c, 1), (&mut d, 0)] {
        let got = end.done(&mut lan);
        assert_eq!(got.len(), copies);
        assert!(got.iter().all(|cqe| cqe.src == a.qp.number.raw()));
    }
    // It is the network device's too.
    b.recv(&mut lan, 5);
    assert!(!lan.deliver(1, &frame));
    assert_eq!(b.done(&mut lan).len(), 1);
    // To one queue pair by the address of a group.
    let mut to_one = frame.clone();
    to_one[BTH + 5..BTH + 8].copy_from_slice(&[0, 0, 3]);
    let before = count(&lan, 1, Counter::FramesIn);
    assert!(!lan.deliver(1, &to_one));
    assert_eq!(count(&lan, 1, Counter::FramesIn), before);
}

fn a_group_beyond_a_turn() {
    let mut lan = Lan::new(2);
    let config = Config {
        turn_bytes: 4096,
        ..Config::default()
    };
    lan.machines[0] = Machine::on_network_with(0, config);
    let (mut a, mut b) = (end(&mut lan, 0), end(&mut lan, 1));
    let mut c = end(&mut lan, 0);
    for end in [&mut b, &mut c] {
        attach(&mut lan, end);
        end.recv(&mut lan, 5);
        end.recv(&mut lan, 5);
    }
    // The frame takes all bytes of a turn.
    a.post(&mut lan, &ud_words(to_group(&b), &[a.mr.sge(0, 4096)]));
    for _ in 0..8 {
        lan.machines[0].f.run(1);
    }
    assert_eq!(lan.machines[0].f.host().frames.len(), 1);
    lan.settle();
    for end in [&mut a, &mut b, &mut c] {
        assert_eq!(end.done(&mut lan).len(), 1);
    }
    assert_eq!(count(&lan, 0, Counter::SendBytes), 2 * 4096);
}

fn long_frames_to_a_group() {
    let (mut lan, mut a, mut b) = pair();
    let mut long = frame_of(&mut lan, &mut a, to_group(&b), 8);
    long.resize(5000, 0);
    lan.deliver(1, &long);
    assert_eq!(count(&lan, 1, Counter::FramesIn), 0, "no member");
    attach(&mut lan, &b);
    b.recv(&mut lan, 5);
    lan.deliver(1, &long);
    assert_eq!(count(&lan, 1, Counter::FramesMalformed), 1);
    assert_eq!(b.done(&mut lan), []);
}

fn a_sender_waits_for_room() {
    let (mut lan, mut a, b) = pair();
    lan.machines[0].f.host_mut().room = 3;
    for i in 0..8 {
        a.post(&mut lan, &ud_words(to(&b, i), &[a.mr.sge(0, 8)]));
    }
    lan.machines[0].settle();
    let mut done: Vec<u64> = Vec::new();
    for sent in [3, 3, 2] {
        let host = lan.machines[0].f.host_mut();
        assert_eq!(host.frames.len(), sent);
        // A call without room changes nothing.
        host.woken = true;
        lan.machines[0].settle();
        let host = lan.machines[0].f.host_mut();
        assert_eq!(host.frames.len(), sent);
        host.frames.clear();
        host.woken = true;
        done.extend(a.done(&mut lan).iter().map(|cqe| cqe.wr_id));
        lan.machines[0].settle();
    }
    assert_eq!(done, (0..8).collect::<Vec<_>>());
    // One that is reset does not wait any more.
    for i in 0..5 {
        a.post(&mut lan, &ud_words(to(&b, i), &[a.mr.sge(0, 8)]));
    }
    lan.machines[0].settle();
    let m = &mut lan.machines[0];
    m.set_state(a.qp.number, qp_state::RESET).unwrap();
    a.qp.sq_tail = 0;
    ud_start(m, a.qp.number, KEY);
    m.f.host_mut().frames.clear();
    m.f.host_mut().woken = true;
    m.settle();
    assert_eq!(m.f.host().frames.len(), 0);
    a.send(&mut lan, to(&b, 1), 8);
    assert_eq!(a.done(&mut lan).last().unwrap().wr_id, 1);
}

fn waiting_frames_are_bounded() {
    let (mut lan, mut a, b) = pair();
    let right = frame(&mut lan, &mut a, &b, 8);
    let to_all = frame_of(&mut lan, &mut a, to_group(&b), 8);
    let mut ends = vec![b];
    ends.extend((0..5).map(|_| end(&mut lan, 1)));
    for end in &ends {
        attach(&mut lan, end);
    }
    lan.machines[1].f.set_stall(true);
    for end in &ends {
        let mut frame = right.clone();
        let [_, number @ ..] = end.qp.number.raw().to_be_bytes();
        frame[BTH + 5..BTH + 8].copy_from_slice(&number);
        for _ in 0..300 {
            assert!(lan.deliver(1, &frame));
        }
    }
    let overflowed = 1800 - 1024;
    assert_eq!(count(&lan, 1, Counter::FramesOverflowed), overflowed);
    lan.deliver(1, &to_all);
    let copies = ends.len() as u64;
    assert_eq!(
        count(&lan, 1, Counter::FramesOverflowed),
        overflowed + copies
    );
    lan.machines[1].f.set_stall(false);
    lan.settle();
    let dropped = count(&lan, 1, Counter::Dropped);
    assert_eq!(dropped, 256, "those whose checksum is right");
    assert_eq!(count(&lan, 1, Counter::FramesCorrupt), 768);
    // There is room again.
    assert!(lan.deliver(1, &right));
    assert_eq!(count(&lan, 1, Counter::Dropped), dropped + 1);
}

fn a_flood_takes_its_share() {
    let (mut lan, mut a, b) = pair();
    let right = frame(&mut lan, &mut a, &b, 8);
    // Another queue pair, of another page, sends to itself.
    let m = &mut lan.machines[1];
    let (pd, cq) = (m.pd(), m.cq(8));
    let spec = QpSpec {
        page: 3,
        log_sq: 8,
        ..ud_spec(pd, &cq)
    };
    let mut qp = m.qp(&spec);
    ud_start(m, qp.number, KEY);
    let mr = m.mr(pd, 4096);
    for i in 0..64 {
        let wqe = UdWqe {
            dest: qp.number,
            gid: GID[0],
            gid_high: GID[1],
            ..to(&b, i)
        };
        m.post_words(&mut qp, &ud_words(wqe, &[mr.sge(0, 8)]));
    }
    let before = m.f.counter(Counter::SendWqes);
    m.f.set_stall(true);
    m.ring_sq(&qp);
    for _ in 0..256 {
        m.f.frame(&right);
    }
    m.f.set_stall(false);
    m.f.run(6);
    let sent = m.f.counter(Counter::SendWqes) - before;
    assert_eq!(sent, 48);
    let dropped = m.f.counter(Counter::Dropped) - sent;
    assert_eq!(dropped, 48, "frames");
}

fn a_reset_drops_waiting_frames() {
    let (mut lan, mut a, mut b) = pair();
    let right = frame(&mut lan, &mut a, &b, 8);
    // The core still serves commands in a turn of their own.
    let m = &mut lan.machines[1];
    for _ in 0..200 {
        m.f.frame(&right);
    }
    m.set_state(b.qp.number, qp_state::RESET).unwrap();
    ud_start(m, b.qp.number, KEY);
    b.qp.rq_tail = 0;
    let left = m.f.counter(Counter::Dropped);
    assert!(left < 200, "commands have every second turn");
    b.recv(&mut lan, 5);
    lan.settle();
    assert_eq!(b.done(&mut lan), []);
    assert!(lan.deliver(1, &right));
    assert_eq!(b.done(&mut lan).len(), 1);
    // They take no room.
    let m = &mut lan.machines[1];
    for _ in 0..20 {
        for _ in 0..200 {
            m.f.frame(&right);
        }
        m.set_state(b.qp.number, qp_state::RESET).unwrap();
        ud_start(m, b.qp.number, KEY);
    }
    assert_eq!(m.f.counter(Counter::FramesOverflowed), 0);
    // One that is destroyed.
    lan.machines[1].f.frame(&right);
    let m = &mut lan.machines[1];
    m.destroy(kind::QP, b.qp.number).unwrap();
    assert!(lan.deliver(1, &right));
    assert_eq!(count(&lan, 1, Counter::FramesForeign), 1);
}

fn without_a_link() {
    let (mut lan, mut a, mut b) = pair();
    b.recv(&mut lan, 5);
    lan.machines[0].f.set_link_down(true);
    a.send(&mut lan, to(&b, 1), 8);
    assert_eq!(a.done(&mut lan)[0].status, 0);
    assert_eq!((lan.frames, count(&lan, 0, Counter::Dropped)), (0, 1));
    lan.machines[0].f.set_link_down(false);
    let right = frame(&mut lan, &mut a, &b, 8);
    lan.machines[1].f.set_link_down(true);
    assert!(lan.deliver(1, &right));
    assert_eq!(count(&lan, 1, Counter::FramesIn), 0);
    lan.machines[1].f.set_link_down(false);
    assert!(lan.deliver(1, &right));
    assert_eq!(b.done(&mut lan).len(), 1);
}

fn a_port_without_a_network() {
    let (mut lan, mut a, b) = pair();
    assert_eq!(lan.machines[0].f.reg_read(offset::MAC_HI) >> 16, 1);
    let right = frame(&mut lan, &mut a, &b, 8);
    // Off, or gone.
    lan.machines[1].f.set_vanish(true);
    assert!(!lan.deliver(1, &right));
    lan.machines[1] = Machine::with(Config::default());
    assert_eq!(lan.machines[1].f.reg_read(offset::MAC_HI) >> 16, 0);
    let m = &mut lan.machines[1];
    m.f.set_mac("52:54:00:00:00:02").unwrap();
    m.set_gid(SOURCE.into(), gid_at(1)).unwrap();
    assert!(!lan.deliver(1, &right));
    let mut b = end(&mut lan, 1);
    b.send(&mut lan, to(&a, 1), 8);
    assert_eq!(b.done(&mut lan)[0].status, 0);
    assert_eq!(count(&lan, 1, Counter::Dropped), 1);
    assert!(lan.machines[1].f.host().frames.is_empty());
}
