// SPDX-License-Identifier: GPL-2.0
//! Moving the bytes of a message.
//!
//! A message goes from one end to the other in steps, each of which is contiguous at both ends.
//! Either end may have changed since the last turn, so each step looks its regions up anew. Most
//! messages need one step, in the turn in which their ends were checked: those move at once.

use crate::datapath::DataPath;
use crate::datapath::BOUNCE_BYTES;
use crate::host::Host;
use crate::message::copy_inline;
use crate::message::next_range;
use crate::message::sges;
use crate::message::total;
use crate::message::Message;
use crate::message::Paused;
use crate::message::Sender;
use crate::message::WqeWords;
use crate::mr::Place;
use crate::region::Range;
use qpair_abi::command::access;
use qpair_abi::counters::Counter;
use qpair_abi::entry::frmr_of;
use qpair_abi::entry::opcode;
use qpair_abi::entry::window_of;
use qpair_abi::entry::RecvWqe;
use qpair_abi::entry::SendWqe;
use qpair_abi::entry::Sge;
use qpair_abi::entry::BLOCK_WORDS;
use qpair_abi::entry::MAX_BLOCKS;
use qpair_abi::status::Detail;
use qpair_abi::status::Status;
use qpair_abi::Number;

/// The end that is at fault, and why.
pub(crate) enum Fault {
    /// The sender's.
    Local(Detail),
    /// The receive that it fills.
    Receive(Detail),
    /// The peer's region.
    Remote(Detail),
    /// The peer, which does not allow the operation.
    Operation(Detail),
}

/// Where the bytes of a step are, and how many.
enum End {
    Memory(Place, u64),
    /// In the WQE, from this byte on.
    Inline(usize),
}

impl<H: Host> DataPath<H> {
    /// Moves all of a message if it is mapped as one piece at both ends. Else moves nothing:
    /// false.
    #[inline(always)]
    pub(crate) fn move_at_once(&mut self, message: &Message) -> bool {
        let (Some(local), Some(remote)) = (message.local, message.remote) else {
            return false;
        };
        let (regions, bus) = (&self.regions, &mut self.core.bus);
        let bytes = u64::from(message.bytes);
        let copied = match message.wqe.opcode {
            opcode::READ => regions.copy(bus, remote, local, bytes),
            _ => regions.copy(bus, local, remote, bytes),
        };
        if copied.is_some() {
            bus.add(message.kind.counter, bytes);
        }
        copied.is_some()
    }

    /// Keeps a message that took longer than its turn.
    pub(crate) fn pause(&mut self, qp: Number, message: &Message, whole: &[u64]) {
        let mut words: WqeWords = [0; MAX_BLOCKS * BLOCK_WORDS];
        for (word, from) in words.iter_mut().zip(whole) {
            *word = *from;
        }
        if let Some(found) = self.qps.get_mut(qp) {
            found.tries.end();
            found.sending = Some(Paused {
                message: Message {
                    local: None,
                    remote: None,
                    ..*message
                },
                words,
            });
        }
    }

    /// Moves at most `most` bytes: how many.
    pub(crate) fn step(
        &mut self,
        sender: &Sender,
        message: &mut Message,
        words: &[u64],
        most: u64,
    ) -> Result<u32, Fault> {
        let left = u64::from(message.bytes.saturating_sub(message.done));
        let most = most.min(left).min(BOUNCE_BYTES as u64);
        let local = self.local_end(sender, message, words)?;
        let fills = message.kind.remote == 0;
        let (remote, far) = if fills {
            self.receive_end(sender.peer, most)?
        } else {
            self.remote_end(sender.peer, message)?
        };
        let near = match &local {
            End::Memory(_, bytes) => *bytes,
            End::Inline(_) => most,
        };
        let count = most.min(near).min(far);
        let (regions, bus) = (&mut self.regions, &mut self.core.bus);
        let bounce = self.bounce.get_mut(..count as usize);
        let bounce = bounce.ok_or(Fault::Local(Detail::Dma))?;
        let local_fault = |_| Fault::Local(Detail::Dma);
        let remote_fault = |_| match fills {
            true => Fault::Receive(Detail::Dma),
            false => Fault::Remote(Detail::Dma),
        };
        if message.wqe.opcode == opcode::READ {
            regions.read(bus, remote, bounce).map_err(remote_fault)?;
            if let End::Memory(place, _) = local {
                regions.write(bus, place, bounce).map_err(local_fault)?;
            }
        } else {
            match local {
                End::Memory(place, _) => regions.read(bus, place, bounce).map_err(local_fault)?,
                End::Inline(from) => copy_inline(words, from, bounce),
            }
            regions.write(bus, remote, bounce).map_err(remote_fault)?;
        }
        let count = count as u32;
        message.done = message.done.wrapping_add(count);
        message.cursor.done = message.cursor.done.wrapping_add(count);
        if fills {
            let found = self.qps.get_mut(sender.peer);
            if let Some(receive) = found.and_then(|found| found.receiving.as_mut()) {
                receive.cursor.done = receive.cursor.done.wrapping_add(count);
            }
        }
        self.core.bus.add(message.kind.counter, u64::from(count));
        Ok(count)
    }

    /// Where the sender's bytes are.
    fn local_end(
        &mut self,
        sender: &Sender,
        message: &mut Message,
        words: &[u64],
    ) -> Result<End, Fault> {
        if message.is_inline() {
            let from = SendWqe::BYTES.saturating_add(message.done as usize);
            return Ok(End::Inline(from));
        }
        let range = next_range(words, SendWqe::WORDS, &mut message.cursor);
        let range = range.ok_or(Fault::Local(Detail::Sges))?;
        let right = message.kind.local;
        let place = self
            .regions
            .resolve(&mut self.core.bus, sender.pd, right, range);
        place
            .map(|(place, bytes)| End::Memory(place, bytes))
            .map_err(Fault::Local)
    }

