// SPDX-License-Identifier: GPL-2.0

//! The table of operations of an RDMA device.

use super::{
    bindings,
    events::{
        CqEvent,
        Events,
        QpEvent, //
    },
    mmap::{
        self,
        Mapped, //
    },
    mr::Mw,
    object::{
        context,
        Object, //
    },
    port::LID,
    qp::{
        self,
        Kept, //
    },
    registration::{
        Device,
        PORT, //
    },
    udata::Udata,
    work::{
        Side,
        UdAddress, //
    },
    Address,
    CqRequest,
    DeviceAttributes,
    Driver,
    Gid, //
};
use crate::kernel::compat;
use core::{
    marker::PhantomData,
    mem,
    ptr, //
};
use kernel::prelude::*;

/// How long values of counters are good, in milliseconds. A read may take as many calls as there
/// are counters.
const LIFESPAN: c_ulong = 10;

type Context<T> = Object<bindings::ib_ucontext, (Mapped, <T as Driver>::Context)>;
type CqPart<T> = Side<<T as Driver>::Cq, <T as Driver>::KernelCq>;
type QpPart<T> = Side<<T as Driver>::Qp, <T as Driver>::KernelQp>;
pub(super) type Pd<T> = Object<bindings::ib_pd, Side<<T as Driver>::Pd, <T as Driver>::KernelPd>>;
pub(super) type Ah<T> = Object<bindings::ib_ah, Side<<T as Driver>::Ah, UdAddress>>;
pub(super) type Cq<T> = Object<bindings::ib_cq, (Events<CqEvent>, CqPart<T>)>;
pub(super) type Qp<T> = Object<bindings::ib_qp, (Events<QpEvent>, Pin<KBox<Kept>>, QpPart<T>)>;
type Srq<T> = super::srq::Srq<T>;

/// The result of an operation in C.
pub(super) fn errno(result: Result) -> c_int {
    match result {
        Ok(()) => 0,
        Err(error) => error.to_errno(),
    }
}

/// The capabilities that a driver can have.
fn capabilities(found: &DeviceAttributes) -> u64 {
    use bindings::{
        ib_device_cap_flags_IB_DEVICE_MEM_WINDOW as WINDOW,
        ib_device_cap_flags_IB_DEVICE_MEM_WINDOW_TYPE_2B as TYPE_2B,
        ib_device_cap_flags_IB_DEVICE_SRQ_RESIZE as SRQ_RESIZE,
        ib_uverbs_device_cap_flags_IB_UVERBS_DEVICE_ATOMIC_WRITE as ATOMIC_WRITE,
        ib_uverbs_device_cap_flags_IB_UVERBS_DEVICE_FLUSH_GLOBAL as GLOBAL,
        ib_uverbs_device_cap_flags_IB_UVERBS_DEVICE_FLUSH_PERSISTENT as PERSISTENT, //
    };
    let flush = if found.flush { GLOBAL | PERSISTENT } else { 0 };
    let atomic_write = if found.atomic_write { ATOMIC_WRITE } else { 0 };
    let windows = if found.max_mw != 0 {
        WINDOW | TYPE_2B
    } else {
        0
    };
    let srq_resize = if found.max_srq != 0 { SRQ_RESIZE } else { 0 };
    // CAST: Sets of bits, which are a `usize` for the kernel crate.
    (flush | atomic_write) as u64 | (windows | srq_resize) as u64
}

/// The operations.
///
/// The core calls them with objects of a device of this driver that are registered or created, and
/// not yet destroyed; with structures to fill; and with the command that runs.
pub(super) struct Ops<T>(PhantomData<T>);

