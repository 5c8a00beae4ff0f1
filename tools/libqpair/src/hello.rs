// SPDX-License-Identifier: GPL-2.0
//! The handshake of two endpoints.
//!
//! ```text
//!   both  --> hello: magic, version, number of the queue pair, size of a message, receives
//!             each checks the other's, posts its receives, and goes to RTS
//!   both  --> READY, or why not
//!             messages, by the queue pairs
//!   either --> BYE, or why it ends
//! ```
//!
//! A hello has 32 bytes, little-endian. Magic and version never change their places, so that any
//! version can report another.

use std::fmt;
use std::time::Instant;

use qpair_abi::Number;

use crate::flow::Credits;
use crate::stream::{read_until, write, NoBytes, Stream};

/// The version of handshake and messages.
pub(crate) const VERSION: u32 = 1;
const MAGIC: [u8; 8] = *b"qpair-ep";
const BYTES: usize = 32;
/// Bytes up to the version.
const HEAD: usize = 12;

/// Sent after the hello when the receives are posted.
const READY: u8 = 1;
/// Sent when no more messages come, and all have arrived.
pub(crate) const BYE: u8 = 2;

/// What a peer does that the protocol does not allow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fault {
    /// It speaks another protocol.
    Garbage,
    /// It speaks another version.
    Version,
    /// Its hello has a size or a number of receives out of range.
    Sizes,
    /// It sent more messages than it has slots for.
    TooMany,
    /// It acknowledged what was not sent.
    FalseCounts,
    /// It sent a message that is neither data nor an acknowledgement.
    Strange,
    /// It keeps fewer receives posted than it said.
    NoReceive,
}

impl Fault {
    const ALL: [Self; 7] = [
        Self::Garbage,
        Self::Version,
        Self::Sizes,
        Self::TooMany,
        Self::FalseCounts,
        Self::Strange,
        Self::NoReceive,
    ];

    /// Its byte on the stream.
    pub(crate) const fn code(self) -> u8 {
        0x10 + self as u8
    }

    pub(crate) fn from_code(code: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|fault| fault.code() == code)
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Garbage => "bytes of another protocol came on the stream",
            Self::Version => "another version of the protocol",
            Self::Sizes => "a message size or a number of receives is out of range",
            Self::TooMany => "more messages than there were receives for",
            Self::FalseCounts => "an acknowledgement of messages that were not sent",
            Self::Strange => "a message that is neither data nor an acknowledgement",
            Self::NoReceive => "fewer receives are posted than announced",
        })
    }
}

/// What an endpoint announces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Hello {
    pub(crate) number: Number,
    /// Bytes of its receives.
    pub(crate) message: u32,
    /// Receives that it keeps posted.
    pub(crate) receives: Credits,
}

/// Why there is no connection.
#[derive(Debug)]
pub(crate) enum NoHello {
    /// The stream has no bytes.
    Stream(NoBytes),
    /// The peer speaks this version.
    Version(u32),
    /// The peer is wrong.
    Broken(Fault),
    /// The peer refused this side.
    Refused(Fault),
}

impl From<NoBytes> for NoHello {
    fn from(none: NoBytes) -> Self {
        Self::Stream(none)
    }
}

impl Hello {
    fn encode(&self) -> [u8; BYTES] {
        let words = [
            VERSION,
            self.number.raw(),
            self.message,
            self.receives.data,
            self.receives.acks,
            0,
        ];
        let mut bytes = [0; BYTES];
        bytes[..MAGIC.len()].copy_from_slice(&MAGIC);
        let places = bytes[MAGIC.len()..].chunks_exact_mut(4);
        for (place, word) in places.zip(words) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    fn decode(bytes: &[u8; BYTES]) -> Self {
        let word = |at: usize| {
            let at = MAGIC.len() + 4 * at;
            u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
        };
        Self {
            number: Number::from_raw(word(1)),
            message: word(2),
            receives: Credits {
                data: word(3),
                acks: word(4),
            },
        }
    }

    /// Sends it, and receives the peer's.
    pub(crate) fn exchange(
        &self,
        stream: &mut dyn Stream,
        deadline: Instant,
    ) -> Result<Self, NoHello> {
        write(stream, &self.encode())?;
        let mut bytes = [0; BYTES];
        let (head, rest) = bytes.split_at_mut(HEAD);
        read_until(stream, head, deadline)?;
        if head[..MAGIC.len()] != MAGIC {
            return Err(NoHello::Broken(Fault::Garbage));
        }
        let mut version = [0; 4];
        version.copy_from_slice(&head[MAGIC.len()..]);
        match u32::from_le_bytes(version) {
            VERSION => {}
            other => return Err(NoHello::Version(other)),
        }
        read_until(stream, rest, deadline)?;
        Ok(Self::decode(&bytes))
    }
}

/// Tells the peer that its messages have receives, and waits until it tells the same.
pub(crate) fn ready(stream: &mut dyn Stream, deadline: Instant) -> Result<(), NoHello> {
    write(stream, &[READY])?;
    let mut byte = [0];
    read_until(stream, &mut byte, deadline)?;
    match (byte[0], Fault::from_code(byte[0])) {
        (READY, _) => Ok(()),
        (_, Some(fault)) => Err(NoHello::Refused(fault)),
        _ => Err(NoHello::Broken(Fault::Garbage)),
    }
}

/// Tells the peer why this side ends. The peer may be gone.
pub(crate) fn refuse(stream: &mut dyn Stream, fault: Fault) {
    let _: Result<(), NoBytes> = write(stream, &[fault.code()]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hello_survives_a_round_trip() {
        let hello = Hello {
            number: Number::from_raw(0x0001_0203),
            message: 4096,
            receives: Credits { data: 16, acks: 4 },
        };
        let bytes = hello.encode();
        assert_eq!(bytes[..HEAD], *b"qpair-ep\x01\0\0\0");
        assert_eq!(Hello::decode(&bytes), hello);
    }

    #[test]
    fn a_fault_has_a_byte_of_its_own() {
        for fault in Fault::ALL {
            assert!(![READY, BYE].contains(&fault.code()));
            assert_eq!(Fault::from_code(fault.code()), Some(fault));
        }
        assert_eq!(Fault::from_code(READY), None);
    }
}
