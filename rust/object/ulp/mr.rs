// SPDX-License-Identifier: GPL-2.0

//! Memory regions whose memory work requests of kernel ULPs register.
//!
//! The table of addresses is allocated with the region: a ULP maps pages and posts in any context.

use super::{
    super::registered::Verbs,
    held::{
        Held,
        Inner, //
    }, //
};
use crate::{
    abi::command::BufferList,
    hw::ring::Ring,
    kernel::rdma::Scatterlist,
    life::client::Client,
    queue::{
        pages::PageList,
        storage::Storage, //
    }, //
};
use kernel::{
    prelude::*,
    static_lock_class,
    sync::Arc, //
};

/// A fast registration memory region of a kernel ULP.
#[pin_data]
pub(crate) struct Frmr {
    /// Base-two logarithms of the smallest and the largest page.
    shifts: (u8, u8),
    /// The table, and the pages in it.
    #[pin]
    held: Held<Ring, PageList>,
}

impl Frmr {
    /// One without memory, of at most `most` pages, whose addresses are written to `table`. Sleeps.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn new(most: u32, shifts: (u8, u8), table: Ring) -> Result<Arc<Self>> {
        let lock = (c"Frmr::held", static_lock_class!());
        Arc::pin_init(
            pin_init!(Self {
                shifts,
                held <- Held::new(table, None, PageList::new(most), lock),
            }),
            GFP_KERNEL,
        )
    }

    /// Takes the pages of a scatterlist. Returns how many of its entries are mapped. Any context.
    ///
    /// # Errors
    ///
    /// `EINVAL`: a size of pages that the device does not have. Those of
    /// [`Scatterlist::for_each_page`].
    pub(crate) fn map(&self, list: Scatterlist<'_, Verbs>) -> Result<u32> {
        let shift = list.page_shift()?;
        let (least, most) = self.shifts;
        if !(least..=most).contains(&shift) {
            return Err(EINVAL);
        }
        let mut inner = self.held.lock();
        let Inner { memory, state, .. } = &mut *inner;
        state.begin(shift);
        list.for_each_page(|page| {
            let index = state.push(page).map_err(|_| ENOMEM)?;
            // Without a table what is posted is flushed.
            if let Some(table) = memory {
                table.store(index, page);
            }
            Ok(())
        })
    }

    /// Posts the pages that were mapped last, as the memory of `bytes` bytes from `addr` on, by
    /// `post`. If that fails, the device has the pages that it had before. Any context.
    ///
    /// # Errors
    ///
    /// `EINVAL`: the pages do not hold that, or the table is gone. A queue pair that would still
    /// post it is flushed before that. Those of `post`.
    pub(super) fn give<R>(
        &self,
        (addr, bytes): (u64, u64),
        post: impl FnOnce(BufferList) -> Result<R>,
    ) -> Result<R> {
        let mut inner = self.held.lock();
        let table = inner.memory.as_ref().map(Ring::address);
        let posted = post(inner.state.list(table, addr, bytes).ok_or(EINVAL)?)?;
        inner.state.give();
        Ok(posted)
    }
}

impl Client for Frmr {
    fn unmap(&self) {
        self.held.take(drop);
    }
}
