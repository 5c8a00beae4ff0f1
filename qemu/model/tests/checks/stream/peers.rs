// SPDX-License-Identifier: GPL-2.0
//! Channels and each other: peers of either kind, turns, and what a channel that stops leaves.

use super::checks;
use crate::harness::*;
use qpair_abi::stream::chain;
use qpair_abi::stream::chain::control::*;
use qpair_abi::stream::counters::Counter;
use qpair_abi::stream::headtail;
use qpair_abi::stream::headtail::cmd;
use qpair_abi::stream::headtail::sta;
use qpair_abi::stream::Cause;
use qpair_abi::stream::Kind;
use qpair_abi::stream::Side;
use qpair_model::stream::Kinds;
use qpair_model::Run;

checks![
    kinds_can_be_mixed,
    a_peer_that_is_no_pair_halts,
    transmitters_of_one_receiver_take_turns,
    a_transmitter_that_stops_lets_others_pass,
    a_peer_may_change_while_a_frame_waits,
    what_a_channel_has_when_it_stops_is_dropped,
    a_reset_returns_to_power_on,
    a_stalled_core_moves_nothing,
];

pub fn kinds_can_be_mixed() {
    let mut w = Wire::new(2, Kinds::Mixed);
    let (ring_tx, ring_rx) = ((1, Side::Transmit), (1, Side::Receive));
    let (tx, rx) = (w.chain(4), w.chain(4));
    let (tx1, rx1) = (w.ring(ring_tx, 8), w.ring(ring_rx, 8));
    let (from, to, to1) = (w.buffer(b"mixed"), w.room(64), w.room(2048));
    w.set(TX, chain::offset::PEER, 1);
    w.set(ring_tx, headtail::offset::PEER, 0);
    w.link(tx, 0, from, SOF | EOF | 5, 77);
    w.link(rx, 0, to, 64, 0);
    w.put(tx1, 0, from, 5, cmd::EOP);
    w.put(rx1, 0, to1, 0, 0);
    w.start_chain(TX, tx, 0);
    w.start_chain(RX, rx, 0);
    w.tail(TX, tx);
    w.tail(RX, rx);
    w.set(ring_rx, headtail::offset::TAIL, 1);
    w.set(ring_tx, headtail::offset::TAIL, 1);
    w.run();
    assert_eq!(w.memory.bytes(to, 5), b"mixed");
    assert_eq!(w.memory.bytes(to1, 5), b"mixed");
    let got = w.found(rx1, 0);
    assert_eq!((got.length, got.sta), (5, sta::DD | sta::EOP));
    let got = w.linked(rx, 0);
    assert_eq!(got.status & chain::status::LENGTH, 5);
    assert_eq!(got.app0, 0, "a ring has no user words");
    assert_eq!(w.get(ring_rx, headtail::offset::PEER), 1);
    w.set(ring_rx, headtail::offset::PEER, 0);
    assert_eq!(
        w.get(ring_rx, headtail::offset::PEER),
        1,
        "of a receive channel its own"
    );
}

pub fn a_peer_that_is_no_pair_halts() {
    let mut w = Wire::chains();
    let tx = w.chain(1);
    let from = w.buffer(&[1; 8]);
    w.link(tx, 0, from, SOF | EOF | 8, 0);
    w.set(TX, chain::offset::PEER, 1);
    w.start_chain(TX, tx, CH_ERROR);
    assert!(!w.halted(TX));
    w.tail(TX, tx);
    w.run();
    assert_eq!((w.halted(TX), w.cause(TX)), (true, Cause::Peer));
    assert_eq!(w.raised(), [0]);
    assert_eq!(w.counter(Counter::Drops), 1);
}

/// `pairs` chains whose transmitters all send to pair 0, each with `count` frames.
fn many(pairs: u32, count: u64) -> (Wire, u64) {
    let mut w = Wire::new(pairs, Kinds::All(Kind::Chain));
    let rx = w.chain(256);
    let to = w.room(8);
    for i in 0..256 {
        w.link(rx, i, to, 8, 0);
    }
    w.start_chain(RX, rx, 0);
    for pair in 0..pairs {
        let at = (pair, Side::Transmit);
        let (tx, from) = (w.chain(count), w.buffer(&[pair as u8; 8]));
        for i in 0..count {
            w.link(tx, i, from, SOF | EOF | 8, pair);
        }
        w.set(at, chain::offset::PEER, 0);
        w.start_chain(at, tx, 0);
        w.tail(at, tx + (count - 1) * 64);
    }
    (w, rx)
}

/// The pairs that frames came from, in order.
fn senders(w: &Wire, rx: u64, count: u64) -> Vec<u32> {
    (0..count).map(|i| w.linked(rx, i).app0).collect()
}

pub fn transmitters_of_one_receiver_take_turns() {
    let (mut w, rx) = many(4, 16);
    w.run();
    w.tail(RX, rx + 63 * 64);
    w.run();
    let from = senders(&w, rx, 64);
    assert_eq!(w.counter(Counter::Frames), 64);
    for four in from.chunks(4) {
        let mut four = four.to_vec();
        four.sort();
        assert_eq!(four, [0, 1, 2, 3], "{from:?}");
    }
}

