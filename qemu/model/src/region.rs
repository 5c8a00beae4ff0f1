// SPDX-License-Identifier: GPL-2.0
//! A memory region: its domain, its rights, its addresses and its memory.

use crate::config::Config;
use crate::host::Mapping;
use crate::list::List;
use qpair_abi::command::BufferList;
use qpair_abi::command::MrContext;
use qpair_abi::status::Detail;
use qpair_abi::Number;

/// A memory region.
pub(crate) struct Region<M> {
    pub(crate) pd: Number,
    pub(crate) access: u8,
    pub(crate) flags: u8,
    /// Its first byte in its own address space.
    pub(crate) addr: u64,
    pub(crate) list: List<M>,
    pub(crate) described: BufferList,
    /// Windows that are bound to it.
    pub(crate) windows: u32,
}

/// A range of a region, as software names it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Range {
    pub(crate) key: Number,
    pub(crate) addr: u64,
    pub(crate) bytes: u64,
}

impl<M: Mapping> Region<M> {
    /// The memory of a region whose first byte has this address. `None` if the list is invalid, or
    /// exceeds the limit or the address space.
    pub(crate) fn memory(config: &Config, addr: u64, list: &BufferList) -> Option<List<M>> {
        let most = 1u64 << (config.log_region & 63);
        // The last byte may be the last of the address space.
        let last = list.bytes.saturating_sub(1);
        if list.bytes > most || addr.checked_add(last).is_none() {
            return None;
        }
        List::new(list, config.page_limits(), 1)
    }

    /// The byte at which a range begins, if the range lies in this region, which is of this domain
    /// and has this right; 0 is no right.
    #[inline]
    pub(crate) fn at(&self, pd: Number, right: u8, range: Range) -> Result<u64, Detail> {
        if self.pd != pd {
            return Err(Detail::Domain);
        }
        if self.access & right != right {
            return Err(Detail::Rights);
        }
        let at = range.addr.checked_sub(self.addr).ok_or(Detail::Range)?;
        let end = at.checked_add(range.bytes).ok_or(Detail::Range)?;
        if end > self.list.shape().bytes() {
            return Err(Detail::Range);
        }
        Ok(at)
    }

    /// The context for QUERY.
    pub(crate) fn context(&self) -> MrContext {
        MrContext {
            pd: self.pd,
            access: self.access,
            flags: self.flags,
            addr: self.addr,
            buffer: self.described,
        }
    }
}
