// SPDX-License-Identifier: GPL-2.0
//! Runs the module's KUnit suite on the host.

use super::checks;

checks![the_modules_own_tests_pass];

fn the_modules_own_tests_pass() {
    for (name, test) in qpair_queue::selftest::ALL {
        assert_eq!(test(), Ok(()), "{name}");
    }
}
