// SPDX-License-Identifier: GPL-2.0

//! Bring-up, and the one shutdown.
//!
//! Unbind, rmmod, hot unplug, an external reset, suspend, a link error and the watchdog's reset of
//! a fatal device all call [`Device::shut_down`]. A reset, resume and link recovery are followed by
//! [`Device::bring_up_again`]. One reset of the function makes the hardware quiet and ends all its
//! objects at once; single objects are destroyed only while the device runs.
//!
//! What is done in which order is a rule, [`policy::lifecycle`](crate::policy::lifecycle);
//! [`Device::execute`] does it.

use super::{
    client::Lost,
    device::Device, //
};
use crate::{
    abi::Number,
    hw::{
        command::{
            Create,
            Eq as EqObject, //
        },
        cq::{
            Body,
            CqRing,
            Entry,
            PolledCq, //
        },
        eq::EqRing,
        qp::{
            QpRings,
            Sizes, //
        },
        registers::{
            AdminRings,
            Quiet, //
        },
        table::Reservation, //
    },
    kernel::pci::{
        channel,
        Channel,
        Mastering, //
    },
    policy::lifecycle::{
        Failure,
        Health,
        Lifecycle,
        Step,
        Task, //
    },
    queue::{
        index::Depth,
        poll::Poller, //
    }, //
};
use kernel::{
    device::Bound,
    pci,
    prelude::*, //
};

/// Base-two logarithm of the admin SQ's blocks and of the admin CQ's entries: twice the number of
/// slots.
const LOG_ADMIN: u8 = 6;

impl Device {
    /// Resets the device and brings it up. The gate is open, and no other task is inside. Under the
    /// device lock. Sleeps.
    ///
    /// # Errors
    ///
    /// Those of the steps; the caller must then call [`Self::shut_down`].
    pub(crate) fn bring_up(&self, pdev: &pci::Device<Bound>) -> Result {
        let function = &self.function;
        let pass = function.gate.enter()?;
        let epoch = self.epoch();
        // Reset before enabling bus mastering: state of an earlier kernel or driver may refer to
        // memory that has another use by now.
        match function.reset(pass.dev()) {
            Quiet::Reset => {
                let start = self.life.begin(Lifecycle::start).ok_or(ENODEV)?;
                self.execute(start, Some((pdev, Channel::Normal)));
            }
            Quiet::Gone => return Err(ENODEV),
            Quiet::No => {
                if self.attempts() == 0 {
                    dev_err!(pdev, "the device cannot be reset\n");
                }
                return Err(EIO);
            }
        }

        let eq0 = self.eqs.eq0()?;
        let eq_ring = EqRing::new(&pass, function)?;
        let depth = Depth::from_log2(LOG_ADMIN).ok_or(EINVAL)?;
        let cq_ring = CqRing::new(&pass, depth)?;
        let sizes = Sizes {
            sq: depth,
            rq: None,
        };
        let qp_rings = QpRings::new(&pass, sizes)?;
        let rings = AdminRings {
            eq: eq_ring.place(),
            sq: (qp_rings.sq_address(), LOG_ADMIN),
            cq: (cq_ring.address(), LOG_ADMIN),
        };

        let client = KBox::new(self.admin.answers(), GFP_KERNEL)?;
        let mut cq = PolledCq::new(Number::ADMIN, epoch, cq_ring, client)?;
        cq.add(Number::ADMIN, epoch, &qp_rings)?;
        let cq = KBox::new(cq, GFP_KERNEL)?;

        self.eqs.begin(eq0, Number::ADMIN, epoch, eq_ring)?;
        self.admin.open(&pass)?;
        let room = Reservation::new()?;
        let node = eq0.paused(|_, state| state.bind(Poller::bind_kernel))?;
        let enabled = function.enable(pass.dev(), &rings, self.attempts() == 0);
        let body = Body::Away;
        let entry = Entry { node, body };
        // Even if it failed: from now on the device may use the rings.
        let given = eq0.paused(|_, state| match state.attach(Number::ADMIN, entry, room) {
            Ok(()) => state.give_polled(cq),
            Err((error, entry)) => {
                state.unbind_node(entry.node, None);
                Err((error, cq))
            }
        });
        if let Err((error, cq)) = given {
            self.admin.leak(cq);
            return Err(error);
        }
        enabled?;

        for eq in self.eqs.polls().iter().skip(1) {
            let ring = EqRing::new(&pass, function)?;
            // CAST: Vectors are counted in 11 bits.
            let context = ring.context(eq.handler().index as u16);
            let create = Create::<EqObject>(context);
            let (number, ring) = self.admin.create(&pass, create, ring)?;
            if let Err(error) = self.eqs.begin(eq, number, epoch, ring.clone()) {
                self.admin.leak(ring);
                return Err(error);
            }
        }
        // Without moderation the device works; the sampler sends the settings again.
        let _: Result = self.moderation.set(&pass, self, None);
        let up = self.life.change(Lifecycle::up);
        up.then_some(()).ok_or(ENODEV)
    }

    /// Suspends the device, as [`Self::shut_down`] with [`Lost::Reset`]. Until
    /// [`Lifecycle::wake`] the driver neither accesses it nor brings it up, even after a reset. Under
    /// the device lock. Sleeps.
    ///
    /// # Errors
    ///
    /// `EIO` if the device may still access memory. It is then down, but not suspended.
    pub(crate) fn fall_asleep(&self, pdev: &pci::Device<Bound>) -> Result {
        self.shut_down(pdev, Lost::Reset);
        let asleep = self.life.change(Lifecycle::sleep);
        asleep.then_some(()).ok_or(EIO)
    }

