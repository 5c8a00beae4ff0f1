// SPDX-License-Identifier: GPL-2.0

//! The control path: what is done by admin commands, in process context.
//!
//! | file | does |
//! |---|---|
//! | [`qp`] | creates, connects and destroys queue pairs of the kernel |
//! | [`mr`] | memory regions of the kernel, protection domains |

pub(crate) mod mr;
pub(crate) mod qp;
