// SPDX-License-Identifier: GPL-2.0
//! How much a program can post.

// The bench has more than this test uses.
#[allow(dead_code)]
mod support;

use qpair_abi::entry::{Sge, MAX_BLOCKS};
use qpair_verbs::qp::{Qp, QpParts};
use qpair_verbs::request::Refusal;
use support::{Asked, Bench, MOST};

#[test]
fn a_queue_has_no_more_room_than_its_ring() {
    let bench = Bench::new(Asked::default());
    let (sq, rq) = (bench.parts.sq_blocks, bench.parts.rq_depth);
    for (sq_usable, rq_usable, fits) in [(sq, rq, true), (sq + 1, rq, false), (sq, rq + 1, false)] {
        let parts = QpParts {
            sq_usable,
            rq_usable,
            ..bench.parts
        };
        let made = Qp::new(parts, bench.cq.clone(), bench.cq.clone());
        assert_eq!(
            made.is_some(),
            fits,
            "{sq_usable} of {sq}, {rq_usable} of {rq}"
        );
    }
}

#[test]
fn a_receive_queue_is_full_at_what_was_asked() {
    for recvs in [1, 3, 4, 7] {
        let mut bench = Bench::new(Asked {
            recvs,
            ..Asked::default()
        });
        for round in 0..50 {
            for id in 0..recvs {
                assert_eq!(bench.post_recv(id.into()), Ok(()), "round {round}");
            }
            assert_eq!(bench.post_recv(9), Err(Refusal::Full));
            assert_eq!(bench.receive(recvs), recvs);
            // Not polled: to a program, still posted.
            assert_eq!(bench.post_recv(9), Err(Refusal::Full));
            let found = bench.poll(100);
            assert_eq!(found.len() as u32, recvs);
            assert_eq!((found[0].cqe.bytes, found[0].cqe.imm), (7, 0x1234));
        }
    }
}

/// Fills a queue of `sends` requests with its largest requests, again and again.
fn fills_up(bench: &mut Bench, sends: u32, sges: u32, signaled: bool) {
    let sges = vec![Sge::default(); sges as usize];
    let asked = (sends, sges.len());
    for round in 0..50 {
        for id in 0..sends {
            // Without a completion of the last one nothing could be posted again.
            let signaled = signaled || id + 1 == sends;
            let posted = bench.post_with(&[(id.into(), signaled)], &sges);
            assert_eq!(posted, Ok(()), "{asked:?}, round {round}");
        }
        let more = |bench: &Bench| bench.post_with(&[(9, true)], &sges);
        assert_eq!(more(bench), Err(Refusal::Full), "{asked:?}, round {round}");
        assert_eq!(bench.execute(sends), sends);
        // Not polled: to a program, still posted.
        assert_eq!(more(bench), Err(Refusal::Full), "{asked:?}, round {round}");
        assert!(!bench.poll(100).is_empty());
    }
}

#[test]
fn a_send_queue_is_full_at_what_was_asked() {
    for (sends, sges) in [(1, 1), (3, 1), (4, 2), (7, 1), (10, 1), (10, 3), (5, 14)] {
        for signaled in [false, true] {
            let mut bench = Bench::new(Asked {
                cqe: sends,
                sends,
                sges,
                ..Asked::default()
            });
            fills_up(&mut bench, sends, sges, signaled);
        }
    }
}

#[test]
fn a_queue_of_unsignaled_requests_is_full() {
    let mut bench = Bench::new(Asked {
        sends: 8,
        ..Asked::default()
    });
    let posted = (0..100)
        .take_while(|&id| bench.post(&[(id, false)]).is_ok())
        .count();
    assert!((8..50).contains(&posted));
    bench.execute(100);
    assert!(
        bench.poll(100).is_empty(),
        "a completion that the program did not ask for"
    );
    assert_eq!(bench.post(&[(1, false)]), Err(Refusal::Full));
}

#[test]
fn the_last_request_of_the_deepest_ring_has_to_be_signaled() {
    // The ring keeps room for the largest request, so a program can ask for no more.
    let sends = MOST - (MAX_BLOCKS as u32 - 1);
    let mut bench = Bench::new(Asked {
        sends,
        ..Asked::default()
    });
    for id in 1..sends.into() {
        bench.post(&[(id, false)]).unwrap();
    }
    assert_eq!(bench.post(&[(1, false)]), Err(Refusal::Full));
    bench.post(&[(2, true)]).unwrap();
    assert_eq!((bench.execute(MOST), bench.poll(9).len()), (sends, 1));
    for id in 1..sends.into() {
        bench.post(&[(id, false)]).unwrap();
    }
}
