// SPDX-License-Identifier: GPL-2.0
//! Receives of queue pairs on an SRQ: taken, given back, and waited for.

use crate::datapath::DataPath;
use crate::host::Host;
use crate::work_queue::NoReceive;
use qpair_abi::command::service;
use qpair_abi::Number;

impl<H: Host> DataPath<H> {
    /// Takes the next receive of a queue pair, of its RQ or SRQ, unless it is filling one already.
    /// One of an SRQ must have room for `least` bytes.
    #[inline]
    pub(crate) fn take_receive(&mut self, qp: Number, least: u64) -> Result<(), NoReceive> {
        let found = self.qps.get_mut(qp).ok_or(NoReceive::Empty)?;
        if found.shares() && found.receiving.is_none() {
            return self.take_shared(qp, least);
        }
        found.take_receive(&mut self.core)
    }

    fn take_shared(&mut self, qp: Number, least: u64) -> Result<(), NoReceive> {
        let found = self.qps.get_mut(qp).ok_or(NoReceive::Empty)?;
        let srq = self.srqs.get_mut(found.srq).ok_or(NoReceive::Empty)?;
        match srq.take(&mut self.core, &mut self.events, qp, least) {
            Ok((receive, wrong)) => {
                // It waits behind the others for its next one.
                if core::mem::take(&mut found.starved) {
                    self.starved.remove(&mut srq.starved, qp.index());
                }
                found.receive(receive, wrong)
            }
            Err(none) => {
                // Senders of other services do not wait.
                let waits = found.service == service::RC;
                if matches!(none, NoReceive::Empty) && waits && !found.starved {
                    found.starved = true;
                    self.starved.push(&mut srq.starved, qp.index());
                }
                Err(none)
            }
        }
    }

    /// Wakes the sender that waits longest for a receive of an SRQ, if there is one. The next one
    /// is woken after the turn of this one, so each wake-up costs one turn. Entries whose sender no
    /// longer waits are removed here; each was added in a turn of its own.
    pub(crate) fn feed(&mut self, number: Number) {
        let Some(srq) = self.srqs.get_mut(number) else {
            return;
        };
        while srq.has_receive() && !srq.feeding {
            let Some(first) = srq.starved.first() else {
                return;
            };
            let qp = self.qps.at(first);
            let woken = qp.is_some_and(|qp| self.qps.feed_peer(&mut self.core, qp, number));
            srq.feeding = woken;
            if !srq.feeding {
                self.starved.remove(&mut srq.starved, first);
                if let Some(found) = qp.and_then(|qp| self.qps.get_mut(qp)) {
                    found.starved = false;
                }
            }
        }
    }

    /// A sender that was woken for a receive of an SRQ has had its turn, or will have none. If its
    /// peer found no receive it keeps its place; if there is one it needs none.
    #[cold]
    pub(crate) fn fed(&mut self, sender: Number) {
        let Some(found) = self.qps.get_mut(sender) else {
            return;
        };
        let (number, peer) = (core::mem::take(&mut found.fed_by), found.path.here());
        let Some(srq) = self.srqs.get_mut(number) else {
            return;
        };
        srq.feeding = false;
        if srq.has_receive() {
            let found = peer.and_then(|peer| self.qps.get_mut(peer));
            let found = found.filter(|found| found.srq == number);
            if let Some(found) = found.filter(|found| found.starved) {
                found.starved = false;
                self.starved.remove(&mut srq.starved, found.number.index());
            }
        }
        self.feed(number);
    }

    /// Gives the receive that a queue pair is filling back to its SRQ. One of an RQ stays.
    pub(crate) fn give_back(&mut self, qp: Number) {
        let Some(found) = self.qps.get_mut(qp).filter(|found| found.shares()) else {
            return;
        };
        let number = found.srq;
        let receive = found.receiving.take();
        if let Some((srq, receive)) = self.srqs.get_mut(number).zip(receive) {
            srq.give_back(receive);
            self.feed(number);
        }
    }

    /// A queue pair is destroyed: its SRQ does not name it any more.
    pub(crate) fn leave_srq(&mut self, qp: Number) {
        self.give_back(qp);
        let number = self.qps.get(qp).map(|found| found.srq);
        if let Some(srq) = number.and_then(|number| self.srqs.get_mut(number)) {
            self.starved.remove(&mut srq.starved, qp.index());
            srq.users = srq.users.saturating_sub(1);
        }
    }
}
