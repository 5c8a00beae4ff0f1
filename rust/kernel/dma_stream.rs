// SPDX-License-Identifier: GPL-2.0

//! Buffers that are mapped for streaming DMA: CPU and device own them in turn.
//!
//! C header: [`include/linux/dma-mapping.h`](srctree/include/linux/dma-mapping.h)
//!
//! The type of a buffer says which side owns it. Only the CPU's can be read and written, and only
//! the device's has an address:
//!
//! ```text
//!   Mapped::new ---> Mapped<Cpu> ------ into_device: dma_sync_single_for_device() -----> Mapped<Device>
//!                         ^                                                                   |
//!                         `------------ into_cpu: dma_sync_single_for_cpu() <-----------------'
//!   drop of either: dma_unmap_single()
//! ```
//!
//! The change of ownership is what makes bounce buffers (`swiotlb=force`, encrypted guests) and
//! caches that are not coherent work: it copies, writes back or invalidates. Where neither exists
//! it costs a comparison.
//!
//! The memory is an array of 64-bit little-endian words. Each is accessed as a whole and once, so a
//! device that writes to a buffer that it does not own causes wrong data and nothing else.

use super::{
    gate::{
        DmaHold,
        Pass, //
    }, //
};
use core::{
    marker::PhantomData,
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
        Device as Dev, //
    },
    dma::{
        DataDirection,
        DmaAddress, //
    },
    prelude::*, //
};

#[allow(improper_ctypes)]
unsafe extern "C" {
    fn qpair_dma_mapping_error(dev: *mut bindings::device, address: bindings::dma_addr_t) -> c_int;
    fn qpair_dma_map_single(
        dev: *mut bindings::device,
        memory: *mut c_void,
        bytes: usize,
        direction: bindings::dma_data_direction,
    ) -> bindings::dma_addr_t;
    fn qpair_dma_unmap_single(
        dev: *mut bindings::device,
        address: bindings::dma_addr_t,
        bytes: usize,
        direction: bindings::dma_data_direction,
    );
    fn qpair_dma_sync_single_for_cpu(
        dev: *mut bindings::device,
        address: bindings::dma_addr_t,
        bytes: usize,
        direction: bindings::dma_data_direction,
    );
    fn qpair_dma_sync_single_for_device(
        dev: *mut bindings::device,
        address: bindings::dma_addr_t,
        bytes: usize,
        direction: bindings::dma_data_direction,
    );
}

const WORD: usize = mem::size_of::<u64>();
/// The least bytes of an allocation: those of a cache line, which two buffers must not share.
const LEAST: usize = 64;

/// The CPU owns the buffer.
pub struct Cpu(());

/// The device owns the buffer.
pub struct Device(());

/// A mapping, whichever side owns the memory.
///
/// # Invariants
///
/// - `words` points to the `count` words of `memory`, which are accessed in volatile whole words
///   only.
/// - They are mapped at `address`, in `direction`, for the device of `held`.
struct Mapping {
    words: NonNull<u64>,
    count: usize,
    address: DmaAddress,
    direction: DataDirection,
    /// `None` in drop only.
    memory: Option<KVec<u64>>,
    /// `None` in drop only.
    held: Option<DmaHold>,
}

// SAFETY: Plain memory without ties to a thread.
unsafe impl Send for Mapping {}

// SAFETY: Writing needs `&mut`, and reading is volatile, in whole words.
unsafe impl Sync for Mapping {}

impl Mapping {
    fn bytes(&self) -> usize {
        self.count * WORD
    }

    /// Whether `dev` is the device that it is mapped for.
    fn is_of(&self, dev: &Dev<Bound>) -> bool {
        let held = self.held.as_ref().map(|held| held.gate.device());
        held.is_some_and(|held| ptr::eq(super::raw_device(held), super::raw_device(dev)))
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        let Some(held) = self.held.take() else {
            return;
        };
        let unmap = |dev: &Dev<Bound>| {
            // SAFETY: Mapped for this device, by the type invariant, which is still bound.
            unsafe {
                qpair_dma_unmap_single(
                    super::raw_device(dev),
                    self.address,
                    self.bytes(),
                    self.direction.into(),
                )
            }
        };
        if !held.release(unmap) {
            // The device may still access it: the gate has reported it.
            mem::forget(self.memory.take());
        }
    }
}

