// SPDX-License-Identifier: GPL-2.0

//! User memory that a device reads and writes: pinned, accounted, mapped.
//!
//! ```text
//!   Pinned::new        the pages are present and stay; charged to the user. No device involved
//!   Pinned::map        the device can access them, by DMA address. Takes a Pass
//!   Mapped::unmap_now  the device can no longer access them; still pinned
//!   drop               unmapped, unpinned (dirty, if the device could write), uncharged
//! ```
//!
//! Pinning faults the pages in, and a process decides how long a fault takes (userfaultfd, FUSE).
//! So pinning comes before any [`Pass`], and outside any lock that unbind needs. Mapping waits for
//! the IOMMU alone.
//!
//! `ib_umem_get()` of the RDMA core pins and maps in one step, and unmaps and unpins in one. A
//! shutdown must unmap memory while its process may still be in a page fault, and memory that the
//! platform would copy must be refused: both need the steps of this file.
//!
//! # Accounting
//!
//! Pages are charged to the user of the calling process, against `RLIMIT_MEMLOCK`, as io_uring does,
//! unless the process has `CAP_IPC_LOCK`. A charge to an address space would end with the address
//! space: a process could pin memory through an inherited descriptor and exit, and the descriptor
//! would keep the pages. `mm->pinned_vm` counts them as well, for `VmPin`.
//!
//! # Memory
//!
//! A table has 32 bytes for each run of contiguous pages, and a 128th for chaining. It grows with
//! the pages that are pinned, so a length without memory costs nothing. It is charged to the
//! process's memory cgroup.

use super::{
    dma,
    gate::{
        DmaHold,
        Pass, //
    },
    task::{
        capable,
        cond_resched,
        fatal_signal_pending,
        memlock_limit,
        Capability, //
    },
};
use core::{
    mem,
    ptr::{
        self,
        NonNull, //
    }, //
};
use kernel::{
    bindings,
    device::{
        Bound,
        Device, //
    },
    dma::DataDirection,
    error::to_result,
    mm::Mm,
    page::{
        PAGE_MASK,
        PAGE_SHIFT,
        PAGE_SIZE, //
    },
    prelude::*,
    scatterlist::{
        SGEntry,
        SGTable, //
    },
    sync::{
        aref::ARef,
        atomic::{
            Atomic,
            Relaxed, //
        }, //
    },
    types::Opaque, //
};

#[allow(improper_ctypes)]
unsafe extern "C" {
    fn qpair_get_current_user() -> *mut bindings::user_struct;
}

/// What the device may do with the memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Read only. The process itself need not be able to write there.
    Read,
    /// Read and write. The process must be able to write there.
    Write,
}

/// A user that memory is charged to.
struct ChargedUser(NonNull<bindings::user_struct>);

// SAFETY: Users are counted, and their counters are atomic.
unsafe impl Send for ChargedUser {}

// SAFETY: As above.
unsafe impl Sync for ChargedUser {}

impl ChargedUser {
    /// The user of the calling task.
    fn current() -> Self {
        // SAFETY: A task has a user.
        Self(unsafe { NonNull::new_unchecked(qpair_get_current_user()) })
    }

    /// Pages that are charged to it, against `RLIMIT_MEMLOCK`.
    fn pages(&self) -> &Atomic<i64> {
        // SAFETY: `self` has a reference to the user. The counter is aligned and only ever accessed
        // atomically.
        unsafe { Atomic::from_ptr(&raw mut (*self.0.as_ptr()).locked_vm.counter) }
    }

    /// Charges `amount` pages, if that leaves at most `limit`.
    fn charge(&self, amount: i64, limit: i64) -> Result {
        let mut before = self.pages().load(Relaxed);
        loop {
            let after = before.checked_add(amount).ok_or(ENOMEM)?;
            if after > limit {
                return Err(ENOMEM);
            }
            match self.pages().cmpxchg(before, after, Relaxed) {
                Ok(_) => return Ok(()),
                Err(now) => before = now,
            }
        }
    }
}

