// SPDX-License-Identifier: GPL-2.0
//! Settings that can change at run time: moderation and polls.

use std::sync::atomic::AtomicBool;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering;
use std::time::Instant;

use anyhow::ensure;
use anyhow::Context as _;
use anyhow::Result;

use super::knob;
use super::of_eq;
use super::set_knob;
use super::Kept;
use super::Loop;
use crate::host::Host;
use crate::ktap::Setup;
use crate::raw::Context;
use crate::raw::Pd;
use crate::wait;
use crate::world;

/// Valid settings are read back in their long form, and invalid ones change nothing.
pub(super) fn modes(_: &Setup) -> Result<()> {
    let _kept = Kept::all()?;
    for (said, read) in [
        ("off", "off"),
        ("fixed 16 50", "fixed 16 50"),
        ("0 0", "off"),
        ("65535 65535", "fixed 65535 65535"),
        ("adaptive", "adaptive 10000"),
        ("adaptive 1", "adaptive 1"),
        ("1 1", "fixed 1 1"),
    ] {
        set_knob("moderation", said)?;
        ensure!(
            knob("moderation")? == read,
            "{said:?} is {:?}",
            knob("moderation")?
        );
    }
    for said in [
        "on",
        "16",
        "16 0",
        "0 50",
        "65536 1",
        "1 2 3",
        "fixed",
        "fixed 1",
        "adaptive 0",
        "adaptive -1",
    ] {
        ensure!(
            set_knob("moderation", said).is_err(),
            "{said:?} was accepted"
        );
        ensure!(
            knob("moderation")? == "fixed 1 1",
            "{said:?} has changed it"
        );
    }
    let setting = (of_eq(0, "count")?, of_eq(0, "usecs")?);
    ensure!(setting == (1, 1), "EQ 0 has {setting:?}");
    Ok(())
}

/// Attempts of a measurement that another poll may disturb.
const TRIES: usize = 5;

/// A fixed count collects exactly that many events; fewer are reported when the time is over.
pub(super) fn fixed_collects(_: &Setup) -> Result<()> {
    let _kept = Kept::all()?;
    let ctx = Context::open(0)?;
    let pd = Pd::new(&ctx)?;
    let vector = ctx.info.vectors - 1;
    let mut loops = Vec::new();
    for _ in 0..8 {
        loops.push(Loop::in_domain(&ctx, &pd, vector)?);
    }
    // A command's completion would be another event on EQ 0, so the commands run before.
    for (count, begun, least, most) in [
        (8, 8, 1, 2),
        (4, 8, 1, 3),
        (1, 8, 1, 8),
        (9, 8, 1, 2),
        (2, 1, 1, 1),
    ] {
        set_knob("moderation", &format!("fixed {count} 60000"))?;
        let asked = if vector == 0 { 3 } else { 0 };
        let mut seen = Vec::new();
        // A late poll with another cause may consume events before their interrupt; that may happen
        // once, but not always.
        while !seen
            .last()
            .is_some_and(|came| (least..=most + asked).contains(came))
        {
            ensure!(
                seen.len() < TRIES,
                "{seen:?} interrupts for {begun} events, fixed {count}"
            );
            let before = of_eq(vector, "interrupts")?;
            loops[..begun].iter_mut().for_each(Loop::begin);
            for events in &mut loops[..begun] {
                events
                    .finish()
                    .with_context(|| format!("{begun} events, fixed {count}"))?;
            }
            seen.push(of_eq(vector, "interrupts")? - before);
        }
    }
    Ok(())
}

/// Runs rounds of eight events on a vector while `body` runs.
fn under_load(vector: u32, body: impl FnOnce(&AtomicU64) -> Result<()>) -> Result<()> {
    let ctx = Context::open(0)?;
    let pd = Pd::new(&ctx)?;
    let mut loops = Vec::new();
    for _ in 0..8 {
        loops.push(Loop::in_domain(&ctx, &pd, vector)?);
    }
    let (stop, rounds) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        let load = scope.spawn(|| -> Result<()> {
            while !stop.load(Ordering::Relaxed) {
                loops.iter_mut().for_each(Loop::begin);
                for events in &mut loops {
                    events.finish()?;
                }
                rounds.fetch_add(1, Ordering::Relaxed);
            }
            Ok(())
        });
        let result = body(&rounds);
        stop.store(true, Ordering::Relaxed);
        let load = load.join();
        result?;
        load.unwrap_or_else(|_| Err(anyhow::anyhow!("the load panicked")))
    })
}

/// Interrupts and events of an EQ during this many more rounds.
fn measure(vector: u32, rounds: &AtomicU64, more: u64) -> Result<(u64, u64)> {
    let look =
        || -> Result<(u64, u64)> { Ok((of_eq(vector, "interrupts")?, of_eq(vector, "events")?)) };
    let (end, before) = (rounds.load(Ordering::Relaxed) + more, look()?);
    wait::until("rounds", || Ok(rounds.load(Ordering::Relaxed) >= end))?;
    let after = look()?;
    Ok((after.0 - before.0, after.1 - before.1))
}

