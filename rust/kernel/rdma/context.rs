// SPDX-License-Identifier: GPL-2.0

//! Open files, and the commands of processes on them.
//!
//! The core takes mappings of a doorbell page away when the device is unregistered, which waits for the
//! calls of all processes. A device that is removed cannot wait: `missing::Mappings` removes the pages
//! that are mapped from all page tables at once. A later access finds memory of the core instead.

use super::{
    device::CoreDevice,
    missing::{
        release_task,
        DoorbellVma, //
    },
    prelude::*, //
};
use core::ptr::{
    self,
    NonNull, //
};
use kernel::{
    bindings::vm_area_struct,
    container_of,
    page::PAGE_SIZE, //
};

/// A page frame of device memory.
///
/// # Safety
///
/// [`number`](Self::number) is that of a page frame which processes may have until the device is
/// unregistered: of a BAR.
pub unsafe trait Frame {
    /// The physical address in pages.
    fn number(&self) -> u64;
}

/// An open file of `/dev/infiniband/uverbsN`.
pub trait Operations<T: Driver>: Sized + Send + Sync {
    /// A page of doorbells.
    type Frame: Frame;

    /// A process opens the device.
    ///
    /// # Errors
    ///
    /// `EOPNOTSUPP`: the device cannot access memory of processes in place.
    fn open(data: &T::Data, udata: Udata<'_>) -> Result<Self>;

    /// Calls `map` with the page of doorbells, which a process maps at offset 0. The device is not
    /// shut down before `map` returns.
    ///
    /// # Errors
    ///
    /// That of `map`.
    fn doorbells(&self, map: impl FnOnce(Self::Frame) -> Result) -> Result;

    /// All objects of the file are destroyed, and its mappings taken away.
    fn close(self);
}

type CoreContext<T> = CoreObject<bindings::ib_ucontext, (DoorbellVma, <T as Driver>::Context)>;

/// The fields of `struct uverbs_attr_bundle` that have names.
type Bundle = bindings::uverbs_attr_bundle__bindgen_ty_1__bindgen_ty_1;

/// The user that creates an object.
pub enum Caller<'a, T: Driver> {
    /// A process, by a command on this open file.
    Process(&'a T::Context, Udata<'a>),
    /// A kernel ULP, which has no file.
    Ulp(&'a T::Data),
}

impl<'a, T: Driver> Caller<'a, T> {
    /// # Errors
    ///
    /// `EOPNOTSUPP`: a command without an open file.
    ///
    /// # Safety
    ///
    /// `dev` is live, and `udata` a command, which runs for `'a`.
    pub(super) unsafe fn new(
        dev: *mut bindings::ib_device,
        udata: *mut bindings::ib_udata,
    ) -> Result<Self> {
        // SAFETY: By the caller's promise.
        let Some(command) = (unsafe { Udata::of(udata) }) else {
            // SAFETY: As above.
            return Ok(Self::Ulp(unsafe { &CoreDevice::<T>::get(dev).data }));
        };
        // SAFETY: A command is a part of a bundle, as `rdma_udata_to_uctx()` has it.
        let context = unsafe { (*container_of!(udata, Bundle, driver_udata)).context };
        if context.is_null() {
            return Err(EOPNOTSUPP);
        }
        // SAFETY: A context is live until its commands have ended.
        let (_, part) = unsafe { CoreContext::<T>::get(context) };
        Ok(Self::Process(part, command))
    }

    /// The command of a process, for an object that kernel ULPs do not have.
    ///
    /// # Errors
    ///
    /// `EOPNOTSUPP`: a kernel ULP asks.
    pub fn process(self) -> Result<(&'a T::Context, Udata<'a>)> {
        match self {
            Self::Process(context, udata) => Ok((context, udata)),
            Self::Ulp(_) => Err(EOPNOTSUPP),
        }
    }
}

impl<T: Driver> Ops<T> {
    pub(super) const CONTEXT: bindings::ib_device_ops = bindings::ib_device_ops {
        alloc_ucontext: Some(Self::alloc_ucontext),
        dealloc_ucontext: Some(Self::dealloc_ucontext),
        disassociate_ucontext: Some(Self::disassociate_ucontext),
        mmap: Some(Self::mmap),
        size_ib_ucontext: CoreContext::<T>::SIZE,
        ..Self::NONE
    };

