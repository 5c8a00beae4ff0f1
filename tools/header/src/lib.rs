// SPDX-License-Identifier: GPL-2.0
//! From the facts to C headers for drivers, one for each function.
//!
//! [`device`] and [`stream`] read in the sources of `rust/abi` what a driver must know, as plain
//! definitions and structures ([`facts`]). [`render`] writes them as C in the kernel's style. The sources are read
//! and not compiled: the comments are half of the header, and the tables of `layout!` and `codes!`
//! are nearer to C than what they expand to.

use std::path::Path;

pub mod device;
pub mod facts;
pub mod render;
mod source;
pub mod stream;

/// A header: its name in `include/qpair`, and its text from the sources in `abi`.
pub type Header = (&'static str, fn(abi: &Path) -> anyhow::Result<String>);

/// All headers.
pub const HEADERS: &[Header] = &[("device.h", generate), ("stream.h", generate_stream)];

/// The header of the function of queue pairs, from the sources in `abi`.
pub fn generate(abi: &Path) -> anyhow::Result<String> {
    Ok(render::header(&device::read(abi)?, &device::FRAME))
}

/// The header of the function of channels, from the sources in `abi`.
pub fn generate_stream(abi: &Path) -> anyhow::Result<String> {
    Ok(render::header(&stream::read(abi)?, &stream::FRAME))
}
