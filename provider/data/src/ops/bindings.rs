// SPDX-License-Identifier: GPL-2.0
//! The structures of libibverbs that operations access, generated when the provider is built.

#![allow(
    clippy::all,
    dead_code,
    missing_docs,
    non_camel_case_types,
    non_upper_case_globals,
    unreachable_pub
)]

include!(env!("QPAIR_VERBS_BINDINGS"));
