// SPDX-License-Identifier: GPL-2.0
//! Operations that poll.

use std::ffi::{c_int, c_uint};
use std::mem::{offset_of, MaybeUninit};

use qpair_abi::entry::{cqe_flags, opcode, Cqe};

use super::bindings::*;
use super::{EINVAL, ENOENT};
use crate::cq::{Completion, Cq};

// An object of libibverbs is the start of the provider's.
const _: () = assert!(offset_of!(qpair_cq, vcq) == 0);

/// The completion queue of an object of libibverbs.
///
/// # Safety
///
/// It is one of this provider, and lives for `'a`.
#[inline(always)]
unsafe fn of<'a, T>(cq: *mut T) -> &'a Cq {
    // SAFETY: By the caller's promise.
    unsafe { &*(*cq.cast::<qpair_cq>()).data.cast() }
}

/// The opcode of a completion; of one that failed it has no meaning.
#[inline(always)]
fn verbs(code: u8) -> ibv_wc_opcode {
    /// By opcode of the device.
    const SENT: [ibv_wc_opcode; 16] = {
        let mut all = [IBV_WC_SEND; 16];
        all[opcode::WRITE as usize] = IBV_WC_RDMA_WRITE;
        all[opcode::WRITE_IMM as usize] = IBV_WC_RDMA_WRITE;
        all[opcode::READ as usize] = IBV_WC_RDMA_READ;
        all[opcode::COMPARE_SWAP as usize] = IBV_WC_COMP_SWAP;
        all[opcode::FETCH_ADD as usize] = IBV_WC_FETCH_ADD;
        all[opcode::FLUSH as usize] = IBV_WC_FLUSH;
        all[opcode::ATOMIC_WRITE as usize] = IBV_WC_ATOMIC_WRITE;
        all[opcode::BIND as usize] = IBV_WC_BIND_MW;
        all[opcode::LOCAL_INV as usize] = IBV_WC_LOCAL_INV;
        all
    };
    match code {
        opcode::RECV => IBV_WC_RECV,
        opcode::RECV_WRITE_IMM => IBV_WC_RECV_RDMA_WITH_IMM,
        sent => SENT[usize::from(sent) % SENT.len()],
    }
}

/// Whether a receive begins with a GRH, as a number.
#[inline(always)]
fn grh(completion: &Completion) -> u8 {
    (completion.cqe.flags / cqe_flags::GRH) & 1
}

#[inline(always)]
fn flags(completion: &Completion) -> c_uint {
    // The distance of both.
    const DOWN: u8 = cqe_flags::GRH.trailing_zeros() as u8;
    const BOTH: u8 = (IBV_WC_GRH | IBV_WC_WITH_INV) as u8;
    const {
        assert!(cqe_flags::IMM as c_uint == IBV_WC_WITH_IMM && IBV_WC_GRH == 1);
        assert!((cqe_flags::INV >> DOWN) as c_uint == IBV_WC_WITH_INV);
    }
    let flags = completion.cqe.flags;
    c_uint::from((flags & cqe_flags::IMM) | (flags >> DOWN & BOTH))
}

/// Of a datagram by IPv4 the code of its header's type, which mlx5 has in this field: UCX takes it from
/// there. Others have 0.
#[inline(always)]
fn sl(completion: &Completion) -> u8 {
    const IPV4: u8 = 2;
    (completion.cqe.flags & cqe_flags::IPV4) / (cqe_flags::IPV4 / IPV4)
}

/// The LID of the one port, of a datagram's sender. Other completions have none.
#[inline(always)]
fn slid(completion: &Completion) -> u8 {
    grh(completion)
}

/// An `ibv_wc`, two fields of 32 bits to a word.
type Words = [u64; 6];
const _: () = assert!(size_of::<Words>() == size_of::<ibv_wc>());
const _: () = assert!(align_of::<Words>() == align_of::<ibv_wc>());
const _: () = assert!(offset_of!(ibv_wc, wr_id) == 0);
const _: () = assert!(offset_of!(ibv_wc, status) == 8 && offset_of!(ibv_wc, opcode) == 12);
const _: () = assert!(offset_of!(ibv_wc, vendor_err) == 16 && offset_of!(ibv_wc, byte_len) == 20);
const _: () =
    assert!(offset_of!(ibv_wc, __bindgen_anon_1) == 24 && offset_of!(ibv_wc, qp_num) == 28);
