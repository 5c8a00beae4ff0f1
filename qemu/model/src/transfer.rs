// SPDX-License-Identifier: GPL-2.0
//! The sender's end of a message: its SGEs, and what is kept of it between its turns.
//!
//! A region may have changed since the last turn, so each step looks its regions up anew.

use crate::answer::Failure;
use crate::datapath::DataPath;
use crate::host::DmaFault;
use crate::host::Host;
use crate::message::copy_inline;
use crate::message::next_range;
use crate::message::sges;
use crate::message::total;
use crate::message::Cursor;
use crate::message::Message;
use crate::message::Paused;
use crate::message::Sender;
use crate::message::WqeWords;
use crate::mr::Place;
use crate::region::Range;
use qpair_abi::entry::SendWqe;
use qpair_abi::entry::Sge;
use qpair_abi::entry::BLOCK_WORDS;
use qpair_abi::entry::MAX_BLOCKS;
use qpair_abi::status::Detail;
use qpair_abi::Number;

/// Where the sender's bytes of a step are, and how many.
pub(crate) enum End {
    Memory(Place, u64),
    /// In the WQE, from this byte on.
    Inline(usize),
}

impl<H: Host> DataPath<H> {
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

    /// Where the sender's next bytes are.
    pub(crate) fn local_end(
        &mut self,
        sender: &Sender,
        message: &mut Message,
        words: &[u64],
    ) -> Result<End, Failure> {
        if message.is_inline() {
            let from = SendWqe::BYTES.saturating_add(message.done as usize);
            return Ok(End::Inline(from));
        }
        let range = next_range(words, SendWqe::WORDS, &mut message.cursor);
        let range = range.ok_or(Failure::memory(Detail::Sges))?;
        let right = message.kind.local;
        let place = self
            .regions
            .resolve(&mut self.core.bus, sender.pd, right, range);
        place
            .map(|(place, bytes)| End::Memory(place, bytes))
            .map_err(Failure::memory)
    }

    /// Reads bytes of a work request, from byte `at` on.
    pub(crate) fn read_local(
        &mut self,
        pd: Number,
        message: &Message,
        words: &[u64],
        at: u32,
        mut to: &mut [u8],
    ) -> Result<(), Detail> {
        if message.is_inline() {
            let from = SendWqe::BYTES.saturating_add(at as usize);
            copy_inline(words, from, to);
            return Ok(());
        }
        let mut cursor = Cursor::at(words, SendWqe::WORDS, at);
        while !to.is_empty() {
            let most = to.len() as u64;
            let (place, count) = self.near(pd, message, words, &mut cursor, most)?;
            let (part, rest) = to.split_at_mut_checked(count).ok_or(Detail::Range)?;
            let read = self.regions.read(&mut self.core.bus, place, part);
            read.map_err(|DmaFault| Detail::Dma)?;
            to = rest;
        }
        Ok(())
    }

    /// Writes bytes of an answer to a work request, from byte `at` on.
    pub(crate) fn write_local(
        &mut self,
        pd: Number,
        message: &Message,
        words: &[u64],
        at: u32,
        mut from: &[u8],
    ) -> Result<(), Detail> {
        let mut cursor = Cursor::at(words, SendWqe::WORDS, at);
        while !from.is_empty() {
            let most = from.len() as u64;
            let (place, count) = self.near(pd, message, words, &mut cursor, most)?;
            let (part, rest) = from.split_at_checked(count).ok_or(Detail::Range)?;
            let written = self.regions.write(&mut self.core.bus, place, part);
            written.map_err(|DmaFault| Detail::Dma)?;
            from = rest;
        }
        Ok(())
    }

    /// Where the next bytes of a list of SGEs are, at most `most`, and how many. The cursor passes
    /// them.
    fn near(
        &mut self,
        pd: Number,
        message: &Message,
        words: &[u64],
        cursor: &mut Cursor,
        most: u64,
    ) -> Result<(Place, usize), Detail> {
        let range = next_range(words, SendWqe::WORDS, cursor).ok_or(Detail::Sges)?;
        let (regions, bus) = (&mut self.regions, &mut self.core.bus);
        let (place, bytes) = regions.resolve(bus, pd, message.kind.local, range)?;
        let count = bytes.min(most);
        cursor.done = cursor.done.wrapping_add(count as u32);
        Ok((place, count as usize))
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
