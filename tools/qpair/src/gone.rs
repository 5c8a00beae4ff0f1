// SPDX-License-Identifier: GPL-2.0
//! The device is removed while it is in use.
//!
//! Its doorbell page is then unmapped, and the next doorbell raises SIGBUS. The handler prints the
//! reason, removes an incomplete file, and ends the process.

use std::ffi::CString;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::sync::atomic::{AtomicPtr, Ordering};

use anyhow::Context as _;
use signal_hook::consts::SIGBUS;

/// An incomplete file; leaked, since the signal handler may read it at any time.
static UNFINISHED: AtomicPtr<CString> = AtomicPtr::new(std::ptr::null_mut());

/// Installs the handler for SIGBUS.
pub(crate) fn catch() -> anyhow::Result<()> {
    // SAFETY: The handler allocates nothing and takes no lock: it loads a pointer, and does system
    // calls that may be done in a handler.
    unsafe { signal_hook::low_level::register(SIGBUS, gone) }.context("cannot catch signals")?;
    Ok(())
}

/// Marks this file as incomplete; with `None`, no file is incomplete any more.
pub(crate) fn unfinished(path: Option<&Path>) {
    let name = path.and_then(|path| CString::new(path.as_os_str().as_bytes()).ok());
    let name = name.map_or(std::ptr::null_mut(), |name| Box::into_raw(Box::new(name)));
    UNFINISHED.store(name, Ordering::Release);
}

fn gone() {
    let stderr = rustix::stdio::stderr();
    // An error cannot be reported.
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
