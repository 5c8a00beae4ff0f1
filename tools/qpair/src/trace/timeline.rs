// SPDX-License-Identifier: GPL-2.0
//! The records in order: on tracks, as spans of time and as moments.
//!
//! | track | spans | moments |
//! |---|---|---|
//! | interrupt of an EQ | masked: from the interrupt to the head update that unmasks | |
//! | EQ | polls | interrupts, EQEs, head updates |
//! | CQ | turns: from the first CQE to the publishing of the head | CQEs, arms, head updates |
//! | queue pair | | work requests, doorbells |
//! | errors | | errors |
//!
//! The records of a poll name no device, but are on the poll's CPU. Those of tasks get the device
//! of their object, if it is known.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use qpair_abi::doorbell;

use super::record::{Record, What};

/// A track of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Track {
    pub(crate) dev: u32,
    pub(crate) kind: Kind,
    pub(crate) number: u32,
}

/// Kinds of tracks, in the order in which they are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    Interrupt,
    Eq,
    Cq,
    Qp,
    Errors,
}

impl Track {
    /// The name of the track in a timeline and in a picture.
    pub(crate) fn name(self) -> String {
        let number = format!("{}.{}", self.number & 0xffff, self.number >> 16);
        match self.kind {
            Kind::Interrupt => format!("EQ {number} interrupt"),
            Kind::Eq => format!("EQ {number}"),
            Kind::Cq => format!("CQ {number}"),
            Kind::Qp => format!("QP {number}"),
            Kind::Errors => "errors".into(),
        }
    }
}

/// Something that takes time, from `start` to `end`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Span {
    pub(crate) track: Track,
    pub(crate) start: u64,
    pub(crate) end: u64,
    pub(crate) what: Long,
}

/// The kind of a span.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Long {
    /// The interrupt is masked.
    Masked,
    /// A poll and its counts. `again`: its budget is spent.
    Poll {
        budget: u32,
        eqes: u32,
        cqes: u32,
        again: bool,
    },
    /// A turn of a CQ; `armed` if it was drained.
    Turn { cqes: u32, armed: bool },
}

/// A point in time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Moment {
    pub(crate) track: Track,
    pub(crate) at: u64,
    pub(crate) what: What,
}

/// What the driver did while a command ran.
#[derive(Debug, Default)]
pub(crate) struct Timeline {
    pub(crate) spans: Vec<Span>,
    pub(crate) moments: Vec<Moment>,
    /// Events lost for lack of buffer space.
    pub(crate) lost: u64,
}

/// A poll that runs.
#[derive(Clone, Copy)]
struct Polling {
    track: Track,
    start: u64,
    budget: u32,
    eqes: u32,
    cqes: u32,
}

#[derive(Default)]
struct Builder {
    timeline: Timeline,
    polls: BTreeMap<u32, Polling>,
    masked: BTreeMap<Track, u64>,
    turns: BTreeMap<Track, (u64, u32)>,
    /// Devices of objects, from their doorbells.
    devices: BTreeMap<u32, u32>,
}

impl Timeline {
    /// Builds it from lines in the order of time.
    pub(crate) fn new(records: &[Record], lost: u64) -> Self {
        let mut builder = Builder::default();
        for record in records {
            builder.add(record);
        }
        let end = records.last().map_or(0, |record| record.at);
        let Builder {
            mut timeline,
            masked,
            ..
        } = builder;
        timeline
            .spans
            .extend(masked.into_iter().map(|(track, start)| Span {
                track,
                start,
                end,
                what: Long::Masked,
            }));
        timeline.spans.sort_by_key(|span| (span.start, span.track));
        timeline.lost = lost;
        timeline
    }

    /// All tracks, in the order in which they are shown.
    pub(crate) fn tracks(&self) -> Vec<Track> {
        let spans = self.spans.iter().map(|span| span.track);
        let moments = self.moments.iter().map(|moment| moment.track);
        let mut tracks: Vec<Track> = spans.chain(moments).collect();
        tracks.sort_unstable();
        tracks.dedup();
        tracks
    }

    /// CQEs and EQEs of each poll.
    pub(crate) fn polls(&self) -> impl Iterator<Item = (&Span, u32, u32)> {
        self.spans.iter().filter_map(|span| match span.what {
            Long::Poll { eqes, cqes, .. } => Some((span, eqes, cqes)),
            _ => None,
        })
    }

