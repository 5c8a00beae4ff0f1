// SPDX-License-Identifier: GPL-2.0

//! The device: what stands between bring-up and shutdown, and what others make on it.
//!
//! # Life
//!
//! ```text
//!   probe, after a reset   bring_up    gate open, EQ 0 and the admin queue by registers, the other
//!                                      EQs by command; then it is Up
//!   unbind, reset          shut_down   stop taking work -> the hardware is quiet, or known to be
//!                                      gone -> flush whoever waits -> processes lose their doors
//!                                      and are woken -> memory is freed
//!   watchdog               check       lost interrupts; all ones; fatal: asks for a reset
//! ```
//!
//! Everything ends in the one [`Device::shut_down`]: unbind, rmmod, hot unplug, a reset from
//! outside, and the reset that the watchdog asks for when the device is fatal. The hardware is
//! made quiet by one reset of the function, which ends all its objects at once; object by object
//! they are only destroyed while the device goes on.
//!
//! # Locks, from the outside in
//!
//! | lock | guards |
//! |---|---|
//! | the device lock (PCI core) | probe, unbind and reset exclude each other |
//! | gate (a pass) | the device stays bound, and up unless it fails |
//! | a context's own | its objects |
//! | `objects` | that the device's and our tables of CQs and queue pairs change together |
//! | the pause of a poll | what the poll owns |
//! | `tenants` | the list, and that they stay while they are called; a tenant's own lock is inside |
//! | `pages`, `stranded` | the lists of this file; held for moments |

use crate::{
    abi::{
        command::{
            cq_flags,
            CqContext,
            QpContext, //
        },
        Number, //
    },
    admin::{
        Admin,
        Cq,
        Create,
        Destroy,
        Ended,
        Eq as EqObject,
        Qp, //
    },
    cq::{
        Batch,
        Body,
        Client,
        CqRing,
        Entry,
        KernelCq, //
    },
    event::{
        Eq,
        EqPoller,
        EqRing,
        Knobs,
        Owned, //
    },
    function::{
        AdminRings,
        Function,
        Health,
        Quiet, //
    },
    qp::QueuePair,
    queue::{
        credit::RingId,
        index::Depth,
        producer::SqProducer, //
    },
    ring::Ring,
    sys::{
        self,
        door::Frame,
        gate::Pass,
        watchdog::Check, //
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
            Full,
            Relaxed,
            Release, //
        },
        Arc,
        Mutex, //
    },
};

