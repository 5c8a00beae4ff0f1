// SPDX-License-Identifier: GPL-2.0

//! The rules of the function's rings, from `rust/queue`.

#[path = "../rust/queue/chain.rs"]
pub mod chain;
#[path = "../rust/queue/credit.rs"]
pub mod credit;
#[path = "../rust/queue/descriptors.rs"]
pub mod descriptors;
#[path = "../rust/queue/headtail.rs"]
pub mod headtail;
#[path = "../rust/queue/index.rs"]
pub mod index;
#[path = "../rust/queue/storage.rs"]
pub mod storage;