const _: () = assert!(offset_of!(ibv_wc, src_qp) == 32 && offset_of!(ibv_wc, wc_flags) == 36);
const _: () = assert!(offset_of!(ibv_wc, pkey_index) == 40 && offset_of!(ibv_wc, slid) == 42);
const _: () = assert!(offset_of!(ibv_wc, sl) == 44);

/// The word of two fields.
#[inline(always)]
const fn pair(first: u32, second: u32) -> u64 {
    let (first, second) = (first as u64, second as u64);
    match cfg!(target_endian = "big") {
        true => first << 32 | second,
        false => second << 32 | first,
    }
}

/// What completions of a row have in common.
#[derive(Clone, Copy, Default)]
struct Form {
    /// Status and opcode, as one word of `ibv_wc`.
    way: u64,
    /// The number of the queue pair, where an entry has it, exclusive-or `vendor_err`.
    vendor: u64,
    qpn: u64,
    flags: u64,
    /// The last word of `ibv_wc`, from `pkey_index` on.
    path: u64,
}

impl Form {
    #[inline(always)]
    fn of(completion: &Completion) -> Self {
        let Completion { cqe, qpn } = completion;
        // In the order of memory.
        let [low, high] = u16::from(slid(completion)).to_ne_bytes();
        Self {
            // The device has the numbers of verbs.
            way: pair(cqe.status.into(), verbs(cqe.opcode)),
            vendor: pair(cqe.qp.raw() ^ u32::from(cqe.vendor), 0),
            qpn: pair(0, *qpn),
            flags: pair(0, flags(completion)),
            path: u64::from_ne_bytes([0, 0, low, high, sl(completion), 0, 0, 0]),
        }
    }

    /// A completion of the row.
    #[inline(always)]
    fn words(&self, cqe: &Cqe) -> Words {
        [
            cqe.wr_id,
            self.way,
            // One word of the entry, and one operation.
            pair(cqe.qp.raw(), cqe.bytes) ^ self.vendor,
            pair(cqe.imm, 0) | self.qpn,
            pair(cqe.src, 0) | self.flags,
            self.path,
        ]
    }
}

/// `ibv_poll_cq()`.
///
/// # Safety
///
/// As of `ibv_poll_cq()`.
#[no_mangle]
pub unsafe extern "C" fn qpair_data_poll_cq(
    cq: *mut ibv_cq,
    num_entries: c_int,
    wc: *mut ibv_wc,
) -> c_int {
    let Ok(count @ 1..) = usize::try_from(num_entries) else {
        return 0;
    };
    let mut form = Form::default();
    let fill = |place: &mut MaybeUninit<Words>, completion: &Completion, is_alike: bool| {
        if !is_alike {
            form = Form::of(completion);
        }
        place.write(form.words(&completion.cqe));
    };
    // SAFETY: The program has so many places, of this size, which need not be initialised; and the
    // queue is one of this provider.
    let taken = unsafe {
        let places = std::slice::from_raw_parts_mut(wc.cast::<MaybeUninit<Words>>(), count);
        of(cq).poll(places, fill)
    };
    // CAST: At most `num_entries`.
    taken as c_int
}

/// `ibv_req_notify_cq()`.
///
/// # Safety
///
/// As of `ibv_req_notify_cq()`.
#[no_mangle]
pub unsafe extern "C" fn qpair_data_req_notify_cq(cq: *mut ibv_cq, solicited_only: c_int) -> c_int {
    // SAFETY: A queue of this provider.
    unsafe { of(cq) }.notify(solicited_only != 0);
    0
}

