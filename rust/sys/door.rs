// SPDX-License-Identifier: GPL-2.0

//! A page of device registers in a process, which the driver can take away.
//!
//! The page is not in the process's page table from the start: touching it faults, and the fault
//! handler asks the [`Door`] of the open file. So it is enough to shut the door and to remove what
//! has been put into page tables: whoever touches the page after that gets SIGBUS.
//!
//! # Locks
//!
//! `frame` is a leaf under `mmap_lock`: the fault handler takes it, and nothing that sleeps for a
//! process is done with it held. `mapping` is taken by who removes mappings, never in a fault; it
//! keeps the file from being released meanwhile.

use core::ptr::NonNull;
use kernel::{
    bindings,
    new_mutex,
    prelude::*,
    sync::{
        atomic::{
            Atomic,
            Relaxed, //
        },
        Mutex, //
    }, //
};

/// The number of a page frame that belongs to a BAR.
///
/// Only [`super::mmio::Bar::frame`] makes one: what a process can map is device memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame(u64);

impl Frame {
    pub(super) fn new(number: u64) -> Self {
        Self(number)
    }

    /// Its number.
    pub(super) fn number(self) -> u64 {
        self.0
    }
}

/// The page cache of an open file's inode, of which only the list of mappings matters.
#[derive(Clone, Copy)]
struct Mapping(NonNull<bindings::address_space>);

// SAFETY: Only passed to functions with locks of their own.
unsafe impl Send for Mapping {}

/// What a process gets when it touches the doorbell page of an open file.
///
/// # Invariants
///
/// While `mapping` is there, the file that it is of has not been released.
#[pin_data]
pub struct Door {
    #[pin]
    frame: Mutex<Option<Frame>>,
    #[pin]
    mapping: Mutex<Option<Mapping>>,
    /// A process has had the page.
    entered: Atomic<bool>,
}

impl Door {
    /// A door that leads to `frame`.
    pub fn new(frame: Frame) -> impl PinInit<Self> {
        pin_init!(Self {
            frame <- new_mutex!(Some(frame), "Door::frame"),
            mapping <- new_mutex!(None, "Door::mapping"),
            entered: Atomic::new(false),
        })
    }

    /// Whether a process has ever had the page. Once the file is released this stays as it is. Any
    /// context.
    pub fn was_entered(&self) -> bool {
        self.entered.load(Relaxed)
    }

    /// Takes the page away from all processes that have it. On return nobody reaches it, and who
    /// tries gets SIGBUS. Sleeps, but for nobody's good will. Other open files of the same device
    /// node lose their pages as well, and get them back at the next touch.
    pub fn shut(&self) {
        // First no new ones, then the old ones.
        *self.frame.lock() = None;
        if let Some(mapping) = *self.mapping.lock() {
            // SAFETY: By the type invariant, and the lock is held: the file has its inode.
            unsafe { bindings::unmap_mapping_range(mapping.0.as_ptr(), 0, 0, 1) };
        }
    }

    /// The file is open.
    ///
    /// # Safety
    ///
    /// `mapping` is the open file's, and [`Self::detach`] is called before it is released.
    pub(super) unsafe fn attach(&self, mapping: *mut bindings::address_space) {
        // INVARIANT: By the caller's promise.
        *self.mapping.lock() = NonNull::new(mapping).map(Mapping);
    }

    /// The file is about to be released. Waits for who removes mappings.
    pub(super) fn detach(&self) {
        *self.mapping.lock() = None;
    }

    /// Puts the page into the page table of who touched it.
    ///
    /// # Safety
    ///
    /// `vma` is a VM_PFNMAP area of the door's file in which `address` has faulted.
    pub(super) unsafe fn fault(
        &self,
        vma: *mut bindings::vm_area_struct,
        address: usize,
    ) -> bindings::vm_fault_t {
        // Held until the page is in: `shut` either comes before and leaves no page, or after and
        // removes it.
        let frame = self.frame.lock();
        self.entered.store(true, Relaxed);
        match *frame {
            // SAFETY: By the caller's promise; the frame is of a BAR.
            Some(Frame(number)) => unsafe {
                bindings::vmf_insert_pfn(vma, address, number as usize)
            },
            None => bindings::vm_fault_reason_VM_FAULT_SIGBUS,
        }
    }
}
