// SPDX-License-Identifier: GPL-2.0
//! For the checker: where a ring stands, and which numbers CQs have, makes no difference.

use super::*;

impl Node {
    /// Renumbers CQs; see [`Poller::rename`].
    pub fn rename(&mut self, name: impl Fn(Number) -> Number) {
        self.next = self.next.map(name);
    }
}

impl<S: Storage> Poller<S> {
    /// Moves the EQ `by` entries on, as if it had begun there, and forgets what was counted.
    ///
    /// For the checker. Indices run free, so a ring never returns to an earlier state. But the
    /// rules use only the distance of an index from others of its ring, its position and its pass.
    /// So the checker, which lays out the entries in memory, moves each ring back to its beginning,
    /// and states that differ in nothing else become one. Fields that are written before their next
    /// use are set to one value.
    pub fn rotate(&mut self, by: u32) {
        self.eq.rotate(by);
        self.slots.rotate(by);
        self.counts = Counts::default();
    }

    /// Renumbers CQs.
    ///
    /// For the checker. The rules only compare numbers for equality, so states that differ only in
    /// the numbers of CQs are one state. [`Node`]s and a [`Run`] contain numbers too.
    pub fn rename(&mut self, name: impl Fn(Number) -> Number) {
        self.waiting = self.waiting.map(&name);
        self.deferred = self.deferred.map(name);
    }
}

impl Run {
    /// The CQ whose turn it is, if it is one's.
    pub fn cq(&self) -> Option<Number> {
        match self.at {
            At::Found(cq) | At::Turn(cq) | At::Consume(cq) | At::Arm(cq) | At::Defer(cq) => {
                Some(cq)
            }
            At::Event | At::EndEvents | At::Pending | At::EndRound | At::Done => None,
        }
    }

    /// Renumbers CQs; see [`Poller::rename`].
    pub fn rename(&mut self, name: impl Fn(Number) -> Number) {
        match &mut self.at {
            At::Found(cq) | At::Turn(cq) | At::Consume(cq) | At::Arm(cq) | At::Defer(cq) => {
                *cq = name(*cq);
            }
            At::Event | At::EndEvents | At::Pending | At::EndRound | At::Done => {}
        }
    }

    /// Sets fields that are written before their next use to one value.
    pub fn forget(&mut self) {
        if let Phase::Pending = self.phase {
            self.taken = 0;
        }
    }
}
