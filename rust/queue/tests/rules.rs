// SPDX-License-Identifier: GPL-2.0
//! Runs the suite. One test for each check.

#![allow(unreachable_pub)]

mod checks;

use std::panic::catch_unwind;

#[test]
fn every_check_passes() {
    let mut failed = 0;
    for (name, check) in checks::all() {
        let ok = catch_unwind(check).is_ok();
        println!("{} {name}", if ok { "ok    " } else { "FAILED" });
        failed += u32::from(!ok);
    }
    assert_eq!(failed, 0);
}
