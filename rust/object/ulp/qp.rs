// SPDX-License-Identifier: GPL-2.0

//! The rings of a queue pair, and what is posted in them.

use super::{
    cq::UlpCq,
    pending::{
        none,
        Pending,
        Posted,
        Request, //
    },
    wqe::{
        head,
        refused,
        sge, //
    }, //
};
use crate::{
    abi::{
        doorbell,
        entry::{
            cqe_flags,
            opcode,
            send_flags,
            Cqe,
            RecvWqe,
            Sge,
            BLOCK_WORDS, //
        },
        Number, //
    },
    hw::{
        function::Function,
        qp::block,
        ring::Ring,
        table::Room, //
    },
    kernel::{
        gate::Lease,
        rdma::{
            Events,
            QpEvent,
            RecvRequest,
            SendRequest, //
        },
        trace, //
    },
    queue::{
        consumer::{
            Published,
            Seen, //
        },
        credit::{
            Cq,
            RingId, //
        },
        index::{
            Depth,
            Index, //
        },
        pending::Memory,
        producer::{
            RqProducer,
            SqProducer, //
        },
        storage::Storage, //
    }, //
};
use kernel::{
    new_spinlock_irq,
    prelude::*,
    sync::{
        Arc,
        SpinLockIrq, //
    }, //
};

/// What a queue pair is.
pub(crate) struct UlpShape {
    /// Blocks of the SQ.
    pub(crate) sq: Depth,
    /// Receives of the RQ.
    pub(crate) rq: Depth,
    /// The RQ's stride is `64 << stride` bytes.
    pub(crate) stride: u8,
    /// Sends that may be outstanding.
    pub(crate) max_send_wr: u32,
    /// SGEs of a send.
    pub(crate) max_send_sge: u32,
    /// SGEs of a receive.
    pub(crate) max_recv_sge: u32,
    /// Whether it is one of UD.
    pub(crate) datagrams: bool,
    /// Whether all sends complete.
    pub(crate) signal_all: bool,
}

/// The memory of a queue pair, and how the device is told of posts.
struct LiveQp {
    sq: SqProducer<Ring>,
    rq: RqProducer<Ring>,
}

struct QpInner {
    live: Option<LiveQp>,
    /// `None` once the device is lost.
    lease: Option<Lease>,
    sends: Pending,
    recvs: Pending,
    /// It is in a state in which sends may be posted.
    is_ready: bool,
    /// It is in a state in which receives may be posted.
    takes_recvs: bool,
}

/// A queue pair that a kernel ULP posts to.
#[pin_data]
pub(crate) struct UlpQp {
    function: Arc<Function>,
    number: Number,
    shape: UlpShape,
    /// By which the core's queue pair is named in completions.
    events: Events<QpEvent>,
    send_cq: Arc<UlpCq>,
    recv_cq: Arc<UlpCq>,
    #[pin]
    inner: SpinLockIrq<QpInner>,
}

/// The parts of a queue pair that the device has created.
pub(crate) struct UlpQpParts {
    pub(crate) function: Arc<Function>,
    pub(crate) number: Number,
    pub(crate) epoch: u32,
    pub(crate) shape: UlpShape,
    pub(crate) events: Events<QpEvent>,
    pub(crate) cqs: (Arc<UlpCq>, Arc<UlpCq>),
    pub(crate) rings: (Ring, Ring),
    pub(crate) lease: Lease,
}

