// SPDX-License-Identifier: GPL-2.0

//! Waiting.

pub mod completion;
