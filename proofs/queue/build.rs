// SPDX-License-Identifier: GPL-2.0
//! Copies the rules with their wrong variants.

fn main() {
    let sources = [
        ("../../rust/queue", ""),
        ("../../qemu/model/src/rules", "rules"),
        ("../../tools/libqpair/src/flow.rs", "flow.rs"),
    ];
    proofs_instrument::instrument("mod.rs", &sources);
}
