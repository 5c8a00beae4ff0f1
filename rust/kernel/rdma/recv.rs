// SPDX-License-Identifier: GPL-2.0

//! Receives that kernel ULPs post to a queue pair or to an SRQ.

use super::prelude::*;

/// An SGE of a ULP, as `struct ib_sge`. Its list may be at any address: that of iSER is in a packed
/// structure.
#[derive(Clone, Copy)]
#[repr(C, packed)]
pub struct CoreSge {
    /// The address, of DMA.
    pub addr: u64,
    /// Bytes.
    pub length: u32,
    /// The key of the memory.
    pub lkey: u32,
}

const _: () = assert!(size_of::<CoreSge>() == size_of::<bindings::ib_sge>());

/// The SGEs of a work request.
///
/// # Errors
///
/// `EINVAL`: no number of SGEs, or no list of them.
///
/// # Safety
///
/// `list` has `count` SGEs for `'a`.
pub(super) unsafe fn sges<'a>(
    list: *const bindings::ib_sge,
    count: c_int,
) -> Result<&'a [CoreSge]> {
    let count = usize::try_from(count).map_err(|_| EINVAL)?;
    if count == 0 {
        return Ok(&[]);
    }
    if list.is_null() {
        return Err(EINVAL);
    }
    // SAFETY: By the caller's promise; the layout is that of `struct ib_sge`, at any address.
    Ok(unsafe { core::slice::from_raw_parts(list.cast(), count) })
}

/// A request of a receive queue, or of an SRQ.
#[derive(Clone, Copy)]
pub struct RecvRequest<'a> {
    /// The ULP's own: `wr_id`.
    pub id: u64,
    /// The local memory, in the order of the message.
    pub sges: &'a [CoreSge],
}

/// The receives of a list.
///
/// # Invariants
///
/// `next` is the rest of a list that lives for `'a`.
pub(super) struct Receives<'a> {
    next: Option<&'a bindings::ib_recv_wr>,
    /// The one that was taken last.
    last: *const bindings::ib_recv_wr,
}

impl<'a> Iterator for Receives<'a> {
    type Item = Result<RecvRequest<'a>>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        let wr = self.next?;
        self.last = wr;
        // SAFETY: By the type invariant, the next one and the list of SGEs are valid.
        Some(unsafe {
            // INVARIANT: The rest of the same list.
            self.next = wr.next.as_ref();
            sges(wr.sg_list, wr.num_sge).map(|sges| RecvRequest {
                id: wr.__bindgen_anon_1.wr_id,
                sges,
            })
        })
    }
}

/// Posts a list by `post`. If that fails, `bad` gets the receive that was not posted.
///
/// # Safety
///
/// `wr` is null or the first receive of a list, which is valid for `'a` with its lists of SGEs; `bad`
/// is to fill, with one of them.
#[inline]
pub(super) unsafe fn post<'a>(
    wr: *const bindings::ib_recv_wr,
    bad: *mut *const bindings::ib_recv_wr,
    post: impl FnOnce(&mut Receives<'a>) -> Result,
) -> c_int {
    // INVARIANT: By the caller's promise.
    let mut list = Receives {
        // SAFETY: As above.
        next: unsafe { wr.as_ref() },
        last: wr,
    };
    let posted = post(&mut list);
    // SAFETY: The caller fills `bad` by this.
    status(|| posted.inspect_err(|_| unsafe { *bad = list.last }))
}
