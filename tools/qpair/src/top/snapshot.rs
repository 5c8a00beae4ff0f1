// SPDX-License-Identifier: GPL-2.0
//! The driver's state at one time.
//!
//! | file | form | gives |
//! |---|---|---|
//! | `eqs` | a line of headings, a line for each EQ | what polls counted |
//! | `live` | a kind and `name=value`s | indices, depths, states of all queues |
//! | `device` | a name and a value | health, and what the device counted |
//! | `events`, ... | a value | tuning |
//!
//! The files are read one after the other, without a lock: an object may be in one and not in the
//! next. Missing objects are not shown; a missing number is 0. `device` is read last: the driver
//! changes the health of a device before it removes its queues, so a snapshot without queues shows
//! the reason.

use std::collections::BTreeMap;
use std::io;
use std::time::Instant;

/// The numbers of an object, by the names of the driver's files.
pub(crate) type Record = BTreeMap<String, u64>;

/// Files of one number, which tune polls.
pub(crate) const TUNING: [&str; 4] = ["events", "completions", "budget", "policy"];

/// A snapshot of the driver's files.
#[derive(Clone, Debug)]
pub(crate) struct Snapshot {
    /// When it was taken.
    pub(crate) at: Instant,
    /// Name of the RDMA device, `qpairN`.
    pub(crate) name: String,
    /// In the driver's words.
    pub(crate) health: String,
    /// The polls' counters, by EQ number.
    pub(crate) eqs: BTreeMap<u64, Record>,
    /// The device's view: EQs, CQs and queue pairs by kind and number.
    pub(crate) live: BTreeMap<(Kind, u64), Record>,
    /// Epoch, commands, and the device's counters.
    pub(crate) device: Record,
    /// The values of [`TUNING`].
    pub(crate) tuning: Record,
}

/// The kind of a queue in `live`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    Eq,
    Cq,
    Qp,
}

impl Snapshot {
    /// Reads it; `file` gives the text of a file by name.
    pub(crate) fn read(mut file: impl FnMut(&str) -> io::Result<String>) -> io::Result<Self> {
        let mut tuning = Record::new();
        for name in TUNING {
            if let Ok(value) = file(name)?.trim().parse() {
                tuning.insert(name.into(), value);
            }
        }
        let eqs = table(&file("eqs")?);
        let live = live(&file("live")?);
        let device = file("device")?;
        let word = |key: &str| {
            let mut pairs = device.lines().filter_map(|line| line.split_once(' '));
            pairs
                .find(|(name, _)| *name == key)
                .map_or("?", |(_, value)| value)
        };
        Ok(Self {
            name: word("name").into(),
            health: word("health").into(),
            eqs,
            live,
            device: device
                .lines()
                .filter_map(|line| line.split_once(' '))
                .filter_map(|(name, value)| Some((name.to_owned(), value.parse().ok()?)))
                .collect(),
            tuning,
            at: Instant::now(),
        })
    }
}

/// Lines of numbers under a line of headings, by the column `number`. Lines of another form are
/// skipped.
fn table(text: &str) -> BTreeMap<u64, Record> {
    let mut lines = text.lines();
    let headings: Vec<&str> = lines
        .next()
        .map_or(Vec::new(), |line| line.split_whitespace().collect());
    lines
        .filter_map(|line| {
            let words: Vec<&str> = line.split_whitespace().collect();
            let record: Record = headings
                .iter()
                .zip(&words)
                .filter_map(|(name, word)| Some(((*name).to_owned(), word.parse().ok()?)))
                .collect();
            let number = *record.get("number")?;
            (words.len() == headings.len()).then_some((number, record))
        })
        .collect()
}

fn live(text: &str) -> BTreeMap<(Kind, u64), Record> {
    text.lines()
        .filter_map(|line| {
            let (kind, rest) = line.split_once(' ')?;
            let kind = match kind {
                "eq" => Kind::Eq,
                "cq" => Kind::Cq,
                "qp" => Kind::Qp,
                _ => return None,
            };
            let record: Record = rest
                .split_whitespace()
                .filter_map(|word| word.split_once('='))
                .filter_map(|(name, value)| Some((name.to_owned(), value.parse().ok()?)))
                .collect();
            Some(((kind, *record.get("number")?), record))
        })
        .collect()
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Recorded in a guest while a process wrote, and the kernel's client sent.
    pub(crate) const FIRST: &str = include_str!("../../tests/top/first.txt");
    /// The same, a second later.
    pub(crate) const SECOND: &str = include_str!("../../tests/top/second.txt");

    /// A recorded snapshot: `== NAME`, then the text of the file.
    pub(crate) fn recorded(text: &str) -> Snapshot {
        let file = |name: &str| {
            text.split("== ")
                .find_map(|part| part.strip_prefix(name)?.strip_prefix('\n'))
                .map(str::to_owned)
                .ok_or_else(|| io::ErrorKind::NotFound.into())
        };
        Snapshot::read(file).unwrap()
    }

    #[test]
    fn every_object_is_there() {
        let snapshot = recorded(FIRST);
        let count = |kind| snapshot.live.keys().filter(|key| key.0 == kind).count();
        assert_eq!(
            (count(Kind::Eq), count(Kind::Cq), count(Kind::Qp)),
            (2, 3, 13)
        );
        assert_eq!(snapshot.eqs[&0]["interrupts"], 55);
        assert_eq!((&*snapshot.name, &*snapshot.health), ("qpair0", "Up"));
        assert_eq!(snapshot.device["cqes"], 95929);
        assert_eq!(snapshot.tuning["budget"], 256);
    }

    #[test]
    fn who_sees_no_queues_sees_why() {
        // The device is removed after the first file was read.
        let mut looks = 0;
        let snapshot = Snapshot::read(|name| {
            looks += 1;
            let health = if looks == 1 { "Up" } else { "Unbound" };
            let rows = if looks == 1 { "0 0" } else { "" };
            Ok(match name {
                "device" => format!("name qpair0\nhealth {health}\n"),
                "eqs" => format!("eq number\n{rows}\n"),
                _ => String::new(),
            })
        })
        .unwrap();
        assert!(snapshot.eqs.is_empty());
        assert_eq!(snapshot.health, "Unbound");
    }

    #[test]
    fn what_makes_no_sense_is_left_out() {
        assert!(table("").is_empty());
        assert!(table("eq number\n0\n").is_empty());
        assert!(table("eq number\n0 x\n").is_empty());
        assert!(live("\nxq number=1\ncq depth=3\nqp number=\n").is_empty());
        assert_eq!(live("cq number=3 depth=x\n")[&(Kind::Cq, 3)].len(), 1);
    }

    #[test]
    fn a_file_that_is_gone_is_an_error() {
        let error = Snapshot::read(|_| Err(io::ErrorKind::NotFound.into())).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
    }
}
