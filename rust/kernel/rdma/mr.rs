// SPDX-License-Identifier: GPL-2.0

//! Memory regions.

pub use super::bindings::{
    ib_access_flags_IB_ACCESS_FLUSH_GLOBAL as FLUSH_GLOBAL,
    ib_access_flags_IB_ACCESS_FLUSH_PERSISTENT as FLUSH_PERSISTENT,
    ib_access_flags_IB_ACCESS_LOCAL_WRITE as LOCAL_WRITE,
    ib_access_flags_IB_ACCESS_MW_BIND as MW_BIND,
    ib_access_flags_IB_ACCESS_OPTIONAL as OPTIONAL,
    ib_access_flags_IB_ACCESS_REMOTE_ATOMIC as REMOTE_ATOMIC,
    ib_access_flags_IB_ACCESS_REMOTE_READ as REMOTE_READ,
    ib_access_flags_IB_ACCESS_REMOTE_WRITE as REMOTE_WRITE, //
};

use super::{
    context::Caller,
    details::Details,
    missing::is_undone,
    pd::CorePd,
    prelude::*, //
};
use core::{
    marker::PhantomData,
    mem::MaybeUninit,
    ptr, //
};
use kernel::sync::atomic::{
    Acquire,
    Atomic,
    Full,
    Release, //
};

/// The attributes of a memory region that is registered.
#[derive(Clone, Copy, Debug)]
pub struct MrRequest {
    /// The address of its first byte in the process.
    pub start: u64,
    /// Its length in bytes.
    pub bytes: u64,
    /// The address by which the device is given it.
    pub iova: u64,
    /// Rights of the owner and of peers: `IB_ACCESS_*`.
    pub access: u32,
}

/// A change of a memory region.
#[derive(Clone, Copy, Debug, Default)]
pub struct MrChange {
    /// Other memory: where it is in the process, its length in bytes, and the address by which the
    /// device is given it.
    pub memory: Option<(u64, u64, u64)>,
    /// Other rights of the owner and of peers: `IB_ACCESS_*`.
    pub access: Option<u32>,
}

/// The memory that a kernel ULP maps, in pages of a size that it chooses.
///
/// # Invariants
///
/// `mr` is a region of this driver. `first` begins a list of `entries` entries, and `offset` is null or
/// where the first begins. All three are valid as long as this.
pub struct Scatterlist<'a, T: Driver> {
    mr: *mut bindings::ib_mr,
    first: *mut kernel::bindings::scatterlist,
    entries: c_int,
    offset: *mut c_uint,
    driver: PhantomData<&'a T::Mr>,
}

impl<T: Driver> Scatterlist<'_, T> {
    /// The base-two logarithm of the size of a page.
    ///
    /// # Errors
    ///
    /// `EINVAL`: there is none.
    pub fn page_shift(&self) -> Result<u8> {
        // SAFETY: The core has set it in the region that it maps.
        let size = unsafe { (*self.mr).page_size };
        match size.is_power_of_two() {
            // CAST: Below 32.
            true => Ok(size.trailing_zeros() as u8),
            false => Err(EINVAL),
        }
    }

    /// Calls `add` with the DMA address of each page, until it fails. Returns how many entries are
    /// mapped; the address and the length of the region are set to those. Any context.
    ///
    /// # Errors
    ///
    /// `EBUSY`: another task maps the region. That of `add`, if no entry is mapped.
    pub fn for_each_page<F: FnMut(u64) -> Result>(self, mut add: F) -> Result<u32> {
        // SAFETY: By the invariants, a region of this driver.
        let (sink, _) = unsafe { CoreMr::<T>::get(self.mr) };
        let own = (&raw mut add).cast();
        sink.cmpxchg(ptr::null_mut(), own, Full)
            .map_err(|_| EBUSY)?;
        // SAFETY: By the invariants, a list of as many entries. `set_page` calls `add`, which lasts
        // longer, and which no other task calls, since `sink` was null.
        let mapped = unsafe {
            bindings::ib_sg_to_pages(
                self.mr,
                self.first,
                self.entries,
                self.offset,
                Some(Self::set_page::<F>),
            )
        };
        sink.store(ptr::null_mut(), Release);
        to_result(mapped)?;
        // CAST: Not negative.
        Ok(mapped as u32)
    }

    /// # Safety
    ///
    /// [`Self::for_each_page`] runs for `mr`, with this `F`, and calls `ib_sg_to_pages()`.
    unsafe extern "C" fn set_page<F: FnMut(u64) -> Result>(
        mr: *mut bindings::ib_mr,
        page: u64,
    ) -> c_int {
        // SAFETY: By the caller's promise: that has put its `F` there.
        let add = unsafe { &mut *CoreMr::<T>::get(mr).0.load(Acquire).cast::<F>() };
        status(|| add(page))
    }
}

