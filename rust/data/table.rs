// SPDX-License-Identifier: GPL-2.0

//! The table of objects by number of an EQ.

use crate::abi::Number;
use kernel::prelude::*;

/// The second level of a [`Table`]. The table of each EQ spans all indices of the device, so unused
/// entries must be small.
type Leaf<T> = KVec<Option<KBox<(Number, T)>>>;

/// Objects by number, in two levels. The second is allocated on demand.
pub(crate) struct Table<T> {
    leaves: KVec<Option<Leaf<T>>>,
    count: u32,
}

impl<T> Table<T> {
    /// Entries of a leaf.
    const LEAF: usize = 32;

    /// An empty table.
    pub(crate) const fn new() -> Self {
        Self {
            leaves: KVec::new(),
            count: 0,
        }
    }

    /// The object with this number. Any context.
    #[inline]
    pub(crate) fn get_mut(&mut self, number: Number) -> Option<&mut T> {
        let index = number.index();
        let leaf = self.leaves.get_mut(index / Self::LEAF)?.as_mut()?;
        let (found, value) = &mut **leaf.get_mut(index % Self::LEAF)?.as_mut()?;
        (*found == number).then_some(value)
    }

    /// Inserts an object. Sleeps.
    ///
    /// # Errors
    ///
    /// `EEXIST` if its index is taken, `ENOMEM`; with the object.
    pub(crate) fn insert(&mut self, number: Number, value: T) -> Result<(), (Error, T)> {
        let slot = match self.slot(number.index()) {
            Ok(slot) if slot.is_some() => return Err((EEXIST, value)),
            Ok(slot) => slot,
            Err(error) => return Err((error, value)),
        };
        // Charged to the process that creates the object.
        match KBox::new_uninit(GFP_KERNEL_ACCOUNT) {
            Ok(room) => *slot = Some(room.write((number, value))),
            Err(_) => return Err((ENOMEM, value)),
        }
        self.count += 1;
        Ok(())
    }

    /// Removes an object.
    pub(crate) fn remove(&mut self, number: Number) -> Option<T> {
        self.get_mut(number)?;
        let index = number.index();
        let leaf = self.leaves.get_mut(index / Self::LEAF)?.as_mut()?;
        let boxed = leaf.get_mut(index % Self::LEAF)?.take()?;
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

    /// The number of objects.
    pub(crate) fn len(&self) -> u32 {
        self.count
    }

    /// Removes all objects.
    pub(crate) fn drain(&mut self, mut f: impl FnMut(Number, T)) {
        for leaf in self.leaves.iter_mut().flatten() {
            for slot in leaf.iter_mut() {
                if let Some(boxed) = slot.take() {
                    let (number, value) = KBox::into_inner(boxed);
                    f(number, value);
                }
            }
        }
        self.count = 0;
    }

    fn slot(&mut self, index: usize) -> Result<&mut Option<KBox<(Number, T)>>> {
        while self.leaves.len() <= index / Self::LEAF {
            self.leaves.push(None, GFP_KERNEL)?;
        }
        let leaf = self.leaves.get_mut(index / Self::LEAF).ok_or(EINVAL)?;
        let leaf = match leaf {
            Some(leaf) => leaf,
            None => {
                let mut made = KVec::with_capacity(Self::LEAF, GFP_KERNEL)?;
                for _ in 0..Self::LEAF {
                    made.push(None, GFP_KERNEL)?;
                }
                leaf.insert(made)
            }
        };
        leaf.get_mut(index % Self::LEAF).ok_or(EINVAL)
    }
}

#[kernel::macros::kunit_tests(qpair_table)]
mod tests {
    use super::*;

    #[test]
    fn found_by_the_whole_number() {
        let mut table = Table::new();
        let number = Number::new(40, 7);
        assert!(table.insert(number, 1).is_ok());
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
        let mut table = Table::new();
        assert!(table.insert(Number::new(3, 1), 1).is_ok());
        match table.insert(Number::new(3, 2), 2) {
            Err((error, value)) => assert!(error == EEXIST && value == 2),
            Ok(()) => assert!(false),
        }
        assert_eq!(table.len(), 1);
    }

    #[test]
    fn memory_follows_what_is_used() {
        let mut table = Table::new();
        assert!(table.insert(Number::new(1000, 1), 0u8).is_ok());
        assert_eq!(table.leaves.len(), 1000 / Table::<u8>::LEAF + 1);
        assert_eq!(table.leaves.iter().flatten().count(), 1);
    }

    #[test]
    fn drained_in_order() {
        let mut table = Table::new();
        for index in [90, 5, 31, 32] {
            assert!(table.insert(Number::new(index, 1), index).is_ok());
        }
        assert!(table.iter().map(|(_, index)| *index).eq([5, 31, 32, 90]));
        let mut sum = 0;
        table.drain(|_, index| sum += index);
        assert_eq!(sum, 158);
        assert_eq!(table.len(), 0);
        assert_eq!(table.iter().count(), 0);
    }
}
