// SPDX-License-Identifier: GPL-2.0
//! `provider/data.h` is current: it equals cbindgen's output for this crate.

use std::path::Path;
use std::{env, fs};

#[test]
fn the_header_is_current() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let config = cbindgen::Config::from_file(folder.join("cbindgen.toml")).unwrap();
    let header = folder.join("../data.h");
    let mut builder = cbindgen::Builder::new().with_config(config);
    for name in [
        "cq",
        "qp",
        "shape",
        "srq",
        "ops/objects",
        "ops/poll",
        "ops/post",
        "ops/wr",
    ] {
        builder = builder.with_src(folder.join(format!("src/{name}.rs")));
    }
    let mut made = Vec::new();
    builder.generate().unwrap().write(&mut made);
    let made = String::from_utf8(made).unwrap();
    if env::var_os("QPAIR_UPDATE_HEADER").is_some() {
        fs::write(&header, &made).unwrap();
    }
    let kept = fs::read_to_string(&header).unwrap_or_default();
    assert!(
        kept == made,
        "provider/data.h is not current: run QPAIR_UPDATE_HEADER=1 cargo test -p qpair-verbs"
    );
}
