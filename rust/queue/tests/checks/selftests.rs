// SPDX-License-Identifier: GPL-2.0
//! What the module's KUnit suite runs, here.

use super::checks;

checks![the_modules_own_tests_pass];

fn the_modules_own_tests_pass() {
    for (name, test) in qpair_queue::selftest::ALL {
        assert_eq!(test(), Ok(()), "{name}");
    }
}
