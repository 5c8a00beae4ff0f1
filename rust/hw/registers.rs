// SPDX-License-Identifier: GPL-2.0

//! The registers of a function: its limits and status, enable and reset.

use super::{
    function::{
        Function,
        Limits,
        Supervisor, //
    },
    prelude::*, //
};
use crate::{
    abi::{
        regs as model,
        status::EnableError, //
    },
    kernel::{
        dma,
        gate::Gate,
        mmio::{
            is_gone,
            Bar, //
        },
        pci::{
            channel,
            Channel, //
        }, //
    }, //
};
use kernel::{
    device::Device,
    io::Io,
    pci, //
};

mod regs {
    crate::abi::regs::registers!(kernel::io::register);
}

/// The indices of a kind of objects: a number has 16 bits for them.
const INDICES: u32 = 1 << 16;

impl Limits {
    /// Reads them. Refuses a device that is gone or has another programming model.
    fn read(dev: &Device<Bound>, bar: &pci::Bar<'_, { model::BYTES }>) -> Result<Self> {
        let magic = bar.read(regs::MAGIC).value().get();
        if is_gone(magic) {
            return Err(ENODEV);
        }
        let version = bar.read(regs::VERSION);
        let major = u32::from(version.major());
        if magic != model::MAGIC_VALUE || major != model::MAJOR {
            dev_err!(
                dev,
                "not a device of model {}: magic {magic:#x}, model {major}\n",
                model::MAJOR
            );
            return Err(ENODEV);
        }
        let ring = bar.read(regs::LIMIT_RING);
        let wqe = bar.read(regs::LIMIT_WQE);
        let region = bar.read(regs::LIMIT_REGION);
        let group = bar.read(regs::LIMIT_GROUP);
        let mac_high = bar.read(regs::MAC_HI);
        let mac = mac(bar.read(regs::MAC_LO).bytes().get(), mac_high.bytes().get());
        let limits = Self {
            version: major << 16 | u32::from(version.minor()),
            qp: bar.read(regs::LIMIT_QP).count().get(),
            cq: bar.read(regs::LIMIT_CQ).count().get(),
            eq: bar.read(regs::LIMIT_EQ).count().get(),
            mr: bar.read(regs::LIMIT_MR).count().get(),
            pd: bar.read(regs::LIMIT_PD).count().get(),
            srq: bar.read(regs::LIMIT_SRQ).count().get(),
            mw: bar.read(regs::LIMIT_MW).count().get(),
            frmr: bar.read(regs::LIMIT_FRMR).count().get(),
            groups: group.count().into(),
            group_members: group.members().into(),
            pages: bar.read(regs::LIMIT_PAGE).count().get(),
            log_sq: ring.log_sq().into(),
            log_rq: ring.log_rq().into(),
            log_cq: ring.log_cq().into(),
            log_eq: ring.log_eq().into(),
            send_sges: wqe.send_sges().into(),
            recv_sges: wqe.recv_sges().into(),
            inline_bytes: wqe.inline_bytes().into(),
            message: bar.read(regs::LIMIT_MESSAGE).bytes().get(),
            region_log_bytes: region.log_bytes().into(),
            min_page_shift: region.min_page_shift().into(),
            max_page_shift: region.max_page_shift().into(),
            asynchronous: bar.read(regs::LIMIT_ASYNC).count().get(),
            mac,
            wired: mac.is_some() && mac_high.wired().get() != 0,
        };
        if limits.qp == 0 || limits.cq == 0 || limits.eq == 0 || limits.pages == 0 {
            dev_err!(dev, "the device has no QP, CQ, EQ or doorbell page\n");
            return Err(EIO);
        }
        Ok(limits.clamped())
    }

    /// Without objects that have no index: they could not be named, and tables of the driver are as
    /// long as the limits.
    fn clamped(self) -> Self {
        let indices = |count: u32| count.min(INDICES);
        Self {
            qp: indices(self.qp),
            cq: indices(self.cq),
            eq: indices(self.eq),
            mr: indices(self.mr),
            frmr: indices(self.frmr),
            pd: indices(self.pd),
            srq: indices(self.srq),
            mw: indices(self.mw),
            pages: indices(self.pages),
            ..self
        }
    }
}

/// The address in the two registers; `None` if there is none.
fn mac(low: u32, high: u32) -> Option<[u8; 6]> {
    let ([a, b, c, d], [e, f, _, _]) = (low.to_le_bytes(), high.to_le_bytes());
    let mac = [a, b, c, d, e, f];
    (mac != [0; 6]).then_some(mac)
}

/// Whether the function may still access memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum Quiet {
    /// It was reset: no DMA is in flight, and none will start.
    Reset,
    /// It does not answer: it was removed, or its link is down.
    Gone,
    /// It answers, but was not reset.
    No,
}

/// The rings that are configured by registers: address and log2 of the depth.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AdminRings {
    /// The ring of EQ 0: DMA address, and log2 of the depth.
    pub(crate) eq: (u64, u8),
    /// The ring of the admin SQ, the same.
    pub(crate) sq: (u64, u8),
    /// The ring of the admin CQ, the same.
    pub(crate) cq: (u64, u8),
}

