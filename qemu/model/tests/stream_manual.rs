// SPDX-License-Identifier: GPL-2.0
//! Checks the manual of channels against the device.
//!
//! `Documentation/stream.rst` shows a driver as a list of accesses. This test parses the list and
//! runs it against the device, so neither can change without the other. It also checks that each
//! cause, counter and register has its row in a table there.

#[allow(dead_code, unreachable_pub)]
#[path = "harness/memory.rs"]
mod memory;

#[allow(dead_code, unreachable_pub)]
#[path = "harness/example.rs"]
mod example;

use example::play;
use example::Plays;
use memory::Grant;
use memory::Memory;
use memory::TestHost;
use qpair_abi::stream::chain;
use qpair_abi::stream::counters::Counter;
use qpair_abi::stream::headtail;
use qpair_abi::stream::regs;
use qpair_abi::stream::Cause;
use qpair_model::stream::Config;
use qpair_model::stream::Stream;
use qpair_model::Run;

const MANUAL: &str = include_str!("../../../Documentation/stream.rst");
/// The start and the length of the example's memory.
const BASE: u64 = 0x10_0000;
const BYTES: u64 = 8 * 4096;

impl Plays for Stream<TestHost> {
    fn reg_read(&mut self, offset: u64) -> u32 {
        self.reg_read(offset)
    }
    fn reg_write(&mut self, offset: u64, value: u32) {
        self.reg_write(offset, value);
    }
    fn doorbell(&mut self, _offset: u64, _value: u64) {
        panic!("there are no doorbells");
    }
    fn finish(&mut self) {
        while self.run(8) == Run::More {}
    }
    fn host(&mut self) -> &mut TestHost {
        self.host_mut()
    }
}

#[test]
fn the_worked_example_is_what_happens() {
    let (_, example) = MANUAL.split_once("**A chain.**").unwrap();
    let (example, _) = example.split_once("The test ``stream_manual``").unwrap();
    let memory = Memory::new();
    memory.grant(BASE, BYTES, Grant::Write);
    let mut f = Stream::new(TestHost::new(memory), Config::default()).unwrap();
    let done = play(example, &mut f);
    let [writes, reads, stores, loads, bells, interrupts] = done;
    assert!(writes > 20 && reads > 8 && stores == 6 && loads == 6);
    assert_eq!((bells, interrupts), (0, 2));
}

/// The rows of tables, with one space between fields.
fn rows() -> Vec<String> {
    let fields = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
    MANUAL.lines().map(fields).collect()
}

#[test]
fn every_cause_and_counter_has_its_row() {
    let rows = rows();
    let has = |row: String| {
        let found = rows.iter().any(|line| line.starts_with(&row));
        assert!(found, "no row {row}");
    };
    for cause in Cause::ALL {
        has(format!("{} ``{cause:?}`` ", cause.code()));
    }
    for (place, counter) in Counter::ALL.iter().enumerate() {
        has(format!("{place} ``{}`` {}", counter.name(), counter.text()));
    }
}

#[test]
fn every_register_and_field_has_its_row() {
    let text: String = MANUAL.split_whitespace().collect::<Vec<_>>().join(" ");
    let (function, rest) = text.split_once(" Chains ====== ").unwrap();
    let (chains, rings) = rest
        .split_once(" Rings with a head and a tail =====")
        .unwrap();
    let common = ["DROPS", "PEER", "KIND"];
    for (part, all) in [
        (function, regs::offset::ALL),
        (chains, chain::offset::ALL),
        (rings, headtail::offset::ALL),
    ] {
        for (name, offset) in all {
            let part = if common.contains(name) {
                function
            } else {
                part
            };
            let row = format!("* - {offset:02X}h - ``{name}`` - ");
            assert!(part.contains(&row), "no row {row}");
        }
    }
    for (part, all) in [
        (function, regs::FIELDS),
        (chains, chain::FIELDS),
        (rings, headtail::FIELDS),
    ] {
        for (register, field, high, low) in all {
            let part = if common.contains(register) {
                function
            } else {
                part
            };
            let bits = match high == low {
                true => format!("{high} ``{field}``"),
                false => format!("{high}:{low} ``{field}``"),
            };
            let whole = (*high, *low) == (31, 0) && *field == "value";
            assert!(whole || part.contains(&bits), "{register}: no {bits}");
        }
    }
}
