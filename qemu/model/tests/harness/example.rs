// SPDX-License-Identifier: GPL-2.0
//! The worked examples of the manuals: lists of accesses, which are run against a device.

use super::memory::TestHost;
use qpair_model::Host;

/// A device that an example can be run against.
pub trait Plays {
    fn reg_read(&mut self, offset: u64) -> u32;
    fn reg_write(&mut self, offset: u64, value: u32);
    fn doorbell(&mut self, offset: u64, value: u64);
    /// Runs it until it has nothing to do.
    fn finish(&mut self);
    fn host(&mut self) -> &mut TestHost;
}

fn number(text: &str) -> u64 {
    let parsed = match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16),
        None => text.parse(),
    };
    parsed.unwrap_or_else(|_| panic!("{text} is no number"))
}

/// The words of a line, without the comment after them.
fn words(text: &str) -> Vec<u64> {
    let fields = text.trim_start().split("  ").next().unwrap_or("");
    fields.split_whitespace().map(number).collect()
}

/// Runs each line of an example. Returns how many there were of each kind: registers written and
/// read, memory written and read, doorbells, interrupts.
pub fn play(example: &str, f: &mut impl Plays) -> [u32; 6] {
    let mut done = [0; 6];
    for line in example.lines() {
        let line = line.trim_start();
        let Some((verb, rest)) = line.split_once(' ') else {
            continue;
        };
        let (place, act, words) = match rest.split_once(" <- ").or(rest.split_once(" == ")) {
            Some((place, text)) if matches!(verb, "reg" | "mem" | "bell") => {
                (place.trim(), rest.contains(" <- "), words(text))
            }
            _ => (rest.trim(), false, Vec::new()),
        };
        let kind = match (verb, act) {
            ("reg", true) => {
                f.reg_write(number(place), words[0] as u32);
                f.finish();
                0
            }
            ("reg", false) => {
                let value = f.reg_read(number(place));
                assert_eq!(u64::from(value), words[0], "{line}: {value:#x}");
                1
            }
            ("mem", true) => {
                let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
                f.host().write(number(place), &bytes).unwrap();
                2
            }
            ("mem", false) => {
                let mut bytes = vec![0; words.len() * 8];
                f.host().read(number(place), &mut bytes).unwrap();
                let expected: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
                assert_eq!(bytes, expected, "{line}");
                3
            }
            ("bell", true) => {
                f.doorbell(number(place), words[0]);
                f.finish();
                4
            }
            ("irq", false) => {
                let raised = std::mem::take(&mut f.host().raised);
                assert_eq!(raised, [number(place) as u16], "{line}");
                5
            }
            _ => continue,
        };
        done[kind] += 1;
    }
    assert!(f.host().raised.is_empty());
    done
}
