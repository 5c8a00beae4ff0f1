// SPDX-License-Identifier: GPL-2.0
//! Descriptors and registers that make no sense: each has its cause, halts its channel alone, and a
//! restart works. Whatever software writes, turns are bounded.

use super::checks;
use crate::harness::*;
use qpair_abi::stream::block;
use qpair_abi::stream::chain;
use qpair_abi::stream::chain::control::*;
use qpair_abi::stream::chain::status;
use qpair_abi::stream::counters::Counter;
use qpair_abi::stream::headtail;
use qpair_abi::stream::headtail::cmd;
use qpair_abi::stream::Cause;
use qpair_abi::stream::Side;
use qpair_model::stream::Kinds;
use qpair_testkit::with_seeds;

checks![
    a_chain_that_makes_no_sense_halts_with_its_cause,
    a_ring_that_makes_no_sense_halts_with_its_cause,
    a_loop_that_does_not_meet_the_tail_halts,
    a_halt_interrupts_and_leaves_others_alone,
    a_turn_is_bounded,
    any_registers_and_descriptors,
    without_bus_mastering_nothing_is_accessed,
];

/// A chain of four that sends, with `spoil` done to it before it starts.
fn spoiled(spoil: impl Fn(&mut Wire, u64)) -> Cause {
    let mut w = Wire::chains();
    let (tx, rx) = (w.chain(4), w.chain(16));
    let (from, to) = (w.buffer(&[3; 64]), w.room(64));
    let fill = |w: &Wire| {
        for i in 0..4 {
            w.memory.set_word(tx + i * 64, tx + (i + 1) % 4 * 64);
            w.link(tx, i, from, SOF | EOF | 64, 0);
        }
    };
    fill(&w);
    w.start_chain(RX, rx, 0);
    for i in 0..16 {
        w.link(rx, i, to, 64, 0);
    }
    w.tail(RX, rx + 15 * 64);
    w.memory.set_lenient(true);
    w.start_chain(TX, tx, 0);
    spoil(&mut w, tx);
    w.tail(TX, tx + 3 * 64);
    w.run();
    assert!(w.halted(TX));
    assert_eq!(w.counter(Counter::Halts), 1);
    assert_ne!(w.status(TX) & CH_ERROR, 0);
    assert_eq!(w.get(TX, chain::offset::CR) & RUN, 0);
    let cause = w.cause(TX);
    // A halted channel ignores tails.
    let descriptors = w.counter(Counter::Descriptors);
    w.tail(TX, tx + 3 * 64);
    w.run();
    assert_eq!(w.counter(Counter::Descriptors), descriptors);
    // A restart works.
    w.memory.set_lenient(false);
    fill(&w);
    let frames = w.counter(Counter::Frames);
    w.set(TX, chain::offset::SR, CH_ERROR);
    w.start_chain(TX, tx, 0);
    assert_eq!((w.cause(TX), w.status(TX) & CH_ERROR), (Cause::None, 0));
    w.tail(TX, tx + 3 * 64);
    w.run();
    assert_eq!(w.counter(Counter::Frames), frames + 4, "after {cause:?}");
    assert_eq!(w.memory.bytes(to, 64), [3; 64]);
    cause
}

pub fn a_chain_that_makes_no_sense_halts_with_its_cause() {
    let nowhere = 0xdead_0000_0000;
    let set = |at: u64, word: u64| move |w: &mut Wire, tx: u64| w.memory.set_word(tx + at, word);
    let control = |value: u32| set(24, value.into());
    assert_eq!(spoiled(control(SOF | EOF)), Cause::Length);
    assert_eq!(spoiled(control(SOF | EOF | 16385)), Cause::Length);
    assert_eq!(spoiled(control(EOF | 64)), Cause::NoStart);
    assert_eq!(spoiled(control(SOF | 64)), Cause::NoEnd);
    assert_eq!(spoiled(set(8, nowhere)), Cause::Data);
    assert_eq!(spoiled(set(8, u64::MAX - 8)), Cause::Data);
    assert_eq!(
        spoiled(set(24, u64::from(status::COMPLETE) << 32 | 0x0c00_0040)),
        Cause::Complete
    );
    assert_eq!(
        spoiled(|w, tx| w.memory.set_word(tx, nowhere)),
        Cause::Descriptor
    );
    assert_eq!(spoiled(|w, tx| w.memory.set_word(tx, tx + 32)), Cause::Next);
    assert_eq!(
        spoiled(|w, tx| w.memory.set_word(tx, u64::MAX - 63)),
        Cause::Descriptor
    );
    assert_eq!(spoiled(|w, tx| w.tail(TX, tx + 8)), Cause::Tail);
    let current = chain::offset::CURDESC;
    assert_eq!(
        spoiled(|w, tx| w.set(TX, current, tx as u32)),
        Cause::Running
    );
    let msb = chain::offset::CURDESC_MSB;
    assert_eq!(spoiled(|w, _| w.set(TX, msb, 0)), Cause::Running);
    // Of a frame, each buffer is short enough, and their sum is not.
    let long = |w: &mut Wire, tx: u64| {
        let from = w.room(16384);
        w.link(tx, 0, from, SOF | 16384, 0);
        w.link(tx, 1, from, EOF | 1, 0);
    };
    assert_eq!(spoiled(long), Cause::Frame);
    // A descriptor that can only be read.
    let only = |w: &mut Wire, _| {
        let base = w.memory.alloc(64, 64, Grant::Read);
        w.link(base, 0, base, SOF | EOF | 64, 0);
        w.set(TX, chain::offset::CR, 0);
        w.start_chain(TX, base, 0);
    };
    assert_eq!(spoiled(only), Cause::Status);
}

