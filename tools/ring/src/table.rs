// SPDX-License-Identifier: GPL-2.0
//! Values by the number of an object.
//!
//! The table has two levels of 256, so that few objects with any indices take little memory.

use qpair_abi::Number;

const LEAF: usize = 256;

type Leaf<T> = Box<[Option<(Number, T)>; LEAF]>;

/// Values by number. A number replaces one of the same index and another generation.
#[derive(Debug)]
pub struct Table<T> {
    leaves: Vec<Option<Leaf<T>>>,
}

impl<T> Default for Table<T> {
    fn default() -> Self {
        Self { leaves: Vec::new() }
    }
}

impl<T> Table<T> {
    /// The value of a number.
    #[inline(always)]
    pub fn get_mut(&mut self, number: Number) -> Option<&mut T> {
        let index = number.index();
        let leaf = self.leaves.get_mut(index / LEAF)?.as_mut()?;
        match &mut leaf[index % LEAF] {
            Some((there, value)) if *there == number => Some(value),
            _ => None,
        }
    }

    /// Sets the value of a number.
    pub fn insert(&mut self, number: Number, value: T) {
        let index = number.index();
        let at = index / LEAF;
        if self.leaves.len() <= at {
            self.leaves.resize_with(at + 1, || None);
        }
        let leaf = self.leaves[at].get_or_insert_with(|| Box::new([const { None }; LEAF]));
        leaf[index % LEAF] = Some((number, value));
    }

    /// Removes the value of a number.
    pub fn remove(&mut self, number: Number) -> Option<T> {
        let index = number.index();
        let leaf = self.leaves.get_mut(index / LEAF)?.as_mut()?;
        let place = &mut leaf[index % LEAF];
        place
            .take_if(|(there, _)| *there == number)
            .map(|(_, value)| value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_names_one_generation() {
        let mut table = Table::default();
        let (old, new) = (Number::new(0xffff, 1), Number::new(0xffff, 2));
        assert_eq!(table.get_mut(old), None);
        table.insert(old, 'a');
        assert_eq!(table.get_mut(old), Some(&mut 'a'));
        assert_eq!(table.get_mut(new), None);
        assert_eq!(table.remove(new), None);
        table.insert(new, 'b');
        assert_eq!(table.get_mut(old), None);
        assert_eq!(table.remove(old), None, "the new one stays");
        assert_eq!(table.remove(new), Some('b'));
        assert_eq!(table.get_mut(new), None);
    }

    #[test]
    fn neighbours_are_apart() {
        let mut table = Table::default();
        let numbers: Vec<_> = (0..1000).map(|index| Number::new(index, 1)).collect();
        for number in &numbers {
            table.insert(*number, number.index());
        }
        for number in &numbers {
            assert_eq!(table.get_mut(*number), Some(&mut number.index()));
        }
    }
}
