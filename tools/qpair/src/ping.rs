// SPDX-License-Identifier: GPL-2.0
//! `qpair ping`: round trips between two queue pairs.

use std::time::Instant;

use anyhow::{ensure, Context as _};
use hdrhistogram::Histogram;
use qpair::{Access, Counter, Memory, Mr, Qp, Receive, Rts, Sge, WorkRequest};
use serde_json::json;

use crate::args::Ping;
use crate::report;
use crate::session::{self, Session};

/// Receives that an end posts at a time, when it has none left.
const RECEIVES: u32 = 16;
/// Blocks of a send queue. One send is in flight. Sends do not ask for a completion; the library
/// signals as many as the queue needs.
const SENDS: u32 = 16;
/// Permilles of the round-trip times that the report has.
const PARTS: [u64; 12] = [0, 10, 50, 100, 250, 500, 750, 900, 950, 990, 999, 1000];

pub(crate) fn run(device: Option<&str>, args: &Ping) -> anyhow::Result<()> {
    let context = session::open(device)?;
    let largest = context.attributes().max_message;
    ensure!(
        args.size <= largest,
        "the device moves at most {largest} bytes at once: use --size {largest}"
    );
    let depth = 2 * session::entries(&[SENDS, RECEIVES]);
    let mut session = Session::new(context, depth, args.wait)?;
    let options = session.options(SENDS, RECEIVES);
    let (near, far) = session.connect(&options, &options, Access::NONE)?;

    // What each end sends, then what it receives.
    let size = args.size as usize;
    let memory = Memory::new(4 * size)?;
    let mr = Mr::new(&session.pd, memory, Access::LOCAL_WRITE)?;
    let mut there = Way::new(&near, &far, &mr, 0, size);
    let mut back = Way::new(&far, &near, &mr, 2 * size, size);
    let mut histogram = Histogram::<u64>::new(3).context("cannot make a histogram")?;
    session.begin()?;
    let begin = Instant::now();
    let mut before = begin;
    for trip in 0..args.count {
        if trip % 256 == 0 {
            session.look()?;
            before = Instant::now();
        }
        there.go(&mut session, 2 * trip)?;
        back.go(&mut session, 2 * trip + 1)?;
        let now = Instant::now();
        let nanos = (now - before).as_nanos().try_into().unwrap_or(u64::MAX);
        histogram
            .record(nanos)
            .context("a round trip took too long")?;
        before = now;
    }
    let time = begin.elapsed();
    let counted = session.counted()?;

    let (median, p99) = (quantile(&histogram, 500), quantile(&histogram, 990));
    let (min, max) = (micros(histogram.min()), micros(histogram.max()));
    if args.json {
        return report::print(&report::json(&json!({
            "size": args.size,
            "count": histogram.len(),
            "wait": args.wait.name(),
            "seconds": time.as_secs_f64(),
            "min_us": min,
            "median_us": median,
            "p99_us": p99,
            "max_us": max,
            "percentiles": percentiles(&histogram),
            "events": session.events,
            "counters": report::counters_json(&counted),
        })));
    }
    let each = |counter| counted.get(counter) as f64 / args.count as f64;
    report::print(&format!(
        "{} round trips of {} bytes in {:.3} s, with {}\n\
         microseconds: minimum {min:.1}, median {median:.1}, 99th percentile {p99:.1}, maximum {max:.1}\n\
         for each: {:.2} SQ doorbells, {:.2} RQ doorbells, {:.2} CQ doorbells, {:.2} CQEs, {:.2} events, {:.2} interrupts\n",
        args.count,
        args.size,
        time.as_secs_f64(),
        args.wait.name(),
        each(Counter::SqDoorbells),
        each(Counter::RqDoorbells),
        each(Counter::CqHeadDoorbells) + each(Counter::CqArmDoorbells),
        each(Counter::Cqes),
        each(Counter::Eqes),
        each(Counter::Interrupts),
    ))
}

fn micros(nanos: u64) -> f64 {
    nanos as f64 / 1000.0
}

/// Microseconds that `permille` of a thousand round trips took at most.
fn quantile(histogram: &Histogram<u64>, part: u64) -> f64 {
    let count = histogram.len();
    micros(match (count * part).div_ceil(1000) {
        0 => histogram.min(),
        // Half a rank less: 99.9 % of 1000 must not be rounded up to all of them.
        rank => histogram.value_at_quantile((rank as f64 - 0.5) / count as f64),
    })
}

