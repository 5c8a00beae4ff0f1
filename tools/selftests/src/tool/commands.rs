// SPDX-License-Identifier: GPL-2.0
//! Each command of the `qpair` tool: what it moves, what it prints, how it fails.

use std::fs;
use std::fs::File;
use std::io::Read;
use std::process::Command;
use std::process::Stdio;

use anyhow::bail;
use anyhow::ensure;
use anyhow::Context as _;
use anyhow::Result;
use nix::sys::signal::Signal;
use nix::unistd::Pid;
use qpair_abi::counters::Counter;

use super::command;
use super::json;
use super::run;
use super::COPY;
use crate::ktap::Setup;
use crate::pair::works;
use crate::raw::Context;
use crate::wait;

const SOURCE: &str = "/tmp/source";

/// Bytes of a large file: less on the debug kernel, where a byte costs many times more.
fn large() -> usize {
    match std::env::var("QPAIR_KERNEL").as_deref() {
        Ok("debug") => 8 << 20,
        _ => 64 << 20,
    }
}

/// A file of random bytes.
fn source(setup: &Setup, bytes: usize) -> Result<Vec<u8>> {
    let mut data = vec![0; bytes];
    setup.rng().fill(&mut data);
    fs::write(SOURCE, &data).context(SOURCE)?;
    Ok(data)
}

/// The copy is the source.
fn same(data: &[u8]) -> Result<()> {
    let mut file = File::open(COPY).context(COPY)?;
    let mut at = 0;
    let mut piece = vec![0; 1 << 20];
    loop {
        let count = file.read(&mut piece)?;
        if count == 0 {
            break;
        }
        ensure!(
            data.get(at..at + count) == Some(&piece[..count]),
            "the copy differs after {at} bytes"
        );
        at += count;
    }
    ensure!(
        at == data.len(),
        "the copy has {at} bytes of {}",
        data.len()
    );
    fs::remove_file(COPY).context(COPY)
}

pub(super) fn info(_: &Setup) -> Result<()> {
    let info = json(&["info", "--json"])?;
    ensure!(info.is_object() && !info["counters"].is_null(), "{info}");
    let text = String::from_utf8(run(&["info"])?.stdout)?;
    let ctx = Context::open(0)?;
    ensure!(text.contains(&ctx.info.device.max_qp.to_string()), "{text}");
    Ok(())
}

fn copy(setup: &Setup, op: &str, counter: Counter) -> Result<()> {
    let large = large();
    let data = source(setup, large)?;
    let ctx = Context::open(0)?;
    for qps in ["1", "16"] {
        for how in ["--poll", "--events"] {
            let before = ctx.counters()?;
            let report = json(&[
                "copy", SOURCE, COPY, "--op", op, "--qps", qps, how, "--json",
            ])?;
            let after = ctx.counters()?;
            let place = || format!("{op}, {qps} queue pairs, {how}: {report}");
            same(&data).with_context(place)?;
            let moved = after[counter as usize] - before[counter as usize];
            ensure!(
                moved >= large as u64,
                "{}: the device moved {moved} bytes",
                place()
            );
            let wqes = after[Counter::SendWqes as usize] - before[Counter::SendWqes as usize];
            ensure!(
                wqes >= large as u64 / (64 << 10),
                "{}: {wqes} WQEs",
                place()
            );
            if how == "--events" {
                let raised =
                    after[Counter::Interrupts as usize] - before[Counter::Interrupts as usize];
                ensure!(raised > 0, "{}: no interrupt", place());
            }
            ensure!(
                after[Counter::Errors as usize] == before[Counter::Errors as usize],
                "{}",
                place()
            );
        }
    }
    fs::remove_file(SOURCE)?;
    Ok(())
}

pub(super) fn copy_by_send(setup: &Setup) -> Result<()> {
    copy(setup, "send", Counter::SendBytes)
}

pub(super) fn copy_by_write(setup: &Setup) -> Result<()> {
    copy(setup, "write", Counter::WriteBytes)
}

pub(super) fn copy_by_read(setup: &Setup) -> Result<()> {
    copy(setup, "read", Counter::ReadBytes)
}