impl<T: Driver> Ops<T> {
    /// The table.
    pub(super) const TABLE: bindings::ib_device_ops = bindings::ib_device_ops {
        owner: compat::OWNER,
        driver_id: bindings::rdma_driver_id_RDMA_DRIVER_UNKNOWN,
        uverbs_abi_ver: T::ABI,
        query_device: Some(Self::query_device),
        query_port: Some(Self::query_port),
        get_port_immutable: Some(Self::get_port_immutable),
        query_gid: Some(Self::query_gid),
        get_link_layer: Some(Self::get_link_layer),
        add_gid: Some(Self::add_gid),
        report_port_event: Some(Self::report_port_event),
        enable_driver: Some(Self::enable_driver),
        del_gid: Some(Self::del_gid),
        query_pkey: Some(Self::query_pkey),
        alloc_ucontext: Some(Self::alloc_ucontext),
        dealloc_ucontext: Some(Self::dealloc_ucontext),
        disassociate_ucontext: Some(Self::disassociate_ucontext),
        mmap: Some(Self::mmap),
        alloc_pd: Some(Self::alloc_pd),
        dealloc_pd: Some(Self::dealloc_pd),
        create_ah: Some(Self::create_ah),
        create_user_ah: Some(Self::create_user_ah),
        destroy_ah: Some(Self::destroy_ah),
        create_cq: Some(Self::create_cq),
        resize_user_cq: Some(Self::resize_user_cq),
        pre_destroy_cq: Some(Self::pre_destroy_cq),
        destroy_cq: Some(Self::destroy_cq),
        create_srq: Some(Self::create_srq),
        modify_srq: Some(Self::modify_srq),
        query_srq: Some(Self::query_srq),
        destroy_srq: Some(Self::destroy_srq),
        create_qp: Some(Self::create_qp),
        modify_qp: Some(Self::modify_qp),
        attach_mcast: Some(Self::attach_mcast),
        detach_mcast: Some(Self::detach_mcast),
        query_qp: Some(Self::query_qp),
        destroy_qp: Some(Self::destroy_qp),
        post_send: Some(Self::post_send),
        post_recv: Some(Self::post_recv),
        poll_cq: Some(Self::poll_cq),
        req_notify_cq: Some(Self::req_notify_cq),
        get_dma_mr: Some(Self::get_dma_mr),
        reg_user_mr: Some(Self::reg_user_mr),
        rereg_user_mr: Some(Self::rereg_user_mr),
        dereg_mr: Some(Self::dereg_mr),
        alloc_mw: Some(Self::alloc_mw),
        dealloc_mw: Some(Self::dealloc_mw),
        alloc_hw_port_stats: Some(Self::alloc_hw_port_stats),
        get_hw_stats: Some(Self::get_hw_stats),
        fill_res_cq_entry: Some(Self::fill_res_cq_entry),
        fill_res_qp_entry: Some(Self::fill_res_qp_entry),
        fill_res_mr_entry: Some(Self::fill_res_mr_entry),
        size_ib_ucontext: Context::<T>::SIZE,
        size_ib_pd: Pd::<T>::SIZE,
        size_ib_ah: Ah::<T>::SIZE,
        size_ib_srq: Srq::<T>::SIZE,
        size_ib_cq: Cq::<T>::SIZE,
        size_ib_qp: Qp::<T>::SIZE,
        size_ib_mw: Mw::<T>::SIZE,
        // SAFETY: All fields are optional functions, pointers and integers.
        ..unsafe { mem::zeroed() }
    };

    /// # Safety
    ///
    /// `dev` is registered.
    pub(super) unsafe fn data<'a>(dev: *mut bindings::ib_device) -> &'a T::Data {
        // SAFETY: By the caller's promise.
        unsafe { &Device::<T>::get(dev).data }
    }

    /// # Safety
    ///
    /// Called by the core.
    unsafe extern "C" fn query_device(
        dev: *mut bindings::ib_device,
        attr: *mut bindings::ib_device_attr,
        udata: *mut bindings::ib_udata,
    ) -> c_int {
        // SAFETY: Called by the core, with a registered device and a structure to fill.
        let (found, attr) = unsafe { (T::device(Self::data(dev)), &mut *attr) };
        attr.fw_ver = found.firmware;
        // SAFETY: As above.
        attr.sys_image_guid = unsafe { (*dev).node_guid };
        attr.max_mr_size = found.max_mr_bytes;
        attr.page_size_cap = found.page_sizes;
        attr.vendor_id = found.vendor;
        attr.vendor_part_id = found.part;
        attr.hw_ver = found.revision;
        attr.max_qp = found.max_qp;
        attr.max_qp_wr = found.max_wr;
        attr.max_send_sge = found.max_send_sges;
        attr.max_recv_sge = found.max_recv_sges;
        attr.max_sge_rd = found.max_send_sges;
        attr.max_cq = found.max_cq;
        attr.max_cqe = found.max_cqe;
        attr.max_mr = found.max_mr;
        attr.max_pd = found.max_pd;
        attr.max_ah = found.max_ah;
        attr.max_srq = found.max_srq;
        attr.max_srq_wr = found.max_srq_wr;
        attr.max_srq_sge = found.max_srq_sges;
        attr.max_mw = found.max_mw;
        attr.max_mcast_grp = found.max_groups;
        attr.max_mcast_qp_attach = found.max_group_members;
        attr.max_total_mcast_qp_attach = found.max_groups;
        attr.max_qp_rd_atom = found.max_reads;
        attr.max_qp_init_rd_atom = found.max_reads;
        attr.max_res_rd_atom = found.max_reads.saturating_mul(found.max_qp);
        attr.atomic_cap = if found.atomics {
            bindings::ib_atomic_cap_IB_ATOMIC_HCA
        } else {
            bindings::ib_atomic_cap_IB_ATOMIC_NONE
        };
        attr.max_pkeys = 1;
        attr.device_cap_flags = capabilities(&found);
        if udata.is_null() {
            return 0;
        }
        // SAFETY: Of the command that runs.
        let udata = unsafe { Udata::new(udata) };
        errno(udata.without_request().and_then(|reply| reply.write(&())))
    }

