// SPDX-License-Identifier: GPL-2.0
//! No starvation: other processes on the same EQ cost a well-behaved one at most half of its share.
//!
//! There are two processes, so a share is half of the process's rate while it has the device to
//! itself: beside a sleeping process or, if the other process never leaves the CPU, beside one that
//! computes. It must get half of that. Both rates are measured in turns, several times each, and
//! only the ratio counts. Other work of the host may change it, so two of at most five measurements
//! must find it large enough.

use std::time::Duration;
use std::time::Instant;

use anyhow::bail;
use anyhow::ensure;
use anyhow::Context as _;
use anyhow::Result;
use qpair_abi::counters::Counter;
use qpair_abi::entry::opcode;
use qpair_abi::entry::Cqe;
use qpair_abi::entry::OWNER;
use qpair_uverbs::abi::*;

use super::eqs;
use super::of_eq;
use super::set_knob;
use super::Kept;
use super::Loop;
use crate::children::Child;
use crate::children::Link;
use crate::host::Host;
use crate::ktap::say;
use crate::ktap::Setup;
use crate::pair::Peer;
use crate::raw::Buffer;
use crate::raw::Context;
use crate::raw::Cq;
use crate::raw::Mr;
use crate::raw::Pd;
use crate::raw::Qp;
use crate::raw::QpShape;
use crate::raw::Wqe;
use crate::wait;
use crate::world;

/// The length of each measurement.
const LOOK: Duration = Duration::from_millis(300);
/// The number of measurements beside each of the two, in turns.
const LOOKS: u32 = 6;
/// The most measurements of a share, and how many of them must reach the bound.
const SHARES: u32 = 5;
const REACHED: u32 = 2;

/// A well-behaved process: some CQs on vector 0, each armed, signaled, read.
struct Victim(Vec<Loop>);

impl Victim {
    fn new(cqs: usize) -> Result<Self> {
        let ctx = Context::open(0)?;
        let pd = Pd::new(&ctx)?;
        let all = (0..cqs).map(|_| Loop::in_domain(&ctx, &pd, 0));
        all.collect::<Result<_>>().map(Self)
    }

    /// One event of each CQ.
    fn round(&mut self) -> Result<()> {
        self.0.iter_mut().for_each(Loop::begin);
        self.0.iter_mut().try_for_each(Loop::finish)
    }

    /// Events a second, in one measurement.
    fn speed(&mut self) -> Result<f64> {
        let (start, mut events) = (Instant::now(), 0);
        while start.elapsed() < LOOK {
            self.round()?;
            events += self.0.len();
        }
        Ok(events as f64 / start.elapsed().as_secs_f64())
    }

    /// Checks that its rate beside the process that `other` starts is at least half of its share
    /// beside a harmless process.
    fn share(&mut self, what: &str, other: impl Fn() -> Result<Child>, than: Than) -> Result<()> {
        self.round()?;
        let mut reached = 0;
        for _ in 0..SHARES {
            let percent = self.percent(what, &other, than)?;
            say(&format!(
                "beside {what}: {percent:.0} % of its speed beside one that {than:?}"
            ));
            reached += u32::from(percent >= 25.0);
            if reached == REACHED {
                return Ok(());
            }
        }
        bail!("half of a share beside {what} in {reached} of {SHARES} measurements")
    }

    /// Its rate beside the one process, in percent of that beside the other.
    fn percent(
        &mut self,
        what: &str,
        other: &impl Fn() -> Result<Child>,
        than: Than,
    ) -> Result<f64> {
        let (mut harmless, mut beside) = (0.0, 0.0);
        for _ in 0..LOOKS {
            let mut child = than.start()?;
            harmless += self.speed()?;
            child.kill()?;
            let mut child = other()?;
            beside += self.speed().with_context(|| format!("beside {what}"))?;
            child.kill()?;
        }
        Ok(100.0 * beside / harmless)
    }
}

/// A process that does not use the device.
#[derive(Clone, Copy, Debug)]
enum Than {
    Sleeps,
    Computes,
}

