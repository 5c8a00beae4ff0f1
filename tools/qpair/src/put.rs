// SPDX-License-Identifier: GPL-2.0
//! `qpair put` and `qpair get`: files to and from a process that serves.

use std::fs::OpenOptions;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::time::Instant;

use anyhow::{ensure, Context as _};
use qpair::EndpointError;
use rustix::fs::OFlags;
use serde_json::json;

use crate::args::{Get, Link, Peer, Put};
use crate::peer;
use crate::report;
use crate::session;
use crate::transfer::{self, Line, Moved};

fn line(device: Option<&str>, peer: &Peer, link: Link) -> anyhow::Result<Line> {
    let context = session::open(device)?;
    let endpoint = peer::connect(&context, peer, link)?;
    Ok(Line::new(endpoint, peer::timeout(link)))
}

fn done(name: &str, moved: &Moved, begin: Instant) -> anyhow::Result<()> {
    let rate = report::bytes_a_second(moved.bytes - moved.from, begin.elapsed());
    report::print(&format!("{name}: {moved}, {rate}\n"))
}

pub(crate) fn put(device: Option<&str>, args: &Put) -> anyhow::Result<()> {
    let mut line = line(device, &args.peer, args.link)?;
    for path in &args.files {
        let shown = path.display();
        let name = path.file_name().and_then(|name| name.to_str());
        let name = name.with_context(|| format!("{shown} has no name that can be sent"))?;
        transfer::check(name)?;
        // A FIFO without a writer must not be waited for.
        let mut file = OpenOptions::new()
            .read(true)
            .custom_flags(OFlags::NONBLOCK.bits() as i32)
            .open(path)
            .with_context(|| format!("cannot open {shown}"))?;
        let about = file.metadata()?;
        ensure!(
            about.is_file(),
            "{shown} is no file: send an archive of it, or its content as a file"
        );
        let begin = Instant::now();
        line.say(&json!({ "put": name }))?;
        let progress = report::progress(Some(about.len()));
        let moved = line.send_file(&mut file, &progress);
        progress.finish_and_clear();
        let moved = moved.map_err(|error| named(error, path, &args.peer))?;
        done(name, &moved, begin)?;
    }
    line.close()
}

pub(crate) fn get(device: Option<&str>, args: &Get) -> anyhow::Result<()> {
    let mut line = line(device, &args.peer, args.link)?;
    for name in &args.names {
        transfer::check(name)?;
        let begin = Instant::now();
        line.say(&json!({ "get": name }))?;
        let progress = report::progress(Some(0));
        let moved = line.receive_file(&args.to, name, &progress);
        progress.finish_and_clear();
        let moved = moved.map_err(|error| named(error, name.as_ref(), &args.peer))?;
        done(name, &moved, begin)?;
    }
    line.close()
}

/// Names the file; and the remedy, if the transfer was cut.
fn named(error: anyhow::Error, name: &Path, peer: &Peer) -> anyhow::Error {
    let is_cut = error.downcast_ref().is_some_and(EndpointError::is_gone);
    let remedy = match is_cut {
        true => " (the same command goes on where this ended)",
        false => "",
    };
    error.context(format!("{}, with {peer}{remedy}", name.display()))
}
