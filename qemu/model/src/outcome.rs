// SPDX-License-Identifier: GPL-2.0
//! What becomes of a work request: it completes, is tried again, fails, or is dropped.
//!
//! | refused because of | status |
//! |---|---|
//! | the WQE | local QP operation, local length |
//! | the sender's memory, if it is sent | local protection |
//! | a peer gone, not ready, or connected to another; no answer | tries again, then retry exceeded |
//! | no receive | tries again, then RNR retry exceeded |
//! | a [responder](crate::responder) that refuses it | remote invalid request, access or operation |
//! | the sender's memory, if the peer's answer goes there | local protection |
//! | a window to bind, an FRMR to register, one of them to invalidate | window bind |
//!
//! The status is that of the work request's completion. The queue pair goes to the error state.
//!
//! Nothing at the other end fails a sender of UC or UD. Where RC tries again or fails, a message of UC
//! is dropped. A receive that was taken for it stays the next one, and the destination goes on, unless
//! the receive is invalid by itself.

use crate::answer::Failure;
use crate::answer::Refusal;
use crate::check::decode;
use crate::datapath::DataPath;
use crate::host::Host;
use crate::message::Message;
use crate::message::Sender;
use crate::timer;
use crate::tries::Step;
use crate::tries::NO_LIMIT;
use qpair_abi::command::qp_state;
use qpair_abi::command::service;
use qpair_abi::counters::Counter;
use qpair_abi::entry::opcode;
use qpair_abi::entry::SendWqe;
use qpair_abi::status::Detail;
use qpair_abi::status::Status;
use qpair_abi::Number;
use qpair_queue::index::Index;

impl<H: Host> DataPath<H> {
    /// Completes a message that has arrived. False if the turn must end.
    #[inline(always)]
    pub(crate) fn arrived(&mut self, sender: &Sender, message: &Message) -> bool {
        let wqe = &message.wqe;
        let bytes = match wqe.opcode {
            opcode::READ..=opcode::FETCH_ADD => message.bytes,
            _ => 0,
        };
        self.complete_send(sender.qp, wqe, message.past, bytes, Ok(()))
    }

    /// Refuses a message. Returns whether the turn goes on: only if the message was dropped.
    #[cold]
    pub(crate) fn refuse(
        &mut self,
        sender: &Sender,
        words: &[u64],
        past: Index,
        failure: Failure,
    ) -> bool {
        let (qp, wqe) = (sender.qp, decode(words));
        let Some(found) = self.qps.get_mut(qp) else {
            return false;
        };
        // A request whose answer is dropped has the index of the head.
        let past = found.hold.map_or(past, |hold| hold.past);
        let unreliable = sender.service == service::UC;
        let drops = unreliable && matches!(failure, Failure::Peer(_));
        let (timeout, limited) = (found.timeout, found.rnr_retry != NO_LIMIT);
        let (status, detail) = match failure {
            Failure::Own(status, detail) => (status, detail),
            Failure::Peer(Refusal::Nak(nak, detail)) => (nak.status(), detail),
            Failure::Peer(Refusal::Silent(detail)) => {
                // It may be its own peer, which has failed: then its request is flushed.
                if !self.may_send(qp) {
                    return false;
                }
                let wait = timer::answer(&self.core.config, timeout);
                let step = Step::Answer;
                if self.qps.retry_later(&mut self.core, qp, step, wait) {
                    return false;
                }
                (Status::RetryExceeded, detail)
            }
            Failure::Peer(Refusal::NotReady { timer }) => {
                // Without a limit a receive, or the end of the peer, wakes it.
                let wait = limited.then(|| timer::receive(&self.core.config, timer));
                let step = Step::Receive;
                if self.qps.retry_later(&mut self.core, qp, step, wait) {
                    return false;
                }
                (Status::RnrRetryExceeded, Detail::None)
            }
        };
        let key = match wqe.opcode {
            opcode::SEND_INV => wqe.imm,
            _ => wqe.rkey,
        };
        self.count_stale(detail, key);
        if drops {
            return self.drop_message(qp, &wqe, past);
        }
        self.complete_send(qp, &wqe, past, 0, Err((status, detail)));
        self.stop_sender(qp);
        false
    }

    /// Whether a queue pair goes on with a request that it has begun.
    pub(crate) fn may_send(&self, qp: Number) -> bool {
        let state = self.qps.get(qp).map(|found| found.state);
        matches!(state, Some(qp_state::RTS | qp_state::SQD))
    }

    /// Completes a message with success, whatever became of it: whether the turn goes on after it.
    pub(crate) fn complete_unreliable(&mut self, qp: Number, wqe: &SendWqe, past: Index) -> bool {
        let done = self.complete_send(qp, wqe, past, 0, Ok(()));
        // It may have sent to itself, or to a CQ that it shares.
        let found = self.qps.get(qp);
        done && found.is_some_and(|found| found.state == qp_state::RTS)
    }

    /// Drops a message: whether the turn goes on after it.
    fn drop_message(&mut self, qp: Number, wqe: &SendWqe, past: Index) -> bool {
        self.core.bus.count(Counter::Dropped);
        self.complete_unreliable(qp, wqe, past)
    }
}
