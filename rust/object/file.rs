// SPDX-License-Identifier: GPL-2.0

//! An open file of the RDMA device.

use super::{
    buffer::UserBuffer,
    memory::{
        MemoryId,
        ObjectMemory,
        Objects,
        Reserved, //
    },
    quota::Quotas,
    registered::{
        Registered,
        Verbs, //
    },
    request::answered, //
};
use crate::{
    abi::{
        uverbs::qpair_uresp_alloc_ucontext, //
        Number,
    },
    hw::command,
    kernel::{
        gate::Pass,
        mmio::Frame,
        rdma::{
            context,
            Udata, //
        },
        task::{
            is_privileged,
            Capability, //
        },
        umem::Access, //
    },
    life::{
        client::Client,
        device::Device, //
    },
    policy::quota::{
        Account,
        Kind, //
    }, //
};
use kernel::{
    fmt,
    new_mutex,
    prelude::*,
    sync::{
        atomic::{
            Atomic,
            Relaxed, //
        },
        Arc,
        Mutex, //
    },
    task::Kuid,
    warn_on, //
};

/// A doorbell page; the drop gives it back.
struct Page {
    quotas: Arc<Quotas>,
    number: u16,
    /// The device has not confirmed that all objects are destroyed.
    in_doubt: Atomic<bool>,
}

impl Drop for Page {
    fn drop(&mut self) {
        if self.in_doubt.load(Relaxed) {
            self.quotas.abandon_page(self.number);
        } else {
            self.quotas.give_page(self.number);
        }
    }
}

/// A process that has opened the device, in one reset epoch.
#[pin_data]
pub(crate) struct Process {
    pub(super) device: Arc<Device>,
    pub(super) epoch: u32,
    page: Page,
    opener: Kuid,
    #[pin]
    objects: Mutex<KBox<Objects>>,
}

impl Process {
    /// Takes a doorbell page. Sleeps.
    ///
    /// # Errors
    ///
    /// Those of [`Quotas::take_page`]. `EOPNOTSUPP`: the platform gives devices copies of memory.
    fn new(registered: &Registered) -> Result<Arc<Self>> {
        let (device, quotas) = (&registered.device, &registered.quotas);
        let epoch = registered.epoch;
        if !device.function.in_place {
            return Err(EOPNOTSUPP);
        }
        let opener = Kuid::current_euid();
        let user = (!is_privileged(Capability::SysAdmin)).then_some(opener);
        let objects = KBox::new(Objects::new(), GFP_KERNEL_ACCOUNT)?;
        let page = Page {
            number: quotas.take_page(epoch, user)?,
            quotas: quotas.clone(),
            in_doubt: Atomic::new(false),
        };
        let this = Arc::pin_init(
            pin_init!(Self {
                device: device.clone(),
                epoch,
                page,
                opener,
                objects <- new_mutex!(objects, "Process::objects"),
            }),
            GFP_KERNEL_ACCOUNT,
        )?;
        device.clients.admit(this)
    }

    /// The number of its doorbell page; 0 is the driver's.
    pub(super) fn page(&self) -> u16 {
        self.page.number
    }

