// SPDX-License-Identifier: GPL-2.0
//! Queue pairs.
//!
//! The state is a type, and what cannot be done in a state cannot be written:
//!
//! ```text
//!   Reset --init--> Init --rtr(peer)--> Rtr --rts--> Rts
//!                   post_recv           post_recv    post_recv, post_send
//! ```
//!
//! A step that fails destroys the queue pair, and says why. A work request
//! that fails puts the device's side into the error state, and what is still posted
//! completes as flushed; [`Qp::reset`] makes it new.
//!
//! Posting writes the request into the ring and takes its slots; one doorbell hands over all that a call posted, or, of
//! requests that were only queued ([`Qp::queue_send`]), all since the last.

use std::marker::PhantomData;
use std::sync::{Arc, Mutex};

use qpair_abi::doorbell;
use qpair_abi::entry::{recv_sges, BLOCK_BYTES, BLOCK_WORDS, MAX_STRIDE_SHIFT};
use qpair_abi::uapi::{
    qpair_create_qp, qpair_destroy, qpair_modify_qp, qpair_query_qp, QPAIR_QPS_ERROR,
    QPAIR_QPS_INIT, QPAIR_QPS_RESET, QPAIR_QPS_RTR, QPAIR_QPS_RTS, QPAIR_QP_ACCESS, QPAIR_QP_PEER,
    QPAIR_QP_RETRY, QPAIR_QP_STATE, QPAIR_RC,
};
use qpair_abi::Number;
use qpair_queue::credit::{Cq as OfCq, Kind, RingId, Slots};
use qpair_queue::index::{Depth, Index};
use qpair_queue::producer::{Producer, Refused, RqProducer, SqProducer};
use rustix::io::Errno;

use crate::cq::{Cq, CqInner};
use crate::error::{Error, PostError};
use crate::kernel::Call;
use crate::lock;
use crate::memory::{Pages, Ring, SharedRing};
use crate::mr::{Access, PdInner};
use crate::wr::{Limits, Receive, WorkRequest};

pub(crate) type SendQueue = Mutex<SqProducer<SharedRing>>;
pub(crate) type RecvQueue = Mutex<RqProducer<SharedRing>>;

/// What a queue pair shall be.
#[derive(Clone, Debug)]
pub struct QpOptions<'a> {
    send_cq: &'a Cq,
    recv_cq: &'a Cq,
    sq_blocks: u32,
    rq_depth: u32,
    recv_sges: usize,
    pages: Pages,
}

impl<'a> QpOptions<'a> {
    /// Completes its work in these queues, which may be one. 16 blocks and 16 receives, if not told otherwise.
    pub fn new(send_cq: &'a Cq, recv_cq: &'a Cq) -> Self {
        Self {
            send_cq,
            recv_cq,
            sq_blocks: 16,
            rq_depth: 16,
            recv_sges: 1,
            pages: Pages::Normal,
        }
    }

    /// At least this many 64-byte blocks; a work request takes one for up to two pieces or 32 inline
    /// bytes, and one for each four pieces or 64 bytes more.
    pub fn sq_blocks(mut self, blocks: u32) -> Self {
        self.sq_blocks = blocks;
        self
    }

    /// At least this many receives.
    pub fn rq_depth(mut self, depth: u32) -> Self {
        self.rq_depth = depth;
        self
    }

    /// Pieces that a receive may have.
    pub fn recv_sges(mut self, sges: usize) -> Self {
        self.recv_sges = sges;
        self
    }

    /// The pages of its rings.
    pub fn pages(mut self, pages: Pages) -> Self {
        self.pages = pages;
        self
    }
}

