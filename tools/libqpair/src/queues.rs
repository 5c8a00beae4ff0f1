// SPDX-License-Identifier: GPL-2.0
//! The queues of a queue pair: creating and resetting them, and posting to them.
//!
//! A post takes slots. If there are none, it frees completed ones: first those that the published
//! CQ head has passed; if there are none of these, it publishes the head, with a doorbell, and
//! frees all. Only if that frees none is the queue full.
//!
//! Posts and completions lock the work queue. Its CQ's lock is taken before it, so a post unlocks
//! the queue before it publishes a head.

use std::borrow::BorrowMut;
use std::sync::{Arc, Mutex, MutexGuard};

use qpair_abi::doorbell;
use qpair_abi::entry::{recv_sges, BLOCK_BYTES, BLOCK_WORDS, MAX_STRIDE_SHIFT};
use qpair_abi::Number;
use qpair_queue::credit::{Cq as OfCq, Kind, RingId, Rq, Slots, Sq};
use qpair_queue::index::{Depth, Index};
use qpair_queue::producer::{Batch, Producer, Refused, Room, RqProducer, SqProducer};
use qpair_queue::storage::Storage;
use qpair_ring::Words;
use rustix::io::Errno;

use crate::cq::{CqInner, RecvQueue, SendQueue};
use crate::datagram;
use crate::error::{Error, PostError};
use crate::kernel::{Change, NewQp, Object, QpType, ResetAt};
use crate::lock::lock;
use crate::memory::{Ring, SharedRing};
use crate::mr::{Pd, PdInner};
use crate::options::{sealed::Transport, QpOptions};
use crate::wr::{Encode, Limits, Receive};

/// The two queues of a queue pair and their resources.
#[derive(Debug)]
pub(crate) struct Queues {
    pub(crate) pd: Arc<PdInner>,
    pub(crate) object: Object,
    send_cq: Arc<CqInner>,
    recv_cq: Arc<CqInner>,
    sq_ring: SharedRing,
    rq_ring: SharedRing,
    sq_depth: Depth,
    rq_depth: Depth,
    stride: u8,
    limits: Limits,
    send: Arc<SendQueue>,
    recv: Arc<RecvQueue>,
    /// The slots reserved in its send CQ and in its receive CQ.
    slots: Mutex<Option<(Slots<OfCq>, Slots<OfCq>)>>,
}

/// Fresh work queues on two rings.
fn producers(
    id: RingId,
    cqs: (&CqInner, &CqInner),
    sq: (SharedRing, Depth),
    rq: (SharedRing, Depth, u8),
) -> Result<(SqProducer<SharedRing>, RqProducer<SharedRing>), Error> {
    let send = SqProducer::new_sq(id, cqs.0.ring(), sq.0, sq.1, sq.1.entries());
    let recv = RqProducer::new_rq(id, cqs.1.ring(), rq.0, rq.1, rq.2, rq.1.entries());
    match (send, recv) {
        (Ok(send), Ok(recv)) => Ok((send, recv)),
        _ => Err(Error::kernel("use the queue pair that was made")(
            Errno::INVAL,
        )),
    }
}

