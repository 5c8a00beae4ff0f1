// SPDX-License-Identifier: GPL-2.0

//! Operations on shared receive queues.

use super::{
    bindings,
    events::{
        Events,
        SrqEvent, //
    },
    object::Object,
    ops::{
        errno,
        Ops,
        Pd, //
    },
    udata::Udata,
    Driver,
    SrqChange,
    SrqRequest, //
};
use kernel::prelude::*;

pub(super) type Srq<T> = Object<bindings::ib_srq, (Events<SrqEvent>, <T as Driver>::Srq)>;

impl<T: Driver> Ops<T> {
    /// # Safety
    ///
    /// Called by the core.
    pub(super) unsafe extern "C" fn create_srq(
        srq: *mut bindings::ib_srq,
        init: *mut bindings::ib_srq_init_attr,
        udata: *mut bindings::ib_udata,
    ) -> c_int {
        // SAFETY: Called by the core, with a queue of this driver's size, its attributes, and a
        // domain of this device that outlives it.
        errno(unsafe {
            let init = &mut *init;
            if init.srq_type != bindings::ib_srq_type_IB_SRQT_BASIC {
                return EOPNOTSUPP.to_errno();
            }
            let request = SrqRequest {
                recvs: init.attr.max_wr,
                sges: init.attr.max_sge,
            };
            Self::for_process(udata, |context, udata| {
                let pd = Pd::<T>::get((*srq).pd).process()?;
                let events = Events::new(srq)?;
                let (part, recvs) = T::create_srq(context, pd, request, events.clone(), udata)
                    .inspect_err(|_| events.cut())?;
                init.attr.max_wr = recvs;
                Srq::<T>::put(srq, (events, part));
                Ok(())
            })
        })
    }

    /// # Safety
    ///
    /// Called by the core.
    pub(super) unsafe extern "C" fn modify_srq(
        srq: *mut bindings::ib_srq,
        attr: *mut bindings::ib_srq_attr,
        mask: bindings::ib_srq_attr_mask,
        udata: *mut bindings::ib_udata,
    ) -> c_int {
        use bindings::{
            ib_srq_attr_mask_IB_SRQ_LIMIT as LIMIT,
            ib_srq_attr_mask_IB_SRQ_MAX_WR as MAX_WR, //
        };

        if udata.is_null() || mask & !(LIMIT | MAX_WR) != 0 {
            return EOPNOTSUPP.to_errno();
        }
        if mask == 0 {
            return 0;
        }
        // SAFETY: Called by the core, with a queue of this driver and its attributes.
        errno(unsafe {
            let (_, part) = Srq::<T>::get(srq);
            let change = SrqChange {
                limit: (mask & LIMIT != 0).then_some((*attr).srq_limit),
                recvs: (mask & MAX_WR != 0).then_some((*attr).max_wr),
            };
            T::modify_srq(part, change, Udata::new(udata))
        })
    }

    /// # Safety
    ///
    /// Called by the core.
    pub(super) unsafe extern "C" fn query_srq(
        srq: *mut bindings::ib_srq,
        attr: *mut bindings::ib_srq_attr,
    ) -> c_int {
        // SAFETY: Called by the core, with a queue of this driver and a structure to fill.
        errno(unsafe {
            let (_, part) = Srq::<T>::get(srq);
            T::query_srq(part).map(|(is, limit)| {
                (*attr).max_wr = is.recvs;
                (*attr).max_sge = is.sges;
                (*attr).srq_limit = limit;
            })
        })
    }

    /// # Safety
    ///
    /// Called by the core.
    pub(super) unsafe extern "C" fn destroy_srq(
        srq: *mut bindings::ib_srq,
        _udata: *mut bindings::ib_udata,
    ) -> c_int {
        // SAFETY: Called by the core once.
        let (events, part) = unsafe { Srq::<T>::take(srq) };
        events.cut();
        T::destroy_srq(part);
        0
    }
}
