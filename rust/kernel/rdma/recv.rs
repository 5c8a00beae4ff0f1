// SPDX-License-Identifier: GPL-2.0

//! Receives that kernel ULPs post to a queue pair or to an SRQ.

use super::prelude::*;
use core::marker::PhantomData;

/// An SGE of a ULP, as `struct ib_sge`, at any address: that of iSER is in a packed structure, as its
/// work requests are.
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
/// `next` is null or the rest of a list that lives for `'a`.
pub(super) struct Receives<'a> {
    next: *const bindings::ib_recv_wr,
    /// The one that was taken last.
    last: *const bindings::ib_recv_wr,
    _list: PhantomData<&'a bindings::ib_recv_wr>,
}

impl<'a> Iterator for Receives<'a> {
    type Item = Result<RecvRequest<'a>>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        if self.next.is_null() {
            return None;
        }
        self.last = self.next;
        // SAFETY: By the type invariant, the receive and the list of its SGEs are valid.
        Some(unsafe {
            let wr = self.last.read_unaligned();
            // INVARIANT: The rest of the same list.
            self.next = wr.next;
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
        next: wr,
        last: wr,
        _list: PhantomData,
    };
    let posted = post(&mut list);
    // SAFETY: The caller fills `bad` by this.
    status(|| posted.inspect_err(|_| unsafe { *bad = list.last }))
}

#[kernel::macros::kunit_tests(rdma_recv)]
mod tests {
    use super::*;

    /// As `struct iser_rx_desc`, of a header of odd size.
    #[repr(C, packed)]
    struct Descriptor {
        header: u8,
        sge: bindings::ib_sge,
        wr: bindings::ib_recv_wr,
    }

    /// Its SGE and its work request are at odd addresses.
    #[repr(C, align(8))]
    struct Aligned(Descriptor);

    impl Aligned {
        fn new(addr: u64) -> Self {
            Self(Descriptor {
                header: 0,
                sge: bindings::ib_sge {
                    addr,
                    length: 512,
                    lkey: 7,
                },
                wr: bindings::ib_recv_wr {
                    num_sge: 1,
                    ..Default::default()
                },
            })
        }
    }

    #[test]
    fn a_list_may_be_at_odd_addresses() {
        let [mut first, mut second] = [0x1000, 0x2000].map(Aligned::new);
        first.0.wr.sg_list = &raw mut first.0.sge;
        first.0.wr.next = &raw mut second.0.wr;
        second.0.wr.sg_list = &raw mut second.0.sge;
        let (mut found, mut bad) = ([(0, 0, 0); 2], core::ptr::null());
        // SAFETY: A list of two receives, each with an SGE.
        let status = unsafe {
            post(&raw const first.0.wr, &raw mut bad, |list| {
                for (found, request) in found.iter_mut().zip(list) {
                    let sge = request?.sges.first().copied().ok_or(EINVAL)?;
                    *found = (sge.addr, sge.length, sge.lkey);
                }
                Ok(())
            })
        };
        assert_eq!(status, 0);
        assert_eq!(found, [(0x1000, 512, 7), (0x2000, 512, 7)]);
    }
}
