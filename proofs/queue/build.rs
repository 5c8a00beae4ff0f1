// SPDX-License-Identifier: GPL-2.0
//! Copies the rules and decisions with their wrong variants.

fn main() {
    let sources = [
        ("../../rust/queue", ""),
        ("../../rust/policy", "policy"),
        ("../../qemu/model/src/rules", "rules"),
        ("../../rust/kernel/rdma/unread.rs", "unread.rs"),
        ("../../tools/libqpair/src/flow.rs", "flow.rs"),
    ];
    proofs_instrument::instrument("mod.rs", &sources);
}
