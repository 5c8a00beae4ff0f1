// SPDX-License-Identifier: GPL-2.0

//! The device as an RDMA device of the kernel, registered while the function is up.

use super::{
    ah::{
        self,
        guid,
        Ah, //
    },
    cq::Cq,
    mr::{
        Mr,
        FRMR_PAGES, //
    },
    mw::Mw,
    pd::Pd,
    prelude::*,
    qp::Qp,
    quota::Quotas,
    registrations::{
        Ongoing,
        Registrations, //
    },
    request::max_sge,
    srq::Srq, //
};
use crate::{
    abi::{
        command::{
            GIDS,
            READS, //
        },
        counters::Counter,
        uverbs::QPAIR_UVERBS_ABI_VERSION,
        PCI_DEVICE,
        PCI_REVISION,
        PCI_VENDOR, //
    },
    kernel::rdma::{
        self,
        Config,
        DeviceAttributes,
        Gid,
        PortAttributes,
        PortEvent,
        Registration, //
    },
    life::{
        client::{
            Client,
            Lost, //
        },
        device::Device, //
    },
    policy::lifecycle::Failure, //
};
use kernel::{
    device::Bound,
    new_mutex,
    page::PAGE_SIZE,
    pci,
    sync::Mutex, //
};

impl rdma::Driver for Verbs {
    type Data = Registered;
    type Context = Arc<Process>;
    type Pd = Pd;
    type Ah = Ah;
    type Srq = Srq;
    type Cq = Cq;
    type Qp = Qp;
    type Mr = Mr;
    type Mw = Mw;
    type OwnerModule = crate::LocalModule;

    const NAME: &'static CStr = c"qpair%d";
    const ABI: u32 = QPAIR_UVERBS_ABI_VERSION;
    const GIDS: u32 = GIDS;
    const COUNTERS: &'static [&'static CStr] = Counter::SYSFS;

    fn device(Registered { device, quotas, .. }: &Registered) -> DeviceAttributes {
        let limits = device.limits();
        DeviceAttributes {
            fw_ver: limits.version.into(),
            vendor_id: PCI_VENDOR,
            vendor_part_id: PCI_DEVICE,
            hw_ver: PCI_REVISION.into(),
            max_mr_size: 1 << limits.region_log_bytes.min(63),
            page_size_cap: PAGE_SIZE as u64,
            max_qp: quotas.limit(Kind::Qp),
            max_cq: quotas.limit(Kind::Cq),
            // ULPs allocate FRMRs by the number that processes see.
            max_mr: match limits.frmr {
                0 => quotas.limit(Kind::Mr),
                frmrs => quotas.limit(Kind::Mr).min(frmrs),
            },
            max_pd: quotas.limit(Kind::Pd),
            max_ah: quotas.limit(Kind::Ah),
            max_srq: quotas.limit(Kind::Srq),
            max_mw: quotas.limit(Kind::Mw),
            max_fast_reg_page_list_len: match limits.frmr {
                0 => 0,
                _ => FRMR_PAGES,
            },
            max_mcast_grp: match limits.group_members {
                0 => 0,
                _ => quotas.limit(Kind::Member),
            },
            max_mcast_qp_attach: limits.group_members.min(quotas.limit(Kind::Member)),
            max_srq_wr: 1 << limits.log_rq.min(31),
            // A request of all SGEs has four blocks.
            max_qp_wr: (1u32 << limits.log_sq.min(31)) / 4,
            max_cqe: 1 << limits.log_cq.min(31),
            max_send_sge: max_sge(limits),
            max_recv_sge: max_sge(limits),
            max_srq_sge: limits.recv_sges,
            max_qp_rd_atom: READS.into(),
            ..DeviceAttributes::default()
        }
    }

    fn port(registered: &Registered) -> PortAttributes {
        let device = &registered.device;
        PortAttributes {
            active: registered.enter().is_ok_and(|pass| device.link_up(&pass)),
            max_message: device.limits().message,
        }
    }

    fn counters(registered: &Registered, values: &mut [u64]) -> Result {
        let counters = registered.execute(command::QueryCounters)?;
        for (value, counter) in values.iter_mut().zip(counters) {
            *value = counter;
        }
        Ok(())
    }

    fn set_gid(registered: &Registered, index: u16, gid: Gid) -> Result {
        let gid = ah::context(gid);
        registered.execute(command::SetGid { index, gid })
    }
}

