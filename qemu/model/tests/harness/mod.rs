// SPDX-License-Identifier: GPL-2.0
//! A machine for the device: memory that knows what was given to the device, a
//! clock that the test turns, and a driver that can do everything right and everything wrong.

#![allow(dead_code, unreachable_pub)]

pub mod driver;
pub mod memory;
pub mod objects;
pub mod rng;
pub mod work;

pub use driver::*;
pub use memory::*;
pub use objects::*;
pub use rng::Rng;
pub use work::*;
