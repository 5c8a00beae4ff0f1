// SPDX-License-Identifier: GPL-2.0

//! One use at a time, without waiting.

use kernel::{
    prelude::*,
    sync::atomic::{
        Atomic,
        Full,
        Release, //
    }, //
};

/// Holds a flag set, however its owner returns.
pub struct Busy<'a>(&'a Atomic<bool>);

impl<'a> Busy<'a> {
    /// Sets the flag. Any context.
    ///
    /// # Errors
    ///
    /// `EBUSY` if it is set.
    pub fn new(flag: &'a Atomic<bool>) -> Result<Self> {
        if flag.xchg(true, Full) {
            return Err(EBUSY);
        }
        Ok(Self(flag))
    }
}

impl Drop for Busy<'_> {
    fn drop(&mut self) {
        self.0.store(false, Release);
    }
}
