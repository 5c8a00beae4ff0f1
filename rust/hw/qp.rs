// SPDX-License-Identifier: GPL-2.0

//! Queue pairs of the kernel.
//!
//! The allowed operations of a queue pair depend on its state, so the state is part of its type:
//!
//! ```text
//!   QueuePair<Reset> --init--> QueuePair<Init> --connect--> QueuePair<Ready>
//!    nothing                    post_recv                    post_recv, sends
//! ```
//!
//! A queue pair has one owner at a time: the task that creates it, then, as part of its
//! [`KernelCq`](super::cq::KernelCq), the poll of an EQ, then the task that destroys it. So it
//! needs no lock. It holds slots of its CQ for all requests that it can have in flight. They are
//! freed when it has been destroyed and the CQ's head has passed its last entry.
//!
//! The `wr_id` of a work request holds the queue pair's place in its CQ and a [`Tag`] of the
//! poster.

use super::{
    function::Doorbells,
    ring::Ring, //
};
use crate::{
    abi::{
        command::QpContext,
        doorbell,
        entry::{
            opcode,
            send_flags,
            Cqe,
            RecvWqe,
            SendWqe,
            Sge,
            BLOCK_WORDS,
            MAX_BLOCKS, //
        },
        Number, //
    },
    kernel::{
        dma::Words,
        gate::Pass,
        trace, //
    },
    queue::{
        consumer::{
            CqConsumer,
            Published,
            Seen, //
        },
        credit::{
            Cq,
            RingId,
            Slots,
            Sq, //
        },
        index::{
            Depth,
            Index, //
        },
        producer::{
            Batch,
            Refused,
            RqProducer,
            SqProducer, //
        }, //
    }, //
};
use core::marker::PhantomData;
use kernel::prelude::*;

/// Created: nothing can be posted.
pub(crate) enum Reset {}
/// Receives may be posted.
pub(crate) enum Init {}
/// Connected: sends may be posted as well.
pub(crate) enum Ready {}

/// A state in which receives may be posted.
pub(crate) trait Receives {}
impl Receives for Init {}
impl Receives for Ready {}

/// The poster's identifier of a work request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tag(u64);

impl Tag {
    const BITS: u32 = 48;
    const MASK: u64 = (1 << Self::BITS) - 1;

    /// From the low 48 bits.
    #[inline]
    pub(crate) const fn new(value: u64) -> Self {
        Self(value & Self::MASK)
    }

    /// The 48 bits.
    #[inline]
    pub(crate) const fn get(self) -> u64 {
        self.0
    }
}

/// The `wr_id` of a request of the queue pair at `place` with `tag`.
#[inline]
const fn wr_id(place: u16, tag: Tag) -> u64 {
    (place as u64) << Tag::BITS | tag.0
}

/// The place and the tag in a `wr_id` from the device, which may have any value.
#[inline]
pub(crate) const fn split(wr_id: u64) -> (usize, Tag) {
    ((wr_id >> Tag::BITS) as usize, Tag(wr_id & Tag::MASK))
}

/// The next block of a work request, filled up with zeroes.
#[inline]
pub(crate) fn block(words: &mut impl Iterator<Item = u64>) -> [u64; BLOCK_WORDS] {
    core::array::from_fn(|_| words.next().unwrap_or(0))
}

/// SGEs in the first block of a send work request, and in each of the others.
const NEAR: usize = (BLOCK_WORDS - SendWqe::WORDS) / Sge::WORDS;
const FAR: usize = BLOCK_WORDS / Sge::WORDS;

/// The first block of a send work request: at fixed offsets, so without a loop.
#[inline]
fn first_block(head: [u64; SendWqe::WORDS], near: &[Sge]) -> [u64; BLOCK_WORDS] {
    let sge = |nth| near.get(nth).map_or([0; Sge::WORDS], Sge::encode);
    let ([w0, w1, w2, w3], [s0, s1], [t0, t1]) = (head, sge(0), sge(1));
    [w0, w1, w2, w3, s0, s1, t0, t1]
}

/// The depths of the queues of a queue pair.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sizes {
    /// Blocks of the SQ.
    pub(crate) sq: Depth,
    /// Receives of the RQ.
    pub(crate) rq: Depth,
}

