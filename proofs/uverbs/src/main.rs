// SPDX-License-Identifier: GPL-2.0
//! Fuzzes the file and the doorbells of an RDMA device in a guest; `scripts/fuzz uverbs` runs it.
//!
//! ```text
//! fuzz-uverbs fuzz DEVICE SECONDS SEED
//! fuzz-uverbs replay DEVICE FILE TIMES
//! fuzz-uverbs reduce DEVICE FILE SECONDS
//! ```
//!
//! Inputs are lines of hexadecimal digits. `fuzz` begins with those of `start`, and writes those that
//! reach new code to `new`. `reduce` writes to `reduced` what of a file reaches code that the inputs
//! of `start` do not, without the calls that are not needed for that, and ends after SECONDS. All
//! write the last inputs to `last`. Status 3: an input has failed.

#[cfg(feature = "engine")]
mod engine;

mod call;
mod guest;
mod memory;
mod process;

use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{bail, Context as _, Result};

use call::RECORD;

/// The status of a failure.
const FAILED: u8 = 3;
/// Where the last inputs are.
const LAST: &str = "last";
/// Runs of an input that is made smaller, at most.
const TRIES: usize = 30;

/// The inputs of a file; none if there is no file.
fn inputs(path: &Path) -> Result<Vec<Vec<u8>>> {
    let text = match std::fs::read_to_string(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        text => text.with_context(|| path.display().to_string())?,
    };
    let byte = |pair: &[u8]| {
        let digits = std::str::from_utf8(pair).unwrap_or_default();
        u8::from_str_radix(digits, 16).with_context(|| format!("{digits:?} in {}", path.display()))
    };
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines
        .map(|line| line.trim().as_bytes().chunks(2).map(byte).collect())
        .collect()
}

fn replay(device: &str, path: &Path, times: u32) -> Result<Option<anyhow::Error>> {
    let all = inputs(path)?;
    let mut guest = guest::Guest::new(device, Path::new(LAST), times == 1)?;
    for (number, input) in all.iter().enumerate() {
        for _ in 0..times {
            if let Err(failure) = guest.run(input) {
                println!("input {number} failed");
                return Ok(Some(failure));
            }
        }
    }
    println!("{} inputs passed, {times} times each", all.len());
    Ok(None)
}

fn write_one(input: &[u8], file: &mut File) -> Result<()> {
    let digits: String = input.iter().map(|byte| format!("{byte:02x}")).collect();
    writeln!(file, "{digits}").context("an input")
}

/// Runs an input; returns the counters that it changes, of those that are `false`.
fn new_of(guest: &mut guest::Guest, input: &[u8], reached: &[bool]) -> Result<Vec<usize>> {
    guest.run(input)?;
    let changed = guest.changed.iter().zip(reached).enumerate();
    Ok(changed
        .filter(|(_, (changed, reached))| **changed != 0 && !**reached)
        .map(|(at, _)| at)
        .collect())
}

fn reduce(device: &str, path: &Path, seconds: u64) -> Result<()> {
    let (began, limit) = (Instant::now(), Duration::from_secs(seconds));
    let mut all = inputs(path)?;
    all.sort_by_key(Vec::len);
    // Not bounded: what an input reaches must not depend on the time.
    let mut guest = guest::Guest::new(device, Path::new(LAST), false)?;
    let mut reached = vec![false; guest.changed.len()];
    let mut into = OpenOptions::new()
        .create(true)
        .append(true)
        .open("reduced")?;
    for input in inputs(Path::new("start"))? {
        for at in new_of(&mut guest, &input, &reached)? {
            reached[at] = true;
        }
    }
    for mut input in all {
        if began.elapsed() > limit {
            println!("the time is over");
            break;
        }
        // What it reaches by chance does not count.
        let again = new_of(&mut guest, &input, &reached)?;
        let mut needed = new_of(&mut guest, &input, &reached)?;
        needed.retain(|at| again.contains(at));
        if needed.is_empty() {
            continue;
        }
        let (mut size, mut at, mut tries) = (input.len().div_ceil(RECORD) / 2, 0, 0);
        while size > 0 && tries < TRIES {
            let (from, to) = (at * RECORD, input.len().min((at + size) * RECORD));
            if from >= input.len() {
                (size, at) = (size / 2, 0);
                continue;
            }
            let fewer = [&input[..from], &input[to..]].concat();
            let new = new_of(&mut guest, &fewer, &reached)?;
            tries += 1;
            if needed.iter().all(|at| new.contains(at)) {
                input = fewer;
            } else {
                at += size;
            }
        }
        for at in needed {
            reached[at] = true;
        }
        write_one(&input, &mut into)?;
    }
    Ok(())
}

fn run() -> Result<Option<anyhow::Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words[..] {
        #[cfg(feature = "engine")]
        ["fuzz", device, seconds, seed] => engine::run(device, seconds.parse()?, seed.parse()?),
        ["replay", device, path, times] => replay(device, Path::new(path), times.parse()?),
        ["reduce", device, path, seconds] => {
            Ok(reduce(device, Path::new(path), seconds.parse()?).err())
        }
        _ => bail!("usage: fuzz-uverbs fuzz DEVICE SECONDS SEED | replay DEVICE FILE TIMES | reduce DEVICE FILE SECONDS"),
    }
}

fn main() -> ExitCode {
    match run() {
        Ok(None) => ExitCode::SUCCESS,
        Ok(Some(failure)) => {
            println!("failed: {failure:#}");
            ExitCode::from(FAILED)
        }
        Err(error) => {
            eprintln!("fuzz-uverbs: {error:#}");
            ExitCode::FAILURE
        }
    }
}