    /// # Safety
    ///
    /// Called by the core.
    unsafe extern "C" fn alloc_hw_port_stats(
        dev: *mut bindings::ib_device,
        _port: u32,
    ) -> *mut bindings::rdma_hw_stats {
        // SAFETY: Called by the core, with a device whose counters are named for as long as it is
        // registered.
        unsafe {
            let names = &Device::<T>::get(dev).counters;
            // CAST: As many as there are names in the code.
            bindings::rdma_alloc_hw_stats_struct(names.as_ptr(), names.len() as c_int, LIFESPAN)
        }
    }

    /// # Safety
    ///
    /// Called by the core.
    unsafe extern "C" fn get_hw_stats(
        dev: *mut bindings::ib_device,
        stats: *mut bindings::rdma_hw_stats,
        port: u32,
        _index: c_int,
    ) -> c_int {
        if port != PORT {
            return EOPNOTSUPP.to_errno();
        }
        let count = T::COUNTERS.len();
        // SAFETY: Called by the core under the lock of `stats`, which `alloc_hw_port_stats` has
        // made for as many values.
        let read = unsafe {
            let values = core::slice::from_raw_parts_mut((*stats).value.as_mut_ptr(), count);
            T::counters(Self::data(dev), values)
        };
        match read {
            // CAST: As above.
            Ok(()) => count as c_int,
            Err(error) => error.to_errno(),
        }
    }

    /// # Safety
    ///
    /// Called by the core.
    unsafe extern "C" fn alloc_ucontext(
        ucontext: *mut bindings::ib_ucontext,
        udata: *mut bindings::ib_udata,
    ) -> c_int {
        // SAFETY: Called by the core, with a context of this driver's size and a registered device.
        errno(unsafe {
            let device = Device::<T>::get((*ucontext).device);
            let mapped = Mapped::new(&device.mappings);
            T::open(&device.data, Udata::new(udata))
                .map(|part| Context::<T>::put(ucontext, (mapped, part)))
                .inspect_err(|_| {
                    // The core frees the context of a failed ioctl without its reference to the
                    // task; rdma_restrack_put() of a failed write() finds none.
                    let task = mem::replace(&mut (*ucontext).res.task, ptr::null_mut());
                    if !task.is_null() {
                        kernel::bindings::put_task_struct(task);
                    }
                })
        })
    }

    /// # Safety
    ///
    /// Called by the core.
    unsafe extern "C" fn dealloc_ucontext(ucontext: *mut bindings::ib_ucontext) {
        // SAFETY: Called by the core once, after all objects of the context are destroyed.
        let (mapped, part) = unsafe { Context::<T>::take(ucontext) };
        drop(mapped);
        T::close(part);
    }

    /// The core takes the mappings away and destroys the objects. A driver that has this operation
    /// permits it.
    ///
    /// # Safety
    ///
    /// Called by the core.
    unsafe extern "C" fn disassociate_ucontext(_ucontext: *mut bindings::ib_ucontext) {}

    /// # Safety
    ///
    /// Called by the core.
    unsafe extern "C" fn mmap(
        ucontext: *mut bindings::ib_ucontext,
        vma: *mut kernel::bindings::vm_area_struct,
    ) -> c_int {
        // SAFETY: Called by the core with a live context, and with an area that is being mapped.
        errno(unsafe {
            let (mapped, context) = Context::<T>::get(ucontext);
            T::doorbells(context, |frame| mmap::map(ucontext, vma, mapped, frame))
        })
    }

