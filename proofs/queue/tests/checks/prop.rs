// SPDX-License-Identifier: GPL-2.0
//! proptest in a plain function: deterministic and shrinking. A failure prints the smallest input,
//! and is the panic of that input alone.

use proptest::strategy::Strategy;
use proptest::test_runner::Config;
use proptest::test_runner::RngAlgorithm;
use proptest::test_runner::TestError;
use proptest::test_runner::TestRng;
use proptest::test_runner::TestRunner;
use std::env::var_os;
use std::fmt::Debug;

/// How many characters of an input are printed.
const SHOWN: usize = 600;

/// Runs `body`, which panics if it does not hold, on `cases` values.
pub fn holds<S: Strategy>(cases: u32, strategy: S, body: impl Fn(S::Value)) {
    let config = Config {
        cases,
        failure_persistence: None,
        max_shrink_iters: 2000,
        ..Config::default()
    };
    let rng = TestRng::deterministic_rng(RngAlgorithm::ChaCha);
    let mut runner = TestRunner::new_with_rng(config, rng);
    let result = runner.run(&strategy, |value| {
        body(value);
        Ok(())
    });
    match result {
        Ok(()) => {}
        Err(TestError::Abort(why)) => panic!("{why}"),
        Err(TestError::Fail(why, input)) => {
            if var_os("QPAIR_QUIET").is_none() {
                eprintln!("the smallest input: {}", shown(&input));
            }
            // proptest has silenced the panics so far, of which there may be thousands.
            body(input);
            panic!("this input fails only after others: {why}");
        }
    }
}

/// The beginning of an input, or all of it.
fn shown(input: &impl Debug) -> String {
    let text = format!("{input:?}");
    let left = text.chars().count().saturating_sub(SHOWN);
    if left == 0 || var_os("QPAIR_WHOLE").is_some() {
        return text;
    }
    let some: String = text.chars().take(SHOWN).collect();
    format!("{some} [and {left} characters more: QPAIR_WHOLE=1 prints them]")
}
