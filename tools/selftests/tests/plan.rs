// SPDX-License-Identifier: GPL-2.0
//! `plan.toml` names existing cases, and has their right number.

use std::collections::BTreeMap;
use std::collections::BTreeSet;

use anyhow::Context as _;
use anyhow::Result;
use qpair_selftests::select;
use qpair_selftests::GROUPS;
use serde::Deserialize;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Plan {
    guests: BTreeMap<String, Vec<String>>,
    test: Vec<Test>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Test {
    name: String,
    command: Vec<String>,
    tests: usize,
    kernels: Vec<String>,
    guests: Vec<String>,
    timeout: u64,
    #[serde(default)]
    left: Vec<String>,
    #[serde(default, rename = "alone")]
    _alone: bool,
}

fn plan() -> Result<Plan> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/plan.toml");
    toml::from_str(&std::fs::read_to_string(path)?).context("plan.toml")
}

#[test]
fn every_test_names_what_there_is() -> Result<()> {
    let plan = plan()?;
    let mut names = BTreeSet::new();
    for test in &plan.test {
        assert!(names.insert(&test.name), "{} is there twice", test.name);
        for guest in &test.guests {
            assert!(
                plan.guests.contains_key(guest),
                "{}: no guest {guest}",
                test.name
            );
        }
        for kernel in &test.kernels {
            assert!(
                ["stock", "test", "debug"].contains(&kernel.as_str()),
                "{}: no kernel {kernel}",
                test.name
            );
        }
        for left in &test.left {
            let (kernel, guest) = left.split_once('.').context("KERNEL.GUEST")?;
            assert!(
                test.kernels.iter().any(|it| it == kernel)
                    && test.guests.iter().any(|it| it == guest),
                "{}: {left} does not run anyway",
                test.name
            );
        }
        assert!(
            test.timeout > 0 && !test.kernels.is_empty() && !test.guests.is_empty(),
            "{}",
            test.name
        );
        let selectors = test.command[1..].to_vec();
        let cases = select(&selectors).with_context(|| test.name.clone())?;
        assert_eq!(test.tests, cases.len(), "{}", test.name);
    }
    Ok(())
}

/// The tests that only `make test-all` runs in a guest run in another one of CI: on the stock kernel
/// with `make test`, or on the debug kernel. The test kernel's guests may be skipped.
#[test]
fn every_case_runs_somewhere() -> Result<()> {
    let mut planned = BTreeSet::new();
    for test in plan()?.test {
        let runs = ["stock", "debug"].iter().any(|kernel| {
            test.kernels.iter().any(|it| it == kernel)
                && test
                    .guests
                    .iter()
                    .any(|guest| !test.left.contains(&format!("{kernel}.{guest}")))
        });
        if !runs {
            continue;
        }
        let selectors = test.command[1..].to_vec();
        planned.extend(
            select(&selectors)?
                .into_iter()
                .map(|(group, case)| (group.name, case.name)),
        );
    }
    for group in GROUPS {
        for case in group.cases {
            assert!(
                planned.contains(&(group.name, case.name)),
                "{}/{} runs nowhere",
                group.name,
                case.name
            );
        }
    }
    Ok(())
}

#[test]
fn names_are_unique() {
    let mut names = BTreeSet::new();
    for group in GROUPS {
        for case in group.cases {
            assert!(
                names.insert((group.name, case.name)),
                "{}/{} is there twice",
                group.name,
                case.name
            );
        }
    }
}