    /// # Safety
    ///
    /// Called by the core.
    unsafe extern "C" fn alloc_pd(
        pd: *mut bindings::ib_pd,
        udata: *mut bindings::ib_udata,
    ) -> c_int {
        // SAFETY: Called by the core, with a domain of this driver's size.
        errno(unsafe {
            if udata.is_null() {
                let part = T::kernel_alloc_pd(Self::data((*pd).device));
                return errno(part.map(|part| Pd::<T>::put(pd, Side::Kernel(part))));
            }
            Self::for_process(udata, |context, udata| {
                let part = T::alloc_pd(context, udata);
                part.map(|part| Pd::<T>::put(pd, Side::Process(part)))
            })
        })
    }

    /// # Safety
    ///
    /// Called by the core.
    unsafe extern "C" fn dealloc_pd(
        pd: *mut bindings::ib_pd,
        _udata: *mut bindings::ib_udata,
    ) -> c_int {
        // SAFETY: Called by the core once.
        match unsafe { Pd::<T>::take(pd) } {
            Side::Process(part) => T::dealloc_pd(part),
            Side::Kernel(part) => T::kernel_dealloc_pd(part),
        }
        0
    }

    /// # Safety
    ///
    /// Called by the core.
    unsafe extern "C" fn create_user_ah(
        ah: *mut bindings::ib_ah,
        init: *mut bindings::rdma_ah_init_attr,
        udata: *mut bindings::ib_udata,
    ) -> c_int {
        // SAFETY: Called by the core, with a handle of this driver's size and its attributes, whose
        // union has the fields of InfiniBand on a port of that. That of RoCE has a GRH.
        errno(unsafe {
            let attr = &*(*init).ah_attr;
            let address = if u32::from(attr.ah_flags) & bindings::ib_ah_flags_IB_AH_GRH != 0 {
                Address::Global(Gid(*attr.grh.dgid.raw.as_ref()), attr.grh.sgid_index)
            } else if attr.__bindgen_anon_1.ib.as_ref().dlid == LID {
                Address::Own
            } else {
                Address::Foreign
            };
            Self::for_process(udata, |context, udata| {
                let part = T::create_ah(context, address, udata);
                part.map(|part| Ah::<T>::put(ah, Side::Process(part)))
            })
        })
    }

    /// # Safety
    ///
    /// Called by the core.
    unsafe extern "C" fn destroy_ah(ah: *mut bindings::ib_ah, _flags: u32) -> c_int {
        // SAFETY: Called by the core once.
        if let Side::Process(part) = unsafe { Ah::<T>::take(ah) } {
            T::destroy_ah(part);
        }
        0
    }

