// SPDX-License-Identifier: GPL-2.0
//! The calls to the kernel.
//!
//! [`Kernel`] abstracts all of them: the calls, the doorbell page, the asynchronous events. A
//! program uses [`uverbs::File`](crate::uverbs::File); a test uses the device model instead, and
//! runs the library's data path in one process.
//!
//! A doorbell is a store to uncached memory; compared with that, the call through a trait object
//! costs nothing.

use std::fmt;
use std::os::fd::BorrowedFd;

use qpair_abi::counters::Counter;
use qpair_abi::Number;
use rustix::io::Errno;

/// What the device is and allows, and what this context may have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Attributes {
    /// Version of the programming model, major in the high 16 bits.
    pub model: u32,
    /// Queue pairs that this context may have.
    pub max_qp: u32,
    /// Completion queues that this context may have.
    pub max_cq: u32,
    /// Shared receive queues that this context may have.
    pub max_srq: u32,
    /// Memory regions that this context may have.
    pub max_mr: u32,
    /// Protection domains that this context may have.
    pub max_pd: u32,
    /// Most 64-byte blocks of an SQ.
    pub max_sq_blocks: u32,
    /// Most receives of an RQ or SRQ.
    pub max_rq_depth: u32,
    /// Most entries of a CQ.
    pub max_cq_depth: u32,
    /// Most SGEs of a send.
    pub max_send_sge: u32,
    /// Most SGEs of a receive.
    pub max_recv_sge: u32,
    /// Most bytes of inline data.
    pub max_inline: u32,
    /// Bytes of the largest message.
    pub max_message: u32,
    /// Bytes of the largest region.
    pub max_mr_bytes: u64,
    /// Vectors that a completion queue may choose from.
    pub vectors: u32,
    /// Whether the link is up.
    pub link_up: bool,
    /// The LID of the port; 0 if the port is one of RoCE, whose addresses are GIDs only.
    pub lid: u16,
    /// This context's doorbell page.
    pub doorbell_page: u32,
    /// How often the device was reset since the driver was bound.
    pub epoch: u32,
}

/// A completion queue, a shared receive queue or a queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Object {
    /// The kernel's name of it, for calls.
    pub handle: u32,
    /// The device's, for doorbells and entries.
    pub number: Number,
}

/// A completion queue to create.
#[derive(Clone, Copy, Debug)]
pub struct NewCq<'a> {
    /// The address of its ring, zeroed, aligned to a page.
    pub buffer: u64,
    /// Bytes of the ring.
    pub buffer_bytes: u64,
    /// Entries of the ring, a power of two.
    pub depth: u32,
    /// The vector that its events come by.
    pub vector: u32,
    /// The eventfd that is signaled at each event.
    pub eventfd: Option<BorrowedFd<'a>>,
}

/// A queue pair to create, in RESET.
#[derive(Clone, Copy, Debug)]
pub struct NewQp {
    /// Handle of the protection domain.
    pub pd: u32,
    /// The completion queue of its SQ.
    pub send_cq: Object,
    /// The completion queue of its RQ.
    pub recv_cq: Object,
    /// The address of its SQ, aligned to a page.
    pub sq_buffer: u64,
    /// Bytes of the SQ.
    pub sq_buffer_bytes: u64,
    /// The address of its RQ, aligned to a page.
    pub rq_buffer: u64,
    /// Bytes of the RQ.
    pub rq_buffer_bytes: u64,
    /// Blocks of the SQ.
    pub sq_blocks: u32,
    /// Receives of the RQ.
    pub rq_depth: u32,
    /// A receive takes `64 << rq_stride` bytes.
    pub rq_stride: u8,
    /// The SRQ in place of an RQ, whose fields are 0 then.
    pub srq: Option<Object>,
    /// The transport, and what it guarantees.
    pub qp_type: QpType,
}

/// A shared receive queue to create.
#[derive(Clone, Copy, Debug)]
pub struct NewSrq {
    /// Handle of the protection domain.
    pub pd: u32,
    /// The address of its ring, aligned to a page.
    pub buffer: u64,
    /// Bytes of the ring.
    pub buffer_bytes: u64,
    /// Its receives, a power of two.
    pub depth: u32,
    /// A receive takes `64 << stride` bytes.
    pub stride: u8,
}

/// The type of a queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QpType {
    /// It has one peer, with this service.
    Connected(Service),
    /// Unreliable datagrams: each request names its destination.
    Ud,
}

