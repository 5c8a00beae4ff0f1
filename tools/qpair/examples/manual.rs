// SPDX-License-Identifier: GPL-2.0
//! `manual DIR`: writes the manual pages and the shells' completions of `qpair`, which its package has.

// The command line is a module of the program.
#[path = "../src"]
mod source {
    #[allow(dead_code, reason = "only the description is used, not what is parsed")]
    #[allow(unused_imports, reason = "the commands use them")]
    pub(crate) mod args;
}

use std::io::Result;
use std::path::PathBuf;

use clap::CommandFactory as _;
use clap_complete::Shell;

fn main() -> Result<()> {
    let folder = PathBuf::from(std::env::args_os().nth(1).unwrap_or_else(|| ".".into()));
    let mut command = source::args::Args::command();
    clap_mangen::generate_to(command.clone(), &folder)?;
    for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
        clap_complete::generate_to(shell, &mut command, "qpair", &folder)?;
    }
    Ok(())
}
