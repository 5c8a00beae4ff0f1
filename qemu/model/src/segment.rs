// SPDX-License-Identifier: GPL-2.0
//! A contiguous piece of a ring or region, which may stay mapped.
//!
//! An access to a mapped piece is a few loads or stores. A piece that cannot be mapped is read and
//! written by its address. A mapping is dropped when the system takes its addresses away, and the
//! piece is mapped again at its next use. A piece that could not be mapped is tried again then.

use crate::bus::Bus;
use crate::host::DmaFault;
use crate::host::Host;
use crate::host::Mapping;
use qpair_abi::counters::Counter;

/// A piece of DMA address space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    pub(crate) addr: u64,
    pub(crate) bytes: u64,
}

enum Mapped<M> {
    /// Used once.
    New,
    /// To be mapped at the next use.
    NotYet,
    /// It is read and written by its address.
    Never,
    /// It cannot be mapped. Tried again after the system has taken addresses of it away.
    Failed,
    Yes(M),
}

/// A contiguous piece of a ring or region.
pub(crate) struct Segment<M> {
    /// Its first byte in the ring or region.
    pub(crate) from: u64,
    pub(crate) piece: Piece,
    map: Mapped<M>,
}

impl<M> Segment<M> {
    /// A piece that is mapped at its first use.
    pub(crate) fn new(from: u64, piece: Piece) -> Self {
        Self {
            from,
            piece,
            map: Mapped::NotYet,
        }
    }

    /// A piece that is mapped at its second use, since many are used only once.
    pub(crate) fn found(from: u64, piece: Piece) -> Self {
        Self {
            from,
            piece,
            map: Mapped::New,
        }
    }

    /// A piece that is never mapped.
    pub(crate) fn unmapped(piece: Piece) -> Self {
        Self {
            from: 0,
            piece,
            map: Mapped::Never,
        }
    }

    /// The number of its bytes from byte `at` of the ring or region on; 0 if that lies outside.
    #[inline]
    pub(crate) fn left(&self, at: u64) -> u64 {
        let before = at.wrapping_sub(self.from);
        self.piece.bytes.saturating_sub(before)
    }

    /// Drops the mapping if the system takes away a range of addresses that it is in.
    pub(crate) fn unmap(&mut self, first: u64, last: u64) {
        let Piece { addr, bytes } = self.piece;
        let end = addr.saturating_add(bytes.saturating_sub(1));
        if addr <= last && end >= first && !matches!(self.map, Mapped::Never) {
            self.map = Mapped::NotYet;
        }
    }
}

impl<M: Mapping> Segment<M> {
    /// Its mapping. Maps it if that was not tried yet.
    #[inline]
    pub(crate) fn mapping<H: Host<Map = M>>(
        &mut self,
        bus: &mut Bus<H>,
        writable: bool,
    ) -> Option<&M> {
        if let Mapped::New | Mapped::NotYet = self.map {
            self.map(bus, writable);
        }
        match &self.map {
            Mapped::Yes(map) => Some(map),
            _ => None,
        }
    }

    #[cold]
    fn map<H: Host<Map = M>>(&mut self, bus: &mut Bus<H>, writable: bool) {
        let Piece { addr, bytes } = self.piece;
        self.map = match bus.host.map(addr, bytes, writable) {
            Some(map) => Mapped::Yes(map),
            None => Mapped::Failed,
        };
    }

    /// Notes a use: whether it has tried to map the piece.
    pub(crate) fn used<H: Host<Map = M>>(&mut self, bus: &mut Bus<H>, writable: bool) -> bool {
        match self.map {
            Mapped::New => {
                self.map = Mapped::NotYet;
                false
            }
            Mapped::NotYet => {
                self.map(bus, writable);
                true
            }
            Mapped::Never | Mapped::Failed | Mapped::Yes(_) => false,
        }
    }

    /// The mapping of the bytes from byte `at` of the region on, and where in it they begin. `None`
    /// if there is none, or they are not all inside.
    #[inline]
    pub(crate) fn mapped(&self, at: u64, bytes: u64) -> Option<(&M, usize)> {
        let Mapped::Yes(map) = &self.map else {
            return None;
        };
        let before = at.wrapping_sub(self.from);
        let left = self.piece.bytes.checked_sub(before)?;
        (bytes <= left).then_some((map, before as usize))
    }

    /// The address of byte `at` of the region, if that many bytes from it on are inside.
    fn addr(&self, at: u64, bytes: usize) -> Result<u64, DmaFault> {
        let before = at.wrapping_sub(self.from);
        let inside = bytes as u64 <= self.left(at);
        inside
            .then(|| self.piece.addr.wrapping_add(before))
            .ok_or(DmaFault)
    }

    /// Reads bytes from byte `at` of the region on.
    pub(crate) fn read<H: Host<Map = M>>(
        &self,
        bus: &mut Bus<H>,
        at: u64,
        bytes: &mut [u8],
    ) -> Result<(), DmaFault> {
        let Some((map, at)) = self.mapped(at, bytes.len() as u64) else {
            return bus.read(self.addr(at, bytes.len())?, bytes);
        };
        bus.count(Counter::DmaReads);
        map.read(at, bytes);
        Ok(())
    }

    /// Writes bytes from byte `at` of the region on.
    pub(crate) fn write<H: Host<Map = M>>(
        &self,
        bus: &mut Bus<H>,
        at: u64,
        bytes: &[u8],
    ) -> Result<(), DmaFault> {
        let Some((map, at)) = self.mapped(at, bytes.len() as u64) else {
            return bus.write(self.addr(at, bytes.len())?, bytes);
        };
        bus.count(Counter::DmaWrites);
        map.write(at, bytes);
        Ok(())
    }
}