pub fn a_ring_that_makes_no_sense_halts_with_its_cause() {
    let tried = |spoil: &dyn Fn(&mut Wire, u64)| {
        let mut w = Wire::rings();
        let (tx, rx) = (w.ring(TX, 8), w.ring(RX, 8));
        let (from, to) = (w.buffer(&[3; 64]), w.room(2048));
        w.put(tx, 0, from, 64, cmd::EOP | cmd::RS);
        w.put(rx, 0, to, 0, 0);
        w.set(TX, headtail::offset::IMS, 1);
        w.memory.set_lenient(true);
        spoil(&mut w, tx);
        w.set(TX, headtail::offset::TAIL, 1);
        w.run();
        assert!(w.halted(TX));
        assert_eq!(w.raised(), [0]);
        let cause = w.cause(TX);
        w.memory.set_lenient(false);
        w.put(tx, 0, from, 64, cmd::EOP | cmd::RS);
        w.start_ring(TX, tx, 8);
        w.set(RX, headtail::offset::TAIL, 1);
        w.set(TX, headtail::offset::TAIL, 1);
        w.run();
        assert_eq!(w.counter(Counter::Frames), 1, "after {cause:?}");
        cause
    };
    let set = |at: u64, word: u64| move |w: &mut Wire, tx: u64| w.memory.set_word(tx + at, word);
    assert_eq!(tried(&set(0, 0xdead_0000_0000)), Cause::Data);
    assert_eq!(tried(&set(8, 1 << 24)), Cause::Length);
    assert_eq!(tried(&set(8, 1 << 24 | 16385)), Cause::Length);
    let register = |at: u64| move |w: &mut Wire, _: u64| w.set(TX, at, 0);
    assert_eq!(tried(&register(headtail::offset::BAL)), Cause::Running);
    assert_eq!(tried(&register(headtail::offset::BAH)), Cause::Running);
    assert_eq!(tried(&register(headtail::offset::LEN)), Cause::Running);
    assert_eq!(tried(&register(headtail::offset::HEAD)), Cause::Running);
    let tail = |w: &mut Wire, _: u64| w.set(TX, headtail::offset::TAIL, 8);
    assert_eq!(tried(&tail), Cause::Tail);
    let revoked = |w: &mut Wire, _: u64| {
        w.set(TX, headtail::offset::DCTL, 0);
        w.start_ring(TX, 0xdead_0000_0000, 8);
    };
    assert_eq!(tried(&revoked), Cause::Descriptor);
}

/// A chain whose descriptors are all in a loop, with the tail elsewhere. The channel meets its own
/// statuses.
pub fn a_loop_that_does_not_meet_the_tail_halts() {
    let mut w = Wire::chains();
    let (tx, rx) = (w.chain(3), w.chain(64));
    let (from, to) = (w.buffer(&[3; 64]), w.room(64));
    for i in 0..3 {
        w.link(tx, i, from, SOF | EOF | 64, 0);
    }
    for i in 0..64 {
        w.link(rx, i, to, 64, 0);
    }
    w.start_chain(TX, tx, 0);
    w.start_chain(RX, rx, 0);
    w.tail(RX, rx + 63 * 64);
    w.tail(TX, tx + 0x10000);
    w.run();
    assert_eq!((w.halted(TX), w.cause(TX)), (true, Cause::Complete));
    assert_eq!(w.counter(Counter::Frames), 3);
    assert_eq!(w.get(TX, chain::offset::CURDESC), tx as u32);
}

pub fn a_halt_interrupts_and_leaves_others_alone() {
    let mut w = Wire::new(2, Kinds::Mixed);
    let tx = w.chain(1);
    w.start_chain(TX, tx, CH_ERROR);
    w.tail(TX, tx + 1);
    assert_eq!(w.raised(), [0]);
    assert_eq!(w.get(TX, chain::offset::SR) & CH_ERROR, CH_ERROR);
    let (ring_tx, ring_rx) = ((1, Side::Transmit), (1, Side::Receive));
    let (tx, rx) = (w.ring(ring_tx, 8), w.ring(ring_rx, 8));
    let (from, to) = (w.buffer(&[3; 64]), w.room(2048));
    w.put(tx, 0, from, 64, cmd::EOP);
    w.put(rx, 0, to, 0, 0);
    w.set(ring_rx, headtail::offset::TAIL, 1);
    w.set(ring_tx, headtail::offset::TAIL, 1);
    w.run();
    assert_eq!(w.counter(Counter::Frames), 1);
}