/// Nothing, one byte, sizes around a block, and around all blocks in flight.
pub(super) fn copy_of_any_size(setup: &Setup) -> Result<()> {
    for bytes in [
        0,
        1,
        4095,
        4096,
        4097,
        3 * 4 * 4096 - 1,
        3 * 4 * 4096,
        3 * 4 * 4096 + 1,
        1_000_003,
    ] {
        for op in ["send", "write", "read"] {
            let data = source(setup, bytes)?;
            run(&[
                "copy", SOURCE, COPY, "--op", op, "--qps", "3", "--depth", "4", "--block", "4096",
            ])
            .with_context(|| format!("{bytes} bytes by {op}"))?;
            same(&data).with_context(|| format!("{bytes} bytes by {op}"))?;
        }
    }
    Ok(())
}

pub(super) fn copy_in_a_pipe(setup: &Setup) -> Result<()> {
    let data = source(setup, 5_000_001)?;
    let mut cat = Command::new("cat")
        .arg(SOURCE)
        .stdout(Stdio::piped())
        .spawn()
        .context("cat")?;
    let input = cat.stdout.take().context("the pipe")?;
    let output = command(&["copy", "-", "-"])?.stdin(input).output()?;
    cat.wait()?;
    ensure!(
        output.status.success(),
        "{}, {}",
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
    ensure!(
        output.stdout == data,
        "{} bytes came out of {}",
        output.stdout.len(),
        data.len()
    );
    // The reader closes the pipe: the tool ends, and does not crash.
    let mut tool = command(&["copy", SOURCE, "-"])?
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    drop(tool.stdout.take());
    let status = tool.wait()?;
    ensure!(
        !status.success() && status.code() != Some(101),
        "a reader that went away: {status}"
    );
    Ok(())
}

/// Ctrl-C: nothing is left, not even a partial file.
pub(super) fn copy_interrupted(setup: &Setup) -> Result<()> {
    // From an empty pipe, so that the copy does not end by itself.
    let mut tool = command(&["copy", "-", COPY])?
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    wait::until("the copy to begin", || {
        Ok(std::path::Path::new(COPY).exists())
    })?;
    nix::sys::signal::kill(Pid::from_raw(tool.id() as i32), Signal::SIGINT)?;
    let status = tool.wait()?;
    ensure!(
        status.code() == Some(130),
        "interrupted, it ended with {status}"
    );
    ensure!(!std::path::Path::new(COPY).exists(), "half a copy was left");
    works(0, &mut setup.rng())
}

pub(super) fn ping(_: &Setup) -> Result<()> {
    let ctx = Context::open(0)?;
    for how in ["--poll", "--events"] {
        let before = ctx.counter(Counter::SendWqes)?;
        let report = json(&["ping", "--size", "200", "--count", "300", how, "--json"])?;
        ensure!(report.is_object(), "{report}");
        let wqes = ctx.counter(Counter::SendWqes)? - before;
        ensure!(wqes >= 600, "{wqes} WQEs for 300 round trips: {report}");
    }
    Ok(())
}

/// The reported times of round trips are consistent.
pub(super) fn ping_percentiles(_: &Setup) -> Result<()> {
    const COUNT: u64 = 150;
    for how in ["--poll", "--events"] {
        let count = COUNT.to_string();
        let report = json(&["ping", "--count", &count, how, "--json"])?;
        let number = |name: &str| {
            let number = report[name].as_f64();
            number.with_context(|| format!("{name} is no number: {report}"))
        };
        ensure!(report["count"] == COUNT, "{report}");
        let list: Vec<[f64; 2]> = serde_json::from_value(report["percentiles"].clone())
            .with_context(|| format!("percentiles are no list of pairs: {report}"))?;
        ensure!(
            list.windows(2)
                .all(|two| two[0][0] < two[1][0] && two[0][1] <= two[1][1]),
            "not in order: {report}"
        );
        let at = |percent: f64| {
            let pair = list.iter().find(|pair| pair[0] == percent);
            let pair = pair.with_context(|| format!("no {percent}: {report}"))?;
            Ok::<_, anyhow::Error>(pair[1])
        };
        let ends = list.first().zip(list.last());
        ensure!(
            ends == Some((&[0.0, number("min_us")?], &[100.0, number("max_us")?])),
            "the ends are not the least and the most: {report}"
        );
        ensure!(
            at(50.0)? == number("median_us")? && at(99.0)? == number("p99_us")?,
            "inconsistent percentiles: {report}"
        );
        // Half of the round trips took at least the median, and all together no longer than the
        // run.
        let seconds = number("seconds")?;
        ensure!(
            at(0.0)? > 0.0 && at(50.0)? * (COUNT / 2) as f64 <= seconds * 1e6 * 1.01,
            "more than the {seconds} s that it took: {report}"
        );
    }
    Ok(())
}

pub(super) fn bench(_: &Setup) -> Result<()> {
    for op in ["send", "write", "read"] {
        let report = json(&[
            "bench", "--op", op, "--size", "4096", "--count", "2000", "--qps", "2", "--json",
        ])?;
        ensure!(report.is_object(), "{report}");
    }
    let ctx = Context::open(0)?;
    for more in [&["--ud"][..], &["--srq"], &["--ud", "--srq"]] {
        let before = ctx.counters()?;
        let words = [
            &["bench", "--size", "4000", "--count", "2000", "--qps", "3"][..],
            &["--events", "--json"],
            more,
        ];
        let report = json(&words.concat())?;
        let after = ctx.counters()?;
        let more = |counter| after[counter as usize] - before[counter as usize];
        ensure!(more(Counter::SendWqes) >= 2000, "{report}");
        ensure!(more(Counter::Dropped) == 0, "{report}");
        ensure!(more(Counter::Errors) == 0, "{report}");
    }
    Ok(())
}

pub(super) fn loopback(_: &Setup) -> Result<()> {
    let ctx = Context::open(0)?;
    // Pairs on one CQ, and queue pairs with a CQ of their own, each its own peer.
    for (group, op) in [("32", "send"), ("1", "send"), ("1", "write"), ("1", "read")] {
        let before = ctx.counters()?;
        let report = json(&[
            "loopback", "--qps", "4", "--count", "1000", "--op", op, "--group", group, "--json",
        ])?;
        let after = ctx.counters()?;
        let more = |counter| after[counter as usize] - before[counter as usize];
        let wqes = more(Counter::SendWqes);
        ensure!(wqes >= 4000, "{wqes} WQEs: {report}");
        // A turn posts as many as there is room for under one doorbell.
        let doorbells = more(Counter::SqDoorbells);
        ensure!(
            2 * doorbells <= wqes,
            "{doorbells} doorbells for {wqes} WQEs: {report}"
        );
        ensure!(more(Counter::Errors) == 0, "{report}");
    }
    // The limits of the driver are those that the tool names.
    json(&[
        "loopback", "--size", "64k", "--depth", "4", "--count", "4", "--json",
    ])?;
    for (words, remedy) in [
        (&["--size", "65537"][..], "use --size 65536"),
        (&["--depth", "32769"], "use --depth 32768"),
        (
            &["--size", "64k", "--qps", "10"],
            "use a smaller --qps, --depth or --size",
        ),
        (
            &["--size", "8", "--depth", "8192", "--qps", "10"],
            "use a smaller --group or --depth",
        ),
        (
            &["--size", "8", "--depth", "1", "--qps", "65536"],
            "use a smaller --qps",
        ),
    ] {
        let output = command(&[&["loopback"], words].concat())?.output()?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(
            output.status.code() == Some(1) && said.contains(&format!(": {remedy}: ")),
            "{words:?}: {}, {said}",
            output.status
        );
    }
    Ok(())
}

pub(super) fn bad_usage(_: &Setup) -> Result<()> {
    for (words, expected) in [
        (&["nonsense"][..], 2),
        (&["copy"], 2),
        (&["copy", SOURCE, COPY, "--qps", "0"], 2),
        (&["copy", SOURCE, COPY, "--op", "steal"], 2),
        (&["copy", "/nonexistent", COPY], 1),
        (&["--device", "77", "info"], 3),
        (&["--device", "/dev/null", "info"], 3),
    ] {
        let output = command(words)?.output()?;
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        ensure!(
            output.status.code() == Some(expected),
            "{words:?}: {}, {said}",
            output.status
        );
        ensure!(
            !said.trim().is_empty() && !said.contains("panicked"),
            "{words:?} said {said:?}"
        );
    }
    if std::path::Path::new(COPY).exists() {
        bail!("a copy that failed left a file");
    }
    Ok(())
}
