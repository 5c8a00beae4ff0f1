// SPDX-License-Identifier: GPL-2.0
//! `qpair-selftest GROUP[/CASE]...`: runs cases and prints their results in KTAP.

use std::process::ExitCode;

use anyhow::Context as _;
use anyhow::Result;
use lexopt::Arg;
use lexopt::ValueExt;
use qpair_selftests::children;
use qpair_selftests::faults;
use qpair_selftests::life;
use qpair_selftests::runner;
use qpair_selftests::select;
use qpair_selftests::wait;
use qpair_selftests::world;
use qpair_selftests::GROUPS;

const USAGE: &str = "\
usage: qpair-selftest [OPTION]... GROUP[/CASE]... [!GROUP/CASE]...
  !GROUP/CASE      without this case of those named before it
  --list           show the cases and end
  --seed N         start all random numbers here (default: the time)
  --repeat N       run the cases N times, the next time with the next seed
  --rounds N       rounds of each way to end, in the cases ended_by_* (default: by case)
  --brief          on the debug kernel: few rounds of races, few of many points of `faults`
  --every-point    fail every point of `faults`, where otherwise a part of many is failed
  --patience S     seconds that anything may take (default: 20, on the debug kernel 120)";

fn main() -> ExitCode {
    match run() {
        Ok(status) => ExitCode::from(status),
        Err(error) => {
            eprintln!("qpair-selftest: {error:#}");
            ExitCode::from(2)
        }
    }
}

fn run() -> Result<u8> {
    let mut selectors = Vec::new();
    let mut list = false;
    let mut seed = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)?
        .as_secs();
    let mut rounds = 1;
    let mut patience = if world::detectors_watch() { 120 } else { 20 };
    let mut args = lexopt::Parser::from_env();
    while let Some(arg) = args.next()? {
        match arg {
            Arg::Long("list") => list = true,
            Arg::Long("seed") => seed = args.value()?.parse()?,
            Arg::Long("repeat") => rounds = args.value()?.parse()?,
            Arg::Long("rounds") => life::set_rounds(args.value()?.parse()?),
            Arg::Long("brief") => world::set_brief(),
            Arg::Long("every-point") => faults::fail_every_point(),
            Arg::Long("patience") => patience = args.value()?.parse()?,
            Arg::Long("help") | Arg::Short('h') => {
                println!("{USAGE}");
                return Ok(0);
            }
            Arg::Value(value) => selectors.push(value.string()?),
            other => return Err(other.unexpected().into()),
        }
    }
    if selectors.is_empty() {
        selectors = GROUPS.iter().map(|group| group.name.to_string()).collect();
    }
    let cases = select(&selectors)?;
    if list {
        for (group, case) in cases {
            println!("{}/{}", group.name, case.name);
        }
        return Ok(0);
    }
    wait::set_patience(patience);
    children::adopt().context("becoming the parent of orphans")?;
    Ok(runner::run(&cases, seed, rounds) as u8)
}
