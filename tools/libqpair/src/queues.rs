// SPDX-License-Identifier: GPL-2.0
//! The queues of a queue pair: creating and resetting them, and posting to them.
//!
//! A post takes slots. If there are none, it frees completed ones: first those that the published
//! CQ head has passed; if there are none of these, it publishes the head, with a doorbell, and
//! frees all. Only if that frees none is the queue full.
//!
//! Posts and completions lock the work queue. Its CQ's lock is taken before it, so a post unlocks
//! the queue before it publishes a head.

use std::sync::{Arc, Mutex, MutexGuard};

use qpair_abi::doorbell;
use qpair_abi::entry::BLOCK_BYTES;
use qpair_abi::Number;
use qpair_queue::credit::{Cq as OfCq, Kind, RingId, Slots};
use qpair_queue::index::{Depth, Index};
use qpair_queue::producer::{Producer, RqProducer, SqProducer};
use rustix::io::Errno;

use crate::cq::{CqInner, RecvQueue, SendQueue};
use crate::datagram;
use crate::error::{Error, PostError};
use crate::kernel::{Change, NewQp, Object, QpType, ResetAt, Service};
use crate::lock::lock;
use crate::memory::{Ring, SharedRing};
use crate::mr::{Pd, PdInner};
use crate::options::{sealed::Receiving, sealed::Transport, QpOptions, Source};
use crate::post::{put_recv, put_send, put_sends, NoPost};
use crate::shared::Place;
use crate::srq::{stride, SrqInner};
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
    /// Where its receives are, if not in its own queue. That one is the spare queue of the SRQ then,
    /// and the type of the queue pair has no posts to it.
    srq: Option<Arc<SrqInner>>,
    /// The slots reserved in its CQs.
    slots: Mutex<Option<Reserved>>,
}

/// What a queue pair has in its CQs.
#[derive(Debug)]
struct Reserved {
    send: Slots<OfCq>,
    recv: ReservedRecv,
}

