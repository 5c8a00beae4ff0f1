// SPDX-License-Identifier: GPL-2.0

//! The client: frames through a pair of channels and back, which it checks.
//!
//! A run hands a batch of frames over; when all of it has been received, it hands over the next.
//!
//! ```text
//!   write to debugfs: parse -> build (a pass) -> wait -> stop (a pass) -> report
//!   poll of a pair:   frames -> verify data -> the next batch -> ... -> wake
//! ```
//!
//! During a run the poll of its pair owns it, so it takes no lock. The task that has started it
//! takes it back, or the shutdown of the function does. The rung `polled` has no poll: the task
//! itself moves the frames.

use crate::{
    chain::{
        self,
        Chains, //
    },
    function::{
        At,
        Function,
        Halt,
        Polled, //
    },
    headtail::{
        self,
        Rings, //
    },
    kernel::{
        gate::Pass,
        poller::{
            self,
            Handler,
            Next, //
        },
        sync::Completion,
        task::cond_resched,
        watchdog::Check, //
    },
    plan::{
        Plan,
        Rung, //
    },
    polled,
    report::{
        written,
        Report, //
    }, //
};
use kernel::{
    device::{
        Bound,
        Device, //
    },
    fmt,
    new_mutex,
    prelude::*,
    sync::{
        atomic::{
            Acquire,
            Atomic,
            Relaxed,
            Release, //
        },
        Arc,
        Mutex, //
    },
    time::{
        Instant,
        Monotonic,
        Msecs, //
    },
    uaccess::UserSliceReader, //
};

/// Frames that a poll takes at most.
const BUDGET: u32 = 64;
/// Frames that `polled` moves in a pass.
const CHUNK: u64 = 64;
/// How often the [`Watch`] looks.
pub(crate) const PAUSE: Msecs = 100;

/// The rings of a run.
enum Moving {
    Chain(Chains),
    Headtail(Rings),
}

impl Moving {
    fn new(pass: &Pass<'_>, plan: &Plan) -> Result<Self> {
        Ok(match plan.rung {
            Rung::Headtail => Self::Headtail(Rings::new(pass, plan)?),
            Rung::Chain | Rung::Polled => Self::Chain(Chains::new(pass, plan)?),
        })
    }

    fn start(&mut self, at: &At<'_>) -> Result {
        match self {
            Self::Chain(chains) => chains.start(at),
            Self::Headtail(rings) => rings.start(at)?,
        }
        Ok(())
    }

    fn poll(&mut self, at: &At<'_>) -> Polled {
        match self {
            Self::Chain(chains) => chains.poll(at, BUDGET),
            Self::Headtail(rings) => rings.poll(at, BUDGET),
        }
    }

    /// What a channel halted on.
    fn status(&self, at: &At<'_>) -> Option<Halt> {
        match self {
            Self::Chain(_) => chain::status(at),
            Self::Headtail(_) => headtail::status(at),
        }
    }

    /// Returns whether the channels access no memory any more.
    fn stop(&self, at: &At<'_>) -> bool {
        match self {
            Self::Chain(_) => chain::stop(at),
            Self::Headtail(_) => headtail::stop(at),
        }
    }
}

/// Shared by the poll and the task that waits.
#[pin_data]
struct Progress {
    over: Atomic<bool>,
    frames: Atomic<u64>,
    mismatches: Atomic<u64>,
    #[pin]
    ended: Completion,
}

impl Progress {
    fn new() -> Result<Arc<Self>> {
        Arc::pin_init(
            pin_init!(Self {
                over: Atomic::new(false),
                frames: Atomic::new(0),
                mismatches: Atomic::new(0),
                ended <- Completion::new(),
            }),
            GFP_KERNEL,
        )
    }

    fn end(&self) {
        self.over.store(true, Release);
        self.ended.complete();
    }
}

