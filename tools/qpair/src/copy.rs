// SPDX-License-Identifier: GPL-2.0
//! `qpair copy`: a file through queue pairs.
//!
//! With SEND the blocks go between endpoints: [`sends`]. With WRITE and READ there are as many
//! *slots* as blocks may be in flight. A slot is a block of memory at the near end, into which SRC is
//! read, and one at the far end, from which DST is written:
//!
//! ```text
//!   SRC --read--> near block --the device--> far block --write--> DST
//!                 ours        the device's    ours
//! ```
//!
//! Block `n` uses slot `n % slots` and pair `n % pairs`, so blocks spread over the pairs, and are
//! written in order whichever pair is faster.

mod sends;

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{bail, ensure, Context as _};
use indicatif::{BinaryBytes, ProgressBar};
use qpair::{
    Access, Completion, Counter, Memory, Mr, Pages, Pd, Qp, Remote, Rts, Sge, WorkRequest,
};
use serde_json::json;
use sha2::{Digest as _, Sha256};

use crate::args::{Copy, Op};
use crate::files::{Destination, Source};
use crate::report;
use crate::session::{self, Session, LOOK};

pub(crate) fn run(device: Option<&str>, args: &Copy) -> anyhow::Result<()> {
    let context = session::open(device)?;
    let largest = context.attributes().max_message;
    ensure!(
        args.block <= largest,
        "the device moves at most {largest} bytes at once: use --block {largest}"
    );
    let mut engine = match args.op {
        Op::Send => Engine::Sends(sends::Engine::new(context, args)?),
        Op::Write | Op::Read => Engine::Direct(Direct::new(context, args)?),
    };

    let source = Source::open(&args.src)?;
    let destination = Destination::open(&args.dst, &source)?;
    let progress = report::progress(source.bytes);
    engine.session().begin()?;
    let begin = Instant::now();
    let moved = match &mut engine {
        Engine::Sends(engine) => engine.copy(source, destination, &progress),
        Engine::Direct(engine) => engine.copy(source, destination, &progress),
    };
    let time = begin.elapsed();
    progress.finish_and_clear();
    let moved = moved?;

    let counted = engine.session().counted()?;
    let moved_by_device = counted.get(match args.op {
        Op::Send => Counter::SendBytes,
        Op::Write => Counter::WriteBytes,
        Op::Read => Counter::ReadBytes,
    });
    ensure!(
        moved_by_device >= moved.bytes,
        "the device counted {moved_by_device} bytes, and {} arrived",
        moved.bytes
    );
    let report = Report {
        args,
        moved,
        time,
        counted,
        events: engine.session().events,
    };
    let text = if args.json {
        report.json()
    } else {
        report.text()
    };
    // Standard output may be the copy itself.
    if args.dst == Path::new("-") {
        eprint!("{text}");
        return Ok(());
    }
    report::print(&text)
}

/// Blocks of registered memory. One that is lent belongs to the device until it is taken back.
struct Blocks {
    mr: Mr,
    size: usize,
    lent: Vec<bool>,
}

impl Blocks {
    fn new(pd: &Pd, count: usize, size: usize, access: Access) -> anyhow::Result<Self> {
        let bytes = count
            .checked_mul(size)
            .context("the blocks exceed the address space")?;
        Ok(Self {
            mr: Mr::new(pd, Memory::with_pages(bytes, Pages::Large)?, access)?,
            size,
            lent: vec![false; count],
        })
    }

    /// The bytes of a block of ours.
    fn bytes(&mut self, block: usize) -> &mut [u8] {
        assert!(!self.lent[block], "block {block} is the device's");
        // SAFETY: `self` is borrowed, so there is no other slice. No work request names this block:
        // `Direct::post` lends a block before it posts, and the block is taken back after the last
        // of its completions.
        unsafe { self.mr.memory().bytes(block * self.size, self.size) }
    }

    /// Lends `bytes` of a block to the device.
    fn lend(&mut self, block: usize, bytes: usize) -> (Sge, Remote) {
        self.lent[block] = true;
        let at = block * self.size;
        (self.mr.sge(at, bytes), self.mr.remote(at))
    }

    fn take_back(&mut self, block: usize) {
        self.lent[block] = false;
    }
}

