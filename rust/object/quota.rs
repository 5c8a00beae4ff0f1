// SPDX-License-Identifier: GPL-2.0

//! Takes doorbell pages for processes, and charges their objects: see [`shares`](super::shares).

use super::shares::{
    refusal,
    Shares, //
};
use crate::{
    hw::{
        command::QueryPage,
        eq::Eq, //
    },
    kernel::{
        gate::Pass,
        task::fatal_signal_pending, //
    },
    life::device::Device,
    policy::quota::{
        share,
        Account,
        Kind,
        PerKind, //
    }, //
};
use kernel::{
    new_mutex,
    prelude::*,
    sync::{
        Arc,
        Mutex,
        MutexGuard, //
    },
    task::Kuid, //
};

/// The most pages about which the device is queried before an object is refused.
const ASKED: u32 = 8;

/// Address handles of all contexts: 190 bytes of the core each.
const HANDLES: u32 = 1 << 15;

/// Doorbell pages and objects that are left, shared by all files of a device.
#[pin_data]
pub(super) struct Quotas {
    device: Arc<Device>,
    /// The number of objects of each kind, shared by contexts and the kernel.
    most: PerKind<u32>,
    #[pin]
    shares: Mutex<Shares>,
}

impl Quotas {
    /// Those of a device. Sleeps.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(super) fn new(device: Arc<Device>) -> Result<Arc<Self>> {
        let limits = device.limits();
        let slots = (0..device.vectors()).map(|index| Eq::process_cqs(limits, index));
        let most = PerKind {
            qp: limits.qp,
            // Each CQ takes a slot of its EQ.
            cq: slots.fold(0u32, u32::saturating_add).min(limits.cq),
            mr: limits.mr,
            pd: limits.pd,
            srq: limits.srq,
            mw: limits.mw,
            // So that no user takes all groups: each membership may be in a group of its own.
            member: limits.groups,
            page: limits.pages,
            ah: HANDLES,
        };
        Arc::pin_init(
            pin_init!(Self {
                device,
                most,
                shares <- new_mutex!(Shares::new(), "Quotas::shares"),
            }),
            GFP_KERNEL,
        )
    }

    /// The shares of the present epoch.
    fn shares(&self) -> MutexGuard<'_, Shares> {
        let mut shares = self.shares.lock();
        shares.begin(self.device.epoch());
        shares
    }

    /// How many objects of `kind` a context may have.
    pub(super) fn limit(&self, kind: Kind) -> u32 {
        share(*self.most.of(kind))
    }

    /// Takes a doorbell page for a context that begins in `epoch`, opened by user `id`, or by a
    /// privileged task if `None`. Sleeps.
    ///
    /// # Errors
    ///
    /// `EIO` if the device was reset since, `ENOSPC` if all are taken or the rest is reserved for
    /// privileged tasks, `EDQUOT` if the user has used up its share, `ENOMEM`.
    pub(super) fn take_page(&self, epoch: u32, id: Option<Kuid>) -> Result<u16> {
        let room = KBox::new_uninit(GFP_KERNEL_ACCOUNT)?;
        let mut shares = self.shares();
        if epoch != shares.epoch() {
            return Err(EIO);
        }
        shares.open(self.most.page, id, room)
    }

    /// Gives a doorbell page back. All objects of its context have been destroyed, by command or by
    /// a reset. Sleeps.
    pub(super) fn give_page(&self, page: u16) {
        self.shares().close(page);
    }

    /// Gives a doorbell page back whose context may have objects until the next reset. Sleeps.
    pub(super) fn abandon_page(&self, page: u16) {
        self.shares().abandon(page);
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
    pub(super) fn charge(&self, pass: &Pass<'_>, page: u16, kind: Kind) -> Result {
        let take = || {
            let mut shares = self.shares();
            let limit = *self.most.of(kind);
            let taken = shares.change(page, |account, sums| account.take(kind, limit, sums));
            taken.ok_or(EIO)
        };
        let Err(mut scope) = take()? else {
            return Ok(());
        };
        let mut first = None;
        for _ in 0..ASKED {
            let next = self.shares().next_holding(scope, page, kind);
            let Some(asked) = next.filter(|next| first != Some(*next)) else {
                break;
            };
            first = first.or(next);
            if fatal_signal_pending() {
                return Err(EINTR);
            }
            // A reset or an unbind waits for `pass`.
            drop(self.device.enter(self.device.epoch())?);
            self.settle(pass, asked)?;
            match take()? {
                Ok(()) => return Ok(()),
                Err(wider) if wider > scope => (scope, first) = (wider, None),
                Err(_) => {}
            }
        }
        Err(refusal(scope))
    }

    /// Gives the charge of an object back that was not created. Sleeps.
    pub(super) fn refund(&self, page: u16, kind: Kind) {
        self.shares()
            .change(page, |account, sums| account.give(kind, sums));
    }

    /// An object of the context of `page`, which still has that page, was destroyed. Sleeps.
    pub(super) fn discharge(&self, page: u16, kind: Kind) {
        self.shares().change(page, |account, sums| match kind {
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
    pub(super) fn settle(&self, pass: &Pass<'_>, page: u16) -> Result {
        let mark = self.shares().mark(page);
        if let Some(mark) = mark {
            let kept = self.device.admin.execute(pass, QueryPage(page))?;
            self.shares().settle(page, mark, kept);
        }
        Ok(())
    }

    /// The account of the context of a page that was taken in `epoch`. Sleeps.
    pub(super) fn account(&self, epoch: u32, page: u16) -> Account {
        let shares = self.shares();
        if epoch != shares.epoch() {
            return Account::default();
        }
        shares
            .holder(page)
            .map_or(Account::default(), |holder| holder.account)
    }
}
