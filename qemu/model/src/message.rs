// SPDX-License-Identifier: GPL-2.0
//! Messages: what a work request moves, and how far it is.
//!
//! Between two turns anything may happen to either end. So a message that is kept between its
//! turns has numbers, never addresses of memory.

use crate::attributes::Attributes;
use crate::bus::to_bytes;
use crate::mr::Place;
use crate::region::Range;
use qpair_abi::command::access;
use qpair_abi::command::service;
use qpair_abi::counters::Counter;
use qpair_abi::entry::opcode;
use qpair_abi::entry::send_flags;
use qpair_abi::entry::SendWqe;
use qpair_abi::entry::Sge;
use qpair_abi::entry::ATOMIC_BYTES;
use qpair_abi::entry::BLOCK_WORDS;
use qpair_abi::entry::MAX_BLOCKS;
use qpair_abi::Number;
use qpair_queue::index::Index;

/// Words of the largest WQE.
pub(crate) type WqeWords = [u64; MAX_BLOCKS * BLOCK_WORDS];

/// A place in a list of SGEs.
#[derive(Clone, Copy, Default)]
pub(crate) struct Cursor {
    sge: u8,
    /// Bytes of the SGE that are done.
    pub(crate) done: u32,
}

impl Cursor {
    /// The place of a byte of a list of SGEs that begins at word `from`.
    pub(crate) fn at(words: &[u64], from: usize, byte: u32) -> Self {
        let mut cursor = Self { sge: 0, done: byte };
        for sge in sges(words, from) {
            if cursor.done < sge.bytes {
                break;
            }
            cursor.done = cursor.done.wrapping_sub(sge.bytes);
            cursor.sge = cursor.sge.saturating_add(1);
        }
        cursor
    }
}

/// The properties of an operation.
pub(crate) struct Kind {
    /// The flags that are valid.
    pub(crate) flags: u8,
    /// The right that it needs in the sender's regions; 0 is none.
    pub(crate) local: u8,
    /// The right that it needs at the peer, and in the region there; 0 if it fills a receive.
    pub(crate) remote: u8,
    /// Whether it fills or takes a receive of the peer.
    pub(crate) receives: bool,
    /// Whether it needs no peer.
    pub(crate) is_local: bool,
    /// Counts its bytes; of atomics their number.
    pub(crate) counter: Counter,
}

const ANY: u8 = send_flags::SIGNALED | send_flags::FENCE;
const NOP: Kind = Kind {
    flags: ANY,
    local: 0,
    remote: 0,
    receives: false,
    is_local: true,
    counter: Counter::SendBytes,
};
const SEND: Kind = Kind {
    flags: ANY | send_flags::INLINE | send_flags::SOLICITED,
    receives: true,
    is_local: false,
    ..NOP
};
const WRITE: Kind = Kind {
    flags: ANY | send_flags::INLINE,
    remote: access::REMOTE_WRITE,
    is_local: false,
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
    is_local: false,
    counter: Counter::ReadBytes,
    ..NOP
};
const ATOMIC: Kind = Kind {
    local: access::LOCAL_WRITE,
    remote: access::REMOTE_ATOMIC,
    is_local: false,
    counter: Counter::Atomics,
    ..NOP
};

/// Its rights depend on the WQE.
const FLUSH: Kind = Kind {
    is_local: false,
    ..NOP
};

impl Kind {
    /// By opcode. A bind, an invalidation or a registration is as a NOP, an atomic WRITE as a WRITE.
    const ALL: &'static [Self] = &[
        NOP, SEND, SEND, WRITE, WRITE_IMM, READ, ATOMIC, ATOMIC, NOP, NOP, SEND, FLUSH, WRITE, NOP,
    ];

    /// That of no operation.
    pub(crate) const NONE: &'static Self = &NOP;

    /// The operation of an opcode.
    #[inline]
    pub(crate) fn of(opcode: u8) -> Option<&'static Self> {
        const {
            assert!(opcode::NOP == 0 && opcode::SEND == 1 && opcode::SEND_IMM == 2);
            assert!(opcode::WRITE == 3 && opcode::WRITE_IMM == 4 && opcode::READ == 5);
            assert!(opcode::COMPARE_SWAP == 6 && opcode::FETCH_ADD == 7);
            assert!(opcode::BIND == 8 && opcode::LOCAL_INV == 9 && opcode::SEND_INV == 10);
            assert!(opcode::FLUSH == 11 && opcode::ATOMIC_WRITE == 12);
            assert!(opcode::REG_MR == 13);
        }
        Self::ALL.get(usize::from(opcode))
    }
}

