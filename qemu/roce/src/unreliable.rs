// SPDX-License-Identifier: GPL-2.0
//! Unreliable connections: a sender that numbers packets, and a receiver that drops the rest of a
//! message of which one is missing.

use crate::operation::Operation;
use crate::psn::Psn;
use crate::segment::Mtu;
use crate::segment::Partial;
use crate::segment::Piece;
use crate::segment::MESSAGE_BYTES;

/// The sender of an unreliable connection. A message is complete when its last packet is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Sender {
    mtu: Mtu,
    next: Psn,
    /// Bytes of the message that is sent, and packets of it that were.
    message: Option<(u32, u32)>,
}

impl Sender {
    /// One whose first packet has this PSN.
    pub const fn new(mtu: Mtu, first: Psn) -> Self {
        Self {
            mtu,
            next: first,
            message: None,
        }
    }

    /// The PSN of the next packet.
    pub const fn next_psn(&self) -> Psn {
        self.next
    }

    /// Begins a message; false if it is too long, or another is being sent.
    pub fn begin(&mut self, bytes: u32) -> bool {
        let begins = self.message.is_none() && bytes <= MESSAGE_BYTES;
        if begins {
            self.message = Some((bytes, 0));
        }
        begins
    }

    /// The next packet to send.
    pub fn next_packet(&mut self) -> Option<(Psn, Piece)> {
        let (bytes, nth) = self.message?;
        let piece = self.mtu.piece(bytes, nth)?;
        let psn = self.next;
        self.next = psn.plus(1);
        let rest = !piece.position.ends();
        self.message = rest.then_some((bytes, nth.wrapping_add(1)));
        Some((psn, piece))
    }

    /// The rest of the message cannot be sent.
    pub fn abandon(&mut self) {
        self.message = None;
    }
}

/// What a packet of an unreliable connection does.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Received {
    /// The message that had begun is dropped: its receive is free again.
    pub lost: bool,
    /// The part of a message that it is; otherwise it is dropped.
    pub piece: Option<Piece>,
}

/// Packets that are less than this before the expected one came twice or out of order. One that is
/// farther away says that more were lost than numbers have a direction.
const BACK: i32 = 1 << 16;

/// The receiver of an unreliable connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Receiver {
    mtu: Mtu,
    expected: Psn,
    partial: Option<Partial>,
}

impl Receiver {
    /// One that expects this PSN first.
    pub const fn new(mtu: Mtu, first: Psn) -> Self {
        Self {
            mtu,
            expected: first,
            partial: None,
        }
    }

    /// The PSN that is expected.
    pub const fn expected(&self) -> Psn {
        self.expected
    }

    /// A packet with so many bytes of payload.
    pub fn receive(&mut self, psn: Psn, operation: &Operation, bytes: usize) -> Received {
        let ahead = psn.since(self.expected);
        if (-BACK..0).contains(&ahead) {
            return Received {
                lost: false,
                piece: None,
            };
        }
        self.expected = psn.plus(1);
        let begun = self.partial.take();
        let continues = begun.filter(|_| ahead == 0);
        let joined = operation.part().and_then(|(form, position)| {
            let bytes = u32::try_from(bytes).ok()?;
            let begun = continues.filter(|_| !position.begins());
            Partial::join(begun, form, position, bytes, self.mtu).ok()
        });
        let piece = joined.map(|(piece, partial)| {
            self.partial = partial;
            piece
        });
        let goes_on = piece.is_some_and(|piece| !piece.position.begins());
        Received {
            lost: begun.is_some() && !goes_on,
            piece,
        }
    }

    /// The message that has begun cannot be received; the rest of it is dropped.
    pub fn abandon(&mut self) {
        self.partial = None;
    }
}
