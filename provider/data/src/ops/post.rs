// SPDX-License-Identifier: GPL-2.0
//! Operations that post.

use std::ffi::{c_int, c_void};
use std::mem::offset_of;

use qpair_abi::entry::{opcode, send_flags, BLOCK_BYTES, MAX_BLOCKS};

use super::bindings::*;
use super::errno;
use crate::atomic::Atomic;
use crate::datagram::{Address, Datagram};
use crate::qp::{Qp, Sends};
use crate::request::{has_imm, has_remote};
use crate::request::{Limits, Payload, Piece, Refusal, Request, Templates};
use crate::srq::Srq;

// A list of SGEs is a list of pieces.
const _: () = assert!(size_of::<Piece>() == size_of::<ibv_sge>());
const _: () = assert!(align_of::<Piece>() == align_of::<ibv_sge>());
const _: () = assert!(offset_of!(Piece, addr) == offset_of!(ibv_sge, addr));
const _: () = assert!(offset_of!(Piece, bytes) == offset_of!(ibv_sge, length));
const _: () = assert!(offset_of!(Piece, key) == offset_of!(ibv_sge, lkey));
/// Where a request has its opcode and its flags.
const WAY_AT: usize = offset_of!(ibv_send_wr, opcode);
const _: () = assert!(offset_of!(ibv_send_wr, send_flags) == WAY_AT + size_of::<u32>());
// An object of libibverbs is the start of the provider's.
const _: () = assert!(offset_of!(qpair_qp, vqp) == 0);
const _: () = assert!(offset_of!(qpair_ah, ibv_ah) == 0);
const _: () = assert!(offset_of!(qpair_srq, vsrq) == 0);

/// The queue pair of an object of libibverbs.
///
/// # Safety
///
/// It is one of this provider, and lives for `'a`.
#[inline(always)]
unsafe fn of<'a, T>(qp: *mut T) -> &'a Qp {
    // SAFETY: By the caller's promise.
    unsafe { &*(*qp.cast::<qpair_qp>()).data.cast() }
}

/// What an opcode of verbs is for the device.
#[derive(Clone, Copy)]
struct Operation {
    code: u8,
    /// The flags that go with it.
    flags: u8,
}

impl Operation {
    /// A request without its own parts.
    #[inline(always)]
    fn request(self, id: u64, flags: u32) -> Request {
        let flag = |from: u32, to: u8| if flags & from != 0 { to } else { 0 };
        let wanted = flag(IBV_SEND_SIGNALED, send_flags::SIGNALED)
            | flag(IBV_SEND_SOLICITED, send_flags::SOLICITED)
            | flag(IBV_SEND_FENCE, send_flags::FENCE);
        Request {
            id,
            opcode: self.code,
            // A flag that does not go with the operation has no effect; the device refuses it.
            flags: wanted & self.flags,
            ..Request::default()
        }
    }
}

const ANY: u8 = send_flags::SIGNALED | send_flags::FENCE;
const MESSAGE: u8 = ANY | send_flags::SOLICITED;
/// No opcode of the device.
const NONE: u8 = u8::MAX;

/// By opcode of verbs.
static OPERATIONS: [Operation; 16] = {
    let mut all = [Operation {
        code: NONE,
        flags: 0,
    }; 16];
    let known = [
        (IBV_WR_RDMA_WRITE, opcode::WRITE, ANY),
        (IBV_WR_RDMA_WRITE_WITH_IMM, opcode::WRITE_IMM, MESSAGE),
        (IBV_WR_SEND, opcode::SEND, MESSAGE),
        (IBV_WR_SEND_WITH_IMM, opcode::SEND_IMM, MESSAGE),
        (IBV_WR_RDMA_READ, opcode::READ, ANY),
    ];
    let mut at = 0;
    while at < known.len() {
        let (verbs, code, flags) = known[at];
        all[verbs as usize] = Operation { code, flags };
        at += 1;
    }
    all
};

/// A request without its operation's own parts.
#[inline(always)]
fn request(id: u64, verbs: ibv_wr_opcode, flags: u32) -> Result<Request, Refusal> {
    let operation = OPERATIONS.get(verbs as usize);
    let operation = operation.filter(|operation| operation.code != NONE);
    let operation = operation.ok_or(Refusal::Unsupported)?;
    Ok(operation.request(id, flags))
}

