// SPDX-License-Identifier: GPL-2.0
//! Moving the bytes of a message.
//!
//! A message goes from one end to the other in steps: a piece that is contiguous at both
//! ends. Between two turns anything may have happened to either end, so each step
//! looks its regions up anew; what a message holds between its turns is numbers,
//! never addresses of memory. Most messages need one step only, inside of the turn in
//! which their ends were checked: those go at once.

use crate::host::Host;
use crate::mr::Place;
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

/// What an operation is.
pub(crate) struct Kind {
    /// The flags that it knows.
    pub(crate) flags: u8,
    /// The right that it needs in its own regions; 0 is none.
    pub(crate) local: u8,
    /// The right that it needs at the peer, and in the region there; 0 if it fills a receive.
    pub(crate) remote: u8,
    /// Whether it fills or takes a receive of the peer.
    pub(crate) receives: bool,
    /// Counts its bytes.
    counter: Counter,
}

const ANY: u8 = send_flags::SIGNALED | send_flags::FENCE;
const NOP: Kind = Kind {
    flags: ANY,
    local: 0,
    remote: 0,
    receives: false,
    counter: Counter::SendBytes,
};
const SEND: Kind = Kind {
    flags: ANY | send_flags::INLINE | send_flags::SOLICITED,
    receives: true,
    ..NOP
};
const WRITE: Kind = Kind {
    flags: ANY | send_flags::INLINE,
    remote: access::REMOTE_WRITE,
    counter: Counter::WriteBytes,
    ..NOP
};
const WRITE_IMM: Kind = Kind {
    flags: SEND.flags,
    receives: true,
    ..WRITE
};
const READ: Kind = Kind {
    local: access::LOCAL_WRITE,
    remote: access::REMOTE_READ,
    counter: Counter::ReadBytes,
    ..NOP
};

impl Kind {
    /// By opcode.
    const ALL: &'static [Self] = &[NOP, SEND, SEND, WRITE, WRITE_IMM, READ];

    /// Of an opcode.
    #[inline]
    pub(crate) fn of(opcode: u8) -> Option<&'static Self> {
        const {
            assert!(opcode::NOP == 0 && opcode::SEND == 1 && opcode::SEND_IMM == 2);
            assert!(opcode::WRITE == 3 && opcode::WRITE_IMM == 4 && opcode::READ == 5);
        }
        Self::ALL.get(usize::from(opcode))
    }
}

/// What a turn knows of its queue pair. Commands alone change it, and a command has a turn of its own.
#[derive(Clone, Copy)]
pub(crate) struct Sender {
    pub(crate) qp: Number,
    pub(crate) pd: Number,
    pub(crate) peer: Number,
}

/// A work request that is under way. Its SGEs or inline data are in its WQE.
#[derive(Clone, Copy)]
pub(crate) struct Message {
    pub(crate) wqe: SendWqe,
    pub(crate) kind: &'static Kind,
    /// Index past it.
    pub(crate) past: Index,
    pub(crate) bytes: u32,
    pub(crate) done: u32,
    pub(crate) cursor: Cursor,
    /// The peer has let it in.
    pub(crate) admitted: bool,
    /// Where it begins at either end, if that is one range, and was checked in this turn.
    pub(crate) local: Option<Place>,
    pub(crate) remote: Option<Place>,
}

/// A message that took longer than its turn, and its whole WQE.
pub(crate) struct Paused {
    pub(crate) message: Message,
    pub(crate) words: WqeWords,
}

impl Message {
    #[inline]
    pub(crate) fn new(wqe: SendWqe, past: Index) -> Self {
        Self {
            wqe,
            kind: &NOP,
            past,
            bytes: 0,
            done: 0,
            cursor: Cursor::default(),
            admitted: false,
            local: None,
            remote: None,
        }
    }

    /// Begins it anew.
    pub(crate) fn restart(&mut self) {
        self.done = 0;
        self.cursor = Cursor::default();
        self.admitted = false;
    }

    /// Whether its data are in the WQE.
    #[inline]
    pub(crate) fn is_inline(&self) -> bool {
        self.wqe.flags & send_flags::INLINE != 0
    }

    /// What is left of the range in the peer's memory.
    #[inline]
    pub(crate) fn remote_range(&self) -> Range {
        Range {
            key: Number::from_raw(self.wqe.rkey),
            addr: self.wqe.remote_addr.wrapping_add(u64::from(self.done)),
            bytes: u64::from(self.bytes.saturating_sub(self.done)),
        }
    }
}

/// The SGEs of a WQE, which begin at word `from`.
#[inline]
fn sges(words: &[u64], from: usize) -> impl Iterator<Item = Sge> + '_ {
    let mut rest = words.get(from..).unwrap_or(&[]);
    core::iter::from_fn(move || {
        let (sge, others) = rest.split_first_chunk()?;
        rest = others;
        Some(Sge::decode(sge))
    })
}

