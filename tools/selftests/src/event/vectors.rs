// SPDX-License-Identifier: GPL-2.0
//! Vectors: their number, their CPUs, and CPU hotplug.

use std::collections::BTreeMap;
use std::fs;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering;
use std::time::Duration;

use anyhow::ensure;
use anyhow::Context as _;
use anyhow::Result;
use nix::errno::Errno;

use super::of_eq;
use super::Loop;
use crate::host::Host;
use crate::ktap::Setup;
use crate::raw::Buffer;
use crate::raw::Context;
use crate::raw::Cq;
use crate::wait;
use crate::world;
use crate::world::Log;

const CPUS: &str = "/sys/devices/system/cpu";

/// The CPUs of a list such as `0-2,5`.
fn list(text: &str) -> Result<Vec<u32>> {
    let mut cpus = Vec::new();
    for part in text.trim().split(',').filter(|part| !part.is_empty()) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        cpus.extend(first.parse::<u32>()?..=last.parse()?);
    }
    Ok(cpus)
}

fn online() -> Result<Vec<u32>> {
    list(&world::text(format!("{CPUS}/online"))?)
}

/// The interrupt of a vector, and its count on each CPU.
fn interrupt(vector: u32) -> Result<(u32, BTreeMap<u32, u64>)> {
    let text = world::text("/proc/interrupts")?;
    let mut lines = text.lines();
    let cpus = lines.next().context("no headings")?.split_whitespace();
    let cpus = cpus.map(|cpu| cpu.trim_start_matches("CPU").parse::<u32>());
    let name = format!("qpair0-eq{vector}");
    let line = lines
        .find(|line| line.split_whitespace().last() == Some(&name))
        .with_context(|| format!("{name} is not in /proc/interrupts"))?;
    let mut words = line.split_whitespace();
    let irq = words.next().context("no number")?.trim_end_matches(':');
    let counts = cpus
        .zip(words)
        .map(|(cpu, count)| Ok((cpu?, count.parse()?)));
    Ok((irq.parse()?, counts.collect::<Result<_>>()?))
}

/// The CPUs that a vector may interrupt.
fn affinity(vector: u32) -> Result<Vec<u32>> {
    cpus_of(vector, "smp_affinity_list")
}

/// A file of a vector's interrupt, which is a list of CPUs.
fn cpus_of(vector: u32, name: &str) -> Result<Vec<u32>> {
    let (irq, _) = interrupt(vector)?;
    list(&world::text(format!("/proc/irq/{irq}/{name}"))?)
}

/// Sets a vector's affinity, as an administrator does.
fn place(vector: u32, cpus: &[u32]) -> Result<()> {
    let (irq, _) = interrupt(vector)?;
    let cpus: Vec<String> = cpus.iter().map(ToString::to_string).collect();
    world::put(
        format!("/proc/irq/{irq}/smp_affinity_list"),
        &cpus.join(","),
    )
}

/// Whether the vectors are spread over the online CPUs in turn.
fn spread(vectors: u32) -> Result<bool> {
    let online = online()?;
    for vector in 0..vectors {
        let cpu = online[vector as usize % online.len()];
        if affinity(vector)? != [cpu] {
            return Ok(false);
        }
    }
    Ok(true)
}

/// One vector for each possible CPU and at least four, as far as the device has them; a request for
/// one more fails.
pub(super) fn as_many_as_wanted(_: &Setup) -> Result<()> {
    let has = Host::call()?.get(0, "eqs")? as u32;
    let possible = list(&world::text(format!("{CPUS}/possible"))?)?.len() as u32;
    let ctx = Context::open(0)?;
    let vectors = ctx.info.vectors;
    ensure!(
        vectors == has.min(possible.max(4)),
        "{vectors} vectors of a device that has {has}, with {possible} CPUs"
    );
    let refused = Cq::in_buffer(&ctx, 64, vectors, Buffer::new(4096)?, None).map(drop);
    ensure!(
        refused == Err(Errno::EINVAL),
        "a vector too much: {refused:?}"
    );
    for vector in 0..vectors {
        let before = of_eq(vector, "interrupts")?;
        Loop::new(&ctx, vector)?
            .turn()
            .with_context(|| format!("vector {vector}"))?;
        ensure!(
            of_eq(vector, "interrupts")? > before,
            "the event came by another vector than {vector}"
        );
    }
    Ok(())
}