/// A run of `chain` or `headtail`.
pub(crate) struct Run {
    plan: Plan,
    moving: Moving,
    /// Frames that were handed over.
    sent: u64,
    /// Frames that were received.
    received: u64,
    halt: Option<Halt>,
    progress: Arc<Progress>,
}

impl Run {
    /// Takes what was received, and hands the next batch over. Context: BH.
    fn poll(&mut self, at: &At<'_>, check: bool) -> Next {
        if self.progress.over.load(Acquire) {
            return Next::Done;
        }
        let polled = self.moving.poll(at);
        self.received += u64::from(polled.frames);
        self.progress.frames.store(self.received, Relaxed);
        let mismatches = &self.progress.mismatches;
        mismatches.fetch_add(polled.mismatches.into(), Relaxed);
        self.halt = polled.halt;
        if check && self.halt.is_none() && polled.frames == 0 {
            self.halt = self.moving.status(at);
        }
        if self.halt.is_some() || self.received >= self.plan.count {
            self.progress.end();
            return Next::Done;
        }
        let mut again = polled.again;
        if self.received == self.sent {
            let last = self.sent.saturating_add(self.plan.batch.into());
            let batch = self.sent..last.min(self.plan.count);
            let sent = match &mut self.moving {
                Moving::Chain(chains) => chains.send(at, batch),
                Moving::Headtail(rings) => rings.send(at, batch),
            };
            self.sent += sent;
            // No message says when descriptors are free: the next poll looks again.
            again |= sent == 0;
        }
        match again {
            true => Next::Again,
            false => Next::Done,
        }
    }

    /// Tells the task that waits that the function was shut down.
    pub(crate) fn cancel(&self) {
        self.progress.end();
    }
}

/// A pair of channels: the handler of its receive interrupt.
pub(crate) struct Pair {
    function: Arc<Function>,
    pair: u32,
    interrupts: Atomic<u64>,
    polls: Atomic<u64>,
    /// Frames that were received, in all runs.
    frames: Atomic<u64>,
    /// A run is going on.
    running: Atomic<bool>,
    /// The next poll reads the status of both channels.
    check: Atomic<bool>,
    /// `frames` when the [`Watch`] last looked.
    seen: Atomic<u64>,
}

/// The poll of a pair, and what schedules it.
pub(crate) type PairPoller = poller::BhPoller<Pair>;

impl Pair {
    /// The pair `pair`, without a run.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn new(
        dev: &Device<Bound>,
        function: Arc<Function>,
        pair: u32,
    ) -> Result<Arc<PairPoller>> {
        let this = Self {
            function,
            pair,
            interrupts: Atomic::new(0),
            polls: Atomic::new(0),
            frames: Atomic::new(0),
            running: Atomic::new(false),
            check: Atomic::new(false),
            seen: Atomic::new(0),
        };
        PairPoller::new(dev, this, None)
    }
}

impl Handler for Pair {
    type State = Option<KBox<Run>>;

    fn interrupt(&self, _dev: &Device<Bound>) {
        self.interrupts.fetch_add(1, Relaxed);
    }

    fn poll(&self, dev: &Device<Bound>, state: &mut Self::State, _given: bool) -> Next {
        let Some(run) = state else {
            return Next::Done;
        };
        let Ok(at) = self.function.at(dev, self.pair) else {
            return Next::Done;
        };
        self.polls.fetch_add(1, Relaxed);
        let before = run.received;
        let next = run.poll(&at, self.check.xchg(false, Relaxed));
        self.frames.fetch_add(run.received - before, Relaxed);
        next
    }
}

/// Polls each pair whose run does not move: its interrupt was lost, or a channel halted that does
/// not interrupt.
pub(crate) struct Watch(pub(crate) Arc<Client>);

impl Check for Watch {
    fn check(&self) -> Msecs {
        for poller in &self.0.pairs {
            let pair = poller.handler();
            let frames = pair.frames.load(Relaxed);
            if pair.running.load(Relaxed) && pair.seen.xchg(frames, Relaxed) == frames {
                pair.check.store(true, Relaxed);
                poller.schedule();
            }
        }
        PAUSE
    }
}

