// SPDX-License-Identifier: GPL-2.0
//! QEMU makes the device misbehave: late interrupts, failing commands, garbage in its entries,
//! stops, disappearance.

use std::time::Instant;

use anyhow::ensure;
use anyhow::Context as _;
use anyhow::Result;
use nix::errno::Errno;
use qpair_abi::counters::Counter;
use qpair_abi::entry::opcode;
use qpair_abi::entry::OWNER;
use qpair_abi::status::Event;
use qpair_uverbs::abi::event;
use qpair_uverbs::abi::qp_state;
use qpair_uverbs::abi::PORT_ACTIVE;
use serde_json::json;

use super::load::is_dead;
use super::load::is_refused;
use super::load::told_of_the_end;
use crate::devices;
use crate::host::Host;
use crate::ktap::Setup;
use crate::pair::works;
use crate::pair::Bystander;
use crate::pair::Pair;
use crate::pair::Peer;
use crate::raw::page_size;
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
use crate::world::Baseline;

/// QEMU and the driver report the same counters.
pub(super) fn counters(setup: &Setup) -> Result<()> {
    let mut host = Host::call()?;
    let mut pair = Pair::open(0)?;
    pair.exchange(&mut setup.rng())?;
    let from_driver = pair.a.ctx.counters()?;
    // Counters that the query itself does not change.
    for counter in [
        Counter::SendBytes,
        Counter::WriteBytes,
        Counter::ReadBytes,
        Counter::SqDoorbells,
        Counter::SendWqes,
        Counter::RecvWqes,
        Counter::Violations,
        Counter::Errors,
        Counter::CqOverruns,
    ] {
        let (here, there) = (from_driver[counter as usize], host.get(0, counter.name())?);
        ensure!(
            here == there,
            "{}: the driver says {here}, QEMU {there}",
            counter.name()
        );
    }
    Ok(())
}

/// A queue pair with itself on a vector.
fn on_vector(ctx: &std::sync::Arc<Context>, vector: u32) -> Result<(Cq, Qp, Pd)> {
    let pd = Pd::new(ctx)?;
    let cq = Cq::on(ctx, 64, vector)?;
    let qp = Qp::new(&pd, &cq, &cq, QpShape::default())?;
    qp.connect(qp.number)?;
    Ok((cq, qp, pd))
}

pub(super) fn late_interrupts(setup: &Setup) -> Result<()> {
    let mut host = Host::call()?;
    let ctx = Context::open(0)?;
    let (mut cq, mut qp, _pd) = on_vector(&ctx, 0)?;
    host.set(0, "delay-interrupts-ns", 100_000_000)?;
    for number in 0..5 {
        cq.arm();
        qp.post(&Wqe::new(opcode::NOP, number));
        wait::readable(cq.eventfd().context("eventfd")?, "a late event")?;
        ensure!(cq.events()? == 1 && cq.take()?.wr_id == number);
    }
    host.set(0, "delay-interrupts-ns", 0)?;
    works(0, &mut setup.rng())
}

/// A core that stands still is only slow.
pub(super) fn stalled_core(setup: &Setup) -> Result<()> {
    let mut host = Host::call()?;
    let mut pair = Pair::open(0)?;
    let before = host.get(0, "send-wqes")?;
    host.set(0, "stall", true)?;
    pair.a.qp.post(&Wqe::new(opcode::NOP, 1));
    // QEMU has processed the doorbell when it returns the count.
    let stalled = host.get(0, "send-wqes")?;
    let idle = pair.a.idle();
    host.set(0, "stall", false)?;
    idle.context("a stalled core did something")?;
    ensure!(
        stalled == before,
        "a stalled core fetched {} WQEs",
        stalled - before
    );
    pair.a.done(1)?;
    pair.exchange(&mut setup.rng())
}

/// The port has the state of the link, and each context gets the events. Messages within the
/// function need no link.
pub(super) fn link(setup: &Setup) -> Result<()> {
    const DOWN: u8 = 1;
    let mut host = Host::call()?;
    let mut pair = Pair::open(0)?;
    let other = Context::open(0)?;
    let changes = [
        (true, DOWN, event::PORT_ERR),
        (false, PORT_ACTIVE, event::PORT_ACTIVE),
    ];
    for round in 0..4 {
        for (down, state, kind) in changes {
            host.set(0, "link-down", down)?;
            for ctx in [&pair.a.ctx, &other] {
                let event = wait::for_some("a port event", || Ok(ctx.async_event()?))?;
                ensure!(
                    event.kind == kind && event.element == 1,
                    "round {round}: {event:?}"
                );
                let now = ctx.query_port()?.state;
                ensure!(now == state, "round {round}: the port's state is {now}");
            }
            pair.exchange(&mut setup.rng())?;
        }
    }
    // A reset does not change the link.
    host.set(0, "link-down", true)?;
    devices::reset(&world::function(0)?)?;
    ensure!(
        Context::open(0)?.query_port()?.state == DOWN,
        "up after a reset"
    );
    host.set(0, "link-down", false)?;
    let ctx = Context::open(0)?;
    let up = || Ok(ctx.query_port()?.state == PORT_ACTIVE);
    wait::until("the link", up)
}

