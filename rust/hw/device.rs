// SPDX-License-Identifier: GPL-2.0

//! The hardware of a device.

use super::{
    admin::Admin,
    eq::Eq,
    eqs::Eqs,
    function::{
        Function,
        Limits, //
    },
    knobs::Knobs,
    prelude::*, //
};
use kernel::{
    device::Device,
    new_mutex,
    sync::Mutex, //
};

/// The least number of EQs, even with fewer CPUs: it keeps events of the kernel and of processes
/// apart.
const MIN_EQS: u32 = 4;

/// The right to change the tables of CQs and queue pairs, the device's and the driver's. Each
/// device has one, inside `objects`.
pub(super) struct Tables(());

/// The function, its EQs and its admin queue.
#[pin_data]
pub(crate) struct Hardware {
    /// Registers, doorbells and gate.
    pub(crate) function: Arc<Function>,
    /// Tuning of the EQs' polls, which debugfs changes.
    pub(crate) knobs: Arc<Knobs>,
    /// One for each vector.
    #[pin]
    pub(crate) eqs: Eqs,
    #[pin]
    pub(crate) admin: Admin,
    #[pin]
    pub(super) objects: Mutex<Tables>,
}

impl Hardware {
    /// That of `function`, down, with `vectors` vectors.
    pub(crate) fn new(
        dev: &Device<Bound>,
        function: Arc<Function>,
        vectors: u32,
    ) -> Result<impl PinInit<Self, Error>> {
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
        Ok(try_pin_init!(Self {
            function,
            knobs,
            eqs <- eqs,
            admin <- admin,
            objects <- new_mutex!(Tables(()), "Hardware::objects"),
        }))
    }

    /// How many vectors to ask for.
    pub(crate) fn wanted_vectors(limits: &Limits) -> u32 {
        kernel::cpu::nr_cpu_ids().max(MIN_EQS).min(limits.eq)
    }

    /// The index of the device: see [`Function::index`].
    pub(crate) fn index(&self) -> u32 {
        self.function.index
    }

    /// The limits of the function.
    pub(crate) fn limits(&self) -> &Limits {
        &self.function.limits
    }

    /// The vectors a CQ can be created on.
    pub(crate) fn vectors(&self) -> u32 {
        // CAST: Vectors are counted in 11 bits.
        self.eqs.polls().len() as u32
    }

    /// Whether the link is up.
    pub(crate) fn link_up(&self, pass: &Pass<'_>) -> bool {
        self.function.link_up(pass.dev()).unwrap_or(false)
    }
}
