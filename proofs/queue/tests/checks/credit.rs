// SPDX-License-Identifier: GPL-2.0
//! Slots: none is lost, none is created, none gets into another ring, none is freed too early.

use super::checks;
use super::memory::Memory;
use super::prop::holds;
use proptest::collection::vec;
use qpair_queue::consumer::EqConsumer;
use qpair_queue::consumer::Published;
use qpair_queue::credit::Eq;
use qpair_queue::credit::Pool;
use qpair_queue::credit::RingId;
use qpair_queue::credit::Slots;
use qpair_queue::deferred::DeferredFree;
use qpair_queue::eq_slots::EventSlots;
use qpair_queue::eq_slots::SlotShares;
use qpair_queue::index::Depth;
use qpair_queue::index::Index;
use std::collections::VecDeque;
use std::iter::from_fn;

checks![
    slots_are_conserved,
    another_rings_slots_come_back,
    a_ring_that_ends_asks_for_all,
    deferred_free_waits_for_the_head,
    deferred_free_is_bounded,
    an_until_that_makes_no_sense_blocks_nothing,
    unread_completions_keep_their_slots,
    the_slots_of_an_eq_are_divided,
    an_unread_event_keeps_its_slot,
    shares_of_an_eq,
    processes_leave_the_kernel_its_share,
];

const RING: RingId = RingId::new(5, 1);
const DEPTH: u32 = 64;

fn pool(ring: RingId, capacity: u32) -> Pool<Eq> {
    let memory = Memory::new(2 * DEPTH as usize);
    EqConsumer::new(ring, memory, Depth::new(DEPTH).unwrap(), capacity)
        .unwrap()
        .1
}

fn slots_are_conserved() {
    holds(500, vec((0..4u8, 0..9u32), 1..80), |moves| {
        let mut pool = pool(RING, 20);
        let mut held: VecDeque<Slots<Eq>> = VecDeque::new();
        for (kind, count) in moves {
            let (free, out) = (pool.free(), held.iter().map(Slots::count).sum());
            assert_eq!(pool.audit(out), Ok(()));
            match kind {
                0 => match pool.take(count) {
                    Some(slots) => {
                        assert_eq!((slots.count(), pool.free()), (count, free - count));
                        held.push_back(slots);
                    }
                    None => assert!(count > free && pool.free() == free),
                },
                1 => {
                    let slots = pool.take_up_to(count);
                    assert_eq!(slots.count(), count.min(free));
                    held.push_back(slots);
                }
                2 => {
                    if let Some(mut slots) = held.pop_front() {
                        match slots.split(count) {
                            Some(part) => held.push_back(part),
                            None => assert!(count > slots.count()),
                        }
                        held.push_back(slots);
                    }
                }
                _ => {
                    if let Some(slots) = held.pop_front() {
                        pool.give(slots).unwrap();
                    }
                }
            }
        }
        let mut rest = Slots::none(RING);
        for slots in held {
            rest.merge(slots).unwrap();
        }
        assert_eq!(pool.retire(rest), Ok(()));
    });
}

fn another_rings_slots_come_back() {
    // The number of another object, and the same number in another epoch.
    for other in [RingId::new(6, 1), RingId::new(5, 2)] {
        let (mut ours, mut theirs) = (pool(RING, 4), pool(other, 4));
        let slot = theirs.take(1).unwrap();
        let slot = ours.give(slot).expect_err("it is not ours");
        assert_eq!((slot.count(), ours.free()), (1, 4));
        let mut held = ours.take(1).unwrap();
        let slot = held.merge(slot).expect_err("it is not ours");
        assert_eq!((slot.count(), held.count()), (1, 1));
        let slot = DeferredFree::<Eq>::new(RING)
            .admit(slot, Index::ZERO)
            .expect_err("it is not ours");
        theirs.give(slot).unwrap();
        assert_eq!(theirs.audit(0), Ok(()));
        let mut deferred = DeferredFree::new(RING);
        deferred.admit(held, Index::ZERO).unwrap();
        let (mut head, _) = Head::of(other, Index::ZERO);
        assert!(deferred.release(head.pass(1)).is_empty(), "its head");
    }
}

fn a_ring_that_ends_asks_for_all() {
    let mut ring = pool(RING, 7);
    let slots = ring.take(3).unwrap();
    let lost = ring.retire(Slots::none(RING)).unwrap_err();
    assert_eq!((lost.minted, lost.found), (7, 4));
    let lost = pool(RING, 7).retire(slots).unwrap_err();
    assert_eq!(
        (lost.minted, lost.found),
        (7, 10),
        "one that is made is found as well"
    );
}

