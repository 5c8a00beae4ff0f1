// SPDX-License-Identifier: GPL-2.0

//! Work requests and completions of users in the kernel.

use super::{
    bindings,
    events::{
        Events,
        QpEvent, //
    },
    ops::{
        errno,
        Ah,
        Cq,
        Ops,
        Qp, //
    },
    registration::PORT,
    Driver, //
};
use core::marker::PhantomData;
use kernel::prelude::*;

/// A piece of memory of a work request.
#[derive(Clone, Copy, Debug)]
pub struct Piece {
    /// Its DMA address, or that in the region of the key.
    pub addr: u64,
    /// Its length.
    pub bytes: u32,
    /// The key.
    pub lkey: u32,
}

/// The pieces of a work request.
#[derive(Clone, Copy)]
pub struct Pieces<'a>(&'a [bindings::ib_sge]);

impl<'a> Pieces<'a> {
    /// # Safety
    ///
    /// `list` has `count` pieces for `'a`.
    unsafe fn new(list: *const bindings::ib_sge, count: c_int) -> Result<Self> {
        let count = usize::try_from(count).map_err(|_| EINVAL)?;
        if count == 0 {
            return Ok(Self(&[]));
        }
        if list.is_null() {
            return Err(EINVAL);
        }
        // SAFETY: By the caller's promise.
        Ok(Self(unsafe { core::slice::from_raw_parts(list, count) }))
    }

    /// How many.
    #[inline]
    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// All of them.
    #[inline]
    pub fn iter(&self) -> impl Iterator<Item = Piece> + 'a {
        self.0.iter().map(|sge| Piece {
            addr: sge.addr,
            bytes: sge.length,
            lkey: sge.lkey,
        })
    }
}

/// Operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Fills a receive of the peer.
    Send,
    /// Writes the peer's memory.
    Write,
    /// Reads it.
    Read,
    /// Compares and swaps 8 bytes of it.
    CompareSwap,
    /// Adds to 8 bytes of it.
    FetchAdd,
}

/// Where the datagrams of an address handle go.
#[derive(Clone, Copy, Debug)]
pub struct UdAddress {
    /// GID of the destination's port, in words of memory.
    pub gid: [u64; 2],
    /// The index of the GID that they are sent from.
    pub source: u16,
    /// Hop limit of their header.
    pub hop_limit: u8,
    /// Traffic class of their header.
    pub traffic_class: u8,
    /// Flow label of their header, 20 bits.
    pub flow_label: u32,
}

/// The destination of a datagram.
#[derive(Clone, Copy, Debug)]
pub struct Destination {
    /// Of its address handle.
    pub address: UdAddress,
    /// The queue pair.
    pub qpn: u32,
    /// Its Q_Key.
    pub q_key: u32,
}

/// A request of a send queue.
#[derive(Clone, Copy)]
pub struct SendRequest<'a> {
    /// The user's own.
    pub id: u64,
    /// What to do.
    pub operation: Operation,
    /// Immediate data, as it is in memory.
    pub imm: Option<u32>,
    /// Whether it asks for a completion.
    pub signaled: bool,
    /// Whether the peer's completion is solicited.
    pub solicited: bool,
    /// Whether it waits for READs and atomics before it.
    pub fence: bool,
    /// Address and key of the peer's memory.
    pub remote: (u64, u32),
    /// The operands of an atomic.
    pub operands: (u64, u64),
    /// Of a datagram.
    pub to: Option<Destination>,
    /// Its data.
    pub pieces: Pieces<'a>,
}

/// A receive.
#[derive(Clone, Copy)]
pub struct RecvRequest<'a> {
    /// The user's own.
    pub id: u64,
    /// Where it goes.
    pub pieces: Pieces<'a>,
}

/// What was completed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Completed {
    /// A request of the send queue.
    Sent(Operation),
    /// A receive that a SEND has filled.
    Received,
    /// A receive that a WRITE has taken.
    Written,
}

/// A completion.
pub struct Completion<'a> {
    /// The user's own.
    pub id: u64,
    /// What it was.
    pub what: Completed,
    /// How it went: `enum ib_wc_status`.
    pub status: u8,
    /// The driver's detail.
    pub vendor: u8,
    /// Bytes that were received or read.
    pub bytes: u32,
    /// Immediate data.
    pub imm: Option<u32>,
    /// The sender of a datagram. The receive begins with its GRH.
    pub from: Option<u32>,
    /// Its queue pair.
    pub qp: &'a Events<QpEvent>,
}

/// Room for the completions of a poll.
pub struct Completions<'a> {
    next: *mut bindings::ib_wc,
    left: usize,
    memory: PhantomData<&'a mut bindings::ib_wc>,
}

