// SPDX-License-Identifier: GPL-2.0

//! Completion queues: created, resized, polled, armed, destroyed.

use super::{
    context::Caller,
    details::Details,
    event::{
        CqEvent,
        Events,
        QpEvent, //
    },
    prelude::*, //
};
use core::{
    mem::{
        take,
        MaybeUninit, //
    },
    ptr, //
};

/// The attributes of a completion queue that is created.
pub struct CqRequest {
    /// Completions that it must hold, at least.
    pub entries: u32,
    /// The completion vector, below that of [`Config`](super::Config).
    pub vector: u32,
    /// Its events.
    pub events: Events<CqEvent>,
}

/// A completion queue.
///
/// Operations run in process context and may sleep, but those of kernel ULPs: [`Self::poll`] and
/// [`Self::notify`].
pub trait Operations<T: Driver>: Sized + Send + Sync {
    /// Creates it. Also returns its entries.
    ///
    /// # Errors
    ///
    /// `EINVAL`: beyond the limits, or the memory of the process does not hold so many. `EBADF`: it names
    /// no file.
    fn create(request: CqRequest, caller: Caller<'_, T>) -> Result<(Self, u32)>;

    /// Makes it go on with at least so many entries, for a process. Returns how many it has. May be
    /// called concurrently for one completion queue.
    ///
    /// # Errors
    ///
    /// `EINVAL`: beyond the limits, the memory does not hold so many, or more are unread. `EPIPE`: it was
    /// overrun. `EOPNOTSUPP`: it is one of a kernel ULP.
    fn resize(&self, entries: u32, udata: Udata<'_>) -> Result<u32>;

    /// Destroys it. On return the device no longer accesses its memory, or the driver keeps that.
    fn destroy(self);

    /// Takes completions as long as there is room, for a kernel ULP. Any context.
    ///
    /// # Errors
    ///
    /// `EOPNOTSUPP`: it is one of a process, which polls it itself.
    fn poll(&self, into: &mut Completions<'_>) -> Result;

    /// Asks for an event of the next completion, or of the next that is solicited or failed, for a
    /// kernel ULP. Returns whether there is a completion that may have caused none. Any context.
    ///
    /// # Errors
    ///
    /// As of [`Self::poll`].
    fn notify(&self, solicited: bool) -> Result<bool>;

    /// Adds the driver's details for `rdma resource`. Not concurrently with a destroy.
    ///
    /// # Errors
    ///
    /// Those of [`Details::number`].
    fn details(&self, details: &mut Details<'_>) -> Result;
}

pub(super) type CoreCq<T> = CoreObject<bindings::ib_cq, (Events<CqEvent>, <T as Driver>::Cq)>;

/// The operation of a send request, with the code of its completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Operation {
    /// Fills a receive of the peer.
    Send = bindings::ib_wc_opcode_IB_WC_SEND,
    /// Writes the peer's memory.
    Write = bindings::ib_wc_opcode_IB_WC_RDMA_WRITE,
    /// Reads the peer's memory.
    Read = bindings::ib_wc_opcode_IB_WC_RDMA_READ,
    /// Compares and swaps 8 bytes of it.
    CompareSwap = bindings::ib_wc_opcode_IB_WC_COMP_SWAP,
    /// Adds to 8 bytes of it.
    FetchAdd = bindings::ib_wc_opcode_IB_WC_FETCH_ADD,
    /// Gives a fast registration memory region its memory.
    Register = bindings::ib_wc_opcode_IB_WC_REG_MR,
    /// Ends the registration of one.
    Invalidate = bindings::ib_wc_opcode_IB_WC_LOCAL_INV,
}

/// The request that a completion is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Completed {
    /// A request of the send queue.
    Sent(Operation),
    /// A receive that a SEND has filled.
    Received,
    /// A receive that a WRITE has taken.
    Written,
}

/// A completion of a kernel ULP: `struct ib_wc`.
pub struct WorkCompletion<'a> {
    /// The ULP's own: `wr_id`.
    pub id: u64,
    /// The request that it completes.
    pub what: Completed,
    /// Success, or the cause of the error: `enum ib_wc_status`.
    pub status: u8,
    /// The device's code of an error: `vendor_err`.
    pub vendor: u8,
    /// Bytes that were received or read.
    pub bytes: u32,
    /// Immediate data, as it is in memory.
    pub imm: Option<u32>,
    /// The key that the peer has invalidated.
    pub invalidated: Option<u32>,
    /// The sender of a datagram. The receive begins with its GRH.
    pub from: Option<u32>,
    /// The queue pair of the request.
    pub qp: &'a Events<QpEvent>,
}

/// Room for the completions of a poll.
pub struct Completions<'a> {
    left: &'a mut [MaybeUninit<bindings::ib_wc>],
}