/// The common forms of a queue pair's sends.
pub(super) fn templates(limits: &Limits, signal_all: bool) -> Templates {
    let always = if signal_all { IBV_SEND_SIGNALED } else { 0 };
    Templates::new(|verbs, flags| {
        let is_common = flags & IBV_SEND_INLINE == 0 && limits.send_pieces != 0;
        let made = request(0, verbs, flags | always).ok();
        made.filter(|_| is_common)
    })
}

/// The pieces of a request.
///
/// # Safety
///
/// If `count` is not 0, `list` has so many, for `'a`.
#[inline(always)]
unsafe fn pieces<'a>(list: *const ibv_sge, count: usize) -> &'a [Piece] {
    match count {
        0 => &[],
        // SAFETY: By the caller's promise; the layouts are the same.
        _ => unsafe { std::slice::from_raw_parts(list.cast(), count) },
    }
}

/// # Safety
///
/// As of `ibv_post_send()`.
#[inline(always)]
unsafe fn put(sends: &mut Sends<'_>, wr: &ibv_send_wr) -> Result<(), Refusal> {
    // SAFETY: Both are fields of the request, one after the other.
    let way = unsafe { *std::ptr::from_ref(wr).byte_add(WAY_AT).cast::<[u32; 2]>() };
    let Some(template) = sends.template(way) else {
        // SAFETY: By the caller's promise.
        return unsafe { put_any(sends, wr) };
    };
    if wr.num_sge != 1 {
        // SAFETY: By the caller's promise.
        return unsafe { put_any(sends, wr) };
    }
    // SAFETY: There is one SGE, by the caller's promise. The fields that the opcode does not have
    // can be read, and are masked.
    unsafe {
        let own = (wr.wr_id, wr.__bindgen_anon_1.imm_data);
        let remote = (wr.wr.rdma.remote_addr, wr.wr.rdma.rkey);
        sends.put_template(template, own, remote, &*wr.sg_list.cast())
    }
}

/// # Safety
///
/// As of `ibv_post_send()`.
// Not inlined: it would take the registers of the common case.
#[inline(never)]
unsafe fn put_any(sends: &mut Sends<'_>, wr: &ibv_send_wr) -> Result<(), Refusal> {
    // SAFETY: By the caller's promise.
    unsafe {
        match decode(wr) {
            Ok((request, payload)) => sends.put(request, payload),
            Err(Refusal::Unsupported) => put_atomic(sends, wr),
            Err(refusal) => Err(refusal),
        }
    }
}

/// The atomic of an opcode of verbs.
fn atomic(
    (id, verbs, flags): (u64, ibv_wr_opcode, u32),
    (remote_addr, rkey): (u64, u32),
    (compare_add, swap): (u64, u64),
) -> Result<Atomic, Refusal> {
    let code = match verbs {
        IBV_WR_ATOMIC_CMP_AND_SWP => opcode::COMPARE_SWAP,
        IBV_WR_ATOMIC_FETCH_AND_ADD => opcode::FETCH_ADD,
        _ => return Err(Refusal::Unsupported),
    };
    let operation = Operation { code, flags: ANY };
    Ok(Atomic {
        request: Request {
            remote_addr,
            rkey,
            ..operation.request(id, flags)
        },
        compare_add,
        swap,
    })
}

/// # Safety
///
/// As of `ibv_post_send()`.
#[cold]
unsafe fn put_atomic(sends: &mut Sends<'_>, wr: &ibv_send_wr) -> Result<(), Refusal> {
    let count = usize::try_from(wr.num_sge).map_err(|_| Refusal::Invalid)?;
    // SAFETY: The fields of an atomic can be read, and are set if it is one. Its SGEs, too.
    unsafe {
        let of = wr.wr.atomic;
        let atomic = atomic(
            (wr.wr_id, wr.opcode, wr.send_flags),
            (of.remote_addr, of.rkey),
            (of.compare_add, of.swap),
        )?;
        if wr.send_flags & IBV_SEND_INLINE != 0 {
            return Err(Refusal::Invalid);
        }
        sends.put_atomic(atomic, Payload::Gather(pieces(wr.sg_list, count)))
    }
}

