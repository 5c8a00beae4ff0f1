// SPDX-License-Identifier: GPL-2.0
//! The output of `qpair top` and `qpair trace`.
//!
//! Each case generates the load whose numbers it checks.

use std::process::Child;
use std::process::Stdio;

use anyhow::ensure;
use anyhow::Context as _;
use anyhow::Result;
use nix::sys::signal::Signal;
use qpair_abi::entry::opcode;
use serde_json::Value;

use super::command;
use super::json;
use crate::devices;
use crate::ktap::skip;
use crate::ktap::Setup;
use crate::pair::works;
use crate::wait;
use crate::world;

const TRACEFS: &str = "/sys/kernel/tracing";
const TIMELINE: &str = "/tmp/timeline";
/// A small buffer: the debug kernel is slow for each page.
const TRACE: [&str; 5] = ["trace", "--out", TIMELINE, "--buffer", "64k"];

/// A run of the tool that is ended when it is dropped.
struct Load(Child);

impl Load {
    fn start(words: &[&str]) -> Result<Self> {
        let child = command(words)?
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        Ok(Self(child))
    }

    /// Two running loads: the kernel's own client, and a process that sleeps for completions.
    fn both() -> Result<[Self; 2]> {
        let loads = [
            Self::start(&["loopback", "--qps", "4", "--size", "64", "--count", "1G"])?,
            Self::start(&["bench", "--events", "--op", "write", "--count", "1G"])?,
        ];
        let live = world::debugfs(0)?.join("live");
        wait::until("queue pairs of both loads", || {
            let text = world::text(&live)?;
            let queue_pairs = text.lines().filter(|line| line.starts_with("qp "));
            let (kernel, process): (Vec<_>, Vec<_>) =
                queue_pairs.partition(|line| line.contains(" page=0 "));
            // The admin queue pair also counts as the kernel's.
            Ok(kernel.len() >= 5 && process.len() >= 2)
        })?;
        Ok(loads)
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn rows<'a>(view: &'a Value, key: &str) -> Result<&'a Vec<Value>> {
    view[key]
        .as_array()
        .with_context(|| format!("no {key}: {view}"))
}

/// The largest of all rates of a key.
fn most(view: &Value, key: &str, rate: impl Fn(&Value) -> Option<f64>) -> Result<f64> {
    let rates = rows(view, key)?.iter().filter_map(rate);
    Ok(rates.fold(0.0, f64::max))
}

/// Under load every rate is above 0, and every queue has its row.
pub(super) fn top_under_load(_: &Setup) -> Result<()> {
    let loads = Load::both()?;
    let view = json(&["top", "--once", "--json"])?;
    for (what, rate) in [
        ("events", most(&view, "eqs", |eq| eq["events"].as_f64())?),
        ("polls", most(&view, "eqs", |eq| eq["polls"].as_f64())?),
        (
            "completions",
            most(&view, "eqs", |eq| eq["completions"].as_f64())?,
        ),
        (
            "completions of the kernel",
            most(&view, "cqs", |cq| {
                cq["completions"].as_f64().filter(|_| cq["page"] == 0)
            })?,
        ),
        (
            "completions of a process",
            most(&view, "cqs", |cq| {
                cq["completions"].as_f64().filter(|_| cq["page"] != 0)
            })?,
        ),
        ("sends", most(&view, "qps", |qp| qp["sq"]["rate"].as_f64())?),
        (
            "receives",
            most(&view, "qps", |qp| qp["rq"]["rate"].as_f64())?,
        ),
        (
            "CQEs",
            view["counters"]["cqes"]["rate"].as_f64().unwrap_or(0.0),
        ),
    ] {
        ensure!(rate > 0.0, "no {what}: {view}");
    }
    let objects = world::objects(&world::debugfs(0)?)?;
    for key in ["eqs", "cqs", "qps"] {
        let shown = rows(&view, key)?.len();
        ensure!(
            shown as i64 == objects[key],
            "{shown} {key} of {objects:?} {view}"
        );
    }
    let text = command(&["top", "--once"])?.output()?;
    let text = String::from_utf8(text.stdout)?;
    ensure!(text.contains("page ") && text.contains("kernel"), "{text}");
    drop(loads);
    Ok(())
}

/// Objects and then the device disappear while `top` runs: it reports that, and ends.
pub(super) fn top_of_what_goes(setup: &Setup) -> Result<()> {
    let address = world::function(0)?;
    let top = command(&["top", "--json", "--interval", "0.05"])?
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    for _ in 0..5 {
        json(&["loopback", "--qps", "8", "--count", "10", "--json"])?;
        json(&["ping", "--count", "10", "--json"])?;
    }
    devices::unbind(&address)?;
    // It ends by itself.
    let output = top.wait_with_output()?;
    let device = devices::bind(&address)?;
    let error = String::from_utf8_lossy(&output.stderr);
    ensure!(
        output.status.code() == Some(3) && error.contains("gone"),
        "{}: {error}",
        output.status
    );
    let text = String::from_utf8(output.stdout)?;
    ensure!(!text.is_empty(), "it printed nothing");
    for line in text.lines() {
        let view: Value = serde_json::from_str(line).with_context(|| line.to_owned())?;
        ensure!(
            !rows(&view, "eqs")?.is_empty() || view["health"] != "Up",
            "{view}"
        );
    }
    works(device, &mut setup.rng())
}

