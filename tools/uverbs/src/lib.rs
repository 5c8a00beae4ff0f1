// SPDX-License-Identifier: GPL-2.0
//! The commands of `/dev/infiniband/uverbsN`, for the library and for the tests.
//!
//! A command has a core part, which the RDMA core reads and answers, and a part of the driver. Both
//! go by one ioctl, `RDMA_VERBS_IOCTL`, in the form that invokes a command of `write()`. Unlike
//! `write()` it does not depend on the credentials with which the file was opened.
//!
//! | file | has |
//! |---|---|
//! | [`abi`] | structures and constants of the kernel's headers |
//! | [`command`] | [`Command`] |

pub mod abi;
pub mod command;

pub use command::{bytes_of, open_events, Command};
