// SPDX-License-Identifier: GPL-2.0
//! The event path: the CPUs of interrupts, moderation, and fairness.

mod fair;
mod moderation;
mod vectors;

use std::collections::BTreeMap;
use std::sync::Arc;

use anyhow::Context as _;
use anyhow::Result;
use qpair_abi::entry::opcode;

use crate::ktap::cases;
use crate::ktap::Group;
use crate::raw::Context;
use crate::raw::Cq;
use crate::raw::Pd;
use crate::raw::Qp;
use crate::raw::QpShape;
use crate::raw::Wqe;
use crate::wait;
use crate::world;

/// Vectors and CPUs.
pub(crate) const VECTORS: Group = Group {
    name: "vectors",
    cases: cases![
        vectors::as_many_as_wanted,
        vectors::one_cpu_each * 2,
        vectors::lost_interrupts * 4,
        vectors::cpus_come_and_go * 8,
    ],
};

/// Settings of moderation and of polls.
pub(crate) const TUNING: Group = Group {
    name: "tuning",
    cases: cases![
        moderation::modes,
        moderation::fixed_collects,
        moderation::adaptive_follows_the_load,
        moderation::interrupts_have_a_ceiling,
        moderation::values_change_while_running * 8,
    ],
};

/// Fairness between CQs on one EQ.
pub(crate) const FAIR: Group = Group {
    name: "fair",
    cases: cases![
        fair::a_flood_and_255_others * 4,
        fair::one_that_never_polls * 2,
        fair::one_that_arms_without_end * 2,
        fair::no_cpu_locks_up * 2,
        fair::commands_beside_busy_queue_pairs * 2,
        fair::a_read_beside_large_messages,
    ],
};

/// A queue pair with itself, and its CQ on a vector.
struct Loop {
    cq: Cq,
    qp: Qp,
    next: u64,
}

impl Loop {
    fn new(ctx: &Arc<Context>, vector: u32) -> Result<Self> {
        Self::in_domain(ctx, &Pd::new(ctx)?, vector)
    }

    fn in_domain(ctx: &Arc<Context>, pd: &Pd, vector: u32) -> Result<Self> {
        let shape = QpShape {
            sq_blocks: 16,
            rq_depth: 1,
            rq_stride: 0,
        };
        let cq = Cq::on(ctx, 64, vector)?;
        let qp = Qp::new(pd, &cq, &cq, shape)?;
        qp.connect(qp.number)?;
        Ok(Self { cq, qp, next: 0 })
    }

    /// Arms, and makes a completion.
    fn begin(&mut self) {
        self.next += 1;
        self.cq.arm();
        self.qp.post(&Wqe::new(opcode::NOP, self.next));
    }

    /// Sleeps until its event has come.
    fn finish(&mut self) -> Result<()> {
        wait::readable(self.cq.eventfd().context("eventfd")?, "a completion event")?;
        self.cq.events()?;
        let cqe = self.cq.take()?;
        anyhow::ensure!(cqe.wr_id == self.next && cqe.status == 0, "{cqe:?}");
        Ok(())
    }

    /// One completion, reported by an event.
    fn turn(&mut self) -> Result<()> {
        self.begin();
        self.finish()
    }
}

/// The table `eqs` of debugfs: a line for each, numbers by the heading of their column. Checks that the
/// depth is a power of two, and that the head is the number of events that polls have taken.
fn eqs() -> Result<Vec<BTreeMap<String, u64>>> {
    let text = world::text(world::debugfs(0)?.join("eqs"))?;
    let mut lines = text.lines().map(str::split_ascii_whitespace);
    let headings: Vec<&str> = lines.next().context("no headings")?.collect();
    let table: Vec<BTreeMap<String, u64>> = lines
        .map(|line| {
            let numbers = line.map(|word| word.parse().context("not a number"));
            let named = headings.iter().map(ToString::to_string).zip(numbers);
            named.map(|(name, number)| Ok((name, number?))).collect()
        })
        .collect::<Result<_>>()?;
    // The head begins at 0, advances by one for each event, and has 32 bits.
    for eq in &table {
        let [depth, head, events] = ["depth", "head", "events"].map(|name| eq.get(name).copied());
        anyhow::ensure!(depth.is_some_and(u64::is_power_of_two), "no depth: {eq:?}");
        let taken = events.map(|events| events & u64::from(u32::MAX));
        anyhow::ensure!(
            head.is_some() && head == taken,
            "the head is not the events: {eq:?}"
        );
    }
    Ok(table)
}

/// A column of the line of an EQ.
fn of_eq(eq: u32, column: &str) -> Result<u64> {
    let eqs = eqs()?;
    let line = eqs.get(eq as usize).context("no such EQ")?;
    line.get(column).copied().context("no such column")
}

/// Reads a file of the device in debugfs.
fn knob(name: &str) -> Result<String> {
    Ok(world::text(world::debugfs(0)?.join(name))?
        .trim()
        .to_string())
}

/// Writes a file of the device in debugfs.
fn set_knob(name: &str, value: &str) -> Result<()> {
    world::put(world::debugfs(0)?.join(name), value)
}

/// Saved settings, restored on drop.
struct Kept(Vec<(&'static str, String)>);

impl Kept {
    fn all() -> Result<Self> {
        let names = ["events", "completions", "budget", "policy", "moderation"];
        let all = names.into_iter().map(|name| Ok((name, knob(name)?)));
        all.collect::<Result<_>>().map(Self)
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        for (name, value) in &self.0 {
            let _ = set_knob(name, value);
        }
    }
}
