// SPDX-License-Identifier: GPL-2.0

//! Proof that a device is bound, for code that outlives the binding.
//!
//! A driver's `Data<'bound>` borrows the bound device, checked by the compiler. An open file
//! outlives the binding, so it cannot borrow; it holds an `Arc<Gate>` instead:
//!
//! ```text
//!   probe     Gate::new          open: enter() gives a Pass, which is a &Device<Bound>
//!   shutdown  Gate::close        closed: enter() fails with ENODEV; waits until all passes end
//!   unbind    (the device core)  gone: remaining DMA mappings can only be leaked
//! ```
//!
//! A [`Pass`] keeps the device bound: the last step is a devres action, registered in
//! [`Gate::new`], that waits for all passes. A driver closes its gate earlier, when it stops
//! accepting work.
//!
//! Each binding has one gate: a second [`Gate::new`] fails. Resources accessed through it must be
//! created before the interrupts whose handlers access them; later ones are refused.
//!
//! Between closed and gone, mappings can still be released: destructors do not enter the gate, they
//! use [`DmaHold::release`], which works as long as the device is bound.
//!
//! # What to hold and what not
//!
//! A pass is a read-side critical section of SRCU: many may be held at once, and closing waits for
//! all. So do everything that user space can delay (a page fault, a user copy, pinning) *before*
//! entering; otherwise a process can block unbind. Entering twice in one thread fails if the gate closes in
//! between, so pass the `&Pass` down instead.

use core::{
    ops::Deref,
    ptr::{
        self,
        NonNull, //
    }, //
};
use kernel::{
    bindings,
    device::{
        Bound,
        Core,
        Device, //
    },
    devres,
    dma::{
        Device as _,
        DmaMask, //
    },
    new_condvar,
    new_mutex,
    new_srcu,
    pci,
    prelude::*,
    sync::{
        aref::ARef,
        atomic::{
            Acquire,
            Atomic,
            Relaxed,
            Release, //
        },
        srcu::{
            self,
            Srcu, //
        },
        Arc,
        CondVar,
        Mutex, //
    }, //
};

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum GatePhase {
    /// Tasks may enter, and mappings may be made.
    Open,
    /// No task may enter until it is reopened. Mappings may be released.
    Closed,
    /// As `Closed`, but permanently: the device core has begun to release resources.
    Ending,
    /// As `Ending`, and mappings are leaked: the device is no longer bound, or not quiet.
    Gone,
}

struct GateState {
    phase: GatePhase,
    /// DMA mappings and allocations that exist.
    held: usize,
    /// [`Lease`]s that exist. The binding does not end before they do.
    leases: usize,
    /// Interrupts may be registered, and no resource may be added.
    interrupts: bool,
}

/// Access to the bound device for objects that outlive the binding.
///
/// # Invariants
///
/// While `phase` is not `Gone`, a section of `inside` is open that began before it was, or `leases` is
/// not zero, the device is bound.
#[pin_data]
pub struct Gate {
    pdev: ARef<pci::Device>,
    /// Passes and running releases.
    #[pin]
    inside: Srcu,
    /// Whether the phase is `Open`. Written with `state` locked; each call of verbs reads it.
    is_open: Atomic<bool>,
    #[pin]
    state: Mutex<GateState>,
    /// There is no lease any more.
    #[pin]
    ended: CondVar,
}

/// Owned by the device core: closes the gate permanently before a resource that is accessed through
/// it is released. The device core releases in reverse order, so it is registered after the
/// resource.
struct Seal(Arc<Gate>);

impl Drop for Seal {
    fn drop(&mut self) {
        self.0.end();
    }
}

impl Gate {
    /// Makes an open gate to `pdev`, and sets its DMA mask to 64 bits and its segment size to
    /// unlimited. Called first in probe. Sleeps.
    ///
    /// # Errors
    ///
    /// `EBUSY` if the binding has a gate, `ENOMEM`, or `EIO` if the platform does not support
    /// 64-bit DMA.
    pub fn new(pdev: &pci::Device<Core<'_>>) -> Result<Arc<Self>> {
        // INVARIANT: `pdev` is bound in probe. Before that ends, because probe fails or the driver
        // is unbound, the device core calls `release`, which makes the gate `Gone`. A gate that
        // `register` refuses is dropped here.
        let gate = Arc::pin_init(
            try_pin_init!(Self {
                pdev: (&***pdev).into(),
                inside <- new_srcu!("Gate::inside"),
                is_open: Atomic::new(true),
                state <- new_mutex!(
                    GateState {
                        phase: GatePhase::Open,
                        held: 0,
                        leases: 0,
                        interrupts: false,
                    },
                    "Gate::state"
                ),
                ended <- new_condvar!("Gate::ended"),
            }),
            GFP_KERNEL,
        )?;
        gate.register(pdev.as_ref())?;
        // SAFETY: All DMA of this crate goes through a gate. This is the only gate of the binding,
        // and no other code has it yet.
        unsafe {
            pdev.dma_set_mask_and_coherent(DmaMask::new::<64>())?;
            pdev.dma_set_max_seg_size(u32::MAX);
        }
        Ok(gate)
    }

