// SPDX-License-Identifier: GPL-2.0
//! What a CQ writes to its doorbells, and how it reports entries.

// The bench has more than this test uses.
#[allow(dead_code)]
mod support;

use qpair_abi::entry::{cqe_flags, opcode, Cqe};
use qpair_abi::{doorbell, Number};
use qpair_queue::index::Index;
use qpair_queue::resize::Switch;
use qpair_verbs::cq::NextRing;
use support::{Asked, Bench, CQ, NUMBER};

#[test]
fn a_head_is_published_past_the_slack_of_its_cq() {
    // A ring of 16 entries, of which a program may use 12.
    let mut bench = Bench::new(Asked {
        cqe: 9,
        recvs: 64,
        ..Asked::default()
    });
    for id in 0..5 {
        bench.post_recv(id).unwrap();
    }
    assert_eq!((bench.receive(4), bench.poll(9).len()), (4, 4));
    assert_eq!(bench.doorbell(doorbell::CQ_HEAD), 0);
    assert_eq!((bench.receive(1), bench.poll(9).len()), (1, 1));
    assert_eq!(bench.rung(doorbell::CQ_HEAD), (CQ, 5));
}

#[test]
fn a_head_is_published_past_the_slack_of_a_work_queue() {
    // A ring of 8 receives, of which a program may use 4.
    let mut bench = Bench::new(Asked {
        cqe: 64,
        recvs: 4,
        ..Asked::default()
    });
    for id in 0..4 {
        bench.post_recv(id).unwrap();
    }
    assert_eq!((bench.receive(4), bench.poll(9).len()), (4, 4));
    assert_eq!(bench.doorbell(doorbell::CQ_HEAD), 0);
    bench.post_recv(4).unwrap();
    assert_eq!((bench.receive(1), bench.poll(9).len()), (1, 1));
    assert_eq!(bench.rung(doorbell::CQ_HEAD), (CQ, 5));
}

#[test]
fn an_event_is_requested_by_the_doorbell_of_its_kind() {
    let nothing = (Number::from_raw(0), 0);
    let of = |solicited| {
        let bench = Bench::new(Asked::default());
        bench.cq.notify(solicited);
        [doorbell::CQ_NOTIFY, doorbell::CQ_NOTIFY_SOLICITED].map(|place| bench.rung(place))
    };
    assert_eq!(of(false), [(CQ, 0), nothing]);
    assert_eq!(of(true), [nothing, (CQ, 0)]);
}

#[test]
fn a_row_has_entries_of_any_source() {
    let mut bench = Bench::new(Asked::default());
    for id in 0..3 {
        bench.post_recv(id).unwrap();
    }
    for index in 1..=3 {
        bench.write(Cqe {
            qp: NUMBER,
            index,
            src: 7 * index,
            opcode: opcode::RECV,
            flags: cqe_flags::RECV,
            ..Cqe::default()
        });
    }
    let mut found = [(0, false); 4];
    let count = bench.cq.poll(&mut found, |place, completion, is_alike| {
        *place = (completion.cqe.src, is_alike);
    });
    assert_eq!(found[..count], [(7, false), (14, true), (21, true)]);
}

#[test]
fn a_ring_that_is_too_small_is_refused() {
    let bench = Bench::new(Asked::default());
    let resized = |entries: u32, depth| {
        bench.cq.hold();
        // SAFETY: The queue is held.
        unsafe {
            let before = bench.cq.resized(NextRing {
                switch: Switch {
                    end: Index::ZERO,
                    begin: Index::ZERO,
                },
                ring: bench.memory(entries, Cqe::BYTES),
                depth,
                usable: depth,
            });
            bench.cq.release();
            before
        }
    };
    assert_eq!(resized(8, 16), None);
    assert_eq!(resized(16, 8), Some(0));
}
