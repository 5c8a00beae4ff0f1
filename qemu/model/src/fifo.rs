// SPDX-License-Identifier: GPL-2.0
//! Lines of queue pairs or pages, in which each stands at most once.
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

/// The ends of a line of [`Links`].
#[derive(Clone, Copy)]
pub(crate) struct Ends {
    first: u32,
    last: u32,
}

impl Default for Ends {
    fn default() -> Self {
        Self {
            first: NONE,
            last: NONE,
        }
    }
}

impl Ends {
    /// The first index.
    #[inline]
    pub(crate) fn first(&self) -> Option<usize> {
        (self.first != NONE).then_some(self.first as usize)
    }
}

/// Links for indices of which each stands in one line at most. Lines are [`Ends`]; each
/// index is always used with those of its own line.
pub(crate) struct Links(Vec<Link>);

impl Links {
    /// For indices below `count`.
    pub(crate) fn new(count: u32) -> Self {
        let link = Link {
            before: NONE,
            after: NONE,
            linked: false,
        };
        Self(vec![link; count as usize])
    }

    /// Steps in at the end: false if it stands in line already, or there is no such index.
    #[inline]
    pub(crate) fn push(&mut self, ends: &mut Ends, index: usize) -> bool {
        let last = ends.last;
        let Some(link) = self.0.get_mut(index) else {
            return false;
        };
        if link.linked {
            return false;
        }
        *link = Link {
            before: last,
            after: NONE,
            linked: true,
        };
        match self.0.get_mut(last as usize) {
            Some(before) => before.after = index as u32,
            None => ends.first = index as u32,
        }
        ends.last = index as u32;
        true
    }

    /// Leaves, wherever it stands: false if it stands nowhere.
    #[inline]
    pub(crate) fn remove(&mut self, ends: &mut Ends, index: usize) -> bool {
        let Some(link) = self.0.get_mut(index) else {
            return false;
        };
        if !link.linked {
            return false;
        }
        link.linked = false;
        let Link { before, after, .. } = *link;
        match self.0.get_mut(before as usize) {
            Some(link) => link.after = after,
            None => ends.first = after,
        }
        match self.0.get_mut(after as usize) {
            Some(link) => link.before = before,
            None => ends.last = before,
        }
        true
    }
}

/// A line of indices.
pub(crate) struct Fifo {
    links: Links,
    ends: Ends,
}

impl Fifo {
    /// For indices below `count`.
    pub(crate) fn new(count: u32) -> Self {
        Self {
            links: Links::new(count),
            ends: Ends::default(),
        }
    }

    /// The first member.
    #[inline]
    pub(crate) fn first(&self) -> Option<usize> {
        self.ends.first()
    }

    /// Steps in at the end, unless it stands there already.
    pub(crate) fn push(&mut self, index: usize) {
        self.links.push(&mut self.ends, index);
    }

    /// Leaves, wherever it stands.
    pub(crate) fn remove(&mut self, index: usize) {
        self.links.remove(&mut self.ends, index);
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
        let pop = |line: &mut Fifo| {
            let first = line.first()?;
            line.remove(first);
            Some(first)
        };
        let served: Vec<_> = std::iter::from_fn(|| pop(&mut line)).collect();
        assert_eq!(served, [1, 0, 3]);
        line.push(4);
        assert_eq!(line.first(), Some(4));
    }
}
