// SPDX-License-Identifier: GPL-2.0
//! `qpair info`: limits, versions, link, counters.

use std::fmt::Write as _;
use std::path::Path;

use indicatif::{BinaryBytes, HumanCount};
use qpair::{Attributes, Device};
use serde_json::json;

use crate::args::Info;
use crate::report;

pub(crate) fn run(device: Option<&Path>, args: &Info) -> anyhow::Result<()> {
    let devices = match device {
        Some(path) => vec![Device::at(path)],
        None => Device::list()?,
    };
    if devices.is_empty() {
        return Err(qpair::Error::NoDevice.into());
    }
    let mut all = Vec::new();
    let mut text = String::new();
    for device in devices {
        let context = device.open()?;
        let attributes = context.attributes();
        let counters = context.counters()?;
        let name = device.path().display().to_string();
        if args.json {
            all.push(json!({
                "device": name,
                "interface": attributes.uapi_version,
                "model": version(attributes),
                "epoch": attributes.epoch,
                "link_up": attributes.link_up != 0,
                "doorbell_page": attributes.doorbell_page,
                "vectors": attributes.vectors,
                "limits": limits(attributes).map(|(key, value, ..)| (key.to_owned(), value.into()))
                    .into_iter().collect::<serde_json::Map<_, serde_json::Value>>(),
                "quota": {
                    "qp": attributes.quota_qp,
                    "cq": attributes.quota_cq,
                    "mr": attributes.quota_mr,
                    "pd": attributes.quota_pd,
                },
                "counters": report::counters_json(&counters),
            }));
            continue;
        }
        let link = if attributes.link_up != 0 {
            "up"
        } else {
            "down"
        };
        let _ = writeln!(
            text,
            "{name}: link {link}, model {}, interface {}, {} interrupt vector{}, reset {} times",
            version(attributes),
            attributes.uapi_version,
            attributes.vectors,
            if attributes.vectors == 1 { "" } else { "s" },
            attributes.epoch,
        );
        text.push_str("limits (of the device; of this process)\n");
        for (_, value, what, bytes, quota) in limits(attributes) {
            let shown = if bytes {
                BinaryBytes(value).to_string()
            } else {
                HumanCount(value).to_string()
            };
            let quota = quota.map_or(String::new(), |quota| format!("; {quota}"));
            let _ = writeln!(text, "  {shown:>15}  {what}{quota}");
        }
        text.push_str("counters (not 0)\n");
        text.push_str(&report::counters(&counters, &[]));
    }
    if args.json {
        text = report::json(&all.into());
    }
    report::print(&text)
}

fn version(attributes: &Attributes) -> String {
    let version = attributes.device_version;
    format!("{}.{}", version >> 16, version & 0xffff)
}

/// Key, value, what it limits, whether it is in bytes, and what this process may have of it.
type Limit = (&'static str, u64, &'static str, bool, Option<u32>);

fn limits(a: &Attributes) -> [Limit; 13] {
    let row = |key, value: u64, what, bytes, quota| (key, value, what, bytes, quota);
    [
        row(
            "max_qp",
            a.max_qp.into(),
            "queue pairs",
            false,
            Some(a.quota_qp),
        ),
        row(
            "max_cq",
            a.max_cq.into(),
            "completion queues",
            false,
            Some(a.quota_cq),
        ),
        row("max_eq", a.max_eq.into(), "event queues", false, None),
        row(
            "max_mr",
            a.max_mr.into(),
            "memory regions",
            false,
            Some(a.quota_mr),
        ),
        row(
            "max_pd",
            a.max_pd.into(),
            "protection domains",
            false,
            Some(a.quota_pd),
        ),
        row(
            "max_sq_blocks",
            a.max_sq_blocks.into(),
            "64-byte blocks of a send queue",
            false,
            None,
        ),
        row(
            "max_rq_depth",
            a.max_rq_depth.into(),
            "receives of a receive queue",
            false,
            None,
        ),
        row(
            "max_cq_depth",
            a.max_cq_depth.into(),
            "entries of a completion queue",
            false,
            None,
        ),
        row(
            "max_send_sge",
            a.max_send_sge.into(),
            "pieces of a send, write or read",
            false,
            None,
        ),
        row(
            "max_recv_sge",
            a.max_recv_sge.into(),
            "pieces of a receive",
            false,
            None,
        ),
        row(
            "max_inline",
            a.max_inline.into(),
            "of inline data",
            true,
            None,
        ),
        row(
            "max_message",
            a.max_message.into(),
            "of a message",
            true,
            None,
        ),
        row(
            "max_mr_bytes",
            a.max_mr_bytes,
            "of a memory region",
            true,
            None,
        ),
    ]
}
