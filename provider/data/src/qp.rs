// SPDX-License-Identifier: GPL-2.0
//! Queue pairs.

use std::sync::Arc;

use qpair_abi::doorbell;
use qpair_abi::entry::send_flags;
use qpair_abi::Number;
use qpair_queue::credit::{RingId, Rq, Sq};
use qpair_queue::index::{Depth, Index};
use qpair_queue::producer::{Batch, RqProducer, SqProducer};

use crate::atomic::Atomic;
use crate::cq::Cq;
use crate::datagram::Datagram;
use crate::lock::{self, Mutex};
use crate::queue::Work;
use crate::receive::Receives;
use crate::request::put_send;
use crate::request::{Limits, Payload, Piece, Refusal, Request, Row, Template, Templates};
use crate::ring::{Doorbells, Ring};
use crate::srq::Srq;

/// What a queue pair is made of.
#[derive(Clone, Copy, Debug)]
pub struct QpParts {
    /// The device's number.
    pub number: Number,
    /// The number as verbs have it.
    pub qpn: u32,
    /// The ring of its sends, of blocks.
    pub sq: Ring,
    /// Blocks of the ring, a power of two.
    pub sq_blocks: u32,
    /// Blocks that the program's sends may take.
    pub sq_usable: u32,
    /// The ring of its receives.
    pub rq: Ring,
    /// Receives of the ring, a power of two.
    pub rq_depth: u32,
    /// Receives that the program may post.
    pub rq_usable: u32,
    /// log2 of the blocks of a receive.
    pub rq_stride: u8,
    /// Limits of its requests.
    pub limits: Limits,
    /// Whether all sends are signalled.
    pub signal_all: bool,
    /// The common forms of sends.
    pub templates: Templates,
    /// Whether it is of UD.
    pub datagrams: bool,
    /// The process's doorbells.
    pub doorbells: Doorbells,
}

impl QpParts {
    /// The flags that all sends have.
    #[inline(always)]
    fn always(&self) -> u8 {
        match self.signal_all {
            true => send_flags::SIGNALED,
            false => 0,
        }
    }

    /// The parts of a queue pair on an SRQ: its own queue of receives has one slot, of the SQ's
    /// memory, which is never filled.
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

/// The send queue.
#[derive(Debug)]
pub(crate) struct Sending {
    pub(crate) work: Work<Sq>,
    /// Whether the state permits sends, of a queue pair that is not of UD.
    ready: bool,
    /// The same of one of UD. So the common case has one condition.
    pub(crate) ready_datagrams: bool,
    /// The request that was begun, and has no data yet.
    begun: Option<Request>,
    /// The send of UD that was begun.
    pub(crate) composed: Option<Datagram>,
    /// The atomic that was begun. It has failed the series until it gets its data, so that other
    /// sends need not look for it.
    pub(crate) atomic: Option<Atomic>,
    /// The first error between [`Qp::start`] and [`Qp::complete`].
    pub(crate) failed: Option<Refusal>,
}

/// The receive queue.
#[derive(Debug)]
pub(crate) struct Receiving {
    pub(crate) work: Work<Rq>,
    /// Whether the state permits receives.
    ready: bool,
}

/// A series of sends that are handed over together.
#[derive(Debug)]
pub struct Series<'a> {
    work: &'a mut Work<Sq>,
    parts: &'a QpParts,
}

impl Series<'_> {
    /// Sends of any forms.
    #[inline(always)]
    pub fn sends(&mut self) -> Sends<'_> {
        Sends {
            batch: self.work.batch(),
            limits: self.parts.limits,
            always: self.parts.always(),
        }
    }

    /// The form of a send of one piece, by operation and flags, if it is a common one.
    #[inline(always)]
    pub fn template(&self, [operation, flags]: [u32; 2]) -> Option<Template> {
        self.parts.templates.get(operation, flags)
    }

    /// Sends of a common form. They have a batch of their own, whose indices stay in registers.
    #[inline(always)]
    pub fn row(&mut self, template: Template) -> Row<'_> {
        Row::new(self.work.batch(), template)
    }

    /// Whether they are of UD.
    #[inline(always)]
    pub fn has_datagrams(&self) -> bool {
        self.parts.datagrams
    }
}