/// Sets the operations of `ibv_start_poll()` and of the parts of completions that the program asked
/// for.
///
/// # Safety
///
/// The completion queue is one of this provider.
#[no_mangle]
pub unsafe extern "C" fn qpair_data_cq_extend(cq: *mut ibv_cq_ex, wc_flags: u64) {
    // SAFETY: By the caller's promise.
    let cq = unsafe { &mut *cq };
    let asked = |flag: u32| wc_flags & u64::from(flag) != 0;
    cq.start_poll = Some(start_poll);
    cq.next_poll = Some(next_poll);
    cq.end_poll = Some(end_poll);
    cq.read_opcode = Some(read_opcode);
    cq.read_vendor_err = Some(read_vendor_err);
    cq.read_wc_flags = Some(read_wc_flags);
    if asked(IBV_WC_EX_WITH_BYTE_LEN) {
        cq.read_byte_len = Some(read_byte_len);
    }
    if asked(IBV_WC_EX_WITH_IMM) {
        cq.read_imm_data = Some(read_imm_data);
    }
    if asked(IBV_WC_EX_WITH_QP_NUM) {
        cq.read_qp_num = Some(read_qp_num);
    }
    if asked(IBV_WC_EX_WITH_SRC_QP) {
        cq.read_src_qp = Some(read_src_qp);
    }
    if asked(IBV_WC_EX_WITH_SLID) {
        cq.read_slid = Some(read_slid);
    }
    if asked(IBV_WC_EX_WITH_SL) {
        cq.read_sl = Some(read_sl);
    }
    if asked(IBV_WC_EX_WITH_DLID_PATH_BITS) {
        cq.read_dlid_path_bits = Some(read_dlid_path_bits);
    }
}

/// The completion that the program looks at.
///
/// # Safety
///
/// The program is between `ibv_start_poll()` and `ibv_end_poll()`.
#[inline(always)]
unsafe fn current(cq: *mut ibv_cq_ex) -> Completion {
    // SAFETY: By the caller's promise, with a queue of this provider.
    unsafe { of(cq).current() }
}

/// Shows a completion that was found to the program.
///
/// # Safety
///
/// As of [`current`], if it was found.
#[inline(always)]
unsafe fn show(cq: *mut ibv_cq_ex, found: bool) -> c_int {
    if !found {
        return ENOENT;
    }
    // SAFETY: By the caller's promise.
    unsafe {
        let cqe = current(cq).cqe;
        (*cq).wr_id = cqe.wr_id;
        (*cq).status = cqe.status.into();
    }
    0
}

unsafe extern "C" fn start_poll(cq: *mut ibv_cq_ex, attr: *mut ibv_poll_cq_attr) -> c_int {
    // SAFETY: A queue of this provider, and the attributes of the program.
    unsafe {
        if (*attr).comp_mask != 0 {
            return EINVAL;
        }
        show(cq, of(cq).start())
    }
}

unsafe extern "C" fn next_poll(cq: *mut ibv_cq_ex) -> c_int {
    // SAFETY: The program has started a poll.
    unsafe { show(cq, of(cq).next()) }
}

unsafe extern "C" fn end_poll(cq: *mut ibv_cq_ex) {
    // SAFETY: The program has started a poll.
    unsafe { of(cq).end() }
}

unsafe extern "C" fn read_opcode(cq: *mut ibv_cq_ex) -> ibv_wc_opcode {
    // SAFETY: The program has started a poll, here and below.
    verbs(unsafe { current(cq) }.cqe.opcode)
}

unsafe extern "C" fn read_vendor_err(cq: *mut ibv_cq_ex) -> u32 {
    // SAFETY: As above.
    unsafe { current(cq) }.cqe.vendor.into()
}

unsafe extern "C" fn read_wc_flags(cq: *mut ibv_cq_ex) -> c_uint {
    // SAFETY: As above.
    flags(&unsafe { current(cq) })
}

unsafe extern "C" fn read_byte_len(cq: *mut ibv_cq_ex) -> u32 {
    // SAFETY: As above.
    unsafe { current(cq) }.cqe.bytes
}

unsafe extern "C" fn read_imm_data(cq: *mut ibv_cq_ex) -> __be32 {
    // SAFETY: As above.
    unsafe { current(cq) }.cqe.imm
}

unsafe extern "C" fn read_qp_num(cq: *mut ibv_cq_ex) -> u32 {
    // SAFETY: As above.
    unsafe { current(cq) }.qpn
}

unsafe extern "C" fn read_src_qp(cq: *mut ibv_cq_ex) -> u32 {
    // SAFETY: As above.
    unsafe { current(cq) }.cqe.src
}

unsafe extern "C" fn read_slid(cq: *mut ibv_cq_ex) -> u32 {
    // SAFETY: As above.
    slid(&unsafe { current(cq) }).into()
}

unsafe extern "C" fn read_sl(cq: *mut ibv_cq_ex) -> u8 {
    // SAFETY: As above.
    sl(&unsafe { current(cq) })
}

unsafe extern "C" fn read_dlid_path_bits(_cq: *mut ibv_cq_ex) -> u8 {
    0
}
