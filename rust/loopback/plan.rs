// SPDX-License-Identifier: GPL-2.0

//! The parameters of a run: `qps=2 depth=64 count=10000 size=64 op=send verify=1 signal=1
//! group=32`.

use crate::{
    hw::{
        function::Limits,
        qp::Sizes, //
    },
    queue::index::Depth,
    report::written, //
};
use kernel::{
    fmt,
    prelude::*,
    uaccess::UserSliceReader, //
};

/// The operation of a lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Op {
    /// SEND to a receive of the peer.
    Send,
    /// RDMA WRITE to the peer.
    Write,
    /// RDMA READ from the peer.
    Read,
}

impl Op {
    const NAMES: [(&'static str, Self); 3] = [
        ("send", Self::Send),
        ("write", Self::Write),
        ("read", Self::Read),
    ];

    fn name(self) -> &'static str {
        match self {
            Self::Send => "send",
            Self::Write => "write",
            Self::Read => "read",
        }
    }
}

/// The parameters of a run.
#[derive(Clone, Copy, Debug)]
pub(super) struct Plan {
    /// Queue pairs, an even number.
    pub(super) qps: u32,
    /// Operations in flight of each.
    pub(super) depth: Depth,
    /// Operations of each.
    pub(super) count: u64,
    /// Bytes of each operation.
    pub(super) size: u32,
    /// What each of them does.
    pub(super) op: Op,
    pub(super) verify: bool,
    /// Every `signal`th operation is signaled.
    pub(super) signal: u32,
    /// Queue pairs on each CQ: an even number, connected two by two, or 1, which is its own peer.
    pub(super) group: u32,
}

/// The most bytes of an operation, which a poll fills and verifies.
const MAX_SIZE: u32 = 1 << 16;
/// The most bytes of the regions of a run, which are in coherent memory.
const MAX_BYTES: u64 = 1 << 26;
/// The most queue pairs on a CQ, and the default.
const MAX_GROUP: u32 = 32;

impl Plan {
    /// Parses `key=value` words. All keys are optional.
    pub(super) fn read(reader: &mut UserSliceReader, limits: &Limits) -> Result<Self> {
        let mut buffer = [0; 256];
        Self::parse(written(reader, &mut buffer)?, limits)
    }

    fn parse(text: &str, limits: &Limits) -> Result<Self> {
        let (mut qps, mut depth, mut count, mut size) = (2, 64, 1000, 64);
        let (mut op, mut verify, mut signal, mut group) = (Op::Send, 1, 1, MAX_GROUP);
        for word in text.split_ascii_whitespace() {
            let (key, value) = word.split_once('=').ok_or(EINVAL)?;
            if key == "op" {
                let named = Op::NAMES.iter().find(|(name, _)| *name == value);
                op = named.ok_or(EINVAL)?.1;
                continue;
            }
            let number: u64 = value.parse().map_err(|_| EINVAL)?;
            let small = || u32::try_from(number).map_err(|_| EINVAL);
            match key {
                "qps" => qps = small()?,
                "depth" => depth = small()?,
                "count" => count = number,
                "size" => size = small()?,
                "verify" => verify = small()?,
                "signal" => signal = small()?,
                "group" => group = small()?,
                _ => return Err(EINVAL),
            }
        }
        let plan = Self {
            qps,
            depth: Depth::at_least(depth).ok_or(EINVAL)?,
            count,
            size,
            op,
            verify: verify != 0,
            signal,
            group,
        };
        let fits = depth != 0
            && qps != 0
            && qps % 2 == 0
            && count != 0
            && signal != 0
            && (group == 1 || group % 2 == 0)
            && (1..=MAX_GROUP).contains(&group)
            && (1..=MAX_SIZE.min(limits.message)).contains(&size)
            && qps < limits.qp
            && plan.depth.log2() <= limits.log_sq.min(limits.log_rq)
            && plan.bytes() <= MAX_BYTES;
        if !fits {
            return Err(EINVAL);
        }
        Ok(plan)
    }

    /// The place in its group of the peer of the queue pair at `place`.
    pub(super) fn peer(&self, place: usize) -> usize {
        if self.group == 1 {
            place
        } else {
            place ^ 1
        }
    }

    /// Words of a slot in a lane's memory.
    pub(super) fn slot_words(&self) -> usize {
        self.size.div_ceil(8) as usize
    }

    /// Bytes of a lane's memory: a source and a target slot for each operation in flight.
    pub(super) fn lane_bytes(&self) -> usize {
        2 * self.slot_words() * 8 * self.depth.entries() as usize
    }

    fn bytes(&self) -> u64 {
        // CAST: All bounded above.
        (self.lane_bytes() as u64).saturating_mul(self.qps.into())
    }

    /// The queues of each queue pair.
    pub(super) fn sizes(&self) -> Sizes {
        Sizes {
            sq: self.depth,
            rq: Some((self.depth, 0)),
        }
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "op={} qps={} depth={} count={} size={} verify={} signal={} group={}",
            self.op.name(),
            self.qps,
            self.depth.entries(),
            self.count,
            self.size,
            u32::from(self.verify),
            self.signal,
            self.group,
        )
    }
}

#[kernel::macros::kunit_tests(qpair_loopback)]
mod tests {
    use super::*;

    fn limits() -> Limits {
        Limits {
            version: 2 << 16,
            qp: 1024,
            cq: 2048,
            eq: 64,
            mr: 4096,
            pd: 1024,
            srq: 0,
            mw: 0,
            frmr: 0,
            groups: 0,
            group_members: 0,
            pages: 1024,
            log_sq: 15,
            log_rq: 15,
            log_cq: 17,
            log_eq: 15,
            send_sges: 14,
            recv_sges: 15,
            inline_bytes: 224,
            message: 1 << 30,
            region_log_bytes: 36,
            min_page_shift: 12,
            max_page_shift: 30,
            asynchronous: 16,
            mac: None,
            wired: false,
        }
    }

    #[test]
    fn what_is_left_out_has_a_value() {
        let plan = Plan::parse("\n", &limits());
        assert!(plan.is_ok_and(|plan| plan.qps == 2 && plan.op == Op::Send && plan.verify));
    }

    #[test]
    fn all_is_read() {
        let text = "qps=6 depth=33 count=7 size=9 op=read verify=0 signal=3 group=1\n";
        let plan = Plan::parse(text, &limits());
        assert!(plan.is_ok_and(|plan| {
            plan.qps == 6
                && plan.depth.entries() == 64
                && plan.count == 7
                && plan.slot_words() == 2
                && plan.op == Op::Read
                && !plan.verify
                && plan.signal == 3
                && plan.peer(0) == 0
        }));
    }

    #[test]
    fn nonsense_is_refused() {
        for text in [
            "qps=3",
            "qps=0",
            "qps=1024",
            "qps",
            "depth=0",
            "depth=65536",
            "count=0",
            "size=0",
            "size=65537",
            "op=copy",
            "signal=0",
            "group=0",
            "group=3",
            "group=34",
            "what=1",
            "qps=-2",
            "count=99999999999999999999",
            "qps=256 depth=64 size=65536",
        ] {
            assert!(Plan::parse(text, &limits()).is_err());
        }
    }
}
