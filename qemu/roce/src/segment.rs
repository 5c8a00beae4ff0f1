// SPDX-License-Identifier: GPL-2.0
//! Messages in packets, and back.
//!
//! A message is one packet (*only*), or a *first*, any number of *middle* and a *last* one. All but
//! *last* and *only* have as many bytes as the path MTU; *last* has at least one.

/// A path MTU: a power of two from 256 to 4096.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Mtu(u8);

impl Mtu {
    /// By its code of verbs: 1 is 256 bytes, 5 is 4096.
    pub fn from_code(code: u8) -> Option<Self> {
        matches!(code, 1..=5).then(|| Self(code.wrapping_add(7)))
    }

    /// Bytes.
    #[inline]
    pub const fn bytes(self) -> u32 {
        1 << (self.0 & 15)
    }

    /// The packets of a message.
    #[inline]
    pub const fn packets(self, bytes: u32) -> u32 {
        let packets = bytes.div_ceil(self.bytes());
        if packets == 0 {
            1
        } else {
            packets
        }
    }

    /// The `nth` piece of a message; `None` past its end.
    #[inline]
    pub fn piece(self, bytes: u32, nth: u32) -> Option<Piece> {
        let after = self.packets(bytes).checked_sub(nth)?.checked_sub(1)?;
        let offset = nth.checked_mul(self.bytes())?;
        Some(Piece {
            position: match (nth, after) {
                (0, 0) => Position::Only,
                (0, _) => Position::First,
                (_, 0) => Position::Last,
                _ => Position::Middle,
            },
            offset,
            bytes: bytes.checked_sub(offset)?.min(self.bytes()),
        })
    }
}

/// Where a packet is in its message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Position {
    /// Others follow.
    First,
    /// Neither the first nor the last.
    Middle,
    /// It ends a message of several packets.
    Last,
    /// It is the message.
    Only,
}

impl Position {
    /// Whether a message begins with it.
    #[inline]
    pub const fn begins(self) -> bool {
        matches!(self, Self::First | Self::Only)
    }

    /// Whether a message ends with it.
    #[inline]
    pub const fn ends(self) -> bool {
        matches!(self, Self::Last | Self::Only)
    }
}

/// A part of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Piece {
    /// Its place.
    pub position: Position,
    /// Bytes of the message before it.
    pub offset: u32,
    /// Its bytes.
    pub bytes: u32,
}

/// What a message is that comes in pieces.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Form {
    /// A SEND, whose length its last packet shows.
    Send,
    /// A WRITE of this length, by the RETH of its first packet.
    Write(u32),
}

/// A message of which pieces have come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Partial {
    form: Form,
    bytes: u32,
}

/// A packet does not continue the message, or has a wrong length.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Misfit;

/// The longest message.
pub const MESSAGE_BYTES: u32 = 1 << 31;

impl Partial {
    /// Whether the message is a SEND.
    pub const fn is_send(self) -> bool {
        matches!(self.form, Form::Send)
    }

    /// Adds a packet to the message that has begun, if one has. Returns the piece, and the message
    /// as it is then. `form` is that of a packet that begins a message.
    pub fn join(
        begun: Option<Self>,
        form: Form,
        position: Position,
        bytes: u32,
        mtu: Mtu,
    ) -> Result<(Piece, Option<Self>), Misfit> {
        let before = match (begun, position.begins()) {
            (None, true) => Self { form, bytes: 0 },
            (Some(begun), false) if begun.is_send() == matches!(form, Form::Send) => begun,
            _ => return Err(Misfit),
        };
        let fits = match position {
            Position::First | Position::Middle => bytes == mtu.bytes(),
            Position::Last => bytes != 0 && bytes <= mtu.bytes(),
            Position::Only => bytes <= mtu.bytes(),
        };
        let after = before.bytes.checked_add(bytes).ok_or(Misfit)?;
        let fits = fits
            && match before.form {
                Form::Send => after <= MESSAGE_BYTES,
                Form::Write(whole) if position.ends() => after == whole,
                Form::Write(whole) => after < whole && whole <= MESSAGE_BYTES,
            };
        if !fits {
            return Err(Misfit);
        }
        let piece = Piece {
            position,
            offset: before.bytes,
            bytes,
        };
        let next = Self {
            bytes: after,
            ..before
        };
        Ok((piece, (!position.ends()).then_some(next)))
    }
}
