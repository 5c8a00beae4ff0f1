// SPDX-License-Identifier: GPL-2.0
//! What lies in the rings.
//!
//! An SQ is an array of 64-byte blocks; a WQE takes 1 to [`MAX_BLOCKS`] of them,
//! one after the other, and may wrap. Its first four words are a [`SendWqe`]; then
//! come scatter/gather entries ([`Sge`], two words each), or, with
//! [`send_flags::INLINE`], the bytes themselves. An atomic begins with six words,
//! an [`AtomicWqe`], the bind of a memory window too, a [`BindWqe`]. The head of a WQE of a UD queue
//! pair is a block, a [`UdWqe`], and so is a fast registration, a [`RegWqe`].
//!
//! An RQ or SRQ is an array of WQEs of one stride, `64 << shift` bytes: two words of
//! [`RecvWqe`], then SGEs.
//!
//! A [`Cqe`] and an [`Eqe`] are valid when the [`OWNER`] bit of their **last word**
//! differs from bit `log2 depth` of their index. The device writes that word last,
//! with the rest of the entry already in memory; software reads it first, alone,
//! then a read barrier, then the rest.

use super::command::BufferList;
use super::Number;

#[cfg(not(MODULE))]
mod process;

#[cfg(not(MODULE))]
pub use self::process::*;
#[cfg(not(MODULE))]
use super::layout;

/// Most payload bytes of a datagram.
pub const DATAGRAM_BYTES: usize = 4096;
/// The bit of a [`UdWqe`]'s Q_Key that selects the sender's own.
pub const OWN_Q_KEY: u32 = 0x80000000;
/// Bytes of the global route header (GRH) that a datagram has in front of its payload.
pub const GRH_BYTES: usize = 40;
/// Bytes of an operand of an atomic, which is aligned to as many.
pub const ATOMIC_BYTES: usize = 8;
/// Bytes of an SQ block.
pub const BLOCK_BYTES: usize = 64;
/// Words of an SQ block.
pub const BLOCK_WORDS: usize = BLOCK_BYTES / 8;
/// Most blocks of a WQE.
pub const MAX_BLOCKS: usize = 4;
/// Most memory windows of a function.
pub const MAX_WINDOWS: u32 = 1 << 12;
/// Largest shift of an RQ's stride, `64 << shift` bytes.
pub const MAX_STRIDE_SHIFT: u8 = 2;

/// Most bytes of inline data that a WQE of `blocks` blocks holds.
pub const fn inline_bytes(blocks: usize) -> usize {
    blocks * BLOCK_BYTES - SendWqe::BYTES
}

/// Most SGEs that a WQE of a UD queue pair of `blocks` blocks holds.
pub const fn ud_sges(blocks: usize) -> usize {
    (blocks * BLOCK_WORDS - UdWqe::WORDS) / Sge::WORDS
}

/// Most bytes of inline data that a WQE of a UD queue pair of `blocks` blocks holds.
pub const fn ud_inline_bytes(blocks: usize) -> usize {
    blocks * BLOCK_BYTES - UdWqe::BYTES
}

/// The address of a network device as fields have it: bytes 0 to 3 as in memory, and 4 and 5.
pub const fn mac_parts([a, b, c, d, e, f]: [u8; 6]) -> (u32, u16) {
    (u32::from_le_bytes([a, b, c, d]), u16::from_le_bytes([e, f]))
}

/// Most that a flow label may be.
pub const MAX_FLOW_LABEL: u32 = 0xfffff;

impl UdWqe {
    /// Sets the flow label; bits that it has none of are left out.
    pub const fn set_flow_label(&mut self, label: u32) {
        // CAST: Its parts.
        self.flow_low = label as u16;
        self.flow_high = ((label & MAX_FLOW_LABEL) >> u16::BITS) as u8;
    }
}

/// Most SGEs that a receive WQE of stride `64 << shift` bytes holds.
pub const fn recv_sges(shift: u8) -> usize {
    ((BLOCK_WORDS << shift) - RecvWqe::WORDS) / Sge::WORDS
}

/// The smallest shift whose receive WQE holds `sges` SGEs; `None` if no receive WQE does.
pub fn recv_stride(sges: usize) -> Option<u8> {
    (0..=MAX_STRIDE_SHIFT).find(|&shift| recv_sges(shift) >= sges)
}