/// A create without a completion may have been executed: the device may use the memory until the
/// reset.
pub(super) fn unanswered_create(setup: &Setup) -> Result<()> {
    const PAGES: i64 = 256;
    let mut host = Host::call()?;
    let before = Baseline::take()?;
    // The reset may happen at once and free the memory, but not every time.
    let end = Instant::now() + wait::patience();
    loop {
        let ctx = Context::open(0)?;
        let epoch = ctx.info.limits.epoch;
        let pd = Pd::new(&ctx)?;
        let memory = Buffer::new(PAGES as usize * page_size())?;
        let pinned = world::pinned_pages()?;
        host.set(0, "stall", true)?;
        let result = Mr::all(&pd, &memory).map(drop);
        let kept = world::pinned_pages()? >= pinned + PAGES;
        host.set(0, "stall", false)?;
        ensure!(
            result == Err(Errno::EIO),
            "REG_MR of a device that does not answer gave {result:?}"
        );
        wait::until("a device that was reset", || {
            Ok(Context::open(0).is_ok_and(|ctx| ctx.info.limits.epoch != epoch))
        })?;
        if kept {
            break;
        }
        ensure!(
            Instant::now() < end,
            "the pages were free before the device was quiet"
        );
    }
    before.settled()?;
    works(0, &mut setup.rng())
}

/// A device that completes commands is slow, not fatal: the last of four commands completes 16
/// seconds after it was posted.
pub(super) fn slow_commands(setup: &Setup) -> Result<()> {
    const FILES: u64 = 4;
    // The first must complete in 10 seconds, including the time until all are posted.
    const EACH_NS: u64 = 4_000_000_000;
    let mut host = Host::call()?;
    // A file permits one call at a time.
    let files = contexts(FILES as usize)?;
    host.set(0, "stall", true)?;
    let before = host.get(0, "sq-doorbells")?;
    host.set(0, "wqe-ns", EACH_NS)?;
    let answers = std::thread::scope(|scope| {
        let call = |ctx| scope.spawn(move || Pd::new(ctx));
        let calls: Vec<_> = files.iter().map(call).collect();
        let posted = wait::until("commands in the ring", || {
            Ok(host.get(0, "sq-doorbells")? == before + FILES)
        });
        host.set(0, "stall", false)?;
        posted?;
        calls
            .into_iter()
            .map(|call| Ok(call.join().expect("a thread that does not panic")?))
            .collect::<Result<Vec<_>>>()
    });
    host.set(0, "wqe-ns", 0)?;
    answers.context("a command of a slow device")?;
    let epoch = Context::open(0)?.info.limits.epoch;
    ensure!(epoch == files[0].info.limits.epoch, "the device was reset");
    works(0, &mut setup.rng())
}

/// Open files of the device.
fn contexts(count: usize) -> Result<Vec<std::sync::Arc<Context>>> {
    (0..count).map(|_| Context::open(0)).collect()
}

/// Threads of this process in an uninterruptible sleep.
fn asleep() -> Result<usize> {
    let mut count = 0;
    for task in std::fs::read_dir("/proc/self/task")? {
        let stat = world::text(task?.path().join("stat"))?;
        let state = stat.rsplit_once(") ").context("a state")?.1;
        count += usize::from(state.starts_with('D'));
    }
    Ok(count)
}

