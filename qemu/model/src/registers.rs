// SPDX-License-Identifier: GPL-2.0
//! The registers that software writes before it enables the function.

use qpair_abi::regs::offset;

/// The bits of `ADMIN_DEPTH` that are in a field.
const DEPTH_FIELDS: u32 = 0x001f_1f1f;

/// The values that software wrote.
#[derive(Clone, Copy, Default)]
pub(crate) struct Registers {
    eq0_lo: u32,
    eq0_hi: u32,
    asq_lo: u32,
    asq_hi: u32,
    acq_lo: u32,
    acq_hi: u32,
    depth: u32,
}

impl Registers {
    fn register(&mut self, offset: u64) -> Option<&mut u32> {
        Some(match offset {
            offset::EQ0_BASE_LO => &mut self.eq0_lo,
            offset::EQ0_BASE_HI => &mut self.eq0_hi,
            offset::ASQ_BASE_LO => &mut self.asq_lo,
            offset::ASQ_BASE_HI => &mut self.asq_hi,
            offset::ACQ_BASE_LO => &mut self.acq_lo,
            offset::ACQ_BASE_HI => &mut self.acq_hi,
            offset::ADMIN_DEPTH => &mut self.depth,
            _ => return None,
        })
    }

    /// Reads one of them; other offsets read as zero.
    pub(crate) fn read(mut self, offset: u64) -> u32 {
        self.register(offset).map_or(0, |register| *register)
    }

    /// Writes one of them; other offsets ignore the write.
    pub(crate) fn write(&mut self, offset: u64, value: u32) {
        if let Some(register) = self.register(offset) {
            *register = value;
        }
    }

    /// The addresses of EQ 0, the admin SQ and CQ 0.
    pub(crate) fn bases(&self) -> [u64; 3] {
        [
            (self.eq0_lo, self.eq0_hi),
            (self.asq_lo, self.asq_hi),
            (self.acq_lo, self.acq_hi),
        ]
        .map(|(lo, hi)| u64::from(hi) << 32 | u64::from(lo))
    }

    /// The depths of EQ 0, the admin SQ and CQ 0, as base-two logarithms. `None` if reserved bits
    /// are set.
    pub(crate) fn log_depths(&self) -> Option<[u8; 3]> {
        let log = |shift: u32| (self.depth >> shift & 0x1f) as u8;
        (self.depth & !DEPTH_FIELDS == 0).then(|| [log(0), log(8), log(16)])
    }
}
