// SPDX-License-Identifier: GPL-2.0

//! Objects that the core allocates, with the driver's part behind the core's.

use super::{
    bindings,
    Driver, //
};
use core::{
    marker::PhantomData,
    mem::{
        self,
        MaybeUninit, //
    }, //
};
use kernel::{
    bindings::ARCH_KMALLOC_MINALIGN,
    error::from_result,
    prelude::*, //
};

/// The number of the only port: they are counted from 1.
pub(super) const PORT: u32 = 1;

/// An object of the core of type `I`, with the driver's part `T`. The core allocates it with zeros,
/// by the size in the table of operations.
#[repr(C)]
pub(super) struct CoreObject<I, T> {
    core: I,
    /// Written by a create that succeeds, moved out by the destroy.
    part: MaybeUninit<T>,
}

impl<I, T> CoreObject<I, T> {
    /// Its size, for the core, whose memory has the alignment of any allocation.
    pub(super) const SIZE: usize = {
        assert!(align_of::<Self>() <= ARCH_KMALLOC_MINALIGN);
        size_of::<Self>()
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

/// The operations of a driver in C. The file of each object has its own, as a part of `struct
/// ib_device_ops`; the core merges the parts.
///
/// # Arguments
///
/// The operations name their requirements by these terms:
///
/// - *live*: a device of this driver that is registered or being so; an object of such a device that
///   was created, and that is not destroyed before the operation returns.
/// - *new*: an object of a live device, of the size in the table, with zeros but for the core's fields,
///   on which no other operation runs. The objects in its fields are live as long as it is.
/// - *ending*: a live object on which no other operation runs. It is not used again if this one
///   succeeds.
/// - *command*: the `udata` in the `struct uverbs_attr_bundle` of the command that runs, or null: of a
///   kernel ULP, or of the core itself.
/// - *valid*: a structure that is read and not changed meanwhile.
/// - *to fill*: a valid structure that nothing else uses meanwhile.
pub(super) struct Ops<T>(PhantomData<T>);

/// The result of an operation: 0, or the error of `f`.
#[inline]
pub(super) fn status(f: impl FnOnce() -> Result) -> c_int {
    from_result(|| f().map(|()| 0))
}

impl<T: Driver> Ops<T> {
    /// A part without operations, for the fields that a part does not set.
    pub(super) const NONE: bindings::ib_device_ops = {
        // SAFETY: All fields are optional functions, pointers and integers.
        unsafe { mem::zeroed() }
    };

    /// The parts of all files.
    pub(super) const ALL: &'static [bindings::ib_device_ops] = &[
        Self::DEVICE,
        Self::PORT,
        Self::CONTEXT,
        Self::PD,
        Self::AH,
        Self::CQ,
        Self::SRQ,
        Self::QP,
        Self::MR,
        Self::MW,
    ];
}
