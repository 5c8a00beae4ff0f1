// SPDX-License-Identifier: GPL-2.0
//! Runs the suite under each wrong variant, and demands that each is caught.
//!
//! A name as argument runs that one only, under every check.

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

/// A wrong variant may also never end, which is a way of being caught.
const PATIENCE: Duration = Duration::from_secs(60);

fn text(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    let text = text.or(panic.downcast_ref::<&str>().copied());
    let line = text.unwrap_or("panicked").replace('\n', " ");
    line.chars().take(90).collect()
}

/// What the check said, if it failed.
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

fn main() -> ExitCode {
    set_hook(Box::new(|_| {}));
    std::env::set_var("QPAIR_QUIET", "1");
    let only = std::env::args()
        .nth(1)
        .filter(|name| !name.starts_with('-'));
    let (mut caught, mut failed) = (0, 0);
    for (name, check) in checks::all() {
        if let Some(said) = verdict(None, check) {
            println!("FAILED  {name} without any mutant: {said}");
            failed += 1;
        }
    }
    for &mutant in Mutant::ALL {
        let name = format!("{mutant:?}");
        if only.as_ref().is_some_and(|only| *only != name) {
            continue;
        }
        let mut by: Vec<&str> = Vec::new();
        let mut first = String::new();
        for (check, run) in checks::all() {
            if let Some(said) = verdict(Some(mutant), run) {
                if only.is_some() {
                    println!("        {check}: {said}");
                }
                if by.is_empty() {
                    first = said;
                }
                by.push(check);
            }
        }
        let what = mutant.what();
        if let [check, others @ ..] = &by[..] {
            println!("caught  {name}: {what}\n        by {check}: {first}");
            if !others.is_empty() {
                println!("        and by {}", others.join(", "));
            }
            caught += 1;
        } else {
            println!("MISSED  {name}: {what}");
            failed += 1;
        }
    }
    println!("{caught} mutants caught, {failed} failed");
    if failed == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}
