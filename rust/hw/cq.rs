// SPDX-License-Identifier: GPL-2.0

//! Completion queues: those that a poll reads, and the entries of an EQ's table.
//!
//! A [`PolledCq`] is a CQ with the queue pairs on it and their [`CqClient`]. It is created in process
//! context, owned by the poll of its EQ while it is attached, and destroyed in process context: it
//! has one owner at any time and needs no lock. A turn has two steps. Their order prevents a CQ
//! overrun:
//!
//! ```text
//!   consume   read up to k CQEs; each marks what it covers in its queue. Nothing is free yet
//!   publish   the CQ head doorbell (or the arm, which publishes as well)
//!             -> slots are free -> the client is called, may post -> doorbells of its posts
//! ```
//!
//! The kernel does not read the CQ of a process. It only signals the process, through the CQ's
//! [`CompletionHandler`].

use super::{
    batch::{
        Done,
        DoneBatch,
        BATCH, //
    },
    function::Doorbells,
    handlers::CompletionHandler,
    prelude::*,
    qp::{
        self,
        QpRings,
        QueuePair,
        Sends,
        Tag, //
    },
    ring::Ring, //
};
use crate::{
    abi::{
        command::CqContext,
        entry::{
            cqe_flags,
            Cqe,
            SendWqe,
            Sge, //
        }, //
    },
    queue::{
        consumer::CqConsumer,
        credit::{
            Cq,
            Pool,
            RingId,
            Slots, //
        },
        deferred::DeferredFree,
        poll::{
            Consumed,
            Node, //
        },
        producer::Refused, //
    }, //
};

/// The client of a polled CQ: handles its completions in poll context.
pub(crate) trait CqClient: Send {
    /// The queue pairs are connected, and the CQ is not polled yet. Doorbells of posted requests
    /// are rung when this returns. Process context.
    fn begin(&mut self, _queues: &mut Queues, _doorbells: &Doorbells<'_>) {}

    /// Requests have completed, in this order, and their slots are free again. Called once a turn.
    /// Doorbells of posted requests are rung when it returns.
    fn completed(&mut self, queues: &mut Queues, done: &[Done]);
}

/// A queue pair on a polled CQ. It is connected, but for the admin queue pair at bring-up, and has
/// the CQ's owner.
struct PolledQp {
    pair: QueuePair,
    /// Slots of the CQ, for all requests it can have in flight. They are freed when it has been
    /// destroyed and the CQ's head has passed its last entry.
    slots: Slots<Cq>,
    /// Requests were posted without a doorbell yet.
    is_dirty: bool,
}

/// The queue pairs on a CQ, by place, and which of them need a doorbell.
pub(crate) struct Queues {
    pairs: KVec<PolledQp>,
    /// Places of the dirty ones, each once. There is room for all.
    dirty: KVec<u16>,
}

impl Queues {
    const fn new() -> Self {
        Self {
            pairs: KVec::new(),
            dirty: KVec::new(),
        }
    }

    /// In the order of their places.
    pub(crate) fn pairs(&self) -> impl ExactSizeIterator<Item = &QueuePair> {
        self.pairs.iter().map(|polled| &polled.pair)
    }

    /// Blocks that can be posted now to the SQ of the queue pair at `place`.
    #[inline]
    pub(crate) fn free(&self, place: usize) -> u32 {
        self.pairs
            .get(place)
            .map_or(0, |polled| polled.pair.sq.free())
    }

    /// Begins a batch of sends of the queue pair at `place`.
    #[inline]
    pub(crate) fn sends(&mut self, place: usize) -> Result<Sends<'_>, Refused> {
        // CAST: There are fewer places.
        Ok(self.dirty(place)?.sends(place as u16))
    }

