// SPDX-License-Identifier: GPL-2.0

//! Coherent memory that CPU and device use at the same time, as an array of 64-bit little-endian
//! words.
//!
//! C header: [`include/linux/dma-mapping.h`](srctree/include/linux/dma-mapping.h)
//!
//! [`kernel::dma::Coherent`] has two drawbacks: it is not freed when the device unbinds, and its
//! API for shared access copies. This type goes through a [`gate`](super::gate). It has one kind of
//! access: a whole word, read or written exactly once and not torn. The caller orders accesses to
//! different words with [`kernel::sync::barrier`].
//!
//! Memory is zeroed when allocated.

use super::gate::{
    DmaHold,
    Pass, //
};
use core::{
    marker::PhantomData,
    ptr::NonNull, //
};
use kernel::{
    bindings,
    device::{
        Bound,
        Device, //
    },
    dma::{
        DataDirection,
        DmaAddress, //
    },
    page::{
        Page,
        PAGE_SIZE, //
    },
    prelude::*, //
};

#[allow(improper_ctypes)]
unsafe extern "C" {
    fn qpair_dma_mapping_error(dev: *mut bindings::device, address: bindings::dma_addr_t) -> c_int;
}

/// The attributes with which [`super::umem`] maps memory: both sides access it at the same time, so
/// the device must not get a bounce buffer.
pub(super) const IN_PLACE: c_ulong = bindings::DMA_ATTR_REQUIRE_COHERENT as c_ulong;

/// Whether the platform can map any memory without bounce buffers. It cannot with `swiotlb=force`
/// or encrypted guest memory unless there is an IOMMU, with a bus that addresses only a part of the
/// memory, or without cache coherence. Maps a page to find out. Sleeps.
///
/// # Errors
///
/// `ENOMEM`.
pub fn is_in_place(pass: &Pass<'_>) -> Result<bool> {
    let dev = super::raw_device(pass.dev());
    // SAFETY: The device is bound, by the pass.
    if unsafe { bindings::dma_addressing_limited(dev) } {
        return Ok(false);
    }
    let page = Page::alloc_page(GFP_KERNEL)?;
    let direction = DataDirection::Bidirectional.into();
    let can_map = |attributes| {
        // SAFETY: The device is bound. The page is ours, and is unmapped before it is freed.
        unsafe {
            let address = bindings::dma_map_page_attrs(
                dev,
                page.as_ptr(),
                0,
                PAGE_SIZE,
                direction,
                attributes,
            );
            if qpair_dma_mapping_error(dev, address) != 0 {
                return false;
            }
            bindings::dma_unmap_page_attrs(dev, address, PAGE_SIZE, direction, attributes);
        }
        true
    };
    match can_map(IN_PLACE) {
        true => Ok(true),
        // It can be mapped with a bounce buffer, so the cause was not a lack of memory.
        false if can_map(0) => Ok(false),
        false => Err(ENOMEM),
    }
}

const WORD: usize = size_of::<u64>();

/// Words shared with the device.
///
/// # Invariants
///
/// `words` points to `count` words of coherent memory that live as long as the object, and are
/// accessed in volatile whole words only.
pub struct Coherent {
    words: NonNull<u64>,
    count: usize,
    address: DmaAddress,
    /// `None` in drop only.
    held: Option<DmaHold>,
}

// SAFETY: Plain memory without ties to a thread.
unsafe impl Send for Coherent {}

// SAFETY: All access is volatile and in whole words, in which racing accesses are no worse than
// the device's own.
unsafe impl Sync for Coherent {}

impl Coherent {
    /// The largest allocation. Much larger ones make the IOMMU's own allocations warn.
    pub const MAX_BYTES: usize = 1 << 30;

    /// Allocates `bytes` bytes, rounded up to whole words. They are zero, contiguous for the
    /// device, and at least page-aligned. Sleeps.
    ///
    /// # Errors
    ///
    /// `EINVAL` for 0 bytes, `ENOMEM`, also for more than [`Self::MAX_BYTES`].
    pub fn zeroed(pass: &Pass<'_>, bytes: usize) -> Result<Self> {
        Self::allocate(pass, bytes, bindings::GFP_KERNEL)
    }

    /// As [`Self::zeroed`], charged to the memory cgroup of the calling task.
    ///
    /// # Errors
    ///
    /// As [`Self::zeroed`].
    pub fn accounted(pass: &Pass<'_>, bytes: usize) -> Result<Self> {
        Self::allocate(pass, bytes, bindings::GFP_KERNEL_ACCOUNT)
    }

    fn allocate(pass: &Pass<'_>, bytes: usize, flags: bindings::gfp_t) -> Result<Self> {
        let count = bytes.div_ceil(WORD);
        if count == 0 {
            return Err(EINVAL);
        }
        if count > Self::MAX_BYTES / WORD {
            return Err(ENOMEM);
        }
        let bytes = count * WORD;
        let mut address = 0;
        // SAFETY: The device is bound, by the pass. Coherent memory comes zeroed.
        let cpu = unsafe {
            bindings::dma_alloc_attrs(
                super::raw_device(pass.dev()),
                bytes,
                &mut address,
                flags | bindings::__GFP_ZERO,
                // No stack trace if the size cannot be allocated.
                bindings::DMA_ATTR_NO_WARN as usize,
            )
        };
        // INVARIANT: Just allocated, page-aligned, and not shared yet.
        Ok(Self {
            words: NonNull::new(cpu.cast()).ok_or(ENOMEM)?,
            count,
            address,
            held: Some(pass.hold()),
        })
    }