impl Than {
    fn start(self) -> Result<Child> {
        started(move |link| {
            link.tell(0)?;
            loop {
                match self {
                    Self::Sleeps => std::thread::sleep(Duration::from_secs(1)),
                    Self::Computes => std::hint::spin_loop(),
                }
            }
        })
    }
}

/// Starts a process, and returns when it reports that it is running.
fn started(work: impl FnOnce(&Link) -> Result<()>) -> Result<Child> {
    let child = Child::start(work)?;
    child.link().hear().context("starting a process")?;
    Ok(child)
}

/// Starts the kernel's own queue pairs: one CQ on vector 0 with completions without end.
fn flood() -> Result<Child> {
    let before = of_eq(0, "completions")?;
    let child = Child::start(|link| {
        link.tell(0)?;
        set_knob(
            "loopback",
            "qps=2 depth=64 count=1000000000 size=8 op=write verify=0",
        )
    })?;
    wait::until("the flood", || Ok(of_eq(0, "completions")? > before + 2000))?;
    Ok(child)
}

/// A CQ with endless completions, and 255 CQs with one each: all of those are signaled,
/// repeatedly, and no poll exceeds its budget.
pub(super) fn a_flood_and_255_others(_: &Setup) -> Result<()> {
    let _kept = Kept::all()?;
    let cqs = 255.min(Context::open(0)?.info.device.max_cq as usize - 8);
    let mut victim = Victim::new(cqs)?;
    let look = || -> Result<(u64, u64)> { Ok((of_eq(0, "polls")?, of_eq(0, "completions")?)) };
    for budget in [256u64, 16] {
        set_knob("budget", &budget.to_string())?;
        let before = look()?;
        if budget == 256 {
            victim.share("a flood", flood, Than::Sleeps)?;
        } else {
            let mut child = flood()?;
            for _ in 0..10 {
                victim.round()?;
            }
            child.kill()?;
        }
        let after = look()?;
        // One poll may be in progress at each end.
        let (polls, completions) = (after.0 - before.0 + 2, after.1 - before.1);
        ensure!(
            completions <= polls * budget,
            "{completions} completions in {polls} polls of {budget}"
        );
        say(&format!(
            "budget {budget}: {completions} completions in {polls} polls"
        ));
    }
    Ok(())
}

/// A process that has armed all CQs and never polls gets one event for each CQ.
pub(super) fn one_that_never_polls(_: &Setup) -> Result<()> {
    const CQS: u64 = 64;
    const EACH: u64 = 8;
    let mut victim = Victim::new(16)?;
    let sleeper = || {
        started(|link| {
            let mut all = Victim::new(CQS as usize)?;
            for events in &mut all.0 {
                for number in 0..EACH {
                    events.cq.arm();
                    events.qp.post(&Wqe::new(opcode::NOP, number));
                }
            }
            link.tell(0)?;
            loop {
                std::thread::sleep(Duration::from_secs(1));
            }
        })
    };
    victim.share("one that never polls", sleeper, Than::Sleeps)?;
    let before = of_eq(0, "events")?;
    let mut child = sleeper()?;
    // All events before the fence have been reported.
    victim.round()?;
    let events = of_eq(0, "events")? - before;
    child.kill()?;
    // Commands of the control path are events too, at most one each.
    let commands = 8 * CQS + 100;
    ensure!(
        events <= CQS * EACH + commands,
        "{events} events of {CQS} CQs that are not read"
    );
    Ok(())
}

