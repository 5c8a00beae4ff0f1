// SPDX-License-Identifier: GPL-2.0
//! A thread blocks forever in a page fault in the middle of a command: no other task may wait for
//! it, in particular not the removal of the device.

use std::sync::mpsc;
use std::time::Duration;

use anyhow::ensure;
use anyhow::Context as _;
use anyhow::Result;
use nix::errno::Errno;
use qpair_abi::uverbs::qpair_ureq_create_qp;
use qpair_uverbs::abi::*;
use qpair_uverbs::Command;

use crate::children::Child;
use crate::children::Link;
use crate::devices;
use crate::ktap::Setup;
use crate::pair::works;
use crate::pair::Bystander;
use crate::raw::change;
use crate::raw::Buffer;
use crate::raw::Context;
use crate::raw::Cq;
use crate::raw::CqArg;
use crate::raw::Endless;
use crate::raw::Mr;
use crate::raw::Page;
use crate::raw::Pd;
use crate::raw::Qp;
use crate::raw::QpArg;
use crate::raw::QpShape;
use crate::wait;
use crate::world;

/// The point at which the kernel accesses the process's memory.
#[derive(Clone, Copy, Debug)]
pub(super) enum Place {
    Request,
    Region,
    CompletionQueue,
    SendQueue,
    ReceiveQueue,
}

const PLACES: [Place; 5] = [
    Place::Request,
    Place::Region,
    Place::CompletionQueue,
    Place::SendQueue,
    Place::ReceiveQueue,
];

/// Runs a command that must access the blocking memory.
fn call(place: Place, pd: &Pd, cq: &Cq, endless: u64, good: u64) -> Result<(), Errno> {
    let ctx = cq.context();
    let bytes = 8192;
    match place {
        Place::Request => {
            let arg = CqArg::new(good, bytes, 256);
            let mut answer = ib_uverbs_create_cq_resp::default();
            let command = Command::new(IB_USER_VERBS_CMD_CREATE_CQ).request(&arg.core);
            let command = command.answer(&mut answer);
            ctx.run(command.part(UVERBS_ATTR_UHW_IN, 24, endless))
        }
        Place::Region => Mr::of(pd, endless, bytes, 1).map(drop),
        Place::CompletionQueue => ctx.create_cq(&CqArg::new(endless, bytes, 256)).map(drop),
        Place::SendQueue | Place::ReceiveQueue => {
            let (sq_buffer, rq_buffer) = if matches!(place, Place::SendQueue) {
                (endless, good)
            } else {
                (good, endless)
            };
            let driver = qpair_ureq_create_qp {
                sq_buffer,
                sq_buffer_bytes: bytes,
                rq_buffer,
                rq_buffer_bytes: bytes,
                sq_blocks: 128,
                rq_depth: 128,
                ..Default::default()
            };
            ctx.create_qp(&QpArg::new(pd, (cq, cq), driver)).map(drop)
        }
    }
}

/// Whether a page keeps what is written: a doorbell does not.
fn is_memory(page: &Page) -> bool {
    page.store(8, u64::MAX);
    page.load(8) == u64::MAX
}

/// A process blocks a thread, reports it to the parent, and maps its doorbell page for as long as it
/// may. The parent unbinds the device, and has the thread released. The first page must be ordinary
/// memory before that, the last one after it: an area that is mapped while the driver takes the pages
/// away may keep its page until then. The call must fail, since the device is gone.
pub(super) fn hang(place: Place, device: usize, link: &Link) -> Result<()> {
    let ctx = Context::open(device)?;
    let (pd, cq) = (Pd::new(&ctx)?, Cq::new(&ctx, 64)?);
    let endless = Endless::new(16 << 10)?;
    let good = Buffer::new(8192)?;
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| call(place, &pd, &cq, endless.memory.addr(), good.addr()));
        let seen = || -> Result<(bool, Option<Page>, Result<u32, Errno>)> {
            endless.caught()?;
            let first = Page::map(ctx.fd())?;
            link.tell(1)?;
            let mut last = None;
            while let Ok(page) = Page::map(ctx.fd()) {
                last = Some(page);
            }
            link.hear()?;
            // Other threads of the same process can make calls.
            Ok((is_memory(&first), last, ctx.alloc_pd()))
        };
        let seen = seen();
        // Also after an error: the scope waits for the thread.
        endless.release()?;
        let result = thread
            .join()
            .map_err(|_| anyhow::anyhow!("the thread panicked"))?;
        let (first_is_memory, last, refused) = seen?;
        ensure!(first_is_memory, "{place:?}: a doorbell page after unbind");
        if let Some(last) = last {
            wait::until("the last page is memory", || Ok(is_memory(&last)))?;
        }
        ensure!(
            refused == Err(Errno::EIO),
            "another thread's call gave {refused:?}"
        );
        // A released request is zeros, which the driver may refuse for themselves.
        let is_zeros = matches!(place, Place::Request) && result == Err(Errno::EINVAL);
        ensure!(
            is_zeros || matches!(result, Err(Errno::EIO | Errno::ENODEV)),
            "{place:?} gave {result:?}"
        );
        Ok(())
    })
}

/// The device is unbound while a thread is blocked: unbind does not wait for it, and the thread's call
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

/// The answer to a change of a queue pair cannot be written for as long as its process likes. The
/// others that query it, as `rdma resource show qp` does, do not wait for that.
pub(super) fn hung_in_an_answer(setup: &Setup) -> Result<()> {
    let ctx = Context::open(0)?;
    let (pd, cq) = (Pd::new(&ctx)?, Cq::new(&ctx, 64)?);
    let qp = Qp::new(&pd, &cq, &cq, QpShape::default())?;
    let answer = Endless::new(4096)?;
    let arg = ib_uverbs_modify_qp {
        qp_handle: qp.handle,
        ..change(qp_state::RESET, qp_state::INIT)
    };
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let command = Command::new(IB_USER_VERBS_CMD_MODIFY_QP).request(&arg);
            ctx.run(command.part(UVERBS_ATTR_UHW_OUT, 64, answer.memory.addr()))
        });
        let caught = answer.caught();
        let (tell, hear) = mpsc::channel();
        let (ctx, handle) = (&ctx, qp.handle);
        scope.spawn(move || tell.send(ctx.query_qp(handle)).is_ok());
        let found = hear.recv_timeout(Duration::from_secs(10));
        answer.release()?;
        caught?;
        let found = found.context("a query waits for the answer to a change")??;
        ensure!(found.qp_state == qp_state::INIT, "{found:?}");
        Ok(())
    })?;
    works(0, &mut setup.rng())
}
