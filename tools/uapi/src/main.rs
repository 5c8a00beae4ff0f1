// SPDX-License-Identifier: GPL-2.0
//! Makes the C headers `include/uapi/linux/qpair.h` (for programs) and `include/qpair/device.h`
//! (for drivers) from the facts in `rust/abi`; `--check` tells whether those in the tree are
//! current.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context as _;
use clap::Parser;

/// Makes the C headers from rust/abi.
#[derive(Parser)]
struct Args {
    /// Where the facts are.
    #[arg(long, default_value = "rust/abi")]
    abi: PathBuf,
    /// The header for programs.
    #[arg(long, default_value = "include/uapi/linux/qpair.h")]
    header: PathBuf,
    /// The header for drivers.
    #[arg(long, default_value = "include/qpair/device.h")]
    device: PathBuf,
    /// Write nothing; fail if a header is not what would be written.
    #[arg(long)]
    check: bool,
}

fn main() -> anyhow::Result<ExitCode> {
    let args = Args::parse();
    let mut code = ExitCode::SUCCESS;
    for (path, header) in [
        (&args.header, qpair_uapi::generate(&args.abi)?),
        (&args.device, qpair_uapi::generate_device(&args.abi)?),
    ] {
        if !args.check {
            if let Some(dir) = path.parent() {
                fs::create_dir_all(dir)
                    .with_context(|| format!("cannot make {}", dir.display()))?;
            }
            fs::write(path, header).with_context(|| format!("cannot write {}", path.display()))?;
        } else if !is_current(path, &header, &args.abi)? {
            code = ExitCode::FAILURE;
        }
    }
    Ok(code)
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
        "{}:{}: not what {} says; make it anew: cargo run -p qpair-uapi",
        path.display(),
        line + 1,
        abi.display()
    );
    Ok(false)
}