impl UlpQp {
    /// The driver's side of it. Sleeps.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn new(parts: UlpQpParts) -> Result<Arc<Self>> {
        let UlpQpParts {
            function,
            number,
            epoch,
            shape,
            events,
            cqs: (send_cq, recv_cq),
            rings: (sq, rq),
            lease,
        } = parts;
        let id = RingId::new(number.raw(), epoch);
        let (send_id, recv_id) = (send_cq.ring, recv_cq.ring);
        let blocks = shape.sq.entries();
        let live = LiveQp {
            sq: SqProducer::new_sq(id, send_id, sq, shape.sq, blocks).map_err(|_| EINVAL)?,
            rq: RqProducer::new_rq(id, recv_id, rq, shape.rq, shape.stride, shape.rq.entries())
                .map_err(|_| EINVAL)?,
        };
        let inner = QpInner {
            live: Some(live),
            lease: Some(lease),
            sends: none(shape.max_send_wr)?,
            recvs: none(shape.rq.entries())?,
            is_ready: false,
            takes_recvs: false,
        };
        Arc::pin_init(
            pin_init!(Self {
                function,
                number,
                shape,
                events,
                send_cq,
                recv_cq,
                inner <- new_spinlock_irq!(inner, "UlpQp::inner"),
            }),
            GFP_KERNEL,
        )
    }

    /// The device's number.
    pub(crate) fn number(&self) -> Number {
        self.number
    }

    /// The CQs of its sends and of its receives.
    pub(crate) fn cqs(&self) -> [&Arc<UlpCq>; 2] {
        [&self.send_cq, &self.recv_cq]
    }

    /// Sends and receives that are posted and not completed.
    pub(crate) fn in_flight(&self) -> (usize, usize) {
        let inner = self.inner.lock();
        (inner.sends.count(), inner.recvs.count())
    }

    /// Adds it to its CQs.
    ///
    /// # Errors
    ///
    /// Those of [`UlpCq::add`].
    pub(crate) fn join(
        self: &Arc<Self>,
        (first, second): (Room<Arc<Self>>, Room<Arc<Self>>),
    ) -> Result {
        let [send, recv] = self.cqs();
        send.add(self.clone(), first)?;
        if !Arc::ptr_eq(send, recv) {
            recv.add(self.clone(), second)?;
        }
        Ok(())
    }

    /// What may be posted in its state from now on.
    pub(crate) fn permit(&self, takes_recvs: bool, is_ready: bool) {
        let mut inner = self.inner.lock();
        inner.takes_recvs = takes_recvs;
        inner.is_ready = is_ready;
    }

    /// It was reset: drops all that is posted. Its completions that are in the CQs before these
    /// indices are old. Nothing may be posted, and its rings may not be taken meanwhile. Sleeps.
    ///
    /// # Errors
    ///
    /// `EINVAL`: its rings cannot be made anew.
    pub(crate) fn renew(&self, epoch: u32, old: Option<(Index, Index)>) -> Result {
        let old_sends = old.and_then(|(past, _)| self.send_cq.taken_at(past));
        let old_recvs = old.and_then(|(_, past)| self.recv_cq.taken_at(past));
        let live = {
            let mut inner = self.inner.lock();
            inner.sends.reset(old_sends);
            inner.recvs.reset(old_recvs);
            inner.live.take()
        };
        let Some(live) = live else {
            return Ok(());
        };
        // With the lock released, which keeps interrupts off: the rings may be large.
        let (sq, rq) = (live.sq.storage().clone(), live.rq.storage().clone());
        for ring in [&sq, &rq] {
            let ring = ring.view();
            (0..ring.words()).for_each(|at| ring.store(at, 0));
        }
        // Slots that are out are those of the requests that were dropped.
        let _: Result<_, _> = live.sq.retire();
        let _: Result<_, _> = live.rq.retire();
        let id = RingId::new(self.number.raw(), epoch);
        let shape = &self.shape;
        let (send_id, recv_id) = (self.send_cq.ring, self.recv_cq.ring);
        let sq = SqProducer::new_sq(id, send_id, sq, shape.sq, shape.sq.entries());
        let entries = shape.rq.entries();
        let rq = RqProducer::new_rq(id, recv_id, rq, shape.rq, shape.stride, entries);
        let (Ok(sq), Ok(rq)) = (sq, rq) else {
            return Err(EINVAL);
        };
        self.inner.lock().live = Some(LiveQp { sq, rq });
        Ok(())
    }

    /// The device is lost, and is not accessed any more. Sleeps.
    pub(crate) fn cut(&self) {
        let lease = self.inner.lock().lease.take();
        drop(lease);
    }

    /// Takes its rings, which the device does not use any more. Sleeps.
    pub(crate) fn take_rings(&self) -> Option<(Ring, Ring)> {
        let live = self.inner.lock().live.take()?;
        Some((live.sq.storage().clone(), live.rq.storage().clone()))
    }

    /// The events that name the core's queue pair in completions.
    pub(super) fn events(&self) -> &Events<QpEvent> {
        &self.events
    }

    /// The head of a CQ was published: frees the slots that completions cover.
    pub(super) fn reclaim(&self, published: Published<Cq>) {
        if let Some(live) = &mut self.inner.lock().live {
            live.sq.reclaim(published);
            live.rq.reclaim(published);
        }
    }

    /// A completion that names it was read, the `taken`th entry of a CQ of its: the request.
    pub(super) fn complete(&self, cqe: &Cqe, seen: Seen<Cq>, taken: u64) -> Option<Request> {
        let index = Index::new(cqe.index);
        let mut inner = self.inner.lock();
        let QpInner {
            live, sends, recvs, ..
        } = &mut *inner;
        let live = live.as_mut()?;
        if cqe.flags & cqe_flags::RECV != 0 {
            recvs.complete(&mut live.rq, index, seen, taken)
        } else {
            sends.complete(&mut live.sq, index, seen, taken)
        }
    }

    /// Whether there is a request that completes in `cq`.
    pub(super) fn has_pending(&self, cq: &UlpCq) -> bool {
        let inner = self.inner.lock();
        let of = |own: &Arc<UlpCq>| core::ptr::eq(&**own, cq);
        (of(&self.recv_cq) && inner.recvs.count() != 0)
            || (of(&self.send_cq) && inner.sends.count() != 0)
    }

    /// The next request that is flushed in software, of the queues that complete in `cq`.
    pub(super) fn pop(&self, cq: &UlpCq) -> Option<Request> {
        let mut inner = self.inner.lock();
        if core::ptr::eq(&*self.recv_cq, cq) {
            if let Some(request) = inner.recvs.pop() {
                return Some(request);
            }
        }
        if core::ptr::eq(&*self.send_cq, cq) {
            return inner.sends.pop();
        }
        None
    }

    /// Writes a send into its ring.
    fn put_send(&self, inner: &mut QpInner, request: &SendRequest<'_>) -> Result {
        if !inner.is_ready || request.pieces.count() > self.shape.max_send_sge as usize {
            return Err(EINVAL);
        }
        if request.to.is_some() != self.shape.datagrams {
            return Err(EINVAL);
        }
        if inner.sends.is_full() {
            return Err(ENOMEM);
        }
        let what = Posted::Send(request.operation);
        let id = request.id;
        let (Some(live), Some(_)) = (inner.live.as_mut(), inner.lease.as_ref()) else {
            let signal = true;
            inner.sends.push(Index::ZERO, Request { id, what, signal });
            return Ok(());
        };
        let signal = request.signaled || self.shape.signal_all;
        let (mut words, mut used) = head(request)?;
        for piece in request.pieces.iter() {
            let place = words.get_mut(used..used + Sge::WORDS).ok_or(EINVAL)?;
            place.copy_from_slice(&sge(&piece).encode());
            used += Sge::WORDS;
        }
        let blocks = used.div_ceil(BLOCK_WORDS);
        // CAST: At most `MAX_BLOCKS`.
        let room = live.sq.room_as_asked(blocks as u32, signal);
        let mut room = room.map_err(refused)?;
        let flags = if room.signalled() {
            u64::from(send_flags::SIGNALED)
        } else {
            0
        };
        let [first, ..] = &mut words;
        // CAST: The opcode is the low byte.
        let opcode = u32::from(*first as u8);
        trace::post(self.number.raw(), room.index().get(), opcode, id);
        *first |= flags << 8 | (blocks as u64) << 16 | (request.pieces.count() as u64) << 24;
        let mut rest = words.into_iter();
        for which in 0..blocks {
            // CAST: As above.
            room.write(which as u32, &block(&mut rest));
        }
        let past = room.post();
        inner.sends.push(past, Request { id, what, signal });
        Ok(())
    }

    /// Writes a receive into its ring.
    fn put_recv(&self, inner: &mut QpInner, asked: &RecvRequest<'_>) -> Result {
        if !inner.takes_recvs || asked.pieces.count() > self.shape.max_recv_sge as usize {
            return Err(EINVAL);
        }
        if inner.recvs.is_full() {
            return Err(ENOMEM);
        }
        let bytes = asked.pieces.iter().map(|piece| u64::from(piece.bytes));
        let bytes = bytes.fold(0, u64::saturating_add);
        let memory = match self.shape.datagrams {
            true => Memory::Datagram(bytes),
            false => Memory::Message(bytes),
        };
        let request = Request {
            id: asked.id,
            what: Posted::Receive(memory),
            signal: true,
        };
        let (Some(live), Some(_)) = (inner.live.as_mut(), inner.lease.as_ref()) else {
            inner.recvs.push(Index::ZERO, request);
            return Ok(());
        };
        let mut room = live.rq.room(1, true).map_err(refused)?;
        let opcode = u32::from(opcode::RECV);
        trace::post(self.number.raw(), room.index().get(), opcode, request.id);
        let head = RecvWqe {
            // CAST: At most as many as the device allows, a byte.
            sges: asked.pieces.count() as u8,
            ..RecvWqe::default()
        };
        let sges = asked.pieces.iter().flat_map(|piece| sge(&piece).encode());
        let mut words = Iterator::chain(head.encode().into_iter(), sges);
        for which in 0..1 << self.shape.stride {
            room.write(which, &block(&mut words));
        }
        let past = room.post();
        inner.recvs.push(past, request);
        Ok(())
    }

    /// Posts all of a list by `put`, then rings; the CQ of the queue hears of it if the device is
    /// lost.
    fn post<R>(
        &self,
        requests: impl Iterator<Item = Result<R>>,
        cq: &UlpCq,
        mut put: impl FnMut(&mut QpInner, &R) -> Result,
        ring: impl FnOnce(&mut LiveQp, &mut dyn FnMut(u64, Index)),
    ) -> Result {
        let mut inner = self.inner.lock();
        let mut posted = Ok(());
        for request in requests {
            posted = request.and_then(|request| put(&mut inner, &request));
            if posted.is_err() {
                break;
            }
        }
        let QpInner { live, lease, .. } = &mut *inner;
        match (live, lease) {
            (Some(live), Some(lease)) => {
                let doorbells = self.function.doorbells(lease.dev());
                ring(live, &mut |place, tail| {
                    doorbells.ring(place, self.number, tail.get());
                });
            }
            _ => {
                drop(inner);
                cq.raise();
            }
        }
        posted
    }

    /// Posts sends, until one is refused or an error. Any context.
    ///
    /// # Errors
    ///
    /// Of the first that is not posted: `EINVAL`, `ENOMEM` if the queue is full.
    pub(crate) fn post_send<'a>(
        &self,
        requests: impl Iterator<Item = Result<SendRequest<'a>>>,
    ) -> Result {
        self.post(
            requests,
            &self.send_cq,
            |inner, request| self.put_send(inner, request),
            |live, bell| {
                live.sq.ring(|tail| bell(doorbell::SQ, tail));
            },
        )
    }

    /// Posts receives, as [`Self::post_send`].
    ///
    /// # Errors
    ///
    /// As of [`Self::post_send`].
    pub(crate) fn post_recv<'a>(
        &self,
        requests: impl Iterator<Item = Result<RecvRequest<'a>>>,
    ) -> Result {
        self.post(
            requests,
            &self.recv_cq,
            |inner, request| self.put_recv(inner, request),
            |live, bell| {
                live.rq.ring(|tail| bell(doorbell::RQ, tail));
            },
        )
    }
}
