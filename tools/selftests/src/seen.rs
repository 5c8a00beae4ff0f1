// SPDX-License-Identifier: GPL-2.0
//! What `qpair top` shows of it.
//!
//! Each number that a case asks for is one that it makes: it sees to the load itself.

use std::process::Child;
use std::process::Stdio;

use anyhow::ensure;
use anyhow::Context as _;
use anyhow::Result;
use serde_json::Value;

use crate::ktap::Setup;
use crate::life::devices;
use crate::pair::works;
use crate::tool::command;
use crate::tool::json;
use crate::wait;
use crate::world;

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

    /// Two loads: the kernel's own client, and a process that sleeps for completions. Both go.
    fn both() -> Result<[Self; 2]> {
        let loads = [
            Self::start(&["loopback", "--qps", "4", "--size", "64", "--count", "1G"])?,
            Self::start(&["bench", "--events", "--op", "write", "--count", "1G"])?,
        ];
        let folder = world::debugfs(0)?;
        wait::until("queue pairs of both loads", || {
            let table = world::text(folder.join("qps"))?;
            let count = |what: &str| table.lines().filter(|line| line.contains(what)).count();
            // The admin queue pair is the kernel's as well.
            Ok(count(" kernel ") >= 5 && count(" page ") >= 2)
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

/// All rates of a key, the largest.
fn most(view: &Value, key: &str, rate: impl Fn(&Value) -> Option<f64>) -> Result<f64> {
    let rates = rows(view, key)?.iter().filter_map(rate);
    Ok(rates.fold(0.0, f64::max))
}

/// Under load every rate is there, and every object of the driver's tables has its row.
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
    let folder = world::debugfs(0)?;
    for key in ["eqs", "cqs", "qps"] {
        let table = world::text(folder.join(key))?;
        let objects = table.lines().count() - 1;
        let shown = rows(&view, key)?.len();
        ensure!(shown == objects, "{shown} {key} of\n{table}{view}");
    }
    let text = command(&["top", "--once"])?.output()?;
    let text = String::from_utf8(text.stdout)?;
    ensure!(text.contains("page ") && text.contains("kernel"), "{text}");
    drop(loads);
    Ok(())
}

/// Objects that come and go, and then the device, while it looks: it tells, and ends.
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
    ensure!(!text.is_empty(), "it never looked");
    for line in text.lines() {
        let view: Value = serde_json::from_str(line).with_context(|| line.to_owned())?;
        ensure!(
            !rows(&view, "eqs")?.is_empty() || view["health"] != "Up",
            "{view}"
        );
    }
    works(device, &mut setup.rng())
}