    /// The figures of coalescing.
    pub(crate) fn summary(&self) -> String {
        let count = |is: fn(&What) -> bool| {
            self.moments
                .iter()
                .filter(|moment| is(&moment.what))
                .count()
        };
        let interrupts = count(|what| matches!(what, What::Irq { .. }));
        let polls = self.polls().count();
        let eqes = count(|what| matches!(what, What::Eqe { .. }));
        let cqes = count(|what| matches!(what, What::Cqe { .. }));
        let heads = count(|what| matches!(what, What::EqHead { .. }));
        let errors = count(|what| matches!(what, What::Error { .. }));
        let most = self.polls().map(|poll| poll.2).max().unwrap_or(0);
        let mut text = format!(
            "{interrupts} interrupts, {polls} polls, {eqes} EQEs, {cqes} CQEs of the kernel, {heads} EQ head updates\n\
             {most} CQEs in one poll at the most"
        );
        if interrupts > 0 {
            let _ = write!(
                text,
                "; {:.1} for each interrupt",
                cqes as f64 / interrupts as f64
            );
        }
        text.push('\n');
        if errors > 0 {
            let _ = writeln!(text, "{errors} errors");
        }
        if self.lost > 0 {
            let _ = writeln!(
                text,
                "{} events are missing, the oldest: record less, or use a larger --buffer",
                self.lost
            );
        }
        text
    }
}

