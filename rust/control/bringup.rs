// SPDX-License-Identifier: GPL-2.0

//! Bring-up, and the one shutdown.
//!
//! ```text
//!   probe, after a reset,  bring_up    gate open, EQ 0 and the admin queue by registers, the other
//!   wake-up, recovered                 EQs by command; then it is Up
//!   link
//!   unbind, reset, sleep,  shut_down   stop taking work -> the hardware is quiet, or known to be
//!   failed link                        gone -> wake the waiters -> processes lose their doors
//!                                      and are woken -> memory is freed
//!   watchdog               check       lost interrupts; CPUs that come and go; all ones; fatal: asks for a reset
//! ```
//!
//! Everything ends in the one [`Device::shut_down`]: unbind, rmmod, hot unplug, a reset from
//! outside, sleep, an error of the link, and the reset that the watchdog asks for when the device
//! is fatal. A reset, sleep and a link that is recovered are followed by
//! [`Device::bring_up_again`]. The hardware is made quiet by one reset of the function, which ends
//! all its objects at once; object by object they are only destroyed while the device goes on.

use super::{
    command::{
        Create,
        Eq as EqObject, //
    },
    device::Device,
    registers::{
        AdminRings,
        Quiet, //
    },
    tenant::Lost, //
};
use crate::{
    abi::Number,
    data::{
        cq::{
            Body,
            CqRing,
            Entry,
            KernelCq, //
        },
        eq::EqRing,
        function::{
            Failure,
            Health, //
        },
        qp::QueuePair,
        ring::Ring, //
    },
    queue::{
        credit::RingId,
        index::Depth,
        producer::SqProducer, //
    },
    sys::{
        self,
        pci::{
            channel,
            Channel, //
        }, //
    },
};
use kernel::{
    device::Bound,
    pci,
    prelude::*,
    sync::atomic::Relaxed, //
};

/// Base-two logarithm of the admin SQ's blocks and of the admin CQ's entries: room for as many
/// commands as there are slots, twice.
const LOG_ADMIN: u8 = 6;

impl Device {
    /// Brings the device up, in a state as after power-on. The gate is open, and no other task is
    /// inside. Under the device lock. Sleeps.
    ///
    /// # Errors
    ///
    /// Those of the steps; then [`Self::shut_down`] has to follow.
    pub(crate) fn bring_up(&self, pdev: &pci::Device<Bound>) -> Result {
        let function = &self.function;
        let pass = function.gate().enter()?;
        let epoch = self.epoch();
        // What an earlier kernel or driver has left there goes before the device gets the bus: it
        // may know of memory that has another owner by now.
        match function.reset(pass.dev()) {
            Quiet::Reset if self.kept.load(Relaxed) => {
                self.release();
                self.kept.store(false, Relaxed);
            }
            Quiet::Reset => {}
            Quiet::Gone => return Err(ENODEV),
            Quiet::No => {
                if function.attempts() == 0 {
                    dev_err!(pdev, "the device cannot be reset\n");
                }
                return Err(EIO);
            }
        }
        sys::pci::set_master(pdev);

        let eq0 = self.eqs.eq0()?;
        let eq_ring = EqRing::new(&pass, function)?;
        let depth = Depth::from_log2(LOG_ADMIN).ok_or(EINVAL)?;
        let cq_ring = CqRing::new(&pass, depth)?;
        let sq_ring = Ring::new(&pass, depth.entries() as usize * 64)?;
        let rings = AdminRings {
            eq: eq_ring.place(),
            sq: (sq_ring.address(), LOG_ADMIN),
            cq: (cq_ring.address(), LOG_ADMIN),
        };

        let client = KBox::new(self.admin.answers()?, GFP_KERNEL)?;
        let mut cq = KernelCq::new(Number::ADMIN, epoch, cq_ring, client)?;
        let slots = cq.reserve(depth.entries()).ok_or(EINVAL)?;
        let sq = SqProducer::new_sq(
            RingId::new(Number::ADMIN.raw(), epoch),
            cq.ring_id(),
            sq_ring,
            depth,
            depth.entries(),
        )
        .map_err(|_| EINVAL)?;
        cq.add(QueuePair::admin(sq, slots))
            .map_err(|(error, _)| error)?;
        let cq = KBox::new(cq, GFP_KERNEL)?;

        self.eqs.begin(eq0, Number::ADMIN, epoch, eq_ring)?;
        self.admin.open(&pass)?;
        let node = eq0.paused(|_, state| state.bind_kernel())?;
        let enabled = function.enable(pass.dev(), &rings);
        let body = Body::Kernel(cq);
        // Whatever comes of it: from now on the device may have the rings.
        let attached = eq0
            .paused(|eq, state| state.attach(eq, pass.dev(), Number::ADMIN, Entry { node, body }));
        if let Err((error, entry)) = attached {
            eq0.paused(|_, state| state.unbind_node(entry.node, None));
            self.admin.strand(entry.body);
            return Err(error);
        }
        enabled?;

        for eq in self.eqs().iter().skip(1) {
            let ring = EqRing::new(&pass, function)?;
            // CAST: Vectors are counted in 11 bits.
            let context = ring.context(eq.handler().index() as u16);
            let create = Create::<EqObject>(context);
            let (number, ring) = self.admin.create(&pass, create, ring)?;
            if let Err(error) = self.eqs.begin(eq, number, epoch, ring.clone()) {
                self.admin.strand(ring);
                return Err(error);
            }
        }
        self.moderation.again(&pass, &self.admin, self.eqs())?;
        self.eqs.set_up(true);
        function.set_up()
    }

