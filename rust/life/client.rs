// SPDX-License-Identifier: GPL-2.0

//! Clients: users of the device that may outlive its binding.

pub(crate) use crate::policy::lifecycle::Lost;
use core::ptr;
use kernel::{
    fmt,
    new_mutex,
    prelude::*,
    sync::{
        Arc,
        Mutex, //
    }, //
};

/// A user of the device that may outlive its binding: the RDMA device, a process, the loopback client,
/// or a queue or an FRMR of a kernel ULP.
pub(crate) trait Client: Send + Sync {
    /// The device is lost: kernel ULPs access it no more. Process context; may be called more
    /// than once.
    fn cut(&self) {}

    /// The hardware is quiet: flushes what kernel ULPs have posted. A flushed request gives
    /// its memory back to its ULP. After [`Self::cut`] of all clients. Process context; may be called
    /// more than once.
    fn flush(&self) {}

    /// The device is lost: zaps user mappings of doorbells and wakes sleeping tasks. Process
    /// context; may be called more than once.
    fn lost(&self, _why: Lost) {}

    /// The hardware is quiet: releases all DMA mappings and all coherent memory. Process context.
    fn unmap(&self);

    /// Writes its line of the debugfs file `clients`, if it has one. Process context; sleeps.
    fn describe(&self, _f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Ok(())
    }
}

/// The clients of a device.
#[pin_data]
pub(crate) struct Clients {
    #[pin]
    list: Mutex<KVVec<Option<Arc<dyn Client>>>>,
}

impl Clients {
    pub(super) fn new() -> impl PinInit<Self> {
        pin_init!(Self { list <- new_mutex!(KVVec::new(), "Device::clients") })
    }

    /// Calls `f` for every client, with the list unlocked. No client changes its index.
    pub(crate) fn for_each(&self, mut f: impl FnMut(&dyn Client)) {
        let mut place = 0;
        loop {
            let Some(client) = self.list.lock().get(place).cloned() else {
                return;
            };
            if let Some(client) = client {
                f(&*client);
            }
            place += 1;
        }
    }

    /// Adds a client at the first free index; returns it. May sleep, but not for long.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn admit<C: Client + 'static>(&self, client: Arc<C>) -> Result<Arc<C>> {
        let mut clients = self.list.lock();
        match clients.iter_mut().find(|place| place.is_none()) {
            Some(place) => *place = Some(client.clone()),
            None => clients.push(Some(client.clone()), GFP_KERNEL)?,
        }
        Ok(client)
    }

    /// Removes a client. [`Self::for_each`] may have taken it before, and call it afterwards. Sleeps.
    pub(crate) fn dismiss(&self, client: &dyn Client) {
        let mut clients = self.list.lock();
        let found = clients
            .iter_mut()
            .find_map(|place| place.take_if(|other| ptr::addr_eq(Arc::as_ptr(other), client)));
        // The last reference is not dropped with the list locked.
        drop(clients);
        drop(found);
    }
}
