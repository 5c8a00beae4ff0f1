// SPDX-License-Identifier: GPL-2.0

//! The debugfs directory that all devices of the module share.
//!
//! It is a static from the module's init to its exit, since probe has no access to data of the
//! module.

use kernel::{
    debugfs::Dir,
    prelude::*,
    sync::atomic::{
        Acquire,
        Atomic,
        Full,
        Release, //
    },
};

kernel::sync::global_lock! {
    // SAFETY: `Root::new` initialises it before it can be locked: `STAGE` ensures that.
    unsafe(uninit) static ROOT: Mutex<Option<Dir>> = None;
}

/// [`ROOT`] is not initialised.
const NEW: u32 = 0;
/// [`ROOT`] is being initialised.
const BUSY: u32 = 1;
/// [`ROOT`] may be locked.
const READY: u32 = 2;

static STAGE: Atomic<u32> = Atomic::new(NEW);

/// Keeps the directory; owned by the module.
pub struct Root(());

impl Root {
    /// Makes the directory. Process context.
    ///
    /// # Errors
    ///
    /// `EBUSY` the second time.
    pub fn new(name: &CStr) -> Result<Self> {
        STAGE.cmpxchg(NEW, BUSY, Full).map_err(|_| EBUSY)?;
        // SAFETY: Only the first caller gets here.
        unsafe { ROOT.init() };
        *ROOT.lock() = Some(Dir::new(name));
        STAGE.store(READY, Release);
        Ok(Self(()))
    }

    /// The directory. Process context.
    ///
    /// # Errors
    ///
    /// `ENODEV` before [`Self::new`], and once the module's value is dropped.
    pub fn dir() -> Result<Dir> {
        if STAGE.load(Acquire) != READY {
            return Err(ENODEV);
        }
        ROOT.lock().clone().ok_or(ENODEV)
    }
}

impl Drop for Root {
    fn drop(&mut self) {
        let dir = ROOT.lock().take();
        drop(dir);
    }
}