pub(crate) use crate::{
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

/// Somebody who uses the device and may stay when it goes: an open file.
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

/// Doorbell pages of processes.
struct Pages {
    /// A bit for each page; set while taken. Page 0 is the driver's.
    taken: KVec<u64>,
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
    #[pin]
    admin: Admin,
    #[pin]
    objects: Mutex<()>,
    #[pin]
    tenants: Mutex<KVec<Arc<dyn Tenant>>>,
    #[pin]
    pages: Mutex<Pages>,
    /// What the device may reach until it is quiet, although nobody needs it any more.
    #[pin]
    stranded: Mutex<KVec<KBox<dyn Send>>>,
    /// The health that tenants were last told of.
    told: Atomic<u32>,
    /// A reset was asked for and could not be had.
    hopeless: Atomic<u32>,
}

impl Device {
    /// The device `/dev/qpair<index>`, down. `eqs` says how many vectors there are.
    pub(crate) fn new(
        dev: &Dev<Bound>,
        function: Arc<Function>,
        index: u32,
        vectors: u32,
    ) -> Result<Arc<Self>> {
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
        Arc::pin_init(
            try_pin_init!(Self {
                function,
                knobs,
                index,
                eqs,
                up: Atomic::new(0),
                admin <- admin,
                objects <- new_mutex!((), "Device::objects"),
                tenants <- new_mutex!(KVec::new(), "Device::tenants"),
                pages <- new_mutex!(Pages { taken: KVec::new() }, "Device::pages"),
                stranded <- new_mutex!(KVec::new(), "Device::stranded"),
                told: Atomic::new(Health::Up as u32),
                hopeless: Atomic::new(0),
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
    /// Brings the device up, in a state as after power-on. The gate is open, and nobody else is
    /// inside. Under the device lock. Sleeps.
    ///
    /// # Errors
    ///
    /// Those of the steps; then [`Self::shut_down`] has to follow.
    pub(crate) fn bring_up(&self, pdev: &pci::Device<Bound>) -> Result {
        let function = &self.function;
        let pass = function.gate().enter()?;
        let epoch = self.epoch();
        // What an earlier kernel or driver has left there.
        match function.reset(pass.dev()) {
            Quiet::Reset => {}
            Quiet::Gone => return Err(ENODEV),
            Quiet::No => {
                dev_err!(pdev, "the device cannot be reset\n");
                return Err(EIO);
            }
        }

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

        Eq::set_up(eq0, Number::ADMIN, epoch, eq_ring)?;
        self.admin.open(&pass)?;
        function.enable(pass.dev(), &rings)?;
        eq0.paused(|eq, state| {
            let node = state.bind_kernel()?;
            let body = Body::Kernel(cq);
            state
                .attach(eq, pass.dev(), Number::ADMIN, Entry { node, body })
                .map_err(|(error, _)| error)
        })?;

        for eq in self.eqs.iter().skip(1) {
            let ring = EqRing::new(&pass, function)?;
            // CAST: Vectors are counted in 11 bits.
            let context = ring.context(eq.handler().index() as u16);
            let number = self.admin.execute(&pass, Create::<EqObject>(context))?;
            Eq::set_up(eq, number, epoch, ring)?;
        }
        // CAST: As above.
        self.up.store(self.eqs.len() as u32, Release);
        function.set_up()
    }

    /// Stops everything and frees all memory that the device could reach. Under the device lock.
    /// Doing it again is harmless. Sleeps.
    pub(crate) fn shut_down(&self, pdev: &pci::Device<Bound>, why: Lost) {
        let function = &self.function;
        // Who waits for a device that does not answer must not keep us at the gate.
        let _: Result = function.look(pdev.as_ref());
        if function.health() != Health::Up {
            self.admin.abandon();
        }
        function.gate().close();
        if why == Lost::Reset {
            function.begin_reset();
        }
        self.up.store(0, Release);

        let quiet = self.quiesce(pdev);

        self.admin.abandon();
        if why == Lost::Gone {
            function.set_unbound();
        }
        self.tell_tenants(why);
        if !quiet {
            // Nothing that it could write to may be used again; the gate says what is left.
            return;
        }
        self.for_tenants(|tenant| tenant.unmap());
        self.dismiss_if(|tenant| tenant.is_done());
        self.admin.close();
        for eq in self.eqs.iter().rev() {
            Eq::tear_down(eq);
        }
        let stranded = core::mem::take(&mut *self.stranded.lock());
        drop(stranded);
        self.pages.lock().taken.clear();
        self.told.store(Health::Up as u32, Relaxed);
    }

    /// Makes the hardware leave memory alone; whether it is certain that it does.
    fn quiesce(&self, pdev: &pci::Device<Bound>) -> bool {
        match self.function.reset(pdev.as_ref()) {
            Quiet::Reset => true,
            Quiet::Gone => {
                // What does not answer a read does not master the bus: it is no longer there.
                sys::pci::mastering(pdev) == sys::pci::Mastering::Gone
                    || sys::pci::clear_master(pdev) == sys::pci::Mastering::Off
            }
            Quiet::No => {
                dev_err!(
                    pdev,
                    "the device does not reset, taking the bus away from it\n"
                );
                match sys::pci::clear_master(pdev) {
                    sys::pci::Mastering::Off | sys::pci::Mastering::Gone => true,
                    sys::pci::Mastering::On => {
                        dev_err!(pdev, "it keeps the bus: its memory is leaked\n");
                        false
                    }
                }
            }
        }
    }

    fn tell_tenants(&self, why: Lost) {
        self.for_tenants(|tenant| tenant.lost(why));
    }

    /// Calls `f` for every tenant, with the list held.
    pub(crate) fn for_tenants(&self, mut f: impl FnMut(&dyn Tenant)) {
        for tenant in self.tenants.lock().iter() {
            f(&**tenant);
        }
    }

    /// Admits a tenant. Sleeps.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn admit(&self, tenant: Arc<dyn Tenant>) -> Result {
        Ok(self.tenants.lock().push(tenant, GFP_KERNEL)?)
    }

    /// Lets a tenant go, who must not be called by us at this moment. Sleeps.
    pub(crate) fn dismiss(&self, tenant: &dyn Tenant) {
        self.dismiss_if(|other| ptr::addr_eq(other, tenant));
    }

    /// Lets go of who is meant, one by one: the last reference is not to go with the list locked.
    fn dismiss_if(&self, is_meant: impl Fn(&dyn Tenant) -> bool) {
        loop {
            let mut tenants = self.tenants.lock();
            let found = tenants.iter().position(|tenant| is_meant(&**tenant));
            let Some(left) = found.and_then(|at| tenants.remove(at).ok()) else {
                return;
            };
            drop(tenants);
            drop(left);
        }
    }
}

/// Objects of processes.
impl Device {
    /// Creates a CQ of a process on `vector`. `owner` is told of its events. Sleeps.
    ///
    /// # Errors
    ///
    /// `EINVAL` for a vector that is not there, `ENOSPC` if it is full, `ENOMEM`; those of the
    /// command.
    pub(crate) fn create_process_cq(
        &self,
        pass: &Pass<'_>,
        vector: u32,
        context: CqContext,
        owner: Arc<dyn Owner>,
    ) -> Result<Number> {
        let eq = self.eq(vector)?;
        let _objects = self.objects.lock();
        let node = eq.paused(|_, state| state.bind_process())?;
        let context = CqContext {
            eq: eq.handler().number(),
            flags: context.flags | cq_flags::USER,
            ..context
        };
        let number = match self.admin.execute(pass, Create::<Cq>(context)) {
            Ok(number) => number,
            Err(error) => {
                eq.paused(|_, state| state.unbind_node(node, None));
                return Err(error);
            }
        };
        let body = Body::Process(owner.clone());
        self.attach(pass, eq, number, Entry { node, body })
            .map_err(|(error, _)| error)?;
        if let Err(error) = self.own(Owned::Cq, number, owner) {
            self.end_cq(pass, eq, number)?;
            return Err(error);
        }
        Ok(number)
    }

    /// Destroys a CQ of a process. Sleeps.
    ///
    /// # Errors
    ///
    /// Those of the command: `EBUSY` if queue pairs use it; else its memory must stay until
    /// [`Tenant::unmap`].
    pub(crate) fn destroy_process_cq(
        &self,
        pass: &Pass<'_>,
        vector: u32,
        number: Number,
    ) -> Result {
        let eq = self.eq(vector)?;
        let _objects = self.objects.lock();
        self.end_cq(pass, eq, number)?;
        self.disown(Owned::Cq, number);
        Ok(())
    }

    /// Creates a queue pair of a process. Sleeps.
    ///
    /// # Errors
    ///
    /// Those of the command, `ENOMEM`.
    pub(crate) fn create_qp(
        &self,
        pass: &Pass<'_>,
        context: QpContext,
        owner: Arc<dyn Owner>,
    ) -> Result<Number> {
        let _objects = self.objects.lock();
        let number = self.admin.execute(pass, Create::<Qp>(context))?;
        if let Err(error) = self.own(Owned::Qp, number, owner) {
            self.admin.execute(pass, Destroy::<Qp>::new(number))?;
            return Err(error);
        }
        Ok(number)
    }

    /// Destroys a queue pair of a process. Sleeps.
    ///
    /// # Errors
    ///
    /// Those of the command; its memory must stay until [`Tenant::unmap`].
    pub(crate) fn destroy_qp(&self, pass: &Pass<'_>, number: Number) -> Result<Ended> {
        let _objects = self.objects.lock();
        let ended = self.admin.execute(pass, Destroy::<Qp>::new(number))?;
        self.disown(Owned::Qp, number);
        Ok(ended)
    }

    /// Makes `owner` be told of a doorbell page's violations. Sleeps.
    ///
    /// # Errors
    ///
    /// `ENOMEM`; `EIO` if the device is down.
    pub(crate) fn own_page(&self, _pass: &Pass<'_>, page: u16, owner: Arc<dyn Owner>) -> Result {
        self.own(Owned::Page, Number::from_raw(page.into()), owner)
    }

    /// Undoes [`Self::own_page`]. Sleeps.
    pub(crate) fn disown_page(&self, _pass: &Pass<'_>, page: u16) {
        self.disown(Owned::Page, Number::from_raw(page.into()));
    }

    /// Takes a doorbell page for a process. Sleeps.
    ///
    /// # Errors
    ///
    /// `ENOSPC` if all are taken, `ENOMEM`.
    pub(crate) fn take_page(&self) -> Result<u16> {
        const BITS: usize = u64::BITS as usize;
        let mut pages = self.pages.lock();
        let full = pages.taken.iter().take_while(|word| **word == u64::MAX);
        let word = full.count();
        if word == pages.taken.len() {
            // Page 0 is the driver's.
            pages.taken.push(u64::from(word == 0), GFP_KERNEL)?;
        }
        let slot = pages.taken.get_mut(word).ok_or(ENOSPC)?;
        let bit = slot.trailing_ones() as usize;
        let page = word * BITS + bit;
        if page >= self.limits().pages as usize {
            return Err(ENOSPC);
        }
        let page = u16::try_from(page).map_err(|_| ENOSPC)?;
        *slot |= 1 << bit;
        Ok(page)
    }

    /// Gives a doorbell page back that was taken in `epoch`: after a reset all are free anyway.
    /// All objects of the page have been destroyed. Sleeps.
    pub(crate) fn give_page(&self, epoch: u32, page: u16) {
        const BITS: usize = u64::BITS as usize;
        let mut pages = self.pages.lock();
        if epoch != self.epoch() {
            return;
        }
        if let Some(word) = pages.taken.get_mut(usize::from(page) / BITS) {
            *word &= !(1 << (usize::from(page) % BITS));
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
}

/// Objects of the kernel.
impl Device {
    /// Creates a CQ of the kernel on `vector`, for `client`. It is the caller's until
    /// [`Self::attach_kernel_cq`]. Sleeps.
    ///
    /// # Errors
    ///
    /// `EINVAL` for a vector that is not there, `ENOMEM`; those of the command.
    pub(crate) fn create_kernel_cq(
        &self,
        pass: &Pass<'_>,
        vector: u32,
        depth: Depth,
        client: KBox<dyn Client>,
    ) -> Result<KBox<KernelCq>> {
        let eq = self.eq(vector)?;
        let ring = CqRing::new(pass, depth)?;
        let context = ring.context(eq.handler().number());
        let _objects = self.objects.lock();
        let number = self.admin.execute(pass, Create::<Cq>(context))?;
        let made = KernelCq::new(number, self.epoch(), ring, client)
            .and_then(|cq| Ok(KBox::new(cq, GFP_KERNEL)?));
        if made.is_err() {
            self.admin.execute(pass, Destroy::<Cq>::new(number))?;
        }
        made
    }

    /// Hands a CQ of the kernel to the poll of its `vector`. Sleeps.
    ///
    /// # Errors
    ///
    /// `ENOSPC` if the vector has no room for it, `ENOMEM`; and the CQ, which is still there.
    pub(crate) fn attach_kernel_cq(
        &self,
        pass: &Pass<'_>,
        vector: u32,
        cq: KBox<KernelCq>,
    ) -> Result<(), (Error, KBox<KernelCq>)> {
        let number = cq.number();
        let eq = match self.eq(vector) {
            Ok(eq) => eq,
            Err(error) => return Err((error, cq)),
        };
        let node = match eq.paused(|_, state| state.bind_kernel()) {
            Ok(node) => node,
            Err(error) => return Err((error, cq)),
        };
        let body = Body::Kernel(cq);
        let attached = eq.paused(|eq, state| {
            match state.attach(eq, pass.dev(), number, Entry { node, body }) {
                Ok(()) => Ok(()),
                Err((error, entry)) => {
                    state.unbind_node(entry.node, None);
                    Err((error, entry.body))
                }
            }
        });
        match attached {
            Ok(()) => Ok(()),
            Err((error, Body::Kernel(cq))) => Err((error, cq)),
            // It is what was put in.
            Err((_, Body::Process(_) | Body::Ending)) => Ok(()),
        }
    }

    /// Takes CQ `number` of the kernel back from the poll of `vector`; `None` if it is not there
    /// any more. Sleeps.
    pub(crate) fn take_kernel_cq(&self, vector: u32, number: Number) -> Option<KBox<KernelCq>> {
        let eq = self.eq(vector).ok()?;
        eq.paused(|_, state| state.take_kernel(number))
    }

    /// Ends a CQ of the kernel and the queue pairs on it. Sleeps.
    ///
    /// # Errors
    ///
    /// Those of the commands; the device is fatal then, and the memory stays until it is reset.
    pub(crate) fn end_kernel_cq(
        &self,
        pass: &Pass<'_>,
        vector: u32,
        mut cq: KBox<KernelCq>,
    ) -> Result {
        match self.try_end_kernel_cq(pass, vector, &mut cq) {
            Ok(()) => {
                KBox::into_inner(cq).retire();
                Ok(())
            }
            Err(error) => {
                self.strand(cq);
                Err(error)
            }
        }
    }

    fn try_end_kernel_cq(&self, pass: &Pass<'_>, vector: u32, cq: &mut KernelCq) -> Result {
        while let Some(queue) = cq.queues().pop() {
            match queue.destroy(&self.admin, pass) {
                Ok(ended) => {
                    let until = if ended.send_cq.reaches(ended.recv_cq) {
                        ended.send_cq
                    } else {
                        ended.recv_cq
                    };
                    cq.give_back_at(queue.retire(), until);
                }
                Err(error) => {
                    // It came from there, so there is room for it.
                    let _: Result<_, _> = cq.queues().push_within_capacity(queue);
                    return Err(error);
                }
            }
        }
        cq.drain(&mut Batch::new()?, &self.function.bells(pass.dev()));
        let eq = self.eq(vector)?;
        let _objects = self.objects.lock();
        self.end_cq(pass, eq, cq.number())
    }

    /// Keeps what the device may still reach until it is quiet.
    pub(crate) fn strand<T: Send + 'static>(&self, thing: T) {
        let room = KBox::<T>::new_uninit(GFP_KERNEL);
        let mut stranded = self.stranded.lock();
        match (room, stranded.reserve(1, GFP_KERNEL)) {
            (Ok(room), Ok(())) => {
                let boxed: KBox<dyn Send> = room.write(thing);
                // Reserved above.
                let _: Result<_, _> = stranded.push_within_capacity(boxed);
            }
            _ => {
                let dev = self.function.device();
                dev_err!(dev, "no memory to keep what the device may reach: leaked\n");
                core::mem::forget(thing);
            }
        }
    }
}

/// The tables, with `objects` held.
impl Device {
    /// Puts a CQ into the table of its EQ. With an error it is destroyed.
    fn attach(
        &self,
        pass: &Pass<'_>,
        eq: &EqPoller,
        number: Number,
        entry: Entry,
    ) -> Result<(), (Error, Body)> {
        let attached = eq.paused(|eq, state| state.attach(eq, pass.dev(), number, entry));
        let Err((error, Entry { node, body })) = attached else {
            return Ok(());
        };
        match self.admin.execute(pass, Destroy::<Cq>::new(number)) {
            Ok(ended) => {
                eq.paused(|_, state| state.unbind_node(node, Some(ended.eq)));
                Err((error, body))
            }
            Err(error) => Err((error, body)),
        }
    }

    /// Destroys a CQ and takes it out of the table of its EQ.
    fn end_cq(&self, pass: &Pass<'_>, eq: &EqPoller, number: Number) -> Result {
        let ended = self.admin.execute(pass, Destroy::<Cq>::new(number))?;
        let entry = eq.paused(|eq, state| state.detach(eq, pass.dev(), number, ended.eq));
        drop(entry);
        Ok(())
    }

    /// Makes `owner` be told of an object's asynchronous events.
    fn own(&self, what: Owned, number: Number, owner: Arc<dyn Owner>) -> Result {
        let eq0 = self.eqs.first().ok_or(EINVAL)?;
        let owned = eq0.paused(|_, state| state.own(what, number, owner));
        // An owner that comes back is dropped here, with the poll running again.
        owned.map_err(|(error, _owner)| error)
    }

    fn disown(&self, what: Owned, number: Number) {
        if let Some(eq0) = self.eqs.first() {
            let owner = eq0.paused(|_, state| state.disown(what, number));
            drop(owner);
        }
    }
}

/// The watchdog's view of the device.
pub(crate) struct Watch(pub(crate) Arc<Device>);

impl Check for Watch {
    fn check(&self) {
        let device = &*self.0;
        let function = &device.function;
        for eq in &device.eqs {
            if eq.handler().is_overdue() {
                let (_, lost) = eq.handler().interrupts();
                // So that one which always gets lost does not fill the log.
                if lost.is_power_of_two() {
                    let index = eq.handler().index();
                    dev_warn!(function.device(), "EQ {index}: lost interrupt ({lost})\n");
                }
                eq.schedule();
            }
        }
        if function.health() == Health::Up {
            if let Ok(pass) = function.gate().enter() {
                let _: Result = function.look(pass.dev());
            }
        }
        let health = function.health();
        if !matches!(health, Health::Fatal | Health::Gone) {
            return;
        }
        device.admin.abandon();
        let told = device.told.xchg(health as u32, Full);
        if health == Health::Gone {
            if told != health as u32 {
                device.tell_tenants(Lost::Gone);
            }
            return;
        }
        if told != health as u32 {
            device.tell_tenants(Lost::Reset);
            dev_info!(function.device(), "resetting the device\n");
        }
        if device.hopeless.load(Relaxed) == 0 {
            match sys::pci::try_reset(function.device()) {
                Ok(()) | Err(EAGAIN) => {}
                Err(error) => {
                    device.hopeless.store(1, Relaxed);
                    dev_err!(function.device(), "the device cannot be reset: {error:?}\n");
                }
            }
        }
    }
}
