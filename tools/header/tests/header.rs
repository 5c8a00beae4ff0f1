// SPDX-License-Identifier: GPL-2.0
//! The header for drivers is current, and a C compiler reads in it what Rust has: every
//! definition, every field.

mod support;

use std::collections::BTreeMap;
use std::fmt::{Debug, Write as _};
use std::fs;

use heck::ToShoutySnakeCase as _;
use qpair_abi::command::{
    self, BufferList, Command, CqContext, EqContext, FrmrContext, GidContext, MrContext, MwContext,
    QpContext, SrqContext,
};
use qpair_abi::counters::Counter;
use qpair_abi::entry::{
    self, AtomicWqe, BindWqe, Cqe, Eqe, FlushWqe, RecvWqe, RegWqe, SendWqe, Sge, UdWqe,
};
use qpair_abi::status::{AdminError, Detail, EnableError, Event, Status};
use qpair_abi::{doorbell, regs, Number};
use support::{compiles, defined, top, Field};

fn header() -> String {
    qpair_header::generate(&top().join("rust/abi")).unwrap()
}

#[test]
fn the_header_is_current() {
    let kept = fs::read_to_string(top().join("include/qpair/device.h")).unwrap_or_default();
    assert!(kept == header(), "make it anew: cargo run -p qpair-header");
}

/// What Rust has under each name.
fn values() -> BTreeMap<String, u64> {
    let mut all = BTreeMap::new();
    let mut add = |name: String, value: u64| {
        assert!(all.insert(format!("QPAIR_HW_{name}"), value).is_none());
    };
    macro_rules! constants {
        ($($prefix:literal: $($part:ident)::+ { $($name:ident)* })*) => { $( {
            #[allow(clippy::single_component_path_imports)]
            use $($part)::+ as module;
            $(
                #[allow(clippy::unnecessary_cast)]
                add(concat!($prefix, stringify!($name)).into(), module::$name as u64);
            )*
        } )* };
    }
    constants! {
        "": qpair_abi { PCI_VENDOR PCI_DEVICE PCI_REVISION }
        "": doorbell { BAR_REGS BAR_DOORBELLS BAR_MSIX }
        "DB_": doorbell {
            PAGE_BYTES SQ RQ SRQ CQ_HEAD CQ_ARM_NEXT CQ_ARM_SOLICITED EQ_HEAD EQ_HEAD_MASKED
            CQ_NOTIFY CQ_NOTIFY_SOLICITED
        }
        "": regs { MAGIC_VALUE MAJOR MINOR }
        "REG_": regs { BYTES }
        "": entry {
            ATOMIC_BYTES BLOCK_BYTES DATAGRAM_BYTES GRH_BYTES MAX_BLOCKS MAX_STRIDE_SHIFT MAX_WINDOWS
            OWNER OWN_Q_KEY WINDOW_KEY FRMR_KEY
        }
        "OP_": entry::opcode {
            NOP SEND SEND_IMM WRITE WRITE_IMM READ COMPARE_SWAP FETCH_ADD BIND LOCAL_INV
            SEND_INV FLUSH ATOMIC_WRITE REG_MR RECV RECV_WRITE_IMM
        }
        "FLUSH_": entry::flush { GLOBAL PERSISTENT }
        "SEND_": entry::send_flags { SIGNALED SOLICITED FENCE INLINE }
        "CQE_": entry::cqe_flags { RECV IMM SOLICITED GRH IPV4 INV }
        "": command { MAX_CONTEXT_BYTES }
        "KIND_": command::kind { EQ CQ QP MR PD SRQ PAGE DEVICE MW GID FRMR }
        "VERB_": command::verb { CREATE MODIFY QUERY DESTROY ATTACH DETACH }
        "CQ_": command::cq_flags { USER OVERRUN }
        "SRQ_": command::srq_flags { FAILED }
        "SERVICE_": command::service { RC UD UC }
        "QPS_": command::qp_state { RESET INIT RTR RTS SQD ERROR }
        "WAITS_FOR_": command::waits_for { ANSWER RECEIVER ROOM }
        "QP_": command::qp_flags { NO_OWN_COPY REGISTERS }
        "QP_MASK_": command::qp_mask { STATE PEER ACCESS RETRY Q_KEY NOTIFY TIMERS PATH SQ_PSN }
        "ACCESS_": command::access {
            LOCAL_WRITE REMOTE_WRITE REMOTE_READ REMOTE_ATOMIC BIND ZERO_BASED FLUSH_GLOBAL
            FLUSH_PERSISTENT
        }
        "MR_MASK_": command::mr_mask { MEMORY PD ACCESS }
        "SRQ_MASK_": command::srq_mask { LIMIT RING }
        "MW_TYPE_": command::mw_type { ONE TWO }
    }
    for (name, offset) in regs::offset::ALL {
        add(format!("REG_{name}"), *offset);
    }
    for (register, field, high, low) in regs::FIELDS {
        let mask = (1u64 << (high + 1)) - (1 << low);
        if mask != u64::from(u32::MAX) {
            let field = field.to_shouty_snake_case();
            add(format!("REG_{register}_{field}"), mask);
        }
    }
    let name = |prefix, code: &dyn Debug| {
        format!("{prefix}_{}", format!("{code:?}").to_shouty_snake_case())
    };
    macro_rules! codes {
        ($($prefix:literal: $code:ident)*) => { $(
            for code in $code::ALL {
                add(name($prefix, code), code.code().into());
            }
        )* };
    }
    codes! { "STATUS": Status "DETAIL": Detail "ADMIN": AdminError "EVENT": Event "CAUSE": EnableError }
    for counter in Counter::ALL {
        add(name("COUNTER", counter), *counter as u64);
    }
    add("COUNTERS".into(), Counter::COUNT as u64);
    all
}

