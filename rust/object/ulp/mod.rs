// SPDX-License-Identifier: GPL-2.0

//! What kernel ULPs post and poll themselves, in any context.
//!
//! A [`UlpCq`] and a [`UlpQp`] have a spinlock each, in this order. What is posted is kept in memory
//! of the kernel. Of a completion the device says which request it is, status and detail, the bytes,
//! the immediate data, the sender of a datagram, and whether a WRITE has taken the receive.
//! [`queue::pending`](crate::queue::pending) bounds what it may say.
//!
//! When the device is lost, [`cut`](UlpCq::cut) ends all access to it. Once it is quiet,
//! [`flush`](UlpCq::flush) completes what is posted, and what is posted from then on, as flushed: its
//! user may free the memory then. So a ULP that drains its queues comes to an end, and not too early.
//!
//! A ULP sizes its CQs. One that is too small is overrun, as that of a process. So a send completes
//! only if its ULP asked for that, or it failed. Slots are freed by these completions, which cover
//! the sends before them: a ULP that asks for none in a whole SQ can post no more, as with other
//! hardware.
//!
//! Their rings are in coherent memory of the driver, and answer to its doorbell page. They have no
//! quota. Their queues are clients of the device: when it is lost and quiet, what they hold is flushed
//! before the RDMA device is unregistered, since a ULP may wait for its requests then. Until it is
//! quiet nothing is flushed and no destroy returns, since then a ULP takes its memory back.

mod cq;
mod pending;
mod qp;

pub(super) use self::{
    cq::{
        Armed,
        UlpCq, //
    },
    qp::{
        UlpQp,
        UlpShape, //
    }, //
};

use super::file::Registered;
use crate::{
    hw::{
        qp::QpRings,
        ring::Ring, //
    },
    kernel::gate::Pass,
    life::{
        client::{
            Client,
            Lost, //
        },
        device::Device, //
    },
    policy::lifecycle::Failure, //
};
use kernel::{
    fmt,
    new_mutex,
    prelude::*,
    sync::{
        Arc,
        Mutex, //
    }, //
};

/// Destroys an object by `f`. On return the device accesses no memory through it, whose next use
/// may be any: without the device's word for that, waits until the device is quiet. Sleeps.
pub(super) fn end(registered: &Registered, f: impl FnOnce(&Pass<'_>) -> Result) {
    let Registered { device, epoch, .. } = registered;
    let ended = registered.enter().and_then(|pass| match f(&pass) {
        // There is no such object.
        Err(ENOENT) => Ok(()),
        Err(EBUSY) => {
            // Nothing else would make it quiet.
            device.fail(Failure::Destroy);
            Err(EBUSY)
        }
        ended => ended,
    });
    if ended.is_err() {
        device.wait_until_quiet(*epoch);
    }
}

/// A queue, as a client of the device.
#[pin_data]
pub(super) struct Queue<Q: Rings> {
    pub(super) queue: Arc<Q>,
    /// Held while rings are taken from it: a shutdown frees what is kept after it has unmapped. Also
    /// while they are made anew.
    #[pin]
    pub(super) taking: Mutex<()>,
}

/// A queue with rings.
pub(super) trait Rings: Send + Sync + 'static {
    type Memory: Send + 'static;
    /// See [`Client::cut`].
    fn cut(&self);
    /// See [`Client::flush`].
    fn flush(&self);
    /// Takes its memory. It is not used any more.
    fn take(&self) -> Option<Self::Memory>;
    /// See [`Client::describe`].
    fn describe(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result;
}

impl Rings for UlpCq {
    type Memory = Ring;
    fn cut(&self) {
        Self::cut(self);
    }
    fn flush(&self) {
        Self::flush(self);
    }
    fn take(&self) -> Option<Ring> {
        self.take_ring()
    }
    fn describe(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (taken, qps) = self.counts();
        writeln!(f, "cq {} completions {taken} qps {qps}", self.number())
    }
}

impl Rings for UlpQp {
    type Memory = QpRings;
    fn cut(&self) {
        Self::cut(self);
    }
    /// Its CQs flush what it has posted.
    fn flush(&self) {}
    fn take(&self) -> Option<QpRings> {
        self.take_rings()
    }
    fn describe(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (sends, recvs) = self.in_flight();
        writeln!(f, "qp {} sends {sends} recvs {recvs}", self.number())
    }
}

impl<Q: Rings> Queue<Q> {
    /// Of a queue that the device has created, inside the pass of that.
    pub(super) fn admit(device: &Device, queue: Arc<Q>) -> Result<Arc<Self>> {
        let this = Arc::pin_init(
            pin_init!(Self {
                queue,
                taking <- new_mutex!((), "Queue::taking"),
            }),
            GFP_KERNEL,
        )?;
        device.clients().admit(this.clone())?;
        Ok(this)
    }

    /// The device does not use it any more.
    pub(super) fn end(self: &Arc<Self>, device: &Device) {
        let taking = self.taking.lock();
        drop(self.queue.take());
        drop(taking);
        // Its lease of the device ends as well.
        self.queue.cut();
        device.clients().dismiss(&**self);
    }
}

impl<Q: Rings> Client for Queue<Q> {
    fn cut(&self) {
        self.queue.cut();
    }

    fn flush(&self) {
        self.queue.flush();
    }

    fn lost(&self, _why: Lost) {}

    fn unmap(&self) {
        let _taking = self.taking.lock();
        drop(self.queue.take());
    }

    fn describe(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.queue.describe(f)
    }
}
