// SPDX-License-Identifier: GPL-2.0
//! The header of the function of channels is current, and a C compiler reads in it what Rust has:
//! every definition, every field.

mod support;

use std::collections::BTreeMap;
use std::fmt::{Debug, Write as _};
use std::fs;

use heck::ToShoutySnakeCase as _;
use qpair_abi::stream::{
    self,
    chain::{self, ChainDescriptor},
    headtail::{self, RingDescriptor},
    regs, Cause, Kind, Side,
};
use support::{compiles, defined, top, Field};

fn header() -> String {
    qpair_header::generate_stream(&top().join("rust/abi")).unwrap()
}

#[test]
fn the_header_is_current() {
    let kept = fs::read_to_string(top().join("include/qpair/stream.h")).unwrap_or_default();
    assert!(kept == header(), "make it anew: cargo run -p qpair-header");
}

/// What Rust has under each name.
fn values() -> BTreeMap<String, u64> {
    let mut all = BTreeMap::new();
    let mut add = |name: String, value: u64| {
        assert!(all.insert(format!("QPAIR_STREAM_{name}"), value).is_none());
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
        "": stream {
            PCI_VENDOR PCI_DEVICE PCI_REVISION BAR_REGS BAR_MSIX BLOCKS BLOCK_BYTES MAX_PAIRS
        }
        "": regs { MAGIC_VALUE MAJOR MINOR }
        "REG_": regs { BYTES }
        "CH_": chain { ALIGN DELAY_NS }
        "CH_CONTROL_": chain::control { LENGTH EOF SOF }
        "CH_STATUS_": chain::status { LENGTH EOF SOF COMPLETE }
        "HT_": headtail { ALIGN BUFFER_UNIT BUFFER_DEFAULT BUFFER_MAX INTERVAL_NS }
        "HT_CMD_": headtail::cmd { EOP RS }
        "HT_STA_": headtail::sta { DD EOP }
    }
    for (prefix, offsets, fields) in [
        ("REG", regs::offset::ALL, regs::FIELDS),
        ("CH", chain::offset::ALL, chain::FIELDS),
        ("HT", headtail::offset::ALL, headtail::FIELDS),
    ] {
        for (name, offset) in offsets {
            add(format!("{prefix}_{name}"), *offset);
        }
        for (register, field, high, low) in fields {
            let mask = (1u64 << (high + 1)) - (1 << low);
            if mask != u64::from(u32::MAX) {
                let field = field.to_shouty_snake_case();
                add(format!("{prefix}_{register}_{field}"), mask);
            }
        }
    }
    let name = |prefix, code: &dyn Debug| {
        format!("{prefix}_{}", format!("{code:?}").to_shouty_snake_case())
    };
    for kind in Kind::ALL {
        add(name("KIND", kind), kind.code().into());
    }
    for cause in Cause::ALL {
        add(name("CAUSE", cause), cause.code().into());
    }
    all
}

fn layouts() -> [(&'static str, usize, &'static [Field]); 2] {
    [
        (
            "chain_descriptor",
            ChainDescriptor::BYTES,
            ChainDescriptor::FIELDS,
        ),
        (
            "ring_descriptor",
            RingDescriptor::BYTES,
            RingDescriptor::FIELDS,
        ),
    ]
}

/// The facts as assertions, for a compiler.
fn facts() -> String {
    let mut out = String::from("#include <stddef.h>\n#include <qpair/stream.h>\n");
    let mut equal = |c: &str, rust: u64| {
        writeln!(out, "_Static_assert(({c}) == {rust}ULL, \"{c}\");").unwrap();
    };
    for (name, value) in values() {
        equal(&name, value);
        // As part of an expression: a value that wants parentheses has them.
        equal(&format!("2ULL * {name}"), value.wrapping_mul(2));
        equal(&format!("~0ULL - {name}"), !value);
    }
    for (name, bytes, fields) in layouts() {
        let name = format!("struct qpair_stream_{name}");
        equal(&format!("sizeof({name})"), bytes as u64);
        for (field, word, shift, bits) in fields {
            let offset = *word as u64 * 8 + u64::from(shift / 8);
            equal(&format!("offsetof({name}, {field})"), offset);
            let of = format!("sizeof((({name} *)0)->{field})");
            equal(&of, u64::from(bits / 8));
        }
    }
    let vector = u64::from(stream::vector(5, Side::Receive));
    equal("2 * QPAIR_STREAM_VECTOR(4 + 1, 1)", 2 * vector);
    let block = stream::block(5, Side::Receive);
    equal("2 * QPAIR_STREAM_BLOCK(4 + 1, 1)", 2 * block);
    out
}

#[test]
fn every_definition_is_compared() {
    let (header, values) = (header(), values());
    let mut names = defined(&header);
    names.sort();
    assert!(names.len() > 80, "{}", names.len());
    assert!(names.iter().eq(values.keys()), "{names:?}");
    let structures = header.lines().filter(|line| line.ends_with(" {"));
    assert_eq!(structures.count(), layouts().len());
}

#[test]
fn a_c_compiler_agrees() {
    for standard in ["-std=gnu11", "-std=c11"] {
        compiles("stream.h", &header(), &facts(), standard)
            .unwrap_or_else(|error| panic!("{error}"));
    }
}
