// SPDX-License-Identifier: GPL-2.0
//! Operations that post.

use std::ffi::c_int;
use std::mem::offset_of;

use qpair_abi::command::access;
use qpair_abi::entry::{opcode, send_flags, SendWqe, Sge, UdWqe};
use qpair_queue::credit::Kind;

use super::bindings::*;
use super::errno;
use crate::atomic::Atomic;
use crate::datagram::{self, Address};
use crate::list::{List, Sends};
use crate::qp::Qp;
use crate::receive::{Receives, RecvRow};
use crate::request::{has_imm, has_remote, Limits, Payload, Refusal, Request};
use crate::srq::Srq;
use crate::template::{Row, Templates};
use crate::window::Bind;

// An SGE is that of the device.
const _: () = assert!(size_of::<Sge>() == size_of::<ibv_sge>());
const _: () = assert!(align_of::<Sge>() == align_of::<ibv_sge>());
const _: () = assert!(offset_of!(Sge, addr) == offset_of!(ibv_sge, addr));
const _: () = assert!(offset_of!(Sge, bytes) == offset_of!(ibv_sge, length));
const _: () = assert!(offset_of!(Sge, lkey) == offset_of!(ibv_sge, lkey));
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
pub(super) unsafe fn of<'a, T>(qp: *mut T) -> &'a Qp {
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
            wr_id: id,
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
        (IBV_WR_SEND_WITH_INV, opcode::SEND_INV, MESSAGE),
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
pub(super) fn request(id: u64, verbs: ibv_wr_opcode, flags: u32) -> Result<Request, Refusal> {
    let operation = OPERATIONS.get(verbs as usize);
    let operation = operation.filter(|operation| operation.code != NONE);
    let operation = operation.ok_or(Refusal::Unsupported)?;
    Ok(operation.request(id, flags))
}

/// The common forms of a queue pair's sends.
pub(super) fn templates(limits: &Limits, sq_sig_all: bool, is_ud: bool) -> Templates {
    let always = if sq_sig_all { IBV_SEND_SIGNALED } else { 0 };
    let head = if is_ud { UdWqe::WORDS } else { SendWqe::WORDS };
    Templates::new(head, |verbs, flags| {
        let is_common = flags & IBV_SEND_INLINE == 0 && limits.max_send_sge != 0;
        let made = request(0, verbs, flags | always).ok();
        let made = made.filter(|made| !is_ud || datagram::check(made).is_ok());
        made.filter(|_| is_common)
    })
}

/// The SGEs of a request.
///
/// # Safety
///
/// If `count` is not 0, `list` has so many, for `'a`.
#[inline(always)]
pub(super) unsafe fn sges<'a>(list: *const ibv_sge, count: usize) -> &'a [Sge] {
    match count {
        0 => &[],
        // SAFETY: By the caller's promise; the layouts are the same.
        _ => unsafe { std::slice::from_raw_parts(list.cast(), count) },
    }
}

/// What requests of a row have in common: the number of SGEs, the opcode and the flags.
#[inline(always)]
fn way(wr: &ibv_send_wr) -> (c_int, ibv_wr_opcode, u32) {
    (wr.num_sge, wr.opcode, wr.send_flags)
}

/// A list of requests of the program; its first is the next to be posted.
struct SendList(*mut ibv_send_wr);

impl SendList {
    /// Posts its requests with `put`, as long as they are those of this way.
    ///
    /// # Safety
    ///
    /// As of `ibv_post_send()`.
    #[inline(always)]
    unsafe fn row(
        &mut self,
        of: (c_int, ibv_wr_opcode, u32),
        mut put: impl FnMut(&ibv_send_wr) -> Result<(), Refusal>,
    ) -> Result<(), Refusal> {
        let mut at = self.0;
        let posted = loop {
            // SAFETY: By the caller's promise.
            let Some(wr) = unsafe { at.as_ref() }.filter(|wr| way(wr) == of) else {
                break Ok(());
            };
            if let Err(refusal) = put(wr) {
                break Err(refusal);
            }
            at = wr.next;
        };
        self.0 = at;
        posted
    }

    /// Posts them all.
    ///
    /// # Safety
    ///
    /// As of `ibv_post_send()`.
    #[inline(always)]
    unsafe fn post(&mut self, list: &mut List<'_>) -> Result<(), Refusal> {
        // SAFETY: By the caller's promise, here and below.
        while let Some(wr) = unsafe { self.0.as_ref() } {
            let way = way(wr);
            let (sges, operation, flags) = way;
            let template = list.template([operation, flags]).filter(|_| sges == 1);
            // SAFETY: As above.
            unsafe {
                match template {
                    Some(template) => {
                        let is_ud = list.is_ud();
                        let row = list.row(template);
                        let signaled = template.is_signaled();
                        // The most common ones have code of their own if they are signaled.
                        match (template.has_remote(), template.has_imm()) {
                            (_, false) if is_ud => self.common_ud::<false>(way, row),
                            (_, true) if is_ud => self.common_ud::<true>(way, row),
                            (false, false) if signaled => {
                                self.common::<false, false, true>(way, row)
                            }
                            (true, false) if signaled => self.common::<true, false, true>(way, row),
                            (false, false) => self.common::<false, false, false>(way, row),
                            (true, false) => self.common::<true, false, false>(way, row),
                            (false, true) => self.common::<false, true, false>(way, row),
                            (true, true) => self.common::<true, true, false>(way, row),
                        }
                    }
                    None => self.any(way, list),
                }?;
            }
        }
        Ok(())
    }

    /// Posts a row of a common form.
    ///
    /// # Safety
    ///
    /// As of `ibv_post_send()`.
    #[inline(always)]
    unsafe fn common<const REMOTE: bool, const IMM: bool, const SIGNALED: bool>(
        &mut self,
        of: (c_int, ibv_wr_opcode, u32),
        mut row: Row<'_>,
    ) -> Result<(), Refusal> {
        // SAFETY: There is one SGE, by the caller's promise. Fields that the opcode does not have
        // can be read, and are not used.
        unsafe {
            self.row(of, |wr| {
                let own = (wr.wr_id, wr.__bindgen_anon_1.imm_data);
                let remote = (wr.wr.rdma.remote_addr, wr.wr.rdma.rkey);
                row.put::<REMOTE, IMM, SIGNALED>(own, remote, &*wr.sg_list.cast())
            })
        }
    }

    /// Posts a row of a common form of UD.
    ///
    /// # Safety
    ///
    /// As of `ibv_post_send()`.
    #[inline(always)]
    unsafe fn common_ud<const IMM: bool>(
        &mut self,
        of: (c_int, ibv_wr_opcode, u32),
        mut row: Row<'_>,
    ) -> Result<(), Refusal> {
        // SAFETY: As in `common`. Handles of addresses are of this provider, too.
        unsafe {
            self.row(of, |wr| {
                let own = (wr.wr_id, wr.__bindgen_anon_1.imm_data);
                let ud = &wr.wr.ud;
                let to = address(ud.ah, ud.remote_qpn, ud.remote_qkey);
                row.put_datagram::<IMM>(own, to, &*wr.sg_list.cast())
            })
        }
    }

    /// Posts a row of any other form.
    ///
    /// # Safety
    ///
    /// As of `ibv_post_send()`.
    // Not inlined: it would take the registers of the common case.
    #[inline(never)]
    unsafe fn any(
        &mut self,
        of: (c_int, ibv_wr_opcode, u32),
        list: &mut List<'_>,
    ) -> Result<(), Refusal> {
        let is_ud = list.is_ud();
        let mut sends = list.sends();
        // SAFETY: By the caller's promise. Handles of addresses are of this provider, too.
        unsafe {
            self.row(of, |wr| match is_ud {
                false => put_any(&mut sends, wr),
                true => {
                    let (request, payload) = decode(wr)?;
                    let ud = &wr.wr.ud;
                    let to = address(ud.ah, ud.remote_qpn, ud.remote_qkey);
                    sends.put_datagram(request, to, payload)
                }
            })
        }
    }
}

/// # Safety
///
/// As of `ibv_post_send()`.
#[inline(always)]
unsafe fn put_any(sends: &mut Sends<'_>, wr: &ibv_send_wr) -> Result<(), Refusal> {
    // SAFETY: By the caller's promise.
    unsafe {
        match decode(wr) {
            Ok((request, payload)) => sends.put(request, payload),
            Err(Refusal::Unsupported) => put_special(sends, wr),
            Err(refusal) => Err(refusal),
        }
    }
}

/// The atomic of an opcode of verbs.
pub(super) fn atomic(
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

/// A send that is posted whole, with the identifier and the flags of the program.
pub(super) fn whole(id: u64, flags: u32) -> Request {
    let operation = Operation {
        code: NONE,
        flags: ANY,
    };
    operation.request(id, flags)
}

/// The invalidation of a window.
pub(super) fn invalidation(id: u64, flags: u32, key: u32) -> Request {
    let operation = Operation {
        code: opcode::LOCAL_INV,
        flags: ANY,
    };
    Request {
        rkey: key,
        ..operation.request(id, flags)
    }
}

/// The bind of a window.
///
/// # Errors
///
/// [`Refusal::Invalid`]: rights that a window does not have.
///
/// # Safety
///
/// The window and its region are of this provider.
pub(super) unsafe fn bind(
    (id, flags): (u64, u32),
    (window, new_key): (*const ibv_mw, u32),
    info: &ibv_mw_bind_info,
) -> Result<Bind, Refusal> {
    const RIGHTS: u8 = access::REMOTE | access::ZERO_BASED;
    const {
        assert!(IBV_ACCESS_LOCAL_WRITE == access::LOCAL_WRITE as ibv_access_flags);
        assert!(IBV_ACCESS_REMOTE_WRITE == access::REMOTE_WRITE as ibv_access_flags);
        assert!(IBV_ACCESS_REMOTE_READ == access::REMOTE_READ as ibv_access_flags);
        assert!(IBV_ACCESS_REMOTE_ATOMIC == access::REMOTE_ATOMIC as ibv_access_flags);
        assert!(IBV_ACCESS_ZERO_BASED == access::ZERO_BASED as ibv_access_flags);
    }
    // The owner uses the region, not the window.
    let rights = info.mw_access_flags & !IBV_ACCESS_LOCAL_WRITE;
    if rights & !u32::from(RIGHTS) != 0 {
        return Err(Refusal::Invalid);
    }
    let operation = Operation {
        code: opcode::BIND,
        flags: ANY,
    };
    // SAFETY: By the caller's promise. A bind of no bytes may name no region.
    let (window, region) = unsafe { ((*window).rkey, info.mr.as_ref().map_or(0, |mr| mr.lkey)) };
    Ok(Bind {
        request: operation.request(id, flags),
        access: rights,
        window,
        new_key,
        region,
        addr: info.addr,
        bytes: info.length,
    })
}

/// # Safety
///
/// As of `ibv_post_send()`.
#[cold]
unsafe fn put_special(sends: &mut Sends<'_>, wr: &ibv_send_wr) -> Result<(), Refusal> {
    let own = (wr.wr_id, wr.send_flags);
    // SAFETY: By the caller's promise; the fields of the opcode are set, and there are no inline
    // data.
    unsafe {
        match wr.opcode {
            IBV_WR_LOCAL_INV => {
                let key = wr.__bindgen_anon_1.invalidate_rkey;
                let request = invalidation(own.0, own.1, key);
                sends.put(request, Payload::Gather(&[]))
            }
            IBV_WR_BIND_MW => {
                let of = wr.__bindgen_anon_2.bind_mw;
                sends.put_bind(bind(own, (of.mw, of.rkey), &of.bind_info)?)
            }
            _ => put_atomic(sends, wr),
        }
    }
}

/// # Safety
///
/// As of `ibv_post_send()`.
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
        sends.put_atomic(atomic, Payload::Gather(sges(wr.sg_list, count)))
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
        let sges = sges(wr.sg_list, count);
        let payload = match wr.send_flags & IBV_SEND_INLINE {
            0 => Payload::Gather(sges),
            _ => Payload::Inline(sges),
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
    let mut wrs = SendList(wr);
    // SAFETY: A list of requests of the program, for a queue pair of this provider.
    let posted = unsafe { of(qp).post_send(|list| wrs.post(list)) };
    let Err(refusal) = posted else { return 0 };
    // SAFETY: A place for it, by the caller's promise.
    unsafe { *bad_wr = wrs.0 };
    errno(refusal)
}

/// What an address handle has for sends besides a GID.
#[no_mangle]
pub extern "C" fn qpair_data_route(
    source: u16,
    hop_limit: u8,
    traffic_class: u8,
    flow_label: u32,
) -> u64 {
    UdWqe::route(source, hop_limit, traffic_class, flow_label)
}

/// The address of a send.
///
/// # Safety
///
/// `ah` is of this provider.
pub(super) unsafe fn address(ah: *mut ibv_ah, qpn: u32, q_key: u32) -> Address {
    // SAFETY: By the caller's promise.
    let (gid, route, mac) = unsafe {
        let ah = ah.cast::<qpair_ah>();
        ((*ah).gid, (*ah).route, (*ah).mac)
    };
    Address {
        gid,
        route,
        mac,
        qpn,
        q_key,
    }
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
    let mut wrs = RecvList(wr);
    // SAFETY: As in `qpair_data_post_send`.
    unsafe {
        let posted = of(qp).post_recv(|receives| wrs.post(receives));
        wrs.end(posted, bad_wr)
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
    let mut wrs = RecvList(wr);
    // SAFETY: A list of requests of the program, for a queue of this provider.
    unsafe {
        let srq: &Srq = &*(*srq.cast::<qpair_srq>()).data.cast();
        let posted = srq.post_recv(|receives| wrs.post(receives));
        wrs.end(posted, bad_wr)
    }
}

/// A list of receives of the program; its first is the next to be posted.
struct RecvList(*mut ibv_recv_wr);

impl RecvList {
    /// Posts them all.
    ///
    /// # Safety
    ///
    /// As of `ibv_post_recv()`.
    #[inline(always)]
    unsafe fn post<K: Kind>(&mut self, receives: &mut Receives<'_, K>) -> Result<(), Refusal> {
        // SAFETY: By the caller's promise.
        unsafe {
            while let Some(wr) = self.0.as_ref() {
                if wr.num_sge == 1 {
                    self.row(receives.row()?)?;
                    continue;
                }
                // A negative number exceeds every limit.
                let count = usize::try_from(wr.num_sge).map_err(|_| Refusal::Invalid)?;
                receives.put(wr.wr_id, sges(wr.sg_list, count))?;
                self.0 = wr.next;
            }
        }
        Ok(())
    }

    /// Posts those of one SGE, up to one of another number.
    ///
    /// # Safety
    ///
    /// As of `ibv_post_recv()`.
    #[inline(always)]
    unsafe fn row<K: Kind>(&mut self, mut row: RecvRow<'_, K>) -> Result<(), Refusal> {
        // SAFETY: By the caller's promise.
        unsafe {
            while let Some(wr) = self.0.as_ref().filter(|wr| wr.num_sge == 1) {
                row.put(wr.wr_id, &*wr.sg_list.cast())?;
                self.0 = wr.next;
            }
        }
        Ok(())
    }

    /// The result for the program, which gets the first receive that is not posted.
    ///
    /// # Safety
    ///
    /// `bad_wr` can be written.
    #[inline(always)]
    unsafe fn end(self, posted: Result<(), Refusal>, bad_wr: *mut *mut ibv_recv_wr) -> c_int {
        match posted {
            // An empty list is posted in any state.
            Err(refusal) if !self.0.is_null() => {
                // SAFETY: By the caller's promise.
                unsafe { *bad_wr = self.0 };
                errno(refusal)
            }
            _ => 0,
        }
    }
}
