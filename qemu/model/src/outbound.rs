// SPDX-License-Identifier: GPL-2.0
//! The turn of a queue pair whose peer is at another port: sends the answers that wait, then requests.
//! What waits for an answer costs no turn.

use crate::datapath::DataPath;
use crate::host::Host;
use crate::message::Sender;
use qpair_abi::command::service;
use qpair_abi::Number;

impl<H: Host> DataPath<H> {
    /// A turn of a queue pair whose peer is at another port.
    pub(crate) fn send_by_frames(&mut self, qp: Number, left: &mut u32, budget: &mut u64) {
        let Some(found) = self.qps.get_mut(qp) else {
            return;
        };
        let sender = Sender::of(qp, &found.attributes);
        let Some(mut link) = found.link.take() else {
            return;
        };
        let now = self.core.bus.host.now();
        link.is_due = false;
        link.is_blocked = false;
        self.send_answers(qp, &mut link, budget);
        match sender.service {
            service::UC => self.send_unreliable(&sender, &mut link, left, budget),
            _ => self.send_reliable(&sender, &mut link, (left, budget), now),
        }
        self.set_deadline(qp, &mut link);
        if let Some(found) = self.qps.get_mut(qp) {
            found.waiting = true;
            found.link = Some(link);
        }
        self.drained(qp);
    }
}
