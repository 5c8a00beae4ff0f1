// SPDX-License-Identifier: GPL-2.0
//! Runs the suite under each wrong variant, and fails unless each is caught.
//!
//! A name as argument runs only that variant, under every check.

#![allow(dead_code, unreachable_pub)]

mod checks;
mod harness;

use qpair_model::mutant::activate;
use qpair_model::mutant::Mutant;
use std::any::Any;
use std::panic::catch_unwind;
use std::panic::set_hook;
use std::process::ExitCode;
use std::sync::mpsc::channel;
use std::sync::mpsc::RecvTimeoutError;
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

/// The check that caught it, and its message. If `told`, all checks are run and printed.
fn hunt(mutant: Mutant, told: bool) -> Option<(&'static str, String)> {
    let mut first = None;
    for (check, run) in checks::all() {
        if let Some(said) = verdict(Some(mutant), run) {
            if told {
                println!("     {check}: {said}");
            }
            first.get_or_insert((check, said));
            if !told {
                break;
            }
        }
    }
    first
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
    for &mutant in Mutant::ALL {
        let name = format!("{mutant:?}");
        if only.as_ref().is_some_and(|only| *only != name) {
            continue;
        }
        let what = mutant.what();
        if let Some((check, said)) = hunt(mutant, only.is_some()) {
            println!("test mutants::{name} ... ok\n     {what}: caught by {check} ({said})");
            caught += 1;
        } else {
            println!("test mutants::{name} ... FAILED\n     {what}: not caught");
            failed += 1;
        }
    }
    let result = if failed == 0 { "ok" } else { "FAILED" };
    println!("test result: {result}. {caught} passed; {failed} failed; 0 ignored");
    ExitCode::from(u8::from(failed != 0))
}
