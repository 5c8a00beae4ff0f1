// SPDX-License-Identifier: GPL-2.0

//! Word of CPUs that come and go.
//!
//! C header: [`include/linux/cpuhotplug.h`](srctree/include/linux/cpuhotplug.h)
//!
//! A CPU that goes offline hands its interrupts to others, and its pending BH work too; so nothing
//! is lost, but after its return nobody gives them back. Who cares compares [`changes`] with what
//! it was the last time.

use kernel::{
    bindings,
    error::to_result,
    prelude::*,
    sync::atomic::{
        Atomic,
        Relaxed, //
    }, //
};

static CHANGES: Atomic<u32> = Atomic::new(0);

/// How often a CPU has come or gone; wraps. Only counts while there is a [`Watch`].
pub fn changes() -> u32 {
    CHANGES.load(Relaxed)
}

/// A callback of ours for CPUs.
///
/// # Invariants
///
/// `0` is a dynamic hotplug state of ours. The module owns it, and drops it before its code goes.
struct State(bindings::cpuhp_state);

/// What is called with the number of a CPU.
type Callback = unsafe extern "C" fn(c_uint) -> c_int;

impl State {
    /// Sleeps.
    ///
    /// # Safety
    ///
    /// `range` is one of dynamic states; the callbacks take any CPU.
    unsafe fn new(
        range: bindings::cpuhp_state,
        name: &'static CStr,
        comes: Option<Callback>,
        goes: Option<Callback>,
    ) -> Result<Self> {
        let name = name.as_char_ptr();
        // SAFETY: The name is static. The callbacks take any CPU, by the caller's promise. They use
        // nothing but the module's code, and the drop takes them back before that goes.
        let state =
            unsafe { bindings::__cpuhp_setup_state(range, name, false, comes, goes, false) };
        to_result(state)?;
        // INVARIANT: A dynamic state is given as a positive number.
        Ok(Self(state))
    }
}

impl Drop for State {
    /// Waits for a running callback to end. Sleeps.
    fn drop(&mut self) {
        // SAFETY: Ours, by the type invariant; nothing is to be undone for the CPUs that are on.
        unsafe { bindings::__cpuhp_remove_state(self.0, false) };
    }
}

/// Counts the changes, until it is dropped.
pub struct Watch {
    _on: State,
    _off: State,
}

impl Watch {
    /// Begins to count. `name` is shown in sysfs. Sleeps.
    ///
    /// # Errors
    ///
    /// `ENOSPC` if there are too many who want to know.
    pub fn new(name: &'static CStr) -> Result<Self> {
        // Each is told when the CPU can be found among those that are online, or no more.
        //
        // SAFETY: Both are dynamic.
        unsafe {
            Ok(Self {
                _on: State::new(
                    bindings::cpuhp_state_CPUHP_AP_ONLINE_DYN,
                    name,
                    Some(changed),
                    None,
                )?,
                _off: State::new(
                    bindings::cpuhp_state_CPUHP_BP_PREPARE_DYN,
                    name,
                    None,
                    Some(changed),
                )?,
            })
        }
    }
}

/// A CPU has come or gone.
extern "C" fn changed(_cpu: c_uint) -> c_int {
    CHANGES.fetch_add(1, Relaxed);
    0
}
