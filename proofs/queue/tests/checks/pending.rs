// SPDX-License-Identifier: GPL-2.0
//! Requests that are posted and not completed, of a device that writes what it likes.

use super::checks;
use super::memory::Memory as Words;
use qpair_abi::entry::cqe_flags;
use qpair_abi::entry::opcode;
use qpair_abi::entry::Cqe;
use qpair_queue::consumer::CqConsumer;
use qpair_queue::consumer::Seen;
use qpair_queue::credit::Cq;
use qpair_queue::credit::RingId;
use qpair_queue::index::Depth;
use qpair_queue::index::Index;
use qpair_queue::pending::Memory;
use qpair_queue::pending::Pending;
use qpair_queue::producer::SqProducer;

checks![
    a_completion_takes_its_request_and_those_before,
    an_index_between_requests_takes_nothing,
    a_completion_in_another_cq_takes_nothing,
    a_completion_from_before_a_reset_takes_nothing,
    indices_wrap_and_each_request_is_found,
    requests_go_round_and_no_more_than_there_is_room_for,
    no_receive_is_longer_than_what_was_posted,
    a_write_reports_no_more_than_its_receive_holds,
];

const SQ: RingId = RingId::new(7, 0);
const CQ: RingId = RingId::new(3, 0);
const OTHER: RingId = RingId::new(4, 0);

/// A queue with requests of these ids and blocks.
struct Queue {
    sq: SqProducer<Words>,
    pending: Pending<Vec<(Index, u64)>>,
}

impl Queue {
    fn new(first: Index, most: usize) -> Self {
        let depth = Depth::new(64).unwrap();
        Self {
            sq: SqProducer::starting_at(SQ, CQ, Words::new(64 * 8), depth, 0, 64, first).unwrap(),
            pending: Pending::new(vec![(Index::ZERO, 99); most]),
        }
    }

    /// Posts a request of so many blocks. Returns the index past it.
    fn post(&mut self, id: u64, blocks: u32) -> Index {
        let past = self.sq.room(blocks, true).unwrap().post();
        self.pending.push(past, id);
        self.sq.ring(|_| ());
        past
    }

    fn complete(&mut self, past: Index, seen: Seen<Cq>, nth: u64) -> Option<u64> {
        self.pending.complete(&mut self.sq, past, seen, nth)
    }
}

/// That an entry of this CQ was read.
pub fn seen(cq: RingId) -> Seen<Cq> {
    let depth = Depth::new(8).unwrap();
    let memory = Words::new(8 * 4);
    let (mut consumer, _pool) = CqConsumer::new(cq, memory.clone(), depth, 8).unwrap();
    memory.write(depth, Index::ZERO, [0; 4]);
    consumer.take().unwrap().seen
}

fn a_completion_takes_its_request_and_those_before() {
    let mut queue = Queue::new(Index::ZERO, 4);
    let ends = [(1, 2), (2, 1), (3, 4)].map(|(id, blocks)| queue.post(id, blocks));
    assert_eq!(queue.complete(ends[1], seen(CQ), 1), Some(2));
    assert_eq!(queue.pending.count(), 1);
    assert_eq!(queue.sq.in_flight(), 4);
    assert_eq!(queue.complete(ends[1], seen(CQ), 2), None);
    assert_eq!(queue.pending.pop(), Some(3));
    assert_eq!(queue.pending.pop(), None);
}

fn an_index_between_requests_takes_nothing() {
    let mut queue = Queue::new(Index::ZERO, 4);
    assert_eq!(queue.complete(Index::ZERO, seen(CQ), 1), None);
    queue.post(1, 4);
    for wrong in [0, 2, 5, 1 << 31, u32::MAX] {
        assert_eq!(queue.complete(Index::new(wrong), seen(CQ), 1), None);
    }
    assert_eq!((queue.pending.count(), queue.sq.in_flight()), (1, 4));
}

/// Neither a request nor the end of what is old: both are left to the queue's own CQ, and to a flush.
fn a_completion_in_another_cq_takes_nothing() {
    let mut queue = Queue::new(Index::ZERO, 4);
    queue.pending.reset(Some(5));
    let ends = [1, 2].map(|id| queue.post(id, 1));
    assert_eq!(queue.complete(ends[1], seen(OTHER), 9), None);
    assert_eq!((queue.pending.count(), queue.sq.in_flight()), (2, 2));
    assert_eq!(queue.complete(ends[0], seen(CQ), 5), None);
    assert_eq!(queue.complete(ends[0], seen(CQ), 6), Some(1));
    assert_eq!(queue.pending.pop(), Some(2));
}

