// SPDX-License-Identifier: GPL-2.0

//! Memory regions whose memory work requests of kernel ULPs register.
//!
//! The table of addresses is allocated with the region: a ULP maps pages and posts in any context.

use super::super::file::Verbs;
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
    new_mutex,
    new_spinlock_irq,
    prelude::*,
    sync::{
        Arc,
        Mutex,
        SpinLockIrq, //
    }, //
};

struct FrmrInner {
    pages: PageList,
    /// `None` once the device does not use it any more.
    table: Option<Ring>,
}

/// A fast registration memory region of a kernel ULP.
#[pin_data]
pub(crate) struct Frmr {
    /// Base-two logarithms of the smallest and the largest page.
    shifts: (u8, u8),
    #[pin]
    inner: SpinLockIrq<FrmrInner>,
    /// Held while its table is taken: a shutdown frees what is kept after it has unmapped.
    #[pin]
    taking: Mutex<()>,
}

impl Frmr {
    /// One without memory, of at most `most` pages, whose addresses are written to `table`. Sleeps.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn new(most: u32, shifts: (u8, u8), table: Ring) -> Result<Arc<Self>> {
        let inner = FrmrInner {
            pages: PageList::new(most),
            table: Some(table),
        };
        Arc::pin_init(
            pin_init!(Self {
                shifts,
                inner <- new_spinlock_irq!(inner, "Frmr::inner"),
                taking <- new_mutex!((), "Frmr::taking"),
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
        let mut inner = self.inner.lock();
        let FrmrInner { pages, table } = &mut *inner;
        pages.begin(shift);
        list.for_each_page(|page| {
            let index = pages.push(page).map_err(|_| ENOMEM)?;
            // Without a table what is posted is flushed.
            if let Some(table) = table {
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
        let mut inner = self.inner.lock();
        let FrmrInner { pages, table } = &mut *inner;
        let table = table.as_ref().map(Ring::address);
        let posted = post(pages.list(table, addr, bytes).ok_or(EINVAL)?)?;
        pages.give();
        Ok(posted)
    }
}

impl Client for Frmr {
    fn unmap(&self) {
        let _taking = self.taking.lock();
        let table = self.inner.lock().table.take();
        drop(table);
    }
}
