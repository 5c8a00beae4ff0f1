// SPDX-License-Identifier: GPL-2.0

//! RDMA devices: what a driver of the RDMA core implements, without unsafe code.
//!
//! C headers: [`include/rdma/ib_verbs.h`](srctree/include/rdma/ib_verbs.h),
//! [`include/rdma/uverbs_ioctl.h`](srctree/include/rdma/uverbs_ioctl.h)
//!
//! A driver implements [`Driver`] and registers it with [`Registration::new`]. The RDMA core
//! allocates the objects; each has place for the driver's part of it, which is written when the
//! object is created and moved out when it is destroyed:
//!
//! ```text
//!   struct ib_device   | Driver::Data       registered ... unregistered
//!   struct ib_ucontext | Driver::Context    an open file of /dev/infiniband/uverbsN
//!   struct ib_pd       | Driver::Pd         \
//!   struct ib_ah       | Driver::Ah          |
//!   struct ib_srq      | Driver::Srq         |
//!   struct ib_cq       | Driver::Cq          | by handle of a file; destroyed with it,
//!   struct ib_qp       | Driver::Qp          | or when the device is unregistered
//!   struct ib_mr       | Driver::Mr          |
//!   struct ib_mw       | Driver::Mw         /
//! ```
//!
//! # What the core guarantees
//!
//! - Creates and destroys of one object do not overlap with any other operation on it. Other
//!   operations may run concurrently, so a driver's part is shared and [`Sync`].
//! - An object is outlived by those that it was created on: a QP by its PD, CQs and SRQ, an SRQ,
//!   MR or MW by its PD. An MR may be changed to another PD; its key stays.
//! - Unregistering destroys all objects of all files and takes their mappings away. It waits for
//!   operations that run, and so for page faults of processes: it is done in the background, see
//!   [`Registration`]. A destroy cannot fail, but that of an MR with bound MWs.
//!
//! # Events
//!
//! The poll of a driver runs in BH and names core objects. It does so by an [`Events`], which the
//! driver gets at creation and may share. Before the core frees an object its `Events` are cut off,
//! also if the driver still has a reference. A [`Completion`] names its queue pair in the same way, and
//! [`Completions`] bounds and counts them: no driver can give the poller a queue pair that is freed, or
//! more than there is room for.

mod cq;
mod details;
mod events;
mod group;
mod mmap;
mod mr;
mod netdev;
mod object;
mod ops;
mod port;
mod qp;
mod reader;
mod registration;
mod srq;
mod udata;
mod ulp;
mod work;

pub use self::{
    details::Details,
    events::{
        CqEvent,
        Events,
        PortEvent,
        QpEvent,
        SrqEvent, //
    },
    registration::{
        Registrar,
        Registration, //
    },
    udata::Udata,
    work::{
        Completed,
        Completion,
        Completions,
        Operation,
        Piece,
        Polls,
        Posts,
        RecvRequest,
        SendRequest, //
    }, //
};

use super::mmio::Frame;
use kernel::{
    prelude::*,
    str::CStr, //
};
use zerocopy::{
    Immutable,
    IntoBytes, //
};

/// The bindings of the RDMA headers, made when the module is built.
#[allow(
    clippy::all,
    clippy::cast_lossless,
    clippy::ptr_as_ptr,
    clippy::ref_as_ptr,
    clippy::undocumented_unsafe_blocks,
    dead_code,
    improper_ctypes,
    missing_docs,
    non_camel_case_types,
    non_snake_case,
    non_upper_case_globals,
    unreachable_pub,
    unsafe_op_in_unsafe_fn,
    unused_imports
)]
mod bindings {
    use kernel::{
        bindings::*,
        ffi, //
    };
    use pin_init::MaybeZeroable;

    include!(env!("QPAIR_RDMA_BINDINGS"));
}

/// The structures of `include/uapi/rdma/qpair-abi.h`, to compare a driver's own with.
pub mod header {
    pub use super::bindings::{
        qpair_ureq_create_cq,
        qpair_ureq_create_qp,
        qpair_ureq_create_srq,
        qpair_ureq_modify_srq,
        qpair_ureq_resize_cq,
        qpair_uresp_alloc_ucontext,
        qpair_uresp_create_ah,
        qpair_uresp_create_cq,
        qpair_uresp_create_qp,
        qpair_uresp_create_srq,
        qpair_uresp_modify_qp,
        qpair_uresp_resize_cq,
        QPAIR_NO_COMPLETION_FD,
        QPAIR_UVERBS_ABI_VERSION, //
    };
}

