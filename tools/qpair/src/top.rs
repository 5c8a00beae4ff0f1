// SPDX-License-Identifier: GPL-2.0
//! `qpair top`: the activity of each queue.
//!
//! | file | has |
//! |---|---|
//! | [`snapshot`] | the driver's files in debugfs |
//! | [`model`] | rates, depths, coalescing: two snapshots make a view |
//! | [`screen`] | a view on a terminal |
//! | [`terminal`] | the terminal |

mod model;
mod screen;
mod snapshot;
mod terminal;

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::io::Errno;

use crate::args::Top;
use crate::debugfs;
use crate::report;
use crate::session::Signals;
use model::View;
use screen::Look;
use snapshot::Snapshot;
use terminal::Terminal;

/// The interval in which only keys are read.
const KEYS: Duration = Duration::from_millis(100);

pub(crate) fn run(device: Option<&str>, args: &Top) -> anyhow::Result<()> {
    let folder = debugfs::folder(device, "live")?;
    let signals = Signals::catch()?;
    let interval = Duration::from_secs_f64(args.interval);
    let mut source = Source {
        folder: &folder,
        before: None,
    };
    if !args.once && !args.json {
        return live(&mut source, interval, &signals);
    }
    source.look()?;
    loop {
        pause(interval, &signals)?;
        let view = source.look()?;
        report::print(&match args.json {
            true if args.once => report::json(&view.json()),
            true => format!("{}\n", view.json()),
            false => plain(&view)?,
        })?;
        if args.once {
            return Ok(());
        }
    }
}

/// On the terminal, until a key or a signal ends it.
fn live(source: &mut Source<'_>, interval: Duration, signals: &Signals) -> anyhow::Result<()> {
    let mut view = source.look()?;
    let mut terminal = Terminal::take()?;
    let mut look = Look::default();
    let mut next = Instant::now() + interval.min(Duration::from_millis(500));
    loop {
        terminal.draw(|frame| screen::draw(frame, &view, look))?;
        let rest = next.saturating_duration_since(Instant::now());
        for key in terminal.keys(rest.min(KEYS))? {
            if !look.key(key, &view) {
                return Ok(());
            }
        }
        if signals.check().is_err() {
            return Ok(());
        }
        if Instant::now() >= next {
            next = Instant::now() + interval;
            if !look.paused {
                view = source.look()?;
            }
        }
    }
}

fn pause(time: Duration, signals: &Signals) -> anyhow::Result<()> {
    let end = Instant::now() + time;
    while Instant::now() < end {
        signals.check()?;
        std::thread::sleep(KEYS.min(end.saturating_duration_since(Instant::now())));
    }
    Ok(signals.check()?)
}

/// As a screen, with as many lines as needed.
fn plain(view: &View) -> anyhow::Result<String> {
    let lines = 8 + view.eqs.len() + view.cqs.len() + view.qps.len();
    screen::text(view, 120, lines.try_into().unwrap_or(u16::MAX))
}

/// Where snapshots come from.
struct Source<'a> {
    folder: &'a Path,
    before: Option<Snapshot>,
}

impl Source<'_> {
    /// The activity since the last sample.
    fn look(&mut self) -> anyhow::Result<View> {
        let file = |name: &str| fs::read_to_string(self.folder.join(name));
        let gone = [Errno::NOENT, Errno::NODEV, Errno::IO].map(|errno| Some(errno.raw_os_error()));
        let now = Snapshot::read(file).map_err(|error| {
            // The files are removed with the device; reading one that is open then gives EIO.
            if gone.contains(&error.raw_os_error()) {
                anyhow::Error::from(qpair::Error::NoDevice)
                    .context("the device or its driver is gone")
            } else {
                anyhow::Error::from(error).context(format!("reading {}", self.folder.display()))
            }
        })?;
        let seconds = match &self.before {
            Some(before) => (now.at - before.at).as_secs_f64(),
            None => 0.0,
        };
        let view = View::between(self.before.as_ref(), &now, seconds);
        self.before = Some(now);
        Ok(view)
    }
}