/// More threads wait for commands than the admin queue has slots when the device stops responding:
/// all calls return, whatever happens to the device.
pub(super) fn more_waiters_than_slots(setup: &Setup) -> Result<()> {
    const SLOTS: u64 = 32;
    const THREADS: usize = 72;
    let mut host = Host::call()?;
    let address = world::function(0)?;
    let before = Baseline::take()?;
    for unbinds in [false, true] {
        let files = contexts(THREADS)?;
        host.set(0, "stall", true)?;
        let rung = host.get(0, "sq-doorbells")?;
        let results = std::thread::scope(|scope| {
            let call = |ctx| scope.spawn(move || Pd::new(ctx).map(drop));
            let calls: Vec<_> = files.iter().map(call).collect();
            wait::until("threads in commands", || Ok(asleep()? == THREADS))?;
            let posted = host.get(0, "sq-doorbells")? - rung;
            ensure!(posted == SLOTS, "{posted} commands in the ring");
            if unbinds {
                host.set(0, "vanish", true)?;
                devices::remove(&address)?;
            } else {
                host.set(0, "fatal", true)?;
            }
            let ends = calls.into_iter().map(|call| call.join());
            Ok(ends.collect::<Vec<_>>())
        });
        host.set(0, "stall", false)?;
        for result in results? {
            let result = result.expect("a thread that does not panic");
            ensure!(
                matches!(result, Err(Errno::EIO | Errno::ENODEV)),
                "ALLOC_PD of a device that is silent gave {result:?}"
            );
        }
        drop(files);
        let device = if unbinds {
            // The device returns as after a hot plug: the commands in its SQ were lost with its
            // power.
            host.set(0, "restart", true)?;
            host.set(0, "vanish", false)?;
            devices::rescan(&address)?
        } else {
            0
        };
        wait::until("a device that works", || {
            Ok(works(device, &mut setup.rng()).is_ok())
        })?;
        before.settled()?;
    }
    Ok(())
}

/// Each command fails once, at any place in its ioctl: nothing is left behind.
pub(super) fn failing_commands(setup: &Setup) -> Result<()> {
    let mut host = Host::call()?;
    let mut others = Bystander::new(0, setup.rng())?;
    let ctx = Context::open(0)?;
    let (pd, cq) = (Pd::new(&ctx)?, Cq::new(&ctx, 256)?);
    let qp = Qp::new(&pd, &cq, &cq, QpShape::default())?;
    let memory = Buffer::new(16 << 10)?;
    let mr = Mr::all(&pd, &memory)?;
    let before = Baseline::take()?;
    let calls: [(&str, &dyn Fn() -> Result<()>); 7] = [
        ("ALLOC_PD", &|| Ok(Pd::new(&ctx)?.destroy()?)),
        ("CREATE_CQ", &|| Ok(Cq::new(&ctx, 64)?.destroy()?)),
        ("CREATE_QP", &|| {
            Qp::new(&pd, &cq, &cq, QpShape::default())?
                .destroy()
                .context("end")
        }),
        ("REG_MR", &|| Ok(Mr::all(&pd, &memory)?.destroy()?)),
        ("QUERY_QP", &|| qp.query().map(drop).context("query")),
        ("MODIFY_QP", &|| qp.to(qp_state::RESET).context("modify")),
        ("QUERY_COUNTERS", &|| ctx.counters().map(drop)),
    ];
    for (what, call) in calls {
        call().with_context(|| format!("{what} without a failure"))?;
        host.set(0, "fail-command", 1)?;
        let result = call();
        // A call without a command does not fail.
        let left = host.get(0, "fail-command")?;
        host.set(0, "fail-command", 0)?;
        ensure!(
            left == 1 || result.is_err(),
            "{what} succeeded although its command failed"
        );
        ensure!(
            left == 0 || result.is_ok(),
            "{what} failed without a failing command: {result:?}"
        );
        before
            .settled()
            .with_context(|| format!("after {what} failed"))?;
        call().with_context(|| format!("{what} after it has failed once"))?;
    }
    mr.destroy()?;
    others.unharmed()
}

/// Garbage in the kernel's completion queue is ignored, and real completions are delivered.
pub(super) fn garbage_completions(setup: &Setup) -> Result<()> {
    let mut host = Host::call()?;
    let mut rng = setup.rng();
    let mut others = Bystander::new(0, setup.rng())?;
    for round in 0..20 {
        // Mostly command identifiers without a waiter; the other bits are random.
        let words = [
            rng.u64(..) | 1 << 63,
            rng.u64(..),
            rng.u64(..),
            rng.u64(..) & !OWNER,
        ];
        let text = format!(
            "0:{:#x}:{:#x}:{:#x}:{:#x}",
            words[0], words[1], words[2], words[3]
        );
        host.set(0, "inject-cqe", text)
            .with_context(|| format!("round {round}"))?;
        others
            .unharmed()
            .with_context(|| format!("after a garbage completion in round {round}"))?;
    }
    Ok(())
}

