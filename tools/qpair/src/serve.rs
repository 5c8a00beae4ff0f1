// SPDX-License-Identifier: GPL-2.0
//! `qpair serve`: takes files from other processes, and gives them files.
//!
//! A thread for each peer, so that one that is slow, silent or wrong holds up no other.

use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;

use anyhow::{bail, ensure, Context as _};
use indicatif::ProgressBar;
use qpair::{Context, Endpoint, EndpointError, Stream};

use crate::args::{Link, Peer, Serve};
use crate::peer::{self, Listener};
use crate::session;
use crate::transfer::{self, Line, Moved};

/// Places for as many peers as may be served at a time.
#[derive(Debug)]
struct Places {
    free: Mutex<u32>,
    left: Condvar,
}

impl Places {
    /// Takes a place; waits until one is free.
    fn take(self: &Arc<Self>) -> Place {
        let free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        let free = self.left.wait_while(free, |free| *free == 0);
        *free.unwrap_or_else(PoisonError::into_inner) -= 1;
        Place(self.clone())
    }
}

/// A place that is taken.
#[derive(Debug)]
struct Place(Arc<Places>);

impl Drop for Place {
    fn drop(&mut self) {
        *self.0.free.lock().unwrap_or_else(PoisonError::into_inner) += 1;
        self.0.left.notify_one();
    }
}

pub(crate) fn run(device: Option<&str>, args: &Serve) -> anyhow::Result<()> {
    let folder = args.folder.display();
    ensure!(
        args.folder.is_dir(),
        "{folder} is no folder: name one that exists"
    );
    let place = match (&args.unix, &args.tcp) {
        (Some(path), _) => Peer::Unix(path.clone()),
        (None, Some(address)) => Peer::Tcp(address.clone()),
        (None, None) => bail!("name where to listen: --unix PATH or --tcp ADDR:PORT"),
    };
    let context = session::open(device)?;
    let listener = Listener::new(&place)?;
    eprintln!("qpair: serving {folder} on {place}");
    let places = Arc::new(Places {
        free: Mutex::new(args.peers),
        left: Condvar::new(),
    });
    for number in 1_u64.. {
        let taken = places.take();
        let stream = listener
            .accept()
            .with_context(|| format!("cannot listen on {place} any more: start it again"))?;
        let (context, link, folder) = (context.clone(), args.link, args.folder.clone());
        let served = thread::Builder::new().spawn(move || {
            match serve(&context, link, stream, &folder, number) {
                Ok(()) => eprintln!("qpair: peer {number} is done"),
                Err(error) => eprintln!("qpair: peer {number}: {error:#}"),
            }
            drop(taken);
        });
        // The peer was disconnected with the closure.
        if let Err(error) = served {
            eprintln!(
                "qpair: peer {number}: cannot start a thread: {error}: allow fewer peers (--peers)"
            );
        }
    }
    Ok(())
}

fn serve(
    context: &Context,
    link: Link,
    stream: Box<dyn Stream>,
    folder: &Path,
    number: u64,
) -> anyhow::Result<()> {
    let endpoint = Endpoint::connect(context, &peer::options(link), stream)?;
    let mut line = Line::new(endpoint, peer::timeout(link));
    loop {
        let request = match line.hear() {
            Ok(request) => request,
            Err(error) if is_close(&error) => return Ok(()),
            Err(error) => return Err(error),
        };
        let moved = (|| -> anyhow::Result<(String, Moved)> {
            let none = ProgressBar::hidden();
            if let Ok(name) = transfer::text(&request, "put") {
                return Ok((
                    format!("put {name}"),
                    line.receive_file(folder, name, &none)?,
                ));
            }
            let name = transfer::text(&request, "get")?;
            let mut file = transfer::open(folder, name)?;
            Ok((format!("get {name}"), line.send_file(&mut file, &none)?))
        })();
        match moved {
            Ok((what, moved)) => eprintln!("qpair: peer {number}: {what}: {moved}"),
            Err(error) => {
                line.fail(&error);
                // What it has said is delivered, if the peer listens.
                let _: anyhow::Result<()> = line.close();
                return Err(error);
            }
        }
    }
}

