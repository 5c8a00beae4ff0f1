// SPDX-License-Identifier: GPL-2.0
//! The target `device`: software that does anything with queue pairs and the device that has them.
//!
//! The bytes choose what `qemu/model/tests/harness/anything.rs` does in each step, as random numbers
//! do in its check: nothing panics, the device becomes idle, maps no memory after a reset, and works
//! again then. The engine bounds memory and time.

use crate::harness::Anything;
use qpair_testkit::Rng;

/// Runs a program.
pub fn run(bytes: &[u8]) {
    let mut rng = Rng::of(bytes);
    let mut world = Anything::new(&mut rng);
    while !rng.is_spent() {
        world.step(&mut rng);
    }
    world.works();
}
