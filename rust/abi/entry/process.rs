// SPDX-License-Identifier: GPL-2.0
//! What processes alone post, and what the device alone reads in an entry.

use super::mac_parts;
use super::SendWqe;
use super::Sge;
use super::UdWqe;
use super::BLOCK_WORDS;
use super::FRMR_KEY;
use super::MAX_WINDOWS;
use super::WINDOW_KEY;
use crate::Number;

/// Most SGEs that a WQE of `blocks` blocks holds.
pub const fn send_sges(blocks: usize) -> usize {
    (blocks * BLOCK_WORDS - SendWqe::WORDS) / Sge::WORDS
}

impl UdWqe {
    /// The flow label of the GRH, 20 bits.
    pub const fn flow_label(&self) -> u32 {
        // CAST: Wider.
        (self.flow_high as u32) << u16::BITS | self.flow_low as u32
    }

    /// Word 3 of an address alone: a send has its inline bytes besides.
    pub fn route(source: u16, hop_limit: u8, traffic_class: u8, flow_label: u32) -> u64 {
        let mut wqe = Self {
            source,
            hop_limit,
            traffic_class,
            ..Self::default()
        };
        wqe.set_flow_label(flow_label);
        let [_, _, _, route, ..] = wqe.encode();
        route
    }

    /// Word 6 of an address alone.
    pub fn mac(mac: [u8; 6]) -> u64 {
        let (mac_low, mac_high) = mac_parts(mac);
        let wqe = Self {
            mac_low,
            mac_high,
            ..Self::default()
        };
        let [_, _, _, _, _, _, mac, _] = wqe.encode();
        mac
    }
}

layout! {
    /// A FLUSH in a send queue: a [`SendWqe`] of which other fields are used.
    pub struct FlushWqe: 6 {
        /// As of a [`SendWqe`]: FLUSH.
        opcode: u8 = 0 @ 0,
        /// As of a [`SendWqe`].
        flags: u8 = 0 @ 8,
        /// As of a [`SendWqe`].
        blocks: u8 = 0 @ 16,
        /// Must be 0: it has no SGEs.
        sges: u8 = 0 @ 24,
        /// [`flush`]: at least one kind.
        kinds: u8 = 0 @ 32,
        /// 0: the range; 1: the whole region, whatever the range.
        whole: u8 = 0 @ 40,
        /// As of a [`SendWqe`].
        wr_id: u64 = 1 @ 0,
        /// Address in the peer's region.
        remote_addr: u64 = 2 @ 0,
        /// Key of the peer's region.
        rkey: u32 = 3 @ 0,
        /// Must be 0: it has no inline data.
        inline_bytes: u32 = 3 @ 32,
        /// Bytes of the range.
        bytes: u64 = 4 @ 0,
        ..;
    }
}

/// What a FLUSH waits for.
pub mod flush {
    /// All see what was written.
    pub const GLOBAL: u8 = 1 << 0;
    /// What was written outlives a loss of power, if the memory does.
    pub const PERSISTENT: u8 = 1 << 1;
}

layout! {
    /// The bind of a memory window, in a send queue. No SGE follows.
    pub struct BindWqe: 6 {
        /// As of a [`SendWqe`]: BIND.
        opcode: u8 = 0 @ 0,
        /// As of a [`SendWqe`].
        flags: u8 = 0 @ 8,
        /// As of a [`SendWqe`].
        blocks: u8 = 0 @ 16,
        /// Must be 0: it has no SGEs.
        sges: u8 = 0 @ 24,
        /// Rights of the window: `REMOTE_*` and `ZERO_BASED` of
        /// [`access`](crate::command::access).
        access: u32 = 0 @ 32,
        /// As of a [`SendWqe`].
        wr_id: u64 = 1 @ 0,
        /// First byte of the window, an address of the region.
        addr: u64 = 2 @ 0,
        /// A key of the window, with any tag.
        window: u32 = 3 @ 0,
        /// Must be 0: it has no inline data.
        inline_bytes: u32 = 3 @ 32,
        /// Length of the window in bytes; 0 unbinds one of type 1.
        bytes: u64 = 4 @ 0,
        /// Key of the region.
        region: u32 = 5 @ 0,
        /// Key that the window gets: `window` with the new tag.
        new_key: u32 = 5 @ 32,
    }
}

/// Number and tag of a memory window with this key; `None` if it is no window's.
#[inline]
pub const fn window_of(key: u32) -> Option<(Number, u8)> {
    if key & WINDOW_KEY == 0 {
        return None;
    }
    let index = (key >> 8 & (MAX_WINDOWS - 1)) as u16;
    let generation = (key >> 20) as u16 & Number::MW_GENERATIONS;
    Some((Number::new(index, generation), key as u8))
}

/// Number and tag of an FRMR with this key; `None` if it is no FRMR's.
#[inline]
pub const fn frmr_of(key: u32) -> Option<(Number, u8)> {
    if key & (WINDOW_KEY | FRMR_KEY) != FRMR_KEY {
        return None;
    }
    let generation = (key >> 24) as u16 & Number::FRMR_GENERATIONS;
    Some((Number::new((key >> 8) as u16, generation), key as u8))
}
