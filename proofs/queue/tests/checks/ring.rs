// SPDX-License-Identifier: GPL-2.0
//! Rings with a correct device, and with a faulty one.

use super::checks;
use super::memory::Memory;
use super::prop::holds;
use proptest::collection::vec;
use proptest::prelude::any;
use qpair_queue::consumer::is_there;
use qpair_queue::consumer::CqConsumer;
use qpair_queue::consumer::EqConsumer;
use qpair_queue::consumer::Seen;
use qpair_queue::credit::Cq;
use qpair_queue::credit::RingId;
use qpair_queue::index::Depth;
use qpair_queue::index::Index;
use qpair_queue::producer::Refused;
use qpair_queue::producer::Room;
use qpair_queue::producer::RqProducer;
use qpair_queue::producer::SqProducer;
use qpair_queue::producer::Stale;
use qpair_queue::storage::Storage;
use std::cell::Cell;

checks![
    blocks_go_round,
    slack_is_for_what_is_completed,
    an_entry_is_whole_or_not_there,
    zeroed_memory_holds_nothing,
    garbage_completions_give_nothing,
    the_publication_must_reach_the_completion,
    what_was_covered_long_ago_can_be_freed,
    a_queue_that_signals_nothing_goes_on,
    a_queue_signals_no_more_than_its_user_asks,
    what_is_withdrawn_was_never_posted,
    receives_of_every_stride_lie_where_they_should,
    a_batch_is_its_posts,
    a_row_of_posts_is_its_posts,
    a_row_is_its_completions,
    a_row_of_reads_ends_where_it_should,
    bad_rings_are_refused,
];

const SQ: RingId = RingId::new(7, 0);
const CQ: RingId = RingId::new(3, 0);

/// Signaled work requests of 1 to 4 blocks wrap a small ring, across the wrap of all indices.
fn blocks_go_round() {
    let depth = Depth::new(8).unwrap();
    let first = Index::new(u32::MAX - 100);
    let sq_memory = Memory::new(8 * 8);
    let cq_memory = Memory::aged::<4>(depth, first);
    let mut sq = SqProducer::starting_at(SQ, CQ, sq_memory.clone(), depth, 0, 8, first).unwrap();
    let (mut cq, mut pool) =
        CqConsumer::starting_at(CQ, cq_memory.clone(), depth, 8, first).unwrap();
    let slots = pool.take(8).unwrap();
    let mut written = first;
    for round in 0..1000u32 {
        let blocks = round % 4 + 1;
        let mut room = sq.room(blocks, true).unwrap();
        assert!(room.signaled());
        for block in 0..blocks {
            room.write(block, &[u64::from(round << 8 | block); 8]);
        }
        let index = room.post();
        assert_eq!(
            sq.room(8 - blocks + 1, true).unwrap_err(),
            if 8 - blocks + 1 > 4 {
                Refused::TooLarge
            } else {
                Refused::Full
            }
        );
        let mut told = None;
        assert!(sq.ring(|tail| told = Some(tail)));
        assert!(!sq.ring(|_| panic!("nothing new")));
        assert_eq!(told, Some(index));
        for block in 0..blocks {
            let at = depth.position(index.plus(0u32.wrapping_sub(blocks - block))) as usize * 8;
            assert_eq!(sq_memory.word(at + 7), u64::from(round << 8 | block));
        }
        assert!(cq.take().is_none());
        cq_memory.write(depth, written, [1, 2, u64::from(index.get()), 3]);
        written = written.plus(1);
        let entry = cq.take().unwrap();
        assert_eq!(entry.words[2], u64::from(index.get()));
        assert_eq!(sq.complete(index, entry.seen), Ok(blocks));
        assert!(sq.complete(index, entry.seen).is_err());
        assert_eq!(
            sq.reclaim(cq.published()),
            0,
            "before the head is published"
        );
        assert_eq!(sq.reclaim(cq.publish(|_| ())), blocks);
        sq.audit().unwrap();
    }
    assert!(sq.retire().is_ok());
    pool.give(slots).unwrap();
    assert_eq!(pool.audit(0), Ok(()));
}