    /// Puts the device to sleep, as [`Self::shut_down`] with [`Lost::Reset`]. Until
    /// [`Self::wake_up`] it is neither touched nor brought up, whatever is reset. Under the device
    /// lock. Sleeps.
    ///
    /// # Errors
    ///
    /// `EIO` if the device may still access memory. It is down then, and does not sleep.
    pub(crate) fn fall_asleep(&self, pdev: &pci::Device<Bound>) -> Result {
        self.shut_down(pdev, Lost::Reset);
        if self.kept.load(Relaxed) {
            return Err(EIO);
        }
        self.asleep.store(true, Relaxed);
        Ok(())
    }

    /// Brings a device up that sleeps. Under the device lock. Sleeps.
    pub(crate) fn wake_up(&self, pdev: &pci::Device<Bound>) {
        self.asleep.store(false, Relaxed);
        self.bring_up_again(pdev);
    }

    /// Whether the device sleeps. Under the device lock.
    pub(crate) fn is_asleep(&self) -> bool {
        self.asleep.load(Relaxed)
    }

    /// Brings the device up after [`Self::shut_down`] with [`Lost::Reset`]. A failure makes the
    /// device fatal, and the watchdog tries again. Does nothing to a device that was not shut down,
    /// or for good, or that sleeps. Under the device lock. Sleeps.
    pub(crate) fn bring_up_again(&self, pdev: &pci::Device<Bound>) {
        let function = &self.function;
        if self.is_asleep() || function.health() != Health::Down {
            return;
        }
        let result = function.gate().reopen(pdev);
        match result.and_then(|()| self.bring_up(pdev)) {
            Ok(()) => dev_info!(
                pdev,
                "up again; files that were open are dead, new ones work\n"
            ),
            Err(error) => {
                self.shut_down(pdev, Lost::Reset);
                // One that is gone is not tried again.
                let _: Result = function.look(pdev.as_ref());
                function.fail(Failure::BringUp);
                if function.attempts() == 0 && function.health() == Health::Fatal {
                    dev_err!(pdev, "it does not come up: {error:?}; will try again\n");
                }
            }
        }
    }

    /// Stops everything and frees all memory that the device could reach. What a device that does
    /// not become quiet could reach is kept until it is reset, and leaked if the driver lets go of
    /// it. Under the device lock. Doing it again is harmless. Sleeps.
    pub(crate) fn shut_down(&self, pdev: &pci::Device<Bound>, why: Lost) {
        let function = &self.function;
        let asleep = self.is_asleep();
        if why == Lost::Reset && asleep {
            // It is down.
            return;
        }
        // A device that sleeps may not decode its registers, and a link that failed leads nowhere.
        let answers = !asleep && matches!(channel(pdev.as_ref()), Ok(Channel::Normal));
        if answers {
            let _: Result = function.look(pdev.as_ref());
        }
        // A task that waits for a device that does not answer must not keep us at the gate.
        if !answers || function.health() != Health::Up {
            self.admin.abandon();
        }
        if why == Lost::Gone {
            // Before the gate: a task that finds it closed is to know that it is for good.
            function.set_unbound();
        }
        function.gate().close();
        if why == Lost::Reset {
            // At once: a page is of the epoch in which it was taken.
            let mut told = self.told.lock();
            let mut shares = self.shares.lock();
            function.begin_reset();
            shares.clear();
            *told = Health::Up;
        }
        self.eqs.set_up(false);

        let quiet = if asleep {
            !self.kept.load(Relaxed)
        } else {
            self.quiesce(pdev)
        };

        self.admin.abandon();
        self.tenants.tell(why);
        // What it could write to may not be used again before it is reset.
        self.kept.store(!quiet, Relaxed);
        if quiet {
            self.release();
        } else if why == Lost::Gone {
            function.gate().leak();
        }
    }

    /// The hardware is quiet: frees all memory that it could reach. Doing it again is harmless.
    fn release(&self) {
        self.tenants.for_each(|tenant| tenant.unmap());
        self.tenants.dismiss_if(|tenant| tenant.is_done());
        self.eqs.end();
        self.admin.close();
    }

    /// Makes the hardware leave memory alone; whether it is certain that it does.
    fn quiesce(&self, pdev: &pci::Device<Bound>) -> bool {
        match channel(pdev.as_ref()) {
            // It reads as all ones, and writes to memory all the same when the link is back. The
            // PCI core resets it.
            Ok(Channel::Frozen) => return false,
            // It has been unplugged, or the platform has cut it off.
            Ok(Channel::Failed) => return true,
            Ok(Channel::Normal) | Err(_) => {}
        }
        match self.function.reset(pdev.as_ref()) {
            Quiet::Reset => true,
            Quiet::Gone => {
                // What does not answer a read does not master the bus: it is no longer there.
                sys::pci::mastering(pdev) == sys::pci::Mastering::Gone
                    || sys::pci::clear_master(pdev) == sys::pci::Mastering::Off
            }
            Quiet::No => {
                if self.function.attempts() == 0 {
                    dev_err!(
                        pdev,
                        "the device does not reset, taking the bus away from it\n"
                    );
                }
                match sys::pci::clear_master(pdev) {
                    sys::pci::Mastering::Off | sys::pci::Mastering::Gone => true,
                    sys::pci::Mastering::On => {
                        dev_err!(pdev, "it keeps the bus, and so its memory is not freed\n");
                        false
                    }
                }
            }
        }
    }
}
