// SPDX-License-Identifier: GPL-2.0
//! The options of `qpair trace`.

use std::path::PathBuf;

use super::size;

pub(super) const TRACE_HELP: &str = "\
The timeline has, for each EQ, interrupts and how long they stay masked, polls,
EQEs and head updates; for each CQ of the kernel its turns with their CQEs, arms
and head updates; work requests and doorbells of the kernel's queue pairs; and
errors. A process posts, polls and arms without the kernel, so only its events
are recorded.

OUT.json opens in https://ui.perfetto.dev (or chrome://tracing); OUT.svg shows
the stretch of polls with the most completions. If the buffer is too small, the
oldest events are lost; their number is printed.

This needs root, and tracefs at /sys/kernel/tracing (mount -t tracefs none
/sys/kernel/tracing). It uses a trace instance of its own and removes it at the
end.

Examples:
  qpair trace qpair loopback --qps 8 --size 64
  qpair trace --out /tmp/ping --buffer 64M -- qpair ping --events";

#[derive(Debug, clap::Args)]
pub(crate) struct Trace {
    /// Writes OUT.json and OUT.svg
    #[arg(long, default_value = "qpair-trace", value_name = "OUT")]
    pub(crate) out: PathBuf,
    /// Bytes of the kernel's buffer for each CPU
    #[arg(long, default_value = "16M", value_parser = size)]
    pub(crate) buffer: u32,
    /// The command to run
    #[arg(
        required = true,
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "CMD"
    )]
    pub(crate) command: Vec<String>,
}
