// SPDX-License-Identifier: GPL-2.0

//! The doorbell page of a process.
//!
//! The core takes mappings away when the device is unregistered, which waits for the calls of all
//! processes. A device that is removed cannot wait: [`Mappings::zap`] removes the page from all page
//! tables at once. A later access finds memory of the core instead.

use super::{
    super::mmio::Frame,
    bindings, //
};
use core::ptr::{
    self,
    NonNull, //
};
use kernel::{
    bindings::{
        address_space,
        unmap_mapping_range,
        vm_area_struct, //
    },
    error::to_result,
    new_mutex,
    page::PAGE_SIZE,
    prelude::*,
    sync::{
        atomic::{
            Atomic,
            Relaxed, //
        },
        Arc,
        Mutex, //
    }, //
};

#[allow(improper_ctypes)]
unsafe extern "C" {
    fn qpair_vma_make_doorbell(vma: *mut vm_area_struct);
}

/// The mapping of a device node, and the open files of it that have a doorbell page.
struct Node {
    mapping: NonNull<address_space>,
    files: usize,
}

// SAFETY: Only passed to functions with locks of their own.
unsafe impl Send for Node {}

/// The device nodes through which doorbell pages of a device were mapped: one, unless there are
/// others besides that of devtmpfs.
///
/// # Invariants
///
/// Each mapping is that of open files, `files` of them, each with a [`Mapped`].
#[pin_data]
pub(super) struct Mappings {
    #[pin]
    nodes: Mutex<KVec<Node>>,
}

impl Mappings {
    pub(super) fn new() -> Result<Arc<Self>> {
        let init = pin_init!(Self { nodes <- new_mutex!(KVec::new(), "Mappings::nodes") });
        Arc::pin_init(init, GFP_KERNEL)
    }

    /// Removes the doorbell pages from all page tables. An area that is being mapped at this moment
    /// may keep its page until the core takes it away. Does not wait for a process. Sleeps.
    pub(super) fn zap(&self) {
        for node in self.nodes.lock().iter() {
            // SAFETY: By the type invariant, and the lock is held: a file is open.
            unsafe { unmap_mapping_range(node.mapping.as_ptr(), 0, 0, 1) };
        }
    }
}

/// Whether an open file has mapped its doorbell page.
pub(super) struct Mapped {
    mappings: Arc<Mappings>,
    /// Null until then. Set with `mappings` locked.
    mapping: Atomic<*mut address_space>,
}

impl Mapped {
    /// Not yet.
    pub(super) fn new(mappings: &Arc<Mappings>) -> Self {
        Self {
            mappings: mappings.clone(),
            mapping: Atomic::new(ptr::null_mut()),
        }
    }

    /// Notes the mapping of the file.
    ///
    /// # Safety
    ///
    /// `mapping` is that of the open file that `self` is of.
    unsafe fn note(&self, mapping: NonNull<address_space>) -> Result {
        let mut nodes = self.mappings.nodes.lock();
        if !self.mapping.load(Relaxed).is_null() {
            return Ok(());
        }
        match nodes.iter_mut().find(|node| node.mapping == mapping) {
            Some(node) => node.files += 1,
            // INVARIANT: By the caller's promise. The drop of `self` precedes the file's release.
            None => nodes.push(Node { mapping, files: 1 }, GFP_KERNEL)?,
        }
        self.mapping.store(mapping.as_ptr(), Relaxed);
        Ok(())
    }
}

impl Drop for Mapped {
    /// Before the file is released. Waits for [`Mappings::zap`]. Sleeps.
    fn drop(&mut self) {
        let Some(mapping) = NonNull::new(self.mapping.load(Relaxed)) else {
            return;
        };
        self.mappings.nodes.lock().retain(|node| {
            if node.mapping == mapping {
                node.files -= 1;
            }
            node.files != 0
        });
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
pub(super) unsafe fn map(
    ucontext: *mut bindings::ib_ucontext,
    vma: *mut vm_area_struct,
    mapped: &Mapped,
    frame: Frame,
) -> Result {
    // SAFETY: By the caller's promise.
    let (offset, flags, mapping) = unsafe {
        let mapping = (*(*vma).vm_file).f_mapping;
        (
            (*vma).vm_pgoff,
            (*vma).__bindgen_anon_2.vm_flags,
            NonNull::new(mapping).ok_or(EINVAL)?,
        )
    };
    if offset != 0 {
        return Err(EINVAL);
    }
    if flags & kernel::mm::virt::flags::EXEC != 0 {
        return Err(EPERM);
    }
    // SAFETY: By the caller's promise. The page is of the device's doorbells.
    unsafe {
        mapped.note(mapping)?;
        qpair_vma_make_doorbell(vma);
        to_result(bindings::rdma_user_mmap_io(
            ucontext,
            vma,
            frame.number() as usize,
            PAGE_SIZE,
            (*vma).vm_page_prot,
            ptr::null_mut(),
        ))
    }
}
