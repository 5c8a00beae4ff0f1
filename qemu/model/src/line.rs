// SPDX-License-Identifier: GPL-2.0
//! Which queue pair is next.
//!
//! The admin queue pair goes first, but never twice in a row while others have work. The
//! others stand in two levels: doorbell pages in a line, and the queue pairs of a page in a
//! line of their own. A page has a *page turn* of a bounded number of work requests and
//! bytes, which its queue pairs use up one after the other; then the page steps back to the
//! end. So a process gets no more of the core by more queue pairs or larger messages.
//!
//! All links are made once: a step costs the same whatever the number of pages and queue
//! pairs, and nothing is allocated.

use crate::fifo::Ends;
use crate::fifo::Fifo;
use crate::fifo::Links;
use crate::mutant::mutant;
use crate::Config;

/// The admin queue pair.
const ADMIN: usize = 0;

/// What a turn may use, or has left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Budget {
    pub(crate) wqes: u32,
    pub(crate) bytes: u64,
}

impl Budget {
    /// Whether a turn is over.
    fn is_spent(&self) -> bool {
        self.wqes == 0 || self.bytes == 0
    }
}

/// A doorbell page with work.
#[derive(Clone, Copy)]
struct Page {
    qps: Ends,
    /// What is left of its page turn.
    left: Budget,
}

/// The queue pair whose turn it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Next {
    pub(crate) index: usize,
    /// What it may use. The caller takes away what the queue pair has used.
    pub(crate) budget: Budget,
    /// Its page; `None` for the admin queue pair.
    page: Option<usize>,
}

/// Queue pairs that have something to do.
pub(crate) struct Line {
    links: Links,
    pages: Vec<Page>,
    order: Fifo,
    /// Of a page turn.
    whole: Budget,
    /// Queue pairs in line, without the admin queue pair.
    waiting: u32,
    admin: bool,
    /// The last turn was the admin queue pair's.
    admin_was_last: bool,
}

impl Line {
    /// For a function with nothing to do.
    pub(crate) fn new(config: &Config) -> Self {
        let whole = Budget {
            wqes: config.turn_wqes,
            bytes: u64::from(config.turn_bytes),
        };
        let page = Page {
            qps: Ends::default(),
            left: whole,
        };
        Self {
            links: Links::new(config.qps),
            pages: vec![page; config.pages as usize],
            order: Fifo::new(config.pages),
            whole,
            waiting: 0,
            admin: false,
            admin_was_last: false,
        }
    }

    /// Whether no queue pair is in line.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.waiting == 0 && !self.admin
    }

    /// The queue pair at `index`, whose doorbells are on `page`, steps in at the end of its
    /// page's line, unless it stands there already.
    pub(crate) fn push(&mut self, index: usize, page: u16) {
        if index == ADMIN && !mutant!(AdminInLine) {
            self.admin = true;
            return;
        }
        let page = place(page);
        if let Some(found) = self.pages.get_mut(page) {
            if self.links.push(&mut found.qps, index) {
                self.waiting += 1;
                self.order.push(page);
            }
        }
    }

    /// It leaves, wherever it stands.
    pub(crate) fn remove(&mut self, index: usize, page: u16) {
        let page = place(page);
        if let Some(found) = self.pages.get_mut(page) {
            if self.links.remove(&mut found.qps, index) {
                self.waiting -= 1;
                if found.qps.first().is_none() {
                    self.leave(page);
                }
            }
        }
    }

    /// The page has no more work: when it comes back, it stands at the end.
    fn leave(&mut self, page: usize) {
        self.order.remove(page);
        if let Some(found) = self.pages.get_mut(page) {
            found.left = self.whole;
        }
    }

    /// Whose turn it is. [`Self::done`] follows.
    pub(crate) fn next(&mut self) -> Option<Next> {
        let others = self.waiting != 0;
        if self.admin && !(self.admin_was_last && others && !mutant!(AdminAlways)) {
            self.admin = false;
            self.admin_was_last = true;
            return Some(Next {
                index: ADMIN,
                budget: self.whole,
                page: None,
            });
        }
        self.admin_was_last = false;
        let page = self.order.first()?;
        let found = self.pages.get_mut(page)?;
        let index = found.qps.first()?;
        self.links.remove(&mut found.qps, index);
        self.waiting -= 1;
        Some(Next {
            index,
            budget: found.left,
            page: Some(page),
        })
    }

    /// The turn is over, and `next` has what is left. By now the queue pair stands in line
    /// again if it has more to do.
    pub(crate) fn done(&mut self, next: &Next) {
        let Some(page) = next.page else {
            return;
        };
        let Some(found) = self.pages.get_mut(page) else {
            return;
        };
        // A turn in which nothing could be done costs as well.
        let most = found.left.wqes.saturating_sub(1);
        found.left.wqes = next.budget.wqes.min(most);
        if !mutant!(BytesOfAQueuePair) {
            found.left.bytes = next.budget.bytes;
        }
        if found.qps.first().is_none() {
            self.leave(page);
        } else if found.left.is_spent() {
            self.leave(page);
            self.order.push(page);
        }
    }
}

