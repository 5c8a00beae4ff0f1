// SPDX-License-Identifier: GPL-2.0
//! Objects by number.
//!
//! A number is an index and a generation. A look-up is one access to an array and
//! one comparison, and a number that outlived its object finds nothing.
//!
//! When an object is destroyed, entries that name it may still lie unread in rings. Its index
//! is freed when the heads of these rings have passed them (a *deferred free*): the number in
//! such an entry names no object, and never another one at the same index.
//!
//! The generations of an index are 1 to 65535, of queue pairs, regions, windows and FRMRs 1 to the
//! last that their numbers can have, each once before one comes again: in order, or, in a table with a
//! secret, in an order that is not known without it.

use qpair_abi::Number;
use std::hash::DefaultHasher;
use std::hash::Hash;
use std::hash::Hasher;

struct Slot<T> {
    /// The object that is, or was, here.
    number: Number,
    /// How many generations have been assigned, modulo their number.
    given: u16,
    object: Option<Box<T>>,
}

/// Generations of an index.
const GENERATIONS: u16 = u16::MAX;

/// The secret that an order of generations follows from.
#[derive(Clone, Copy)]
struct Secret(u64);

impl Secret {
    /// The `given`th generation of an index, of 1 to `last`: a permutation of as many bits as `last`
    /// has, or one more (a Feistel network whose rounds are SipHash), applied again if the value is no
    /// generation.
    fn generation(self, index: u16, given: u16, last: u16) -> u16 {
        let half = last.checked_ilog2().unwrap_or(0) / 2 + 1;
        let mask = !(u16::MAX << (half & 15));
        let mut value = given;
        loop {
            let (mut left, mut right) = (value >> (half & 15), value & mask);
            for round in 0..ROUNDS {
                let mut hash = DefaultHasher::new();
                (self.0, index, round, right).hash(&mut hash);
                (left, right) = (right, (left ^ hash.finish() as u16) & mask);
            }
            value = left << (half & 15) | right;
            if value < last {
                return value.wrapping_add(1);
            }
        }
    }
}

const ROUNDS: u8 = 8;

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

/// A deferred free: an index whose object is destroyed, and which is not free yet.
pub(crate) struct Deferred {
    index: u16,
    /// The entries that must be read before the index is free.
    pub(crate) untils: Untils,
    /// The doorbell page of the object.
    pub(crate) page: u16,
}

/// All objects of a kind.
pub(crate) struct Table<T> {
    slots: Vec<Slot<T>>,
    limit: usize,
    /// Free indices; the last one in is the first one out.
    free: Vec<u16>,
    deferred: Vec<Deferred>,
    /// The last generation of an index.
    last: u16,
    secret: Option<Secret>,
}

impl<T> Table<T> {
    /// An empty table of at most `limit` objects, which is at most 65536.
    pub(crate) fn new(limit: u32) -> Self {
        Self {
            slots: Vec::new(),
            limit: limit as usize,
            free: Vec::new(),
            deferred: Vec::new(),
            last: GENERATIONS,
            secret: None,
        }
    }

    /// An empty table of queue pairs.
    pub(crate) fn of_queue_pairs(limit: u32) -> Self {
        Self {
            last: Number::QP_GENERATIONS,
            ..Self::new(limit)
        }
    }

    /// An empty table whose generations, of 1 to `last`, cannot be predicted without the secret.
    pub(crate) fn with_secret(limit: u32, secret: u64, last: u16) -> Self {
        Self {
            last,
            secret: Some(Secret(secret)),
            ..Self::new(limit)
        }
    }

    /// Inserts the object that registers brought up; only into an empty table.
    pub(crate) fn insert_first(&mut self, object: T) {
        if self.slots.is_empty() {
            self.slots.push(Slot {
                number: Number::ADMIN,
                given: 0,
                object: Some(Box::new(object)),
            });
        }
    }

    /// The number that the next object gets; `None` if no index is free.
    pub(crate) fn next(&mut self) -> Option<Number> {
        if self.free.is_empty() {
            if self.slots.len() >= self.limit {
                return None;
            }
            let index = u16::try_from(self.slots.len()).ok()?;
            self.slots.push(Slot {
                number: Number::new(index, 0),
                given: 0,
                object: None,
            });
            self.free.push(index);
        }
        let &index = self.free.last()?;
        let slot = self.slots.get(usize::from(index))?;
        Some(match self.secret {
            Some(secret) => Number::new(index, secret.generation(index, slot.given, self.last)),
            _ => slot.number.next_of(self.last),
        })
    }

    /// Inserts the object of the number that [`next`](Self::next) gave.
    pub(crate) fn insert(&mut self, number: Number, object: T) {
        self.free.retain(|&index| index as usize != number.index());
        if let Some(slot) = self.slots.get_mut(number.index()) {
            *slot = Slot {
                number,
                given: slot.given.wrapping_add(1) % self.last,
                object: Some(Box::new(object)),
            };
        }
    }

    /// The object of this number.
    #[inline]
    pub(crate) fn get(&self, number: Number) -> Option<&T> {
        let slot = self.slots.get(number.index())?;
        if slot.number != number {
            return None;
        }
        slot.object.as_deref()
    }

