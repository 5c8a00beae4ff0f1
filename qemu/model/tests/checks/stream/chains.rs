// SPDX-License-Identifier: GPL-2.0
//! Chains: what the manual says of descriptors, statuses and interrupts.

use super::checks;
use crate::harness::*;
use qpair_abi::stream::chain::control::*;
use qpair_abi::stream::chain::offset::*;
use qpair_abi::stream::chain::status;
use qpair_abi::stream::chain::DELAY_NS;
use qpair_abi::stream::counters::Counter;
use qpair_abi::stream::regs;
use qpair_abi::stream::Cause;
use qpair_abi::stream::Kind;
use qpair_model::stream::Config;
use qpair_model::stream::Kinds;
use qpair_model::stream::Stream;

checks![
    registers_read_as_documented,
    one_descriptor_that_is_its_own_next_carries_frames,
    the_tail_is_inclusive,
    a_tail_may_move_while_the_channel_works,
    a_frame_takes_several_descriptors_and_buffers,
    the_user_words_of_a_frame_are_carried,
    a_status_is_written_after_the_bytes,
    a_threshold_of_descriptors_interrupts_once,
    a_delay_interrupts_where_the_threshold_is_not_reached,
    causes_that_are_not_enabled_do_not_interrupt,
    a_receiver_without_descriptors_keeps_its_transmitter_waiting,
];

pub fn registers_read_as_documented() {
    let mut w = Wire::new(3, Kinds::Mixed);
    assert_eq!(w.s.reg_read(regs::offset::MAGIC), regs::MAGIC_VALUE);
    assert_eq!(w.s.reg_read(regs::offset::VERSION), 1 << 16);
    assert_eq!(w.s.reg_read(regs::offset::PAIRS), 3);
    assert_eq!(w.s.reg_read(regs::offset::LIMIT_FRAME), 16384);
    assert_eq!(w.s.reg_read(regs::offset::LIMIT_RING), 4096);
    assert_eq!(w.s.reg_read(regs::offset::CTRL), 0);
    assert_eq!(w.s.vectors(), 6);
    let kinds = [0, 1, 2].map(|pair| w.get((pair, RX.1), KIND));
    assert_eq!(kinds, [1, 2, 1]);
    for pair in 0..3 {
        for side in [TX.1, RX.1] {
            assert_eq!(w.get((pair, side), PEER), pair);
            assert_eq!(w.status((pair, side)) & 0xfff, 1, "halted, no cause");
        }
    }
    assert_eq!(w.get((3, TX.1), KIND), 0, "there is no such pair");
    assert_eq!(w.counter(Counter::RegReads), 28);
    w.s.set_vanish(true);
    assert_eq!(w.get(TX, KIND), u32::MAX);
    for pairs in [0, 65] {
        let kinds = Kinds::All(Kind::Chain);
        let host = TestHost::new(Memory::new());
        let made = Stream::new(host, Config { pairs, kinds });
        assert_eq!(made.err().map(|bad| bad.property), Some("channels"));
    }
}

/// The first rung: as U-Boot drives it.
pub fn one_descriptor_that_is_its_own_next_carries_frames() {
    let mut w = Wire::chains();
    let (tx, rx) = (w.chain(1), w.chain(1));
    assert_eq!(w.memory.word(tx), tx);
    let (from, to) = (w.buffer(b"polled"), w.room(64));
    w.start_chain(TX, tx, 0);
    w.start_chain(RX, rx, 0);
    for _ in 0..3 {
        w.link(rx, 0, to, 64, 0);
        w.tail(RX, rx);
        w.link(tx, 0, from, SOF | EOF | 6, 0);
        w.tail(TX, tx);
        w.run();
        assert_eq!(w.linked(tx, 0).status, status::COMPLETE | 6);
        let whole = status::COMPLETE | status::SOF | status::EOF;
        assert_eq!(w.linked(rx, 0).status, whole | 6);
        assert_eq!(w.memory.bytes(to, 6), b"polled");
        assert!(w.idle(TX) && w.idle(RX) && !w.halted(TX));
        w.memory.set_bytes(to, &[0; 6]);
    }
    assert_eq!(w.counter(Counter::Frames), 3);
    assert_eq!(w.counter(Counter::FrameBytes), 18);
    assert_eq!(w.counter(Counter::Descriptors), 6);
}

