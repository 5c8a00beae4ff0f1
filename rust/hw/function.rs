// SPDX-License-Identifier: GPL-2.0

//! The function: its registers, its doorbells and its limits.
//!
//! A [`Function`] outlives the binding: open files refer to it.

use super::prelude::*;
use crate::{
    abi::regs as model,
    kernel::{
        gate::Gate,
        mmio::{
            Bar,
            Frame, //
        }, //
    }, //
};
use kernel::{
    device::Device,
    pci, //
};

/// Bytes of the doorbell BAR that every function has: page 0.
pub(crate) const DOORBELLS: usize = doorbell::PAGE_BYTES as usize;

/// The limits of the function, read once from its registers.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Limits {
    /// Version of the programming model, major in the high 16 bits.
    pub(crate) version: u32,
    /// Queue pairs, the admin one included.
    pub(crate) qp: u32,
    /// Completion queues, the admin one included.
    pub(crate) cq: u32,
    /// Event queues, and so vectors.
    pub(crate) eq: u32,
    pub(crate) mr: u32,
    pub(crate) pd: u32,
    pub(crate) srq: u32,
    pub(crate) mw: u32,
    /// Fast registration memory regions; 0 if the device has none.
    pub(crate) frmr: u32,
    /// Multicast groups that may have members at a time.
    pub(crate) groups: u32,
    /// Members that a multicast group may have.
    pub(crate) group_members: u32,
    /// Doorbell pages, page 0 included.
    pub(crate) pages: u32,
    /// Base-two logarithm of the most blocks of an SQ.
    pub(crate) log_sq: u8,
    /// Base-two logarithm of the most receives of an RQ.
    pub(crate) log_rq: u8,
    /// Base-two logarithm of the most entries of a CQ.
    pub(crate) log_cq: u8,
    /// Base-two logarithm of the most entries of an EQ.
    pub(crate) log_eq: u8,
    /// SGEs of a send work request.
    pub(crate) send_sges: u32,
    /// SGEs of a receive work request.
    pub(crate) recv_sges: u32,
    /// Bytes of inline data of a send work request.
    pub(crate) inline_bytes: u32,
    /// Bytes of the longest message.
    pub(crate) message: u32,
    /// Base-two logarithm of the most bytes of a region.
    pub(crate) region_log_bytes: u8,
    /// Base-two logarithm of the smallest page of a buffer list.
    pub(crate) min_page_shift: u8,
    /// Base-two logarithm of the largest page of a buffer list.
    pub(crate) max_page_shift: u8,
    /// Asynchronous events that are in EQ 0 at a time.
    pub(crate) asynchronous: u32,
    /// Address of the network device that the port belongs to.
    pub(crate) mac: Option<[u8; 6]>,
    /// Whether the port sends and receives frames on the network of that device.
    pub(crate) wired: bool,
}

/// The owner of the state of a function, which handles its failures. Any context.
pub(crate) trait Supervisor: Send + Sync {
    /// How often the function was reset.
    fn epoch(&self) -> u32;

    /// The error of a caller that the function does not serve.
    fn error(&self) -> Error;

    /// The function has failed in `epoch`.
    fn fail_in(&self, epoch: u32, why: Failure);

    /// The function has failed, in the present epoch.
    fn fail(&self, why: Failure) {
        self.fail_in(self.epoch(), why);
    }
}

/// A PCI function of the device, bound or not.
pub(crate) struct Function {
    /// The way to the bound device.
    pub(crate) gate: Arc<Gate>,
    pub(super) registers: Bar<{ model::BYTES }>,
    pub(super) doorbells: Bar<DOORBELLS>,
    /// What the device has, read at probe.
    pub(crate) limits: Limits,
    /// Whether the device can access memory of processes without bounce buffers: see
    /// [`dma::is_in_place`](crate::kernel::dma::is_in_place).
    pub(crate) in_place: bool,
    /// The index of the device: of its debugfs directory, its interrupts, its trace points and its
    /// GUID.
    pub(crate) index: u32,
    /// The owner of its state.
    pub(crate) supervisor: Arc<dyn Supervisor>,
}

impl Function {
    /// Its registers.
    ///
    /// # Errors
    ///
    /// `EINVAL` if `dev` is not the function's device.
    pub(crate) fn registers<'a>(
        &'a self,
        dev: &'a Device<Bound>,
    ) -> Result<&'a pci::Bar<'a, { model::BYTES }>> {
        self.registers.access(dev)
    }

    /// The device, bound or not, for messages.
    pub(crate) fn device(&self) -> &Device {
        self.gate.device()
    }

    /// The doorbells of page 0. `dev` proves that the device is bound.
    pub(crate) fn doorbells<'a>(&'a self, dev: &'a Device<Bound>) -> Doorbells<'a> {
        Doorbells {
            doorbells: &self.doorbells,
            dev,
            index: self.index,
        }
    }

    /// The page frame of doorbell page `page`.
    ///
    /// # Errors
    ///
    /// `EINVAL` if the BAR has no such page.
    pub(crate) fn page_frame(&self, page: u16) -> Result<Frame> {
        self.doorbells.frame(u64::from(page) * doorbell::PAGE_BYTES)
    }
}

/// The doorbell page of the driver, page 0.
#[derive(Clone, Copy)]
pub(crate) struct Doorbells<'a> {
    doorbells: &'a Bar<DOORBELLS>,
    dev: &'a Device<Bound>,
    /// The index of the device, for trace points.
    index: u32,
}

impl Doorbells<'_> {
    /// Writes `index` of `number` to the doorbell at offset `place`. Any context.
    #[inline]
    pub(crate) fn ring(&self, place: u64, number: Number, index: u32) {
        // CAST: An offset in a page.
        trace::doorbell(self.index, place as u32, number.raw(), index);
        // Fails only for the `dev` of another device, or outside of the page.
        let _: Result =
            self.doorbells
                .doorbell(self.dev, place as usize, doorbell::value(number, index));
    }
}
