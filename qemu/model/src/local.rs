// SPDX-License-Identifier: GPL-2.0
//! Performs requests that need no peer.

use crate::check::bind;
use crate::datapath::DataPath;
use crate::frmr;
use crate::host::Host;
use crate::message::Sender;
use qpair_abi::counters::Counter;
use qpair_abi::entry::frmr_of;
use qpair_abi::entry::opcode;
use qpair_abi::entry::SendWqe;
use qpair_abi::status::Detail;

impl<H: Host> DataPath<H> {
    /// Binds a window, invalidates or registers. A NOP does nothing.
    #[inline(always)]
    pub(crate) fn local(
        &mut self,
        sender: &Sender,
        wqe: &SendWqe,
        words: &[u64],
    ) -> Result<(), Detail> {
        let by = (sender.qp, sender.pd);
        let regions = &mut self.regions;
        let (done, counter) = match wqe.opcode {
            opcode::BIND => (self.windows.bind(regions, by, &bind(words)), None),
            opcode::LOCAL_INV => {
                let done = match frmr_of(wqe.rkey) {
                    Some(_) => regions.frmrs.invalidate(sender.pd, wqe.rkey),
                    None => self.windows.invalidate(regions, by, wqe.rkey),
                };
                (done, Some(Counter::Invalidations))
            }
            opcode::REG_MR => {
                let wqe = frmr::decode(words);
                let done = regions.frmrs.register(&self.core.config, sender.pd, &wqe);
                (done, Some(Counter::Registrations))
            }
            _ => (Ok(()), None),
        };
        if let (Ok(()), Some(counter)) = (done, counter) {
            self.core.bus.count(counter);
        }
        done
    }
}
