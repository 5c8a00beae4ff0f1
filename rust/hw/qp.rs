// SPDX-License-Identifier: GPL-2.0

//! Queue pairs whose rings are the driver's: of polled CQs, and of kernel ULPs.
//!
//! A [`QueuePair`] writes WQEs, rings doorbells and frees slots. It has no lock and no state of its
//! own: a CQ that a poll owns has only connected ones ([`cq`](super::cq)), and that of a kernel ULP
//! is behind a spinlock, with what may be posted in its state (`object/ulp`).
//!
//! The `wr_id` of a work request of a polled CQ holds the queue pair's place on the CQ and a [`Tag`]
//! of the poster.

use super::{
    function::Doorbells,
    prelude::*,
    ring::Ring, //
};
use crate::{
    abi::{
        command::QpContext,
        entry::{
            opcode,
            recv_sges,
            send_flags,
            Cqe,
            RecvWqe,
            SendWqe,
            Sge,
            BLOCK_BYTES,
            BLOCK_WORDS,
            MAX_BLOCKS, //
        }, //
    },
    kernel::dma::Words,
    queue::{
        consumer::{
            CqConsumer,
            Published,
            Seen, //
        },
        credit::{
            Cq,
            Kind,
            RingId,
            Sq, //
        },
        producer::{
            Batch,
            Producer,
            Refused,
            RqProducer,
            SqProducer, //
        },
        storage::Storage, //
    }, //
};

/// The poster's identifier of a work request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tag(u64);

impl Tag {
    const BITS: u32 = 48;
    /// The greatest value.
    pub(super) const MAX: u64 = (1 << Self::BITS) - 1;

    /// From the low 48 bits.
    #[inline]
    pub(crate) const fn new(value: u64) -> Self {
        Self(value & Self::MAX)
    }

    #[inline]
    pub(crate) const fn get(self) -> u64 {
        self.0
    }
}

/// The `wr_id` of a request of the queue pair at `place` with `tag`.
#[inline]
pub(super) const fn wr_id(place: u16, tag: Tag) -> u64 {
    (place as u64) << Tag::BITS | tag.0
}

/// The place and the tag in a `wr_id` from the device, which may have any value.
#[inline]
pub(crate) const fn split(wr_id: u64) -> (usize, Tag) {
    ((wr_id >> Tag::BITS) as usize, Tag::new(wr_id))
}

/// The blocks of a work request: `head`, `sges`, and zeroes.
#[inline]
fn blocks(head: &[u64], sges: impl Iterator<Item = Sge>) -> [[u64; BLOCK_WORDS]; MAX_BLOCKS] {
    let mut blocks = [[0; BLOCK_WORDS]; MAX_BLOCKS];
    let words = blocks.as_flattened_mut();
    for (place, word) in words.iter_mut().zip(head) {
        *place = *word;
    }
    let rest = words.get_mut(head.len()..).unwrap_or_default();
    for (place, sge) in rest.chunks_exact_mut(Sge::WORDS).zip(sges) {
        if let [first, second] = place {
            [*first, *second] = sge.encode();
        }
    }
    blocks
}

/// The most SGEs of a send work request of one block.
const NEAR: usize = (BLOCK_WORDS - SendWqe::WORDS) / Sge::WORDS;

/// The block of a send work request of one: at fixed offsets, so without a loop.
#[inline]
fn block(head: [u64; SendWqe::WORDS], sges: &[Sge]) -> [u64; BLOCK_WORDS] {
    let sge = |nth| sges.get(nth).map_or([0; Sge::WORDS], Sge::encode);
    let ([w0, w1, w2, w3], [s0, s1], [t0, t1]) = (head, sge(0), sge(1));
    [w0, w1, w2, w3, s0, s1, t0, t1]
}

/// The sizes of the queues of a queue pair.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sizes {
    /// Blocks of the SQ.
    pub(crate) sq: Depth,
    /// Receives of the RQ, and its stride: a receive takes `64 << stride` bytes. The admin queue
    /// pair has no RQ.
    pub(crate) rq: Option<(Depth, u8)>,
}

impl Sizes {
    /// Blocks of the SQ, and receives of the RQ.
    pub(crate) fn entries(self) -> (u32, u32) {
        let rq = self.rq.map_or(0, |(depth, _)| depth.entries());
        (self.sq.entries(), rq)
    }

    /// Entries that it can have in a CQ of both queues.
    pub(crate) fn completions(self) -> u32 {
        let (sq, rq) = self.entries();
        sq.saturating_add(rq)
    }
}

/// The memory of a queue pair.
#[derive(Clone)]
pub(crate) struct QpRings {
    sizes: Sizes,
    sq: Ring,
    rq: Option<Ring>,
}

