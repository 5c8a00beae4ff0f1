// SPDX-License-Identifier: GPL-2.0
//! The machine outside: QMP, by way of two files in a shared folder.
//!
//! A request is written to `request`; `bridge.py`, which runs beside QEMU, does it and
//! writes `response` with the same number. So a test says in one place what it
//! wants of the device and what it expects of the driver, and nobody sleeps.

use std::cell::Cell;
use std::fs;
use std::path::PathBuf;

use anyhow::bail;
use anyhow::Context as _;
use anyhow::Result;
use serde_json::json;
use serde_json::Value;

use crate::wait;

/// The way out.
#[derive(Clone)]
pub struct Host {
    folder: PathBuf,
    last: Cell<u64>,
}

impl Host {
    /// By the shared folder of this name.
    pub fn at(folder: impl Into<PathBuf>) -> Self {
        Self {
            folder: folder.into(),
            last: Cell::new(0),
        }
    }

    /// Does a QMP command and gives what it returned.
    pub fn qmp(&self, command: &str, arguments: Value) -> Result<Value> {
        // Each case is a process of its own: the process id keeps their numbers apart.
        self.last.set(self.last.get() + 1);
        let id = format!("{}.{}", std::process::id(), self.last.get());
        let request = json!({ "id": id, "execute": command, "arguments": arguments });
        let draft = self.folder.join("request.new");
        fs::write(&draft, request.to_string()).context("writing a request to the host")?;
        fs::rename(&draft, self.folder.join("request")).context("handing a request to the host")?;
        let reply = wait::for_some(&format!("answer of the host to {command}"), || {
            let Ok(text) = fs::read_to_string(self.folder.join("response")) else {
                return Ok(None);
            };
            let Ok(reply) = serde_json::from_str::<Value>(&text) else {
                return Ok(None);
            };
            Ok((reply["id"] == json!(id)).then_some(reply))
        })?;
        match reply.get("error") {
            Some(error) => bail!("{command}: {error}"),
            None => Ok(reply["return"].clone()),
        }
    }

    /// Sets a property of a device function.
    pub fn set(&self, device: usize, property: &str, value: Value) -> Result<()> {
        let path = format!("/machine/peripheral/qpair{device}");
        self.qmp(
            "qom-set",
            json!({ "path": path, "property": property, "value": value }),
        )
        .map(drop)
    }

    /// Reads a property of a device function.
    pub fn get(&self, device: usize, property: &str) -> Result<Value> {
        let path = format!("/machine/peripheral/qpair{device}");
        self.qmp("qom-get", json!({ "path": path, "property": property }))
    }

    /// Reads a property that is a number.
    pub fn number(&self, device: usize, property: &str) -> Result<u64> {
        let value = self.get(device, property)?;
        value
            .as_u64()
            .with_context(|| format!("{property} is {value}"))
    }
}
