// SPDX-License-Identifier: GPL-2.0
//! A C compiler reads in the headers what the structures here have.

use std::fmt::Write as _;
use std::fs;
use std::mem::{offset_of, size_of};
use std::path::Path;
use std::process::Command;

use qpair_abi::uverbs as driver;
use qpair_uverbs::abi;

fn equal(out: &mut String, c: &str, rust: u64) {
    writeln!(out, "_Static_assert(({c}) == {rust}ULL, \"{c}\");").unwrap();
}

fn structure(out: &mut String, layout: &abi::Layout) {
    let c = format!("struct {}", layout.name);
    equal(out, &format!("sizeof({c})"), layout.bytes as u64);
    for (field, offset, bytes) in layout.fields {
        equal(out, &format!("offsetof({c}, {field})"), *offset as u64);
        let size = format!("sizeof((({c} *)0)->{field})");
        equal(out, &size, *bytes as u64);
    }
}

/// The driver's structures, with all of their fields.
macro_rules! structures {
    ($($name:ident { $($field:ident),* })*) => { [ $( {
        let value = driver::$name::default();
        let fields: &'static [_] = [ $( (
            stringify!($field),
            offset_of!(driver::$name, $field),
            size_of_val(&value.$field),
        ) ),* ].to_vec().leak();
        let sum: usize = fields.iter().map(|field| field.2).sum();
        assert_eq!(sum, size_of::<driver::$name>(), "{}: padding, or a field is missing here", stringify!($name));
        abi::Layout { name: stringify!($name), bytes: size_of::<driver::$name>(), fields }
    } ),* ] };
}

#[test]
fn the_layouts_are_those_of_the_headers() {
    let mut out = String::from(
        "#include <stddef.h>\n#include <rdma/ib_user_verbs.h>\n\
         #include <rdma/ib_user_ioctl_verbs.h>\n#include <rdma/rdma_user_ioctl.h>\n\
         #include <rdma/ib_user_ioctl_cmds.h>\n#include <rdma/qpair-abi.h>\n",
    );
    for layout in abi::LAYOUTS {
        structure(&mut out, layout);
    }
    for (name, value) in abi::CONSTANTS {
        equal(&mut out, name, *value);
    }
    for layout in structures! {
        qpair_uresp_alloc_ucontext {
            max_sq_blocks, max_rq_depth, max_cq_depth, max_send_sge, max_recv_sge, max_inline,
            epoch, page
        }
        qpair_ureq_create_cq { buffer, buffer_bytes, eventfd, reserved }
        qpair_uresp_create_cq { number, depth }
        qpair_ureq_resize_cq { buffer, buffer_bytes }
        qpair_uresp_resize_cq { depth, end, begin, reserved }
        qpair_ureq_create_qp {
            sq_buffer, sq_buffer_bytes, rq_buffer, rq_buffer_bytes, sq_blocks, rq_depth,
            rq_stride, reserved
        }
        qpair_uresp_create_qp { number, sq_blocks, rq_depth, reserved }
        qpair_ureq_create_srq { buffer, buffer_bytes, depth, stride }
        qpair_ureq_modify_srq { buffer, buffer_bytes, depth, reserved }
        qpair_uresp_create_srq { number, depth }
        qpair_uresp_create_ah { gid, source, mac, reserved }
        qpair_uresp_modify_qp { send_cq_index, recv_cq_index }
    } {
        structure(&mut out, &layout);
    }
    equal(
        &mut out,
        "QPAIR_UVERBS_ABI_VERSION",
        driver::QPAIR_UVERBS_ABI_VERSION.into(),
    );
    out.push_str("_Static_assert(QPAIR_NO_COMPLETION_FD == -1, \"no fd\");\n");

    let place = tempfile::tempdir().unwrap();
    let source = place.path().join("layout.c");
    fs::write(&source, &out).unwrap();
    let ours = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../include/uapi");
    let compiled = Command::new("cc")
        .args([
            "-std=gnu11",
            "-Wall",
            "-Wextra",
            "-Werror",
            "-fsyntax-only",
            "-I",
        ])
        .arg(ours)
        .arg(&source)
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&compiled.stderr);
    assert!(compiled.status.success(), "{errors}");
}
