// SPDX-License-Identifier: GPL-2.0
//! Rings with a head and a tail: what the manual says of descriptors, write-backs and interrupts.

use super::checks;
use crate::harness::*;
use qpair_abi::stream::counters::Counter;
use qpair_abi::stream::headtail::cmd::*;
use qpair_abi::stream::headtail::offset::*;
use qpair_abi::stream::headtail::sta;
use qpair_abi::stream::Cause;

checks![
    head_equal_to_tail_owns_nothing,
    a_ring_wraps,
    only_what_asks_is_written_back,
    a_received_frame_spans_buffers,
    a_write_back_keeps_the_address_and_comes_after_the_bytes,
    the_message_disables_interrupts,
    messages_keep_their_interval,
    a_frame_is_dropped_where_software_asks_for_it,
    registers_that_describe_no_ring_are_refused,
];

fn send(w: &mut Wire, base: u64, index: u64, addr: u64, bytes: u16) {
    w.put(base, index, addr, bytes, EOP | RS);
    w.set(TX, TAIL, (index + 1) as u32);
    w.run();
}

pub fn head_equal_to_tail_owns_nothing() {
    let mut w = Wire::rings();
    let (tx, rx) = (w.ring(TX, 8), w.ring(RX, 8));
    let (from, to) = (w.buffer(&[5; 60]), w.room(2048));
    for i in 0..8 {
        w.put(tx, i, from, 60, EOP | RS);
        w.put(rx, i, to, 0, 0);
    }
    w.run();
    assert!(w.idle(TX) && w.idle(RX));
    assert_eq!(w.counter(Counter::Descriptors), 0);
    w.set(RX, TAIL, 7);
    w.set(TX, TAIL, 3);
    w.run();
    let done = |base, w: &Wire| (0..8).filter(|&i| w.found(base, i).sta != 0).count();
    assert_eq!(
        (done(tx, &w), done(rx, &w)),
        (3, 3),
        "the tail is exclusive"
    );
    assert_eq!((w.get(TX, HEAD), w.get(RX, HEAD)), (3, 3));
    assert!(w.idle(TX) && !w.idle(RX));
    w.set(TX, TAIL, 3);
    w.run();
    assert_eq!(done(tx, &w), 3);
}

pub fn a_ring_wraps() {
    let mut w = Wire::rings();
    let (tx, rx) = (w.ring(TX, 24), w.ring(RX, 8));
    let (from, to) = (w.buffer(&[5; 60]), w.room(2048));
    for i in 0..100u64 {
        w.put(rx, i % 8, to, 0, 0);
        w.set(RX, TAIL, (i as u32 + 1) % 8);
        w.put(tx, i % 24, from, 60, EOP | RS);
        w.set(TX, TAIL, (i as u32 + 1) % 24);
        w.run();
        assert_eq!(w.found(rx, i % 8).sta, sta::DD | sta::EOP);
        assert_eq!(w.found(tx, i % 24).sta, sta::DD);
    }
    assert_eq!((w.get(TX, HEAD), w.get(RX, HEAD)), (100 % 24, 100 % 8));
}

pub fn only_what_asks_is_written_back() {
    let mut w = Wire::rings();
    let (tx, rx) = (w.ring(TX, 8), w.ring(RX, 8));
    let (from, to) = (w.buffer(&[5; 60]), w.room(2048));
    for i in 0..7 {
        w.put(rx, i, to, 0, 0);
    }
    w.set(RX, TAIL, 7);
    for (i, cmd) in [(0, EOP), (1, 0), (2, EOP), (3, EOP | RS)] {
        w.put(tx, i, from, 60, cmd);
    }
    w.set(TX, TAIL, 4);
    w.run();
    let sta = [0, 1, 2, 3].map(|i| w.found(tx, i).sta);
    assert_eq!(sta, [0, 0, 0, sta::DD]);
    assert_eq!(w.found(tx, 3).cmd, EOP | RS, "the command is kept");
    assert_eq!(w.counter(Counter::Frames), 3);
    // The received descriptors, and one.
    assert_eq!(w.counter(Counter::Completions), 4);
}

pub fn a_received_frame_spans_buffers() {
    let mut w = Wire::rings();
    let (tx, rx) = (w.ring(TX, 8), w.ring(RX, 8));
    let bytes: Vec<u8> = (0..2500).map(|i| (i % 251) as u8).collect();
    let (from, to) = (w.buffer(&bytes), w.room(3 * 1024));
    w.set(RX, SRRCTL, 1);
    for i in 0..3 {
        w.put(rx, i, to + i * 1024, 0, 0);
    }
    w.set(RX, TAIL, 3);
    send(&mut w, tx, 0, from, 2500);
    let found = [0, 1, 2].map(|i| (w.found(rx, i).length, w.found(rx, i).sta));
    let done = sta::DD;
    assert_eq!(found, [(1024, done), (1024, done), (452, done | sta::EOP)]);
    assert_eq!(w.memory.bytes(to, 2500), bytes);
}

pub fn a_write_back_keeps_the_address_and_comes_after_the_bytes() {
    let mut w = Wire::rings();
    let (tx, rx) = (w.ring(TX, 8), w.ring(RX, 8));
    let (from, to) = (w.buffer(&[5; 60]), w.room(2048));
    w.set(RX, IMS, 1);
    w.put(rx, 0, to, 0xffff, 0xff);
    w.set(RX, TAIL, 1);
    let log = w.log();
    send(&mut w, tx, 0, from, 60);
    let order = [
        Done::Write(tx + 8, 8),
        Done::Write(to, 60),
        Done::Write(rx + 8, 8),
        Done::Raise(1),
    ];
    assert_eq!(*log.borrow(), order);
    let back = w.found(rx, 0);
    assert_eq!((back.addr, back.length, back.cmd), (to, 60, 0));
}

