// SPDX-License-Identifier: GPL-2.0
//! Runs the suite: each check is a test.

#![allow(dead_code, unreachable_pub)]

extern crate proofs_queue as qpair;
extern crate proofs_queue as qpair_model;
extern crate proofs_queue as qpair_queue;

mod checks;

use checks::prop::holds;
use proptest::collection::vec;
use std::env::current_exe;
use std::env::var_os;
use std::process::Command;

const FAILS: &str = "QPAIR_FAILS";

#[test]
fn a_failure_is_short() {
    if var_os(FAILS).is_some() {
        return holds(10, vec(1000..2000u32, 1000..2000), |_| {
            panic!("it is broken")
        });
    }
    let said = |whole: &str| {
        let mut test = Command::new(current_exe().expect("a path"));
        test.args(["a_failure_is_short", "--nocapture"]);
        for unset in ["QPAIR_QUIET", "QPAIR_WHOLE", "RUST_BACKTRACE"] {
            test.env_remove(unset);
        }
        let ended = test
            .envs([(FAILS, ""), (whole, "")])
            .output()
            .expect("a test");
        String::from_utf8(ended.stderr).expect("UTF-8")
    };
    let (short, whole) = (said("QPAIR_NONE"), said("QPAIR_WHOLE"));
    for said in [&short, &whole] {
        assert_eq!(said.matches("it is broken").count(), 1, "{said}");
        assert_eq!(said.matches("the smallest input: [1000, 1000").count(), 1);
    }
    assert!(short.contains(" characters more: QPAIR_WHOLE=1 prints them]"));
    let longest = |said: &str| said.lines().map(str::len).max();
    assert!(longest(&short) < Some(1000) && longest(&whole) > Some(1000 * 6));
}