/// How long an unbind waits for kernel ULPs, in seconds. Of NFS the removal takes 75
/// (Documentation/storage.rst). The kernel reports tasks that wait for the device lock for 120.
const PATIENCE: u32 = 90;

/// The RDMA device of a function, registered while that is up.
#[pin_data]
pub(crate) struct RdmaDevice {
    device: Arc<Device>,
    quotas: Arc<Quotas>,
    registrations: Arc<Registrations>,
    #[pin]
    registration: Mutex<Option<Registration<Verbs>>>,
}

impl RdmaDevice {
    /// Not registered, but a client of the device. Sleeps.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn new(device: &Arc<Device>) -> Result<Arc<Self>> {
        let quotas = Quotas::new(device.clone())?;
        let registrations = Registrations::new()?;
        let this = Arc::pin_init(
            pin_init!(Self {
                device: device.clone(),
                quotas,
                registrations,
                registration <- new_mutex!(None, "RdmaDevice::registration"),
            }),
            GFP_KERNEL,
        )?;
        device.clients.admit(this)
    }

    /// Registers it with the RDMA core, if the function is up. If that fails meanwhile, a kernel ULP
    /// may wait until it is quiet, and is not waited for. Under the device lock. Sleeps.
    ///
    /// # Errors
    ///
    /// Those of [`Registration::new`].
    pub(crate) fn register(&self, pdev: &pci::Device<Bound>) -> Result {
        let mut registration = self.registration.lock();
        let epoch = self.device.epoch();
        let registered = Registered {
            device: self.device.clone(),
            quotas: self.quotas.clone(),
            epoch,
            _ongoing: Ongoing::new(&self.registrations)?,
        };
        if registration.is_some() || registered.enter().is_err() {
            return Ok(());
        }
        let config = Config {
            vectors: self.device.vectors(),
            guid: guid(&self.device),
            mac: self.device.limits().mac,
            wired: self.device.limits().wired,
        };
        let is_lost = || self.device.enter(epoch).is_err();
        let new = Registration::new(pdev.as_ref(), config, registered, is_lost)?;
        let port = new.port_events();
        self.device.watch_link(port.clone())?;
        // The link may have changed between the core's query and the handler.
        let pass = self.device.enter(epoch)?;
        port.raise(match self.device.link_up(&pass) {
            true => PortEvent::Active,
            false => PortEvent::Down,
        });
        *registration = Some(new);
        Ok(())
    }

    /// As [`Self::register`], after a reset, resume or recovery. A failure makes the device fatal,
    /// and the watchdog tries again. Under the device lock. Sleeps.
    pub(crate) fn register_again(&self, pdev: &pci::Device<Bound>) {
        let Err(error) = self.register(pdev) else {
            return;
        };
        if self.device.attempts() == 0 {
            dev_err!(pdev, "no RDMA device: {error:?}; will try again\n");
        }
        self.device.fail(Failure::BringUp);
    }

    /// Waits, after the last shutdown, until the core has removed all kernel ULPs, and so until these
    /// have unmapped their memory. A call of a process may delay that, so not for ever. Only a port of
    /// RoCE has ULPs; those of a device that did not become quiet keep their memory. Sleeps.
    pub(crate) fn wait_for_ulps(&self) {
        if self.device.limits().mac.is_some() && self.device.is_free() {
            self.registrations.wait_for_none(PATIENCE);
        }
    }
}

impl Client for RdmaDevice {
    fn lost(&self, _why: Lost) {
        let registration = self.registration.lock().take();
        drop(registration);
    }

    fn unmap(&self) {}
}
