// SPDX-License-Identifier: GPL-2.0

//! The PCI driver: the steps of probe, and the order of teardown.
//!
//! Each step of probe is a value, and its drop undoes the step. So a failing probe undoes the steps
//! it has done, and unbind undoes all of them.

use crate::{
    abi,
    debugfs::{
        self,
        Files, //
    },
    hw::{
        device::Hardware,
        eq::Eq,
        function::Function, //
    },
    kernel::{
        compat,
        debugfs::Root,
        gate::Gate,
        irq::{
            Irq,
            Vectors, //
        },
        pci::{
            Channel,
            Enabled,
            Verdict, //
        },
        rdma::Registrar,
        watchdog::Watchdog, //
    },
    life::{
        client::{
            Client,
            Lost, //
        },
        device::Device,
        moderate::SAMPLE,
        state::Life,
        watch::{
            Sampler,
            Watch,
            WATCH, //
        }, //
    },
    loopback::Loopback,
    object::device::RdmaDevice,
    policy::lifecycle::Health, //
};
use kernel::{
    device::{
        Bound,
        Core, //
    },
    driver::Registration,
    pci,
    prelude::*,
    sync::{
        atomic::{
            Atomic,
            Full,
            Relaxed, //
        },
        Arc, //
    },
    InPlaceModule,
    ModuleMetadata, //
};

/// The module. Field order is teardown order.
#[pin_data]
pub(crate) struct Module {
    #[pin]
    _driver: Registration<crate::kernel::pci::Adapter<PciDriver>>,
    _rdma: Registrar,
    _root: Root,
}

impl InPlaceModule for Module {
    fn init(module: &'static ThisModule) -> impl PinInit<Self, Error> {
        // The driver last: registering it probes devices.
        try_pin_init!(Self {
            _root: Root::new(c"qpair")?,
            _rdma: Registrar::new()?,
            _driver <- Registration::new(<crate::LocalModule as ModuleMetadata>::NAME, module),
        })
    }
}

/// The driver of the PCI core.
pub(crate) struct PciDriver;

compat::pci_table!(
    PCI_TABLE,
    <PciDriver as pci::Driver>::IdInfo,
    [(
        crate::kernel::pci::device_id(abi::PCI_VENDOR, abi::PCI_DEVICE),
        ()
    )]
);

/// The indices of devices that are taken.
static INDICES: Atomic<u64> = Atomic::new(0);

/// The index of a device: of its debugfs directory, its interrupts and its GUID.
struct MyIndex(u32);

impl MyIndex {
    /// Takes the lowest that is free.
    fn take() -> Result<Self> {
        let mut taken = INDICES.load(Relaxed);
        loop {
            let index = taken.trailing_ones();
            let bit = 1u64.checked_shl(index).ok_or(ENOSPC)?;
            match INDICES.cmpxchg(taken, taken | bit, Full) {
                Ok(_) => return Ok(Self(index)),
                Err(now) => taken = now,
            }
        }
    }
}

impl Drop for MyIndex {
    fn drop(&mut self) {
        let mut taken = INDICES.load(Relaxed);
        while let Err(now) = INDICES.cmpxchg(taken, taken & !(1 << self.0), Full) {
            taken = now;
        }
    }
}

/// A device that was brought up. The drop shuts it down.
struct Running<'bound> {
    device: Arc<Device>,
    pdev: &'bound pci::Device<Bound>,
}

impl<'bound> Running<'bound> {
    fn new(device: Arc<Device>, pdev: &'bound pci::Device<Bound>) -> Result<Self> {
        // First, so that its drop undoes a bring-up that fails.
        let running = Self { device, pdev };
        running.device.bring_up(pdev)?;
        Ok(running)
    }

    fn shut_down(&self) {
        self.device.shut_down(self.pdev, Lost::Gone);
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.shut_down();
    }
}

/// A client that the device has until the drop.
struct Admitted<C: Client>(Arc<C>, Arc<Device>);

impl<C: Client> Drop for Admitted<C> {
    fn drop(&mut self) {
        self.0.lost(Lost::Gone);
        self.1.clients.dismiss(&*self.0);
    }
}

/// The state while the driver is bound. Field order is teardown order.
pub(crate) struct Data<'bound> {
    /// First: no new files.
    verbs: Admitted<RdmaDevice>,
    /// Does nothing while the device is down.
    sampler: Pin<KBox<Watchdog<Sampler>>>,
    running: Running<'bound>,
    /// After `running`: the shutdown ends a run that a process waits for.
    _files: Pin<KBox<Files>>,
    _loopback: Admitted<Loopback>,
    /// After `running`: the shutdown may wait for a command whose interrupt was lost.
    watchdog: Pin<KBox<Watchdog<Watch>>>,
    _irqs: KVec<Irq<Eq>>,
    _index: MyIndex,
    _enabled: Enabled<'bound>,
}

