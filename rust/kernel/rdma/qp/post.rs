// SPDX-License-Identifier: GPL-2.0

//! Work requests of kernel ULPs for a queue pair.

use super::{
    super::{
        ah::{
            CoreAh,
            UdAddress, //
        },
        cq::Operation,
        mr::CoreMr,
        prelude::*,
        recv, //
    },
    CoreQp,
    Operations, //
};
use core::iter;

/// The destination of a datagram.
#[derive(Clone, Copy, Debug)]
pub struct Destination {
    /// Of its address handle.
    pub address: UdAddress,
    /// The number of the queue pair.
    pub qpn: u32,
    /// The Q_Key of the queue pair.
    pub q_key: u32,
}

/// The memory that a fast registration memory region gets.
pub struct RegRequest<'a, T: Driver> {
    /// The region, whose pages are mapped.
    pub region: &'a T::Mr,
    /// Its key, with the ULP's tag.
    pub key: u32,
    /// Rights of the owner and of peers: `IB_ACCESS_*`.
    pub access: u32,
    /// The address of its first byte, by which it is accessed.
    pub addr: u64,
    /// Its length in bytes.
    pub bytes: u64,
}

/// A request of a send queue.
pub struct SendRequest<'a, T: Driver> {
    /// The ULP's own: `wr_id`.
    pub id: u64,
    /// SEND, RDMA, an atomic, or one of a region.
    pub operation: Operation,
    /// Immediate data, as it is in memory.
    pub imm: Option<u32>,
    /// The key that it invalidates: one of the peer with a SEND, else one of its own domain.
    pub invalidate: Option<u32>,
    /// What it registers.
    pub registration: Option<RegRequest<'a, T>>,
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
    /// Where a datagram goes; `None` of RC and UC.
    pub to: Option<Destination>,
    /// The local memory, in the order of the message.
    pub sges: &'a [recv::CoreSge],
}

/// # Safety
///
/// `raw` is a request that lives for `'a`, at any address, in a structure of the size of its operation,
/// that of [`ib_ud_wr`](bindings::ib_ud_wr) if `datagrams`.
unsafe fn send_request<'a, T: Driver>(
    raw: *const bindings::ib_send_wr,
    datagrams: bool,
) -> Result<SendRequest<'a, T>> {
    use bindings::{
        ib_wr_opcode_IB_WR_ATOMIC_CMP_AND_SWP as COMPARE_SWAP,
        ib_wr_opcode_IB_WR_ATOMIC_FETCH_AND_ADD as FETCH_ADD,
        ib_wr_opcode_IB_WR_LOCAL_INV as LOCAL_INV,
        ib_wr_opcode_IB_WR_RDMA_READ as READ,
        ib_wr_opcode_IB_WR_RDMA_WRITE as WRITE,
        ib_wr_opcode_IB_WR_RDMA_WRITE_WITH_IMM as WRITE_IMM,
        ib_wr_opcode_IB_WR_REG_MR as REG_MR,
        ib_wr_opcode_IB_WR_SEND as SEND,
        ib_wr_opcode_IB_WR_SEND_WITH_IMM as SEND_IMM,
        ib_wr_opcode_IB_WR_SEND_WITH_INV as SEND_INV, //
    };
    // SAFETY: By the caller's promise.
    let wr = unsafe { raw.read_unaligned() };
    // CAST: A set of bits.
    let flags = wr.send_flags as u32;
    let has = |flag: bindings::ib_send_flags| flags & flag as u32 != 0;
    // The memory of inline data would be an address of the kernel's.
    if has(bindings::ib_send_flags_IB_SEND_INLINE) {
        return Err(EINVAL);
    }
    let operation = match wr.opcode {
        SEND | SEND_IMM | SEND_INV => Operation::Send,
        WRITE | WRITE_IMM => Operation::Write,
        READ => Operation::Read,
        COMPARE_SWAP => Operation::CompareSwap,
        FETCH_ADD => Operation::FetchAdd,
        REG_MR => Operation::Register,
        LOCAL_INV => Operation::Invalidate,
        _ => return Err(EOPNOTSUPP),
    };
    let invalidates = matches!(wr.opcode, SEND_INV | LOCAL_INV);
    if datagrams && (operation != Operation::Send || invalidates) {
        return Err(EINVAL);
    }
    let with_imm = matches!(wr.opcode, SEND_IMM | WRITE_IMM);
    // SAFETY: By the caller's promise the request has the size of its operation, and its list of
    // pieces is valid; an address handle or a region of this device outlives the requests that name it.
    unsafe {
        let (remote, operands) = match operation {
            Operation::Send | Operation::Register | Operation::Invalidate => ((0, 0), (0, 0)),
            Operation::Write | Operation::Read => {
                let rdma = raw.cast::<bindings::ib_rdma_wr>().read_unaligned();
                ((rdma.remote_addr, rdma.rkey), (0, 0))
            }
            Operation::CompareSwap | Operation::FetchAdd => {
                let atomic = raw.cast::<bindings::ib_atomic_wr>().read_unaligned();
                let remote = (atomic.remote_addr, atomic.rkey);
                (remote, (atomic.compare_add, atomic.swap))
            }
        };
        let registration = match operation {
            Operation::Register => {
                let wr = raw.cast::<bindings::ib_reg_wr>().read_unaligned();
                Some(RegRequest {
                    region: &CoreMr::<T>::get(wr.mr).1,
                    key: wr.key,
                    // CAST: A set of bits.
                    access: wr.access as u32,
                    addr: (*wr.mr).iova,
                    bytes: (*wr.mr).length,
                })
            }
            _ => None,
        };
        let to = if datagrams {
            let ud = raw.cast::<bindings::ib_ud_wr>().read_unaligned();
            if ud.ah.is_null() {
                return Err(EINVAL);
            }
            Some(Destination {
                address: CoreAh::<T>::get(ud.ah).address()?,
                qpn: ud.remote_qpn,
                q_key: ud.remote_qkey,
            })
        } else {
            None
        };
        Ok(SendRequest {
            id: wr.__bindgen_anon_1.wr_id,
            operation,
            imm: with_imm.then_some(wr.ex.imm_data),
            invalidate: invalidates.then_some(wr.ex.invalidate_rkey),
            registration,
            signaled: has(bindings::ib_send_flags_IB_SEND_SIGNALED),
            solicited: has(bindings::ib_send_flags_IB_SEND_SOLICITED),
            fence: has(bindings::ib_send_flags_IB_SEND_FENCE),
            remote,
            operands,
            to,
            sges: recv::sges(wr.sg_list, wr.num_sge)?,
        })
    }
}

