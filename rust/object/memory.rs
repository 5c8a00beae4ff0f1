// SPDX-License-Identifier: GPL-2.0

//! The memory of a process's objects, which the device may access.
//!
//! It is here and not in the objects, so that a shutdown can take it from the device without the
//! core's help.

use super::buffer::UserBuffer;
use crate::{
    abi::Number,
    kernel::task::cond_resched, //
};
use kernel::{
    prelude::*,
    rbtree::{
        RBTree,
        RBTreeNodeReservation, //
    }, //
};

/// The memory of an object that has some.
pub(super) enum ObjectMemory {
    /// A CQ or SRQ.
    Queue(UserBuffer),
    /// A queue pair: its SQ, and its RQ unless it is on an SRQ.
    Qp(UserBuffer, Option<UserBuffer>),
    Mr {
        number: Number,
        pd: Number,
        rights: u8,
        memory: UserBuffer,
    },
}

impl ObjectMemory {
    fn buffers(&mut self) -> impl Iterator<Item = &mut UserBuffer> {
        let (first, second) = match self {
            Self::Queue(ring) => (ring, None),
            Self::Qp(sq, rq) => (sq, rq.as_mut()),
            Self::Mr { memory, .. } => (memory, None),
        };
        Iterator::chain(core::iter::once(first), second)
    }
}

/// Identifies the memory of an object in its file; never used twice.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct MemoryId(u64);

/// Reserved for an object, allocated before the device creates it.
pub(super) struct Reserved(RBTreeNodeReservation<MemoryId, ObjectMemory>);

impl Reserved {
    /// Sleeps.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(super) fn new() -> Result<Self> {
        Ok(Self(RBTreeNodeReservation::new(GFP_KERNEL_ACCOUNT)?))
    }
}

/// The objects of a process that have memory.
pub(super) struct Objects {
    tree: RBTree<MemoryId, ObjectMemory>,
    next: u64,
    /// The device is quiet and has none of the memory any more.
    pub(super) unmapped: bool,
}

impl Objects {
    pub(super) fn new() -> Self {
        Self {
            tree: RBTree::new(),
            next: 0,
            unmapped: false,
        }
    }

    /// Cannot fail: the device has the object already.
    pub(super) fn insert(&mut self, reserved: Reserved, object: ObjectMemory) -> MemoryId {
        let id = MemoryId(self.next);
        self.next += 1;
        self.tree.insert(reserved.0.into_node(id, object));
        id
    }

    /// Gives a CQ or SRQ another ring; returns the one before.
    ///
    /// # Errors
    ///
    /// There is no such queue: the new ring, which the device has.
    pub(super) fn replace_ring(
        &mut self,
        id: MemoryId,
        new: UserBuffer,
    ) -> Result<UserBuffer, UserBuffer> {
        match self.tree.get_mut(&id) {
            Some(ObjectMemory::Queue(ring)) => Ok(core::mem::replace(ring, new)),
            _ => Err(new),
        }
    }

    pub(super) fn remove(&mut self, id: MemoryId) -> Option<ObjectMemory> {
        self.tree.remove(&id)
    }

    pub(super) fn get_mut(&mut self, id: MemoryId) -> Option<&mut ObjectMemory> {
        self.tree.get_mut(&id)
    }

    /// A region in a domain: the id of its memory, its number.
    pub(super) fn region_in(&self, of: Number) -> Option<(MemoryId, Number)> {
        self.tree.iter().find_map(|(id, object)| match object {
            ObjectMemory::Mr { number, pd, .. } if *pd == of => Some((*id, *number)),
            _ => None,
        })
    }

    /// The device is quiet: takes all memory from it.
    pub(super) fn unmap(&mut self) {
        for object in self.tree.values_mut() {
            object.buffers().for_each(UserBuffer::unmap_now);
            cond_resched();
        }
        self.unmapped = true;
    }

    /// Pages that are pinned.
    pub(super) fn pages(&mut self) -> usize {
        let buffers = self.tree.values_mut().flat_map(ObjectMemory::buffers);
        buffers.map(|buffer| buffer.pages()).sum()
    }
}
