// SPDX-License-Identifier: GPL-2.0
//! The order of a notify, also with memory that a queue has by reference.

use super::checks;
use super::memory::Memory;
use qpair_queue::consumer::CqConsumer;
use qpair_queue::credit::RingId;
use qpair_queue::index::Depth;
use qpair_queue::index::Index;
use qpair_queue::storage::Storage;
use std::cell::Cell;
use std::rc::Rc;

checks![a_notify_comes_before_the_reads_after_it];

/// Memory that checks the order of a notify: its doorbell, the barrier, reads.
struct Ordered(Memory, Rc<Cell<u32>>);

impl Storage for Ordered {
    fn words(&self) -> usize {
        self.0.words()
    }
    fn load(&self, at: usize) -> u64 {
        assert_eq!(self.1.get(), 2, "a read before the barrier");
        self.0.load(at)
    }
    fn store(&self, at: usize, word: u64) {
        self.0.store(at, word);
    }
    fn after_owner(&self) {}
    fn before_head(&self) {
        panic!("a notify publishes nothing");
    }
    fn before_tail(&self) {}
    fn after_notify(&self) {
        assert_eq!(self.1.replace(2), 1, "the barrier before the doorbell");
    }
}

fn a_notify_comes_before_the_reads_after_it() {
    let (depth, order) = (Depth::new(2).unwrap(), Rc::new(Cell::new(0)));
    let memory = Memory::new(8);
    memory.write(depth, Index::ZERO, [7; 4]);
    let ordered = Ordered(memory, order.clone());
    let (mut cq, _pool) = CqConsumer::new(RingId::new(2, 0), &ordered, depth, 2).unwrap();
    cq.notify(|| order.set(1));
    assert_eq!(cq.published().head(), Index::ZERO);
    assert_eq!(cq.take().unwrap().words[0], 7);
    // `take` reads by `load_entry`.
    assert_eq!(<&Ordered as Storage>::load(&&ordered, 0), 7);
}