/// A busy EQ is moderated, and no other EQ is; the number of interrupts falls.
pub(super) fn adaptive_follows_the_load(_: &Setup) -> Result<()> {
    let mut host = Host::call()?;
    let _kept = Kept::all()?;
    let vector = Context::open(0)?.info.vectors - 1;
    set_knob("moderation", "off")?;
    // A device that is slower than the driver, so that each event has its own interrupt.
    host.set(0, "wqe-ns", 300_000)?;
    let drill = || {
        under_load(vector, |rounds| {
            let (interrupts, events) = measure(vector, rounds, 50)?;
            ensure!(of_eq(vector, "count")? == 0, "moderated although it is off");
            // Far below this load, so that there are events to collect.
            set_knob("moderation", "adaptive 200")?;
            wait::until(
                "moderation of a busy EQ",
                || Ok(of_eq(vector, "count")? > 2),
            )?;
            // The controller needs several samples to find the count.
            let mut seen = Vec::new();
            loop {
                let (fewer, same) = measure(vector, rounds, 50)?;
                seen.push(format!("{fewer}/{same}"));
                // Not compared with `interrupts`: on a busy host some of them have several events.
                if 2 * fewer <= same {
                    break;
                }
                ensure!(
                    seen.len() < TRIES,
                    "interrupts for events: off {interrupts}/{events}, adaptive {seen:?}"
                );
            }
            crate::ktap::say(&format!(
                "interrupts for events: off {interrupts}/{events}, adaptive {seen:?}"
            ));
            for other in 1..vector {
                ensure!(
                    of_eq(other, "count")? == 0,
                    "EQ {other} does nothing and is moderated"
                );
            }
            Ok(())
        })
    };
    let result = drill();
    host.set(0, "wqe-ns", 0)?;
    result?;
    wait::until("no moderation of an idle EQ", || {
        Ok(of_eq(vector, "count")? == 0)
    })
}

/// However fast processes arm, adaptive moderation keeps an EQ below four targets a second.
pub(super) fn interrupts_have_a_ceiling(_: &Setup) -> Result<()> {
    const TARGET: u64 = 50;
    const CAP: u64 = 4 * TARGET;
    let _kept = Kept::all()?;
    let vector = Context::open(0)?.info.vectors - 1;
    set_knob("moderation", "off")?;
    under_load(vector, |rounds| {
        let speed = |more| -> Result<f64> {
            let start = Instant::now();
            let (interrupts, _) = measure(vector, rounds, more)?;
            Ok(interrupts as f64 / start.elapsed().as_secs_f64())
        };
        let mut free = 0.0;
        wait::until("a load of interrupts", || {
            free = speed(200)?;
            Ok(free > 1.5 * CAP as f64)
        })?;
        set_knob("moderation", &format!("adaptive {TARGET}"))?;
        // The controller first collects up to these eight events, and then limits the rate.
        let mut held = free;
        wait::until("interrupts below the ceiling", || {
            // A trial of the controller may be below the limit once.
            for _ in 0..3 {
                held = speed(100)?;
                if held > 1.1 * CAP as f64 {
                    return Ok(false);
                }
            }
            Ok(true)
        })?;
        crate::ktap::say(&format!(
            "interrupts a second: off {free:.0}, adaptive {held:.0}"
        ));
        Ok(())
    })
}

/// Every small value, and the values around each power of two up to the depth of the EQ; a third
/// of them in a brief run on a debug kernel.
fn values(most: u32) -> Vec<u32> {
    let mut values: Vec<u32> = (1..=16).collect();
    let mut power = 32;
    while power <= most {
        values.extend([power - 1, power, power + 1]);
        power *= 2;
    }
    values.retain(|value| *value <= most);
    let every = if world::is_brief() { 3 } else { 1 };
    values.into_iter().step_by(every).collect()
}

/// n, k, budget and moderation at all of these values, each changed while events are pending and
/// the kernel's own queue pairs move and verify data.
pub(super) fn values_change_while_running(setup: &Setup) -> Result<()> {
    let _kept = Kept::all()?;
    let mut rng = setup.rng();
    let vector = Context::open(0)?.info.vectors - 1;
    let depth = of_eq(vector, "depth")? as u32;
    let loopback = || -> Result<()> {
        set_knob("loopback", "qps=64 depth=32 count=400 op=send verify=1")?;
        ensure!(
            knob("loopback")?.starts_with("result=ok"),
            "{}",
            knob("loopback")?
        );
        Ok(())
    };
    under_load(vector, |rounds| {
        let go_on = |what: &str| {
            let end = rounds.load(Ordering::Relaxed) + 2;
            wait::until(what, || Ok(rounds.load(Ordering::Relaxed) >= end))
        };
        for policy in ["1", "0"] {
            set_knob("policy", policy)?;
            let stop = AtomicBool::new(false);
            std::thread::scope(|scope| {
                let moves = scope.spawn(|| -> Result<u32> {
                    let mut runs = 0;
                    while !stop.load(Ordering::Relaxed) || runs == 0 {
                        loopback()?;
                        runs += 1;
                    }
                    Ok(runs)
                });
                let mut walk = || -> Result<()> {
                    for name in ["events", "completions", "budget"] {
                        for value in values(depth) {
                            set_knob(name, &value.to_string())?;
                            go_on(&format!("events with {name}={value}, policy={policy}"))?;
                        }
                        set_knob(name, &rng.u32(1..=depth).to_string())?;
                    }
                    for count in values(depth) {
                        let usecs = rng.u32(1..500);
                        set_knob("moderation", &format!("fixed {count} {usecs}"))?;
                        go_on(&format!(
                            "events with moderation {count} {usecs}, policy={policy}"
                        ))?;
                    }
                    set_knob("moderation", "off")
                };
                let result = walk();
                stop.store(true, Ordering::Relaxed);
                let moves = moves.join();
                result?;
                moves.unwrap_or_else(|_| Err(anyhow::anyhow!("the loopback panicked")))
            })?;
        }
        Ok(())
    })
}
