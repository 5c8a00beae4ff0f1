// SPDX-License-Identifier: GPL-2.0
//! Moving the bytes of a message.
//!
//! A message goes from one end to the other in steps: a piece that is contiguous at both
//! ends. Between two steps anything may have happened to either end, so each step
//! looks its regions up anew; what a message holds between its turns is numbers,
//! never addresses of memory.

use crate::host::Host;
use crate::list::Piece;
use crate::mr;
use crate::mr::Range;
use crate::Function;
use qpair_abi::command::access;
use qpair_abi::counters::Counter;
use qpair_abi::entry::opcode;
use qpair_abi::entry::send_flags;
use qpair_abi::entry::RecvWqe;
use qpair_abi::entry::SendWqe;
use qpair_abi::entry::Sge;
use qpair_abi::entry::BLOCK_WORDS;
use qpair_abi::entry::MAX_BLOCKS;
use qpair_abi::status::Detail;
use qpair_abi::status::Status;
use qpair_abi::Number;
use qpair_queue::index::Index;

/// Bytes of a step.
pub(crate) const BOUNCE_BYTES: usize = 32 << 10;

/// Words of the largest WQE.
pub(crate) type WqeWords = [u64; MAX_BLOCKS * BLOCK_WORDS];

/// A place in a list of SGEs.
#[derive(Clone, Copy, Default)]
pub(crate) struct Cursor {
    sge: u8,
    /// Bytes of it that are done.
    done: u32,
}

/// A work request that is under way.
#[derive(Clone)]
pub(crate) struct Message {
    pub(crate) wqe: SendWqe,
    /// The whole WQE: its SGEs or inline data.
    pub(crate) words: WqeWords,
    /// Index past it.
    pub(crate) past: Index,
    pub(crate) bytes: u32,
    pub(crate) done: u32,
    pub(crate) cursor: Cursor,
    /// The peer has let it in.
    pub(crate) admitted: bool,
}

impl Message {
    /// Begins it anew.
    pub(crate) fn restart(&mut self) {
        self.done = 0;
        self.cursor = Cursor::default();
        self.admitted = false;
    }

    /// Whether it fills or takes a receive of the peer.
    pub(crate) fn takes_receive(&self) -> bool {
        matches!(
            self.wqe.opcode,
            opcode::SEND | opcode::SEND_IMM | opcode::WRITE_IMM
        )
    }

    /// The right that it needs at the peer, and in the region there; 0 is none.
    pub(crate) fn remote_right(&self) -> u8 {
        match self.wqe.opcode {
            opcode::WRITE | opcode::WRITE_IMM => access::REMOTE_WRITE,
            opcode::READ => access::REMOTE_READ,
            _ => 0,
        }
    }

    /// The right that it needs in its own regions.
    pub(crate) fn local_right(&self) -> u8 {
        match self.wqe.opcode {
            opcode::READ => access::LOCAL_WRITE,
            _ => 0,
        }
    }

    /// What is left of the range in the peer's memory.
    pub(crate) fn remote_range(&self) -> Range {
        Range {
            key: Number::from_raw(self.wqe.rkey),
            addr: self.wqe.remote_addr.wrapping_add(u64::from(self.done)),
            bytes: u64::from(self.bytes.saturating_sub(self.done)),
        }
    }
}

/// SGE `which` of those that begin at word `from`.
pub(crate) fn sge(words: &WqeWords, from: usize, which: usize) -> Option<Sge> {
    let at = from.checked_add(which.checked_mul(Sge::WORDS)?)?;
    let words = words.get(at..at.checked_add(Sge::WORDS)?)?;
    Some(Sge::decode(words.try_into().ok()?))
}

/// What is left of the first SGE that is not done.
fn next_range(words: &WqeWords, from: usize, cursor: &mut Cursor) -> Option<Range> {
    loop {
        let sge = sge(words, from, usize::from(cursor.sge))?;
        if cursor.done < sge.bytes {
            return Some(Range {
                key: Number::from_raw(sge.lkey),
                addr: sge.addr.wrapping_add(u64::from(cursor.done)),
                bytes: u64::from(sge.bytes.wrapping_sub(cursor.done)),
            });
        }
        *cursor = Cursor {
            sge: cursor.sge.checked_add(1)?,
            done: 0,
        };
    }
}

/// Which end is at fault, and why.
pub(crate) enum Fault {
    /// The sender's.
    Local(Detail),
    /// The receive that it fills.
    Receive(Detail),
    /// The peer's region.
    Remote(Detail),
}

/// Where the bytes of a step are.
enum End {
    Memory(Piece),
    /// In the WQE, from this byte on.
    Inline(usize),
}

