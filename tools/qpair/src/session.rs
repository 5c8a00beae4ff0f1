// SPDX-License-Identifier: GPL-2.0
//! Shared by the commands: an open device, one completion queue, connected queue pairs.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{bail, Context as _};
use qpair::{
    Access, AsyncEvent, Channel, Completion, Context, Counters, Cq, CqOptions, Device, Pd, Qp,
    QpOptions, Rts, Wants,
};
use signal_hook::consts::{SIGINT, SIGTERM};

use crate::args::Wait;

/// The longest wait before signals and asynchronous events are checked.
pub(crate) const LOOK: Duration = Duration::from_millis(200);
/// Completions taken at a time.
pub(crate) const TAKE: usize = 128;

/// Stopped by a signal.
#[derive(Debug)]
pub(crate) struct Interrupted;

impl std::fmt::Display for Interrupted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("interrupted")
    }
}

impl std::error::Error for Interrupted {}

/// The given device, or the first.
pub(crate) fn device(name: Option<&str>) -> Result<Device, qpair::Error> {
    match name {
        Some(name) => Device::at(name),
        None => Device::first(),
    }
}

/// A context on the given device, or on the first.
pub(crate) fn open(device: Option<&str>) -> anyhow::Result<Context> {
    Ok(self::device(device)?.open()?)
}

/// Set by SIGINT or SIGTERM. The second signal ends the process at once.
#[derive(Clone, Debug)]
pub(crate) struct Signals(Arc<AtomicBool>);

impl Signals {
    pub(crate) fn catch() -> anyhow::Result<Self> {
        let came = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM] {
            signal_hook::flag::register_conditional_shutdown(
                signal,
                crate::INTERRUPTED.into(),
                came.clone(),
            )
            .and_then(|_| signal_hook::flag::register(signal, came.clone()))
            .context("cannot catch signals")?;
        }
        Ok(Self(came))
    }

    pub(crate) fn check(&self) -> Result<(), Interrupted> {
        if self.0.load(Ordering::Relaxed) {
            return Err(Interrupted);
        }
        Ok(())
    }
}

/// When to check for signals and asynchronous events.
#[derive(Debug)]
struct Looks {
    last: Instant,
    turns: u32,
}

impl Looks {
    /// Turns between two reads of the clock, which costs time.
    const TURNS: u32 = 64;

    /// Called after a turn with completions; calls `now` in a few of them.
    fn due(&mut self, now: impl FnOnce() -> Instant) -> bool {
        self.turns = self.turns.wrapping_add(1);
        self.turns % Self::TURNS == 0 && now() - self.last > LOOK
    }
}

/// An open device, with one completion queue.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) context: Context,
    pub(crate) pd: Pd,
    pub(crate) cq: Cq,
    channel: Option<Channel>,
    /// The completion queue is armed, and the event has not come.
    asleep: bool,
    signals: Signals,
    before: Option<Counters>,
    /// Time since which no completion came.
    idle: Option<Instant>,
    /// Without a completion for this long the command fails.
    stall_limit: Duration,
    looks: Looks,
    buffer: [Completion; TAKE],
    taken: std::ops::Range<usize>,
    /// Events from the channel.
    pub(crate) events: u64,
}

impl Session {
    /// `depth` is the most requests posted at a time.
    pub(crate) fn new(context: Context, depth: u64, wait: Wait) -> anyhow::Result<Self> {
        let limit = context.attributes().max_cq_depth;
        if depth > limit.into() {
            bail!("this needs a completion queue of {depth} entries, and the device has at most {limit}: use fewer queue pairs, or a smaller depth");
        }
        let channel = wait.events.then(|| Channel::ticking(LOOK)).transpose()?;
        let mut options = CqOptions::new(depth as u32);
        if let Some(channel) = &channel {
            options = options.channel(channel);
        }
        Ok(Self {
            signals: Signals::catch()?,
            before: None,
            pd: Pd::new(&context)?,
            cq: Cq::new(&context, &options)?,
            context,
            channel,
            asleep: false,
            idle: None,
            stall_limit: Duration::from_secs(wait.stall_limit.into()),
            looks: Looks {
                last: Instant::now(),
                turns: 0,
            },
            buffer: [Completion::default(); TAKE],
            taken: 0..0,
            events: 0,
        })
    }

    /// Takes the completions that are there, up to the size of its buffer. The caller checks
    /// whether they failed.
    ///
    /// With events, an empty result arms the completion queue, and later calls poll again once the
    /// event has come.
    pub(crate) fn take(&mut self) -> &[Completion] {
        self.fill();
        &self.buffer[std::mem::take(&mut self.taken)]
    }

    /// Takes the next completion, if there is one; else as [`take`](Self::take). A failed one is an
    /// error.
    pub(crate) fn poll(&mut self) -> anyhow::Result<Option<Completion>> {
        self.fill();
        let Some(at) = self.taken.next() else {
            return Ok(None);
        };
        let completion = self.buffer[at];
        completion.check()?;
        Ok(Some(completion))
    }

