// SPDX-License-Identifier: GPL-2.0

//! Users of the device that may stay when the device goes.

use core::ptr;
use kernel::{
    new_mutex,
    prelude::*,
    sync::{
        Arc,
        Mutex, //
    }, //
};

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

/// The tenants of a device.
#[pin_data]
pub(crate) struct Tenants {
    #[pin]
    list: Mutex<KVec<Option<Arc<dyn Tenant>>>>,
}

impl Tenants {
    /// None.
    pub(super) fn new() -> impl PinInit<Self> {
        pin_init!(Self { list <- new_mutex!(KVec::new(), "Device::tenants") })
    }

    /// Tells all of them that the device is lost. Sleeps.
    pub(super) fn tell(&self, why: Lost) {
        self.for_each(|tenant| tenant.lost(why));
    }

    /// Calls `f` for every tenant. The list is not locked meanwhile, and no tenant changes its
    /// place.
    pub(crate) fn for_each(&self, mut f: impl FnMut(&dyn Tenant)) {
        let mut place = 0;
        loop {
            let Some(tenant) = self.list.lock().get(place).cloned() else {
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
        let mut tenants = self.list.lock();
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

    /// Lets go of the tenants that are meant, one by one: the last reference is not to go with the
    /// list locked.
    pub(super) fn dismiss_if(&self, is_meant: impl Fn(&dyn Tenant) -> bool) {
        let mut place = 0;
        loop {
            let Some(tenant) = self.list.lock().get(place).cloned() else {
                return;
            };
            if let Some(tenant) = tenant.filter(|tenant| is_meant(&**tenant)) {
                // Unless it has left meanwhile, and another has come in its place.
                let mut tenants = self.list.lock();
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
