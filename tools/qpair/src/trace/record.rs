// SPDX-License-Identifier: GPL-2.0
//! A line of the kernel's trace as a value.
//!
//! ```text
//!      ksoftirqd/1-25      [001] ..s..    15.352741: qpair_poll_end: dev=0 eq=0x00000000 done=256 again=1
//!      task-pid            cpu   flags    seconds    trace point     fields
//! ```
//!
//! A task's name may have blanks, brackets and colons in it, so a line is read from ` [` cpu `] `
//! on, the last such place before the name of a trace point.

/// What a trace point says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum What {
    Doorbell {
        dev: u32,
        place: u32,
        number: u32,
        index: u32,
    },
    Irq {
        dev: u32,
        eq: u32,
    },
    PollStart {
        dev: u32,
        eq: u32,
        budget: u32,
    },
    PollEnd {
        dev: u32,
        eq: u32,
        done: u32,
        again: bool,
    },
    Eqe {
        eq: u32,
        index: u32,
        kind: u32,
        number: u32,
    },
    Cqe {
        cq: u32,
        index: u32,
        qp: u32,
        status: u32,
    },
    Arm {
        cq: u32,
        index: u32,
    },
    CqHead {
        cq: u32,
        index: u32,
    },
    EqHead {
        eq: u32,
        index: u32,
        masked: bool,
    },
    Post {
        qp: u32,
        index: u32,
        opcode: u32,
    },
    Error {
        kind: Wrong,
        number: u32,
        detail: u32,
    },
}

/// The `what` of an error record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wrong {
    Completion,
    Stale,
    Command,
    Asynchronous,
    Fatal,
}

impl Wrong {
    const ALL: [(&'static str, Self); 5] = [
        ("completion", Self::Completion),
        ("stale", Self::Stale),
        ("command", Self::Command),
        ("asynchronous", Self::Asynchronous),
        ("fatal", Self::Fatal),
    ];

    /// Its name in the trace.
    pub(crate) fn name(self) -> &'static str {
        Self::ALL
            .iter()
            .find(|(_, kind)| *kind == self)
            .map_or("?", |(name, _)| name)
    }
}

/// A record of the trace: one line.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Record {
    pub(crate) cpu: u32,
    /// Nanoseconds of the trace's clock.
    pub(crate) at: u64,
    pub(crate) what: What,
}

impl Record {
    /// Parses a line of the driver's trace points; `None` for any other.
    pub(crate) fn parse(line: &str) -> Option<Self> {
        let (head, tail) = line.split_once(": qpair_")?;
        let (before, time) = head.rsplit_once(char::is_whitespace)?;
        let (_, cpu) = before.rsplit_once(" [")?;
        let (cpu, _) = cpu.split_once(']')?;
        let (name, fields) = tail.split_once(": ")?;
        Some(Self {
            cpu: cpu.parse().ok()?,
            at: nanoseconds(time)?,
            what: what(name, fields)?,
        })
    }
}

fn nanoseconds(time: &str) -> Option<u64> {
    let (seconds, fraction) = time.split_once('.')?;
    let digits = u32::try_from(fraction.len()).ok().filter(|n| *n <= 9)?;
    let fraction: u64 = fraction.parse().ok()?;
    let seconds: u64 = seconds.parse().ok()?;
    seconds
        .checked_mul(1_000_000_000)?
        .checked_add(fraction * 10u64.pow(9 - digits))
}