impl Completions<'_> {
    /// Whether there is none left.
    #[inline]
    pub fn is_full(&self) -> bool {
        self.left == 0
    }

    /// Gives a completion to the poller. One of a queue pair that is being destroyed is dropped, as one
    /// for which there is no room.
    pub fn put(&mut self, completion: &Completion<'_>) {
        if self.is_full() {
            return;
        }
        let put = completion.qp.with(|qp| {
            // SAFETY: There is room for as many as are left.
            unsafe { completion.fill(&mut *self.next, qp) };
        });
        if put {
            // SAFETY: As above: it is at most one past the last.
            self.next = unsafe { self.next.add(1) };
            self.left -= 1;
        }
    }
}

/// A queue pair to which its user in the kernel posts. Any context.
pub trait Posts {
    /// Posts requests, until one is refused or an error.
    ///
    /// # Errors
    ///
    /// Of the first that is not posted: `EINVAL`, `ENOMEM` if the queue is full.
    fn post_send<'a>(&self, requests: impl Iterator<Item = Result<SendRequest<'a>>>) -> Result;

    /// The same of receives.
    ///
    /// # Errors
    ///
    /// As of [`Self::post_send`].
    fn post_recv<'a>(&self, requests: impl Iterator<Item = Result<RecvRequest<'a>>>) -> Result;
}

/// A completion queue that its user in the kernel polls. Any context.
pub trait Polls {
    /// Takes completions as long as there is room.
    fn poll(&self, into: &mut Completions<'_>);

    /// Asks for an event of the next completion, or of the next that is solicited or failed.
    /// Returns whether there is a completion that may have caused none.
    fn notify(&self, solicited: bool) -> bool;
}

/// The send requests of a list.
struct SendList<'a, T> {
    next: *const bindings::ib_send_wr,
    /// The one that was taken last.
    last: *const bindings::ib_send_wr,
    datagrams: bool,
    list: PhantomData<&'a bindings::ib_send_wr>,
    driver: PhantomData<fn() -> T>,
}

impl<'a, T: Driver> Iterator for SendList<'a, T> {
    type Item = Result<SendRequest<'a>>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.next.is_null() {
            return None;
        }
        self.last = self.next;
        // SAFETY: The caller of the operation gives a list of requests, each of which is of the
        // size of its operation.
        unsafe {
            self.next = (*self.last).next;
            Some(send_request::<T>(self.last, self.datagrams))
        }
    }
}

/// # Safety
///
/// `raw` is a request of a list, and an [`ib_ud_wr`](bindings::ib_ud_wr) if `datagrams`.
unsafe fn send_request<'a, T: Driver>(
    raw: *const bindings::ib_send_wr,
    datagrams: bool,
) -> Result<SendRequest<'a>> {
    use bindings::{
        ib_wr_opcode_IB_WR_ATOMIC_CMP_AND_SWP as COMPARE_SWAP,
        ib_wr_opcode_IB_WR_ATOMIC_FETCH_AND_ADD as FETCH_ADD,
        ib_wr_opcode_IB_WR_RDMA_READ as READ,
        ib_wr_opcode_IB_WR_RDMA_WRITE as WRITE,
        ib_wr_opcode_IB_WR_RDMA_WRITE_WITH_IMM as WRITE_IMM,
        ib_wr_opcode_IB_WR_SEND as SEND,
        ib_wr_opcode_IB_WR_SEND_WITH_IMM as SEND_IMM, //
    };
    // SAFETY: By the caller's promise.
    let wr = unsafe { &*raw };
    // CAST: A set of bits.
    let flags = wr.send_flags as u32;
    let has = |flag: bindings::ib_send_flags| flags & flag as u32 != 0;
    // The memory of inline data would be an address of the kernel's.
    if has(bindings::ib_send_flags_IB_SEND_INLINE) {
        return Err(EINVAL);
    }
    let operation = match wr.opcode {
        SEND | SEND_IMM => Operation::Send,
        WRITE | WRITE_IMM => Operation::Write,
        READ => Operation::Read,
        COMPARE_SWAP => Operation::CompareSwap,
        FETCH_ADD => Operation::FetchAdd,
        _ => return Err(EOPNOTSUPP),
    };
    if datagrams && operation != Operation::Send {
        return Err(EINVAL);
    }
    let with_imm = matches!(wr.opcode, SEND_IMM | WRITE_IMM);
    // SAFETY: By the caller's promise the request has the size of its operation, and its list of
    // pieces is valid; an address handle of this device outlives the requests that name it.
    unsafe {
        let (remote, operands) = match operation {
            Operation::Send => ((0, 0), (0, 0)),
            Operation::Write | Operation::Read => {
                let rdma = &*raw.cast::<bindings::ib_rdma_wr>();
                ((rdma.remote_addr, rdma.rkey), (0, 0))
            }
            Operation::CompareSwap | Operation::FetchAdd => {
                let atomic = &*raw.cast::<bindings::ib_atomic_wr>();
                let remote = (atomic.remote_addr, atomic.rkey);
                (remote, (atomic.compare_add, atomic.swap))
            }
        };
        let to = if datagrams {
            let ud = &*raw.cast::<bindings::ib_ud_wr>();
            if ud.ah.is_null() {
                return Err(EINVAL);
            }
            Some(Destination {
                address: *Ah::<T>::get(ud.ah).kernel()?,
                qpn: ud.remote_qpn,
                q_key: ud.remote_qkey,
            })
        } else {
            None
        };
        Ok(SendRequest {
            id: *wr.__bindgen_anon_1.wr_id.as_ref(),
            operation,
            imm: with_imm.then(|| *wr.ex.imm_data.as_ref()),
            signaled: has(bindings::ib_send_flags_IB_SEND_SIGNALED),
            solicited: has(bindings::ib_send_flags_IB_SEND_SOLICITED),
            fence: has(bindings::ib_send_flags_IB_SEND_FENCE),
            remote,
            operands,
            to,
            pieces: Pieces::new(wr.sg_list, wr.num_sge)?,
        })
    }
}