/// Limits of a device, as `ib_query_device()` returns them.
#[derive(Clone, Copy, Debug, Default)]
pub struct DeviceAttributes {
    /// Firmware version; the driver gives it a meaning.
    pub firmware: u64,
    /// PCI vendor and device ID, revision.
    pub vendor: u32,
    /// See `vendor`.
    pub part: u32,
    /// See `vendor`.
    pub revision: u32,
    /// The longest memory region, in bytes.
    pub max_mr_bytes: u64,
    /// Page sizes of memory regions, as a set of powers of two.
    pub page_sizes: u64,
    /// Queue pairs that a process may create.
    pub max_qp: u32,
    /// Completion queues.
    pub max_cq: u32,
    /// Memory regions.
    pub max_mr: u32,
    /// Protection domains.
    pub max_pd: u32,
    /// Address handles.
    pub max_ah: u32,
    /// Shared receive queues.
    pub max_srq: u32,
    /// Memory windows, of types 1 and 2B; 0 if the device has none.
    pub max_mw: u32,
    /// Memberships of queue pairs in groups, and so groups; 0 if the device has none.
    pub max_groups: u32,
    /// Members of a group.
    pub max_group_members: u32,
    /// Work requests of a shared receive queue.
    pub max_srq_wr: u32,
    /// Work requests of a queue.
    pub max_wr: u32,
    /// Entries of a completion queue.
    pub max_cqe: u32,
    /// SGEs of a send.
    pub max_send_sges: u32,
    /// SGEs of a receive.
    pub max_recv_sges: u32,
    /// SGEs of a receive of a shared receive queue.
    pub max_srq_sges: u32,
    /// RDMA READs and atomics in flight of a queue pair.
    pub max_reads: u32,
    /// Whether atomics are atomic among the queue pairs of the device.
    pub atomics: bool,
    /// Whether it has FLUSH, of both kinds.
    pub flush: bool,
    /// Whether it has atomic WRITE.
    pub atomic_write: bool,
}

/// The state of a port, as `ib_query_port()` returns it.
#[derive(Clone, Copy, Debug, Default)]
pub struct PortAttributes {
    /// Whether the link is up.
    pub active: bool,
    /// The longest message, in bytes.
    pub max_message: u32,
}

/// What a completion queue is asked to be.
#[derive(Clone, Copy, Debug)]
pub struct CqRequest {
    /// Entries, at least.
    pub entries: u32,
    /// The completion vector, below [`Config::vectors`].
    pub vector: u32,
}

/// Services of queue pairs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Service {
    /// Reliable connected: `IB_QPT_RC`.
    Rc,
    /// Unreliable connected: `IB_QPT_UC`.
    Uc,
    /// Unreliable datagram: `IB_QPT_UD`.
    Ud,
}

/// What a queue pair is asked to be.
#[derive(Clone, Copy, Debug)]
pub struct QpRequest {
    /// Its service.
    pub service: Service,
    /// Sends and receives that may be outstanding.
    pub sends: u32,
    /// See `sends`.
    pub recvs: u32,
    /// SGEs of each send.
    pub send_sges: u32,
    /// SGEs of each receive.
    pub recv_sges: u32,
    /// Inline bytes of a send.
    pub inline_bytes: u32,
    /// Whether it has no copies of what it sends to groups that it is a member of, of UD.
    pub no_own_copy: bool,
    /// Whether it is queue pair 1 of the port, of the kernel.
    pub is_port_qp: bool,
    /// Whether all sends complete, of the kernel.
    pub signal_all: bool,
}

/// What a shared receive queue is asked to be.
#[derive(Clone, Copy, Debug)]
pub struct SrqRequest {
    /// Receives that may be outstanding.
    pub recvs: u32,
    /// SGEs of each.
    pub sges: u32,
}

/// What is to change of a shared receive queue: nothing, either or both.
#[derive(Clone, Copy, Debug)]
pub struct SrqChange {
    /// Requests [`SrqEvent::Limit`] once fewer receives than this are left.
    pub limit: Option<u32>,
    /// Receives that may be outstanding.
    pub recvs: Option<u32>,
}