    /// Calls `f` with the context of a command of a process.
    ///
    /// # Errors
    ///
    /// `EOPNOTSUPP`: it is one of the kernel.
    ///
    /// # Safety
    ///
    /// `udata` is that of a command of this device, or null.
    pub(super) unsafe fn for_process<R>(
        udata: *mut bindings::ib_udata,
        f: impl FnOnce(&T::Context, Udata<'_>) -> Result<R>,
    ) -> Result<R> {
        // SAFETY: By the caller's promise. A context lives until its commands have ended.
        unsafe {
            let context = context(udata).ok_or(EOPNOTSUPP)?;
            let (_, context) = Context::<T>::get(context);
            f(context, Udata::new(udata))
        }
    }

    /// # Safety
    ///
    /// Called by the core.
    unsafe extern "C" fn create_cq(
        cq: *mut bindings::ib_cq,
        attr: *const bindings::ib_cq_init_attr,
        attrs: *mut bindings::uverbs_attr_bundle,
    ) -> c_int {
        // SAFETY: Called by the core, with a queue of this driver's size, its attributes and the
        // bundle of the command, if it is one of a process.
        errno(unsafe {
            let attr = &*attr;
            if attr.flags != 0 {
                return EOPNOTSUPP.to_errno();
            }
            let request = CqRequest {
                entries: attr.cqe,
                vector: attr.comp_vector,
            };
            if attrs.is_null() {
                return errno(Self::create_kernel_cq(cq, request));
            }
            let udata = &raw mut (*attrs).__bindgen_anon_1.__bindgen_anon_1.driver_udata;
            Self::for_process(udata, |context, udata| {
                let events = Events::new(cq)?;
                let (part, entries) = T::create_cq(context, request, events.clone(), udata)
                    .inspect_err(|_| events.cut())?;
                (*cq).cqe = c_int::try_from(entries).unwrap_or(c_int::MAX);
                Cq::<T>::put(cq, (events, Side::Process(part)));
                Ok(())
            })
        })
    }

    /// # Safety
    ///
    /// Called by the core.
    unsafe extern "C" fn destroy_cq(
        cq: *mut bindings::ib_cq,
        _udata: *mut bindings::ib_udata,
    ) -> c_int {
        // SAFETY: Called by the core once.
        let (events, part) = unsafe { Cq::<T>::take(cq) };
        events.cut();
        match part {
            Side::Process(part) => T::destroy_cq(part),
            Side::Kernel(part) => T::kernel_destroy_cq(part),
        }
        0
    }

    /// # Safety
    ///
    /// Called by the core.
    unsafe extern "C" fn create_qp(
        qp: *mut bindings::ib_qp,
        attr: *mut bindings::ib_qp_init_attr,
        udata: *mut bindings::ib_udata,
    ) -> c_int {
        // SAFETY: Called by the core, with a queue pair of this driver's size, its attributes, and
        // a domain and queues of this device that outlive it.
        errno(unsafe {
            if udata.is_null() {
                return errno(Self::create_kernel_qp(qp, &mut *attr));
            }
            let attr = &*attr;
            Self::for_process(udata, |context, udata| {
                let request = qp::request(attr)?;
                let pd = Pd::<T>::get((*qp).pd).process()?;
                let send = Cq::<T>::get(attr.send_cq).1.process()?;
                let recv = Cq::<T>::get(attr.recv_cq).1.process()?;
                let srq = (!attr.srq.is_null()).then(|| &Srq::<T>::get(attr.srq).1);
                let kept = Kept::new(attr)?;
                let events = Events::new(qp)?;
                let cqs = (send, recv);
                let (part, number) =
                    T::create_qp(context, pd, cqs, srq, request, events.clone(), udata)
                        .inspect_err(|_| events.cut())?;
                (*qp).qp_num = number;
                Qp::<T>::put(qp, (events, kept, Side::Process(part)));
                Ok(())
            })
        })
    }

    /// # Safety
    ///
    /// Called by the core.
    unsafe extern "C" fn modify_qp(
        qp: *mut bindings::ib_qp,
        attr: *mut bindings::ib_qp_attr,
        mask: c_int,
        udata: *mut bindings::ib_udata,
    ) -> c_int {
        // SAFETY: Called by the core, with a queue pair of this driver and its attributes; with the
        // command, if there is one: the core itself modifies queue pairs of processes that may not
        // use their partition any more.
        errno(unsafe {
            let (_, kept, part) = Qp::<T>::get(qp);
            let now = || Self::state_of(part);
            // CAST: A set of bits.
            let (attr, mask) = (&*attr, mask as u32);
            match part {
                // Copies from and to the process may last as long as it likes: before the change, and
                // after it.
                Side::Process(part) => Udata::of(udata)
                    .map(Udata::without_request)
                    .transpose()
                    .and_then(|reply| {
                        let change = |change| T::modify_qp(part, change);
                        let join = |group| T::attach_again(part, group);
                        let changed = kept.modify(attr, mask, now, change, join)?;
                        reply.map_or(Ok(()), |reply| reply.write(&changed))
                    }),
                Side::Kernel(part) => {
                    let change = |change| T::kernel_modify_qp(part, change);
                    let join = |group| T::kernel_attach_again(part, group);
                    kept.modify(attr, mask, now, change, join)
                }
            }
        })
    }

    /// # Safety
    ///
    /// Called by the core.
    unsafe extern "C" fn query_qp(
        qp: *mut bindings::ib_qp,
        attr: *mut bindings::ib_qp_attr,
        _mask: c_int,
        init: *mut bindings::ib_qp_init_attr,
    ) -> c_int {
        // SAFETY: Called by the core, with a queue pair of this driver and structures to fill.
        errno(unsafe {
            let (_, kept, part) = Qp::<T>::get(qp);
            kept.query(&mut *attr, &mut *init, || Self::state_of(part))
        })
    }

    /// # Safety
    ///
    /// Called by the core.
    unsafe extern "C" fn destroy_qp(
        qp: *mut bindings::ib_qp,
        _udata: *mut bindings::ib_udata,
    ) -> c_int {
        // SAFETY: Called by the core once.
        let (events, _, part) = unsafe { Qp::<T>::take(qp) };
        events.cut();
        match part {
            Side::Process(part) => T::destroy_qp(part),
            Side::Kernel(part) => T::kernel_destroy_qp(part),
        }
        0
    }
}