/// Of 8 blocks, 3 are slack: 5 may be in flight, however many of the slack are completed.
fn slack_is_for_what_is_completed() {
    const SLACK: u32 = 3;
    let depth = Depth::new(8).unwrap();
    let memory = Memory::new(8 * 8);
    let mut sq = SqProducer::new_sq(SQ, CQ, memory, depth, 8).unwrap();
    let completions = Memory::new(8 * 4);
    let (mut cq, _pool) = CqConsumer::new(CQ, completions.clone(), depth, 8).unwrap();
    let fill = |sq: &mut SqProducer<Memory>| {
        let mut batch = sq.batch_beside(SLACK, |memory| memory);
        let mut posted = 0;
        while let Ok(room) = batch.room(1, true) {
            room.post();
            posted += 1;
        }
        drop(batch);
        sq.ring(|_| ());
        posted
    };
    assert_eq!(fill(&mut sq), 5);
    let mut done = Index::ZERO;
    for completed in 1..=SLACK {
        assert_eq!(fill(&mut sq), 0, "{completed}");
        completions.write(depth, done, [0; 4]);
        done = done.plus(1);
        assert_eq!(sq.complete(done, cq.take().unwrap().seen), Ok(1));
        assert_eq!(sq.completed(), completed);
        assert_eq!(fill(&mut sq), 1, "{completed}");
    }
    assert_eq!(sq.free(), 0);
    cq.publish(|_| ());
    assert_eq!(sq.reclaim(cq.published()), SLACK);
    assert_eq!(fill(&mut sq), 0);
    sq.audit().unwrap();
}

/// Memory into which the device writes an entry just before the load of a given number.
struct Racing {
    memory: Memory,
    loads: Cell<u32>,
    at: u32,
    device: fn(&Memory),
}

impl Storage for Racing {
    fn words(&self) -> usize {
        self.memory.words()
    }
    fn load(&self, at: usize) -> u64 {
        if self.loads.replace(self.loads.get() + 1) == self.at {
            (self.device)(&self.memory);
        }
        self.memory.load(at)
    }
    fn store(&self, at: usize, word: u64) {
        self.memory.store(at, word);
    }
    fn after_owner(&self) {}
    fn before_head(&self) {}
    fn before_tail(&self) {}
}

fn an_entry_is_whole_or_not_there() {
    let depth = Depth::new(2).unwrap();
    let mut seen = 0;
    for at in 0..8 {
        let racing = Racing {
            memory: Memory::new(8),
            loads: Cell::new(0),
            at,
            device: |memory| memory.write(Depth::new(2).unwrap(), Index::ZERO, [1, 2, 3, 4]),
        };
        let (mut cq, _pool) = CqConsumer::new(CQ, racing, depth, 2).unwrap();
        for _ in 0..2 {
            if let Some(entry) = cq.take() {
                assert_eq!(entry.words, [1, 2, 3, 4 | 1 << 63]);
                seen += 1;
            }
        }
    }
    assert!(seen > 1);
}

fn zeroed_memory_holds_nothing() {
    for log2 in 0..8 {
        let depth = Depth::from_log2(log2).unwrap();
        let memory = Memory::new(2 << log2);
        let (mut eq, _pool) = EqConsumer::new(CQ, memory.clone(), depth, depth.entries()).unwrap();
        assert!(eq.take().is_none() && !eq.is_ready());
        // Three passes, one at a time and never a pass too far.
        for i in 0..3 * depth.entries() {
            assert!(!is_there::<2, _>(&memory, depth, Index::new(i)));
            memory.write(depth, Index::new(i), [u64::from(i), 0]);
            assert!(is_there::<2, _>(&memory, depth, Index::new(i)) && eq.is_ready());
            assert_eq!(eq.take().unwrap().words[0], u64::from(i));
            assert!(eq.take().is_none());
            assert_eq!(eq.unpublished(), 1);
            let mut told = None;
            eq.publish(|head| told = Some(head));
            assert_eq!(told, Some(Index::new(i + 1)));
            assert_eq!(eq.unpublished(), 0);
        }
    }
}

