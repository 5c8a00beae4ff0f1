// SPDX-License-Identifier: GPL-2.0
//! proptest in a plain function: deterministic, shrinking, and the smallest failing input in the
//! message.

use proptest::strategy::Strategy;
use proptest::test_runner::Config;
use proptest::test_runner::RngAlgorithm;
use proptest::test_runner::TestRng;
use proptest::test_runner::TestRunner;

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
    if let Err(error) = result {
        panic!("{error}");
    }
}
