// SPDX-License-Identifier: GPL-2.0

//! The memory of the driver's own rings: coherent, contiguous, zeroed.
//!
//! The memory is reference-counted, since a ring may have readers besides its owner: the check for
//! lost interrupts reads an owner word of an EQ that the poll owns.

use crate::{
    kernel::{
        dma::{
            Coherent,
            Words, //
        },
        gate::Pass, //
    },
    queue::storage::Storage,
};
use kernel::{
    prelude::*,
    sync::{
        barrier::{
            self,
            Full,
            Read,
            Write, //
        },
        Arc, //
    }, //
};

/// A ring in coherent memory.
#[derive(Clone)]
pub(crate) struct Ring(Arc<Coherent>);

impl Ring {
    /// Allocates one of `bytes` bytes. Sleeps.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn new(pass: &Pass<'_>, bytes: usize) -> Result<Self> {
        Ok(Self(Arc::new(Coherent::zeroed(pass, bytes)?, GFP_KERNEL)?))
    }

    /// The DMA address of the first word.
    pub(crate) fn address(&self) -> u64 {
        self.0.address()
    }

    /// Its words, for a loop over many entries.
    #[inline(always)]
    pub(crate) fn view(&self) -> Words<'_> {
        self.0.view()
    }
}

/// Both have the same words.
macro_rules! storage {
    ($name:ty, $view:expr) => {
        impl Storage for $name {
            #[inline(always)]
            fn words(&self) -> usize {
                $view(self).count()
            }

            #[inline(always)]
            fn load(&self, at: usize) -> u64 {
                $view(self).read(at).unwrap_or(0)
            }

            #[inline(always)]
            fn store(&self, at: usize, word: u64) {
                // Stores past the end are dropped, as `Storage` requires.
                let _: Option<()> = $view(self).write(at, word);
            }

            #[inline(always)]
            fn load_entry<const N: usize>(
                &self,
                at: usize,
                there: impl FnOnce(u64) -> bool,
            ) -> Option<[u64; N]> {
                let row = $view(self).row::<N>(at)?;
                let last = N - 1;
                let owner = row.read(last);
                if !there(owner) {
                    return None;
                }
                self.after_owner();
                Some(core::array::from_fn(|i| {
                    if i == last {
                        owner
                    } else {
                        row.read(i)
                    }
                }))
            }

            #[inline(always)]
            fn store_all<const N: usize>(&self, at: usize, words: &[u64; N]) {
                let _: Option<()> = $view(self).write_array(at, words);
            }

            #[inline(always)]
            fn after_owner(&self) {
                barrier::dma_mb(Read);
            }

            #[inline(always)]
            fn before_head(&self) {
                barrier::dma_mb(Full);
            }

            #[inline(always)]
            fn before_tail(&self) {
                barrier::dma_mb(Write);
            }

            #[inline(always)]
            fn after_notify(&self) {
                barrier::mb(Full);
            }
        }
    };
}

storage!(Ring, Ring::view);
storage!(Words<'_>, Clone::clone);