/// Reads this many entries of a CQ.
fn seen(ring: RingId, count: u32) -> (CqConsumer<Memory>, Vec<Seen<Cq>>) {
    let depth = Depth::new(16).unwrap();
    let memory = Memory::new(64);
    let (mut cq, _pool) = CqConsumer::new(ring, memory.clone(), depth, 16).unwrap();
    let entries = (0..count).map(|i| {
        memory.write(depth, Index::new(i), [0; 4]);
        cq.take().unwrap().seen
    });
    let entries = entries.collect();
    (cq, entries)
}

fn posted(first: Index, posts: &[u32]) -> SqProducer<Memory> {
    let depth = Depth::new(16).unwrap();
    let memory = Memory::new(128);
    let mut sq = SqProducer::starting_at(SQ, CQ, memory, depth, 0, 16, first).unwrap();
    for blocks in posts {
        sq.room(*blocks, true).unwrap().post();
    }
    sq
}

fn garbage_completions_give_nothing() {
    let firsts = proptest::sample::select(vec![0u32, u32::MAX - 6, (1 << 31) - 4]);
    holds(
        1500,
        (firsts, vec(any::<(i8, bool)>(), 1..12)),
        |(first, tries)| {
            let first = Index::new(first);
            let mut sq = posted(first, &[2, 4, 1, 3]);
            sq.ring(|_| ());
            // Posted, without a doorbell.
            sq.room(4, true).unwrap().post();
            let (mut cq, seen) = seen(CQ, 1);
            let mut done = 0u32;
            for (offset, _) in tries {
                let index = first.plus(i32::from(offset / 8) as u32);
                let covers = index.since(first).wrapping_sub(done);
                let result = sq.complete(index, seen[0]);
                if (1..=10 - done).contains(&covers) {
                    assert_eq!(result, Ok(covers));
                    done += covers;
                } else {
                    assert_eq!(result, Err(Stale::Index));
                }
                assert_eq!((sq.completed(), sq.in_flight()), (done, 14 - done));
                sq.audit().unwrap();
            }
            assert_eq!(sq.reclaim(cq.publish(|_| ())), done);
            assert_eq!(sq.free(), 2 + done);
            assert!(sq.retire().is_ok());
        },
    );
    // A CQ that is not this queue's: another object, or the same number after a reset.
    for other in [RingId::new(4, 0), RingId::new(3, 1)] {
        let mut sq = posted(Index::ZERO, &[2]);
        sq.ring(|_| ());
        let (mut cq, seen) = seen(other, 1);
        assert_eq!(sq.complete(Index::new(2), seen[0]), Err(Stale::Cq));
        assert_eq!(sq.in_flight(), 2);
        assert_eq!(sq.reclaim(cq.publish(|_| ())), 0);
    }
}

fn the_publication_must_reach_the_completion() {
    let mut sq = posted(Index::ZERO, &[1, 1, 1]);
    sq.ring(|_| ());
    let depth = Depth::new(16).unwrap();
    let memory = Memory::new(64);
    let (mut cq, _pool) = CqConsumer::new(CQ, memory.clone(), depth, 16).unwrap();
    memory.write(depth, Index::ZERO, [0; 4]);
    memory.write(depth, Index::new(1), [0; 4]);
    let first = cq.take().unwrap();
    let early = cq.publish(|_| ());
    assert_eq!(sq.complete(Index::new(1), first.seen), Ok(1));
    let second = cq.take().unwrap();
    assert_eq!(sq.complete(Index::new(3), second.seen), Ok(2));
    assert_eq!(sq.reclaim(early), 0, "it does not reach the second");
    let (mut other, _) = self::seen(RingId::new(3, 9), 9);
    assert_eq!(sq.reclaim(other.publish(|_| ())), 0, "another CQ's head");
    assert_eq!(sq.reclaim(cq.publish(|_| ())), 3);
}

