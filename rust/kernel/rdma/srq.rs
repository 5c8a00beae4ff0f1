// SPDX-License-Identifier: GPL-2.0

//! Shared receive queues.

use super::{
    context::Caller,
    event::{
        Events,
        SrqEvent, //
    },
    pd::CorePd,
    prelude::*,
    recv::{
        self,
        Receives,
        RecvRequest, //
    },
    SrqAttributes, //
};

/// The attributes of a shared receive queue that is created.
pub struct SrqRequest<'a, T: Driver> {
    /// Its domain.
    pub pd: &'a T::Pd,
    /// Receives that may be outstanding, and SGEs that each may have.
    pub attr: &'a SrqAttributes,
    /// Its events.
    pub events: Events<SrqEvent>,
}

/// What is to change of a shared receive queue: nothing, either or both.
#[derive(Clone, Copy, Debug)]
pub struct SrqChange {
    /// Requests [`SrqEvent::Limit`] once fewer receives than this are left.
    pub limit: Option<u32>,
    /// Receives that may be outstanding.
    pub max_wr: Option<u32>,
}

/// A shared receive queue. Operations run in process context and may sleep, except
/// [`Self::post_recv`].
pub trait Operations<T: Driver>: Sized + Send + Sync {
    /// Creates it. Also returns how many receives it holds.
    ///
    /// # Errors
    ///
    /// `EINVAL`: beyond the limits, or the memory of the process does not hold so many.
    fn create(request: SrqRequest<'_, T>, caller: Caller<'_, T>) -> Result<(Self, u32)>;

    /// Changes it, all or nothing; that of a kernel ULP without `udata`. May be called concurrently
    /// for one queue.
    ///
    /// # Errors
    ///
    /// `EINVAL`: the limit is more than it holds; for `max_wr` beyond the limits, the memory does not hold
    /// so many, or more are left. `EOPNOTSUPP`: `max_wr` of one of a kernel ULP.
    fn modify(&self, change: SrqChange, udata: Option<Udata<'_>>) -> Result;

    /// What it is; the limit is 0 if it has had its event.
    ///
    /// # Errors
    ///
    /// Those of [all operations](super#errors).
    fn query(&self) -> Result<SrqAttributes>;

    /// Destroys it. On return the device no longer accesses its memory, or the driver keeps that.
    fn destroy(self);

    /// Posts receives of a kernel ULP, until one is refused or an error. Any context.
    ///
    /// # Errors
    ///
    /// Of the first that is not posted: `EINVAL`, `ENOMEM` if the queue is full. `EOPNOTSUPP`: it is
    /// of a process, which posts itself.
    fn post_recv<'a>(&self, requests: impl Iterator<Item = Result<RecvRequest<'a>>>) -> Result;
}

pub(super) type CoreSrq<T> = CoreObject<bindings::ib_srq, (Events<SrqEvent>, <T as Driver>::Srq)>;

impl<T: Driver> Ops<T> {
    pub(super) const SRQ: bindings::ib_device_ops = bindings::ib_device_ops {
        create_srq: Some(Self::create_srq),
        modify_srq: Some(Self::modify_srq),
        query_srq: Some(Self::query_srq),
        destroy_srq: Some(Self::destroy_srq),
        post_srq_recv: Some(Self::post_srq_recv),
        size_ib_srq: CoreSrq::<T>::SIZE,
        ..Self::NONE
    };

    /// # Safety
    ///
    /// `srq` is new, `init` to fill, `udata` its command.
    unsafe extern "C" fn create_srq(
        srq: *mut bindings::ib_srq,
        init: *mut bindings::ib_srq_init_attr,
        udata: *mut bindings::ib_udata,
    ) -> c_int {
        status(|| {
            // SAFETY: The caller fills it by this.
            let init = unsafe { &mut *init };
            if init.srq_type != bindings::ib_srq_type_IB_SRQT_BASIC {
                return Err(EOPNOTSUPP);
            }
            // SAFETY: The device of `srq` is live, and `udata` a command.
            let caller = unsafe { Caller::new((*srq).device, udata) }?;
            // SAFETY: The domain of `srq` is live. The events are cut off by the destroy, and below if
            // there is none.
            let (pd, events) = unsafe { (CorePd::<T>::get((*srq).pd), Events::new(srq)?) };
            let request = SrqRequest {
                pd,
                attr: &init.attr,
                events: events.clone(),
            };
            let (part, recvs) = T::Srq::create(request, caller).inspect_err(|_| events.cut())?;
            init.attr.max_wr = recvs;
            // SAFETY: `srq` is new.
            unsafe { CoreSrq::<T>::put(srq, (events, part)) };
            Ok(())
        })
    }

    /// # Safety
    ///
    /// `srq` is live, `attr` valid, `udata` a command.
    unsafe extern "C" fn modify_srq(
        srq: *mut bindings::ib_srq,
        attr: *mut bindings::ib_srq_attr,
        mask: bindings::ib_srq_attr_mask,
        udata: *mut bindings::ib_udata,
    ) -> c_int {
        use bindings::{
            ib_srq_attr_mask_IB_SRQ_LIMIT as LIMIT,
            ib_srq_attr_mask_IB_SRQ_MAX_WR as MAX_WR, //
        };

        if mask & !(LIMIT | MAX_WR) != 0 {
            return EOPNOTSUPP.to_errno();
        }
        if mask == 0 {
            return 0;
        }
        // SAFETY: `srq` is live, `attr` valid, and `udata` a command.
        let ((_, part), attr, udata) =
            unsafe { (CoreSrq::<T>::get(srq), &*attr, Udata::of(udata)) };
        let change = SrqChange {
            limit: (mask & LIMIT != 0).then_some(attr.srq_limit),
            max_wr: (mask & MAX_WR != 0).then_some(attr.max_wr),
        };
        status(|| part.modify(change, udata))
    }

    /// # Safety
    ///
    /// `srq` is live, `attr` to fill.
    unsafe extern "C" fn query_srq(
        srq: *mut bindings::ib_srq,
        attr: *mut bindings::ib_srq_attr,
    ) -> c_int {
        // SAFETY: `srq` is live, and the caller fills `attr` by this.
        let ((_, part), attr) = unsafe { (CoreSrq::<T>::get(srq), &mut *attr) };
        status(|| part.query().map(|now| *attr = now))
    }

    /// # Safety
    ///
    /// `srq` is ending.
    unsafe extern "C" fn destroy_srq(
        srq: *mut bindings::ib_srq,
        _udata: *mut bindings::ib_udata,
    ) -> c_int {
        // SAFETY: `srq` is ending.
        let (events, part) = unsafe { CoreSrq::<T>::take(srq) };
        events.cut();
        part.destroy();
        0
    }

    /// # Safety
    ///
    /// `srq` is live; `wr` and `bad` are those of [`recv::post`].
    unsafe extern "C" fn post_srq_recv(
        srq: *mut bindings::ib_srq,
        wr: *const bindings::ib_recv_wr,
        bad: *mut *const bindings::ib_recv_wr,
    ) -> c_int {
        // SAFETY: `srq` is live.
        let (_, part) = unsafe { CoreSrq::<T>::get(srq) };
        let post = |list: &mut Receives<'_>| part.post_recv(list);
        // SAFETY: By the caller's promise.
        unsafe { recv::post(wr, bad, post) }
    }
}