/// The digest of what was read, which has to be that of what was written.
fn compared(read: Sha256, written: Sha256) -> anyhow::Result<String> {
    let (read, written) = (read.finalize(), written.finalize());
    if read != written {
        bail!("the copy differs: SHA-256 {read:x} was read, {written:x} was written");
    }
    Ok(format!("{written:x}"))
}

/// A block in flight.
#[derive(Clone, Copy, Debug, Default)]
struct Flight {
    bytes: usize,
    /// Its completion is still to come.
    is_under_way: bool,
}

/// The result of a copy.
struct Moved {
    bytes: u64,
    blocks: u64,
    /// Digest of the bytes read, which equals that of the bytes written.
    digest: String,
}

/// What moves the blocks.
enum Engine {
    Sends(sends::Engine),
    Direct(Direct),
}

impl Engine {
    fn session(&mut self) -> &mut Session {
        match self {
            Self::Sends(engine) => &mut engine.session,
            Self::Direct(engine) => &mut engine.session,
        }
    }
}

/// Moves them by WRITE or READ.
struct Direct {
    // Queue pairs end before the memory that they name.
    pairs: Vec<(Qp<Rts>, Qp<Rts>)>,
    near: Blocks,
    far: Blocks,
    flights: Vec<Flight>,
    op: Op,
    /// Blocks posted, submitted, and written.
    posted: u64,
    handed: u64,
    written: u64,
    /// Submit when this many wait.
    batch: u64,
    session: Session,
}

impl Direct {
    fn new(context: qpair::Context, args: &Copy) -> anyhow::Result<Self> {
        let (op, depth) = (args.op, args.depth);
        // Writes are posted at the near end, reads at the far end.
        let (near, far) = if op == Op::Read {
            (0, depth)
        } else {
            (depth, 0)
        };
        let a_pair = session::entries(&[near, 0, far, 0]);
        let session = Session::new(context, a_pair * u64::from(args.qps), args.wait)?;
        let slots = args.qps as usize * depth as usize;
        let (near_access, far_access, peer) = match op {
            Op::Send | Op::Write => (
                Access::NONE,
                Access::LOCAL_WRITE | Access::REMOTE_WRITE,
                Access::REMOTE_WRITE,
            ),
            Op::Read => (
                Access::REMOTE_READ,
                Access::LOCAL_WRITE,
                Access::REMOTE_READ,
            ),
        };
        let block = args.block as usize;
        let pairs = (0..args.qps)
            .map(|_| session.connect(&session.options(near, 0), &session.options(far, 0), peer));
        Ok(Self {
            pairs: pairs.collect::<anyhow::Result<_>>()?,
            near: Blocks::new(&session.pd, slots, block, near_access)?,
            far: Blocks::new(&session.pd, slots, block, far_access)?,
            flights: vec![Flight::default(); slots],
            op,
            posted: 0,
            handed: 0,
            written: 0,
            batch: u64::from(args.qps) * u64::from((depth / 4).max(1)),
            session,
        })
    }

    fn slot(&self, block: u64) -> usize {
        (block % self.flights.len() as u64) as usize
    }

    fn copy(
        &mut self,
        mut source: Source,
        mut destination: Destination,
        progress: &ProgressBar,
    ) -> anyhow::Result<Moved> {
        let (mut read, mut written) = (Sha256::new(), Sha256::new());
        let mut bytes = 0;
        let mut filled = 0;
        let mut ended = false;
        while !ended || self.written < self.posted {
            let under_way = self.posted - self.written;
            let mut news = false;

            if !ended && under_way < self.flights.len() as u64 {
                // Wait for it only if there is nothing else to do.
                let is_idle = under_way == 0 && filled == 0;
                if source.is_ready(if is_idle { LOOK } else { Duration::ZERO })? {
                    let slot = self.slot(self.posted);
                    let room = &mut self.near.bytes(slot)[filled..];
                    let came = source.read(room)?;
                    read.update(&room[..came]);
                    filled += came;
                    ended = came == 0;
                    news = true;
                    if filled == self.near.size || (ended && filled > 0) {
                        self.post(std::mem::take(&mut filled))?;
                    }
                } else if under_way == 0 {
                    // The source is slow: submit the blocks read so far.
                    match std::mem::take(&mut filled) {
                        0 => self.session.rest(),
                        some => self.post(some)?,
                    }
                    news = true;
                }
            }

            if self.posted - self.handed >= self.batch || !news {
                self.hand_over();
            }
            while let Some(completion) = self.session.poll()? {
                self.complete(&completion)?;
                news = true;
            }
            let begin = bytes;
            while self.written < self.posted {
                let slot = self.slot(self.written);
                let flight = self.flights[slot];
                if flight.is_under_way {
                    break;
                }
                self.near.take_back(slot);
                self.far.take_back(slot);
                let arrived = &self.far.bytes(slot)[..flight.bytes];
                written.update(arrived);
                destination.write(arrived)?;
                bytes += flight.bytes as u64;
                self.written += 1;
            }
            progress.inc(bytes - begin);
            self.session.check_signals()?;
            if !news && self.written < self.posted {
                self.session.pause()?;
            }
        }

        let digest = compared(read, written)?;
        destination.finish();
        Ok(Moved {
            bytes,
            blocks: self.posted,
            digest,
        })
    }

