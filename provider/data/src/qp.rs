// SPDX-License-Identifier: GPL-2.0
//! Queue pairs.

use std::sync::Arc;

use qpair_abi::doorbell;
use qpair_abi::Number;
use qpair_queue::credit::{RingId, Rq, Sq};
use qpair_queue::index::{Depth, Index};
use qpair_queue::producer::{RqProducer, SqProducer};

use crate::atomic::Atomic;
use crate::builder::{Begun, Builder};
use crate::cq::Cq;
use crate::datagram::{Address, Datagram};
use crate::flush::{put_atomic_write, Flush};
use crate::list::{List, SendParts};
use crate::lock;
use crate::queue::Work;
use crate::queues::{Queues, RecvQueue, SendQueue};
use crate::receive::Receives;
use crate::request::{Limits, Payload, Refusal, Request};
use crate::ring::{Doorbells, Ring};
use crate::srq::Srq;
use crate::window::Bind;

/// What a queue pair is made of.
#[derive(Clone, Copy, Debug)]
pub struct QpParts {
    /// The number of the device.
    pub number: Number,
    /// The number as verbs have it.
    pub qpn: u32,
    /// The ring of the SQ, of blocks.
    pub sq: Ring,
    /// Blocks of the SQ, a power of two.
    pub sq_blocks: u32,
    /// Blocks that the program's sends may take.
    pub sq_usable: u32,
    /// What its sends have in common.
    pub sends: SendParts,
    /// The ring of the RQ.
    pub rq: Ring,
    /// Receives of the RQ, a power of two.
    pub rq_depth: u32,
    /// Receives that the program may post.
    pub rq_usable: u32,
    /// log2 of the blocks of a receive.
    pub rq_stride: u8,
    /// Most SGEs of a receive.
    pub max_recv_sge: u32,
    /// The doorbells of the process.
    pub doorbells: Doorbells,
}

impl QpParts {
    /// The parts of a queue pair on an SRQ: its RQ has one slot, of the SQ's memory, which is never
    /// filled.
    #[must_use]
    pub fn on_srq(self) -> Self {
        Self {
            rq: self.sq,
            rq_depth: 1,
            rq_usable: 0,
            rq_stride: 0,
            ..self
        }
    }
}

/// A queue pair, which leaves its CQs when it is freed.
#[derive(Debug)]
pub struct Qp {
    parts: QpParts,
    queues: Arc<Queues>,
    send_cq: Arc<Cq>,
    recv_cq: Arc<Cq>,
}

impl Qp {
    /// A queue pair in RESET, of CQs of its process. `None` if the parts do not fit together.
    pub fn new(parts: QpParts, send_cq: Arc<Cq>, recv_cq: Arc<Cq>) -> Option<Self> {
        Self::with(parts, send_cq, recv_cq, None)
    }

    /// As [`new`](Self::new), on an SRQ; of parts [for it](QpParts::on_srq).
    pub fn on_srq(
        parts: QpParts,
        send_cq: Arc<Cq>,
        recv_cq: Arc<Cq>,
        srq: Arc<Srq>,
    ) -> Option<Self> {
        Self::with(parts.on_srq(), send_cq, recv_cq, Some(srq))
    }

    fn with(
        parts: QpParts,
        send_cq: Arc<Cq>,
        recv_cq: Arc<Cq>,
        srq: Option<Arc<Srq>>,
    ) -> Option<Self> {
        let (send, recv) = fresh(&parts, &send_cq, &recv_cq)?;
        let qp = Self {
            parts,
            queues: Arc::new(Queues {
                qpn: parts.qpn,
                send: lock::shared(send),
                recv: lock::shared(recv),
                srq,
            }),
            send_cq,
            recv_cq,
        };
        for cq in qp.cqs() {
            cq.serve(parts.number, qp.queues.clone(), None);
        }
        Some(qp)
    }

    /// Its CQs, each once.
    fn cqs(&self) -> impl Iterator<Item = &Cq> {
        let second = (!Arc::ptr_eq(&self.send_cq, &self.recv_cq)).then_some(&*self.recv_cq);
        std::iter::once(&*self.send_cq).chain(second)
    }

    /// Completions of `count` receives will not be read: their slots are those of the SRQ again.
    fn dropped(&self, count: u32) {
        if let Some(srq) = &self.queues.srq {
            srq.dropped(count);
        }
    }

    /// Whether it is of UD.
    pub fn is_ud(&self) -> bool {
        self.parts.sends.is_ud
    }

    /// Sets whether its state permits sends and receives.
    pub fn permit(&self, sends: bool, receives: bool) {
        self.queues.send.lock().ready = sends;
        self.queues.recv.lock().ready = receives && self.queues.srq.is_none();
    }

