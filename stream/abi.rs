// SPDX-License-Identifier: GPL-2.0

//! The facts of the function, from `rust/abi`, and of entries in rings.

#[macro_use]
#[path = "../rust/abi/layout.rs"]
mod layout;
#[macro_use]
#[path = "../rust/abi/tables.rs"]
mod tables;
#[path = "../rust/abi/entry.rs"]
pub mod entry;
#[path = "../rust/abi/number.rs"]
mod number;
#[path = "../rust/abi/stream/mod.rs"]
pub mod stream;

pub use self::layout::Field;
pub use self::number::Number;