impl<H: Host> Function<H> {
    /// Moves at most `most` bytes: how many.
    pub(crate) fn step(
        &mut self,
        qp: Number,
        peer: Number,
        message: &mut Message,
        most: u64,
    ) -> Result<u32, Fault> {
        let left = u64::from(message.bytes.saturating_sub(message.done));
        let most = most.min(left).min(BOUNCE_BYTES as u64);
        let local = self.local_end(qp, message)?;
        let remote = if message.remote_right() != 0 {
            self.remote_end(peer, message)?
        } else {
            self.receive_end(peer)?
        };
        let near = match &local {
            End::Memory(piece) => piece.bytes,
            End::Inline(_) => most,
        };
        let count = most.min(near).min(remote.bytes);
        let bounce = self.bounce.get_mut(..count as usize);
        let bounce = bounce.ok_or(Fault::Local(Detail::Dma))?;
        let far_fault = |_| match message.remote_right() {
            0 => Fault::Receive(Detail::Dma),
            _ => Fault::Remote(Detail::Dma),
        };
        if message.wqe.opcode == opcode::READ {
            let read = self.bus.read(remote.addr, bounce);
            read.map_err(far_fault)?;
            if let End::Memory(piece) = local {
                let written = self.bus.write(piece.addr, bounce);
                written.map_err(|_| Fault::Local(Detail::Dma))?;
            }
        } else {
            match local {
                End::Memory(piece) => {
                    let read = self.bus.read(piece.addr, bounce);
                    read.map_err(|_| Fault::Local(Detail::Dma))?;
                }
                End::Inline(from) => copy_inline(&message.words, from, bounce),
            }
            let written = self.bus.write(remote.addr, bounce);
            written.map_err(far_fault)?;
        }
        let count = count as u32;
        message.done = message.done.wrapping_add(count);
        message.cursor.done = message.cursor.done.wrapping_add(count);
        if message.remote_right() == 0 {
            let found = self.qps.get_mut(peer);
            if let Some(receive) = found.and_then(|found| found.receiving.as_mut()) {
                receive.cursor.done = receive.cursor.done.wrapping_add(count);
            }
        }
        let counter = match message.wqe.opcode {
            opcode::READ => Counter::ReadBytes,
            opcode::WRITE | opcode::WRITE_IMM => Counter::WriteBytes,
            _ => Counter::SendBytes,
        };
        self.bus.add(counter, u64::from(count));
        Ok(count)
    }

    /// The sender's end.
    fn local_end(&mut self, qp: Number, message: &mut Message) -> Result<End, Fault> {
        if message.wqe.flags & send_flags::INLINE != 0 {
            return Ok(End::Inline(message.done as usize));
        }
        let pd = self.qps.get(qp).map(|found| found.pd);
        let pd = pd.ok_or(Fault::Local(Detail::State))?;
        let right = message.local_right();
        let range = next_range(&message.words, SendWqe::WORDS, &mut message.cursor);
        let range = range.ok_or(Fault::Local(Detail::Sges))?;
        mr::resolve(&mut self.regions, &mut self.bus, pd, right, range)
            .map(End::Memory)
            .map_err(Fault::Local)
    }

    /// The peer's end of a WRITE or READ.
    fn remote_end(&mut self, peer: Number, message: &Message) -> Result<Piece, Fault> {
        let pd = self.qps.get(peer).map(|found| found.pd);
        let pd = pd.ok_or(Fault::Remote(Detail::NoPeer))?;
        let right = message.remote_right();
        let range = message.remote_range();
        mr::resolve(&mut self.regions, &mut self.bus, pd, right, range).map_err(Fault::Remote)
    }

    /// The peer's end of a SEND.
    fn receive_end(&mut self, peer: Number) -> Result<Piece, Fault> {
        let gone = || Fault::Receive(Detail::State);
        let found = self.qps.get_mut(peer).ok_or_else(gone)?;
        let pd = found.pd;
        let receive = found.receiving.as_mut().ok_or_else(gone)?;
        let range = next_range(&receive.words, RecvWqe::WORDS, &mut receive.cursor);
        let range = range.ok_or(Fault::Receive(Detail::ShortReceive))?;
        let right = access::LOCAL_WRITE;
        mr::resolve(&mut self.regions, &mut self.bus, pd, right, range).map_err(Fault::Receive)
    }

    /// Whether all SGEs of a work request are in regions of its queue pair's domain, with the right that it needs.
    pub(crate) fn check_local(&mut self, qp: Number, message: &Message) -> Result<(), Detail> {
        if message.wqe.flags & send_flags::INLINE != 0 {
            return Ok(());
        }
        let pd = self.qps.get(qp).map(|found| found.pd);
        let pd = pd.ok_or(Detail::State)?;
        for which in 0..usize::from(message.wqe.sges) {
            let sge = sge(&message.words, SendWqe::WORDS, which).ok_or(Detail::Sges)?;
            let range = Range {
                key: Number::from_raw(sge.lkey),
                addr: sge.addr,
                bytes: u64::from(sge.bytes),
            };
            if range.bytes != 0 {
                mr::find(&mut self.regions, pd, message.local_right(), range)?;
            }
        }
        Ok(())
    }

    /// Whether the peer's region has what a WRITE or READ names.
    pub(crate) fn check_remote(&mut self, peer: Number, message: &Message) -> Result<(), Detail> {
        let pd = self.qps.get(peer).map(|found| found.pd);
        let pd = pd.ok_or(Detail::NoPeer)?;
        let range = message.remote_range();
        if range.bytes != 0 {
            mr::find(&mut self.regions, pd, message.remote_right(), range)?;
        }
        Ok(())
    }
}

/// Bytes of a list of SGEs.
pub(crate) fn total(words: &WqeWords, from: usize, sges: u8) -> u64 {
    (0..usize::from(sges))
        .filter_map(|which| sge(words, from, which))
        .map(|sge| u64::from(sge.bytes))
        .sum()
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
        Fault::Remote(detail) => (Status::RemoteAccess, Some(Status::LocalAccess), detail),
    }
}

fn copy_inline(words: &WqeWords, from: usize, to: &mut [u8]) {
    let mut bytes = [0; MAX_BLOCKS * BLOCK_WORDS * 8];
    crate::bus::to_bytes(words, &mut bytes);
    let from = from.saturating_add(SendWqe::BYTES);
    if let Some(bytes) = bytes.get(from..from.saturating_add(to.len())) {
        to.copy_from_slice(bytes);
    }
}
