// SPDX-License-Identifier: GPL-2.0
//! Memberships in groups of multicast: what is refused, and how many there are.

use anyhow::ensure;
use anyhow::Context as _;
use anyhow::Result;
use nix::errno::Errno;
use qpair_uverbs::abi::*;

use super::fails;
use super::refuses;
use crate::host::Host;
use crate::ktap::Setup;
use crate::pair::works;
use crate::pair::Bystander;
use crate::raw::group;
use crate::raw::Context;
use crate::raw::Cq;
use crate::raw::Pd;
use crate::raw::Qp;
use crate::raw::QpShape;
use crate::raw::MULTICAST_LID;

const SHAPE: QpShape = QpShape {
    sq_blocks: 4,
    rq_depth: 1,
    rq_stride: 0,
};

pub(super) fn groups_of_multicast(setup: &Setup) -> Result<()> {
    let mut others = Bystander::new(0, setup.rng())?;
    let ctx = Context::open(0)?;
    let (pd, cq) = (Pd::new(&ctx)?, Cq::new(&ctx, 64)?);
    let make = |service| Qp::of_service(service, &pd, &cq, SHAPE);
    let (ud, rc) = (make(IB_UVERBS_QPT_UD)?, make(IB_UVERBS_QPT_RC)?);
    let good = || ib_uverbs_attach_mcast {
        gid: group(1),
        qp_handle: ud.handle,
        mlid: MULTICAST_LID,
        ..Default::default()
    };
    let attach = |arg: ib_uverbs_attach_mcast| {
        ctx.attach_mcast(&arg)?;
        ctx.detach_mcast(&ib_uverbs_detach_mcast {
            gid: arg.gid,
            qp_handle: arg.qp_handle,
            mlid: arg.mlid,
            ..Default::default()
        })
    };
    refuses(
        good,
        &[
            ("no queue pair", Errno::ENOENT, &|arg| {
                arg.qp_handle = u32::MAX
            }),
            ("one of RC", Errno::EINVAL, &|arg| arg.qp_handle = rc.handle),
            ("a GID of a port", Errno::EINVAL, &|arg| arg.gid[0] = 0xfe),
            ("no GID", Errno::EINVAL, &|arg| arg.gid = [0; 16]),
            ("a LID of a port", Errno::EINVAL, &|arg| arg.mlid = 1),
        ],
        attach,
    )?;
    ud.attach(group(1))?;
    ud.attach(group(1))
        .context("once more, of which the core knows")?;
    fails("another GID", Errno::EINVAL, ud.detach(group(2)))?;
    fails("a member is destroyed", Errno::EBUSY, ud.destroy())?;
    ud.detach(group(1))?;
    fails("detached twice", Errno::EINVAL, ud.detach(group(1)))?;
    ud.destroy()?;
    rc.destroy()?;
    others.unharmed()
}

pub(super) fn limits_of_multicast(setup: &Setup) -> Result<()> {
    let ctx = Context::open(0)?;
    let device = ctx.query_device()?;
    let most = device.max_mcast_grp;
    ensure!(
        most > 1
            && device.max_total_mcast_qp_attach == most
            && (1..=most).contains(&device.max_mcast_qp_attach),
        "{device:?}"
    );
    let mut host = Host::call()?;
    let (pd, cq) = (Pd::new(&ctx)?, Cq::new(&ctx, 64)?);
    let make = || Qp::of_service(IB_UVERBS_QPT_UD, &pd, &cq, SHAPE);
    let (one, other) = (make()?, make()?);
    let objects = host.get(0, "objects")?;
    // Half of them in one group each, the rest as members of those.
    for number in 0..most {
        let (qp, number) = match number % 2 {
            0 => (&one, number / 2),
            _ => (&other, number / 2),
        };
        let attached = qp.attach(group(number as u16));
        attached.with_context(|| format!("membership {number} of {most}"))?;
    }
    fails("one more", Errno::EDQUOT, one.attach(group(9999)))?;
    ensure!(host.get(0, "objects")? == objects + u64::from(most));
    // Another file has its own.
    let second = Context::open(0)?;
    let second_pd = Pd::new(&second)?;
    let second_cq = Cq::new(&second, 4)?;
    let mut qp = Qp::of_service(IB_UVERBS_QPT_UD, &second_pd, &second_cq, SHAPE)?;
    qp.attach(group(9999))?;
    one.detach(group(0))?;
    one.attach(group(9999)).context("in the place of another")?;
    // A command that the device refuses takes no place. The core queries the state first.
    one.detach(group(9999))?;
    host.set(0, "fail-command", 2)?;
    ensure!(one.attach(group(0)).is_err(), "a command that failed");
    one.attach(group(0)).context("after the one that failed")?;
    fails("one more again", Errno::EDQUOT, one.attach(group(9999)))?;
    drop(ctx);
    // A detach that the device refuses, and a member that it refuses when it leaves RESET.
    host.set(0, "fail-command", 1)?;
    qp.detach(group(9999)).context("refused by the device")?;
    qp.attach(group(9999)).context("after a refused detach")?;
    qp.start_ud(7)?;
    qp.reset()?;
    host.set(0, "fail-command", 2)?;
    ensure!(qp.start_ud(7).is_err(), "a member that cannot join");
    qp.start_ud(7).context("after a refused join")?;
    works(0, &mut setup.rng())
}
