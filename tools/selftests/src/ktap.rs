// SPDX-License-Identifier: GPL-2.0
//! Cases and their groups, skipped cases, and diagnostics in KTAP.

use anyhow::anyhow;
use anyhow::Result;

/// Exit status of a run in which nothing failed and something was skipped.
pub const SKIPPED: i32 = 4;

/// The argument of a case.
pub struct Setup {
    /// Seed of this case's random numbers.
    pub seed: u64,
}

impl Setup {
    /// Random numbers, the same for the same seed.
    pub fn rng(&self) -> fastrand::Rng {
        fastrand::Rng::with_seed(self.seed)
    }
}

/// A test: a function that fails with an error, or is skipped by [`skip`].
pub struct Case {
    /// The second part of a selector.
    pub name: &'static str,
    /// Runs in a process of its own.
    pub run: fn(&Setup) -> Result<()>,
    /// Its time limit, as a multiple of `wait::patience`.
    pub patience: u32,
}

/// Cases that a selector names together, and that need the same kind of guest.
pub struct Group {
    /// The first part of a selector.
    pub name: &'static str,
    /// Its cases, in the order in which they run.
    pub cases: &'static [Case],
}

impl Group {
    /// The cases of a selector, `GROUP` or `GROUP/CASE`.
    pub fn selected(&self, selector: &str) -> Vec<&Case> {
        let (group, case) = match selector.split_once('/') {
            Some((group, case)) => (group, Some(case)),
            None => (selector, None),
        };
        self.cases
            .iter()
            .filter(|it| group == self.name && case.is_none_or(|case| case == it.name))
            .collect()
    }
}

/// Makes the cases of a group from functions: `cases![file::one, file::other * 10]`, where
/// `* 10` extends the time limit.
macro_rules! cases {
    ($( $module:ident :: $name:ident $(* $patience:literal)? ),* $(,)?) => {
        &[$( $crate::ktap::Case {
            name: stringify!($name),
            run: $module::$name,
            patience: 4 $(* $patience)?,
        } ),*]
    };
}
pub(crate) use cases;

/// Not a failure: the case cannot run here.
#[derive(Debug)]
struct Skip(String);

impl std::fmt::Display for Skip {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Skip {}

/// The case cannot run here.
pub fn skip(reason: impl Into<String>) -> anyhow::Error {
    anyhow!(Skip(reason.into()))
}

/// The reason, if the case was skipped.
pub fn skipped(error: &anyhow::Error) -> Option<String> {
    error.downcast_ref::<Skip>().map(|skip| skip.0.clone())
}

/// Prints a diagnostic: every line as a comment.
pub fn say(text: &str) {
    for line in text.lines() {
        println!("# {line}");
    }
}
