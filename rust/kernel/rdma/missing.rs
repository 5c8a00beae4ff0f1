// SPDX-License-Identifier: GPL-2.0

//! What a driver has to do because the core does not: none of it belongs in a driver.
//!
//! | item | what the core lacks |
//! |---|---|
//! | [`release_task`] | the end of the reference to the task when GET_CONTEXT fails: `rdma_restrack_put()` in the error path of `UVERBS_METHOD_GET_CONTEXT` |
//! | [`is_undone`] | a `dereg_mr` that may fail when the answer to a create could not be written: an argument that says so, or no warning in `rdma_alloc_abort_uobject()` |
//! | [`Mappings`] | a call that takes the mappings of a device's files away and does not wait for commands that run: `uverbs_user_mmap_disassociate()` apart from `ib_unregister_device()` |
//! | [`Reader`] | a bound of the asynchronous events of an object that are unread, in `ib_uverbs_async_handler()`; or the header of `struct ib_uevent_object` |

use super::{
    prelude::*,
    unread::Unread, //
};
use core::{
    mem,
    ptr::{
        self,
        NonNull, //
    }, //
};
use kernel::{
    bindings::{
        address_space,
        list_head,
        put_task_struct,
        unmap_mapping_range, //
    },
    new_mutex,
    sync::{
        atomic::{
            Atomic,
            Relaxed, //
        },
        Arc,
        Mutex, //
    }, //
};

/// Ends the reference to the task of a context whose creation fails. The core frees the context of a
/// failed ioctl without it; `rdma_restrack_put()` of a failed `write()` finds none.
///
/// # Safety
///
/// The core creates `ucontext` now.
pub(super) unsafe fn release_task(ucontext: *mut bindings::ib_ucontext) {
    // SAFETY: By the caller's promise. A task that is not null has a reference, of the context.
    unsafe {
        let task = mem::replace(&mut (*ucontext).res.task, ptr::null_mut());
        if !task.is_null() {
            put_task_struct(task);
        }
    }
}

/// Whether a region of a process is destroyed because the answer to its create could not be written.
/// The core warns if that fails (`rdma_alloc_abort_uobject()`).
///
/// # Safety
///
/// `mr` is live, and its destroy runs.
pub(super) unsafe fn is_undone(mr: *mut bindings::ib_mr) -> bool {
    // SAFETY: The core has set the handle of a region of a process, and holds it exclusively. It adds
    // the handle to the list of the file once the answer is written, and removes it after the destroy.
    // Neighbours on the list may write to the entry meanwhile, but never make it empty. That of a
    // kernel ULP has a list of the ULP in place of the handle.
    unsafe {
        if (*mr).type_ != bindings::ib_mr_type_IB_MR_TYPE_USER {
            return false;
        }
        let uobject = (&raw const (*mr).__bindgen_anon_1)
            .cast::<*mut bindings::ib_uobject>()
            .read();
        let list = &raw mut (*uobject).list;
        (&raw const (*list).next).read_volatile() == list
    }
}

/// `struct ib_uevent_object` of the core's own `uverbs.h`, which is not installed: an object of a
/// process that has events.
#[repr(C)]
struct Uevents {
    uobject: bindings::ib_uobject,
    event_file: *mut c_void,
    /// Events that are unread.
    event_list: list_head,
    /// The number of events that were read.
    events_reported: u32,
}

/// The reader of an object's events.
pub struct Reader {
    object: NonNull<Uevents>,
    unread: Unread,
}

// SAFETY: Only numbers and addresses of the object are read, as `Reader::admits` requires.
unsafe impl Send for Reader {}

impl Reader {
    /// That of `uobject`, if it is of a process: it is null for the kernel.
    ///
    /// # Safety
    ///
    /// A `uobject` that is not null is a `struct ib_uevent_object`, whose object is being created.
    pub(super) unsafe fn of<U>(uobject: *mut U) -> Option<Self> {
        let object = NonNull::new(uobject.cast::<Uevents>())?;
        // The structure may have other fields in another series. As long as the object is being created
        // its list is empty: only the head of one points to itself.
        // SAFETY: By the caller's promise; the structure is a part of a larger one.
        let is_as_expected = unsafe {
            let list = &raw mut (*object.as_ptr()).event_list;
            ptr::eq((*list).next, list) && ptr::eq((*list).prev, list)
        };
        is_as_expected.then_some(Self {
            object,
            unread: Unread::NONE,
        })
    }

    /// Whether an event of this kind is to be queued: none of it is unread.
    ///
    /// # Safety
    ///
    /// The object is not destroyed.
    pub(super) unsafe fn admits(&mut self, kind: usize) -> bool {
        let object = self.object.as_ptr();
        // SAFETY: By the caller's promise. The core writes both under a lock of its own: they are read as
        // single words. After the list, the count is at least that of when the list was empty; a CPU that
        // swaps the two reads lets one event more be queued, no worse.
        let (is_empty, read) = unsafe {
            let list = &raw mut (*object).event_list;
            let next = (&raw const (*list).next).read_volatile();
            let read = (&raw const (*object).events_reported).read_volatile();
            (ptr::eq(next, list), read)
        };
        self.unread.admits(kind, read, is_empty)
    }
}

/// The mapping of a device node, and the open files of it that have a doorbell page.
struct DeviceNode {
    mapping: NonNull<address_space>,
    files: usize,
}

// SAFETY: Only passed to functions with locks of their own.
unsafe impl Send for DeviceNode {}

/// The device nodes through which doorbell pages of a device were mapped: one, unless there are
/// others besides that of devtmpfs.
///
/// # Invariants
///
/// Each mapping is that of open files, `files` of them, each with a [`DoorbellVma`].
#[pin_data]
pub(super) struct Mappings {
    #[pin]
    nodes: Mutex<KVec<DeviceNode>>,
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
pub(super) struct DoorbellVma {
    mappings: Arc<Mappings>,
    /// Null until then. Set with `mappings` locked.
    mapping: Atomic<*mut address_space>,
}

impl DoorbellVma {
    /// That of a file which has not mapped it yet.
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
    pub(super) unsafe fn note(&self, mapping: NonNull<address_space>) -> Result {
        let mut nodes = self.mappings.nodes.lock();
        if !self.mapping.load(Relaxed).is_null() {
            return Ok(());
        }
        match nodes.iter_mut().find(|node| node.mapping == mapping) {
            Some(node) => node.files += 1,
            // INVARIANT: By the caller's promise. The drop of `self` precedes the file's release.
            None => nodes.push(DeviceNode { mapping, files: 1 }, GFP_KERNEL)?,
        }
        self.mapping.store(mapping.as_ptr(), Relaxed);
        Ok(())
    }
}

impl Drop for DoorbellVma {
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
