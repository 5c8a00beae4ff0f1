// SPDX-License-Identifier: GPL-2.0
//! Functions of the part in C: objects, and the depth of their rings.

use std::ffi::{c_int, c_void};
use std::sync::Arc;

use qpair_abi::entry::{Cqe, BLOCK_BYTES};
use qpair_abi::Number;
use qpair_queue::index::Index;
use qpair_queue::resize::Switch;

use super::bindings::{self, ibv_qp_state};
use super::{post, EINVAL};
use crate::cq::{Cq, CqParts, NextRing};
use crate::list::SendParts;
use crate::qp::{Qp, QpParts};
use crate::request::Limits;
use crate::ring::{mapped, Doorbells};
use crate::shape::{self, Shape};
use crate::srq::{Srq, SrqParts};

/// What a completion queue is made of.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct QpairDataCqParts {
    /// The number of the device.
    pub number: u32,
    /// Entries of the ring.
    pub depth: u32,
    /// Entries that the program may count on.
    pub usable: u32,
    /// Whether a single thread uses it.
    pub single: bool,
    /// The ring: zeroed pages.
    pub ring: *mut u8,
    /// The page of doorbells.
    pub doorbells: *mut u8,
}

/// The ring in which a completion queue goes on.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct QpairDataCqNext {
    /// Index past the last completion in the ring before.
    pub end: u32,
    /// Index of the first completion in this one.
    pub begin: u32,
    /// Entries of the ring.
    pub depth: u32,
    /// Entries that the program may count on.
    pub usable: u32,
    /// The ring: zeroed pages.
    pub ring: *mut u8,
}

/// What a queue pair is made of.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct QpairDataQpParts {
    /// The number of the device.
    pub number: u32,
    /// The number as verbs have it.
    pub qpn: u32,
    /// The ring of sends: whole pages.
    pub sq: *mut u8,
    /// The ring of receives: whole pages.
    pub rq: *mut u8,
    /// The size of the ring of sends.
    pub sq_shape: Shape,
    /// The size of the ring of receives.
    pub rq_shape: Shape,
    /// Most SGEs of a send.
    pub max_send_sge: u32,
    /// Most SGEs of a receive.
    pub max_recv_sge: u32,
    /// Most inline bytes of a send.
    pub max_inline_data: u32,
    /// Whether all sends are signaled.
    pub sq_sig_all: bool,
    /// Whether the queue pair is of UD.
    pub is_ud: bool,
    /// The page of doorbells.
    pub doorbells: *mut u8,
    /// The completion queue of sends.
    pub send_cq: *const Cq,
    /// The completion queue of receives.
    pub recv_cq: *const Cq,
    /// Where its receives are, or null: then there is a ring of receives.
    pub srq: *const Srq,
}

/// What a shared receive queue is made of.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct QpairDataSrqParts {
    /// The number of the device.
    pub number: u32,
    /// The ring: whole pages.
    pub ring: *mut u8,
    /// The size of the ring.
    pub shape: Shape,
    /// Most SGEs of a receive.
    pub max_sge: u32,
    /// The page of doorbells.
    pub doorbells: *mut u8,
}

/// Writes a shape that exists.
///
/// # Safety
///
/// `into` can be written.
unsafe fn give(shape: Option<Shape>, into: *mut Shape) -> bool {
    let Some(shape) = shape else { return false };
    // SAFETY: By the caller's promise.
    unsafe { into.write(shape) };
    true
}

/// The ring of a completion queue of at least `entries` entries, in a device with at most `most`;
/// false if it has no such.
///
/// # Safety
///
/// `shape` can be written.
#[no_mangle]
pub unsafe extern "C" fn qpair_data_cq_shape(entries: u32, most: u32, shape: *mut Shape) -> bool {
    // SAFETY: By the caller's promise.
    unsafe { give(shape::cq(entries, most), shape) }
}