    /// Posts a receive of one block, at most three SGEs, to the queue pair at `place`.
    #[inline]
    pub(crate) fn post_recv(
        &mut self,
        place: usize,
        tag: Tag,
        sges: &[Sge],
    ) -> Result<(), Refused> {
        // CAST: There are fewer places.
        let wr_id = qp::wr_id(place as u16, tag);
        let sges = sges.iter().copied();
        self.dirty(place)?.post_recv(wr_id, sges, wr_id).map(drop)
    }

    /// Posts a work request without data, an admin command, to the queue pair at `place`. Fills in
    /// its `wr_id`. Returns the index past it.
    #[inline]
    pub(crate) fn post_command(
        &mut self,
        place: usize,
        tag: Tag,
        mut head: [u64; SendWqe::WORDS],
    ) -> Result<Index, Refused> {
        // CAST: There are fewer places.
        let wr_id = qp::wr_id(place as u16, tag);
        head[1] = wr_id;
        self.dirty(place)?
            .post_send(&head, core::iter::empty(), true, wr_id)
    }

    /// The queue pair at `place`, which is about to be posted to.
    #[inline]
    fn dirty(&mut self, place: usize) -> Result<&mut QueuePair, Refused> {
        let polled = self.pairs.get_mut(place).ok_or(Refused::TooLarge)?;
        if !polled.is_dirty {
            polled.is_dirty = true;
            // CAST: There are fewer places. There is room: each is there once.
            let _: Result<_, _> = self.dirty.push_within_capacity(place as u16);
        }
        Ok(&mut polled.pair)
    }

    /// Rings the doorbells of posted requests: receives first, since a send of one queue pair may
    /// need a receive of another.
    #[inline]
    pub(crate) fn ring(&mut self, doorbells: &Doorbells<'_>) {
        for place in &self.dirty {
            if let Some(polled) = self.pairs.get_mut(usize::from(*place)) {
                polled.pair.ring_recv(doorbells);
            }
        }
        for place in &self.dirty {
            if let Some(polled) = self.pairs.get_mut(usize::from(*place)) {
                polled.pair.ring_send(doorbells);
                polled.is_dirty = false;
            }
        }
        self.dirty.clear();
    }

    /// Makes room for another one. Sleeps.
    fn reserve(&mut self) -> Result {
        let count = self.pairs.len() + 1;
        if count > usize::from(u16::MAX) {
            return Err(ENOMEM);
        }
        self.pairs.reserve(1, GFP_KERNEL)?;
        Ok(self.dirty.reserve(count, GFP_KERNEL)?)
    }
}

/// A CQ that the poll of its EQ reads, with its queue pairs and client.
pub(crate) struct PolledCq {
    /// The device's number of it.
    pub(crate) number: Number,
    consumer: CqConsumer<Ring>,
    pool: Pool<Cq>,
    deferred: DeferredFree<Cq>,
    /// The queue pairs on it.
    pub(crate) queues: Queues,
    client: KBox<dyn CqClient>,
}

/// The ring of a CQ that the driver reads.
#[derive(Clone)]
pub(crate) struct CqRing {
    ring: Ring,
    depth: Depth,
}

impl CqRing {
    /// Allocates it. Sleeps.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn new(pass: &Pass<'_>, depth: Depth) -> Result<Self> {
        let bytes = depth.entries() as usize * Cqe::BYTES;
        Ok(Self {
            ring: Ring::new(pass, bytes)?,
            depth,
        })
    }

    /// The DMA address of entry 0.
    pub(crate) fn address(&self) -> u64 {
        self.ring.address()
    }

    /// The context that creates a CQ in this memory.
    pub(crate) fn context(&self) -> CqContext {
        CqContext {
            log_depth: self.depth.log2(),
            buffer: self.ring.list(),
            ..CqContext::default()
        }
    }

    /// The driver's side of CQ `number`, created in this memory in `epoch`, and its slots.
    ///
    /// # Errors
    ///
    /// `EINVAL` if the memory does not hold its depth.
    pub(crate) fn consumer(
        self,
        number: Number,
        epoch: u32,
    ) -> Result<(CqConsumer<Ring>, Pool<Cq>)> {
        let (id, entries) = (RingId::new(number.raw(), epoch), self.depth.entries());
        CqConsumer::new(id, self.ring, self.depth, entries).map_err(|_| EINVAL)
    }
}