/// Instances of the kernel's trace that the tool created.
fn instances() -> Result<Vec<String>> {
    let folder = format!("{TRACEFS}/instances");
    let mut names = Vec::new();
    for entry in std::fs::read_dir(&folder).context(folder)? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        if name.starts_with("qpair-") {
            names.push(name);
        }
    }
    Ok(names)
}

/// Mounts tracefs, if it is not mounted.
fn tracefs() -> Result<()> {
    if std::path::Path::new(TRACEFS).join("instances").exists() {
        return Ok(());
    }
    let flags = nix::mount::MsFlags::empty();
    let nothing: Option<&str> = None;
    nix::mount::mount(Some("none"), TRACEFS, Some("tracefs"), flags, nothing)
        .map_err(|errno| skip(format!("needs a kernel with tracefs: {errno}")))
}

/// A timeline of the kernel's client has polls in which several completions were coalesced.
pub(super) fn trace_of_loopback(_: &Setup) -> Result<()> {
    tracefs()?;
    let words = [
        "trace",
        "--out",
        TIMELINE,
        "--buffer",
        "1M",
        "--",
        "/bin/qpair",
        "loopback",
        "--qps",
        "4",
        "--op",
        "send",
        "--size",
        "64",
        "--count",
        "500",
    ];
    let output = command(&words)?.output()?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{}: {said}", output.status);
    ensure!(said.contains("CQEs in one poll"), "{said}");
    let text = world::text(format!("{TIMELINE}.json"))?;
    let file: Value = serde_json::from_str(&text).context("the timeline")?;
    let events = file["traceEvents"].as_array().context("no events")?;
    let most = events.iter().filter_map(|event| {
        event["args"]["budget"].as_u64()?;
        event["args"]["cqes"].as_u64()
    });
    let most = most.max().unwrap_or(0);
    ensure!(most > 1, "{most} CQEs in one poll at the most: {said}");
    for name in [
        "interrupt",
        "masked",
        "EQE",
        "CQE",
        "arm",
        "post",
        "doorbell",
        "head, unmask",
    ] {
        ensure!(
            events.iter().any(|event| event["name"] == name),
            "no {name}: {said}"
        );
    }
    for opcode in [opcode::SEND, opcode::RECV] {
        ensure!(
            events.iter().any(|event| event["args"]["opcode"] == opcode),
            "no post of {opcode}: {said}"
        );
    }
    let picture = world::text(format!("{TIMELINE}.svg"))?;
    ensure!(
        picture.contains("<svg") && picture.contains("poll: "),
        "{picture}"
    );
    for end in ["json", "svg"] {
        std::fs::remove_file(format!("{TIMELINE}.{end}"))?;
    }
    let left = instances()?;
    ensure!(left.is_empty(), "{left:?} is left");
    Ok(())
}

/// However `trace` ends, nothing is left in the kernel, and no empty file.
pub(super) fn trace_interrupted(_: &Setup) -> Result<()> {
    tracefs()?;
    for signal in [Signal::SIGINT, Signal::SIGTERM] {
        let mut tool = command(&[&TRACE[..], &["sleep", "1000"]].concat())?
            .stderr(Stdio::piped())
            .spawn()?;
        wait::until("a trace", || Ok(!instances()?.is_empty()))?;
        let pid = i32::try_from(tool.id()).context("its number")?;
        nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), signal)?;
        let status = tool.wait()?;
        ensure!(status.code() == Some(130), "{signal}: {status}");
        let left = instances()?;
        ensure!(left.is_empty(), "{left:?} is left after {signal}");
    }
    let files = ["json", "svg"].map(|end| format!("{TIMELINE}.{end}"));
    // A command that does not run has no timeline.
    for (words, has_files) in [(["false", "x"], true), (["no-such-command", "x"], false)] {
        let output = command(&[&TRACE[..], &words[..]].concat())?.output()?;
        ensure!(
            output.status.code() == Some(1),
            "{words:?}: {}",
            output.status
        );
        let left = instances()?;
        ensure!(left.is_empty(), "{left:?} is left after {words:?}");
        for file in &files {
            let exists = std::path::Path::new(file).exists();
            ensure!(exists == has_files, "{file} after {words:?}: {exists}");
            if exists {
                std::fs::remove_file(file)?;
            }
        }
    }
    Ok(())
}
