// SPDX-License-Identifier: GPL-2.0
//! The extended headers of the transport, and how they are read and written.

/// Bytes of the base transport header.
pub const BTH_BYTES: usize = 12;
/// Bytes of the longest headers: BTH and AtomicETH.
const MOST_BYTES: usize = BTH_BYTES + 28;
/// Bits of a queue pair's number, and of an MSN.
pub const BITS24: u32 = (1 << 24) - 1;

/// Memory of the peer: RETH.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Reth {
    /// The virtual address.
    pub addr: u64,
    /// The rkey.
    pub key: u32,
    /// The length.
    pub bytes: u32,
}

/// An atomic: AtomicETH.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct AtomicEth {
    /// The virtual address.
    pub addr: u64,
    /// The rkey.
    pub key: u32,
    /// What is swapped in or added.
    pub swap_add: u64,
    /// What memory is compared with.
    pub compare: u64,
}

/// A FLUSH: FETH.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Feth {
    /// The placement type.
    pub placement: u8,
    /// The selectivity level.
    pub selectivity: u8,
}

/// A datagram: DETH.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Deth {
    /// The Q_Key.
    pub q_key: u32,
    /// The sender's queue pair.
    pub source: u32,
}

/// Why a request is refused for good: the code of a NAK.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Nak {
    /// It does not follow the rules of requests.
    InvalidRequest,
    /// The key does not permit it.
    RemoteAccess,
    /// It could not be performed.
    RemoteOperation,
}

/// What an acknowledgement says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Syndrome {
    /// The packet was executed, and all before it. Credits are not limited.
    Ack,
    /// There is no receive: the sender waits for the time of this code.
    NotReady(u8),
    /// The packet is missing, and all before it were executed.
    Sequence,
    /// The packet is refused, and all before it were executed.
    Nak(Nak),
}

/// An acknowledgement: AETH.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Aeth {
    /// What it says.
    pub syndrome: Syndrome,
    /// The message sequence number: messages that were completed.
    pub msn: u32,
}

/// What the last packet of a SEND has besides data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum With {
    /// Nothing.
    Nothing,
    /// Immediate data, as memory has them: ImmDt.
    Immediate([u8; 4]),
    /// The rkey that the peer invalidates: IETH.
    Invalidate(u32),
}

impl Aeth {
    fn decode(word: u32) -> Option<Self> {
        let code = (word >> 24) as u8;
        let syndrome = match (code >> 5, code & 0x1f) {
            (0, _) => Syndrome::Ack,
            (1, timer) => Syndrome::NotReady(timer),
            (3, 0) => Syndrome::Sequence,
            (3, 1) => Syndrome::Nak(Nak::InvalidRequest),
            (3, 2) => Syndrome::Nak(Nak::RemoteAccess),
            (3, 3) => Syndrome::Nak(Nak::RemoteOperation),
            _ => return None,
        };
        let msn = word & BITS24;
        Some(Self { syndrome, msn })
    }

    pub(crate) fn encode(self) -> [u8; 4] {
        let code = match self.syndrome {
            Syndrome::Ack => 0x1f,
            Syndrome::NotReady(timer) => 0x20 | timer & 0x1f,
            Syndrome::Sequence => 0x60,
            Syndrome::Nak(Nak::InvalidRequest) => 0x61,
            Syndrome::Nak(Nak::RemoteAccess) => 0x62,
            Syndrome::Nak(Nak::RemoteOperation) => 0x63,
        };
        (u32::from(code) << 24 | self.msn & BITS24).to_be_bytes()
    }
}

/// Reads headers.
pub(crate) struct Reader<'a>(pub(crate) &'a [u8]);

impl Reader<'_> {
    pub(crate) fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (taken, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*taken)
    }
    pub(crate) fn u32(&mut self) -> Option<u32> {
        self.take().map(u32::from_be_bytes)
    }
    pub(crate) fn u64(&mut self) -> Option<u64> {
        self.take().map(u64::from_be_bytes)
    }
    pub(crate) fn aeth(&mut self) -> Option<Aeth> {
        Aeth::decode(self.u32()?)
    }
    pub(crate) fn reth(&mut self) -> Option<Reth> {
        let (addr, key, bytes) = (self.u64()?, self.u32()?, self.u32()?);
        Some(Reth { addr, key, bytes })
    }
    pub(crate) fn atomic(&mut self) -> Option<AtomicEth> {
        let (addr, key) = (self.u64()?, self.u32()?);
        let (swap_add, compare) = (self.u64()?, self.u64()?);
        Some(AtomicEth {
            addr,
            key,
            swap_add,
            compare,
        })
    }
    pub(crate) fn feth(&mut self) -> Option<Feth> {
        let word = self.u32()?;
        Some(Feth {
            placement: (word & 0xf) as u8,
            selectivity: (word >> 4 & 3) as u8,
        })
    }
}

/// Headers as bytes.
#[derive(Clone, Copy, Debug)]
pub struct Encoded {
    bytes: [u8; MOST_BYTES],
    count: usize,
}

impl Encoded {
    pub(crate) const fn new() -> Self {
        Self {
            bytes: [0; MOST_BYTES],
            count: 0,
        }
    }
    pub(crate) fn put<const N: usize>(&mut self, bytes: [u8; N]) -> &mut Self {
        let end = self.count.wrapping_add(N);
        if let Some(place) = self.bytes.get_mut(self.count..end) {
            place.copy_from_slice(&bytes);
            self.count = end;
        }
        self
    }
    pub(crate) fn reth(&mut self, reth: Reth) -> &mut Self {
        self.put(reth.addr.to_be_bytes())
            .put(reth.key.to_be_bytes())
            .put(reth.bytes.to_be_bytes())
    }

    /// The bytes.
    pub fn as_slice(&self) -> &[u8] {
        self.bytes.get(..self.count).unwrap_or(&[])
    }
}