impl QpRings {
    /// Allocates it. Sleeps.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn new(pass: &Pass<'_>, sizes: Sizes) -> Result<Self> {
        let ring = |depth: Depth, stride| {
            Ring::new(pass, depth.entries() as usize * (BLOCK_BYTES << stride))
        };
        Ok(Self {
            sizes,
            sq: ring(sizes.sq, 0)?,
            rq: match sizes.rq {
                Some((depth, stride)) => Some(ring(depth, stride)?),
                None => None,
            },
        })
    }

    /// The SQ's DMA address.
    pub(crate) fn sq_address(&self) -> u64 {
        self.sq.address()
    }

    /// `context`, of a queue pair in this memory.
    pub(crate) fn context(&self, context: QpContext) -> QpContext {
        let (rq, stride) = self
            .sizes
            .rq
            .map_or((0, 0), |(rq, stride)| (rq.log2(), stride));
        QpContext {
            log_sq: self.sizes.sq.log2(),
            log_rq: rq,
            rq_stride: stride,
            sq: self.sq.list(),
            rq: self.rq.as_ref().map(Ring::list).unwrap_or_default(),
            ..context
        }
    }

    /// Fills it with zeroes. The device does not use it.
    pub(crate) fn clear(&self) {
        for ring in Iterator::chain(core::iter::once(&self.sq), &self.rq) {
            let words = ring.view();
            (0..words.words()).for_each(|at| words.store(at, 0));
        }
    }
}

/// A queue pair whose rings are the driver's.
pub(crate) struct QueuePair {
    /// The device's number of it.
    pub(super) number: Number,
    pub(super) sizes: Sizes,
    pub(crate) sq: SqProducer<Ring>,
    pub(crate) rq: Option<RqProducer<Ring>>,
}

impl QueuePair {
    /// Queue pair `number`, created in `epoch` in `rings`, which are zeroed, with the identities of
    /// the CQs of its SQ and its RQ.
    ///
    /// # Errors
    ///
    /// `EINVAL` if the rings do not hold their sizes.
    pub(crate) fn new(
        number: Number,
        epoch: u32,
        (send_cq, recv_cq): (RingId, RingId),
        rings: &QpRings,
    ) -> Result<Self> {
        let id = RingId::new(number.raw(), epoch);
        let QpRings { sizes, sq, rq } = rings.clone();
        let sq = SqProducer::new_sq(id, send_cq, sq, sizes.sq, sizes.sq.entries());
        let rq = sizes.rq.zip(rq).map(|((depth, stride), ring)| {
            RqProducer::new_rq(id, recv_cq, ring, depth, stride, depth.entries())
        });
        Ok(Self {
            number,
            sizes,
            sq: sq.map_err(|_| EINVAL)?,
            rq: rq.transpose().map_err(|_| EINVAL)?,
        })
    }

    /// Blocks and receives in flight.
    pub(crate) fn in_flight(&self) -> (u32, u32) {
        let rq = self.rq.as_ref().map_or(0, |rq| rq.in_flight());
        (self.sq.in_flight(), rq)
    }

    /// Posts a send of the words of `head`, in which blocks, SGEs and signaling are zero, and of
    /// `sges`; signaled if `signal`, and not otherwise. `id` is the poster's. Returns the index past
    /// it.
    #[inline]
    pub(crate) fn post_send(
        &mut self,
        head: &[u64],
        sges: impl ExactSizeIterator<Item = Sge>,
        signal: bool,
        id: u64,
    ) -> Result<Index, Refused> {
        let count = (head.len() + sges.len() * Sge::WORDS).div_ceil(BLOCK_WORDS);
        // `room_as_asked` refuses 0 blocks, and more than `MAX_BLOCKS`.
        let count = u32::try_from(count).map_err(|_| Refused::TooLarge)?;
        let mut batch = self.sq.batch(Ring::view);
        let mut room = batch.room_as_asked(count, signal)?;
        let flags = match room.signaled() {
            true => u64::from(send_flags::SIGNALED),
            false => 0,
        };
        let size = u64::from(count) << 16 | (sges.len() as u64) << 24;
        let mut blocks = blocks(head, sges);
        let [[first, ..], ..] = &mut blocks;
        *first |= flags << 8 | size;
        // CAST: The opcode is the low byte.
        let opcode = u32::from(*first as u8);
        trace::post(self.number.raw(), room.index().get(), opcode, id);
        for (which, block) in (0..count).zip(&blocks) {
            room.write(which, block);
        }
        Ok(room.post())
    }

    /// Posts a receive of `sges` to its RQ, as [`post_recv`].
    #[inline]
    pub(crate) fn post_recv(
        &mut self,
        wr_id: u64,
        sges: impl ExactSizeIterator<Item = Sge>,
        id: u64,
    ) -> Result<Index, Refused> {
        let (Some(rq), Some((_, stride))) = (&mut self.rq, self.sizes.rq) else {
            return Err(Refused::TooLarge);
        };
        post_recv(rq, (self.number, stride), wr_id, sges, id)
    }

