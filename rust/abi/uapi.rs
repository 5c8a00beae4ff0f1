// SPDX-License-Identifier: GPL-2.0 WITH Linux-syscall-note
//! Ioctls of `/dev/qpairN`; `include/uapi/linux/qpair.h` is generated from this file.
//!
//! Opening the device makes a context: a doorbell page, and everything that is
//! made through this file. Closing it ends them all. `mmap` at offset 0 gives the
//! doorbell page (4096 bytes, shared, read and write, not inherited by fork). `read` gives
//! [`qpair_async_event`]s, and `poll` says when there is one.
//!
//! **Sizes.** A structure may grow at its end. The size in the ioctl number says
//! how much of it the caller knows: what the caller does not know is taken as
//! zero, what the kernel does not know must be zero (`E2BIG`), less than
//! the first version is `EINVAL`. Reserved fields must be zero and unknown flags are
//! refused (`EINVAL`). Nothing is written back when a call fails.
//!
//! **Handles** are the device's numbers: they go into doorbells as they are. A handle
//! is good in the context that made it and nowhere else (`ENOENT`).
//!
//! | errno | means |
//! |---|---|
//! | `ENOTTY` | no such ioctl |
//! | `EINVAL` | bad size, reserved field, unknown flag, depth or attribute out of range, unaligned or too small buffer, no such state transition |
//! | `E2BIG` | a field that this kernel does not know is not zero |
//! | `ENOENT` | no such handle of this kind in this context |
//! | `EBUSY` | others use the object |
//! | `EOVERFLOW` | address and length wrap, or the region is larger than the device allows |
//! | `EFAULT` | argument or buffer is not mapped, not writable where it must be, or device memory |
//! | `ENOMEM` | memory, or more than `RLIMIT_MEMLOCK` allows |
//! | `ENOSPC` | the device or the vector has no more of this kind, or the rest is for privileged tasks |
//! | `EDQUOT` | this context or its user has as many of this kind as it may |
//! | `EOPNOTSUPP` | memory that cannot be pinned for long, as a file on a DAX device; for `open`: the platform gives devices copies of memory |
//! | `EPIPE` | a completion queue of the queue pair was overrun: it takes no completion any more, and can only be destroyed |
//! | `EPERM` | a mapping of the doorbell page that may be executed |
//! | `EAGAIN` | `read` would wait, and `O_NONBLOCK` is set |
//! | `EBADF` | the eventfd is none |
//! | `EINTR` | a fatal signal came while buffers were pinned; a signal came while `read` waited |
//! | `EIO` | the device was reset since the file was opened: open it anew |
//! | `ENODEV` | the device is gone |

#![allow(non_camel_case_types)]

/// Version of this interface: another means another set of structures.
pub const QPAIR_UAPI_VERSION: u32 = 1;

/// Type of the ioctl numbers, `_IOWR(QPAIR_IOCTL, nr, struct)`.
pub const QPAIR_IOCTL: u8 = b'Q';

/// [`qpair_query_device`].
pub const QPAIR_NR_QUERY_DEVICE: u8 = 0x00;
/// [`qpair_query_counters`].
pub const QPAIR_NR_QUERY_COUNTERS: u8 = 0x01;
/// [`qpair_alloc_pd`].
pub const QPAIR_NR_ALLOC_PD: u8 = 0x10;
/// [`qpair_destroy`] of a protection domain.
pub const QPAIR_NR_DEALLOC_PD: u8 = 0x11;
/// [`qpair_create_cq`].
pub const QPAIR_NR_CREATE_CQ: u8 = 0x20;
/// [`qpair_query_cq`].
pub const QPAIR_NR_QUERY_CQ: u8 = 0x21;
/// [`qpair_destroy`] of a completion queue.
pub const QPAIR_NR_DESTROY_CQ: u8 = 0x22;
/// [`qpair_create_qp`].
pub const QPAIR_NR_CREATE_QP: u8 = 0x30;
/// [`qpair_modify_qp`].
pub const QPAIR_NR_MODIFY_QP: u8 = 0x31;
/// [`qpair_query_qp`].
pub const QPAIR_NR_QUERY_QP: u8 = 0x32;
/// [`qpair_destroy`] of a queue pair.
pub const QPAIR_NR_DESTROY_QP: u8 = 0x33;
/// [`qpair_reg_mr`].
pub const QPAIR_NR_REG_MR: u8 = 0x40;
/// [`qpair_query_mr`].
pub const QPAIR_NR_QUERY_MR: u8 = 0x41;
/// [`qpair_destroy`] of a memory region.
pub const QPAIR_NR_DEREG_MR: u8 = 0x42;

