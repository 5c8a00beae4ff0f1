// SPDX-License-Identifier: GPL-2.0
//! The `qpair` tool and the C example, as users run them.
//!
//! The tool's own report is not trusted: the tests compare files, and check the bytes against the
//! device's counters.

mod commands;
mod seen;
mod verify;

use std::process::Command;
use std::process::Output;
use std::process::Stdio;

use anyhow::ensure;
use anyhow::Context as _;
use anyhow::Result;
use serde_json::Value;

use crate::ktap::cases;
use crate::ktap::skip;
use crate::ktap::Group;

pub(crate) const GROUP: Group = Group {
    name: "tool",
    cases: cases![
        commands::info,
        commands::copy_by_send * 8,
        commands::copy_by_write * 8,
        commands::copy_by_read * 8,
        commands::copy_of_any_size * 2,
        commands::copy_in_a_pipe * 2,
        commands::copy_interrupted * 2,
        commands::ping * 2,
        commands::ping_percentiles,
        commands::bench * 4,
        commands::loopback * 2,
        commands::bad_usage,
        seen::top_under_load * 2,
        seen::top_of_what_goes * 4,
        seen::trace_of_loopback * 4,
        seen::trace_interrupted * 4,
        verify::a_changed_byte_in_a_copy,
        verify::a_changed_byte_in_a_message,
        verify::a_stalled_core * 2,
    ],
};

const COPY: &str = "/tmp/copy";

pub(crate) fn command(words: &[&str]) -> Result<Command> {
    if !std::path::Path::new("/bin/qpair").exists() {
        return Err(skip("needs the qpair tool"));
    }
    let mut command = Command::new("/bin/qpair");
    command.args(words).stdin(Stdio::null());
    Ok(command)
}

/// Runs the tool; it must succeed.
fn run(words: &[&str]) -> Result<Output> {
    let output = command(words)?.output().context("running the tool")?;
    ensure!(
        output.status.success(),
        "qpair {}: {}, {}",
        words.join(" "),
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(output)
}

fn json(words: &[&str]) -> Result<Value> {
    let output = run(words)?;
    serde_json::from_slice(&output.stdout).with_context(|| {
        format!(
            "{} printed {:?}",
            words.join(" "),
            String::from_utf8_lossy(&output.stdout)
        )
    })
}
