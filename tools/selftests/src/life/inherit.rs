// SPDX-License-Identifier: GPL-2.0
//! Files that outlive the process that opened them: fork, descriptor passing, exit.

use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;

use anyhow::ensure;
use anyhow::Context as _;
use anyhow::Result;
use nix::sys::signal::Signal;
use nix::sys::socket::ControlMessage;
use nix::sys::socket::MsgFlags;
use qpair_abi::doorbell;
use qpair_abi::entry::opcode;
use qpair_uverbs::abi::qp_state;

use crate::children::Child;
use crate::children::End;
use crate::ktap::Setup;
use crate::pair::works;
use crate::pair::Bystander;
use crate::pair::Pair;
use crate::raw::Buffer;
use crate::raw::Context;
use crate::raw::Kind;
use crate::raw::Mr;
use crate::raw::Wqe;
use crate::wait;
use crate::world;

/// A child has no doorbells until it maps them itself.
pub(super) fn fork_without_doorbells(setup: &Setup) -> Result<()> {
    let mut pair = Pair::open(0)?;
    for access in [true, false] {
        let mut child = Child::start(|_| {
            if access {
                pair.a.ctx.page.ring(doorbell::SQ, pair.a.qp.number, 1);
            } else {
                pair.a.ctx.page.load(0);
            }
            Ok(())
        })?;
        let end = child.end(wait::patience())?;
        ensure!(
            end == End::Signal(Signal::SIGSEGV),
            "a child that touched the doorbells ended with {end}"
        );
    }
    pair.a.idle().context("the child rang")?;
    pair.exchange(&mut setup.rng()).context("the parent's own")
}

/// A child can use the parent's context, and the parent its own.
pub(super) fn fork_with_open_files(setup: &Setup) -> Result<()> {
    let mut pair = Pair::open(0)?;
    let ctx = pair.a.ctx.clone();
    let mut child = Child::start(|link| {
        ensure!(
            world::charged_kib()? == 0,
            "{} KiB were charged to a child by fork",
            world::charged_kib()?
        );
        let again = ctx.again().context("mapping the doorbells in the child")?;
        ensure!(
            again.info.limits.page == ctx.info.limits.page,
            "another page: {:?}",
            again.info
        );
        let mut ours = Pair::new(&again)?;
        ours.exchange(&mut setup.rng())?;
        ensure!(
            world::charged_kib()? > 0,
            "what a child pins is not charged to it"
        );
        // The child destroys the parent's region: the charge of the parent is reverted.
        let before = world::charged_kib()?;
        pair.b.mr.destroy()?;
        ensure!(
            world::charged_kib()? == before,
            "a child got what its parent had been charged"
        );
        link.tell(1)?;
        // Objects that the child does not destroy stay in the context.
        link.hear().map(drop)
    })?;
    child.link().hear()?;
    let charged = world::charged_kib()?;
    child.link().tell(1)?;
    child.done()?;
    ensure!(
        world::charged_kib()? == charged,
        "the child's end changed what the parent is charged"
    );
    let mr =
        Mr::all(&pair.b.pd, &pair.b.memory).context("in place of the one that the child ended")?;
    pair.b.mr = mr;
    pair.exchange(&mut setup.rng())
        .context("after the child's end")?;
    drop(pair);
    drop(ctx);
    works(0, &mut setup.rng())
}

/// The parent exits, and the child has the context, which stays alive.
pub(super) fn fork_outlives_the_parent(setup: &Setup) -> Result<()> {
    let mut child = Child::start(|link| {
        let mut pair = Pair::open(0)?;
        pair.exchange(&mut setup.rng())?;
        let ctx = pair.a.ctx.clone();
        // Its parent does not wait for it: it is reparented to the test runner, which does.
        let grandchild = Child::start(|to_parent| {
            to_parent.tell(1)?;
            // The end of the channel reports the parent's exit.
            ensure!(to_parent.hear().is_err(), "the parent said something");
            let again = ctx.again()?;
            ensure!(
                pair.a.qp.state()? == qp_state::RTS,
                "the queue pair did not live on"
            );
            let mut ours = Pair::new(&again)?;
            ours.exchange(&mut setup.rng())?;
            pair.destroy().context("ending what the parent made")?;
            link.tell(7)
        })?;
        grandchild.link().hear()?;
        // This process does not wait for its end.
        grandchild.leave();
        Ok(())
    })?;
    child.done()?;
    let word = child.link().hear().context("the grandchild")?;
    ensure!(word == 7, "the grandchild says {word}");
    works(0, &mut setup.rng())
}