    /// Begins a batch of sends of the queue pair at `place` of a polled CQ.
    #[inline(always)]
    pub(super) fn sends(&mut self, place: u16) -> Sends<'_> {
        Sends {
            number: self.number,
            place,
            batch: self.sq.batch(Ring::view),
        }
    }

    /// Rings the RQ doorbell if receives were posted since the last time.
    #[inline(always)]
    pub(crate) fn ring_recv(&mut self, doorbells: &Doorbells<'_>) {
        let number = self.number;
        if let Some(rq) = self.rq.as_mut() {
            rq.ring(|tail| doorbells.ring(doorbell::RQ, number, tail.get()));
        }
    }

    /// Rings the SQ doorbell if sends were posted since the last time.
    #[inline(always)]
    pub(crate) fn ring_send(&mut self, doorbells: &Doorbells<'_>) {
        let number = self.number;
        self.sq
            .ring(|tail| doorbells.ring(doorbell::SQ, number, tail.get()));
    }

    /// Handles a completion. Returns how many slots it covers, `None` if it is invalid.
    #[inline]
    pub(super) fn complete(&mut self, cqe: &Cqe, recv: bool, seen: Seen<Cq>) -> Option<u32> {
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

    /// Takes the completions that follow `first`, which completed a send of this queue pair with
    /// `wr_id` ([`complete`](Self::complete)), as long as they are successful sends of this queue pair
    /// at the place in `wr_id`, and there is room in `into`. Returns their number.
    ///
    /// The completion at which it stops is not taken.
    #[inline(always)]
    pub(super) fn complete_row<T>(
        &mut self,
        wr_id: u64,
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
        let number = self.number;
        let (taken, seen) =
            consumer.take_while(Ring::view, into, (Cqe::NOT_SENT, 0), |into, words| {
                let cqe = Cqe::decode(words);
                let is_elsewhere = (cqe.wr_id ^ wr_id) >> Tag::BITS != 0;
                if cqe.qp != number || is_elsewhere {
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

    /// The head of a CQ was published: frees the slots that completions in it cover.
    #[inline]
    pub(crate) fn reclaim(&mut self, published: Published<Cq>) {
        self.sq.reclaim(published);
        if let Some(rq) = self.rq.as_mut() {
            rq.reclaim(published);
        }
    }

    /// The device has destroyed or reset it: returns its memory.
    pub(crate) fn retire(self) -> QpRings {
        QpRings {
            sizes: self.sizes,
            sq: retire(self.sq),
            rq: self.rq.map(retire),
        }
    }
}

/// Posts a receive of `sges` to the ring of queue `number`, in which a receive takes `64 << stride`
/// bytes. `id` is the poster's. Returns the index past it.
#[inline]
pub(crate) fn post_recv<K: Kind>(
    ring: &mut Producer<Ring, K>,
    (number, stride): (Number, u8),
    wr_id: u64,
    sges: impl ExactSizeIterator<Item = Sge>,
    id: u64,
) -> Result<Index, Refused> {
    if sges.len() > recv_sges(stride) {
        return Err(Refused::TooLarge);
    }
    let mut batch = ring.batch(Ring::view);
    let mut room = batch.room(1, true)?;
    let opcode = u32::from(opcode::RECV);
    trace::post(number.raw(), room.index().get(), opcode, id);
    let head = RecvWqe {
        // CAST: As few as a receive of the largest stride holds.
        sges: sges.len() as u8,
        wr_id,
    };
    for (which, block) in (0..1 << stride).zip(&blocks(&head.encode(), sges)) {
        room.write(which, block);
    }
    Ok(room.post())
}

fn retire<K: Kind>(queue: Producer<Ring, K>) -> Ring {
    let retired = queue.retire();
    kernel::warn_on!(retired.is_err());
    retired.unwrap_or_else(|(ring, _)| ring)
}

/// A batch of send work requests. They are posted, without a doorbell, when it is dropped.
pub(crate) struct Sends<'a> {
    number: Number,
    place: u16,
    batch: Batch<'a, Words<'a>, Sq>,
}

impl Sends<'_> {
    /// Posts a send work request of one block: at most two SGEs. Fills in its `wr_id`, size and
    /// signaling. It is signaled if `signal` is set or the producer needs a completion.
    #[inline(always)]
    pub(crate) fn post(
        &mut self,
        tag: Tag,
        request: SendWqe,
        sges: &[Sge],
        signal: bool,
    ) -> Result<(), Refused> {
        if sges.len() > NEAR {
            return Err(Refused::TooLarge);
        }
        let mut room = self.batch.room(1, signal)?;
        let flags = request.flags & !send_flags::SIGNALED;
        let signaled = match room.signaled() {
            true => send_flags::SIGNALED,
            false => 0,
        };
        let head = SendWqe {
            flags: flags | signaled,
            blocks: 1,
            // CAST: At most `NEAR`.
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
        room.write(0, &block(head.encode(), sges));
        room.post();
        Ok(())
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
            rq: Some((Depth::MAX, 0)),
        };
        assert_eq!(sizes.completions(), u32::MAX);
    }
}