impl<'bound> Data<'bound> {
    fn new(pdev: &'bound pci::Device<Core<'_>>) -> Result<Self> {
        let enabled = Enabled::new(pdev)?;
        let gate = Gate::new(pdev)?;
        let life = Life::new(gate.clone())?;
        let index = MyIndex::take()?;
        let function = Function::map(pdev, gate, index.0, life.clone())?;
        let wanted = Hardware::wanted_vectors(&function.limits);
        let vectors = Vectors::new(pdev, &function.gate, wanted)?;
        let device = Device::new(pdev.as_ref(), function, life, vectors.count())?;
        let mut irqs = KVec::new();
        for eq in device.eqs.polls() {
            let vector = eq.handler().index;
            let irq = Irq::new(
                &vectors,
                vector,
                fmt!("qpair{}-eq{vector}", index.0),
                eq.clone(),
            )?;
            irqs.push(irq, GFP_KERNEL)?;
        }
        let watchdog = KBox::pin_init(Watchdog::new(WATCH, Watch(device.clone())), GFP_KERNEL)?;
        let running = Running::new(device.clone(), pdev)?;
        let sampler = Watchdog::new(SAMPLE, Sampler(device.clone()));
        let sampler = KBox::pin_init(sampler, GFP_KERNEL)?;
        let loopback = Admitted(Loopback::new(&device)?, device.clone());
        let files = debugfs::files(device.clone(), loopback.0.clone())?;
        Self::announce(pdev, &device);
        // The drop of the files waits for a process that waits for its run, which a shutdown ends.
        let ended = |error| {
            running.shut_down();
            error
        };
        let verbs = Admitted(RdmaDevice::new(&device).map_err(ended)?, device);
        if let Err(error) = verbs.0.register(pdev) {
            // The watchdog resets a device that has failed meanwhile. A probe that fails would leave
            // it as it is, and its kernel ULPs waiting.
            if running.device.health() != Health::Fatal {
                let error = ended(error);
                verbs.0.wait_for_ulps();
                return Err(error);
            }
        }
        Ok(Self {
            verbs,
            _files: files,
            _loopback: loopback,
            sampler,
            running,
            watchdog,
            _irqs: irqs,
            _index: index,
            _enabled: enabled,
        })
    }

    /// Brings the device up after a shutdown, and registers the RDMA device. Under the device lock.
    /// Sleeps.
    fn up_again(&self, pdev: &pci::Device<Bound>) {
        self.running.device.bring_up_again(pdev);
        self.verbs.0.register_again(pdev);
    }

    fn announce(pdev: &pci::Device<Bound>, device: &Device) {
        let limits = device.limits();
        dev_info!(
            pdev,
            "qpair{}: model {}.{}, {} QPs, {} CQs, {} MRs, {} EQs of {}\n",
            device.index(),
            limits.version >> 16,
            limits.version & 0xffff,
            limits.qp,
            limits.cq,
            limits.mr,
            device.vectors(),
            limits.eq,
        );
    }
}

impl pci::Driver for PciDriver {
    type IdInfo = ();
    type Data<'bound> = Data<'bound>;
    const ID_TABLE: pci::IdTable<Self::IdInfo> = &PCI_TABLE;

    fn probe<'bound>(
        pdev: &'bound pci::Device<Core<'_>>,
        _info: compat::IdInfo<'bound, Self::IdInfo>,
    ) -> impl PinInit<Self::Data<'bound>, Error> + 'bound {
        Data::new(pdev)
    }

    fn unbind<'bound>(_pdev: &'bound pci::Device<Core<'_>>, data: Pin<&Self::Data<'bound>>) {
        data.running.shut_down();
        data.verbs.0.wait_for_ulps();
    }
}

impl crate::kernel::pci::Callbacks for PciDriver {
    fn reset_prepare<'a>(pdev: &'a pci::Device<Bound>, data: Pin<&Self::Data<'a>>) {
        data.running.device.shut_down(pdev, Lost::Reset);
    }

    fn reset_done<'a>(pdev: &'a pci::Device<Bound>, data: Pin<&Self::Data<'a>>) {
        data.up_again(pdev);
    }

    fn suspend<'a>(pdev: &'a pci::Device<Bound>, data: Pin<&Self::Data<'a>>) -> Result {
        data.sampler.stop();
        if let Err(error) = data.running.device.fall_asleep(pdev) {
            data.up_again(pdev);
            data.sampler.start(SAMPLE);
            return Err(error);
        }
        // After the shutdown, as at unbind.
        data.watchdog.stop();
        Ok(())
    }

    fn resume<'a>(pdev: &'a pci::Device<Bound>, data: Pin<&Self::Data<'a>>) {
        data.watchdog.start(WATCH);
        data.running.device.wake();
        data.up_again(pdev);
        data.sampler.start(SAMPLE);
    }

    fn error_detected<'a>(
        pdev: &'a pci::Device<Bound>,
        data: Pin<&Self::Data<'a>>,
        channel: Channel,
    ) -> Verdict {
        match channel {
            // The device itself reports what was lost.
            Channel::Normal => Verdict::CanRecover,
            Channel::Frozen => {
                data.running.device.shut_down(pdev, Lost::Reset);
                Verdict::NeedReset
            }
            // A permanent failure: as at unbind, see the kernel's pci-error-recovery.rst.
            Channel::Failed => {
                data.running.device.give_up(pdev);
                Verdict::Disconnect
            }
        }
    }

    fn slot_reset<'a>(pdev: &'a pci::Device<Bound>, data: Pin<&Self::Data<'a>>) -> Verdict {
        let device = &data.running.device;
        match device.health() {
            // The resume checks the device.
            Health::Asleep => return Verdict::Recovered,
            Health::Down => {}
            // Another reset or probe may have brought it up since the error.
            _ => device.shut_down(pdev, Lost::Reset),
        }
        let _: Result = device.look(pdev.as_ref());
        match device.health() {
            // A fatal device is reset by the watchdog.
            Health::Down | Health::Fatal => Verdict::Recovered,
            _ => Verdict::Disconnect,
        }
    }

    fn error_resume<'a>(pdev: &'a pci::Device<Bound>, data: Pin<&Self::Data<'a>>) {
        data.up_again(pdev);
    }

    fn shutdown<'a>(_pdev: &'a pci::Device<Bound>, data: Pin<&Self::Data<'a>>) {
        data.running.shut_down();
    }
}
