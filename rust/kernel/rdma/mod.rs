// SPDX-License-Identifier: GPL-2.0

//! RDMA devices: what a driver of the RDMA core implements, without unsafe code.
//!
//! C headers: [`include/rdma/ib_verbs.h`](srctree/include/rdma/ib_verbs.h),
//! [`include/rdma/uverbs_ioctl.h`](srctree/include/rdma/uverbs_ioctl.h)
//!
//! A driver implements [`Driver`], and for each object the trait `Operations` of its file, and registers
//! them with [`Registration::new`]. The RDMA core allocates the objects; each has place for the driver's
//! part of it, which is written when the object is created and moved out when it is destroyed:
//!
//! ```text
//!   struct ib_device   | Driver::Data      device   registered ... unregistered
//!   struct ib_ucontext | Driver::Context   context  an open file of /dev/infiniband/uverbsN
//!   struct ib_pd       | Driver::Pd        pd       \
//!   struct ib_ah       | Driver::Ah        ah        |
//!   struct ib_srq      | Driver::Srq       srq       | of a process, by handle of a file:
//!   struct ib_cq       | Driver::Cq        cq        | destroyed with it, or when the device
//!   struct ib_qp       | Driver::Qp        qp        | is unregistered; or of a kernel ULP
//!   struct ib_mr       | Driver::Mr        mr        |
//!   struct ib_mw       | Driver::Mw        mw       /
//! ```
//!
//! Each file has the trait, the requests, the events and the operations in C of its object.
//!
//! # What the core guarantees
//!
//! - Creates and destroys of one object do not overlap with any other operation on it. Other
//!   operations may run concurrently, so a driver's part is shared and [`Sync`].
//! - An object is destroyed before those that it was created on: a QP before its PD, CQs and SRQ,
//!   an SRQ, MR or MW before its PD. An MR may be changed to another PD; its key stays.
//! - All objects of a process are of one file; a kernel ULP creates objects on its own.
//! - Unregistering destroys all objects of all files and takes their mappings away. It waits for
//!   operations that run, and so for page faults of processes: it is done in the background, see
//!   [`Registration`]. A destroy cannot fail, but that of an MR with bound MWs.
//!
//! What the core does not, and should, is in `missing`.
//!
//! # Errors
//!
//! A process or a kernel ULP gets the errno of an operation. Any operation that needs the device may fail
//! without it: for a process with `EIO`, or with `ENODEV` if it is gone, for a ULP with `ENETDOWN`; and
//! with `EIO` if the device fails. With a [`Udata`] it may fail as the copies of that do. A create may
//! fail with `ENOMEM`; with `ENOSPC` if there are no more objects; for a process also with `EDQUOT` if
//! it has its share, with `EINTR` if it was killed, and with `EFAULT`, `EOVERFLOW` or `EOPNOTSUPP` if
//! its memory cannot be pinned, as may a change that pins memory. Each operation names the others.
//!
//! # Events
//!
//! The poll of a driver runs in BH and names core objects. It does so by an [`Events`], which the
//! driver gets at creation and may share. Before the core frees an object its `Events` are cut off,
//! also if the driver still has a reference. A [`WorkCompletion`] names its queue pair in the same way, and
//! [`Completions`] bounds and counts them: no driver can put one of a queue pair that is cut off, or more
//! than there is room for.

pub mod ah;
mod armed;
mod bindings;
pub mod context;
pub mod cq;
mod details;
mod device;
mod event;
mod missing;
pub mod mr;
pub mod mw;
mod netdev;
mod object;
pub mod pd;
mod port;
mod prelude;
pub mod qp;
mod recv;
pub mod srq;
mod udata;
pub mod unread;

pub use self::{
    ah::UdAddress,
    armed::Armed,
    bindings::{
        ib_device_attr as DeviceAttributes,
        ib_srq_attr as SrqAttributes, //
    },
    context::Caller,
    cq::{
        Completed,
        Completions,
        CqRequest,
        Operation, //
        WorkCompletion,
    },
    details::Details,
    device::{
        Config,
        Registrar,
        Registration, //
    },
    event::{
        CqEvent,
        Events,
        PortEvent,
        QpEvent,
        SrqEvent,
        Target, //
    },
    mr::{
        MrChange,
        MrRequest,
        Scatterlist, //
    },
    mw::MwType,
    port::{
        Gid,
        PortAttributes, //
    },
    qp::{
        Destination,
        QpChange,
        QpPath,
        QpRequest,
        QpState,
        SendRequest,
        Service, //
    },
    recv::{
        CoreSge,
        RecvRequest, //
    },
    srq::{
        SrqChange,
        SrqRequest, //
    },
    udata::Udata, //
};

use kernel::{
    prelude::*,
    ModuleMetadata, //
};

/// A driver of the RDMA core with one port: of link layer InfiniBand, without management datagrams,
/// or of RoCE v2.
///
/// All operations run in process context and may sleep, unless they say otherwise.
pub trait Driver: Sized + 'static {
    /// Shared by all operations.
    type Data: Send + Sync;
    /// The driver's part of an open file.
    type Context: context::Operations<Self>;
    /// That of a protection domain.
    type Pd: pd::Operations<Self>;
    /// An address handle of a process.
    type Ah: ah::Operations<Self>;
    /// A shared receive queue.
    type Srq: srq::Operations<Self>;
    /// That of a completion queue.
    type Cq: cq::Operations<Self>;
    /// That of a queue pair.
    type Qp: qp::Operations<Self>;
    /// That of a memory region.
    type Mr: mr::Operations<Self>;
    /// That of a memory window.
    type Mw: mw::Operations<Self>;

    /// The module that has the driver, which may not be unloaded while a device is open.
    type OwnerModule: ModuleMetadata;
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

    /// State of the port, and its limits.
    fn port(data: &Self::Data) -> PortAttributes;

    /// Reads the counters: a value for each name in [`Self::COUNTERS`].
    ///
    /// # Errors
    ///
    /// Those of [all operations](self#errors) of a ULP.
    fn counters(data: &Self::Data, values: &mut [u64]) -> Result;

    /// Sets an entry of the port's table of GIDs; all zeroes empty it.
    ///
    /// # Errors
    ///
    /// As of [`Self::counters`].
    fn set_gid(data: &Self::Data, index: u16, gid: Gid) -> Result;
}