    /// Polls, if all completions taken were returned and the completion queue is not armed.
    fn fill(&mut self) {
        if self.asleep || !self.taken.is_empty() {
            return;
        }
        let taken = self.cq.poll(&mut self.buffer).len();
        if taken == 0 {
            self.arm();
        } else {
            self.idle = None;
        }
        self.taken = 0..taken;
    }

    /// The next completion. Sleeps or spins until it comes, as the options say.
    pub(crate) fn wait(&mut self) -> anyhow::Result<Completion> {
        loop {
            if let Some(completion) = self.poll()? {
                return Ok(completion);
            }
            self.pause()?;
        }
    }

    /// Arms the completion queue unless it is armed: a completion since the last poll causes the
    /// event at once.
    fn arm(&mut self) {
        if self.channel.is_some() && !self.asleep {
            self.cq.arm(Wants::Next);
            self.asleep = true;
        }
    }

    /// Called when there was no completion: spins once, or sleeps until an event comes, for
    /// [`LOOK`] at most.
    pub(crate) fn pause(&mut self) -> anyhow::Result<()> {
        match &self.channel {
            Some(channel) => {
                if channel.wait(None)? {
                    self.events += 1;
                    self.asleep = false;
                    // A tick that comes with an event is not reported.
                    return self.go_on();
                }
                self.look()?;
            }
            None => {
                std::hint::spin_loop();
                let now = Instant::now();
                if now - *self.idle.get_or_insert(now) > LOOK {
                    // Yield: another task may be the one that this waits for.
                    std::thread::yield_now();
                }
                if now - self.looks.last > LOOK {
                    self.look()?;
                }
            }
        }
        Ok(())
    }

    /// Called when there was a completion: checks, if the last check is [`LOOK`] ago. For loops
    /// that may never [`pause`](Self::pause).
    pub(crate) fn go_on(&mut self) -> anyhow::Result<()> {
        if self.looks.due(Instant::now) {
            self.look()?;
        }
        Ok(())
    }

    /// Checks for signals, asynchronous events and missing progress.
    pub(crate) fn look(&mut self) -> anyhow::Result<()> {
        let now = Instant::now();
        self.looks.last = now;
        self.check_signals()?;
        if let Some(event) = self.context.async_event()? {
            if event == AsyncEvent::DeviceFatal {
                bail!("{event}");
            }
            eprintln!("qpair: {event}");
        }
        if now - *self.idle.get_or_insert(now) > self.stall_limit {
            bail!(
                "no completion for {} seconds: see `qpair info` and the kernel log",
                self.stall_limit.as_secs()
            );
        }
        Ok(())
    }

    /// Nothing is in flight, so a missing completion is no error.
    pub(crate) fn rest(&mut self) {
        self.idle = None;
    }

    pub(crate) fn check_signals(&self) -> Result<(), Interrupted> {
        self.signals.check()
    }

    /// Everything is created: the device's counters from here on are those of the data path, except
    /// for the command that reads them.
    pub(crate) fn begin(&mut self) -> anyhow::Result<()> {
        self.before = Some(self.context.counters()?);
        self.arm();
        Ok(())
    }

    /// The device's counters since [`begin`](Self::begin).
    pub(crate) fn counted(&self) -> anyhow::Result<Counters> {
        let now = self.context.counters()?;
        Ok(self.before.map_or(now, |before| now.since(&before)))
    }

    /// Creates two queue pairs and connects them to each other.
    pub(crate) fn connect(
        &self,
        near: &QpOptions<'_>,
        far: &QpOptions<'_>,
        access: Access,
    ) -> anyhow::Result<(Qp<Rts>, Qp<Rts>)> {
        let (near, far) = (Qp::new(&self.pd, near)?, Qp::new(&self.pd, far)?);
        let (near_number, far_number) = (near.number(), far.number());
        let near = near.init(access)?.rtr(far_number)?;
        let far = far.init(access)?.rtr(near_number)?;
        Ok((near.rts()?, far.rts()?))
    }

    /// Options for a queue pair on the session's completion queue.
    pub(crate) fn options(&self, sends: u32, receives: u32) -> QpOptions<'_> {
        QpOptions::new(&self.cq, &self.cq)
            .sq_blocks(sends.max(1))
            .max_recv_wr(receives.max(1))
    }
}

/// Entries that queues of these depths need in a completion queue; a ring's depth is a power of
/// two.
pub(crate) fn entries(lengths: &[u32]) -> u64 {
    let rounded = lengths
        .iter()
        .map(|&n| u64::from(n.max(1)).next_power_of_two());
    rounded.sum()
}

#[cfg(test)]
mod tests {
    use super::{Instant, Looks, LOOK};

    #[test]
    fn who_always_finds_something_looks_in_time_and_reads_the_clock_seldom() {
        let last = Instant::now();
        let mut looks = Looks { last, turns: 0 };
        let turns = 100 * Looks::TURNS;
        let mut read = 0;
        for _ in 0..turns {
            assert!(!looks.due(|| {
                read += 1;
                last + LOOK
            }));
        }
        assert_eq!(read, 100);
        let late = last + 2 * LOOK;
        let due = (0..turns).filter(|_| looks.due(|| late)).count();
        assert_eq!(due, 100, "until it is done");
        looks.last = late;
        assert!((0..turns).all(|_| !looks.due(|| late)));
    }
}
