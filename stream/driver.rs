// SPDX-License-Identifier: GPL-2.0

//! The PCI driver. There are no objects that processes have, so a reset only ends the run of the
//! client.

use crate::{
    abi::stream::{
        vector,
        Side,
        PCI_DEVICE,
        PCI_VENDOR, //
    },
    client::{
        Client,
        Pair,
        Run,
        Watch,
        PAUSE, //
    },
    function::Function,
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
        watchdog::Watchdog, //
    }, //
};
use core::pin::Pin;
use kernel::{
    debugfs::Scope,
    device::{
        Bound,
        Core, //
    },
    driver::Registration,
    new_mutex,
    pci,
    prelude::*,
    str::CString,
    sync::{
        Arc,
        Mutex, //
    },
    InPlaceModule,
    ThisModule, //
};

/// The module. Field order is teardown order.
#[pin_data]
pub(crate) struct Module {
    #[pin]
    _driver: Registration<crate::kernel::pci::Adapter<PciDriver>>,
    _root: Root,
}

impl InPlaceModule for Module {
    fn init(module: &'static ThisModule) -> impl PinInit<Self, Error> {
        // The driver last: registering it probes devices.
        try_pin_init!(Self {
            _root: Root::new(c"qpair-stream")?,
            _driver <- Registration::new(c"qpair-stream", module),
        })
    }
}

/// The driver of the PCI core.
pub(crate) struct PciDriver;

compat::pci_table!(
    PCI_TABLE,
    <PciDriver as pci::Driver>::IdInfo,
    [(crate::kernel::pci::device_id(PCI_VENDOR, PCI_DEVICE), ())]
);

/// The function, and what it may access.
#[pin_data]
struct Stream {
    function: Arc<Function>,
    client: Arc<Client>,
    /// Runs whose memory the function may access, since it did not become quiet.
    #[pin]
    kept: Mutex<KVec<KBox<Run>>>,
}

impl Stream {
    fn new(function: Arc<Function>, client: Arc<Client>) -> Result<Arc<Self>> {
        // A shutdown must not fail: a run for each pair has its place.
        let kept = KVec::with_capacity(client.pairs().len(), GFP_KERNEL)?;
        Arc::pin_init(
            pin_init!(Self {
                function,
                client,
                kept <- new_mutex!(kept, "Stream::kept"),
            }),
            GFP_KERNEL,
        )
    }

    /// Stops the function, and frees the memory of a run. If the function does not become quiet,
    /// the memory is kept until the next call. Returns whether it is quiet. Idempotent. Under the
    /// device lock; sleeps.
    fn shut_down(&self, pdev: &pci::Device<Bound>) -> bool {
        // After that no run begins or ends.
        self.function.close();
        let mut kept = self.kept.lock();
        for poller in self.client.pairs() {
            // Its poll accesses the function.
            let Some(run) = poller.paused(|_, state| state.take()) else {
                continue;
            };
            run.cancel();
            // No run begins before those that are kept are freed, so there is a place.
            if let Err(run) = kept.push_within_capacity(run) {
                core::mem::forget(run);
            }
        }
        let quiet = self.function.quiesce(pdev);
        if quiet {
            kept.clear();
        }
        quiet
    }

    /// The driver is unbound: memory that the function may access is leaked.
    fn end(&self, pdev: &pci::Device<Bound>) {
        if !self.shut_down(pdev) {
            self.function.gate().leak();
        }
    }

    /// Works again after [`Self::shut_down`]. Under the device lock; sleeps.
    fn bring_up(&self, pdev: &pci::Device<Bound>) {
        let opened = match self.shut_down(pdev) {
            true => self.function.open(pdev),
            false => Err(EIO),
        };
        match opened {
            Ok(()) => dev_info!(pdev, "up again\n"),
            Err(error) => dev_err!(pdev, "down until the next reset: {error:?}\n"),
        }
    }
}

/// Ends the function when it is dropped.
struct Running<'bound> {
    stream: Arc<Stream>,
    pdev: &'bound pci::Device<Bound>,
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.stream.end(self.pdev);
    }
}

/// The debugfs files of the function. The drop removes them, and waits for readers and writers.
fn files(stream: &Stream) -> Result<Pin<KBox<Scope<Arc<Client>>>>> {
    let name = CString::try_from_fmt(fmt!("{}", stream.function.gate().device().name()))?;
    let root = Root::dir()?;
    let client = Ok::<_, Error>(stream.client.clone());
    let files = root.scope(client, &name, |client: &Arc<Client>, dir| {
        let client = &**client;
        dir.read_write_callback_file(c"loopback", client, &Client::read, &Client::write);
        dir.read_callback_file(c"pairs", client, &Client::show_pairs);
    });
    KBox::pin_init(files, GFP_KERNEL)
}

