// SPDX-License-Identifier: GPL-2.0
//! A line of queue pairs, in which each stands at most once.
//!
//! Links between indices, made once: to step in, to be served and to leave from the
//! middle cost the same whatever the length, and nothing is allocated.

const NONE: u32 = u32::MAX;

#[derive(Clone, Copy)]
struct Link {
    before: u32,
    after: u32,
    linked: bool,
}

/// A line of indices.
pub(crate) struct Fifo {
    links: Vec<Link>,
    first: u32,
    last: u32,
}

impl Fifo {
    /// For indices below `count`.
    pub(crate) fn new(count: u32) -> Self {
        let link = Link {
            before: NONE,
            after: NONE,
            linked: false,
        };
        Self {
            links: vec![link; count as usize],
            first: NONE,
            last: NONE,
        }
    }

    /// Who is first.
    #[inline]
    pub(crate) fn first(&self) -> Option<usize> {
        (self.first != NONE).then_some(self.first as usize)
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.first == NONE
    }

    /// Steps in at the end, unless it stands there already.
    pub(crate) fn push(&mut self, index: usize) {
        let last = self.last;
        let Some(link) = self.links.get_mut(index) else {
            return;
        };
        if link.linked {
            return;
        }
        *link = Link {
            before: last,
            after: NONE,
            linked: true,
        };
        match self.links.get_mut(last as usize) {
            Some(before) => before.after = index as u32,
            None => self.first = index as u32,
        }
        self.last = index as u32;
    }

    /// Leaves, wherever it stands.
    pub(crate) fn remove(&mut self, index: usize) {
        let Some(link) = self.links.get_mut(index) else {
            return;
        };
        if !link.linked {
            return;
        }
        link.linked = false;
        let Link { before, after, .. } = *link;
        match self.links.get_mut(before as usize) {
            Some(link) => link.after = after,
            None => self.first = after,
        }
        match self.links.get_mut(after as usize) {
            Some(link) => link.before = before,
            None => self.last = before,
        }
    }

    /// Serves the first.
    pub(crate) fn pop(&mut self) -> Option<usize> {
        let first = self.first()?;
        self.remove(first);
        Some(first)
    }
}

#[cfg(test)]
mod tests {
    use super::Fifo;

    #[test]
    fn a_line_keeps_its_order_whoever_leaves() {
        let mut line = Fifo::new(5);
        for index in [3, 1, 4, 0, 3, 1, 2] {
            line.push(index);
        }
        line.remove(4);
        line.remove(3);
        line.remove(2);
        line.remove(2);
        line.push(3);
        line.push(77);
        let served: Vec<_> = std::iter::from_fn(|| line.pop()).collect();
        assert_eq!(served, [1, 0, 3]);
        assert!(line.is_empty());
        line.push(4);
        assert_eq!(line.first(), Some(4));
    }
}
