// SPDX-License-Identifier: GPL-2.0
//! Queue pairs that share receives, with completions of both in one CQ.

// The bench has more than this test uses.
#[allow(dead_code)]
mod support;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{mpsc, Arc};

use qpair_abi::entry::{cqe_flags, opcode, Cqe, RecvWqe, Sge, BLOCK_BYTES, BLOCK_WORDS};
use qpair_abi::status::Status;
use qpair_abi::{doorbell, Number};
use qpair_queue::producer::Rows;
use qpair_verbs::qp::{Qp, QpParts};
use qpair_verbs::request::Refusal;
use qpair_verbs::ring::Ring;
use qpair_verbs::shape::Shape;
use qpair_verbs::srq::{Srq, SrqParts};
use support::{Asked, Bench};

const SRQ: Number = Number::new(9, 1);
const NUMBERS: [Number; 2] = [Number::new(4, 1), Number::new(6, 1)];

/// An SRQ of four receives with two queue pairs, on the CQ of a bench.
struct World {
    bench: Bench,
    ring: Ring,
    srq: Arc<Srq>,
    qps: Vec<Qp>,
}

impl World {
    fn new() -> Self {
        let bench = Bench::new(Asked {
            cqe: 64,
            ..Asked::default()
        });
        let ring = bench.memory(4, BLOCK_BYTES);
        let srq = Srq::new(SrqParts {
            number: SRQ,
            ring,
            depth: 4,
            stride: 0,
            max_sge: 2,
            doorbells: bench.parts.doorbells,
        });
        let srq = srq.unwrap();
        let qp = |number: Number| {
            let parts = QpParts {
                number,
                qpn: number.raw(),
                sq: bench.memory(bench.parts.sq_blocks, BLOCK_BYTES),
                ..bench.parts
            };
            let qp = Qp::on_srq(parts, bench.cq.clone(), bench.cq.clone(), srq.clone());
            let qp = qp.unwrap();
            qp.permit(true, true);
            qp
        };
        let qps = NUMBERS.map(qp).into();
        Self {
            bench,
            ring,
            srq,
            qps,
        }
    }

    fn post(&self, ids: &[u64]) -> Result<(), Refusal> {
        self.srq
            .post_recv(|receives| ids.iter().try_for_each(|id| receives.put(*id, &[])))
    }

    /// The device completes a receive of a queue pair.
    fn complete(&mut self, of: usize, id: u64, index: u32) {
        self.bench.write(Cqe {
            wr_id: id,
            qp: NUMBERS[of],
            index,
            opcode: opcode::RECV,
            flags: cqe_flags::RECV,
            ..Cqe::default()
        });
    }

    /// Polls; identifiers, with the number of the queue pair.
    fn poll(&self) -> Vec<(u64, u32)> {
        let mut into = [(0, 0); 16];
        let count = self.bench.cq.poll(&mut into, |place, completion, _| {
            assert_eq!(completion.cqe.status, Status::Success.code());
            *place = (completion.cqe.wr_id, completion.qpn);
        });
        into[..count].to_vec()
    }
}

#[test]
fn completions_in_any_order_free_one_slot_each() {
    let mut w = World::new();
    w.post(&[1, 2, 3]).unwrap();
    assert_eq!((w.bench.doorbell(doorbell::SRQ), w.srq.free()), (3, 1));
    assert_eq!(w.post(&[4, 5]), Err(Refusal::Full));
    assert_eq!(w.bench.doorbell(doorbell::SRQ), 4, "the first is posted");
    let (first, second) = (NUMBERS[0].raw(), NUMBERS[1].raw());
    w.complete(1, 2, 2);
    w.complete(1, 4, 4);
    w.complete(0, 3, 3);
    assert_eq!(w.poll(), [(2, second), (4, second), (3, first)]);
    assert_eq!(w.srq.free(), 3, "the receive of 1 is still at a queue pair");
    for round in 0..100 {
        w.post(&[10 + round]).unwrap();
        w.complete(1, 10 + round, 5 + round as u32);
        assert_eq!(w.poll(), [(10 + round, second)]);
    }
    w.complete(0, 1, 1);
    assert_eq!((w.poll(), w.srq.free()), (vec![(1, first)], 4));
    // Nothing is in flight: it is stale.
    w.complete(0, 1, 1);
    assert_eq!((w.poll(), w.srq.free()), (vec![], 4));
}

#[test]
fn a_row_of_completions_ends_with_the_receives_in_flight() {
    let mut w = World::new();
    w.post(&[1, 2, 3]).unwrap();
    for id in 1..=4 {
        w.complete(0, id, id as u32);
    }
    let pair = NUMBERS[0].raw();
    assert_eq!(w.poll(), [(1, pair), (2, pair), (3, pair)]);
    assert_eq!(w.srq.free(), 4);
}

