// SPDX-License-Identifier: GPL-2.0
//! Who holds the slots of an EQ.
//!
//! An event fills a slot of the EQ, and whoever allows it to be written pays for it first:
//!
//! ```text
//!          bind a kernel CQ                arm            event read         head published
//!   pool ------------------> spare -----------> Armed ------------> read ------------------> spare
//!     \----- bind a process's CQ: Process, for its life
//!      \---- reserve for asynchronous events, for the life of the EQ
//!   Armed, Process ---destroy: limbo, until the head has passed the EQ's producer---> pool
//! ```
//!
//! - A *kernel CQ* brings one slot to the spare ones when it is bound, and every arm takes one. So if there
//!   is none to arm with, one is `read`, and publishing the EQ's head sets it free: out of
//!   slots is a reason to publish, never a deadlock. More spare slots mean fewer head updates, no more.
//! - A *process's CQ* is armed by the process. Its one slot covers it for its life, since the
//!   device has at most one event of it in the EQ.
//! - An event of a CQ that is not armed gives nothing, and is counted.
//! - The last slots of the pool are for CQs of the kernel: however many CQs processes make, [`Shares::kernel`] are left.
//! - The slot of a *destroyed* CQ may still have its event in the ring. It is free when the head has passed the producer index of the EQ
//!   that the destroy reported.

use super::consumer::BadRing;
use super::consumer::Published;
use super::consumer::Seen;
use super::credit::Eq;
use super::credit::Imbalance;
use super::credit::Limbo;
use super::credit::Pool;
use super::credit::Slots;
use super::index::Depth;
use super::index::Index;
use super::mutant::mutant;

/// Slots to arm with beyond those that CQs pay for: with them the EQ head is published once for many events.
/// Less in an EQ so small that this were more than an eighth of it.
const SPARE: u32 = 32;
/// Slots that processes leave to the kernel; less likewise.
const KERNEL: u32 = 64;

/// How the slots of an EQ are divided. CQs share the rest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shares {
    /// For asynchronous events, for the life of the EQ.
    pub reserve: u32,
    /// To arm with, beyond one for each kernel CQ.
    pub spare: u32,
    /// Of the rest, what CQs of processes leave to those of the kernel.
    pub kernel: u32,
}

impl Shares {
    /// Those of an EQ of this depth; it has a `reserve` if it is EQ 0.
    pub const fn of(depth: Depth, reserve: u32) -> Self {
        let most = depth.entries() / 8;
        Self {
            reserve,
            spare: if SPARE < most { SPARE } else { most },
            kernel: if KERNEL < most { KERNEL } else { most },
        }
    }
}

/// What a bound CQ may do to its EQ, with the slot that pays for it.
#[derive(Debug)]
#[cfg_attr(feature = "explore", derive(Clone, PartialEq, Eq, Hash))]
pub enum Arming {
    /// A kernel CQ that is not armed: nothing of it is or comes into the EQ.
    Idle,
    /// A kernel CQ that is armed: one event of it is or comes into the EQ.
    Armed(Slots<Eq>),
    /// A kernel CQ that is not armed because it was not drained: the poll comes back to it.
    Pending,
    /// A process's CQ.
    Process(Slots<Eq>),
}

/// What an event means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Meaning {
    /// Consume this kernel CQ.
    Consume,
    /// Signal this CQ's process.
    Signal,
    /// Nothing: the CQ was not armed.
    Spurious,
}

/// No slot: an EQ that is full of CQs, or, when arming, one whose head should be published.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoSlot;

/// The slots of an EQ.
#[derive(Debug)]
#[cfg_attr(feature = "explore", derive(Clone, PartialEq, Eq, Hash))]
pub struct EventSlots {
    /// For CQs that are yet to be bound.
    pool: Pool<Eq>,
    /// Of those, how many are not for CQs of processes.
    kernel: u32,
    /// Of asynchronous events.
    reserve: Slots<Eq>,
    /// To arm with.
    spare: Slots<Eq>,
    /// Their events were read, the head is not published.
    read: Slots<Eq>,
    /// Past the newest of those events.
    read_until: Index,
    limbo: Limbo<Eq>,
    spurious: u32,
}

