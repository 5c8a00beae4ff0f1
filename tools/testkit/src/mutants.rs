// SPDX-License-Identifier: GPL-2.0
//! Runs a suite under each wrong variant, and fails unless each is caught. Variants are per
//! thread, so there is a worker for each CPU.

use crate::Check;
use std::any::Any;
use std::fmt::Debug;
use std::num::NonZero;
use std::panic::catch_unwind;
use std::panic::set_hook;
use std::process::ExitCode;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::channel;
use std::sync::mpsc::RecvTimeoutError;
use std::thread::available_parallelism;
use std::thread::scope;
use std::thread::spawn;
use std::time::Duration;

/// A wrong variant may also hang, which counts as caught.
const PATIENCE: Duration = Duration::from_secs(60);

/// A suite, and the wrong variants that it has to catch.
#[derive(Debug)]
pub struct Suite<M: 'static> {
    /// The wrong variants, each of which a check has to catch.
    pub variants: &'static [M],
    /// What is wrong with a variant.
    pub what: fn(M) -> &'static str,
    /// The check that catches a variant, if its table names one.
    pub by: fn(M) -> Option<&'static str>,
    /// Whether a variant applies to the sources as they are.
    pub applies: fn(M) -> bool,
    /// Makes this thread run a wrong variant, or the right one.
    pub activate: fn(Option<M>),
    /// The checks; first those whose failures are the most specific.
    pub checks: Vec<Check>,
}

fn text(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    let text = text.or(panic.downcast_ref::<&str>().copied());
    let text = text.unwrap_or("panicked");
    let text = text.replace("assertion `left == right` failed", "");
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let text = text.trim_start_matches([':', ' ']);
    text.chars().take(70).collect()
}

impl<M: Copy + Debug + Send + Sync> Suite<M> {
    /// Runs all variants. A name as argument runs only that variant, and prints what each check
    /// says.
    pub fn run(&self) -> ExitCode {
        set_hook(Box::new(|_| {}));
        std::env::set_var("QPAIR_QUIET", "1");
        let only = std::env::args()
            .nth(1)
            .filter(|name| !name.starts_with('-'));
        let (mut caught, mut failed) = (0, 0);
        for &(name, check) in &self.checks {
            if let Some(said) = self.verdict(None, check) {
                println!("test {name} ... FAILED\n     without any mutant: {said}");
                failed += 1;
            }
        }
        let wanted = |variant: &M| {
            only.as_ref()
                .is_none_or(|name| *name == format!("{variant:?}"))
        };
        let next = AtomicUsize::new(0);
        let worker = || {
            let mut hunted = Vec::new();
            loop {
                let at = next.fetch_add(1, Relaxed);
                match self.variants.get(at) {
                    Some(&variant) if wanted(&variant) => {
                        hunted.push((at, variant, self.hunt(variant, only.is_some())));
                    }
                    Some(_) => {}
                    None => return hunted,
                }
            }
        };
        let workers = available_parallelism().map_or(1, NonZero::get);
        let mut hunted: Vec<_> = scope(|scope| {
            let workers: Vec<_> = (0..workers).map(|_| scope.spawn(worker)).collect();
            let workers = workers.into_iter();
            workers
                .flat_map(|worker| worker.join().expect("no panic"))
                .collect()
        });
        hunted.sort_by_key(|&(at, ..)| at);
        for (_, variant, found) in hunted {
            let (what, by) = ((self.what)(variant), (self.by)(variant));
            match found {
                _ if !(self.applies)(variant) => {
                    println!("test mutants::{variant:?} ... FAILED");
                    println!(
                        "     {what}: its line has changed, and its entry in wrong.toml has not"
                    );
                    failed += 1;
                }
                Some((check, said)) if only.is_none() && by.is_some_and(|by| by != check) => {
                    println!("test mutants::{variant:?} ... FAILED");
                    println!("     {what}: caught by {check} ({said}), which its `by` has to name");
                    failed += 1;
                }
                Some((check, said)) => {
                    println!("test mutants::{variant:?} ... ok");
                    println!("     {what}: caught by {check} ({said})");
                    caught += 1;
                }
                None => {
                    println!("test mutants::{variant:?} ... FAILED\n     {what}: not caught");
                    failed += 1;
                }
            }
        }
        let result = if failed == 0 { "ok" } else { "FAILED" };
        println!("test result: {result}. {caught} passed; {failed} failed; 0 ignored");
        ExitCode::from(u8::from(failed != 0))
    }