impl<T: Driver> Ops<T> {
    /// # Safety
    ///
    /// `qp` is live; `wr` is null or the first request of a list, each valid and of the size of its
    /// operation and service, with valid lists of SGEs, and live handles and regions; `bad` is to fill.
    pub(super) unsafe extern "C" fn post_send(
        qp: *mut bindings::ib_qp,
        wr: *const bindings::ib_send_wr,
        bad: *mut *const bindings::ib_send_wr,
    ) -> c_int {
        // SAFETY: `qp` is live.
        let ((_, _, part), service) = unsafe { (CoreQp::<T>::get(qp), (*qp).qp_type) };
        let datagrams = matches!(
            service,
            bindings::ib_qp_type_IB_QPT_UD | bindings::ib_qp_type_IB_QPT_GSI
        );
        let mut last = wr;
        // Pointers, since a request is larger than the structure that it begins with.
        let there = |wr: *const bindings::ib_send_wr| (!wr.is_null()).then_some(wr);
        // SAFETY: A request of the list.
        let list = iter::successors(there(wr), |wr| there(unsafe { wr.read_unaligned() }.next));
        let posted = part.post_send(list.map(|wr| {
            last = wr;
            // SAFETY: As above.
            unsafe { send_request::<T>(wr, datagrams) }
        }));
        // SAFETY: The caller fills `bad` by this.
        status(|| posted.inspect_err(|_| unsafe { *bad = last }))
    }

    /// # Safety
    ///
    /// `qp` is live; `wr` and `bad` are those of [`recv::post`].
    pub(super) unsafe extern "C" fn post_recv(
        qp: *mut bindings::ib_qp,
        wr: *const bindings::ib_recv_wr,
        bad: *mut *const bindings::ib_recv_wr,
    ) -> c_int {
        // SAFETY: `qp` is live.
        let (_, _, part) = unsafe { CoreQp::<T>::get(qp) };
        let post = |list: &mut recv::Receives<'_>| part.post_recv(list);
        // SAFETY: By the caller's promise.
        unsafe { recv::post(wr, bad, post) }
    }
}
