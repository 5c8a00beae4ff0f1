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
use qpair::kernel::Attributes;
use serde_json::{Map, Value};

use crate::args::{Loopback, Rung};
use crate::debugfs;
use crate::report;
use crate::session;

/// The control file of each client, in the folder of its function.
const FILE: &str = "loopback";
/// Bytes of a message, unless the command line says otherwise.
const MESSAGE: u32 = 4096;
/// Bytes of a frame, likewise.
const FRAME: u32 = 64;
/// The most bytes of a message of queue pairs: `MAX_SIZE` in the driver's `loopback/plan.rs`.
const MAX_MESSAGE: u32 = 64 << 10;
/// The most bytes of all sources and targets: `MAX_BYTES` there.
const MAX_MEMORY: u64 = 64 << 20;

pub(crate) fn run(device: Option<&str>, args: &Loopback) -> anyhow::Result<()> {
    match args.kind {
        Rung::Pair => queue_pairs(device, args),
        _ => channels(args),
    }
}

/// Writes a plan to the control file, which runs it, and reads the report. `why` is the reason of a
/// refused run, from the kind of the error and the report.
fn execute(
    file: &Path,
    plan: &str,
    why: impl FnOnce(ErrorKind, &str) -> anyhow::Result<String>,
) -> anyhow::Result<String> {
    let outcome = fs::write(file, plan);
    let text =
        fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
    let report = text.trim();
    if let Err(error) = outcome {
        let reason = match error.kind() {
            ErrorKind::ResourceBusy => "another run is going on".into(),
            kind => why(kind, report)?,
        };
        return Err(error).context(format!("the run failed: {reason}"));
    }
    if results(report).get("result") != Some(&"ok") {
        bail!("the run failed: {report}");
    }
    Ok(text)
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

/// A number of a report; 0 if there is none.
fn number(results: &BTreeMap<&str, &str>, key: &str) -> u64 {
    let value = results.get(key).and_then(|value| value.parse().ok());
    value.unwrap_or(0)
}

/// Runs the client of channels, on the function qpair-stream.
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
    let text = execute(&file, &plan, |_, report| {
        let reason = results(report).get("reason").copied();
        Ok(reason.unwrap_or(report).to_owned())
    })?;
    let results = results(&text);
    if args.json {
        return report::print(&report::json(&json(&results)));
    }
    let number = |key| number(&results, key);
    let (bytes, frames) = (number("bytes"), number("frames"));
    let time = Duration::from_micros(number("usecs"));
    report::print(&format!(
        "{frames} frames of {size} bytes in {:.3} s, by {}, {} submitted together, {} interrupts\n\
         {:.0} frames a second, {}; all arrived as they were sent\n",
        time.as_secs_f64(),
        args.kind.name(),
        args.batch,
        number("interrupts"),
        report::rate(frames, time),
        report::bytes_a_second(bytes, time),
    ))
}

/// Runs the client of queue pairs.
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
    let text = execute(&file, &plan, |kind, report| match kind {
        ErrorKind::InvalidInput | ErrorKind::OutOfMemory => {
            let context = session::open(device)
                .context("the run was refused, and the device's limits are unknown")?;
            let exceeded = too_much(args, size, context.attributes());
            Ok(exceeded.unwrap_or_else(|| beyond_attributes(args, kind)))
        }
        ErrorKind::StorageFull => Ok(beyond_attributes(args, kind)),
        _ => Ok(report.to_owned()),
    })?;
    let results = results(&text);
    if args.json {
        return report::print(&report::json(&json(&results)));
    }
    let (bytes, sends) = (number(&results, "bytes"), number(&results, "sends"));
    let time = Duration::from_micros(number(&results, "usecs"));
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

