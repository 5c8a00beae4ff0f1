// SPDX-License-Identifier: GPL-2.0
//! Control groups: what a process of a group may have, and what it is charged for.

use std::path::Path;

use anyhow::ensure;
use anyhow::Context as _;
use anyhow::Result;
use nix::errno::Errno;
use nix::mount::MsFlags;

use super::fails;
use crate::children::Child;
use crate::ktap::Setup;
use crate::pair::works;
use crate::raw::Buffer;
use crate::raw::Context;
use crate::raw::Cq;
use crate::raw::Mr;
use crate::raw::Pd;
use crate::wait;
use crate::world;

/// Where control groups are mounted.
const GROUPS: &str = "/sys/fs/cgroup";

/// A new group with a controller; the caller removes it.
fn group(controller: &str) -> Result<String> {
    if !Path::new(GROUPS).join("cgroup.procs").exists() {
        let nothing: Option<&str> = None;
        let flags = MsFlags::empty();
        nix::mount::mount(Some("none"), GROUPS, Some("cgroup2"), flags, nothing)
            .context("mounting cgroup2")?;
    }
    world::put(
        format!("{GROUPS}/cgroup.subtree_control"),
        &format!("+{controller}"),
    )?;
    let group = format!("{GROUPS}/qpair");
    std::fs::create_dir_all(&group)?;
    Ok(group)
}

/// An open that the controller refuses costs a reference to the task: the core frees the context
/// without it, before the driver is asked. A kernel with this file reports the task as leaked.
const KMEMLEAK: &str = "/sys/kernel/debug/kmemleak";

/// The RDMA controller bounds the open devices and the objects of a group, of each kind alike. What
/// is destroyed, or was refused, is not charged.
pub(super) fn objects_of_a_group(setup: &Setup) -> Result<()> {
    const OBJECTS: usize = 4;
    let group = group("rdma")?;
    world::put(
        format!("{group}/rdma.max"),
        &format!("qpair0 hca_handle=2 hca_object={OBJECTS}"),
    )?;
    let current = || world::text(format!("{group}/rdma.current"));
    let charged = |handles: u32, objects: usize| -> Result<()> {
        let (current, expected) = (
            current()?,
            format!("qpair0 hca_handle={handles} hca_object={objects}"),
        );
        ensure!(
            current.trim() == expected,
            "charged are {current:?}, expected {expected:?}"
        );
        Ok(())
    };
    let procs = format!("{group}/cgroup.procs");
    let mut child = Child::start(|link| {
        world::put(&procs, &std::process::id().to_string())?;
        let (ctx, buffer) = (Context::open(0)?, Buffer::new(4096)?);
        let (pd, cq) = (Pd::new(&ctx)?, Cq::new(&ctx, 8)?);
        // Objects are counted, and not the file of events.
        let mut mrs = [Mr::all(&pd, &buffer)?, Mr::all(&pd, &buffer)?];
        fails("a region", Errno::EAGAIN, Mr::all(&pd, &buffer))?;
        fails("a PD", Errno::EAGAIN, Pd::new(&ctx))?;
        ensure!(Cq::new(&ctx, 8).is_err(), "a CQ beyond the bound");
        charged(1, OBJECTS)?;
        mrs[0].destroy()?;
        charged(1, OBJECTS - 1)?;
        mrs[0] = Mr::all(&pd, &buffer)?;
        let second = Context::open_file(0)?;
        if !Path::new(KMEMLEAK).exists() {
            let third = Context::open_file(0).map(drop);
            let errno = third.as_ref().err().and_then(std::io::Error::raw_os_error);
            ensure!(
                errno == Some(Errno::EAGAIN as i32),
                "a third open: {third:?}"
            );
        }
        charged(2, OBJECTS)?;
        drop(second);
        charged(1, OBJECTS)?;
        link.tell(0)?;
        link.hear()?;
        drop((mrs, cq));
        Ok(())
    })?;
    child.link().hear()?;
    works(0, &mut setup.rng()).context("outside of the group")?;
    child.link().tell(0)?;
    child.done()?;
    wait::until("the end of all charges", || Ok(charged(0, 0).is_ok()))?;
    wait::until("an empty group", || Ok(std::fs::remove_dir(&group).is_ok()))
}

/// The driver's allocations for a process's objects are charged to the process's memory cgroup.
pub(super) fn memory_of_a_group(_: &Setup) -> Result<()> {
    /// A lower bound of the driver's memory for a region; all regions together exceed the process's other
    /// memory.
    const EACH: i64 = 24;
    let group = group("memory")?;
    let stat = format!("{group}/memory.stat");
    let charged = || world::field(&stat, "slab_unreclaimable");
    let procs = format!("{group}/cgroup.procs");
    let mut child = Child::start(|link| {
        world::put(&procs, &std::process::id().to_string())?;
        let ctx = Context::open(0)?;
        let (pd, buffer) = (Pd::new(&ctx)?, Buffer::new(4096)?);
        let mut mrs = Vec::with_capacity(ctx.info.device.max_mr as usize);
        link.tell(ctx.info.device.max_mr.into())?;
        link.hear()?;
        for _ in 0..ctx.info.device.max_mr {
            mrs.push(Mr::all(&pd, &buffer)?);
        }
        link.tell(0)?;
        link.hear()?;
        for mr in &mrs {
            mr.destroy()?;
        }
        link.tell(0)?;
        link.hear().map(drop)
    })?;
    let link = child.link();
    let count = link.hear()? as i64;
    let before = charged()?;
    link.tell(0)?;
    link.hear()?;
    // Counts of a group are updated every two seconds: this may see only some of the regions.
    let is_charged = || Ok(charged()? - before >= count * EACH);
    wait::until("charge of the regions", is_charged)?;
    link.tell(0)?;
    link.hear()?;
    wait::until("end of the charge", || Ok(!is_charged()?))?;
    link.tell(0)?;
    child.done()?;
    wait::until("an empty group", || Ok(std::fs::remove_dir(&group).is_ok()))
}
