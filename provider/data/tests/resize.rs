// SPDX-License-Identifier: GPL-2.0
//! A CQ that is resized while it has completions.

// The bench has more than this test uses.
#[allow(dead_code)]
mod support;

use qpair_abi::doorbell;
use qpair_testkit::Rng;
use support::{usable, Asked, Bench};

fn bench() -> Bench {
    Bench::new(Asked {
        sends: 64,
        cqe: 100,
        ..Asked::default()
    })
}

fn ids(bench: &Bench, count: usize) -> Vec<u64> {
    let polled = bench.poll(count);
    polled.iter().map(|it| it.cqe.wr_id).collect()
}

#[test]
fn a_poll_reads_both_rings() {
    let mut bench = bench();
    for id in 0..3 {
        bench.post(&[(id, true)]).unwrap();
    }
    assert_eq!(bench.execute(3), 3);
    assert_eq!(bench.resize(200), (3, 1));
    for id in 3..6 {
        bench.post(&[(id, true)]).unwrap();
    }
    assert_eq!(bench.execute(3), 3);
    assert_eq!(ids(&bench, 2), [0, 1]);
    // The next one reads the last of the old ring, and those of the new one.
    assert_eq!(ids(&bench, 8), [2, 3, 4, 5]);
    assert_eq!(bench.room(), 512 - 3, "the old ring takes none");
    // A queue that is empty goes on at once.
    assert_eq!(bench.resize(10), (0, 0));
    assert_eq!(bench.doorbell(doorbell::CQ_HEAD), bench.produced);
    assert_eq!(ids(&bench, 1), []);
}

#[test]
fn a_poll_in_parts_reads_both_rings() {
    let mut bench = bench();
    bench.post(&[(7, true), (8, true)]).unwrap();
    assert_eq!(bench.execute(1), 1);
    assert_eq!(bench.resize(50), (1, 1));
    assert_eq!(bench.execute(1), 1);
    assert_eq!(bench.resize(60), (2, 2));
    assert!(bench.cq.start());
    // SAFETY: Between a start that found one and the end.
    unsafe {
        assert_eq!(bench.cq.current().cqe.wr_id, 7);
        assert!(bench.cq.next());
        assert_eq!(bench.cq.current().cqe.wr_id, 8);
        assert!(!bench.cq.next());
        bench.cq.end();
    }
    assert!(!bench.cq.start());
}

#[test]
fn the_slack_is_that_of_the_ring() {
    let mut bench = bench();
    bench.resize(1000);
    let slack = bench.room() - usable(1000);
    for id in 0..u64::from(slack) {
        bench.post(&[(id, true)]).unwrap();
        assert_eq!(bench.execute(1), 1);
        assert_eq!(ids(&bench, 1), [id]);
        assert!(bench.room() >= usable(1000));
    }
}

#[test]
fn any_order_of_resizes_and_polls() {
    let mut rng = Rng::new(73);
    for _ in 0..300 {
        let mut bench = bench();
        let (mut posted, mut executed, mut polled) = (0, 0, 0);
        for _ in 0..100 {
            match rng.next() % 8 {
                0 => {
                    let unread = executed - polled;
                    let (found, before) = bench.resize((rng.next() % 300 + 70) as u32);
                    assert_eq!(u64::from(found), unread);
                    assert!(unread != 0 || before == 0);
                }
                1..=3 => posted += u64::from(bench.post(&[(posted, true)]).is_ok()),
                4 | 5 => executed += u64::from(bench.execute(rng.next() as u32 % 4)),
                _ => {
                    let count = rng.next() % 6;
                    let found = ids(&bench, count as usize);
                    // As many as there are: a program that finds none may sleep.
                    let wanted = polled..executed.min(polled + count);
                    assert_eq!(found, wanted.clone().collect::<Vec<_>>());
                    polled = wanted.end;
                }
            }
        }
        bench.execute(64);
        assert_eq!(ids(&bench, 200).len() as u64, posted - polled);
    }
}
