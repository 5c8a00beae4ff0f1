// SPDX-License-Identifier: GPL-2.0

//! Doorbell pages of processes, and the object counts of their contexts.
//!
//! The rules are those of [`policy::quota`](crate::policy::quota). A context is identified by its
//! doorbell page, a user by the effective user ID of the task that opened the context. A reset ends
//! all objects and clears all counts. A page is taken until its context gives it back, also over a
//! reset: a process may still have it mapped.

use crate::policy::quota::{
    Account,
    Kind,
    Mark,
    PerKind,
    Scope,
    Sums, //
};
use core::mem::MaybeUninit;
use kernel::{
    prelude::*,
    task::Kuid, //
};

/// The life of a context.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// It is of this epoch.
    Current,
    /// It is closed, and the device may still have objects of it. The next reset frees the page.
    Abandoned,
    /// It is of an earlier epoch: it has a page and no objects.
    Stale,
}

/// A context that is open.
pub(super) struct Holder {
    /// Unique: a page may have another holder by the time of an answer.
    serial: u64,
    phase: Phase,
    /// `None` if a privileged task opened it.
    user: Option<Kuid>,
    pub(super) account: Account,
}

/// A user with open contexts.
struct User {
    id: Kuid,
    contexts: u32,
    sum: PerKind<u32>,
}

/// Doorbell pages, contexts and users of an epoch.
pub(super) struct Shares {
    epoch: u32,
    /// By doorbell page. Page 0 is the driver's.
    holders: KVVec<Option<KBox<Holder>>>,
    users: KVVec<User>,
    /// Objects of all users together, by kind.
    all: PerKind<u32>,
    serial: u64,
    /// The page about which the device was queried last.
    asked: u16,
}

impl Shares {
    pub(super) fn new() -> Self {
        Self {
            epoch: 0,
            holders: KVVec::new(),
            users: KVVec::new(),
            all: PerKind::default(),
            serial: 0,
            asked: 0,
        }
    }

    /// The epoch whose objects are counted.
    pub(super) fn epoch(&self) -> u32 {
        self.epoch
    }

    /// Clears all counts, if this is another epoch.
    pub(super) fn begin(&mut self, epoch: u32) {
        if epoch == self.epoch {
            return;
        }
        self.epoch = epoch;
        for place in self.holders.iter_mut() {
            let _abandoned = place.take_if(|holder| holder.phase == Phase::Abandoned);
            if let Some(holder) = place {
                holder.phase = Phase::Stale;
                holder.user = None;
                holder.account = Account::default();
            }
        }
        self.users.clear();
        self.all = PerKind::default();
    }

