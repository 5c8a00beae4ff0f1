// SPDX-License-Identifier: GPL-2.0

//! The KUnit suite of the module: the rules of its rings, as that of the module `qpair` has those
//! of queue pairs.

use crate::queue::{
    outcome,
    selftest_ladder, //
};
use kernel::prelude::*;

// The macro writes the C side of the suite.
#[allow(unsafe_code)]
#[kunit_tests(qpair_stream_rules)]
mod rules {
    use super::outcome::Outcome;
    use super::selftest_ladder;

    #[test]
    fn chains() -> Outcome {
        selftest_ladder::chains()
    }

    #[test]
    fn rings() -> Outcome {
        selftest_ladder::rings()
    }
}
