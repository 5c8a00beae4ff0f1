// SPDX-License-Identifier: GPL-2.0
//! Queues of queue pairs or pages, each of which is queued at most once.
//!
//! A queue is links between indices, which are allocated once. To push, to pop and to remove
//! from the middle cost the same whatever the length.

const NONE: u32 = u32::MAX;

#[derive(Clone, Copy)]
struct Link {
    before: u32,
    after: u32,
    linked: bool,
}

/// The ends of a queue in [`Links`].
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

/// Links for indices, each of which is in at most one queue. A queue is its [`Ends`]; an index
/// is always used with the ends of its own queue.
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

    /// The number of indices that are queued. Looks at all links.
    pub(crate) fn count(&self) -> usize {
        self.0.iter().filter(|link| link.linked).count()
    }

    /// Queues an index at the end: false if it is queued already, or there is no such index.
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

    /// Removes an index from any place: false if it is not queued.
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

/// A queue of indices.
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

    /// Queues an index at the end, unless it is queued already.
    pub(crate) fn push(&mut self, index: usize) {
        self.links.push(&mut self.ends, index);
    }

    /// Removes an index from any place.
    pub(crate) fn remove(&mut self, index: usize) {
        self.links.remove(&mut self.ends, index);
    }
}

#[cfg(test)]
mod tests {
    use super::Fifo;

    #[test]
    fn removals_keep_the_order() {
        let mut queue = Fifo::new(5);
        for index in [3, 1, 4, 0, 3, 1, 2] {
            queue.push(index);
        }
        queue.remove(4);
        queue.remove(3);
        queue.remove(2);
        queue.remove(2);
        queue.push(3);
        queue.push(77);
        let pop = |queue: &mut Fifo| {
            let first = queue.first()?;
            queue.remove(first);
            Some(first)
        };
        let served: Vec<_> = std::iter::from_fn(|| pop(&mut queue)).collect();
        assert_eq!(served, [1, 0, 3]);
        queue.push(4);
        assert_eq!(queue.first(), Some(4));
    }
}