/// An EQ whose head can be published at any time.
struct Head {
    eq: EqConsumer<Memory>,
    memory: Memory,
    written: Index,
}

impl Head {
    fn new(first: Index) -> (Self, Pool<Eq>) {
        Self::of(RING, first)
    }

    fn of(ring: RingId, first: Index) -> (Self, Pool<Eq>) {
        let depth = Depth::new(DEPTH).unwrap();
        let memory = Memory::aged::<2>(depth, first);
        let (eq, pool) =
            EqConsumer::starting_at(ring, memory.clone(), depth, DEPTH, first).unwrap();
        let written = first;
        (
            Self {
                eq,
                memory,
                written,
            },
            pool,
        )
    }

    fn pass(&mut self, count: u32) -> Published<Eq> {
        for _ in 0..count {
            self.memory.write(self.eq.depth(), self.written, [0; 2]);
            self.written = self.written.plus(1);
            self.eq.take().unwrap();
        }
        self.eq.publish(|_| ())
    }
}

/// Compares with a list that has an entry for each.
fn deferred_free_waits_for_the_head() {
    let moves = vec((0..6u32, 0..5u32, 0..4u32), 1..60);
    let firsts = proptest::sample::select(vec![0u32, u32::MAX - 30, (1 << 31) - 20]);
    holds(800, (firsts, moves), |(first, moves)| {
        let (mut head, mut pool) = Head::new(Index::new(first));
        let mut deferred = DeferredFree::new(RING);
        let mut model: Vec<(Index, u32)> = Vec::new();
        for (ahead, count, pass) in moves {
            if let Some(slots) = pool.take(count) {
                let until = head.written.plus(ahead);
                deferred.admit(slots, until).unwrap();
                model.push((until, count));
            }
            let published = head.pass(pass);
            let freed = deferred.release(published);
            let may = model
                .iter()
                .filter(|(until, _)| published.head().reaches(*until));
            let may: u32 = may.map(|(_, count)| count).sum();
            assert!(freed.count() <= may, "free before the head has passed");
            // A slot that the list frees early may wait for a later one here, but not forever.
            let mut left = freed.count();
            model.retain_mut(|(until, count)| {
                let now = if published.head().reaches(*until) {
                    left.min(*count)
                } else {
                    0
                };
                left -= now;
                *count -= now;
                *count != 0
            });
            pool.give(freed).unwrap();
            assert_eq!(pool.audit(deferred.count()), Ok(()));
        }
        let published = head.pass(8);
        pool.give(deferred.release(published)).unwrap();
        assert_eq!(
            pool.retire(Slots::none(RING)),
            Ok(()),
            "the head has passed all"
        );
    });
}

/// The device reports any index: slots come back within a ring of entries.
fn an_until_that_makes_no_sense_blocks_nothing() {
    for wrong in [DEPTH, DEPTH + 1, 1 << 30, (1 << 31) - 1, 1 << 31] {
        let (mut head, mut pool) = Head::new(Index::new(u32::MAX - 100));
        head.pass(3);
        let mut deferred = DeferredFree::new(RING);
        let until = head.eq.until(head.written.plus(wrong));
        deferred.admit(pool.take(1).unwrap(), until).unwrap();
        let until = head.eq.until(head.written.plus(1));
        deferred.admit(pool.take(1).unwrap(), until).unwrap();
        let published = head.pass(DEPTH);
        assert_eq!(deferred.release(published).count(), 2, "{wrong}");
    }
    let (mut head, _) = Head::new(Index::new(5));
    head.pass(2);
    for written in [0, 5, 7, 9, 7 + DEPTH] {
        let written = Index::new(written);
        assert_eq!(head.eq.until(written), written, "what may be true");
    }
}

/// A destroy for each event, forever: no slot waits for more than two buckets.
fn deferred_free_is_bounded() {
    let (mut head, mut pool) = Head::new(Index::new(u32::MAX - 100));
    let mut deferred = DeferredFree::new(RING);
    for _ in 0..1000 {
        let slots = pool
            .take(1)
            .expect("slots come back under a steady stream of destroys");
        deferred.admit(slots, head.written.plus(4)).unwrap();
        let published = head.pass(1);
        pool.give(deferred.release(published)).unwrap();
        assert!(deferred.count() <= 9);
    }
}

