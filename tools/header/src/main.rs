// SPDX-License-Identifier: GPL-2.0
//! Makes the C headers in `include/qpair`, for drivers, from the facts in `rust/abi`; `--check`
//! fails if a header in the tree is not current.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context as _;
use clap::Parser;

/// Makes the C headers of the device from rust/abi.
#[derive(Parser)]
struct Args {
    /// Where the facts are.
    #[arg(long, default_value = "rust/abi")]
    abi: PathBuf,
    /// Where the headers are.
    #[arg(long, default_value = "include/qpair")]
    headers: PathBuf,
    /// Write nothing; fail if a header is not what would be written.
    #[arg(long)]
    check: bool,
}

fn main() -> anyhow::Result<ExitCode> {
    let args = Args::parse();
    let mut current = true;
    for (name, generate) in qpair_header::HEADERS {
        let path = args.headers.join(name);
        let header = generate(&args.abi)?;
        if args.check {
            current &= is_current(&path, &header, &args.abi)?;
            continue;
        }
        fs::create_dir_all(&args.headers)
            .with_context(|| format!("cannot make {}", args.headers.display()))?;
        fs::write(&path, header).with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(match current {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    })
}

/// Whether a header is this one; says where it is not.
fn is_current(path: &Path, header: &str, abi: &Path) -> anyhow::Result<bool> {
    let found =
        fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    if found == header {
        return Ok(true);
    }
    let line = found
        .lines()
        .zip(header.lines())
        .position(|(a, b)| a != b)
        .unwrap_or_else(|| found.lines().count().min(header.lines().count()));
    eprintln!(
        "{}:{}: not what {} says; make it anew: cargo run -p qpair-header",
        path.display(),
        line + 1,
        abi.display()
    );
    Ok(false)
}