impl PolledCq {
    /// The driver's side of CQ `number`, created in `ring` in `epoch`.
    ///
    /// # Errors
    ///
    /// Those of [`CqRing::consumer`].
    pub(crate) fn new(
        number: Number,
        epoch: u32,
        ring: CqRing,
        client: KBox<dyn CqClient>,
    ) -> Result<Self> {
        let (consumer, pool) = ring.consumer(number, epoch)?;
        Ok(Self {
            number,
            deferred: DeferredFree::new(consumer.ring()),
            consumer,
            pool,
            queues: Queues::new(),
            client,
        })
    }

    /// Adds queue pair `number`, which is connected, at the next place; created in `rings` in
    /// `epoch`. Takes slots for all that it can have in flight. Sleeps.
    ///
    /// # Errors
    ///
    /// `ENOSPC` if the CQ has fewer, `ENOMEM`.
    pub(crate) fn add(&mut self, number: Number, epoch: u32, rings: &QpRings) -> Result {
        let id = self.consumer.ring();
        let pair = QueuePair::new(number, epoch, (id, id), rings)?;
        self.queues.reserve()?;
        let slots = self.pool.take(pair.sizes.completions()).ok_or(ENOSPC)?;
        let polled = PolledQp {
            pair,
            slots,
            is_dirty: false,
        };
        // There is room.
        self.queues.pairs.push_within_capacity(polled)?;
        Ok(())
    }

    /// Removes the last queue pair, which was destroyed. Its slots are freed once the head has
    /// passed `until`, which its DESTROY reported. Sleeps.
    pub(crate) fn remove_last(&mut self, until: Index) {
        if let Some(PolledQp { pair, slots, .. }) = self.queues.pairs.pop() {
            let until = self.consumer.until(until);
            kernel::warn_on!(self.deferred.admit(slots, until).is_err());
            drop(pair.retire());
        }
    }

    /// All queue pairs have been added: starts the client.
    pub(crate) fn begin(&mut self, doorbells: &Doorbells<'_>) {
        self.client.begin(&mut self.queues, doorbells);
        self.queues.ring(doorbells);
    }

    /// Reads up to `max` completions.
    ///
    /// The first one may be of any queue pair, and may be invalid. Successful sends of the same
    /// queue pair that follow it are taken in a row.
    #[inline]
    pub(crate) fn consume(&mut self, max: u32, batch: &mut DoneBatch) -> Consumed {
        batch.clear();
        let number = self.number.raw();
        let mut count = 0;
        let mut drained = false;
        // CAST: A small constant.
        let max = max.min(BATCH as u32);
        while count < max {
            let Some(entry) = self.consumer.take() else {
                drained = true;
                break;
            };
            count += 1;
            let cqe = Cqe::decode(&entry.words);
            let mut next = entry.seen.past();
            trace::cqe(
                number,
                next.get().wrapping_sub(1),
                cqe.qp.raw(),
                u32::from(cqe.status),
            );
            let recv = cqe.flags & cqe_flags::RECV != 0;
            let (place, _) = qp::split(cqe.wr_id);
            let polled = self.queues.pairs.get_mut(place);
            let Some((pair, covers)) = polled.and_then(|polled| {
                let covers = polled.pair.complete(&cqe, recv, entry.seen)?;
                Some((&mut polled.pair, covers))
            }) else {
                trace::wrong(trace::Wrong::Stale, number, cqe.index);
                continue;
            };
            if cqe.status != 0 {
                trace::wrong(
                    trace::Wrong::Completion,
                    cqe.qp.raw(),
                    u32::from(cqe.status),
                );
            }
            let done = Done {
                words: entry.words,
                covers,
            };
            // CAST: `split` takes it from 16 bits.
            batch.push(place as u16, done);
            if recv || count == max {
                continue;
            }
            // CAST: Less than `BATCH`.
            let room = batch.room((max - count) as usize);
            let more = pair.complete_row(
                cqe.wr_id,
                &mut self.consumer,
                entry.seen,
                room,
                |slot, words, covers| {
                    trace::cqe(number, next.get(), cqe.qp.raw(), 0);
                    next = next.plus(1);
                    *slot = Done {
                        words: *words,
                        covers,
                    };
                },
            );
            batch.push_row(more);
            // CAST: As above.
            count += more as u32;
        }
        Consumed { count, drained }
    }

