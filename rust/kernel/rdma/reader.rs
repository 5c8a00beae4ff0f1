// SPDX-License-Identifier: GPL-2.0

//! What a process has read of the asynchronous events of an object.

use super::bindings;
use crate::queue::{
    index::Index,
    unread::Unread, //
};
use core::ptr::{
    self,
    NonNull, //
};
use kernel::{
    bindings::list_head,
    prelude::*, //
};

/// `struct ib_uevent_object` of the core's own `uverbs.h`, which is not installed: an object of a
/// process that has events.
#[repr(C)]
struct Uevents {
    uobject: bindings::ib_uobject,
    event_file: *mut c_void,
    /// Those that are unread.
    event_list: list_head,
    /// How many were read.
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
        // single words. After the list, the count is at least that of when the list was empty.
        let (is_empty, read) = unsafe {
            let list = &raw mut (*object).event_list;
            let next = (&raw const (*list).next).read_volatile();
            let read = (&raw const (*object).events_reported).read_volatile();
            (ptr::eq(next, list), read)
        };
        self.unread.admits(kind, Index::new(read), is_empty)
    }
}
