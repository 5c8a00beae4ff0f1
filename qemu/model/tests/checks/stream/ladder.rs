// SPDX-License-Identifier: GPL-2.0
//! The driver's ring code against the function, in one process: the rules of `rust/queue` fill,
//! hand over and poll, in random order, and every frame arrives whole and in order.

use super::checks;
use crate::checks::rings::Words;
use crate::harness::*;
use qpair_abi::stream::chain::offset as ch;
use qpair_abi::stream::chain::DELAY_NS;
use qpair_abi::stream::headtail::offset as ht;
use qpair_abi::stream::headtail::BUFFER_UNIT;
use qpair_abi::stream::Side;
use qpair_model::stream::Kinds;
use qpair_queue::chain;
use qpair_queue::chain::acknowledge;
use qpair_queue::chain::Chain;
use qpair_queue::credit::RingId;
use qpair_queue::headtail;
use qpair_queue::headtail::Headtail;
use qpair_queue::index::Depth;
use qpair_testkit::with_seeds;
use qpair_testkit::Rng;
use std::cell::RefCell;
use std::collections::VecDeque;

checks![
    the_drivers_rings_and_the_channels_in_any_order,
    a_message_comes_for_each_completion,
];

/// Bytes of each buffer, the least that a ring's receive channel can have.
const BUFFER: u64 = BUFFER_UNIT as u64;

enum Ring {
    Chain(Chain<Words>),
    Headtail(Headtail<Words>),
}

/// A channel as software has it: its ring, and a buffer for each place.
struct End {
    at: At,
    ring: Ring,
    buffers: Vec<u64>,
}

impl End {
    fn new(w: &mut Wire, at: At, entries: u64) -> Self {
        let depth = Depth::new(entries as u32).expect("a power of two");
        let id = RingId::new(at.0 * 2 + at.1 as u32, 0);
        let memory = w.memory.clone();
        let storage = |addr, bytes| Words::new(&memory, addr, bytes);
        let ring = if w.get(at, ch::KIND) == 1 {
            let base = w.memory.alloc(entries * 64, 64, Grant::Write);
            let chain = Chain::new(id, storage(base, entries * 64), base, depth);
            let chain = chain.expect("a good chain");
            w.start_chain(at, chain.current(), 0);
            Ring::Chain(chain)
        } else {
            let base = w.memory.alloc(entries * 16, 128, Grant::Write);
            let ring = Headtail::new(id, storage(base, entries * 16), at.1, depth);
            w.start_ring(at, base, entries);
            w.set(at, ht::SRRCTL, 1);
            Ring::Headtail(ring.expect("a good ring"))
        };
        let buffers = (0..entries).map(|_| w.room(BUFFER)).collect();
        Self { at, ring, buffers }
    }

    fn free(&self) -> u32 {
        match &self.ring {
            Ring::Chain(chain) => chain.free(),
            Ring::Headtail(ring) => ring.free(),
        }
    }

    /// Fills a descriptor; for transmit with these bytes.
    fn fill(&mut self, w: &Wire, bytes: &[u8], start: bool, end: bool) {
        let place = match &mut self.ring {
            Ring::Chain(chain) => {
                let room = chain.room().expect("one is free");
                let addr = self.buffers[room.place() as usize];
                let count = if self.at.1 == Side::Transmit {
                    bytes.len() as u32
                } else {
                    BUFFER as u32
                };
                room.fill(&chain::Buffer {
                    addr,
                    bytes: count,
                    start,
                    end,
                    user: [0; 5],
                })
            }
            Ring::Headtail(ring) => {
                let room = ring.room().expect("one is free");
                let addr = self.buffers[room.place() as usize];
                room.fill(&headtail::Buffer {
                    addr,
                    bytes: bytes.len() as u16,
                    end,
                })
            }
        };
        w.memory.set_bytes(self.buffers[place as usize], bytes);
    }

    fn hand_over(&mut self, w: &mut Wire) {
        match &mut self.ring {
            Ring::Chain(chain) => {
                chain.hand_over(|addr| {
                    w.set(self.at, ch::TAILDESC_MSB, (addr >> 32) as u32);
                    w.set(self.at, ch::TAILDESC, addr as u32);
                });
            }
            Ring::Headtail(ring) => {
                ring.hand_over(|tail| w.set(self.at, ht::TAIL, tail));
            }
        }
    }

    /// The oldest descriptor, if it is complete: its bytes, and whether a frame ends with it.
    fn poll(&mut self, w: &Wire) -> Option<(Vec<u8>, bool)> {
        let (place, bytes, end) = match &mut self.ring {
            Ring::Chain(chain) => {
                let found = chain.poll()?;
                (found.place, found.bytes, found.end)
            }
            Ring::Headtail(ring) => {
                let found = ring.poll()?;
                (found.place, u32::from(found.bytes), found.end)
            }
        };
        let addr = self.buffers[place as usize];
        Some((w.memory.bytes(addr, bytes as usize), end))
    }

