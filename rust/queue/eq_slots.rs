// SPDX-License-Identifier: GPL-2.0
//! What holds the slots of an EQ.
//!
//! An event fills a slot of the EQ. The slot is reserved before the event can be written:
//!
//! ```text
//!          bind a polled CQ                arm            event read         head published
//!   pool ------------------> spare -----------> Armed ------------> read ------------------> spare
//!     \----- bind a process's CQ: Process, for its life
//!      \---- reserve for asynchronous events, for the life of the EQ
//!   Armed, Process ---destroy: deferred, until the head has passed the EQ's producer---> pool
//! ```
//!
//! - Binding a *polled CQ* adds one slot to `spare`, and each arm or notify takes one. If `spare` is
//!   empty, at least one slot is in `read`, and publishing the EQ's head frees it. So running out of
//!   slots causes a head update, never a deadlock. More spare slots only save head updates.
//! - A *process's CQ* is armed by the process. One slot is enough for its life, since the device
//!   has at most one event of it in the EQ.
//! - An event of a CQ that is not armed frees no slot, and is counted.
//! - Binding a process's CQ leaves at least [`SlotShares::kernel`] slots of the pool to the kernel. Half
//!   of these are for the CQs that kernel ULPs arm themselves, as processes do theirs: an
//!   unprivileged process can make a kernel ULP create these, for example one for each
//!   socket. The other half is for polled CQs alone.
//! - The slot of a *destroyed* CQ may still have its event in the ring. It becomes free when the
//!   head has passed the EQ's producer index that the destroy reported.

use super::consumer::Published;
use super::consumer::Seen;
use super::credit::Eq;
use super::credit::Imbalance;
use super::credit::Pool;
use super::credit::Slots;
use super::deferred::DeferredFree;
use super::index::Depth;
use super::index::Index;
use super::storage::BadRing;

/// Slots to arm with, beyond one for each polled CQ: they let one head update cover many events. At
/// most an eighth of the EQ.
const SPARE: u32 = 32;
/// Slots that processes leave to the kernel. At most an eighth of the EQ.
const KERNEL: u32 = 64;

/// How the slots of an EQ are divided. CQs share the rest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlotShares {
    /// For asynchronous events, for the life of the EQ.
    pub reserve: u32,
    /// To arm with, beyond one for each polled CQ.
    pub spare: u32,
    /// Of the rest, those that no CQ of a process may take, and half of them none of a user in the
    /// kernel.
    pub kernel: u32,
}

impl SlotShares {
    /// The shares for an EQ of this depth. Only EQ 0 has a `reserve`.
    pub const fn of(depth: Depth, reserve: u32) -> Self {
        let most = depth.entries() / 8;
        Self {
            reserve,
            spare: if SPARE < most { SPARE } else { most },
            kernel: if KERNEL < most { KERNEL } else { most },
        }
    }
}

/// Whether a bound CQ is armed, and the EQ slot reserved for its event.
#[derive(Debug)]
pub enum Arming {
    /// A polled CQ that is not armed: it has no event in the EQ, and none will come.
    Idle,
    /// A polled CQ that is armed: one event of it is in the EQ or will come.
    Armed(Slots<Eq>),
    /// A polled CQ that is not armed because it was not drained: it is on the pending list.
    Pending,
    /// A CQ of a process, or of a kernel ULP that arms it itself.
    Process(Slots<Eq>),
}

/// The meaning of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Meaning {
    /// An event of this polled CQ, which is to be consumed.
    Consume,
    /// An event of this CQ, whose process is to be signaled.
    Signal,
    /// Nothing: the CQ was not armed.
    Spurious,
}

/// No slot. Binding: the EQ has no room for another CQ. Arming: the head must be published first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoSlot;

/// The slots of an EQ.
#[derive(Debug)]
pub struct EventSlots {
    /// For CQs that are not bound yet.
    pool: Pool<Eq>,
    /// How many of those a process's CQ may not take.
    kernel: u32,
    /// For asynchronous events, which need no arm.
    reserve: Slots<Eq>,
    /// To arm CQs with.
    spare: Slots<Eq>,
    /// Their events were read, but the head is not published yet.
    read: Slots<Eq>,
    /// Past the newest of those events.
    read_until: Index,
    deferred: DeferredFree<Eq>,
    spurious: u32,
}

impl EventSlots {
    /// Divides the slots of a new EQ.
    pub fn new(mut pool: Pool<Eq>, shares: SlotShares) -> Result<Self, BadRing> {
        let ring = pool.ring();
        let reserve = pool.take(shares.reserve).ok_or(BadRing)?;
        let spare = pool.take(shares.spare).ok_or(BadRing)?;
        Ok(Self {
            pool,
            kernel: shares.kernel,
            reserve,
            spare,
            read: Slots::none(ring),
            read_until: Index::ZERO,
            deferred: DeferredFree::new(ring),
            spurious: 0,
        })
    }