/// What a queue pair guarantees its peer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Service {
    /// Reliable connection: a request completes when the peer has acknowledged it, or fails.
    #[default]
    Rc,
    /// Unreliable connection: SENDs and WRITEs, which complete when they are sent. One that the
    /// peer cannot take is dropped.
    Uc,
}

/// Retries of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Retries {
    /// When the peer does not answer, 0 to 7.
    pub answer: u8,
    /// When the peer has no receive, 0 to 7; 7 is without end.
    pub receive: u8,
}

/// A change of a queue pair's state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// To RESET: what is posted is dropped.
    Reset,
    /// To INIT: the peer has these rights.
    Init {
        /// Bits of [`Access`](crate::Access).
        access: u32,
    },
    /// To RTR: the peer is this one.
    Rtr {
        /// Number of the peer's queue pair.
        peer: Number,
        /// The peer's port.
        at: Address,
        /// The service of both queue pairs.
        service: Service,
    },
    /// To RTS, with retries if the service is RC.
    Rts {
        /// Retries of requests, which UC does not have.
        retries: Retries,
        /// The service that the change to RTR had.
        service: Service,
    },
    /// To INIT, of UD: it receives what has this Q_Key.
    InitUd {
        /// The Q_Key that datagrams must have.
        q_key: u32,
    },
    /// To RTR, of UD: it executes receives.
    RtrUd,
    /// To RTS, of UD: it executes sends, too.
    RtsUd,
    /// To the error state, from any: all posted work is flushed.
    Error,
}

/// The CQs of a queue pair that was reset have no entry of it at or past these indices.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ResetAt {
    /// Of its send CQ.
    pub send_cq: u32,
    /// Of its receive CQ.
    pub recv_cq: u32,
}

/// The state of a queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QpState {
    /// Nothing can be posted.
    Reset,
    /// Receives may be posted.
    Init,
    /// Messages are received.
    Rtr,
    /// Sends are executed.
    Rts,
    /// The send queue drains.
    Sqd,
    /// All work is flushed.
    Error,
}

/// A queue pair, as it is now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QpAttributes {
    /// The state, which the device may have changed to ERROR.
    pub state: QpState,
    /// Number of the peer's queue pair, from RTR on.
    pub peer: Number,
    /// Bits of [`Access`](crate::Access) that the peer has.
    pub access: u32,
    /// Retries of requests, of RC.
    pub retries: Retries,
    /// The Q_Key, of UD.
    pub q_key: u32,
}

/// A GID, as in memory.
pub type Gid = [u8; 16];

/// The address of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Address {
    /// The LID of a port that is not of RoCE.
    Lid(u16),
    /// A GID of the port.
    Gid {
        /// GID of the destination's port.
        gid: Gid,
        /// Where the table of one's own port has the GID to send from. A port of RoCE needs it.
        source: u8,
    },
}

/// An address handle that was created: the address as work requests have it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Resolved {
    /// The kernel's name of the handle, for calls.
    pub handle: u32,
    /// GID of the destination's port; 0 if it cannot be reached.
    pub gid: Gid,
    /// Where the table of the port has the GID to send from.
    pub source: u16,
    /// Address of the network device that leads there.
    pub mac: [u8; 6],
}

/// A memory region to register.
#[derive(Clone, Copy, Debug)]
pub struct NewMr {
    /// Handle of the protection domain.
    pub pd: u32,
    /// Where it is; also the address that the device is given.
    pub addr: u64,
    /// Bytes of the region.
    pub bytes: u64,
    /// Bits of [`Access`](crate::Access).
    pub access: u32,
}

/// The keys of a memory region that was registered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Keys {
    /// The kernel's name of it, for calls.
    pub handle: u32,
    /// The key for the owner's SGEs.
    pub lkey: u32,
    /// The key to give to a peer.
    pub rkey: u32,
}

/// An asynchronous event of a context.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum AsyncEvent {
    /// A completion queue had no room; its queue pairs are in the error state.
    CqOverrun(Number),
    /// A queue pair went to the error state for a cause that no completion reports.
    QpFatal(Number),
    /// A queue pair went to the error state for a request of its peer to memory that this one may
    /// not access.
    QpAccess(Number),
    /// A queue pair went to the error state for an invalid request of its peer.
    QpRequest(Number),
    /// Fewer receives are left in a shared receive queue than its limit.
    SrqLimit(Number),
    /// The memory of a shared receive queue cannot be read: its queue pairs fail as they need it.
    SrqFatal(Number),
    /// A queue pair on a shared receive queue is in the error state, and no receive of it completes
    /// any more.
    LastReceive(Number),
    /// The device was removed or reset: this context is dead, open the device anew.
    DeviceFatal,
    /// One that this version does not know.
    Other(u32),
}