/// What it has in its receive CQ.
#[derive(Debug)]
enum ReservedRecv {
    Own(Slots<OfCq>),
    /// A share of what the SRQ has there, in this place.
    Shared(Place),
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
    pub(crate) fn new<T: Transport, R: Receiving>(
        pd: &Pd,
        options: &QpOptions<'_, T, R>,
    ) -> Result<Self, Error> {
        let pd = pd.inner.clone();
        let (qp_type, source) = (options.transport.qp_type(), options.receives.source());
        let (send_cq, recv_cq) = (options.send_cq.inner.clone(), options.recv_cq.inner.clone());
        let ours = |cq: &CqInner| Arc::ptr_eq(&cq.context, &pd.context);
        if !ours(&send_cq) || !ours(&recv_cq) {
            return Err(Error::OtherContext);
        }
        let srq = match source {
            Source::Own(..) => None,
            Source::Shared(srq) if !Arc::ptr_eq(&srq.inner.pd.context, &pd.context) => {
                return Err(Error::OtherContext);
            }
            Source::Shared(_) if qp_type == QpType::Connected(Service::Uc) => {
                return Err(Error::UcOnSrq);
            }
            Source::Shared(srq) => Some(srq.inner.clone()),
        };
        let depth = |what, value: u32| {
            let depth = Depth::at_least(value).filter(|_| value > 0);
            depth.ok_or(Error::Range {
                what,
                value: value.into(),
                allowed: "from 1 to the device's limit (see `qpair info`)",
            })
        };
        let sq_depth = depth("the depth of a send queue", options.sq_blocks)?;
        let sq_ring = Ring::new(sq_depth.entries(), BLOCK_BYTES, options.pages)?;
        let sq_ring = SharedRing::new(sq_ring);
        let (rq_depth, stride, rq_ring) = match source {
            Source::Own(receives, sges) => {
                let depth = depth("the depth of a receive queue", receives)?;
                let stride = stride(sges)?;
                let ring = Ring::new(depth.entries(), BLOCK_BYTES << stride, options.pages)?;
                (depth, stride, SharedRing::new(ring))
            }
            Source::Shared(srq) => (
                depth("the depth of a receive queue", 1)?,
                0,
                srq.inner.spare.clone(),
            ),
        };
        let slots = reserve(&send_cq, &recv_cq, sq_depth, rq_depth, srq.as_deref())?;

        let rq = match srq {
            None => (rq_ring.address(), rq_ring.bytes(), rq_depth.entries()),
            Some(_) => (0, 0, 0),
        };
        let create = NewQp {
            pd: pd.handle,
            send_cq: send_cq.object,
            recv_cq: recv_cq.object,
            sq_buffer: sq_ring.address(),
            sq_buffer_bytes: sq_ring.bytes(),
            rq_buffer: rq.0,
            rq_buffer_bytes: rq.1,
            sq_blocks: sq_depth.entries(),
            rq_depth: rq.2,
            rq_stride: stride,
            srq: srq.as_ref().map(|srq| srq.object),
            qp_type,
        };
        let object = match pd.context.kernel.create_qp(&create) {
            Ok(object) => object,
            Err(errno) => {
                send_cq.unreserve(slots.send);
                match (slots.recv, &srq) {
                    (ReservedRecv::Own(recv), _) => recv_cq.unreserve(recv),
                    (ReservedRecv::Shared(_), Some(srq)) => srq.leave(&recv_cq, None, Index::ZERO),
                    (ReservedRecv::Shared(_), None) => {}
                }
                return Err(Error::kernel("make a queue pair")(errno));
            }
        };
        let number = object.number;
        let id = RingId::new(number.raw(), pd.context.attributes.epoch);
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
        let own = srq.is_none().then(|| recv.clone());
        recv_cq.serve(number, None, None, own);
        if let ReservedRecv::Shared(place) = slots.recv {
            recv_cq.share(number, place);
        }
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
            srq,
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

    /// Resets it, and gives back its slots, to be free when the CQs' heads have passed its last
    /// possible entry. If it cannot be reset, it still has them.
    fn end_life(&self) -> Result<ResetAt, Error> {
        let _turn = self.srq.as_ref().map(|srq| lock(&srq.turn));
        let until = self.modify(Change::Reset)?;
        self.give_back(until);
        Ok(until)
    }

    /// Gives back its slots, to be free when the CQs' heads have passed these indices.
    fn give_back(&self, until: ResetAt) {
        if let Some(Reserved { send, recv }) = lock(&self.slots).take() {
            self.send_cq.give_back(send, Index::new(until.send_cq));
            let recv_until = Index::new(until.recv_cq);
            match (recv, &self.srq) {
                (ReservedRecv::Own(recv), _) => self.recv_cq.give_back(recv, recv_until),
                (ReservedRecv::Shared(_), Some(srq)) => {
                    srq.leave(&self.recv_cq, Some(self.number()), recv_until);
                }
                (ReservedRecv::Shared(_), None) => {}
            }
        }
    }

    /// Reserves new slots in its CQs, if a reset gave them back; those from before the reset may
    /// still be in use.
    pub(crate) fn reserve(&self) -> Result<(), Error> {
        let mut slots = lock(&self.slots);
        if slots.is_none() {
            let srq = self.srq.as_deref();
            let fresh = reserve(
                &self.send_cq,
                &self.recv_cq,
                self.sq_depth,
                self.rq_depth,
                srq,
            )?;
            if let ReservedRecv::Shared(place) = fresh.recv {
                self.recv_cq.share(self.number(), place);
            }
            *slots = Some(fresh);
        }
        Ok(())
    }

    /// Resets it: fresh queues in the same memory.
    ///
    /// # Errors
    ///
    /// Those of the change. The queue pair is to be dropped then.
    pub(crate) fn reset(&self) -> Result<(), Error> {
        let since = self.end_life()?;
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
        let mut requests = requests.into_iter().fuse();
        let limits = self.limits;
        let mut posted = 0;
        loop {
            let mut queue = lock(&self.send);
            if queue.completed() != 0 && (queue.free() as usize) < requests.size_hint().0 {
                drop(queue);
                queue = self.refill(&self.send, &self.send_cq);
            }
            let mut batch = queue.batch(|ring| ring.view());
            let (row, left) = put_sends(&mut batch, &mut requests, &limits);
            posted += row;
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

    /// Not inlined, so that a loop over a batch has all registers.
    #[inline(never)]
    pub(crate) fn post_send(&self, request: &impl Encode) -> Result<(), NoPost> {
        self.refilled(&self.send, &self.send_cq, |queue| {
            put_send(&mut queue.batch(|ring| ring.view()), request, &self.limits)
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
    recv_cq: &Arc<CqInner>,
    sq_depth: Depth,
    rq_depth: Depth,
    srq: Option<&SrqInner>,
) -> Result<Reserved, Error> {
    let send = send_cq.reserve(sq_depth.entries())?;
    let recv = match srq {
        None => recv_cq.reserve(rq_depth.entries()).map(ReservedRecv::Own),
        Some(srq) => srq.enter(recv_cq).map(ReservedRecv::Shared),
    };
    match recv {
        Ok(recv) => Ok(Reserved { send, recv }),
        Err(error) => {
            send_cq.unreserve(send);
            Err(error)
        }
    }
}

impl Drop for Queues {
    fn drop(&mut self) {
        // Only a reset says where its last entries are. If the context is dead, its CQs get no new
        // queue pair, and it does not matter where the slots are.
        if self.end_life().is_err() {
            self.give_back(ResetAt::default());
        }
        let _: Result<(), Errno> = self.pd.context.kernel.destroy_qp(self.object);
        self.send_cq.leave(self.number());
        self.recv_cq.leave(self.number());
        if !std::thread::panicking() {
            debug_assert_eq!(lock(&self.send).audit(), Ok(()));
            debug_assert_eq!(lock(&self.recv).audit(), Ok(()));
        }
    }
}