impl Queues {
    pub(crate) fn new<T: Transport>(pd: &Pd, options: &QpOptions<'_, T>) -> Result<Self, Error> {
        let pd = pd.inner.clone();
        let qp_type = options.transport.qp_type();
        let (send_cq, recv_cq) = (options.send_cq.inner.clone(), options.recv_cq.inner.clone());
        let ours = |cq: &CqInner| Arc::ptr_eq(&cq.context, &pd.context);
        if !ours(&send_cq) || !ours(&recv_cq) {
            return Err(Error::OtherContext);
        }
        let depth = |what, value: u32| {
            let depth = Depth::at_least(value).filter(|_| value > 0);
            depth.ok_or(Error::Range {
                what,
                value: value.into(),
                allowed: "from 1 to the device's limit (see `qpair info`)",
            })
        };
        let sq_depth = depth("the depth of a send queue", options.sq_blocks)?;
        let rq_depth = depth("the depth of a receive queue", options.rq_depth)?;
        let stride = (0..=MAX_STRIDE_SHIFT).find(|&shift| recv_sges(shift) >= options.recv_sges);
        let stride = stride.ok_or(Error::Range {
            what: "the number of pieces of a receive",
            value: options.recv_sges as u64,
            allowed: "at most 15, and not above the device's max_recv_sge (see `qpair info`)",
        })?;
        let sq_ring = Ring::new(sq_depth.entries(), BLOCK_BYTES, options.pages)?;
        let rq_ring = Ring::new(rq_depth.entries(), BLOCK_BYTES << stride, options.pages)?;
        let slots = reserve(&send_cq, &recv_cq, sq_depth, rq_depth)?;

        let create = NewQp {
            pd: pd.handle,
            send_cq: send_cq.object,
            recv_cq: recv_cq.object,
            sq_buffer: sq_ring.address(),
            sq_buffer_bytes: sq_ring.bytes(),
            rq_buffer: rq_ring.address(),
            rq_buffer_bytes: rq_ring.bytes(),
            sq_blocks: sq_depth.entries(),
            rq_depth: rq_depth.entries(),
            rq_stride: stride,
            qp_type,
        };
        let object = match pd.context.kernel.create_qp(&create) {
            Ok(object) => object,
            Err(errno) => {
                send_cq.unreserve(slots.0);
                recv_cq.unreserve(slots.1);
                return Err(Error::kernel("make a queue pair")(errno));
            }
        };
        let number = object.number;
        let id = RingId::new(number.raw(), pd.context.attributes.epoch);
        let (sq_ring, rq_ring) = (SharedRing::new(sq_ring), SharedRing::new(rq_ring));
        let (send, recv) = producers(
            id,
            (&send_cq, &recv_cq),
            (sq_ring.clone(), sq_depth),
            (rq_ring.clone(), rq_depth, stride),
        )?;
        let limits = Limits {
            send_sges: pd.context.attributes.max_send_sge as usize,
            inline: pd.context.attributes.max_inline as usize,
        };
        let limits = match qp_type {
            QpType::Connected(_) => limits,
            QpType::Ud => datagram::limits(&limits),
        };
        let (send, recv) = (Arc::new(Mutex::new(send)), Arc::new(Mutex::new(recv)));
        send_cq.serve(number, None, Some(send.clone()), None);
        recv_cq.serve(number, None, None, Some(recv.clone()));
        Ok(Self {
            pd,
            object,
            send_cq,
            recv_cq,
            sq_ring,
            rq_ring,
            sq_depth,
            rq_depth,
            stride,
            limits,
            send,
            recv,
            slots: Mutex::new(Some(slots)),
        })
    }

    pub(crate) fn number(&self) -> Number {
        self.object.number
    }

    pub(crate) fn modify(&self, change: Change) -> Result<ResetAt, Error> {
        let changed = self.pd.context.kernel.modify_qp(self.object, change);
        changed.map_err(Error::kernel("change a queue pair"))
    }

    /// Gives back the slots, to be free when the CQs' heads have passed the last possible entry of
    /// this queue pair.
    fn give_back(&self, until: ResetAt) {
        if let Some((send, recv)) = lock(&self.slots).take() {
            self.send_cq.give_back(send, Index::new(until.send_cq));
            self.recv_cq.give_back(recv, Index::new(until.recv_cq));
        }
    }

    /// Reserves new slots in its CQs, if a reset gave them back; those from before the reset may
    /// still be in use.
    pub(crate) fn reserve(&self) -> Result<(), Error> {
        let mut slots = lock(&self.slots);
        if slots.is_none() {
            let fresh = reserve(&self.send_cq, &self.recv_cq, self.sq_depth, self.rq_depth);
            *slots = Some(fresh?);
        }
        Ok(())
    }

    /// The device has reset it: fresh queues in the same memory.
    pub(crate) fn renew(&self, since: ResetAt) -> Result<(), Error> {
        self.give_back(since);
        self.sq_ring.clear();
        self.rq_ring.clear();
        let id = RingId::new(self.number().raw(), self.pd.context.attributes.epoch);
        let (send, recv) = producers(
            id,
            (&self.send_cq, &self.recv_cq),
            (self.sq_ring.clone(), self.sq_depth),
            (self.rq_ring.clone(), self.rq_depth, self.stride),
        )?;
        // From here on, entries from before the reset are stale.
        self.send_cq
            .serve(self.number(), Some(Index::new(since.send_cq)), None, None);
        if !Arc::ptr_eq(&self.send_cq, &self.recv_cq) {
            self.recv_cq
                .serve(self.number(), Some(Index::new(since.recv_cq)), None, None);
        }
        let old = std::mem::replace(&mut *lock(&self.send), send);
        debug_assert!(old.retire().is_ok(), "send slots were lost");
        let old = std::mem::replace(&mut *lock(&self.recv), recv);
        debug_assert!(old.retire().is_ok(), "receive slots were lost");
        Ok(())
    }