impl Drop for ChargedUser {
    fn drop(&mut self) {
        // SAFETY: The reference of `current`.
        unsafe { bindings::free_uid(self.0.as_ptr()) };
    }
}

/// Pages charged to a user, and counted in an address space.
///
/// # Invariants
///
/// `pages` are counted in `mm`'s `pinned_vm`, and charged to `user`, if any.
struct PinCharge {
    mm: ARef<Mm>,
    user: Option<ChargedUser>,
    pages: usize,
}

impl PinCharge {
    /// Charges the calling process. Process context; does not sleep.
    fn new(pages: usize) -> Result<Self> {
        let mm: ARef<Mm> = {
            let current = kernel::current!();
            // A kernel thread has no memory to pin.
            let mm: &Mm = current.mm().ok_or(EFAULT)?;
            mm.into()
        };
        let amount = i64::try_from(pages).map_err(|_| EOVERFLOW)?;
        let user = if capable(Capability::IpcLock) {
            None
        } else {
            let user = ChargedUser::current();
            let limit = i64::try_from(memlock_limit() >> PAGE_SHIFT).unwrap_or(i64::MAX);
            user.charge(amount, limit)?;
            Some(user)
        };
        Self::counter(&mm).fetch_add(amount, Relaxed);
        // INVARIANT: Counted and charged above. The drop gives it back.
        Ok(Self { mm, user, pages })
    }

    fn counter(mm: &Mm) -> &Atomic<i64> {
        // SAFETY: `mm` is alive, so its counter is, for as long as the borrow; the counter is
        // aligned and only ever accessed atomically.
        unsafe { Atomic::from_ptr(&raw mut (*mm.as_raw()).__bindgen_anon_1.pinned_vm.counter) }
    }
}

impl Drop for PinCharge {
    fn drop(&mut self) {
        // CAST: It was an `i64` in `new`.
        let amount = self.pages as i64;
        Self::counter(&self.mm).fetch_sub(amount, Relaxed);
        if let Some(user) = &self.user {
            user.pages().fetch_sub(amount, Relaxed);
        }
    }
}

/// Pinned pages, as a scatterlist.
///
/// # Invariants
///
/// `table` is zeroed or was filled by `sg_alloc_append_table_from_pages`; the first `orig_nents`
/// entries name pages that are pinned once each for this object.
struct PinnedTable {
    table: Opaque<bindings::sg_append_table>,
    access: Access,
}

impl PinnedTable {
    fn new(access: Access) -> Self {
        // INVARIANT: Zeroed, so without entries.
        Self {
            table: Opaque::new(pin_init::zeroed()),
            access,
        }
    }

    /// The part of the table that the DMA functions take.
    fn sgt(&self) -> *mut bindings::sg_table {
        // SAFETY: In bounds of the same object.
        unsafe { &raw mut (*self.table.get()).sgt }
    }

    /// Pins `pages` pages from `start` on. May sleep for as long as the process likes, but not
    /// longer than until it is killed.
    fn fill(&mut self, start: usize, pages: usize) -> Result {
        /// Pages that are pinned at once: a page full of pointers.
        const BATCH: usize = PAGE_SIZE / size_of::<*mut bindings::page>();
        /// The longest scatterlist entry, in whole pages.
        const MAX_SEGMENT: u32 = u32::MAX & PAGE_MASK as u32;

        let mut flags = bindings::FOLL_LONGTERM;
        if self.access == Access::Write {
            flags |= bindings::FOLL_WRITE;
        }
        let mut batch = KVec::from_elem(
            ptr::null_mut::<bindings::page>(),
            BATCH.min(pages),
            GFP_KERNEL,
        )?;
        let mut done = 0;
        while done < pages {
            // Pages that are there already are pinned without a look at signals.
            if fatal_signal_pending() {
                return Err(EINTR);
            }
            let want = (pages - done).min(batch.len());
            // SAFETY: `batch` has room for `want` pointers.
            let pinned = unsafe {
                bindings::pin_user_pages_fast(
                    start + (done << PAGE_SHIFT),
                    // CAST: At most `BATCH`.
                    want as c_int,
                    flags,
                    batch.as_mut_ptr(),
                )
            };
            to_result(pinned)?;
            // CAST: Not negative, and at most `want`.
            let pinned = pinned as usize;
            if pinned == 0 {
                return Err(EFAULT);
            }
            // SAFETY: `batch` begins with `pinned` pages; the table is as this function wants it,
            // by the type invariant.
            // INVARIANT: On success all of them are in the table, otherwise none is.
            let added = to_result(unsafe {
                bindings::sg_alloc_append_table_from_pages(
                    self.table.get(),
                    batch.as_mut_ptr(),
                    pinned as c_uint,
                    0,
                    pinned << PAGE_SHIFT,
                    MAX_SEGMENT,
                    // CAST: `Pinned::new` has checked that a `u32` counts all pages.
                    (pages - done - pinned) as c_uint,
                    bindings::GFP_KERNEL_ACCOUNT,
                )
            });
            if added.is_err() {
                // SAFETY: Pinned above and not in the table.
                unsafe { bindings::unpin_user_pages(batch.as_mut_ptr(), pinned) };
                return added;
            }
            done += pinned;
            cond_resched();
        }
        Ok(())
    }
}

