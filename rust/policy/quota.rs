// SPDX-License-Identifier: GPL-2.0
//! How many objects a context, a user, and all users together may have.
//!
//! | objects of | at most | leaves |
//! |---|---|---|
//! | a context | [half](share) of the device | half to other contexts |
//! | all contexts of a user | [half](share) of the device | half to other users |
//! | the contexts of all users | [all but an eighth](together) | an eighth to the kernel and the administrator |
//!
//! The last two do not count the contexts of a privileged task, and the kernel's own objects.
//!
//! An object counts from before its CREATE until its index is free. The device keeps the index of a
//! destroyed queue pair, CQ or SRQ until the heads of its rings have passed its entries. A process
//! publishes the heads of its own CQs, so only the device knows when that is. A destroyed object is
//! therefore *held*, and goes on counting, until the device reports how many indices it still keeps
//! for the context. The driver asks only where an object would be refused.

macro_rules! kinds {
    ($($(#[$doc:meta])* $kind:ident: $field:ident,)*) => {
        /// Kinds of object that a context is charged for.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Kind { $($(#[$doc])* $kind),* }

        /// A value for each [`Kind`].
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct PerKind<T> { $($(#[$doc])* pub $field: T),* }

        impl Kind {
            const ALL: &'static [Self] = &[$(Self::$kind),*];
        }

        impl<T> PerKind<T> {
            /// The value of a kind.
            pub const fn of(&self, kind: Kind) -> &T {
                match kind { $(Kind::$kind => &self.$field),* }
            }

            fn of_mut(&mut self, kind: Kind) -> &mut T {
                match kind { $(Kind::$kind => &mut self.$field),* }
            }
        }
    };
}
kinds! {
    /// Queue pair.
    Qp: qp,
    /// Completion queue.
    Cq: cq,
    /// Memory region.
    Mr: mr,
    /// Protection domain.
    Pd: pd,
    /// Shared receive queue.
    Srq: srq,
    /// Memory window.
    Mw: mw,
    /// Membership of a queue pair in a group.
    Member: member,
    /// Doorbell page; a context has one.
    Page: page,
    /// Address handle, which takes memory of the kernel alone.
    Ah: ah,
}

/// Of `limit` objects, how many a context may have, and how many a user.
pub const fn share(limit: u32) -> u32 {
    limit / 2
}

/// Of `limit` objects, how many the contexts of all users may have. The rest is at least one: the
/// kernel's own queue pair, CQ and page are among the limits of the device.
pub fn together(limit: u32) -> u32 {
    limit.saturating_sub(limit / 8).saturating_sub(1)
}

/// The quota that refuses an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Scope {
    /// The quota of the context.
    Context,
    /// The quota of its user.
    User,
    /// The quota of all users together.
    Users,
}

/// What an unprivileged context counts for, besides itself.
#[derive(Debug)]
pub struct Sums<'a> {
    /// Objects of its user.
    pub user: &'a mut PerKind<u32>,
    /// Objects of all users.
    pub all: &'a mut PerKind<u32>,
}

impl Sums<'_> {
    fn subtract(&mut self, kind: Kind, count: u32) {
        for sum in [&mut *self.user, &mut *self.all] {
            let sum = sum.of_mut(kind);
            *sum = sum.saturating_sub(count);
        }
    }
}

/// Objects of one kind of a context.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    /// Those that are there, or are being created.
    pub live: u32,
    /// Destroyed ones whose index may not be free.
    pub held: u32,
    /// How many have ever been destroyed; wraps.
    ended: u32,
}

/// The objects of a context.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Account(PerKind<Count>);

/// Which objects had been destroyed when the device was asked.
#[derive(Clone, Copy, Debug)]
pub struct Mark(PerKind<Count>);

impl Account {
    /// The objects of one kind.
    pub const fn count(&self, kind: Kind) -> Count {
        *self.0.of(kind)
    }

    /// Counts one more object, of which the device has `limit`; `sums` of a context that is not
    /// privileged.
    ///
    /// # Errors
    ///
    /// The quota that refuses it; then nothing has changed.
    pub fn take(&mut self, kind: Kind, limit: u32, sums: Option<Sums<'_>>) -> Result<(), Scope> {
        let count = self.0.of_mut(kind);
        if count.live.saturating_add(count.held) >= share(limit) {
            return Err(Scope::Context);
        }
        if let Some(Sums { user, all }) = sums {
            let (user, all) = (user.of_mut(kind), all.of_mut(kind));
            if *user >= share(limit) {
                return Err(Scope::User);
            }
            if *all >= together(limit) {
                return Err(Scope::Users);
            }
            *user = user.saturating_add(1);
            *all = all.saturating_add(1);
        }
        count.live = count.live.saturating_add(1);
        Ok(())
    }

    /// An object is gone, and so is its index.
    pub fn give(&mut self, kind: Kind, sums: Option<Sums<'_>>) {
        let count = self.0.of_mut(kind);
        count.live = count.live.saturating_sub(1);
        if let Some(mut sums) = sums {
            sums.subtract(kind, 1);
        }
    }

    /// An object is destroyed; the device may keep its index.
    pub fn hold(&mut self, kind: Kind) {
        let count = self.0.of_mut(kind);
        count.live = count.live.saturating_sub(1);
        count.held = count.held.saturating_add(1);
        count.ended = count.ended.wrapping_add(1);
    }

    /// Taken before the device is asked; for [`settle`](Self::settle).
    pub const fn mark(&self) -> Mark {
        Mark(self.0)
    }

    /// The device keeps `kept` indices of objects of this context that were destroyed before
    /// `mark`; what was destroyed since may be among them or not.
    pub fn settle(&mut self, kind: Kind, mark: &Mark, kept: u32, sums: Option<Sums<'_>>) {
        let count = self.0.of_mut(kind);
        let since = count.ended.wrapping_sub(mark.0.of(kind).ended);
        let freed = count.held.saturating_sub(kept.saturating_add(since));
        count.held -= freed;
        if let Some(mut sums) = sums {
            sums.subtract(kind, freed);
        }
    }

    /// The context is closed: nothing of it counts any more.
    pub fn close(self, sums: Option<Sums<'_>>) {
        let Some(mut sums) = sums else { return };
        for kind in Kind::ALL {
            let Count { live, held, .. } = self.count(*kind);
            sums.subtract(*kind, live.saturating_add(held));
        }
    }
}
