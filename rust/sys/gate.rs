// SPDX-License-Identifier: GPL-2.0

//! Proof that a device is bound, for code that outlives the binding.
//!
//! A driver's `Data<'bound>` borrows the bound device and the compiler checks it. An open file
//! cannot: it stays when the device goes. It holds an `Arc<Gate>` instead:
//!
//! ```text
//!   probe     Gate::new          open: enter() gives a Pass, which is a &Device<Bound>
//!   shutdown  Gate::close        closed: enter() fails with ENODEV; waits until all have left
//!   unbind    (the device core)  gone: what still holds DMA mappings can only leak them
//! ```
//!
//! A [`Pass`] keeps the device bound: the last step is an action of the device core's own
//! (devres), registered in [`Gate::new`], that waits for every pass and cannot be left out. A
//! driver closes its gate much earlier, when it stops taking work.
//!
//! Each binding has one gate: a second [`Gate::new`] fails. Resources that are reached through it
//! are made before interrupts are, whose handlers reach them too; later ones are refused.
//!
//! Between closing and gone, what was mapped can still be unmapped: destructors do not enter, they
//! use the gate's back door, which is open as long as the device is there.
//!
//! # What to hold and what not
//!
//! A pass is a read lock in all but name: many may be inside at once, closing waits for all. So
//! whatever a process can stretch at will (a page fault, a user copy, pinning) comes *before*
//! entering, or a process can hold up unbind for ever. Entering twice in one thread is refused
//! when the gate closes in between, so pass the `&Pass` down instead.

use core::{
    mem,
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
    pci,
    prelude::*,
    sync::{
        aref::ARef,
        Arc,
        CondVar,
        Mutex, //
    }, //
};

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Phase {
    /// Everybody may enter.
    Open,
    /// Nobody may enter any more, unless it is opened again; what is mapped may be unmapped.
    Closed,
    /// As `Closed`, and for good: the device core has begun to take resources away.
    Ending,
    /// As `Ending`, and nothing is given back: the device is no longer bound, or not quiet.
    Gone,
}

struct State {
    phase: Phase,
    /// Passes and running releases.
    inside: usize,
    /// DMA mappings and allocations that exist.
    held: usize,
    /// Interrupts may be registered: no resource is added any more.
    interrupts: bool,
}

/// The way from what outlives a device to the device.
///
/// # Invariants
///
/// While `phase` is not `Gone`, or `inside` is not zero, the device is bound.
#[pin_data]
pub struct Gate {
    pdev: ARef<pci::Device>,
    #[pin]
    state: Mutex<State>,
    #[pin]
    left: CondVar,
}

/// Owned by the device core: closes the gate for good before a resource goes that is reached
/// through it. The device core releases in reverse order, so it is registered after the resource.
struct Seal(Arc<Gate>);

impl Drop for Seal {
    fn drop(&mut self) {
        self.0.shut(Phase::Ending);
    }
}

