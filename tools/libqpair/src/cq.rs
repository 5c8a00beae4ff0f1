// SPDX-License-Identifier: GPL-2.0
//! Completion queues.
//!
//! # Poll
//!
//! A poll reads entries and reports each to its work queue, whose slots up to the entry's index are
//! then *completed*. They are free once the CQ's head past the entry has been published. That takes
//! a doorbell, but not for every poll: the head is published when a good part of the CQ has been
//! read ([`CqOptions::head_batch`]), with every arm, and when a post finds no free slot.
//!
//! # Events
//!
//! [`Cq::arm`] requests one event at the next completion, signaled on the CQ's [`Channel`]. No
//! completion is missed in this order: arm, poll until the CQ is empty, wait, repeat.
//!
//! # Locks
//!
//! The lock of a CQ's state is taken before that of a work queue, and the lock of its published
//! head last. Several threads may poll; each completion goes to one of them.

use std::sync::{Arc, Mutex};

use qpair_abi::doorbell;
use qpair_abi::entry::{cqe_flags, Cqe};
use qpair_abi::Number;
use qpair_queue::consumer::{CqConsumer, Flushed, Published};
use qpair_queue::credit::{Cq as OfCq, Kind, Pool, RingId, Slots};
use qpair_queue::deferred::DeferredFree;
use qpair_queue::index::{Depth, Index};
use qpair_queue::producer::{Producer, RqProducer, SqProducer};
use qpair_ring::served::Served;
use rustix::io::Errno;

use crate::channel::Channel;
use crate::device::{Context, ContextInner};
use crate::error::Error;
use crate::kernel::{NewCq, Object};
use crate::lock::lock;
use crate::memory::{Pages, Ring, SharedRing};
use crate::shared::{Place, SharedQueue, Sources};
use crate::wr::Completion;

/// What an arm waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Wants {
    /// The next completion of any kind.
    Next,
    /// A solicited or failed one.
    Solicited,
}

/// The options of a completion queue.
#[derive(Clone, Debug)]
pub struct CqOptions<'a> {
    depth: u32,
    vector: u32,
    channel: Option<&'a Channel>,
    pages: Pages,
    head_batch: Option<u32>,
}

impl<'a> CqOptions<'a> {
    /// At least `depth` entries: one for each block of the SQs, each receive of the RQs and each
    /// receive of the SRQs that it serves.
    pub fn new(depth: u32) -> Self {
        Self {
            depth,
            vector: 0,
            channel: None,
            pages: Pages::Normal,
            head_batch: None,
        }
    }

    /// Signals its events on this channel. Without a channel it is polled.
    pub fn channel(mut self, channel: &'a Channel) -> Self {
        self.channel = Some(channel);
        self
    }

    /// The interrupt vector that its events come by.
    pub fn vector(mut self, vector: u32) -> Self {
        self.vector = vector;
        self
    }

    /// The pages of its ring.
    pub fn pages(mut self, pages: Pages) -> Self {
        self.pages = pages;
        self
    }

    /// Publishes the head after this many entries, if nothing else published it; a quarter of the
    /// ring by default.
    pub fn head_batch(mut self, entries: u32) -> Self {
        self.head_batch = Some(entries.max(1));
        self
    }
}

/// A send queue, as its posts and its CQ share it.
pub(crate) type SendQueue = Mutex<SqProducer<SharedRing>>;
/// The same of a receive queue.
pub(crate) type RecvQueue = Mutex<RqProducer<SharedRing>>;

/// The queues of a queue pair that complete in a CQ.
#[derive(Debug, Default)]
struct Queues {
    send: Option<Arc<SendQueue>>,
    recv: Option<Arc<RecvQueue>>,
    /// The SRQ in place of `recv`.
    shared: Option<Place>,
}

#[derive(Debug)]
struct State {
    consumer: CqConsumer<Ring>,
    pool: Pool<OfCq>,
    deferred: DeferredFree<OfCq>,
    served: Served<Queues>,
    sources: Sources,
    stale: u64,
}

