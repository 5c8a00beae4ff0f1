// SPDX-License-Identifier: GPL-2.0
//! From the facts to a C header for drivers.
//!
//! [`device`] reads in the sources of `rust/abi` what a driver must know, as plain definitions and
//! structures ([`facts`]). [`render`] writes them as C in the kernel's style. The sources are read
//! and not compiled: the comments are half of the header, and the tables of `layout!` and `codes!`
//! are nearer to C than what they expand to.

use std::path::Path;

pub mod device;
pub mod facts;
pub mod render;
mod source;

/// The header of the device, from the sources in `abi`.
pub fn generate(abi: &Path) -> anyhow::Result<String> {
    Ok(render::header(&device::read(abi)?))
}
