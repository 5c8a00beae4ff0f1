// SPDX-License-Identifier: GPL-2.0
//! `qpair ping`: round trips between two queue pairs.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{ensure, Context as _};
use hdrhistogram::Histogram;
use qpair::{Access, Counter, Memory, Qp, Receive, Rts, WorkRequest};
use serde_json::json;

use crate::args::Ping;
use crate::report;
use crate::session::{self, Session};

/// Receives at each end.
const DEPTH: u32 = 2;
/// Of the round trips, how many of a hundred took no longer: what JSON tells of how they spread.
const PERCENTILES: [f64; 12] = [
    0.0, 1.0, 5.0, 10.0, 25.0, 50.0, 75.0, 90.0, 95.0, 99.0, 99.9, 100.0,
];

pub(crate) fn run(device: Option<&Path>, args: &Ping) -> anyhow::Result<()> {
    let context = session::open(device)?;
    let largest = context.attributes().max_message;
    ensure!(
        args.size <= largest,
        "the device moves at most {largest} bytes at once: use --size {largest}"
    );
    let depth = 2 * session::entries(&[DEPTH, DEPTH]);
    let mut session = Session::new(context, depth, args.wait)?;
    let options = session.options(DEPTH, DEPTH);
    let (near, far) = session.connect(&options, &options, Access::NONE)?;

    // What each end sends, then what it receives.
    let size = args.size as usize;
    let memory = Memory::new(4 * size)?;
    let mr = session.pd.register(memory, Access::LOCAL_WRITE)?;
    let mut histogram = Histogram::<u64>::new(3).context("cannot make a histogram")?;
    session.begin()?;
    let begin = Instant::now();
    for trip in 0..args.count {
        if trip % 256 == 0 {
            session.look()?;
        }
        let begin = Instant::now();
        for (from, to, at) in [(&near, &far, 0), (&far, &near, 2 * size)] {
            let stamp = (trip * 2 + at as u64 / 2).to_le_bytes();
            let stamp = &stamp[..size.min(8)];
            mr.write(at, stamp);
            one_way(
                &mut session,
                from,
                to,
                &[mr.sge(at, size)],
                &[mr.sge(at + size, size)],
            )?;
            let mut came = [0; 8];
            let came = &mut came[..size.min(8)];
            mr.read(at + size, came);
            ensure!(
                came == stamp,
                "round trip {trip}: what arrived is not what was sent"
            );
        }
        let nanos = begin.elapsed().as_nanos().try_into().unwrap_or(u64::MAX);
        histogram
            .record(nanos)
            .context("a round trip took for ever")?;
    }
    let time = begin.elapsed();
    let counted = session.counted()?;

    let micros = |nanos: u64| nanos as f64 / 1000.0;
    let quantile = |q| micros(histogram.value_at_quantile(q));
    let (min, max) = (micros(histogram.min()), micros(histogram.max()));
    if args.json {
        return report::print(&report::json(&json!({
            "size": args.size,
            "count": args.count,
            "wait": args.wait.name(),
            "seconds": time.as_secs_f64(),
            "min_us": min,
            "median_us": quantile(0.5),
            "p99_us": quantile(0.99),
            "max_us": max,
            "percentiles": PERCENTILES.map(|percent| [percent, quantile(percent / 100.0)]),
            "events": session.events,
            "counters": report::counters_json(&counted),
        })));
    }
    let each = |counter| counted.get(counter) as f64 / args.count as f64;
    report::print(&format!(
        "{} round trips of {} bytes in {:.3} s, with {}\n\
         microseconds: minimum {min:.1}, median {:.1}, 99th percentile {:.1}, maximum {max:.1}\n\
         for each: {:.2} SQ doorbells, {:.2} RQ doorbells, {:.2} CQ doorbells, {:.2} CQEs, {:.2} events, {:.2} interrupts\n",
        args.count,
        args.size,
        time.as_secs_f64(),
        args.wait.name(),
        quantile(0.5),
        quantile(0.99),
        each(Counter::SqDoorbells),
        each(Counter::RqDoorbells),
        each(Counter::CqHeadDoorbells) + each(Counter::CqArmDoorbells),
        each(Counter::Cqes),
        each(Counter::Eqes),
        each(Counter::Interrupts),
    ))
}

/// A message from one end to the other. The sender's completion comes with it.
fn one_way(
    session: &mut Session,
    from: &Qp<Rts>,
    to: &Qp<Rts>,
    data: &[qpair::Sge],
    room: &[qpair::Sge],
) -> anyhow::Result<()> {
    to.post_recv(&[Receive::new(1, room)])?;
    from.post_send(&[WorkRequest::send(2, data).signaled()])?;
    let (mut sent, mut received) = (false, false);
    let deadline = Instant::now() + Duration::from_secs(60);
    while !sent || !received {
        let completion = session.wait()?;
        if completion.is_receive {
            ensure!(
                completion.qp == to.number(),
                "a message for another queue pair"
            );
            received = true;
        } else {
            sent = true;
        }
        ensure!(Instant::now() < deadline, "a message took a minute");
    }
    Ok(())
}