impl Sizes {
    /// Entries that it can have in a CQ.
    pub(crate) const fn completions(self) -> u32 {
        self.sq.entries().saturating_add(self.rq.entries())
    }
}

/// A queue pair in state `S`.
pub(crate) struct QueuePair<S> {
    number: Number,
    place: u16,
    sq: SqProducer<Ring>,
    rq: Option<RqProducer<Ring>>,
    /// Slots of the CQ, for all requests it can have in flight.
    slots: Slots<Cq>,
    /// Requests were posted without a doorbell yet; maintained by [`Queues`](super::cq::Queues).
    pub(crate) is_dirty: bool,
    state: PhantomData<fn() -> S>,
}

/// The CQ and PD of a queue pair, and its place among the CQ's queue pairs.
pub(crate) struct Site {
    /// The CQ of both queues.
    pub(crate) cq: Number,
    /// The identity of the CQ's ring.
    pub(crate) cq_ring: RingId,
    /// The PD.
    pub(crate) pd: Number,
    /// The place.
    pub(crate) place: u16,
}

/// Its memory, before the device knows of it.
pub(crate) struct QpRings {
    sq: Ring,
    rq: Ring,
    sizes: Sizes,
}

impl QpRings {
    const BLOCK: usize = BLOCK_WORDS * 8;

    /// Allocates it. Sleeps.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn new(pass: &Pass<'_>, sizes: Sizes) -> Result<Self> {
        Ok(Self {
            sq: Ring::new(pass, sizes.sq.entries() as usize * Self::BLOCK)?,
            rq: Ring::new(pass, sizes.rq.entries() as usize * Self::BLOCK)?,
            sizes,
        })
    }

    /// The context that creates a queue pair in this memory, at `site`.
    pub(crate) fn context(&self, site: &Site) -> QpContext {
        QpContext {
            pd: site.pd,
            send_cq: site.cq,
            recv_cq: site.cq,
            log_sq: self.sizes.sq.log2(),
            log_rq: self.sizes.rq.log2(),
            sq: self.sq.list(),
            rq: self.rq.list(),
            ..QpContext::default()
        }
    }
}

impl QueuePair<Reset> {
    /// The driver's side of queue pair `number`, created in `rings` at `site` in `epoch`. `slots`
    /// are [`Sizes::completions`] slots of its CQ.
    ///
    /// # Errors
    ///
    /// `EINVAL` if the rings do not hold their depths; with the slots, which go back to the CQ's
    /// pool.
    pub(crate) fn new(
        number: Number,
        epoch: u32,
        site: &Site,
        rings: QpRings,
        slots: Slots<Cq>,
    ) -> Result<Self, (Error, Slots<Cq>)> {
        let ring = RingId::new(number.raw(), epoch);
        let (sq, rq) = (rings.sizes.sq, rings.sizes.rq);
        let sq = SqProducer::new_sq(ring, site.cq_ring, rings.sq, sq, sq.entries());
        let rq = RqProducer::new_rq(ring, site.cq_ring, rings.rq, rq, 0, rq.entries());
        let (Ok(sq), Ok(rq)) = (sq, rq) else {
            return Err((EINVAL, slots));
        };
        Ok(Self {
            number,
            place: site.place,
            sq,
            rq: Some(rq),
            slots,
            is_dirty: false,
            state: PhantomData,
        })
    }

    /// The queue pair is in INIT in the device.
    pub(crate) fn into_init(self) -> QueuePair<Init> {
        self.become_state()
    }
}

impl QueuePair<Init> {
    /// The queue pair is in RTS in the device.
    pub(crate) fn into_ready(self) -> QueuePair<Ready> {
        self.become_state()
    }
}

impl QueuePair<Ready> {
    /// The admin queue pair, which registers bring up.
    pub(crate) fn admin(sq: SqProducer<Ring>, slots: Slots<Cq>) -> Self {
        Self {
            number: Number::ADMIN,
            place: 0,
            sq,
            rq: None,
            slots,
            is_dirty: false,
            state: PhantomData,
        }
    }