/// Garbage in every event queue: events of nonexistent queues, of unknown types.
pub(super) fn garbage_events(setup: &Setup) -> Result<()> {
    let mut host = Host::call()?;
    let mut rng = setup.rng();
    let mut others = Bystander::new(0, setup.rng())?;
    // These are of the whole device: the driver passes them on.
    let of_all = [Event::DeviceFatal, Event::LinkUp, Event::LinkDown].map(Event::code);
    for round in 0..20u64 {
        let eq = if round % 2 == 0 {
            0
        } else {
            rng.u32(0..Context::open(0)?.info.vectors)
        };
        let mut kind = if rng.bool() {
            rng.u64(0..10)
        } else {
            rng.u64(..) & 0xff
        };
        if of_all.map(u64::from).contains(&kind) {
            kind += 100;
        }
        let word = rng.u64(..) & !OWNER & !0xff | kind;
        let text = format!("{eq}:{:#x}:{word:#x}", rng.u64(..));
        host.set(0, "inject-eqe", text)
            .with_context(|| format!("round {round}"))?;
        others
            .unharmed()
            .with_context(|| format!("after a garbage event in round {round}"))?;
    }
    Ok(())
}

/// The function stops, or returns to power-on by itself: the driver resets it, old contexts are
/// dead, new ones work.
pub(super) fn device_fatal(setup: &Setup) -> Result<()> {
    let mut host = Host::call()?;
    for round in 0..world::rounds(5, 5) {
        let mut pair = Pair::open(0)?;
        pair.exchange(&mut setup.rng())?;
        let epoch = pair.a.ctx.info.limits.epoch;
        let knob = if round % 2 == 0 { "fatal" } else { "restart" };
        host.set(0, knob, true)?;
        told_of_the_end(&pair.a.ctx).with_context(|| format!("round {round}"))?;
        is_dead(&pair.a.ctx)?;
        let fresh = wait::for_some("a device that was reset", || match Context::open(0) {
            Ok(ctx) => Ok((ctx.info.limits.epoch == epoch + 1).then_some(ctx)),
            Err(_) => Ok(None),
        })?;
        Pair::new(&fresh)?
            .exchange(&mut setup.rng())
            .context("after the reset")?;
        is_dead(&pair.a.ctx).context("after the reset")?;
        devices::forget_failures()?;
    }
    works(0, &mut setup.rng())
}

/// All reads are ones: the driver detects this, returns ENODEV, and does not hang.
pub(super) fn gone_silent(setup: &Setup) -> Result<()> {
    let mut host = Host::call()?;
    let address = world::function(0)?;
    let mut pair = Pair::open(0)?;
    pair.exchange(&mut setup.rng())?;
    host.set(0, "vanish", true)?;
    let ctx = pair.a.ctx.clone();
    // The call returns at once or within the time that a command may take.
    let result = Pd::new(&ctx).map(drop);
    ensure!(
        matches!(result, Err(Errno::ENODEV | Errno::EIO | Errno::ETIMEDOUT)),
        "a call of a device that plays dead gave {result:?}"
    );
    wait::until("the report that the device is gone", || {
        Ok(is_refused(&ctx).is_ok())
    })?;
    host.set(0, "vanish", false)?;
    drop((pair, ctx));
    devices::remove(&address)?;
    let device = devices::rescan(&address)?;
    works(device, &mut setup.rng()).context("with the device back")
}

/// The properties of a function that cases of the same boot rely on.
const KEPT: [&str; 9] = [
    "eqs",
    "max-cqs",
    "max-frmrs",
    "max-mrs",
    "max-page-shift",
    "max-pds",
    "max-qps",
    "max-srqs",
    "wqes-per-doorbell",
];

/// Unplugs the function and plugs it in again, with its thread and its limits; returns the number of
/// its new file.
pub(super) fn replug(host: &mut Host, address: &str) -> Result<usize> {
    host.forget_events();
    let path = "/machine/peripheral/qpair0";
    let mut get = |name: &str| host.qmp("qom-get", json!({ "path": path, "property": name }));
    let mut device = json!({ "driver": "qpair", "id": "qpair0", "bus": "port0" });
    if let Some(id) = get("iothread")?
        .as_str()
        .and_then(|path| path.rsplit_once('/'))
    {
        device["iothread"] = json!(id.1);
    }
    for name in KEPT {
        device[name] = get(name)?;
    }
    host.qmp("device_del", json!({ "id": "qpair0" }))?;
    host.event("DEVICE_DELETED", "qpair0")?;
    devices::disappeared(address)?;
    host.qmp("device_add", device)?;
    devices::appeared(address)
}

pub(super) fn hot_unplug(setup: &Setup) -> Result<()> {
    let mut host = Host::call()?;
    let address = world::function(0)?;
    let mut peer = Peer::new(&Context::open(0)?, 4096)?;
    peer.qp.connect(peer.qp.number)?;
    peer.qp.post(&Wqe::new(opcode::NOP, 1));
    peer.done(1)?;
    let device = replug(&mut host, &address)?;
    is_dead(&peer.ctx)?;
    works(device, &mut setup.rng())?;
    is_dead(&peer.ctx)
}
