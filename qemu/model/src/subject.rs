// SPDX-License-Identifier: GPL-2.0
//! The subjects of events.

use qpair_abi::Number;

/// The subject of an asynchronous event. Each subject has one notice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Subject {
    /// A CQ was overrun.
    Overrun(Number),
    /// A queue pair stopped, for a cause that no completion reports.
    Fatal(Number),
    /// A queue pair stopped for a request of its peer that it may not perform.
    Access(Number),
    /// A queue pair stopped for an invalid request of its peer.
    Request(Number),
    /// A queue pair takes no receive of its SRQ any more.
    LastReceive(Number),
    /// The SQ of a queue pair in SQD has drained.
    Drained(Number),
    /// An SRQ has fewer receives left than its limit.
    Limit(Number),
    /// The memory of an SRQ could not be read.
    Unreadable(Number),
    /// A doorbell page had a violation.
    Page(u16),
    /// The link went up or down.
    Link,
}

impl Subject {
    /// Those of a queue pair.
    pub(crate) fn of_qp(qp: Number) -> [Self; 5] {
        [
            Self::Fatal(qp),
            Self::Access(qp),
            Self::Request(qp),
            Self::LastReceive(qp),
            Self::Drained(qp),
        ]
    }
}

/// The device's action when the head of an EQ passes an entry.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Source {
    /// Nothing: a test wrote the entry, or it is the last one of a function that stopped.
    Untracked,
    /// The CQ may write its next event.
    Cq(Number),
    /// The next asynchronous event may be written.
    Async(Subject),
}

/// The violations of a doorbell page.
#[derive(Clone, Default)]
pub(crate) struct DoorbellPage {
    /// Since software read the count.
    pub(crate) violations: u32,
    /// An event was written since then.
    pub(crate) reported: bool,
}