/// A queue is not reclaimed while 2^31 entries and more of other queues pass its CQ.
fn what_was_covered_long_ago_can_be_freed() {
    let depth = Depth::new(16).unwrap();
    for later in [0, 1, 1 << 30, 1 << 31, (1 << 31) + 1, 3 << 30, u32::MAX] {
        let mut sq = posted(Index::ZERO, &[1, 2]);
        sq.ring(|_| ());
        let (mut near, entries) = seen(CQ, 1);
        assert_eq!(sq.complete(Index::new(3), entries[0]), Ok(3));
        assert!(near.flushed().is_none(), "it is not published");
        near.publish(|_| ());
        // The same CQ, later.
        let now = near.head().plus(later);
        let memory = Memory::aged::<4>(depth, now);
        let (mut cq, _pool) = CqConsumer::starting_at(CQ, memory.clone(), depth, 16, now).unwrap();
        let (mut other, _) = seen(RingId::new(3, 9), 1);
        other.publish(|_| ());
        assert_eq!(sq.reclaim_all(&other.flushed().unwrap()), 0, "another CQ");
        memory.write(depth, now, [0; 4]);
        assert!(cq.take().is_some() && cq.flushed().is_none());
        cq.publish(|_| ());
        // The indices alone cannot show it.
        if later >= 1 << 31 && later != u32::MAX {
            assert_eq!(sq.reclaim(cq.published()), 0);
        }
        let freed = sq.completed();
        assert_eq!(sq.reclaim_all(&cq.flushed().unwrap()), freed);
        assert_eq!((freed, sq.free()), (3, 16));
        sq.audit().unwrap();
    }
}

/// A user that signals the last of each 128 sends gets one completion for them, and all slots back.
fn a_queue_signals_no_more_than_its_user_asks() {
    const SENDS: u32 = 128;
    let depth = Depth::new(SENDS).unwrap();
    let memory = Memory::new(SENDS as usize * 8);
    let mut sq = SqProducer::new_sq(SQ, CQ, memory, depth, SENDS).unwrap();
    for _ in 0..3 {
        let mut signaled = Vec::new();
        for nth in 1..=SENDS {
            let mut batch = sq.batch(|ring| ring);
            let room = batch.room_as_asked(1, nth == SENDS).unwrap();
            let signal = room.signaled();
            let past = room.post();
            if signal {
                signaled.push(past);
            }
        }
        let full = sq.batch(|ring| ring).room_as_asked(1, true).unwrap_err();
        assert_eq!(full, Refused::Full);
        assert_eq!(signaled, [sq.tail()]);
        sq.ring(|_| ());
        let (mut cq, seen) = seen(CQ, 1);
        assert_eq!(sq.complete(sq.tail(), seen[0]), Ok(SENDS));
        assert_eq!(sq.reclaim(cq.publish(|_| ())), SENDS);
    }
}

/// No work request is signaled by the caller; the device completes those that the rule signals;
/// and any work request can still be posted.
fn a_queue_that_signals_nothing_goes_on() {
    holds(
        1500,
        (1..17u32, vec((1..5u32, any::<bool>()), 1..100)),
        |(capacity, posts)| {
            let depth = Depth::new(16).unwrap();
            let mut sq =
                SqProducer::starting_at(SQ, CQ, Memory::new(128), depth, 0, capacity, Index::ZERO)
                    .unwrap();
            let (mut cq, seen) = seen(CQ, 1);
            let mut signaled = None;
            for (blocks, wait) in posts {
                let blocks = blocks.min(capacity);
                if wait || sq.free() < blocks {
                    // Everything is executed; the last signaled one completes all.
                    sq.ring(|_| ());
                    if let Some(index) = signaled.take() {
                        sq.complete(index, seen[0]).unwrap();
                        sq.reclaim(cq.publish(|_| ()));
                    }
                }
                let room = sq.room(blocks, false);
                let room = room.expect("nothing would ever come back");
                let signal = room.signaled();
                let index = room.post();
                if signal {
                    signaled = Some(index);
                }
            }
            let unasked = 4.min(capacity);
            assert!(capacity < 8 || sq.room(unasked, false).is_ok() || signaled.is_some());
        },
    );
    // And no more than necessary: half a ring of unsignaled ones is permitted.
    let mut sq = posted(Index::ZERO, &[]);
    let signals = (0..16).map(|_| {
        let room = sq.room(1, false).unwrap();
        let signaled = room.signaled();
        room.post();
        signaled
    });
    let signals: Vec<bool> = signals.collect();
    assert_eq!(signals.iter().position(|signaled| *signaled), Some(12));
}