layout! {
    /// The head of a send work queue entry.
    pub struct SendWqe: 4 {
        /// What to do: one of [`opcode`].
        opcode: u8 = 0 @ 0,
        /// [`send_flags`]; one that is unknown makes the request fail.
        flags: u8 = 0 @ 8,
        /// Blocks that it takes, 1 to [`MAX_BLOCKS`].
        blocks: u8 = 0 @ 16,
        /// SGEs that follow; 0 with inline data.
        sges: u8 = 0 @ 24,
        /// Immediate data, given to the peer as it is; of a SEND_INV the key to invalidate there.
        imm: u32 = 0 @ 32,
        /// The poster's own, given back in the CQE.
        wr_id: u64 = 1 @ 0,
        /// Address in the peer's region (WRITE, READ, atomics).
        remote_addr: u64 = 2 @ 0,
        /// Key of the peer's region, window or FRMR; of a LOCAL_INV that of its own window or FRMR.
        rkey: u32 = 3 @ 0,
        /// Bytes of inline data that follow.
        inline_bytes: u32 = 3 @ 32,
    }
}

layout! {
    /// The head of a send work queue entry of a UD queue pair: a [`SendWqe`] with an address.
    pub struct UdWqe: 8 {
        /// As of a [`SendWqe`]: NOP, SEND or SEND_IMM.
        opcode: u8 = 0 @ 0,
        /// As of a [`SendWqe`].
        flags: u8 = 0 @ 8,
        /// As of a [`SendWqe`].
        blocks: u8 = 0 @ 16,
        /// As of a [`SendWqe`].
        sges: u8 = 0 @ 24,
        /// As of a [`SendWqe`].
        imm: u32 = 0 @ 32,
        /// As of a [`SendWqe`].
        wr_id: u64 = 1 @ 0,
        /// The queue pair of the destination.
        dest: Number = 2 @ 0,
        /// What the destination must have as its Q_Key. With [`OWN_Q_KEY`] set, that of the sender
        /// counts instead.
        q_key: u32 = 2 @ 32,
        /// Where the port's table has the GID that it is sent from, of a queue pair without one.
        source: u16 = 3 @ 0,
        /// Hop limit of the GRH; 0 stands for 1.
        hop_limit: u8 = 3 @ 16,
        /// Traffic class of the GRH.
        traffic_class: u8 = 3 @ 24,
        /// As of a [`SendWqe`], whose field is longer.
        inline_bytes: u8 = 3 @ 32,
        /// Flow label of the GRH, bits 16 to 19; the others are zero.
        flow_high: u8 = 3 @ 40,
        /// Flow label of the GRH, bits 0 to 15.
        flow_low: u16 = 3 @ 48,
        /// GID of the destination's port, bytes 0 to 7 as in memory.
        gid: u64 = 4 @ 0,
        /// GID of the destination's port, bytes 8 to 15.
        gid_high: u64 = 5 @ 0,
        /// The network device that leads to the destination, bytes 0 to 3 of the address as in
        /// memory; ignored within the function.
        mac_low: u32 = 6 @ 0,
        /// Bytes 4 and 5 of that address.
        mac_high: u16 = 6 @ 32,
        ..;
    }
}

layout! {
    /// The head of an atomic in a send queue: a [`SendWqe`] with operands. One SGE follows.
    pub struct AtomicWqe: 6 {
        /// As of a [`SendWqe`]: COMPARE_SWAP or FETCH_ADD.
        opcode: u8 = 0 @ 0,
        /// As of a [`SendWqe`].
        flags: u8 = 0 @ 8,
        /// As of a [`SendWqe`].
        blocks: u8 = 0 @ 16,
        /// 1: where the old value goes.
        sges: u8 = 0 @ 24,
        /// As of a [`SendWqe`].
        wr_id: u64 = 1 @ 0,
        /// Address in the peer's region, aligned to [`ATOMIC_BYTES`].
        remote_addr: u64 = 2 @ 0,
        /// Key of the peer's region.
        rkey: u32 = 3 @ 0,
        /// Must be 0: it has no inline data.
        inline_bytes: u32 = 3 @ 32,
        /// FETCH_ADD: what to add. COMPARE_SWAP: the value that is replaced.
        compare_add: u64 = 4 @ 0,
        /// COMPARE_SWAP: its new value.
        swap: u64 = 5 @ 0,
    }
}

