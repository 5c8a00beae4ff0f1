// SPDX-License-Identifier: GPL-2.0
//! `qpair bench`: work requests and bytes a second.
//!
//! Each pair keeps four batches in flight. One doorbell submits a batch. Its last work request
//! is signaled, and with `--signal N` every Nth, counted back from the last.

mod endpoint;
mod messages;

use std::ops::Range;
use std::time::{Duration, Instant};

use anyhow::ensure;
use qpair::{
    Access, Completion, Counter, Memory, Mr, Pages, PostError, Qp, Receive, Remote, Rts, Sge,
    WorkRequest,
};
use serde_json::json;

use crate::args::{Bench, Op};
use crate::report;
use crate::session::{self, Session, TAKE};

/// Batches that each pair keeps in flight.
const BATCHES: u32 = 4;

/// The source and the destination of messages.
struct Places {
    here: Sge,
    there: Sge,
    /// `there`, as the posting end addresses it.
    peer: Remote,
}

/// A pair of queue pairs, and its progress.
struct Lane {
    near: Qp<Rts>,
    far: Qp<Rts>,
    /// Messages that are still to be posted, and those completed at the posting end and at the
    /// receiving end.
    left: u64,
    posted: u64,
    done: u64,
    received: u64,
}

pub(crate) fn run(device: Option<&str>, args: &Bench) -> anyhow::Result<()> {
    if args.endpoint {
        return endpoint::run(device, args);
    }
    if args.ud || args.srq {
        return messages::run(device, args);
    }
    let context = session::open(device)?;
    let largest = context.attributes().max_message;
    ensure!(
        args.size <= largest,
        "the device moves at most {largest} bytes at once: use --size {largest}"
    );
    let depth = BATCHES * args.batch;
    let receives = if args.op == Op::Send { depth } else { 0 };
    let entries = session::entries(&[depth, 0, 0, receives]) * u64::from(args.qps);
    let mut session = Session::new(context, entries, args.wait)?;

    let peer = Access::REMOTE_WRITE | Access::REMOTE_READ;
    let size = args.size as usize;
    let mr = Mr::new(
        &session.pd,
        Memory::with_pages(2 * size, Pages::Large)?,
        peer | Access::LOCAL_WRITE,
    )?;
    let pattern: Vec<u8> = (0..size).map(|i| (i * 7 + i / 251) as u8).collect();
    let (from, to) = match args.op {
        Op::Send | Op::Write => (0, size),
        Op::Read => (size, 0),
    };
    mr.write(from, &pattern);

    let places = Places {
        here: mr.sge(0, size),
        there: mr.sge(size, size),
        peer: mr.remote(size),
    };

    let mut lanes = Vec::new();
    for i in 0..u64::from(args.qps) {
        let (near, far) = session.connect(
            &session.options(depth, 0),
            &session.options(0, receives),
            peer,
        )?;
        let qps = u64::from(args.qps);
        lanes.push(Lane {
            near,
            far,
            left: args.count / qps + u64::from(i < args.count % qps),
            posted: 0,
            done: 0,
            received: 0,
        });
    }
    session.begin()?;
    let begin = Instant::now();
    while lanes.iter().any(|lane| !lane.is_done(args.op)) {
        let mut news = false;
        for (id, lane) in (0..).zip(&mut lanes) {
            while lane.post(id, args, &places)? {
                news = true;
            }
        }
        loop {
            let taken = session.take();
            let [first, others @ ..] = taken else {
                break;
            };
            first.check()?;
            for (before, completion) in taken.iter().zip(others) {
                completion.check()?;
                if completion.qp() != before.qp() {
                    // Those of one queue come in order: the last in a row stands for all.
                    note(&mut lanes, before)?;
                }
            }
            note(&mut lanes, others.last().unwrap_or(first))?;
            news = true;
            // Fewer than there was room for: the queue is empty.
            if taken.len() < TAKE {
                break;
            }
        }
        if news {
            session.go_on()?;
        } else {
            session.pause()?;
        }
    }
    let time = begin.elapsed();
    let counted = session.counted()?;

    let mut arrived = vec![0; size];
    mr.read(to, &mut arrived);
    ensure!(arrived == pattern, "what arrived is not what was sent");
    report(args, time, &counted, session.events)
}

impl Lane {
    fn is_done(&self, op: Op) -> bool {
        self.left == 0
            && self.done == self.posted
            && (op != Op::Send || self.received == self.posted)
    }

