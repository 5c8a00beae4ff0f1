// SPDX-License-Identifier: GPL-2.0

//! The device: what stands between bring-up and shutdown, and what others make on it.
//!
//! # Life
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
//!
//! # Locks, from the outside in
//!
//! | lock | guards |
//! |---|---|
//! | the device lock (PCI core) | probe, unbind, reset, sleep and error recovery exclude each other |
//! | gate (a pass) | the device stays bound, and up unless it fails |
//! | `told` | that what is done about a device that failed is done in the epoch in which it failed |
//! | the loopback client's `run` | its run |
//! | a context's own | its objects |
//! | `moderation` | how interrupts are moderated, and that the device is told so |
//! | `objects` | that the device's and our tables of CQs and queue pairs change together |
//! | the pause of a poll | what the poll owns |
//! | `watched` | what the check for lost interrupts remembers; a leaf |
//! | `recovery` | what the watchdog knows of failures; held for moments |
//! | `shares` | which doorbell pages of this epoch are taken, and what their contexts have |
//! | `tenants` | the list of this file; held for moments |

use crate::{
    abi::Number,
    admin::{
        Admin,
        Create,
        Eq as EqObject, //
    },
    data::{
        cq::{
            Body,
            CqRing,
            Entry,
            KernelCq, //
        },
        eq::{
            Eq,
            EqPoller,
            EqRing, //
        },
        function::{
            AdminRings,
            Failure,
            Function,
            Health,
            Quiet, //
        },
        knobs::Knobs,
        qp::QueuePair,
        ring::Ring, //
    },
    queue::{
        credit::RingId,
        index::Depth,
        producer::SqProducer,
        quota::PerKind,
        recovery::Recovery, //
    },
    sys::{
        self,
        gate::Pass,
        pci::{
            channel,
            Channel, //
        }, //
    },
};
use core::ptr;
use kernel::{
    device::{
        Bound,
        Device as Dev, //
    },
    new_mutex, pci,
    prelude::*,
    sync::{
        atomic::{
            Acquire,
            Atomic,
            Relaxed,
            Release, //
        },
        Arc,
        Mutex, //
    },
};

mod eqs;
mod moderate;
mod objects;
mod share;
mod watch;

use self::share::Shares;
pub(crate) use self::{
    moderate::{
        Sampler,
        SAMPLE, //
    },
    watch::{
        Watch,
        WATCH, //
    }, //
};
pub(crate) use crate::data::{
    cq::{
        AsyncEvent,
        Owner, //
    },
    function::Limits, //
};

/// Base-two logarithm of the admin SQ's blocks and of the admin CQ's entries: room for as many
/// commands as there are slots, twice.
const LOG_ADMIN: u8 = 6;

/// EQs even where there are fewer CPUs, so that the kernel's and processes' events can be kept
/// apart.
const MIN_EQS: u32 = 4;

/// Why a tenant has lost the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lost {
    /// It is reset; what opens it anew can go on.
    Reset,
    /// It is gone.
    Gone,
}

/// A user of the device that may stay when the device goes: an open file, or the loopback client.
pub(crate) trait Tenant: Send + Sync {
    /// The device is lost: doors are to be shut, and whoever sleeps is to be woken. Process
    /// context; may come more than once.
    fn lost(&self, why: Lost);

    /// The hardware is quiet: all DMA mappings and all coherent memory are to go. Process context.
    fn unmap(&self);

    /// Whether it only stayed for [`Self::unmap`], and can be let go after it.
    fn is_done(&self) -> bool;

    /// Shows its objects of this kind, one a line. Process context.
    fn describe(&self, what: Shown, f: &mut kernel::fmt::Formatter<'_>) -> kernel::fmt::Result;
}

/// What a table of the debug files shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shown {
    /// Open files.
    Contexts,
    /// Completion queues.
    Cqs,
    /// Queue pairs.
    Qps,
    /// Memory regions.
    Mrs,
    /// Protection domains.
    Pds,
}

