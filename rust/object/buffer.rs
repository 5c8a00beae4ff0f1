// SPDX-License-Identifier: GPL-2.0

//! Memory of a process as a buffer list.
//!
//! [`umem`](crate::kernel::umem) pins and maps the pages, [`buflist`](crate::queue::buflist) plans the
//! list. This file allocates the tables of the list, in coherent memory, and fills them.

use crate::{
    abi::command::BufferList,
    hw::function::Limits,
    kernel::{
        dma::Coherent,
        gate::Pass,
        task::{
            cond_resched,
            fatal_signal_pending, //
        },
        umem::{
            Access,
            Mapped,
            Pinned, //
        }, //
    },
    queue::buflist::{
        PageLimits,
        Plan,
        Segment,
        Unfit,
        LEAF_BYTES,
        LEAF_ENTRIES, //
    }, //
};
use kernel::prelude::*;

/// The longest root of page addresses; longer lists get leaf tables. It is one page.
const FLAT: u64 = LEAF_ENTRIES;

/// Memory that is pinned and mapped, with its list.
///
/// The device must no longer use it when it is dropped.
pub(super) struct UserBuffer {
    root: Option<Coherent>,
    leaves: KVVec<Coherent>,
    mapped: Mapped,
    /// What a context has of the memory.
    pub(super) list: BufferList,
}

impl UserBuffer {
    /// Maps `pinned` and writes its tables. Sleeps, but not for a process.
    ///
    /// # Errors
    ///
    /// - `ENOMEM`: no memory for the tables, or for the mapping.
    /// - `EINTR`: the caller was killed.
    /// - `EINVAL`: no page size of the device fits the memory.
    pub(super) fn new(pass: &Pass<'_>, pinned: Pinned, limits: &Limits) -> Result<Self> {
        let mapped = pinned.map(pass)?;
        if mapped.pinned().bytes() == 0 {
            return Ok(Self {
                root: None,
                leaves: KVVec::new(),
                mapped,
                list: BufferList::default(),
            });
        }
        let limits = PageLimits {
            min_shift: limits.min_page_shift,
            max_shift: limits.max_page_shift,
        };
        let plan = Plan::new(segments(&mapped), limits, FLAT).map_err(|unfit| match unfit {
            Unfit::Empty | Unfit::Seam => EINVAL,
            Unfit::Overflow => EOVERFLOW,
        })?;
        let root = match usize::try_from(plan.root_entries()).map_err(|_| ENOMEM)? {
            0 => None,
            entries => Some(Coherent::accounted(
                pass,
                entries.checked_mul(8).ok_or(ENOMEM)?,
            )?),
        };
        let mut this = Self {
            list: plan.describe(root.as_ref().map_or(0, Coherent::address)),
            root,
            leaves: KVVec::new(),
            mapped,
        };
        match plan.levels() {
            0 => {}
            1 => this.fill_flat(&plan)?,
            _ => this.fill_leaves(pass, &plan)?,
        }
        Ok(this)
    }

    fn fill_flat(&mut self, plan: &Plan) -> Result {
        let root = self.root.as_ref().ok_or(EINVAL)?;
        for (index, page) in plan.entries(segments(&self.mapped)).enumerate() {
            root.write(index, page).ok_or(EINVAL)?;
        }
        Ok(())
    }

    fn fill_leaves(&mut self, pass: &Pass<'_>, plan: &Plan) -> Result {
        let root = self.root.as_ref().ok_or(EINVAL)?;
        let leaves = usize::try_from(plan.leaves()).map_err(|_| ENOMEM)?;
        self.leaves.reserve(leaves, GFP_KERNEL_ACCOUNT)?;
        let mut pages = plan.entries(segments(&self.mapped));
        for index in 0..leaves {
            // A shutdown waits for the pass.
            if fatal_signal_pending() {
                return Err(EINTR);
            }
            cond_resched();
            let leaf = Coherent::accounted(pass, LEAF_BYTES as usize)?;
            for (entry, page) in pages.by_ref().take(LEAF_ENTRIES as usize).enumerate() {
                leaf.write(entry, page).ok_or(EINVAL)?;
            }
            root.write(index, leaf.address()).ok_or(EINVAL)?;
            self.leaves.push(leaf, GFP_KERNEL_ACCOUNT)?;
        }
        Ok(())
    }

    /// Pages that are pinned.
    pub(super) fn pages(&self) -> usize {
        self.mapped.pinned().pages()
    }

    /// What the device may do with the memory.
    pub(super) fn access(&self) -> Access {
        self.mapped.pinned().access()
    }

    /// Takes all memory from the device, which must be quiet. The pages stay pinned.
    pub(super) fn unmap_now(&mut self) {
        self.free_tables();
        self.mapped.unmap_now();
    }

    /// Frees the root before its leaves.
    fn free_tables(&mut self) {
        self.root = None;
        while self.leaves.pop().is_some() {
            cond_resched();
        }
        self.leaves = KVVec::new();
    }
}

impl Drop for UserBuffer {
    fn drop(&mut self) {
        self.free_tables();
    }
}

/// The pieces of the buffer. The mapping is of whole pages; the buffer may begin and end within
/// one.
fn segments(mapped: &Mapped) -> impl Iterator<Item = Segment> + '_ {
    let mut skip = mapped.pinned().offset() as u64;
    let mut left = mapped.pinned().bytes();
    mapped.segments().map(move |piece| {
        let skipped = skip.min(piece.dma_len());
        skip -= skipped;
        let bytes = (piece.dma_len() - skipped).min(left);
        left -= bytes;
        Segment {
            addr: piece.dma_address().wrapping_add(skipped),
            bytes,
        }
    })
}
