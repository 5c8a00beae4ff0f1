// SPDX-License-Identifier: GPL-2.0
//! Files from before a reset beside files from after it, whose objects have the same numbers.

use anyhow::ensure;
use anyhow::Context as _;
use anyhow::Result;
use nix::errno::Errno;
use nix::sys::signal::Signal;
use qpair_abi::entry::opcode;
use qpair_abi::uapi;

use super::load::told_of_the_end;
use crate::children::Child;
use crate::children::End;
use crate::host::Host;
use crate::ktap::Setup;
use crate::pair::works;
use crate::pair::Pair;
use crate::raw::destroy;
use crate::raw::Context;
use crate::raw::Pd;
use crate::raw::Wqe;
use crate::wait;
use crate::world;

/// The maximum number of commands in flight.
const SLOTS: usize = 32;

/// Two objects of each kind that a process may have, and an empty domain.
struct World {
    pair: Pair,
    lone: Pd,
}

impl World {
    fn new() -> Result<Self> {
        let pair = Pair::open(0)?;
        let lone = Pd::new(&pair.a.ctx)?;
        Ok(Self { pair, lone })
    }

    /// Its doorbell page, and its numbers by kind: domains, CQs, queue pairs, regions.
    fn numbers(&self) -> (u32, [Vec<u32>; 4]) {
        let peers = [&self.pair.a, &self.pair.b];
        let mut pds: Vec<u32> = peers.iter().map(|peer| peer.pd.handle).collect();
        pds.push(self.lone.handle);
        let cqs = peers.iter().map(|peer| peer.cq.handle).collect();
        let qps = peers.iter().map(|peer| peer.qp.handle).collect();
        let mrs = peers.iter().map(|peer| peer.mr.arg.handle).collect();
        (self.pair.a.ctx.info.doorbell_page, [pds, cqs, qps, mrs])
    }
}

/// Resets the function through sysfs.
fn reset(address: &str) -> Result<()> {
    world::put(format!("/sys/bus/pci/devices/{address}/reset"), "1")
}

/// Checks that the next violation of the context's own doorbells is reported to it.
fn told_of_its_violation(ctx: &Context) -> Result<()> {
    ctx.page.ring(0, u32::MAX, 0);
    wait::readable(ctx.fd(), "the event of a violation")?;
    let event = ctx.async_event()?.context("no event")?;
    ensure!(
        event.kind == uapi::QPAIR_EVENT_DOORBELL_VIOLATION,
        "{event:?}"
    );
    Ok(())
}

