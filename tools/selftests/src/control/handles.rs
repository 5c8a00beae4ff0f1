// SPDX-License-Identifier: GPL-2.0
//! Invalid handles: of another context, of another kind, of a destroyed object.

use std::sync::Arc;

use anyhow::ensure;
use anyhow::Context as _;
use anyhow::Result;
use nix::errno::Errno;
use qpair_abi::uapi::*;

use super::fails;
use super::refused::CALLS;
use super::refuses;
use crate::ktap::Setup;
use crate::pair::Pair;
use crate::raw::destroy;
use crate::raw::Buffer;
use crate::raw::Context;
use crate::raw::Cq;
use crate::raw::Pd;

/// Each ioctl that takes a handle first, with a handle that it accepts.
pub(super) fn handles(pair: &Pair) -> Vec<(u8, u32)> {
    let peer = &pair.a;
    vec![
        (QPAIR_NR_QUERY_CQ, peer.cq.handle),
        (QPAIR_NR_QUERY_QP, peer.qp.handle),
        (QPAIR_NR_QUERY_MR, peer.mr.arg.handle),
        (QPAIR_NR_MODIFY_QP, peer.qp.handle),
        (QPAIR_NR_DESTROY_QP, peer.qp.handle),
        (QPAIR_NR_DEREG_MR, peer.mr.arg.handle),
        (QPAIR_NR_DESTROY_CQ, peer.cq.handle),
        (QPAIR_NR_DEALLOC_PD, peer.pd.handle),
    ]
}

/// Calls an ioctl with nothing but a handle in its argument.
fn with_handle(ctx: &Context, nr: u8, handle: u32) -> Result<(), Errno> {
    let size = CALLS
        .iter()
        .find(|(known, _)| *known == nr)
        .map_or(0, |(_, size)| *size);
    let mut bytes = vec![0; size];
    bytes[..4].copy_from_slice(&handle.to_le_bytes());
    if nr == QPAIR_NR_MODIFY_QP {
        // A valid change, so that only the handle is wrong.
        bytes[4..8].copy_from_slice(&QPAIR_QP_STATE.to_le_bytes());
        bytes[8..12].copy_from_slice(&QPAIR_QPS_ERROR.to_le_bytes());
    }
    ctx.call_bytes(nr, &mut bytes)
}

pub(super) fn handles_of_others(setup: &Setup) -> Result<()> {
    let mut theirs = Pair::open(0)?;
    theirs.exchange(&mut setup.rng())?;
    let ours: Arc<Context> = Context::open(0)?;
    for (nr, handle) in handles(&theirs) {
        fails(
            &format!("ioctl {nr:#x} of another context's"),
            Errno::ENOENT,
            with_handle(&ours, nr, handle),
        )?;
    }
    let (pd, cq) = (Pd::new(&ours)?, Cq::new(&ours, 256)?);
    let buffer = Buffer::new(16 << 10)?;
    let good = || qpair_create_qp {
        sq_buffer: buffer.addr(),
        sq_buffer_bytes: 4096,
        rq_buffer: buffer.addr() + 8192,
        rq_buffer_bytes: 4096,
        sq_blocks: 64,
        rq_depth: 64,
        pd: pd.handle,
        send_cq: cq.handle,
        recv_cq: cq.handle,
        ..Default::default()
    };
    let (their_pd, their_cq) = (theirs.a.pd.handle, theirs.a.cq.handle);
    refuses(
        good,
        &[
            ("another's domain", Errno::ENOENT, &|arg| arg.pd = their_pd),
            ("another's send CQ", Errno::ENOENT, &|arg| {
                arg.send_cq = their_cq
            }),
            ("another's receive CQ", Errno::ENOENT, &|arg| {
                arg.recv_cq = their_cq
            }),
        ],
        |mut arg| {
            ours.call(QPAIR_NR_CREATE_QP, &mut arg)?;
            destroy(&ours, QPAIR_NR_DESTROY_QP, arg.handle).map(drop)
        },
    )?;
    let mut arg = qpair_reg_mr {
        addr: buffer.addr(),
        bytes: 4096,
        pd: their_pd,
        ..Default::default()
    };
    fails(
        "a region in another's domain",
        Errno::ENOENT,
        ours.call(QPAIR_NR_REG_MR, &mut arg),
    )?;
    theirs.exchange(&mut setup.rng()).context("the other one")?;
    ensure!(
        theirs.a.ctx.async_event()?.is_none(),
        "the other one heard of it"
    );
    Ok(())
}

pub(super) fn handles_of_another_kind(setup: &Setup) -> Result<()> {
    let mut pair = Pair::open(0)?;
    let ctx = pair.a.ctx.clone();
    for (nr, right) in handles(&pair) {
        for (_, wrong) in handles(&pair) {
            // Numbers of two kinds may be equal: then the handle is also one of the right kind.
            let same = [
                pair.b.qp.handle,
                pair.b.cq.handle,
                pair.b.mr.arg.handle,
                pair.b.pd.handle,
            ];
            if wrong != right && !same.contains(&wrong) {
                fails(
                    &format!("ioctl {nr:#x} of {wrong:#x}, which is another kind"),
                    Errno::ENOENT,
                    with_handle(&ctx, nr, wrong),
                )?;
            }
        }
        for wrong in [
            0,
            1 << 16,
            0xffff,
            u32::MAX,
            right ^ 1 << 16,
            right ^ 1 << 31,
            right ^ 0x8000,
        ] {
            fails(
                &format!("ioctl {nr:#x} of {wrong:#x}"),
                Errno::ENOENT,
                with_handle(&ctx, nr, wrong),
            )?;
        }
    }
    pair.exchange(&mut setup.rng())
        .context("after the refused calls")
}

pub(super) fn handles_that_are_gone(setup: &Setup) -> Result<()> {
    let ctx = Context::open(0)?;
    let old = Pair::new(&ctx)?;
    let calls = handles(&old);
    old.destroy()?;
    // The same indices are in use again, by other objects.
    let mut new = Pair::new(&ctx)?;
    for (nr, handle) in calls {
        fails(
            &format!("ioctl {nr:#x} of a destroyed object"),
            Errno::ENOENT,
            with_handle(&ctx, nr, handle),
        )?;
    }
    new.exchange(&mut setup.rng())
        .context("the new objects at their indices")
}