fn what(name: &str, fields: &str) -> Option<What> {
    let word = |key: &str| {
        fields
            .split_whitespace()
            .filter_map(|field| field.split_once('='))
            .find(|(name, _)| *name == key)
            .map(|(_, value)| value)
    };
    let number = |key: &str| {
        let text = word(key)?;
        match text.strip_prefix("0x") {
            Some(digits) => u32::from_str_radix(digits, 16).ok(),
            None => text.parse().ok(),
        }
    };
    Some(match name {
        "doorbell" => What::Doorbell {
            dev: number("dev")?,
            place: number("place")?,
            number: number("number")?,
            index: number("index")?,
        },
        "irq" => What::Irq {
            dev: number("dev")?,
            eq: number("eq")?,
        },
        "poll_start" => What::PollStart {
            dev: number("dev")?,
            eq: number("eq")?,
            budget: number("budget")?,
        },
        "poll_end" => What::PollEnd {
            dev: number("dev")?,
            eq: number("eq")?,
            done: number("done")?,
            again: number("again")? != 0,
        },
        "eqe" => What::Eqe {
            eq: number("eq")?,
            index: number("index")?,
            kind: number("kind")?,
            number: number("number")?,
        },
        "cqe" => What::Cqe {
            cq: number("cq")?,
            index: number("index")?,
            qp: number("qp")?,
            status: number("status")?,
        },
        "arm" => What::Arm {
            cq: number("cq")?,
            index: number("index")?,
        },
        "head" => match number("eq") {
            Some(eq) => What::EqHead {
                eq,
                index: number("index")?,
                masked: number("masked")? != 0,
            },
            None => What::CqHead {
                cq: number("cq")?,
                index: number("index")?,
            },
        },
        "post" => What::Post {
            qp: number("qp")?,
            index: number("index")?,
            opcode: number("opcode")?,
        },
        "error" => What::Error {
            kind: Wrong::ALL
                .iter()
                .find(|(name, _)| Some(*name) == word("what"))?
                .1,
            number: number("number")?,
            detail: number("detail")?,
        },
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_each_kind() {
        let line = |rest: &str| {
            Record::parse(&format!(
                "   cat-148     [001] .Bs..    15.366384: qpair_{rest}"
            ))
            .map(|record| record.what)
        };
        let (dev, eq, cq, index) = (0, 0x10001, 0x10002, 7);
        for (text, what) in [
            (
                "doorbell: dev=0 place=0x18 number=0x00010002 index=7",
                What::Doorbell {
                    dev,
                    place: 0x18,
                    number: cq,
                    index,
                },
            ),
            ("irq: dev=0 eq=0x00010001", What::Irq { dev, eq }),
            (
                "poll_start: dev=0 eq=0x00010001 budget=256",
                What::PollStart {
                    dev,
                    eq,
                    budget: 256,
                },
            ),
            (
                "poll_end: dev=0 eq=0x00010001 done=65 again=1",
                What::PollEnd {
                    dev,
                    eq,
                    done: 65,
                    again: true,
                },
            ),
            (
                "eqe: eq=0x00010001 index=7 kind=1 number=0x00010002",
                What::Eqe {
                    eq,
                    index,
                    kind: 1,
                    number: cq,
                },
            ),
            (
                "cqe: cq=0x00010002 index=7 qp=0x00000003 status=0",
                What::Cqe {
                    cq,
                    index,
                    qp: 3,
                    status: 0,
                },
            ),
            (
                "arm: cq=0x00010002 index=7 solicited=0",
                What::Arm { cq, index },
            ),
            (
                "head: cq=0x00010002 index=7 masked=0",
                What::CqHead { cq, index },
            ),
            (
                "head: eq=0x00010001 index=7 masked=1",
                What::EqHead {
                    eq,
                    index,
                    masked: true,
                },
            ),
            (
                "post: qp=0x00000003 index=7 opcode=1 wr_id=0x20000000014dc",
                What::Post {
                    qp: 3,
                    index,
                    opcode: 1,
                },
            ),
            (
                "error: what=command number=0x00000003 detail=22",
                What::Error {
                    kind: Wrong::Command,
                    number: 3,
                    detail: 22,
                },
            ),
        ] {
            assert_eq!(line(text), Some(what), "{text}");
        }
        for bad in [
            "",
            "irq: dev=0",
            "irq: dev=0 eq=x",
            "new: dev=0 eq=1",
            "error: what=x number=0 detail=0",
        ] {
            assert_eq!(line(bad), None, "{bad}");
        }
    }

    #[test]
    fn a_task_may_be_called_anything() {
        let record = Record::parse(
            "  a [000] b: c-9  [011] d.h1.   100.000001: qpair_irq: dev=2 eq=0x00000000",
        );
        let what = What::Irq { dev: 2, eq: 0 };
        assert_eq!(
            record,
            Some(Record {
                cpu: 11,
                at: 100_000_001_000,
                what
            })
        );
        assert_eq!(Record::parse("# tracer: nop"), None);
        assert_eq!(Record::parse("CPU:1 [LOST 12 EVENTS]"), None);
    }
}
