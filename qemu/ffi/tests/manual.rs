// SPDX-License-Identifier: GPL-2.0
//! Each property has its row in the manual, with its default.

use qpair_ffi::{
    model::{
        qpair_facts,
        qpair_setting, //
    },
    QpairKind,
    QpairText, //
};

const MANUAL: &str = include_str!("../../../Documentation/device.rst");

fn text(text: QpairText) -> &'static str {
    // SAFETY: Constant text of the library, with this many bytes.
    let bytes = unsafe { std::slice::from_raw_parts(text.text.cast::<u8>(), text.bytes) };
    std::str::from_utf8(bytes).unwrap()
}

/// A number in the format of the manual.
fn shown(value: u64) -> String {
    match value {
        large if large.is_power_of_two() && large > 1 << 16 => format!("2^{}", large.ilog2()),
        other => other.to_string(),
    }
}

#[test]
fn every_property_has_its_row() {
    let rows: Vec<String> = MANUAL
        .lines()
        .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "))
        .collect();
    for index in 0..qpair_facts().settings {
        let setting = qpair_setting(index);
        let name = format!("``{}`` ", text(setting.name));
        let default = format!("{name}{} ", shown(setting.initial));
        let knob = text(setting.text).starts_with("test: ");
        let wanted = match setting.kind {
            QpairKind::Number if !knob => &default,
            _ => &name,
        };
        assert!(
            rows.iter().any(|row| row.starts_with(wanted)),
            "no row of the manual begins with {wanted}"
        );
    }
}
