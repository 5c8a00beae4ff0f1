// SPDX-License-Identifier: GPL-2.0
//! The command line, and its help.

mod files;

use std::path::PathBuf;

use clap::{Parser, Subcommand, ValueEnum};

pub(crate) use self::files::{Get, Link, Peer, Put, Serve};
use self::files::{GET_HELP, PUT_HELP, SERVE_HELP};

const AFTER_HELP: &str = "\
Examples:
  qpair info                           what the device is, allows and has counted
  qpair copy vmlinuz /tmp/v            a file through queue pairs, digests compared
  tar c . | qpair copy - - | tar t     the same in a pipe
  qpair serve --unix /tmp/q            files of this folder, for other processes
  qpair put vmlinuz unix:/tmp/q        a file to a process that serves
  qpair ping --size 64 --events        round trips, with an interrupt for each
  qpair bench --op write --size 1M     how fast it moves bytes
  qpair loopback --qps 8               the kernel's own queue pairs
  qpair top                            what goes on in each queue, live
  qpair trace qpair loopback           a timeline of the event path

Numbers may have k, M or G: a size of 4k is 4096 bytes, a count of 4k is 4000.

Exit status: 0 done; 1 failed (also: the digests differ); 2 bad usage; 3 no
device, or no access to it; 130 interrupted.";

/// Drives a queue pair device from user space, past the kernel.
#[derive(Debug, Parser)]
#[command(name = "qpair", version, after_help = AFTER_HELP)]
pub(crate) struct Args {
    /// The device: a name as qpair0, its number, or a path as /dev/infiniband/uverbs0 [default: the first]
    #[arg(long, global = true, value_parser = device, value_name = "DEVICE")]
    pub(crate) device: Option<String>,
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Shows limits, versions, link and counters
    Info(Info),
    /// Copies a file through queue pairs of this process, and compares both ends
    #[command(after_help = COPY_HELP)]
    Copy(Copy),
    /// Takes files from other processes, and gives them files
    #[command(after_help = SERVE_HELP)]
    Serve(Serve),
    /// Sends files to a process that serves
    #[command(after_help = PUT_HELP)]
    Put(Put),
    /// Fetches files from a process that serves
    #[command(after_help = GET_HELP)]
    Get(Get),
    /// Measures round trips between two queue pairs
    #[command(after_help = PING_HELP)]
    Ping(Ping),
    /// Measures messages and bytes a second
    #[command(after_help = BENCH_HELP)]
    Bench(Bench),
    /// Runs the kernel's own client: queue pairs in the driver that move and verify data
    #[command(after_help = LOOPBACK_HELP)]
    Loopback(Loopback),
    /// Shows the activity of each event queue, completion queue and queue pair, live
    #[command(after_help = TOP_HELP)]
    Top(Top),
    /// Runs a command and records the driver's activity meanwhile as a timeline
    #[command(after_help = TRACE_HELP)]
    Trace(Trace),
}

const TRACE_HELP: &str = "\
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

pub(crate) const TOP_HELP: &str = "\
Keys: q or Ctrl-C quits, Tab selects a table, j and k (or arrows) scroll it,
Space pauses. It needs no mouse and no colours, so it works on a serial console.
If the size of the terminal is unknown, it uses 80x24 (stty rows 50 cols 132
sets it).

The lines at the top are about the device, and begin with its name and health:
  epoch        resets since the driver was bound
  n, k         the tunables events and completions of polls: events for each
               update of an EQ's head, and completions of a CQ in its turn
  budget       completions and other events of one poll
  policy       0, or 1 for the loop of the source model
               (Documentation/driver.rst)
  a second     CQEs and EQEs that the device writes, its interrupts, and bytes
               that messages, WRITEs and READs move
  doorbells    a second; arm: of CQs; EQ: head updates that keep the mask
  errors       the total of the counters errors, flushes, violations,
               dma-faults, cq-overruns and stale of qpair info

Three tables follow. The first heading of a table is the kind and the number of
its objects; below it are their names, index.generation. Columns with /s are
rates per second. A - is a rate without an earlier sample, or a ratio to 0. ERR
is a total; a row with errors is red.

EQ, an event queue:
  VEC          interrupt vector
  CQS          completion queues with their events here
  USED         events whose slots are not free, and all its slots
  IRQ/s        interrupts
  POLL/s       polls by the driver
  EQE/s        events that polls took
  CQE/s        completions of these queues, those of processes included
  CQE/IRQ      completions for each interrupt, which measures coalescing
  EQE/HEAD     events for each update of the head
  MODER.       moderation: an interrupt after this many events / this time, or
               off
  ERR          lost interrupts; events of completion queues that are gone or not
               armed; asynchronous events without a handler
