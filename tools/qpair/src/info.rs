// SPDX-License-Identifier: GPL-2.0
//! `qpair info`: limits, versions, link, counters.

use std::fmt::Write as _;
use std::path::Path;

use indicatif::BinaryBytes;
use qpair::{Attributes, Counters, Device};
use serde_json::json;

use crate::args::Info;
use crate::report;

pub(crate) fn run(device: Option<&Path>, args: &Info) -> anyhow::Result<()> {
    let devices = Device::list()?;
    let device = match device {
        Some(path) => Device::at(path),
        None => Device::first()?,
    };
    let context = device.open()?;
    let attributes = context.attributes();
    let counters = context.counters()?;
    let name = device.path().display().to_string();
    let others = devices.iter().filter(|other| **other != device);
    let others: Vec<_> = others.map(|d| d.path().display().to_string()).collect();
    report::print(&if args.json {
        json(&name, &others, attributes, &counters)
    } else {
        text(&name, &others, attributes, &counters)
    })
}

fn json(name: &str, others: &[String], attributes: &Attributes, counters: &Counters) -> String {
    let limits: serde_json::Map<_, _> = limits(attributes)
        .iter()
        .map(|limit| (limit.key.to_owned(), limit.value.into()))
        .collect();
    report::json(&json!({
        "device": name,
        "other_devices": others,
        "interface": attributes.uapi_version,
        "model": version(attributes),
        "epoch": attributes.epoch,
        "link_up": attributes.link_up != 0,
        "doorbell_page": attributes.doorbell_page,
        "vectors": attributes.vectors,
        "limits": limits,
        "quota": {
            "qp": attributes.quota_qp,
            "cq": attributes.quota_cq,
            "mr": attributes.quota_mr,
            "pd": attributes.quota_pd,
        },
        "counters": report::counters_json(counters),
    }))
}

fn text(name: &str, others: &[String], attributes: &Attributes, counters: &Counters) -> String {
    let link = if attributes.link_up != 0 {
        "up"
    } else {
        "down"
    };
    let mut text = format!(
        "{name}: link {link}, model {}, interface {}, {} interrupt vectors, reset {} times\n",
        version(attributes),
        attributes.uapi_version,
        attributes.vectors,
        attributes.epoch,
    );
    if !others.is_empty() {
        let _ = writeln!(text, "other devices (--device): {}", others.join(", "));
    }
    text.push_str("limits of the device, and what one process may have of it:\n");
    for limit in limits(attributes) {
        let quota = limit.quota.map_or(String::new(), |quota| quota.to_string());
        let shown = if limit.is_bytes {
            BinaryBytes(limit.value).to_string()
        } else {
            limit.value.to_string()
        };
        let _ = writeln!(text, "  {shown:>12} {quota:>6}  {}", limit.what);
    }
    text.push_str("counters that are not 0:\n");
    text.push_str(&report::counters(counters, &[]));
    text
}

fn version(attributes: &Attributes) -> String {
    let version = attributes.device_version;
    format!("{}.{}", version >> 16, version & 0xffff)
}

struct Limit {
    key: &'static str,
    value: u64,
    what: &'static str,
    is_bytes: bool,
    /// What this process may have of it.
    quota: Option<u32>,
}

fn limits(a: &Attributes) -> [Limit; 13] {
    let limit = |key, value, what| Limit {
        key,
        value,
        what,
        is_bytes: false,
        quota: None,
    };
    let count = |key, value: u32, what| limit(key, value.into(), what);
    let bytes = |key, value, what| Limit {
        is_bytes: true,
        ..limit(key, value, what)
    };
    let shared = |key, value: u32, what, quota| Limit {
        quota: Some(quota),
        ..limit(key, value.into(), what)
    };
    [
        shared("max_qp", a.max_qp, "queue pairs", a.quota_qp),
        shared("max_cq", a.max_cq, "completion queues", a.quota_cq),
        count("max_eq", a.max_eq, "event queues"),
        shared("max_mr", a.max_mr, "memory regions", a.quota_mr),
        shared("max_pd", a.max_pd, "protection domains", a.quota_pd),
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
