// SPDX-License-Identifier: GPL-2.0
//! Makes `include/uapi/linux/qpair.h`, the header that C programs use, from the
//! facts in `rust/abi`; `--check` tells whether the one in the tree is current.

use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context as _;
use clap::Parser;

/// Makes the C header of the ioctl interface from rust/abi.
#[derive(Parser)]
struct Args {
    /// Where the facts are.
    #[arg(long, default_value = "rust/abi")]
    abi: PathBuf,
    /// The header.
    #[arg(long, default_value = "include/uapi/linux/qpair.h")]
    header: PathBuf,
    /// Write nothing; fail if the header is not what would be written.
    #[arg(long)]
    check: bool,
}

fn main() -> anyhow::Result<ExitCode> {
    let args = Args::parse();
    let header = qpair_uapi::generate(&args.abi)?;
    if !args.check {
        if let Some(dir) = args.header.parent() {
            fs::create_dir_all(dir).with_context(|| format!("cannot make {}", dir.display()))?;
        }
        fs::write(&args.header, header)
            .with_context(|| format!("cannot write {}", args.header.display()))?;
        return Ok(ExitCode::SUCCESS);
    }
    let found = fs::read_to_string(&args.header)
        .with_context(|| format!("cannot read {}", args.header.display()))?;
    if found == header {
        return Ok(ExitCode::SUCCESS);
    }
    let line = found
        .lines()
        .zip(header.lines())
        .position(|(a, b)| a != b)
        .unwrap_or_else(|| found.lines().count().min(header.lines().count()));
    eprintln!(
        "{}:{}: not what {} says; make it anew: cargo run -p qpair-uapi",
        args.header.display(),
        line + 1,
        args.abi.display()
    );
    Ok(ExitCode::FAILURE)
}
