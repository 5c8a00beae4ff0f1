// SPDX-License-Identifier: GPL-2.0
//! Receives of queue pairs on an SRQ: taken, given back, and waited for.

use crate::datapath::DataPath;
use crate::host::Host;
use crate::mutant::mutant;
use crate::qp::NoReceive;
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
                    srq.starved.retain(|starved| *starved != qp);
                }
                found.receive(receive, wrong)
            }
            Err(none) => {
                if matches!(none, NoReceive::Empty) && !found.starved {
                    found.starved = true;
                    srq.starved.push_back(qp);
                }
                Err(none)
            }
        }
    }

    /// Wakes the senders that wait for a receive of an SRQ, all of them: one that is woken may need
    /// none any more. Each keeps its place until its queue pair has a receive.
    pub(crate) fn feed(&mut self, srq: Number) {
        let Some(found) = self.srqs.get_mut(srq) else {
            return;
        };
        for qp in &found.starved {
            if !mutant!(StarvedForgotten) {
                self.qps.wake_peer(&mut self.core, *qp);
            }
        }
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
            srq.starved.retain(|starved| *starved != qp);
            srq.users = srq.users.saturating_sub(1);
        }
    }
}