fn is_close(error: &anyhow::Error) -> bool {
    matches!(error.downcast_ref(), Some(EndpointError::Closed))
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};
    use std::os::unix::fs::symlink;
    use std::os::unix::net::UnixStream;
    use std::thread::JoinHandle;
    use std::time::{Duration, Instant};

    use rustix::fs::{mknodat, FileType, Mode, CWD};
    use serde_json::{json, Value};

    use super::*;
    use crate::support;

    const LINK: Link = Link {
        block: 1024,
        depth: 4,
        timeout: 20,
    };

    /// A peer of `serve`, on a device of their own.
    fn peer_of(folder: &Path) -> (Line, JoinHandle<anyhow::Result<()>>) {
        let (_fake, context) = support::machine();
        let (here, there) = UnixStream::pair().unwrap();
        let (served, at) = (context.clone(), folder.to_owned());
        let server = thread::spawn(move || serve(&served, LINK, Box::new(there), &at, 1));
        let endpoint = Endpoint::connect(&context, &peer::options(LINK), here).unwrap();
        (Line::new(endpoint, peer::timeout(LINK)), server)
    }

    /// The error of the server, which the peer must hear too.
    fn refusal(folder: &Path, request: &Value) -> String {
        let (mut line, server) = peer_of(folder);
        line.say(request).unwrap();
        let heard = line.hear().unwrap_err().to_string();
        let error = format!("{:#}", server.join().unwrap().unwrap_err());
        assert_eq!(heard, format!("the peer failed: {error}"), "{request}");
        error
    }

    #[test]
    fn a_peer_puts_and_gets() {
        let (served, fetched) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let (mut line, server) = peer_of(served.path());
        let none = ProgressBar::hidden();
        // The bytes of a file may be those of a message.
        for data in [&b""[..], b"{\"error\":\"none\"}", &[0x5a; 100_000]] {
            let from = fetched.path().join("from");
            fs::write(&from, data).unwrap();
            line.say(&json!({ "put": "a" })).unwrap();
            line.send_file(&mut File::open(&from).unwrap(), &none)
                .unwrap();
            assert_eq!(fs::read(served.path().join("a")).unwrap(), data);
            line.say(&json!({ "get": "a" })).unwrap();
            line.receive_file(fetched.path(), "a", &none).unwrap();
            assert_eq!(fs::read(fetched.path().join("a")).unwrap(), data);
        }
        line.close().unwrap();
        server.join().unwrap().unwrap();
    }

    #[test]
    fn a_file_that_is_truncated_during_get_is_an_error_of_the_peer() {
        let (served, fetched) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let path = served.path().join("a");
        let file = File::create(&path).unwrap();
        // More than is sent before the file is truncated.
        file.set_len(1 << 30).unwrap();
        let part = fetched.path().join(".a.part");
        let (mut line, server) = peer_of(served.path());
        let there = part.clone();
        let truncates = thread::spawn(move || {
            let deadline = Instant::now() + Duration::from_secs(20);
            while fs::metadata(&there).map_or(0, |about| about.len()) == 0 {
                assert!(Instant::now() < deadline, "nothing comes");
                thread::yield_now();
            }
            file.set_len(0).unwrap();
        });
        line.say(&json!({ "get": "a" })).unwrap();
        let error = line
            .receive_file(fetched.path(), "a", &ProgressBar::hidden())
            .unwrap_err();
        truncates.join().unwrap();
        let cause = "the file became shorter while it was sent";
        assert_eq!(error.to_string(), format!("the peer failed: {cause}"));
        assert_eq!(server.join().unwrap().unwrap_err().to_string(), cause);
        let held = fs::read(&part).unwrap();
        assert!(!held.is_empty() && held.iter().all(|&byte| byte == 0));
    }

    #[test]
    fn a_name_outside_of_the_folder_is_refused() {
        let outer = tempfile::tempdir().unwrap();
        let folder = outer.path().join("served");
        fs::create_dir(&folder).unwrap();
        fs::write(outer.path().join("x"), "mine").unwrap();
        fs::write(folder.join(".x"), "hidden").unwrap();
        for verb in ["get", "put"] {
            for name in ["../x", ".x", "a\u{1b}[2J"] {
                let error = refusal(&folder, &json!({ verb: name }));
                assert!(error.contains("is no name of a file"), "{error}");
                assert!(!error.contains(char::is_control), "{error:?}");
            }
        }
        assert_eq!(fs::read(outer.path().join("x")).unwrap(), b"mine");
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 1);
    }

    #[test]
    fn what_is_no_file_is_not_served() {
        let outer = tempfile::tempdir().unwrap();
        let folder = outer.path().join("served");
        fs::create_dir_all(folder.join("folder")).unwrap();
        fs::write(outer.path().join("x"), "mine").unwrap();
        symlink("../x", folder.join("link")).unwrap();
        mknodat(CWD, folder.join("fifo"), FileType::Fifo, Mode::RUSR, 0).unwrap();
        for name in ["folder", "link", "fifo"] {
            let error = refusal(&folder, &json!({ "get": name }));
            assert!(error.contains("regular file"), "{error}");
        }
    }

    #[test]
    fn a_part_that_is_a_link_is_not_followed() {
        let outer = tempfile::tempdir().unwrap();
        let folder = outer.path().join("served");
        fs::create_dir(&folder).unwrap();
        fs::write(outer.path().join("x"), "mine").unwrap();
        symlink("../x", folder.join(".a.part")).unwrap();
        mknodat(CWD, folder.join(".b.part"), FileType::Fifo, Mode::RUSR, 0).unwrap();
        for name in ["a", "b"] {
            let error = refusal(&folder, &json!({ "put": name }));
            assert!(error.contains("part: remove it"), "{error}");
        }
        assert_eq!(fs::read(outer.path().join("x")).unwrap(), b"mine");
    }
}
