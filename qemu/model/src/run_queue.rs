// SPDX-License-Identifier: GPL-2.0
//! The run queue: queue pairs that have work, in the order in which they run.
//!
//! The admin queue pair runs first, but never twice in a row while others have work. The
//! others are queued in two levels: doorbell pages in one queue, and the queue pairs of a page
//! in a queue of its own. A page has a *page turn* of a bounded number of work requests and
//! bytes, which its queue pairs use up one after the other; then the page goes to the end of
//! the queue. So a process gets no more of the core by more queue pairs or larger messages.
//!
//! All links are allocated once. A step costs the same whatever the number of pages and queue
//! pairs, and allocates nothing.

use crate::config::Config;
use crate::fifo::Ends;
use crate::fifo::Fifo;
use crate::fifo::Links;

/// The index of the admin queue pair.
const ADMIN: usize = 0;

/// An amount of work: the budget of a turn, or the rest of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    pub(crate) wqes: u32,
    pub(crate) bytes: u64,
}

impl Budget {
    /// No work.
    pub const fn none() -> Self {
        Self { wqes: 0, bytes: 0 }
    }

    /// Whether a turn is over.
    pub(crate) fn is_spent(&self) -> bool {
        self.wqes == 0 || self.bytes == 0
    }

    /// The rest after `used`.
    pub(crate) fn less(self, used: Self) -> Self {
        Self {
            wqes: self.wqes.saturating_sub(used.wqes),
            bytes: self.bytes.saturating_sub(used.bytes),
        }
    }
}

/// The queue pairs of a doorbell page that have work.
#[derive(Clone, Copy)]
struct PageQueue {
    qps: Ends,
    /// The rest of its page turn.
    left: Budget,
}

/// The queue pair that runs next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Next {
    pub(crate) index: usize,
    /// Its budget. The caller subtracts what the queue pair has used.
    pub(crate) budget: Budget,
    /// Its page; `None` for the admin queue pair.
    page: Option<usize>,
}

/// Queue pairs that have work.
pub(crate) struct RunQueue {
    links: Links,
    pages: Vec<PageQueue>,
    order: Fifo,
    /// The budget of a page turn.
    whole: Budget,
    /// Queued queue pairs, without the admin queue pair.
    waiting: u32,
    admin: bool,
    /// The last turn was the admin queue pair's.
    admin_was_last: bool,
}

