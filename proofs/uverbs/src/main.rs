// SPDX-License-Identifier: GPL-2.0
//! Fuzzes the file and the doorbells of an RDMA device in a guest; `scripts/fuzz uverbs` runs it.
//!
//! ```text
//! fuzz-uverbs fuzz DEVICE SECONDS SEED
//! fuzz-uverbs replay DEVICE FILE TIMES
//! ```
//!
//! Inputs are lines of hexadecimal digits. `fuzz` begins with those of `start`, and writes those that
//! reach new code to `found`. Both write the last inputs to `last`. Status 3: an input has failed.

#[cfg(feature = "engine")]
mod engine;

mod call;
mod guest;
mod memory;
mod process;

use std::path::Path;
use std::process::ExitCode;

use anyhow::{bail, Context as _, Result};

/// The status of a failure.
const FAILED: u8 = 3;
/// Where the last inputs are.
const LAST: &str = "last";

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

fn run() -> Result<Option<anyhow::Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words[..] {
        #[cfg(feature = "engine")]
        ["fuzz", device, seconds, seed] => engine::run(device, seconds.parse()?, seed.parse()?),
        ["replay", device, path, times] => replay(device, Path::new(path), times.parse()?),
        _ => bail!("usage: fuzz-uverbs fuzz DEVICE SECONDS SEED | replay DEVICE FILE TIMES"),
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