/// Whether each vector is on online CPUs.
fn reachable(vectors: u32) -> Result<bool> {
    let online = online()?;
    for vector in 0..vectors {
        let cpus = cpus_of(vector, "effective_affinity_list")?;
        if cpus.is_empty() || !cpus.iter().all(|cpu| online.contains(cpu)) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// The interrupts are spread over the online CPUs, and are delivered there.
pub(super) fn one_cpu_each(_: &Setup) -> Result<()> {
    let ctx = Context::open(0)?;
    ensure!(spread(ctx.info.vectors)?, "not spread over the CPUs");
    for vector in 0..ctx.info.vectors.min(8) {
        let mut events = Loop::new(&ctx, vector)?;
        // A moved interrupt may still reach its old CPU once.
        events.turn()?;
        events.turn()?;
        let (_, before) = interrupt(vector)?;
        for _ in 0..10 {
            events.turn()?;
        }
        let (_, after) = interrupt(vector)?;
        let mine = affinity(vector)?;
        for (cpu, count) in after {
            let came = count - before.get(&cpu).copied().unwrap_or(0);
            ensure!(
                (came != 0) == mine.contains(&cpu),
                "vector {vector} belongs to CPU {mine:?}; {came} interrupts came to CPU {cpu}"
            );
        }
    }
    Ok(())
}

/// The driver soon detects a lost interrupt: on the last EQ, one in the middle, and the first.
pub(super) fn lost_interrupts(_: &Setup) -> Result<()> {
    let mut host = Host::call()?;
    let ctx = Context::open(0)?;
    let mut log = Log::mark()?;
    let last = ctx.info.vectors - 1;
    let mut vectors = vec![last, last / 2, 0];
    vectors.dedup();
    let mut reports = Vec::new();
    for vector in vectors {
        let mut events = Loop::new(&ctx, vector)?;
        let before = of_eq(vector, "lost")?;
        // `of_eq` schedules a poll of each EQ. A poll that runs late finds the event before the check.
        let mut tries = 5;
        while of_eq(vector, "lost")? == before {
            ensure!(tries != 0, "it was not counted");
            tries -= 1;
            host.set(0, "drop-interrupts", 1)?;
            events.turn().with_context(|| {
                format!("the event whose interrupt was lost, on vector {vector}")
            })?;
            ensure!(
                host.get(0, "drop-interrupts")? == 0,
                "no interrupt was lost on vector {vector}"
            );
        }
        ensure!(of_eq(vector, "lost")? == before + 1, "counted twice");
        // Afterwards events are delivered by interrupts again.
        events.turn()?;
        ensure!(
            of_eq(vector, "lost")? == before + 1,
            "one too much was counted"
        );
        // Each count that is a power of two is reported.
        if (before + 1).is_power_of_two() {
            reports.push(format!("EQ {vector}: lost interrupt ({})", before + 1));
        }
    }
    let lines = log.lines()?;
    for report in reports {
        ensure!(
            lines.iter().any(|(_, text)| text.contains(&report)),
            "the log has no '{report}'"
        );
    }
    Ok(())
}

/// Switches a CPU on or off.
fn switch(cpu: u32, on: bool) -> Result<()> {
    world::put(
        format!("{CPUS}/cpu{cpu}/online"),
        if on { "1" } else { "0" },
    )
    .with_context(|| format!("CPU {cpu}"))
}

/// CPUs that are switched on again on drop.
struct Guard(Vec<u32>);

impl Drop for Guard {
    fn drop(&mut self) {
        for cpu in &self.0 {
            let _ = switch(*cpu, true);
        }
    }
}

/// Vectors whose affinity is restored on drop.
struct Places(Vec<(u32, Vec<u32>)>);

impl Drop for Places {
    fn drop(&mut self) {
        for (vector, cpus) in &self.0 {
            let _ = place(*vector, cpus);
        }
    }
}

/// Longer than the interval of the driver's check for lost interrupts.
const LOOK: Duration = Duration::from_millis(1500);

/// Under load each CPU but the first goes offline and online: events go on, and the check for lost
/// interrupts finds none. The kernel keeps each vector on an online CPU, and the driver moves none:
/// an affinity that was set is kept.
pub(super) fn cpus_come_and_go(_: &Setup) -> Result<()> {
    let ctx = Context::open(0)?;
    let vectors = ctx.info.vectors;
    let cpus: Vec<u32> = online()?.into_iter().filter(|cpu| *cpu != 0).collect();
    ensure!(
        !cpus.is_empty(),
        "one CPU is not enough: give the guest --smp 2"
    );
    for cpu in &cpus {
        let path = format!("{CPUS}/cpu{cpu}/online");
        ensure!(fs::exists(&path)?, "{path}: this kernel keeps all CPUs");
    }
    let lost = || -> Result<u64> { (0..vectors).map(|eq| of_eq(eq, "lost")).sum() };
    let before = lost()?;
    let affinities = (0..vectors).map(|vector| Ok((vector, affinity(vector)?)));
    let _places = Places(affinities.collect::<Result<_>>()?);
    let guard = Guard(cpus.clone());
    // CPU 0 stays online, so a vector on it must not move.
    let placed = vectors - 1;
    place(placed, &[0])?;
    let (stop, turns) = (AtomicBool::new(false), AtomicU64::new(0));
    // Some CQs, on each vector or on the last ones.
    let mut loops = Vec::new();
    for vector in vectors.saturating_sub(8)..vectors {
        loops.push(Loop::new(&ctx, vector)?);
    }
    std::thread::scope(|scope| {
        let load = scope.spawn(|| -> Result<()> {
            while !stop.load(Ordering::Relaxed) {
                loops.iter_mut().for_each(Loop::begin);
                for events in &mut loops {
                    events.finish()?;
                }
                turns.fetch_add(1, Ordering::Relaxed);
            }
            Ok(())
        });
        let go_on = |what: &str| -> Result<()> {
            let begun = turns.load(Ordering::Relaxed);
            wait::until(what, || Ok(turns.load(Ordering::Relaxed) >= begun + 20))
        };
        let moved = || wait::until("interrupts on CPUs that are online", || reachable(vectors));
        let drill = || -> Result<()> {
            go_on("events")?;
            for (round, cpu) in cpus.iter().enumerate() {
                switch(*cpu, false)?;
                go_on("events without a CPU")?;
                if round == 0 {
                    moved().context("without a CPU")?;
                }
                switch(*cpu, true)?;
                go_on("events with a CPU that has returned")?;
            }
            for cpu in &cpus {
                switch(*cpu, false)?;
            }
            go_on("events on one CPU")?;
            moved().context("on one CPU")?;
            for cpu in &cpus {
                switch(*cpu, true)?;
            }
            moved().context("with all CPUs again")?;
            std::thread::sleep(LOOK);
            let now = affinity(placed)?;
            ensure!(
                now == [0],
                "vector {placed} was put on CPU 0, and is on {now:?}"
            );
            go_on("events on all CPUs")
        };
        let result = drill();
        stop.store(true, Ordering::Relaxed);
        let load = load.join();
        result?;
        load.unwrap_or_else(|_| Err(anyhow::anyhow!("the load panicked")))
    })?;
    drop(guard);
    let found = lost()? - before;
    ensure!(found == 0, "{found} interrupts were lost with a CPU");
    Ok(())
}