/// An old file is used and closed after the reset, with the numbers of a new file: the objects,
/// keys, events and the doorbell page of the new file do not change.
pub(super) fn the_same_numbers(setup: &Setup) -> Result<()> {
    let mut host = Host::call()?;
    let mut rng = setup.rng();
    let address = world::function(0)?;
    // Keys are random after each reset, unless a seed fixes them.
    host.set(0, "key-seed", 1)?;
    for round in 0..3 {
        let place = || format!("round {round}");
        reset(&address)?;
        let mut old = World::new()?;
        old.pair.exchange(&mut rng)?;
        // Its page is mapped and touched; the child touches it again after the reset.
        let mut toucher = Child::start(|link| {
            let ctx = Context::open(0)?;
            ctx.page.load(0);
            link.tell(1)?;
            link.hear()?;
            ctx.page.ring(0, u32::MAX, 0);
            anyhow::bail!("a doorbell of before the reset could be rung")
        })?;
        toucher.link().hear()?;
        reset(&address)?;
        told_of_the_end(&old.pair.a.ctx)?;

        let mut new = World::new()?;
        for _ in 0..16 {
            if new.numbers() == old.numbers() {
                break;
            }
            drop(new);
            new = World::new()?;
        }
        ensure!(
            new.numbers() == old.numbers(),
            "{:?} instead of {:?}: the numbers of a device that was reset are others",
            new.numbers(),
            old.numbers()
        );
        let beside = Context::open(0)?;
        let objects = host.get(0, "objects")?;

        let (_, [pds, cqs, qps, mrs]) = old.numbers();
        for (nr, handles) in [
            (uapi::QPAIR_NR_DESTROY_QP, qps),
            (uapi::QPAIR_NR_DEREG_MR, mrs),
            (uapi::QPAIR_NR_DESTROY_CQ, cqs),
            (uapi::QPAIR_NR_DEALLOC_PD, pds),
        ] {
            for handle in handles {
                let result = destroy(&old.pair.a.ctx, nr, handle);
                ensure!(
                    result == Err(Errno::EIO),
                    "ioctl {nr:#x} of before the reset gave {result:?}"
                );
            }
        }
        toucher.link().tell(1)?;
        let end = toucher.end(wait::patience())?;
        ensure!(
            end == End::Signal(Signal::SIGBUS),
            "a doorbell of before the reset ended with {end}"
        );
        drop(old);

        let now = host.get(0, "objects")?;
        ensure!(
            now == objects,
            "{now} objects instead of {objects} after a file of before was closed"
        );
        new.pair.exchange(&mut rng).with_context(place)?;
        new.pair.a.qp.post(&Wqe::new(opcode::NOP, 1));
        new.pair.a.cq.wait_event().with_context(place)?;
        new.pair.a.done(1).with_context(place)?;
        told_of_its_violation(&new.pair.a.ctx).with_context(place)?;
        // The page is not assigned twice.
        let page = Context::open(0)?.info.doorbell_page;
        let taken = [new.numbers().0, beside.info.doorbell_page];
        ensure!(
            !taken.contains(&page),
            "page {page} has two owners of {taken:?}"
        );
        // It still owns each of its objects.
        new.lone.destroy().context("the empty domain")?;
        new.pair.destroy().with_context(place)?;
    }
    works(0, &mut rng)
}

/// Posts a command in each slot of the admin queue, runs `meanwhile`, and returns the results.
fn in_all_slots(
    host: &mut Host,
    ctx: &Context,
    meanwhile: impl FnOnce(&mut Host) -> Result<()>,
) -> Result<Vec<Result<Vec<u64>>>> {
    host.set(0, "stall", true)?;
    let before = host.get(0, "sq-doorbells")?;
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..SLOTS).map(|_| scope.spawn(|| ctx.counters())).collect();
        let posted = wait::until("a command in each slot", || {
            Ok(host.get(0, "sq-doorbells")? == before + SLOTS as u64)
        });
        let done = posted.and_then(|()| meanwhile(host));
        host.set(0, "stall", false)?;
        let results = threads.into_iter().map(|thread| match thread.join() {
            Ok(result) => result,
            Err(_) => Err(anyhow::anyhow!("a thread panicked")),
        });
        let results = results.collect();
        done.map(|()| results)
    })
}

/// The function stops with a command in each slot. After the reset each slot can be used again, and
/// returns the result of the new command.
pub(super) fn the_same_slots(setup: &Setup) -> Result<()> {
    let mut host = Host::call()?;
    for round in 0..2 {
        let old = Context::open(0)?;
        let results = in_all_slots(&mut host, &old, |host| host.set(0, "fatal", true))?;
        for result in results {
            let errno = result
                .err()
                .and_then(|error| error.downcast::<Errno>().ok());
            ensure!(errno == Some(Errno::EIO), "round {round}: {errno:?}");
        }
        let new = wait::for_some("a device that was reset", || {
            let fresh = Context::open(0).ok();
            Ok(fresh.filter(|ctx| ctx.info.epoch == old.info.epoch + 1))
        })?;
        for result in in_all_slots(&mut host, &new, |_| Ok(()))? {
            let counters = result.with_context(|| format!("round {round}, after the reset"))?;
            ensure!(!counters.is_empty(), "no counters");
        }
    }
    works(0, &mut setup.rng())
}