/// A buffer that is mapped, and that `Owner` owns: [`Cpu`] or [`Device`]. The drop unmaps it; the
/// device must no longer use it then. The drop sleeps.
pub struct Mapped<Owner> {
    mapping: Mapping,
    owner: PhantomData<Owner>,
}

impl<Owner> Mapped<Owner> {
    fn of(mapping: Mapping) -> Self {
        Self {
            mapping,
            owner: PhantomData,
        }
    }
}

impl Mapped<Cpu> {
    /// Allocates at least `bytes` bytes, and maps them. They are zero. Sleeps.
    ///
    /// # Errors
    ///
    /// `EINVAL` for 0 bytes, `ENOMEM`, `EIO` if the platform cannot map them.
    pub fn new(pass: &Pass<'_>, bytes: usize, direction: DataDirection) -> Result<Self> {
        if bytes == 0 {
            return Err(EINVAL);
        }
        // Such a size is aligned to itself, so that no buffer shares a cache line.
        let bytes = bytes.checked_next_power_of_two().ok_or(ENOMEM)?.max(LEAST);
        let count = bytes / WORD;
        let mut memory = KVec::from_elem(0u64, count, GFP_KERNEL)?;
        let words = NonNull::new(memory.as_mut_ptr()).ok_or(ENOMEM)?;
        let dev = super::raw_device(pass.dev());
        // SAFETY: The device is bound, by the pass. The memory is contiguous, as `kmalloc()` gives
        // it, and lives until it is unmapped.
        let address =
            unsafe { qpair_dma_map_single(dev, words.as_ptr().cast(), bytes, direction.into()) };
        // SAFETY: The device is bound.
        if unsafe { qpair_dma_mapping_error(dev, address) } != 0 {
            return Err(EIO);
        }
        // INVARIANT: Allocated and mapped above.
        let mapping = Mapping {
            words,
            count,
            address,
            direction,
            memory: Some(memory),
            held: Some(pass.hold()),
        };
        // A new mapping is the device's.
        Mapped::<Device>::of(mapping)
            .into_cpu(pass.dev())
            .map_err(|_| EINVAL)
    }

    /// Gives it to the device. Any context.
    ///
    /// # Errors
    ///
    /// The buffer itself, if `dev` is another device.
    #[inline]
    pub fn into_device(self, dev: &Dev<Bound>) -> Result<Mapped<Device>, Self> {
        if !self.mapping.is_of(dev) {
            return Err(self);
        }
        let mapping = self.mapping;
        // SAFETY: Mapped for this device, by the type invariant.
        unsafe {
            qpair_dma_sync_single_for_device(
                super::raw_device(dev),
                mapping.address,
                mapping.bytes(),
                mapping.direction.into(),
            )
        };
        Ok(Mapped::of(mapping))
    }

    /// Reads a word; 0 past the end. Any context.
    #[inline]
    pub fn read(&self, index: usize) -> u64 {
        if index >= self.mapping.count {
            return 0;
        }
        // SAFETY: In bounds. The invariant allows volatile access, and any value is a `u64`.
        u64::from_le(unsafe { self.mapping.words.add(index).read_volatile() })
    }

    /// Writes a word; past the end it writes nothing. Any context.
    #[inline]
    pub fn write(&mut self, index: usize, value: u64) {
        if index < self.mapping.count {
            // SAFETY: In bounds. The invariant allows volatile access.
            unsafe { self.mapping.words.add(index).write_volatile(value.to_le()) };
        }
    }
}

impl Mapped<Device> {
    /// The DMA address of the first byte.
    #[inline]
    pub fn address(&self) -> DmaAddress {
        self.mapping.address
    }

    /// Takes it back, when the device is done with it. Any context.
    ///
    /// # Errors
    ///
    /// The buffer itself, if `dev` is another device.
    #[inline]
    pub fn into_cpu(self, dev: &Dev<Bound>) -> Result<Mapped<Cpu>, Self> {
        if !self.mapping.is_of(dev) {
            return Err(self);
        }
        let mapping = self.mapping;
        // SAFETY: Mapped for this device, by the type invariant.
        unsafe {
            qpair_dma_sync_single_for_cpu(
                super::raw_device(dev),
                mapping.address,
                mapping.bytes(),
                mapping.direction.into(),
            )
        };
        Ok(Mapped::of(mapping))
    }
}
