// SPDX-License-Identifier: GPL-2.0
//! Properties of the machine's memory. Each case has its own guest in `plan.toml`.

use std::fs::File;
use std::os::unix::fs::FileExt;

use anyhow::ensure;
use anyhow::Context as _;
use anyhow::Result;

use crate::devices::bind;
use crate::devices::unbind;
use crate::ktap::say;
use crate::ktap::Setup;
use crate::pair::Pair;
use crate::pair::Peer;
use crate::raw::page_size;
use crate::raw::Buffer;
use crate::raw::Context;
use crate::raw::QpShape;
use crate::world;

/// The first address of more than 32 bits.
const FOUR_GIB: u64 = 4 << 30;

/// With `swiotlb=force` a device uses bounce buffers. Probe warns, a process cannot open the
/// device, and the kernel's own client works.
pub(super) fn bounce_buffers(_: &Setup) -> Result<()> {
    let mut log = world::Log::mark()?;
    let address = world::function(0)?;
    unbind(&address)?;
    bind(&address)?;
    let lines = log.lines()?;
    let warned = lines
        .iter()
        .any(|(level, line)| *level == 4 && line.contains("copies of memory"));
    ensure!(warned, "probe does not warn: {lines:?}");
    match Context::open_file(0) {
        Err(error) if error.raw_os_error() == Some(libc::EOPNOTSUPP) => (),
        other => anyhow::bail!("open gave {other:?}, not EOPNOTSUPP"),
    }
    let run = "qps=2 depth=16 count=200 size=4096 op=write verify=1";
    world::put(world::debugfs(0)?.join("loopback"), run)
}

/// The physical address of each page of a buffer, which must be present.
fn physical(buffer: &Buffer) -> Result<Vec<u64>> {
    const PRESENT: u64 = 1 << 63;
    const FRAME: u64 = (1 << 55) - 1;
    let map = File::open("/proc/self/pagemap").context("/proc/self/pagemap")?;
    let page = page_size() as u64;
    let mut found = Vec::new();
    for at in (0..buffer.bytes() as u64).step_by(page_size()) {
        let mut entry = [0; 8];
        map.read_exact_at(&mut entry, (buffer.addr() + at) / page * 8)?;
        let entry = u64::from_le_bytes(entry);
        ensure!(entry & PRESENT != 0, "a page is not present");
        found.push((entry & FRAME) * page);
    }
    Ok(found)
}

/// Memory that is completely above 4 GiB.
fn high(bytes: usize) -> Result<Buffer> {
    /// Attempts; memory that is too low is kept until the end, so that it is not allocated again.
    const TRIES: usize = 16;
    let mut low = Vec::new();
    for _ in 0..TRIES {
        let buffer = Buffer::new(bytes)?;
        for at in (0..bytes).step_by(page_size()) {
            buffer.write(at, &[1]);
        }
        let pages = physical(&buffer)?;
        if pages.iter().all(|page| *page >= FOUR_GIB) {
            say(&format!("a buffer at {:#x}", pages[0]));
            return Ok(buffer);
        }
        low.push(buffer);
    }
    anyhow::bail!("the kernel gives no memory above 4 GiB: the guest needs more than that")
}

/// Addresses of more than 32 bits: the masks allow them, and data moves there.
pub(super) fn memory_above_4g(setup: &Setup) -> Result<()> {
    for mask in ["dma_mask_bits", "consistent_dma_mask_bits"] {
        let path = format!("/sys/bus/pci/devices/{}/{mask}", world::function(0)?);
        let bits = world::text(path)?;
        ensure!(bits.trim() == "64", "{mask} is {bits:?}, not 64");
    }
    let ctx = Context::open(0)?;
    let peer = || Peer::shaped(&ctx, high(256 << 10)?, QpShape::default());
    let mut pair = Pair::of(peer()?, peer()?)?;
    for _ in 0..3 {
        pair.exchange(&mut setup.rng())?;
    }
    pair.destroy()
}