/// The ring of `max_wr` sends of at most `max_sge` SGEs or `max_inline_data` bytes, of UD if `is_ud`,
/// as `qpair_data_cq_shape()`.
///
/// # Safety
///
/// `shape` can be written.
#[no_mangle]
pub unsafe extern "C" fn qpair_data_sq_shape(
    max_wr: u32,
    max_sge: u32,
    max_inline_data: u32,
    is_ud: bool,
    most: u32,
    shape: *mut Shape,
) -> bool {
    let sq = if is_ud { shape::ud_sq } else { shape::sq };
    // SAFETY: By the caller's promise.
    unsafe { give(sq(max_wr, max_sge, max_inline_data, most), shape) }
}

/// The ring of `max_wr` receives of at most `max_sge` SGEs, as `qpair_data_cq_shape()`.
///
/// # Safety
///
/// `shape` can be written.
#[no_mangle]
pub unsafe extern "C" fn qpair_data_rq_shape(
    max_wr: u32,
    max_sge: u32,
    most: u32,
    shape: *mut Shape,
) -> bool {
    // SAFETY: By the caller's promise.
    unsafe { give(shape::rq(max_wr, max_sge, most), shape) }
}

/// The ring of an SRQ of `max_wr` receives of at most `max_sge` SGEs, as `qpair_data_cq_shape()`.
///
/// # Safety
///
/// `shape` can be written.
#[no_mangle]
pub unsafe extern "C" fn qpair_data_srq_shape(
    max_wr: u32,
    max_sge: u32,
    most: u32,
    shape: *mut Shape,
) -> bool {
    // SAFETY: By the caller's promise.
    unsafe { give(shape::srq(max_wr, max_sge, most), shape) }
}

/// Makes a completion queue; null if the parts do not fit together.
///
/// # Safety
///
/// The memory has the size of the shape, and is mapped until `qpair_data_cq_free()`. A single
/// thread uses it if `single` is set.
#[no_mangle]
pub unsafe extern "C" fn qpair_data_cq_new(parts: *const QpairDataCqParts) -> *const Cq {
    // SAFETY: By the caller's promise, here and below.
    let made = unsafe {
        let parts = &*parts;
        let make = if parts.single {
            |parts| Cq::single(parts)
        } else {
            Cq::new
        };
        mapped(parts.ring, parts.depth, Cqe::BYTES)
            .zip(Doorbells::new(parts.doorbells))
            .and_then(|(ring, doorbells)| {
                make(CqParts {
                    number: Number::from_raw(parts.number),
                    ring,
                    depth: parts.depth,
                    usable: parts.usable,
                    doorbells,
                })
            })
    };
    made.map_or(std::ptr::null(), |cq| Arc::into_raw(Arc::new(cq)))
}

/// Locks a completion queue for a resize. Returns how many completions are unread.
///
/// # Safety
///
/// It is of `qpair_data_cq_new()`. This thread has it not locked, and calls
/// `qpair_data_cq_release()`.
#[no_mangle]
pub unsafe extern "C" fn qpair_data_cq_hold(cq: *const Cq) -> u32 {
    // SAFETY: By the caller's promise.
    unsafe { &*cq }.hold()
}

/// The device writes further completions to this ring. Returns how many rings before it are still
/// read; negative if the parts do not fit together.
///
/// # Safety
///
/// This thread has called `qpair_data_cq_hold()`. The memory has the size of the depth, and is
/// mapped until `qpair_data_cq_free()`, or until a later call returns that it is not read.
#[no_mangle]
pub unsafe extern "C" fn qpair_data_cq_resized(
    cq: *const Cq,
    next: *const QpairDataCqNext,
) -> isize {
    // SAFETY: By the caller's promise.
    let before = unsafe {
        let next = &*next;
        mapped(next.ring, next.depth, Cqe::BYTES).and_then(|ring| {
            (*cq).resized(NextRing {
                switch: Switch {
                    end: Index::new(next.end),
                    begin: Index::new(next.begin),
                },
                ring,
                depth: next.depth,
                usable: next.usable,
            })
        })
    };
    before.map_or(-1, |count| isize::try_from(count).unwrap_or(isize::MAX))
}