/// # Safety
///
/// As of `ibv_post_send()`.
#[inline(always)]
unsafe fn decode(wr: &ibv_send_wr) -> Result<(Request, Payload<'_>), Refusal> {
    let mut request = request(wr.wr_id, wr.opcode, wr.send_flags)?;
    // A negative number exceeds every limit.
    let count = usize::try_from(wr.num_sge).map_err(|_| Refusal::Invalid)?;
    // SAFETY: The fields of each opcode are set, by the caller's promise.
    unsafe {
        if has_imm(request.opcode) {
            request.imm = wr.__bindgen_anon_1.imm_data;
        }
        if has_remote(request.opcode) {
            request.remote_addr = wr.wr.rdma.remote_addr;
            request.rkey = wr.wr.rdma.rkey;
        }
        let pieces = pieces(wr.sg_list, count);
        let payload = match wr.send_flags & IBV_SEND_INLINE {
            0 => Payload::Gather(pieces),
            _ => Payload::Inline(pieces),
        };
        Ok((request, payload))
    }
}

/// `ibv_post_send()`.
///
/// # Safety
///
/// As of `ibv_post_send()`.
#[no_mangle]
pub unsafe extern "C" fn qpair_data_post_send(
    qp: *mut ibv_qp,
    wr: *mut ibv_send_wr,
    bad_wr: *mut *mut ibv_send_wr,
) -> c_int {
    let mut at = wr;
    // SAFETY: A list of requests of the program, for a queue pair of this provider.
    let posted = unsafe {
        of(qp).post_sends(|sends| {
            while let Some(wr) = at.as_ref() {
                put(sends, wr)?;
                at = wr.next;
            }
            Ok(())
        })
    };
    match posted {
        Ok(()) => 0,
        // SAFETY: By the caller's promise.
        Err(Refusal::State) => unsafe { post_datagrams(qp, at, bad_wr) },
        Err(refusal) => {
            // SAFETY: A place for it, by the caller's promise.
            unsafe { *bad_wr = at };
            errno(refusal)
        }
    }
}

/// `ibv_post_send()` of a queue pair of UD, or of one whose state permits no sends.
///
/// # Safety
///
/// As of `ibv_post_send()`.
#[cold]
unsafe fn post_datagrams(
    qp: *mut ibv_qp,
    wr: *mut ibv_send_wr,
    bad_wr: *mut *mut ibv_send_wr,
) -> c_int {
    let mut at = wr;
    // SAFETY: A list of requests of the program, for a queue pair of this provider. Handles of
    // addresses are of this provider, too.
    let posted = unsafe {
        let limits = of(qp).limits();
        of(qp).post_datagrams(|sends| {
            while let Some(wr) = at.as_ref() {
                let (request, payload) = decode(wr)?;
                let mut datagram = Datagram::new(request)?;
                let ud = &wr.wr.ud;
                datagram.to(address(ud.ah, ud.remote_qpn, ud.remote_qkey));
                datagram.data(payload, &limits)?;
                sends.put_datagram(datagram)?;
                at = wr.next;
            }
            Ok(())
        })
    };
    let Err(refusal) = posted else { return 0 };
    // SAFETY: A place for it, by the caller's promise.
    unsafe { *bad_wr = at };
    errno(refusal)
}

/// The address of a send.
///
/// # Safety
///
/// `ah` is of this provider.
unsafe fn address(ah: *mut ibv_ah, qpn: u32, q_key: u32) -> Address {
    // SAFETY: By the caller's promise.
    let gid = unsafe { (*ah.cast::<qpair_ah>()).gid };
    Address { gid, qpn, q_key }
}

/// `ibv_post_recv()`.
///
/// # Safety
///
/// As of `ibv_post_recv()`.
#[no_mangle]
pub unsafe extern "C" fn qpair_data_post_recv(
    qp: *mut ibv_qp,
    wr: *mut ibv_recv_wr,
    bad_wr: *mut *mut ibv_recv_wr,
) -> c_int {
    let mut list = Receives { at: wr, last: wr };
    // SAFETY: As in `qpair_data_post_send`.
    unsafe {
        let posted = of(qp).post_recvs(|| list.next());
        list.end(posted, bad_wr)
    }
}

