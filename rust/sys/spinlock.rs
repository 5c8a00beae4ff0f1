// SPDX-License-Identifier: GPL-2.0

//! A spinlock for what a poll in softirq context shares with process context.
//!
//! With [`kernel::sync::SpinLock`], a softirq that interrupts the holder on the same CPU spins for
//! ever. This one keeps softirqs off the CPU while it is held. Not for hard interrupts.

use kernel::{
    bindings,
    prelude::*,
    sync::lock::{
        Backend,
        Guard,
        Lock, //
    }, //
};

#[allow(improper_ctypes)]
unsafe extern "C" {
    fn qpair_spin_lock_bh(lock: *mut bindings::spinlock_t);
    fn qpair_spin_trylock_bh(lock: *mut bindings::spinlock_t) -> bool;
    fn qpair_spin_unlock_bh(lock: *mut bindings::spinlock_t);
}

/// A lock that process context and softirqs share. It is made with a name and a lock class:
/// `SpinLockBh::new(value, c"Name", static_lock_class!())`.
pub type SpinLockBh<T> = Lock<T, BhBackend>;

/// What holding one gives.
pub type SpinLockBhGuard<'a, T> = Guard<'a, T, BhBackend>;

/// A `spinlock_t` that is taken with softirqs off.
pub struct BhBackend;

// SAFETY: The kernel's `spinlock_t` excludes others, however it is taken. `relock` is the default.
unsafe impl Backend for BhBackend {
    type State = bindings::spinlock_t;
    type GuardState = ();

    unsafe fn init(ptr: *mut Self::State, name: *const c_char, key: *mut bindings::lock_class_key) {
        // SAFETY: By the caller's promises, `ptr` can be written, the others live for ever.
        unsafe { bindings::__spin_lock_init(ptr, name, key) }
    }

    #[inline]
    unsafe fn lock(ptr: *mut Self::State) -> Self::GuardState {
        // SAFETY: By the caller's promise it is initialised.
        unsafe { qpair_spin_lock_bh(ptr) }
    }

    #[inline]
    unsafe fn try_lock(ptr: *mut Self::State) -> Option<Self::GuardState> {
        // SAFETY: By the caller's promise it is initialised.
        unsafe { qpair_spin_trylock_bh(ptr) }.then_some(())
    }

    #[inline]
    unsafe fn unlock(ptr: *mut Self::State, _guard_state: &Self::GuardState) {
        // SAFETY: By the caller's promise it holds the lock.
        unsafe { qpair_spin_unlock_bh(ptr) }
    }

    #[inline]
    unsafe fn assert_is_held(ptr: *mut Self::State) {
        // SAFETY: By the caller's promise it is initialised.
        unsafe { bindings::spin_assert_is_held(ptr) }
    }
}