/// Posts that are withdrawn leave a queue as its last doorbell did.
fn what_is_withdrawn_was_never_posted() {
    let posts = || vec((1..5u32, any::<bool>()), 0..5);
    holds(500, vec((posts(), posts()), 1..20), |rounds| {
        // Where requests are not written, all of the queue's state is in its text.
        let mut sq = posted(Index::new(u32::MAX - 9), &[]);
        let (mut cq, seen) = seen(CQ, 1);
        for (kept, withdrawn) in rounds {
            let post = |sq: &mut SqProducer<Memory>, posts: Vec<(u32, bool)>| {
                for (blocks, signal) in posts {
                    let _ = sq.room(blocks, signal).map(|room| room.post());
                }
            };
            post(&mut sq, kept);
            sq.ring(|_| ());
            let before = format!("{sq:?}");
            post(&mut sq, withdrawn);
            sq.withdraw();
            assert_eq!(format!("{sq:?}"), before);
            sq.audit().unwrap();
            assert!(!sq.ring(|_| ()), "nothing is left to hand over");
            let _ = sq.complete(sq.tail(), seen[0]);
            sq.reclaim(cq.publish(|_| ()));
        }
    });
}

fn receives_of_every_stride_lie_where_they_should() {
    for stride in 0..3u8 {
        let depth = Depth::new(4).unwrap();
        let memory = Memory::new(4 * (8 << stride));
        let first = Index::new(u32::MAX - 1);
        let mut rq =
            RqProducer::starting_at(SQ, CQ, memory.clone(), depth, stride, 3, first).unwrap();
        for i in 0..3u64 {
            let mut room = rq.room(1, true).unwrap();
            for block in 0..1u64 << stride {
                room.write(block as u32, &[i << 8 | block; 8]);
            }
            // Past its stride: not written.
            room.write(1 << stride, &[u64::MAX; 8]);
            assert_eq!(room.post(), first.plus(i as u32 + 1));
        }
        assert_eq!(rq.room(1, true).unwrap_err(), Refused::Full);
        for (position, i) in [(2, 0), (3, 1), (0, 2)] {
            for block in 0..1usize << stride {
                let at = ((position << stride) + block) * 8;
                assert_eq!(memory.word(at + 3), i << 8 | block as u64);
            }
        }
        assert!((0..8 << stride).all(|i| memory.word((8 << stride) + i) == 0));
        let (mut cq, seen) = seen(CQ, 1);
        rq.ring(|tail| assert_eq!(tail, first.plus(3)));
        assert_eq!(rq.complete(first.plus(2), seen[0]), Ok(2));
        assert_eq!(rq.reclaim(cq.publish(|_| ())), 2);
        assert_eq!((rq.free(), rq.capacity()), (2, 3));
        // Two slots at once, at positions 1 and 2.
        let mut room = rq.room(2, true).unwrap();
        for block in 0..2u32 << stride {
            room.write(block, &[0x300 | u64::from(block); 8]);
        }
        room.post();
        for block in 0..2usize << stride {
            let at = ((1 << stride) + block) * 8;
            assert_eq!(memory.word(at + 3), 0x300 | block as u64);
        }
    }
}

/// Posting in batches equals posting one by one: the same refusals, signals, blocks and slots.
fn a_batch_is_its_posts() {
    let firsts = proptest::sample::select(vec![0u32, u32::MAX - 6]);
    let posts = vec(vec((0..6u32, any::<bool>()), 0..8), 1..8);
    holds(
        1000,
        (firsts, 1..9u32, posts),
        |(first, capacity, batches)| {
            let (depth, first) = (Depth::new(8).unwrap(), Index::new(first));
            let queue = |memory| {
                SqProducer::starting_at(SQ, CQ, memory, depth, 0, capacity, first).unwrap()
            };
            let (memory, other) = (Memory::new(64), Memory::new(64));
            let (mut sq, mut singly) = (queue(memory.clone()), queue(other.clone()));
            let (mut cq, seen) = seen(CQ, 1);
            let published = cq.publish(|_| ());
            for (i, posts) in (1..).zip(batches) {
                let mut batch = sq.batch(|memory| memory.clone());
                for (slots, signal) in posts {
                    match (batch.room(slots, signal), singly.room(slots, signal)) {
                        (Ok(mut room), Ok(mut single)) => {
                            assert_eq!(room.signaled(), single.signaled());
                            for block in 0..slots {
                                room.write(block, &[i << 8 | u64::from(block); 8]);
                                single.write(block, &[i << 8 | u64::from(block); 8]);
                            }
                            assert_eq!(room.post(), single.post());
                        }
                        (room, single) => assert_eq!(room.err(), single.err()),
                    }
                }
                drop(batch);
                let counts = |sq: &SqProducer<_>| (sq.tail(), sq.free(), sq.in_flight());
                assert_eq!(counts(&sq), counts(&singly));
                assert!((0..64).all(|at| memory.word(at) == other.word(at)));
                sq.audit().unwrap();
                if i % 2 == 0 {
                    for sq in [&mut sq, &mut singly] {
                        sq.ring(|_| ());
                        let _nothing_new = sq.complete(sq.tail(), seen[0]);
                        sq.reclaim(published);
                    }
                }
            }
            assert!(sq.retire().is_ok() && singly.retire().is_ok());
        },
    );
}