    /// Posts the block that was filled.
    fn post(&mut self, bytes: usize) -> anyhow::Result<()> {
        let (id, slot) = (self.posted, self.slot(self.posted));
        let (from, from_there) = self.near.lend(slot, bytes);
        let (to, to_there) = self.far.lend(slot, bytes);
        let (near, far) = &self.pairs[(id % self.pairs.len() as u64) as usize];
        if self.op == Op::Read {
            far.queue_send(&WorkRequest::read(id, &[to], from_there).signaled())?;
        } else {
            near.queue_send(&WorkRequest::write(id, &[from], to_there).signaled())?;
        }
        self.flights[slot] = Flight {
            bytes,
            is_under_way: true,
        };
        self.posted += 1;
        Ok(())
    }

    /// Rings the doorbells of the pairs, if a block was posted since the last.
    fn hand_over(&mut self) {
        let fresh = (self.posted - self.handed).min(self.pairs.len() as u64);
        if fresh > 0 {
            for (near, far) in &self.pairs {
                far.ring();
                near.ring();
            }
            self.handed = self.posted;
        }
    }

    fn complete(&mut self, completion: &Completion) -> anyhow::Result<()> {
        let slot = self.slot(completion.id());
        let flight = &mut self.flights[slot];
        ensure!(
            (self.written..self.posted).contains(&completion.id()) && flight.is_under_way,
            "a completion for block {}, which is not in flight",
            completion.id()
        );
        if self.op == Op::Read {
            ensure!(
                completion.bytes() as usize == flight.bytes,
                "block {} has {} bytes, and {} arrived",
                completion.id(),
                flight.bytes,
                completion.bytes()
            );
        }
        flight.is_under_way = false;
        Ok(())
    }
}

struct Report<'a> {
    args: &'a Copy,
    moved: Moved,
    time: Duration,
    counted: qpair::Counters,
    events: u64,
}

impl Report<'_> {
    fn json(&self) -> String {
        let Self { args, moved, .. } = self;
        report::json(&json!({
            "op": args.op.name(),
            "wait": args.wait.name(),
            "qps": args.qps,
            "depth": args.depth,
            "block": args.block,
            "bytes": moved.bytes,
            "blocks": moved.blocks,
            "seconds": self.time.as_secs_f64(),
            "bytes_per_second": report::rate(moved.bytes, self.time),
            "sha256_read": moved.digest,
            "sha256_written": moved.digest,
            "events": self.events,
            "counters": report::counters_json(&self.counted),
        }))
    }

    fn text(&self) -> String {
        const ALWAYS: [Counter; 7] = [
            Counter::SendWqes,
            Counter::RecvWqes,
            Counter::Cqes,
            Counter::SqDoorbells,
            Counter::CqHeadDoorbells,
            Counter::Eqes,
            Counter::Interrupts,
        ];
        let Self { args, moved, .. } = self;
        format!(
            "{} in {:.3} s, {}: {} blocks of {} by {} over {} pair{} of queue pairs, with {}\n\
             SHA-256 of what was read and of what was written: {}\n\
             counted by the device meanwhile:\n{}",
            BinaryBytes(moved.bytes),
            self.time.as_secs_f64(),
            report::bytes_a_second(moved.bytes, self.time),
            moved.blocks,
            BinaryBytes(args.block.into()),
            args.op.name().to_uppercase(),
            args.qps,
            if args.qps == 1 { "" } else { "s" },
            args.wait.name(),
            moved.digest,
            report::counters(&self.counted, &ALWAYS),
        )
    }
}
