// SPDX-License-Identifier: GPL-2.0
//! The table as constants. The driver has the abstraction of the `kernel` crate.

registers!(fields);

/// The offset of each register in BAR 0, in bytes.
pub mod offset {
    registers!(offsets);
}