    /// The message of the check, if it failed.
    fn verdict(&self, variant: Option<M>, check: fn()) -> Option<String> {
        let activate = self.activate;
        let (tell, told) = channel();
        spawn(move || {
            activate(variant);
            let result = catch_unwind(check).map_err(|panic| text(&*panic));
            let _ = tell.send(result);
        });
        match told.recv_timeout(PATIENCE) {
            Ok(Ok(())) => None,
            Ok(Err(text)) => Some(text),
            Err(RecvTimeoutError::Timeout) => Some("did not end".into()),
            Err(RecvTimeoutError::Disconnected) => Some("died".into()),
        }
    }

    /// The first check that catches it, and its message: that which its table names, then the others.
    /// With `tell` all checks run, and the message of each is printed.
    fn hunt(&self, variant: M, tell: bool) -> Option<(&'static str, String)> {
        let mut first = None;
        let by = (self.by)(variant).filter(|_| !tell);
        let mut checks = self.checks.clone();
        checks.sort_by_key(|&(check, _)| by != Some(check));
        for (check, run) in checks {
            if let Some(said) = self.verdict(Some(variant), run) {
                if !tell {
                    return Some((check, said));
                }
                println!("     {check}: {said}");
                first = first.or(Some((check, said)));
            }
        }
        first
    }
}

/// The `main` of a test that runs checks under each wrong variant of a crate: the path of its
/// `mutant`, and the checks.
#[macro_export]
macro_rules! run_variants {
    ($mutant:path, $checks:expr) => {
        fn main() -> ::std::process::ExitCode {
            use $mutant as mutant;
            let suite = $crate::Suite {
                variants: mutant::Mutant::ALL,
                what: mutant::Mutant::what,
                by: mutant::Mutant::by,
                applies: mutant::Mutant::applies,
                activate: mutant::activate,
                checks: $checks.collect(),
            };
            suite.run()
        }
    };
}

/// Declares the wrong variants of a crate, and the one that a thread has activated.
#[macro_export]
macro_rules! variants {
    ($($name:ident: $what:literal, $by:expr, $applies:literal,)*) => {
        /// A wrong variant of the sources: one rule is broken.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Mutant { $(#[doc = $what] $name,)* }

        impl Mutant {
            /// All wrong variants, in the order of their table.
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];

            /// What is wrong with this variant.
            pub const fn what(self) -> &'static str {
                match self { $(Self::$name => $what,)* }
            }

            /// The check that catches it, if the table names one.
            pub const fn by(self) -> Option<&'static str> {
                match self { $(Self::$name => $by,)* }
            }

            /// Whether its place is in the sources as they are.
            pub const fn applies(self) -> bool {
                match self { $(Self::$name => $applies,)* }
            }
        }

        ::std::thread_local! {
            static ACTIVE: ::std::cell::Cell<Option<Mutant>> = const { ::std::cell::Cell::new(None) };
        }

        /// Whether this thread runs `mutant`.
        pub fn is_active(mutant: Mutant) -> bool {
            ACTIVE.with(|active| active.get() == Some(mutant))
        }

        /// Makes this thread run `mutant`, or the sources as they are.
        pub fn activate(mutant: Option<Mutant>) {
            ACTIVE.with(|active| active.set(mutant));
        }
    };
}
