// SPDX-License-Identifier: GPL-2.0
//! `ibv_wr_*()`: operations of extended queue pairs.

use std::ffi::{c_int, c_void};

use qpair_abi::entry::{Sge, BLOCK_BYTES, MAX_BLOCKS};

use super::bindings::*;
use super::errno;
use super::post::{address, atomic, bind, invalidation, of, request, sges, whole};
use crate::flush::Flush;
use crate::request::{Payload, Request};

/// Sets the operations of `ibv_wr_*()` that the program asked for.
///
/// # Safety
///
/// The queue pair is one of this provider.
#[no_mangle]
pub unsafe extern "C" fn qpair_data_qp_extend(qp: *mut ibv_qp_ex, operations: u64) {
    // SAFETY: By the caller's promise.
    let qp = unsafe { &mut *qp };
    let asked = |flag: u32| operations & u64::from(flag) != 0;
    // SAFETY: By the caller's promise.
    let is_ud = unsafe { of(&raw mut *qp) }.is_ud();
    qp.wr_start = Some(wr_start);
    qp.wr_complete = Some(wr_complete);
    qp.wr_abort = Some(wr_abort);
    qp.wr_set_sge = Some(wr_set_sge);
    qp.wr_set_sge_list = Some(wr_set_sge_list);
    qp.wr_set_inline_data = Some(wr_set_inline_data);
    qp.wr_set_inline_data_list = Some(wr_set_inline_data_list);
    if is_ud {
        qp.wr_set_ud_addr = Some(wr_set_ud_addr);
        if asked(IBV_QP_EX_WITH_SEND) {
            qp.wr_send = Some(wr_send_ud);
        }
        if asked(IBV_QP_EX_WITH_SEND_WITH_IMM) {
            qp.wr_send_imm = Some(wr_send_imm_ud);
        }
        return;
    }
    if asked(IBV_QP_EX_WITH_SEND) {
        qp.wr_send = Some(wr_send);
    }
    if asked(IBV_QP_EX_WITH_SEND_WITH_IMM) {
        qp.wr_send_imm = Some(wr_send_imm);
    }
    if asked(IBV_QP_EX_WITH_RDMA_WRITE) {
        qp.wr_rdma_write = Some(wr_rdma_write);
    }
    if asked(IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM) {
        qp.wr_rdma_write_imm = Some(wr_rdma_write_imm);
    }
    if asked(IBV_QP_EX_WITH_RDMA_READ) {
        qp.wr_rdma_read = Some(wr_rdma_read);
    }
    if asked(IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP) {
        qp.wr_atomic_cmp_swp = Some(wr_atomic_cmp_swp);
    }
    if asked(IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD) {
        qp.wr_atomic_fetch_add = Some(wr_atomic_fetch_add);
    }
    if asked(IBV_QP_EX_WITH_FLUSH) {
        qp.wr_flush = Some(wr_flush);
    }
    if asked(IBV_QP_EX_WITH_ATOMIC_WRITE) {
        qp.wr_atomic_write = Some(wr_atomic_write);
    }
    if asked(IBV_QP_EX_WITH_SEND_WITH_INV) {
        qp.wr_send_inv = Some(wr_send_inv);
    }
    if asked(IBV_QP_EX_WITH_LOCAL_INV) {
        qp.wr_local_inv = Some(wr_local_inv);
    }
    if asked(IBV_QP_EX_WITH_BIND_MW) {
        qp.wr_bind_mw = Some(wr_bind_mw);
    }
}

unsafe extern "C" fn wr_start(qp: *mut ibv_qp_ex) {
    // SAFETY: A queue pair of this provider.
    unsafe { of(qp) }.start();
}

unsafe extern "C" fn wr_complete(qp: *mut ibv_qp_ex) -> c_int {
    // SAFETY: A queue pair of this provider, in the program's critical region.
    unsafe { of(qp).complete() }.map_or_else(errno, |()| 0)
}

unsafe extern "C" fn wr_abort(qp: *mut ibv_qp_ex) {
    // SAFETY: As in `wr_complete`.
    unsafe { of(qp).abort() }
}

/// Begins a request, with the identifier and the flags that the program has set.
///
/// # Safety
///
/// A queue pair of this provider, in the program's critical region.
#[inline(always)]
unsafe fn begin(
    qp: *mut ibv_qp_ex,
    verbs: ibv_wr_opcode,
    (remote_addr, rkey): (u64, u32),
    imm: u32,
) {
    // SAFETY: By the caller's promise.
    unsafe {
        if let Ok(request) = request((*qp).wr_id, verbs, (*qp).wr_flags) {
            of(qp).begin(Request {
                remote_addr,
                rkey,
                imm,
                ..request
            });
        }
    }
}

