// SPDX-License-Identifier: GPL-2.0

//! What the kernel crate lacks of `kernel::sync`.

mod completion;

pub use completion::Completion;
