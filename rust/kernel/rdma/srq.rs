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
    fn create(request: SrqRequest<'_, T>, caller: Caller<'_, T>) -> Result<(Self, u32)>;

    /// Changes it, all or nothing; that of a kernel ULP without `udata`. May be called concurrently
    /// for one queue.
    fn modify(&self, change: SrqChange, udata: Option<Udata<'_>>) -> Result;

    /// What it is; the limit is 0 if it has had its event.
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
    /// Called by the core.
    unsafe extern "C" fn create_srq(
        srq: *mut bindings::ib_srq,
        init: *mut bindings::ib_srq_init_attr,
        udata: *mut bindings::ib_udata,
    ) -> c_int {
        // SAFETY: Called by the core, with a queue of this driver's size, its attributes, and a
        // domain of this device that outlives it.
        from_result(|| unsafe {
            let init = &mut *init;
            if init.srq_type != bindings::ib_srq_type_IB_SRQT_BASIC {
                return Err(EOPNOTSUPP);
            }
            let caller = Caller::new((*srq).device, udata)?;
            let events = Events::new(srq)?;
            let request = SrqRequest {
                pd: CorePd::<T>::get((*srq).pd),
                attr: &init.attr,
                events: events.clone(),
            };
            let (part, recvs) = T::Srq::create(request, caller).inspect_err(|_| events.cut())?;
            init.attr.max_wr = recvs;
            CoreSrq::<T>::put(srq, (events, part));
            Ok(0)
        })
    }

    /// # Safety
    ///
    /// Called by the core.
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

        // SAFETY: Called by the core, with a queue of this driver, its attributes, and the command, if
        // there is one.
        from_result(|| unsafe {
            if mask & !(LIMIT | MAX_WR) != 0 {
                return Err(EOPNOTSUPP);
            }
            if mask == 0 {
                return Ok(0);
            }
            let (_, part) = CoreSrq::<T>::get(srq);
            let change = SrqChange {
                limit: (mask & LIMIT != 0).then_some((*attr).srq_limit),
                max_wr: (mask & MAX_WR != 0).then_some((*attr).max_wr),
            };
            part.modify(change, Udata::of(udata)).map(|()| 0)
        })
    }

    /// # Safety
    ///
    /// Called by the core.
    unsafe extern "C" fn query_srq(
        srq: *mut bindings::ib_srq,
        attr: *mut bindings::ib_srq_attr,
    ) -> c_int {
        // SAFETY: Called by the core, with a queue of this driver and a structure to fill.
        from_result(|| unsafe {
            *attr = CoreSrq::<T>::get(srq).1.query()?;
            Ok(0)
        })
    }

    /// # Safety
    ///
    /// Called by the core.
    unsafe extern "C" fn destroy_srq(
        srq: *mut bindings::ib_srq,
        _udata: *mut bindings::ib_udata,
    ) -> c_int {
        // SAFETY: Called by the core once.
        let (events, part) = unsafe { CoreSrq::<T>::take(srq) };
        events.cut();
        part.destroy();
        0
    }

    /// # Safety
    ///
    /// Called by a kernel ULP.
    unsafe extern "C" fn post_srq_recv(
        srq: *mut bindings::ib_srq,
        wr: *const bindings::ib_recv_wr,
        bad: *mut *const bindings::ib_recv_wr,
    ) -> c_int {
        // SAFETY: A queue of this driver, and a list of receives.
        unsafe {
            let (_, part) = CoreSrq::<T>::get(srq);
            recv::post(wr, bad, |list| part.post_recv(list))
        }
    }
}
