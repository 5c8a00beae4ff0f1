// SPDX-License-Identifier: GPL-2.0
//! Results, for people and as JSON.

use std::fmt::Write as _;
use std::io::Write as _;
use std::time::Duration;

use anyhow::Context as _;
use indicatif::{BinaryBytes, HumanCount, ProgressBar, ProgressStyle};
use qpair::{Counter, Counters};
use serde_json::{Map, Value};

/// Writes a report to standard output.
pub(crate) fn print(text: &str) -> anyhow::Result<()> {
    std::io::stdout()
        .write_all(text.as_bytes())
        .context("cannot write the report")
}

/// A JSON value on lines of its own.
pub(crate) fn json(value: &Value) -> String {
    format!("{value:#}\n")
}

/// All counters, by the names that QMP has too.
pub(crate) fn counters_json(counters: &Counters) -> Value {
    let map: Map<String, Value> = counters
        .iter()
        .map(|(counter, value)| (counter.name().to_owned(), value.into()))
        .collect();
    Value::Object(map)
}

/// A table of the counters that are not 0; those of `always` in any case.
pub(crate) fn counters(counters: &Counters, always: &[Counter]) -> String {
    let mut out = String::new();
    for (counter, value) in counters.iter() {
        if value != 0 || always.contains(&counter) {
            let _ = writeln!(
                out,
                "  {:>15}  {}",
                HumanCount(value).to_string(),
                counter.text()
            );
        }
    }
    out
}

/// `amount` in `time`, a second.
pub(crate) fn rate(amount: u64, time: Duration) -> f64 {
    amount as f64 / time.as_secs_f64().max(1e-9)
}

/// Bytes a second, as "12.3 MiB/s".
pub(crate) fn bytes_a_second(bytes: u64, time: Duration) -> String {
    format!("{}/s", BinaryBytes(rate(bytes, time) as u64))
}

/// A bar on standard error, if that is a terminal.
pub(crate) fn progress(bytes: Option<u64>) -> ProgressBar {
    const KNOWN: &str =
        "{bar:32} {percent:>3}%  {binary_bytes} of {binary_total_bytes}  {binary_bytes_per_sec}  {eta} left";
    const UNKNOWN: &str = "{spinner} {binary_bytes}  {binary_bytes_per_sec}  {elapsed}";
    let (bar, template) = match bytes {
        Some(bytes) => (ProgressBar::new(bytes), KNOWN),
        None => (ProgressBar::new_spinner(), UNKNOWN),
    };
    match ProgressStyle::with_template(template) {
        Ok(style) => bar.with_style(style),
        Err(_) => bar,
    }
}