impl Function {
    /// Maps the BARs of `pdev` and reads its limits. Sleeps.
    ///
    /// # Errors
    ///
    /// `ENODEV` if it is gone or not a device of this model; those of mapping a BAR.
    pub(crate) fn map(
        pdev: &pci::Device<Bound>,
        gate: Arc<Gate>,
        index: u32,
        supervisor: Arc<dyn Supervisor>,
    ) -> Result<Arc<Self>> {
        let registers = Bar::new(pdev, &gate, doorbell::BAR_REGS, c"qpair")?;
        let doorbells = Bar::new(pdev, &gate, doorbell::BAR_DOORBELLS, c"qpair")?;
        let limits = Limits::read(pdev.as_ref(), registers.access(pdev.as_ref())?)?;
        let in_place = dma::is_in_place(&gate.enter()?)?;
        if !in_place {
            dev_warn!(
                pdev,
                "the platform gives devices copies of memory, so processes cannot use this one; \
                 remedy: an IOMMU, or boot without swiotlb=force\n"
            );
        }
        let function = Self {
            gate,
            registers,
            doorbells,
            limits,
            in_place,
            index,
            supervisor,
        };
        Ok(Arc::new(function, GFP_KERNEL)?)
    }

    /// Reads the status register. Why the function has failed: it stopped, is gone or, if it
    /// `was_up`, has lost its state.
    ///
    /// # Errors
    ///
    /// `EINVAL` if `dev` is not the function's device.
    pub(crate) fn failure(&self, dev: &Device<Bound>, was_up: bool) -> Result<Option<Failure>> {
        let status = self.registers(dev)?.read(regs::STATUS);
        Ok(if is_gone(status.into_raw()) {
            // While a link is being recovered, all reads return ones.
            Some(match channel(dev)? {
                Channel::Frozen => Failure::Link,
                Channel::Normal | Channel::Failed => Failure::Gone,
            })
        } else if status.fatal().get() != 0 {
            Some(Failure::Stopped(status.cause().into()))
        } else if status.ready().get() == 0 && was_up {
            Some(Failure::NotReady)
        } else {
            None
        })
    }

    /// Whether the link is up. Reads the status register.
    pub(crate) fn link_up(&self, dev: &Device<Bound>) -> Result<bool> {
        let status = self.registers(dev)?.read(regs::STATUS);
        Ok(!is_gone(status.into_raw()) && status.link_up().get() != 0)
    }

    /// Brings up EQ 0 and the admin queue pair.
    ///
    /// # Errors
    ///
    /// `EIO` if the device refuses, with a message at the `first` attempt; `ENODEV` if it is gone.
    pub(crate) fn enable(&self, dev: &Device<Bound>, rings: &AdminRings, first: bool) -> Result {
        let bar = self.registers(dev)?;
        // CAST: The two halves of an address.
        bar.write_reg(regs::EQ0_BASE_LO::zeroed().with_value(rings.eq.0 as u32));
        bar.write_reg(regs::EQ0_BASE_HI::zeroed().with_value((rings.eq.0 >> 32) as u32));
        bar.write_reg(regs::ASQ_BASE_LO::zeroed().with_value(rings.sq.0 as u32));
        bar.write_reg(regs::ASQ_BASE_HI::zeroed().with_value((rings.sq.0 >> 32) as u32));
        bar.write_reg(regs::ACQ_BASE_LO::zeroed().with_value(rings.cq.0 as u32));
        bar.write_reg(regs::ACQ_BASE_HI::zeroed().with_value((rings.cq.0 >> 32) as u32));
        bar.write_reg(
            regs::ADMIN_DEPTH::zeroed()
                .try_with_log_eq(u32::from(rings.eq.1))?
                .try_with_log_sq(u32::from(rings.sq.1))?
                .try_with_log_cq(u32::from(rings.cq.1))?,
        );
        bar.write_reg(regs::CTRL::zeroed().with_const_enable::<1>());
        let status = bar.read(regs::STATUS);
        if is_gone(status.into_raw()) {
            return Err(ENODEV);
        }
        if status.ready().get() == 0 {
            let cause = u8::from(status.cause());
            match EnableError::from_code(cause) {
                _ if !first => {}
                Some(cause) => dev_err!(dev, "the device cannot be enabled: {}\n", cause.text()),
                None => dev_err!(dev, "the device cannot be enabled: cause {cause}\n"),
            }
            return Err(EIO);
        }
        Ok(())
    }

    /// Resets the function to its power-on state.
    pub(crate) fn reset(&self, dev: &Device<Bound>) -> Quiet {
        let Ok(bar) = self.registers(dev) else {
            return Quiet::No;
        };
        bar.write_reg(regs::CTRL::zeroed().with_const_reset::<1>());
        let status = bar.read(regs::STATUS);
        if is_gone(status.into_raw()) {
            Quiet::Gone
        } else if status.ready().get() != 0 || status.fatal().get() != 0 {
            Quiet::No
        } else {
            Quiet::Reset
        }
    }
}

#[kernel::macros::kunit_tests(qpair_registers)]
mod tests {
    use super::*;

    #[test]
    fn no_more_objects_than_indices() {
        for count in [0, 1, INDICES - 1, INDICES, INDICES + 1, u32::MAX] {
            let read = Limits {
                qp: count,
                cq: count,
                eq: count,
                mr: count,
                frmr: count,
                pd: count,
                srq: count,
                mw: count,
                pages: count,
                message: count,
                ..Limits::default()
            };
            let used = read.clamped();
            let objects = [
                used.qp, used.cq, used.eq, used.mr, used.frmr, used.pd, used.srq, used.mw,
                used.pages,
            ];
            assert_eq!(objects, [count.min(65536); 9]);
            assert_eq!(used.message, count);
        }
    }
}