unsafe extern "C" fn wr_send(qp: *mut ibv_qp_ex) {
    // SAFETY: As in `wr_complete`, here and below.
    unsafe { begin(qp, IBV_WR_SEND, (0, 0), 0) }
}

unsafe extern "C" fn wr_send_imm(qp: *mut ibv_qp_ex, imm: __be32) {
    // SAFETY: As in `wr_complete`.
    unsafe { begin(qp, IBV_WR_SEND_WITH_IMM, (0, 0), imm) }
}

/// [`begin`] of a queue pair of UD.
///
/// # Safety
///
/// As of [`begin`].
unsafe fn begin_ud(qp: *mut ibv_qp_ex, verbs: ibv_wr_opcode, imm: u32) {
    // SAFETY: By the caller's promise.
    unsafe {
        if let Ok(request) = request((*qp).wr_id, verbs, (*qp).wr_flags) {
            of(qp).begin_datagram(Request { imm, ..request });
        }
    }
}

unsafe extern "C" fn wr_send_ud(qp: *mut ibv_qp_ex) {
    // SAFETY: As in `wr_complete`.
    unsafe { begin_ud(qp, IBV_WR_SEND, 0) }
}

unsafe extern "C" fn wr_send_imm_ud(qp: *mut ibv_qp_ex, imm: __be32) {
    // SAFETY: As in `wr_complete`.
    unsafe { begin_ud(qp, IBV_WR_SEND_WITH_IMM, imm) }
}

unsafe extern "C" fn wr_set_ud_addr(
    qp: *mut ibv_qp_ex,
    ah: *mut ibv_ah,
    remote_qpn: u32,
    remote_qkey: u32,
) {
    // SAFETY: As in `wr_complete`; a handle of this provider.
    unsafe { of(qp).address(address(ah, remote_qpn, remote_qkey)) }
}

unsafe extern "C" fn wr_send_inv(qp: *mut ibv_qp_ex, key: u32) {
    // SAFETY: As in `wr_complete`.
    unsafe { begin(qp, IBV_WR_SEND_WITH_INV, (0, 0), key) }
}

unsafe extern "C" fn wr_local_inv(qp: *mut ibv_qp_ex, key: u32) {
    // SAFETY: As in `wr_complete`.
    unsafe {
        let request = invalidation((*qp).wr_id, (*qp).wr_flags, key);
        of(qp).begin(request);
    }
}

unsafe extern "C" fn wr_bind_mw(
    qp: *mut ibv_qp_ex,
    mw: *mut ibv_mw,
    key: u32,
    info: *const ibv_mw_bind_info,
) {
    // SAFETY: As in `wr_complete`; a window and a region of this provider.
    unsafe {
        let own = ((*qp).wr_id, (*qp).wr_flags);
        of(qp).bind(bind(own, (mw, key), &*info));
    }
}

unsafe extern "C" fn wr_rdma_write(qp: *mut ibv_qp_ex, rkey: u32, remote_addr: u64) {
    // SAFETY: As in `wr_complete`.
    unsafe { begin(qp, IBV_WR_RDMA_WRITE, (remote_addr, rkey), 0) }
}

unsafe extern "C" fn wr_rdma_write_imm(
    qp: *mut ibv_qp_ex,
    rkey: u32,
    remote_addr: u64,
    imm: __be32,
) {
    // SAFETY: As in `wr_complete`.
    unsafe { begin(qp, IBV_WR_RDMA_WRITE_WITH_IMM, (remote_addr, rkey), imm) }
}

unsafe extern "C" fn wr_rdma_read(qp: *mut ibv_qp_ex, rkey: u32, remote_addr: u64) {
    // SAFETY: As in `wr_complete`.
    unsafe { begin(qp, IBV_WR_RDMA_READ, (remote_addr, rkey), 0) }
}

/// # Safety
///
/// As of [`begin`].
unsafe fn begin_atomic(
    qp: *mut ibv_qp_ex,
    verbs: ibv_wr_opcode,
    remote: (u64, u32),
    operands: (u64, u64),
) {
    // SAFETY: By the caller's promise.
    unsafe {
        let own = ((*qp).wr_id, verbs, (*qp).wr_flags);
        if let Ok(atomic) = atomic(own, remote, operands) {
            of(qp).begin_atomic(atomic);
        }
    }
}

