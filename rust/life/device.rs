// SPDX-License-Identifier: GPL-2.0

//! The device. It lives as long as a file or the driver refers to it.

use super::{
    client::Clients,
    moderate::{
        Mode,
        Moderation, //
    },
    shares::Shares, //
};
use crate::{
    hw::{
        admin::Admin,
        eq::{
            Eq,
            EqPoller, //
        },
        eqs::Eqs,
        function::{
            Function,
            Limits, //
        },
        knobs::Knobs, //
    },
    kernel::gate::Pass,
    policy::quota::PerKind, //
};
use kernel::{
    device::{
        Bound,
        Device as Dev, //
    },
    new_mutex,
    prelude::*,
    sync::{
        Arc,
        Mutex, //
    },
};

/// Address handles of all contexts: 190 bytes of the core each.
const HANDLES: u32 = 1 << 15;

/// The least number of EQs, even with fewer CPUs: it keeps events of the kernel and of processes
/// apart.
const MIN_EQS: u32 = 4;

/// The right to change the tables of CQs and queue pairs, the device's and the driver's. Each
/// device has one, inside `objects`.
pub(super) struct Tables(());

/// The device, for as long as it is referred to.
#[pin_data]
pub(crate) struct Device {
    pub(super) function: Arc<Function>,
    pub(super) knobs: Arc<Knobs>,
    pub(super) index: u32,
    #[pin]
    pub(super) eqs: Eqs,
    #[pin]
    pub(super) admin: Admin,
    #[pin]
    pub(super) objects: Mutex<Tables>,
    #[pin]
    pub(super) clients: Clients,
    /// The number of objects of each kind, shared by contexts and the kernel.
    pub(super) most: PerKind<u32>,
    #[pin]
    pub(super) shares: Mutex<Shares>,
    #[pin]
    pub(super) moderation: Moderation,
}

impl Device {
    /// The device with this index, down, with `vectors` vectors.
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
        let eqs = Eqs::new(eqs)?;
        let limits = function.limits();
        let slots = (0..vectors).map(|index| Eq::process_cqs(limits, index));
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
            try_pin_init!(Self {
                function,
                knobs,
                index,
                eqs <- eqs,
                admin <- admin,
                objects <- new_mutex!(Tables(()), "Device::objects"),
                clients <- Clients::new(),
                most,
                shares <- new_mutex!(Shares::new(), "Device::shares"),
                moderation <- Moderation::new(),
            }),
            GFP_KERNEL,
        )
    }

    /// How many vectors to ask for.
    pub(crate) fn wanted_vectors(limits: &Limits) -> u32 {
        kernel::cpu::nr_cpu_ids().max(MIN_EQS).min(limits.eq)
    }

    /// Its index: of its debugfs directory, its interrupts and its GUID.
    pub(crate) fn index(&self) -> u32 {
        self.index
    }

    /// Its name on the PCI bus.
    pub(crate) fn name(&self) -> &CStr {
        self.function.device().name()
    }

    /// The function, with registers, doorbells and gate.
    pub(crate) fn function(&self) -> &Arc<Function> {
        &self.function
    }

    /// The tunables of polls.
    pub(crate) fn knobs(&self) -> &Knobs {
        &self.knobs
    }

    /// The admin queue, for commands.
    pub(crate) fn admin(&self) -> &Admin {
        &self.admin
    }

    /// The polls of all vectors.
    pub(crate) fn eqs(&self) -> &[Arc<EqPoller>] {
        self.eqs.polls()
    }

    /// Enters the gate of the device; see [`Function::enter`].
    pub(crate) fn enter(&self, epoch: u32) -> Result<Pass<'_>> {
        self.function.enter(epoch)
    }

    /// The epoch: how often the device was reset.
    pub(crate) fn epoch(&self) -> u32 {
        self.function.epoch()
    }

    /// The limits of the device.
    pub(crate) fn limits(&self) -> &Limits {
        self.function.limits()
    }

    /// The vectors a CQ can be created on.
    pub(crate) fn vectors(&self) -> u32 {
        // CAST: Vectors are counted in 11 bits.
        self.eqs().len() as u32
    }

    /// Whether the link is up.
    pub(crate) fn link_up(&self, pass: &Pass<'_>) -> bool {
        self.function.link_up(pass.dev()).unwrap_or(false)
    }

    /// Waits until the device accesses no memory of `epoch` any more. The driver cannot keep what ULPs
    /// have posted, as it keeps rings and memory of processes: so a destroy that the device does not
    /// confirm waits. Ignores signals; not in a pass. Sleeps.
    pub(crate) fn wait_until_quiet(&self, epoch: u32) {
        self.function.life().wait_until_quiet(epoch);
    }

    /// What a shutdown takes the device from.
    pub(crate) fn clients(&self) -> &Clients {
        &self.clients
    }

    /// How interrupts are moderated. Sleeps.
    pub(crate) fn mode(&self) -> Mode {
        self.moderation.mode()
    }

    /// Changes how interrupts are moderated. Sleeps.
    ///
    /// # Errors
    ///
    /// Those of the commands. The new mode stays set, and the sampler retries.
    pub(crate) fn moderate(&self, pass: &Pass<'_>, mode: Mode) -> Result {
        self.moderation.set(pass, &self.admin, self.eqs(), mode)
    }
}