    /// Hands the gate to the device core, which calls [`Self::release`] when `dev` unbinds.
    ///
    /// # Errors
    ///
    /// `EBUSY` if the device core has a gate for this binding, `ENOMEM`.
    fn register(self: &Arc<Self>, dev: &Device<Bound>) -> Result {
        // SAFETY: Allocates, and changes nothing else. `release` is for a node of this size.
        let node = NonNull::new(unsafe {
            bindings::__devres_alloc_node(
                Some(Self::release),
                size_of::<*const Self>(),
                bindings::GFP_KERNEL,
                bindings::NUMA_NO_NODE,
                c"Gate".as_char_ptr(),
            )
        })
        .ok_or(ENOMEM)?;
        let raw = Arc::into_raw(self.clone());
        // SAFETY: Just allocated with the size of a pointer, and aligned for any type.
        unsafe { node.cast().write(raw) };
        // SAFETY: The device is bound and the node initialised. Without a match function all
        // nodes with the same `release` match. The look-up and the addition are one step.
        let found = unsafe {
            bindings::devres_get(super::raw_device(dev), node.as_ptr(), None, ptr::null_mut())
        };
        if found != node.as_ptr() {
            // SAFETY: From `into_raw`. The device core has freed the node without a call of
            // `release`, so the reference is still ours.
            drop(unsafe { Arc::from_raw(raw) });
            return Err(EBUSY);
        }
        Ok(())
    }

    /// # Safety
    ///
    /// Called by the device core, once, for a node that [`Self::register`] has added.
    unsafe extern "C" fn release(_dev: *mut bindings::device, node: *mut c_void) {
        // SAFETY: `register` has put the result of an `into_raw` there.
        let gate = unsafe { Arc::from_raw(node.cast::<*const Self>().read()) };
        gate.end();
        // What passes and leases held is released; what comes now is leaked.
        gate.shut(GatePhase::Gone);
        let held = gate.held();
        if held != 0 {
            dev_err!(
                gate.device(),
                "{held} DMA mappings outlive the driver and are leaked\n"
            );
        }
    }

    /// Enters the gate. The pass keeps the device bound, and [`Self::close`] waiting, until it is
    /// dropped.
    ///
    /// # Errors
    ///
    /// `ENODEV` once the gate is closed.
    pub fn enter(self: &Arc<Self>) -> Result<Pass<'_>> {
        let inside = self.inside.read_lock();
        // The writes before `reopen` are visible inside.
        if !self.is_open.load(Acquire) {
            return Err(ENODEV);
        }
        // INVARIANT: The section began before `is_open` was read. So `shut`, which clears it and then
        // waits for the sections, waits for this one.
        Ok(Pass {
            gate: self,
            _inside: inside,
        })
    }

    /// Refuses new passes and waits until all passes are dropped. Idempotent. Must not be called
    /// with a [`Pass`] of this gate held. Sleeps.
    pub fn close(&self) {
        self.shut(GatePhase::Closed);
    }

    /// Closes the gate permanently and leaks all memory mapped or allocated for DMA: the device may
    /// access it after unbind. Must not be called with a [`Pass`] of this gate held. Sleeps.
    pub fn leak(&self) {
        self.shut(GatePhase::Gone);
    }

    /// Reopens the gate after [`Self::close`], at the end of a reset. Sleeps.
    ///
    /// # Errors
    ///
    /// `EINVAL` if `pdev` is another device, `ENODEV` if the binding is ending or has ended.
    pub fn reopen(&self, pdev: &pci::Device<Bound>) -> Result {
        self.check(pdev)?;
        let mut state = self.state.lock();
        if state.phase > GatePhase::Closed {
            return Err(ENODEV);
        }
        state.phase = GatePhase::Open;
        self.is_open.store(true, Release);
        Ok(())
    }

    /// The device, bound or not: for messages and names.
    pub fn device(&self) -> &Device {
        self.pdev.as_ref()
    }

    /// The number of DMA mappings and allocations that exist, for debugging.
    pub fn held(&self) -> usize {
        self.state.lock().held
    }

    /// `EINVAL` if the gate is to another device than `pdev`.
    fn check(&self, pdev: &pci::Device<Bound>) -> Result {
        if !ptr::eq(super::raw_pci(pdev), super::raw_pci(&self.pdev)) {
            return Err(EINVAL);
        }
        Ok(())
    }

    /// Ensures that the gate is closed permanently, and that no interrupt is registered, before the
    /// device core releases any resource registered so far.
    ///
    /// # Errors
    ///
    /// `EBUSY` after [`Self::begin_interrupts`]: the device core releases in reverse order, so it
    /// would release this resource while handlers may run. `ENOMEM`.
    pub(super) fn seal_before_release(self: &Arc<Self>, dev: &Device<Bound>) -> Result {
        // Unlock first: a failing registration drops the seal, which takes the lock.
        if self.state.lock().interrupts {
            return Err(EBUSY);
        }
        devres::register::<_, Error>(dev, Ok(Seal(self.clone())), GFP_KERNEL)
    }

    /// From now on no resource may be added, see [`Self::seal_before_release`]. Sleeps.
    ///
    /// # Errors
    ///
    /// `EINVAL` if `pdev` is another device.
    pub(super) fn begin_interrupts(&self, pdev: &pci::Device<Bound>) -> Result {
        self.check(pdev)?;
        self.state.lock().interrupts = true;
        Ok(())
    }

    fn shut(&self, phase: GatePhase) {
        {
            let mut state = self.state.lock();
            state.phase = state.phase.max(phase);
            self.is_open.store(false, Relaxed);
        }
        // A section that begins from now on finds both.
        self.inside.synchronize();
    }

    /// Shuts the gate permanently, and waits until there is no lease.
    fn end(&self) {
        self.shut(GatePhase::Ending);
        let mut state = self.state.lock();
        while state.leases > 0 {
            self.ended.wait(&mut state);
        }
    }

    /// # Safety
    ///
    /// A section of `inside` that found another phase than `Gone` is open, or the caller is counted in
    /// `leases`, for as long as the result is used.
    unsafe fn bound(&self) -> &pci::Device<Bound> {
        let pdev: *const pci::Device = &*self.pdev;
        // SAFETY: The type invariant, and the caller's promise. The context is a marker only, so
        // the cast is fine.
        unsafe { &*pdev.cast() }
    }
}