/// An open file is sent over a socket to an unrelated process; its first owner exits.
pub(super) fn passed_to_another_process(setup: &Setup) -> Result<()> {
    let mut others = Bystander::new(0, setup.rng())?;
    let mut giver = Child::start(|link| {
        let mut pair = Pair::open(0)?;
        pair.exchange(&mut setup.rng())?;
        link.tell(u64::from(pair.a.qp.handle))?;
        link.pass(pair.a.ctx.fd())?;
        link.hear().map(drop)
    })?;
    let handle = giver.link().hear()? as u32;
    let file = giver.link().take()?;
    let ctx = Context::of(file.into(), 0, Context::open(0)?.info)?;
    let mut ours = Pair::new(&ctx)?;
    ours.exchange(&mut setup.rng())
        .context("in a context that came by socket")?;
    ctx.query_qp(handle).context("the giver's queue pair")?;
    giver.link().tell(1)?;
    giver.done()?;
    ours.exchange(&mut setup.rng())
        .context("after the giver has ended")?;
    // The sender's memory is gone with it; its objects can be destroyed, and the charge of an
    // exited process is not reverted for another one.
    ctx.destroy(Kind::Qp, handle)
        .context("the giver's queue pair")?;
    drop((ours, ctx));
    others.unharmed()
}

/// The file is in flight and never received, in a socket that is in flight itself. Only the garbage
/// collector of sockets closes such a context.
pub(super) fn passed_in_a_circle(setup: &Setup) -> Result<()> {
    let mut others = Bystander::new(0, setup.rng())?;
    for circle in [false, true] {
        let mut pair = Pair::open(0)?;
        pair.exchange(&mut setup.rng())?;
        let (one, two) = UnixStream::pair()?;
        let mut fds = vec![pair.a.ctx.fd().as_raw_fd()];
        if circle {
            fds.push(two.as_raw_fd());
        }
        let data = [std::io::IoSlice::new(b"x")];
        let with = [ControlMessage::ScmRights(&fds)];
        nix::sys::socket::sendmsg::<()>(one.as_raw_fd(), &data, &with, MsgFlags::empty(), None)?;
        drop((pair, one, two));
        // The garbage collector runs when the next socket is closed.
        drop(UnixStream::pair()?);
    }
    others.unharmed()
}

/// Exits in the middle of its work: with requests in its queues, armed, with events unread.
pub(super) fn exit_without_a_word(setup: &Setup) -> Result<()> {
    let mut others = Bystander::new(0, setup.rng())?;
    for round in 0..world::rounds(50, 50) {
        let mut child = Child::start(|_| {
            let mut pair = Pair::open(0)?;
            let large = Buffer::new(4 << 20)?;
            let mr = Mr::all(&pair.a.pd, &large)?;
            let there = Mr::all(&pair.b.pd, &large)?;
            for number in 0..30 {
                pair.b.receive(number, 0, 4096);
                let write = Wqe::write(number, large.addr(), there.keys.rkey);
                pair.a
                    .qp
                    .put(&write.sge(large.addr(), 4 << 20, mr.keys.lkey));
                pair.a.cq.arm();
            }
            pair.a.qp.ring_sq();
            pair.b.qp.post(&Wqe::new(opcode::NOP, 1));
            // And a pending event.
            pair.a.ctx.page.ring(doorbell::SQ, u32::MAX, 0);
            if round % 2 == 0 {
                // Closed explicitly, while the memory is still mapped.
                drop(pair);
            }
            Ok(())
        })?;
        child.done().with_context(|| format!("round {round}"))?;
    }
    others.unharmed()
}
