// SPDX-License-Identifier: GPL-2.0
//! `qpair info`: limits, versions, link, counters.

use std::fmt::Write as _;

use indicatif::BinaryBytes;
use qpair::{Attributes, Counters, Device};
use serde_json::json;

use crate::args::Info;
use crate::{report, session};

pub(crate) fn run(device: Option<&str>, args: &Info) -> anyhow::Result<()> {
    let devices = Device::list()?;
    let device = session::device(device)?;
    let context = device.open()?;
    let about = About {
        others: devices
            .iter()
            .map(Device::name)
            .filter(|name| *name != device.name())
            .collect(),
        attributes: context.attributes(),
        counters: &context.counters()?,
        interface: device.interface().unwrap_or_default(),
        device: &device,
    };
    report::print(&if args.json {
        about.json()
    } else {
        about.text()
    })
}

/// What `qpair info` reports of a device.
struct About<'a> {
    device: &'a Device,
    others: Vec<&'a str>,
    interface: u32,
    attributes: &'a Attributes,
    counters: &'a Counters,
}

impl About<'_> {
    fn json(&self) -> String {
        let attributes = self.attributes;
        let limits: serde_json::Map<_, _> = limits(attributes)
            .iter()
            .map(|limit| (limit.key.to_owned(), limit.value.into()))
            .collect();
        report::json(&json!({
            "device": self.device.name(),
            "file": self.device.path().display().to_string(),
            "other_devices": self.others,
            "interface": self.interface,
            "model": version(attributes),
            "epoch": attributes.epoch,
            "link_up": attributes.link_up,
            "doorbell_page": attributes.doorbell_page,
            "vectors": attributes.vectors,
            "limits": limits,
            "counters": report::counters_json(self.counters),
        }))
    }

    fn text(&self) -> String {
        let attributes = self.attributes;
        let link = if attributes.link_up { "up" } else { "down" };
        let mut text = format!(
            "{} ({}): link {link}, model {}, interface {}, {} interrupt vectors, reset {} times\n",
            self.device.name(),
            self.device.path().display(),
            version(attributes),
            self.interface,
            attributes.vectors,
            attributes.epoch,
        );
        if !self.others.is_empty() {
            let _ = writeln!(text, "other devices (--device): {}", self.others.join(", "));
        }
        text.push_str("what a process may have of it:\n");
        for limit in limits(attributes) {
            let shown = if limit.is_bytes {
                BinaryBytes(limit.value).to_string()
            } else {
                limit.value.to_string()
            };
            let _ = writeln!(text, "  {shown:>12}  {}", limit.what);
        }
        text.push_str("counters that are not 0:\n");
        text.push_str(&report::counters(self.counters, &[]));
        text
    }
}

fn version(attributes: &Attributes) -> String {
    let version = attributes.model;
    format!("{}.{}", version >> 16, version & 0xffff)
}

struct Limit {
    key: &'static str,
    value: u64,
    what: &'static str,
    is_bytes: bool,
}

fn limits(a: &Attributes) -> [Limit; 12] {
    let limit = |key, value, what| Limit {
        key,
        value,
        what,
        is_bytes: false,
    };
    let count = |key, value: u32, what| limit(key, value.into(), what);
    let bytes = |key, value, what| Limit {
        is_bytes: true,
        ..limit(key, value, what)
    };
    [
        count("max_qp", a.max_qp, "queue pairs"),
        count("max_cq", a.max_cq, "completion queues"),
        count("max_mr", a.max_mr, "memory regions"),
        count("max_pd", a.max_pd, "protection domains"),
        count(
            "max_sq_blocks",
            a.max_sq_blocks,
            "64-byte blocks of a send queue",
        ),
        count(
            "max_rq_depth",
            a.max_rq_depth,
            "receives of a receive queue",
        ),
        count(
            "max_cq_depth",
            a.max_cq_depth,
            "entries of a completion queue",
        ),
        count(
            "max_send_sge",
            a.max_send_sge,
            "pieces of a send, write or read",
        ),
        count("max_recv_sge", a.max_recv_sge, "pieces of a receive"),
        bytes("max_inline", a.max_inline.into(), "of inline data"),
        bytes("max_message", a.max_message.into(), "of a message"),
        bytes("max_mr_bytes", a.max_mr_bytes, "of a memory region"),
    ]
}