    /// Publishes the head, with an arm if `arm`; then frees slots; then completes what was
    /// consumed; then rings the doorbells of what the client has posted.
    #[inline]
    pub(crate) fn publish(&mut self, arm: bool, batch: &mut DoneBatch, doorbells: &Doorbells<'_>) {
        let number = self.number;
        let place = if arm {
            doorbell::CQ_ARM_NEXT
        } else {
            doorbell::CQ_HEAD
        };
        let published = self.consumer.publish(|head| {
            if arm {
                trace::arm(number.raw(), head.get(), false);
            } else {
                trace::head(false, number.raw(), head.get(), false);
            }
            doorbells.ring(place, number, head.get());
        });
        let freed = self.deferred.release(published);
        // Cannot fail: the slots are of this ring.
        let _: Result<(), Slots<Cq>> = self.pool.give(freed);
        if batch.done().is_empty() {
            return;
        }
        for place in batch.places() {
            // The first call frees all completed slots.
            if let Some(polled) = self.queues.pairs.get_mut(usize::from(*place)) {
                polled.pair.reclaim(published);
            }
        }
        self.client.completed(&mut self.queues, batch.done());
        batch.clear();
        self.queues.ring(doorbells);
    }

    /// Consumes all entries of a CQ whose queue pairs are destroyed. Nothing is completed, so the
    /// batch needs no memory and destroying a CQ cannot fail for lack of memory.
    ///
    /// # Errors
    ///
    /// `EIO` if the device has written more than the depth.
    pub(crate) fn drain(&mut self, doorbells: &Doorbells<'_>) -> Result {
        let mut batch = DoneBatch::none();
        // One more than the CQ holds: a full one is not an error.
        let mut left = self.consumer.depth().entries().saturating_add(1);
        loop {
            let consumed = self.consume(left, &mut batch);
            self.publish(false, &mut batch, doorbells);
            left = left.saturating_sub(consumed.count);
            if consumed.drained {
                return Ok(());
            }
            if left == 0 {
                return Err(EIO);
            }
        }
    }

    /// The CQ no longer exists in the device: checks that all its slots are back.
    pub(crate) fn retire(mut self) {
        let mut rest = Slots::none(self.consumer.ring());
        while let Some(PolledQp { pair, slots, .. }) = self.queues.pairs.pop() {
            kernel::warn_on!(rest.merge(slots).is_err());
            drop(pair.retire());
        }
        let held = rest.count() + self.deferred.count();
        kernel::warn_on!(self.pool.audit(held).is_err());
    }
}

/// The entry of a CQ in an EQ's table.
pub(crate) struct Entry {
    /// The poll's state.
    pub(crate) node: Node,
    /// What takes its completions.
    pub(crate) body: Body,
}

// Bounds the memory of an idle CQ of a process: see driver.rst.
const _: () = assert!(size_of::<(Number, Entry)>() <= 64);

/// What takes the completions of a CQ.
pub(crate) enum Body {
    /// A process or a kernel ULP; its completion handler.
    Handled(Arc<dyn CompletionHandler>),
    /// The poll.
    Polled(KBox<PolledCq>),
    /// The kernel, and the poll does not have it: not yet, or no longer.
    Away,
}