/// The percentiles of the round trips: percentile and microseconds.
fn percentiles(histogram: &Histogram<u64>) -> [[f64; 2]; PARTS.len()] {
    PARTS.map(|part| [part as f64 / 10.0, quantile(histogram, part)])
}

/// One direction, one message at a time.
struct Way<'a> {
    from: &'a Qp<Rts>,
    to: &'a Qp<Rts>,
    mr: &'a Mr,
    /// Where a message is written, and where it arrives.
    out: usize,
    into: usize,
    data: [Sge; 1],
    room: [Sge; 1],
    /// Receives that are posted.
    receives: u32,
}

impl<'a> Way<'a> {
    /// For messages of `size` from `out` in `mr`.
    fn new(from: &'a Qp<Rts>, to: &'a Qp<Rts>, mr: &'a Mr, out: usize, size: usize) -> Self {
        let into = out + size;
        Self {
            from,
            to,
            mr,
            out,
            into,
            data: [mr.sge(out, size)],
            room: [mr.sge(into, size)],
            receives: 0,
        }
    }

    /// Sends a message and waits until it arrived. It carries `number`, as far as its size allows.
    ///
    /// The send is not signaled: the message's arrival implies its completion.
    fn go(&mut self, session: &mut Session, number: u64) -> anyhow::Result<()> {
        if self.receives == 0 {
            self.to
                .post_recv(&[Receive::new(1, &self.room); RECEIVES as usize])?;
            self.receives = RECEIVES;
        }
        self.receives -= 1;
        let stamp = number.to_le_bytes();
        let stamp = &stamp[..(self.into - self.out).min(8)];
        self.mr.write(self.out, stamp);
        self.from.post_send(&[WorkRequest::send(2, &self.data)])?;
        loop {
            let completion = session.wait()?;
            if completion.is_receive() {
                ensure!(
                    completion.qp() == self.to.number(),
                    "a completion of another queue pair"
                );
                break;
            }
        }
        let mut came = [0; 8];
        let came = &mut came[..stamp.len()];
        self.mr.read(self.into, came);
        ensure!(
            came == stamp,
            "message {number}: what arrived is not what was sent"
        );
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::{micros, percentiles, PARTS};
    use hdrhistogram::Histogram;

    fn of(nanos: impl IntoIterator<Item = u64>) -> Histogram<u64> {
        let mut histogram = Histogram::new(3).unwrap();
        for nanos in nanos {
            histogram.record(nanos).unwrap();
        }
        histogram
    }

    /// Equal to three digits.
    fn near(found: f64, expected: f64) -> bool {
        (found - expected).abs() <= expected / 1000.0
    }

    #[test]
    fn percentiles_are_those_of_the_samples() {
        // 1 to 10000 microseconds, in an order that has nothing to do with their size.
        let samples = (0..10_000u64).map(|i| (i * 7919 % 10_000 + 1) * 1000);
        let found = percentiles(&of(samples));
        for ([percent, took], part) in found.into_iter().zip(PARTS) {
            assert_eq!(percent, part as f64 / 10.0);
            // None of them is 0.
            let so_many = (10 * part).max(1) as f64;
            assert!(near(took, so_many), "{percent}: {took}, not {so_many}");
        }
    }

    #[test]
    fn ends_are_the_least_and_the_most() {
        for samples in [vec![1_234_567], vec![40_000, 900], vec![57_931; 300]] {
            let (least, most) = (samples.iter().min(), samples.iter().max());
            let (least, most) = (*least.unwrap(), *most.unwrap());
            let histogram = of(samples);
            let found = percentiles(&histogram);
            let (first, last) = (found[0][1], found[found.len() - 1][1]);
            assert_eq!(first, micros(histogram.min()));
            assert_eq!(last, micros(histogram.max()));
            assert!(near(first, micros(least)), "{first}");
            assert!(near(last, micros(most)), "{last}");
        }
    }

    #[test]
    fn one_slow_in_a_thousand_is_seen_by_the_last_alone() {
        let fast = std::iter::repeat_n(10_000, 999);
        let found = percentiles(&of(fast.chain([5_000_000])));
        let (last, others) = found.split_last().unwrap();
        assert!(near(last[1], 5000.0), "{last:?}");
        assert!(
            others.iter().all(|[_, took]| near(*took, 10.0)),
            "{others:?}"
        );
        assert!(found.is_sorted_by(|a, b| a[0] < b[0] && a[1] <= b[1]));
    }
}
