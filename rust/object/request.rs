// SPDX-License-Identifier: GPL-2.0

//! What the commands of processes have in common.

use crate::{
    abi::{
        command::{
            access,
            timer,
            BufferList, //
        },
        entry::{
            ud_sges,
            MAX_BLOCKS, //
        }, //
    },
    hw::function::Limits,
    kernel::{
        rdma::{
            mr,
            Details, //
        },
        umem::{
            Access,
            Pinned, //
        }, //
    },
    queue::index::Depth, //
};
use kernel::{
    page::PAGE_SIZE,
    prelude::*, //
};

/// `object`, whose answer was written; if it was not, `end` destroys it.
pub(super) fn answered<T>(object: T, written: Result, end: impl FnOnce(T)) -> Result<T> {
    if let Err(error) = written {
        end(object);
        return Err(error);
    }
    Ok(object)
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

/// SGEs of a send or receive of a queue pair. Verbs have one limit for all types and both queues, and
/// a send of UD holds the fewest.
pub(super) fn max_sge(limits: &Limits) -> u32 {
    // CAST: A small number.
    let of_ud = ud_sges(MAX_BLOCKS) as u32;
    of_ud.min(limits.send_sges).min(limits.recv_sges)
}

/// The rights that the device knows: those of the core, `IB_ACCESS_*`, and their own.
const RIGHTS: [(u32, u8); 7] = [
    (mr::LOCAL_WRITE, access::LOCAL_WRITE),
    (mr::REMOTE_WRITE, access::REMOTE_WRITE),
    (mr::REMOTE_READ, access::REMOTE_READ),
    (mr::REMOTE_ATOMIC, access::REMOTE_ATOMIC),
    (mr::MW_BIND, access::BIND),
    (mr::FLUSH_GLOBAL, access::FLUSH_GLOBAL),
    (mr::FLUSH_PERSISTENT, access::FLUSH_PERSISTENT),
];

/// The rights in `wanted` that the device knows, and the rest.
fn split(wanted: u32) -> (u8, u32) {
    let all = RIGHTS.iter().filter(|(core, _)| wanted & core != 0);
    all.fold((0, wanted), |(rights, rest), (core, right)| {
        (rights | right, rest & !core)
    })
}

/// The rights of a region. Optional ones are dropped.
pub(super) fn rights(wanted: u32) -> Result<u8> {
    match split(wanted & !mr::OPTIONAL) {
        (rights, 0) => Ok(rights),
        _ => Err(EOPNOTSUPP),
    }
}

/// The rights of a peer. Others are dropped.
pub(super) fn peer_rights(wanted: u32) -> u8 {
    split(wanted).0 & access::GRANTS
}

/// The device's code of a timer of verbs, which has five bits.
pub(super) fn timer(code: u8) -> Result<u8> {
    match code {
        0 => Ok(timer::ZERO),
        1..=31 => Ok(code),
        _ => Err(EINVAL),
    }
}

/// The levels and the page size of a buffer list.
pub(super) fn buffer(details: &mut Details<'_>, list: &BufferList) -> Result {
    details.number(c"levels", list.levels.into())?;
    details.number(c"page_shift", list.page_shift.into())
}