    /// Posts a work request of one block without data: an admin command. Fills in its `wr_id`.
    #[inline]
    pub(crate) fn post_block(
        &mut self,
        tag: Tag,
        mut head: [u64; SendWqe::WORDS],
    ) -> Result<(), Refused> {
        let mut room = self.sq.room(1, true)?;
        head[1] = wr_id(self.place, tag);
        // CAST: The opcode is the low byte.
        let opcode = u32::from(head[0] as u8);
        trace::post(self.number.raw(), room.index().get(), opcode, head[1]);
        room.write(0, &block(&mut head.into_iter()));
        room.post();
        Ok(())
    }

    /// Begins a batch of send work requests.
    #[inline(always)]
    pub(crate) fn sends(&mut self) -> Sends<'_> {
        Sends {
            number: self.number,
            place: self.place,
            batch: self.sq.batch(Ring::view),
        }
    }

    /// Takes the completions that follow `first`, which completed a send of this queue pair
    /// ([`complete`](Self::complete)), as long as they are successful sends of this queue pair and
    /// there is room in `into`. Returns their number.
    ///
    /// The completion at which it stops is not taken.
    #[inline(always)]
    pub(crate) fn complete_row<T>(
        &mut self,
        consumer: &mut CqConsumer<Ring>,
        first: Seen<Cq>,
        into: &mut [T],
        mut show: impl FnMut(&mut T, &[u64; Cqe::WORDS], u32),
    ) -> usize {
        let mut row = self.sq.row();
        // Check first: completions that were taken could not be put back.
        if !row.is_of(first) {
            return 0;
        }
        let (number, place) = (self.number, usize::from(self.place));
        let (taken, seen) =
            consumer.take_while(Ring::view, into, (Cqe::NOT_SENT, 0), |into, words| {
                let cqe = Cqe::decode(words);
                if cqe.qp != number || split(cqe.wr_id).0 != place {
                    return false;
                }
                let Some(covers) = row.complete(Index::new(cqe.index)) else {
                    return false;
                };
                show(into, words, covers);
                true
            });
        match row.end(seen) {
            Ok(()) => taken,
            Err(_) => 0,
        }
    }
}

/// A batch of send work requests. They are posted, without a doorbell, when it is dropped.
pub(crate) struct Sends<'a> {
    number: Number,
    place: u16,
    batch: Batch<'a, Words<'a>, Sq>,
}

impl Sends<'_> {
    /// Posts a send work request. Fills in its `wr_id`, size and signalling. It is signalled if
    /// `signal` is set or the producer needs a completion. Returns whether it is.
    #[inline(always)]
    pub(crate) fn post(
        &mut self,
        tag: Tag,
        request: SendWqe,
        sges: &[Sge],
        signal: bool,
    ) -> Result<bool, Refused> {
        // Most requests fit into the first block.
        let (near, far) = sges.split_at(sges.len().min(NEAR));
        let blocks = 1 + far.len().div_ceil(FAR);
        if blocks > MAX_BLOCKS {
            return Err(Refused::TooLarge);
        }
        // CAST: At most `MAX_BLOCKS`.
        let blocks = blocks as u32;
        let mut room = self.batch.room(blocks, signal)?;
        let signalled = room.signalled();
        let flags = request.flags & !send_flags::SIGNALED;
        let head = SendWqe {
            flags: flags | if signalled { send_flags::SIGNALED } else { 0 },
            // CAST: As above.
            blocks: blocks as u8,
            sges: sges.len() as u8,
            wr_id: wr_id(self.place, tag),
            ..request
        };
        trace::post(
            self.number.raw(),
            room.index().get(),
            u32::from(head.opcode),
            head.wr_id,
        );
        room.write(0, &first_block(head.encode(), near));
        for (which, sges) in (1..).zip(far.chunks(FAR)) {
            room.write(which, &block(&mut sges.iter().flat_map(Sge::encode)));
        }
        room.post();
        Ok(signalled)
    }
}

impl<S: Receives> QueuePair<S> {
    /// Posts a receive of one block: at most three SGEs.
    #[inline]
    pub(crate) fn post_recv(&mut self, tag: Tag, sges: &[Sge]) -> Result<(), Refused> {
        let Some(rq) = self.rq.as_mut() else {
            return Err(Refused::TooLarge);
        };
        if RecvWqe::WORDS + sges.len() * Sge::WORDS > BLOCK_WORDS {
            return Err(Refused::TooLarge);
        }
        let mut room = rq.room(1, true)?;
        let head = RecvWqe {
            // CAST: At most three.
            sges: sges.len() as u8,
            wr_id: wr_id(self.place, tag),
        };
        trace::post(
            self.number.raw(),
            room.index().get(),
            u32::from(opcode::RECV),
            head.wr_id,
        );
        let mut words = head
            .encode()
            .into_iter()
            .chain(sges.iter().flat_map(Sge::encode));
        room.write(0, &block(&mut words));
        room.post();
        Ok(())
    }
}