fn a_completion_from_before_a_reset_takes_nothing() {
    let mut queue = Queue::new(Index::ZERO, 4);
    queue.post(1, 1);
    let mut queue = Queue {
        sq: Queue::new(Index::ZERO, 0).sq,
        ..queue
    };
    queue.pending.reset(Some(3));
    assert_eq!(queue.pending.count(), 0);
    let past = queue.post(2, 1);
    for old in 1..=3 {
        assert_eq!(queue.complete(past, seen(CQ), old), None);
    }
    assert_eq!(queue.complete(past, seen(CQ), 4), Some(2));
}

fn indices_wrap_and_each_request_is_found() {
    const BLOCKS: [u32; 5] = [1, 3, 1, 3, 1];
    for last in 0..BLOCKS.len() {
        let mut queue = Queue::new(Index::new(u32::MAX - 8), 7);
        // The first is not in the first slot.
        for _ in 0..4 {
            let past = queue.post(9, 1);
            assert_eq!(queue.complete(past, seen(CQ), 1), Some(9));
        }
        let ends: Vec<_> = (0..).zip(BLOCKS).map(|(id, n)| queue.post(id, n)).collect();
        for wrong in (u32::MAX - 9..=u32::MAX).chain(0..9).map(Index::new) {
            if !ends.contains(&wrong) {
                assert_eq!(queue.complete(wrong, seen(CQ), 1), None);
            }
        }
        assert_eq!(queue.complete(ends[last], seen(CQ), 1), Some(last as u64));
        assert_eq!(queue.pending.count(), BLOCKS.len() - 1 - last);
    }
}

fn requests_go_round_and_no_more_than_there_is_room_for() {
    let mut queue = Queue::new(Index::ZERO, 3);
    for round in 0..10 {
        let ends = [0, 1, 2].map(|nth| queue.post(round * 3 + nth, 1));
        assert!(queue.pending.is_full());
        queue.pending.push(ends[2].plus(1), 99);
        assert_eq!(queue.pending.pop(), Some(round * 3));
        assert_eq!(queue.complete(ends[2], seen(CQ), 1), Some(round * 3 + 2));
        assert_eq!(queue.pending.pop(), None);
        let flushed = {
            let depth = Depth::new(8).unwrap();
            let (mut cq, _) = CqConsumer::new(CQ, Words::new(8 * 4), depth, 8).unwrap();
            cq.publish(|_| ());
            queue.sq.reclaim_all(&cq.flushed().unwrap())
        };
        assert_eq!(flushed, 3);
    }
    let mut none = Pending::new(Vec::<(Index, u64)>::new());
    assert!(none.is_full());
    none.push(Index::ZERO, 1);
    assert_eq!(none.pop(), None);
}

fn received(bytes: u32, flags: u8) -> Cqe {
    Cqe {
        bytes,
        flags: flags | cqe_flags::RECV,
        opcode: opcode::RECV,
        ..Cqe::default()
    }
}

fn no_receive_is_longer_than_what_was_posted() {
    assert_eq!(Memory::Message(64).bytes(&received(64, 0)), Some(64));
    assert_eq!(Memory::Message(64).bytes(&received(65, 0)), None);
    let cases = [(39, None), (40, Some(40)), (64, Some(64)), (65, None)];
    for (bytes, expected) in cases {
        let datagram = Memory::Datagram(64);
        assert_eq!(datagram.bytes(&received(bytes, cqe_flags::GRH)), expected);
        assert_eq!(datagram.bytes(&received(bytes, 0)), None);
    }
}

fn a_write_reports_no_more_than_its_receive_holds() {
    let written = |bytes| Cqe {
        opcode: opcode::RECV_WRITE_IMM,
        ..received(bytes, 0)
    };
    for (room, bytes, reported) in [
        (64, 63, 63),
        (64, 64, 64),
        (64, 65, 64),
        (64, u32::MAX, 64),
        (0, u32::MAX, u32::MAX),
        (u64::MAX, u32::MAX, u32::MAX),
    ] {
        let memory = Memory::Message(room);
        assert!(memory.is_written(&written(bytes)));
        assert_eq!(memory.bytes(&written(bytes)), Some(reported), "{room}");
    }
    assert!(!Memory::Datagram(64).is_written(&written(64)));
    assert_eq!(Memory::Datagram(64).bytes(&written(65)), None);
    assert!(!Memory::Message(64).is_written(&received(64, 0)));
}