pub fn the_tail_is_inclusive() {
    let mut w = Wire::chains();
    let (tx, rx) = (w.chain(4), w.chain(4));
    let (from, to) = (w.buffer(&[7; 16]), w.room(64));
    for i in 0..4 {
        w.link(tx, i, from, SOF | EOF | 16, 0);
        w.link(rx, i, to, 64, 0);
    }
    w.start_chain(TX, tx, 0);
    w.start_chain(RX, rx, 0);
    w.tail(RX, rx + 3 * 64);
    assert!(w.idle(TX), "a start alone owns nothing");
    w.tail(TX, tx + 64);
    w.run();
    let done = |w: &Wire, base| [0, 1, 2, 3].map(|i| w.linked(base, i).status != 0);
    assert_eq!(done(&w, tx), [true, true, false, false]);
    assert_eq!(done(&w, rx), [true, true, false, false]);
    assert!(w.idle(TX) && !w.idle(RX));
    assert_eq!(w.get(TX, CURDESC), tx as u32 + 2 * 64);
    // All of a chain, from the current one to the one before it.
    w.link(tx, 0, from, SOF | EOF | 16, 0);
    w.link(tx, 1, from, SOF | EOF | 16, 0);
    w.tail(TX, tx + 64);
    w.run();
    assert_eq!(done(&w, tx), [true; 4]);
    assert_eq!(done(&w, rx), [true; 4]);
    assert!(w.idle(TX) && w.idle(RX));
}

pub fn a_tail_may_move_while_the_channel_works() {
    let mut w = Wire::chains();
    let (tx, rx) = (w.chain(64), w.chain(64));
    let (from, to) = (w.buffer(&[7; 16]), w.room(64));
    for i in 0..64 {
        w.link(tx, i, from, SOF | EOF | 16, 0);
        w.link(rx, i, to, 64, 0);
    }
    w.start_chain(TX, tx, 0);
    w.start_chain(RX, rx, 0);
    w.tail(RX, rx + 63 * 64);
    w.tail(TX, tx + 9 * 64);
    w.s.run(3);
    assert!(!w.idle(TX));
    w.tail(TX, tx + 62 * 64);
    w.run();
    assert_eq!(w.counter(Counter::Frames), 63);
    assert_eq!(w.linked(tx, 63).status, 0);
}

pub fn a_frame_takes_several_descriptors_and_buffers() {
    let mut w = Wire::chains();
    let (tx, rx) = (w.chain(8), w.chain(8));
    let bytes: Vec<u8> = (0..100).collect();
    let (a, b, c) = (
        w.buffer(&bytes[..1]),
        w.buffer(&bytes[1..70]),
        w.buffer(&bytes[70..]),
    );
    w.link(tx, 0, a, SOF | 1, 0);
    w.link(tx, 1, b, 69, 0);
    w.link(tx, 2, c, EOF | 30, 0);
    let to: Vec<u64> = (0..4).map(|_| w.room(40)).collect();
    for (i, addr) in (0..).zip(&to) {
        w.link(rx, i, *addr, 40, 0);
    }
    w.start_chain(TX, tx, 0);
    w.start_chain(RX, rx, 0);
    w.tail(RX, rx + 3 * 64);
    w.tail(TX, tx + 64);
    w.run();
    assert_eq!(w.linked(tx, 1).status, status::COMPLETE | 69);
    assert_eq!(w.linked(rx, 0).status, 0, "the frame has not ended");
    w.tail(TX, tx + 2 * 64);
    w.run();
    let got = [0, 1, 2, 3].map(|i| w.linked(rx, i).status);
    let complete = status::COMPLETE;
    let wanted = [
        complete | status::SOF | 40,
        complete | 40,
        complete | status::EOF | 20,
        0,
    ];
    assert_eq!(got, wanted);
    let found = [(to[0], 40), (to[1], 40), (to[2], 20)];
    let found: Vec<u8> = found
        .into_iter()
        .flat_map(|(at, count)| w.memory.bytes(at, count))
        .collect();
    assert_eq!(found, bytes);
}

pub fn the_user_words_of_a_frame_are_carried() {
    let mut w = Wire::chains();
    let (tx, rx) = (w.chain(2), w.chain(2));
    let (from, to) = (w.buffer(&[1; 8]), w.room(8));
    w.link(tx, 0, from, SOF | 4, 0xaaaa);
    w.link(tx, 1, from, EOF | 4, 0xbbbb);
    w.link(rx, 0, to, 4, 0);
    w.link(rx, 1, to, 4, 0);
    w.start_chain(TX, tx, 0);
    w.start_chain(RX, rx, 0);
    w.tail(RX, rx + 64);
    w.tail(TX, tx + 64);
    w.run();
    let user = |i| {
        let found = w.linked(rx, i);
        [found.app0, found.app1, found.app4]
    };
    assert_eq!(user(0), [0; 3], "not at the start");
    assert_eq!(user(1), [0xaaaa, 0, 0xaaaa], "those of the first buffer");
}

pub fn a_status_is_written_after_the_bytes() {
    let mut w = Wire::chains();
    let (tx, rx) = (w.chain(1), w.chain(1));
    let (from, to) = (w.buffer(&[1; 8]), w.room(8));
    w.link(rx, 0, to, 8, 0);
    w.link(tx, 0, from, SOF | EOF | 8, 1);
    w.start_chain(TX, tx, 0);
    w.start_chain(RX, rx, CH_DONE);
    w.tail(RX, rx);
    w.tail(TX, tx);
    let log = w.log();
    w.run();
    let order = [
        Done::Write(tx + 24, 8),
        Done::Write(to, 8),
        Done::Write(rx + 32, 24),
        Done::Write(rx + 24, 8),
        Done::Raise(1),
    ];
    assert_eq!(*log.borrow(), order);
}