/// A process that has a completion in each CQ and arms them repeatedly: a CQ has one event in the
/// EQ, and the next when the head has passed it.
pub(super) fn one_that_arms_without_end(_: &Setup) -> Result<()> {
    const CQS: usize = 4;
    const ROUNDS: u64 = 200;
    let mut victim = Victim::new(16)?;
    let arms = || {
        started(|link| {
            let mut all = Victim::new(CQS)?;
            for events in &mut all.0 {
                events.qp.post(&Wqe::new(opcode::NOP, 1));
            }
            link.tell(0)?;
            loop {
                for events in &all.0 {
                    events.cq.arm();
                }
            }
        })
    };
    let lost = of_eq(0, "lost")?;
    victim.share("one that arms without end", arms, Than::Computes)?;
    ensure!(of_eq(0, "lost")? == lost, "interrupts were lost");

    // From one read of the table: the EQ changes between two reads.
    let look = || -> Result<(u64, u64)> {
        let eq = eqs()?.swap_remove(0);
        Ok((eq["events"], eq["heads"] + eq["unmasks"]))
    };
    let mut child = arms()?;
    let before = look()?;
    for _ in 0..ROUNDS {
        victim.round()?;
    }
    let after = look()?;
    child.kill()?;
    let own = ROUNDS * victim.0.len() as u64;
    let events = after.0 - before.0 - own;
    // One head update may be in progress at each end.
    let heads = after.1 - before.1 + 2;
    ensure!(
        events > 0 && events <= heads * CQS as u64,
        "{events} events of {CQS} CQs in {heads} head updates"
    );
    say(&format!(
        "{events} events of {CQS} CQs in {heads} head updates"
    ));
    Ok(())
}

/// During a flood that lasts much longer than the soft lockup threshold, each CPU still runs other
/// tasks.
pub(super) fn no_cpu_locks_up(_: &Setup) -> Result<()> {
    const THRESHOLD: &str = "/proc/sys/kernel/watchdog_thresh";
    /// `TAINT_SOFTLOCKUP`.
    const LOCKED_UP: u64 = 1 << 14;
    let before = world::text(THRESHOLD)?;
    // The threshold of a soft lockup is twice as many seconds.
    world::put(THRESHOLD, "1")?;
    let drill = || -> Result<u64> {
        let mut child = flood()?;
        let (start, polls) = (Instant::now(), of_eq(0, "polls")?);
        let mut ticks = 0;
        while start.elapsed() < Duration::from_secs(6) {
            std::thread::sleep(Duration::from_millis(1));
            ticks += 1;
        }
        let polls = of_eq(0, "polls")? - polls;
        child.kill()?;
        ensure!(polls > 0, "it was no flood");
        Ok(ticks)
    };
    let ticks = drill();
    world::put(THRESHOLD, before.trim())?;
    say(&format!(
        "{} sleeps of a millisecond in six seconds of a flood",
        ticks?
    ));
    ensure!(world::taint()? & LOCKED_UP == 0, "a CPU was locked up");
    Ok(())
}

/// Work requests of each queue pair of [`Busy`].
const POSTED: u32 = 16;

/// Queue pairs of one doorbell page, each with large WRITEs to itself.
struct Busy {
    cq: Cq,
    /// The address of the CQ's ring.
    ring: u64,
    qps: Vec<Qp>,
    /// The work request of all of them.
    write: Wqe,
    _kept: (Buffer, Mr, Pd),
}

impl Busy {
    /// `count` queue pairs without work.
    fn new(count: usize, bytes: usize) -> Result<Self> {
        /// So many that no entry is overwritten while a case runs.
        const ENTRIES: u32 = 1 << 14;
        let ctx = Context::open(0)?;
        let pd = Pd::new(&ctx)?;
        let buffer = Buffer::new(ENTRIES as usize * Cqe::BYTES)?;
        let ring = buffer.addr();
        let cq = Cq::in_buffer(&ctx, ENTRIES, 0, buffer, None)?;
        let memory = Buffer::new(bytes)?;
        let mr = Mr::all(&pd, &memory)?;
        let shape = QpShape {
            sq_blocks: POSTED,
            rq_depth: 1,
            rq_stride: 0,
        };
        let qps = (0..count).map(|_| {
            let qp = Qp::new(&pd, &cq, &cq, shape)?;
            qp.connect(qp.number)?;
            Ok(qp)
        });
        let write = Wqe::write(0, memory.addr(), mr.keys.rkey).sge(
            memory.addr(),
            bytes as u32,
            mr.keys.lkey,
        );
        Ok(Self {
            qps: qps.collect::<Result<_>>()?,
            cq,
            ring,
            write,
            _kept: (memory, mr, pd),
        })
    }

