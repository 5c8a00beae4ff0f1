// SPDX-License-Identifier: GPL-2.0
//! The header in the tree is current, and a C compiler reads in it what Rust has.

use std::fmt::Write as _;
use std::fs;
use std::mem::{offset_of, size_of};
use std::path::{Path, PathBuf};
use std::process::Command;

use qpair_abi::counters::Counter;
use qpair_abi::entry::{Cqe, RecvWqe, SendWqe, Sge};
use qpair_abi::status::{Detail, Status};
use qpair_abi::{doorbell, uapi, Number};

fn top() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

#[test]
fn the_header_is_current() {
    let header = fs::read_to_string(top().join("include/uapi/linux/qpair.h")).unwrap();
    let now = qpair_uapi::generate(&top().join("rust/abi")).unwrap();
    assert!(header == now, "make it anew: cargo run -p qpair-uapi");
}

/// `_Static_assert`s of the sizes of structures and the offsets of their fields.
macro_rules! structures {
    ($out:ident: $($name:ident { $($field:ident),* })*) => { $(
        let c = concat!("struct ", stringify!($name));
        equal(&mut $out, &format!("sizeof({c})"), size_of::<uapi::$name>() as u64);
        let mut fields = 0;
        $(
            let field = stringify!($field);
            equal(&mut $out, &format!("offsetof({c}, {field})"), offset_of!(uapi::$name, $field) as u64);
            fields += size_of_val(&uapi::$name::default().$field);
        )*
        assert_eq!(fields, size_of::<uapi::$name>(), "{c}: a field is missing here");
    )* };
}

/// The same for entries, whose fields are where `encode` puts them.
macro_rules! entries {
    ($out:ident: $($name:ident as $c:literal { $($field:ident = $ones:expr),* })*) => { $(
        equal(&mut $out, concat!("sizeof(struct ", $c, ")"), $name::BYTES as u64);
        $(
            let entry = $name { $field: $ones, ..Default::default() };
            let bytes: Vec<u8> = entry.encode().iter().flat_map(|word| word.to_le_bytes()).collect();
            let first = bytes.iter().position(|&byte| byte != 0).unwrap();
            let field = concat!("struct ", $c, ", ", stringify!($field));
            equal(&mut $out, &format!("offsetof({field})"), first as u64);
            let used = bytes.iter().filter(|&&byte| byte != 0).count();
            let c = concat!("sizeof(((struct ", $c, " *)0)->", stringify!($field), ")");
            equal(&mut $out, c, used as u64);
        )*
    )* };
}

fn equal(out: &mut String, c: &str, rust: u64) {
    writeln!(out, "_Static_assert(({c}) == {rust}ULL, \"{c}\");").unwrap();
}

