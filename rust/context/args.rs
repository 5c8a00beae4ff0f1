// SPDX-License-Identifier: GPL-2.0

//! The arguments of ioctls: in by one copy, out by one copy.
//!
//! A structure may grow at its end, and either side may be the older one. The size in the command
//! is the caller's. What the caller does not know is zero here; what we do not know must be zero
//! there. After that copy nobody looks at the caller's memory again.

use crate::sys::chardev::Ioctl;
use core::mem::size_of;
use kernel::{
    prelude::*,
    uaccess::{
        UserSliceReader,
        UserSliceWriter, //
    }, //
};
use zerocopy::{
    FromBytes,
    Immutable,
    IntoBytes, //
};

/// Reads and writes: what `_IOWR()` says.
const BOTH_WAYS: u32 = 3;

/// An argument that was read, and the way back to the caller.
pub(super) struct Argument<T> {
    /// The snapshot.
    pub(super) value: T,
    out: UserSliceWriter,
    /// As much of it as the caller knows.
    bytes: usize,
}

impl<T: Default + FromBytes + IntoBytes + Immutable> Argument<T> {
    /// Copies the argument in. `least` is the size of the first version of the structure. Sleeps
    /// for as long as the caller likes: hold no lock and no pass.
    ///
    /// # Errors
    ///
    /// - `EINVAL`: smaller than `least`, or not a command that goes both ways.
    /// - `E2BIG`: a byte that we do not know is not zero.
    /// - `EFAULT`: not readable.
    pub(super) fn read(call: Ioctl, least: usize) -> Result<Self> {
        if call.direction() != BOTH_WAYS || call.size() < least {
            return Err(EINVAL);
        }
        let (mut reader, out) = call.memory().reader_writer();
        let bytes = call.size().min(size_of::<T>());
        let mut value = T::default();
        let known = value.as_mut_bytes().get_mut(..bytes).ok_or(EINVAL)?;
        reader.read_slice(known)?;
        zero_to_the_end(&mut reader)?;
        Ok(Self { value, out, bytes })
    }

    /// Copies the value out. Sleeps as [`Self::read`] does.
    ///
    /// # Errors
    ///
    /// `EFAULT`: not writable.
    pub(super) fn write_back(mut self) -> Result {
        let known = self.value.as_bytes().get(..self.bytes).ok_or(EINVAL)?;
        self.out.write_slice(known)
    }
}

fn zero_to_the_end(reader: &mut UserSliceReader) -> Result {
    let mut chunk = [0u8; 64];
    while !reader.is_empty() {
        let part = chunk.get_mut(..reader.len().min(64)).ok_or(EINVAL)?;
        reader.read_slice(part)?;
        if part.iter().any(|&byte| byte != 0) {
            return Err(E2BIG);
        }
    }
    Ok(())
}

/// What must be zero is.
pub(super) fn zero(fields: &[u32]) -> Result {
    if fields.iter().any(|&field| field != 0) {
        return Err(EINVAL);
    }
    Ok(())
}

/// What is given out in a byte.
pub(super) fn byte(value: u32) -> Result<u8> {
    u8::try_from(value).map_err(|_| EINVAL)
}
