// SPDX-License-Identifier: GPL-2.0
//! A thread blocks forever in a page fault in the middle of an ioctl: no other task may wait for
//! it, in particular not the removal of the device.

use std::sync::Arc;

use anyhow::ensure;
use anyhow::Context as _;
use anyhow::Result;
use nix::errno::Errno;
use qpair_abi::counters::Counter;
use qpair_abi::uapi;
use qpair_abi::uapi::*;

use super::devices;
use super::load::is_dead;
use crate::children::Child;
use crate::children::Link;
use crate::ktap::Setup;
use crate::pair::works;
use crate::pair::Bystander;
use crate::raw::Buffer;
use crate::raw::Context;
use crate::raw::Cq;
use crate::raw::Endless;
use crate::raw::Pd;
use crate::wait;
use crate::world;

/// The point at which the kernel accesses the process's memory.
#[derive(Clone, Copy, Debug)]
enum Place {
    Argument,
    Counters,
    Region,
    CompletionQueue,
    SendQueue,
    ReceiveQueue,
}

const PLACES: [Place; 6] = [
    Place::Argument,
    Place::Counters,
    Place::Region,
    Place::CompletionQueue,
    Place::SendQueue,
    Place::ReceiveQueue,
];

/// Calls an ioctl that must access the blocking memory.
fn call(
    place: Place,
    ctx: &Arc<Context>,
    pd: u32,
    cq: u32,
    endless: u64,
    good: u64,
) -> Result<(), Errno> {
    let (buffer, buffer_bytes) = (endless, 8192);
    match place {
        Place::Argument => ctx.call_at(
            uapi::request::<qpair_alloc_pd>(QPAIR_NR_ALLOC_PD),
            endless as usize,
        ),
        Place::Counters => ctx.call(
            QPAIR_NR_QUERY_COUNTERS,
            &mut qpair_query_counters {
                counters: endless,
                count: Counter::COUNT as u32,
                ..Default::default()
            },
        ),
        Place::Region => ctx.call(
            QPAIR_NR_REG_MR,
            &mut qpair_reg_mr {
                addr: endless,
                bytes: 8192,
                pd,
                access: 1,
                ..Default::default()
            },
        ),
        Place::CompletionQueue => ctx.call(
            QPAIR_NR_CREATE_CQ,
            &mut qpair_create_cq {
                buffer,
                buffer_bytes,
                depth: 256,
                eventfd: -1,
                ..Default::default()
            },
        ),
        Place::SendQueue | Place::ReceiveQueue => {
            let (sq_buffer, rq_buffer) = if matches!(place, Place::SendQueue) {
                (endless, good)
            } else {
                (good, endless)
            };
            ctx.call(
                QPAIR_NR_CREATE_QP,
                &mut qpair_create_qp {
                    sq_buffer,
                    sq_buffer_bytes: 8192,
                    rq_buffer,
                    rq_buffer_bytes: 8192,
                    sq_blocks: 128,
                    rq_depth: 128,
                    pd,
                    send_cq: cq,
                    recv_cq: cq,
                    ..Default::default()
                },
            )
        }
    }
}

/// Blocks a thread, reports it to the parent, and waits for the message to release it; then the
/// call must fail, since the device is gone. If the thread blocked while writing its result, the
/// call succeeds.
fn hang(place: Place, device: usize, link: &Link) -> Result<()> {
    let ctx = Context::open(device)?;
    let (pd, cq) = (Pd::new(&ctx)?, Cq::new(&ctx, 64)?);
    let endless = Endless::new(16 << 10)?;
    let good = Buffer::new(8192)?;
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            call(
                place,
                &ctx,
                pd.handle,
                cq.handle,
                endless.memory.addr(),
                good.addr(),
            )
        });
        endless.caught()?;
        link.tell(1)?;
        link.hear()?;
        // Other threads of the same process can make calls.
        is_dead(&ctx, Errno::ENODEV)?;
        endless.release()?;
        let result = thread
            .join()
            .map_err(|_| anyhow::anyhow!("the thread panicked"))?;
        let expected = match place {
            Place::Counters => Ok(()),
            _ => Err(Errno::ENODEV),
        };
        ensure!(
            result == expected,
            "{place:?} gave {result:?}, expected {expected:?}"
        );
        Ok(())
    })
}

/// The device is unbound while a thread is blocked: unbind returns at once, and the thread's call
/// fails when it resumes.
pub(super) fn hung_in_an_ioctl(setup: &Setup) -> Result<()> {
    let address = world::function(0)?;
    let mut device = 0;
    for place in PLACES {
        let what = || format!("{place:?}");
        let mut others = Bystander::new(device, setup.rng())?;
        let mut child = Child::start(|link| hang(place, device, link))?;
        child.link().hear().with_context(what)?;
        others.unharmed().with_context(what)?;
        drop(others);
        let mut unbinder = Child::start(|_| devices::unbind(&address))?;
        unbinder
            .end(wait::patience())
            .with_context(|| format!("unbind while {place:?} hangs"))?;
        child.link().tell(1)?;
        child.done().with_context(what)?;
        device = devices::bind(&address)?;
        works(device, &mut setup.rng()).with_context(what)?;
    }
    Ok(())
}

/// A `read` blocks while it copies its result: other users of the file are not blocked, and the
/// event is delivered when the memory is available.
pub(super) fn hung_in_a_read(setup: &Setup) -> Result<()> {
    const EVENT: usize = size_of::<qpair_async_event>();
    let mut others = Bystander::new(0, setup.rng())?;
    let ctx = Context::open(0)?;
    ctx.page.ring(0, u32::MAX, 0);
    wait::readable(ctx.fd(), "the event of a violation")?;
    let endless = Endless::new(4096)?;
    let mut other = Child::start(|link| {
        link.hear()?;
        ensure!(ctx.async_event()?.is_none(), "one event was read twice");
        Ok(())
    })?;
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| endless.memory.filled_from(ctx.fd(), EVENT));
        endless.caught()?;
        other.link().tell(1)?;
        other.done().context("another reader")?;
        others.unharmed()?;
        endless.release()?;
        let read = thread
            .join()
            .map_err(|_| anyhow::anyhow!("the thread panicked"))?;
        ensure!(read == Ok(EVENT), "the read gave {read:?}");
        Ok(())
    })?;
    ensure!(ctx.async_event()?.is_none(), "the event came twice");
    works(0, &mut setup.rng())
}

/// The process is killed while a thread is blocked: nothing leaks.
pub(super) fn hung_while_killed(setup: &Setup) -> Result<()> {
    let before = world::Baseline::take()?;
    for place in PLACES {
        let mut child = Child::start(|link| hang(place, 0, link))?;
        child.link().hear().with_context(|| format!("{place:?}"))?;
        child.kill().with_context(|| format!("{place:?}"))?;
        before.settled().with_context(|| format!("{place:?}"))?;
    }
    works(0, &mut setup.rng())
}
