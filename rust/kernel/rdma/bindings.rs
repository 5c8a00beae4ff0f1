// SPDX-License-Identifier: GPL-2.0

//! The bindings of the RDMA headers, made when the module is built. In the kernel's tree they are
//! those of the kernel crate.

#![allow(
    clippy::all,
    clippy::cast_lossless,
    clippy::ptr_as_ptr,
    clippy::ref_as_ptr,
    clippy::undocumented_unsafe_blocks,
    dead_code,
    improper_ctypes,
    missing_docs,
    non_camel_case_types,
    non_snake_case,
    non_upper_case_globals,
    unreachable_pub,
    unsafe_op_in_unsafe_fn,
    unused_imports
)]

use kernel::{
    bindings::*,
    ffi, //
};
use pin_init::MaybeZeroable;

include!(env!("QPAIR_RDMA_BINDINGS"));