pub fn a_transmitter_that_stops_lets_others_pass() {
    let (mut w, rx) = many(3, 4);
    w.run();
    w.tail(RX, rx);
    // The frame in the receiver's store is taken; then the next in order is stopped.
    for pair in 0..2 {
        w.set((pair, Side::Transmit), chain::offset::CR, 0);
    }
    w.tail(RX, rx + 15 * 64);
    w.run();
    let from = senders(&w, rx, w.counter(Counter::Frames));
    assert_eq!(from.iter().filter(|&&pair| pair == 2).count(), 4);
}

pub fn a_peer_may_change_while_a_frame_waits() {
    let (mut w, rx) = many(3, 4);
    let (other, to) = (w.chain(8), w.room(8));
    for i in 0..8 {
        w.link(other, i, to, 8, 0);
    }
    let at = (1, Side::Receive);
    w.start_chain(at, other, 0);
    w.tail(at, other + 7 * 64);
    w.run();
    for pair in [1, 2] {
        w.set((pair, Side::Transmit), chain::offset::PEER, 1);
    }
    w.run();
    assert!(w.counter(Counter::Frames) >= 6, "those that waited");
    w.tail(RX, rx + 15 * 64);
    w.run();
    assert_eq!(w.counter(Counter::Frames), 12);
    assert_eq!(w.counter(Counter::Drops), 0);
}

pub fn what_a_channel_has_when_it_stops_is_dropped() {
    let mut w = Wire::chains();
    let (tx, rx) = (w.chain(8), w.chain(8));
    let (from, to) = (w.buffer(&[1; 8]), w.room(8));
    for i in 0..8 {
        w.link(tx, i, from, SOF | EOF | 8, 0);
        w.link(rx, i, to, 4, 0);
    }
    w.start_chain(TX, tx, 0);
    w.start_chain(RX, rx, 0);
    // One frame is half written, another waits behind it.
    w.tail(TX, tx + 64);
    w.tail(RX, rx);
    w.run();
    w.set(RX, chain::offset::CR, 0);
    assert_eq!(w.get(RX, chain::offset::DROPS), 1);
    w.set(TX, chain::offset::CR, 0);
    assert_eq!(w.get(TX, chain::offset::DROPS), 1);
    assert_eq!(w.counter(Counter::Drops), 2);
    assert_eq!(w.cause(TX), Cause::None, "software stopped it");
    // Both begin anew, where software says.
    w.start_chain(RX, rx + 2 * 64, 0);
    w.start_chain(TX, tx + 2 * 64, 0);
    w.tail(RX, rx + 3 * 64);
    w.tail(TX, tx + 2 * 64);
    w.run();
    let got = [2, 3].map(|i| w.linked(rx, i).status >> 24 & 0xf);
    assert_eq!(got, [8, 4], "a start and an end");
    // A channel's own reset: everything but the others.
    w.set(TX, chain::offset::PEER, 0);
    w.set(TX, chain::offset::CR, CHAIN_RESET | 5 << 16);
    assert_eq!(
        (w.status(TX), w.get(TX, chain::offset::CR)),
        (1 << 16 | 1, 0)
    );
    assert_eq!(w.get(TX, chain::offset::CURDESC), 0);
    assert!(!w.halted(RX));
}

pub fn a_reset_returns_to_power_on() {
    let mut w = Wire::new(2, Kinds::Mixed);
    let tx = w.chain(64);
    let from = w.buffer(&[1; 8]);
    for i in 0..64 {
        w.link(tx, i, from, SOF | EOF | 8, 0);
    }
    let at = (1, Side::Transmit);
    let ring = w.ring(at, 64);
    w.put(ring, 0, from, 8, cmd::EOP);
    w.set(at, headtail::offset::IMS, 1);
    w.start_chain(TX, tx, 1 << 24 | 200 << 16 | CH_DELAY);
    w.tail(TX, tx + 63 * 64);
    w.s.run(1);
    w.s.reg_write(8, 2);
    assert_eq!(w.s.host().wake_at, u64::MAX);
    assert_eq!(w.s.run(8), Run::Idle);
    assert!(w.s.counters().iter().all(|&count| count == 0));
    for channel in [TX, RX, at] {
        assert_eq!(w.status(channel) & 0xffff, 1);
    }
    assert_eq!(w.get(TX, chain::offset::CR), 0);
    assert_eq!(w.get(at, headtail::offset::BAL), 0);
    assert_eq!(w.get(at, headtail::offset::IMS), 0);
    w.set(at, headtail::offset::DCTL, FLUSH | ENABLE);
    assert!(w.halted(at));
}

pub fn a_stalled_core_moves_nothing() {
    let (mut w, _) = many(1, 4);
    w.s.set_stall(true);
    assert_eq!(w.s.run(8), Run::Idle);
    assert_eq!(w.counter(Counter::Descriptors), 0);
    w.s.host_mut().woken = false;
    w.s.set_stall(false);
    assert!(w.s.host().woken);
    w.run();
    let descriptors = w.counter(Counter::Descriptors);
    assert_eq!(descriptors, 2, "the receiver has none");
}
