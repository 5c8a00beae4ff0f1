// SPDX-License-Identifier: GPL-2.0
//! The C interface of the function of channels, called as QEMU calls it, by a test machine.

mod support;

use std::{
    cell::{
        Cell,
        RefCell, //
    },
    ffi::CStr,
    sync::atomic::Ordering::SeqCst, //
};

use qpair_abi::stream::{
    block,
    chain::{
        control,
        offset,
        status, //
    },
    counters::Counter,
    regs,
    Cause,
    Side, //
};
use qpair_ffi::{
    stream::*,
    QpairKnob,
    QpairTrace, //
};
use support::{
    Board,
    Machine, //
};

const RINGS: [u64; 2] = [0x1000, 0x2000];
const BUFFERS: [u64; 2] = [0x3000, 0x4000];
const RESET: u32 = 2;

type Reentry = Box<dyn Fn(*const QpairStream)>;

struct Alone {
    board: Board,
    stream: Cell<*mut QpairStream>,
    woken: Cell<bool>,
    reentry: RefCell<Option<Reentry>>,
    traces: RefCell<Vec<(QpairTrace, [u64; 6])>>,
}

impl Machine for Alone {
    fn board(&self) -> &Board {
        &self.board
    }

    fn wake(&self) {
        self.woken.set(true);
    }

    fn reads(&self) {
        if let Some(act) = &*self.reentry.borrow() {
            act(self.stream.get());
        }
    }

    fn traces(&self, what: QpairTrace, arguments: &[u64; 6]) {
        self.traces.borrow_mut().push((what, *arguments));
    }
}

impl Alone {
    fn new() -> Box<Self> {
        let machine = Box::new(Self {
            board: Board::new(false),
            stream: Cell::new(std::ptr::null_mut()),
            woken: Cell::default(),
            reentry: RefCell::default(),
            traces: RefCell::default(),
        });
        machine.stream.set(machine.make(1, "chain").unwrap());
        machine
    }

    fn make(&self, channels: u32, kind: &str) -> Result<*mut QpairStream, String> {
        let mut reason = [0; 256];
        let (room, bytes) = (reason.as_mut_ptr(), reason.len());
        let text = kind.as_ptr().cast();
        // SAFETY: The callbacks are of this machine, which outlives the stream; the lengths are
        // those of the text and of the array.
        let stream =
            unsafe { qpair_stream_new(self.host(), channels, text, kind.len(), room, bytes) };
        if stream.is_null() {
            // SAFETY: A refusal leaves a terminated message.
            let words = unsafe { CStr::from_ptr(reason.as_ptr()) };
            return Err(words.to_string_lossy().into_owned());
        }
        Ok(stream)
    }

    fn read(&self, register: u64) -> u32 {
        // SAFETY: The stream lives, and this is the only thread.
        unsafe { qpair_stream_reg_read(self.stream.get(), register) }
    }

    fn write(&self, register: u64, value: u32) {
        // SAFETY: As in `read`.
        unsafe { qpair_stream_reg_write(self.stream.get(), register, value) }
    }

    fn count(&self, counter: Counter) -> u64 {
        // SAFETY: As in `read`.
        unsafe { qpair_stream_count(self.stream.get(), counter as u32) }
    }

    fn run(&self) {
        // SAFETY: As in `read`.
        let more = || unsafe { qpair_stream_run(self.stream.get()) };
        while more() {}
    }

    /// Sends a frame of a word from one descriptor to another.
    fn send(&self, word: u64) {
        self.board.word(BUFFERS[0]).store(word, SeqCst);
        for side in [Side::Receive, Side::Transmit] {
            let (ring, buffer) = (RINGS[side as usize], BUFFERS[side as usize]);
            let flags = control::SOF | control::EOF | 8;
            let words = [ring, buffer, 0, flags.into(), 0, 0, 0, 0];
            for (i, word) in (0..).zip(words) {
                self.board.word(ring + 8 * i).store(word, SeqCst);
            }
            let at = block(0, side);
            self.write(at + offset::CURDESC, ring as u32);
            self.write(at + offset::CR, 1);
            self.write(at + offset::TAILDESC, ring as u32);
        }
    }

    fn is_complete(&self, side: Side) -> bool {
        let word = self.board.word(RINGS[side as usize] + 24).load(SeqCst);
        word >> 32 & u64::from(status::COMPLETE) != 0
    }
}

impl Drop for Alone {
    fn drop(&mut self) {
        // SAFETY: The stream exists, and is not used again.
        unsafe { qpair_stream_free(self.stream.get()) };
    }
}