    /// Posts a batch if there is room for one.
    fn post(&mut self, id: u64, args: &Bench, places: &Places) -> anyhow::Result<bool> {
        let batch = self.left.min(args.batch.into());
        let behind = match args.op {
            Op::Send => self.done.min(self.received),
            _ => self.done,
        };
        let room = u64::from(BATCHES * args.batch) - (self.posted - behind);
        if batch == 0 || room < batch {
            return Ok(false);
        }
        // The tag is the number of messages done with this one.
        let first = id << 48 | (self.posted + 1);
        let tags = first..first + batch;
        let every = u64::from(args.signal.unwrap_or(args.batch));
        let here = std::slice::from_ref(&places.here);
        match args.op {
            Op::Send => {
                for tag in tags.clone() {
                    let there = std::slice::from_ref(&places.there);
                    self.far.queue_recv(&Receive::new(tag, there))?;
                }
                self.far.ring();
                self.send(tags, every, |tag| WorkRequest::send(tag, here))
            }
            Op::Write => self.send(tags, every, |tag| {
                WorkRequest::write(tag, here, places.peer)
            }),
            Op::Read => self.send(tags, every, |tag| WorkRequest::read(tag, here, places.peer)),
        }?;
        self.posted += batch;
        self.left -= batch;
        Ok(true)
    }

    /// Posts a work request for each tag; signals the last, and from there back every Nth.
    fn send<'r>(
        &self,
        tags: Range<u64>,
        every: u64,
        request: impl Fn(u64) -> WorkRequest<'r>,
    ) -> Result<(), PostError> {
        if every == 1 {
            let all = tags.map(|tag| request(tag).signaled());
            return self.near.post_sends(all);
        }
        let mut mark = tags.start + (tags.end - tags.start - 1) % every;
        self.near.post_sends(tags.map(|tag| {
            if tag != mark {
                return request(tag);
            }
            mark += every;
            request(tag).signaled()
        }))
    }

    fn complete(&mut self, completion: &Completion) {
        let until = completion.id() & ((1 << 48) - 1);
        if completion.is_receive() {
            self.received = until;
        } else {
            self.done = until;
        }
    }
}

/// Updates the progress of a completion's lane.
fn note(lanes: &mut [Lane], completion: &Completion) -> anyhow::Result<()> {
    let lane = lanes.get_mut((completion.id() >> 48) as usize);
    lane.ok_or_else(of_no_lane)?.complete(completion);
    Ok(())
}

#[cold]
fn of_no_lane() -> anyhow::Error {
    anyhow::anyhow!("a completion of an unknown work request")
}

fn report(
    args: &Bench,
    time: Duration,
    counted: &qpair::Counters,
    events: u64,
) -> anyhow::Result<()> {
    let bytes = args.count * u64::from(args.size);
    if args.json {
        return report::print(&report::json(&json!({
            "op": args.op.name(),
            "size": args.size,
            "batch": args.batch,
            "signal": args.signal.unwrap_or(args.batch),
            "qps": args.qps,
            "ud": args.ud,
            "srq": args.srq,
            "count": args.count,
            "wait": args.wait.name(),
            "seconds": time.as_secs_f64(),
            "messages_per_second": report::rate(args.count, time),
            "bytes_per_second": report::rate(bytes, time),
            "events": events,
            "counters": report::counters_json(counted),
        })));
    }
    let each = |counter| counted.get(counter) as f64 / args.count as f64;
    report::print(&format!(
        "{} {}s of {} bytes in {:.3} s, with {}, {} pair{} of queue pairs{}{}, batches of {}\n\
         {:.0} messages a second, {}\n\
         for each: {:.3} doorbells, {:.3} CQEs, {:.3} events, {:.3} interrupts, {:.2} DMA reads, {:.2} DMA writes\n",
        args.count,
        args.op.name().to_uppercase(),
        args.size,
        time.as_secs_f64(),
        args.wait.name(),
        args.qps,
        if args.qps == 1 { "" } else { "s" },
        if args.ud { " of UD" } else { "" },
        if args.srq { " on one SRQ" } else { "" },
        args.batch,
        report::rate(args.count, time),
        report::bytes_a_second(bytes, time),
        each(Counter::SqDoorbells)
            + each(Counter::RqDoorbells)
            + each(Counter::CqHeadDoorbells)
            + each(Counter::CqArmDoorbells),
        each(Counter::Cqes),
        each(Counter::Eqes),
        each(Counter::Interrupts),
        each(Counter::DmaReads),
        each(Counter::DmaWrites),
    ))
}
