// SPDX-License-Identifier: GPL-2.0
//! A queue of at most `N` elements, without an allocation.

/// A queue of at most `N` elements.
#[derive(Clone, Debug)]
pub struct Fifo<T, const N: usize> {
    places: [Option<T>; N],
    first: usize,
    count: usize,
}

impl<T: Copy, const N: usize> Default for Fifo<T, N> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T: Copy, const N: usize> Fifo<T, N> {
    /// An empty one.
    pub const fn new() -> Self {
        Self {
            places: [None; N],
            first: 0,
            count: 0,
        }
    }

    /// Elements.
    #[inline]
    pub const fn len(&self) -> usize {
        self.count
    }

    /// Whether there is none.
    #[inline]
    pub const fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Whether no other fits.
    #[inline]
    pub const fn is_full(&self) -> bool {
        self.count >= N
    }

    #[inline]
    fn place(&self, nth: usize) -> usize {
        let at = self.first.wrapping_add(nth);
        if at >= N {
            at.wrapping_sub(N)
        } else {
            at
        }
    }

    /// The `nth` from the oldest on.
    #[inline]
    pub fn get(&self, nth: usize) -> Option<&T> {
        (nth < self.count).then(|| self.places.get(self.place(nth))?.as_ref())?
    }

    /// The same, to change it.
    #[inline]
    pub fn get_mut(&mut self, nth: usize) -> Option<&mut T> {
        let at = self.place(nth);
        (nth < self.count).then(|| self.places.get_mut(at)?.as_mut())?
    }

    /// The newest, to change it.
    #[inline]
    pub fn newest_mut(&mut self) -> Option<&mut T> {
        self.get_mut(self.count.wrapping_sub(1))
    }

    /// Adds one; false if it does not fit.
    #[inline]
    pub fn push(&mut self, element: T) -> bool {
        let at = self.place(self.count);
        let room = !self.is_full();
        if let Some(place) = self.places.get_mut(at).filter(|_| room) {
            *place = Some(element);
            self.count = self.count.wrapping_add(1);
        }
        room
    }

    /// Takes the oldest.
    #[inline]
    pub fn pop(&mut self) -> Option<T> {
        let taken = self.places.get_mut(self.first)?.take()?;
        self.first = self.place(1);
        self.count = self.count.wrapping_sub(1);
        Some(taken)
    }

    /// Drops those that are not to be kept.
    pub fn retain(&mut self, keep: impl Fn(&T) -> bool) {
        for _ in 0..self.count {
            if let Some(element) = self.pop().filter(&keep) {
                self.push(element);
            }
        }
    }

    /// Drops all.
    pub fn clear(&mut self) {
        *self = Self::new();
    }

    /// All, from the oldest on.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        (0..self.count).filter_map(|nth| self.get(nth))
    }
}
