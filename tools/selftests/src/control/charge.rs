// SPDX-License-Identifier: GPL-2.0
//! Pinned pages that outlive the process that pinned them: they stay charged to its user.

use anyhow::Context as _;
use anyhow::Result;
use nix::errno::Errno;

use super::fails;
use super::limits::unprivileged;
use super::limits::NOBODY;
use crate::children::Child;
use crate::ktap::Setup;
use crate::pair::works;
use crate::raw::Buffer;
use crate::raw::Context;
use crate::raw::Mr;
use crate::raw::Pd;

/// What processes of the user may lock.
const LIMIT: usize = 1 << 20;
/// More than half of it.
const PART: usize = LIMIT / 8 * 5;

/// A child registers memory through the inherited file and exits. The file keeps the pages, so the
/// next child cannot have as many.
pub(super) fn a_child_that_exits(setup: &Setup) -> Result<()> {
    let mut owner = Child::start(|_| {
        unprivileged(NOBODY, LIMIT as u64)?;
        let ctx = Context::open(0)?;
        let pd = Pd::new(&ctx)?;
        let register = || {
            Child::start(|_| {
                let buffer = Buffer::new(PART)?;
                let mr = Mr::of(&pd, buffer.addr(), PART as u64, 1)?;
                // Stays in the file.
                std::mem::forget(mr);
                Ok(())
            })
        };
        register()?.done().context("the first child")?;
        let refused = || -> Result<()> {
            let buffer = Buffer::new(PART)?;
            fails(
                "as much again",
                Errno::ENOMEM,
                Mr::of(&pd, buffer.addr(), PART as u64, 1).map(drop),
            )
        };
        let mut second = Child::start(|_| refused())?;
        second.done().context("the second child")?;
        refused().context("the owner of the file")?;
        // The end of the file is the end of the charge.
        drop(pd);
        drop(ctx);
        let ctx = Context::open(0)?;
        let pd = Pd::new(&ctx)?;
        let buffer = Buffer::new(PART)?;
        let mr = Mr::of(&pd, buffer.addr(), PART as u64, 1).context("with a new file")?;
        mr.destroy()?;
        Ok(())
    })?;
    owner.done()?;
    works(0, &mut setup.rng())
}

/// A file with memory is passed on, and its first owner exits: the user of the first owner stays
/// charged for as long as the file is open.
pub(super) fn a_file_that_is_passed_on(setup: &Setup) -> Result<()> {
    let mut giver = Child::start(|link| {
        unprivileged(NOBODY, LIMIT as u64)?;
        let ctx = Context::open(0)?;
        let pd = Pd::new(&ctx)?;
        let buffer = Buffer::new(PART)?;
        let mr = Mr::of(&pd, buffer.addr(), PART as u64, 1)?;
        link.pass(ctx.fd())?;
        link.hear()?;
        std::mem::forget((mr, pd));
        Ok(())
    })?;
    let file = giver.link().take()?;
    giver.link().tell(1)?;
    giver.done()?;
    let another = |refused: bool| {
        Child::start(move |_| {
            unprivileged(NOBODY, LIMIT as u64)?;
            let ctx = Context::open(0)?;
            let pd = Pd::new(&ctx)?;
            let buffer = Buffer::new(PART)?;
            let made = Mr::of(&pd, buffer.addr(), PART as u64, 1);
            if let Ok(mr) = &made {
                mr.destroy()?;
            }
            match refused {
                true => fails("as much again", Errno::ENOMEM, made.map(drop)),
                false => Ok(made.map(drop)?),
            }
        })
    };
    another(true)?.done().context("while the file is open")?;
    drop(file);
    another(false)?.done().context("with the file closed")?;
    works(0, &mut setup.rng())
}
