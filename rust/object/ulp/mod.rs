// SPDX-License-Identifier: GPL-2.0

//! What kernel ULPs post and poll themselves, in any context.
//!
//! A [`UlpCq`], a [`UlpQp`], and a [`UlpSrq`] or a [`Frmr`] have a spinlock each, in this order. What
//! is posted is kept in memory of the kernel. Of a completion the device says which request it is,
//! status and detail, the bytes, the immediate data or the key that a peer has invalidated, the sender
//! of a datagram, and whether a WRITE has taken the receive.
//! [`queue::pending`](crate::queue::pending) bounds what it may say, and of an SRQ
//! [`queue::receives`](crate::queue::receives).
//!
//! When the device is lost, [`cut`](Client::cut) ends all access to it. Once it is quiet,
//! [`flush`](Client::flush) completes what is posted, and what is posted from then on, as flushed: its
//! user may free the memory then. So a ULP that drains its queues comes to an end, and not too early.
//! The receives of an SRQ are not flushed: they complete at queue pairs, none of which takes one any
//! more. Each queue pair of an SRQ reports that, as when it goes to ERROR.
//!
//! A ULP sizes its CQs. One that is too small is overrun, as that of a process. So a send completes
//! only if its ULP asked for that, or it failed. Slots are freed by these completions, which cover
//! the sends before them: a ULP that asks for none in a whole SQ can post no more, as with other
//! hardware.
//!
//! Their rings are in coherent memory of the driver, and answer to its doorbell page. They have no
//! quota. Their queues and FRMRs are clients of the device: when it is lost and quiet, what they hold
//! is flushed before the RDMA device is unregistered, since a ULP may wait for its requests then. Until
//! it is quiet nothing is flushed and no destroy returns, since then a ULP takes its memory back.

mod cq;
mod held;
mod mr;
mod pending;
mod qp;
mod srq;

pub(super) use self::{
    cq::UlpCq,
    mr::Frmr,
    qp::{
        UlpQp,
        UlpShape, //
    },
    srq::UlpSrq, //
};

use super::{
    memory::MemoryId,
    owner::Owner,
    registered::Registered, //
};
use crate::{
    kernel::gate::Pass,
    life::{
        client::Client,
        device::Device, //
    },
    policy::{
        lifecycle::Failure,
        quota::Kind, //
    }, //
};
use kernel::{
    prelude::*,
    sync::Arc, //
};

/// Admits the driver's side of a queue that the device has in `memory`; if there is none, the queue
/// ends by `destroy`. Sleeps.
///
/// # Errors
///
/// `ENOMEM`; that of `queue`.
pub(super) fn admit<Q: Client + 'static, M: Send + 'static>(
    device: &Device,
    queue: Result<Arc<Q>>,
    memory: M,
    destroy: impl FnOnce() -> Result,
) -> Result<Arc<Q>> {
    let admitted = queue.and_then(|queue| device.clients.admit(queue));
    admitted.inspect_err(|_| device.keep_unless(destroy(), memory))
}

/// Destroys a queue by `f`. On return the device no longer accesses its memory, or that of a process
/// is kept. Sleeps.
pub(super) fn destroy<Q: Client>(
    owner: &Owner<MemoryId, Arc<Q>>,
    kind: Kind,
    f: impl FnOnce(&Pass<'_>) -> Result,
) {
    match owner {
        Owner::Process(process, id) => process.end(kind, Some(*id), f),
        Owner::Ulp(registered, queue) => {
            end(registered, f);
            leave(&registered.device, &**queue);
        }
    }
}

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

/// The device does not use a queue any more: frees its rings, and ends its lease of the device.
pub(super) fn leave(device: &Device, queue: &dyn Client) {
    queue.unmap();
    queue.cut();
    device.clients.dismiss(queue);
}