impl<S> QueuePair<S> {
    /// Its number.
    #[inline]
    pub(crate) fn number(&self) -> Number {
        self.number
    }

    /// Blocks of the SQ that can be posted now.
    #[inline]
    pub(crate) fn free(&self) -> u32 {
        self.sq.free()
    }

    /// The index of the next block of the SQ.
    pub(crate) fn tail(&self) -> Index {
        self.sq.tail()
    }

    /// Blocks and receives in flight.
    pub(crate) fn in_flight(&self) -> (u32, u32) {
        let rq = self.rq.as_ref().map_or(0, |rq| rq.in_flight());
        (self.sq.in_flight(), rq)
    }

    /// Rings the RQ doorbell if receives were posted since the last time.
    #[inline]
    pub(crate) fn ring_recv(&mut self, doorbells: &Doorbells<'_>) {
        let number = self.number;
        if let Some(rq) = self.rq.as_mut() {
            rq.ring(|tail| doorbells.ring(doorbell::RQ, number, tail.get()));
        }
    }

    /// Rings the SQ doorbell if sends were posted since the last time.
    #[inline]
    pub(crate) fn ring_send(&mut self, doorbells: &Doorbells<'_>) {
        let number = self.number;
        self.sq
            .ring(|tail| doorbells.ring(doorbell::SQ, number, tail.get()));
    }

    /// Handles a completion. Returns how many slots it covers, `None` if it is invalid.
    #[inline]
    pub(crate) fn complete(&mut self, cqe: &Cqe, recv: bool, seen: Seen<Cq>) -> Option<u32> {
        if cqe.qp != self.number {
            return None;
        }
        let index = Index::new(cqe.index);
        if recv {
            self.rq.as_mut()?.complete(index, seen).ok()
        } else {
            self.sq.complete(index, seen).ok()
        }
    }

    /// The CQ's head was published: frees the slots that completions cover.
    #[inline]
    pub(crate) fn reclaim(&mut self, published: Published<Cq>) {
        self.sq.reclaim(published);
        if let Some(rq) = self.rq.as_mut() {
            rq.reclaim(published);
        }
    }

    /// The queue pair no longer exists in the device: returns its slots of the CQ.
    pub(crate) fn retire(self) -> Slots<Cq> {
        let balanced = self.sq.retire().is_ok() & self.rq.is_none_or(|rq| rq.retire().is_ok());
        kernel::warn_on!(!balanced);
        self.slots
    }

    fn become_state<T>(self) -> QueuePair<T> {
        QueuePair {
            number: self.number,
            place: self.place,
            sq: self.sq,
            rq: self.rq,
            slots: self.slots,
            is_dirty: self.is_dirty,
            state: PhantomData,
        }
    }
}

#[kernel::macros::kunit_tests(qpair_qp)]
mod tests {
    use super::*;

    #[test]
    fn a_wr_id_is_place_and_tag() {
        let tag = Tag::new(0x1234_5678_9abc);
        assert_eq!(split(wr_id(0xfedc, tag)), (0xfedc, tag));
        assert_eq!(split(wr_id(0, Tag::new(0))), (0, Tag::new(0)));
    }

    #[test]
    fn a_tag_does_not_reach_the_place() {
        assert_eq!(split(wr_id(0, Tag::new(u64::MAX))).0, 0);
        assert_eq!(Tag::new(1 << 48).get(), 0);
    }

    #[test]
    fn any_wr_id_can_be_split() {
        assert_eq!(split(u64::MAX), (0xffff, Tag::new(u64::MAX)));
    }

    #[test]
    fn completions_of_both_queues() {
        let sizes = Sizes {
            sq: Depth::MAX,
            rq: Depth::MAX,
        };
        assert_eq!(sizes.completions(), u32::MAX);
    }
}
