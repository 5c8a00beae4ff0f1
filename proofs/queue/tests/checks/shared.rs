// SPDX-License-Identifier: GPL-2.0
//! Receives that queue pairs share, on random schedules and step by step.

#[path = "../shared/world.rs"]
mod world;

use super::checks;
use super::memory::Memory;
use super::prop::holds;
use proptest::collection::vec;
use proptest::prelude::any;
use qpair_model::rules::supply::Low;
use qpair_model::rules::supply::Next;
use qpair_model::rules::supply::Supply;
use qpair_queue::credit::RingId;
use qpair_queue::index::Depth;
use qpair_queue::index::Index;
use qpair_queue::resize::Stays;
use qpair_queue::shared::Shared;
use qpair_queue::storage::Storage;
use world::World;

checks![
    any_order_of_steps_is_right,
    a_completion_frees_one_slot,
    completions_of_a_row_free_as_many_slots,
    a_receive_that_was_given_back_is_the_next,
    a_limit_has_one_event,
    a_limit_above_what_is_left_is_due_at_once,
    slots_of_another_queue_are_refused,
    a_resize_takes_what_is_in_flight_along,
    a_device_keeps_a_ring_that_what_is_left_needs,
];

const SRQ: RingId = RingId::new(5, 0);

fn depth(entries: u32) -> Depth {
    Depth::new(entries).expect("a power of two")
}

fn shared(entries: u32) -> Shared<Memory> {
    let memory = Memory::new(entries as usize * 8);
    Shared::new(SRQ, memory, depth(entries), 0, entries).expect("a good ring")
}

/// Posts receives and hands them over; returns the tail.
fn post(shared: &mut Shared<Memory>, count: u32) -> Index {
    post_tagged(shared, 0, count)
}

/// The same; their second words count from `tag`.
fn post_tagged(shared: &mut Shared<Memory>, tag: u64, count: u32) -> Index {
    for tag in (tag..).take(count as usize) {
        let mut batch = shared.batch(|memory| memory.clone());
        let mut room = batch.room(1, true).expect("room");
        room.write(0, &[0, tag, 0, 0, 0, 0, 0, 0]);
        room.post();
    }
    let mut tail = Index::ZERO;
    assert!(shared.ring(|index| tail = index));
    tail
}

fn any_order_of_steps_is_right() {
    let schedule = (
        1u32..=9,
        0u32..=5,
        1usize..=4,
        any::<u32>(),
        vec(any::<u16>(), 1..400),
    );
    holds(400, schedule, |(capacity, more, pairs, first, steps)| {
        let mut world = World::new(capacity, capacity + more, pairs, Index::new(first));
        for step in steps {
            let actions = world.actions();
            world.act(actions[usize::from(step) % actions.len()]);
            assert_eq!(world.wrong, None);
        }
    });
}

fn a_completion_frees_one_slot() {
    let mut srq = shared(4);
    assert!(srq.complete().is_none(), "nothing is in flight");
    assert_eq!(post(&mut srq, 4), Index::new(4));
    assert_eq!((srq.free(), srq.in_flight()), (0, 4));
    let slots = srq.complete().expect("in flight");
    assert_eq!((slots.count(), srq.free(), srq.in_flight()), (1, 0, 3));
    assert_eq!(srq.audit(1), Ok(()));
    assert!(srq.free_slots(slots).is_ok());
    assert_eq!((srq.free(), srq.audit(0)), (1, Ok(())));
    assert_eq!(post(&mut srq, 1), Index::new(5));
    for _ in 0..4 {
        let slots = srq.complete().expect("in flight");
        assert!(srq.free_slots(slots).is_ok());
    }
    assert!(srq.complete().is_none());
    assert_eq!(srq.free(), 4);
    // What was not handed over is not in flight for the device.
    let mut batch = srq.batch(|memory| memory.clone());
    batch.room(1, true).expect("room").post();
    drop(batch);
    assert!(srq.complete().is_none());
    srq.withdraw();
    assert_eq!((srq.free(), srq.in_flight()), (4, 0));
}

fn completions_of_a_row_free_as_many_slots() {
    let mut srq = shared(4);
    post(&mut srq, 3);
    assert_eq!(srq.handed(), 3);
    assert!(srq.complete_all(4).is_none(), "more than are in flight");
    let slots = srq.complete_all(2).expect("in flight");
    assert_eq!((slots.count(), srq.handed(), srq.free()), (2, 1, 1));
    assert!(srq.free_slots(slots).is_ok());
    assert_eq!((srq.free(), srq.audit(0)), (3, Ok(())));
    let mut batch = srq.batch(|memory| memory.clone());
    batch.room(1, true).expect("room").post();
    drop(batch);
    assert_eq!((srq.handed(), srq.in_flight()), (1, 2));
}

fn a_receive_that_was_given_back_is_the_next() {
    let mut supply = Supply::new(depth(4), Index::new(u32::MAX));
    assert_eq!(supply.next(), None);
    assert_eq!(supply.post(Index::new(5)), None, "more than the depth");
    assert_eq!(supply.post(Index::new(2)), Some(3));
    assert_eq!(supply.post(Index::new(1)), None, "behind");
    assert_eq!(supply.next(), Some(Next::Ring(Index::new(u32::MAX))));
    assert_eq!(supply.take(), Low::No);
    assert_eq!(supply.next(), Some(Next::Ring(Index::ZERO)));
    assert_eq!(supply.take(), Low::No);
    assert_eq!(supply.left(), 1);
    supply.give_back();
    supply.give_back();
    assert_eq!((supply.left(), supply.next()), (3, Some(Next::Back)));
    assert_eq!(supply.take(), Low::No);
    assert_eq!(supply.take(), Low::No);
    assert_eq!(supply.next(), Some(Next::Ring(Index::new(1))));
    // The places of those that were given back are those of software.
    assert_eq!(supply.post(Index::new(5)), Some(3));
    assert_eq!(supply.window().used(), 4);
}

