// SPDX-License-Identifier: GPL-2.0
//! Copies the transport with its wrong variants.

fn main() {
    proofs_instrument::instrument("lib.rs", &[("../../qemu/roce/src", "")]);
}