/// Sends of a series, of any forms.
#[derive(Debug)]
pub struct Sends<'a> {
    pub(crate) batch: Batch<'a, Ring, Sq>,
    pub(crate) limits: Limits,
    /// Flags that each has.
    pub(crate) always: u8,
}

impl Sends<'_> {
    /// Posts a send.
    ///
    /// # Safety
    ///
    /// The memory of inline data can be read.
    #[inline(always)]
    pub unsafe fn put(&mut self, request: Request, payload: Payload<'_>) -> Result<(), Refusal> {
        let flags = request.flags | self.always;
        let request = Request { flags, ..request };
        // SAFETY: By the caller's promise.
        unsafe { put_send(&mut self.batch, request, payload, &self.limits) }
    }
}

/// A queue pair.
#[derive(Debug)]
pub struct Qp {
    parts: QpParts,
    send_cq: Arc<Cq>,
    recv_cq: Arc<Cq>,
    /// Where its receives are, if not in its own queue.
    srq: Option<Arc<Srq>>,
    pub(crate) send: Mutex<Sending>,
    pub(crate) recv: Mutex<Receiving>,
}

impl Qp {
    /// A queue pair in RESET, of CQs of its process. `None` if the parts do not fit together.
    pub fn new(parts: QpParts, send_cq: Arc<Cq>, recv_cq: Arc<Cq>) -> Option<Arc<Self>> {
        Self::with(parts, send_cq, recv_cq, None)
    }

    /// As [`new`](Self::new), on an SRQ; of parts [for it](QpParts::on_srq).
    pub fn sharing(
        parts: QpParts,
        send_cq: Arc<Cq>,
        recv_cq: Arc<Cq>,
        srq: Arc<Srq>,
    ) -> Option<Arc<Self>> {
        Self::with(parts.on_srq(), send_cq, recv_cq, Some(srq))
    }

    fn with(
        parts: QpParts,
        send_cq: Arc<Cq>,
        recv_cq: Arc<Cq>,
        srq: Option<Arc<Srq>>,
    ) -> Option<Arc<Self>> {
        let (send, recv) = queues(&parts, &send_cq, &recv_cq)?;
        let qp = Arc::new(Self {
            parts,
            send: lock::shared(send),
            recv: lock::shared(recv),
            send_cq,
            recv_cq,
            srq,
        });
        for cq in qp.cqs() {
            cq.serve(parts.number, qp.clone(), None);
        }
        Some(qp)
    }

    /// Its CQs, each once.
    fn cqs(&self) -> impl Iterator<Item = &Cq> {
        let second = (!Arc::ptr_eq(&self.send_cq, &self.recv_cq)).then_some(&*self.recv_cq);
        std::iter::once(&*self.send_cq).chain(second)
    }

    /// It was destroyed: polls no longer find it.
    pub fn destroyed(&self) {
        for cq in self.cqs() {
            let unread = cq.leave(self.parts.number);
            self.dropped(unread);
        }
    }

    /// The SRQ that its receives are those of.
    #[inline(always)]
    pub(crate) fn srq(&self) -> Option<&Srq> {
        self.srq.as_deref()
    }

    /// Completions of `count` receives will not be read: their slots are those of the SRQ again.
    fn dropped(&self, count: u32) {
        if let Some(srq) = &self.srq {
            srq.dropped(count);
        }
    }

    /// Whether it is of UD.
    pub fn has_datagrams(&self) -> bool {
        self.parts.datagrams
    }

    /// The limits of its requests.
    pub(crate) fn limits(&self) -> Limits {
        self.parts.limits
    }

    /// The number as verbs have it.
    #[inline(always)]
    pub fn qpn(&self) -> u32 {
        self.parts.qpn
    }

    /// Whether its state permits sends and receives.
    pub fn permit(&self, sends: bool, receives: bool) {
        let mut sending = self.send.lock();
        sending.ready = sends && !self.parts.datagrams;
        sending.ready_datagrams = sends && self.parts.datagrams;
        drop(sending);
        self.recv.lock().ready = receives && self.srq.is_none();
    }