impl Gate {
    /// Makes an open gate to `pdev`, and prepares the device for DMA: all 64 address bits,
    /// segments of any size. For probe, before anything else is made. Sleeps.
    ///
    /// # Errors
    ///
    /// `EBUSY` if the binding has a gate, `ENOMEM`, or `EIO` where the platform cannot do 64-bit
    /// DMA at all.
    pub fn new(pdev: &pci::Device<Core<'_>>) -> Result<Arc<Self>> {
        // INVARIANT: `pdev` is bound in probe. Before that ends, because probe fails or the driver
        // is unbound, the device core calls `release`, which makes the gate `Gone`. A gate that
        // `register` refuses is dropped here.
        let gate = Arc::pin_init(
            pin_init!(Self {
                pdev: (&***pdev).into(),
                state <- new_mutex!(
                    State {
                        phase: Phase::Open,
                        inside: 0,
                        held: 0,
                        interrupts: false,
                    },
                    "Gate::state"
                ),
                left <- new_condvar!("Gate::left"),
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
                mem::size_of::<*const Self>(),
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
    }

    /// Goes through. Keeps the device bound, and [`Self::close`] waiting, until the pass is
    /// dropped. Sleeps for a mutex that nobody holds for long.
    ///
    /// # Errors
    ///
    /// `ENODEV` once the gate is closed.
    pub fn enter(self: &Arc<Self>) -> Result<Pass<'_>> {
        let mut state = self.state.lock();
        if state.phase != Phase::Open {
            return Err(ENODEV);
        }
        state.inside += 1;
        Ok(Pass { gate: self })
    }

    /// Lets nobody in any more and waits until everybody is out. Sleeps. Closing again is
    /// harmless. Must not be called with a [`Pass`] of this gate in hand.
    pub fn close(&self) {
        self.shut(Phase::Closed);
    }

    /// Closes the gate for good: the device may access memory when its driver is gone. What is
    /// mapped or allocated for DMA now is never given back. Sleeps. Must not be called with a
    /// [`Pass`] of this gate in hand.
    pub fn leak(&self) {
        self.shut(Phase::Gone);
    }

    /// Opens the gate again after [`Self::close`], as a reset does when it is over. Sleeps.
    ///
    /// # Errors
    ///
    /// `EINVAL` if `pdev` is another device, `ENODEV` if the binding is ending or has ended.
    pub fn reopen(&self, pdev: &pci::Device<Bound>) -> Result {
        self.check(pdev)?;
        let mut state = self.state.lock();
        if state.phase > Phase::Closed {
            return Err(ENODEV);
        }
        state.phase = Phase::Open;
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

    /// Makes sure that the gate is closed for good, and that no interrupt is registered, before
    /// the device core releases any of what was registered with it until now.
    ///
    /// # Errors
    ///
    /// `EBUSY` after [`Self::begin_interrupts`]: the device core releases in reverse order, and so
    /// would release this resource under a handler that runs. `ENOMEM`.
    pub(super) fn seal_before_release(self: &Arc<Self>, dev: &Device<Bound>) -> Result {
        // Not locked any more below: a registration that fails drops the seal, which takes the lock.
        if self.state.lock().interrupts {
            return Err(EBUSY);
        }
        devres::register::<_, Error>(dev, Ok(Seal(self.clone())), GFP_KERNEL)
    }

    /// From now on no resource is added, see [`Self::seal_before_release`]. Sleeps.
    ///
    /// # Errors
    ///
    /// `EINVAL` if `pdev` is another device.
    pub(super) fn begin_interrupts(&self, pdev: &pci::Device<Bound>) -> Result {
        self.check(pdev)?;
        self.state.lock().interrupts = true;
        Ok(())
    }

    fn shut(&self, phase: Phase) {
        let mut state = self.state.lock();
        state.phase = state.phase.max(phase);
        while state.inside > 0 {
            self.left.wait(&mut state);
        }
    }

    fn end(&self) {
        let mut state = self.state.lock();
        state.phase = state.phase.max(Phase::Ending);
        while state.inside > 0 {
            self.left.wait(&mut state);
        }
        // In the critical section in which `inside` was seen to be zero, so that no release
        // starts in between.
        state.phase = Phase::Gone;
        if state.held != 0 {
            dev_err!(
                self.device(),
                "{} DMA mappings outlive the driver and are leaked\n",
                state.held
            );
        }
    }

    fn leave(&self) {
        let mut state = self.state.lock();
        state.inside -= 1;
        if state.inside == 0 {
            self.left.notify_all();
        }
    }

    /// # Safety
    ///
    /// The caller is counted in `inside` for as long as it uses the result.
    unsafe fn bound(&self) -> &pci::Device<Bound> {
        let pdev: *const pci::Device = &*self.pdev;
        // SAFETY: The type invariant, and the caller's promise. The context is a marker only, so
        // the cast is fine.
        unsafe { &*pdev.cast() }
    }
}

/// Somebody who went through a [`Gate`]: dereferences to the bound device.
///
/// # Invariants
///
/// Counted in the gate's `inside`.
pub struct Pass<'a> {
    gate: &'a Arc<Gate>,
}

impl<'a> Pass<'a> {
    /// The bound device, without its bus.
    pub fn dev(&self) -> &Device<Bound> {
        (**self).as_ref()
    }

    /// Counts one more DMA mapping or allocation.
    pub(super) fn hold(&self) -> Held {
        self.gate.state.lock().held += 1;
        Held {
            gate: self.gate.clone(),
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

impl Drop for Pass<'_> {
    fn drop(&mut self) {
        self.gate.leave();
    }
}

/// A DMA mapping or allocation that has to be given back while the device is bound.
pub(super) struct Held {
    gate: Arc<Gate>,
}

impl Held {
    /// Gives it back with `release`, whether the gate is open or closed. Sleeps.
    ///
    /// Returns false, without having called `release`, when the device is gone: then the memory
    /// behind the mapping must be leaked.
    #[must_use]
    pub(super) fn release(self, release: impl FnOnce(&Device<Bound>)) -> bool {
        {
            let mut state = self.gate.state.lock();
            if state.phase == Phase::Gone {
                return false;
            }
            state.inside += 1;
        }
        // SAFETY: Counted above, uncounted below.
        release(unsafe { self.gate.bound() }.as_ref());
        self.gate.state.lock().held -= 1;
        self.gate.leave();
        true
    }
}