/// The receives of a list.
struct RecvList<'a> {
    next: *const bindings::ib_recv_wr,
    last: *const bindings::ib_recv_wr,
    list: PhantomData<&'a bindings::ib_recv_wr>,
}

impl<'a> Iterator for RecvList<'a> {
    type Item = Result<RecvRequest<'a>>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.next.is_null() {
            return None;
        }
        self.last = self.next;
        // SAFETY: The caller of the operation gives a list of receives.
        unsafe {
            let wr = &*self.last;
            self.next = wr.next;
            let pieces = match Pieces::new(wr.sg_list, wr.num_sge) {
                Ok(pieces) => pieces,
                Err(error) => return Some(Err(error)),
            };
            let id = *wr.__bindgen_anon_1.wr_id.as_ref();
            Some(Ok(RecvRequest { id, pieces }))
        }
    }
}

/// An object of a process, or of the kernel.
pub(super) enum Side<P, K> {
    Process(P),
    Kernel(K),
}

impl<P, K> Side<P, K> {
    /// That of a process.
    pub(super) fn process(&self) -> Result<&P> {
        match self {
            Self::Process(part) => Ok(part),
            Self::Kernel(_) => Err(EOPNOTSUPP),
        }
    }

    /// That of the kernel.
    pub(super) fn kernel(&self) -> Result<&K> {
        match self {
            Self::Kernel(part) => Ok(part),
            Self::Process(_) => Err(EOPNOTSUPP),
        }
    }
}

impl Completion<'_> {
    fn fill(&self, wc: &mut bindings::ib_wc, qp: *mut bindings::ib_qp) {
        let imm = self.imm.map_or(0, |_| bindings::ib_wc_flags_IB_WC_WITH_IMM);
        let grh = self.from.map_or(0, |_| {
            bindings::ib_wc_flags_IB_WC_GRH | bindings::ib_wc_flags_IB_WC_WITH_NETWORK_HDR_TYPE
        });
        *wc = bindings::ib_wc {
            status: self.status.into(),
            opcode: match self.what {
                Completed::Sent(Operation::Send) => bindings::ib_wc_opcode_IB_WC_SEND,
                Completed::Sent(Operation::Write) => bindings::ib_wc_opcode_IB_WC_RDMA_WRITE,
                Completed::Sent(Operation::Read) => bindings::ib_wc_opcode_IB_WC_RDMA_READ,
                Completed::Sent(Operation::CompareSwap) => bindings::ib_wc_opcode_IB_WC_COMP_SWAP,
                Completed::Sent(Operation::FetchAdd) => bindings::ib_wc_opcode_IB_WC_FETCH_ADD,
                Completed::Received => bindings::ib_wc_opcode_IB_WC_RECV,
                Completed::Written => bindings::ib_wc_opcode_IB_WC_RECV_RDMA_WITH_IMM,
            },
            vendor_err: self.vendor.into(),
            byte_len: self.bytes,
            qp,
            src_qp: self.from.unwrap_or(0),
            // CAST: A set of bits.
            wc_flags: (imm | grh) as c_int,
            port_num: PORT,
            // CAST: A small constant.
            network_hdr_type: bindings::rdma_network_type_RDMA_NETWORK_IPV6 as u8,
            ..Default::default()
        };
        // SAFETY: Plain numbers.
        unsafe {
            *wc.__bindgen_anon_1.wr_id.as_mut() = self.id;
            *wc.ex.imm_data.as_mut() = self.imm.unwrap_or(0);
        }
    }
}