CQ, a completion queue:
  OWNER        the kernel, or the doorbell page of an open file
  EQ           the event queue of its events
  USED         completions whose slots are not free, and all its slots
  CQE/s        completions
  ERR          stale completions; only counted for the kernel's
QP, a queue pair:
  OWNER        as of a completion queue
  STATE        RESET, INIT, RTR, RTS, SQD or ERROR, which is red
  SEND CQ      the completion queue of its sends
  RECV CQ      that of its receives
  SQ           blocks of 64 bytes that are posted and not done, and all blocks;
               a work request takes one or more
  SEND/s       blocks done
  RQ           receives that are posted and not taken, and the most
  RECV/s       receives taken
  ERR          stale completions; only counted for the kernel's

The indices of all queues come from the device, by a command for each; the
completions and events of these commands, on CQ 0.0 and EQ 0.0, are counted too.

With --json each sample is an object on a line, with --once one on many lines:
  device, health, epoch    seconds: between the looks
  tuning      {events, completions, budget, policy}
  counters    by name {total, rate}: what the device counted
  eqs         [{number, vector, depth, used, cqs, interrupts, polls, events,
              completions, heads, arms, completions_per_interrupt,
              completions_per_event, events_per_head, moderation {count, usecs},
              pending, spare, lost_interrupts, errors}]
  cqs         [{number, page, eq, depth, used, completions, errors}]
  qps         [{number, page, state, send_cq, recv_cq, sq {depth, used, rate},
              rq {depth, used, rate}, errors}]
Numbers of objects are generation * 65536 + index. Rates are per second, and null
without an earlier sample or with a divisor of 0. used, depth, cqs, pending and
spare are current values; lost_interrupts and errors are totals.

This needs root, and debugfs at /sys/kernel/debug (mount -t debugfs none
/sys/kernel/debug).

Examples:
  qpair top --interval 0.5
  qpair top --once --json | jq '.eqs[].completions_per_interrupt'";

#[derive(Debug, clap::Args)]
pub(crate) struct Top {
    /// Seconds between samples
    #[arg(long, default_value = "1", value_parser = interval, value_name = "SECONDS")]
    pub(crate) interval: f64,
    /// Takes two samples, reports once, and exits
    #[arg(long)]
    pub(crate) once: bool,
    /// As JSON
    #[arg(long)]
    pub(crate) json: bool,
}

fn interval(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(seconds) if (0.05..=3600.0).contains(&seconds) => Ok(seconds),
        _ => Err("seconds, from 0.05 to 3600".into()),
    }
}

#[derive(Debug, clap::Args)]
pub(crate) struct Info {
    /// As JSON
    #[arg(long)]
    pub(crate) json: bool,
}

const COPY_HELP: &str = "\
SRC is read into registered memory, block by block. The device moves each block
to other memory, from which DST is written: with `send` into a posted receive,
with `write` to the peer's memory, with `read` by a request of the receiving
side. The SHA-256 of the bytes read from SRC and written to DST are compared.
Blocks go round-robin over the queue pairs, and are written in order.

If it is interrupted or fails, it removes DST; if that is not possible (a pipe
or a device), it prints how much was written.

Examples:
  qpair copy /boot/vmlinuz /tmp/vmlinuz
  qpair copy --op read --qps 16 --events big.img /tmp/big.img
  zcat dump.gz | qpair copy - - --block 16k | psql";