/// The state while the driver is bound. Field order is teardown order.
pub(crate) struct Data<'bound> {
    /// First: the shutdown ends a run that a task waits for.
    running: Running<'bound>,
    _files: Pin<KBox<Scope<Arc<Client>>>>,
    watchdog: Pin<KBox<Watchdog<Watch>>>,
    _irqs: KVec<Irq<Pair>>,
    _enabled: Enabled<'bound>,
}

impl<'bound> Data<'bound> {
    fn new(pdev: &'bound pci::Device<Core<'_>>) -> Result<Self> {
        let enabled = Enabled::new(pdev)?;
        let gate = Gate::new(pdev)?;
        let function = Function::map(pdev, gate)?;
        // CAST: At most 64.
        let count = function.kinds().len() as u32;
        let vectors = Vectors::new(pdev, function.gate(), vector(count, Side::Transmit))?;
        let mut pairs = KVec::new();
        let mut irqs = KVec::new();
        for pair in 0..count {
            let poller = Pair::new(pdev.as_ref(), function.clone(), pair)?;
            let index = vector(pair, Side::Receive);
            if index >= vectors.count() {
                let had = vectors.count();
                dev_err!(
                    pdev,
                    "{had} vectors are not enough for {count} pairs of channels\n"
                );
                return Err(ENOSPC);
            }
            let irq = Irq::new(
                &vectors,
                index,
                fmt!("qpair-stream-rx{pair}"),
                poller.clone(),
            )?;
            irqs.push(irq, GFP_KERNEL)?;
            pairs.push(poller, GFP_KERNEL)?;
        }
        let client = Client::new(function.clone(), pairs)?;
        let watch = Watch(client.clone());
        let watchdog = KBox::pin_init(Watchdog::new(PAUSE, watch), GFP_KERNEL)?;
        let stream = Stream::new(function, client)?;
        let running = Running { stream, pdev };
        // It was reset, so it has no addresses of earlier use.
        crate::kernel::pci::set_master(pdev);
        let files = files(&running.stream)?;
        dev_info!(pdev, "qpair-stream: {count} pairs of channels\n");
        Ok(Self {
            running,
            _files: files,
            watchdog,
            _irqs: irqs,
            _enabled: enabled,
        })
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

    fn unbind<'bound>(pdev: &'bound pci::Device<Core<'_>>, data: Pin<&Self::Data<'bound>>) {
        data.running.stream.end(pdev);
    }
}

impl crate::kernel::pci::Callbacks for PciDriver {
    fn reset_prepare<'a>(pdev: &'a pci::Device<Bound>, data: Pin<&Self::Data<'a>>) {
        data.running.stream.shut_down(pdev);
    }

    fn reset_done<'a>(pdev: &'a pci::Device<Bound>, data: Pin<&Self::Data<'a>>) {
        data.running.stream.bring_up(pdev);
    }

    fn suspend<'a>(pdev: &'a pci::Device<Bound>, data: Pin<&Self::Data<'a>>) -> Result {
        let stream = &data.running.stream;
        if !stream.shut_down(pdev) {
            stream.bring_up(pdev);
            return Err(EIO);
        }
        data.watchdog.stop();
        Ok(())
    }

    fn resume<'a>(pdev: &'a pci::Device<Bound>, data: Pin<&Self::Data<'a>>) {
        data.watchdog.start(PAUSE);
        data.running.stream.bring_up(pdev);
    }

    fn error_detected<'a>(
        pdev: &'a pci::Device<Bound>,
        data: Pin<&Self::Data<'a>>,
        channel: Channel,
    ) -> Verdict {
        match channel {
            // The channel that lost a transaction halts.
            Channel::Normal => Verdict::CanRecover,
            Channel::Frozen => {
                data.running.stream.shut_down(pdev);
                Verdict::NeedReset
            }
            Channel::Failed => {
                data.running.stream.end(pdev);
                Verdict::Disconnect
            }
        }
    }

    fn slot_reset<'a>(_pdev: &'a pci::Device<Bound>, _data: Pin<&Self::Data<'a>>) -> Verdict {
        Verdict::Recovered
    }

    fn error_resume<'a>(pdev: &'a pci::Device<Bound>, data: Pin<&Self::Data<'a>>) {
        data.running.stream.bring_up(pdev);
    }

    fn shutdown<'a>(pdev: &'a pci::Device<Bound>, data: Pin<&Self::Data<'a>>) {
        data.running.stream.shut_down(pdev);
    }
}
