// SPDX-License-Identifier: GPL-2.0
//! Connecting two processes: sockets, and the endpoints beside them.

use std::fs;
use std::io::{self, ErrorKind};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::FileTypeExt as _;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::thread;
use std::time::Duration;

use anyhow::Context as _;
use qpair::{Context, Endpoint, EndpointOptions, Stream};
use rustix::io::Errno;

use crate::args::{Link, Peer};

/// Between two attempts to take a peer.
const PAUSE: Duration = Duration::from_millis(500);

/// The options of an endpoint.
pub(crate) fn options(link: Link) -> EndpointOptions {
    EndpointOptions::new()
        .message(link.block)
        .depth(link.depth)
        .backlog(link.depth)
        .direct(0, 0)
        .timeout(timeout(link))
}

pub(crate) fn timeout(link: Link) -> Duration {
    Duration::from_secs(link.timeout.into())
}

/// Connects to a process that serves.
pub(crate) fn connect(context: &Context, peer: &Peer, link: Link) -> anyhow::Result<Endpoint> {
    let stream: io::Result<Box<dyn Stream>> = match peer {
        Peer::Unix(path) => UnixStream::connect(path).map(|s| Box::new(s) as _),
        Peer::Tcp(address) => TcpStream::connect(address).map(|s| Box::new(s) as _),
    };
    let stream = stream.with_context(|| {
        format!("cannot reach {peer}: start `qpair serve` there, or name where it serves")
    })?;
    Endpoint::connect(context, &options(link), stream)
        .with_context(|| format!("no connection with {peer}"))
}

/// Where a process listens.
#[derive(Debug)]
pub(crate) enum Listener {
    Unix(UnixListener),
    Tcp(TcpListener),
}

impl Listener {
    pub(crate) fn new(place: &Peer) -> anyhow::Result<Self> {
        let listener = match place {
            Peer::Unix(path) => {
                remove_stale(path);
                UnixListener::bind(path).map(Self::Unix)
            }
            Peer::Tcp(address) => TcpListener::bind(address).map(Self::Tcp),
        };
        listener.with_context(|| {
            format!("cannot listen on {place}: end the process that does, or name another place")
        })
    }

    /// The next peer. What one peer, or a lack of resources, causes is waited for.
    pub(crate) fn accept(&self) -> io::Result<Box<dyn Stream>> {
        accept(PAUSE, || match self {
            Self::Unix(listener) => listener.accept().map(|(s, _)| Box::new(s) as _),
            Self::Tcp(listener) => listener.accept().map(|(s, _)| Box::new(s) as _),
        })
    }
}

/// Repeats `next` until it has a peer, or an error of the listener itself.
fn accept<T>(pause: Duration, mut next: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    let mut reported = None;
    loop {
        let error = match next() {
            Err(error) => error,
            peer => return peer,
        };
        match error.raw_os_error().map(Errno::from_raw_os_error) {
            // A peer that is gone again.
            Some(Errno::INTR | Errno::CONNABORTED) => {}
            None | Some(Errno::BADF | Errno::FAULT | Errno::INVAL | Errno::NOTSOCK) => {
                return Err(error)
            }
            // The process or the system has too little of something, or the network fails.
            errno => {
                if reported != errno {
                    eprintln!("qpair: no peer can be taken now: {error}; trying again");
                    reported = errno;
                }
                thread::sleep(pause);
            }
        }
    }
}

/// Removes a socket that a killed process has left.
fn remove_stale(path: &Path) {
    let is_socket = fs::symlink_metadata(path).is_ok_and(|about| about.file_type().is_socket());
    let is_refused = || {
        let error = UnixStream::connect(path).err();
        error.is_some_and(|error| error.kind() == ErrorKind::ConnectionRefused)
    };
    // Another error does not show that no process listens.
    if is_socket && is_refused() {
        // If it cannot be removed, `bind` says so.
        let _: io::Result<()> = fs::remove_file(path);
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixDatagram;

    use super::*;

    #[test]
    fn a_socket_that_was_left_is_replaced_and_one_in_use_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let place = Peer::Unix(folder.path().join("q"));
        drop(Listener::new(&place).unwrap());
        let again = Listener::new(&place).unwrap();
        let refused = Listener::new(&place).unwrap_err();
        assert!(format!("{refused:#}").contains("cannot listen on unix:"));
        drop(again);
    }

    #[test]
    fn a_socket_of_another_kind_is_not_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("q");
        let _other = UnixDatagram::bind(&path).unwrap();
        assert!(Listener::new(&Peer::Unix(path.clone())).is_err());
        assert!(path.exists());
    }

    #[test]
    fn a_lack_of_resources_does_not_end_the_listener() {
        use Errno as E;
        let passing = [E::MFILE, E::NFILE, E::NOMEM, E::NOBUFS, E::PROTO, E::INTR];
        let mut errors = passing.iter();
        let mut taken = 0;
        let peer = accept(Duration::ZERO, || match errors.next() {
            Some(&errno) => Err(errno.into()),
            None => {
                taken += 1;
                Ok(taken)
            }
        });
        assert_eq!(peer.unwrap(), 1);
        let mut calls = 0;
        let ended = accept::<()>(Duration::ZERO, || {
            calls += 1;
            Err(E::INVAL.into())
        });
        assert_eq!(
            ended.unwrap_err().raw_os_error(),
            Some(E::INVAL.raw_os_error())
        );
        assert_eq!(calls, 1);
    }

    #[test]
    fn a_file_is_not_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("q");
        fs::write(&path, "mine").unwrap();
        assert!(Listener::new(&Peer::Unix(path.clone())).is_err());
        assert_eq!(fs::read(path).unwrap(), b"mine");
    }
}
