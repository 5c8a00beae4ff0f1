// SPDX-License-Identifier: GPL-2.0
//! Each way in which processes or the device end, repeatedly, under load.

use std::collections::BTreeMap;
use std::iter;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering;
use std::time::Duration;
use std::time::Instant;

use anyhow::Context as _;
use anyhow::Result;

use super::knobs::replug;
use super::load::works_anew;
use super::load::Load;
use super::load::Work;
use super::recovery::inject;
use super::recovery::recovered;
use super::recovery::SOURCES;
use super::sleep::Sleep;
use crate::devices;
use crate::host::Host;
use crate::ktap::say;
use crate::ktap::Setup;
use crate::pair::works;
use crate::pair::Bystander;
use crate::raw::Context;
use crate::wait;
use crate::world;
use crate::world::Baseline;
use crate::world::Log;
use crate::world::MemoryTrend;

/// A way to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Ending {
    /// SIGKILL of the processes.
    Kill,
    /// The port goes down and comes up, which ends nothing. Then SIGKILL.
    Link,
    /// The module is removed, and loaded again.
    Module,
    /// The driver is unbound, and bound again.
    Unbind,
    /// The function is removed from its bus, and found again.
    Remove,
    /// QEMU unplugs the device, and plugs it in again.
    Unplug,
    /// A function level reset through sysfs.
    Reset,
    /// The device reports that it has failed, and is reset.
    Fatal,
    /// An error of the PCI Express link, which is reset.
    Error,
    /// Suspend.
    Sleep(Sleep),
}

/// The number of rounds of each way, if it is not that of the case.
static ROUNDS: AtomicU32 = AtomicU32::new(0);

/// Sets the rounds of each way in a case. Its time limit stays.
pub fn set_rounds(rounds: u32) {
    ROUNDS.store(rounds, Ordering::Relaxed);
}

impl Ending {
    fn needs_the_host(self) -> bool {
        matches!(self, Self::Link | Self::Unplug | Self::Fatal | Self::Error)
    }

    fn spares_the_device(self) -> bool {
        matches!(self, Self::Kill | Self::Link)
    }
}

/// The device, and what ends it.
struct Target {
    device: usize,
    address: String,
    host: Option<Host>,
    log: Log,
    rng: fastrand::Rng,
}

impl Target {
    fn new(ways: &[Ending], rng: fastrand::Rng) -> Result<Self> {
        let host = match ways.iter().any(|way| way.needs_the_host()) {
            true => Some(Host::call()?),
            false => None,
        };
        let address = world::function(0)?;
        Ok(Self {
            device: 0,
            address,
            host,
            log: Log::mark()?,
            rng,
        })
    }

    fn host(&mut self) -> Result<&mut Host> {
        self.host.as_mut().context("the host was not called")
    }

    /// The port goes down or up.
    fn link_is(&mut self, down: bool) -> Result<()> {
        self.host()?.set(0, "link-down", down)?;
        let port = format!("/sys/class/infiniband/qpair{}/ports/1/state", self.device);
        let state = if down { "DOWN" } else { "ACTIVE" };
        wait::until(state, || Ok(world::text(&port)?.contains(state)))
    }

    fn end(&mut self, way: Ending) -> Result<()> {
        let address = self.address.clone();
        match way {
            Ending::Kill => Ok(()),
            Ending::Link => self.link_is(true).and_then(|()| self.link_is(false)),
            Ending::Module => Ok(devices::remove_module()?),
            Ending::Unbind => devices::unbind(&address),
            Ending::Remove => devices::remove(&address),
            Ending::Unplug => replug(self.host()?, &address).map(drop),
            Ending::Reset => devices::reset(&address),
            Ending::Fatal => self.host()?.set(0, "fatal", true),
            Ending::Error => {
                let source = SOURCES[self.rng.usize(0..SOURCES.len())];
                self.log = Log::mark()?;
                inject(self.host()?, source, "DLP")
            }
            Ending::Sleep(how) => how.sleep(),
        }
    }

    fn come_back(&mut self, way: Ending) -> Result<()> {
        self.device = match way {
            Ending::Module => devices::load_module(&self.address)?,
            Ending::Unbind => devices::bind(&self.address)?,
            Ending::Remove => devices::rescan(&self.address)?,
            Ending::Unplug => devices::appeared(&self.address)?,
            Ending::Fatal => {
                let again = || Ok(works(self.device, &mut self.rng).is_ok());
                wait::until("a device that works", again)?;
                devices::forget_failures()?;
                self.device
            }
            Ending::Error => recovered(&mut self.log).map(|()| self.device)?,
            _ => self.device,
        };
        Ok(())
    }