fn facts() -> String {
    let mut out = String::from("#include <stddef.h>\n#include <linux/qpair.h>\n");
    structures! { out:
        qpair_query_device {
            uapi_version, device_version, max_qp, max_cq, max_eq, max_mr, max_pd, max_sq_blocks,
            max_rq_depth, max_cq_depth, max_send_sge, max_recv_sge, max_inline, max_message,
            max_mr_bytes, vectors, link_up, quota_qp, quota_cq, quota_mr, quota_pd, doorbell_page, epoch
        }
        qpair_query_counters { counters, count, reserved }
        qpair_alloc_pd { flags, handle }
        qpair_create_cq { buffer, buffer_bytes, depth, vector, eventfd, flags, handle, reserved }
        qpair_query_cq { handle, depth, producer, consumer, vector, flags, levels, page_shift }
        qpair_create_qp {
            sq_buffer, sq_buffer_bytes, rq_buffer, rq_buffer_bytes, sq_blocks, rq_depth, rq_stride,
            service, pd, send_cq, recv_cq, flags, handle, reserved
        }
        qpair_modify_qp {
            handle, mask, state, peer, access, retry, rnr_retry, reserved, send_cq_index, recv_cq_index
        }
        qpair_query_qp {
            handle, state, peer, access, retry, rnr_retry, sq_producer, sq_consumer, rq_producer,
            rq_consumer, sq_levels, sq_page_shift
        }
        qpair_reg_mr { addr, bytes, pd, access, handle, lkey, rkey, reserved }
        qpair_query_mr { handle, access, addr, bytes, levels, page_shift }
        qpair_destroy { handle, reserved, send_cq_index, recv_cq_index }
        qpair_async_event { kind, handle, code, count }
    }
    let number = Number::from_raw(!0);
    entries! { out:
        SendWqe as "qpair_send_wqe" {
            opcode = !0, flags = !0, blocks = !0, sges = !0, imm = !0, wr_id = !0,
            remote_addr = !0, rkey = !0, inline_bytes = !0
        }
        RecvWqe as "qpair_recv_wqe" { sges = !0, wr_id = !0 }
        Sge as "qpair_sge" { addr = !0, bytes = !0, lkey = !0 }
        Cqe as "qpair_cqe" {
            wr_id = !0, qp = number, bytes = !0, imm = !0, index = !0, src = !0, opcode = !0,
            status = !0, vendor = !0, flags = !0
        }
    }
    macro_rules! ioctls {
        ($($c:literal = $nr:ident $argument:ident;)*) => { $(
            equal(&mut out, concat!("QPAIR_IOC_", $c), uapi::request::<uapi::$argument>(uapi::$nr).into());
        )* };
    }
    ioctls! {
        "QUERY_DEVICE" = QPAIR_NR_QUERY_DEVICE qpair_query_device;
        "QUERY_COUNTERS" = QPAIR_NR_QUERY_COUNTERS qpair_query_counters;
        "ALLOC_PD" = QPAIR_NR_ALLOC_PD qpair_alloc_pd;
        "DEALLOC_PD" = QPAIR_NR_DEALLOC_PD qpair_destroy;
        "CREATE_CQ" = QPAIR_NR_CREATE_CQ qpair_create_cq;
        "QUERY_CQ" = QPAIR_NR_QUERY_CQ qpair_query_cq;
        "DESTROY_CQ" = QPAIR_NR_DESTROY_CQ qpair_destroy;
        "CREATE_QP" = QPAIR_NR_CREATE_QP qpair_create_qp;
        "MODIFY_QP" = QPAIR_NR_MODIFY_QP qpair_modify_qp;
        "QUERY_QP" = QPAIR_NR_QUERY_QP qpair_query_qp;
        "DESTROY_QP" = QPAIR_NR_DESTROY_QP qpair_destroy;
        "REG_MR" = QPAIR_NR_REG_MR qpair_reg_mr;
        "QUERY_MR" = QPAIR_NR_QUERY_MR qpair_query_mr;
        "DEREG_MR" = QPAIR_NR_DEREG_MR qpair_destroy;
    }
    let owner = qpair_abi::entry::OWNER >> 56;
    equal(&mut out, "QPAIR_CQE_OWNER", owner);
    equal(
        &mut out,
        "QPAIR_DB_CQ_ARM_SOLICITED",
        doorbell::CQ_ARM_SOLICITED,
    );
    equal(
        &mut out,
        "QPAIR_DB_CQ_NOTIFY_SOLICITED",
        doorbell::CQ_NOTIFY_SOLICITED,
    );
    let value = doorbell::value(Number::from_raw(0x8765_4321), 0xfedc_ba98);
    equal(&mut out, "QPAIR_DOORBELL(0x87654321, 0xfedcba98)", value);
    equal(
        &mut out,
        "QPAIR_STATUS_RNR_RETRY_EXCEEDED",
        Status::RnrRetryExceeded.code().into(),
    );
    equal(
        &mut out,
        "QPAIR_DETAIL_SHORT_RECEIVE",
        Detail::ShortReceive.code().into(),
    );
    equal(
        &mut out,
        "QPAIR_COUNTER_READ_BYTES",
        Counter::ReadBytes as u64,
    );
    equal(&mut out, "QPAIR_COUNTERS", Counter::COUNT as u64);
    equal(
        &mut out,
        "QPAIR_EVENT_DEVICE_FATAL",
        uapi::QPAIR_EVENT_DEVICE_FATAL.into(),
    );
    out
}

/// As the header is installed, and as strict as the kernel and old programs are.
#[test]
fn a_c_compiler_agrees() {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join("linux")).unwrap();
    let header = qpair_uapi::generate(&top().join("rust/abi")).unwrap();
    fs::write(dir.path().join("linux/qpair.h"), header).unwrap();
    let source = dir.path().join("facts.c");
    fs::write(&source, facts()).unwrap();
    for standard in ["-std=gnu11", "-std=c11"] {
        let out = Command::new("cc")
            .args([
                standard,
                "-Wall",
                "-Wextra",
                "-Wpedantic",
                "-Werror",
                "-fsyntax-only",
                "-I",
            ])
            .args([dir.path(), &source])
            .output()
            .expect("a C compiler, cc");
        assert!(
            out.status.success(),
            "{}",
            String::from_utf8_lossy(&out.stderr)
        );
    }
}

/// What cannot be said in C must not be left out in silence.
#[test]
fn what_is_not_understood_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    for name in [
        "uapi.rs",
        "doorbell.rs",
        "entry.rs",
        "status.rs",
        "counters.rs",
    ] {
        fs::copy(top().join("rust/abi").join(name), dir.path().join(name)).unwrap();
    }
    qpair_uapi::generate(dir.path()).unwrap();
    let good = fs::read_to_string(dir.path().join("uapi.rs")).unwrap();
    for bad in [
        "pub struct qpair_bad { pub field: usize }",
        "pub const QPAIR_BAD: u32 = later();",
        "/// [`qpair_nothing`].\npub const QPAIR_NR_BAD: u8 = 0x99;",
        "pub enum qpair_bad { A }",
    ] {
        fs::write(dir.path().join("uapi.rs"), format!("{good}\n{bad}\n")).unwrap();
        assert!(qpair_uapi::generate(dir.path()).is_err(), "{bad}");
    }
}