impl Completions<'_> {
    /// Whether there is none left.
    #[inline]
    pub fn is_full(&self) -> bool {
        self.left.is_empty()
    }

    /// Gives a completion to the poller. One of a queue pair that is being destroyed is dropped, as one
    /// for which there is no room.
    pub fn put(&mut self, completion: &WorkCompletion<'_>) {
        // Its address alone: what was put before a destroy is the poller's in any case.
        let Some(qp) = completion.qp.address() else {
            return;
        };
        if let [first, left @ ..] = take(&mut self.left) {
            first.write(completion.of(qp));
            self.left = left;
        }
    }
}

impl WorkCompletion<'_> {
    /// As the core has it, of `qp`.
    fn of(&self, qp: *mut bindings::ib_qp) -> bindings::ib_wc {
        let imm = self.imm.map_or(0, |_| bindings::ib_wc_flags_IB_WC_WITH_IMM);
        let invalidate = bindings::ib_wc_flags_IB_WC_WITH_INVALIDATE;
        let invalidate = self.invalidated.map_or(0, |_| invalidate);
        // The core finds out itself whether the GRH is a header of IPv4.
        let grh = self.from.map_or(0, |_| bindings::ib_wc_flags_IB_WC_GRH);
        let mut wc = bindings::ib_wc {
            status: self.status.into(),
            opcode: match self.what {
                // CAST: The discriminant.
                Completed::Sent(operation) => operation as u32,
                Completed::Received => bindings::ib_wc_opcode_IB_WC_RECV,
                Completed::Written => bindings::ib_wc_opcode_IB_WC_RECV_RDMA_WITH_IMM,
            },
            vendor_err: self.vendor.into(),
            byte_len: self.bytes,
            qp,
            src_qp: self.from.unwrap_or(0),
            // CAST: A set of bits.
            wc_flags: (imm | invalidate | grh) as c_int,
            port_num: PORT,
            ..Default::default()
        };
        wc.__bindgen_anon_1.wr_id = self.id;
        wc.ex.imm_data = self.imm.or(self.invalidated).unwrap_or(0);
        wc
    }
}

impl<T: Driver> Ops<T> {
    pub(super) const CQ: bindings::ib_device_ops = bindings::ib_device_ops {
        create_cq: Some(Self::create_cq),
        resize_user_cq: Some(Self::resize_user_cq),
        pre_destroy_cq: Some(Self::pre_destroy_cq),
        destroy_cq: Some(Self::destroy_cq),
        poll_cq: Some(Self::poll_cq),
        req_notify_cq: Some(Self::req_notify_cq),
        fill_res_cq_entry: Some(Self::fill_res_cq_entry),
        size_ib_cq: CoreCq::<T>::SIZE,
        ..Self::NONE
    };

    /// # Safety
    ///
    /// `cq` is new and `attr` valid; `attrs` is null, or the bundle of its command.
    unsafe extern "C" fn create_cq(
        cq: *mut bindings::ib_cq,
        attr: *const bindings::ib_cq_init_attr,
        attrs: *mut bindings::uverbs_attr_bundle,
    ) -> c_int {
        status(|| {
            // SAFETY: `attr` is valid.
            let attr = unsafe { &*attr };
            if attr.flags != 0 {
                return Err(EOPNOTSUPP);
            }
            // SAFETY: The device of `cq` is live; the bundle is valid. The events are cut off by the
            // destroy, and below if there is none.
            let (caller, events) = unsafe {
                let udata = match attrs.is_null() {
                    true => ptr::null_mut(),
                    false => &raw mut (*attrs).__bindgen_anon_1.__bindgen_anon_1.driver_udata,
                };
                (Caller::new((*cq).device, udata)?, Events::new(cq)?)
            };
            if let Caller::Process(..) = caller {
                events.finish();
            }
            let request = CqRequest {
                entries: attr.cqe,
                vector: attr.comp_vector,
                events: events.clone(),
            };
            let (part, entries) = T::Cq::create(request, caller).inspect_err(|_| events.cut())?;
            // SAFETY: `cq` is new.
            unsafe {
                (*cq).cqe = c_int::try_from(entries).unwrap_or(c_int::MAX);
                CoreCq::<T>::put(cq, (events, part));
            }
            Ok(())
        })
    }

