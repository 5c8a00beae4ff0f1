// SPDX-License-Identifier: GPL-2.0

//! The device as an RDMA device of the kernel.
//!
//! ```text
//!   driver     RdmaDevice     registered while the function is up
//!   the core   ops            what each operation does
//!              Process        an open file: a doorbell page, an account, the memory of its objects
//!   Pd Cq Qp Mr Mw Srq        an object: the device's number, and the place of its memory
//!              Ah             an address; the device has no such object
//! ```
//!
//! The core has the objects, by handle of a file, and destroys them in the order of their uses. The
//! device's side of an object is created and destroyed by [`control`](crate::control).
//!
//! # Removal
//!
//! A shutdown first makes the device quiet, then unregisters the RDMA device. So a destroy may find
//! the device closed; it succeeds all the same, as the core expects. A call that lasts, in a page
//! fault of its process, delays the unregistration but not the shutdown: what the device could
//! access was taken from it by [`Process::unmap`](crate::control::client::Client::unmap), and the
//! poll names no object, since its [`Events`](crate::kernel::rdma::Events) are cut off first.
//!
//! # Locks
//!
//! `Process::objects` is taken inside a pass or without one, and held for no command.

mod address;
pub(crate) mod buffer;
mod change;
mod cq;
mod group;
mod handlers;
mod header;
mod memory;
mod mr;
mod ops;
mod process;
mod request;
mod srq;
mod ulp;

use self::ops::Verbs;
use crate::{
    abi::status::Event,
    control::{
        client::{
            Client,
            Lost,
            Shown, //
        },
        device::Device, //
    },
    data::{
        function::Failure,
        handlers::EventHandler, //
    },
    kernel::{
        gate::Pass,
        rdma::{
            Config,
            Events,
            PortEvent,
            Registration, //
        },
    },
};
use kernel::{
    device::Bound,
    fmt,
    new_mutex,
    pci,
    prelude::*,
    sync::{
        Arc,
        Mutex, //
    }, //
};

/// A locally administered EUI-64.
fn guid(device: &Device) -> u64 {
    0x0200_51ff_fe50_0000 | u64::from(device.index())
}

/// The function, in the reset epoch in which it was registered. The core may still call its driver
/// when the function is already registered again: an old registration reaches no object of the new.
pub(crate) struct Registered {
    device: Arc<Device>,
    epoch: u32,
}

impl Registered {
    /// The way to the device.
    ///
    /// # Errors
    ///
    /// `EIO`: the device was reset, or fails. `ENODEV`: it is gone.
    fn enter(&self) -> Result<Pass<'_>> {
        self.device.enter(self.epoch)
    }
}

/// The RDMA device of a function, registered while that is up.
#[pin_data]
pub(crate) struct RdmaDevice {
    device: Arc<Device>,
    #[pin]
    registration: Mutex<Option<Registration<Verbs>>>,
}

impl RdmaDevice {
    /// Not registered, but a client of the device. Sleeps.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn new(device: Arc<Device>) -> Result<Arc<Self>> {
        let this = Arc::pin_init(
            pin_init!(Self {
                device,
                registration <- new_mutex!(None, "RdmaDevice::registration"),
            }),
            GFP_KERNEL,
        )?;
        this.device.clients().admit(this.clone())?;
        Ok(this)
    }

    /// Registers it with the RDMA core, if the function is up. If that fails meanwhile, a user in the
    /// kernel may wait until it is quiet, and is not waited for. Under the device lock. Sleeps.
    ///
    /// # Errors
    ///
    /// Those of [`Registration::new`].
    pub(crate) fn register(&self, pdev: &pci::Device<Bound>) -> Result {
        let mut registration = self.registration.lock();
        let epoch = self.device.epoch();
        let registered = Registered {
            device: self.device.clone(),
            epoch,
        };
        if registration.is_some() || registered.enter().is_err() {
            return Ok(());
        }
        let config = Config {
            vectors: self.device.vectors(),
            guid: guid(&self.device),
            mac: self.device.limits().mac,
        };
        let is_lost = || self.device.enter(epoch).is_err();
        let new = Registration::new(pdev.as_ref(), config, registered, is_lost)?;
        let port = Arc::new(Port(new.port_events()), GFP_KERNEL)?;
        self.device.watch_link(port.clone())?;
        // It may have gone down between the core's query and the handler.
        let pass = self.device.enter(epoch)?;
        if !self.device.link_up(&pass) {
            port.reported(Event::LinkDown);
        }
        *registration = Some(new);
        Ok(())
    }

    /// As [`Self::register`], after a reset, resume or recovery. A failure makes the device fatal,
    /// and the watchdog tries again. Under the device lock. Sleeps.
    pub(crate) fn register_again(&self, pdev: &pci::Device<Bound>) {
        let Err(error) = self.register(pdev) else {
            return;
        };
        let function = self.device.function();
        if function.attempts() == 0 {
            dev_err!(pdev, "no RDMA device: {error:?}; will try again\n");
        }
        function.fail(Failure::BringUp);
    }

    /// Unregisters it for good. Sleeps.
    pub(crate) fn leave(&self) {
        self.lost(Lost::Gone);
        self.device.clients().dismiss(self);
    }
}

/// What the poll reports the link's events to.
struct Port(Events<PortEvent>);

impl EventHandler for Port {
    fn reported(&self, event: Event) {
        self.0.raise(match event {
            Event::LinkUp => PortEvent::Active,
            _ => PortEvent::Down,
        });
    }
}

impl Client for RdmaDevice {
    fn lost(&self, _why: Lost) {
        let registration = self.registration.lock().take();
        drop(registration);
    }

    fn unmap(&self) {}

    fn describe(&self, _what: Shown, _f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Ok(())
    }
}
