// SPDX-License-Identifier: GPL-2.0

//! MSI-X vectors and their interrupts.
//!
//! C header: [`include/linux/interrupt.h`](srctree/include/linux/interrupt.h)
//!
//! [`Vectors`] are allocated together; an [`Irq`] registers a [`Poller`] for one of them. Dropping
//! it ends first the interrupt, then the poll; after that neither runs, and the memory that they
//! work on may go. Vectors are freed when the last interrupt is, whatever the order of drops.
//!
//! Like everything that C code has a pointer to, an `Irq` has to be dropped, not forgotten, before
//! the device unbinds.

use super::poller::{
    Bh,
    Context,
    Handler,
    Poller, //
};
use core::ptr;
use kernel::{
    bindings,
    device::Bound,
    error::to_result,
    fmt,
    pci,
    prelude::*,
    str::CString,
    sync::Arc, //
};

/// # Invariants
///
/// The device has `count` MSI-X vectors, which are freed by the drop.
struct Allocation<'a> {
    pdev: &'a pci::Device<Bound>,
    count: u32,
}

impl Drop for Allocation<'_> {
    fn drop(&mut self) {
        // SAFETY: Allocated by `Vectors::new`. Every `Irq` has a reference to `self`, so all
        // handlers are gone.
        unsafe { bindings::pci_free_irq_vectors(super::raw_pci(self.pdev)) };
    }
}

/// The MSI-X vectors of a device.
#[derive(Clone)]
pub struct Vectors<'a>(Arc<Allocation<'a>>);

impl<'a> Vectors<'a> {
    /// Allocates between 1 and `max` vectors; [`Self::count`] says how many. Sleeps.
    ///
    /// They are spread over the CPUs by the interrupt core, but not bound to them: managed
    /// affinity (`PCI_IRQ_AFFINITY`) would cap them at the number of CPUs.
    ///
    /// # Errors
    ///
    /// `ENOSPC` without MSI-X, `EINVAL` for a `max` of 0, `ENOMEM`.
    pub fn new(pdev: &'a pci::Device<Bound>, max: u32) -> Result<Self> {
        if max == 0 {
            return Err(EINVAL);
        }
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
        let allocation = Allocation {
            pdev,
            // CAST: Not negative.
            count: count as u32,
        };
        Ok(Self(Arc::new(allocation, GFP_KERNEL)?))
    }

    /// How many there are.
    pub fn count(&self) -> u32 {
        self.0.count
    }

    /// The interrupt number of vector `index`.
    fn irq(&self, index: u32) -> Result<u32> {
        // SAFETY: The device is bound; bad indices are refused.
        let irq = unsafe { bindings::pci_irq_vector(super::raw_pci(self.0.pdev), index) };
        to_result(irq)?;
        // CAST: Not negative.
        Ok(irq as u32)
    }
}

/// A registered interrupt: while it exists, its poller runs.
///
/// # Invariants
///
/// `irq` is requested with the poller's cookie, and the poller is claimed.
pub struct Irq<'a, H: Handler, C: Context = Bh> {
    irq: u32,
    poller: Arc<Poller<H, C>>,
    /// Pointed to by the interrupt core.
    _name: CString,
    _vectors: Vectors<'a>,
}

impl<'a, H: Handler, C: Context> Irq<'a, H, C> {
    /// Registers `poller` for vector `index`, under `name` in `/proc/interrupts`. Sleeps. The
    /// interrupt may come before this returns.
    ///
    /// # Errors
    ///
    /// `EINVAL` if there is no such vector or the poller is for another device, `EBUSY` if the
    /// poller or the vector is taken, `ENOMEM`.
    pub fn new(
        vectors: &Vectors<'a>,
        index: u32,
        name: fmt::Arguments<'_>,
        poller: Arc<Poller<H, C>>,
    ) -> Result<Self> {
        let irq = vectors.irq(index)?;
        let name = CString::try_from_fmt(name)?;
        if !poller.is_of(vectors.0.pdev.as_ref()) {
            return Err(EINVAL);
        }
        // Before the request, so that an interrupt that comes at once is polled.
        //
        // SAFETY: The device is bound for `'a`, and `Self` does not outlive that.
        unsafe { poller.claim(irq)? };
        let thread: bindings::irq_handler_t = if C::THREADED {
            Some(Poller::<H, C>::thread)
        } else {
            None
        };
        // SAFETY: Name and poller live until after `free_irq`; the handlers are for such a cookie.
        let requested = to_result(unsafe {
            bindings::request_threaded_irq(
                irq,
                Some(Poller::<H, C>::hard),
                thread,
                0,
                name.as_char_ptr(),
                poller.cookie(),
            )
        });
        if let Err(error) = requested {
            // Only what was claimed: the interrupt is not ours to free.
            //
            // SAFETY: Claimed above, and no handler was registered.
            unsafe { poller.release() };
            return Err(error);
        }
        // SAFETY: Requested above for the poller's cookie; `drop` calls `leave` before it is freed.
        unsafe { poller.settle() };
        Ok(Self {
            irq,
            poller,
            _name: name,
            _vectors: vectors.clone(),
        })
    }

    /// The poller, to schedule it from elsewhere or to pause it.
    pub fn poller(&self) -> &Arc<Poller<H, C>> {
        &self.poller
    }

    /// The Linux interrupt number.
    pub fn number(&self) -> u32 {
        self.irq
    }

    /// Waits until the handlers that run now, and the poll that they have scheduled, have ended.
    /// Sleeps. Not from within the poll.
    pub fn synchronize(&self) {
        // SAFETY: Requested. Waits for the thread as well.
        unsafe { bindings::synchronize_irq(self.irq) };
        self.poller.flush();
    }
}

impl<H: Handler, C: Context> Drop for Irq<'_, H, C> {
    /// Sleeps.
    fn drop(&mut self) {
        // SAFETY: Requested and claimed, by the type invariant. First the handlers end, which
        // schedule the poll, then the poll, which schedules itself.
        unsafe {
            self.poller.leave();
            bindings::free_irq(self.irq, self.poller.cookie());
            self.poller.release();
        }
    }
}
