// SPDX-License-Identifier: GPL-2.0
//! Checks the manual against the device.
//!
//! `Documentation/device.rst` shows a driver as a list of accesses, from power-on to a
//! completed NOP and teardown. This test parses the list and runs it against the device, so neither
//! can change without the other. It also checks that each code, counter, register and doorbell has
//! its row in a table there.

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
use qpair_abi::counters::Counter;
use qpair_abi::doorbell;
use qpair_abi::status::AdminError;
use qpair_abi::status::Detail;
use qpair_abi::status::EnableError;
use qpair_abi::status::Status;
use qpair_model::Config;
use qpair_model::Function;
use qpair_model::Run;

const MANUAL: &str = include_str!("../../../Documentation/device.rst");
/// The start and the length of the example's memory.
const BASE: u64 = 0x10_0000;
const BYTES: u64 = 7 * 4096;

impl Plays for Function<TestHost> {
    fn reg_read(&mut self, offset: u64) -> u32 {
        self.reg_read(offset)
    }
    fn reg_write(&mut self, offset: u64, value: u32) {
        self.reg_write(offset, value);
    }
    fn doorbell(&mut self, offset: u64, value: u64) {
        self.doorbell(offset, value, 8);
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
    let (_, example) = MANUAL.split_once("**Bring-up.**").unwrap();
    let (example, _) = example.split_once("The same in code").unwrap();
    let memory = Memory::new();
    memory.grant(BASE, BYTES, Grant::Write);
    let mut host = TestHost::new(memory);
    host.maps = false;
    let mut f = Function::new(host, Config::default()).unwrap();
    let done = play(example, &mut f);
    assert!(
        done.iter().all(|&count| count != 0),
        "some kind of line was not found: {done:?}"
    );
}

/// Whether a row of a table begins with these fields.
fn has_row(number: impl std::fmt::Display, name: &str) -> bool {
    let wanted = format!("{number} {name}");
    MANUAL.lines().any(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let line = fields.join(" ");
        line == wanted || line.starts_with(&(wanted.clone() + " "))
    })
}

#[test]
fn every_code_and_counter_has_its_row() {
    macro_rules! check {
        ($($code:ty),*) => { $(
            for code in <$code>::ALL {
                let name = format!("``{code:?}``");
                assert!(has_row(code.code(), &name), "no row for {} {name}", code.code());
            }
        )* };
    }
    check!(Detail, AdminError, EnableError);
    for status in Status::ALL {
        assert!(has_row(status.code(), status.text()), "no row for {status}");
    }
    for (place, counter) in Counter::ALL.iter().enumerate() {
        let name = format!("``{}``", counter.name());
        assert!(has_row(place, &name), "no row for {place} {name}");
    }
}

#[test]
fn every_register_and_doorbell_has_its_row() {
    let rows: String = MANUAL.split_whitespace().collect::<Vec<_>>().join(" ");
    for (name, offset) in qpair_abi::regs::offset::ALL {
        let row = format!("* - {offset:02X}h - ``{name}`` - ");
        assert!(rows.contains(&row), "no row {row}");
    }
    let places = [
        ("SQ", doorbell::SQ),
        ("RQ", doorbell::RQ),
        ("SRQ", doorbell::SRQ),
        ("CQ_HEAD", doorbell::CQ_HEAD),
        ("CQ_ARM_NEXT", doorbell::CQ_ARM_NEXT),
        ("CQ_ARM_SOLICITED", doorbell::CQ_ARM_SOLICITED),
        ("EQ_HEAD", doorbell::EQ_HEAD),
        ("EQ_HEAD_MASKED", doorbell::EQ_HEAD_MASKED),
        ("CQ_NOTIFY", doorbell::CQ_NOTIFY),
        ("CQ_NOTIFY_SOLICITED", doorbell::CQ_NOTIFY_SOLICITED),
    ];
    for (name, place) in places {
        let number = format!("{place:02x}h");
        assert!(
            has_row(&number, &format!("``{name}``")),
            "no row for {name}"
        );
    }
}
