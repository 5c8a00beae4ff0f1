// SPDX-License-Identifier: GPL-2.0
//! Copies `rust/queue` with its wrong variants.

fn main() {
    proofs_instrument::instrument("../../rust/queue", "mod.rs");
}
