// SPDX-License-Identifier: GPL-2.0
//! Receives of an SRQ that are posted and not completed, of a device that writes what it likes.

use super::checks;
use super::memory::Memory as Words;
use super::pending::seen;
use super::prop::holds;
use proptest::collection::vec;
use proptest::prelude::any;
use qpair_queue::credit::RingId;
use qpair_queue::index::Depth;
use qpair_queue::index::Index;
use qpair_queue::producer::SrqProducer;
use qpair_queue::receives::Completer;
use qpair_queue::receives::Place;
use qpair_queue::receives::Receives;
use std::collections::BTreeMap;

checks![
    each_receive_is_taken_once_in_any_order,
    a_completion_that_names_none_takes_nothing,
    a_place_that_is_used_again_is_not_that_of_an_old_completion,
    a_receive_that_the_device_does_not_have_is_not_taken,
    a_completion_in_another_cq_takes_no_receive,
    a_receive_from_before_a_reset_is_gone_and_its_place_free,
];

const SRQ: RingId = RingId::new(5, 0);
const CQ: RingId = RingId::new(3, 0);
const OTHER: RingId = RingId::new(4, 0);
const DEPTH: u32 = 4;

struct Queue {
    ring: SrqProducer<Words>,
    receives: Receives<Vec<Place<u64>>>,
}

impl Queue {
    fn new(first: Index) -> Self {
        let (depth, words) = (Depth::new(DEPTH).unwrap(), Words::new(DEPTH as usize * 8));
        Self {
            ring: SrqProducer::starting_at(SRQ, SRQ, words, depth, 0, DEPTH, first).unwrap(),
            // What the places hold does not count.
            receives: Receives::new(vec![Place::Posted(first, 99); DEPTH as usize]),
        }
    }

    /// Posts a receive without a doorbell. Returns its place, and the index past it.
    fn write(&mut self, id: u64) -> Option<(u64, Index)> {
        let place = self.receives.next()?;
        let past = self.ring.room(1, true).unwrap().post();
        self.receives.push(past, id);
        Some((place.into(), past))
    }

    fn post(&mut self, id: u64) -> Option<(u64, Index)> {
        let posted = self.write(id);
        self.ring.ring(|_| ());
        posted
    }

    fn take(&mut self, (place, past): (u64, Index)) -> Option<u64> {
        let taken = self.receives.take(&mut self.ring, place, past);
        assert_eq!(self.ring.audit(), Ok(()));
        // One is free if the other is.
        assert_eq!(self.receives.next().is_some(), self.ring.free() != 0);
        taken
    }
}

fn each_receive_is_taken_once_in_any_order() {
    let schedule = (any::<u32>(), vec((0u8..4, any::<u16>()), 1..200));
    holds(300, schedule, |(first, steps)| {
        let mut queue = Queue::new(Index::new(first));
        let (mut posted, mut old) = (BTreeMap::new(), Vec::new());
        for ((step, which), id) in steps.into_iter().zip(0..) {
            let which = usize::from(which);
            match step {
                0 | 1 => match queue.post(id) {
                    Some((place, past)) => {
                        let before = posted.insert((place, past.get()), id);
                        assert_eq!(before, None);
                    }
                    None => assert_eq!(posted.len(), DEPTH as usize),
                },
                2 if !posted.is_empty() => {
                    let (&(place, past), &id) = posted.iter().nth(which % posted.len()).unwrap();
                    posted.remove(&(place, past));
                    assert_eq!(queue.take((place, Index::new(past))), Some(id));
                    old.push((place, past));
                }
                3 if !old.is_empty() => {
                    let (place, past) = old[which % old.len()];
                    assert_eq!(queue.take((place, Index::new(past))), None);
                }
                _ => {}
            }
            assert_eq!(queue.ring.in_flight() as usize, posted.len());
        }
    });
}

fn a_completion_that_names_none_takes_nothing() {
    let mut queue = Queue::new(Index::ZERO);
    let (place, past) = queue.post(1).unwrap();
    for wrong in [1, 3, DEPTH.into(), 1 << 32, u64::MAX] {
        assert_eq!(queue.take((wrong, past)), None);
    }
    for wrong in [0, 2, 1 << 31, u32::MAX] {
        assert_eq!(queue.take((place, Index::new(wrong))), None);
    }
    assert_eq!(queue.ring.in_flight(), 1);
    assert_eq!(queue.take((place, past)), Some(1));
    assert_eq!(queue.take((place, past)), None);
}

fn a_place_that_is_used_again_is_not_that_of_an_old_completion() {
    let mut queue = Queue::new(Index::new(u32::MAX));
    let first = queue.post(1).unwrap();
    assert_eq!(queue.take(first), Some(1));
    let second = queue.post(2).unwrap();
    assert_eq!((second.0, second.1), (first.0, Index::new(1)));
    assert_eq!(queue.take(first), None);
    assert_eq!(queue.take(second), Some(2));
}

fn a_receive_that_the_device_does_not_have_is_not_taken() {
    let mut queue = Queue::new(Index::ZERO);
    let written = queue.write(1).unwrap();
    assert_eq!(queue.take(written), None);
    queue.ring.ring(|_| ());
    assert_eq!(queue.take(written), Some(1));
}

fn a_completion_in_another_cq_takes_no_receive() {
    let mut queue = Queue::new(Index::ZERO);
    let mut completer = Completer::new(CQ);
    completer.reset(Some(5));
    let posted = queue.post(1).unwrap();
    let none = completer.complete(seen(OTHER), 9, || queue.take(posted));
    assert_eq!((none, queue.ring.in_flight()), (None, 1));
    // Nor is it the end of what is old.
    assert_eq!(completer.complete(seen(CQ), 5, || queue.take(posted)), None);
    let posted = queue.post(2).unwrap();
    let taken = completer.complete(seen(CQ), 6, || queue.take(posted));
    assert_eq!(taken, Some(2));
}

fn a_receive_from_before_a_reset_is_gone_and_its_place_free() {
    let mut queue = Queue::new(Index::ZERO);
    let mut completer = Completer::new(CQ);
    let posted: Vec<_> = (0..u64::from(DEPTH))
        .map_while(|id| queue.post(id))
        .collect();
    assert_eq!(queue.post(9), None);
    completer.reset(Some(2));
    for (nth, posted) in (1..).zip(&posted[..2]) {
        let taken = completer.complete(seen(CQ), nth, || queue.take(*posted));
        assert_eq!(taken, None);
    }
    assert_eq!(queue.ring.free(), 2);
    let taken = completer.complete(seen(CQ), 3, || queue.take(posted[3]));
    assert_eq!(taken, Some(3));
    assert_eq!(
        completer.complete(seen(CQ), 4, || queue.take(posted[2])),
        Some(2)
    );
}
