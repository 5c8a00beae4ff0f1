// SPDX-License-Identifier: GPL-2.0
//! Locks that objects of a single thread leave out.

use std::cell::Cell;

use parking_lot::lock_api::{self, RawMutex};

/// A lock that may be chosen, at its creation, to do nothing.
pub struct Optional {
    lock: parking_lot::RawMutex,
    /// Whether threads exclude each other. Constant after the creation.
    shared: Cell<bool>,
}

// SAFETY: `shared` is written by `mutex` alone, before any other thread has a reference.
unsafe impl Sync for Optional {}

// SAFETY: If it is shared, by the lock inside. If not, the caller of `mutex` has promised that
// there is one thread at a time.
unsafe impl RawMutex for Optional {
    // A constant that is copied into each new mutex is what the trait asks for.
    #[allow(clippy::declare_interior_mutable_const)]
    const INIT: Self = Self {
        lock: parking_lot::RawMutex::INIT,
        shared: Cell::new(true),
    };

    type GuardMarker = lock_api::GuardNoSend;

    #[inline(always)]
    fn lock(&self) {
        if self.shared.get() {
            self.lock.lock();
        }
    }

    #[inline(always)]
    fn try_lock(&self) -> bool {
        !self.shared.get() || self.lock.try_lock()
    }

    #[inline(always)]
    unsafe fn unlock(&self) {
        if self.shared.get() {
            // SAFETY: Locked, by the caller's promise.
            unsafe { self.lock.unlock() }
        }
    }
}

/// A value with an [`Optional`] lock.
pub type Mutex<T> = lock_api::Mutex<Optional, T>;
/// A guard of a [`Mutex`].
pub type Guard<'a, T> = lock_api::MutexGuard<'a, Optional, T>;

/// A value that threads share.
pub fn shared<T>(value: T) -> Mutex<T> {
    Mutex::new(value)
}

/// A value that one thread at a time uses.
///
/// # Safety
///
/// No two threads use it at a time, and no thread locks it while it has it locked.
pub unsafe fn alone<T>(value: T) -> Mutex<T> {
    let lock = Optional::INIT;
    lock.shared.set(false);
    Mutex::from_raw(lock, value)
}

/// Keeps it locked until [`held`] is dropped, after the guard's lifetime.
pub fn keep<T>(guard: Guard<'_, T>) {
    std::mem::forget(guard);
}

/// The value of a mutex that this thread has kept locked.
///
/// # Safety
///
/// This thread has called [`keep`] for it, and has no other guard of it.
pub unsafe fn held<T>(mutex: &Mutex<T>) -> Guard<'_, T> {
    // SAFETY: By the caller's promise.
    unsafe { mutex.make_guard_unchecked() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_that_is_shared_is_locked_once_at_a_time() {
        let lock = shared(());
        let guard = lock.lock();
        assert!(lock.try_lock().is_none());
        drop(guard);
        let guard = lock.try_lock();
        assert!(guard.is_some() && lock.try_lock().is_none());
    }
}
