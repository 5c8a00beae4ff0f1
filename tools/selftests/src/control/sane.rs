// SPDX-License-Identifier: GPL-2.0
//! The driver is present and its reports about itself are consistent.

use std::os::unix::fs::FileTypeExt;
use std::os::unix::fs::MetadataExt;

use anyhow::ensure;
use anyhow::Result;
use qpair_abi::command::READS;
use qpair_abi::counters::Counter;
use qpair_abi::entry::ud_sges;
use qpair_abi::entry::MAX_BLOCKS;
use qpair_abi::uverbs::QPAIR_UVERBS_ABI_VERSION;
use qpair_uverbs::abi::PORT_ACTIVE;

use crate::ktap::Setup;
use crate::pair::works;
use crate::pair::Pair;
use crate::raw::Context;
use crate::raw::Srq;
use crate::world;

pub(super) fn device_file(_: &Setup) -> Result<()> {
    let path = Context::path(0)?;
    let meta = std::fs::metadata(&path)?;
    ensure!(
        meta.file_type().is_char_device(),
        "{} is no character device",
        path.display()
    );
    let address = world::function(0)?;
    let id = |name| world::pci_id(&address, name);
    ensure!((id("vendor")?, id("device")?) == (0x1234, 0x5150));
    ensure!(
        world::functions()?.contains(&address),
        "{address} is not among {:?}",
        world::functions()?
    );
    let file = path.file_name().unwrap_or_default().to_string_lossy();
    let class = format!("/sys/class/infiniband_verbs/{file}");
    let version = world::text(format!("{class}/abi_version"))?;
    ensure!(
        version.trim() == QPAIR_UVERBS_ABI_VERSION.to_string(),
        "version {version}"
    );
    let number = world::text(format!("{class}/dev"))?;
    let of_file = format!(
        "{}:{}",
        meta.rdev() >> 8 & 0xfff,
        meta.rdev() & 0xff | meta.rdev() >> 12 & 0xfff00
    );
    ensure!(
        number.trim() == of_file,
        "sysfs says {}, the file is {of_file}",
        number.trim()
    );
    Ok(())
}

pub(super) fn query_device(_: &Setup) -> Result<()> {
    let one = Context::open(0)?;
    let two = Context::open(0)?;
    let info = one.info;
    ensure!(
        info.device.fw_ver >> 16 == u64::from(qpair_abi::regs::MAJOR),
        "{info:?}"
    );
    let (device, limits) = (&info.device, &info.limits);
    for (name, quota) in [
        ("QPs", device.max_qp),
        ("CQs", device.max_cq),
        ("SRQs", device.max_srq),
        ("MRs", device.max_mr),
        ("windows", device.max_mw),
        ("PDs", device.max_pd),
        ("address handles", device.max_ah),
        ("groups", device.max_mcast_grp),
        ("members of groups", device.max_mcast_qp_attach),
    ] {
        ensure!(quota > 0, "{name}: a quota of {quota}");
    }
    let address = world::function(0)?;
    let id = |name| world::pci_id(&address, name);
    // The address of a datagram leaves room for fewer SGEs.
    let of_ud = ud_sges(MAX_BLOCKS) as u32;
    let sges = limits.max_send_sge.min(limits.max_recv_sge).min(of_ud);
    for (name, reported, expected) in [
        ("vendor", device.vendor_id, id("vendor")?),
        ("device", device.vendor_part_id, id("device")?),
        ("revision", device.hw_ver, id("revision")?),
        (
            "WRs of an SQ",
            device.max_qp_wr,
            limits.max_sq_blocks / MAX_BLOCKS as u32,
        ),
        ("WRs of an SRQ", device.max_srq_wr, limits.max_rq_depth),
        ("CQEs", device.max_cqe, limits.max_cq_depth),
        ("SGEs", device.max_sge, sges),
        ("SGEs of an SRQ", device.max_srq_sge, limits.max_recv_sge),
        ("READs", device.max_qp_rd_atom, READS.into()),
    ] {
        ensure!(reported == expected, "{name}: {reported}, not {expected}");
    }
    ensure!(device.page_size_cap == 4096, "{info:?}");
    ensure!(info.vectors > 0, "{info:?}");
    for depth in [
        info.limits.max_sq_blocks,
        info.limits.max_rq_depth,
        info.limits.max_cq_depth,
    ] {
        ensure!(depth.is_power_of_two() && depth >= 64, "{info:?}");
    }
    ensure!(
        info.limits.max_send_sge > 0 && info.limits.max_recv_sge > 0 && info.limits.max_inline > 0,
        "{info:?}"
    );
    ensure!(
        info.port.max_msg_sz >= 1 << 20 && info.device.max_mr_size >= 1 << 20,
        "{info:?}"
    );
    ensure!(info.port.state == PORT_ACTIVE, "{info:?}");
    ensure!(info.limits.page > 0, "page 0 is the kernel's: {info:?}");
    ensure!(
        info.limits.page != two.info.limits.page,
        "two contexts with doorbell page {}",
        info.limits.page
    );
    let page = info.limits.page;
    drop(one);
    let three = Context::open(0)?;
    ensure!(
        three.info.limits.page != two.info.limits.page,
        "page {page} and {:?}",
        three.info
    );
    Ok(())
}

