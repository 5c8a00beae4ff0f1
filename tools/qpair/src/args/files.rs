// SPDX-License-Identifier: GPL-2.0
//! The commands that move files between processes.

use std::path::PathBuf;

use super::{size, up_to};

pub(super) const SERVE_HELP: &str = "\
Each peer has an endpoint of its own: a queue pair, a completion queue and
buffers. The socket carries the handshake; the files go through the queue pairs.
So with --tcp too, the peer is a process on the machine of the device.

A file that is coming is .NAME.part until it is whole and its SHA-256 is that of
the sender. If either end is killed, the next put of the same file goes on where
it ended, if the bytes before are the same.

Only regular files of the folder itself are served: no links, no folders, and no
names that begin with a dot.

A peer that is silent for --timeout seconds, or breaks the protocol, is
disconnected; the others do not notice. It serves until a signal ends it.

Examples:
  qpair serve --unix /run/q                   the current folder
  qpair serve --tcp 127.0.0.1:7000 /srv       another one
  qpair serve --unix /run/q & qpair put a.img unix:/run/q; qpair get a.img /run/q --to /tmp";

#[derive(Debug, clap::Args)]
#[command(group = clap::ArgGroup::new("where").required(true).args(["unix", "tcp"]))]
pub(crate) struct Serve {
    /// Listens on a Unix socket
    #[arg(long, value_name = "PATH")]
    pub(crate) unix: Option<PathBuf>,
    /// Listens on a TCP address
    #[arg(long, value_name = "ADDR:PORT")]
    pub(crate) tcp: Option<String>,
    /// The folder of the files
    #[arg(default_value = ".", value_name = "FOLDER")]
    pub(crate) folder: PathBuf,
    /// Peers at a time; others wait
    #[arg(long, default_value_t = 64, value_parser = up_to(4096))]
    pub(crate) peers: u32,
    #[command(flatten)]
    pub(crate) link: Link,
}

pub(super) const PUT_HELP: &str = "\
PEER is unix:PATH or tcp:HOST:PORT, as of `qpair serve`. The prefix may be left
out: what has a slash is a path. A file gets its last name component there.

If the transfer was cut, the same command goes on where it ended.

Examples:
  qpair put a.img b.img unix:/run/q
  qpair put a.img 127.0.0.1:7000";

#[derive(Debug, clap::Args)]
pub(crate) struct Put {
    /// Files to send
    #[arg(required = true, value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,
    /// The process that serves
    pub(crate) peer: Peer,
    #[command(flatten)]
    pub(crate) link: Link,
}

pub(super) const GET_HELP: &str = "\
PEER is as for `qpair put`. A file that is coming is .NAME.part until it is
whole and its SHA-256 is that of the sender. If the transfer was cut, the same
command goes on where it ended.

Examples:
  qpair get a.img unix:/run/q
  qpair get a.img b.img /run/q --to /tmp";

#[derive(Debug, clap::Args)]
pub(crate) struct Get {
    /// Files of the folder that is served
    #[arg(required = true, value_name = "NAME")]
    pub(crate) names: Vec<String>,
    /// The process that serves
    pub(crate) peer: Peer,
    /// The folder to write to
    #[arg(long, default_value = ".", value_name = "FOLDER")]
    pub(crate) to: PathBuf,
    #[command(flatten)]
    pub(crate) link: Link,
}

/// The endpoints of two processes.
#[derive(Clone, Copy, Debug, clap::Args)]
pub(crate) struct Link {
    /// Bytes of a message; the smaller of both ends counts
    #[arg(long, default_value = "16k", value_parser = block)]
    pub(crate) block: u32,
    /// Messages in flight in each direction
    #[arg(long, default_value_t = 16, value_parser = up_to(16384))]
    pub(crate) depth: u32,
    /// Gives up when the peer is silent for this many seconds
    #[arg(long, default_value_t = 30, value_parser = up_to(86400), value_name = "SECONDS")]
    pub(crate) timeout: u32,
}

/// Where a process serves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Peer {
    Unix(PathBuf),
    Tcp(String),
}

impl std::str::FromStr for Peer {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (unix, tcp) = (text.strip_prefix("unix:"), text.strip_prefix("tcp:"));
        match (unix, tcp) {
            (Some(path), _) if !path.is_empty() => Ok(Self::Unix(path.into())),
            (_, Some(address)) if address.contains(':') => Ok(Self::Tcp(address.into())),
            (None, None) if text.contains('/') => Ok(Self::Unix(text.into())),
            (None, None) if text.contains(':') => Ok(Self::Tcp(text.into())),
            _ => Err("unix:PATH or tcp:HOST:PORT, as of `qpair serve`"),
        }
    }
}

impl std::fmt::Display for Peer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
            Self::Tcp(address) => write!(f, "tcp:{address}"),
        }
    }
}

/// A size of messages, which carry more than bytes of files.
fn block(text: &str) -> Result<u32, String> {
    match size(text)? {
        bytes @ 1024..=0x4000_0000 => Ok(bytes),
        _ => Err("from 1k to 1G".into()),
    }
}