/// The device, for as long as anybody refers to it.
#[pin_data]
pub(crate) struct Device {
    function: Arc<Function>,
    knobs: Arc<Knobs>,
    index: u32,
    eqs: KVec<Arc<EqPoller>>,
    /// EQs of this epoch.
    up: Atomic<u32>,
    /// By EQ; see [`eqs`].
    #[pin]
    watched: Mutex<KVec<Option<eqs::Watched>>>,
    #[pin]
    admin: Admin,
    #[pin]
    objects: Mutex<objects::Tables>,
    #[pin]
    tenants: Mutex<KVec<Option<Arc<dyn Tenant>>>>,
    /// Objects of each kind that there are for contexts and the kernel.
    most: PerKind<u32>,
    #[pin]
    shares: Mutex<Shares>,
    /// The health that tenants were last told of. No epoch begins while it is locked.
    #[pin]
    told: Mutex<Health>,
    #[pin]
    moderation: Mutex<moderate::Moderation>,
    /// Between suspend and resume. Belongs to the device lock.
    asleep: Atomic<bool>,
    /// The last shutdown has freed nothing, since the device may access memory. Belongs to the
    /// device lock.
    kept: Atomic<bool>,
    /// The watchdog's, which takes it for moments.
    #[pin]
    recovery: Mutex<Recovery>,
    /// Up to which change of the CPUs interrupts were spread over them.
    cpus: Atomic<u32>,
}

impl Device {
    /// The device `/dev/qpair<index>`, down. `eqs` says how many vectors there are.
    pub(crate) fn new(
        dev: &Dev<Bound>,
        function: Arc<Function>,
        index: u32,
        vectors: u32,
    ) -> Result<Arc<Self>> {
        function.set_index(index);
        let knobs = Arc::new(Knobs::new(), GFP_KERNEL)?;
        let mut eqs = KVec::new();
        for index in 0..vectors {
            eqs.push(
                Eq::new(dev, function.clone(), knobs.clone(), index)?,
                GFP_KERNEL,
            )?;
        }
        let eq0 = eqs.first().ok_or(EINVAL)?.clone();
        let admin = Admin::new(function.clone(), eq0)?;
        let watched = eqs::Watched::locked(eqs.len())?;
        let limits = function.limits();
        let slots = (0..vectors).map(|index| Eq::process_cqs(limits, index));
        let most = PerKind {
            qp: limits.qp,
            // Each has a slot of its EQ.
            cq: slots.fold(0u32, u32::saturating_add).min(limits.cq),
            mr: limits.mr,
            pd: limits.pd,
            page: limits.pages,
        };
        Arc::pin_init(
            try_pin_init!(Self {
                function,
                knobs,
                index,
                eqs,
                up: Atomic::new(0),
                watched <- watched,
                admin <- admin,
                objects <- objects::Tables::locked(),
                tenants <- new_mutex!(KVec::new(), "Device::tenants"),
                most,
                shares <- new_mutex!(Shares::new(), "Device::shares"),
                told <- new_mutex!(Health::Up, "Device::told"),
                moderation <- new_mutex!(moderate::Moderation::new(), "Device::moderation"),
                asleep: Atomic::new(false),
                kept: Atomic::new(false),
                recovery <- new_mutex!(Recovery::new(), "Device::recovery"),
                cpus: Atomic::new(sys::hotplug::changes()),
            }),
            GFP_KERNEL,
        )
    }

    /// How many vectors to ask for.
    pub(crate) fn wanted_vectors(limits: &Limits) -> u32 {
        kernel::cpu::nr_cpu_ids().max(MIN_EQS).min(limits.eq)
    }

    /// N of `/dev/qpairN`.
    pub(crate) fn index(&self) -> u32 {
        self.index
    }

    /// Its name on the PCI bus.
    pub(crate) fn name(&self) -> &CStr {
        self.function.device().name()
    }

    /// The function.
    pub(crate) fn function(&self) -> &Arc<Function> {
        &self.function
    }

    /// How polls go.
    pub(crate) fn knobs(&self) -> &Knobs {
        &self.knobs
    }

    /// The admin queue.
    pub(crate) fn admin(&self) -> &Admin {
        &self.admin
    }

    /// The polls of all vectors.
    pub(crate) fn eqs(&self) -> &[Arc<EqPoller>] {
        &self.eqs
    }