    fn doorbell(&self, place: u64, tail: Index) {
        let value = doorbell::value(self.number(), tail.get());
        self.pd.context.doorbell(place, value);
    }

    pub(crate) fn send_room(&self) -> u32 {
        let queue = lock(&self.send);
        queue.free() + queue.completed()
    }

    pub(crate) fn recv_room(&self) -> u32 {
        let queue = lock(&self.recv);
        queue.free() + queue.completed()
    }

    pub(crate) fn ring_send(&self) {
        lock(&self.send).ring(|tail| self.doorbell(doorbell::SQ, tail));
    }

    pub(crate) fn ring_recv(&self) {
        lock(&self.recv).ring(|tail| self.doorbell(doorbell::RQ, tail));
    }

    /// Posts all and rings, with the queue locked once as long as there is room.
    #[inline(always)]
    pub(crate) fn post_sends(
        &self,
        requests: impl IntoIterator<Item = impl Encode>,
    ) -> Result<(), PostError> {
        let mut requests = requests.into_iter();
        let limits = self.limits;
        let mut posted = 0;
        loop {
            let mut queue = lock(&self.send);
            if queue.completed() != 0 && (queue.free() as usize) < requests.size_hint().0 {
                drop(queue);
                queue = self.refill(&self.send, &self.send_cq);
            }
            let mut batch = queue.batch(|ring| ring.view());
            let left = loop {
                let Some(request) = requests.next() else {
                    break None;
                };
                if put_send(&mut batch, &request, &limits).is_err() {
                    break Some(request);
                }
                posted += 1;
            };
            drop(batch);
            let Some(request) = left else {
                queue.ring(|tail| self.doorbell(doorbell::SQ, tail));
                return Ok(());
            };
            drop(queue);
            // Frees slots for it, or returns the error.
            if let Err(refused) = self.post_send(&request) {
                self.ring_send();
                return Err(refused.after(posted));
            }
            posted += 1;
        }
    }

    pub(crate) fn post_send(&self, request: &impl Encode) -> Result<(), NoPost> {
        self.refilled(&self.send, &self.send_cq, |queue| {
            put_send(&mut queue.batch(|ring| ring.view()), request, &self.limits)
        })
    }

    pub(crate) fn post_raw(&self, words: &[[u64; BLOCK_WORDS]]) -> Result<(), NoPost> {
        self.refilled(&self.send, &self.send_cq, |queue| {
            let mut room = queue.room(words.len() as u32, true)?;
            for (block, words) in (0..).zip(words) {
                room.write(block, words);
            }
            room.post();
            Ok(())
        })
    }

    /// Posts all, with the queue locked once as long as there is room.
    pub(crate) fn post_recvs(&self, receives: &[Receive<'_>]) -> Result<(), PostError> {
        let posted = {
            let mut queue = lock(&self.recv);
            let mut batch = queue.batch(|ring| ring.view());
            let fits = |receive: &&Receive<'_>| put_recv(&mut batch, receive, self.stride).is_ok();
            receives.iter().take_while(fits).count()
        };
        // Frees slots for the others, or returns the error.
        for (at, receive) in receives.iter().enumerate().skip(posted) {
            self.post_recv(receive)
                .map_err(|refused| refused.after(at))?;
        }
        Ok(())
    }

    pub(crate) fn post_recv(&self, receive: &Receive<'_>) -> Result<(), NoPost> {
        self.refilled(&self.recv, &self.recv_cq, |queue| {
            put_recv(&mut queue.batch(|ring| ring.view()), receive, self.stride)
        })
    }

    /// Posts; if there is no room, frees completed slots and posts again.
    #[inline]
    fn refilled<K: Kind>(
        &self,
        queue: &Mutex<Producer<SharedRing, K>>,
        cq: &CqInner,
        mut post: impl FnMut(&mut Producer<SharedRing, K>) -> Result<(), NoPost>,
    ) -> Result<(), NoPost> {
        {
            let mut queue = lock(queue);
            match post(&mut queue) {
                Err(NoPost::Full) if queue.completed() != 0 => {}
                other => return other,
            }
        }
        post(&mut self.refill(queue, cq))
    }

    /// Frees completed slots: those that need no doorbell; if there are none, all.
    #[inline(never)]
    fn refill<'q, K: Kind>(
        &self,
        queue: &'q Mutex<Producer<SharedRing, K>>,
        cq: &CqInner,
    ) -> MutexGuard<'q, Producer<SharedRing, K>> {
        let published = cq.published();
        {
            let mut queue = lock(queue);
            if queue.reclaim(published) != 0 {
                return queue;
            }
        }
        // A CQ is locked before its queues. No index comparison here: any number of entries of
        // other queues may have passed since this queue's last one.
        cq.flush(|flushed| {
            let mut queue = lock(queue);
            if let Some(flushed) = flushed {
                queue.reclaim_all(&flushed);
            }
            queue
        })
    }
}