impl Builder {
    fn add(&mut self, record: &Record) {
        let Record { cpu, at, what } = *record;
        let polling = self.polls.get(&cpu).map(|poll| poll.track.dev);
        let of = |kind, number, devices: &BTreeMap<u32, u32>| Track {
            dev: polling
                .or_else(|| devices.get(&number).copied())
                .unwrap_or(0),
            kind,
            number,
        };
        let track = match what {
            What::Irq { dev, eq } => {
                let masked = Track {
                    dev,
                    kind: Kind::Interrupt,
                    number: eq,
                };
                self.masked.entry(masked).or_insert(at);
                Track {
                    dev,
                    kind: Kind::Eq,
                    number: eq,
                }
            }
            What::PollStart { dev, eq, budget } => {
                let track = Track {
                    dev,
                    kind: Kind::Eq,
                    number: eq,
                };
                let start = at;
                self.polls.insert(
                    cpu,
                    Polling {
                        track,
                        start,
                        budget,
                        eqes: 0,
                        cqes: 0,
                    },
                );
                return;
            }
            What::PollEnd { again, .. } => {
                // The record of its beginning may be lost.
                if let Some(poll) = self.polls.remove(&cpu) {
                    let Polling {
                        track,
                        start,
                        budget,
                        eqes,
                        cqes,
                    } = poll;
                    let what = Long::Poll {
                        budget,
                        eqes,
                        cqes,
                        again,
                    };
                    self.timeline.spans.push(Span {
                        track,
                        start,
                        end: at,
                        what,
                    });
                }
                return;
            }
            What::Doorbell {
                dev, place, number, ..
            } => {
                self.devices.insert(number, dev);
                // The others are heads and arms, which have trace points of their own.
                if ![doorbell::SQ, doorbell::RQ].contains(&place.into()) {
                    return;
                }
                Track {
                    dev,
                    kind: Kind::Qp,
                    number,
                }
            }
            What::Eqe { eq, .. } => {
                if let Some(poll) = self.polls.get_mut(&cpu) {
                    poll.eqes += 1;
                }
                of(Kind::Eq, eq, &self.devices)
            }
            What::Cqe { cq, .. } => {
                if let Some(poll) = self.polls.get_mut(&cpu) {
                    poll.cqes += 1;
                }
                let track = of(Kind::Cq, cq, &self.devices);
                self.turns.entry(track).or_insert((at, 0)).1 += 1;
                track
            }
            What::Arm { cq, .. } | What::CqHead { cq, .. } => {
                let track = of(Kind::Cq, cq, &self.devices);
                if let Some((start, cqes)) = self.turns.remove(&track) {
                    let armed = matches!(what, What::Arm { .. });
                    let what = Long::Turn { cqes, armed };
                    self.timeline.spans.push(Span {
                        track,
                        start,
                        end: at,
                        what,
                    });
                }
                track
            }
            What::EqHead { eq, masked, .. } => {
                let track = of(Kind::Eq, eq, &self.devices);
                let mask = Track {
                    kind: Kind::Interrupt,
                    ..track
                };
                if !masked {
                    if let Some(start) = self.masked.remove(&mask) {
                        let what = Long::Masked;
                        self.timeline.spans.push(Span {
                            track: mask,
                            start,
                            end: at,
                            what,
                        });
                    }
                }
                track
            }
            What::Post { qp, .. } => of(Kind::Qp, qp, &self.devices),
            What::Error { number, .. } => Track {
                number: 0,
                ..of(Kind::Errors, number, &self.devices)
            },
        };
        self.timeline.moments.push(Moment { track, at, what });
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Recorded in a guest: the kernel's client at the end of a burst, and a process that sleeps.
    pub(crate) const TEXT: &str = include_str!("../../tests/trace/loopback.txt");

    pub(crate) fn recorded() -> Timeline {
        let records: Vec<Record> = TEXT.lines().filter_map(Record::parse).collect();
        Timeline::new(&records, 5)
    }

    #[test]
    fn polls_have_what_happened_in_them() {
        let timeline = recorded();
        let most = timeline.polls().map(|(_, _, cqes)| cqes).max();
        assert!(most > Some(64), "{most:?}");
        let moments =
            |is: fn(&What) -> bool| timeline.moments.iter().filter(|m| is(&m.what)).count();
        // All but those of the poll whose beginning is not there.
        let cqes: u32 = timeline.polls().map(|(_, _, cqes)| cqes).sum();
        assert!(cqes > 0 && (cqes as usize) <= moments(|what| matches!(what, What::Cqe { .. })));
        for span in &timeline.spans {
            assert!(span.start <= span.end, "{span:?}");
        }
        let summary = timeline.summary();
        assert!(summary.contains("5 events are missing"), "{summary}");
    }

    #[test]
    fn turns_end_when_the_head_is_published() {
        let text = "\
            a-1 [000] d.h.. 1.000000: qpair_irq: dev=3 eq=0x00000000\n\
            a-1 [000] ..s.. 1.000010: qpair_poll_start: dev=3 eq=0x00000000 budget=256\n\
            a-1 [000] ..s.. 1.000011: qpair_eqe: eq=0x00000000 index=0 kind=1 number=0x00010001\n\
            a-1 [000] ..s.. 1.000012: qpair_cqe: cq=0x00010001 index=0 qp=0x00010001 status=0\n\
            a-1 [000] ..s.. 1.000013: qpair_cqe: cq=0x00010001 index=1 qp=0x00010001 status=0\n\
            a-1 [000] ..s.. 1.000014: qpair_arm: cq=0x00010001 index=2 solicited=0\n\
            a-1 [000] ..s.. 1.000015: qpair_head: eq=0x00000000 index=1 masked=0\n\
            a-1 [000] ..s.. 1.000016: qpair_poll_end: dev=3 eq=0x00000000 done=2 again=0\n";
        let records: Vec<Record> = text.lines().filter_map(Record::parse).collect();
        assert_eq!(records.len(), 8);
        let timeline = Timeline::new(&records, 0);
        let spans: Vec<_> = timeline
            .spans
            .iter()
            .map(|span| (span.track.kind, span.what, span.end - span.start))
            .collect();
        assert_eq!(
            spans,
            [
                (Kind::Interrupt, Long::Masked, 15_000),
                (
                    Kind::Eq,
                    Long::Poll {
                        budget: 256,
                        eqes: 1,
                        cqes: 2,
                        again: false
                    },
                    6_000
                ),
                (
                    Kind::Cq,
                    Long::Turn {
                        cqes: 2,
                        armed: true
                    },
                    2_000
                ),
            ]
        );
        assert!(timeline.tracks().iter().all(|track| track.dev == 3));
        assert!(timeline.summary().contains("2.0 for each interrupt"));
    }

    #[test]
    fn nothing_is_a_timeline_too() {
        let timeline = Timeline::new(&[], 0);
        assert!(timeline.tracks().is_empty());
        assert!(timeline.summary().starts_with("0 interrupts"));
    }
}