/// A memory region of a process; all memory, or one that work requests register, for a kernel ULP.
pub trait Operations<T: Driver>: Sized + Send + Sync {
    /// Registers memory of a process. Also returns its key, local and remote.
    ///
    /// # Errors
    ///
    /// `EOVERFLOW`: longer than the device allows. `EOPNOTSUPP`: a right that does not exist. `EINVAL`: no
    /// page size of the device fits.
    fn register(
        pd: &T::Pd,
        request: MrRequest,
        context: &T::Context,
        udata: Udata<'_>,
    ) -> Result<(Self, u32)>;

    /// Registers all memory that the device can access, by DMA addresses, for a kernel ULP. Returns
    /// also its key.
    ///
    /// # Errors
    ///
    /// `EOPNOTSUPP`: a right that does not exist, or the domain of a process.
    fn all_memory(pd: &T::Pd, access: u32) -> Result<(Self, u32)>;

    /// Makes a region of a kernel ULP. It has no memory until a work request registers some, of at
    /// most `pages` pages. Also returns its key.
    ///
    /// # Errors
    ///
    /// `EOPNOTSUPP`: the device has none, or the domain of a process. `EINVAL`: more pages than it may have.
    fn fast(pd: &T::Pd, pages: u32) -> Result<(Self, u32)>;