/// A queue is destroyed with its completions unread, and another one is created on the same CQ.
fn unread_completions_keep_their_slots() {
    let (mut head, mut pool) = Head::new(Index::new(u32::MAX - 1));
    let mut deferred = DeferredFree::new(RING);
    let old = pool.take(DEPTH).unwrap();
    for _ in 0..4 {
        head.memory.write(head.eq.depth(), head.written, [0; 2]);
        head.written = head.written.plus(1);
    }
    deferred.admit(old, head.written).unwrap();
    for read in 0..4 {
        let freed = deferred.release(head.eq.publish(|_| ()));
        assert!(freed.is_empty(), "free with {read} of 4 read");
        assert!(pool.take(1).is_none());
        head.eq.take().unwrap();
    }
    assert!(
        deferred.release(head.eq.published()).is_empty(),
        "all read, but not published"
    );
    pool.give(deferred.release(head.eq.publish(|_| ())))
        .unwrap();
    assert_eq!(pool.take(DEPTH).map(|slots| slots.count()), Some(DEPTH));
}

fn the_slots_of_an_eq_are_divided() {
    let shares = SlotShares {
        reserve: 1,
        spare: 2,
        kernel: 0,
    };
    let slots = EventSlots::new(pool(RING, DEPTH), shares).unwrap();
    let shared = (slots.unbound(), slots.spare(), slots.read());
    assert_eq!(shared, (DEPTH - 3, 2, 0));
}

/// All slots of an EQ are bound; a CQ is destroyed with its event unread, and another one is
/// created.
fn an_unread_event_keeps_its_slot() {
    for process in [false, true] {
        let (mut head, pool) = Head::new(Index::new(u32::MAX));
        let shares = SlotShares {
            reserve: DEPTH - 1,
            spare: 0,
            kernel: 0,
        };
        let mut slots = EventSlots::new(pool, shares).unwrap();
        let mut cq = match process {
            true => slots.bind_process().unwrap(),
            false => slots.bind_kernel().unwrap(),
        };
        assert_eq!(slots.arm(&mut cq), Ok(!process));
        head.memory.write(head.eq.depth(), head.written, [0; 2]);
        head.written = head.written.plus(1);
        slots.unbind(cq, head.written).unwrap();
        slots.published(head.eq.published());
        assert!(slots.bind_process().is_err(), "its event is in the EQ");
        head.eq.take().unwrap();
        slots.published(head.eq.published());
        assert!(slots.bind_process().is_err(), "read, but not published");
        slots.published(head.eq.publish(|_| ()));
        let cq = slots.bind_kernel().expect("the head has passed it");
        slots.unbind(cq, head.written).unwrap();
        assert_eq!(slots.audit(0), Ok(()));
    }
}

/// As documented in driver.rst, and at most an eighth of the EQ.
fn shares_of_an_eq() {
    for (depth, spare, kernel) in [
        (2, 0, 0),
        (8, 1, 1),
        (256, 32, 32),
        (512, 32, 64),
        (4096, 32, 64),
        (1 << 24, 32, 64),
    ] {
        let expected = SlotShares {
            reserve: 16,
            spare,
            kernel,
        };
        assert_eq!(SlotShares::of(Depth::new(depth).unwrap(), 16), expected);
    }
}

/// However many CQs processes create and destroy, the kernel can still bind its own.
fn processes_leave_the_kernel_its_share() {
    let (mut head, pool) = Head::new(Index::new(u32::MAX));
    let shares = SlotShares::of(head.eq.depth(), 3);
    let mut slots = EventSlots::new(pool, shares).unwrap();
    for arms_itself in [false, true] {
        // A wrong pool never runs dry.
        let more = DEPTH as usize + 1;
        let mut bound: Vec<_> = from_fn(|| slots.bind_process().ok()).take(more).collect();
        let expected = DEPTH - shares.reserve - shares.spare - shares.kernel;
        assert_eq!(bound.len() as u32, expected, "of processes");
        if arms_itself {
            bound.extend(from_fn(|| slots.bind_ulp().ok()).take(more));
            let expected = expected + shares.kernel / 2;
            assert_eq!(bound.len() as u32, expected, "of kernel ULPs");
        }
        bound.extend(from_fn(|| slots.bind_kernel().ok()).take(more));
        let expected = expected + shares.kernel;
        assert_eq!(bound.len() as u32, expected, "of the kernel");
        assert!(slots.bind_process().is_err());
        for cq in bound {
            slots.unbind(cq, head.written).unwrap();
            assert!(slots.bind_process().is_err(), "what is back is the share");
        }
        slots.published(head.eq.publish(|_| ()));
    }
    assert_eq!(slots.audit(0), Ok(()));
}
