// SPDX-License-Identifier: GPL-2.0

//! Objects that the core allocates, with the driver's part behind the core's.

use super::bindings;
use core::mem::{
    self,
    MaybeUninit, //
};
use kernel::{
    bindings::ARCH_KMALLOC_MINALIGN,
    container_of, //
};

/// The fields of `struct uverbs_attr_bundle` that have names.
type Bundle = bindings::uverbs_attr_bundle__bindgen_ty_1__bindgen_ty_1;

/// An object of the core of type `I`, with the driver's part `T`. The core allocates it with zeros,
/// by the size in the table of operations.
#[repr(C)]
pub(super) struct Object<I, T> {
    core: I,
    /// Written by a create that succeeds, moved out by the destroy.
    part: MaybeUninit<T>,
}

impl<I, T> Object<I, T> {
    /// Its size, for the core, whose memory has the alignment of any allocation.
    pub(super) const SIZE: usize = {
        assert!(mem::align_of::<Self>() <= ARCH_KMALLOC_MINALIGN);
        mem::size_of::<Self>()
    };

    /// # Safety
    ///
    /// `core` is the first field of an object of this type whose create succeeds now.
    pub(super) unsafe fn put(core: *mut I, part: T) {
        // SAFETY: By the caller's promise.
        unsafe { (&raw mut (*core.cast::<Self>()).part).write(MaybeUninit::new(part)) };
    }

    /// # Safety
    ///
    /// `core` is the first field of an object of this type that was created and is not destroyed
    /// for as long as the result is used.
    pub(super) unsafe fn get<'a>(core: *mut I) -> &'a T {
        // SAFETY: By the caller's promise; `put` has initialised it.
        unsafe { (*core.cast::<Self>()).part.assume_init_ref() }
    }

    /// # Safety
    ///
    /// As for [`Self::get`]; it is destroyed now.
    pub(super) unsafe fn take(core: *mut I) -> T {
        // SAFETY: By the caller's promise. Nothing reads it again.
        unsafe { (*core.cast::<Self>()).part.assume_init_read() }
    }
}

/// The open file that a command is of; `None` for one of the kernel.
///
/// # Safety
///
/// `udata` is null, or that of a command of a process.
pub(super) unsafe fn context(udata: *mut bindings::ib_udata) -> Option<*mut bindings::ib_ucontext> {
    if udata.is_null() {
        return None;
    }
    // SAFETY: By the caller's promise it is a part of a bundle, as `rdma_udata_to_uctx()` has it.
    let context = unsafe { (*container_of!(udata, Bundle, driver_udata)).context };
    (!context.is_null()).then_some(context)
}
