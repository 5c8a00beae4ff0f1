// SPDX-License-Identifier: GPL-2.0
//! Messages of UC and UD: nothing at the other end fails the sender.
//!
//! A message of UC is checked and moved as one of RC. Where RC tries again or fails, it is dropped.
//! A receive that was taken for it stays the next one, and the destination goes on, unless the
//! receive is invalid by itself.

use crate::datapath::DataPath;
use crate::host::Host;
use qpair_abi::command::qp_state;
use qpair_abi::counters::Counter;
use qpair_abi::entry::SendWqe;
use qpair_abi::Number;
use qpair_queue::index::Index;

impl<H: Host> DataPath<H> {
    /// Completes a message with success, whatever became of it: whether the turn goes on after it.
    pub(crate) fn complete_unreliable(&mut self, qp: Number, wqe: &SendWqe, past: Index) -> bool {
        let done = self.complete_send(qp, wqe, past, 0, Ok(()));
        // It may have sent to itself, or to a CQ that it shares.
        let found = self.qps.get(qp);
        done && found.is_some_and(|found| found.state == qp_state::RTS)
    }

    /// Drops a message: whether the turn goes on after it.
    pub(crate) fn drop_message(&mut self, qp: Number, wqe: &SendWqe, past: Index) -> bool {
        self.core.bus.count(Counter::Dropped);
        self.complete_unreliable(qp, wqe, past)
    }
}