/// Unlocks a completion queue.
///
/// # Safety
///
/// This thread has called `qpair_data_cq_hold()`.
#[no_mangle]
pub unsafe extern "C" fn qpair_data_cq_release(cq: *const Cq) {
    // SAFETY: By the caller's promise.
    unsafe { (*cq).release() };
}

/// Frees a completion queue, which no queue pair uses.
///
/// # Safety
///
/// It is of `qpair_data_cq_new()`, and is not used again.
#[no_mangle]
pub unsafe extern "C" fn qpair_data_cq_free(cq: *const Cq) {
    // SAFETY: By the caller's promise.
    drop(unsafe { Arc::from_raw(cq) });
}

/// Makes a queue pair in RESET; null if the parts do not fit together.
///
/// # Safety
///
/// The memory has the size of the shapes, and is mapped until `qpair_data_qp_free()`.
#[no_mangle]
pub unsafe extern "C" fn qpair_data_qp_new(parts: *const QpairDataQpParts) -> *const Qp {
    // SAFETY: By the caller's promise.
    let made = unsafe { qp(&*parts) };
    made.map_or(std::ptr::null(), |qp| {
        Box::into_raw(Box::new(qp)).cast_const()
    })
}

/// # Safety
///
/// As of [`qpair_data_qp_new`].
unsafe fn qp(parts: &QpairDataQpParts) -> Option<Qp> {
    let (sq, rq) = (parts.sq_shape, parts.rq_shape);
    let rq_stride = u8::try_from(rq.stride).ok()?;
    let srq = (!parts.srq.is_null()).then(|| {
        // SAFETY: By the caller's promise it is of `qpair_data_srq_new()`.
        unsafe {
            Arc::increment_strong_count(parts.srq);
            Arc::from_raw(parts.srq)
        }
    });
    // SAFETY: By the caller's promise, here and below.
    let (sq_ring, doorbells) = unsafe {
        (
            mapped(parts.sq, sq.entries, BLOCK_BYTES)?,
            Doorbells::new(parts.doorbells)?,
        )
    };
    let rq_ring = match &srq {
        Some(_) => sq_ring,
        // SAFETY: By the caller's promise.
        None => unsafe { mapped(parts.rq, rq.entries, BLOCK_BYTES << rq_stride)? },
    };
    let cq = |cq: *const Cq| {
        // SAFETY: By the caller's promise it is of `qpair_data_cq_new()`.
        unsafe {
            Arc::increment_strong_count(cq);
            Arc::from_raw(cq)
        }
    };
    let (send_cq, recv_cq) = (cq(parts.send_cq), cq(parts.recv_cq));
    let limits = Limits {
        max_send_sge: parts.max_send_sge,
        max_inline_data: parts.max_inline_data,
    };
    let sends = SendParts {
        limits,
        sq_sig_all: parts.sq_sig_all,
        templates: post::templates(&limits, parts.sq_sig_all, parts.is_ud),
        is_ud: parts.is_ud,
    };
    let parts = QpParts {
        number: Number::from_raw(parts.number),
        qpn: parts.qpn,
        sq: sq_ring,
        sq_blocks: sq.entries,
        sq_usable: sq.usable,
        sends,
        rq: rq_ring,
        rq_depth: rq.entries,
        rq_usable: rq.usable,
        rq_stride,
        max_recv_sge: parts.max_recv_sge,
        doorbells,
    };
    match srq {
        Some(srq) => Qp::on_srq(parts, send_cq, recv_cq, srq),
        None => Qp::new(parts, send_cq, recv_cq),
    }
}

