// SPDX-License-Identifier: GPL-2.0
//! `qpair loopback`: the kernel's own clients, of queue pairs and of channels.
//!
//! They are driven through debugfs: a line of `key=value` is written, which returns when the run is
//! over, and a line of the same form is read back.

use std::collections::BTreeMap;
use std::fs;
use std::io::ErrorKind;
use std::path::Path;
use std::time::Duration;

use anyhow::{bail, Context as _};
use serde_json::{Map, Value};

use crate::args::{Loopback, Rung};
use crate::debugfs;
use crate::report;

/// The control file.
const FILE: &str = "loopback";
/// Bytes of a message, unless the command line says otherwise.
const MESSAGE: u32 = 4096;
/// Bytes of a frame, likewise.
const FRAME: u32 = 64;

pub(crate) fn run(device: Option<&str>, args: &Loopback) -> anyhow::Result<()> {
    match args.kind {
        Rung::Pair => queue_pairs(device, args),
        _ => channels(args),
    }
}

/// Writes a plan to the control file, and reads the report.
fn execute(file: &Path, plan: &str) -> anyhow::Result<(std::io::Result<()>, String)> {
    let outcome = fs::write(file, plan);
    let text =
        fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
    Ok((outcome, text))
}

/// The words of a report.
fn results(text: &str) -> BTreeMap<&str, &str> {
    // The reason is a sentence, and the last.
    let (words, reason) = match text.trim().split_once("reason=") {
        Some((words, reason)) => (words, Some(reason)),
        None => (text, None),
    };
    words
        .split_whitespace()
        .filter_map(|word| word.split_once('='))
        .chain(reason.map(|reason| ("reason", reason)))
        .collect()
}

/// Through channels of the function qpair-stream.
fn channels(args: &Loopback) -> anyhow::Result<()> {
    let file = debugfs::stream()?.join(FILE);
    let size = args.size.unwrap_or(FRAME);
    let mut plan = format!(
        "kind={} size={size} batch={} count={} depth={}",
        args.kind.name(),
        args.batch,
        args.count,
        args.depth
    );
    if let Some(pair) = args.channel {
        plan += &format!(" pair={pair}");
    }
    let (outcome, text) = execute(&file, &plan)?;
    let results = results(&text);
    if let Err(error) = outcome {
        let reason = match error.kind() {
            ErrorKind::ResourceBusy => "another run is going on",
            _ => results.get("reason").copied().unwrap_or(text.trim()),
        };
        return Err(error).context(format!("the run failed: {reason}"));
    }
    if results.get("result") != Some(&"ok") {
        bail!("the run failed: {}", text.trim());
    }
    if args.json {
        return report::print(&report::json(&json(&results)));
    }
    let number = |key: &str| results.get(key).and_then(|value| value.parse::<u64>().ok());
    let (bytes, frames) = (number("bytes").unwrap_or(0), number("frames").unwrap_or(0));
    let time = Duration::from_micros(number("usecs").unwrap_or(0));
    report::print(&format!(
        "{frames} frames of {size} bytes in {:.3} s, by {}, {} handed over together, {} interrupts\n\
         {:.0} frames a second, {}; all arrived as they were sent\n",
        time.as_secs_f64(),
        args.kind.name(),
        args.batch,
        number("interrupts").unwrap_or(0),
        report::rate(frames, time),
        report::bytes_a_second(bytes, time),
    ))
}

/// Through queue pairs.
fn queue_pairs(device: Option<&str>, args: &Loopback) -> anyhow::Result<()> {
    if args.batch != 1 || args.channel.is_some() {
        bail!("--batch and --channel are for channels: choose --kind polled, chain or headtail");
    }
    let file = debugfs::folder(device, FILE)?.join(FILE);
    let size = args.size.unwrap_or(MESSAGE);
    let plan = format!(
        "op={} qps={} depth={} size={size} count={} group={}\n",
        args.op.name(),
        args.qps,
        args.depth,
        args.count,
        args.group
    );
    let (outcome, text) = execute(&file, &plan)?;
    let results = results(&text);
    if let Err(error) = outcome {
        let reason = match error.kind() {
            ErrorKind::InvalidInput => "too deep, too many queue pairs for the device (see `qpair info`), or more than 64k a message or 64M under way",
            ErrorKind::ResourceBusy => "another run is going on",
            ErrorKind::StorageFull => "the device has not so many queue pairs (see `qpair info`)",
            _ => text.trim(),
        };
        return Err(error).context(format!("the run failed: {reason}"));
    }
    if results.get("result") != Some(&"ok") {
        bail!("the run failed: {}", text.trim());
    }
    if args.json {
        return report::print(&report::json(&json(&results)));
    }
    let number = |key: &str| results.get(key).and_then(|value| value.parse::<u64>().ok());
    let (bytes, sends) = (number("bytes").unwrap_or(0), number("sends").unwrap_or(0));
    let time = Duration::from_micros(number("usecs").unwrap_or(0));
    report::print(&format!(
        "{sends} {}s of {} bytes in {:.3} s, by {} queue pairs of the kernel, each with {} under way\n\
         {:.0} messages a second, {}; all arrived as they were sent\n",
        args.op.name().to_uppercase(),
        size,
        time.as_secs_f64(),
        args.qps,
        args.depth,
        report::rate(sends, time),
        report::bytes_a_second(bytes, time),
    ))
}

/// Numbers as numbers.
fn json(results: &BTreeMap<&str, &str>) -> Value {
    let map: Map<String, Value> = results
        .iter()
        .map(|(&key, &value)| {
            let number = value.parse::<u64>().map(Value::from);
            (key.to_owned(), number.unwrap_or_else(|_| value.into()))
        })
        .collect();
    Value::Object(map)
}

#[cfg(test)]
mod tests {
    use super::results;

    #[test]
    fn a_reason_is_a_sentence() {
        let text = "result=failed kind=chain frames=3 reason=the channel halted: bad (cause=8)\n";
        let found = results(text);
        assert_eq!(found.get("frames"), Some(&"3"));
        assert_eq!(
            found.get("reason"),
            Some(&"the channel halted: bad (cause=8)")
        );
        assert_eq!(found.len(), 4);
    }
}
