// SPDX-License-Identifier: GPL-2.0
//! The device goes while we use it.
//!
//! Its doorbell page goes with it, and the next doorbell raises SIGBUS. There is no way on from
//! there, so the process ends; but it says why, and leaves no half file behind.

use std::ffi::CString;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::sync::atomic::{AtomicPtr, Ordering};

use anyhow::Context as _;
use signal_hook::consts::SIGBUS;

/// A file that is not whole; leaked, for a signal handler may look at it at any time.
static UNFINISHED: AtomicPtr<CString> = AtomicPtr::new(std::ptr::null_mut());

/// From now on SIGBUS is told as what it is.
pub(crate) fn catch() -> anyhow::Result<()> {
    // SAFETY: The handler allocates nothing and takes no lock: it loads a pointer, and does system
    // calls that may be done in a handler.
    unsafe { signal_hook::low_level::register(SIGBUS, gone) }.context("cannot catch signals")?;
    Ok(())
}

/// This file is not whole from now on; with `None`, there is no such file any more.
pub(crate) fn unfinished(path: Option<&Path>) {
    let name = path.and_then(|path| CString::new(path.as_os_str().as_bytes()).ok());
    let name = name.map_or(std::ptr::null_mut(), |name| Box::into_raw(Box::new(name)));
    UNFINISHED.store(name, Ordering::Release);
}

fn gone() {
    let stderr = rustix::stdio::stderr();
    // Where it cannot be said, it is not said.
    let _ = rustix::io::write(stderr, b"qpair: the device is gone\n");
    // SAFETY: Null, or leaked by `unfinished`.
    if let Some(name) = unsafe { UNFINISHED.load(Ordering::Acquire).as_ref() } {
        let text: &[u8] = match rustix::fs::unlink(name.as_c_str()) {
            Ok(()) => b"qpair: what was written was not whole, and is removed\n",
            Err(_) => b"qpair: what was written is not whole\n",
        };
        let _ = rustix::io::write(stderr, text);
    }
    signal_hook::low_level::exit(crate::FAILED.into());
}