pub fn the_message_disables_interrupts() {
    let mut w = Wire::rings();
    let (tx, rx) = (w.ring(TX, 16), w.ring(RX, 16));
    let (from, to) = (w.buffer(&[5; 60]), w.room(2048));
    for i in 0..15 {
        w.put(rx, i, to, 0, 0);
    }
    w.set(RX, TAIL, 15);
    send(&mut w, tx, 0, from, 60);
    assert!(w.raised().is_empty(), "not enabled");
    assert_eq!(w.get(RX, ICR), 1);
    w.set(RX, IMS, 1);
    assert_eq!(w.raised(), [1], "a cause that is set already");
    assert_eq!((w.get(RX, ICR), w.get(RX, IMS)), (0, 0));
    send(&mut w, tx, 1, from, 60);
    send(&mut w, tx, 2, from, 60);
    assert!(w.raised().is_empty());
    w.set(RX, ICR, 1);
    w.set(RX, IMS, 1);
    assert!(w.raised().is_empty(), "the cause was cleared");
    send(&mut w, tx, 3, from, 60);
    assert_eq!(w.raised(), [1]);
    w.set(RX, IMS, 1);
    w.set(RX, IMC, 1);
    assert_eq!(w.get(RX, IMS), 0);
    send(&mut w, tx, 4, from, 60);
    assert!(w.raised().is_empty());
    w.s.drop_interrupts(1);
    w.set(RX, IMS, 1);
    assert!(w.raised().is_empty(), "a test lost it");
}

pub fn messages_keep_their_interval() {
    let mut w = Wire::rings();
    let (tx, rx) = (w.ring(TX, 16), w.ring(RX, 16));
    let (from, to) = (w.buffer(&[5; 60]), w.room(2048));
    for i in 0..15 {
        w.put(rx, i, to, 0, 0);
    }
    w.set(RX, TAIL, 15);
    w.set(RX, ITR, 100);
    w.set(RX, IMS, 1);
    send(&mut w, tx, 0, from, 60);
    assert_eq!(w.raised(), [1], "the first at once");
    w.set(RX, IMS, 1);
    send(&mut w, tx, 1, from, 60);
    assert!(w.raised().is_empty());
    let now = w.s.host().now;
    assert_eq!(w.s.host().wake_at, now + 100_000);
    w.pass_time(99_999);
    assert!(w.raised().is_empty());
    w.pass_time(1);
    assert_eq!(w.raised(), [1]);
    w.pass_time(1_000_000);
    assert!(w.raised().is_empty());
}

pub fn a_frame_is_dropped_where_software_asks_for_it() {
    let mut w = Wire::rings();
    let (tx, rx) = (w.ring(TX, 16), w.ring(RX, 8));
    let (from, to) = (w.buffer(&[5; 4096]), w.room(2048));
    // Without, a frame waits.
    send(&mut w, tx, 0, from, 60);
    assert_eq!(w.counter(Counter::Drops), 0);
    w.put(rx, 0, to, 0, 0);
    w.set(RX, TAIL, 1);
    w.run();
    assert_eq!(w.counter(Counter::Frames), 1);
    w.set(RX, SRRCTL, DROP | 2);
    send(&mut w, tx, 1, from, 60);
    assert_eq!((w.get(RX, DROPS), w.get(TX, DROPS)), (1, 0));
    // One buffer of the two that it needs is not enough, and stays.
    w.put(rx, 1, to, 0, 0);
    w.set(RX, TAIL, 2);
    send(&mut w, tx, 2, from, 4096);
    assert_eq!(w.get(RX, DROPS), 2);
    assert_eq!(w.found(rx, 1).sta, 0);
    send(&mut w, tx, 3, from, 2048);
    assert_eq!(w.found(rx, 1).sta, sta::DD | sta::EOP);
    assert_eq!(w.counter(Counter::Drops), 2);
    assert_eq!(w.found(tx, 2).sta, sta::DD, "the transmitter goes on");
}

pub fn registers_that_describe_no_ring_are_refused() {
    let base = 0x1_0000_0000u64;
    let good = [base as u32, 1, 128, 0, 0];
    let names = [BAL, BAH, LEN, HEAD, TAIL];
    let mut w = Wire::rings();
    let mut tried = |values: [u32; 5]| {
        for (name, value) in names.into_iter().zip(values) {
            w.set(TX, name, value);
        }
        w.set(TX, DCTL, ENABLE);
        let found = (w.halted(TX), w.cause(TX));
        assert_eq!(w.get(TX, DCTL) & ENABLE == 0, found.0);
        w.set(TX, DCTL, 0);
        found
    };
    assert_eq!(tried(good), (false, Cause::None));
    for (at, value, cause) in [
        (0, 64, Cause::Ring),
        (2, 0, Cause::Ring),
        (2, 64, Cause::Ring),
        (2, 4097 * 16 / 128 * 128 + 128, Cause::Ring),
        (3, 8, Cause::Ring),
        (4, 8, Cause::Tail),
    ] {
        let mut values = good;
        values[at] = value;
        assert_eq!(tried(values), (true, cause), "{at}: {value}");
    }
    let last = [0xffff_ff80, u32::MAX, 256, 0, 0];
    assert_eq!(tried(last), (true, Cause::Ring), "past the last address");
    assert_eq!(
        tried([0xffff_ff80, u32::MAX, 128, 0, 0]),
        (false, Cause::None)
    );
}
