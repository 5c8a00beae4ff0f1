// SPDX-License-Identifier: GPL-2.0
//! The headers of a packet, from the BTH on.

use crate::extended::Deth;
use crate::extended::Encoded;
use crate::extended::Reader;
use crate::extended::BITS24;
use crate::operation::Operation;
use crate::psn::Psn;

/// The default P_Key; the high bit says that the member is a full one.
const P_KEY: u16 = 0xffff;

/// The service of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Service {
    /// Reliable connection.
    Rc,
    /// Unreliable connection.
    Uc,
    /// Unreliable datagram.
    Ud(Deth),
}

/// All headers of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Headers {
    /// The service.
    pub service: Service,
    /// What it is.
    pub operation: Operation,
    /// It raises a solicited event.
    pub solicited: bool,
    /// The sender waits for an acknowledgement.
    pub ack: bool,
    /// The receiver's queue pair.
    pub dest: u32,
    /// Its number.
    pub psn: Psn,
}

/// Headers do not parse.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Malformed;

impl Service {
    /// Whether it has the operation.
    const fn has(self, operation: &Operation) -> bool {
        match self {
            Self::Rc => true,
            Self::Uc => matches!(operation.code(), 0..=0x0b),
            Self::Ud(_) => matches!(operation.code(), 4 | 5),
        }
    }
}

impl Headers {
    /// Parses the bytes from the BTH to the end of the padding: the headers, and the payload.
    pub fn parse(bytes: &[u8]) -> Result<(Self, &[u8]), Malformed> {
        Self::read(bytes).ok_or(Malformed)
    }

    fn read(bytes: &[u8]) -> Option<(Self, &[u8])> {
        let mut from = Reader(bytes);
        let [opcode, flags, key @ ..] = from.take::<4>()?;
        let (dest, number) = (from.u32()?, from.u32()?);
        // The transport version is 0. MigReq differs between peers, and says nothing here.
        if flags & 0xf != 0 || (u16::from_be_bytes(key) ^ P_KEY) & 0x7fff != 0 {
            return None;
        }
        let service = match opcode >> 5 {
            0 => Service::Rc,
            1 => Service::Uc,
            3 => Service::Ud(Deth {
                q_key: from.u32()?,
                source: from.u32()? & BITS24,
            }),
            _ => return None,
        };
        let operation = Operation::read(opcode & 0x1f, &mut from)?;
        let pad = usize::from(flags >> 4 & 3);
        let payload = from.0.get(..from.0.len().checked_sub(pad)?)?;
        if !service.has(&operation) || !operation.takes(payload.len()) {
            return None;
        }
        let headers = Self {
            service,
            operation,
            solicited: flags & 0x80 != 0,
            ack: number >> 31 != 0,
            dest: dest & BITS24,
            psn: Psn::new(number),
        };
        Some((headers, payload))
    }

    /// The headers of a packet with so many bytes of payload, which [`padding`] follows.
    pub fn encode(&self, bytes: usize) -> Encoded {
        let mut encoded = Encoded::new();
        let (service, deth) = match self.service {
            Service::Rc => (0, None),
            Service::Uc => (1, None),
            Service::Ud(deth) => (3, Some(deth)),
        };
        let opcode = service << 5 | self.operation.code();
        // MigReq is set, as without path migration.
        let flags = u8::from(self.solicited) << 7 | 1 << 6 | (padding(bytes) as u8) << 4;
        let [key, key_low] = P_KEY.to_be_bytes();
        let number = u32::from(self.ack) << 31 | self.psn.get();
        encoded
            .put([opcode, flags, key, key_low])
            .put((self.dest & BITS24).to_be_bytes())
            .put(number.to_be_bytes());
        if let Some(deth) = deth {
            encoded
                .put(deth.q_key.to_be_bytes())
                .put((deth.source & BITS24).to_be_bytes());
        }
        self.operation.write(&mut encoded);
        encoded
    }
}

/// Bytes that follow a payload, so that a packet has a multiple of four.
pub const fn padding(bytes: usize) -> usize {
    bytes.wrapping_neg() & 3
}