    /// Fills all SQs.
    fn start(&mut self) {
        for qp in &mut self.qps {
            (0..POSTED).for_each(|_| qp.put(&self.write));
            qp.ring_sq();
        }
    }

    /// Posts one for each completed one.
    fn go_on(&mut self) -> Result<()> {
        while let Some(cqe) = self.cq.poll() {
            ensure!(cqe.status == 0, "{cqe:?}");
            let qp = self.qps.iter_mut().find(|qp| qp.number == cqe.qp.raw());
            qp.context("a completion of another queue pair")?
                .post(&self.write);
        }
        self.cq.publish();
        Ok(())
    }
}

/// A command waits for at most one turn of a queue pair, however many are busy. QUERY DEVICE writes
/// the device's count of turns at the time of its execution.
pub(super) fn commands_beside_busy_queue_pairs(_: &Setup) -> Result<()> {
    let mut host = Host::call()?;
    let other = Context::open(0)?;
    let mut busy = Busy::new(128, 16 << 20)?;
    busy.start();
    for _ in 0..10 {
        host.set(0, "stall", true)?;
        let (turns, rung) = (host.get(0, "turns")?, host.get(0, "sq-doorbells")?);
        let counters = std::thread::scope(|scope| {
            let asked = scope.spawn(|| other.counters());
            let posted = wait::until("a command in the ring", || {
                Ok(host.get(0, "sq-doorbells")? > rung)
            });
            host.set(0, "stall", false)?;
            posted?;
            asked.join().expect("a thread that does not panic")
        })?;
        let waited = counters[Counter::Turns as usize] - turns;
        ensure!(
            (1..=2).contains(&waited),
            "the command was done in turn {waited}"
        );
    }
    let mut child = Child::start(|_| {
        let ctx = Context::open(0)?;
        (0..50).try_for_each(|_| Ok(Cq::new(&ctx, 64)?.destroy()?))
    })?;
    child.done()?;
    let epoch = Context::open(0)?.info.limits.epoch;
    ensure!(epoch == other.info.limits.epoch, "the device was reset");
    Ok(())
}

/// A READ beside queue pairs of another process with large messages waits for one of their page
/// turns. It reads their CQ, so it finds the completions written before it.
pub(super) fn a_read_beside_large_messages(_: &Setup) -> Result<()> {
    /// Entries of the CQ to read: more than the queue pairs write in a turn each.
    const WINDOW: usize = 128;
    let bytes_per_turn = 64 << 10;
    let mut host = Host::call()?;
    for count in [1, 64] {
        let mut busy = Busy::new(count, bytes_per_turn)?;
        let mut reader = Peer::new(&Context::open(0)?, WINDOW * Cqe::BYTES)?;
        reader.qp.connect(reader.qp.number)?;
        let entries = u64::from(busy.cq.depth) * Cqe::BYTES as u64;
        let ring = Mr::of(&reader.pd, busy.ring, entries, IB_UVERBS_ACCESS_REMOTE_READ)?;
        for round in 0..10 {
            host.set(0, "stall", true)?;
            if round == 0 {
                busy.start();
            }
            busy.go_on()?;
            let next = busy.ring + u64::from(busy.cq.head) * Cqe::BYTES as u64;
            let read = Wqe::read(round, next, ring.keys.rkey);
            reader.qp.post(&reader.with(read, 0, WINDOW * Cqe::BYTES));
            host.set(0, "stall", false)?;
            reader.done(round)?;
            let done = (0..WINDOW)
                .filter(|entry| reader.memory.load(entry * Cqe::BYTES + 24) & OWNER != 0)
                .count();
            // Each message has the bytes of a turn.
            ensure!(
                done <= 1,
                "{done} turns of {count} queue pairs before the READ in round {round}"
            );
        }
    }
    Ok(())
}