/// States of a queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QpState {
    /// As created.
    Reset,
    /// Receives may be posted.
    Init,
    /// Ready to receive.
    Rtr,
    /// Ready to send.
    Rts,
    /// The send queue drains.
    Sqd,
    /// The send queue is in error. RC queue pairs are never in this state; others may be.
    Sqe,
    /// All work is flushed.
    Error,
}

/// A change of a queue pair, of what the device knows. The core's checks have passed, and the other
/// attributes are kept for `ibv_query_qp()`.
#[derive(Clone, Copy, Debug, Default)]
pub struct QpChange {
    /// The state to go to. `None` for INIT to INIT and RTS to RTS as well.
    pub state: Option<QpState>,
    /// Rights of the peer: `IB_ACCESS_*`.
    pub access: Option<u32>,
    /// The peer's number.
    pub peer: Option<u32>,
    /// Retries of a request without an answer, and of one without a receive; 7 is without end.
    pub retries: Option<(u8, u8)>,
    /// The time of an answer, and that which its peer waits for a receive: codes of
    /// `struct ib_qp_attr`, `timeout` and `min_rnr_timer`.
    pub timers: Option<(u8, u8)>,
    /// The Q_Key.
    pub q_key: Option<u32>,
    /// Whether [`QpEvent::Drained`] is asked for; with the step to [`QpState::Sqd`].
    pub drained: bool,
    /// The GID of the peer's port.
    pub gid: Option<Gid>,
}

/// A global identifier of a port, as in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gid(pub [u8; 16]);

impl Gid {
    /// That of the port of a device with this EUI-64: a link-local address.
    pub fn of_port(guid: u64) -> Self {
        const LOCAL: u64 = 0xfe80_0000_0000_0000;
        Self((u128::from(LOCAL) << 64 | u128::from(guid)).to_be_bytes())
    }
}

/// Where an address handle leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Address {
    /// The port with this GID; sent from the GID with this index.
    Global(Gid, u8),
    /// The port of the device itself, by its LID.
    Own,
    /// Another port, by its LID.
    Foreign,
}

/// What a memory region is asked to be.
#[derive(Clone, Copy, Debug)]
pub struct MrRequest {
    /// Where it is in the process.
    pub start: u64,
    /// Its length in bytes.
    pub bytes: u64,
    /// The address by which the device is given it.
    pub iova: u64,
    /// Rights: `IB_ACCESS_*`.
    pub access: u32,
}

/// A change of a memory region.
#[derive(Clone, Copy, Debug, Default)]
pub struct MrChange {
    /// Other memory: where it is in the process, its length in bytes, and the address by which the
    /// device is given it.
    pub memory: Option<(u64, u64, u64)>,
    /// Other rights: `IB_ACCESS_*`.
    pub access: Option<u32>,
}

/// Types of memory windows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MwType {
    /// Bound by `ibv_bind_mw()`.
    One,
    /// Bound by a work request, and of the queue pair that binds it: 2B.
    Two,
}

/// A device at its registration.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// Completion vectors.
    pub vectors: u32,
    /// The EUI-64 of the device, of which the port's GID is made.
    pub guid: u64,
    /// The address of the network device that the port belongs to. Without one it is a port of
    /// InfiniBand.
    pub mac: Option<[u8; 6]>,
}