    /// Brings the device up after [`Self::shut_down`] with [`Lost::Reset`]. A failure makes the
    /// device fatal, and the watchdog tries again. Does nothing if the device is not
    /// [`Health::Down`]. Under the device lock. Sleeps.
    pub(crate) fn bring_up_again(&self, pdev: &pci::Device<Bound>) {
        let function = &self.function;
        if self.health() != Health::Down {
            return;
        }
        let result = function.gate.reopen(pdev);
        match result.and_then(|()| self.bring_up(pdev)) {
            Ok(()) => dev_info!(pdev, "up again; open files are dead and must be reopened\n"),
            Err(error) => {
                self.shut_down(pdev, Lost::Reset);
                // A device that is gone is not tried again.
                let _: Result = self.look(pdev.as_ref());
                self.fail(Failure::BringUp);
                if self.attempts() == 0 && self.health() == Health::Fatal {
                    dev_err!(pdev, "bring-up failed: {error:?}; will try again\n");
                }
            }
        }
    }

    /// Stops the device and frees all memory that it could access. If the device does not become
    /// quiet, the memory is kept until a reset, and leaked if the driver is unbound first.
    /// Idempotent. Under the device lock. Sleeps.
    pub(crate) fn shut_down(&self, pdev: &pci::Device<Bound>, why: Lost) {
        self.stop(pdev, why, channel(pdev.as_ref()).unwrap_or(Channel::Normal));
    }

    /// As [`Self::shut_down`] with [`Lost::Gone`], after link recovery has failed permanently. No
    /// slot reset follows, so a link that the PCI core still marks frozen is accessed.
    pub(crate) fn give_up(&self, pdev: &pci::Device<Bound>) {
        let state = match channel(pdev.as_ref()) {
            Ok(Channel::Failed) => Channel::Failed,
            _ => Channel::Normal,
        };
        self.stop(pdev, Lost::Gone, state);
    }

    fn stop(&self, pdev: &pci::Device<Bound>, why: Lost, link: Channel) {
        let works = link == Channel::Normal;
        let life = &self.life;
        if let Some(task) = life.begin(|life| life.shut_down(why, works)) {
            self.execute(task, Some((pdev, link)));
        }
    }

    /// Executes a task of the device's life. `bound` is the device and the state of its link, `None`
    /// without the device lock. Sleeps.
    pub(super) fn execute(&self, mut task: Task, bound: Option<(&pci::Device<Bound>, Channel)>) {
        let (function, life) = (&self.function, &self.life);
        while let Some(step) = life.change(|life| life.step(&mut task)) {
            match step {
                Step::Look => {
                    if let Some((pdev, _)) = bound {
                        let _: Result = self.look(pdev.as_ref());
                    }
                }
                Step::FailCommands => self.admin.abandon(),
                Step::Close => function.gate.close(),
                Step::NextEpoch => life.change(Lifecycle::next_epoch),
                Step::Quiesce => {
                    let quiet = match bound {
                        Some((pdev, link)) => self.quiesce(pdev, link),
                        None => self.cut_off(),
                    };
                    life.change(|life| life.quiesced(&mut task, quiet));
                }
                Step::Cut => self.clients.for_each(|client| client.cut()),
                Step::Flush => self.clients.for_each(|client| client.flush()),
                Step::Notify => self.clients.for_each(|client| client.lost(task.why())),
                Step::Release => {
                    self.clients.for_each(|client| client.unmap());
                    self.eqs.end();
                    self.admin.close();
                }
                Step::Leak => function.gate.leak(),
                Step::Master => {
                    if let Some((pdev, _)) = bound {
                        crate::kernel::pci::set_master(pdev);
                    }
                }
            }
        }
    }

    /// Stops all DMA of a device that is fatal or gone, before the PCI core resets it: that may have
    /// to wait. Returns whether it is certain. Sleeps.
    fn cut_off(&self) -> bool {
        // The task that this is a step of keeps bus mastering from being enabled. Behind a closed gate
        // the shutdown has tried: the reset is next.
        let Ok(pass) = self.function.gate.enter() else {
            return false;
        };
        let Ok(state) = channel(pass.dev()) else {
            return false;
        };
        let resets = || self.function.reset(pass.dev()) == Quiet::Reset;
        Self::isolate(&pass, state) || state == Channel::Normal && resets()
    }

    /// Disables bus mastering. Returns whether the device does certainly no DMA any more.
    fn isolate(pdev: &pci::Device<Bound>, state: Channel) -> bool {
        match (state, crate::kernel::pci::clear_master(pdev)) {
            // Unplugged, or isolated by the platform.
            (Channel::Failed, _) => true,
            (_, Mastering::Off) => true,
            (_, Mastering::On) => false,
            // It reads as all ones, but may do DMA again once the link is back. The PCI core resets
            // it.
            (Channel::Frozen, Mastering::Gone) => false,
            (Channel::Normal, Mastering::Gone) => true,
        }
    }

    /// Stops all DMA of the device. Returns whether that is certain.
    fn quiesce(&self, pdev: &pci::Device<Bound>, state: Channel) -> bool {
        if state != Channel::Normal {
            return Self::isolate(pdev, state);
        }
        let first = self.attempts() == 0;
        let reset = self.function.reset(pdev.as_ref());
        if reset == Quiet::Reset {
            return true;
        }
        if first && reset == Quiet::No {
            dev_err!(pdev, "the device does not reset, disabling bus mastering\n");
        }
        let quiet = Self::isolate(pdev, state);
        if first && !quiet {
            dev_err!(pdev, "bus mastering stays enabled, memory is not freed\n");
        }
        quiet
    }
}
