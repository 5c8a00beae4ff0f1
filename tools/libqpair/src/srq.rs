// SPDX-License-Identifier: GPL-2.0
//! Shared receive queues: receives for any number of queue pairs.
//!
//! A queue pair on an SRQ ([`QpOptions::srq`](crate::QpOptions::srq)) has no receive queue. A
//! message to it takes the next receive of the SRQ, and completes in the queue pair's CQ.
//!
//! Any of the queue pairs may get all receives. So each CQ of theirs needs room for all of them:
//! the first queue pair reserves it, and the last gives it back. A receive that has completed makes
//! room in the SRQ once its completion was polled; if there is no room, a post publishes the heads
//! of these CQs, with a doorbell each.
//!
//! # Locks
//!
//! `turn` is taken before `cqs`, that before the lock of a CQ, and that before the queue's.

use std::slice;
use std::sync::{Arc, Mutex};

use qpair_abi::doorbell;
use qpair_abi::entry::{recv_stride, BLOCK_BYTES};
use qpair_abi::Number;
use qpair_queue::credit::{Cq as OfCq, RingId, Slots};
use qpair_queue::index::{Depth, Index};
use qpair_queue::shared::Shared;
use rustix::io::Errno;

use crate::cq::CqInner;
use crate::error::{Error, PostError};
use crate::kernel::{NewSrq, Object};
use crate::lock::lock;
use crate::memory::{Pages, Ring, SharedRing};
use crate::mr::{Pd, PdInner};
use crate::post::{put_recv, NoPost};
use crate::shared::{Place, SharedQueue};
use crate::wr::Receive;

/// What a shared receive queue shall be.
#[derive(Clone, Debug)]
pub struct SrqOptions {
    max_wr: u32,
    max_sge: usize,
    pages: Pages,
}

impl SrqOptions {
    /// At least this many receives, of one SGE.
    pub fn new(max_wr: u32) -> Self {
        Self {
            max_wr,
            max_sge: 1,
            pages: Pages::Normal,
        }
    }

    /// SGEs that a receive may have.
    pub fn max_sge(mut self, sges: usize) -> Self {
        self.max_sge = sges;
        self
    }

    /// The pages of its ring.
    pub fn pages(mut self, pages: Pages) -> Self {
        self.pages = pages;
        self
    }
}

/// log2 of the blocks of a receive that has so many SGEs.
pub(crate) fn stride(sges: usize) -> Result<u8, Error> {
    recv_stride(sges).ok_or(Error::Range {
        what: "the number of pieces of a receive",
        value: sges as u64,
        allowed: "at most 15, and not above the device's max_recv_sge (see `qpair info`)",
    })
}

/// A CQ in which its receives complete.
#[derive(Debug)]
struct On {
    cq: Arc<CqInner>,
    place: Place,
    /// The CQ's slots, for all receives.
    slots: Slots<OfCq>,
    /// Queue pairs on the SRQ that complete there.
    users: u32,
}

#[derive(Debug)]
pub(crate) struct SrqInner {
    pub(crate) pd: Arc<PdInner>,
    pub(crate) object: Object,
    depth: Depth,
    stride: u8,
    queue: Arc<SharedQueue>,
    /// The receive queue that each of its queue pairs has in place of one: it is never filled.
    pub(crate) spare: SharedRing,
    cqs: Mutex<Vec<On>>,
    /// Held while a queue pair is reset, so that the last one that leaves a CQ has the highest index
    /// there.
    pub(crate) turn: Mutex<()>,
}

impl SrqInner {
    fn ring_id(&self) -> RingId {
        RingId::new(self.object.number.raw(), self.pd.context.attributes.epoch)
    }

    /// A queue pair begins to complete in a CQ; returns the place there.
    ///
    /// # Errors
    ///
    /// The CQ has no room for all receives.
    pub(crate) fn enter(&self, cq: &Arc<CqInner>) -> Result<Place, Error> {
        let mut cqs = lock(&self.cqs);
        if let Some(on) = cqs.iter_mut().find(|on| Arc::ptr_eq(&on.cq, cq)) {
            on.users += 1;
            return Ok(on.place);
        }
        let slots = cq.reserve(self.depth.entries())?;
        let Some(place) = cq.add_source(&self.queue, self.ring_id()) else {
            cq.unreserve(slots);
            return Err(Error::Range {
                what: "the number of shared receive queues on a completion queue",
                value: 1 << 16,
                allowed: "below 65536",
            });
        };
        cqs.push(On {
            cq: cq.clone(),
            place,
            slots,
            users: 1,
        });
        Ok(place)
    }

    /// The queue pair `number` was reset or destroyed, or was not made at all; the CQ has no entry
    /// of it at or past `until`.
    pub(crate) fn leave(&self, cq: &Arc<CqInner>, number: Option<Number>, until: Index) {
        let mut cqs = lock(&self.cqs);
        let Some(at) = cqs.iter().position(|on| Arc::ptr_eq(&on.cq, cq)) else {
            return;
        };
        if let Some(number) = number {
            cq.unshare(number);
        }
        cqs[at].users -= 1;
        if cqs[at].users != 0 {
            return;
        }
        let On { place, slots, .. } = cqs.swap_remove(at);
        cq.end_source(place);
        match number {
            Some(_) => cq.give_back(slots, until),
            None => cq.unreserve(slots),
        }
    }

    /// Publishes the heads of its CQs, which frees the slots of the completions that were read.
    #[cold]
    fn refill(&self) {
        for on in &*lock(&self.cqs) {
            on.cq.flush(|_| ());
        }
    }