/// A driver of the RDMA core with one port: of link layer InfiniBand, without management datagrams,
/// or of RoCE v2.
///
/// All operations run in process context and may sleep, but those of [`Posts`] and [`Polls`].
pub trait Driver: Sized + 'static {
    /// Shared by all operations.
    type Data: Send + Sync;
    /// The driver's part of an open file.
    type Context: Send + Sync;
    /// The driver's part of a protection domain.
    type Pd: Send + Sync;
    /// The driver's part of an address handle.
    type Ah: Send + Sync;
    /// The driver's part of a shared receive queue.
    type Srq: Send + Sync;
    /// The driver's part of a completion queue.
    type Cq: Send + Sync;
    /// The driver's part of a queue pair.
    type Qp: Send + Sync;
    /// The driver's part of the answer to a change of it.
    type QpModified: IntoBytes + Immutable;
    /// The driver's part of a memory region.
    type Mr: Send + Sync;
    /// The driver's part of a memory window.
    type Mw: Send + Sync;
    /// The same of users in the kernel.
    type KernelPd: Send + Sync;
    /// See `KernelPd`.
    type KernelMr: Send + Sync;
    /// See `KernelPd`.
    type KernelCq: Polls + Send + Sync;
    /// See `KernelPd`.
    type KernelQp: Posts + Send + Sync;

    /// The name of devices, with `%d` for their number.
    const NAME: &'static CStr;
    /// The version of the driver's part of the commands, which a provider checks.
    const ABI: u32;
    /// Entries of the table of GIDs of a port of RoCE.
    const GIDS: u32;
    /// The names of the device's counters.
    const COUNTERS: &'static [&'static CStr];

    /// Limits of the device.
    fn device(data: &Self::Data) -> DeviceAttributes;

    /// State of the port.
    fn port(data: &Self::Data) -> PortAttributes;

    /// Reads the counters: a value for each name in [`Self::COUNTERS`].
    fn counters(data: &Self::Data, values: &mut [u64]) -> Result;

    /// A process opens the device.
    fn open(data: &Self::Data, udata: Udata<'_>) -> Result<Self::Context>;

    /// Calls `map` with the page of doorbells, which a process maps at offset 0. The device is not
    /// shut down before `map` returns.
    fn doorbells(context: &Self::Context, map: impl FnOnce(Frame) -> Result) -> Result;

    /// All objects of the file are destroyed, and its mappings taken away.
    fn close(context: Self::Context);

    /// Creates a protection domain.
    fn alloc_pd(context: &Self::Context, udata: Udata<'_>) -> Result<Self::Pd>;

    /// Destroys it.
    fn dealloc_pd(pd: Self::Pd);

    /// Creates an address handle.
    fn create_ah(context: &Self::Context, address: Address, udata: Udata<'_>) -> Result<Self::Ah>;

    /// Destroys it.
    fn destroy_ah(ah: Self::Ah);

    /// Creates a completion queue. Returns also its entries.
    fn create_cq(
        context: &Self::Context,
        request: CqRequest,
        events: Events<CqEvent>,
        udata: Udata<'_>,
    ) -> Result<(Self::Cq, u32)>;

    /// Makes it go on with at least so many entries. Returns also how many it has. May be called
    /// concurrently for one completion queue.
    fn resize_cq(cq: &Self::Cq, entries: u32, udata: Udata<'_>) -> Result<u32>;

    /// Destroys it. On return the device no longer accesses its memory, or the driver keeps that.
    fn destroy_cq(cq: Self::Cq);

    /// Creates a shared receive queue. Returns also how many receives it holds.
    fn create_srq(
        context: &Self::Context,
        pd: &Self::Pd,
        request: SrqRequest,
        events: Events<SrqEvent>,
        udata: Udata<'_>,
    ) -> Result<(Self::Srq, u32)>;

    /// Changes it, all or nothing. May be called concurrently for one queue.
    fn modify_srq(srq: &Self::Srq, change: SrqChange, udata: Udata<'_>) -> Result;

    /// What it is, and the limit; 0 if that has had its event.
    fn query_srq(srq: &Self::Srq) -> Result<(SrqRequest, u32)>;

    /// Destroys it, as [`Self::destroy_cq`].
    fn destroy_srq(srq: Self::Srq);

    /// Creates a queue pair, in [`QpState::Reset`]; with an SRQ, it has no receives of its own.
    /// Returns also its number.
    fn create_qp(
        context: &Self::Context,
        pd: &Self::Pd,
        cqs: (&Self::Cq, &Self::Cq),
        srq: Option<&Self::Srq>,
        request: QpRequest,
        events: Events<QpEvent>,
        udata: Udata<'_>,
    ) -> Result<(Self::Qp, u32)>;

    /// Changes it; returns the driver's part of the answer. Not called concurrently for one queue
    /// pair.
    fn modify_qp(qp: &Self::Qp, change: QpChange) -> Result<Self::QpModified>;

    /// The state that it is in now; of [`QpState::Sqd`] whether its send queue still drains.
    fn query_qp(qp: &Self::Qp) -> Result<(QpState, bool)>;

    /// Destroys it, as [`Self::destroy_cq`].
    fn destroy_qp(qp: Self::Qp);

    /// Makes it, of UD, a member of the group with this GID of multicast. No call of this and the two
    /// below is concurrent with another of the same queue pair, or with [`Self::modify_qp`].
    fn attach(qp: &Self::Qp, group: Gid) -> Result;

    /// The same again, of a member that has been in [`QpState::Reset`] since.
    fn attach_again(qp: &Self::Qp, group: Gid) -> Result;

    /// Ends that; also if the device has ended it.
    fn detach(qp: &Self::Qp, group: Gid);

    /// Adds the driver's details of a completion queue for `rdma resource`. Not concurrently with a
    /// destroy.
    fn cq_details(cq: &Self::Cq, details: &mut Details<'_>) -> Result;

    /// As [`Self::cq_details`], of a queue pair.
    fn qp_details(qp: &Self::Qp, details: &mut Details<'_>) -> Result;

    /// As [`Self::cq_details`], of a memory region.
    fn mr_details(mr: &Self::Mr, details: &mut Details<'_>) -> Result;

    /// Registers memory. Returns also its local and remote key.
    fn reg_mr(
        context: &Self::Context,
        pd: &Self::Pd,
        request: MrRequest,
        udata: Udata<'_>,
    ) -> Result<(Self::Mr, u32, u32)>;

    /// Changes it, to another domain too if `pd` is one. Not called concurrently for one region.
    fn rereg_mr(mr: &Self::Mr, change: MrChange, pd: Option<&Self::Pd>, udata: Udata<'_>)
        -> Result;

    /// Undoes it, as [`Self::destroy_cq`]; or fails, and gives it back: windows are bound to it. What is
    /// given back and dropped, after a register that is undone, goes with its domain.
    fn dereg_mr(mr: Self::Mr) -> Result<(), (Self::Mr, Error)>;

    /// Creates a memory window that is not bound. Returns also its key.
    fn alloc_mw(
        context: &Self::Context,
        pd: &Self::Pd,
        kind: MwType,
        udata: Udata<'_>,
    ) -> Result<(Self::Mw, u32)>;

    /// Destroys it, bound or not.
    fn dealloc_mw(mw: Self::Mw);

    /// Sets an entry of the port's table of GIDs; all zeroes empty it.
    fn set_gid(data: &Self::Data, index: u16, gid: Gid) -> Result;

    /// As [`Self::alloc_pd`], for a user in the kernel; so the others below.
    fn kernel_alloc_pd(data: &Self::Data) -> Result<Self::KernelPd>;

    /// Destroys it.
    fn kernel_dealloc_pd(pd: Self::KernelPd);

    /// Registers all memory that the device can access, by DMA addresses. Returns also its key.
    fn kernel_all_memory(pd: &Self::KernelPd, access: u32) -> Result<(Self::KernelMr, u32)>;

    /// Undoes it.
    fn kernel_dereg_mr(mr: Self::KernelMr);

    /// Creates a completion queue. Returns also its entries.
    fn kernel_create_cq(
        data: &Self::Data,
        request: CqRequest,
        events: Events<CqEvent>,
    ) -> Result<(Self::KernelCq, u32)>;

    /// Destroys it.
    fn kernel_destroy_cq(cq: Self::KernelCq);

    /// Creates a queue pair, named by `events` in its completions. Returns also its number.
    fn kernel_create_qp(
        pd: &Self::KernelPd,
        cqs: (&Self::KernelCq, &Self::KernelCq),
        request: QpRequest,
        events: Events<QpEvent>,
    ) -> Result<(Self::KernelQp, u32)>;

    /// Changes it.
    fn kernel_modify_qp(qp: &Self::KernelQp, change: QpChange) -> Result;

    /// As [`Self::query_qp`].
    fn kernel_query_qp(qp: &Self::KernelQp) -> Result<(QpState, bool)>;

    /// As [`Self::attach`].
    fn kernel_attach(qp: &Self::KernelQp, group: Gid) -> Result;

    /// As [`Self::attach_again`].
    fn kernel_attach_again(qp: &Self::KernelQp, group: Gid) -> Result;

    /// As [`Self::detach`].
    fn kernel_detach(qp: &Self::KernelQp, group: Gid);

    /// Destroys it. No completion of it is taken from now on.
    fn kernel_destroy_qp(qp: Self::KernelQp);
}