layout! {
    /// The registration of an FRMR, in the send queue of a queue pair that registers. No SGE follows.
    pub struct RegWqe: 8 {
        /// As of a [`SendWqe`]: REG_MR.
        opcode: u8 = 0 @ 0,
        /// As of a [`SendWqe`].
        flags: u8 = 0 @ 8,
        /// As of a [`SendWqe`].
        blocks: u8 = 0 @ 16,
        /// Must be 0: it has no SGEs.
        sges: u8 = 0 @ 24,
        /// Rights of the FRMR: `LOCAL_WRITE` and `REMOTE_*` of
        /// [`access`](super::command::access).
        access: u32 = 0 @ 32,
        /// As of a [`SendWqe`].
        wr_id: u64 = 1 @ 0,
        /// Address of its first byte in its own address space.
        addr: u64 = 2 @ 0,
        /// Key that the FRMR gets: any of its own, with the new tag.
        key: u32 = 3 @ 0,
        /// Must be 0: it has no inline data.
        inline_bytes: u32 = 3 @ 32,
        ..;
        /// Its memory; `bytes` is its length.
        buffer: BufferList = 4,
    }
}

/// The bit that the keys of memory windows have, and those of regions have not.
pub const WINDOW_KEY: u32 = 0x80000000;

/// The key of a memory window with this number, and a tag of the software's choice:
/// [`WINDOW_KEY`], 11 bits of generation, 12 of index, 8 of tag.
pub const fn window_key(window: Number, tag: u8) -> u32 {
    let generation = window.generation() as u32 & Number::MW_GENERATIONS as u32;
    let index = window.index() as u32 & (MAX_WINDOWS - 1);
    WINDOW_KEY | generation << 20 | index << 8 | tag as u32
}

/// The bit that the keys of FRMRs have, without [`WINDOW_KEY`]; those of regions have neither.
pub const FRMR_KEY: u32 = 0x40000000;

/// The key of an FRMR with this number, and a tag of the software's choice: [`FRMR_KEY`], 6 bits of
/// generation, 16 of index, 8 of tag.
pub const fn frmr_key(frmr: Number, tag: u8) -> u32 {
    let generation = frmr.generation() as u32 & Number::FRMR_GENERATIONS as u32;
    FRMR_KEY | generation << 24 | (frmr.index() as u32) << 8 | tag as u32
}

layout! {
    /// The head of a receive work queue entry.
    pub struct RecvWqe: 2 {
        /// SGEs that follow.
        sges: u8 = 0 @ 0,
        /// The poster's own, given back in the CQE.
        wr_id: u64 = 1 @ 0,
    }
}

layout! {
    /// A piece of a memory region: `struct ibv_sge` of libibverbs.
    #[repr(C)]
    pub struct Sge: 2 {
        /// First byte, an address of the region's own address space.
        addr: u64 = 0 @ 0,
        /// Bytes; 0 is nothing, and its key is not looked at.
        bytes: u32 = 1 @ 0,
        /// Key of the region.
        lkey: u32 = 1 @ 32,
    }
}

/// What a send work request does.
pub mod opcode {
    /// Does nothing, and completes.
    pub const NOP: u8 = 0;
    /// Fills the peer's next receive.
    pub const SEND: u8 = 1;
    /// As [`SEND`], and its CQE carries 32 bits of immediate data.
    pub const SEND_IMM: u8 = 2;
    /// Writes the peer's memory.
    pub const WRITE: u8 = 3;
    /// As [`WRITE`], and takes the peer's next receive for a CQE with immediate data.
    pub const WRITE_IMM: u8 = 4;
    /// Reads the peer's memory.
    pub const READ: u8 = 5;
    /// Compares and swaps 8 bytes of the peer's memory.
    pub const COMPARE_SWAP: u8 = 6;
    /// Adds to 8 bytes of the peer's memory.
    pub const FETCH_ADD: u8 = 7;
    /// Completes when what was written before it is where it has to be.
    pub const FLUSH: u8 = 11;
    /// Writes 8 bytes of the peer's memory at once.
    pub const ATOMIC_WRITE: u8 = 12;
    /// Binds a memory window.
    pub const BIND: u8 = 8;
    /// Invalidates a memory window or an FRMR of its own.
    pub const LOCAL_INV: u8 = 9;
    /// As [`SEND`], and invalidates a memory window or an FRMR of the peer.
    pub const SEND_INV: u8 = 10;
    /// Registers an FRMR.
    pub const REG_MR: u8 = 13;
    /// In CQEs only: a receive that a SEND filled.
    pub const RECV: u8 = 0x80;
    /// In CQEs only: a receive that a WRITE with immediate took.
    pub const RECV_WRITE_IMM: u8 = 0x81;
}