#[derive(Debug, clap::Args)]
pub(crate) struct Copy {
    /// The file to read; - is standard input
    pub(crate) src: PathBuf,
    /// The file to write; - is standard output
    pub(crate) dst: PathBuf,
    /// The operation that moves the bytes
    #[arg(long, value_enum, default_value = "send")]
    pub(crate) op: Op,
    /// Pairs of connected queue pairs
    #[arg(long, default_value_t = 1, value_parser = up_to(u32::MAX))]
    pub(crate) qps: u32,
    /// Blocks in flight in each
    #[arg(long, default_value_t = 16, value_parser = up_to(32768))]
    pub(crate) depth: u32,
    /// Bytes of a block
    #[arg(long, default_value = "64k", value_parser = size)]
    pub(crate) block: u32,
    #[command(flatten)]
    pub(crate) wait: Wait,
    /// Report as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

const PING_HELP: &str = "\
One queue pair sends to another, which sends back; both belong to this process.
With --poll the process polls for completions; with --events it arms the
completion queue and sleeps until the device's interrupt wakes it.

With --json, percentiles is a list of [percentile, microseconds].

Examples:
  qpair ping
  qpair ping --size 4k --count 100000 --json";

#[derive(Debug, clap::Args)]
pub(crate) struct Ping {
    /// Bytes of a message
    #[arg(long, default_value = "64", value_parser = size)]
    pub(crate) size: u32,
    /// Round trips
    #[arg(long, default_value = "1000", value_parser = count)]
    pub(crate) count: u64,
    #[command(flatten)]
    pub(crate) wait: Wait,
    /// Report as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

const BENCH_HELP: &str = "\
Work requests are posted in batches: one doorbell for each batch, and one
completion for its last request (with `send`, the receiver has one for each).
With --signal N every Nth request of a batch, counted back from the last, is
signalled.

With --ud, the messages are datagrams; with --srq, all queue pairs take their
receives from one shared receive queue.

With --endpoint, the messages go between two endpoints, with flow control and
buffers; then as many go through a Unix socket, for comparison.

Examples:
  qpair bench                                  small messages
  qpair bench --ud --srq --qps 8               datagrams, into shared receives
  qpair bench --endpoint --batch 32            messages with flow control
  qpair bench --op write --size 1M --count 4k  bytes
  qpair bench --batch 1                        what batching saves";

#[derive(Debug, clap::Args)]
pub(crate) struct Bench {
    /// The operation to measure
    #[arg(long, value_enum, default_value = "send")]
    pub(crate) op: Op,
    /// Bytes of a message
    #[arg(long, default_value = "64", value_parser = size)]
    pub(crate) size: u32,
    /// Work requests for each doorbell
    #[arg(long, default_value_t = 16, value_parser = up_to(4096))]
    pub(crate) batch: u32,
    /// Signals every Nth work request of a batch, counted back from the last
    #[arg(long, value_name = "N", value_parser = up_to(u32::MAX))]
    pub(crate) signal: Option<u32>,
    /// Pairs of connected queue pairs
    #[arg(long, default_value_t = 1, value_parser = up_to(u32::MAX))]
    pub(crate) qps: u32,
    /// Messages in all
    #[arg(long, default_value = "100000", value_parser = count)]
    pub(crate) count: u64,
    /// Sends datagrams, of at most 4096 bytes
    #[arg(long, conflicts_with_all = ["op", "endpoint"])]
    pub(crate) ud: bool,
    /// Takes the receives of all queue pairs from one shared receive queue
    #[arg(long, conflicts_with_all = ["op", "endpoint"])]
    pub(crate) srq: bool,
    /// Sends messages between two endpoints
    #[arg(long, conflicts_with_all = ["op", "signal", "qps", "events"])]
    pub(crate) endpoint: bool,
    #[command(flatten)]
    pub(crate) wait: Wait,
    /// Report as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

const LOOPBACK_HELP: &str = "\
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
    /// Frames that are handed over together
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

/// How to wait for completions.
#[derive(Clone, Copy, Debug, clap::Args)]
pub(crate) struct Wait {
    /// Poll for completions without sleeping (the default)
    #[arg(long, conflicts_with = "events")]
    pub(crate) poll: bool,
    /// Sleep until the device's interrupt
    #[arg(long)]
    pub(crate) events: bool,
    /// Fail when no completion came for this many seconds
    #[arg(long, default_value_t = 30, value_parser = up_to(86400), value_name = "SECONDS")]
    pub(crate) stall_limit: u32,
}

impl Wait {
    pub(crate) fn name(self) -> &'static str {
        if self.events {
            "events"
        } else {
            "poll"
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Op {
    /// SEND into a receive of the peer
    Send,
    /// RDMA WRITE to the peer's memory
    Write,
    /// RDMA READ of the peer's memory
    Read,
}

impl Op {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Send => "send",
            Self::Write => "write",
            Self::Read => "read",
        }
    }
}

fn count(text: &str) -> Result<u64, String> {
    number(text, parse_size::Config::new().with_decimal())
}

/// A count that is not more than `most`.
fn up_to(most: u32) -> impl Fn(&str) -> Result<u32, String> + Clone + Send + Sync {
    move |text| match count(text)?.try_into() {
        Ok(value) if value <= most => Ok(value),
        _ => Err(format!("at most {most}")),
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

fn size(text: &str) -> Result<u32, String> {
    number(text, parse_size::Config::new().with_binary())?
        .try_into()
        .map_err(|_| "larger than any device's message (see `qpair info`)".into())
}

fn number(text: &str, config: parse_size::Config) -> Result<u64, String> {
    match config.parse_size(text) {
        Ok(0) => Err("at least 1".into()),
        Ok(value) => Ok(value),
        Err(error) => Err(format!("{error}; a number, with k, M or G if you like")),
    }
}

fn device(text: &str) -> Result<String, String> {
    if text.is_empty() {
        return Err("a name, a number or a path".into());
    }
    Ok(if text.bytes().all(|byte| byte.is_ascii_digit()) {
        format!("qpair{text}")
    } else {
        text.into()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory as _;

    #[test]
    fn the_command_line_makes_sense() {
        Args::command().debug_assert();
    }

    #[test]
    fn sizes_are_binary_counts_decimal() {
        assert_eq!(size("4k"), Ok(4096));
        assert_eq!(size("1M"), Ok(1 << 20));
        assert_eq!(size("64KiB"), Ok(65536));
        assert_eq!(count("20k"), Ok(20_000));
        for bad in ["", "0", "-1", "4x", "8G", "1.2.3"] {
            assert!(size(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn every_count_takes_a_suffix_and_keeps_its_limit() {
        for (command, options) in [
            ("copy", &["--qps", "--depth"][..]),
            ("ping", &["--count"]),
            ("bench", &["--batch", "--signal", "--qps", "--count"]),
            ("loopback", &["--qps", "--depth", "--count", "--batch"]),
        ] {
            let files = if command == "copy" {
                &["a", "b"][..]
            } else {
                &[]
            };
            for option in options {
                let parse = |value| {
                    let words = ["qpair", command, option, value];
                    Args::try_parse_from(words.iter().chain(files)).map(drop)
                };
                for good in ["2", "1k", "0.5k"] {
                    assert!(parse(good).is_ok(), "{command} {option} {good}");
                }
                for bad in ["0", "-1", "x", ""] {
                    let error = parse(bad).unwrap_err();
                    assert_eq!(error.exit_code(), 2, "{command} {option} {bad}");
                }
            }
        }
        assert_eq!(up_to(4096)("4k"), Ok(4000));
        assert!(up_to(4096)("5k").is_err());
        assert!(up_to(u32::MAX)("5G").is_err());
    }

    #[test]
    fn queue_pairs_of_the_kernel_come_in_twos() {
        let parse = |option, value| {
            let parsed = Args::try_parse_from(["qpair", "loopback", option, value]);
            parsed.map(drop).map_err(|error| error.exit_code())
        };
        for (option, value, expected) in [
            ("--qps", "4", Ok(())),
            ("--qps", "1", Err(2)),
            ("--qps", "3", Err(2)),
            ("--group", "1", Ok(())),
            ("--group", "32", Ok(())),
            ("--group", "3", Err(2)),
            ("--group", "34", Err(2)),
            ("--group", "0", Err(2)),
        ] {
            assert_eq!(parse(option, value), expected, "{option} {value}");
        }
    }

    #[test]
    fn a_device_is_a_number_a_name_or_a_path() {
        assert_eq!(device("3"), Ok("qpair3".into()));
        assert_eq!(device("qpair1"), Ok("qpair1".into()));
        assert_eq!(device("/tmp/x"), Ok("/tmp/x".into()));
        assert!(device("").is_err());
    }

    #[test]
    fn a_peer_is_a_path_or_an_address() {
        let peer = |text: &str| text.parse::<Peer>();
        let unix = Ok(Peer::Unix("/run/q".into()));
        assert_eq!([peer("/run/q"), peer("unix:/run/q")], [unix.clone(), unix]);
        let tcp = Ok(Peer::Tcp("localhost:7".into()));
        assert_eq!(
            [peer("localhost:7"), peer("tcp:localhost:7")],
            [tcp.clone(), tcp]
        );
        for bad in ["", "q", "unix:", "tcp:", "tcp:7"] {
            assert!(peer(bad).is_err(), "{bad}");
        }
        let parse = |words: &[&str]| Args::try_parse_from(words).map(|args| args.command);
        let Ok(Command::Put(put)) = parse(&["qpair", "put", "a", "b", "/run/q"]) else {
            panic!("put");
        };
        assert_eq!(
            (put.files.len(), put.peer),
            (2, Peer::Unix("/run/q".into()))
        );
        assert!(parse(&["qpair", "put", "/run/q"]).is_err());
        assert!(parse(&["qpair", "serve"]).is_err());
        assert!(parse(&["qpair", "serve", "--unix", "a", "--tcp", "b"]).is_err());
    }

    #[test]
    fn polling_and_events_exclude_each_other() {
        let parse = |args: &[&str]| Args::try_parse_from(args).map(drop);
        assert!(parse(&["qpair", "ping", "--poll"]).is_ok());
        assert!(parse(&["qpair", "ping", "--poll", "--events"]).is_err());
        assert!(parse(&["qpair", "copy", "a"]).is_err());
        assert!(parse(&["qpair", "copy", "a", "b", "--qps", "0"]).is_err());
        assert!(parse(&["qpair", "ping", "--stall-limit", "2", "--events"]).is_ok());
        assert!(parse(&["qpair", "ping", "--stall-limit", "0"]).is_err());
    }
}
