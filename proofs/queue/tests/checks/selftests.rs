// SPDX-License-Identifier: GPL-2.0
//! Runs the KUnit suites of the modules on the host.

use super::checks;
use qpair_queue::selftest;
use qpair_queue::selftest_ladder;

checks![the_modules_own_tests_pass];

fn the_modules_own_tests_pass() {
    for (name, test) in [selftest::ALL, selftest_ladder::ALL].concat() {
        assert_eq!(test(), Ok(()), "{name}");
    }
}
