// SPDX-License-Identifier: GPL-2.0
//! Calls on shared receive queues that are refused, with the errno of each.

use anyhow::ensure;
use anyhow::Result;
use nix::errno::Errno;
use qpair_abi::uverbs::qpair_ureq_modify_srq;
use qpair_uverbs::abi::*;

use super::fails;
use super::refused::BadBuffers;
use super::refused::Place;
use super::refuses;
use crate::ktap::Setup;
use crate::pair::Bystander;
use crate::raw::Buffer;
use crate::raw::Context;
use crate::raw::Cq;
use crate::raw::Kind;
use crate::raw::Pd;
use crate::raw::Qp;
use crate::raw::QpShape;
use crate::raw::Srq;
use crate::raw::SrqArg;

pub(super) fn shared_receive_queues(setup: &Setup) -> Result<()> {
    let mut others = Bystander::new(0, setup.rng())?;
    let ctx = Context::open(0)?;
    let pd = Pd::new(&ctx)?;
    let ring = Buffer::new(16 << 10)?;
    let bad = BadBuffers::new(&ctx)?;
    let good = || SrqArg::new(&pd, ring.addr(), 8192, 128);
    let create = |arg: SrqArg| {
        let made = ctx.create_srq(&arg)?;
        ctx.destroy(Kind::Srq, made.core.srq_handle)
    };
    refuses(
        good,
        &[
            ("depth 0", Errno::EINVAL, &|arg| {
                (arg.driver.depth, arg.core.max_wr) = (0, 0)
            }),
            ("a depth above the limit", Errno::EINVAL, &|arg| {
                arg.driver.depth = ctx.info.device.max_srq_wr + 1
            }),
            ("a depth that cannot be rounded", Errno::EINVAL, &|arg| {
                arg.driver.depth = u32::MAX
            }),
            ("a depth too large when rounded", Errno::EINVAL, &|arg| {
                arg.driver.depth = 129
            }),
            ("a stride above the limit", Errno::EINVAL, &|arg| {
                arg.driver.stride = 3
            }),
            ("a stride that cannot be shifted", Errno::EINVAL, &|arg| {
                arg.driver.stride = 64
            }),
            ("a stride too large for the buffer", Errno::EINVAL, &|arg| {
                arg.driver.stride = 1
            }),
            ("more receives than entries", Errno::EINVAL, &|arg| {
                arg.core.max_wr = 129
            }),
            ("too many SGEs", Errno::EINVAL, &|arg| {
                arg.core.max_sge = ctx.info.device.max_srq_sge + 1
            }),
        ],
        create,
    )?;
    let place: Place<SrqArg> = |arg| (&mut arg.driver.buffer, &mut arg.driver.buffer_bytes);
    bad.refused("a buffer", ring.addr(), place, good, create)?;
    let srq = Srq::new(&pd, 64)?;
    fails("a limit above the depth", Errno::EINVAL, srq.arm(65))?;
    let next = Buffer::new(16 << 10)?;
    let good = || {
        let (core, mut driver) = srq.change(128, &next);
        driver.buffer_bytes = 8192;
        (core, driver)
    };
    let resize = |(core, driver)| ctx.resize_srq(&core, &driver);
    refuses(
        good,
        &[
            ("no receives", Errno::EINVAL, &|arg| arg.0.max_wr = 0),
            ("more than the ring", Errno::EINVAL, &|arg| {
                arg.0.max_wr = 129
            }),
            ("no ring", Errno::EINVAL, &|arg| arg.1.depth = 0),
            ("too deep", Errno::EINVAL, &|arg| {
                arg.1.depth = ctx.info.device.max_srq_wr + 1
            }),
            ("a reserved field", Errno::EINVAL, &|arg| arg.1.reserved = 1),
            ("a limit above the depth", Errno::EINVAL, &|arg| {
                arg.0.attr_mask |= srq_mask::LIMIT;
                arg.0.srq_limit = 129;
            }),
            ("an unknown attribute", Errno::EOPNOTSUPP, &|arg| {
                arg.0.attr_mask |= 4
            }),
        ],
        resize,
    )?;
    let place: Place<(ib_uverbs_modify_srq, qpair_ureq_modify_srq)> =
        |arg| (&mut arg.1.buffer, &mut arg.1.buffer_bytes);
    bad.refused("a buffer", next.addr(), place, good, resize)?;
    fails("no memory", Errno::EINVAL, ctx.modify_srq(&good().0))?;
    ensure!(srq.query()?.max_wr == 128, "a refused change took effect");
    // In use by a queue pair.
    let cq = Cq::new(&ctx, 128)?;
    let qp = Qp::sharing(&pd, &cq, &srq, QpShape::default())?;
    fails("in use", Errno::EBUSY, srq.destroy())?;
    qp.destroy()?;
    srq.destroy()?;
    pd.destroy()?;
    others.unharmed()
}