/// What the device is and allows.
#[repr(C)]
#[cfg_attr(
    MODULE,
    derive(
        zerocopy_derive::FromBytes,
        zerocopy_derive::IntoBytes,
        zerocopy_derive::Immutable
    )
)]
#[derive(Clone, Copy, Debug, Default)]
pub struct qpair_query_device {
    /// Out: [`QPAIR_UAPI_VERSION`] of the kernel.
    pub uapi_version: u32,
    /// Out: version of the programming model, major in the high 16 bits.
    pub device_version: u32,
    /// Out: queue pairs of the device.
    pub max_qp: u32,
    /// Out: completion queues of the device.
    pub max_cq: u32,
    /// Out: event queues of the device.
    pub max_eq: u32,
    /// Out: memory regions of the device.
    pub max_mr: u32,
    /// Out: protection domains of the device.
    pub max_pd: u32,
    /// Out: most 64-byte blocks of an SQ.
    pub max_sq_blocks: u32,
    /// Out: most work requests of an RQ.
    pub max_rq_depth: u32,
    /// Out: most entries of a CQ.
    pub max_cq_depth: u32,
    /// Out: most SGEs of a send work request.
    pub max_send_sge: u32,
    /// Out: most SGEs of a receive work request.
    pub max_recv_sge: u32,
    /// Out: most bytes of inline data.
    pub max_inline: u32,
    /// Out: bytes of the largest message.
    pub max_message: u32,
    /// Out: bytes of the largest region.
    pub max_mr_bytes: u64,
    /// Out: vectors that a completion queue may choose from.
    pub vectors: u32,
    /// Out: 1 if the link is up.
    pub link_up: u32,
    /// Out: queue pairs that this context may have.
    pub quota_qp: u32,
    /// Out: completion queues that this context may have.
    pub quota_cq: u32,
    /// Out: memory regions that this context may have.
    pub quota_mr: u32,
    /// Out: protection domains that this context may have.
    pub quota_pd: u32,
    /// Out: this context's doorbell page.
    pub doorbell_page: u32,
    /// Out: how often the device was reset since the driver was bound.
    pub epoch: u32,
}

/// The device's counters, in the order of the device manual.
#[repr(C)]
#[cfg_attr(
    MODULE,
    derive(
        zerocopy_derive::FromBytes,
        zerocopy_derive::IntoBytes,
        zerocopy_derive::Immutable
    )
)]
#[derive(Clone, Copy, Debug, Default)]
pub struct qpair_query_counters {
    /// In: address of an array of 64-bit counters.
    pub counters: u64,
    /// In: places in the array. Out: counters that the device has; as many as fit were written.
    pub count: u32,
    /// Zero.
    pub reserved: u32,
}

/// Makes a protection domain.
#[repr(C)]
#[cfg_attr(
    MODULE,
    derive(
        zerocopy_derive::FromBytes,
        zerocopy_derive::IntoBytes,
        zerocopy_derive::Immutable
    )
)]
#[derive(Clone, Copy, Debug, Default)]
pub struct qpair_alloc_pd {
    /// Zero.
    pub flags: u32,
    /// Out: its handle.
    pub handle: u32,
}

/// No eventfd.
pub const QPAIR_NO_EVENTFD: i32 = -1;

/// Makes a completion queue in memory of the caller's.
#[repr(C)]
#[cfg_attr(
    MODULE,
    derive(
        zerocopy_derive::FromBytes,
        zerocopy_derive::IntoBytes,
        zerocopy_derive::Immutable
    )
)]
#[derive(Clone, Copy, Debug, Default)]
pub struct qpair_create_cq {
    /// In: address of its ring, zeroed, aligned to a page.
    pub buffer: u64,
    /// In: bytes of the ring; at least 32 for each entry of the rounded depth.
    pub buffer_bytes: u64,
    /// In: entries wanted. Out: entries it has, a power of two.
    pub depth: u32,
    /// In: the vector that its events come by.
    pub vector: u32,
    /// In: eventfd to signal at each event, or [`QPAIR_NO_EVENTFD`].
    pub eventfd: i32,
    /// Zero.
    pub flags: u32,
    /// Out: its handle.
    pub handle: u32,
    /// Zero.
    pub reserved: u32,
}

/// [`qpair_query_cq::flags`]: it had no room once, and its queue pairs were stopped. It can only be destroyed.
pub const QPAIR_CQ_OVERRUN: u32 = 1;

/// What a completion queue is.
#[repr(C)]
#[cfg_attr(
    MODULE,
    derive(
        zerocopy_derive::FromBytes,
        zerocopy_derive::IntoBytes,
        zerocopy_derive::Immutable
    )
)]
#[derive(Clone, Copy, Debug, Default)]
pub struct qpair_query_cq {
    /// In: the completion queue.
    pub handle: u32,
    /// Out: its entries.
    pub depth: u32,
    /// Out: entries written.
    pub producer: u32,
    /// Out: head that was published last.
    pub consumer: u32,
    /// Out: its vector.
    pub vector: u32,
    /// Out: `QPAIR_CQ_OVERRUN`.
    pub flags: u32,
    /// Out: levels of its buffer list.
    pub levels: u32,
    /// Out: base-two logarithm of its page size.
    pub page_shift: u32,
}