    /// # Safety
    ///
    /// `ucontext` is new, `udata` its command.
    unsafe extern "C" fn alloc_ucontext(
        ucontext: *mut bindings::ib_ucontext,
        udata: *mut bindings::ib_udata,
    ) -> c_int {
        status(|| {
            // SAFETY: The device of `ucontext` is live.
            let device = unsafe { CoreDevice::<T>::get((*ucontext).device) };
            // SAFETY: `udata` is a command.
            let udata = unsafe { Udata::of(udata) }.ok_or(EOPNOTSUPP);
            let mapped = DoorbellVma::new(&device.mappings);
            let part = udata.and_then(|udata| T::Context::open(&device.data, udata));
            // SAFETY: `ucontext` is new.
            let part = part.inspect_err(|_| unsafe { release_task(ucontext) })?;
            // SAFETY: As above.
            unsafe { CoreContext::<T>::put(ucontext, (mapped, part)) };
            Ok(())
        })
    }

    /// # Safety
    ///
    /// `ucontext` is ending; all objects of it are destroyed.
    unsafe extern "C" fn dealloc_ucontext(ucontext: *mut bindings::ib_ucontext) {
        // SAFETY: `ucontext` is ending.
        let (mapped, part) = unsafe { CoreContext::<T>::take(ucontext) };
        drop(mapped);
        part.close();
    }

    /// The core takes the mappings away and destroys the objects. A driver that has this operation
    /// permits it.
    ///
    /// # Safety
    ///
    /// None is required.
    unsafe extern "C" fn disassociate_ucontext(_ucontext: *mut bindings::ib_ucontext) {}

    /// # Safety
    ///
    /// `ucontext` is live; `vma` is an area of its file that is being mapped.
    unsafe extern "C" fn mmap(
        ucontext: *mut bindings::ib_ucontext,
        vma: *mut vm_area_struct,
    ) -> c_int {
        // SAFETY: `ucontext` is live.
        let (mapped, context) = unsafe { CoreContext::<T>::get(ucontext) };
        // SAFETY: As above, and the area is its file's.
        status(|| context.doorbells(|frame| unsafe { map(ucontext, vma, mapped, frame) }))
    }
}

/// Maps the page at offset 0 into `vma`. The caller keeps the device from being shut down.
///
/// # Errors
///
/// `EINVAL`: another offset or length, or a private mapping. `EPERM`: executable. `ENOMEM`.
///
/// # Safety
///
/// Called for the `mmap` operation of `ucontext`, whose `mapped` it is, with the area that is being
/// mapped.
unsafe fn map(
    ucontext: *mut bindings::ib_ucontext,
    vma: *mut vm_area_struct,
    mapped: &DoorbellVma,
    frame: impl Frame,
) -> Result {
    // SAFETY: By the caller's promise.
    let (offset, mapping) = unsafe { ((*vma).vm_pgoff, (*(*vma).vm_file).f_mapping) };
    // SAFETY: As above.
    let flags = unsafe { (*vma).__bindgen_anon_2.vm_flags };
    let mapping = NonNull::new(mapping).ok_or(EINVAL)?;
    if offset != 0 {
        return Err(EINVAL);
    }
    if flags & kernel::mm::virt::flags::EXEC != 0 {
        return Err(EPERM);
    }
    let (number, none) = (frame.number() as usize, ptr::null_mut());
    // SAFETY: By the caller's promise. The page is of the device's doorbells.
    unsafe {
        mapped.note(mapping)?;
        bindings::rdma_vma_make_doorbell(vma);
        let prot = (*vma).vm_page_prot;
        to_result(bindings::rdma_user_mmap_io(
            ucontext, vma, number, PAGE_SIZE, prot, none,
        ))
    }
}