    /// One round. Returns how long it took to end what ends and to come back.
    fn round(&mut self, way: Ending, works_on: &[Work]) -> Result<Duration> {
        let epoch = Context::open(self.device)?.info.limits.epoch;
        let mut beside = match way {
            Ending::Kill => Some(Bystander::new(self.device, self.rng.clone())?),
            _ => None,
        };
        // An open file of debugfs keeps the module.
        let with_kernel = way != Ending::Module;
        let load = Load::start(&mut self.rng, self.device, works_on, with_kernel)?;
        let start = Instant::now();
        self.end(way)?;
        match way.spares_the_device() {
            true => load.killed()?,
            false => load.ended()?,
        }
        self.come_back(way)?;
        let away = start.elapsed();
        let epochs = match way {
            Ending::Kill | Ending::Link => epoch..=epoch,
            Ending::Reset | Ending::Error | Ending::Sleep(_) => epoch + 1..=epoch + 1,
            Ending::Fatal => epoch + 1..=u32::MAX,
            // Another life.
            Ending::Module | Ending::Unbind | Ending::Remove | Ending::Unplug => 0..=u32::MAX,
        };
        works_anew(self.device, &mut self.rng, epochs)?;
        beside.as_mut().map_or(Ok(()), Bystander::unharmed)?;
        Ok(away)
    }
}

/// Each way as often as `ways` says, in a random order. Nothing is left of it, and no memory is lost,
/// as far as so many rounds can tell.
fn repeatedly(setup: &Setup, ways: &[(Ending, u32)]) -> Result<()> {
    let given = ROUNDS.load(Ordering::Relaxed);
    let rounds = |&(way, rounds)| {
        let rounds = if given == 0 { rounds } else { given };
        iter::repeat_n(way, rounds as usize)
    };
    let mut turns: Vec<Ending> = ways.iter().flat_map(rounds).collect();
    let mut target = Target::new(&turns, setup.rng())?;
    target.rng.shuffle(&mut turns);
    let before = Baseline::take()?;
    let mut trend = MemoryTrend::default();
    let mut times: BTreeMap<Ending, Vec<Duration>> = BTreeMap::new();
    for (round, &way) in (0..).zip(&turns) {
        let works_on: Vec<Work> = (0..2).map(|_| Work::any(&mut target.rng)).collect();
        let place = || format!("round {round}, {way:?}, {works_on:?}");
        let time = target.round(way, &works_on).with_context(place)?;
        times.entry(way).or_default().push(time);
        before.settled().with_context(place)?;
        trend.after(round).with_context(place)?;
    }
    for (way, mut times) in times {
        times.sort();
        let [least, median, most] =
            [0, times.len() / 2, times.len() - 1].map(|at| times[at].as_millis());
        let count = times.len();
        say(&format!(
            "{way:?}: {count} times, {least} to {most} ms, median {median} ms"
        ));
    }
    if turns.len() >= MemoryTrend::LEAST as usize {
        return trend.check();
    }
    let (least, rounds) = (MemoryTrend::LEAST, turns.len());
    say(&format!(
        "{rounds} rounds, of {least} that show a trend of memory"
    ));
    Ok(())
}

/// A round takes 0.2 s, or 1 s under the detectors.
pub(super) fn ended_by_sigkill(setup: &Setup) -> Result<()> {
    repeatedly(setup, &[(Ending::Kill, world::rounds(200, 60))])
}

/// A round takes 0.3 s, or 3 s under the detectors.
pub(super) fn ended_by_the_guest(setup: &Setup) -> Result<()> {
    let ways = [
        (Ending::Module, world::rounds(20, 8)),
        (Ending::Unbind, world::rounds(33, 10)),
        (Ending::Remove, world::rounds(33, 10)),
        (Ending::Reset, world::rounds(20, 8)),
    ];
    repeatedly(setup, &ways)
}

/// A round takes 0.4 s, and many times that under the detectors.
pub(super) fn ended_by_the_host(setup: &Setup) -> Result<()> {
    let ways = [
        (Ending::Unplug, world::rounds(100, 40)),
        (Ending::Fatal, world::rounds(30, 30)),
        (Ending::Link, world::rounds(30, 20)),
    ];
    repeatedly(setup, &ways)
}

/// A round takes 0.5 s.
pub(super) fn ended_by_sleep(setup: &Setup) -> Result<()> {
    let rounds = world::rounds(6, 1);
    let ways = [Sleep::Ram, Sleep::Devices(0)].map(|how| (Ending::Sleep(how), rounds));
    repeatedly(setup, &ways)
}

pub(super) fn ended_by_the_link(setup: &Setup) -> Result<()> {
    repeatedly(setup, &[(Ending::Error, world::rounds(12, 6))])
}