    /// The DMA address of the first word.
    #[inline]
    pub fn address(&self) -> DmaAddress {
        self.address
    }

    /// Bytes of it, a multiple of 8.
    #[inline]
    pub fn bytes(&self) -> usize {
        self.count * WORD
    }

    /// Its words. A store to them cannot change this view, so a loop over many entries keeps it in
    /// registers.
    #[inline(always)]
    pub fn view(&self) -> Words<'_> {
        // INVARIANT: By that of `Self`, which outlives it.
        Words {
            words: self.words,
            count: self.count,
            memory: PhantomData,
        }
    }

    /// Reads a word, once, as [`Words::read`].
    #[inline]
    pub fn read(&self, index: usize) -> Option<u64> {
        self.view().read(index)
    }

    /// Writes a word, once, as [`Words::write`].
    #[inline]
    #[must_use]
    pub fn write(&self, index: usize, value: u64) -> Option<()> {
        self.view().write(index, value)
    }
}

/// The words of a [`Coherent`].
///
/// # Invariants
///
/// `words` points to `count` words of coherent memory that live for `'a`, and are accessed in
/// volatile whole words only.
#[derive(Clone, Copy)]
pub struct Words<'a> {
    words: NonNull<u64>,
    count: usize,
    memory: PhantomData<&'a Coherent>,
}

impl<'a> Words<'a> {
    /// The number of words.
    #[inline(always)]
    pub fn count(&self) -> usize {
        self.count
    }

    /// Whether the `N` words from `index` on exist. The difference does not depend on `index`, so a
    /// loop computes it once.
    #[inline(always)]
    fn has<const N: usize>(&self, index: usize) -> bool {
        self.count.checked_sub(N).is_some_and(|last| index <= last)
    }

    /// Reads a word, once. `None` past the end. Any context.
    #[inline(always)]
    pub fn read(&self, index: usize) -> Option<u64> {
        let row: Row<'_, 1> = self.row(index)?;
        Some(row.read(0))
    }

    /// The `N` words from `index` on, to be read one by one. `None` if they end past the end.
    /// Any context.
    #[inline(always)]
    pub fn row<const N: usize>(&self, index: usize) -> Option<Row<'a, N>> {
        if !self.has::<N>(index) {
            return None;
        }
        // SAFETY: In bounds.
        // INVARIANT: As the bounds say.
        Some(Row(unsafe { self.words.add(index) }, PhantomData))
    }

    /// Writes a word, once. Past the end it writes nothing and returns `None`. Any context.
    #[inline(always)]
    #[must_use]
    pub fn write(&self, index: usize, value: u64) -> Option<()> {
        self.write_array(index, &[value])
    }

    /// Writes `words` from `index` on, each once, in no particular order. If they end past the end
    /// it writes nothing and returns `None`. Any context.
    #[inline(always)]
    #[must_use]
    pub fn write_array<const N: usize>(&self, index: usize, words: &[u64; N]) -> Option<()> {
        if !self.has::<N>(index) {
            return None;
        }
        for (i, word) in words.iter().enumerate() {
            // SAFETY: In bounds. The invariant allows volatile access.
            unsafe { self.words.add(index + i).write_volatile(word.to_le()) };
        }
        Some(())
    }
}

/// `N` words in a row of a [`Coherent`], whose bounds are checked.
///
/// # Invariants
///
/// Points to `N` words of coherent memory that live for `'a`, and are accessed in volatile whole
/// words only.
pub struct Row<'a, const N: usize>(NonNull<u64>, PhantomData<&'a Coherent>);

impl<const N: usize> Row<'_, N> {
    /// Reads a word, once; 0 past the end. Any context.
    #[inline(always)]
    pub fn read(&self, at: usize) -> u64 {
        if at >= N {
            return 0;
        }
        // SAFETY: In bounds. The invariant allows volatile access, and any value is a `u64`.
        u64::from_le(unsafe { self.0.add(at).read_volatile() })
    }
}

impl Drop for Coherent {
    /// The device must no longer use it. Sleeps.
    fn drop(&mut self) {
        let Some(held) = self.held.take() else {
            return;
        };
        let bytes = self.bytes();
        let free = |dev: &Device<Bound>| {
            // SAFETY: Allocated in `allocate` for this device; size, address and attributes are the
            // same; the device is still bound.
            unsafe {
                bindings::dma_free_attrs(
                    super::raw_device(dev),
                    bytes,
                    self.words.as_ptr().cast(),
                    self.address,
                    bindings::DMA_ATTR_NO_WARN as usize,
                )
            }
        };
        // Otherwise it is leaked: the gate has reported it.
        let _freed = held.release(free);
    }
}