    /// The object of this number.
    #[inline]
    pub(crate) fn get_mut(&mut self, number: Number) -> Option<&mut T> {
        let slot = self.slots.get_mut(number.index())?;
        if slot.number != number {
            return None;
        }
        slot.object.as_deref_mut()
    }

    /// The number of the object at this index.
    #[inline]
    pub(crate) fn at(&self, index: usize) -> Option<Number> {
        let slot = self.slots.get(index)?;
        slot.object.is_some().then_some(slot.number)
    }

    /// Whether the index has been used, but with another generation.
    pub(crate) fn is_stale(&self, number: Number) -> bool {
        let slot = self.slots.get(number.index());
        slot.is_some_and(|slot| slot.number != number && number.generation() != 0)
    }

    /// Removes an object whose entries are in no ring.
    pub(crate) fn remove(&mut self, number: Number) -> Option<T> {
        self.remove_of_page(number, [Until::Now; 3], 0)
    }

    /// Removes an object of a doorbell page, and defers the free of its index until the rings
    /// have been read.
    pub(crate) fn remove_of_page(
        &mut self,
        number: Number,
        untils: Untils,
        page: u16,
    ) -> Option<T> {
        let slot = self.slots.get_mut(number.index())?;
        if slot.number != number {
            return None;
        }
        let object = slot.object.take()?;
        self.deferred.push(Deferred {
            index: number.index() as u16,
            untils,
            page,
        });
        Some(*object)
    }

    /// The deferred frees.
    pub(crate) fn deferred(&self) -> &[Deferred] {
        &self.deferred
    }

    /// Takes the deferred frees out; [`settle`](Self::settle) follows.
    pub(crate) fn take_deferred(&mut self) -> Vec<Deferred> {
        core::mem::take(&mut self.deferred)
    }

    /// Frees the indices of `over`, and defers those of `held` further.
    pub(crate) fn settle(&mut self, (over, held): (Vec<Deferred>, Vec<Deferred>)) {
        self.free.extend(over.into_iter().map(|free| free.index));
        self.deferred = held;
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

    /// How many indices have ever been used.
    pub(crate) fn indices(&self) -> usize {
        self.slots.len()
    }
}

#[cfg(test)]
mod tests {
    use super::Table;
    use super::Until;
    use qpair_abi::Number;

    fn sweep<T>(table: &mut Table<T>, over: impl Fn(Until) -> bool) {
        let deferred = table.take_deferred();
        let is_over = |free: &super::Deferred| free.untils.into_iter().all(&over);
        table.settle(deferred.into_iter().partition(is_over));
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
        assert_eq!(table.next(), Some(Number::new(0, 2)), "nothing was created");
        assert!(table.is_stale(Number::new(1, 9)));
    }

    /// The first `count` generations of the only index.
    fn generations(mut table: Table<()>, count: usize) -> Vec<u16> {
        let mut next = || {
            let number = table.next().unwrap();
            table.insert(number, ());
            table.remove(number);
            sweep(&mut table, |_| true);
            number.generation()
        };
        (0..count).map(|_| next()).collect()
    }

    #[test]
    fn a_secret_order_has_each_generation_once() {
        for last in [1, 63, 2047, 16_383, 65_535] {
            let table = Table::with_secret(1, 3, last);
            let order = generations(table, usize::from(last) + 1);
            assert_eq!(order[0], order[usize::from(last)], "then it begins again");
            let mut sorted = order[1..].to_vec();
            sorted.sort_unstable();
            assert!(sorted.into_iter().eq(1..=last));
        }
        let order = |secret| generations(Table::with_secret(1, secret, 65_535), 65_535);
        let one = order(1);
        assert_eq!(one, order(1), "the same secret gives the same order");
        let followers = |order: &[u16]| {
            let pairs = order.windows(2);
            pairs.filter(|pair| pair[0] % 65_535 + 1 == pair[1]).count()
        };
        assert!(followers(&one) < 20, "about one by chance");
        let two = order(2);
        let same = one.iter().zip(&two).filter(|(one, two)| one == two).count();
        assert!(same < 20, "{same}: about one by chance");
        let step = |order: &[u16]| order[1].wrapping_sub(order[0]);
        assert_ne!(step(&one), step(&two));
    }

    #[test]
    fn each_index_has_an_order_of_its_own() {
        let mut table = Table::with_secret(100, 7, 16_383);
        let mut firsts = Vec::new();
        while let Some(number) = table.next() {
            table.insert(number, ());
            firsts.push(number.generation());
        }
        firsts.sort_unstable();
        firsts.dedup();
        assert!(firsts.len() > 95, "{firsts:?}");
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

    #[test]
    fn a_number_of_a_queue_pair_has_24_bits() {
        let mut table = Table::of_queue_pairs(2);
        table.insert_first(());
        for turn in 1..=600_u32 {
            let number = table.next().unwrap();
            assert_eq!(number.raw(), ((turn - 1) % 254 + 1) << 16 | 1);
            table.insert(number, ());
            table.remove(number);
            sweep(&mut table, |_| true);
        }
    }
}