impl Drop for PinnedTable {
    fn drop(&mut self) {
        let sgt = self.sgt();
        // SAFETY: `sgt` is valid.
        let (mut entry, count) = unsafe { ((*sgt).sgl, (*sgt).orig_nents) };
        for _ in 0..count {
            // SAFETY: By the type invariant there are `count` entries, each of whole pages that
            // are pinned for us. The two low bits of a page link are flags of the list.
            unsafe {
                bindings::unpin_user_page_range_dirty_lock(
                    ((*entry).page_link & !0b11) as *mut bindings::page,
                    ((*entry).length as usize) >> PAGE_SHIFT,
                    self.access == Access::Write,
                );
                entry = bindings::sg_next(entry);
            }
            cond_resched();
        }
        // SAFETY: The table is not used any more; a zeroed one is fine.
        unsafe { bindings::sg_free_append_table(self.table.get()) };
    }
}

/// Memory of a process that stays where it is and is charged to the process.
pub struct Pinned {
    // Field order is drop order: what is uncharged is no longer pinned.
    table: PinnedTable,
    charge: PinCharge,
    offset: usize,
    bytes: u64,
}

// SAFETY: Owns its pages, its table and a reference to the address space; none is tied to a thread.
unsafe impl Send for Pinned {}

// SAFETY: Nothing changes through a shared reference.
unsafe impl Sync for Pinned {}

impl Pinned {
    /// Pins `bytes` bytes from address `start` of the calling process; no page for 0 bytes. Process
    /// context; sleeps for as long as the process likes, or until it is killed.
    ///
    /// # Errors
    ///
    /// - `EOVERFLOW`: the end is past the end of all addresses, or more than `u32::MAX` pages.
    /// - `ENOMEM`: more than the caller may lock, or out of memory.
    /// - `EFAULT`: not mapped, not writable for [`Access::Write`], or memory of a device.
    /// - `EOPNOTSUPP`: memory that cannot be pinned for long, such as a file on DAX.
    /// - `EINTR`: the process was killed.
    pub fn new(start: u64, bytes: u64, access: Access) -> Result<Self> {
        let page = PAGE_SIZE as u64;
        let end = match bytes {
            0 => start & !(page - 1),
            _ => start
                .checked_add(bytes)
                .and_then(|end| end.checked_next_multiple_of(page))
                .ok_or(EOVERFLOW)?,
        };
        let offset = start & (page - 1);
        let first = start - offset;
        let pages = u32::try_from((end - first) >> PAGE_SHIFT).map_err(|_| EOVERFLOW)? as usize;
        let first = usize::try_from(first).map_err(|_| EOVERFLOW)?;

        let mut pinned = Self {
            charge: PinCharge::new(pages)?,
            table: PinnedTable::new(access),
            offset: offset as usize,
            bytes,
        };
        // On an error the drop unpins what there is.
        pinned.table.fill(first, pages)?;
        Ok(pinned)
    }

