// SPDX-License-Identifier: GPL-2.0

//! The module's KUnit suite.
//!
//! The rules of [`queue`](crate::queue) are tested much harder on the host. Here their tables run
//! with the kernel's own compiler, flags and overflow checks, on the machine that the module is
//! for.

use crate::queue::{
    outcome,
    selftest, //
};
use kernel::prelude::*;

// The macro writes the C side of the suite.
#[allow(unsafe_code)]
#[kunit_tests(qpair_rules)]
mod rules {
    use super::outcome::Outcome;
    use super::selftest;

    #[test]
    fn depths() -> Outcome {
        selftest::depths()
    }

    #[test]
    fn owner_bits() -> Outcome {
        selftest::owner_bits()
    }

    #[test]
    fn windows() -> Outcome {
        selftest::windows()
    }

    #[test]
    fn slots() -> Outcome {
        selftest::slots()
    }

    #[test]
    fn channel_next() -> Outcome {
        selftest::channel_next()
    }

    #[test]
    fn channel_solicited() -> Outcome {
        selftest::channel_solicited()
    }

    #[test]
    fn channel_user() -> Outcome {
        selftest::channel_user()
    }

    #[test]
    fn interrupt() -> Outcome {
        selftest::interrupt()
    }

    #[test]
    fn moderation() -> Outcome {
        selftest::moderation()
    }

    #[test]
    fn notices() -> Outcome {
        selftest::notices()
    }

    #[test]
    fn page_sizes() -> Outcome {
        selftest::page_sizes()
    }

    #[test]
    fn page_walk() -> Outcome {
        selftest::page_walk()
    }

    #[test]
    fn flow() -> Outcome {
        selftest::flow()
    }
}
