// SPDX-License-Identifier: GPL-2.0

//! The facts of the function, from `rust/abi`.

#[macro_use]
#[path = "../rust/abi/layout.rs"]
mod layout;
#[macro_use]
#[path = "../rust/abi/offsets.rs"]
mod offsets;
#[macro_use]
#[path = "../rust/abi/tables.rs"]
mod tables;
#[path = "../rust/abi/stream/mod.rs"]
pub mod stream;

pub use self::layout::Field;