    /// Takes the pages that the next `REG_MR` of it registers. Returns how many entries of the list are
    /// mapped. Any context.
    ///
    /// # Errors
    ///
    /// `EINVAL`: it is not of [`Self::fast`], or the device has no such pages. `ENOMEM`: it has not so many.
    /// Those of [`Scatterlist::for_each_page`].
    fn map(&self, list: Scatterlist<'_, T>) -> Result<u32>;

    /// Changes it, to another domain too if `pd` is one. Not called concurrently for one region.
    ///
    /// # Errors
    ///
    /// As of [`Self::register`]. `EBUSY`: windows are bound to it. `EACCES`: a right to write, of memory that
    /// the device could only read.
    fn rereg(&self, change: MrChange, pd: Option<&T::Pd>, udata: Udata<'_>) -> Result;

    /// Undoes it; or fails, and gives it back. What is given back and dropped, after a register that is
    /// undone, goes with its domain. On success the device no longer accesses its memory, or the driver
    /// keeps that.
    ///
    /// # Errors
    ///
    /// `EBUSY`: windows are bound to it.
    fn deregister(self) -> Result<(), (Self, Error)>;

    /// Adds the driver's details for `rdma resource`. Not concurrently with a destroy.
    ///
    /// # Errors
    ///
    /// Those of [`Details::number`].
    fn details(&self, details: &mut Details<'_>) -> Result;
}

/// A region, and the function that takes pages while they are mapped, else null.
pub(super) type CoreMr<T> = CoreObject<bindings::ib_mr, (Atomic<*mut c_void>, <T as Driver>::Mr)>;

impl<T: Driver> Ops<T> {
    pub(super) const MR: bindings::ib_device_ops = bindings::ib_device_ops {
        alloc_mr: Some(Self::alloc_mr),
        map_mr_sg: Some(Self::map_mr_sg),
        get_dma_mr: Some(Self::get_dma_mr),
        reg_user_mr: Some(Self::reg_user_mr),
        rereg_user_mr: Some(Self::rereg_user_mr),
        dereg_mr: Some(Self::dereg_mr),
        fill_res_mr_entry: Some(Self::fill_res_mr_entry),
        ..Self::NONE
    };

    /// The core's structure of a region that `register` makes, with its key; the core has it until it
    /// calls `dereg_mr`.
    fn region(
        register: impl FnOnce() -> Result<(T::Mr, u32)>,
        flags: kernel::alloc::Flags,
    ) -> *mut bindings::ib_mr {
        let made = KBox::<CoreMr<T>>::new_uninit(flags).map_err(Error::from);
        let made = made.and_then(|mut mr| {
            let (part, key) = register()?;
            let raw: *mut bindings::ib_mr = mr.as_mut_ptr().cast();
            // SAFETY: The structure that was just allocated begins with the core's.
            unsafe {
                raw.write(Default::default());
                (*raw).lkey = key;
                (*raw).rkey = key;
                CoreMr::<T>::put(raw, (Atomic::new(ptr::null_mut()), part));
            }
            Ok(KBox::into_raw(mr).cast())
        });
        made.unwrap_or_else(|error| error.to_ptr())
    }

    /// # Safety
    ///
    /// `pd` is live, and `udata` a command.
    unsafe extern "C" fn reg_user_mr(
        pd: *mut bindings::ib_pd,
        start: u64,
        bytes: u64,
        iova: u64,
        access: c_int,
        dmah: *mut bindings::ib_dmah,
        udata: *mut bindings::ib_udata,
    ) -> *mut bindings::ib_mr {
        if !dmah.is_null() {
            return EOPNOTSUPP.to_ptr();
        }
        let request = MrRequest {
            start,
            bytes,
            iova,
            // CAST: A set of bits.
            access: access as u32,
        };
        let register = || {
            // SAFETY: `pd` and so its device is live, and `udata` a command.
            let (pd, caller) =
                unsafe { (CorePd::<T>::get(pd), Caller::<T>::new((*pd).device, udata)?) };
            let (context, udata) = caller.process()?;
            T::Mr::register(pd, request, context, udata)
        };
        Self::region(register, GFP_KERNEL_ACCOUNT)
    }

    /// # Safety
    ///
    /// `pd` is live.
    unsafe extern "C" fn get_dma_mr(
        pd: *mut bindings::ib_pd,
        access: c_int,
    ) -> *mut bindings::ib_mr {
        // SAFETY: `pd` is live.
        let pd = unsafe { CorePd::<T>::get(pd) };
        // CAST: A set of bits.
        Self::region(|| T::Mr::all_memory(pd, access as u32), GFP_KERNEL)
    }

    /// # Safety
    ///
    /// `pd` is live.
    unsafe extern "C" fn alloc_mr(
        pd: *mut bindings::ib_pd,
        kind: bindings::ib_mr_type,
        pages: u32,
    ) -> *mut bindings::ib_mr {
        if kind != bindings::ib_mr_type_IB_MR_TYPE_MEM_REG {
            return EOPNOTSUPP.to_ptr();
        }
        // SAFETY: `pd` is live.
        let pd = unsafe { CorePd::<T>::get(pd) };
        Self::region(|| T::Mr::fast(pd, pages), GFP_KERNEL)
    }

    /// # Safety
    ///
    /// `mr` is live; `first` begins a list of `entries` entries, and `offset` is null or to fill.
    unsafe extern "C" fn map_mr_sg(
        mr: *mut bindings::ib_mr,
        first: *mut kernel::bindings::scatterlist,
        entries: c_int,
        offset: *mut c_uint,
    ) -> c_int {
        // INVARIANT: By the caller's promise.
        let list = Scatterlist {
            mr,
            first,
            entries,
            offset,
            driver: PhantomData,
        };
        // SAFETY: `mr` is live.
        let (_, part) = unsafe { CoreMr::<T>::get(mr) };
        // CAST: At most `entries`.
        from_result(|| part.map(list).map(|mapped| mapped as c_int))
    }

    /// Changes a region, which stays the same object.
    ///
    /// # Safety
    ///
    /// `mr` is live, `udata` a command, and `pd` live if `flags` has `IB_MR_REREG_PD`.
    unsafe extern "C" fn rereg_user_mr(
        mr: *mut bindings::ib_mr,
        flags: c_int,
        start: u64,
        bytes: u64,
        iova: u64,
        access: c_int,
        pd: *mut bindings::ib_pd,
        udata: *mut bindings::ib_udata,
    ) -> *mut bindings::ib_mr {
        // CAST: A set of bits, here and below.
        let wants = |flag: bindings::ib_mr_rereg_flags| flags as u32 & flag != 0;
        let change = MrChange {
            memory: wants(bindings::ib_mr_rereg_flags_IB_MR_REREG_TRANS)
                .then_some((start, bytes, iova)),
            access: wants(bindings::ib_mr_rereg_flags_IB_MR_REREG_ACCESS).then_some(access as u32),
        };
        let of_pd = wants(bindings::ib_mr_rereg_flags_IB_MR_REREG_PD);
        // SAFETY: `mr` is live, the domain too if there is one, and `udata` a command.
        let ((_, part), pd, udata) = unsafe {
            let pd = of_pd.then(|| CorePd::<T>::get(pd));
            (CoreMr::<T>::get(mr), pd, Udata::of(udata))
        };
        let udata = udata.ok_or(EOPNOTSUPP);
        match udata.and_then(|udata| part.rereg(change, pd, udata)) {
            // No other object.
            Ok(()) => ptr::null_mut(),
            Err(error) => error.to_ptr(),
        }
    }

    /// # Safety
    ///
    /// `mr` is ending.
    unsafe extern "C" fn dereg_mr(
        mr: *mut bindings::ib_mr,
        _udata: *mut bindings::ib_udata,
    ) -> c_int {
        // SAFETY: `mr` is ending, or gets its part again.
        let (sink, part) = unsafe { CoreMr::<T>::take(mr) };
        if let Err((part, error)) = part.deregister() {
            // SAFETY: `mr` is ending.
            if !unsafe { is_undone(mr) } {
                // SAFETY: It has no part.
                unsafe { CoreMr::<T>::put(mr, (sink, part)) };
                return error.to_errno();
            }
        }
        // SAFETY: `region` has made it, and it has no part.
        drop(unsafe { KBox::from_raw(mr.cast::<MaybeUninit<CoreMr<T>>>()) });
        0
    }

    /// # Safety
    ///
    /// `mr` is live, `message` to fill.
    unsafe extern "C" fn fill_res_mr_entry(
        message: *mut kernel::bindings::sk_buff,
        mr: *mut bindings::ib_mr,
    ) -> c_int {
        // SAFETY: `mr` is live.
        let (_, part) = unsafe { CoreMr::<T>::get(mr) };
        let write = |details: &mut Details<'_>| part.details(details);
        // SAFETY: The caller fills `message` by this.
        unsafe { Details::write(message, write) }
    }
}