impl fmt::Display for AsyncEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::CqOverrun(cq) => write!(f, "completion queue {cq} had no room"),
            Self::QpFatal(qp) => write!(f, "queue pair {qp} is in error"),
            Self::QpAccess(qp) => write!(f, "the peer of queue pair {qp} lacks a right"),
            Self::QpRequest(qp) => write!(f, "the peer of queue pair {qp} made no valid request"),
            Self::SrqLimit(srq) => {
                write!(
                    f,
                    "shared receive queue {srq} has fewer receives than its limit"
                )
            }
            Self::SrqFatal(srq) => write!(f, "shared receive queue {srq} cannot be read"),
            Self::LastReceive(qp) => write!(f, "queue pair {qp} takes no more receives"),
            Self::DeviceFatal => f.write_str("the device was removed or reset: open it anew"),
            Self::Other(kind) => write!(f, "event {kind} of the RDMA core"),
        }
    }
}

/// The device's counters, in the order of [`Counter::ALL`].
pub type CounterValues = [u64; Counter::COUNT];

/// The kernel, or a model of it.
pub trait Kernel: Send + Sync + fmt::Debug {
    /// Limits, versions and the link.
    fn query(&self) -> Result<Attributes, Errno>;

    /// The device's counters, none older than the call.
    fn counters(&self) -> Result<CounterValues, Errno>;

    /// Creates a protection domain; returns its handle.
    fn alloc_pd(&self) -> Result<u32, Errno>;

    /// Deallocates a protection domain, in which nothing is left.
    fn dealloc_pd(&self, pd: u32) -> Result<(), Errno>;

    /// Creates a completion queue; returns also its entries. The memory stays mapped until it is
    /// destroyed.
    fn create_cq(&self, cq: &NewCq<'_>) -> Result<(Object, u32), Errno>;

    /// Destroys a completion queue, which no queue pair uses.
    fn destroy_cq(&self, cq: Object) -> Result<(), Errno>;

    /// Creates a shared receive queue. The memory stays mapped until it is destroyed.
    fn create_srq(&self, srq: &NewSrq) -> Result<Object, Errno>;

    /// Arms a shared receive queue: an event comes once fewer than `limit` receives are left.
    fn arm_srq(&self, srq: Object, limit: u32) -> Result<(), Errno>;

    /// Its limit, as it is now.
    fn query_srq(&self, srq: Object) -> Result<u32, Errno>;

    /// Destroys a shared receive queue, which no queue pair uses.
    fn destroy_srq(&self, srq: Object) -> Result<(), Errno>;

    /// Creates a queue pair. The memory stays mapped until it is destroyed.
    fn create_qp(&self, qp: &NewQp) -> Result<Object, Errno>;

    /// Changes its state. The result is of a change to RESET.
    fn modify_qp(&self, qp: Object, change: Change) -> Result<ResetAt, Errno>;

    /// Its state, its peer, and what the peer may do.
    fn query_qp(&self, qp: Object) -> Result<QpAttributes, Errno>;

    /// Destroys a queue pair; the device does not access its rings any more.
    fn destroy_qp(&self, qp: Object) -> Result<(), Errno>;

    /// An entry of the port's table of GIDs; 0 if it is empty.
    fn gid(&self, index: u8) -> Result<Gid, Errno>;

    /// Creates an address handle in a domain.
    fn create_ah(&self, pd: u32, address: Address) -> Result<Resolved, Errno>;

    /// Destroys an address handle; its address stays valid.
    fn destroy_ah(&self, handle: u32) -> Result<(), Errno>;

    /// Registers memory, which stays mapped until the region ends.
    fn reg_mr(&self, mr: &NewMr) -> Result<Keys, Errno>;

    /// Deregisters a memory region; the device does not access its memory any more.
    fn dereg_mr(&self, mr: u32) -> Result<(), Errno>;

    /// Writes a doorbell: `value` at `offset` of the context's page. The caller has ordered it
    /// after the entries that it submits.
    fn doorbell(&self, offset: u64, value: u64);

    /// Takes an asynchronous event, without waiting.
    fn async_event(&self) -> Result<Option<AsyncEvent>, Errno>;

    /// The descriptor to wait on for asynchronous events.
    fn async_fd(&self) -> Option<BorrowedFd<'_>>;
}
