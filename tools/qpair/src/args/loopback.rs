// SPDX-License-Identifier: GPL-2.0
//! The options of `qpair loopback`.

use clap::ValueEnum;

use super::{count, size, up_to, Op};

pub(super) const LOOPBACK_HELP: &str = "\
--kind chooses what moves the bytes. pair is queue pairs. The others need the
function qpair-stream (QEMU: -device qpair-stream), and move frames through a
pair of its channels: polled has one descriptor and no interrupt, chain has
linked descriptors, headtail has a ring with a head and a tail. Every frame is
verified.

This needs root, and debugfs at /sys/kernel/debug (mount -t debugfs none
/sys/kernel/debug).

Examples:
  qpair loopback
  qpair loopback --qps 16 --depth 128 --count 1M --json
  qpair loopback --kind chain --size 1500 --batch 32";

#[derive(Debug, clap::Args)]
pub(crate) struct Loopback {
    /// What moves the bytes
    #[arg(long, value_enum, default_value = "pair")]
    pub(crate) kind: Rung,
    /// The operation
    #[arg(long, value_enum, default_value = "send")]
    pub(crate) op: Op,
    /// Queue pairs, connected in twos
    #[arg(long, default_value_t = 2, value_parser = two_by_two(u32::MAX))]
    pub(crate) qps: u32,
    /// Messages in flight in each queue pair; descriptors of each ring
    #[arg(long, default_value_t = 64, value_parser = up_to(u32::MAX))]
    pub(crate) depth: u32,
    /// Bytes of a message or frame [default: 4k; frames 64]
    #[arg(long, value_parser = size)]
    pub(crate) size: Option<u32>,
    /// Messages that each queue pair sends; frames
    #[arg(long, default_value = "1000", value_parser = count)]
    pub(crate) count: u64,
    /// Queue pairs on each completion queue; 1: each has its own, and is its own peer
    #[arg(long, default_value_t = 32, value_parser = group)]
    pub(crate) group: u32,
    /// Frames that are submitted together
    #[arg(long, default_value_t = 1, value_parser = up_to(u32::MAX))]
    pub(crate) batch: u32,
    /// The pair of channels [default: the first of the kind]
    #[arg(long)]
    pub(crate) channel: Option<u32>,
    /// Report as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// What moves the bytes of a loopback: the rungs of Documentation/ladder.rst.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Rung {
    /// One descriptor, looked at without an interrupt
    Polled,
    /// Linked descriptors
    Chain,
    /// A ring with a head and a tail
    Headtail,
    /// Queue pairs
    Pair,
}

impl Rung {
    /// Its name in the driver's file.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Polled => "polled",
            Self::Chain => "chain",
            Self::Headtail => "headtail",
            Self::Pair => "pair",
        }
    }
}

/// A count of queue pairs, each with another as its peer.
fn two_by_two(most: u32) -> impl Fn(&str) -> Result<u32, String> + Clone + Send + Sync {
    let count = up_to(most);
    move |text| match count(text)? {
        value if value % 2 == 0 => Ok(value),
        _ => Err("queue pairs are connected in twos: give an even number".into()),
    }
}

/// Queue pairs on a completion queue; a single one is its own peer.
fn group(text: &str) -> Result<u32, String> {
    match count(text)? {
        1 => Ok(1),
        _ => two_by_two(32)(text),
    }
}