/// `ibv_post_srq_recv()`.
///
/// # Safety
///
/// As of `ibv_post_srq_recv()`.
#[no_mangle]
pub unsafe extern "C" fn qpair_data_post_srq_recv(
    srq: *mut ibv_srq,
    wr: *mut ibv_recv_wr,
    bad_wr: *mut *mut ibv_recv_wr,
) -> c_int {
    let mut list = Receives { at: wr, last: wr };
    // SAFETY: A list of requests of the program, for a queue of this provider.
    unsafe {
        let srq: &Srq = &*(*srq.cast::<qpair_srq>()).data.cast();
        let posted = srq.post_recvs(|| list.next());
        list.end(posted, bad_wr)
    }
}

/// A list of receives of the program.
struct Receives {
    at: *mut ibv_recv_wr,
    /// The one that was returned last.
    last: *mut ibv_recv_wr,
}

impl Receives {
    /// The next receive, with its pieces.
    ///
    /// # Safety
    ///
    /// The list is that of the program, for `'a`.
    #[inline(always)]
    unsafe fn next<'a>(&mut self) -> Option<Result<(u64, &'a [Piece]), Refusal>> {
        // SAFETY: By the caller's promise.
        let wr = unsafe { self.at.as_ref()? };
        self.last = self.at;
        self.at = wr.next;
        // A negative number exceeds every limit.
        let count = usize::try_from(wr.num_sge).map_err(|_| Refusal::Invalid);
        // SAFETY: By the caller's promise.
        Some(count.map(|count| (wr.wr_id, unsafe { pieces(wr.sg_list, count) })))
    }

    /// The result for the program, which gets the first receive that is not posted.
    ///
    /// # Safety
    ///
    /// `bad_wr` can be written.
    #[inline(always)]
    unsafe fn end(self, posted: Result<(), Refusal>, bad_wr: *mut *mut ibv_recv_wr) -> c_int {
        match posted {
            Ok(()) => 0,
            Err(refusal) => {
                // SAFETY: By the caller's promise.
                unsafe { *bad_wr = self.last };
                errno(refusal)
            }
        }
    }
}

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
    if unsafe { of(&raw mut *qp) }.has_datagrams() {
        qp.wr_start = Some(datagram::wr_start);
        qp.wr_complete = Some(datagram::wr_complete);
        qp.wr_abort = Some(wr_abort);
        qp.wr_set_ud_addr = Some(datagram::wr_set_ud_addr);
        qp.wr_set_sge = Some(datagram::wr_set_sge);
        qp.wr_set_sge_list = Some(datagram::wr_set_sge_list);
        qp.wr_set_inline_data = Some(datagram::wr_set_inline_data);
        qp.wr_set_inline_data_list = Some(datagram::wr_set_inline_data_list);
        if asked(IBV_QP_EX_WITH_SEND) {
            qp.wr_send = Some(datagram::wr_send);
        }
        if asked(IBV_QP_EX_WITH_SEND_WITH_IMM) {
            qp.wr_send_imm = Some(datagram::wr_send_imm);
        }
        return;
    }
    qp.wr_start = Some(wr_start);
    qp.wr_complete = Some(wr_complete);
    qp.wr_abort = Some(wr_abort);
    qp.wr_set_sge = Some(wr_set_sge);
    qp.wr_set_sge_list = Some(wr_set_sge_list);
    qp.wr_set_inline_data = Some(wr_set_inline_data);
    qp.wr_set_inline_data_list = Some(wr_set_inline_data_list);
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

unsafe extern "C" fn wr_set_sge(qp: *mut ibv_qp_ex, lkey: u32, addr: u64, length: u32) {
    let piece = Piece {
        addr,
        bytes: length,
        key: lkey,
    };
    // SAFETY: As in `wr_complete`.
    unsafe { of(qp).data(Payload::Gather(&[piece])) }
}

unsafe extern "C" fn wr_set_sge_list(qp: *mut ibv_qp_ex, num_sge: usize, list: *const ibv_sge) {
    // SAFETY: As in `wr_complete`.
    unsafe { of(qp).data(Payload::Gather(pieces(list, num_sge))) }
}

