// SPDX-License-Identifier: GPL-2.0

//! Doorbell pages of processes, and how many objects the context of each has.
//!
//! The rules are those of [`queue::quota`](crate::queue::quota). Here a context is its doorbell
//! page, and a user is the effective user ID of the task that opened it. A reset ends all objects,
//! so it ends all counts: a page is of the epoch in which it was taken.

use super::{
    command::QueryPage,
    device::Device, //
};
use crate::{
    queue::quota::{
        share,
        Account,
        Kind,
        Mark,
        PerKind,
        Scope,
        Sums, //
    },
    sys::{
        compat::edquot,
        current::fatal_signal_pending,
        door::Frame,
        gate::Pass, //
    },
};
use kernel::{
    prelude::*,
    task::Kuid, //
};

/// A context that is open.
struct Holder {
    /// No two are the same.
    serial: u64,
    /// The place of its user; `None` if a privileged task opened it.
    user: Option<usize>,
    account: Account,
}

/// A user with open contexts.
struct User {
    id: Kuid,
    contexts: u32,
    sum: PerKind<u32>,
}

/// Doorbell pages, contexts and users of an epoch.
pub(super) struct Shares {
    /// By doorbell page. Page 0 is the driver's.
    holders: KVVec<Option<KBox<Holder>>>,
    users: KVVec<Option<User>>,
    /// Objects of all users.
    all: PerKind<u32>,
    serial: u64,
}

impl Shares {
    pub(super) const fn new() -> Self {
        Self {
            holders: KVVec::new(),
            users: KVVec::new(),
            all: PerKind {
                qp: 0,
                cq: 0,
                mr: 0,
                pd: 0,
                page: 0,
            },
            serial: 0,
        }
    }

    /// The epoch has ended, and with it all objects.
    pub(super) fn clear(&mut self) {
        self.holders.clear();
        self.users.clear();
        self.all = PerKind::default();
    }

    /// What a context of the user at this place counts for.
    fn sums<'a>(
        users: &'a mut [Option<User>],
        all: &'a mut PerKind<u32>,
        user: Option<usize>,
    ) -> Option<Sums<'a>> {
        let user = users.get_mut(user?)?.as_mut()?;
        let user = &mut user.sum;
        Some(Sums { user, all })
    }

    /// The context of a page.
    fn holder(&self, page: u16) -> Option<&Holder> {
        self.holders.get(usize::from(page))?.as_deref()
    }

    /// Changes the account of a context.
    fn change<R>(
        &mut self,
        page: u16,
        f: impl FnOnce(&mut Account, Option<Sums<'_>>) -> R,
    ) -> Option<R> {
        let holder = self.holders.get_mut(usize::from(page))?.as_mut()?;
        let sums = Self::sums(&mut self.users, &mut self.all, holder.user);
        Some(f(&mut holder.account, sums))
    }

    /// The place of a user, which has one context more.
    fn join(&mut self, id: Kuid) -> Result<usize> {
        let known = |user: &Option<User>| user.as_ref().is_some_and(|user| user.id == id);
        if let Some(place) = self.users.iter().position(known) {
            if let Some(Some(user)) = self.users.get_mut(place) {
                user.contexts = user.contexts.saturating_add(1);
            }
            return Ok(place);
        }
        let place = match self.users.iter().position(Option::is_none) {
            Some(place) => place,
            None => {
                self.users.push(None, GFP_KERNEL)?;
                self.users.len() - 1
            }
        };
        if let Some(user) = self.users.get_mut(place) {
            *user = Some(User {
                id,
                contexts: 1,
                sum: PerKind::default(),
            });
        }
        Ok(place)
    }

    /// The user at this place has one context less.
    fn part(&mut self, place: Option<usize>) {
        if let Some(user) = place.and_then(|place| self.users.get_mut(place)) {
            let left = user.as_ref().map_or(0, |user| user.contexts);
            match left {
                0 | 1 => *user = None,
                _ => user.iter_mut().for_each(|user| user.contexts = left - 1),
            }
        }
    }

    /// Takes a page, of which there are `limit`, for a context of user `id`.
    fn open(&mut self, limit: u32, id: Option<Kuid>) -> Result<u16> {
        // Page 0 is the driver's, and is skipped.
        let free = self.holders.iter().skip(1).position(Option::is_none);
        let page = free.map_or(self.holders.len().max(1), |place| place + 1);
        if page >= limit as usize {
            return Err(ENOSPC);
        }
        let number = u16::try_from(page).map_err(|_| ENOSPC)?;
        while self.holders.len() <= page {
            self.holders.push(None, GFP_KERNEL)?;
        }
        let room = KBox::<Holder>::new_uninit(GFP_KERNEL_ACCOUNT)?;
        let user = id.map(|id| self.join(id)).transpose()?;
        let mut account = Account::default();
        let sums = Self::sums(&mut self.users, &mut self.all, user);
        if let Err(scope) = account.take(Kind::Page, limit, sums) {
            self.part(user);
            return Err(refusal(scope));
        }
        self.serial = self.serial.wrapping_add(1);
        if let Some(place) = self.holders.get_mut(page) {
            *place = Some(room.write(Holder {
                serial: self.serial,
                user,
                account,
            }));
        }
        Ok(number)
    }

    /// Gives a page back.
    fn close(&mut self, page: u16) {
        let place = self.holders.get_mut(usize::from(page));
        let Some(holder) = place.and_then(Option::take) else {
            return;
        };
        let sums = Self::sums(&mut self.users, &mut self.all, holder.user);
        holder.account.close(sums);
        self.part(holder.user);
    }

    /// The next page after `after` whose context has destroyed objects of `kind` that count in
    /// `scope`, as objects of the context of `page` do.
    fn next_holding(&self, scope: Scope, page: u16, kind: Kind, after: Option<u16>) -> Option<u16> {
        let user = self.holder(page)?.user;
        let counts = |other: u16, holder: &Holder| match scope {
            Scope::Context => other == page,
            Scope::User => holder.user == user,
            Scope::Users => holder.user.is_some(),
        };
        let first = after.map_or(0, |after| usize::from(after) + 1);
        let holders = self.holders.iter().enumerate().skip(first);
        let mut pages = holders.filter_map(|(page, holder)| {
            let holder = holder.as_ref()?;
            Some((u16::try_from(page).ok()?, holder))
        });
        pages
            .find(|(page, holder)| holder.account.count(kind).held != 0 && counts(*page, holder))
            .map(|(page, _)| page)
    }

    /// Before the device is asked what it keeps of the context of `page`.
    fn mark(&self, page: u16) -> Option<(u64, Mark)> {
        let holder = self.holder(page)?;
        Some((holder.serial, holder.account.mark()))
    }

    /// The device keeps so many indices of the context that was marked.
    fn settle(&mut self, page: u16, (serial, mark): (u64, Mark), kept: &PerKind<u32>) {
        if self
            .holder(page)
            .is_none_or(|holder| holder.serial != serial)
        {
            return;
        }
        for kind in [Kind::Qp, Kind::Cq] {
            self.change(page, |account, sums| {
                account.settle(kind, &mark, *kept.of(kind), sums);
            });
        }
    }
}