    /// The way to the device.
    ///
    /// # Errors
    ///
    /// `EIO`: the device was reset, or fails. `ENODEV`: it is gone.
    pub(super) fn enter(&self) -> Result<Pass<'_>> {
        self.device.enter(self.epoch)
    }

    /// Makes an object in the device by `f`, and charges it. Sleeps.
    ///
    /// # Errors
    ///
    /// `EIO` or `ENODEV` without the device; those of [`Quotas::charge`] and of `f`.
    pub(super) fn charged<R>(
        &self,
        kind: Kind,
        f: impl FnOnce(&Pass<'_>) -> Result<R>,
    ) -> Result<R> {
        let pass = self.enter()?;
        let (quotas, page) = (&self.page.quotas, self.page());
        quotas.charge(&pass, page, kind)?;
        // The device has not created it. Or it has, and the driver has no EQ for it any more: then the
        // epoch ends, and all counts.
        f(&pass).inspect_err(|_| quotas.refund(page, kind))
    }

    /// Creates an object with memory, in the steps that no process can delay: enters the device, charges
    /// the object, `map`s its memory, creates it by `command`, which returns the memory, and commits
    /// `object` to the file. Returns the number. Sleeps.
    ///
    /// # Errors
    ///
    /// `ENOMEM`; as of [`Self::charged`].
    pub(super) fn create<M>(
        &self,
        kind: Kind,
        map: impl FnOnce(&Pass<'_>) -> Result<M>,
        command: impl FnOnce(&Pass<'_>, M) -> Result<(Number, M)>,
        object: impl FnOnce(Number, M) -> ObjectMemory,
    ) -> Result<(Number, MemoryId)> {
        let reserved = Reserved::new()?;
        self.charged(kind, |pass| {
            let (number, memory) = command(pass, map(pass)?)?;
            // A shutdown takes the memory from the file once the pass has ended.
            let id = self.objects.lock().insert(reserved, object(number, memory));
            Ok((number, id))
        })
    }

    /// Keeps the ring in which a CQ or SRQ goes on; returns the one before. Inside the pass of the
    /// resize.
    pub(super) fn replace_ring(
        &self,
        _pass: &Pass<'_>,
        id: MemoryId,
        ring: UserBuffer,
    ) -> Option<UserBuffer> {
        let replaced = self.objects.lock().replace_ring(id, ring);
        replaced.map_err(|ring| self.keep_stray(ring)).ok()
    }

    /// The device has the memory of an object that is not known: the memory is kept until the device
    /// is quiet.
    fn keep_stray(&self, memory: UserBuffer) {
        warn_on!(true);
        self.device.admin.leak(memory);
    }

    /// Whether the device has regions of so many bytes.
    ///
    /// # Errors
    ///
    /// `EOVERFLOW`.
    pub(super) fn fits(&self, bytes: u64) -> Result {
        if bytes > 1 << self.device.limits().region_log_bytes.min(63) {
            return Err(EOVERFLOW);
        }
        Ok(())
    }

    /// The rights of a region, and how the device may access its memory.
    pub(super) fn region(&self, id: MemoryId) -> Option<(u8, Access)> {
        match self.objects.lock().get_mut(id)? {
            ObjectMemory::Mr { rights, memory, .. } => Some((*rights, memory.access())),
            _ => None,
        }
    }

    /// The device has changed a region: its domain, its rights, its memory. Returns the memory that
    /// it had. Inside the pass of the change.
    pub(super) fn change_region(
        &self,
        _pass: &Pass<'_>,
        id: MemoryId,
        (to_pd, to_rights): (Option<Number>, Option<u8>),
        to_memory: Option<UserBuffer>,
    ) -> Option<UserBuffer> {
        let mut objects = self.objects.lock();
        let Some(ObjectMemory::Mr {
            pd, rights, memory, ..
        }) = objects.get_mut(id)
        else {
            drop(objects);
            if let Some(memory) = to_memory {
                self.keep_stray(memory);
            }
            return None;
        };
        *pd = to_pd.unwrap_or(*pd);
        *rights = to_rights.unwrap_or(*rights);
        Some(core::mem::replace(memory, to_memory?))
    }

    /// Destroys an object by `f`, and frees its memory. Memory that the device may still access is
    /// kept until the device is quiet. Sleeps.
    pub(super) fn end(
        &self,
        kind: Kind,
        id: Option<MemoryId>,
        f: impl FnOnce(&Pass<'_>) -> Result,
    ) {
        self.ended(id, self.attempt(kind, f));
    }

    /// Destroys an object by `f`; [`Self::ended`] follows, unless the object stays. Sleeps.
    ///
    /// # Errors
    ///
    /// Those of `f`; `EIO` or `ENODEV` without the device.
    pub(super) fn attempt(&self, kind: Kind, f: impl FnOnce(&Pass<'_>) -> Result) -> Result {
        let pass = self.enter()?;
        f(&pass)?;
        self.discharge(kind);
        Ok(())
    }

    /// An object that was [charged](Self::charged) is destroyed. Sleeps.
    pub(super) fn discharge(&self, kind: Kind) {
        self.page.quotas.discharge(self.page.number, kind);
    }

    /// An object was destroyed, or was to be: frees its memory, or keeps it, as [`Self::end`].
    pub(super) fn ended(&self, id: Option<MemoryId>, ended: Result) {
        if ended.is_err() {
            self.page.in_doubt.store(true, Relaxed);
        }
        let mut objects = self.objects.lock();
        let Some(object) = id.and_then(|id| objects.remove(id)) else {
            return;
        };
        if ended.is_err() && !objects.unmapped {
            // Under the lock: a shutdown frees what is kept after it has called `unmap`.
            self.device.admin.leak(object);
            return;
        }
        drop(objects);
        drop(object);
    }

    /// Destroys a region, unless windows are bound to it; [`Self::ended`] follows, unless it stays.
    ///
    /// # Errors
    ///
    /// `EBUSY`: windows are bound to it. Those of [`Self::attempt`].
    pub(super) fn destroy_region(&self, number: Number) -> Result {
        let admin = &self.device.admin;
        self.attempt(Kind::Mr, |pass| admin.destroy::<command::Mr>(pass, number))
    }

    /// Destroys the regions of a domain that are abandoned: all that are left, when the domain is about
    /// to be destroyed.
    pub(super) fn end_abandoned(&self, pd: Number) {
        loop {
            let Some((id, number)) = self.objects.lock().region_in(pd) else {
                return;
            };
            self.ended(Some(id), self.destroy_region(number));
        }
    }

    /// The objects of the process, and those destroyed ones that the device keeps indices of.
    fn account(&self) -> Account {
        let known = self.page.quotas.account(self.epoch, self.page.number);
        let of_device = [Kind::Qp, Kind::Cq, Kind::Srq];
        if of_device.map(|kind| known.count(kind).held) == [0; 3] {
            return known;
        }
        if let Ok(pass) = self.enter() {
            // Without an answer, what was known before is shown.
            let _: Result = self.page.quotas.settle(&pass, self.page.number);
        }
        self.page.quotas.account(self.epoch, self.page.number)
    }
}

impl context::Operations<Verbs> for Arc<Process> {
    type Frame = Frame;

    fn open(registered: &Registered, udata: Udata<'_>) -> Result<Self> {
        let reply = udata.without_request()?;
        let limits = registered.device.limits();
        let process = Process::new(registered)?;
        let answer = qpair_uresp_alloc_ucontext {
            max_sq_blocks: 1 << limits.log_sq.min(31),
            max_rq_depth: 1 << limits.log_rq.min(31),
            max_cq_depth: 1 << limits.log_cq.min(31),
            max_send_sge: limits.send_sges,
            max_recv_sge: limits.recv_sges,
            max_inline: limits.inline_bytes,
            epoch: process.epoch,
            page: process.page().into(),
        };
        answered(process, reply.write(&answer), context::Operations::close)
    }

    fn doorbells(&self, map: impl FnOnce(Frame) -> Result) -> Result {
        let _pass = self.enter()?;
        map(self.device.function.page_frame(self.page.number)?)
    }

    fn close(self) {
        self.device.clients.dismiss(&*self);
    }
}

/// The core takes the mappings away when the device is lost, and ends the waits.
impl Client for Process {
    fn unmap(&self) {
        self.objects.lock().unmap();
    }

    fn describe(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let account = self.account();
        writeln!(
            f,
            "page {} epoch {} pds {} cqs {} qps {} srqs {} mrs {} mws {} members {} \
             pinned-pages {} cqs-held {} qps-held {} srqs-held {} uid {}",
            self.page.number,
            self.epoch,
            account.count(Kind::Pd).live,
            account.count(Kind::Cq).live,
            account.count(Kind::Qp).live,
            account.count(Kind::Srq).live,
            account.count(Kind::Mr).live,
            account.count(Kind::Mw).live,
            account.count(Kind::Member).live,
            self.objects.lock().pages(),
            account.count(Kind::Cq).held,
            account.count(Kind::Qp).held,
            account.count(Kind::Srq).held,
            self.opener.into_uid_in_current_ns()
        )
    }
}
