// SPDX-License-Identifier: GPL-2.0
//! Protection domains, and the memory in them.

use std::ops::Deref;
use std::sync::Arc;

use bitflags::bitflags;
use qpair_abi::entry::Sge;
use qpair_uverbs::abi::{
    IB_UVERBS_ACCESS_LOCAL_WRITE, IB_UVERBS_ACCESS_REMOTE_ATOMIC, IB_UVERBS_ACCESS_REMOTE_READ,
    IB_UVERBS_ACCESS_REMOTE_WRITE,
};
use rustix::io::Errno;

use crate::device::{Context, ContextInner};
use crate::error::Error;
use crate::kernel::{Keys, NewMr};
use crate::memory::Memory;
use crate::wr::Remote;

bitflags! {
    /// Access rights of a region, and those that a queue pair grants its peer.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub struct Access: u32 {
        /// Only sending from it.
        const NONE = 0;
        /// The owner's receives and READs may fill it.
        const LOCAL_WRITE = IB_UVERBS_ACCESS_LOCAL_WRITE;
        /// The peer may write it. A region also needs `LOCAL_WRITE` then.
        const REMOTE_WRITE = IB_UVERBS_ACCESS_REMOTE_WRITE;
        /// The peer may read it.
        const REMOTE_READ = IB_UVERBS_ACCESS_REMOTE_READ;
        /// The peer's atomics may change it. A region also needs `LOCAL_WRITE` then.
        const REMOTE_ATOMIC = IB_UVERBS_ACCESS_REMOTE_ATOMIC;
    }
}

#[derive(Debug)]
pub(crate) struct PdInner {
    pub(crate) context: Arc<ContextInner>,
    pub(crate) handle: u32,
}

impl Drop for PdInner {
    fn drop(&mut self) {
        // Fails only if the context is dead, and then the object is gone.
        let _: Result<(), Errno> = self.context.kernel.dealloc_pd(self.handle);
    }
}

/// A protection domain: its queue pairs may name its regions and no others.
#[derive(Clone, Debug)]
pub struct Pd {
    pub(crate) inner: Arc<PdInner>,
}

impl Pd {
    /// Makes one, of this context. It ends with its last region, queue pair and SRQ.
    pub fn new(context: &Context) -> Result<Self, Error> {
        let context = context.inner.clone();
        let made = context.kernel.alloc_pd();
        let handle = made.map_err(Error::kernel("make a protection domain"))?;
        Ok(Self {
            inner: Arc::new(PdInner { context, handle }),
        })
    }
}

/// A registered address range.
#[derive(Debug)]
pub struct Region {
    pd: Arc<PdInner>,
    addr: u64,
    bytes: u64,
    keys: Keys,
}

impl Region {
    /// Registers an address range in a domain. The caller owns the memory.
    ///
    /// # Safety
    ///
    /// As long as the region lives, the range stays mapped to the same memory, and no reference
    /// exists to bytes that the device may write.
    pub unsafe fn new(pd: &Pd, addr: u64, bytes: u64, access: Access) -> Result<Self, Error> {
        let pd = pd.inner.clone();
        let registered = pd.context.kernel.reg_mr(&NewMr {
            pd: pd.handle,
            addr,
            bytes,
            access: access.bits(),
        });
        let keys = registered.map_err(Error::kernel("register memory"))?;
        Ok(Self {
            pd,
            addr,
            bytes,
            keys,
        })
    }

    /// The key for the owner's own SGEs.
    pub fn lkey(&self) -> u32 {
        self.keys.lkey
    }

    /// The key to give to a peer.
    pub fn rkey(&self) -> u32 {
        self.keys.rkey
    }

    /// Address of the first byte.
    pub fn addr(&self) -> u64 {
        self.addr
    }

    /// `bytes` of it from `offset` on, for a work request.
    ///
    /// # Panics
    ///
    /// If they are not inside.
    pub fn sge(&self, offset: usize, bytes: usize) -> Sge {
        let (from, count) = (offset as u64, bytes as u64);
        assert!(
            from <= self.bytes && count <= self.bytes - from && count <= u32::MAX.into(),
            "{offset}+{bytes} is outside of {} bytes",
            self.bytes
        );
        Sge {
            addr: self.addr + from,
            bytes: bytes as u32,
            lkey: self.keys.lkey,
        }
    }

    /// The place at `offset`, for the peer's WRITEs and READs.
    pub fn remote(&self, offset: usize) -> Remote {
        Remote {
            addr: self.addr.wrapping_add(offset as u64),
            rkey: self.keys.rkey,
        }
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // Fails only if the context is dead, and then the object is gone.
        let _: Result<(), Errno> = self.pd.context.kernel.dereg_mr(self.keys.handle);
    }
}

/// A memory region: registered [`Memory`]. Dropping it first deregisters, then unmaps it.
#[derive(Debug)]
pub struct Mr {
    region: Region,
    memory: Memory,
}

impl Mr {
    /// Registers memory in a domain. The region owns the memory from then on.
    pub fn new(pd: &Pd, memory: Memory, access: Access) -> Result<Self, Error> {
        // SAFETY: The memory is in the region, and dropped after it.
        let region = unsafe { Region::new(pd, memory.address(), memory.len() as u64, access)? };
        Ok(Self { region, memory })
    }

    /// The memory that the region owns.
    pub fn memory(&self) -> &Memory {
        &self.memory
    }

    /// Copies bytes out, from `offset` on; see [`Memory::read`].
    ///
    /// # Panics
    ///
    /// If the range is not inside.
    pub fn read(&self, offset: usize, into: &mut [u8]) {
        self.memory.read(offset, into);
    }

    /// Copies bytes in, from `offset` on; see [`Memory::write`].
    ///
    /// # Panics
    ///
    /// If the range is not inside.
    pub fn write(&self, offset: usize, from: &[u8]) {
        self.memory.write(offset, from);
    }
}

impl Deref for Mr {
    type Target = Region;

    fn deref(&self) -> &Region {
        &self.region
    }
}