/// The most of a turn: descriptors, and a frame read and a frame written.
fn within_a_turn(w: &Wire, before: [u64; 3]) {
    let [descriptors, read, written] = bounds(w);
    assert!(descriptors - before[0] <= 16);
    let most = 16384 + 16 * 128;
    assert!(read - before[1] <= most && written - before[2] <= most);
}

fn bounds(w: &Wire) -> [u64; 3] {
    let counters = [
        Counter::Descriptors,
        Counter::DmaReadBytes,
        Counter::DmaWriteBytes,
    ];
    counters.map(|counter| w.counter(counter))
}

pub fn a_turn_is_bounded() {
    let mut w = Wire::chains();
    let (tx, rx) = (w.chain(512), w.chain(512));
    let (from, to) = (w.buffer(&[3; 16384]), w.room(16384));
    for i in 0..512 {
        // Frames of a hundred descriptors of a byte, and large ones.
        let bytes = if i < 400 { 1 } else { 16384 };
        let start = if i >= 400 || i % 100 == 0 { SOF } else { 0 };
        let end = if i >= 400 || i % 100 == 99 { EOF } else { 0 };
        w.link(tx, i, from, start | end | bytes, 0);
        w.link(rx, i, to, if i < 400 { 1 } else { 16384 }, 0);
    }
    w.start_chain(TX, tx, 0);
    w.start_chain(RX, rx, 0);
    w.tail(RX, rx + 511 * 64);
    w.tail(TX, tx + 511 * 64);
    for _ in 0..10_000 {
        let before = bounds(&w);
        let run = w.s.run(1);
        within_a_turn(&w, before);
        if run == qpair_model::Run::Idle {
            break;
        }
    }
    assert_eq!(w.counter(Counter::Frames), 4 + 112);
}

/// Any writes to registers, with addresses of a small memory full of odd words: nothing panics,
/// no access is outside of what was granted but for faults, and turns are bounded.
pub fn any_registers_and_descriptors() {
    with_seeds("any_registers_and_descriptors", 150, |rng| {
        let mut w = Wire::new(3, Kinds::Mixed);
        w.memory.set_lenient(true);
        let base = w.memory.alloc(4096, 4096, Grant::Write);
        let address = |rng: &mut qpair_testkit::Rng| match rng.below(8) {
            0 => rng.odd(),
            _ => base + rng.below(64) * 64,
        };
        for _ in 0..400 {
            let at = (rng.below32(3), rng.pick(&[Side::Transmit, Side::Receive]));
            let register = rng.below(16) * 4;
            let value = match register {
                chain::offset::CR if rng.one_in(2) => RUN | rng.next() as u32 & !CHAIN_RESET,
                0x28 if rng.one_in(2) => ENABLE,
                0x10 | 0x18 if rng.one_in(2) => rng.below32(16),
                0x08 if w.get(at, chain::offset::KIND) == 2 => 128 * rng.below32(4),
                0x04 | 0x0c | 0x14 if rng.one_in(2) => 0,
                0x38 => rng.below32(4),
                _ => address(rng) as u32,
            };
            w.set(at, register, value);
            let place = base + rng.below(64) * 64;
            let mut words = [0; 8];
            words.fill_with(|| rng.odd());
            words[0] = address(rng);
            words[1] = address(rng);
            if rng.one_in(2) {
                words[3] = u64::from(rng.pick(&[SOF, EOF, SOF | EOF]));
                words[3] |= rng.below(200);
            }
            w.memory.set_words(place, &words);
            if rng.one_in(20) {
                w.s.reg_write(rng.below(0x4000) / 4 * 4, rng.odd() as u32);
            }
            for _ in 0..4 {
                let before = bounds(&w);
                w.s.run(1);
                within_a_turn(&w, before);
            }
            w.s.host_mut().now += rng.below(100_000);
            let _ = w.s.reg_read(block(at.0, at.1) + rng.below(16) * 4);
        }
        w.run();
        w.s.reset();
        assert!(w.status(TX) & 1 != 0);
    });
}

pub fn without_bus_mastering_nothing_is_accessed() {
    let mut w = Wire::chains();
    let tx = w.chain(1);
    w.link(tx, 0, tx, SOF | EOF | 8, 0);
    w.start_chain(TX, tx, 0);
    w.s.host_mut().bus_master = false;
    w.tail(TX, tx);
    w.run();
    assert_eq!(w.cause(TX), Cause::Descriptor);
    assert_eq!(w.counter(Counter::DmaFaults), 1);
}
