// SPDX-License-Identifier: GPL-2.0

//! MSI-X vectors and their interrupts.
//!
//! C header: [`include/linux/interrupt.h`](srctree/include/linux/interrupt.h)
//!
//! [`kernel::irq::Registration`] and [`kernel::pci::IrqVectorRegistration`] must not be forgotten, take
//! static names alone, and place no interrupt on a CPU.
//!
//! [`Vectors`] are allocated together; an [`Irq`] registers a [`BhPoller`] for one of them. Its drop
//! frees the interrupt, then disables the poll; after that neither runs, and their memory may be
//! freed. Vectors are freed with the last interrupt, whatever the order of drops.
//!
//! Vectors and registrations are devres resources. If forgotten, they end when the device unbinds,
//! before any resource that a handler accesses through the gate is released.

use super::{
    gate::Gate,
    poller::{
        BhPoller, //
        Handler,
    }, //
};
use core::ptr;
use kernel::{
    bindings,
    cpu::CpuId,
    cpumask::CpumaskVar,
    device::Bound,
    devres::Devres,
    error::to_result,
    fmt,
    pci,
    prelude::*,
    str::CString,
    sync::{
        aref::ARef,
        Arc, //
    }, //
};

/// MSI-X vectors; owned by the device core.
///
/// # Invariants
///
/// `pdev` has MSI-X vectors, which the drop frees, and is bound until then.
struct Allocation {
    pdev: ARef<pci::Device>,
}

impl Drop for Allocation {
    fn drop(&mut self) {
        // SAFETY: By the type invariant. No handler is left: a `Requested` has a reference to the
        // `Devres` of `self`, and was registered with the device core after it.
        unsafe { bindings::pci_free_irq_vectors(super::raw_pci(&self.pdev)) };
    }
}

/// The MSI-X vectors of a device.
#[derive(Clone)]
pub struct Vectors<'a> {
    allocation: Arc<Devres<Allocation>>,
    count: u32,
    pdev: &'a pci::Device<Bound>,
}

impl<'a> Vectors<'a> {
    /// Allocates between 1 and `max` vectors; [`Self::count`] returns the number. From now on
    /// `gate` refuses further resources. Sleeps.
    ///
    /// They have no managed affinity (`PCI_IRQ_AFFINITY`), which would cap them at the number of
    /// CPUs, and would not let administrators move them.
    ///
    /// # Errors
    ///
    /// `ENOSPC` without MSI-X, `EINVAL` for a `max` of 0 or the gate of another device, `ENOMEM`.
    pub fn new(pdev: &'a pci::Device<Bound>, gate: &Gate, max: u32) -> Result<Self> {
        if max == 0 {
            return Err(EINVAL);
        }
        gate.begin_interrupts(pdev)?;
        // SAFETY: The device is bound; no affinity is asked for.
        let count = unsafe {
            bindings::pci_alloc_irq_vectors_affinity(
                super::raw_pci(pdev),
                1,
                max,
                bindings::PCI_IRQ_MSIX,
                ptr::null_mut(),
            )
        };
        to_result(count)?;
        // INVARIANT: Just allocated. `Devres` drops it when the device unbinds, if not earlier.
        let allocation = Allocation {
            pdev: (&**pdev).into(),
        };
        let allocation = Devres::new::<Error>(pdev.as_ref(), Ok(allocation))?;
        Ok(Self {
            allocation: Arc::new(allocation, GFP_KERNEL)?,
            // CAST: Not negative.
            count: count as u32,
            pdev,
        })
    }

    /// Vectors that were allocated.
    pub fn count(&self) -> u32 {
        self.count
    }

    /// The interrupt number of vector `index`.
    fn irq(&self, index: u32) -> Result<u32> {
        // SAFETY: The device is bound; bad indices are refused.
        let irq = unsafe { bindings::pci_irq_vector(super::raw_pci(self.pdev), index) };
        to_result(irq)?;
        // CAST: Not negative.
        Ok(irq as u32)
    }
}

/// The CPU of an interrupt, as set in the interrupt core.
///
/// # Invariants
///
/// `irq` is requested, and the interrupt core points to the mask.
struct Hint {
    irq: u32,
    /// In a box, for small ones lie in the variable itself, and moving that would move them.
    _mask: KBox<CpumaskVar>,
}

// SAFETY: Plain memory without ties to a thread.
unsafe impl Send for Hint {}

// SAFETY: The mask is not accessed through a reference to it.
unsafe impl Sync for Hint {}