/// Service: reliable connected.
pub const QPAIR_RC: u32 = 0;

/// Makes a queue pair in memory of the caller's; it is in RESET.
#[repr(C)]
#[cfg_attr(
    MODULE,
    derive(
        zerocopy_derive::FromBytes,
        zerocopy_derive::IntoBytes,
        zerocopy_derive::Immutable
    )
)]
#[derive(Clone, Copy, Debug, Default)]
pub struct qpair_create_qp {
    /// In: address of its SQ, aligned to a page.
    pub sq_buffer: u64,
    /// In: bytes of the SQ; at least 64 for each block of the rounded depth.
    pub sq_buffer_bytes: u64,
    /// In: address of its RQ, zeroed, aligned to a page.
    pub rq_buffer: u64,
    /// In: bytes of the RQ; at least `64 << rq_stride` for each work request of the rounded depth.
    pub rq_buffer_bytes: u64,
    /// In: 64-byte blocks wanted. Out: blocks it has, a power of two.
    pub sq_blocks: u32,
    /// In: receives wanted. Out: receives it has, a power of two.
    pub rq_depth: u32,
    /// In: a receive takes `64 << rq_stride` bytes; 0, 1 or 2.
    pub rq_stride: u32,
    /// In: [`QPAIR_RC`].
    pub service: u32,
    /// In: its protection domain.
    pub pd: u32,
    /// In: completion queue of its SQ.
    pub send_cq: u32,
    /// In: completion queue of its RQ.
    pub recv_cq: u32,
    /// Zero.
    pub flags: u32,
    /// Out: its handle, which is its number.
    pub handle: u32,
    /// Zero.
    pub reserved: u32,
}

/// State: made, or made new.
pub const QPAIR_QPS_RESET: u32 = 0;
/// State: receives may be posted.
pub const QPAIR_QPS_INIT: u32 = 1;
/// State: ready to receive.
pub const QPAIR_QPS_RTR: u32 = 2;
/// State: ready to send.
pub const QPAIR_QPS_RTS: u32 = 3;
/// State: drained.
pub const QPAIR_QPS_SQD: u32 = 4;
/// State: error.
pub const QPAIR_QPS_ERROR: u32 = 5;

/// [`qpair_modify_qp::mask`]: `state`.
pub const QPAIR_QP_STATE: u32 = 1;
/// [`qpair_modify_qp::mask`]: `peer`.
pub const QPAIR_QP_PEER: u32 = 2;
/// [`qpair_modify_qp::mask`]: `access`.
pub const QPAIR_QP_ACCESS: u32 = 4;
/// [`qpair_modify_qp::mask`]: `retry` and `rnr_retry`.
pub const QPAIR_QP_RETRY: u32 = 8;

/// Changes a queue pair.
#[repr(C)]
#[cfg_attr(
    MODULE,
    derive(
        zerocopy_derive::FromBytes,
        zerocopy_derive::IntoBytes,
        zerocopy_derive::Immutable
    )
)]
#[derive(Clone, Copy, Debug, Default)]
pub struct qpair_modify_qp {
    /// In: the queue pair.
    pub handle: u32,
    /// In: what to change, `QPAIR_QP_*`.
    pub mask: u32,
    /// In: `QPAIR_QPS_*`.
    pub state: u32,
    /// In: number of the only queue pair that it talks to.
    pub peer: u32,
    /// In: what the peer may do, `QPAIR_ACCESS_REMOTE_*`.
    pub access: u32,
    /// In: retries when the peer does not answer, 0 to 7.
    pub retry: u32,
    /// In: retries when the peer has no receive, 0 to 7.
    pub rnr_retry: u32,
    /// Zero.
    pub reserved: u32,
    /// Out, when made new: producer index of its send CQ; entries of it are before this.
    pub send_cq_index: u32,
    /// Out, when made new: producer index of its receive CQ; entries of it are before this.
    pub recv_cq_index: u32,
}

