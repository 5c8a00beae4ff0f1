// SPDX-License-Identifier: GPL-2.0
//! Fast registration memory regions (FRMRs), which work requests register and invalidate.
//!
//! ```text
//!   CREATE ---> free --- REG_MR --------------> registered
//!                 ^                                 |
//!                 +-- LOCAL_INV, a peer's SEND_INV -+
//! ```
//!
//! A free FRMR has no memory. Its mapping, and what was read of its tables, end with the
//! registration: each registration begins with a list of its own. The tag of its key is that of the
//! last registration, and stays when that ends.

use crate::config::Config;
use crate::host::Mapping;
use crate::region::Range;
use crate::region::Region;
use crate::table::Table;
use core::ops::Deref;
use core::ops::DerefMut;
use qpair_abi::command::access;
use qpair_abi::command::FrmrContext;
use qpair_abi::entry::frmr_of;
use qpair_abi::entry::RegWqe;
use qpair_abi::status::Detail;
use qpair_abi::Number;

/// The access rights of an FRMR.
const RIGHTS: u8 = access::LOCAL_WRITE | access::REMOTE;

/// The registration in a block.
pub(crate) fn decode(words: &[u64]) -> RegWqe {
    words.first_chunk().map(RegWqe::decode).unwrap_or_default()
}

/// Whether a registration has known rights, and no reserved bit is set.
pub(crate) fn is_valid(words: &[u64]) -> bool {
    let mut reserved = words.iter().zip(RegWqe::RESERVED);
    let unknown = decode(words).access & !u32::from(RIGHTS);
    unknown == 0 && reserved.all(|(word, reserved)| word & reserved == 0)
}

/// An FRMR.
pub(crate) struct Frmr<M> {
    pub(crate) pd: Number,
    tag: u8,
    registered: Option<Region<M>>,
}

impl<M: Mapping> Frmr<M> {
    pub(crate) fn new(pd: Number) -> Self {
        Self {
            pd,
            tag: 0,
            registered: None,
        }
    }

    /// The context for QUERY.
    pub(crate) fn context(&self) -> FrmrContext {
        let free = FrmrContext {
            pd: self.pd,
            tag: self.tag,
            ..FrmrContext::default()
        };
        let registered = self.registered.as_ref();
        registered.map_or(free, |region| FrmrContext {
            access: region.access,
            valid: 1,
            addr: region.addr,
            buffer: region.described,
            ..free
        })
    }
}

/// All FRMRs.
pub(crate) struct Frmrs<M>(Table<Frmr<M>>);

impl<M> Deref for Frmrs<M> {
    type Target = Table<Frmr<M>>;
    fn deref(&self) -> &Table<Frmr<M>> {
        &self.0
    }
}

impl<M> DerefMut for Frmrs<M> {
    fn deref_mut(&mut self) -> &mut Table<Frmr<M>> {
        &mut self.0
    }
}

impl<M: Mapping> Frmrs<M> {
    /// For at most `limit` FRMRs, whose keys follow from `seed`.
    pub(crate) fn new(limit: u32, seed: u64) -> Self {
        Self(Table::with_secret(limit, seed, Number::FRMR_GENERATIONS))
    }

    /// The FRMR of this domain that a key names, whatever its tag, and the tag of the key.
    fn named(&self, pd: Number, key: u32) -> Result<(Number, u8), Detail> {
        let (number, tag) = frmr_of(key).ok_or(Detail::Key)?;
        let found = self.0.get(number).ok_or(Detail::Key)?;
        if found.pd != pd {
            return Err(Detail::Domain);
        }
        Ok((number, tag))
    }

    /// The byte at which a range begins, if its key is that of a registered FRMR of this domain which
    /// has this right.
    #[cold]
    pub(crate) fn at(&self, pd: Number, right: u8, range: Range) -> Result<u64, Detail> {
        let (number, tag) = self.named(pd, range.key.raw())?;
        let found = self.0.get(number).filter(|found| found.tag == tag);
        let region = found.and_then(|found| found.registered.as_ref());
        region.ok_or(Detail::Key)?.at(pd, right, range)
    }

    /// The region of a registered FRMR that a key names, whatever its tag.
    #[cold]
    pub(crate) fn region_mut(&mut self, key: u32) -> Option<&mut Region<M>> {
        let (number, _) = frmr_of(key)?;
        self.0.get_mut(number)?.registered.as_mut()
    }

    /// Registers an FRMR by a work request of a queue pair of this domain.
    pub(crate) fn register(
        &mut self,
        config: &Config,
        pd: Number,
        wqe: &RegWqe,
    ) -> Result<(), Detail> {
        let (number, tag) = self.named(pd, wqe.key)?;
        let found = self.0.get_mut(number).ok_or(Detail::Key)?;
        if found.registered.is_some() {
            return Err(Detail::State);
        }
        let list = Region::memory(config, wqe.addr, &wqe.buffer).ok_or(Detail::Range)?;
        found.tag = tag;
        found.registered = Some(Region {
            pd,
            // CAST: Checked with the work request.
            access: wqe.access as u8,
            flags: 0,
            addr: wqe.addr,
            list,
            described: wqe.buffer,
            windows: 0,
        });
        Ok(())
    }

    /// The FRMR of this domain with this key.
    fn by_key(&mut self, pd: Number, key: u32) -> Result<&mut Frmr<M>, Detail> {
        let (number, tag) = self.named(pd, key)?;
        let found = self.0.get_mut(number).ok_or(Detail::Key)?;
        if found.tag != tag {
            return Err(Detail::Key);
        }
        Ok(found)
    }

    /// Ends a registration by a work request of a queue pair of this domain. A free FRMR stays free.
    pub(crate) fn invalidate(&mut self, pd: Number, key: u32) -> Result<(), Detail> {
        let found = self.by_key(pd, key)?;
        found.registered = None;
        Ok(())
    }

    /// Ends a registration by a message of the peer of a queue pair of this domain.
    pub(crate) fn invalidate_by_peer(&mut self, pd: Number, key: u32) -> Result<(), Detail> {
        let found = self.by_key(pd, key)?;
        let region = found.registered.as_ref().ok_or(Detail::State)?;
        if region.access & access::REMOTE == 0 {
            return Err(Detail::Rights);
        }
        found.registered = None;
        Ok(())
    }
}
