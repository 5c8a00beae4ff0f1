// SPDX-License-Identifier: GPL-2.0
//! From the facts to a C header.
//!
//! [`facts`] reads the sources of `rust/abi` and keeps what a program on the other
//! side of the ioctls must know, as plain definitions and structures. [`render`] writes them as C
//! in the kernel's style. The sources are read and not compiled: the comments are half of the header, and
//! the tables of `layout!` and `codes!` are nearer to C than what they expand to.

use std::path::Path;

pub mod facts;
pub mod render;

/// The header, from the sources in `abi`.
pub fn generate(abi: &Path) -> anyhow::Result<String> {
    Ok(render::header(&facts::read(abi)?))
}
