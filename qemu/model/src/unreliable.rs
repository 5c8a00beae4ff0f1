// SPDX-License-Identifier: GPL-2.0
//! The sender of an unreliable connection by frames. A message completes when its last packet is sent.

use crate::datapath::DataPath;
use crate::flying::cost;
use crate::flying::kind;
use crate::host::Host;
use crate::link::Link;
use crate::link::Transport;
use crate::message::Sender;
use qpair_abi::status::Detail;
use qpair_abi::status::Status;
use qpair_roce::request::Kind;

impl<H: Host> DataPath<H> {
    /// Sends messages of an unreliable connection.
    pub(crate) fn send_unreliable(
        &mut self,
        by: &Sender,
        link: &mut Link,
        left: &mut u32,
        budget: &mut u64,
    ) {
        while self.may_send(by.qp) {
            if !self.may_transmit(by.qp, link, *budget) {
                return;
            }
            if link.flying.is_empty() && (*left == 0 || !self.begin_unreliable(by, link, left)) {
                return;
            }
            let Transport::Uc(both) = &mut link.transport else {
                return;
            };
            let (id, next) = (link.oldest, both.sender.next_packet());
            let sent = match next {
                Some((psn, piece)) => {
                    *budget = budget.saturating_sub(cost(piece.bytes));
                    self.send_packet(by, link, id, (psn, false), &piece)
                        .map(|()| piece.position.ends())
                }
                None => Ok(true),
            };
            match sent {
                Ok(false) => {}
                Ok(true) => {
                    if let Some((message, _)) = link.pop() {
                        self.count_moved(&message);
                        self.complete_unreliable(by.qp, &message.wqe, message.past);
                    }
                }
                Err(failed) => return self.fail_unreliable(by, link, failed),
            }
        }
    }

    /// Begins the next request of an unreliable connection, or performs it: false if the turn ends.
    fn begin_unreliable(&mut self, by: &Sender, link: &mut Link, left: &mut u32) -> bool {
        let id = self.take_flying(by, link, left);
        let Some(flying) = id.and_then(|id| link.flying(id)) else {
            return false;
        };
        let (failed, bytes) = (flying.failed, flying.message.bytes);
        let is_local = kind(&flying.message) == Kind::Local;
        if failed.0 != Status::Success {
            self.fail_unreliable(by, link, failed);
            return false;
        }
        if let Transport::Uc(both) = &mut link.transport {
            if !is_local && !both.sender.begin(bytes) {
                let failed = (Status::LocalLength, Detail::Message);
                self.fail_unreliable(by, link, failed);
                return false;
            }
        }
        true
    }

    fn fail_unreliable(&mut self, by: &Sender, link: &mut Link, failed: (Status, Detail)) {
        if let Transport::Uc(both) = &mut link.transport {
            both.sender.abandon();
        }
        if let Some((message, _)) = link.pop() {
            self.complete_send(by.qp, &message.wqe, message.past, 0, Err(failed));
            self.stop_sender(by.qp);
        }
    }
}