/// An entry of a CQ, and proof that it was read.
type Entry = qpair_queue::consumer::Entry<OfCq, { Cqe::WORDS }>;
/// The bit of a CQE's last word that is set for the receive queue.
const RECV: u64 = (cqe_flags::RECV as u64) << 56;

impl State {
    /// Takes entries until `into` is full, and reports each to its work queue; returns how many
    /// were taken.
    fn take(&mut self, into: &mut [Completion]) -> usize {
        let mut taken = 0;
        while let [place, places @ ..] = &mut into[taken..] {
            let Some(entry) = self.consumer.take() else {
                break;
            };
            let cqe = Cqe::decode(&entry.words);
            let queues = self.served.of_entry(cqe.qp, entry.seen.past());
            let is_receive = cqe.flags & cqe_flags::RECV != 0;
            let consumer = &mut self.consumer;
            let row = match queues {
                Some(Queues {
                    send: Some(queue), ..
                }) if !is_receive => row(consumer, queue, &entry, 0, places),
                Some(Queues {
                    recv: Some(queue), ..
                }) if is_receive => row(consumer, queue, &entry, RECV, places),
                Some(Queues {
                    shared: Some(of), ..
                }) if is_receive => self.sources.complete(*of).then_some(0),
                _ => None,
            };
            match row {
                Some(more) => {
                    *place = Completion::new(entry.words);
                    taken += 1 + more;
                }
                None => self.pass_over(&cqe),
            }
        }
        taken
    }

    /// A stale entry was read.
    #[cold]
    fn pass_over(&mut self, cqe: &Cqe) {
        self.stale += 1;
        if cqe.flags & cqe_flags::RECV != 0 {
            self.sources.stale(cqe.qp);
        }
    }

    /// Called after a head was published, or slots were added to the deferred free.
    fn release(&mut self) {
        let freed = self.deferred.release(self.consumer.published());
        // Of this ring: they were admitted as such.
        let _: Result<(), Slots<OfCq>> = self.pool.give(freed);
        self.served.passed(self.consumer.published().head());
    }
}

/// Reports the entry `first`, and those of the same work queue that follow it, to that queue;
/// returns how many more were taken, `None` if `first` is stale. The life of the queue need not be
/// checked again for the later ones. The queue is locked meanwhile. Not inlined, to have all
/// registers.
#[inline(never)]
fn row<K: Kind>(
    consumer: &mut CqConsumer<Ring>,
    queue: &Mutex<Producer<SharedRing, K>>,
    first: &Entry,
    kind: u64,
    places: &mut [Completion],
) -> Option<usize> {
    let mut queue = lock(queue);
    let mut row = queue.row();
    if !row.is_of(first.seen) {
        return None;
    }
    let cqe = Cqe::decode(&first.words);
    let number = cqe.qp;
    row.complete(Index::new(cqe.index))?;
    let (more, seen) = consumer.take_while(Ring::view, places, (RECV, kind), |place, words| {
        let cqe = Cqe::decode(words);
        let is_its = cqe.qp == number && row.complete(Index::new(cqe.index)).is_some();
        if is_its {
            *place = Completion::new(*words);
        }
        is_its
    });
    row.end(seen).ok()?;
    Some(more)
}

#[derive(Debug)]
pub(crate) struct CqInner {
    pub(crate) context: Arc<ContextInner>,
    pub(crate) object: Object,
    depth: u32,
    head_batch: u32,
    state: Mutex<State>,
    published: Mutex<Published<OfCq>>,
}

impl CqInner {
    fn publish(&self, state: &mut State, place: u64) {
        let published = state.consumer.publish(|head| {
            let value = doorbell::value(self.object.number, head.get());
            self.context.doorbell(place, value);
        });
        *lock(&self.published) = published;
        state.release();
        state.sources.release();
    }

    /// The head that was published last.
    pub(crate) fn published(&self) -> Published<OfCq> {
        *lock(&self.published)
    }