/// A machine in which `count` frames can be sent one by one.
fn prepared(count: u64, control: u32) -> (Wire, u64) {
    let mut w = Wire::chains();
    let (tx, rx) = (w.chain(count), w.chain(count));
    let (from, to) = (w.buffer(&[1; 8]), w.room(8));
    for i in 0..count {
        w.link(tx, i, from, SOF | EOF | 8, 0);
        w.link(rx, i, to, 8, 0);
    }
    w.start_chain(TX, tx, 0);
    w.start_chain(RX, rx, control);
    w.tail(RX, rx + (count - 1) * 64);
    (w, tx)
}

pub fn a_threshold_of_descriptors_interrupts_once() {
    let (mut w, tx) = prepared(16, 3 << 16 | CH_DONE);
    w.tail(TX, tx + 64);
    w.run();
    assert_eq!(w.status(RX) >> 16, 1, "one is left");
    assert!(w.raised().is_empty());
    w.tail(TX, tx + 2 * 64);
    w.run();
    assert_eq!(w.raised(), [1]);
    assert_eq!(w.status(RX), 3 << 16 | CH_DONE, "and why");
    // While the cause is set there is no other message, however many are completed.
    w.tail(TX, tx + 9 * 64);
    w.run();
    assert!(w.raised().is_empty());
    w.set(RX, SR, CH_DELAY | CH_ERROR);
    assert_ne!(
        w.status(RX) & CH_DONE,
        0,
        "only what is written as 1 clears"
    );
    w.set(RX, SR, CH_DONE);
    assert_eq!(w.status(RX) & CH_DONE, 0);
    assert!(w.raised().is_empty());
    w.tail(TX, tx + 12 * 64);
    w.run();
    assert_eq!(w.raised(), [1]);
}

pub fn a_delay_interrupts_where_the_threshold_is_not_reached() {
    let (mut w, tx) = prepared(16, 2 << 24 | 255 << 16 | CH_DONE | CH_DELAY);
    assert_eq!(w.s.host().wake_at, u64::MAX);
    w.tail(TX, tx);
    w.run();
    let began = w.s.host().now;
    assert_eq!(w.s.host().wake_at, began + 2 * DELAY_NS);
    w.pass_time(2 * DELAY_NS - 1);
    assert!(w.raised().is_empty());
    // The age is that of the first completion.
    w.tail(TX, tx + 64);
    w.run();
    w.pass_time(1);
    assert_eq!(w.raised(), [1]);
    assert_eq!(w.status(RX) & (CH_DONE | CH_DELAY), CH_DELAY);
    assert_eq!(w.status(RX) >> 16, 255, "and the count begins again");
    w.set(RX, SR, CH_DELAY);
    w.pass_time(100 * DELAY_NS);
    assert!(w.raised().is_empty(), "nothing came since");
}

pub fn causes_that_are_not_enabled_do_not_interrupt() {
    let (mut w, tx) = prepared(4, 1 << 16);
    w.tail(TX, tx);
    w.run();
    assert_ne!(w.status(RX) & CH_DONE, 0);
    assert!(w.raised().is_empty());
    w.set(RX, CR, RUN | 1 << 16 | CH_DONE);
    assert_eq!(w.raised(), [1], "when it is enabled");
    w.set(RX, CR, RUN | 1 << 16 | CH_DONE);
    assert!(w.raised().is_empty());
    assert_eq!(w.cause(RX), Cause::None);
}

pub fn a_receiver_without_descriptors_keeps_its_transmitter_waiting() {
    let mut w = Wire::chains();
    let (tx, rx) = (w.chain(8), w.chain(8));
    let (from, to) = (w.buffer(&[1; 8]), w.room(8));
    for i in 0..8 {
        w.link(tx, i, from, SOF | EOF | 8, 0);
        w.link(rx, i, to, 8, 0);
    }
    w.start_chain(TX, tx, 0);
    w.tail(TX, tx + 7 * 64);
    w.run();
    let done = |w: &Wire| (0..8).filter(|&i| w.linked(tx, i).status != 0).count();
    assert_eq!(done(&w), 1, "a halted receiver takes no frame");
    w.start_chain(RX, rx, 0);
    w.run();
    assert_eq!(
        done(&w),
        2,
        "one in the store of each, and no descriptor is lost"
    );
    w.tail(RX, rx + 2 * 64);
    w.run();
    assert_eq!(w.counter(Counter::Frames), 3);
    w.tail(RX, rx + 7 * 64);
    w.run();
    assert_eq!(w.counter(Counter::Frames), 8);
    assert_eq!(w.counter(Counter::Drops), 0);
}
