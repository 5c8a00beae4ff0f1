// SPDX-License-Identifier: GPL-2.0
//! What the driver shows of objects in debugfs, which verbs cannot query.

use std::collections::HashMap;

use nix::errno::Errno;
use qpair_abi::Number;

use super::Context;
use crate::world;

/// A completion queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CqNow {
    /// Its vector.
    pub vector: u32,
    /// Its entries.
    pub depth: u32,
    /// Entries written.
    pub producer: u32,
    /// The head that was published last.
    pub consumer: u32,
    /// Levels of its buffer list.
    pub levels: u32,
    /// Base-two logarithm of its page size.
    pub page_shift: u32,
}

/// The queues of a queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueuesNow {
    /// SQ blocks handed over.
    pub sq_producer: u32,
    /// SQ blocks done.
    pub sq_consumer: u32,
    /// Receives handed over.
    pub rq_producer: u32,
    /// Receives taken.
    pub rq_consumer: u32,
}

/// A memory region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MrNow {
    /// Its bytes.
    pub bytes: u64,
    /// Levels of its buffer list.
    pub levels: u32,
    /// Base-two logarithm of its page size.
    pub page_shift: u32,
}

/// The fields of a line.
struct Line(HashMap<String, u64>);

impl Line {
    fn get(&self, name: &str) -> Result<u64, Errno> {
        self.0.get(name).copied().ok_or(Errno::EPROTO)
    }

    fn word(&self, name: &str) -> Result<u32, Errno> {
        Ok(self.get(name)? as u32)
    }
}

fn file(ctx: &Context, name: &str) -> Result<String, Errno> {
    let folder = world::debugfs(ctx.device()).map_err(|_| Errno::ENODEV)?;
    world::text(folder.join(name)).map_err(|_| Errno::ENODEV)
}

/// The line of an object in `live`, of `NAME=VALUE`.
fn live(ctx: &Context, kind: &str, number: u32) -> Result<Line, Errno> {
    let begin = format!("{kind} number={number} ");
    let text = file(ctx, "live")?;
    let line = text.lines().find(|line| line.starts_with(&begin));
    let pairs = line.ok_or(Errno::ENOENT)?.split_whitespace();
    let fields = pairs.filter_map(|pair| {
        let (name, value) = pair.split_once('=')?;
        Some((name.to_string(), value.parse().ok()?))
    });
    Ok(Line(fields.collect()))
}

/// The line of an object in its table, of `NAME VALUE`.
fn row(ctx: &Context, table: &str, number: u32) -> Result<Line, Errno> {
    let begin = format!("{} page ", Number::from_raw(number));
    let text = file(ctx, table)?;
    let line = text.lines().find(|line| line.starts_with(&begin));
    let words: Vec<&str> = line.ok_or(Errno::ENOENT)?.split_whitespace().collect();
    let fields = words[1..].chunks_exact(2).filter_map(|pair| {
        let value = pair[1].parse().ok()?;
        Some((pair[0].to_string(), value))
    });
    Ok(Line(fields.collect()))
}

/// `ENOENT`: there is no such completion queue.
pub(super) fn cq(ctx: &Context, number: u32) -> Result<CqNow, Errno> {
    let (live, row) = (live(ctx, "cq", number)?, row(ctx, "cqs", number)?);
    Ok(CqNow {
        vector: row.word("vector")?,
        depth: live.word("depth")?,
        producer: live.word("producer")?,
        consumer: live.word("consumer")?,
        levels: row.word("levels")?,
        page_shift: row.word("page-shift")?,
    })
}

/// `ENOENT`: there is no such queue pair.
pub(super) fn queues(ctx: &Context, number: u32) -> Result<QueuesNow, Errno> {
    let live = live(ctx, "qp", number)?;
    Ok(QueuesNow {
        sq_producer: live.word("sq-producer")?,
        sq_consumer: live.word("sq-consumer")?,
        rq_producer: live.word("rq-producer")?,
        rq_consumer: live.word("rq-consumer")?,
    })
}

/// `ENOENT`: there is no such region.
pub(super) fn mr(ctx: &Context, number: u32) -> Result<MrNow, Errno> {
    let row = row(ctx, "mrs", number)?;
    Ok(MrNow {
        bytes: row.get("bytes")?,
        levels: row.word("levels")?,
        page_shift: row.word("page-shift")?,
    })
}
