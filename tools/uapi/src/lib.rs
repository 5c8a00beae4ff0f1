// SPDX-License-Identifier: GPL-2.0
//! From the facts to two C headers: one for programs, one for drivers.
//!
//! [`facts`] reads in the sources of `rust/abi` what a program on the other side of the ioctls
//! must know, [`device`] what a driver must know, both as plain definitions and structures.
//! [`render`] writes them as C in the kernel's style. The sources are read and not compiled: the
//! comments are half of the headers, and the tables of `layout!` and `codes!` are nearer to C
//! than what they expand to.

use std::path::Path;

pub mod device;
pub mod facts;
pub mod render;
mod source;

/// The header of the ioctls, from the sources in `abi`.
pub fn generate(abi: &Path) -> anyhow::Result<String> {
    Ok(render::header(&facts::read(abi)?))
}

/// The header of the device, from the sources in `abi`.
pub fn generate_device(abi: &Path) -> anyhow::Result<String> {
    Ok(render::device(&device::read(abi)?))
}
