// SPDX-License-Identifier: GPL-2.0
//! The registers of the whole function: 32 bits each, in BAR 0.
//!
//! `registers!` passes one table to the macro that expands it, as that of the
//! [other function](crate::regs).

/// Hands the table of registers to the macro whose name is given.
macro_rules! registers {
    ($($with:tt)*) => {
        $($with)*! {
            /// Always `MAGIC_VALUE`.
            pub MAGIC(u32) @ 0x00 {
                31:0 value;
            }

            /// The version of the programming model. Another major is another model.
            pub VERSION(u32) @ 0x04 {
                31:16 major;
                15:0 minor;
            }

            /// What software asks of the function.
            pub CTRL(u32) @ 0x08 {
                /// Returns the function to power-on. Reads as 0.
                1:1 reset;
            }

            /// Pairs of channels.
            pub PAIRS(u32) @ 0x0c {
                31:0 count;
            }

            /// Bytes of the largest frame.
            pub LIMIT_FRAME(u32) @ 0x10 {
                31:0 bytes;
            }

            /// Descriptors of the largest ring with a head and a tail.
            pub LIMIT_RING(u32) @ 0x14 {
                31:0 descriptors;
            }
        }
    };
}
#[cfg(MODULE)]
pub(crate) use registers;

registers!(fields);

/// The offset of each register in BAR 0, in bytes.
pub mod offset {
    registers!(offsets);
}

/// What [`MAGIC`](offset::MAGIC) reads as: "QPS1".
pub const MAGIC_VALUE: u32 = u32::from_le_bytes(*b"QPS1");
/// The major version of the programming model that this source describes.
pub const MAJOR: u32 = 1;
/// The minor version: additions that software of a lower one need not know.
pub const MINOR: u32 = 0;
/// Bytes of BAR 0.
pub const BYTES: usize = 0x4000;