    /// Two commands may write the number of entries at a time, each a whole one, as in other drivers.
    ///
    /// # Safety
    ///
    /// `cq` is live, `udata` a command.
    unsafe extern "C" fn resize_user_cq(
        cq: *mut bindings::ib_cq,
        entries: c_uint,
        udata: *mut bindings::ib_udata,
    ) -> c_int {
        // SAFETY: `cq` is live, and `udata` a command.
        let ((_, part), udata) = unsafe { (CoreCq::<T>::get(cq), Udata::of(udata)) };
        status(|| {
            let entries = part.resize(entries, udata.ok_or(EOPNOTSUPP)?)?;
            // SAFETY: As above.
            unsafe { (*cq).cqe = c_int::try_from(entries).unwrap_or(c_int::MAX) };
            Ok(())
        })
    }

    /// `ib_free_cq()` cancels the work of the queue's events, and then destroys the queue. So no event
    /// may come in between.
    ///
    /// # Safety
    ///
    /// `cq` is live.
    unsafe extern "C" fn pre_destroy_cq(cq: *mut bindings::ib_cq) -> c_int {
        // SAFETY: `cq` is live.
        let (events, _) = unsafe { CoreCq::<T>::get(cq) };
        events.cut();
        0
    }

    /// # Safety
    ///
    /// `cq` is ending.
    unsafe extern "C" fn destroy_cq(
        cq: *mut bindings::ib_cq,
        _udata: *mut bindings::ib_udata,
    ) -> c_int {
        // SAFETY: `cq` is ending.
        let (events, part) = unsafe { CoreCq::<T>::take(cq) };
        events.cut();
        part.destroy();
        0
    }

    /// # Safety
    ///
    /// `cq` is live; `wc` is `most` completions to fill.
    unsafe extern "C" fn poll_cq(
        cq: *mut bindings::ib_cq,
        most: c_int,
        wc: *mut bindings::ib_wc,
    ) -> c_int {
        let most = usize::try_from(most).unwrap_or(0);
        // There may be no list then.
        if most == 0 {
            return 0;
        }
        // SAFETY: `cq` is live.
        let (_, part) = unsafe { CoreCq::<T>::get(cq) };
        // SAFETY: The caller fills `wc` by this, which has room for as many.
        let left = unsafe { core::slice::from_raw_parts_mut(wc.cast(), most) };
        let mut room = Completions { left };
        from_result(|| {
            part.poll(&mut room)?;
            // CAST: At most `most`.
            Ok(most.saturating_sub(room.left.len()) as c_int)
        })
    }

    /// Of a kernel ULP; or of a process, whose CQ takes doorbells on the page of the process alone: then
    /// it does nothing, and the core ignores the result.
    ///
    /// # Safety
    ///
    /// `cq` is live.
    unsafe extern "C" fn req_notify_cq(
        cq: *mut bindings::ib_cq,
        flags: bindings::ib_cq_notify_flags,
    ) -> c_int {
        let reports = flags & bindings::ib_cq_notify_flags_IB_CQ_REPORT_MISSED_EVENTS != 0;
        let solicited = flags & bindings::ib_cq_notify_flags_IB_CQ_SOLICITED_MASK
            == bindings::ib_cq_notify_flags_IB_CQ_SOLICITED;
        // SAFETY: `cq` is live.
        let (_, part) = unsafe { CoreCq::<T>::get(cq) };
        from_result(|| {
            let missed = part.notify(solicited)?;
            Ok((missed && reports).into())
        })
    }

    /// # Safety
    ///
    /// `cq` is live, `message` to fill.
    unsafe extern "C" fn fill_res_cq_entry(
        message: *mut kernel::bindings::sk_buff,
        cq: *mut bindings::ib_cq,
    ) -> c_int {
        // SAFETY: `cq` is live.
        let (_, part) = unsafe { CoreCq::<T>::get(cq) };
        let write = |details: &mut Details<'_>| part.details(details);
        // SAFETY: The caller fills `message` by this.
        unsafe { Details::write(message, write) }
    }
}
