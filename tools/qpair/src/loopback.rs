// SPDX-License-Identifier: GPL-2.0
//! `qpair loopback`: the kernel's own client.
//!
//! It is driven through debugfs: a line of `key=value` is written, which returns when the run is
//! over, and a line of the same form is read back.

use std::collections::BTreeMap;
use std::fs;
use std::io::ErrorKind;
use std::time::Duration;

use anyhow::{bail, Context as _};
use serde_json::{Map, Value};

use crate::args::Loopback;
use crate::debugfs;
use crate::report;

/// The control file.
const FILE: &str = "loopback";

pub(crate) fn run(device: Option<&str>, args: &Loopback) -> anyhow::Result<()> {
    let file = debugfs::folder(device, FILE)?.join(FILE);
    let plan = format!(
        "op={} qps={} depth={} size={} count={} group={}\n",
        args.op.name(),
        args.qps,
        args.depth,
        args.size,
        args.count,
        args.group
    );
    let outcome = fs::write(&file, plan);
    let text =
        fs::read_to_string(&file).with_context(|| format!("cannot read {}", file.display()))?;
    let results: BTreeMap<&str, &str> = text
        .split_whitespace()
        .filter_map(|word| word.split_once('='))
        .collect();
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
        args.size,
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
