// SPDX-License-Identifier: GPL-2.0
//! Objects by number.
//!
//! A number is an index and a generation. A look-up is one access to an array and
//! one comparison, and a number that outlived its object finds nothing.
//!
//! When an object is destroyed, entries that name it may still lie unread in rings. Until
//! the heads of these rings have passed them its index is in limbo: software that reads
//! such an entry finds nobody under its number, never somebody else's object at the same place.

use crate::mutant::mutant;
use qpair_abi::Number;

struct Slot<T> {
    /// The object that is, or was, here.
    number: Number,
    object: Option<Box<T>>,
}

/// A ring that must be read up to an index, counted from the ring's beginning without wrapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Until {
    /// No ring.
    Now,
    /// A CQ.
    Cq(Number, u64),
    /// An EQ.
    Eq(Number, u64),
}

/// The rings that may hold entries of a destroyed object.
pub(crate) type Untils = [Until; 3];

/// An index whose object is gone, what has to be read before it is given out again, and the
/// doorbell page of the object.
pub(crate) type Limbo = (u16, Untils, u16);

/// All objects of a kind.
pub(crate) struct Table<T> {
    slots: Vec<Slot<T>>,
    limit: usize,
    /// Indices that can be given out again; the last one in is the first one out.
    free: Vec<u16>,
    limbo: Vec<Limbo>,
}

impl<T> Table<T> {
    /// An empty one of at most `limit` objects, which is at most 65536.
    pub(crate) fn new(limit: u32) -> Self {
        Self {
            slots: Vec::new(),
            limit: limit as usize,
            free: Vec::new(),
            limbo: Vec::new(),
        }
    }

    /// Puts in the object that registers brought up; only into an empty table.
    pub(crate) fn insert_first(&mut self, object: T) {
        if self.slots.is_empty() {
            self.slots.push(Slot {
                number: Number::ADMIN,
                object: Some(Box::new(object)),
            });
        }
    }

    /// The number that the next object gets; `None` if there is no room.
    pub(crate) fn next(&mut self) -> Option<Number> {
        if let Some(&index) = self.free.last() {
            return self
                .slots
                .get(index as usize)
                .map(|slot| slot.number.next());
        }
        if self.slots.len() >= self.limit {
            return None;
        }
        let number = Number::new(u16::try_from(self.slots.len()).ok()?, 0);
        self.slots.push(Slot {
            number,
            object: None,
        });
        self.free.push(number.index() as u16);
        Some(number.next())
    }

    /// Puts in the object that was made for the number that [`next`](Self::next) gave.
    pub(crate) fn insert(&mut self, number: Number, object: T) {
        self.free.retain(|&index| index as usize != number.index());
        if let Some(slot) = self.slots.get_mut(number.index()) {
            *slot = Slot {
                number,
                object: Some(Box::new(object)),
            };
        }
    }

    /// The object of this number.
    #[inline]
    pub(crate) fn get(&self, number: Number) -> Option<&T> {
        let slot = self.slots.get(number.index())?;
        if slot.number != number && !mutant!(GenerationNotChecked) {
            return None;
        }
        slot.object.as_deref()
    }

    /// The object of this number.
    #[inline]
    pub(crate) fn get_mut(&mut self, number: Number) -> Option<&mut T> {
        let slot = self.slots.get_mut(number.index())?;
        if slot.number != number && !mutant!(GenerationNotChecked) {
            return None;
        }
        slot.object.as_deref_mut()
    }

    /// The number of whoever is at this place now.
    #[inline]
    pub(crate) fn at(&self, index: usize) -> Option<Number> {
        let slot = self.slots.get(index)?;
        slot.object.is_some().then_some(slot.number)
    }

    /// Whether something is at this place, but of another generation.
    pub(crate) fn is_stale(&self, number: Number) -> bool {
        let slot = self.slots.get(number.index());
        slot.is_some_and(|slot| slot.number != number && number.generation() != 0)
    }

    /// Takes an object out whose index is free at once.
    pub(crate) fn remove(&mut self, number: Number) -> Option<T> {
        self.remove_of_page(number, [Until::Now; 3], 0)
    }

    /// Takes an object of a doorbell page out. Its index is in limbo until the rings were read.
    pub(crate) fn remove_of_page(&mut self, number: Number, until: Untils, page: u16) -> Option<T> {
        let slot = self.slots.get_mut(number.index())?;
        if slot.number != number {
            return None;
        }
        let object = slot.object.take()?;
        self.limbo.push((number.index() as u16, until, page));
        Some(*object)
    }

    /// The indices in limbo.
    pub(crate) fn limbo(&self) -> &[Limbo] {
        &self.limbo
    }

    /// Hands out the indices in limbo, to be looked at and brought back.
    pub(crate) fn take_limbo(&mut self) -> Vec<Limbo> {
        core::mem::take(&mut self.limbo)
    }

    /// Brings them back: those that can be given out again, and the others.
    pub(crate) fn settle(&mut self, (over, held): (Vec<Limbo>, Vec<Limbo>)) {
        self.free.extend(over.into_iter().map(|(index, ..)| index));
        self.limbo = held;
    }

    /// All objects.
    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.slots
            .iter_mut()
            .filter_map(|slot| slot.object.as_deref_mut())
    }

    /// How many objects there are.
    pub(crate) fn count(&self) -> usize {
        let there = self.slots.iter().filter(|slot| slot.object.is_some());
        there.count()
    }

    /// How many places have ever been used.
    pub(crate) fn places(&self) -> usize {
        self.slots.len()
    }
}

#[cfg(test)]
mod tests {
    use super::Table;
    use super::Until;
    use qpair_abi::Number;

    fn sweep<T>(table: &mut Table<T>, over: impl Fn(Until) -> bool) {
        let limbo = table.take_limbo();
        let is_over = |limbo: &super::Limbo| limbo.1.into_iter().all(&over);
        table.settle(limbo.into_iter().partition(is_over));
    }

    #[test]
    fn a_number_finds_its_object_and_no_other() {
        let mut table = Table::new(2);
        let first = table.next().unwrap();
        table.insert(first, 'a');
        let second = table.next().unwrap();
        table.insert(second, 'b');
        assert_eq!(table.next(), None);
        assert_eq!((first, second), (Number::new(0, 1), Number::new(1, 1)));
        assert_eq!(table.get(second), Some(&'b'));
        assert_eq!(table.get(Number::new(1, 2)), None);
        assert_eq!(table.get(Number::new(7, 1)), None);

        let ring = Until::Eq(Number::ADMIN, 5);
        assert_eq!(
            table.remove_of_page(first, [ring, Until::Now, Until::Now], 0),
            Some('a')
        );
        assert_eq!(table.remove(first), None);
        sweep(&mut table, |until| until == Until::Now);
        assert_eq!(table.next(), None, "an entry of it is in a ring");
        sweep(&mut table, |_| true);
        assert_eq!(table.next(), Some(Number::new(0, 2)));
        assert_eq!(table.next(), Some(Number::new(0, 2)), "nothing was made");
        assert!(table.is_stale(Number::new(1, 9)));
    }

    #[test]
    fn a_generation_wraps_past_zero() {
        let mut table = Table::new(1);
        for turn in 1..=70_000_u32 {
            let number = table.next().unwrap();
            assert_eq!(u32::from(number.generation()), (turn - 1) % 65_535 + 1);
            table.insert(number, ());
            table.remove(number);
            sweep(&mut table, |_| true);
        }
    }
}
