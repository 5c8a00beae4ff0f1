// SPDX-License-Identifier: GPL-2.0

//! Takes doorbell pages for processes, and charges their objects: see [`shares`](super::shares).

use super::{
    device::Device,
    shares::refusal, //
};
use crate::{
    hw::command::QueryPage,
    kernel::{
        gate::Pass,
        mmio::Frame,
        task::fatal_signal_pending, //
    },
    policy::quota::{
        share,
        Account,
        Kind, //
    }, //
};
use kernel::{
    prelude::*,
    task::Kuid, //
};

/// The most pages about which the device is queried before an object is refused.
const ASKED: u32 = 8;

/// The charge of an object that is being created. The drop gives it back: the device has not created the
/// object. Or it has, and the driver has no EQ for it any more: then the epoch ends, and all counts.
pub(crate) struct Charge<'a> {
    device: &'a Device,
    page: u16,
    kind: Kind,
}

impl Charge<'_> {
    /// The object exists: it counts until [`Device::discharge`].
    pub(crate) fn commit(self) {
        core::mem::forget(self);
    }
}

impl Drop for Charge<'_> {
    fn drop(&mut self) {
        let mut shares = self.device.shares.lock();
        shares.change(self.page, |account, sums| account.give(self.kind, sums));
    }
}

impl Device {
    /// How many objects of `kind` a context may have.
    pub(crate) fn quota(&self, kind: Kind) -> u32 {
        share(*self.most.of(kind))
    }

    /// Takes a doorbell page for a context that begins in `epoch`, opened by user `id`, or by a
    /// privileged task if `None`. Sleeps.
    ///
    /// # Errors
    ///
    /// `EIO` if the device was reset since, `ENOSPC` if all are taken or the rest is reserved for
    /// privileged tasks, `EDQUOT` if the user has used up its share, `ENOMEM`.
    pub(crate) fn take_page(&self, epoch: u32, id: Option<Kuid>) -> Result<u16> {
        let room = KBox::new_uninit(GFP_KERNEL_ACCOUNT)?;
        let mut shares = self.shares.lock();
        if epoch != self.epoch() {
            return Err(EIO);
        }
        shares.open(self.most.page, id, room)
    }

    /// Gives a doorbell page back. All objects of its context have been destroyed, by command or by
    /// a reset. Sleeps.
    pub(crate) fn give_page(&self, page: u16) {
        self.shares.lock().close(page);
    }

    /// Gives a doorbell page back whose context may have objects until the next reset. Sleeps.
    pub(crate) fn abandon_page(&self, page: u16) {
        self.shares.lock().abandon(page);
    }

    /// The page frame that a process maps as its doorbell page.
    ///
    /// # Errors
    ///
    /// `EINVAL` if there is no such page.
    pub(crate) fn page_frame(&self, page: u16) -> Result<Frame> {
        self.function.page_frame(page)
    }

    /// Charges an object that the context of `page` is about to create. Queries the device only if
    /// the object would be refused, of [`ASKED`] pages in turn: a user may have destroyed objects in
    /// hundreds. Sleeps.
    ///
    /// # Errors
    ///
    /// `EDQUOT` if the context or its user has used up its share, `ENOSPC` if the rest is reserved
    /// for privileged tasks; `EINTR` if the caller was killed; `EIO` or `ENODEV` if the device is
    /// being shut down; those of the command.
    pub(crate) fn charge(&self, pass: &Pass<'_>, page: u16, kind: Kind) -> Result<Charge<'_>> {
        let take = || {
            let mut shares = self.shares.lock();
            let limit = *self.most.of(kind);
            let taken = shares.change(page, |account, sums| account.take(kind, limit, sums));
            taken.ok_or(EIO)
        };
        let charge = || Charge {
            device: self,
            page,
            kind,
        };
        let Err(mut scope) = take()? else {
            return Ok(charge());
        };
        let mut first = None;
        for _ in 0..ASKED {
            let next = self.shares.lock().next_holding(scope, page, kind);
            let Some(asked) = next.filter(|next| first != Some(*next)) else {
                break;
            };
            first = first.or(next);
            if fatal_signal_pending() {
                return Err(EINTR);
            }
            // A reset or an unbind waits for `pass`.
            drop(self.enter(self.epoch())?);
            self.settle(pass, asked)?;
            match take()? {
                Ok(()) => return Ok(charge()),
                Err(wider) if wider > scope => (scope, first) = (wider, None),
                Err(_) => {}
            }
        }
        Err(refusal(scope))
    }

    /// An object of the context of `page`, which still has that page, was destroyed. Sleeps.
    pub(crate) fn discharge(&self, page: u16, kind: Kind) {
        self.shares.lock().change(page, |account, sums| match kind {
            Kind::Qp | Kind::Cq | Kind::Srq => account.hold(kind),
            Kind::Mr | Kind::Mw | Kind::Member | Kind::Pd | Kind::Page | Kind::Ah => {
                account.give(kind, sums);
            }
        });
    }

    /// Queries how many indices of destroyed objects of a page the device keeps. Sleeps.
    ///
    /// # Errors
    ///
    /// Those of the command.
    pub(crate) fn settle(&self, pass: &Pass<'_>, page: u16) -> Result {
        let mark = self.shares.lock().mark(page);
        if let Some(mark) = mark {
            let kept = self.admin.execute(pass, QueryPage(page))?;
            self.shares.lock().settle(page, mark, &kept);
        }
        Ok(())
    }

    /// The account of the context of a page that was taken in `epoch`. Sleeps.
    pub(crate) fn account(&self, epoch: u32, page: u16) -> Account {
        let shares = self.shares.lock();
        if epoch != self.epoch() {
            return Account::default();
        }
        shares
            .holder(page)
            .map_or(Account::default(), |holder| holder.account)
    }
}