/// How a send work request is done.
pub mod send_flags {
    /// Writes a CQE when done. One that fails always does.
    pub const SIGNALED: u8 = 1 << 0;
    /// The peer's CQE is solicited.
    pub const SOLICITED: u8 = 1 << 1;
    /// Starts when all READs and atomics before it are done.
    pub const FENCE: u8 = 1 << 2;
    /// The data follow in the WQE.
    pub const INLINE: u8 = 1 << 3;
    /// All that are known; others make the request fail.
    pub const ALL: u8 = SIGNALED | SOLICITED | FENCE | INLINE;
}

/// The owner bit of the last word of a CQE or EQE: 1 in the ring's first pass, then 0, and so on.
pub const OWNER: u64 = 1 << 63;

layout! {
    /// A completion queue entry; [`OWNER`] is the top bit of its last word.
    pub struct Cqe: 4 {
        /// `wr_id` of the work request.
        wr_id: u64 = 0 @ 0,
        /// The queue pair of the request.
        qp: Number = 1 @ 0,
        /// Bytes received or read; for an admin command the first result.
        bytes: u32 = 1 @ 32,
        /// Immediate data, or the key that was invalidated; for an admin command the second result.
        imm: u32 = 2 @ 0,
        /// Consumer index of the work queue past this work request: it and all before it,
        /// unsignaled ones included, are done. Of a receive of an SRQ, the index past this one
        /// alone.
        index: u32 = 2 @ 32,
        /// The peer's QP number (UD); for an admin command the third result.
        src: u32 = 3 @ 0,
        /// What was done: one of [`opcode`].
        opcode: u8 = 3 @ 32,
        /// How it went: a [status](super::status::Status).
        status: u8 = 3 @ 40,
        /// Detail: a [reason](super::status::Detail), or an
        /// [admin error](super::status::AdminError).
        vendor: u8 = 3 @ 48,
        /// [`cqe_flags`].
        flags: u8 = 3 @ 56,
    }
}

impl Cqe {
    /// The bits of the last word that are 0 in the entry of a send that succeeded, and not all 0 in
    /// others.
    pub const NOT_SENT: u64 = (u8::MAX as u64) << 40 | (cqe_flags::RECV as u64) << 56;
}

/// What else a CQE says. The top bit of this byte is [`OWNER`].
pub mod cqe_flags {
    /// It is of the receive queue; `index` counts there.
    pub const RECV: u8 = 1 << 0;
    /// `imm` is valid.
    pub const IMM: u8 = 1 << 1;
    /// The sender asked for a solicited event.
    pub const SOLICITED: u8 = 1 << 2;
    /// The receive begins with a GRH (UD).
    pub const GRH: u8 = 1 << 3;
    /// The GRH is a header of IPv4, in its last 20 bytes (UD).
    pub const IPV4: u8 = 1 << 4;
    /// `imm` is the key of the memory window or FRMR that the sender has invalidated.
    pub const INV: u8 = 1 << 6;
}

layout! {
    /// An event queue entry; [`OWNER`] is the top bit of its last word.
    pub struct Eqe: 2 {
        /// The CQ, QP or SRQ that it is about; for a doorbell violation the page.
        number: Number = 0 @ 0,
        /// How often it happened since the last event of this object and kind.
        count: u32 = 0 @ 32,
        /// What happened: an [event](super::status::Event).
        kind: u8 = 1 @ 0,
        /// Detail: of a QP in the error state the status, of a fatal device the cause.
        code: u8 = 1 @ 8,
    }
}
