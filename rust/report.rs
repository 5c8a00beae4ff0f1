// SPDX-License-Identifier: GPL-2.0

//! The texts of debugfs files: what is written to one, and the report of a client, which is read.

use kernel::{
    fmt,
    new_mutex,
    prelude::*,
    str::CString,
    sync::Mutex,
    uaccess::UserSliceReader, //
};

/// The text that user space has written to a file, of at most `N` bytes. Process context; sleeps.
///
/// # Errors
///
/// `EINVAL` if it is longer or no UTF-8, `EFAULT`.
pub(crate) fn written<'a, const N: usize>(
    reader: &mut UserSliceReader,
    buffer: &'a mut [u8; N],
) -> Result<&'a str> {
    let length = reader.len();
    let text = buffer.get_mut(..length).ok_or(EINVAL)?;
    reader.read_slice(text)?;
    core::str::from_utf8(text).map_err(|_| EINVAL)
}

/// The report of a client's last run.
#[pin_data]
pub(crate) struct Report {
    #[pin]
    text: Mutex<Option<CString>>,
}

impl Report {
    /// A report that is empty: there was no run.
    pub(crate) fn new() -> impl PinInit<Self> {
        pin_init!(Self {
            text <- new_mutex!(None, "Report::text"),
        })
    }

    /// Replaces it; without memory, by none. Process context; sleeps.
    pub(crate) fn set(&self, text: fmt::Arguments<'_>) {
        let text = CString::try_from_fmt(text).ok();
        *self.text.lock() = text;
    }

    /// Shows it, or `result=none`. Process context; sleeps.
    pub(crate) fn show(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.text.lock().as_deref().map(CStr::to_str) {
            Some(Ok(text)) => f.write_str(text),
            _ => f.write_str("result=none\n"),
        }
    }
}
