// SPDX-License-Identifier: GPL-2.0

//! The frames that the client moves, and the buffers that they are in.

use crate::kernel::{
    dma_stream::{
        Cpu,
        Device as Hardware,
        Mapped, //
    },
    gate::Pass, //
};
use core::mem;
use kernel::{
    device::{
        Bound,
        Device, //
    },
    dma::{
        DataDirection,
        DmaAddress, //
    },
    prelude::*, //
};

const WORD: u32 = 8;

/// A frame: its bytes follow from its number, so that each differs from all before it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Frame {
    pub(crate) number: u64,
    pub(crate) bytes: u32,
}

impl Frame {
    fn words(self) -> usize {
        self.bytes.div_ceil(WORD) as usize
    }

    fn word(self, index: usize) -> u64 {
        let mixed = self
            .number
            .wrapping_add(1)
            .wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (mixed ^ index as u64).wrapping_mul(0xd6e8_feb8_6659_fd93)
    }

    /// The bits of a word that belong to the frame.
    fn mask(self, index: usize) -> u64 {
        let used = self.bytes.saturating_sub(index as u32 * WORD).min(WORD);
        u64::MAX.checked_shr(64 - 8 * used).unwrap_or(0)
    }

    /// Writes the bytes that follow from its number.
    pub(crate) fn fill(self, buffer: &mut Mapped<Cpu>) {
        for index in 0..self.words() {
            buffer.write(index, self.word(index));
        }
    }

    /// Whether a buffer has its bytes.
    pub(crate) fn is_in(self, buffer: &Mapped<Cpu>) -> bool {
        (0..self.words()).all(|index| {
            let differing = buffer.read(index) ^ self.word(index);
            differing & self.mask(index) == 0
        })
    }
}

/// A buffer, and the side that owns it.
enum Buffer {
    Ours(Mapped<Cpu>),
    Lent(Mapped<Hardware>),
    /// Between the two, or lost to an error.
    None,
}

/// The buffers of a ring: that of each descriptor has its place.
pub(crate) struct Buffers(KVec<Buffer>);

impl Buffers {
    /// Allocates and maps `count` buffers of `bytes` bytes. Sleeps.
    ///
    /// # Errors
    ///
    /// `ENOMEM`, `EIO`.
    pub(crate) fn new(
        pass: &Pass<'_>,
        count: u32,
        bytes: u32,
        direction: DataDirection,
    ) -> Result<Self> {
        let mut buffers = KVec::with_capacity(count as usize, GFP_KERNEL)?;
        for _ in 0..count {
            let buffer = Mapped::new(pass, bytes as usize, direction)?;
            buffers.push(Buffer::Ours(buffer), GFP_KERNEL)?;
        }
        Ok(Self(buffers))
    }

    /// Gives the buffer at `place` to the device, after `fill` has written to it; returns its
    /// address. `None` if it is the device's.
    pub(crate) fn lend(
        &mut self,
        dev: &Device<Bound>,
        place: u32,
        fill: impl FnOnce(&mut Mapped<Cpu>),
    ) -> Option<DmaAddress> {
        let buffer = self.0.get_mut(place as usize)?;
        match mem::replace(buffer, Buffer::None) {
            Buffer::Ours(mut ours) => {
                fill(&mut ours);
                match ours.into_device(dev) {
                    Ok(lent) => {
                        let address = lent.address();
                        *buffer = Buffer::Lent(lent);
                        Some(address)
                    }
                    Err(ours) => {
                        *buffer = Buffer::Ours(ours);
                        None
                    }
                }
            }
            other => {
                *buffer = other;
                None
            }
        }
    }

    /// Takes the buffer at `place` back from the device, which is done with it. `None` if it was
    /// not the device's.
    pub(crate) fn take_back(&mut self, dev: &Device<Bound>, place: u32) -> Option<&Mapped<Cpu>> {
        let buffer = self.0.get_mut(place as usize)?;
        match mem::replace(buffer, Buffer::None) {
            Buffer::Lent(lent) => {
                *buffer = lent.into_cpu(dev).map_or_else(Buffer::Lent, Buffer::Ours)
            }
            other => *buffer = other,
        }
        match buffer {
            Buffer::Ours(ours) => Some(ours),
            _ => None,
        }
    }
}
