// SPDX-License-Identifier: GPL-2.0
//! The function of channels.

pub mod chains;
pub mod hostile;
pub mod ladder;
pub mod peers;
pub mod rings;

use super::checks;
