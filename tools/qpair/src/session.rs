// SPDX-License-Identifier: GPL-2.0
//! What the commands share: an open device, one completion queue, connected queue pairs.

use std::path::Path;
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

/// How long a wait lasts before signals and asynchronous events are looked at.
const LOOK: Duration = Duration::from_millis(200);
/// Completions taken at once.
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

/// Opens the device that was asked for, or the first.
pub(crate) fn open(device: Option<&Path>) -> anyhow::Result<Context> {
    let device = match device {
        Some(path) => Device::at(path),
        None => Device::first()?,
    };
    Ok(device.open()?)
}

/// Tells that SIGINT or SIGTERM came. The second one ends the process at once.
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
        crate::gone::catch()?;
        Ok(Self(came))
    }

    pub(crate) fn check(&self) -> Result<(), Interrupted> {
        if self.0.load(Ordering::Relaxed) {
            return Err(Interrupted);
        }
        Ok(())
    }
}

/// When signals and asynchronous events are to be looked at.
#[derive(Debug)]
struct Looks {
    last: Instant,
    turns: u32,
}

impl Looks {
    /// Turns between two looks at the clock, which is not free.
    const TURNS: u32 = 64;

    /// For a turn that brought something; `now` is asked for at a few of them.
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
    /// An event was asked for, and has not come.
    asleep: bool,
    signals: Signals,
    before: Option<Counters>,
    /// Since when nothing came.
    idle: Option<Instant>,
    /// With no completion for longer than this the command fails instead of waiting for ever.
    stall_limit: Duration,
    looks: Looks,
    buffer: [Completion; TAKE],
    taken: std::ops::Range<usize>,
    /// Events that the channel gave.
    pub(crate) events: u64,
}

impl Session {
    /// `depth` must do for all that will be posted at a time.
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

    /// The completions that are there, as many as are taken at once; none if there are none. Whether they failed is
    /// to be looked at.
    ///
    /// With events, who finds nothing asks for one, and looks again when it has come.
    pub(crate) fn take(&mut self) -> &[Completion] {
        self.fill();
        &self.buffer[std::mem::take(&mut self.taken)]
    }

    /// The next completion, if one is there; else as [`take`](Self::take). A failed one is an error.
    pub(crate) fn poll(&mut self) -> anyhow::Result<Option<Completion>> {
        self.fill();
        let Some(at) = self.taken.next() else {
            return Ok(None);
        };
        let completion = self.buffer[at];
        completion.check()?;
        Ok(Some(completion))
    }

    /// Polls, if all that was taken has been given out and no event is waited for.
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

    /// The next completion. Sleeps or spins until it is there, as the user wants.
    pub(crate) fn wait(&mut self) -> anyhow::Result<Completion> {
        loop {
            if let Some(completion) = self.poll()? {
                return Ok(completion);
            }
            self.pause()?;
        }
    }

    /// Asks for an event, if there is none under way: what has come since the last look causes it at once.
    fn arm(&mut self) {
        if self.channel.is_some() && !self.asleep {
            self.cq.arm(Wants::Next);
            self.asleep = true;
        }
    }

    /// There was nothing: spins once; or sleeps until an event comes, or for [`LOOK`] at most.
    pub(crate) fn pause(&mut self) -> anyhow::Result<()> {
        match &self.channel {
            Some(channel) => {
                if channel.wait(None)? {
                    self.events += 1;
                    self.asleep = false;
                    // A tick that comes with an event is not told of.
                    return self.go_on();
                }
                self.look()?;
            }
            None => {
                std::hint::spin_loop();
                let now = Instant::now();
                if now - *self.idle.get_or_insert(now) > LOOK {
                    // Whoever else wants to run may be who we wait for.
                    std::thread::yield_now();
                }
                if now - self.looks.last > LOOK {
                    self.look()?;
                }
            }
        }
        Ok(())
    }

    /// There was something: looks, if that was not done for [`LOOK`]. It is for who may never have to
    /// [`pause`](Self::pause).
    pub(crate) fn go_on(&mut self) -> anyhow::Result<()> {
        if self.looks.due(Instant::now) {
            self.look()?;
        }
        Ok(())
    }

    /// Signals, asynchronous events, and whether anything goes on at all.
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

    /// Nothing is under way: waiting is nobody's fault.
    pub(crate) fn rest(&mut self) {
        self.idle = None;
    }

    pub(crate) fn check_signals(&self) -> Result<(), Interrupted> {
        self.signals.check()
    }

    /// Everything is made: what the device counts from here on is of the data path, but for
    /// the command that asks for its counters.
    pub(crate) fn begin(&mut self) -> anyhow::Result<()> {
        self.before = Some(self.context.counters()?);
        self.arm();
        Ok(())
    }

    /// What the device has counted since [`begin`](Self::begin).
    pub(crate) fn counted(&self) -> anyhow::Result<Counters> {
        let now = self.context.counters()?;
        Ok(self.before.map_or(now, |before| now.since(&before)))
    }

    /// Makes two queue pairs, and connects them to each other.
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
            .rq_depth(receives.max(1))
    }
}

/// Entries that queues of these lengths need in a completion queue: a ring is a power of two.
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
