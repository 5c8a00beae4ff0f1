// SPDX-License-Identifier: GPL-2.0
//! What the tests of both headers share.

#![allow(unreachable_pub)]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command as Process;

/// A field of a layout: name, word, first bit, width.
pub type Field = (&'static str, usize, u32, u32);

pub fn top() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// What is defined without arguments, but for the guard.
pub fn defined(header: &str) -> Vec<String> {
    let lines = header
        .lines()
        .filter_map(|line| line.strip_prefix("#define "));
    let names = lines.filter_map(|line| line.split_whitespace().next());
    names
        .filter(|name| !name.contains('(') && !name.ends_with("_H"))
        .map(str::to_owned)
        .collect()
}

/// Whether a compiler takes these sources, with this header.
pub fn compiles(name: &str, header: &str, source: &str, standard: &str) -> Result<(), String> {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join("qpair")).unwrap();
    fs::write(dir.path().join("qpair").join(name), header).unwrap();
    let file = dir.path().join("facts.c");
    fs::write(&file, source).unwrap();
    let strict = ["-Wall", "-Wextra", "-Wpedantic", "-Werror", "-fsyntax-only"];
    let out = Process::new("cc")
        .arg(standard)
        .args(strict)
        .arg("-I")
        .args([dir.path(), &file])
        .output()
        .expect("a C compiler, cc");
    if out.status.success() {
        return Ok(());
    }
    Err(String::from_utf8_lossy(&out.stderr).into_owned())
}