fn place(page: u16) -> usize {
    if mutant!(PagesInOneLine) {
        return 0;
    }
    usize::from(page)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line() -> Line {
        Line::new(&Config {
            qps: 16,
            pages: 8,
            turn_wqes: 4,
            turn_bytes: 100,
            ..Config::default()
        })
    }

    /// Serves the next one, which uses so much of its budget and stays if it is to.
    fn serve(line: &mut Line, wqes: u32, bytes: u64, stays: bool) -> Option<usize> {
        let mut next = line.next()?;
        next.budget.wqes -= wqes.min(next.budget.wqes);
        next.budget.bytes -= bytes.min(next.budget.bytes);
        if stays {
            line.push(next.index, next.page.unwrap_or(0) as u16);
        }
        line.done(&next);
        Some(next.index)
    }

    #[test]
    fn a_page_has_its_turn_and_steps_back() {
        let mut line = line();
        for (qp, page) in [(1, 3), (2, 3), (3, 5), (2, 3), (4, 3)] {
            line.push(qp, page);
        }
        // Two of page 3 share its four requests; the third one has the next page turn.
        let served: Vec<_> = (0..9)
            .map(|_| serve(&mut line, 2, 1, true).unwrap())
            .collect();
        assert_eq!(served, [1, 2, 3, 3, 4, 1, 3, 3, 2]);
        // Bytes end it as well.
        assert_eq!(serve(&mut line, 1, 100, true), Some(4));
        assert_eq!(serve(&mut line, 1, 99, true), Some(3));
        assert_eq!(serve(&mut line, 1, 1, true), Some(3));
        assert_eq!(serve(&mut line, 1, 1, true), Some(1));
    }

    #[test]
    fn a_page_that_comes_back_stands_at_the_end() {
        let mut line = line();
        line.push(1, 1);
        assert_eq!(serve(&mut line, 1, 0, false), Some(1));
        assert!(line.is_empty());
        line.push(2, 2);
        line.push(1, 1);
        line.push(3, 3);
        // With a whole page turn each time.
        assert_eq!(serve(&mut line, 3, 0, false), Some(2));
        line.push(2, 2);
        for _ in 0..4 {
            assert_eq!(serve(&mut line, 1, 0, true), Some(1));
        }
        assert_eq!(serve(&mut line, 0, 0, false), Some(3));
        assert_eq!(serve(&mut line, 1, 0, true), Some(2));
    }

    #[test]
    fn queue_pairs_leave_from_anywhere() {
        let mut line = line();
        for (qp, page) in [(1, 1), (2, 1), (3, 2), (4, 4)] {
            line.push(qp, page);
        }
        line.remove(1, 1);
        line.remove(3, 2);
        line.remove(3, 2);
        line.remove(9, 1);
        assert_eq!(serve(&mut line, 1, 0, false), Some(2));
        assert_eq!(serve(&mut line, 1, 0, false), Some(4));
        assert_eq!(serve(&mut line, 1, 0, false), None);
        // One of no page has no turn.
        line.push(5, 77);
        line.push(99, 1);
        assert!(line.is_empty());
    }

    #[test]
    fn the_admin_queue_pair_has_every_second_turn() {
        let mut line = line();
        line.push(1, 1);
        line.push(0, 0);
        line.push(2, 2);
        let served: Vec<_> = (0..6)
            .map(|_| serve(&mut line, 1, 0, true).unwrap())
            .collect();
        assert_eq!(served, [0, 1, 0, 1, 0, 1]);
        line.remove(1, 1);
        line.remove(2, 2);
        assert_eq!(serve(&mut line, 1, 0, true), Some(0));
        assert_eq!(serve(&mut line, 1, 0, false), Some(0));
        assert!(line.is_empty());
        assert_eq!(line.next(), None);
    }
}