#[derive(Debug)]
struct QpInner {
    pd: Arc<PdInner>,
    number: Number,
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
    /// What it may fill in its send CQ and in its receive CQ.
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

impl QpInner {
    fn create(pd: Arc<PdInner>, options: &QpOptions<'_>) -> Result<Self, Error> {
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

        let mut create = qpair_create_qp {
            sq_buffer: sq_ring.address(),
            sq_buffer_bytes: sq_ring.bytes(),
            rq_buffer: rq_ring.address(),
            rq_buffer_bytes: rq_ring.bytes(),
            sq_blocks: sq_depth.entries(),
            rq_depth: rq_depth.entries(),
            rq_stride: stride.into(),
            service: QPAIR_RC,
            pd: pd.handle,
            send_cq: send_cq.number.raw(),
            recv_cq: recv_cq.number.raw(),
            ..Default::default()
        };
        if let Err(error) = pd.context.call(Call::CreateQp(&mut create)) {
            send_cq.unreserve(slots.0);
            recv_cq.unreserve(slots.1);
            return Err(error);
        }
        let number = Number::from_raw(create.handle);
        let id = RingId::new(create.handle, pd.context.attributes.epoch);
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
        let (send, recv) = (Arc::new(Mutex::new(send)), Arc::new(Mutex::new(recv)));
        send_cq.serve(number, None, Some(send.clone()), None);
        recv_cq.serve(number, None, None, Some(recv.clone()));
        Ok(Self {
            pd,
            number,
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

    fn modify(&self, mut modify: qpair_modify_qp) -> Result<qpair_modify_qp, Error> {
        modify.handle = self.number.raw();
        self.pd.context.call(Call::ModifyQp(&mut modify))?;
        Ok(modify)
    }

    /// The slots go back when the CQs' heads have passed what may be of this queue pair.
    fn give_back(&self, send_until: u32, recv_until: u32) {
        if let Some((send, recv)) = lock(&self.slots).take() {
            self.send_cq.give_back(send, Index::new(send_until));
            self.recv_cq.give_back(recv, Index::new(recv_until));
        }
    }

    /// The device has reset it: fresh queues in the same memory.
    fn renew(&self, send_since: u32, recv_since: u32) -> Result<(), Error> {
        self.give_back(send_since, recv_since);
        self.sq_ring.clear();
        self.rq_ring.clear();
        let id = RingId::new(self.number.raw(), self.pd.context.attributes.epoch);
        let (send, recv) = producers(
            id,
            (&self.send_cq, &self.recv_cq),
            (self.sq_ring.clone(), self.sq_depth),
            (self.rq_ring.clone(), self.rq_depth, self.stride),
        )?;
        // From here on entries of the old life find nobody.
        self.send_cq
            .serve(self.number, Some(Index::new(send_since)), None, None);
        if !Arc::ptr_eq(&self.send_cq, &self.recv_cq) {
            self.recv_cq
                .serve(self.number, Some(Index::new(recv_since)), None, None);
        }
        let old = std::mem::replace(&mut *lock(&self.send), send);
        debug_assert!(old.retire().is_ok(), "send slots were lost");
        let old = std::mem::replace(&mut *lock(&self.recv), recv);
        debug_assert!(old.retire().is_ok(), "receive slots were lost");
        Ok(())
    }

    fn doorbell(&self, place: u64, tail: Index) {
        let value = doorbell::value(self.number, tail.get());
        self.pd.context.doorbell(place, value);
    }

    fn ring_send(&self) {
        lock(&self.send).ring(|tail| self.doorbell(doorbell::SQ, tail));
    }

    fn ring_recv(&self) {
        lock(&self.recv).ring(|tail| self.doorbell(doorbell::RQ, tail));
    }

    fn post_send(&self, request: &WorkRequest<'_>) -> Result<(), NoPost> {
        let blocks = request.blocks(&self.limits).map_err(NoPost::TooLarge)?;
        self.refilled(&self.send, &self.send_cq, |queue| {
            let mut room = queue.room(blocks, request.wants_signal())?;
            let words = request.encode(blocks, room.signalled());
            write(&mut room, &words, blocks);
            room.post();
            Ok(())
        })
    }

    fn post_raw(&self, words: &[[u64; BLOCK_WORDS]]) -> Result<(), NoPost> {
        self.refilled(&self.send, &self.send_cq, |queue| {
            let mut room = queue.room(words.len() as u32, true)?;
            for (block, words) in (0..).zip(words) {
                room.write(block, words);
            }
            room.post();
            Ok(())
        })
    }

    fn post_recv(&self, receive: &Receive<'_>) -> Result<(), NoPost> {
        receive.check(self.stride).map_err(NoPost::TooLarge)?;
        self.refilled(&self.recv, &self.recv_cq, |queue| {
            let mut room = queue.room(1, true)?;
            write(&mut room, &receive.encode(), 1 << self.stride);
            room.post();
            Ok(())
        })
    }

    /// Posts; and if there is no room, frees what is covered and posts again.
    #[inline]
    fn refilled<K: Kind>(
        &self,
        queue: &Mutex<Producer<SharedRing, K>>,
        cq: &CqInner,
        mut post: impl FnMut(&mut Producer<SharedRing, K>) -> Result<(), Refused>,
    ) -> Result<(), NoPost> {
        let refused = |refused| match refused {
            Refused::Full => NoPost::Full,
            Refused::TooLarge => NoPost::TooLarge("it takes more blocks than the queue has"),
        };
        {
            let mut queue = lock(queue);
            match post(&mut queue) {
                Err(Refused::Full) if queue.covered() != 0 => {}
                other => return other.map_err(refused),
            }
            if queue.reclaim(cq.published()) != 0 {
                match post(&mut queue) {
                    Err(Refused::Full) if queue.covered() != 0 => {}
                    other => return other.map_err(refused),
                }
            }
        }
        // A CQ is locked before its queues.
        let published = cq.publish_now();
        let mut queue = lock(queue);
        queue.reclaim(published);
        post(&mut queue).map_err(refused)
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

fn write<K: Kind>(
    room: &mut qpair_queue::producer::Room<'_, SharedRing, K>,
    words: &[u64],
    blocks: u32,
) {
    for (block, words) in (0..blocks).zip(words.chunks_exact(BLOCK_WORDS)) {
        let mut whole = [0; BLOCK_WORDS];
        whole.copy_from_slice(words);
        room.write(block, &whole);
    }
}

impl Drop for QpInner {
    fn drop(&mut self) {
        let mut end = qpair_destroy {
            handle: self.number.raw(),
            ..Default::default()
        };
        let destroyed = self.pd.context.call(Call::DestroyQp(&mut end));
        self.send_cq.leave(self.number);
        self.recv_cq.leave(self.number);
        // Refused only by a dead context, whose CQs get no queue pair any more: where the slots are is all the same.
        let _: Result<(), Error> = destroyed;
        self.give_back(end.send_cq_index, end.recv_cq_index);
        debug_assert_eq!(lock(&self.send).audit(), Ok(()));
        debug_assert_eq!(lock(&self.recv).audit(), Ok(()));
    }
}

/// Not posted.
enum NoPost {
    Full,
    TooLarge(&'static str),
}

impl NoPost {
    fn after(self, posted: usize) -> PostError {
        match self {
            Self::Full => PostError::Full { posted },
            Self::TooLarge(what) => PostError::TooLarge { posted, what },
        }
    }
}

macro_rules! states {
    ($($(#[$attr:meta])* $name:ident),*) => { $(
        $(#[$attr])*
        #[derive(Debug)]
        pub enum $name {}
        impl sealed::State for $name {}
    )* };
}

mod sealed {
    /// A state of a queue pair.
    pub trait State {}
    /// One in which receives may be posted.
    pub trait Receives: State {}
}

states! {
    /// Made, or made new.
    Reset,
    /// Receives may be posted.
    Init,
    /// Ready to receive: takes what its peer sends.
    Rtr,
    /// Ready to send.
    Rts
}

impl sealed::Receives for Init {}
impl sealed::Receives for Rtr {}
impl sealed::Receives for Rts {}

/// A queue pair in state `S`.
#[derive(Debug)]
pub struct Qp<S: sealed::State> {
    inner: QpInner,
    state: PhantomData<S>,
}

impl<S: sealed::State> Qp<S> {
    /// Its number, which its peer must know.
    pub fn number(&self) -> Number {
        self.inner.number
    }

    /// How the device has it: also whether it is in the error state.
    pub fn query(&self) -> Result<qpair_query_qp, Error> {
        let mut query = qpair_query_qp {
            handle: self.inner.number.raw(),
            ..Default::default()
        };
        self.inner.pd.context.call(Call::QueryQp(&mut query))?;
        Ok(query)
    }

    /// How often a request is tried again when the peer does not answer, and when it has no
    /// receive; 0 to 7 each, and 7 of the latter is for ever.
    pub fn set_retry(&self, retry: u8, rnr_retry: u8) -> Result<(), Error> {
        self.inner.modify(qpair_modify_qp {
            mask: QPAIR_QP_RETRY,
            retry: retry.into(),
            rnr_retry: rnr_retry.into(),
            ..Default::default()
        })?;
        Ok(())
    }

    /// Puts it into the error state: all that is posted completes as flushed.
    pub fn flush(&self) -> Result<(), Error> {
        self.inner.modify(qpair_modify_qp {
            mask: QPAIR_QP_STATE,
            state: QPAIR_QPS_ERROR,
            ..Default::default()
        })?;
        Ok(())
    }

    /// Makes it new. What was posted is forgotten, and what of it is still in the CQs is not reported.
    pub fn reset(self) -> Result<Qp<Reset>, Error> {
        let reset = self.inner.modify(qpair_modify_qp {
            mask: QPAIR_QP_STATE,
            state: QPAIR_QPS_RESET,
            ..Default::default()
        })?;
        self.inner.renew(reset.send_cq_index, reset.recv_cq_index)?;
        Ok(self.become_())
    }

    fn become_<T: sealed::State>(self) -> Qp<T> {
        Qp {
            inner: self.inner,
            state: PhantomData,
        }
    }
}

impl Qp<Reset> {
    pub(crate) fn create(pd: Arc<PdInner>, options: &QpOptions<'_>) -> Result<Self, Error> {
        Ok(Self {
            inner: QpInner::create(pd, options)?,
            state: PhantomData,
        })
    }

    /// Lets receives be posted, and says what the peer may do (`REMOTE_*`), with regions that allow it too.
    pub fn init(self, access: Access) -> Result<Qp<Init>, Error> {
        {
            // After a reset: the slots of the life before may still be in the CQs.
            let mut slots = lock(&self.inner.slots);
            if slots.is_none() {
                let inner = &self.inner;
                let fresh = reserve(
                    &inner.send_cq,
                    &inner.recv_cq,
                    inner.sq_depth,
                    inner.rq_depth,
                );
                *slots = Some(fresh?);
            }
        }
        self.inner.modify(qpair_modify_qp {
            mask: QPAIR_QP_STATE | QPAIR_QP_ACCESS,
            state: QPAIR_QPS_INIT,
            access: access.bits(),
            ..Default::default()
        })?;
        Ok(self.become_())
    }
}

impl Qp<Init> {
    /// Receives from `peer`, and from nobody else.
    pub fn rtr(self, peer: Number) -> Result<Qp<Rtr>, Error> {
        self.inner.modify(qpair_modify_qp {
            mask: QPAIR_QP_STATE | QPAIR_QP_PEER,
            state: QPAIR_QPS_RTR,
            peer: peer.raw(),
            ..Default::default()
        })?;
        Ok(self.become_())
    }
}

impl Qp<Rtr> {
    /// Sends as well.
    pub fn rts(self) -> Result<Qp<Rts>, Error> {
        self.inner.modify(qpair_modify_qp {
            mask: QPAIR_QP_STATE,
            state: QPAIR_QPS_RTS,
            ..Default::default()
        })?;
        Ok(self.become_())
    }
}

impl<S: sealed::Receives> Qp<S> {
    /// Posts receives, in order, and rings once.
    pub fn post_recv(&self, receives: &[Receive<'_>]) -> Result<(), PostError> {
        let posted = receives.iter().enumerate().try_for_each(|(i, receive)| {
            let posted = self.inner.post_recv(receive);
            posted.map_err(|refused| refused.after(i))
        });
        self.inner.ring_recv();
        posted
    }

    /// Posts a receive without ringing: [`ring`](Self::ring) hands over all that were.
    pub fn queue_recv(&self, receive: &Receive<'_>) -> Result<(), PostError> {
        let posted = self.inner.post_recv(receive);
        posted.map_err(|refused| refused.after(0))
    }

    /// Hands over what was queued: at most one doorbell for receives, then one for sends, and none without news.
    pub fn ring(&self) {
        self.inner.ring_recv();
        self.inner.ring_send();
    }

    /// Receives that can be posted before the queue is full; more once completions are polled.
    pub fn recv_room(&self) -> u32 {
        let queue = lock(&self.inner.recv);
        queue.free() + queue.covered()
    }
}

impl Qp<Rts> {
    /// Posts work requests, in order, and rings once.
    pub fn post_send(&self, requests: &[WorkRequest<'_>]) -> Result<(), PostError> {
        let posted = requests.iter().enumerate().try_for_each(|(i, request)| {
            let posted = self.inner.post_send(request);
            posted.map_err(|refused| refused.after(i))
        });
        self.inner.ring_send();
        posted
    }

    /// Posts one work request of 1 to 4 blocks as they are, and rings: for tests of what the device refuses.
    pub fn post_raw(&self, blocks: &[[u64; BLOCK_WORDS]]) -> Result<(), PostError> {
        let posted = self.inner.post_raw(blocks);
        self.inner.ring_send();
        posted.map_err(|refused| refused.after(0))
    }

    /// Posts a work request without ringing: [`ring`](Self::ring) hands over all that were.
    pub fn queue_send(&self, request: &WorkRequest<'_>) -> Result<(), PostError> {
        let posted = self.inner.post_send(request);
        posted.map_err(|refused| refused.after(0))
    }

    /// Blocks that can be posted before the queue is full; more once completions are polled.
    pub fn send_room(&self) -> u32 {
        let queue = lock(&self.inner.send);
        queue.free() + queue.covered()
    }
}