/// Posting in rows equals posting one by one. A row ends without a request, without a free slot, and
/// at the end of the memory, and takes no request that it does not post.
fn a_row_of_posts_is_its_posts() {
    let firsts = proptest::sample::select(vec![0u32, 5, u32::MAX - 6]);
    let rows = vec(vec(any::<bool>(), 0..8), 1..12);
    holds(1000, (firsts, 1..9u32, rows), |(first, capacity, rows)| {
        let (depth, first) = (Depth::new(8).unwrap(), Index::new(first));
        let queue =
            |memory| SqProducer::starting_at(SQ, CQ, memory, depth, 0, capacity, first).unwrap();
        let (memory, other) = (Memory::new(64), Memory::new(64));
        let (mut sq, mut singly) = (queue(memory.clone()), queue(other.clone()));
        let (mut cq, seen) = seen(CQ, 1);
        let published = cq.publish(|_| ());
        for (i, signals) in (1..).zip(rows) {
            let words = |signaled| [i << 1 | u64::from(signaled); 8];
            let to_end = 8 - depth.position(sq.tail());
            let most = sq.free().min(to_end) as usize;
            let mut left = signals.iter();
            let next = || left.next().map(|signal| (*signal, words));
            let posted = sq.batch(|memory| memory.clone()).post_row(next);
            assert_eq!(posted as usize, signals.len().min(most));
            assert_eq!(left.len(), signals.len() - posted as usize);
            for signal in &signals[..posted as usize] {
                let mut room = singly.room(1, *signal).unwrap();
                room.write(0, &words(room.signaled()));
                room.post();
            }
            let counts = |sq: &SqProducer<_>| (sq.tail(), sq.free(), sq.in_flight());
            assert_eq!(counts(&sq), counts(&singly));
            assert!((0..64).all(|at| memory.word(at) == other.word(at)));
            sq.audit().unwrap();
            if i % 3 == 0 {
                for sq in [&mut sq, &mut singly] {
                    sq.ring(|_| ());
                    let _nothing_new = sq.complete(sq.tail(), seen[0]);
                    sq.reclaim(published);
                }
            }
        }
        assert!(sq.retire().is_ok() && singly.retire().is_ok());
    });
}

/// A row of completions equals single ones, but takes effect only when it ends, and has no effect
/// for another CQ.
fn a_row_is_its_completions() {
    holds(1500, vec(-2..16i32, 1..12), |offsets| {
        let first = Index::new(u32::MAX - 6);
        let (mut sq, mut singly) = (posted(first, &[2, 4, 1, 3]), posted(first, &[2, 4, 1, 3]));
        sq.ring(|_| ());
        singly.ring(|_| ());
        let (mut cq, seen) = seen(CQ, 2);
        let foreign = self::seen(RingId::new(4, 0), 1).1[0];
        let mut row = sq.row();
        for offset in &offsets {
            let index = first.plus(*offset as u32);
            let single = singly.complete(index, seen[1]).ok();
            assert_eq!(row.complete(index), single);
        }
        assert!(row.is_of(seen[0]) && !row.is_of(foreign));
        assert_eq!(row.end(foreign), Err(Stale::Cq));
        assert_eq!((sq.completed(), sq.in_flight()), (0, 10));
        let mut row = sq.row();
        for offset in &offsets {
            let _known: Option<u32> = row.complete(first.plus(*offset as u32));
        }
        assert_eq!(row.end(seen[1]), Ok(()));
        let counts = |sq: &SqProducer<_>| (sq.completed(), sq.in_flight());
        assert_eq!(counts(&sq), counts(&singly));
        sq.audit().unwrap();
        let published = cq.publish(|_| ());
        assert_eq!(sq.reclaim(published), singly.reclaim(published));
    });
}

