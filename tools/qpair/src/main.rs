// SPDX-License-Identifier: GPL-2.0
//! `qpair`: what a queue pair device can do, from the command line.
//!
//! | file | has |
//! |---|---|
//! | [`args`] | the command line, and its help |
//! | [`session`] | an open device, connected queue pairs, completions by polling or by events |
//! | [`report`] | results, for people and as JSON |
//! | [`debugfs`] | the driver's files in debugfs |
//! | [`files`] | the two ends of a copy in this process |
//! | [`peer`] | connecting two processes |
//! | [`transfer`] | a file between two processes, and what its ends say to each other |
//! | [`info`], [`copy`], [`serve`], [`put`] (and get), [`ping`], [`bench`], [`loopback`], [`top`], [`trace`] | the commands |
//!
//! Results go to standard output, everything else to standard error.

mod args;
mod bench;
mod copy;
mod debugfs;
mod files;
mod info;
mod loopback;
mod peer;
mod ping;
mod put;
mod report;
mod serve;
mod session;
mod top;
mod trace;
mod transfer;

/// The device model as the library's kernel.
#[cfg(test)]
#[path = "../../libqpair/tests/support/mod.rs"]
mod support;

use std::process::ExitCode;

use clap::Parser as _;

use args::{Args, Command};

/// Exit status of a command that failed.
const FAILED: u8 = 1;
/// Exit status if there is no device, or it cannot be opened. (2 is bad usage.)
const NO_DEVICE: u8 = 3;
/// Exit status of an interrupted command: 128 + SIGINT, as in a shell.
const INTERRUPTED: u8 = 130;

fn main() -> ExitCode {
    let args = Args::parse();
    match run(&args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("qpair: {error:#}");
            ExitCode::from(code(&error))
        }
    }
}

fn run(args: &Args) -> anyhow::Result<()> {
    let device = args.device.as_deref();
    match &args.command {
        Command::Info(info) => info::run(device, info),
        Command::Copy(copy) => copy::run(device, copy),
        Command::Serve(serve) => serve::run(device, serve),
        Command::Put(put) => put::put(device, put),
        Command::Get(get) => put::get(device, get),
        Command::Ping(ping) => ping::run(device, ping),
        Command::Bench(bench) => bench::run(device, bench),
        Command::Loopback(loopback) => loopback::run(device, loopback),
        Command::Top(top) => top::run(device, top),
        Command::Trace(trace) => trace::run(trace),
    }
}

fn code(error: &anyhow::Error) -> u8 {
    if error.is::<session::Interrupted>() {
        return INTERRUPTED;
    }
    match error.downcast_ref() {
        Some(
            qpair::Error::NoDevice
            | qpair::Error::NoUverbs
            | qpair::Error::Unknown { .. }
            | qpair::Error::OtherDriver { .. }
            | qpair::Error::Open { .. },
        ) => NO_DEVICE,
        _ => FAILED,
    }
}