impl<T: Driver> Ops<T> {
    /// # Safety
    ///
    /// Called by a user in the kernel.
    pub(super) unsafe extern "C" fn post_send(
        qp: *mut bindings::ib_qp,
        wr: *const bindings::ib_send_wr,
        bad: *mut *const bindings::ib_send_wr,
    ) -> c_int {
        // SAFETY: A queue pair of this driver, and a list of requests of its service.
        unsafe {
            let (_, _, side) = Qp::<T>::get(qp);
            let mut list = SendList::<T> {
                next: wr,
                last: wr,
                datagrams: matches!(
                    (*qp).qp_type,
                    bindings::ib_qp_type_IB_QPT_UD | bindings::ib_qp_type_IB_QPT_GSI
                ),
                list: PhantomData,
                driver: PhantomData,
            };
            let posted = side.kernel().and_then(|part| part.post_send(&mut list));
            if posted.is_err() {
                *bad = list.last;
            }
            errno(posted)
        }
    }

    /// # Safety
    ///
    /// Called by a user in the kernel.
    pub(super) unsafe extern "C" fn post_recv(
        qp: *mut bindings::ib_qp,
        wr: *const bindings::ib_recv_wr,
        bad: *mut *const bindings::ib_recv_wr,
    ) -> c_int {
        // SAFETY: As above.
        unsafe {
            let (_, _, side) = Qp::<T>::get(qp);
            let mut list = RecvList {
                next: wr,
                last: wr,
                list: PhantomData,
            };
            let posted = side.kernel().and_then(|part| part.post_recv(&mut list));
            if posted.is_err() {
                *bad = list.last;
            }
            errno(posted)
        }
    }

    /// # Safety
    ///
    /// Called by a user in the kernel.
    pub(super) unsafe extern "C" fn poll_cq(
        cq: *mut bindings::ib_cq,
        most: c_int,
        wc: *mut bindings::ib_wc,
    ) -> c_int {
        // SAFETY: A queue of this driver, and room for `most` completions.
        let taken = unsafe {
            let (_, side) = Cq::<T>::get(cq);
            let most = usize::try_from(most).unwrap_or(0);
            let mut room = Completions {
                next: wc,
                left: most,
                memory: PhantomData,
            };
            side.kernel().map(|part| {
                part.poll(&mut room);
                most.saturating_sub(room.left)
            })
        };
        match taken {
            // CAST: At most `most`.
            Ok(count) => count as c_int,
            Err(error) => error.to_errno(),
        }
    }

    /// # Safety
    ///
    /// Called by a user in the kernel; or by the core for a process, whose CQ takes doorbells on the
    /// page of the process alone: then it does nothing, and the core ignores the result.
    pub(super) unsafe extern "C" fn req_notify_cq(
        cq: *mut bindings::ib_cq,
        flags: bindings::ib_cq_notify_flags,
    ) -> c_int {
        let has = |flag: bindings::ib_cq_notify_flags| flags & flag != 0;
        let solicited = flags & bindings::ib_cq_notify_flags_IB_CQ_SOLICITED_MASK
            == bindings::ib_cq_notify_flags_IB_CQ_SOLICITED;
        // SAFETY: A queue of this driver.
        let missed = unsafe {
            let (_, side) = Cq::<T>::get(cq);
            side.kernel().map(|part| part.notify(solicited))
        };
        match missed {
            Ok(missed) => {
                (missed && has(bindings::ib_cq_notify_flags_IB_CQ_REPORT_MISSED_EVENTS)).into()
            }
            Err(error) => error.to_errno(),
        }
    }

    /// # Safety
    ///
    /// Called by a user in the kernel. Any context.
    pub(super) unsafe extern "C" fn create_ah(
        ah: *mut bindings::ib_ah,
        init: *mut bindings::rdma_ah_init_attr,
        _udata: *mut bindings::ib_udata,
    ) -> c_int {
        // SAFETY: A handle of this driver's size, and its attributes.
        unsafe {
            let attr = &*(*init).ah_attr;
            if u32::from(attr.ah_flags) & bindings::ib_ah_flags_IB_AH_GRH == 0 {
                return EINVAL.to_errno();
            }
            let raw: [u8; 16] = *attr.grh.dgid.raw.as_ref();
            let both = u128::from_le_bytes(raw);
            let address = UdAddress {
                // CAST: Its halves.
                gid: [both as u64, (both >> 64) as u64],
                source: attr.grh.sgid_index.into(),
                hop_limit: attr.grh.hop_limit,
                traffic_class: attr.grh.traffic_class,
                flow_label: attr.grh.flow_label,
            };
            Ah::<T>::put(ah, Side::Kernel(address));
            0
        }
    }
}
