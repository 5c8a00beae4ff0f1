// SPDX-License-Identifier: GPL-2.0
//! Files from before a reset beside files from after it, whose objects have the same numbers.

use anyhow::ensure;
use anyhow::Context as _;
use anyhow::Result;
use nix::errno::Errno;
use qpair_abi::entry::opcode;

use super::load::told_of_the_end;
use crate::children::Child;
use crate::devices;
use crate::host::Host;
use crate::ktap::Setup;
use crate::pair::works;
use crate::pair::Pair;
use crate::pair::Peer;
use crate::raw::Context;
use crate::raw::Kind;
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

    /// Its handles by kind: domains, CQs, queue pairs, regions.
    fn handles(&self) -> [Vec<u32>; 4] {
        let peers = [&self.pair.a, &self.pair.b];
        let of = |handle: fn(&Peer) -> u32| peers.iter().map(|peer| handle(peer)).collect();
        let mut pds: Vec<u32> = of(|peer| peer.pd.handle);
        pds.push(self.lone.handle);
        let mrs = of(|peer| peer.mr.keys.mr_handle);
        [
            pds,
            of(|peer| peer.cq.handle),
            of(|peer| peer.qp.handle),
            mrs,
        ]
    }

    /// Its doorbell page, and its numbers by kind: CQs, queue pairs, regions.
    fn numbers(&self) -> (u32, [Vec<u32>; 3]) {
        let peers = [&self.pair.a, &self.pair.b];
        let of = |number: fn(&Peer) -> u32| peers.iter().map(|peer| number(peer)).collect();
        let cqs = of(|peer| peer.cq.number);
        let qps = of(|peer| peer.qp.number);
        let mrs = of(|peer| peer.mr.keys.lkey);
        (self.pair.a.ctx.info.limits.page, [cqs, qps, mrs])
    }
}

/// Rings doorbells that are violations, and checks that they are counted, or are not.
fn counted(host: &mut Host, expected: u64, ring: impl FnOnce() -> Result<()>) -> Result<()> {
    let before = host.get(0, "violations")?;
    ring()?;
    let counted = host.get(0, "violations")? - before;
    ensure!(counted == expected, "{counted} violations, not {expected}");
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
        devices::reset(&address)?;
        let mut old = World::new()?;
        old.pair.exchange(&mut rng)?;
        // Its page is mapped and touched; the child touches it again after the reset.
        let mut toucher = Child::start(|link| {
            let ctx = Context::open(0)?;
            ctx.page.load(0);
            link.tell(1)?;
            link.hear()?;
            ctx.page.ring(0, u32::MAX, 0);
            Ok(())
        })?;
        toucher.link().hear()?;
        devices::reset(&address)?;
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

        let [pds, cqs, qps, mrs] = old.handles();
        for (kind, handles) in [
            (Kind::Qp, qps),
            (Kind::Mr, mrs),
            (Kind::Cq, cqs),
            (Kind::Pd, pds),
        ] {
            for handle in handles {
                // The core forgets what is left of the old object, or refuses.
                let _ = old.pair.a.ctx.destroy(kind, handle);
            }
        }
        let now = host.get(0, "objects")?;
        ensure!(
            now == objects,
            "{now} objects instead of {objects} after handles of before were destroyed"
        );
        // The core has put another page in the place of the doorbells.
        counted(&mut host, 0, || {
            toucher.link().tell(1)?;
            toucher.done().context("a doorbell of before the reset")
        })?;
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
        counted(&mut host, 1, || {
            new.pair.a.ctx.page.ring(0, u32::MAX, 0);
            Ok(())
        })
        .with_context(place)?;
        // The page is not assigned twice.
        let page = Context::open(0)?.info.limits.page;
        let taken = [new.numbers().0, beside.info.limits.page];
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
) -> Result<Vec<Result<u32, Errno>>> {
    host.set(0, "stall", true)?;
    let before = host.get(0, "sq-doorbells")?;
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..SLOTS).map(|_| scope.spawn(|| ctx.alloc_pd())).collect();
        let posted = wait::until("a command in each slot", || {
            Ok(host.get(0, "sq-doorbells")? == before + SLOTS as u64)
        });
        let done = posted.and_then(|()| meanwhile(host));
        host.set(0, "stall", false)?;
        let results = threads
            .into_iter()
            .map(|thread| thread.join().unwrap_or(Err(Errno::UnknownErrno)));
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
            ensure!(result == Err(Errno::EIO), "round {round}: {result:?}");
        }
        let new = wait::for_some("a device that was reset", || {
            let fresh = Context::open(0).ok();
            Ok(fresh.filter(|ctx| ctx.info.limits.epoch == old.info.limits.epoch + 1))
        })?;
        for result in in_all_slots(&mut host, &new, |_| Ok(()))? {
            result.with_context(|| format!("round {round}, after the reset"))?;
        }
    }
    works(0, &mut setup.rng())
}
