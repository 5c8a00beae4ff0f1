// SPDX-License-Identifier: GPL-2.0

//! The table of objects by number of an EQ.

use super::prelude::*;
use core::mem::MaybeUninit;

/// Entries of a leaf.
const LEAF: usize = 32;

/// An object with its number.
type Node<T> = KBox<(Number, T)>;

/// The second level of a [`Table`]. The table of each EQ spans all indices of the device, so unused
/// entries must be small.
type Leaf<T> = KBox<[Option<Node<T>>; LEAF]>;

/// Memory for an object in a [`Table`], and for its leaf. An insertion allocates nothing, so that
/// a poll is never paused while memory is reclaimed.
pub(crate) struct Reservation<T> {
    node: KBox<MaybeUninit<(Number, T)>>,
    leaf: Leaf<T>,
}

impl<T> Reservation<T> {
    /// Allocates it; charges the object to the memory cgroup of the caller. Sleeps.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn new() -> Result<Self> {
        Ok(Self {
            node: KBox::new_uninit(GFP_KERNEL_ACCOUNT)?,
            leaf: KBox::new([const { None }; LEAF], GFP_KERNEL)?,
        })
    }
}

/// Objects by number, in two levels. A leaf is there while it is used: an object has at most the 256
/// bytes of one, and is found in three loads.
pub(crate) struct Table<T> {
    leaves: KVec<Option<Leaf<T>>>,
    count: u32,
}

impl<T> Table<T> {
    /// An empty table for numbers with an index below `indices`. Sleeps.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn new(indices: u32) -> Result<Self> {
        let count = (indices as usize).div_ceil(LEAF);
        let mut leaves = KVec::with_capacity(count, GFP_KERNEL)?;
        for _ in 0..count {
            leaves.push_within_capacity(None).map_err(|_| ENOMEM)?;
        }
        Ok(Self { leaves, count: 0 })
    }

    /// The object with this number. Any context.
    #[inline]
    pub(crate) fn get_mut(&mut self, number: Number) -> Option<&mut T> {
        let index = number.index();
        let leaf = self.leaves.get_mut(index / LEAF)?.as_mut()?;
        let (found, value) = &mut **leaf.get_mut(index % LEAF)?.as_mut()?;
        (*found == number).then_some(value)
    }

    /// Inserts an object. Any context.
    ///
    /// # Errors
    ///
    /// `EEXIST` if its index is taken, `EINVAL` if there is no such index; with the object.
    pub(crate) fn insert(
        &mut self,
        number: Number,
        value: T,
        room: Reservation<T>,
    ) -> Result<(), (Error, T)> {
        let index = number.index();
        let Some(leaf) = self.leaves.get_mut(index / LEAF) else {
            return Err((EINVAL, value));
        };
        let leaf = leaf.get_or_insert(room.leaf);
        match leaf.get_mut(index % LEAF) {
            Some(slot @ None) => *slot = Some(room.node.write((number, value))),
            _ => return Err((EEXIST, value)),
        }
        self.count += 1;
        Ok(())
    }

    /// Removes the object with this number, and frees its leaf if that is empty. Any context.
    pub(crate) fn remove(&mut self, number: Number) -> Option<T> {
        self.get_mut(number)?;
        let index = number.index();
        let place = self.leaves.get_mut(index / LEAF)?;
        let boxed = place.as_mut()?.get_mut(index % LEAF)?.take()?;
        drop(place.take_if(|leaf| leaf.iter().all(Option::is_none)));
        self.count -= 1;
        Some(KBox::into_inner(boxed).1)
    }

    /// All objects, in the order of their indices.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (Number, &T)> {
        self.leaves
            .iter()
            .flatten()
            .flat_map(|leaf| leaf.iter().flatten())
            .map(|boxed| (boxed.0, &boxed.1))
    }

    pub(crate) fn len(&self) -> u32 {
        self.count
    }

    /// Removes all objects, and gives each to `f`.
    pub(crate) fn drain(&mut self, mut f: impl FnMut(Number, T)) {
        let slots = self.leaves.iter_mut().flatten();
        let slots = slots.flat_map(|leaf| leaf.iter_mut());
        for boxed in slots.filter_map(Option::take) {
            let (number, value) = KBox::into_inner(boxed);
            f(number, value);
        }
        self.count = 0;
    }
}

#[kernel::macros::kunit_tests(qpair_table)]
mod tests {
    use super::*;

    fn table<T>() -> Table<T> {
        Table::new(1024).unwrap()
    }

    fn put<T>(table: &mut Table<T>, number: Number, value: T) -> Result<(), (Error, T)> {
        table.insert(number, value, Reservation::new().unwrap())
    }

    #[test]
    fn found_by_the_whole_number() {
        let mut table = table();
        let number = Number::new(40, 7);
        assert!(put(&mut table, number, 1).is_ok());
        assert_eq!(table.get_mut(number).copied(), Some(1));
        assert!(table.get_mut(Number::new(40, 8)).is_none());
        assert!(table.get_mut(Number::new(41, 7)).is_none());
        assert!(table.get_mut(Number::new(u16::MAX, 7)).is_none());
        assert_eq!(table.remove(Number::new(40, 6)), None);
        assert_eq!(table.remove(number), Some(1));
        assert!(table.get_mut(number).is_none());
        assert_eq!(table.len(), 0);
    }

    #[test]
    fn one_object_at_an_index() {
        let mut table = table();
        assert!(put(&mut table, Number::new(3, 1), 1).is_ok());
        match put(&mut table, Number::new(3, 2), 2) {
            Err((error, value)) => assert!(error == EEXIST && value == 2),
            Ok(()) => assert!(false),
        }
        assert_eq!(table.len(), 1);
    }

    #[test]
    fn memory_follows_what_is_used() {
        let mut table = table();
        assert!(put(&mut table, Number::new(1000, 1), 0u8).is_ok());
        assert_eq!(table.leaves.len(), 1000 / LEAF + 1);
        assert!(put(&mut table, Number::new(1001, 1), 1).is_ok());
        assert_eq!(table.leaves.iter().flatten().count(), 1);
        assert_eq!(table.remove(Number::new(1000, 1)), Some(0));
        assert_eq!(table.leaves.iter().flatten().count(), 1);
        assert_eq!(table.remove(Number::new(1001, 1)), Some(1));
        assert_eq!(table.leaves.iter().flatten().count(), 0);
    }

    #[test]
    fn drained_in_order() {
        let mut table = table();
        for index in [90, 5, 31, 32] {
            assert!(put(&mut table, Number::new(index, 1), index).is_ok());
        }
        assert!(table.iter().map(|(_, index)| *index).eq([5, 31, 32, 90]));
        let mut sum = 0;
        table.drain(|_, index| sum += index);
        assert_eq!(sum, 158);
        assert_eq!(table.len(), 0);
        assert_eq!(table.iter().count(), 0);
    }
}