    /// Publishes the head if entries were read since, to free slots. Then calls `act`, before
    /// another entry can be read. The caller holds no lock of a work queue.
    pub(crate) fn flush<R>(&self, act: impl FnOnce(Option<Flushed<'_, OfCq>>) -> R) -> R {
        let mut state = lock(&self.state);
        if state.consumer.unpublished() != 0 {
            self.publish(&mut state, doorbell::CQ_HEAD);
        }
        act(state.consumer.flushed())
    }

    pub(crate) fn ring(&self) -> RingId {
        RingId::new(self.object.number.raw(), self.context.attributes.epoch)
    }

    /// Reserves the slots that a work queue can fill.
    pub(crate) fn reserve(&self, needed: u32) -> Result<Slots<OfCq>, Error> {
        let mut state = lock(&self.state);
        if state.pool.free() < needed && state.consumer.unpublished() != 0 {
            self.publish(&mut state, doorbell::CQ_HEAD);
        }
        let free = state.pool.free();
        let taken = state.pool.take(needed);
        taken.ok_or(Error::CqTooSmall { free, needed })
    }

    /// Takes back the slots of a work queue that was destroyed or reset when the CQ's producer
    /// index was `until`.
    pub(crate) fn give_back(&self, slots: Slots<OfCq>, until: Index) {
        let mut state = lock(&self.state);
        // Of this ring: they were reserved here.
        let _: Result<(), Slots<OfCq>> = state.deferred.admit(slots, until);
        state.release();
    }

    /// Takes back slots that no work queue has used.
    pub(crate) fn unreserve(&self, slots: Slots<OfCq>) {
        // Of this ring: they were reserved here.
        let _: Result<(), Slots<OfCq>> = lock(&self.state).pool.give(slots);
    }

    /// Adds a queue pair; its entries are those from `since` on.
    pub(crate) fn serve(
        &self,
        number: Number,
        since: Option<Index>,
        send: Option<Arc<SendQueue>>,
        recv: Option<Arc<RecvQueue>>,
    ) {
        let mut state = lock(&self.state);
        let since = since.unwrap_or(state.consumer.head());
        let mut queues = state.served.remove(number).unwrap_or_default();
        queues.send = send.or(queues.send);
        queues.recv = recv.or(queues.recv);
        state.served.insert(number, since, queues);
    }

    /// Adds an SRQ, some queue pairs of which begin to complete here; `None` if there are too many.
    pub(crate) fn add_source(&self, queue: &Arc<SharedQueue>, id: RingId) -> Option<Place> {
        lock(&self.state).sources.add(queue, id)
    }

    /// No queue pair of the SRQ completes here any more.
    pub(crate) fn end_source(&self, place: Place) {
        lock(&self.state).sources.end(place);
    }

    /// The receives of a queue pair are those of an SRQ.
    pub(crate) fn share(&self, number: Number, place: Place) {
        let mut state = lock(&self.state);
        if let Some((_, queues)) = state.served.get_mut(number) {
            queues.shared = Some(place);
        }
    }

    /// They are no more: the queue pair was reset or destroyed. Those of its entries that are unread
    /// are stale.
    pub(crate) fn unshare(&self, number: Number) {
        let mut state = lock(&self.state);
        let State {
            served,
            sources,
            consumer,
            ..
        } = &mut *state;
        let Some((life, queues)) = served.get_mut(number) else {
            return;
        };
        let Some(place) = queues.shared.take() else {
            return;
        };
        let mut unread = 0;
        consumer.visit(|words, past| {
            let cqe = Cqe::decode(words);
            let is_receive = cqe.flags & cqe_flags::RECV != 0;
            let is_its = cqe.qp == number && is_receive && life.includes(past);
            unread += u32::from(is_its);
        });
        sources.left(place, number, unread);
    }

    /// Removes a queue pair; its entries that are left are stale.
    pub(crate) fn leave(&self, number: Number) {
        lock(&self.state).served.remove(number);
    }
}

impl Drop for CqInner {
    fn drop(&mut self) {
        // Fails only if the context is dead, and then the object is gone.
        let _: Result<(), Errno> = self.context.kernel.destroy_cq(self.object);
        lock(&self.state).sources.close();
    }
}

/// A completion queue. Clones are the same queue.
#[derive(Clone, Debug)]
pub struct Cq {
    pub(crate) inner: Arc<CqInner>,
}

impl Cq {
    /// Makes one. Its depth is rounded up to a power of two.
    pub fn new(context: &Context, options: &CqOptions<'_>) -> Result<Self, Error> {
        let Some(depth) = Depth::at_least(options.depth).filter(|_| options.depth > 0) else {
            return Err(Error::Range {
                what: "the depth of a completion queue",
                value: options.depth.into(),
                allowed: "from 1 to the device's max_cq_depth (see `qpair info`)",
            });
        };
        let ring = Ring::new(depth.entries(), Cqe::BYTES, options.pages)?;
        let create = NewCq {
            buffer: ring.address(),
            buffer_bytes: ring.bytes(),
            depth: depth.entries(),
            vector: options.vector,
            eventfd: options.channel.map(Channel::eventfd),
        };
        let context = context.inner.clone();
        let created = context.kernel.create_cq(&create);
        let (object, depth) = created.map_err(Error::kernel("make a completion queue"))?;
        let id = RingId::new(object.number.raw(), context.attributes.epoch);
        let made = Depth::new(depth)
            .and_then(|depth| CqConsumer::new(id, ring, depth, depth.entries()).ok());
        let Some((consumer, pool)) = made else {
            // The kernel reports a depth that exceeds the memory. Closing the context destroys the
            // CQ.
            return Err(Error::kernel("use the completion queue that was made")(
                Errno::INVAL,
            ));
        };
        let published = consumer.published();
        let state = State {
            consumer,
            pool,
            deferred: DeferredFree::new(id),
            served: Served::default(),
            sources: Sources::default(),
            stale: 0,
        };
        let inner = CqInner {
            context,
            object,
            depth,
            head_batch: options.head_batch.unwrap_or((depth / 4).max(1)),
            state: Mutex::new(state),
            published: Mutex::new(published),
        };
        Ok(Self {
            inner: Arc::new(inner),
        })
    }