/// The outcome of a run.
#[derive(Default)]
struct Outcome {
    frames: u64,
    mismatches: u64,
    halt: Option<Halt>,
    /// A signal is pending.
    interrupted: bool,
}

/// Why a run failed, at the end of its report.
struct Reason(Option<Halt>);

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(halt) => f.write_fmt(fmt!(" reason={halt}")),
            None => Ok(()),
        }
    }
}

/// The client of a function.
#[pin_data]
pub(crate) struct Client {
    function: Arc<Function>,
    pairs: KVec<Arc<PairPoller>>,
    /// Held over a run.
    #[pin]
    busy: Mutex<()>,
    #[pin]
    report: Report,
}

impl Client {
    /// The client of `function`, with its pairs.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn new(function: Arc<Function>, pairs: KVec<Arc<PairPoller>>) -> Result<Arc<Self>> {
        Arc::pin_init(
            pin_init!(Self {
                function,
                pairs,
                busy <- new_mutex!((), "Client::busy"),
                report <- Report::new(),
            }),
            GFP_KERNEL,
        )
    }

    pub(crate) fn pairs(&self) -> &[Arc<PairPoller>] {
        &self.pairs
    }

    /// A write to the debugfs file: executes a run, and returns when it is over.
    ///
    /// # Errors
    ///
    /// `EINVAL` for a plan that is refused, `EBUSY` while another run is going on, `EIO` if the run
    /// failed or the function was reset, `ENODEV` if it is unbound, `EINTR` on a signal, `ENOMEM`.
    /// The report has the reason.
    pub(crate) fn write(&self, reader: &mut UserSliceReader) -> Result {
        let mut buffer = [0; 256];
        let text = written(reader, &mut buffer)?;
        let _busy = self.busy.try_lock().ok_or(EBUSY)?;
        let plan = match Plan::parse(text, self.function.kinds(), self.function.largest()) {
            Ok(plan) => plan,
            Err(reason) => {
                self.report.set(fmt!("result=refused reason={reason}\n"));
                return Err(EINVAL);
            }
        };
        let began = Instant::<Monotonic>::now();
        let before = self.interrupts(&plan);
        let outcome = match plan.rung {
            Rung::Polled => self.run_polled(&plan),
            Rung::Chain | Rung::Headtail => self.run(&plan),
        };
        let usecs = began.elapsed().as_micros_ceil();
        let interrupts = self.interrupts(&plan).wrapping_sub(before);
        let (outcome, error) = match outcome {
            Ok(outcome) => (outcome, None),
            Err(error) => (Outcome::default(), Some(error)),
        };
        let Outcome {
            frames, mismatches, ..
        } = outcome;
        let whole = frames == plan.count && mismatches == 0;
        let bytes = frames.saturating_mul(plan.size.into());
        let result = match (whole, error.is_some() || outcome.interrupted) {
            (true, _) => "ok",
            (_, true) => "cancelled",
            _ if mismatches == 0 && outcome.halt.is_none() => "cancelled",
            _ => "failed",
        };
        let reason = Reason(outcome.halt);
        self.report.set(fmt!(
            "result={result} {plan} frames={frames} bytes={bytes} usecs={usecs} \
             mismatches={mismatches} interrupts={interrupts}{reason}\n"
        ));
        match (result, error) {
            ("ok", _) => Ok(()),
            (_, Some(error)) => Err(error),
            _ if outcome.interrupted => Err(EINTR),
            _ => Err(EIO),
        }
    }

    /// A read of the debugfs file: the report of the last run.
    pub(crate) fn read(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.report.show(f)
    }

    /// A read of the debugfs file `pairs`.
    pub(crate) fn show_pairs(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "pair kind interrupts polls frames")?;
        for (poller, kind) in self.pairs.iter().zip(self.function.kinds()) {
            let pair = poller.handler();
            writeln!(
                f,
                "{} {kind} {} {} {}",
                pair.pair,
                pair.interrupts.load(Relaxed),
                pair.polls.load(Relaxed),
                pair.frames.load(Relaxed),
            )?;
        }
        Ok(())
    }

    fn pair(&self, plan: &Plan) -> Option<&Arc<PairPoller>> {
        self.pairs.get(plan.pair as usize)
    }

    fn interrupts(&self, plan: &Plan) -> u64 {
        let pair = self.pair(plan);
        pair.map_or(0, |pair| pair.handler().interrupts.load(Relaxed))
    }

    /// Keeps memory that the channels may access until the next boot.
    fn keep<T>(&self, memory: T) {
        dev_err!(
            self.function.gate().device(),
            "the channels do not stop: their memory is not freed\n"
        );
        core::mem::forget(memory);
    }

    fn run(&self, plan: &Plan) -> Result<Outcome> {
        let poller = self.pair(plan).ok_or(EINVAL)?;
        let progress = Progress::new()?;
        let epoch = self.function.epoch();
        {
            let pass = self.function.enter(epoch)?;
            let at = self.function.at(pass.dev(), plan.pair)?;
            let moving = Moving::new(&pass, plan)?;
            let mut run = KBox::new(
                Run {
                    plan: *plan,
                    moving,
                    sent: 0,
                    received: 0,
                    halt: None,
                    progress: progress.clone(),
                },
                GFP_KERNEL,
            )?;
            if let Err(error) = run.moving.start(&at) {
                if !run.moving.stop(&at) {
                    self.keep(run);
                }
                return Err(error);
            }
            poller.handler().running.store(true, Relaxed);
            // Its poll hands the first batch over.
            poller.paused(|_, state| *state = Some(run));
        }
        let waited = progress.ended.wait_interruptible();
        poller.handler().running.store(false, Relaxed);
        // A shutdown of the function has taken it otherwise.
        let mut halt = None;
        if let Ok(pass) = self.function.enter(epoch) {
            if let Some(run) = poller.paused(|_, state| state.take()) {
                halt = run.halt;
                let at = self.function.at(pass.dev(), plan.pair);
                if !at.is_ok_and(|at| run.moving.stop(&at)) {
                    self.keep(run);
                }
            }
        }
        Ok(Outcome {
            frames: progress.frames.load(Relaxed),
            mismatches: progress.mismatches.load(Relaxed),
            halt,
            interrupted: waited.is_err(),
        })
    }

    /// Between two passes the channels own nothing, so a shutdown needs not wait for the run.
    fn run_polled(&self, plan: &Plan) -> Result<Outcome> {
        let epoch = self.function.epoch();
        let mut outcome = Outcome::default();
        let mut polled = {
            let pass = self.function.enter(epoch)?;
            let polled = polled::Polled::new(&pass, plan.pair, plan.size)?;
            polled.start(&self.function.at(pass.dev(), plan.pair)?);
            polled
        };
        while outcome.frames < plan.count && outcome.halt.is_none() && !outcome.interrupted {
            let pass = self.function.enter(epoch)?;
            let at = self.function.at(pass.dev(), plan.pair)?;
            let last = outcome.frames.saturating_add(CHUNK).min(plan.count);
            for number in outcome.frames..last {
                match polled.frame(&at, plan, number) {
                    Ok(true) => {}
                    Ok(false) => outcome.mismatches += 1,
                    Err(halt) => {
                        outcome.halt = Some(halt);
                        break;
                    }
                }
                outcome.frames = number + 1;
            }
            outcome.interrupted = current!().signal_pending();
            let over = outcome.frames == plan.count;
            if (over || outcome.interrupted || outcome.halt.is_some()) && !chain::stop(&at) {
                self.keep(polled);
                return Ok(outcome);
            }
            drop(pass);
            cond_resched();
        }
        Ok(outcome)
    }
}
