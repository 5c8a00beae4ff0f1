// SPDX-License-Identifier: GPL-2.0

//! What the commands of processes have in common.

use crate::{
    abi::command::{
        access,
        BufferList, //
    },
    queue::index::Depth,
    sys::{
        rdma::Details,
        umem::{
            Access,
            Pinned, //
        }, //
    }, //
};
use kernel::{
    page::PAGE_SIZE,
    prelude::*, //
};

/// `object`, whose answer was written; if it was not, `end` destroys it.
pub(super) fn answered<T>(object: T, written: Result, end: impl FnOnce(T)) -> Result<T> {
    match written {
        Ok(()) => Ok(object),
        Err(error) => {
            end(object);
            Err(error)
        }
    }
}

/// The depth of a ring for `wanted` entries, at most `1 << log_most`.
pub(super) fn depth(wanted: u32, log_most: u8) -> Result<Depth> {
    match Depth::at_least(wanted) {
        Some(depth) if wanted != 0 && depth.log2() <= log_most => Ok(depth),
        _ => Err(EINVAL),
    }
}

/// Pins the ring of `entries` entries of `each` bytes at `address`. May sleep for as long as the
/// process likes.
pub(super) fn ring(
    address: u64,
    bytes: u64,
    entries: Depth,
    each: u64,
    access: Access,
) -> Result<Pinned> {
    let needed = u64::from(entries.entries()) * each;
    if address % PAGE_SIZE as u64 != 0 || bytes < needed {
        return Err(EINVAL);
    }
    Pinned::new(address, needed, access)
}

/// The rights of a region. Optional ones are dropped.
pub(super) fn rights(wanted: u32) -> Result<u8> {
    const OPTIONAL: u32 = 0x3ff0_0000;
    match u8::try_from(wanted & !OPTIONAL) {
        Ok(wanted) if wanted & !access::ALL == 0 => Ok(wanted),
        _ => Err(EOPNOTSUPP),
    }
}

/// The levels and the page size of a buffer list.
pub(super) fn buffer(details: &mut Details<'_>, list: &BufferList) -> Result {
    details.number(c"levels", list.levels.into())?;
    details.number(c"page_shift", list.page_shift.into())
}