    /// The device's number, as events have it.
    pub fn number(&self) -> Number {
        self.inner.object.number
    }

    /// Entries of the ring, which may be more than were asked for.
    pub fn depth(&self) -> u32 {
        self.inner.depth
    }

    /// Takes as many completions as there are and fit. Does no system call and no allocation.
    pub fn poll<'a>(&self, into: &'a mut [Completion]) -> &'a [Completion] {
        let mut state = lock(&self.inner.state);
        let taken = state.take(into);
        if state.consumer.unpublished() >= self.inner.head_batch {
            self.inner.publish(&mut state, doorbell::CQ_HEAD);
        }
        &into[..taken]
    }

    /// Requests an event at the next completion that [`poll`](Self::poll) has not taken yet; at
    /// once if there is one.
    pub fn arm(&self, wants: Wants) {
        let place = match wants {
            Wants::Next => doorbell::CQ_ARM_NEXT,
            Wants::Solicited => doorbell::CQ_ARM_SOLICITED,
        };
        let mut state = lock(&self.inner.state);
        self.inner.publish(&mut state, place);
    }

    /// Publishes the head now. Never required; it frees slots that a later post would otherwise
    /// free.
    pub fn publish(&self) {
        self.inner.flush(|_| ());
    }

    /// Stale entries: of queue pairs that are gone, or that completed nothing.
    pub fn stale(&self) -> u64 {
        lock(&self.inner.state).stale
    }

    /// Slots that no queue pair has reserved.
    pub fn unreserved(&self) -> u32 {
        lock(&self.inner.state).pool.free()
    }
}