/// A row ends without output space, without an entry, at another kind, at a refused entry, and at
/// the end of the memory, and loses nothing.
fn a_row_of_reads_ends_where_it_should() {
    const KIND: u64 = 1 << 56;
    // Whether an entry is of the kind, and the output space of each read.
    let entries = vec((any::<bool>(), any::<bool>()), 1..40);
    holds(1500, (entries, 0..7usize), |(entries, places)| {
        let (depth, first) = (Depth::new(8).unwrap(), Index::new(u32::MAX - 2));
        let memory = Memory::aged::<4>(depth, first);
        let (mut cq, _pool) = CqConsumer::starting_at(CQ, memory.clone(), depth, 8, first).unwrap();
        let (mut written, mut read) = (0, 0);
        while read < entries.len() {
            while written < entries.len() && written < read + 8 {
                let (kind, refused) = entries[written];
                let words = [
                    written as u64,
                    refused.into(),
                    0,
                    if kind { KIND } else { 0 },
                ];
                memory.write(depth, first.plus(written as u32), words);
                written += 1;
            }
            let mut into = vec![None; places];
            let (taken, seen) = cq.take_while(
                |memory| memory.clone(),
                &mut into,
                (KIND, KIND),
                |place, words| {
                    *place = Some(words[0]);
                    words[1] == 0
                },
            );
            let to_end = 8 - depth.position(first.plus(read as u32)) as usize;
            let fits = entries[read..written].iter().take(places.min(to_end));
            assert_eq!(
                taken,
                fits.take_while(|(kind, refused)| *kind && !refused).count()
            );
            for (i, place) in into.iter().take(taken).enumerate() {
                assert_eq!(*place, Some((read + i) as u64));
            }
            read += taken;
            assert_eq!(cq.head(), first.plus(read as u32));
            assert_eq!(seen.past(), cq.head());
            match cq.take() {
                Some(entry) => assert_eq!(entry.words[0], read as u64),
                None => assert_eq!(read, written),
            }
            read += usize::from(read < written);
            cq.publish(|_| ());
        }
        assert!(cq.take().is_none());
    });
}

fn bad_rings_are_refused() {
    let depth = Depth::new(4).unwrap();
    let eq = |words, capacity| EqConsumer::new(CQ, Memory::new(words), depth, capacity).is_ok();
    assert!(eq(8, 4) && eq(8, 1));
    assert!(!eq(7, 4) && !eq(8, 5) && !eq(8, 0));
    let sq =
        |words, capacity| SqProducer::new_sq(SQ, CQ, Memory::new(words), depth, capacity).is_ok();
    assert!(sq(32, 4) && !sq(31, 4) && !sq(32, 5) && !sq(32, 0));
    let rq =
        |words, stride| RqProducer::new_rq(SQ, CQ, Memory::new(words), depth, stride, 4).is_ok();
    assert!(rq(32, 0) && rq(64, 1) && rq(128, 2));
    assert!(!rq(63, 1) && !rq(127, 2) && !rq(4096, 3));
    let mut sq = SqProducer::new_sq(SQ, CQ, Memory::new(32), depth, 3).unwrap();
    for (blocks, why) in [
        (0, Refused::TooLarge),
        (4, Refused::TooLarge),
        (5, Refused::TooLarge),
    ] {
        assert_eq!(sq.room(blocks, true).unwrap_err(), why);
    }
    // Unused room has no effect.
    let _: Room<_, _, _> = sq.room(3, true).unwrap();
    assert_eq!((sq.free(), sq.tail()), (3, Index::ZERO));
    sq.room(3, true).unwrap().post();
    assert_eq!(sq.room(1, true).unwrap_err(), Refused::Full);
}