unsafe extern "C" fn wr_atomic_cmp_swp(
    qp: *mut ibv_qp_ex,
    rkey: u32,
    remote_addr: u64,
    compare: u64,
    swap: u64,
) {
    let (verbs, remote) = (IBV_WR_ATOMIC_CMP_AND_SWP, (remote_addr, rkey));
    // SAFETY: As in `wr_complete`.
    unsafe { begin_atomic(qp, verbs, remote, (compare, swap)) }
}

unsafe extern "C" fn wr_atomic_fetch_add(
    qp: *mut ibv_qp_ex,
    rkey: u32,
    remote_addr: u64,
    add: u64,
) {
    let (verbs, remote) = (IBV_WR_ATOMIC_FETCH_AND_ADD, (remote_addr, rkey));
    // SAFETY: As in `wr_complete`.
    unsafe { begin_atomic(qp, verbs, remote, (add, 0)) }
}

unsafe extern "C" fn wr_flush(
    qp: *mut ibv_qp_ex,
    rkey: u32,
    remote_addr: u64,
    len: usize,
    type_: u8,
    level: u8,
) {
    let flush = Flush {
        remote: (remote_addr, rkey),
        bytes: len as u64,
        // The device has the numbers of verbs, and refuses others.
        kinds: type_,
        whole: level,
    };
    // SAFETY: As in `wr_complete`.
    unsafe { of(qp).flush(whole((*qp).wr_id, (*qp).wr_flags), flush) }
}

unsafe extern "C" fn wr_atomic_write(
    qp: *mut ibv_qp_ex,
    rkey: u32,
    remote_addr: u64,
    atomic_wr: *const c_void,
) {
    // SAFETY: As in `wr_complete`; the program's value of 8 bytes, which need not be aligned.
    unsafe {
        let request = Request {
            remote_addr,
            rkey,
            ..whole((*qp).wr_id, (*qp).wr_flags)
        };
        of(qp).atomic_write(request, atomic_wr.cast::<u64>().read_unaligned());
    }
}

unsafe extern "C" fn wr_set_sge(qp: *mut ibv_qp_ex, lkey: u32, addr: u64, length: u32) {
    let sge = Sge {
        addr,
        bytes: length,
        lkey,
    };
    // SAFETY: As in `wr_complete`.
    unsafe { of(qp).data(Payload::Gather(&[sge])) }
}

unsafe extern "C" fn wr_set_sge_list(qp: *mut ibv_qp_ex, num_sge: usize, list: *const ibv_sge) {
    // SAFETY: As in `wr_complete`.
    unsafe { of(qp).data(Payload::Gather(sges(list, num_sge))) }
}

/// Memory of this process, as an SGE; 4 GiB exceed every limit as well.
fn inline(addr: *mut c_void, length: usize) -> Sge {
    Sge {
        addr: addr as u64,
        bytes: u32::try_from(length).unwrap_or(u32::MAX),
        lkey: 0,
    }
}

unsafe extern "C" fn wr_set_inline_data(qp: *mut ibv_qp_ex, addr: *mut c_void, length: usize) {
    // SAFETY: As in `wr_complete`; the program's data.
    unsafe { of(qp).data(Payload::Inline(&[inline(addr, length)])) }
}

unsafe extern "C" fn wr_set_inline_data_list(
    qp: *mut ibv_qp_ex,
    num_buf: usize,
    list: *const ibv_data_buf,
) {
    /// More than a request holds.
    const ROOM: usize = MAX_BLOCKS * BLOCK_BYTES;
    let mut all = [0u8; ROOM];
    let mut bytes = 0usize;
    for at in 0..num_buf {
        // SAFETY: The program's list has so many.
        let buffer = unsafe { &*list.add(at) };
        if buffer.length > ROOM - bytes {
            // Refused for its length, which is above every limit.
            bytes = usize::MAX;
            break;
        }
        if buffer.length != 0 {
            // SAFETY: The program's data; the room was checked.
            unsafe {
                let to = all.as_mut_ptr().add(bytes);
                std::ptr::copy_nonoverlapping(buffer.addr.cast(), to, buffer.length);
            }
        }
        bytes += buffer.length;
    }
    // SAFETY: As in `wr_complete`.
    unsafe { of(qp).data(Payload::Inline(&[inline(all.as_mut_ptr().cast(), bytes)])) }
}