#[test]
fn a_queue_pair_on_an_srq_has_no_receives_of_its_own() {
    let w = World::new();
    let refused = w.qps[0].post_recv(|receives| receives.put(1, &[]));
    assert_eq!(refused, Err(Refusal::State));
    let sges = [Sge::default(); 3];
    let refused = w.srq.post_recv(|receives| receives.put(1, &sges));
    assert_eq!(refused, Err(Refusal::Invalid));
    assert_eq!(w.srq.free(), 4);
}

#[test]
fn a_queue_pair_on_an_srq_takes_no_ring_of_receives() {
    let w = World::new();
    let parts = QpParts {
        rq: w.bench.memory(1, 8),
        rq_depth: 1 << 12,
        rq_stride: 12,
        ..w.bench.parts
    };
    let cq = || w.bench.cq.clone();
    assert!(Qp::new(parts, cq(), cq()).is_none());
    assert!(Qp::on_srq(parts, cq(), cq(), w.srq.clone()).is_some());
    // Any of the three alone is refused too, so each is replaced.
    let on_srq = parts.on_srq();
    let wrong = [
        QpParts {
            rq: parts.rq,
            ..on_srq
        },
        QpParts {
            rq_depth: parts.rq_depth,
            ..on_srq
        },
        QpParts {
            rq_stride: parts.rq_stride,
            ..on_srq
        },
    ];
    assert!(wrong
        .into_iter()
        .all(|parts| Qp::new(parts, cq(), cq()).is_none()));
}

#[test]
fn the_unread_completions_of_one_that_ends_free_their_slots() {
    let mut w = World::new();
    w.post(&[1, 2, 3, 4]).unwrap();
    w.complete(0, 1, 1);
    w.complete(1, 2, 2);
    w.complete(0, 3, 3);
    // A send of it has no slot of the SRQ.
    w.bench.write(Cqe {
        qp: NUMBERS[0],
        index: 1,
        opcode: opcode::SEND,
        ..Cqe::default()
    });
    // A reset: its entries are left out, and those of the other are not.
    let since = w.bench.produced;
    w.qps[0].reset(since, since);
    assert_eq!(w.srq.free(), 2);
    w.complete(0, 4, 4);
    drop(w.qps.remove(0));
    assert_eq!(w.srq.free(), 3, "those of the earlier life count once");
    assert_eq!(w.poll(), [(2, NUMBERS[1].raw())]);
    assert_eq!(w.srq.free(), 4);
}

/// The identifier in the WQE at a place of a ring.
fn id(ring: &Ring, place: usize) -> u64 {
    RecvWqe::decode(&ring.load_all(place * BLOCK_WORDS)).wr_id
}

fn shape(entries: u32) -> Shape {
    Shape {
        entries,
        usable: entries,
        ..Shape::default()
    }
}

#[test]
fn a_resize_takes_the_receives_in_flight_along() {
    let mut w = World::new();
    w.post(&[1, 2, 3, 4]).unwrap();
    w.complete(0, 1, 1);
    w.complete(0, 2, 2);
    assert_eq!(w.poll().len(), 2);
    w.post(&[5]).unwrap();

    let small = w.bench.memory(2, BLOCK_BYTES);
    let refused = w.srq.resize(small, shape(2), || -> Result<(), ()> {
        panic!("the device has none")
    });
    assert_eq!(refused, Err(None));
    let large = w.bench.memory(8, BLOCK_BYTES);
    let refused = w.srq.resize(large, shape(8), || Err("no memory"));
    assert_eq!(refused, Err(Some("no memory")));
    assert_eq!(w.srq.free(), 1);
    w.post(&[6]).unwrap();
    assert_eq!(id(&w.ring, 1), 6, "it goes on in the old ring");

    // The receives are in the new ring before the device is, and no post comes between.
    let switched = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let (w, switched) = (&w, &switched);
        let resized = w.srq.resize(large, shape(8), || -> Result<(), ()> {
            assert_eq!([2, 3, 4, 5].map(|place| id(&large, place)), [3, 4, 5, 6]);
            let (begin, begun) = mpsc::channel();
            scope.spawn(move || {
                begin.send(()).unwrap();
                w.post(&[7]).unwrap();
                assert!(switched.load(Ordering::Relaxed), "a post between");
            });
            begun.recv().unwrap();
            (0..1000).for_each(|_| std::thread::yield_now());
            switched.store(true, Ordering::Relaxed);
            Ok(())
        });
        assert_eq!(resized, Ok(()));
    });
    assert_eq!((w.srq.free(), id(&large, 6)), (3, 7));
    assert_eq!(w.bench.doorbell(doorbell::SRQ), 7, "indices go on");
    assert_eq!(w.post(&[8, 9, 10, 11]), Err(Refusal::Full));
    assert_eq!([7, 0, 1].map(|place| id(&large, place)), [8, 9, 10]);
}