    /// CQs that can still be bound.
    #[inline]
    pub const fn unbound(&self) -> u32 {
        self.pool.free()
    }

    /// Slots to arm with now.
    #[inline]
    pub const fn spare(&self) -> u32 {
        self.spare.count()
    }

    /// Slots that publishing the head would move to `spare`.
    #[inline]
    pub const fn read(&self) -> u32 {
        self.read.count()
    }

    /// Slots of destroyed CQs that the head has not passed.
    #[inline]
    pub const fn deferred(&self) -> u32 {
        self.deferred.count()
    }

    /// Events of CQs that were not armed.
    #[inline]
    pub const fn spurious(&self) -> u32 {
        self.spurious
    }

    /// Binds a CQ that the poll reads: its slot becomes a spare one.
    pub fn bind_kernel(&mut self) -> Result<Arming, NoSlot> {
        self.spare.absorb(self.pool.take(1).ok_or(NoSlot)?);
        Ok(Arming::Idle)
    }

    /// Binds a process's CQ, unless only the kernel's share is left.
    pub fn bind_process(&mut self) -> Result<Arming, NoSlot> {
        if self.pool.free() <= self.kernel {
            return Err(NoSlot);
        }
        Ok(Arming::Process(self.pool.take(1).ok_or(NoSlot)?))
    }

    /// Binds a CQ that a kernel ULP arms: as a process's, and from half of the kernel's share.
    pub fn bind_ulp(&mut self) -> Result<Arming, NoSlot> {
        if self.pool.free() <= self.kernel / 2 {
            return Err(NoSlot);
        }
        Ok(Arming::Process(self.pool.take(1).ok_or(NoSlot)?))
    }

    /// Takes a slot to arm a polled CQ. On `Ok(true)` the caller rings the doorbell; on `Ok(false)`
    /// the CQ is armed already, or its process arms it.
    #[inline]
    pub fn arm(&mut self, cq: &mut Arming) -> Result<bool, NoSlot> {
        match cq {
            Arming::Armed(_) | Arming::Process(_) => Ok(false),
            Arming::Idle | Arming::Pending => {
                let slot = self.spare.split(1).ok_or(NoSlot)?;
                *cq = Arming::Armed(slot);
                Ok(true)
            }
        }
    }

    /// An event of this CQ was read.
    #[inline]
    pub fn event(&mut self, cq: &mut Arming, seen: Seen<Eq>) -> Meaning {
        match cq {
            Arming::Armed(slot) if slot.ring() == seen.ring() => {
                let slot = slot.take();
                *cq = Arming::Idle;
                self.read.absorb(slot);
                self.read_until = seen.past();
                Meaning::Consume
            }
            Arming::Process(_) => Meaning::Signal,
            Arming::Idle | Arming::Pending | Arming::Armed(_) => {
                self.spurious = self.spurious.wrapping_add(1);
                Meaning::Spurious
            }
        }
    }

    /// The EQ's head has been published.
    #[inline]
    pub fn published(&mut self, published: Published<Eq>) {
        if published.ring() != self.spare.ring() {
            return;
        }
        if published.head().reaches(self.read_until) {
            self.spare.absorb(self.read.take());
        }
        self.pool.reclaim(self.deferred.release(published));
    }

    /// A CQ was destroyed, and the destroy reported `until` as the EQ's producer index. Afterwards
    /// the caller passes the current head to [`published`](Self::published). Returns the slot if it
    /// belongs to another EQ.
    pub fn unbind(&mut self, cq: Arming, until: Index) -> Result<(), Slots<Eq>> {
        let (slot, until) = match cq {
            Arming::Armed(slot) | Arming::Process(slot) => (slot, until),
            Arming::Idle | Arming::Pending => {
                // The slot of its bind is in `spare`, or in `read`.
                match self.spare.split(1) {
                    Some(slot) => return self.pool.give(slot),
                    None => match self.read.split(1) {
                        Some(slot) => (slot, self.read_until),
                        None => return Ok(()),
                    },
                }
            }
        };
        self.deferred.admit(slot, until)
    }

    /// Whether every slot is accounted for; `held` are those in the [`Arming`] of bound CQs.
    pub const fn audit(&self, held: u32) -> Result<(), Imbalance> {
        self.pool.audit(
            held.wrapping_add(self.reserve.count())
                .wrapping_add(self.spare.count())
                .wrapping_add(self.read.count())
                .wrapping_add(self.deferred.count()),
        )
    }
}
