// SPDX-License-Identifier: GPL-2.0

//! The memory of a process's objects, which the device may access.
//!
//! It is here and not in the objects, so that a shutdown can take it from the device without the
//! core's help.

use super::buffer::UserBuffer;
use crate::{
    abi::Number,
    kernel::task::cond_resched,
    life::client::Shown, //
};
use kernel::{
    fmt,
    prelude::*,
    rbtree::{
        RBTree,
        RBTreeNodeReservation, //
    },
};

/// An object with memory.
pub(super) enum Object {
    Cq {
        number: Number,
        vector: u32,
        ring: UserBuffer,
    },
    Qp {
        number: Number,
        pd: Number,
        cqs: [Number; 2],
        sq: UserBuffer,
        /// `None` on an SRQ.
        rq: Option<UserBuffer>,
    },
    Srq {
        number: Number,
        pd: Number,
        ring: UserBuffer,
    },
    Mr {
        number: Number,
        pd: Number,
        rights: u8,
        memory: UserBuffer,
    },
}

impl Object {
    fn buffers(&self) -> (&UserBuffer, Option<&UserBuffer>) {
        match self {
            Self::Cq { ring, .. } | Self::Srq { ring, .. } => (ring, None),
            Self::Qp { sq, rq, .. } => (sq, rq.as_ref()),
            Self::Mr { memory, .. } => (memory, None),
        }
    }

    fn unmap(&mut self) {
        match self {
            Self::Cq { ring, .. } | Self::Srq { ring, .. } => ring.unmap_now(),
            Self::Qp { sq, rq, .. } => {
                sq.unmap_now();
                if let Some(rq) = rq {
                    rq.unmap_now();
                }
            }
            Self::Mr { memory, .. } => memory.unmap_now(),
        }
    }
}

/// Where an object is: never used twice.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Place(u64);

/// Reserved for an object, allocated before the device creates it.
pub(super) struct Reserved(RBTreeNodeReservation<Place, Object>);

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
    tree: RBTree<Place, Object>,
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
    pub(super) fn insert(&mut self, reserved: Reserved, object: Object) -> Place {
        let place = Place(self.next);
        self.next += 1;
        self.tree.insert(reserved.0.into_node(place, object));
        place
    }

    /// Gives a CQ or SRQ another ring; returns the one before.
    ///
    /// # Errors
    ///
    /// There is no such queue: the new ring, which the device has.
    pub(super) fn replace_ring(
        &mut self,
        place: Place,
        new: UserBuffer,
    ) -> Result<UserBuffer, UserBuffer> {
        match self.tree.get_mut(&place) {
            Some(Object::Cq { ring, .. } | Object::Srq { ring, .. }) => {
                Ok(core::mem::replace(ring, new))
            }
            _ => Err(new),
        }
    }

    pub(super) fn remove(&mut self, place: Place) -> Option<Object> {
        self.tree.remove(&place)
    }

    pub(super) fn get_mut(&mut self, place: Place) -> Option<&mut Object> {
        self.tree.get_mut(&place)
    }

    /// A region in a domain: its place, its number.
    pub(super) fn region_in(&self, of: Number) -> Option<(Place, Number)> {
        self.tree.iter().find_map(|(place, object)| match object {
            Object::Mr { number, pd, .. } if *pd == of => Some((*place, *number)),
            _ => None,
        })
    }

    /// The device is quiet: takes all memory from it.
    pub(super) fn unmap(&mut self) {
        for object in self.tree.values_mut() {
            object.unmap();
            cond_resched();
        }
        self.unmapped = true;
    }

    /// Pages that are pinned.
    pub(super) fn pages(&self) -> usize {
        let each = self.tree.values().map(|object| {
            let (first, second) = object.buffers();
            first.pages() + second.map_or(0, UserBuffer::pages)
        });
        each.sum()
    }

    /// Shows the objects of a kind, one a line.
    pub(super) fn describe(
        &self,
        what: Shown,
        page: u16,
        f: &mut fmt::Formatter<'_>,
    ) -> fmt::Result {
        for object in self.tree.values() {
            match (what, object) {
                (
                    Shown::Cqs,
                    Object::Cq {
                        number,
                        vector,
                        ring,
                    },
                ) => {
                    let list = ring.list();
                    writeln!(
                        f,
                        "{number} page {page} vector {vector} bytes {} levels {} page-shift {}",
                        list.bytes, list.levels, list.page_shift
                    )?;
                }
                (
                    Shown::Qps,
                    Object::Qp {
                        number,
                        pd,
                        cqs: [send, recv],
                        sq,
                        rq,
                    },
                ) => writeln!(
                    f,
                    "{number} page {page} pd {pd} send-cq {send} recv-cq {recv} sq-bytes {} \
                     rq-bytes {}",
                    sq.list().bytes,
                    rq.as_ref().map_or(0, |rq| rq.list().bytes)
                )?,
                (
                    Shown::Srqs,
                    Object::Srq {
                        number,
                        pd,
                        ring: memory,
                    },
                )
                | (
                    Shown::Mrs,
                    Object::Mr {
                        number, pd, memory, ..
                    },
                ) => {
                    let list = memory.list();
                    writeln!(
                        f,
                        "{number} page {page} pd {pd} bytes {} levels {} page-shift {}",
                        list.bytes, list.levels, list.page_shift
                    )?;
                }
                _ => {}
            }
        }
        Ok(())
    }
}