    /// The device has reset it: its queues are empty, and its entries in the CQs are those from
    /// these indices on.
    pub fn reset(&self, send_since: u32, recv_since: u32) {
        let Some((send, recv)) = fresh(&self.parts, &self.send_cq, &self.recv_cq) else {
            // As when it was created, with the same parts.
            return;
        };
        let (number, queues) = (self.parts.number, &self.queues);
        // From here on, entries from before the reset are stale. A CQ of both queues has one index.
        let unread = self
            .recv_cq
            .serve(number, queues.clone(), Some(Index::new(recv_since)));
        self.dropped(unread);
        self.send_cq
            .serve(number, queues.clone(), Some(Index::new(send_since)));
        *queues.send.lock() = send;
        *queues.recv.lock() = recv;
    }

    #[inline(always)]
    fn ring_send(&self, work: &mut Work<Sq>) {
        let (doorbells, number) = (self.parts.doorbells, self.parts.number);
        work.producer
            .ring(|tail| doorbells.ring(doorbell::SQ, number, tail));
    }

    /// Posts the sends that `posts` puts, and rings once, also if `posts` fails.
    ///
    /// # Errors
    ///
    /// Those of `posts`. [`Refusal::State`]: it was not called.
    #[inline(always)]
    pub fn post_send(
        &self,
        posts: impl FnOnce(&mut List<'_>) -> Result<(), Refusal>,
    ) -> Result<(), Refusal> {
        let mut queue = self.queues.send.lock();
        if !queue.ready {
            return Err(Refusal::State);
        }
        let result = posts(&mut List::new(&mut queue.work, &self.parts.sends));
        self.ring_send(&mut queue.work);
        result
    }

    /// Posts the receives that `posts` puts, and rings once, also if `posts` fails.
    ///
    /// # Errors
    ///
    /// Those of `posts`. [`Refusal::State`]: it was not called.
    #[inline(always)]
    pub fn post_recv(
        &self,
        posts: impl FnOnce(&mut Receives<'_, Rq>) -> Result<(), Refusal>,
    ) -> Result<(), Refusal> {
        let mut queue = self.queues.recv.lock();
        if !queue.ready {
            return Err(Refusal::State);
        }
        let parts = &self.parts;
        let Work { producer, slack } = &mut queue.work;
        let (max_sge, stride) = (parts.max_recv_sge, parts.rq_stride);
        let result = posts(&mut Receives::new(producer, *slack, max_sge, stride));
        producer.ring(|tail| parts.doorbells.ring(doorbell::RQ, parts.number, tail));
        result
    }

    /// `ibv_wr_start()`: locks the SQ.
    pub fn start(&self) {
        let mut queue = self.queues.send.lock();
        let ready = queue.ready;
        queue.builder.start(ready);
        lock::keep(queue);
    }

    /// Calls `f` with the builder of the SQ that [`start`](Self::start) has locked.
    ///
    /// # Safety
    ///
    /// This thread is between [`start`](Self::start) and [`complete`](Self::complete) or
    /// [`abort`](Self::abort).
    #[inline(always)]
    unsafe fn build(&self, f: impl FnOnce(&mut Builder, &mut Work<Sq>, &Limits)) {
        // SAFETY: By the caller's promise.
        let mut queue = unsafe { lock::held(&self.queues.send) };
        let SendQueue { work, builder, .. } = &mut *queue;
        f(builder, work, &self.parts.sends.limits);
        lock::keep(queue);
    }

    /// Begins a SEND, WRITE or READ. It has no data unless it gets some.
    ///
    /// # Safety
    ///
    /// This thread is between [`start`](Self::start) and [`complete`](Self::complete) or
    /// [`abort`](Self::abort).
    pub unsafe fn begin(&self, request: Request) {
        let begun = Begun::Send(self.parts.sends.flagged(request));
        // SAFETY: By the caller's promise.
        unsafe { self.build(|builder, work, limits| builder.begin(work, limits, Ok(begun))) }
    }

    /// Begins an atomic. One without data fails all sends.
    ///
    /// # Safety
    ///
    /// As of [`begin`](Self::begin).
    pub unsafe fn begin_atomic(&self, mut atomic: Atomic) {
        atomic.request = self.parts.sends.flagged(atomic.request);
        let begun = Begun::Atomic(atomic);
        // SAFETY: By the caller's promise.
        unsafe { self.build(|builder, work, limits| builder.begin(work, limits, Ok(begun))) }
    }

    /// Begins a send of UD. One without an address fails all sends.
    ///
    /// # Safety
    ///
    /// As of [`begin`](Self::begin).
    pub unsafe fn begin_datagram(&self, request: Request) {
        let begun = Datagram::new(self.parts.sends.flagged(request)).map(Begun::Datagram);
        // SAFETY: By the caller's promise.
        unsafe { self.build(|builder, work, limits| builder.begin(work, limits, begun)) }
    }

    /// Sets the address of the send of UD that was begun.
    ///
    /// # Safety
    ///
    /// As of [`begin`](Self::begin).
    pub unsafe fn address(&self, address: Address) {
        // SAFETY: By the caller's promise.
        unsafe { self.build(|builder, _, _| builder.address(address)) }
    }

    /// Sets the data of the send that was begun.
    ///
    /// # Safety
    ///
    /// As of [`begin`](Self::begin). The memory of inline data can be read.
    pub unsafe fn data(&self, payload: Payload<'_>) {
        // SAFETY: By the caller's promise.
        unsafe { self.build(|builder, work, limits| builder.data(work, limits, payload)) }
    }

    /// Posts a bind; a refused one fails all sends.
    ///
    /// # Safety
    ///
    /// As of [`begin`](Self::begin).
    pub unsafe fn bind(&self, bind: Result<Bind, Refusal>) {
        let sends = &self.parts.sends;
        let put = |bind: Bind| Bind {
            request: sends.flagged(bind.request),
            ..bind
        };
        let bind = bind.map(put);
        // SAFETY: By the caller's promise.
        unsafe { self.build(|builder, work, limits| builder.put(work, limits, |b| bind?.put(b))) }
    }

    /// Posts a FLUSH; of `request` the identifier and the flags count.
    ///
    /// # Safety
    ///
    /// As of [`begin`](Self::begin).
    pub unsafe fn flush(&self, request: Request, flush: Flush) {
        let request = self.parts.sends.flagged(request);
        // SAFETY: By the caller's promise.
        unsafe {
            self.build(|builder, work, limits| {
                builder.put(work, limits, |batch| flush.put(batch, &request));
            });
        }
    }

    /// Posts an atomic WRITE of `value`, as it is in memory.
    ///
    /// # Safety
    ///
    /// As of [`begin`](Self::begin).
    pub unsafe fn atomic_write(&self, request: Request, value: u64) {
        let request = self.parts.sends.flagged(request);
        // SAFETY: By the caller's promise.
        unsafe {
            self.build(|builder, work, limits| {
                builder.put(work, limits, |batch| {
                    put_atomic_write(batch, &request, value)
                });
            });
        }
    }

    /// `ibv_wr_complete()`: submits the sends and unlocks the SQ; if any was refused, nothing is
    /// posted.
    ///
    /// # Errors
    ///
    /// Why the first was refused.
    ///
    /// # Safety
    ///
    /// As of [`begin`](Self::begin).
    pub unsafe fn complete(&self) -> Result<(), Refusal> {
        // SAFETY: By the caller's promise.
        let mut queue = unsafe { lock::held(&self.queues.send) };
        let SendQueue { work, builder, .. } = &mut *queue;
        let completed = builder.complete(work, &self.parts.sends.limits);
        match completed {
            Ok(()) => self.ring_send(work),
            Err(_) => work.producer.withdraw(),
        }
        completed
    }

    /// `ibv_wr_abort()`: unlocks the SQ; nothing is posted.
    ///
    /// # Safety
    ///
    /// As of [`begin`](Self::begin).
    pub unsafe fn abort(&self) {
        // SAFETY: By the caller's promise.
        let mut queue = unsafe { lock::held(&self.queues.send) };
        queue.work.producer.withdraw();
    }
}

impl Drop for Qp {
    fn drop(&mut self) {
        for cq in self.cqs() {
            let unread = cq.leave(self.parts.number);
            self.dropped(unread);
        }
    }
}

/// The queues of a queue pair in RESET.
fn fresh(parts: &QpParts, send_cq: &Cq, recv_cq: &Cq) -> Option<(SendQueue, RecvQueue)> {
    let id = RingId::new(parts.number.raw(), 0);
    let depth = Depth::new(parts.sq_blocks)?;
    let sq = SqProducer::new_sq(id, send_cq.ring(), parts.sq, depth, depth.entries()).ok()?;
    let depth = Depth::new(parts.rq_depth)?;
    let (ring, stride) = (parts.rq, parts.rq_stride);
    let rq = RqProducer::new_rq(id, recv_cq.ring(), ring, depth, stride, depth.entries()).ok()?;
    if sq.capacity() < parts.sq_usable || rq.capacity() < parts.rq_usable {
        return None;
    }
    let send = SendQueue {
        work: Work::new(sq, parts.sq_usable),
        ready: false,
        builder: Builder::default(),
    };
    let recv = RecvQueue {
        work: Work::new(rq, parts.rq_usable),
        ready: false,
    };
    Some((send, recv))
}