/// What a queue pair is.
#[repr(C)]
#[cfg_attr(
    MODULE,
    derive(
        zerocopy_derive::FromBytes,
        zerocopy_derive::IntoBytes,
        zerocopy_derive::Immutable
    )
)]
#[derive(Clone, Copy, Debug, Default)]
pub struct qpair_query_qp {
    /// In: the queue pair.
    pub handle: u32,
    /// Out: `QPAIR_QPS_*`.
    pub state: u32,
    /// Out: number of its peer.
    pub peer: u32,
    /// Out: what the peer may do.
    pub access: u32,
    /// Out: retries when the peer does not answer.
    pub retry: u32,
    /// Out: retries when the peer has no receive.
    pub rnr_retry: u32,
    /// Out: SQ blocks handed over.
    pub sq_producer: u32,
    /// Out: SQ blocks done.
    pub sq_consumer: u32,
    /// Out: receives handed over.
    pub rq_producer: u32,
    /// Out: receives taken.
    pub rq_consumer: u32,
    /// Out: levels of its SQ's buffer list.
    pub sq_levels: u32,
    /// Out: base-two logarithm of its SQ's page size.
    pub sq_page_shift: u32,
}

/// Right: receives and READs of the owner may fill the region.
pub const QPAIR_ACCESS_LOCAL_WRITE: u32 = 1;
/// Right: the peer may write.
pub const QPAIR_ACCESS_REMOTE_WRITE: u32 = 2;
/// Right: the peer may read.
pub const QPAIR_ACCESS_REMOTE_READ: u32 = 4;

/// Registers memory of the caller's.
#[repr(C)]
#[cfg_attr(
    MODULE,
    derive(
        zerocopy_derive::FromBytes,
        zerocopy_derive::IntoBytes,
        zerocopy_derive::Immutable
    )
)]
#[derive(Clone, Copy, Debug, Default)]
pub struct qpair_reg_mr {
    /// In: address; also the address in the region's own address space.
    pub addr: u64,
    /// In: bytes, not 0.
    pub bytes: u64,
    /// In: its protection domain.
    pub pd: u32,
    /// In: rights, `QPAIR_ACCESS_*`. With any right to write the memory must be writable.
    pub access: u32,
    /// Out: its handle.
    pub handle: u32,
    /// Out: key for the owner's SGEs.
    pub lkey: u32,
    /// Out: key to give to a peer.
    pub rkey: u32,
    /// Zero.
    pub reserved: u32,
}

/// What a memory region is.
#[repr(C)]
#[cfg_attr(
    MODULE,
    derive(
        zerocopy_derive::FromBytes,
        zerocopy_derive::IntoBytes,
        zerocopy_derive::Immutable
    )
)]
#[derive(Clone, Copy, Debug, Default)]
pub struct qpair_query_mr {
    /// In: the region.
    pub handle: u32,
    /// Out: its rights.
    pub access: u32,
    /// Out: its address.
    pub addr: u64,
    /// Out: its bytes.
    pub bytes: u64,
    /// Out: levels of its buffer list.
    pub levels: u32,
    /// Out: base-two logarithm of its page size.
    pub page_shift: u32,
}

/// Ends an object.
#[repr(C)]
#[cfg_attr(
    MODULE,
    derive(
        zerocopy_derive::FromBytes,
        zerocopy_derive::IntoBytes,
        zerocopy_derive::Immutable
    )
)]
#[derive(Clone, Copy, Debug, Default)]
pub struct qpair_destroy {
    /// In: the object.
    pub handle: u32,
    /// Zero.
    pub reserved: u32,
    /// Out, of a queue pair: producer index of its send CQ; entries of it are before this.
    pub send_cq_index: u32,
    /// Out, of a queue pair: producer index of its receive CQ; entries of it are before this.
    pub recv_cq_index: u32,
}

/// Event: a completion queue had no room; its queue pairs are in the error state.
pub const QPAIR_EVENT_CQ_OVERRUN: u32 = 2;
/// Event: a queue pair went to the error state.
pub const QPAIR_EVENT_QP_FATAL: u32 = 3;
/// Event: this context wrote doorbells that make no sense.
pub const QPAIR_EVENT_DOORBELL_VIOLATION: u32 = 4;
/// Event: the device was reset, by itself or by request; this context is dead. The last event that `read` gives, once.
pub const QPAIR_EVENT_DEVICE_FATAL: u32 = 5;

/// What `read` gives: as many as fit, whole ones only.
#[repr(C)]
#[cfg_attr(
    MODULE,
    derive(
        zerocopy_derive::FromBytes,
        zerocopy_derive::IntoBytes,
        zerocopy_derive::Immutable
    )
)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct qpair_async_event {
    /// `QPAIR_EVENT_*`.
    pub kind: u32,
    /// The object, or the doorbell page.
    pub handle: u32,
    /// Of a fatal queue pair: the status.
    pub code: u32,
    /// How often it happened.
    pub count: u32,
}

/// The number of an ioctl that reads and writes a `T`: `_IOWR(QPAIR_IOCTL, nr, T)`.
pub const fn request<T>(nr: u8) -> u32 {
    3 << 30 | (core::mem::size_of::<T>() as u32) << 16 | (QPAIR_IOCTL as u32) << 8 | nr as u32
}