/// Bytes in this process, as a piece; one of more than 4 GiB exceeds every limit as well.
fn inline(addr: *mut c_void, length: usize) -> Piece {
    Piece {
        addr: addr as u64,
        bytes: u32::try_from(length).unwrap_or(u32::MAX),
        key: 0,
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
    // SAFETY: As in `wr_complete`; the program's data.
    unsafe { with_inline_list(num_buf, list, |all| of(qp).data(all)) }
}

/// Calls `f` with the bytes of a list of buffers as inline data.
///
/// # Safety
///
/// There are so many, and their memory can be read.
unsafe fn with_inline_list(num_buf: usize, list: *const ibv_data_buf, f: impl FnOnce(Payload<'_>)) {
    /// More than a request holds.
    const ROOM: usize = MAX_BLOCKS * BLOCK_BYTES;
    let mut all = [0u8; ROOM];
    let mut bytes = 0usize;
    for at in 0..num_buf {
        // SAFETY: By the caller's promise there are so many.
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
    f(Payload::Inline(&[inline(all.as_mut_ptr().cast(), bytes)]));
}

/// The operations of queue pairs of UD.
mod datagram {
    use super::*;

    pub(super) unsafe extern "C" fn wr_start(qp: *mut ibv_qp_ex) {
        // SAFETY: A queue pair of this provider.
        unsafe { of(qp) }.start_datagrams();
    }

    pub(super) unsafe extern "C" fn wr_complete(qp: *mut ibv_qp_ex) -> c_int {
        // SAFETY: A queue pair of this provider, in the program's critical region.
        unsafe { of(qp).complete_datagrams() }.map_or_else(errno, |()| 0)
    }

    /// # Safety
    ///
    /// A queue pair of this provider, in the program's critical region.
    unsafe fn begin(qp: *mut ibv_qp_ex, verbs: ibv_wr_opcode, imm: u32) {
        // SAFETY: By the caller's promise.
        unsafe {
            if let Ok(request) = request((*qp).wr_id, verbs, (*qp).wr_flags) {
                of(qp).begin_datagram(Request { imm, ..request });
            }
        }
    }

    pub(super) unsafe extern "C" fn wr_send(qp: *mut ibv_qp_ex) {
        // SAFETY: As in `wr_complete`, here and below.
        unsafe { begin(qp, IBV_WR_SEND, 0) }
    }

    pub(super) unsafe extern "C" fn wr_send_imm(qp: *mut ibv_qp_ex, imm: __be32) {
        // SAFETY: As in `wr_complete`.
        unsafe { begin(qp, IBV_WR_SEND_WITH_IMM, imm) }
    }

    pub(super) unsafe extern "C" fn wr_set_ud_addr(
        qp: *mut ibv_qp_ex,
        ah: *mut ibv_ah,
        remote_qpn: u32,
        remote_qkey: u32,
    ) {
        // SAFETY: As in `wr_complete`; a handle of this provider.
        unsafe { of(qp).datagram_to(address(ah, remote_qpn, remote_qkey)) }
    }

    pub(super) unsafe extern "C" fn wr_set_sge(
        qp: *mut ibv_qp_ex,
        lkey: u32,
        addr: u64,
        length: u32,
    ) {
        let piece = Piece {
            addr,
            bytes: length,
            key: lkey,
        };
        // SAFETY: As in `wr_complete`.
        unsafe { of(qp).datagram_data(Payload::Gather(&[piece])) }
    }

    pub(super) unsafe extern "C" fn wr_set_sge_list(
        qp: *mut ibv_qp_ex,
        num_sge: usize,
        list: *const ibv_sge,
    ) {
        // SAFETY: As in `wr_complete`.
        unsafe { of(qp).datagram_data(Payload::Gather(pieces(list, num_sge))) }
    }

    pub(super) unsafe extern "C" fn wr_set_inline_data(
        qp: *mut ibv_qp_ex,
        addr: *mut c_void,
        length: usize,
    ) {
        // SAFETY: As in `wr_complete`; the program's data.
        unsafe { of(qp).datagram_data(Payload::Inline(&[inline(addr, length)])) }
    }

    pub(super) unsafe extern "C" fn wr_set_inline_data_list(
        qp: *mut ibv_qp_ex,
        num_buf: usize,
        list: *const ibv_data_buf,
    ) {
        // SAFETY: As in `wr_complete`; the program's data.
        unsafe { with_inline_list(num_buf, list, |all| of(qp).datagram_data(all)) }
    }
}