fn layouts() -> Vec<(&'static str, usize, &'static [Field])> {
    macro_rules! layouts {
        ($($c:literal: $name:ident)*) => { vec![$(($c, $name::BYTES, $name::FIELDS)),*] };
    }
    layouts! {
        "send_wqe": SendWqe "ud_wqe": UdWqe "atomic_wqe": AtomicWqe "flush_wqe": FlushWqe
        "bind_wqe": BindWqe "reg_wqe": RegWqe "recv_wqe": RecvWqe "sge": Sge "cqe": Cqe "eqe": Eqe
        "command": Command "buffer_list": BufferList "eq_context": EqContext
        "cq_context": CqContext "qp_context": QpContext "mr_context": MrContext
        "srq_context": SrqContext "mw_context": MwContext "frmr_context": FrmrContext
        "gid_context": GidContext
    }
}

/// The facts as assertions, for a compiler.
fn facts() -> String {
    let mut out = String::from("#include <stddef.h>\n#include <qpair/device.h>\n");
    let mut equal = |c: &str, rust: u64| {
        writeln!(out, "_Static_assert(({c}) == {rust}ULL, \"{c}\");").unwrap();
    };
    for (name, value) in values() {
        equal(&name, value);
        // As part of an expression: a value that wants parentheses has them.
        equal(&format!("2ULL * {name}"), value.wrapping_mul(2));
        equal(&format!("~0ULL - {name}"), !value);
    }
    let context = |list: &str, word| format!("offsetof(struct qpair_hw_{list}, {word})");
    for (name, bytes, fields) in layouts() {
        equal(&format!("sizeof(struct qpair_hw_{name})"), bytes as u64);
        for (field, word, shift, bits) in fields {
            let offset = *word as u64 * 8 + u64::from(shift / 8);
            equal(&context(name, field), offset);
            let bytes = match bits {
                0 => BufferList::BYTES as u64,
                bits => u64::from(bits / 8),
            };
            let of = format!("sizeof(((struct qpair_hw_{name} *)0)->{field})");
            equal(&of, bytes);
        }
    }
    let number = Number::from_raw(0x8765_4321);
    let value = doorbell::value(number, 0xfedc_ba98);
    equal("QPAIR_HW_DOORBELL(0x87654321, 0xfedcba98)", value);
    equal("2 * QPAIR_HW_INDEX(0x87654321)", 2 * number.index() as u64);
    let generation = u64::from(number.generation());
    equal("2 * QPAIR_HW_GENERATION(0x87654321)", 2 * generation);
    equal(
        "QPAIR_HW_KEY_OF_WINDOW(0x8765432f, 0x1a)",
        entry::window_key(Number::from_raw(0x8765_432f), 0x1a).into(),
    );
    equal(
        "QPAIR_HW_KEY_OF_FRMR(0x87254321, 0x1a)",
        entry::frmr_key(Number::from_raw(0x8725_4321), 0x1a).into(),
    );
    let opcode = command::opcode(command::kind::QP, command::verb::MODIFY);
    equal(
        "2 * QPAIR_HW_COMMAND(QPAIR_HW_KIND_QP, QPAIR_HW_VERB_MODIFY)",
        2 * u64::from(opcode),
    );
    out
}