impl RunQueue {
    /// An empty one.
    pub(crate) fn new(config: &Config) -> Self {
        let whole = Budget {
            wqes: config.turn_wqes,
            bytes: u64::from(config.turn_bytes),
        };
        let page = PageQueue {
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

    /// Whether no queue pair is queued.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.waiting == 0 && !self.admin
    }

    /// The index of the queue pair that is queued alone. The admin queue pair never is.
    pub(crate) fn only(&self) -> Option<usize> {
        if self.waiting != 1 || self.admin {
            return None;
        }
        self.pages.get(self.order.first()?)?.qps.first()
    }

    /// Queues the queue pair at `index`, whose doorbells are on `page`, at the end of its
    /// page's queue, unless it is queued already.
    pub(crate) fn push(&mut self, index: usize, page: u16) {
        if index == ADMIN {
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

    /// Removes a queue pair from any place in the queue.
    pub(crate) fn remove(&mut self, index: usize, page: u16) {
        let page = place(page);
        if let Some(found) = self.pages.get_mut(page) {
            if self.links.remove(&mut found.qps, index) {
                self.waiting -= 1;
                if found.qps.first().is_none() {
                    self.end_page_turn(page);
                }
            }
        }
    }

    /// Removes a page from the queue. The page has a whole page turn when it is queued again.
    fn end_page_turn(&mut self, page: usize) {
        self.order.remove(page);
        if let Some(found) = self.pages.get_mut(page) {
            found.left = self.whole;
        }
    }

    /// Takes the next queue pair out. [`Self::done`] follows.
    pub(crate) fn next(&mut self) -> Option<Next> {
        let others = self.waiting != 0;
        if self.admin && !(self.admin_was_last && others) {
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

    /// Ends the turn of `next`, which has what is left of the budget. The caller has queued the
    /// queue pair again if it has more work.
    pub(crate) fn done(&mut self, next: &Next) {
        let Some(page) = next.page else {
            return;
        };
        let Some(found) = self.pages.get_mut(page) else {
            return;
        };
        found.left.wqes = next.budget.wqes;
        found.left.bytes = next.budget.bytes;
        if found.qps.first().is_none() {
            self.end_page_turn(page);
        } else if found.left.is_spent() {
            self.end_page_turn(page);
            self.order.push(page);
        }
    }
}

fn place(page: u16) -> usize {
    usize::from(page)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run_queue() -> RunQueue {
        RunQueue::new(&Config {
            qps: 16,
            pages: 8,
            turn_wqes: 4,
            turn_bytes: 100,
            ..Config::default()
        })
    }

    /// Serves the next one, which uses so much of its budget and is queued again if it `stays`.
    fn serve(queue: &mut RunQueue, wqes: u32, bytes: u64, stays: bool) -> Option<usize> {
        let mut next = queue.next()?;
        next.budget.wqes -= wqes.min(next.budget.wqes);
        next.budget.bytes -= bytes.min(next.budget.bytes);
        if stays {
            queue.push(next.index, next.page.unwrap_or(0) as u16);
        }
        queue.done(&next);
        Some(next.index)
    }

    #[test]
    fn a_page_has_its_turn_and_goes_to_the_end() {
        let mut queue = run_queue();
        for (qp, page) in [(1, 3), (2, 3), (3, 5), (2, 3), (4, 3)] {
            queue.push(qp, page);
        }
        // Two of page 3 share its four requests; the third one has the next page turn.
        let served: Vec<_> = (0..9)
            .map(|_| serve(&mut queue, 2, 1, true).unwrap())
            .collect();
        assert_eq!(served, [1, 2, 3, 3, 4, 1, 3, 3, 2]);
        // Bytes end it as well.
        assert_eq!(serve(&mut queue, 1, 100, true), Some(4));
        assert_eq!(serve(&mut queue, 1, 99, true), Some(3));
        assert_eq!(serve(&mut queue, 1, 1, true), Some(3));
        assert_eq!(serve(&mut queue, 1, 1, true), Some(1));
    }

    #[test]
    fn a_page_that_comes_back_is_queued_at_the_end() {
        let mut queue = run_queue();
        queue.push(1, 1);
        assert_eq!(serve(&mut queue, 1, 0, false), Some(1));
        assert!(queue.is_empty());
        queue.push(2, 2);
        queue.push(1, 1);
        queue.push(3, 3);
        // With a whole page turn each time.
        assert_eq!(serve(&mut queue, 3, 0, false), Some(2));
        queue.push(2, 2);
        for _ in 0..4 {
            assert_eq!(serve(&mut queue, 1, 0, true), Some(1));
        }
        assert_eq!(serve(&mut queue, 0, 0, false), Some(3));
        assert_eq!(serve(&mut queue, 1, 0, true), Some(2));
    }

    #[test]
    fn queue_pairs_leave_from_anywhere() {
        let mut queue = run_queue();
        for (qp, page) in [(1, 1), (2, 1), (3, 2), (4, 4)] {
            queue.push(qp, page);
        }
        queue.remove(1, 1);
        queue.remove(3, 2);
        queue.remove(3, 2);
        queue.remove(9, 1);
        assert_eq!(serve(&mut queue, 1, 0, false), Some(2));
        assert_eq!(serve(&mut queue, 1, 0, false), Some(4));
        assert_eq!(serve(&mut queue, 1, 0, false), None);
        // A queue pair without a page is not queued.
        queue.push(5, 77);
        queue.push(99, 1);
        assert!(queue.is_empty());
    }

    #[test]
    fn the_admin_queue_pair_has_every_second_turn() {
        let mut queue = run_queue();
        queue.push(1, 1);
        queue.push(0, 0);
        queue.push(2, 2);
        let served: Vec<_> = (0..6)
            .map(|_| serve(&mut queue, 1, 0, true).unwrap())
            .collect();
        assert_eq!(served, [0, 1, 0, 1, 0, 1]);
        queue.remove(1, 1);
        queue.remove(2, 2);
        assert_eq!(serve(&mut queue, 1, 0, true), Some(0));
        assert_eq!(serve(&mut queue, 1, 0, false), Some(0));
        assert!(queue.is_empty());
        assert_eq!(queue.next(), None);
    }
}