fn reserve(
    send_cq: &CqInner,
    recv_cq: &CqInner,
    sq_depth: Depth,
    rq_depth: Depth,
) -> Result<(Slots<OfCq>, Slots<OfCq>), Error> {
    let send = send_cq.reserve(sq_depth.entries())?;
    match recv_cq.reserve(rq_depth.entries()) {
        Ok(recv) => Ok((send, recv)),
        Err(error) => {
            send_cq.unreserve(send);
            Err(error)
        }
    }
}

/// Writes a work request, and posts it.
#[inline(always)]
fn put_send<'a>(
    batch: &mut Batch<'a, Words<'a>, Sq>,
    request: &impl Encode,
    limits: &Limits,
) -> Result<(), NoPost> {
    let blocks = request.blocks(limits).map_err(NoPost::TooLarge)?;
    let mut room = batch.room(blocks, request.wants_signal())?;
    let signalled = room.signalled();
    match request.one_block(signalled) {
        Some(words) => room.write(0, &words),
        None => write(&mut room, &request.encode(blocks, signalled), blocks),
    }
    room.post();
    Ok(())
}

/// Writes a receive, and posts it.
#[inline(always)]
fn put_recv<'a>(
    batch: &mut Batch<'a, Words<'a>, Rq>,
    receive: &Receive<'_>,
    stride: u8,
) -> Result<(), NoPost> {
    receive.check(stride).map_err(NoPost::TooLarge)?;
    let mut room = batch.room(1, true)?;
    match receive.one_block() {
        Some(words) if stride == 0 => room.write(0, &words),
        _ => write(&mut room, &receive.encode(), 1 << stride),
    }
    room.post();
    Ok(())
}

fn write<'a, B, V, K>(room: &mut Room<B, V, K>, words: &[u64], blocks: u32)
where
    B: BorrowMut<Batch<'a, V, K>>,
    V: Storage + 'a,
    K: Kind,
{
    for (block, words) in (0..blocks).zip(words.chunks_exact(BLOCK_WORDS)) {
        let mut whole = [0; BLOCK_WORDS];
        whole.copy_from_slice(words);
        room.write(block, &whole);
    }
}

impl Drop for Queues {
    fn drop(&mut self) {
        // Only a reset says where its last entries are. Both calls fail only if the context is
        // dead. Its CQs get no new queue pair then, so it does not matter where the slots are.
        let reset = self.modify(Change::Reset);
        let _: Result<(), Errno> = self.pd.context.kernel.destroy_qp(self.object);
        self.send_cq.leave(self.number());
        self.recv_cq.leave(self.number());
        self.give_back(reset.unwrap_or_default());
        if !std::thread::panicking() {
            debug_assert_eq!(lock(&self.send).audit(), Ok(()));
            debug_assert_eq!(lock(&self.recv).audit(), Ok(()));
        }
    }
}

/// Not posted.
pub(crate) enum NoPost {
    Full,
    TooLarge(&'static str),
}

impl From<Refused> for NoPost {
    #[inline(always)]
    fn from(refused: Refused) -> Self {
        match refused {
            Refused::Full => Self::Full,
            Refused::TooLarge => Self::TooLarge("it takes more blocks than the queue has"),
        }
    }
}

impl NoPost {
    pub(crate) fn after(self, posted: usize) -> PostError {
        match self {
            Self::Full => PostError::Full { posted },
            Self::TooLarge(what) => PostError::TooLarge { posted, what },
        }
    }
}
