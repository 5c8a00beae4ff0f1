// SPDX-License-Identifier: GPL-2.0
//! The target `device`: software that does anything with queue pairs and the device that has them.
//!
//! The bytes choose what `qemu/model/tests/harness/anything.rs` does in each step, as random numbers
//! do in its check: nothing panics, each call does a bounded amount of work, the device becomes idle,
//! memory that no key allows is not accessed, and after a reset the device is quiet and works again.
//! The engine bounds memory and time.

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
