// SPDX-License-Identifier: GPL-2.0
//! The host: QEMU's monitor, through a serial port of the guest.
//!
//! A test can control the device and check the driver in one place. `scripts/guest` gives every
//! guest that port, with the capabilities negotiated; only one process can have it open.

use std::fs::File;
use std::fs::OpenOptions;
use std::io::Read;
use std::io::Write;
use std::os::fd::AsFd;

use anyhow::bail;
use anyhow::Context as _;
use anyhow::Result;
use serde_json::json;
use serde_json::Value;

use crate::ktap::skip;
use crate::wait;

const PORT: &str = "/dev/virtio-ports/qpair.qmp";

/// The connection to the monitor.
pub(crate) struct Host {
    port: File,
    unread: Vec<u8>,
    events: Vec<Value>,
}

impl Host {
    /// Opens the connection; a case that needs it is skipped if there is none.
    pub(crate) fn call() -> Result<Self> {
        if !std::path::Path::new(PORT).exists() {
            return Err(skip(format!("needs QEMU's monitor at {PORT}")));
        }
        let port = OpenOptions::new()
            .read(true)
            .write(true)
            .open(PORT)
            .context(PORT)?;
        Ok(Self {
            port,
            unread: Vec::new(),
            events: Vec::new(),
        })
    }

    fn message(&mut self) -> Result<Value> {
        loop {
            if let Some(end) = self.unread.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.unread.drain(..=end).collect();
                if line.iter().all(u8::is_ascii_whitespace) {
                    continue;
                }
                return serde_json::from_slice(&line)
                    .with_context(|| format!("QEMU says {:?}", String::from_utf8_lossy(&line)));
            }
            wait::readable(self.port.as_fd(), "an answer from QEMU")?;
            let mut bytes = [0; 4096];
            let count = self.port.read(&mut bytes).context("reading from QEMU")?;
            if count == 0 {
                bail!("QEMU has closed the connection");
            }
            self.unread.extend_from_slice(&bytes[..count]);
        }
    }

    /// Runs a command and returns its result.
    pub(crate) fn qmp(&mut self, command: &str, arguments: Value) -> Result<Value> {
        let request = json!({ "execute": command, "arguments": arguments });
        self.port
            .write_all(format!("{request}\n").as_bytes())
            .context("writing to QEMU")?;
        loop {
            let message = self
                .message()
                .with_context(|| format!("waiting for {command}"))?;
            if let Some(value) = message.get("return") {
                return Ok(value.clone());
            }
            if let Some(error) = message.get("error") {
                bail!("{command}: {error}");
            }
            self.events.push(message);
        }
    }

    /// Waits for an event about a device, which may have arrived already.
    pub(crate) fn event(&mut self, name: &str, device: &str) -> Result<()> {
        loop {
            let is_it = |it: &Value| it["event"] == name && it["data"]["device"] == device;
            if let Some(at) = self.events.iter().position(is_it) {
                self.events.remove(at);
                return Ok(());
            }
            let message = self
                .message()
                .with_context(|| format!("waiting for {name} of {device}"))?;
            self.events.push(message);
        }
    }

    /// Discards the events received so far.
    pub(crate) fn forget_events(&mut self) {
        self.events.clear();
    }

    /// Sets a property of a device function.
    pub(crate) fn set(
        &mut self,
        device: usize,
        property: &str,
        value: impl Into<Value>,
    ) -> Result<()> {
        let path = format!("/machine/peripheral/qpair{device}");
        let value: Value = value.into();
        self.qmp(
            "qom-set",
            json!({ "path": path, "property": property, "value": value }),
        )
        .map(drop)
    }

    /// Reads a property of a device function that is a number.
    pub(crate) fn get(&mut self, device: usize, property: &str) -> Result<u64> {
        let value = self.property(device, property)?;
        value
            .as_u64()
            .with_context(|| format!("{property} is {value}"))
    }

    /// Reads a property of a device function that is text.
    pub(crate) fn text(&mut self, device: usize, property: &str) -> Result<String> {
        let value = self.property(device, property)?;
        let text = value.as_str().map(String::from);
        text.with_context(|| format!("{property} is {value}"))
    }

    fn property(&mut self, device: usize, property: &str) -> Result<Value> {
        let path = format!("/machine/peripheral/qpair{device}");
        self.qmp("qom-get", json!({ "path": path, "property": property }))
    }
}
