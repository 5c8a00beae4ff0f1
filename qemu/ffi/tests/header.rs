// SPDX-License-Identifier: GPL-2.0
//! `qemu/qpair_ffi.h` is current: it equals cbindgen's output for this crate.

use std::{
    env,
    fs,
    path::Path, //
};

#[test]
fn the_header_is_current() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let config = cbindgen::Config::from_file(folder.join("cbindgen.toml")).unwrap();
    let header = folder.join("../qpair_ffi.h");
    let mut made = Vec::new();
    cbindgen::Builder::new()
        .with_config(config)
        .with_src(folder.join("src/lib.rs"))
        .generate()
        .unwrap()
        .write(&mut made);
    let made = String::from_utf8(made).unwrap();
    if env::var_os("QPAIR_UPDATE_HEADER").is_some() {
        fs::write(&header, &made).unwrap();
    }
    let kept = fs::read_to_string(&header).unwrap_or_default();
    assert!(
        kept == made,
        "qemu/qpair_ffi.h is not current: run QPAIR_UPDATE_HEADER=1 cargo test -p qpair-ffi"
    );
}