/// What is left of the first SGE that is not done.
fn next_range(words: &[u64], from: usize, cursor: &mut Cursor) -> Option<Range> {
    loop {
        let sge = sges(words, from).nth(usize::from(cursor.sge))?;
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

/// Where the bytes of a step are, and how many.
enum End {
    Memory(Place, u64),
    /// In the WQE, from this byte on.
    Inline(usize),
}

impl<H: Host> Function<H> {
    /// Moves all of a message, if it is mapped as one piece at both ends. False if not: nothing is moved.
    #[inline(always)]
    pub(crate) fn move_at_once(&mut self, message: &Message) -> bool {
        let (Some(local), Some(remote)) = (message.local, message.remote) else {
            return false;
        };
        let (regions, bus) = (&self.regions, &mut self.bus);
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
            self.receive_end(sender.peer)?
        } else {
            self.remote_end(sender.peer, message)?
        };
        let near = match &local {
            End::Memory(_, bytes) => *bytes,
            End::Inline(_) => most,
        };
        let count = most.min(near).min(far);
        let (regions, bus) = (&mut self.regions, &mut self.bus);
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
        self.bus.add(message.kind.counter, u64::from(count));
        Ok(count)
    }

    /// The sender's end.
    fn local_end(
        &mut self,
        sender: &Sender,
        message: &mut Message,
        words: &[u64],
    ) -> Result<End, Fault> {
        if message.is_inline() {
            return Ok(End::Inline(message.done as usize));
        }
        let range = next_range(words, SendWqe::WORDS, &mut message.cursor);
        let range = range.ok_or(Fault::Local(Detail::Sges))?;
        let right = message.kind.local;
        let place = self.regions.resolve(&mut self.bus, sender.pd, right, range);
        place
            .map(|(place, bytes)| End::Memory(place, bytes))
            .map_err(Fault::Local)
    }

    /// The peer's end of a WRITE or READ.
    fn remote_end(&mut self, peer: Number, message: &Message) -> Result<(Place, u64), Fault> {
        let pd = self.qps.get(peer).map(|found| found.pd);
        let pd = pd.ok_or(Fault::Remote(Detail::NoPeer))?;
        let (right, range) = (message.kind.remote, message.remote_range());
        let place = self.regions.resolve(&mut self.bus, pd, right, range);
        place.map_err(Fault::Remote)
    }

    /// The peer's end of a SEND.
    fn receive_end(&mut self, peer: Number) -> Result<(Place, u64), Fault> {
        let gone = || Fault::Receive(Detail::State);
        let found = self.qps.get_mut(peer).ok_or_else(gone)?;
        let pd = found.pd;
        let receive = found.receiving.as_mut().ok_or_else(gone)?;
        let range = next_range(&receive.words, RecvWqe::WORDS, &mut receive.cursor);
        let range = range.ok_or(Fault::Receive(Detail::ShortReceive))?;
        let right = access::LOCAL_WRITE;
        let place = self.regions.resolve(&mut self.bus, pd, right, range);
        place.map_err(Fault::Receive)
    }

    /// The bytes of all SGEs of a work request, and what is wrong if one is not in a region of its queue pair's domain
    /// with the right that it needs. Of the only SGE it notes where that begins.
    #[inline(always)]
    pub(crate) fn check_local(
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
        let mut all = sges(words, SendWqe::WORDS);
        match all.next() {
            Some(sge) if count == 1 && sge.bytes != 0 => match find(&sge) {
                Ok(place) => {
                    message.local = Some(place);
                    (u64::from(sge.bytes), None)
                }
                Err(detail) => (u64::from(sge.bytes), Some(detail)),
            },
            _ => {
                let all = sges(words, SendWqe::WORDS).take(usize::from(count));
                let mut filled = all.filter(|sge| sge.bytes != 0);
                let wrong = filled.find_map(|sge| find(&sge).err());
                (total(words, SendWqe::WORDS, count), wrong)
            }
        }
    }
}

/// Bytes of a list of SGEs.
pub(crate) fn total(words: &[u64], from: usize, count: u8) -> u64 {
    let sges = sges(words, from).take(usize::from(count));
    sges.map(|sge| u64::from(sge.bytes)).sum()
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

fn copy_inline(words: &[u64], from: usize, to: &mut [u8]) {
    let mut bytes = [0; MAX_BLOCKS * BLOCK_WORDS * 8];
    crate::bus::to_bytes(words, &mut bytes);
    let from = from.saturating_add(SendWqe::BYTES);
    if let Some(bytes) = bytes.get(from..from.saturating_add(to.len())) {
        to.copy_from_slice(bytes);
    }
}
