// SPDX-License-Identifier: GPL-2.0

//! An open file of the RDMA device.

use super::{
    buffer::Buffer,
    memory::{
        Object,
        Objects,
        Place,
        Room, //
    },
    Registered, //
};
use crate::{
    abi::Number,
    control::{
        client::{
            Client,
            Lost,
            Shown, //
        },
        device::Device, //
    },
    kernel::{
        gate::Pass,
        mmio::Frame,
        task::{
            is_privileged,
            Capability, //
        },
        umem::Access, //
    },
    queue::quota::{
        Account,
        Kind, //
    },
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
    device: Arc<Device>,
    number: u16,
    /// The device has not confirmed that all objects are destroyed.
    in_doubt: Atomic<bool>,
}

impl Drop for Page {
    fn drop(&mut self) {
        if self.in_doubt.load(Relaxed) {
            self.device.abandon_page(self.number);
        } else {
            self.device.give_page(self.number);
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
    /// Those of [`Device::take_page`]. `EOPNOTSUPP`: the platform gives devices copies of memory.
    pub(super) fn open(Registered { device, epoch }: &Registered) -> Result<Arc<Self>> {
        let epoch = *epoch;
        if !device.function().is_in_place() {
            return Err(EOPNOTSUPP);
        }
        let opener = Kuid::current_euid();
        let user = (!is_privileged(Capability::SysAdmin)).then_some(opener);
        let objects = KBox::new(Objects::new(), GFP_KERNEL_ACCOUNT)?;
        let page = Page {
            number: device.take_page(epoch, user)?,
            device: device.clone(),
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
        device.clients().admit(this.clone())?;
        Ok(this)
    }

    /// Its doorbell page.
    pub(super) fn page(&self) -> u16 {
        self.page.number
    }

    /// All objects are destroyed and all mappings are gone. Sleeps.
    pub(super) fn close(self: Arc<Self>) {
        self.device.clients().dismiss(&*self);
    }

    /// The way to the device.
    ///
    /// # Errors
    ///
    /// `EIO`: the device was reset, or fails. `ENODEV`: it is gone.
    pub(super) fn enter(&self) -> Result<Pass<'_>> {
        self.device.enter(self.epoch)
    }

    /// Calls `map` with the frame of the doorbell page.
    pub(super) fn doorbells(&self, map: impl FnOnce(Frame) -> Result) -> Result {
        let _pass = self.enter()?;
        map(self.device.page_frame(self.page.number)?)
    }

    /// Adds the memory of an object that the device has created. Inside the pass of its creation.
    pub(super) fn keep(&self, _pass: &Pass<'_>, room: Room, object: Object) -> Place {
        self.objects.lock().insert(room, object)
    }

    /// Keeps the ring in which a CQ or SRQ goes on; returns the one before. Inside the pass of the
    /// resize.
    pub(super) fn keep_ring(&self, _pass: &Pass<'_>, place: Place, ring: Buffer) -> Option<Buffer> {
        let replaced = self.objects.lock().replace_ring(place, ring);
        replaced.map_err(|ring| self.keep_stray(ring)).ok()
    }

    /// The device has the memory of an object that is not known: the memory is kept until the device
    /// is quiet.
    fn keep_stray(&self, memory: Buffer) {
        warn_on!(true);
        self.device.admin().leak(memory);
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
    pub(super) fn region(&self, place: Place) -> Option<(u8, Access)> {
        match self.objects.lock().get_mut(place)? {
            Object::Mr { rights, memory, .. } => Some((*rights, memory.access())),
            _ => None,
        }
    }

    /// A region in a domain.
    pub(super) fn region_in(&self, pd: Number) -> Option<(Place, Number)> {
        self.objects.lock().region_in(pd)
    }

    /// The device has changed a region: its domain, its rights, its memory. Returns the memory that
    /// it had. Inside the pass of the change.
    pub(super) fn change_region(
        &self,
        _pass: &Pass<'_>,
        place: Place,
        (to_pd, to_rights): (Option<Number>, Option<u8>),
        to_memory: Option<Buffer>,
    ) -> Option<Buffer> {
        let mut objects = self.objects.lock();
        let Some(Object::Mr {
            pd, rights, memory, ..
        }) = objects.get_mut(place)
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
        place: Option<Place>,
        f: impl FnOnce(&Pass<'_>) -> Result,
    ) {
        self.ended(place, self.attempt(kind, f));
    }

    /// Destroys an object by `f`; [`Self::ended`] follows, unless the object stays. Sleeps.
    ///
    /// # Errors
    ///
    /// Those of `f`; `EIO` or `ENODEV` without the device.
    pub(super) fn attempt(&self, kind: Kind, f: impl FnOnce(&Pass<'_>) -> Result) -> Result {
        let pass = self.enter()?;
        f(&pass)?;
        self.device.discharge(self.page.number, kind);
        Ok(())
    }

    /// An object was destroyed, or was to be: frees its memory, or keeps it, as [`Self::end`].
    pub(super) fn ended(&self, place: Option<Place>, ended: Result) {
        if ended.is_err() {
            self.page.in_doubt.store(true, Relaxed);
        }
        let mut objects = self.objects.lock();
        let Some(object) = place.and_then(|place| objects.remove(place)) else {
            return;
        };
        if ended.is_err() && !objects.unmapped {
            // Under the lock: a shutdown frees what is kept after it has called `unmap`.
            self.device.admin().leak(object);
            return;
        }
        drop(objects);
        drop(object);
    }

    /// The objects of the process, and those destroyed ones that the device keeps indices of.
    fn account(&self) -> Account {
        let known = self.device.account(self.epoch, self.page.number);
        let of_device = [Kind::Qp, Kind::Cq, Kind::Srq];
        if of_device.map(|kind| known.count(kind).held) == [0; 3] {
            return known;
        }
        if let Ok(pass) = self.enter() {
            // Without an answer, what was known before is shown.
            let _: Result = self.device.settle(&pass, self.page.number);
        }
        self.device.account(self.epoch, self.page.number)
    }
}

impl Client for Process {
    /// The core takes the mappings away, and ends the waits.
    fn lost(&self, _why: Lost) {}

    fn unmap(&self) {
        self.objects.lock().unmap();
    }

    fn describe(&self, what: Shown, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if what != Shown::Contexts {
            return self.objects.lock().describe(what, self.page.number, f);
        }
        let account = self.account();
        writeln!(
            f,
            "page {} epoch {} pds {} cqs {} qps {} srqs {} mrs {} mws {} members {} pinned-pages {} \
             cqs-held {} qps-held {} srqs-held {} uid {}",
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