/// A task inside a [`Gate`]: dereferences to the bound device.
///
/// # Invariants
///
/// `_inside` is a section of the gate's `inside` that found `Open`.
pub struct Pass<'a> {
    gate: &'a Arc<Gate>,
    _inside: srcu::Guard<'a>,
}

impl<'a> Pass<'a> {
    /// The bound device as a generic device.
    pub fn dev(&self) -> &Device<Bound> {
        (**self).as_ref()
    }

    /// A lease of the device.
    pub fn lease(&self) -> Lease {
        self.gate.state.lock().leases += 1;
        // INVARIANT: Counted above.
        Lease {
            gate: self.gate.clone(),
        }
    }

    /// Counts one more DMA mapping or allocation.
    pub(super) fn hold(&self) -> DmaHold {
        self.gate.state.lock().held += 1;
        DmaHold {
            gate: self.gate.clone(),
        }
    }
}

/// Access to the bound device from any context, for as long as its owner has it.
///
/// It does not delay [`Gate::close`], but the end of the binding, so its owner must drop it when the
/// device is shut down.
///
/// # Invariants
///
/// Counted in the gate's `leases`.
pub struct Lease {
    gate: Arc<Gate>,
}

impl Lease {
    /// The bound device. Any context.
    #[inline]
    pub fn dev(&self) -> &Device<Bound> {
        // SAFETY: Before the device core releases anything, the gate waits for all leases.
        unsafe { self.gate.bound() }.as_ref()
    }
}

impl Drop for Lease {
    /// Sleeps.
    fn drop(&mut self) {
        let mut state = self.gate.state.lock();
        state.leases -= 1;
        if state.leases == 0 {
            self.gate.ended.notify_all();
        }
    }
}

impl Deref for Pass<'_> {
    type Target = pci::Device<Bound>;

    fn deref(&self) -> &Self::Target {
        // SAFETY: By the type invariant, for as long as `self` is borrowed.
        unsafe { self.gate.bound() }
    }
}

/// A DMA mapping or allocation that must be released while the device is bound.
pub(super) struct DmaHold {
    pub(super) gate: Arc<Gate>,
}

impl DmaHold {
    /// Calls `release`, whether the gate is open or closed. Sleeps.
    ///
    /// Returns false, without calling `release`, if the device is gone: the caller must leak the
    /// memory.
    #[must_use]
    pub(super) fn release(self, release: impl FnOnce(&Device<Bound>)) -> bool {
        let _inside = self.gate.inside.read_lock();
        if self.gate.state.lock().phase == GatePhase::Gone {
            return false;
        }
        // SAFETY: The section is open, and found another phase than `Gone`.
        release(unsafe { self.gate.bound() }.as_ref());
        self.gate.state.lock().held -= 1;
        true
    }
}
