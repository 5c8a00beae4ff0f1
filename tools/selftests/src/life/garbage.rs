// SPDX-License-Identifier: GPL-2.0
//! Garbage in what the device writes: in the words of its entries and answers, and in its registers.

use std::iter;

use anyhow::ensure;
use anyhow::Context as _;
use anyhow::Result;

use super::load::Load;
use super::load::Work;
use crate::devices;
use crate::host::Host;
use crate::ktap::say;
use crate::ktap::Setup;
use crate::pair::works;
use crate::pair::Peer;
use crate::raw::Context;
use crate::wait;
use crate::world;
use crate::world::Baseline;

/// What the device writes, and the last of so many occasions that may be garbage. A bring-up reads
/// about as many registers.
const WRITTEN: [(&str, u32); 13] = [
    ("cqe:0", 12),
    ("cqe:1", 12),
    ("cqe:2", 12),
    ("cqe:3", 12),
    ("eqe:0", 12),
    ("eqe:1", 12),
    ("answer:0", 4),
    ("answer:1", 4),
    ("answer:2", 4),
    ("answer:3", 4),
    ("register", 15),
    ("register", 30),
    ("register", 60),
];

/// One of the occasions is garbage: the rule.
fn rule(rng: &mut fastrand::Rng, (written, occasions): (&str, u32)) -> String {
    format!("garble={written},nth={}", rng.u32(1..=occasions))
}

/// Makes the driver read what the device writes. It may fail, as the device does.
fn read(address: &str, written: &str) {
    let queried = || -> Result<()> {
        let ctx = Context::open(0)?;
        ctx.counters()?;
        Peer::new(&ctx, 4096)?.qp.query()?;
        Ok(())
    };
    let _: Result<()> = match written {
        "register" => devices::reset(address),
        _ if written.starts_with("answer") => queried(),
        _ => Ok(()),
    };
}

/// Under load the rules make garbage. Returns what they did, when the first has or the device has
/// failed by the others.
fn struck(
    host: &mut Host,
    rng: &mut fastrand::Rng,
    address: &str,
    written: &str,
    rules: &str,
) -> Result<String> {
    let others: Vec<Work> = (0..2).map(|_| Work::any(rng)).collect();
    let works_on: Vec<Work> = iter::once(Work::Events).chain(others).collect();
    let load = Load::start(rng, 0, &works_on, true)?;
    host.set(0, "faults", rules)?;
    let did = wait::for_some("garbage", || {
        read(address, written);
        let did = host.text(0, "faults-injected")?;
        let fails = Context::open(0).is_err();
        Ok((did.starts_with("garble 1") || fails).then_some(did))
    });
    // Also if there was none: the next case has no rules.
    host.set(0, "faults", "")?;
    load.abandoned()?;
    did
}

/// Each word that the device writes is garbage once by itself, and once with a second one. No
/// process, no client of the kernel and no command waits for ever, and after a reset the device
/// works.
pub(super) fn garbage_in_each_word(setup: &Setup) -> Result<()> {
    let mut host = Host::call()?;
    let mut rng = setup.rng();
    let before = Baseline::take()?;
    let address = world::function(0)?;
    let mut rounds = 0;
    let mut hits = 0;
    for _ in 0..world::rounds(2, 1) {
        for place in WRITTEN {
            for pairs in [false, true] {
                let mut rules = format!("seed={};{}", rng.u32(..), rule(&mut rng, place));
                if pairs {
                    let second = WRITTEN[rng.usize(0..WRITTEN.len())];
                    rules += &format!(";{}", rule(&mut rng, second));
                }
                let said = || rules.clone();
                let did =
                    struck(&mut host, &mut rng, &address, place.0, &rules).with_context(said)?;
                rounds += 1;
                hits += u32::from(did.starts_with("garble 1"));
                wait::until("a device that can be reset", || {
                    Ok(devices::reset(&address).is_ok() && works(0, &mut rng).is_ok())
                })
                .with_context(said)?;
                before.settled().with_context(said)?;
            }
        }
    }
    say(&format!(
        "{rounds} rounds, {hits} with garbage in their first word"
    ));
    ensure!(hits > rounds / 2, "the rules did nothing");
    Ok(())
}