    /// Where the first byte is in the first page.
    pub fn offset(&self) -> usize {
        self.offset
    }

    /// The length that was asked for.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Pages that are pinned.
    pub fn pages(&self) -> usize {
        self.charge.pages
    }

    /// Whether the device may write.
    pub fn access(&self) -> Access {
        self.table.access
    }

    /// Gives the device access to the memory. Sleeps, but not for a process. On error the memory is
    /// unpinned.
    ///
    /// # Errors
    ///
    /// `ENOMEM` or `EIO` from the IOMMU; `EIO` also where the platform could only give the device
    /// a copy, see [`dma::is_in_place`].
    pub fn map(self, pass: &Pass<'_>) -> Result<Mapped> {
        if self.pages() == 0 {
            return Ok(Mapped {
                memory: mem::ManuallyDrop::new(self),
                reach: Reach::Unmapped,
            });
        }
        // SAFETY: The table is whole, and the device is bound.
        to_result(unsafe {
            bindings::dma_map_sgtable(
                super::raw_device(pass.dev()),
                self.table.sgt(),
                self.direction().into(),
                dma::IN_PLACE,
            )
        })?;
        // INVARIANT: Mapped for the gate's device.
        Ok(Mapped {
            memory: mem::ManuallyDrop::new(self),
            reach: Reach::Mapped(pass.hold()),
        })
    }

    fn direction(&self) -> DataDirection {
        match self.access() {
            Access::Read => DataDirection::ToDevice,
            Access::Write => DataDirection::Bidirectional,
        }
    }
}

/// What the device can do with [`Mapped`] memory.
enum Reach {
    /// The device has access, for as long as the gate permits.
    Mapped(DmaHold),
    /// The device has no access.
    Unmapped,
    /// Unknown: the device was gone before the memory was unmapped.
    Lost,
}

/// [`Pinned`] memory that a device can access.
///
/// # Invariants
///
/// While `reach` is `Mapped`, the table is mapped for the device of its gate.
pub struct Mapped {
    /// Dropped in drop, unless it must be leaked.
    memory: mem::ManuallyDrop<Pinned>,
    reach: Reach,
}

impl Mapped {
    /// The pages that are mapped.
    pub fn pinned(&self) -> &Pinned {
        &self.memory
    }

    /// The pieces in which the device sees the memory, in order. The first begins at the first
    /// page, [`Pinned::offset`] bytes before the first byte. None, once it is unmapped.
    pub fn segments(&self) -> impl Iterator<Item = &SGEntry> {
        // SAFETY: The table is valid, and does not change while it is borrowed.
        let table = unsafe { SGTable::from_raw(self.memory.table.sgt()) };
        let is_mapped = matches!(self.reach, Reach::Mapped(_));
        is_mapped.then(|| table.iter()).into_iter().flatten()
    }

    /// Takes the memory from the device, which must no longer use it. It stays pinned. A second call
    /// does nothing. Sleeps, but not for a process.
    pub fn unmap_now(&mut self) {
        let Reach::Mapped(held) = mem::replace(&mut self.reach, Reach::Unmapped) else {
            return;
        };
        let unmapped = held.release(|dev: &Device<Bound>| {
            // SAFETY: Mapped for this device with these parameters, by the type invariant.
            unsafe {
                bindings::dma_unmap_sgtable(
                    super::raw_device(dev),
                    self.memory.table.sgt(),
                    self.memory.direction().into(),
                    dma::IN_PLACE,
                )
            }
        });
        if !unmapped {
            self.reach = Reach::Lost;
        }
    }
}

impl Drop for Mapped {
    /// The device must no longer use it. Sleeps.
    fn drop(&mut self) {
        self.unmap_now();
        if !matches!(self.reach, Reach::Lost) {
            // SAFETY: Not used any more.
            unsafe { mem::ManuallyDrop::drop(&mut self.memory) };
        }
        // Otherwise it stays pinned and charged for ever. The gate has reported it.
    }
}