impl Hint {
    /// Moves the interrupt to the `nth` online CPU, counted round and round, and says so to
    /// `irqbalance`. Where the interrupt controller refuses to move it, it stays where it is. Sleeps.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    ///
    /// # Safety
    ///
    /// `irq` is requested, and is freed after the result is dropped.
    unsafe fn new(irq: u32, nth: u32) -> Result<Self> {
        /// `NUMA_NO_NODE`: all nodes are equal.
        const ANY_NODE: c_int = -1;
        let mut mask = KBox::new(CpumaskVar::new_zero(GFP_KERNEL)?, GFP_KERNEL)?;
        // SAFETY: Takes any number: it is counted modulo the online CPUs, which stay as many while
        // the lock is held.
        let cpu = unsafe {
            bindings::cpus_read_lock();
            let cpu = bindings::cpumask_local_spread(nth, ANY_NODE);
            bindings::cpus_read_unlock();
            cpu
        };
        mask.set(CpuId::from_u32(cpu).ok_or(EINVAL)?);
        // SAFETY: Requested, by the caller's promise; the mask lives until none is applied.
        to_result(unsafe { bindings::__irq_apply_affinity_hint(irq, mask.as_raw(), true) })?;
        // INVARIANT: Requested, by the caller's promise; applied above.
        Ok(Self { irq, _mask: mask })
    }
}

impl Drop for Hint {
    fn drop(&mut self) {
        // SAFETY: Requested, by the type invariant.
        unsafe { bindings::__irq_apply_affinity_hint(self.irq, ptr::null(), false) };
    }
}

/// A registered interrupt; owned by the device core.
///
/// # Invariants
///
/// `irq` is requested with the poller's cookie, and the poller is claimed.
struct Requested<H: Handler> {
    irq: u32,
    poller: Arc<BhPoller<H>>,
    hint: Option<Hint>,
    /// The interrupt core has a pointer to it.
    _name: CString,
    _allocation: Arc<Devres<Allocation>>,
}

impl<H: Handler> Requested<H> {
    /// # Safety
    ///
    /// The result is dropped before the poller's device is no longer bound.
    unsafe fn new(
        irq: u32,
        nth: u32,
        name: CString,
        poller: Arc<BhPoller<H>>,
        allocation: Arc<Devres<Allocation>>,
    ) -> Result<Self> {
        // Claim before the request, so that an immediate interrupt is polled.
        //
        // SAFETY: `release` is called by the drop, so the device is bound until then by the
        // caller's promise, or below.
        unsafe { poller.claim()? };
        // SAFETY: Name and poller live until after `free_irq`; the handler is for such a cookie.
        let requested = to_result(unsafe {
            bindings::request_threaded_irq(
                irq,
                Some(BhPoller::<H>::hard),
                None,
                0,
                name.as_char_ptr(),
                poller.cookie(),
            )
        });
        if let Err(error) = requested {
            // Undo only the claim: the interrupt was not requested.
            //
            // SAFETY: Claimed above, and no handler was registered.
            unsafe { poller.release() };
            return Err(error);
        }
        // INVARIANT: Claimed and requested above.
        let mut this = Self {
            irq,
            poller,
            hint: None,
            _name: name,
            _allocation: allocation,
        };
        // SAFETY: Requested above; `drop` drops the hint before it frees the interrupt.
        this.hint = Some(unsafe { Hint::new(irq, nth)? });
        Ok(this)
    }
}

impl<H: Handler> Drop for Requested<H> {
    /// Sleeps.
    fn drop(&mut self) {
        self.hint = None;
        // SAFETY: Requested and claimed, by the type invariant. First the handler ends, which
        // schedules the poll, then the poll, which schedules itself.
        unsafe {
            bindings::free_irq(self.irq, self.poller.cookie());
            self.poller.release();
        }
    }
}

/// A registered interrupt. Its poller runs while it exists and the device is bound.
pub struct Irq<H: Handler> {
    _registered: Devres<Requested<H>>,
}

impl<H: Handler> Irq<H> {
    /// Registers `poller` for vector `index`, under `name` in `/proc/interrupts`, and puts the
    /// interrupt on a CPU: the vectors in turn on those that are online. After that it is moved by
    /// the kernel and by administrators only. Sleeps. The interrupt may come before this returns.
    ///
    /// # Errors
    ///
    /// `EINVAL` if there is no such vector or the poller is for another device, `EBUSY` if the
    /// poller or the vector is taken, `ENOMEM`.
    pub fn new(
        vectors: &Vectors<'_>,
        index: u32,
        name: fmt::Arguments<'_>,
        poller: Arc<BhPoller<H>>,
    ) -> Result<Self> {
        let irq = vectors.irq(index)?;
        let name = CString::try_from_fmt(name)?;
        let dev = vectors.pdev.as_ref();
        if !poller.is_of(dev) {
            return Err(EINVAL);
        }
        // SAFETY: `Devres` drops it when the device unbinds, if not earlier; the device is bound.
        let registered =
            unsafe { Requested::new(irq, index, name, poller, vectors.allocation.clone()) };
        let registered = Devres::new::<Error>(dev, registered)?;
        Ok(Self {
            _registered: registered,
        })
    }
}
