// SPDX-License-Identifier: GPL-2.0

//! Objects of users in the kernel.

use super::{
    bindings,
    events::Events,
    mr::Mr,
    ops::{
        Cq,
        Ops,
        Pd,
        Qp, //
    },
    qp::{
        self,
        Kept, //
    },
    work::Side,
    CqRequest,
    Driver,
    QpState, //
};
use kernel::prelude::*;

/// The number of queue pair 1, whatever the device calls it.
const QP1: u32 = 1;

impl<T: Driver> Ops<T> {
    /// The state of a queue pair, and whether it drains.
    pub(super) fn state_of(part: &Side<T::Qp, T::KernelQp>) -> Result<(QpState, bool)> {
        match part {
            Side::Process(part) => T::query_qp(part),
            Side::Kernel(part) => T::kernel_query_qp(part),
        }
    }

    /// # Safety
    ///
    /// `cq` is being created by the core.
    pub(super) unsafe fn create_kernel_cq(cq: *mut bindings::ib_cq, request: CqRequest) -> Result {
        // SAFETY: By the caller's promise.
        unsafe {
            let events = Events::new(cq)?;
            let made = T::kernel_create_cq(Self::data((*cq).device), request, events.clone());
            let (part, entries) = made.inspect_err(|_| events.cut())?;
            (*cq).cqe = c_int::try_from(entries).unwrap_or(c_int::MAX);
            Cq::<T>::put(cq, (events, Side::Kernel(part)));
        }
        Ok(())
    }

    /// # Safety
    ///
    /// `qp` is being created by the core with these attributes.
    pub(super) unsafe fn create_kernel_qp(
        qp: *mut bindings::ib_qp,
        attr: &mut bindings::ib_qp_init_attr,
    ) -> Result {
        let request = qp::kernel_request(attr)?;
        if !attr.srq.is_null() {
            return Err(EOPNOTSUPP);
        }
        attr.cap.max_inline_data = 0;
        // SAFETY: By the caller's promise, with a domain and queues that outlive it.
        unsafe {
            let pd = Pd::<T>::get((*qp).pd).kernel()?;
            let send = Cq::<T>::get(attr.send_cq).1.kernel()?;
            let recv = Cq::<T>::get(attr.recv_cq).1.kernel()?;
            let kept = Kept::new(attr)?;
            let events = Events::new(qp)?;
            let made = T::kernel_create_qp(pd, (send, recv), request, events.clone());
            let (part, number) = made.inspect_err(|_| events.cut())?;
            (*qp).qp_num = if request.is_port_qp { QP1 } else { number };
            Qp::<T>::put(qp, (events, kept, Side::Kernel(part)));
        }
        Ok(())
    }

    /// # Safety
    ///
    /// Called by the core.
    pub(super) unsafe extern "C" fn get_dma_mr(
        pd: *mut bindings::ib_pd,
        access: c_int,
    ) -> *mut bindings::ib_mr {
        // SAFETY: Called by the core, with a domain of the kernel.
        let made = unsafe {
            Pd::<T>::get(pd).kernel().and_then(|pd| {
                let mut mr = KBox::<Mr<T>>::new_uninit(GFP_KERNEL)?;
                // CAST: A set of bits.
                let (part, key) = T::kernel_all_memory(pd, access as u32)?;
                let raw: *mut bindings::ib_mr = mr.as_mut_ptr().cast();
                raw.write(Default::default());
                (*raw).lkey = key;
                (*raw).rkey = key;
                Mr::<T>::put(raw, Side::Kernel(part));
                // The core has it until it calls `dereg_mr`.
                Ok(KBox::into_raw(mr).cast())
            })
        };
        match made {
            Ok(mr) => mr,
            Err(error) => error.to_ptr(),
        }
    }
}