#[test]
fn every_definition_is_compared() {
    let (header, values) = (header(), values());
    let mut names = defined(&header);
    names.sort();
    assert!(names.len() > 150, "{}", names.len());
    assert!(
        names.iter().eq(values.keys()),
        "not in both: {:?}",
        names
            .iter()
            .filter(|name| !values.contains_key(*name))
            .chain(values.keys().filter(|name| !names.contains(name)))
            .collect::<Vec<_>>()
    );
    let structures = header.lines().filter(|line| line.ends_with(" {"));
    assert_eq!(structures.count(), layouts().len());
}

#[test]
fn a_c_compiler_agrees() {
    for standard in ["-std=gnu11", "-std=c11"] {
        compiles("device.h", &header(), &facts(), standard)
            .unwrap_or_else(|error| panic!("{error}"));
    }
}

/// The comparison sees what it is for: a value without its parentheses, another value, a field
/// that has moved.
#[test]
fn a_wrong_header_is_seen() {
    let good = header();
    for (from, to) in [
        ("(1 << 3)", "1 << 3"),
        ("(1 << 3)", "(1 << 4)"),
        ("(1ULL << 63)", "1ULL << 63"),
        ("0x0000ff00", "0x0000fe00"),
        (
            "\t__le32 mask;\n\t__le32 context_bytes;",
            "\t__le32 context_bytes;\n\t__le32 mask;",
        ),
    ] {
        let wrong = good.replacen(from, to, 1);
        assert!(wrong != good, "{from} is in the header");
        assert!(
            compiles("device.h", &wrong, &facts(), "-std=gnu11").is_err(),
            "{to}"
        );
    }
}

/// What cannot be said in C must not be left out in silence.
#[test]
fn what_is_not_understood_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let read = |name: &str| fs::read_to_string(top().join("rust/abi").join(name)).unwrap();
    let files = [
        "mod.rs",
        "regs.rs",
        "doorbell.rs",
        "entry.rs",
        "entry/process.rs",
        "command.rs",
        "status.rs",
        "status/detail.rs",
    ];
    for folder in ["entry", "status"] {
        fs::create_dir(dir.path().join(folder)).unwrap();
    }
    let write = |name: &str, text: String| fs::write(dir.path().join(name), text).unwrap();
    for name in files.into_iter().chain(["counters.rs"]) {
        write(name, read(name));
    }
    qpair_header::generate(dir.path()).unwrap();
    for (file, from, to) in [
        ("regs.rs", "15:8 cause", "8:15 cause"),
        (
            "command.rs",
            "pub const EQ: u8 = 1;",
            "pub const EQ: u8 = later();",
        ),
        (
            "command.rs",
            "draining: u8 = 4 @ 56",
            "draining: usize = 4 @ 56",
        ),
        (
            "doorbell.rs",
            "pub const BAR_MSIX: u32",
            "const NO_BAR: u32",
        ),
        ("status.rs", "pub enum AdminError", "pub enum Other"),
    ] {
        let text = read(file);
        let wrong = text.replacen(from, to, 1);
        assert!(wrong != text, "{from} is in {file}");
        write(file, wrong);
        let made = qpair_header::generate(dir.path());
        assert!(made.is_err(), "{to}");
        write(file, text);
    }
}