    /// Goes in to the device; see [`Function::enter`].
    pub(crate) fn enter(&self, epoch: u32) -> Result<Pass<'_>> {
        self.function.enter(epoch)
    }

    /// How often the device was reset.
    pub(crate) fn epoch(&self) -> u32 {
        self.function.epoch()
    }

    /// What the device can hold.
    pub(crate) fn limits(&self) -> &Limits {
        self.function.limits()
    }

    /// Vectors that a CQ may choose from.
    pub(crate) fn vectors(&self) -> u32 {
        self.up.load(Acquire)
    }

    /// Whether the link is up.
    pub(crate) fn link_up(&self, pass: &Pass<'_>) -> bool {
        self.function.link_up(pass.dev()).unwrap_or(false)
    }

    fn eq(&self, vector: u32) -> Result<&Arc<EqPoller>> {
        if vector >= self.vectors() {
            return Err(EINVAL);
        }
        self.eqs.get(vector as usize).ok_or(EINVAL)
    }
}

/// Bring-up, shutdown, recovery.
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

        let eq0 = self.eqs.first().ok_or(EINVAL)?;
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

        self.set_up_eq(eq0, Number::ADMIN, eq_ring)?;
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

        for eq in self.eqs.iter().skip(1) {
            let ring = EqRing::new(&pass, function)?;
            // CAST: Vectors are counted in 11 bits.
            let context = ring.context(eq.handler().index() as u16);
            let create = Create::<EqObject>(context);
            let (number, ring) = self.admin.create(&pass, create, ring)?;
            if let Err(error) = self.set_up_eq(eq, number, ring.clone()) {
                self.admin.strand(ring);
                return Err(error);
            }
        }
        self.moderate_again(&pass)?;
        // CAST: As above.
        self.up.store(self.eqs.len() as u32, Release);
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
        self.up.store(0, Release);

        let quiet = if asleep {
            !self.kept.load(Relaxed)
        } else {
            self.quiesce(pdev)
        };

        self.admin.abandon();
        self.tell_tenants(why);
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
        self.for_tenants(|tenant| tenant.unmap());
        self.dismiss_if(|tenant| tenant.is_done());
        for eq in self.eqs.iter().rev() {
            self.tear_down_eq(eq);
        }
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

    fn tell_tenants(&self, why: Lost) {
        self.for_tenants(|tenant| tenant.lost(why));
    }

    /// Calls `f` for every tenant. The list is not locked meanwhile, and no tenant changes its place.
    pub(crate) fn for_tenants(&self, mut f: impl FnMut(&dyn Tenant)) {
        let mut place = 0;
        loop {
            let Some(tenant) = self.tenants.lock().get(place).cloned() else {
                return;
            };
            if let Some(tenant) = tenant {
                f(&*tenant);
            }
            place += 1;
        }
    }

    /// Admits a tenant, to the first place that is free. Sleeps, not for long.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn admit(&self, tenant: Arc<dyn Tenant>) -> Result {
        let mut tenants = self.tenants.lock();
        match tenants.iter_mut().find(|place| place.is_none()) {
            Some(place) => *place = Some(tenant),
            None => tenants.push(Some(tenant), GFP_KERNEL)?,
        }
        Ok(())
    }

    /// Lets a tenant go. Sleeps.
    pub(crate) fn dismiss(&self, tenant: &dyn Tenant) {
        self.dismiss_if(|other| ptr::addr_eq(other, tenant));
    }

    /// Lets go of the tenants that are meant, one by one: the last reference is not to go with the list locked.
    fn dismiss_if(&self, is_meant: impl Fn(&dyn Tenant) -> bool) {
        let mut place = 0;
        loop {
            let Some(tenant) = self.tenants.lock().get(place).cloned() else {
                return;
            };
            if let Some(tenant) = tenant.filter(|tenant| is_meant(&**tenant)) {
                // Unless it has left meanwhile, and another has come in its place.
                let mut tenants = self.tenants.lock();
                let left = tenants
                    .get_mut(place)
                    .and_then(|found| found.take_if(|found| Arc::ptr_eq(found, &tenant)));
                drop(tenants);
                drop(left);
            }
            place += 1;
        }
    }
}