impl EventSlots {
    /// Divides the slots of a new EQ.
    pub fn new(mut pool: Pool<Eq>, shares: Shares) -> Result<Self, BadRing> {
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
            limbo: Limbo::new(ring),
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

    /// Slots that publishing the head would set free to arm with.
    #[inline]
    pub const fn read(&self) -> u32 {
        self.read.count()
    }

    /// Slots of destroyed CQs that the head has not passed.
    #[inline]
    pub const fn limbo(&self) -> u32 {
        self.limbo.count()
    }

    /// Events of CQs that were not armed.
    #[inline]
    pub const fn spurious(&self) -> u32 {
        self.spurious
    }

    /// Binds a kernel CQ.
    pub fn bind_kernel(&mut self) -> Result<Arming, NoSlot> {
        self.spare.absorb(self.pool.take(1).ok_or(NoSlot)?);
        Ok(Arming::Idle)
    }

    /// Binds a process's CQ, and leaves the kernel its share.
    pub fn bind_process(&mut self) -> Result<Arming, NoSlot> {
        if self.pool.free() <= self.kernel && !mutant!(KernelShareTaken) {
            return Err(NoSlot);
        }
        Ok(Arming::Process(self.pool.take(1).ok_or(NoSlot)?))
    }

    /// Pays for an arm of a kernel CQ; the caller rings the doorbell if this says `Ok(true)`. `Ok(false)`: there is nothing
    /// to do, it is armed already or arms itself.
    #[inline]
    pub fn arm(&mut self, cq: &mut Arming) -> Result<bool, NoSlot> {
        match cq {
            Arming::Armed(_) | Arming::Process(_) => Ok(false),
            Arming::Idle | Arming::Pending => {
                let slot = match self.spare.split(1) {
                    Some(slot) => slot,
                    None if mutant!(ArmWithoutSlot) => Slots::none(self.spare.ring()),
                    None => return Err(NoSlot),
                };
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
                if mutant!(SlotFreeAtEvent) {
                    self.spare.absorb(slot);
                } else {
                    self.read.absorb(slot);
                }
                self.read_until = seen.past();
                Meaning::Consume
            }
            Arming::Process(_) => Meaning::Signal,
            Arming::Idle | Arming::Pending | Arming::Armed(_) => {
                self.spurious = self.spurious.wrapping_add(1);
                if mutant!(SpuriousEventGives) {
                    let ring = self.spare.ring();
                    let mut made = Pool::mint(ring, 1);
                    self.spare.absorb(made.take_up_to(1));
                }
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
        self.pool.reclaim(self.limbo.release(published));
    }

    /// A CQ was destroyed, and the destroy reported `until` as the EQ's producer index. Afterwards
    /// [`published`](Self::published) must be told what is published already. Returns what is not this EQ's.
    pub fn unbind(&mut self, cq: Arming, until: Index) -> Result<(), Slots<Eq>> {
        let (slot, until) = match cq {
            Arming::Armed(slot) | Arming::Process(slot) => (slot, until),
            Arming::Idle | Arming::Pending => {
                // The slot that it brought is with the others: spare, or read and not published.
                match self.spare.split(1) {
                    Some(slot) => return self.pool.give(slot),
                    None => match self.read.split(1) {
                        Some(slot) => (slot, self.read_until),
                        None => return Ok(()),
                    },
                }
            }
        };
        self.limbo.admit(slot, until)
    }

    /// Moves them with their ring; see [`Poller::rotate`](super::poll::Poller::rotate).
    #[cfg(feature = "explore")]
    pub fn rotate(&mut self, by: u32) {
        self.read_until = if self.read.is_empty() {
            Index::ZERO
        } else {
            self.read_until.plus(by)
        };
        self.limbo.rotate(by);
        self.spurious = 0;
    }

    /// Whether every slot is accounted for, with the `held` that bound CQs hold in their [`Arming`].
    pub const fn audit(&self, held: u32) -> Result<(), Imbalance> {
        self.pool.audit(
            held.wrapping_add(self.reserve.count())
                .wrapping_add(self.spare.count())
                .wrapping_add(self.read.count())
                .wrapping_add(self.limbo.count()),
        )
    }

    /// The EQ was destroyed, after its CQs: all slots must have come back.
    pub fn retire(self) -> Result<(), Imbalance> {
        self.audit(0)
    }
}