/// Makes a shared receive queue; null if the parts do not fit together.
///
/// # Safety
///
/// The memory has the size of the shape, and is mapped until `qpair_data_srq_free()`.
#[no_mangle]
pub unsafe extern "C" fn qpair_data_srq_new(parts: *const QpairDataSrqParts) -> *const Srq {
    // SAFETY: By the caller's promise, here and below.
    let parts = unsafe { &*parts };
    let made = u8::try_from(parts.shape.stride).ok().and_then(|stride| {
        let entries = parts.shape.entries;
        // SAFETY: As above.
        let (ring, doorbells) = unsafe {
            (
                mapped(parts.ring, entries, BLOCK_BYTES << stride)?,
                Doorbells::new(parts.doorbells)?,
            )
        };
        Srq::new(SrqParts {
            number: Number::from_raw(parts.number),
            ring,
            depth: entries,
            stride,
            max_sge: parts.max_sge,
            doorbells,
        })
    });
    made.map_or(std::ptr::null(), Arc::into_raw)
}

/// Makes a shared receive queue go on in another ring. Posts wait for `change`, by which the device
/// goes on there, or which returns an errno. Returns 0, or that errno; `EINVAL` if the ring is too
/// small for the receives in flight, or the parts do not fit together.
///
/// # Safety
///
/// It is of `qpair_data_srq_new()`. The memory has the size of the shape. After `change` has
/// succeeded it is mapped until `qpair_data_srq_free()`, or until a later resize has succeeded.
/// `change` may be called with `arg`.
#[no_mangle]
pub unsafe extern "C" fn qpair_data_srq_resize(
    srq: *const Srq,
    ring: *mut u8,
    shape: *const Shape,
    change: unsafe extern "C" fn(arg: *mut c_void) -> c_int,
    arg: *mut c_void,
) -> c_int {
    // SAFETY: By the caller's promise.
    let (srq, shape) = unsafe { (&*srq, *shape) };
    // SAFETY: As above.
    let Some(ring) = (unsafe { mapped(ring, shape.entries, BLOCK_BYTES << shape.stride) }) else {
        return EINVAL;
    };
    // SAFETY: As above.
    let change = || match unsafe { change(arg) } {
        0 => Ok(()),
        errno => Err(errno),
    };
    match srq.resize(ring, shape, change) {
        Ok(()) => 0,
        Err(errno) => errno.unwrap_or(EINVAL),
    }
}

/// Frees a shared receive queue, which no queue pair uses.
///
/// # Safety
///
/// It is of `qpair_data_srq_new()`, and is not used again.
#[no_mangle]
pub unsafe extern "C" fn qpair_data_srq_free(srq: *const Srq) {
    // SAFETY: By the caller's promise.
    drop(unsafe { Arc::from_raw(srq) });
}

/// Frees a queue pair that the kernel has destroyed.
///
/// # Safety
///
/// It is of `qpair_data_qp_new()`, and is not used again.
#[no_mangle]
pub unsafe extern "C" fn qpair_data_qp_free(qp: *const Qp) {
    // SAFETY: By the caller's promise.
    drop(unsafe { Box::from_raw(qp.cast_mut()) });
}

/// The queue pair is in this state now, other than RESET.
///
/// # Safety
///
/// It is of `qpair_data_qp_new()`.
#[no_mangle]
pub unsafe extern "C" fn qpair_data_qp_permit(qp: *const Qp, state: ibv_qp_state) {
    let sends = matches!(
        state,
        bindings::IBV_QPS_RTS
            | bindings::IBV_QPS_SQD
            | bindings::IBV_QPS_SQE
            | bindings::IBV_QPS_ERR
    );
    // SAFETY: By the caller's promise.
    unsafe { &*qp }.permit(sends, true);
}

/// The queue pair is in RESET now, and its entries in the completion queues are those from these
/// indices on.
///
/// # Safety
///
/// It is of `qpair_data_qp_new()`.
#[no_mangle]
pub unsafe extern "C" fn qpair_data_qp_reset(qp: *const Qp, send_since: u32, recv_since: u32) {
    // SAFETY: By the caller's promise.
    unsafe { &*qp }.reset(send_since, recv_since);
}
