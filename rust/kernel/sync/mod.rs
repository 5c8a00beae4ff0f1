// SPDX-License-Identifier: GPL-2.0

//! Waiting and mutual exclusion.

pub mod busy;
pub mod completion;
pub mod wait;