pub(super) fn query_counters(setup: &Setup) -> Result<()> {
    let mut pair = Pair::open(0)?;
    let ctx = pair.a.ctx.clone();
    let before = ctx.counters()?;
    ensure!(
        before.len() == Counter::COUNT,
        "{} counters, the manual has {}",
        before.len(),
        Counter::COUNT
    );
    pair.exchange(&mut setup.rng())?;
    let after = ctx.counters()?;
    let rise = |which: Counter| after[which as usize] - before[which as usize];
    let bytes = rise(Counter::SendBytes);
    ensure!(bytes > 0, "no bytes by SEND");
    ensure!(
        rise(Counter::WriteBytes) == bytes,
        "{} bytes by WRITE",
        rise(Counter::WriteBytes)
    );
    ensure!(
        rise(Counter::ReadBytes) == bytes,
        "{} bytes by READ",
        rise(Counter::ReadBytes)
    );
    ensure!(
        rise(Counter::SendWqes) == 3,
        "{} send WQEs",
        rise(Counter::SendWqes)
    );
    ensure!(
        rise(Counter::RecvWqes) == 1,
        "{} receive WQEs",
        rise(Counter::RecvWqes)
    );
    // The driver's own work requests are commands.
    let ours = rise(Counter::SqDoorbells) - rise(Counter::Commands);
    ensure!(ours == 3, "{ours} SQ doorbells");
    ensure!(
        rise(Counter::RqDoorbells) == 1,
        "{} RQ doorbells",
        rise(Counter::RqDoorbells)
    );
    ensure!(rise(Counter::Cqes) >= 4, "{} CQEs", rise(Counter::Cqes));
    ensure!(
        rise(Counter::Violations) == 0 && rise(Counter::Errors) == 0,
        "{after:?}"
    );
    Ok(())
}

pub(super) fn doorbell_page(setup: &Setup) -> Result<()> {
    let ctx = Context::open(0)?;
    for at in (0..64).step_by(8) {
        ensure!(
            ctx.page.load(at) == 0,
            "a doorbell page reads as {:#x} at {at}",
            ctx.page.load(at)
        );
    }
    ensure!(ctx.async_event()?.is_none(), "reading is no violation");
    works(0, &mut setup.rng())
}

pub(super) fn no_events_to_read(_: &Setup) -> Result<()> {
    let ctx = Context::open(0)?;
    let event = ctx.async_event()?;
    ensure!(event.is_none(), "{event:?} in a new context");
    let flags = crate::wait::poll(ctx.events(), std::time::Duration::ZERO)?;
    ensure!(flags.is_empty(), "poll of a new context says {flags:?}");
    Ok(())
}

pub(super) fn debugfs_tables(_: &Setup) -> Result<()> {
    let folder = world::debugfs(0)?;
    let before = world::objects(&folder)?;
    let pair = Pair::open(0)?;
    let srq = Srq::new(&pair.a.pd, 16)?;
    let now = world::objects(&folder)?;
    for (name, more) in [
        ("clients", 1),
        ("cqs", 2),
        ("qps", 2),
        ("srqs", 1),
        ("eqs", 0),
    ] {
        ensure!(
            now[name] == before[name] + more,
            "{name}: {before:?} became {now:?}, not {more} more"
        );
    }
    // Each CQ, queue pair and SRQ has rings, and each region its pages.
    ensure!(
        now["dma-held"] >= before["dma-held"] + 9,
        "{before:?} became {now:?}"
    );
    for (name, count) in [("pds", 2), ("cqs", 2), ("qps", 2), ("srqs", 1), ("mrs", 2)] {
        let found = world::of_context(0, pair.a.ctx.info.limits.page, name)?;
        ensure!(found == count, "{name} of the file is {found}, not {count}");
    }
    srq.destroy()?;
    pair.destroy()?;
    // The file is closed with the last of them.
    drop((srq, pair));
    let now = world::objects(&folder)?;
    ensure!(now == before, "{before:?} became {now:?} in the end");
    Ok(())
}