    fn is_whole(&self) -> bool {
        match &self.ring {
            Ring::Chain(chain) => chain.audit().is_ok(),
            Ring::Headtail(ring) => ring.audit().is_ok(),
        }
    }
}

/// A frame in pieces, of which each fits into a buffer.
fn frame(rng: &mut Rng) -> Vec<Vec<u8>> {
    let pieces = 1 + rng.below(3);
    let piece = |rng: &mut Rng| {
        let bytes = 1 + rng.below(BUFFER);
        (0..bytes).map(|_| rng.next() as u8).collect()
    };
    (0..pieces).map(|_| piece(rng)).collect()
}

fn moved(rng: &mut Rng, pair: u32, peer: u32) {
    let mut w = Wire::new(2, Kinds::Mixed);
    let sizes = [8, 16, 64];
    let mut tx = End::new(&mut w, (pair, Side::Transmit), rng.pick(&sizes));
    let mut rx = End::new(&mut w, (peer, Side::Receive), rng.pick(&sizes));
    w.set(tx.at, ch::PEER, peer);
    let mut sent: VecDeque<Vec<u8>> = VecDeque::new();
    let mut got = Vec::new();
    let (mut frames, mut filled, mut taken) = (0, 0, 0);
    let mut rounds = 0;
    while frames < 200 {
        rounds += 1;
        assert!(rounds < 100_000, "it stopped at {frames} frames");
        match rng.below(6) {
            0 => {
                let pieces = frame(rng);
                if tx.free() as usize >= pieces.len() {
                    let last = pieces.len() - 1;
                    for (i, piece) in pieces.iter().enumerate() {
                        tx.fill(&w, piece, i == 0, i == last);
                    }
                    filled += pieces.len();
                    sent.push_back(pieces.concat());
                }
            }
            1 => tx.hand_over(&mut w),
            2 if rx.free() != 0 => rx.fill(&w, &[], false, false),
            3 => rx.hand_over(&mut w),
            4 => {
                w.s.run(rng.below32(3));
            }
            _ => {
                while tx.poll(&w).is_some() {
                    taken += 1;
                }
                while let Some((bytes, end)) = rx.poll(&w) {
                    got.extend(bytes);
                    if end {
                        assert_eq!(sent.pop_front(), Some(std::mem::take(&mut got)));
                        frames += 1;
                    }
                }
            }
        }
        assert!(tx.is_whole() && rx.is_whole());
        assert!(!w.halted(tx.at) && !w.halted(rx.at));
    }
    assert!(taken <= filled && filled - taken <= 64);
}

pub fn the_drivers_rings_and_the_channels_in_any_order() {
    with_seeds("the drivers' rings and the channels", 12, |rng| {
        for pair in 0..2 {
            for peer in 0..2 {
                moved(rng, pair, peer);
            }
        }
    });
}

/// Ten frames, which are polled only when a message came.
fn told(rng: &mut Rng, threshold: u32) {
    let mut w = Wire::chains();
    let mut tx = End::new(&mut w, TX, 16);
    let mut rx = End::new(&mut w, RX, 16);
    let causes = CH_DONE | CH_DELAY | CH_ERROR;
    w.set(RX, ch::CR, RUN | 1 << 24 | threshold << 16 | causes);
    for _ in 0..10 {
        rx.fill(&w, &[], false, false);
    }
    rx.hand_over(&mut w);
    let both = RefCell::new((w, 10, rng));
    // Between any two steps of software the channel and the clock go on.
    let mut meanwhile = || {
        let (w, left, rng) = &mut *both.borrow_mut();
        if *left != 0 && rng.one_in(2) {
            *left -= 1;
            tx.fill(w, &[7], true, true);
            tx.hand_over(w);
            w.run();
        }
        // The timer is late at times.
        w.s.host_mut().now += rng.below(2 * DELAY_NS);
        if rng.one_in(2) {
            w.run();
        }
    };
    let (mut taken, mut silence) = (0, 0);
    while taken < 10 {
        meanwhile();
        silence += 1;
        assert!(silence < 100, "no message: {taken} frames are taken");
        if both.borrow_mut().0.raised().is_empty() {
            continue;
        }
        silence = 0;
        loop {
            let is_clear = acknowledge(
                || both.borrow_mut().0.set(RX, ch::SR, causes),
                || {
                    meanwhile();
                    both.borrow_mut().0.status(RX) & causes != 0
                },
            );
            meanwhile();
            while rx.poll(&both.borrow().0).is_some() {
                taken += 1;
            }
            if is_clear {
                break;
            }
        }
    }
}

pub fn a_message_comes_for_each_completion() {
    with_seeds("messages of a chain", 200, |rng| {
        for threshold in [1, 2, 3] {
            told(rng, threshold);
        }
    });
}
