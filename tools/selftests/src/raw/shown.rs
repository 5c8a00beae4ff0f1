// SPDX-License-Identifier: GPL-2.0
//! What the driver shows of objects, in debugfs and for `rdma resource`, which verbs cannot query.

use std::collections::HashMap;

use anyhow::Context as _;
use nix::errno::Errno;

use super::context::Context;
use super::resource;
use super::resource::objects;
use super::resource::Object;
use crate::ktap;
use crate::wait;
use crate::world;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CqNow {
    pub(crate) vector: u32,
    pub(crate) depth: u32,
    /// Entries written.
    pub(crate) producer: u32,
    /// The head that was published last.
    pub(crate) consumer: u32,
    /// Levels of its buffer list.
    pub(crate) levels: u32,
    /// Base-two logarithm of its page size.
    pub(crate) page_shift: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct QueuesNow {
    /// SQ blocks posted.
    pub(crate) sq_producer: u32,
    /// SQ blocks completed.
    pub(crate) sq_consumer: u32,
    /// Receives posted.
    pub(crate) rq_producer: u32,
    /// Receives taken.
    pub(crate) rq_consumer: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MrNow {
    pub(crate) bytes: u64,
    /// Levels of its buffer list.
    pub(crate) levels: u32,
    /// Base-two logarithm of its page size.
    pub(crate) page_shift: u32,
}

/// The fields of a line.
struct Line(HashMap<String, u32>);

impl Line {
    fn word(&self, name: &str) -> Result<u32, Errno> {
        self.0.get(name).copied().ok_or(Errno::EPROTO)
    }
}

fn file(device: usize, name: &str) -> Result<String, Errno> {
    let folder = world::debugfs(device).map_err(|_| Errno::ENODEV)?;
    world::text(folder.join(name)).map_err(|_| Errno::ENODEV)
}

/// The line of an object in `live`, of `NAME=VALUE`.
fn live(device: usize, kind: &str, number: u32) -> Result<Line, Errno> {
    let begin = format!("{kind} number={number} ");
    let text = file(device, "live")?;
    let line = text.lines().find(|line| line.starts_with(&begin));
    let pairs = line.ok_or(Errno::ENOENT)?.split_whitespace();
    let fields = pairs.filter_map(|pair| {
        let (name, value) = pair.split_once('=')?;
        Some((name.to_string(), value.parse().ok()?))
    });
    Ok(Line(fields.collect()))
}

/// One of the driver's numbers.
fn detail(object: &Object, name: &str) -> Result<u32, Errno> {
    object.driver.get(name).copied().ok_or(Errno::EPROTO)
}

/// The CQs, and the queue pairs, that the RDMA core and the driver have of `qpairN`.
fn queues_of_both(device: usize) -> anyhow::Result<[(usize, usize); 2]> {
    let live = world::text(world::debugfs(device)?.join("live"))?;
    let of_driver = |kind: &str| live.lines().filter(|line| line.starts_with(kind)).count();
    Ok([
        (objects(device, &resource::CQ)?.len(), of_driver("cq ")),
        (objects(device, &resource::QP)?.len(), of_driver("qp ")),
    ])
}

/// Waits until the RDMA core has as many queues of `qpairN` as the driver, which has those for
/// commands besides.
pub(crate) fn agree(device: usize) -> anyhow::Result<()> {
    let mut counts = None;
    let agreed = wait::until("the same queues", || {
        // It may be in the middle of a reset.
        counts = queues_of_both(device).ok();
        let same = |all: [(usize, usize); 2]| all.iter().all(|(core, driver)| core + 1 == *driver);
        Ok(counts.is_some_and(same))
    });
    let text = || format!("CQs and QPs of the core, and of the driver: {counts:?}");
    agreed.with_context(text)
}

/// The vector of the EQ that the CQ of a line is bound to.
fn vector(device: usize, cq: &Line) -> Result<u32, Errno> {
    live(device, "eq", cq.word("eq")?)?.word("vector")
}

/// The vector of the EQ that a CQ of `qpairN` is bound to. `ENOENT`: there is no such CQ.
pub(crate) fn vector_of_cq(device: usize, number: u32) -> Result<u32, Errno> {
    vector(device, &live(device, "cq", number)?)
}

/// `ENOENT`: there is no such completion queue.
pub(super) fn cq(ctx: &Context, number: u32) -> Result<CqNow, Errno> {
    let now = live(ctx.device(), "cq", number)?;
    let all = objects(ctx.device(), &resource::CQ)?;
    let is_it = |cq: &Object| cq.driver.get("number") == Some(&number);
    let cq = all.into_iter().find(is_it).ok_or(Errno::ENOENT)?;
    Ok(CqNow {
        vector: vector(ctx.device(), &now)?,
        depth: now.word("depth")?,
        producer: now.word("producer")?,
        consumer: now.word("consumer")?,
        levels: detail(&cq, "levels")?,
        page_shift: detail(&cq, "page_shift")?,
    })
}

/// Of a queue pair that is idle. `ENOENT`: there is none of this number. `EBADMSG`: `rdma resource`
/// and debugfs differ; both are printed.
pub(super) fn queues(ctx: &Context, number: u32) -> Result<QueuesNow, Errno> {
    let live = live(ctx.device(), "qp", number)?;
    let all = objects(ctx.device(), &resource::QP)?;
    let is_it = |qp: &Object| qp.driver.get("number") == Some(&number);
    let qp = all.into_iter().find(is_it).ok_or(Errno::ENOENT)?;
    let now = QueuesNow {
        sq_producer: live.word("sq-producer")?,
        sq_consumer: live.word("sq-consumer")?,
        rq_producer: live.word("rq-producer")?,
        rq_consumer: live.word("rq-consumer")?,
    };
    let shown = QueuesNow {
        sq_producer: detail(&qp, "sq_producer")?,
        sq_consumer: detail(&qp, "sq_consumer")?,
        rq_producer: detail(&qp, "rq_producer")?,
        rq_consumer: detail(&qp, "rq_consumer")?,
    };
    if now == shown {
        Ok(now)
    } else {
        ktap::say(&format!(
            "qp {number}: debugfs has {now:?}, rdma resource has {shown:?}"
        ));
        Err(Errno::EBADMSG)
    }
}

/// `ENOENT`: there is no such region.
pub(super) fn mr(ctx: &Context, number: u32) -> Result<MrNow, Errno> {
    let all = objects(ctx.device(), &resource::MR)?;
    let is_it = |mr: &Object| mr.core.get(&resource::LKEY) == Some(&number.into());
    let mr = all.into_iter().find(is_it).ok_or(Errno::ENOENT)?;
    Ok(MrNow {
        bytes: *mr.core.get(&resource::MRLEN).ok_or(Errno::EPROTO)?,
        levels: detail(&mr, "levels")?,
        page_shift: detail(&mr, "page_shift")?,
    })
}
