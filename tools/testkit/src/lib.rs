// SPDX-License-Identifier: GPL-2.0
//! What the suites of `rust/queue` and `qemu/model` share. Only tests depend on this crate.
//!
//! The crate depends on no other. If it depended on the rules, a change of a rule would build this
//! crate again too, and once for each set of the rules' features.

mod mutants;
mod rng;

pub use mutants::Suite;
pub use rng::number;
pub use rng::with_seeds;
pub use rng::Rng;

/// A check, by name: a plain function that panics if something does not hold.
pub type Check = (&'static str, fn());

/// Lists functions as checks, each of which is a test of its own as well.
#[macro_export]
macro_rules! checks {
    ($($name:ident),* $(,)?) => {
        pub const CHECKS: &[$crate::Check] = &[$((stringify!($name), $name as fn()),)*];

        #[cfg(test)]
        mod each {
            $(
                #[test]
                fn $name() {
                    super::$name();
                }
            )*
        }
    };
}