    /// Posts receives; the error says how many were.
    fn post(&self, receives: &[Receive<'_>]) -> Result<(), PostError> {
        let mut posted = 0;
        let mut refilled = false;
        loop {
            let mut queue = lock(&self.queue);
            let mut batch = queue.batch(|ring| ring.view());
            let refused = loop {
                let Some(receive) = receives.get(posted) else {
                    return Ok(());
                };
                match put_recv(&mut batch, receive, self.stride) {
                    Ok(()) => posted += 1,
                    Err(refused) => break refused,
                }
            };
            drop(batch);
            let completed = queue.in_flight() < self.depth.entries();
            drop(queue);
            if !matches!(refused, NoPost::Full) || !completed || refilled {
                return Err(refused.after(posted));
            }
            refilled = true;
            self.refill();
        }
    }

    fn ring(&self) {
        lock(&self.queue).ring(|tail| {
            let value = doorbell::value(self.object.number, tail.get());
            self.pd.context.doorbell(doorbell::SRQ, value);
        });
    }
}

impl Drop for SrqInner {
    fn drop(&mut self) {
        // Fails only if the context is dead, and then the object is gone.
        let _: Result<(), Errno> = self.pd.context.kernel.destroy_srq(self.object);
    }
}

/// A shared receive queue. Clones are the same queue.
#[derive(Clone, Debug)]
pub struct Srq {
    pub(crate) inner: Arc<SrqInner>,
}

impl Srq {
    /// Makes one in a domain: its receives name regions of this domain, whatever that of the queue
    /// pair is.
    ///
    /// # Errors
    ///
    /// [`Error::Range`]: a depth or a number of SGEs that no device has. [`Error::Kernel`]: with
    /// `EINVAL` one above the device's limits, with `ENOMEM` more memory than may be locked.
    pub fn new(pd: &Pd, options: &SrqOptions) -> Result<Self, Error> {
        let pd = pd.inner.clone();
        let depth = Depth::at_least(options.max_wr).filter(|_| options.max_wr > 0);
        let depth = depth.ok_or(Error::Range {
            what: "the depth of a shared receive queue",
            value: options.max_wr.into(),
            allowed: "from 1 to the device's max_rq_depth (see `qpair info`)",
        })?;
        let stride = stride(options.max_sge)?;
        let ring = Ring::new(depth.entries(), BLOCK_BYTES << stride, options.pages)?;
        let spare = SharedRing::new(Ring::new(1, BLOCK_BYTES, Pages::Normal)?);
        let create = NewSrq {
            pd: pd.handle,
            buffer: ring.address(),
            buffer_bytes: ring.bytes(),
            depth: depth.entries(),
            stride,
        };
        let created = pd.context.kernel.create_srq(&create);
        let object = created.map_err(Error::kernel("make a shared receive queue"))?;
        let id = RingId::new(object.number.raw(), pd.context.attributes.epoch);
        let ring = SharedRing::new(ring);
        let Ok(queue) = Shared::new(id, ring, depth, stride, depth.entries()) else {
            // The ring has this depth. Closing the context destroys the SRQ.
            return Err(Error::kernel("use the shared receive queue that was made")(
                Errno::INVAL,
            ));
        };
        Ok(Self {
            inner: Arc::new(SrqInner {
                pd,
                object,
                depth,
                stride,
                queue: Arc::new(Mutex::new(queue)),
                spare,
                cqs: Mutex::new(Vec::new()),
                turn: Mutex::new(()),
            }),
        })
    }

    /// The device's number, as events have it.
    pub fn number(&self) -> Number {
        self.inner.object.number
    }

    /// Receives that it may have.
    pub fn depth(&self) -> u32 {
        self.inner.depth.entries()
    }

    /// Posts receives, in order, and rings once. Does no system call and no allocation.
    pub fn post_recv(&self, receives: &[Receive<'_>]) -> Result<(), PostError> {
        let posted = self.inner.post(receives);
        self.inner.ring();
        posted
    }

    /// Posts a receive without ringing: [`ring`](Self::ring) submits all that were.
    pub fn queue_recv(&self, receive: &Receive<'_>) -> Result<(), PostError> {
        self.inner.post(slice::from_ref(receive))
    }

    /// Submits queued receives with one doorbell; none if nothing was queued.
    pub fn ring(&self) {
        self.inner.ring();
    }

    /// Receives that can be posted before the queue is full; more once completions are polled.
    pub fn recv_room(&self) -> u32 {
        self.depth() - lock(&self.inner.queue).in_flight()
    }

    /// Requests the event [`AsyncEvent::SrqLimit`](crate::AsyncEvent::SrqLimit) once fewer than
    /// `limit` receives are left that no message has taken; at once if fewer are. The limit is 0
    /// then; with 0 no event comes.
    ///
    /// # Errors
    ///
    /// [`Error::Range`]: more than its depth.
    pub fn set_limit(&self, limit: u32) -> Result<(), Error> {
        if limit > self.depth() {
            return Err(Error::Range {
                what: "the limit of a shared receive queue",
                value: limit.into(),
                allowed: "at most its depth",
            });
        }
        let set = self
            .inner
            .pd
            .context
            .kernel
            .arm_srq(self.inner.object, limit);
        set.map_err(Error::kernel("set the limit of a shared receive queue"))
    }

    /// The limit as it is now; 0 if it has had its event.
    pub fn limit(&self) -> Result<u32, Error> {
        let found = self.inner.pd.context.kernel.query_srq(self.inner.object);
        found.map_err(Error::kernel("query a shared receive queue"))
    }
}
