// SPDX-License-Identifier: GPL-2.0
//! Replays the kept inputs of each target, and random ones.

use proofs_fuzz::TARGETS;
use qpair_testkit::with_seeds;
use std::path::Path;

/// The kept inputs of a target: lines of hexadecimal digits.
fn kept(target: &str) -> Vec<Vec<u8>> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("corpus/{target}.txt"));
    let text = std::fs::read_to_string(path).unwrap();
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let byte = |pair: &[u8]| {
        let digits = std::str::from_utf8(pair).unwrap();
        u8::from_str_radix(digits, 16).unwrap()
    };
    lines
        .map(|line| line.as_bytes().chunks(2).map(byte).collect())
        .collect()
}

#[test]
fn kept_inputs_break_nothing() {
    for (name, run) in TARGETS {
        let inputs = kept(name);
        assert!(!inputs.is_empty(), "{name}");
        for input in inputs {
            run(&input);
        }
    }
}

#[test]
fn random_inputs_break_nothing() {
    with_seeds("random_inputs_break_nothing", 50, |rng| {
        let count = rng.below(2000);
        let input: Vec<u8> = (0..count).map(|_| rng.odd() as u8).collect();
        for (_, run) in TARGETS {
            run(&input);
        }
    });
}
