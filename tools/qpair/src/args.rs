// SPDX-License-Identifier: GPL-2.0
//! The command line, and its help.

mod files;
mod loopback;
mod top;
mod trace;

use std::path::PathBuf;

use clap::{Parser, Subcommand, ValueEnum};

use self::files::{GET_HELP, PUT_HELP, SERVE_HELP};
use self::loopback::LOOPBACK_HELP;
use self::trace::TRACE_HELP;

pub(crate) use self::files::{Get, Link, Peer, Put, Serve};
pub(crate) use self::loopback::{Loopback, Rung};
pub(crate) use self::top::{Top, TOP_HELP};
pub(crate) use self::trace::Trace;

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
signaled.

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