#[test]
fn bad_properties_are_refused_with_a_message() {
    let machine = Alone::new();
    let range = "Property 'qpair-stream.channels' doesn't take value 65 (minimum: 1, maximum: 64)";
    assert_eq!(machine.make(65, "mixed"), Err(range.into()));
    let kind = "Property 'qpair-stream.kind' doesn't take value 'x' (chain, headtail, mixed)";
    assert_eq!(machine.make(1, "x"), Err(kind.into()));
}

#[test]
fn a_frame_moves_and_is_counted() {
    let machine = Alone::new();
    assert_eq!(machine.read(regs::offset::MAGIC), regs::MAGIC_VALUE);
    // SAFETY: As in `read`.
    assert_eq!(unsafe { qpair_stream_vectors(machine.stream.get()) }, 2);
    machine.send(0x55);
    assert!(machine.woken.get());
    machine.run();
    assert_eq!(machine.board.word(BUFFERS[1]).load(SeqCst), 0x55);
    assert!(machine.is_complete(Side::Transmit) && machine.is_complete(Side::Receive));
    assert_eq!(machine.count(Counter::Frames), 1);
    // From channel 0 to channel 1, and not dropped.
    let frame = (QpairTrace::Frame, [0, 1, 8, 0, 0, 0]);
    assert_eq!(machine.traces.take(), [frame]);
    machine.write(block(0, Side::Receive) + offset::TAILDESC, 1);
    let halt = (QpairTrace::Halt, [1, Cause::Tail.code().into(), 0, 0, 0, 0]);
    assert_eq!(machine.traces.take(), [halt]);
}

#[test]
fn facts_and_counters_are_those_of_the_abi() {
    let facts = qpair_stream_facts();
    assert_eq!((facts.vendor, facts.device), (0x1234, 0x5151));
    assert_eq!(facts.counters as usize, Counter::COUNT);
    assert_eq!(qpair_stream_counter(0).name.bytes, "reg-reads".len());
    assert_eq!(qpair_stream_counter(facts.counters).name.bytes, 0);
}

#[test]
fn knobs_turn() {
    let machine = Alone::new();
    let turn = |knob, value| {
        let before = machine.read(regs::offset::PAIRS);
        // SAFETY: As in `read`.
        unsafe { qpair_stream_set(machine.stream.get(), knob, value) };
        // SAFETY: As in `read`.
        let now = unsafe { qpair_stream_get(machine.stream.get(), knob) };
        assert_eq!(now, value.into());
        before
    };
    turn(QpairKnob::Stall, 1);
    machine.send(1);
    machine.run();
    assert!(!machine.is_complete(Side::Transmit));
    turn(QpairKnob::Stall, 0);
    machine.run();
    assert!(machine.is_complete(Side::Transmit));
    turn(QpairKnob::DropInterrupts, 7);
    turn(QpairKnob::Vanish, 1);
    assert_eq!(turn(QpairKnob::Vanish, 0), u32::MAX);
    assert_eq!(machine.read(regs::offset::PAIRS), 1);
}

/// A callback that re-enters: accesses do nothing, a reset takes effect when the outer call is done.
#[test]
fn no_thread_is_inside_twice() {
    let machine = Alone::new();
    *machine.reentry.borrow_mut() = Some(Box::new(|stream| {
        // SAFETY: As in `read`.
        unsafe {
            assert_eq!(qpair_stream_reg_read(stream, regs::offset::MAGIC), 0);
            qpair_stream_reg_write(stream, regs::offset::CTRL, RESET);
            assert!(!qpair_stream_run(stream));
            qpair_stream_reset(stream);
        }
    }));
    machine.send(9);
    machine.run();
    assert_eq!(machine.board.word(BUFFERS[1]).load(SeqCst), 9);
    assert_eq!(machine.count(Counter::Frames), 0, "it was reset");
    let sr = block(0, Side::Transmit) + offset::SR;
    assert_eq!(machine.read(sr) & 1, 1);
}

#[test]
fn an_end_is_final() {
    let machine = Alone::new();
    *machine.reentry.borrow_mut() = Some(Box::new(|stream| {
        // SAFETY: As in `read`.
        unsafe { qpair_stream_end(stream) };
    }));
    machine.send(9);
    machine.run();
    machine.reentry.replace(None);
    assert_eq!(machine.read(regs::offset::MAGIC), u32::MAX);
    machine.woken.set(false);
    machine.send(10);
    machine.run();
    assert!(!machine.woken.get() && !machine.is_complete(Side::Transmit));
}