    /// The device has reset it: its queues are empty, and its entries in the CQs are those from
    /// these indices on.
    pub fn renew(self: &Arc<Self>, send_since: u32, recv_since: u32) {
        let Some((send, recv)) = queues(&self.parts, &self.send_cq, &self.recv_cq) else {
            // As when it was created, with the same parts.
            return;
        };
        let number = self.parts.number;
        // From here on, entries from before the reset are stale. A CQ of both queues has one index.
        let unread = self
            .recv_cq
            .serve(number, self.clone(), Some(Index::new(recv_since)));
        self.dropped(unread);
        self.send_cq
            .serve(number, self.clone(), Some(Index::new(send_since)));
        *self.send.lock() = send;
        *self.recv.lock() = recv;
    }

    #[inline(always)]
    fn ring_send(&self, sending: &mut Sending) {
        let (doorbells, number) = (self.parts.doorbells, self.parts.number);
        sending
            .work
            .producer
            .ring(|tail| doorbells.ring(doorbell::SQ, number, tail));
    }

    /// Posts what `posts` puts, and hands it over, also if `posts` fails.
    ///
    /// # Errors
    ///
    /// Those of `posts`. [`Refusal::State`]: it was not called.
    #[inline(always)]
    pub fn post_series(
        &self,
        posts: impl FnOnce(&mut Series<'_>) -> Result<(), Refusal>,
    ) -> Result<(), Refusal> {
        let mut sending = self.send.lock();
        if !(sending.ready | sending.ready_datagrams) {
            return Err(Refusal::State);
        }
        let result = posts(&mut Series {
            work: &mut sending.work,
            parts: &self.parts,
        });
        self.ring_send(&mut sending);
        result
    }

    /// [`post_series`](Self::post_series) of sends of any forms, of a queue pair that is not of UD.
    ///
    /// # Errors
    ///
    /// As there.
    pub fn post_sends(
        &self,
        posts: impl FnOnce(&mut Sends<'_>) -> Result<(), Refusal>,
    ) -> Result<(), Refusal> {
        self.post_series(|series| match series.has_datagrams() {
            false => posts(&mut series.sends()),
            true => Err(Refusal::State),
        })
    }

    /// [`post_sends`](Self::post_sends) of a queue pair of UD.
    ///
    /// # Errors
    ///
    /// As there.
    pub fn post_datagrams(
        &self,
        posts: impl FnOnce(&mut Sends<'_>) -> Result<(), Refusal>,
    ) -> Result<(), Refusal> {
        self.post_series(|series| match series.has_datagrams() {
            true => posts(&mut series.sends()),
            false => Err(Refusal::State),
        })
    }

    /// Posts the receives that `posts` puts, and hands them over, also if `posts` fails.
    ///
    /// # Errors
    ///
    /// Those of `posts`. [`Refusal::State`]: it was not called.
    #[inline(always)]
    pub fn post_receives(
        &self,
        posts: impl FnOnce(&mut Receives<'_, Rq>) -> Result<(), Refusal>,
    ) -> Result<(), Refusal> {
        let mut receiving = self.recv.lock();
        if !receiving.ready {
            return Err(Refusal::State);
        }
        let parts = &self.parts;
        let Work { producer, slack } = &mut receiving.work;
        let (pieces, stride) = (parts.limits.recv_pieces, parts.rq_stride);
        let result = posts(&mut Receives::new(producer, *slack, pieces, stride));
        producer.ring(|tail| parts.doorbells.ring(doorbell::RQ, parts.number, tail));
        result
    }

    /// Posts the receives that `next` returns until it returns none, and hands them over; those
    /// before the first error too.
    ///
    /// # Errors
    ///
    /// [`Refusal::State`], or the first error.
    pub fn post_recvs<'r>(
        &self,
        next: impl FnMut() -> Option<Result<(u64, &'r [Piece]), Refusal>>,
    ) -> Result<(), Refusal> {
        self.post_receives(|receives| receives.put_all(next))
    }

    /// The flags that all sends have.
    #[inline(always)]
    pub(crate) fn always(&self) -> u8 {
        self.parts.always()
    }

    /// Locks the send queue for a series of sends.
    pub fn start(&self) {
        let mut sending = self.send.lock();
        sending.begun = None;
        sending.failed = (!sending.ready).then_some(Refusal::State);
        lock::keep(sending);
    }

    /// Begins a send. One that was begun before, and got no data, has none.
    ///
    /// # Safety
    ///
    /// This thread is between [`start`](Self::start) and [`complete`](Self::complete) or
    /// [`abort`](Self::abort).
    pub unsafe fn begin(&self, mut request: Request) {
        // SAFETY: By the caller's promise.
        let mut sending = unsafe { lock::held(&self.send) };
        sending.post_begun(&self.parts.limits);
        request.flags |= self.always();
        sending.begun = Some(request);
        lock::keep(sending);
    }

    /// Sets the data of the send that was begun.
    ///
    /// # Safety
    ///
    /// As of [`begin`](Self::begin). The memory of inline data can be read.
    pub unsafe fn data(&self, payload: Payload<'_>) {
        // SAFETY: By the caller's promise.
        let mut sending = unsafe { lock::held(&self.send) };
        // SAFETY: By the caller's promise.
        unsafe { sending.post(payload, &self.parts.limits) };
        lock::keep(sending);
    }

    /// Hands the series over and unlocks the queue; if any of it is refused, nothing is posted.
    ///
    /// # Safety
    ///
    /// As of [`begin`](Self::begin).
    pub unsafe fn complete(&self) -> Result<(), Refusal> {
        // SAFETY: By the caller's promise.
        let mut sending = unsafe { lock::held(&self.send) };
        sending.post_begun(&self.parts.limits);
        if let Some(refusal) = sending.failed {
            sending.withdraw();
            return Err(refusal);
        }
        self.ring_send(&mut sending);
        Ok(())
    }

    /// Unlocks the queue; nothing is posted.
    ///
    /// # Safety
    ///
    /// As of [`begin`](Self::begin).
    pub unsafe fn abort(&self) {
        // SAFETY: By the caller's promise.
        unsafe { lock::held(&self.send) }.withdraw();
    }
}

impl Sending {
    /// Drops a series.
    fn withdraw(&mut self) {
        self.atomic = None;
        self.work.producer.withdraw();
    }

    pub(crate) fn post_begun(&mut self, limits: &Limits) {
        if self.begun.is_some() {
            // SAFETY: No inline data.
            unsafe { self.post(Payload::Gather(&[]), limits) };
        }
    }

    /// # Safety
    ///
    /// The memory of inline data can be read.
    unsafe fn post(&mut self, payload: Payload<'_>, limits: &Limits) {
        let begun = self.begun.take();
        if self.failed.is_some() {
            self.post_atomic(begun.is_none(), payload, limits);
            return;
        }
        let Some(request) = begun else {
            self.failed = Some(Refusal::Invalid);
            return;
        };
        let mut batch = self.work.batch();
        // SAFETY: By the caller's promise.
        self.failed = unsafe { put_send(&mut batch, request, payload, limits) }.err();
    }
}

/// Fresh work queues.
fn queues(parts: &QpParts, send_cq: &Cq, recv_cq: &Cq) -> Option<(Sending, Receiving)> {
    let id = RingId::new(parts.number.raw(), 0);
    let depth = Depth::new(parts.sq_blocks)?;
    let sq = SqProducer::new_sq(id, send_cq.ring(), parts.sq, depth, depth.entries()).ok()?;
    let depth = Depth::new(parts.rq_depth)?;
    let (ring, stride) = (parts.rq, parts.rq_stride);
    let rq = RqProducer::new_rq(id, recv_cq.ring(), ring, depth, stride, depth.entries()).ok()?;
    if sq.capacity() < parts.sq_usable || rq.capacity() < parts.rq_usable {
        return None;
    }
    let sending = Sending {
        work: Work::new(sq, parts.sq_usable),
        ready: false,
        ready_datagrams: false,
        begun: None,
        composed: None,
        atomic: None,
        failed: None,
    };
    let receiving = Receiving {
        work: Work::new(rq, parts.rq_usable),
        ready: false,
    };
    Some((sending, receiving))
}