/// The last opcode of a service of those from SEND on that move the bytes of a buffer. Of all others,
/// RC has all, and UC and UD have NOP.
fn last_move(service: u8) -> u8 {
    match service {
        service::UD => opcode::SEND_IMM,
        service::UC => opcode::WRITE_IMM,
        _ => opcode::READ,
    }
}

/// The queue pair that has the turn. Only commands change these fields, in a turn of their own.
#[derive(Clone, Copy)]
pub(crate) struct Sender {
    pub(crate) qp: Number,
    pub(crate) pd: Number,
    /// Its peer, if that is of this function.
    pub(crate) peer: Option<Number>,
    pub(crate) service: u8,
    /// [`last_move`] of its service.
    pub(crate) last: u8,
}

impl Sender {
    /// The queue pair of this number.
    #[inline(always)]
    pub(crate) fn of(qp: Number, attributes: &Attributes) -> Self {
        Self {
            qp,
            pd: attributes.pd,
            peer: attributes.path.here(),
            service: attributes.service,
            last: last_move(attributes.service),
        }
    }
}

/// A work request in progress. Its SGEs or inline data are in its WQE.
#[derive(Clone, Copy)]
pub(crate) struct Message {
    pub(crate) wqe: SendWqe,
    pub(crate) kind: &'static Kind,
    /// The index past it.
    pub(crate) past: Index,
    pub(crate) bytes: u32,
    /// The bytes that have moved; of a datagram to a group the number of the last member that was
    /// served, or 0.
    pub(crate) done: u32,
    pub(crate) cursor: Cursor,
    /// The peer has admitted it.
    pub(crate) admitted: bool,
    /// Where it begins at either end, if that is one range and was checked in this turn.
    pub(crate) local: Option<Place>,
    pub(crate) remote: Option<Place>,
}

/// A message that took longer than its turn, and its whole WQE.
pub(crate) struct Paused {
    pub(crate) message: Message,
    pub(crate) words: WqeWords,
}

/// A message, or what is left of it, as its responder gets it: nothing of the sender, nor of its
/// memory.
#[derive(Clone, Copy)]
pub(crate) struct Piece {
    pub(crate) opcode: u8,
    pub(crate) kind: &'static Kind,
    pub(crate) solicited: bool,
    pub(crate) imm: u32,
    /// The bytes of the message.
    pub(crate) bytes: u32,
    /// What is left of the range in the responder's memory.
    pub(crate) range: Range,
}

impl Piece {
    /// Whether it is an atomic, or an atomic WRITE, at an address that is not aligned.
    pub(crate) fn is_misaligned(&self) -> bool {
        let is_aligned = self.range.addr % ATOMIC_BYTES as u64 == 0;
        match self.opcode {
            opcode::COMPARE_SWAP | opcode::FETCH_ADD | opcode::ATOMIC_WRITE => !is_aligned,
            _ => false,
        }
    }
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

    /// Starts it again from its first byte.
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

    /// What its responder gets.
    #[inline(always)]
    pub(crate) fn piece(&self) -> Piece {
        Piece {
            opcode: self.wqe.opcode,
            kind: self.kind,
            solicited: self.wqe.flags & send_flags::SOLICITED != 0,
            imm: self.wqe.imm,
            bytes: self.bytes,
            range: Range {
                key: Number::from_raw(self.wqe.rkey),
                addr: self.wqe.remote_addr.wrapping_add(u64::from(self.done)),
                bytes: u64::from(self.bytes.saturating_sub(self.done)),
            },
        }
    }
}

/// The SGEs of a WQE, which begin at word `from`.
#[inline]
pub(crate) fn sges(words: &[u64], from: usize) -> impl Iterator<Item = Sge> + '_ {
    let mut rest = words.get(from..).unwrap_or(&[]);
    core::iter::from_fn(move || {
        let (sge, others) = rest.split_first_chunk()?;
        rest = others;
        Some(Sge::decode(sge))
    })
}

/// The rest of the first SGE that is not done.
pub(crate) fn next_range(words: &[u64], from: usize, cursor: &mut Cursor) -> Option<Range> {
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

/// Bytes of a list of SGEs.
pub(crate) fn total(words: &[u64], from: usize, count: u8) -> u64 {
    let sges = sges(words, from).take(usize::from(count));
    sges.map(|sge| u64::from(sge.bytes)).sum()
}

/// Copies inline data of a WQE, from byte `from` of the WQE on.
pub(crate) fn copy_inline(words: &[u64], from: usize, to: &mut [u8]) {
    let mut bytes = [0; MAX_BLOCKS * BLOCK_WORDS * 8];
    to_bytes(words, &mut bytes);
    if let Some(bytes) = bytes.get(from..from.saturating_add(to.len())) {
        to.copy_from_slice(bytes);
    }
}
