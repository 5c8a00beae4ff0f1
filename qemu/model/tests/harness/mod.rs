// SPDX-License-Identifier: GPL-2.0
//! A machine for the device: memory with grants for the device, a clock that the test advances, and
//! a driver that can do everything, correctly and incorrectly.

#![allow(dead_code, unreachable_pub)]

pub mod anything;
pub mod driver;
pub mod far;
mod forged;
mod frmr;
pub mod lan;
pub mod memory;
pub mod objects;
mod srq;
mod ud;
pub mod windows;
pub mod wire;
mod work;

pub use anything::*;
pub use driver::*;
pub use far::*;
pub use forged::*;
pub use frmr::*;
pub use lan::*;
pub use memory::*;
pub use objects::*;
pub use srq::*;
pub use ud::*;
pub use windows::*;
pub use wire::*;
pub use work::*;