    /// Checks that a range is in a region that the peer has this right to, or in a window.
    #[inline(always)]
    pub(crate) fn find_remote(
        &self,
        peer: Number,
        pd: Number,
        right: u8,
        range: Range,
    ) -> Result<Place, Detail> {
        let found = self.regions.find(pd, right, range);
        found.or_else(|why| self.find_in_window(why, peer, pd, right, range))
    }

    /// [`find_remote`](Self::find_remote), if no region was found.
    #[cold]
    #[inline(never)]
    fn find_in_window(
        &self,
        why: Detail,
        peer: Number,
        pd: Number,
        right: u8,
        range: Range,
    ) -> Result<Place, Detail> {
        if why != Detail::Key {
            return Err(why);
        }
        let range = self.windows.find(peer, pd, right, range)?;
        // The bind has checked the rights of the region.
        self.regions.find(pd, 0, range)
    }

    /// Counts a request that was refused for its key, if the key is that of a destroyed region,
    /// window or FRMR.
    pub(crate) fn count_stale(&mut self, detail: Detail, wqe: &SendWqe) {
        let key = match wqe.opcode {
            opcode::SEND_INV => wqe.imm,
            _ => wqe.rkey,
        };
        let is_stale = match (window_of(key), frmr_of(key)) {
            (Some((window, _)), _) => self.windows.is_stale(window),
            (None, Some((frmr, _))) => self.regions.frmrs.is_stale(frmr),
            (None, None) => self.regions.is_stale(Number::from_raw(key)),
        };
        if detail == Detail::Key && is_stale {
            self.core.bus.count(Counter::Stale);
        }
    }

    /// Where the peer's bytes of a WRITE, READ or atomic are.
    pub(crate) fn remote_end(
        &mut self,
        peer: Number,
        message: &Message,
    ) -> Result<(Place, u64), Fault> {
        let pd = self.qps.get(peer).map(|found| found.pd);
        let pd = pd.ok_or(Fault::Remote(Detail::NoPeer))?;
        let (right, range) = (message.kind.remote, message.remote_range());
        let (regions, bus) = (&mut self.regions, &mut self.core.bus);
        let place = match regions.resolve(bus, pd, right, range) {
            Err(Detail::Key) => {
                let found = self.windows.find(peer, pd, right, range);
                found.and_then(|range| regions.resolve(bus, pd, 0, range))
            }
            place => place,
        };
        place.map_err(Fault::Remote)
    }

    /// Where the next bytes of a SEND go, at most `most`. A receive may be longer than its region,
    /// as long as the message is not.
    fn receive_end(&mut self, peer: Number, most: u64) -> Result<(Place, u64), Fault> {
        let gone = || Fault::Receive(Detail::State);
        let found = self.qps.get_mut(peer).ok_or_else(gone)?;
        let receive = found.receiving.as_mut().ok_or_else(gone)?;
        let pd = receive.pd;
        let range = next_range(&receive.words, RecvWqe::WORDS, &mut receive.cursor);
        let range = range.ok_or(Fault::Receive(Detail::ShortReceive))?;
        let range = Range {
            bytes: range.bytes.min(most),
            ..range
        };
        let right = access::LOCAL_WRITE;
        let place = self.regions.resolve(&mut self.core.bus, pd, right, range);
        place.map_err(Fault::Receive)
    }

    /// The bytes of all SGEs of a work request, and the detail if one of them is not in a region
    /// of the sender's domain with the right that it needs. Notes where a single SGE begins. The
    /// SGEs begin at word `HEAD`.
    #[inline(always)]
    pub(crate) fn check_local<const HEAD: usize>(
        &self,
        sender: &Sender,
        message: &mut Message,
        words: &[u64],
    ) -> (u64, Option<Detail>) {
        let right = message.kind.local;
        let find = |sge: &Sge| {
            let range = Range {
                key: Number::from_raw(sge.lkey),
                addr: sge.addr,
                bytes: u64::from(sge.bytes),
            };
            self.regions.find(sender.pd, right, range)
        };
        let count = message.wqe.sges;
        let mut all = sges(words, HEAD);
        match all.next() {
            Some(sge) if count == 1 && sge.bytes != 0 => match find(&sge) {
                Ok(place) => {
                    message.local = Some(place);
                    (u64::from(sge.bytes), None)
                }
                Err(detail) => (u64::from(sge.bytes), Some(detail)),
            },
            _ => {
                let all = sges(words, HEAD).take(usize::from(count));
                let mut filled = all.filter(|sge| sge.bytes != 0);
                let wrong = filled.find_map(|sge| find(&sge).err());
                (total(words, HEAD, count), wrong)
            }
        }
    }
}

/// Status of the sender and of the peer after a fault.
pub(crate) fn statuses(fault: &Fault) -> (Status, Option<Status>, Detail) {
    match *fault {
        Fault::Local(detail) => (Status::LocalProtection, None, detail),
        Fault::Receive(detail) => (
            Status::RemoteOperation,
            Some(Status::LocalProtection),
            detail,
        ),
        Fault::Remote(Detail::Dma) => (
            Status::RemoteOperation,
            Some(Status::LocalAccess),
            Detail::Dma,
        ),
        Fault::Operation(detail) | Fault::Remote(detail @ Detail::Alignment) => (
            Status::RemoteInvalidRequest,
            Some(Status::LocalAccess),
            detail,
        ),
        Fault::Remote(detail) => (Status::RemoteAccess, Some(Status::LocalAccess), detail),
    }
}