fn a_limit_has_one_event() {
    let mut supply = Supply::new(depth(8), Index::ZERO);
    assert_eq!(supply.post(Index::new(6)), Some(6));
    assert_eq!(supply.arm(4), Low::No);
    assert_eq!(supply.take(), Low::No);
    assert_eq!((supply.take(), supply.limit()), (Low::No, 4), "4 are left");
    assert_eq!((supply.take(), supply.limit()), (Low::Now, 0));
    assert_eq!(supply.take(), Low::No);
    assert_eq!(supply.arm(2), Low::No);
    supply.give_back();
    assert_eq!((supply.take(), supply.left()), (Low::No, 2));
    assert_eq!(supply.take(), Low::Now);
    assert_eq!(supply.arm(1), Low::No);
    assert_eq!(
        (supply.arm(0), supply.take()),
        (Low::No, Low::No),
        "disarmed"
    );
}

fn a_limit_above_what_is_left_is_due_at_once() {
    let mut supply = Supply::new(depth(8), Index::ZERO);
    assert_eq!((supply.arm(1), supply.limit()), (Low::Now, 0));
    assert_eq!(supply.post(Index::new(3)), Some(3));
    assert_eq!(supply.arm(3), Low::No);
    assert_eq!(supply.arm(4), Low::Now);
    assert_eq!(supply.take(), Low::No, "the later arm replaces the earlier");
}

fn slots_of_another_queue_are_refused() {
    let mut srq = shared(2);
    let memory = Memory::new(16);
    let other = RingId::new(6, 0);
    let mut other = Shared::new(other, memory, depth(2), 0, 2).expect("a good ring");
    post(&mut srq, 1);
    let slots = srq.complete().expect("in flight");
    let slots = other.free_slots(slots).expect_err("of another");
    assert!(srq.free_slots(slots).is_ok());
    let small = Shared::new(SRQ, Memory::new(8), depth(2), 0, 2);
    assert!(small.is_err());
    let none = Shared::new(SRQ, Memory::new(16), depth(2), 0, 0);
    assert!(none.is_err());
}

fn a_resize_takes_what_is_in_flight_along() {
    let mut srq = shared(4);
    let tag = |memory: &Memory, index: usize| memory.load(index * 8 + 1);
    post_tagged(&mut srq, 10, 3);
    for _ in 0..2 {
        let slots = srq.complete().expect("in flight");
        assert!(srq.free_slots(slots).is_ok());
    }
    // Indices 2, 3 and 4 are in flight, in places 2, 3 and 0.
    post_tagged(&mut srq, 13, 2);
    let small = srq.resize(Memory::new(16), depth(2), 2);
    assert_eq!(small.map(drop), Err(Stays::Unread));
    let short = srq.resize(Memory::new(56), depth(8), 8);
    assert_eq!(short.map(drop), Err(Stays::BadRing));
    let shallow = srq.resize(Memory::new(64), depth(8), 9);
    assert_eq!(shallow.map(drop), Err(Stays::BadRing));
    // A resize that the device refuses changes nothing.
    assert!(srq.resize(Memory::new(64), depth(8), 8).is_ok());
    assert_eq!((srq.free(), srq.in_flight()), (1, 3));

    let resize = srq.resize(Memory::new(64), depth(8), 7).expect("fits");
    assert_eq!(tag(&resize.end(), 0), 14, "the old ring");
    assert_eq!((srq.free(), srq.in_flight()), (4, 3));
    let now = [2, 3, 4].map(|index| tag(srq.storage(), index));
    assert_eq!(now, [12, 13, 14]);
    post_tagged(&mut srq, 20, 4);
    assert_eq!((srq.free(), tag(srq.storage(), 0)), (0, 23));
    assert_eq!(srq.audit(0), Ok(()));

    // A slot of a completion that was not published counts as one that is not free.
    let held = srq.complete().expect("in flight");
    let down = srq.resize(Memory::new(64), depth(8), 6);
    assert_eq!(down.map(drop), Err(Stays::Unread));
    assert!(srq.free_slots(held).is_ok());
    let down = srq.resize(Memory::new(64), depth(8), 6).expect("fits");
    down.end();
    assert_eq!((srq.free(), srq.in_flight()), (0, 6));
}

fn a_device_keeps_a_ring_that_what_is_left_needs() {
    let mut supply = Supply::new(depth(4), Index::new(u32::MAX));
    assert_eq!(supply.post(Index::new(2)), Some(3));
    assert!(!supply.resize(depth(2)));
    assert_eq!(supply.post(Index::new(3)), Some(1), "the depth is still 4");
    assert_eq!(supply.post(Index::new(4)), None);
    assert!(supply.resize(depth(8)));
    assert_eq!(supply.post(Index::new(7)), Some(4));
    assert_eq!(supply.next(), Some(Next::Ring(Index::new(u32::MAX))));
    for _ in 0..6 {
        assert_eq!(supply.take(), Low::No);
    }
    // Receives that were given back are in no ring.
    supply.give_back();
    assert_eq!(supply.left(), 3);
    assert!(supply.resize(depth(2)));
    assert_eq!(supply.post(Index::new(8)), None);
}
