// SPDX-License-Identifier: GPL-2.0
//! `qpair trace`: runs a command and turns the driver's activity meanwhile into a timeline.
//!
//! | file | has |
//! |---|---|
//! | [`tracer`] | the kernel's trace, in an instance of its own |
//! | [`record`] | a line of it as a value |
//! | [`timeline`] | lines to polls and their events |
//! | [`perfetto`] | a timeline as a file for <https://ui.perfetto.dev> |
//! | [`picture`] | a timeline as an SVG |
//! | [`output`] | a file that is opened before the work |
//!
//! A process posts, polls and arms without the kernel, so only its events are recorded.

mod output;
mod perfetto;
mod picture;
mod record;
mod timeline;
mod tracer;

use std::io::ErrorKind;
use std::process::{Child, Command, ExitStatus};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{bail, Context as _};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use crate::args::Trace;
use crate::session::Interrupted;
use output::Output;
use record::Record;
use timeline::Timeline;
use tracer::Tracer;

/// How often the command and signals are checked.
const LOOK: Duration = Duration::from_millis(20);
/// How long a command may take to end after SIGTERM.
const GRACE: Duration = Duration::from_secs(5);

pub(crate) fn run(args: &Trace) -> anyhow::Result<()> {
    // Before signals are caught: the open of a FIFO waits for a reader.
    let mut json = Output::open(args.out.with_extension("json"))?;
    let mut svg = Output::open(args.out.with_extension("svg"))?;
    // Signals only set this flag, so that the trace is removed in any case.
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGHUP, SIGINT, SIGTERM] {
        signal_hook::flag::register(signal, stop.clone()).context("cannot catch signals")?;
    }
    let tracer = Tracer::start(args.buffer.div_ceil(1024))?;
    let status = watch(&args.command, &stop)?;
    let (text, lost) = tracer.stop()?;
    let records: Vec<Record> = text.lines().filter_map(Record::parse).collect();
    let timeline = Timeline::new(&records, lost);
    json.write(&perfetto::json(&timeline))?;
    svg.write(&picture::svg(&timeline))?;
    eprint!("{}", timeline.summary());
    eprintln!(
        "{}: for https://ui.perfetto.dev; {}: its busiest moments as a picture",
        json.path().display(),
        svg.path().display()
    );
    if stop.load(Ordering::Relaxed) {
        return Err(Interrupted.into());
    }
    if !status.success() {
        bail!("{}: {status}", args.command.join(" "));
    }
    Ok(())
}

/// Runs the command. A signal is passed on to the command, and the records are kept.
fn watch(command: &[String], stop: &AtomicBool) -> anyhow::Result<ExitStatus> {
    let (program, words) = command.split_first().context("no command")?;
    let mut child =
        Command::new(program)
            .args(words)
            .spawn()
            .map_err(|error| match error.kind() {
                ErrorKind::NotFound => anyhow::anyhow!("there is no command {program}"),
                _ => anyhow::Error::from(error).context(format!("cannot run {program}")),
            })?;
    let mut asked: Option<Instant> = None;
    loop {
        if let Some(status) = child.try_wait().context("waiting for the command")? {
            return Ok(status);
        }
        if stop.load(Ordering::Relaxed) {
            match asked {
                None => {
                    asked = Some(Instant::now());
                    terminate(&child);
                }
                Some(asked) if asked.elapsed() > GRACE => {
                    child.kill().context("ending the command")?
                }
                Some(_) => (),
            }
        }
        std::thread::sleep(LOOK);
    }
}

/// Asks a command to end, by SIGTERM.
fn terminate(child: &Child) {
    let pid = i32::try_from(child.id())
        .ok()
        .and_then(rustix::process::Pid::from_raw);
    if let Some(pid) = pid {
        // It may have ended already; the next check sees that.
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::run;
    use crate::args::{Args, Command};

    #[test]
    fn a_path_that_cannot_be_written_is_reported_before_the_command_runs() {
        let folder = tempfile::tempdir().unwrap();
        // The second of the files cannot be opened: a folder has its name.
        std::fs::create_dir(folder.path().join("out.svg")).unwrap();
        let out = folder.path().join("out");
        let ran = folder.path().join("ran");
        let [out, ran] = [&out, &ran].map(|path| path.to_str().unwrap());
        let args = Args::parse_from(["qpair", "trace", "--out", out, "touch", ran]);
        let Command::Trace(args) = args.command else {
            panic!("trace");
        };
        let error = run(&args).unwrap_err();
        let expected = format!("cannot write {out}.svg");
        assert!(format!("{error:#}").starts_with(&expected), "{error:#}");
        let left: Vec<_> = std::fs::read_dir(folder.path()).unwrap().collect();
        assert_eq!(left.len(), 1, "{left:?}");
    }
}