/// The error of an object that is refused.
fn refusal(scope: Scope) -> Error {
    match scope {
        Scope::Context | Scope::User => edquot(),
        Scope::Users => ENOSPC,
    }
}

/// An object that is being created counts already. When it is dropped the object was not created,
/// or was destroyed again.
pub(crate) struct Charge<'a> {
    device: &'a Device,
    page: u16,
    kind: Kind,
    made: bool,
}

impl Charge<'_> {
    /// The device has created the object. If it is destroyed again, the device may keep its index.
    pub(super) fn made(&mut self) {
        self.made = true;
    }

    /// The object is there: it counts until [`Device::discharge`].
    pub(crate) fn keep(self) {
        core::mem::forget(self);
    }
}

impl Drop for Charge<'_> {
    fn drop(&mut self) {
        if self.made {
            self.device.discharge(self.page, self.kind);
        } else {
            let mut shares = self.device.shares.lock();
            shares.change(self.page, |account, sums| account.give(self.kind, sums));
        }
    }
}

impl Device {
    /// How many objects of `kind` a context may have.
    pub(crate) fn quota(&self, kind: Kind) -> u32 {
        share(*self.most.of(kind))
    }

    /// Takes a doorbell page for a context that begins in `epoch`, opened by user `id`, or by a
    /// privileged task. Sleeps.
    ///
    /// # Errors
    ///
    /// `EIO` if the device was reset since, `ENOSPC` if all are taken or the rest is for privileged
    /// tasks, `EDQUOT` if the user has its share, `ENOMEM`.
    pub(crate) fn take_page(&self, epoch: u32, id: Option<Kuid>) -> Result<u16> {
        let mut shares = self.shares.lock();
        if epoch != self.epoch() {
            return Err(EIO);
        }
        shares.open(self.most.page, id)
    }

    /// Gives a doorbell page back that was taken in `epoch`: after a reset all are free anyway.
    /// All objects of its context have been destroyed. Sleeps.
    pub(crate) fn give_page(&self, epoch: u32, page: u16) {
        let mut shares = self.shares.lock();
        if epoch == self.epoch() {
            shares.close(page);
        }
    }

    /// What a process maps for its doorbell page.
    ///
    /// # Errors
    ///
    /// `EINVAL` if there is no such page.
    pub(crate) fn page_frame(&self, page: u16) -> Result<Frame> {
        self.function.page_frame(page)
    }

    /// Counts an object that the context of `page` is about to create. Asks the device only if the
    /// object would be refused. Sleeps.
    ///
    /// # Errors
    ///
    /// `EDQUOT` if the context or its user has its share, `ENOSPC` if the rest is for privileged
    /// tasks; `EINTR` if the caller was killed; those of the command.
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
            made: false,
        };
        let Err(mut scope) = take()? else {
            return Ok(charge());
        };
        let mut after = None;
        loop {
            let next = self.shares.lock().next_holding(scope, page, kind, after);
            let Some(asked) = next else {
                return Err(refusal(scope));
            };
            if fatal_signal_pending() {
                return Err(EINTR);
            }
            self.settle(pass, asked)?;
            match take()? {
                Ok(()) => return Ok(charge()),
                Err(wider) if wider > scope => (scope, after) = (wider, None),
                Err(_) => after = Some(asked),
            }
        }
    }

    /// An object of the context of `page` was destroyed. Inside a pass. Sleeps.
    pub(crate) fn discharge(&self, page: u16, kind: Kind) {
        self.shares.lock().change(page, |account, sums| match kind {
            Kind::Qp | Kind::Cq => account.hold(kind, sums),
            Kind::Mr | Kind::Pd | Kind::Page => account.give(kind, sums),
        });
    }

    /// Asks the device which indices of destroyed objects of a page it keeps. Sleeps.
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

    /// Objects of the context of a page that was taken in `epoch`. Sleeps.
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