/// Which limit of the driver or of the device a run of queue pairs exceeds, and what to use instead.
fn too_much(args: &Loopback, size: u32, device: &Attributes) -> Option<String> {
    let largest = MAX_MESSAGE.min(device.max_message);
    if size > largest {
        return Some(format!(
            "a message of this client has at most {largest} bytes: use --size {largest}"
        ));
    }
    let deepest = device.max_sq_blocks.min(device.max_rq_depth);
    if args.depth > deepest {
        return Some(format!(
            "a queue of the device has at most {deepest} entries: use --depth {deepest}"
        ));
    }
    // As the driver allocates them: rings are powers of two, slots whole words.
    let depth = u64::from(args.depth).next_power_of_two();
    let slots = depth.saturating_mul(2 * u64::from(size.next_multiple_of(8)));
    let bytes = slots.saturating_mul(args.qps.into());
    if bytes > MAX_MEMORY {
        return Some(format!(
            "the messages under way and the memory that they go to have {bytes} bytes, and this \
             client has at most {MAX_MEMORY}: use a smaller --qps, --depth or --size"
        ));
    }
    let together = args.group.min(args.qps);
    let entries = 2 * depth * u64::from(together);
    if entries > device.max_cq_depth.into() {
        return Some(format!(
            "{together} queue pairs on a completion queue need {entries} entries, and the device \
             has at most {}: use a smaller --group or --depth",
            device.max_cq_depth
        ));
    }
    None
}

/// Why a run was refused whose limits are not in the attributes: they have the queue pairs that a
/// process may have, not all of the device's.
fn beyond_attributes(args: &Loopback, error: ErrorKind) -> String {
    match error {
        ErrorKind::OutOfMemory => "the kernel has no pieces of memory as large as the messages of \
                                   a queue pair: use a smaller --depth or --size"
            .into(),
        _ => format!(
            "the device does not have {} queue pairs for this client: use a smaller --qps",
            args.qps
        ),
    }
}

/// The results as JSON, with numbers where they are numbers.
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
    use clap::Parser as _;
    use qpair::kernel::Attributes;

    use super::{results, too_much, MESSAGE};
    use crate::args::{Args, Command};

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

    /// The exceeded limit of a run with these options.
    fn cause(words: &[&str], max_message: u32) -> Option<String> {
        let device = Attributes {
            max_sq_blocks: 1 << 15,
            max_rq_depth: 1 << 14,
            max_cq_depth: 1 << 17,
            max_message,
            ..Attributes::default()
        };
        let args = Args::parse_from([&["qpair", "loopback"], words].concat());
        let Command::Loopback(args) = args.command else {
            panic!("{words:?}");
        };
        too_much(&args, args.size.unwrap_or(MESSAGE), &device)
    }

    #[test]
    fn the_limit_that_a_run_exceeds_is_named_with_the_remedy() {
        for (words, remedy) in [
            (&["--size", "65537"][..], "use --size 65536"),
            (&["--size", "1G"], "use --size 65536"),
            (&["--depth", "16385"], "use --depth 16384"),
            (&["--depth", "4G"], "use --depth 16384"),
            // 8 MiB each.
            (
                &["--size", "65529", "--depth", "33", "--qps", "10"],
                "use a smaller --qps, --depth or",
            ),
            (
                &["--size", "8", "--qps", "4G"],
                "use a smaller --qps, --depth or",
            ),
            (
                &["--size", "8", "--depth", "2049", "--qps", "32"],
                "use a smaller --group or --depth",
            ),
        ] {
            let said = cause(words, 1 << 30).unwrap();
            assert!(said.contains(remedy), "{words:?}: {said}");
        }
        let said = cause(&["--size", "4097"], 4096).unwrap();
        assert!(said.contains("use --size 4096"), "{said}");
    }

    #[test]
    fn a_run_at_the_limits_exceeds_none() {
        for words in [
            &["--size", "65536"][..],
            &["--size", "8", "--depth", "16384", "--group", "1"],
            &["--size", "65536", "--depth", "64", "--qps", "8"],
            &["--size", "8", "--depth", "2048", "--qps", "64"],
            &["--size", "8", "--depth", "2049", "--qps", "16"],
            &["--size", "8", "--depth", "1", "--qps", "65536"],
        ] {
            assert_eq!(cause(words, 1 << 30), None, "{words:?}");
        }
    }
}