    /// The sums that a context of this user counts towards.
    fn sums<'a>(
        users: &'a mut [User],
        all: &'a mut PerKind<u32>,
        id: Option<Kuid>,
    ) -> Option<Sums<'a>> {
        let user = users.iter_mut().find(|user| Some(user.id) == id)?;
        let user = &mut user.sum;
        Some(Sums { user, all })
    }

    /// The context of a page.
    pub(super) fn holder(&self, page: u16) -> Option<&Holder> {
        self.holders.get(usize::from(page))?.as_deref()
    }

    /// Changes the account of a context.
    pub(super) fn change<R>(
        &mut self,
        page: u16,
        f: impl FnOnce(&mut Account, Option<Sums<'_>>) -> R,
    ) -> Option<R> {
        let holder = self.holders.get_mut(usize::from(page))?.as_mut()?;
        let sums = Self::sums(&mut self.users, &mut self.all, holder.user);
        Some(f(&mut holder.account, sums))
    }

    /// Counts one more context of a user.
    fn join(&mut self, id: Kuid) -> Result {
        match self.users.iter_mut().find(|user| user.id == id) {
            Some(user) => user.contexts = user.contexts.saturating_add(1),
            None => {
                let (contexts, sum) = (1, PerKind::default());
                self.users.push(User { id, contexts, sum }, GFP_KERNEL)?;
            }
        }
        Ok(())
    }

    /// Counts one context less of a user.
    fn part(&mut self, id: Option<Kuid>) {
        if let Some(user) = self.users.iter_mut().find(|user| Some(user.id) == id) {
            user.contexts = user.contexts.saturating_sub(1);
        }
        self.users.retain(|user| user.contexts != 0);
    }

    /// Takes one of `limit` pages for a context of user `id`. `room` is allocated by the caller,
    /// which may wait for memory of its cgroup.
    pub(super) fn open(
        &mut self,
        limit: u32,
        id: Option<Kuid>,
        room: KBox<MaybeUninit<Holder>>,
    ) -> Result<u16> {
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
        id.map(|id| self.join(id)).transpose()?;
        let mut account = Account::default();
        let sums = Self::sums(&mut self.users, &mut self.all, id);
        if let Err(scope) = account.take(Kind::Page, limit, sums) {
            self.part(id);
            return Err(refusal(scope));
        }
        self.serial = self.serial.wrapping_add(1);
        if let Some(place) = self.holders.get_mut(page) {
            *place = Some(room.write(Holder {
                serial: self.serial,
                phase: Phase::Current,
                user: id,
                account,
            }));
        }
        Ok(number)
    }

    /// Gives a page back: nothing of its context counts any more.
    pub(super) fn close(&mut self, page: u16) {
        let place = self.holders.get_mut(usize::from(page));
        let Some(holder) = place.and_then(Option::take) else {
            return;
        };
        if holder.phase == Phase::Stale {
            return;
        }
        let sums = Self::sums(&mut self.users, &mut self.all, holder.user);
        holder.account.close(sums);
        self.part(holder.user);
    }

    /// Gives a page back whose context may have objects until the next reset.
    pub(super) fn abandon(&mut self, page: u16) {
        let Some(place) = self.holders.get_mut(usize::from(page)) else {
            return;
        };
        let _stale = place.take_if(|holder| holder.phase == Phase::Stale);
        if let Some(holder) = place {
            holder.phase = Phase::Abandoned;
        }
    }

    /// The next page in turn whose context has destroyed objects of `kind` that still count in the
    /// `scope` of the context of `page`.
    pub(super) fn next_holding(&mut self, scope: Scope, page: u16, kind: Kind) -> Option<u16> {
        let user = self.holder(page)?.user;
        let counts = |other: u16, holder: &Holder| match scope {
            Scope::Context => other == page,
            Scope::User => holder.user == user,
            Scope::Users => holder.user.is_some(),
        };
        let first = usize::from(self.asked) + 1;
        let holders = self.holders.iter().enumerate();
        let before = holders.clone().take(first);
        let mut pages =
            Iterator::chain(holders.skip(first), before).filter_map(|(page, holder)| {
                let holder = holder.as_ref()?;
                Some((u16::try_from(page).ok()?, holder))
            });
        let (next, _) = pages
            .find(|(page, holder)| holder.account.count(kind).held != 0 && counts(*page, holder))?;
        self.asked = next;
        Some(next)
    }

    /// Marks the account of the context of `page`, before the device is queried.
    pub(super) fn mark(&self, page: u16) -> Option<(u64, Mark)> {
        let holder = self.holder(page)?;
        Some((holder.serial, holder.account.mark()))
    }

    /// Applies the device's answer, `kept`, to the context that was marked.
    pub(super) fn settle(&mut self, page: u16, (serial, mark): (u64, Mark), kept: [u32; 3]) {
        let present = self.holder(page).map(|holder| holder.serial);
        if present != Some(serial) {
            return;
        }
        for (kind, kept) in [Kind::Qp, Kind::Cq, Kind::Srq].into_iter().zip(kept) {
            self.change(page, |account, sums| {
                account.settle(kind, &mark, kept, sums);
            });
        }
    }
}

/// The error of an object that is refused.
pub(super) fn refusal(scope: Scope) -> Error {
    match scope {
        Scope::Context | Scope::User => EDQUOT,
        Scope::Users => ENOSPC,
    }
}

#[kernel::macros::kunit_tests(qpair_shares)]
mod tests {
    use super::*;

    /// Two contexts of a privileged task, which have all pages but the driver's.
    fn two() -> Result<(Shares, u16, u16)> {
        let mut shares = Shares::new();
        let first = open(&mut shares)?;
        let second = open(&mut shares)?;
        assert_eq!((first, second), (1, 2));
        assert!(is_full(&mut shares));
        Ok((shares, first, second))
    }

    fn open(shares: &mut Shares) -> Result<u16> {
        shares.open(3, None, KBox::new_uninit(GFP_KERNEL)?)
    }

    fn is_full(shares: &mut Shares) -> bool {
        open(shares).is_err_and(|error| error == ENOSPC)
    }

    #[test]
    fn a_reset_frees_the_pages_of_closed_contexts_alone() -> Result {
        let (mut shares, first, second) = two()?;
        shares.abandon(first);
        shares.begin(0);
        assert!(is_full(&mut shares));
        shares.begin(1);
        assert_eq!(shares.epoch(), 1);
        assert_eq!(open(&mut shares)?, first);
        assert!(is_full(&mut shares));
        // Its context is of an earlier epoch: the device has no objects of it.
        shares.abandon(second);
        assert_eq!(open(&mut shares)?, second);
        Ok(())
    }

    #[test]
    fn an_answer_counts_for_the_context_that_was_marked() -> Result {
        let (mut shares, page, _) = two()?;
        let destroyed = |shares: &mut Shares| {
            shares.change(page, |account, _| {
                account.hold(Kind::Cq);
                account.hold(Kind::Cq);
            });
            shares.mark(page).ok_or(EINVAL)
        };
        let held = |shares: &Shares| {
            let count = |holder: &Holder| holder.account.count(Kind::Cq).held;
            shares.holder(page).map_or(0, count)
        };

        let earlier = destroyed(&mut shares)?;
        shares.close(page);
        assert_eq!(open(&mut shares)?, page);
        let marked = destroyed(&mut shares)?;
        shares.settle(page, earlier, [0; 3]);
        assert_eq!(held(&shares), 2);
        shares.settle(page, marked, [0, 1, 0]);
        assert_eq!(held(&shares), 1);
        Ok(())
    }
}
