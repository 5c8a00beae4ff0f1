// SPDX-License-Identifier: GPL-2.0

//! The doorbell page of a process. The core takes it away when the device is unregistered.

use super::{
    super::door::Frame,
    bindings, //
};
use kernel::{
    error::to_result,
    page::PAGE_SIZE,
    prelude::*, //
};

#[allow(improper_ctypes)]
unsafe extern "C" {
    fn qpair_vma_make_doorbell(vma: *mut kernel::bindings::vm_area_struct);
}

/// Maps the page at offset 0 into `vma`.
///
/// # Errors
///
/// `EINVAL`: another offset or length, or a private mapping. `EPERM`: executable. Those of `frame`.
///
/// # Safety
///
/// Called for the `mmap` operation of `ucontext`, with the area that is being mapped.
pub(super) unsafe fn map(
    ucontext: *mut bindings::ib_ucontext,
    vma: *mut kernel::bindings::vm_area_struct,
    frame: impl FnOnce() -> Result<Frame>,
) -> Result {
    // SAFETY: By the caller's promise.
    let (offset, flags) = unsafe { ((*vma).vm_pgoff, (*vma).__bindgen_anon_2.vm_flags) };
    if offset != 0 {
        return Err(EINVAL);
    }
    if flags & kernel::mm::virt::flags::EXEC != 0 {
        return Err(EPERM);
    }
    let frame = frame()?;
    // SAFETY: By the caller's promise. The page is of the device's doorbells, and the core takes
    // the mapping away before the driver is told to close the context.
    to_result(unsafe {
        qpair_vma_make_doorbell(vma);
        bindings::rdma_user_mmap_io(
            ucontext,
            vma,
            frame.number() as usize,
            PAGE_SIZE,
            (*vma).vm_page_prot,
            core::ptr::null_mut(),
        )
    })
}
