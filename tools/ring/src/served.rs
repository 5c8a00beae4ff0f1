// SPDX-License-Identifier: GPL-2.0
//! The queue pairs that complete in a CQ, and which of its entries are theirs.

use qpair_abi::Number;
use qpair_queue::index::Index;

use crate::table::Table;

/// Which entries belong to a queue pair since its creation or last reset. Earlier ones are from
/// before that reset, or of an earlier queue pair with this number.
#[derive(Clone, Copy, Debug)]
pub enum Life {
    /// Those from this index on.
    Since(Index),
    /// All: the head has passed the first. The comparison with its index would be wrong 2^31
    /// entries later.
    Always,
}

impl Life {
    /// Whether it includes the entry before `past`.
    #[inline(always)]
    pub fn includes(self, past: Index) -> bool {
        match self {
            Self::Since(first) => past.reaches(first.plus(1)),
            Self::Always => true,
        }
    }
}

/// A value for each queue pair that completes in a CQ.
#[derive(Debug)]
pub struct Served<T> {
    pairs: Table<(Life, T)>,
    /// Those with a life since an index that the head has not reached.
    young: Vec<Number>,
}

impl<T> Default for Served<T> {
    fn default() -> Self {
        Self {
            pairs: Table::default(),
            young: Vec::new(),
        }
    }
}

impl<T> Served<T> {
    /// The queue pair of the entry before `past`; `None` if the entry is stale.
    #[inline(always)]
    pub fn of_entry(&mut self, number: Number, past: Index) -> Option<&mut T> {
        let (life, value) = self.pairs.get_mut(number)?;
        life.includes(past).then_some(value)
    }

    /// A queue pair, and which entries belong to it.
    pub fn get_mut(&mut self, number: Number) -> Option<(Life, &mut T)> {
        let (life, value) = self.pairs.get_mut(number)?;
        Some((*life, value))
    }

    /// Adds a queue pair, or gives it a new life: its entries are those from `since` on.
    pub fn insert(&mut self, number: Number, since: Index, value: T) {
        if !self.young.contains(&number) {
            self.young.push(number);
        }
        self.pairs.insert(number, (Life::Since(since), value));
    }

    /// Removes a queue pair; its entries that are left are stale.
    pub fn remove(&mut self, number: Number) -> Option<T> {
        Some(self.pairs.remove(number)?.1)
    }

    /// The head `head` was published.
    #[inline(always)]
    pub fn passed(&mut self, head: Index) {
        if !self.young.is_empty() {
            self.grow_up(head);
        }
    }

    #[cold]
    fn grow_up(&mut self, head: Index) {
        let pairs = &mut self.pairs;
        self.young.retain(|number| match pairs.get_mut(*number) {
            Some((Life::Since(first), _)) if !head.reaches(*first) => true,
            Some((life, _)) => {
                *life = Life::Always;
                false
            }
            None => false,
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const QP: Number = Number::new(3, 1);

    #[test]
    fn a_life_does_not_end_when_indices_go_round() {
        let mut served = Served::default();
        let born = Index::new(7);
        served.insert(QP, born, ());
        assert_eq!(served.of_entry(QP, born), None, "the entry before");
        assert!(served.of_entry(QP, born.plus(1)).is_some());
        served.passed(Index::new(6));
        assert_eq!(served.of_entry(QP, born), None, "not passed yet");
        served.passed(born);
        for later in [1, 1 << 30, 1 << 31, (1 << 31) + 1, u32::MAX] {
            let entry = served.of_entry(QP, born.plus(later));
            assert!(entry.is_some(), "{later} entries later");
        }
    }

    #[test]
    fn a_new_life_has_new_entries() {
        let mut served = Served::default();
        served.insert(QP, Index::new(0), 'a');
        served.passed(Index::new(9));
        served.insert(QP, Index::new(10), 'b');
        assert_eq!(served.of_entry(QP, Index::new(10)), None);
        assert_eq!(served.of_entry(QP, Index::new(11)), Some(&mut 'b'));
        assert_eq!(served.remove(QP), Some('b'));
        served.passed(Index::new(11));
        assert!(served.get_mut(QP).is_none() && served.young.is_empty());
    }
}
