// SPDX-License-Identifier: GPL-2.0
//! Runs the suite under each wrong variant, and fails unless each is caught. Variants are per
//! thread, so there is a worker for each CPU.
//!
//! A name as argument runs only that variant, under every check.

#![allow(unreachable_pub)]

mod checks;

use qpair_queue::mutant::activate;
use qpair_queue::mutant::Mutant;
use std::any::Any;
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

fn text(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    let text = text.or(panic.downcast_ref::<&str>().copied());
    let text = text.unwrap_or("panicked");
    let text = text.replace("assertion `left == right` failed", "");
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let text = text.trim_start_matches([':', ' ']);
    text.chars().take(70).collect()
}

/// The message of the check, if it failed.
fn verdict(mutant: Option<Mutant>, check: fn()) -> Option<String> {
    let (tell, told) = channel();
    spawn(move || {
        activate(mutant);
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

/// The checks that caught it, and the message of the first.
fn hunt(mutant: Mutant, all_said: bool) -> (Vec<&'static str>, String) {
    let mut by = Vec::new();
    let mut first = String::new();
    for (check, run) in checks::all() {
        if let Some(said) = verdict(Some(mutant), run) {
            if all_said {
                println!("     {check}: {said}");
            }
            if by.is_empty() {
                first = said;
            }
            by.push(check);
        }
    }
    (by, first)
}

fn main() -> ExitCode {
    set_hook(Box::new(|_| {}));
    std::env::set_var("QPAIR_QUIET", "1");
    let only = std::env::args()
        .nth(1)
        .filter(|name| !name.starts_with('-'));
    let (mut caught, mut failed) = (0, 0);
    for (name, check) in checks::all() {
        if let Some(said) = verdict(None, check) {
            println!("test {name} ... FAILED\n     without any mutant: {said}");
            failed += 1;
        }
    }
    let wanted = |mutant: &&Mutant| {
        only.as_ref()
            .is_none_or(|only| *only == format!("{mutant:?}"))
    };
    let all: Vec<Mutant> = Mutant::ALL.iter().filter(wanted).copied().collect();
    let next = AtomicUsize::new(0);
    let worker = || {
        let mut hunted = Vec::new();
        while let Some(&mutant) = all.get(next.fetch_add(1, Relaxed)) {
            hunted.push((mutant, hunt(mutant, only.is_some())));
        }
        hunted
    };
    let workers = available_parallelism().map_or(1, NonZero::get);
    let mut hunted: Vec<_> = scope(|scope| {
        let workers: Vec<_> = (0..workers).map(|_| scope.spawn(worker)).collect();
        let workers = workers.into_iter();
        workers
            .flat_map(|worker| worker.join().expect("no panic"))
            .collect()
    });
    hunted.sort_by_key(|&(mutant, _)| mutant as usize);
    for (mutant, (by, said)) in hunted {
        let what = mutant.what();
        match by.split_first() {
            Some((check, others)) => {
                println!("test mutants::{mutant:?} ... ok");
                println!(
                    "     {what}: caught by {check} ({said}) and {} more",
                    others.len()
                );
                caught += 1;
            }
            None => {
                println!("test mutants::{mutant:?} ... FAILED\n     {what}: not caught");
                failed += 1;
            }
        }
    }
    let result = if failed == 0 { "ok" } else { "FAILED" };
    println!("test result: {result}. {caught} passed; {failed} failed; 0 ignored");
    ExitCode::from(u8::from(failed != 0))
}
