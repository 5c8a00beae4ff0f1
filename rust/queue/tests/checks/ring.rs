// SPDX-License-Identifier: GPL-2.0
//! A send queue and its CQ, with a device that does what it should.

use super::checks;
use super::memory::Memory;
use qpair_queue::consumer::CqConsumer;
use qpair_queue::credit::RingId;
use qpair_queue::index::Depth;
use qpair_queue::index::Index;
use qpair_queue::producer::Refused;
use qpair_queue::producer::SqProducer;

checks![blocks_go_round];

const SQ: RingId = RingId::new(7, 0);
const CQ: RingId = RingId::new(3, 0);

/// Work requests of 1 to 4 blocks go round a small ring across the wrap of all indices, every one signalled.
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
        assert!(room.signalled());
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
