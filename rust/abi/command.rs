// SPDX-License-Identifier: GPL-2.0
//! Admin commands, and the contexts that they name.
//!
//! A command is a one-block WQE in the SQ of queue pair 0 whose first words are a [`Command`]; the
//! other four are zero. Commands complete in CQ 0, in order, each with a CQE that carries the
//! command's `wr_id` and, where the table says so, results in `bytes`, `imm` and `src` (in this
//! order). A refused one has [`Status::General`] and an [`AdminError`].
//!
//! | command | context | results |
//! |---|---|---|
//! | `CREATE EQ, CQ, QP, MR, SRQ, MW, FRMR` | read: what it shall be | its number (for an MR: its key) |
//! | `CREATE PD` | none | its number |
//! | `MODIFY EQ` | read: moderation | none |
//! | `MODIFY CQ` | read: depth and ring of a resize | index past the last entry in the old ring; index of the first in the new one |
//! | `MODIFY QP` | read: the attributes of `mask` | to RESET: producer indices of its send CQ, of its receive CQ, of EQ 0 |
//! | `MODIFY SRQ` | read: the limit, the ring | none |
//! | `MODIFY MR` | read: what `mask` selects | none |
//! | `MODIFY GID` | read: the GID; `number` is its index | none |
//! | `QUERY GID` | written: the GID; `number` is its index | none |
//! | `ATTACH QP`, `DETACH QP` | read: the GID of a group | none |
//! | `MODIFY PAGE` | none; `number` is the page's index | doorbell violations of this page since the last time; its next violation is reported again |
//! | `QUERY PAGE` | none; `number` is the page's index | destroyed queue pairs of this page whose index is not free; the same of CQs; of SRQs |
//! | `QUERY EQ, CQ, QP, MR, SRQ, MW, FRMR` | written: what it is | none |
//! | `QUERY DEVICE` | written: [`counters`](super::counters) | none |
//! | `DESTROY EQ, MR, PD, MW, FRMR` | none | none |
//! | `DESTROY CQ` | none | producer index of its EQ, 0, producer index of EQ 0 |
//! | `DESTROY QP` | none | producer indices of its send CQ, of its receive CQ, of EQ 0 |
//! | `DESTROY SRQ` | none | 0, 0, producer index of EQ 0 |
//!
//! When a DESTROY or a MODIFY to RESET completes, no DMA of the object is under way and none will
//! come, and its events that still waited in the device are dropped. Its entries that are before
//! the reported indices are still in the rings; the device gives the index of its number to no
//! other object before the rings' heads have passed them.
//!
//! A ring's memory is zero when its object is created, and again when a queue pair's was reset.
//!
//! [`Status::General`]: super::status::Status::General
//! [`AdminError`]: super::status::AdminError

use super::Number;

/// Kinds of object, the high half of a command's opcode.
pub mod kind {
    /// Event queue.
    pub const EQ: u8 = 1;
    /// Completion queue.
    pub const CQ: u8 = 2;
    /// Queue pair.
    pub const QP: u8 = 3;
    /// Memory region.
    pub const MR: u8 = 4;
    /// Protection domain.
    pub const PD: u8 = 5;
    /// Shared receive queue.
    pub const SRQ: u8 = 6;
    /// Doorbell page; there from the start.
    pub const PAGE: u8 = 7;
    /// The function itself: its counters.
    pub const DEVICE: u8 = 8;
    /// Memory window.
    pub const MW: u8 = 9;
    /// Entry of the port's table of GIDs; there from the start.
    pub const GID: u8 = 10;
    /// Fast registration memory region.
    pub const FRMR: u8 = 11;
}

/// What to do with one, the low half of a command's opcode.
pub mod verb {
    /// Creates an object; the completion has its number.
    pub const CREATE: u8 = 1;
    /// Changes the attributes that the mask names.
    pub const MODIFY: u8 = 2;
    /// Writes the context of an object to memory.
    pub const QUERY: u8 = 3;
    /// Destroys an object, whose number may be used again at once.
    pub const DESTROY: u8 = 4;
    /// Make it a member of a group (a queue pair).
    pub const ATTACH: u8 = 5;
    /// Ends the membership of a queue pair in a group.
    pub const DETACH: u8 = 6;
}

/// The opcode of a command.
pub const fn opcode(kind: u8, verb: u8) -> u8 {
    kind << 4 | verb
}

layout! {
    /// An admin command, laid out as a [`SendWqe`](super::entry::SendWqe).
    pub struct Command: 4 {
        /// [`opcode()`] of [`kind`] and [`verb`].
        opcode: u8 = 0 @ 0,
        /// [`SIGNALED`](super::entry::send_flags::SIGNALED); a command always completes.
        flags: u8 = 0 @ 8,
        /// The length of a command is 1 block.
        blocks: u8 = 0 @ 16,
        /// The object; for a page or a GID its index; 0 for CREATE and for the device.
        number: Number = 0 @ 32,
        /// The driver's own, given back in the CQE.
        wr_id: u64 = 1 @ 0,
        /// DMA address of the context, aligned to 64 bytes.
        context: u64 = 2 @ 0,
        /// Attributes that a MODIFY changes: of a QP [`qp_mask`], of an MR [`mr_mask`], of an SRQ
        /// [`srq_mask`]; else 0.
        mask: u32 = 3 @ 0,
        /// Bytes of the context: a multiple of 8, at most [`MAX_CONTEXT_BYTES`]; 0 where there is
        /// none.
        context_bytes: u32 = 3 @ 32,
    }
}

/// The most bytes of a context. One that is shorter than its type ends early: the words that it
/// lacks are zero when read, and not written. One that is longer has words that the device does
/// not know: they must be zero when read, and are written as zero.
pub const MAX_CONTEXT_BYTES: u32 = 4096;

layout! {
    /// Where a ring or region lies: its bytes are `bytes` bytes of a list of pages, from byte
    /// `offset` of the first.
    ///
    /// | levels | `root` is the DMA address of |
    /// |---|---|
    /// | 0 | the block itself, contiguous; `offset` and `page_shift` are 0 |
    /// | 1 | a contiguous table of the pages' DMA addresses, 8 bytes each |
    /// | 2 | a contiguous table of the DMA addresses of leaf tables, each 4 KiB with 512 pages' addresses |
    pub struct BufferList: 3 {
        /// DMA address; aligned to 8 bytes if a table, to 64 if a ring.
        root: u64 = 0 @ 0,
        /// Length in bytes.
        bytes: u64 = 1 @ 0,
        /// First byte in the first page; less than a page.
        offset: u32 = 2 @ 0,
        /// Base-two logarithm of the page size.
        page_shift: u8 = 2 @ 32,
        /// Levels of tables above the pages, 0 to 2.
        levels: u8 = 2 @ 40,
    }
}

layout! {
    /// The context of an EQ: input of CREATE and MODIFY, output of QUERY.
    pub struct EqContext: 8 {
        /// The MSI-X vector of its interrupt.
        vector: u16 = 0 @ 0,
        /// Base-two logarithm of its entries.
        log_depth: u8 = 0 @ 16,
        /// Moderation: raise when this many events wait ...
        moderation_count: u16 = 0 @ 32,
        /// ... or the oldest has waited this many microseconds. Both or neither are 0.
        moderation_usecs: u16 = 0 @ 48,
        /// Entries that the device has written (queried).
        producer: u32 = 1 @ 0,
        /// Head that was published last (queried).
        consumer: u32 = 1 @ 32,
        ..;
        /// The buffer list of its ring.
        buffer: BufferList = 2,
    }
}

layout! {
    /// The context of a CQ: input of CREATE and MODIFY, output of QUERY.
    pub struct CqContext: 8 {
        /// The EQ that it reports to.
        eq: Number = 0 @ 0,
        /// The doorbell page that it answers to.
        page: u16 = 0 @ 32,
        /// Base-two logarithm of its entries.
        log_depth: u8 = 0 @ 48,
        /// [`cq_flags`].
        flags: u8 = 0 @ 56,
        /// Entries that the device has written (queried).
        producer: u32 = 1 @ 0,
        /// Head that was published last (queried).
        consumer: u32 = 1 @ 32,
        ..;
        /// The buffer list of its ring.
        buffer: BufferList = 2,
    }
}

/// Flags of a CQ.
pub mod cq_flags {
    /// A process arms it: at most one event of it is in the EQ at a time, and an arm that comes
    /// while one is there is remembered until the EQ's head passes it.
    pub const USER: u8 = 1 << 0;
    /// It had no room once, its queue pairs were stopped, and it can only be destroyed (queried).
    pub const OVERRUN: u8 = 1 << 1;
}

layout! {
    /// The context of a queue pair: input of CREATE and MODIFY, output of QUERY.
    pub struct QpContext: 20 {
        /// The domain whose regions it may name.
        pd: Number = 0 @ 0,
        /// The doorbell page that it answers to.
        page: u16 = 0 @ 32,
        /// [`service`].
        service: u8 = 0 @ 48,
        /// [`qp_state`]; created in RESET.
        state: u8 = 0 @ 56,
        /// The CQ of its SQ.
        send_cq: Number = 1 @ 0,
        /// The CQ of its RQ.
        recv_cq: Number = 1 @ 32,
        /// The SRQ in place of an RQ, or 0. With one, the fields of the RQ are 0.
        srq: Number = 2 @ 0,
        /// Base-two logarithm of its SQ's blocks.
        log_sq: u8 = 2 @ 32,
        /// Base-two logarithm of its RQ's WQEs.
        log_rq: u8 = 2 @ 40,
        /// Its RQ's stride is `64 << rq_stride` bytes.
        rq_stride: u8 = 2 @ 48,
        /// 1: it is queue pair 1 of the port as well (UD); else 0.
        port_qp: u8 = 2 @ 56,
        /// The only queue pair that it talks to (RC, UC).
        peer: Number = 3 @ 0,
        /// Function of the peer: 0, which is this one.
        peer_function: u32 = 3 @ 32,
        /// What a UD sender must know (UD).
        q_key: u32 = 4 @ 0,
        /// What its peer may do: `REMOTE_*` of [`access`].
        access: u8 = 4 @ 32,
        /// Retries when the peer does not answer, 0 to 7.
        retry: u8 = 4 @ 40,
        /// Retries when the peer has no receive posted, 0 to 6; 7 is for ever.
        rnr_retry: u8 = 4 @ 48,
        /// 1 in SQD while a request that was begun is not finished, else 0 (queried).
        draining: u8 = 4 @ 56,
        /// SQ blocks handed over (queried).
        sq_producer: u32 = 5 @ 0,
        /// SQ blocks done (queried).
        sq_consumer: u32 = 5 @ 32,
        /// RQ WQEs handed over (queried).
        rq_producer: u32 = 6 @ 0,
        /// RQ WQEs taken (queried).
        rq_consumer: u32 = 6 @ 32,
        /// How long it waits for an answer before a retry (RC): 0 is the device's interval, 1 to 31
        /// are `4.096 us << timeout`, 32 is without end.
        timeout: u8 = 7 @ 0,
        /// How long its peer waits before it retries a message for which this queue pair had no
        /// receive (RC): 0 is the device's interval, 1 to 31 are the codes of verbs, 32 is code 0
        /// of verbs.
        min_rnr_timer: u8 = 7 @ 8,
        /// [`qp_flags`].
        flags: u8 = 7 @ 16,
        /// Base-two logarithm of the most payload of a packet, 8 to 12 (RC, UC; with `path`).
        log_mtu: u8 = 7 @ 24,
        /// Where the port's table has the GID that it sends from (RC, UC; with `path`).
        source: u16 = 7 @ 32,
        /// READs and atomics of its own that may be in flight, at most [`READS`] (RC; with `sq_psn`).
        reads: u8 = 7 @ 48,
        /// The same of its peer (RC; with `path`).
        peer_reads: u8 = 7 @ 56,
        /// GID of its port, bytes 0 to 7 as in memory (UD); of the peer's port (RC, UC; with `peer`).
        /// 0 of UD: the port's table has it. 0 of a peer: its port is this one.
        gid: u64 = 14 @ 0,
        /// Bytes 8 to 15 of that GID.
        gid_high: u64 = 15 @ 0,
        /// The network device that leads to its peer, bytes 0 to 3 of the address as in memory (RC,
        /// UC; with `path`).
        mac_low: u32 = 16 @ 0,
        /// Bytes 4 and 5 of that address.
        mac_high: u16 = 16 @ 32,
        /// Traffic class of the packets (RC, UC; with `path`).
        traffic_class: u8 = 16 @ 48,
        /// Hop limit of the packets; 0 stands for 64 (RC, UC; with `path`).
        hop_limit: u8 = 16 @ 56,
        /// PSN of the first packet that it sends, 24 bits (RC, UC).
        sq_psn: u32 = 17 @ 0,
        /// PSN of the first packet that it expects, 24 bits (RC, UC; with `path`).
        rq_psn: u32 = 17 @ 32,
        /// Flow label of the packets, 20 bits (RC, UC; with `path`).
        flow_label: u32 = 18 @ 0,
        /// PSN of the oldest packet that has no acknowledgement; `sq_psn` if each has one (RC by
        /// frames; queried, as all that follow).
        acked_psn: u32 = 18 @ 32,
        /// Requests that were begun and are not completed.
        in_flight: u8 = 19 @ 0,
        /// Packets that may be in flight.
        room: u8 = 19 @ 8,
        /// How often what is in flight was sent again without progress.
        repeats: u8 = 19 @ 16,
        /// [`waits_for`].
        waits_for: u8 = 19 @ 24,
        ..;
        /// The buffer list of the SQ.
        sq: BufferList = 8,
        /// The buffer list of the RQ.
        rq: BufferList = 11,
    }
}

/// Most READs and atomics of a queue pair that are in flight on the network.
pub const READS: u8 = 16;

/// What the requester of a reliable connection by frames waits for, as bits.
pub mod waits_for {
    /// An acknowledgement, until its timeout.
    pub const ANSWER: u8 = 1 << 0;
    /// A receive of its peer, which was not ready.
    pub const RECEIVER: u8 = 1 << 1;
    /// Room, or an answer, before it begins another request.
    pub const ROOM: u8 = 1 << 2;
}

/// Flags of a queue pair, from its creation on.
pub mod qp_flags {
    /// A datagram that it sends to a group is not copied to itself (UD).
    pub const NO_OWN_COPY: u8 = 1 << 0;
    /// Its SQ registers FRMRs, by DMA addresses (RC). A driver gives no process such a queue pair.
    pub const REGISTERS: u8 = 1 << 1;
}

/// Timers of a queue pair: 0 is the device's own interval, 1 to 31 are the codes of verbs, and
/// [`ZERO`](timer::ZERO) is code 0 of verbs.
pub mod timer {
    /// Code 0 of verbs: of `timeout` no end, of `min_rnr_timer` the longest.
    pub const ZERO: u8 = 32;
}

/// Services of a queue pair.
pub mod service {
    /// Reliable connected, in order and acknowledged.
    pub const RC: u8 = 0;
    /// Unreliable datagram.
    pub const UD: u8 = 1;
    /// Unreliable connected.
    pub const UC: u8 = 2;
}

/// States of a queue pair.
pub mod qp_state {
    /// Made, or made new: nothing is posted, nothing happens.
    pub const RESET: u8 = 0;
    /// Receives may be posted.
    pub const INIT: u8 = 1;
    /// Ready to receive: takes what its peer sends.
    pub const RTR: u8 = 2;
    /// Ready to send: works its SQ as well.
    pub const RTS: u8 = 3;
    /// Drained: starts nothing new from its SQ.
    pub const SQD: u8 = 4;
    /// Error: flushes what is posted.
    pub const ERROR: u8 = 5;
}

/// Attributes that a MODIFY of a queue pair changes.
pub mod qp_mask {
    /// `state`; every way to RESET and to ERROR, else RESET, INIT, RTR, RTS in order, RTS to SQD
    /// and back.
    pub const STATE: u32 = 1 << 0;
    /// `peer`, `peer_function` and the GID of its port; in INIT, or together with the step to RTR.
    pub const PEER: u32 = 1 << 1;
    /// `access`.
    pub const ACCESS: u32 = 1 << 2;
    /// `retry` and `rnr_retry`.
    pub const RETRY: u32 = 1 << 3;
    /// `q_key`.
    pub const Q_KEY: u32 = 1 << 4;
    /// `timeout` and `min_rnr_timer`.
    pub const TIMERS: u32 = 1 << 6;
    /// No attribute: with the step to SQD it asks for an event when the SQ has drained.
    pub const NOTIFY: u32 = 1 << 5;
    /// The way of frames to a peer at another port: `mac_low`, `mac_high`, `source`, `log_mtu`,
    /// `traffic_class`, `hop_limit`, `flow_label`, `rq_psn` and `peer_reads`; together with `PEER`
    /// (RC, UC).
    pub const PATH: u32 = 1 << 7;
    /// `sq_psn` and `reads`; together with the step from RTR to RTS (RC, UC).
    pub const SQ_PSN: u32 = 1 << 8;
    /// All known bits; a MODIFY with another is refused.
    pub const ALL: u32 = STATE | PEER | ACCESS | RETRY | Q_KEY | NOTIFY | TIMERS | PATH | SQ_PSN;
}

/// Access rights of a region, and of a peer.
pub mod access {
    /// Receives and READs of the owner may fill it.
    pub const LOCAL_WRITE: u8 = 1 << 0;
    /// The peer may write it.
    pub const REMOTE_WRITE: u8 = 1 << 1;
    /// The peer may read it.
    pub const REMOTE_READ: u8 = 1 << 2;
    /// The peer may do atomics on it.
    pub const REMOTE_ATOMIC: u8 = 1 << 3;
    /// Windows may be bound to it (of a region).
    pub const BIND: u8 = 1 << 4;
    /// The peer's addresses are offsets in it (of a window of type 2).
    pub const ZERO_BASED: u8 = 1 << 5;
    /// The peer may flush it so that all see what was written.
    pub const FLUSH_GLOBAL: u8 = 1 << 6;
    /// The peer may flush it so that what was written outlives a loss of power.
    pub const FLUSH_PERSISTENT: u8 = 1 << 7;
    /// All that a window can give a peer.
    pub const REMOTE: u8 = REMOTE_WRITE | REMOTE_READ | REMOTE_ATOMIC;
    /// All that a queue pair can give its peer.
    pub const GRANTS: u8 = REMOTE | FLUSH_GLOBAL | FLUSH_PERSISTENT;
    /// All that are known of a region.
    pub const ALL: u8 = LOCAL_WRITE | GRANTS | BIND;

    /// Whether a region with these rights is ever written.
    pub const fn writes(rights: u8) -> bool {
        rights & (LOCAL_WRITE | REMOTE_WRITE | REMOTE_ATOMIC) != 0
    }
}

layout! {
    /// A memory region's context. Its number is its key, local and remote.
    pub struct MrContext: 8 {
        /// The domain that it belongs to.
        pd: Number = 0 @ 0,
        /// Rights: [`access`].
        access: u8 = 0 @ 32,
        /// [`mr_flags`].
        flags: u8 = 0 @ 48,
        /// Address of its first byte in its own address space (a process: the virtual address).
        addr: u64 = 1 @ 0,
        ..;
        /// Its memory; `bytes` is the region's length.
        buffer: BufferList = 2,
    }
}

/// Attributes that a MODIFY of a memory region changes.
pub mod mr_mask {
    /// `addr` and `buffer`.
    pub const MEMORY: u32 = 1 << 0;
    /// `pd`.
    pub const PD: u32 = 1 << 1;
    /// `access`.
    pub const ACCESS: u32 = 1 << 2;
    /// All known bits; a MODIFY with another is refused.
    pub const ALL: u32 = MEMORY | PD | ACCESS;
}

layout! {
    /// The domain and the type of a memory window that is created.
    pub struct MwContext: 8 {
        /// The domain that it belongs to.
        pd: Number = 0 @ 0,
        /// [`mw_type`].
        kind: u8 = 0 @ 32,
        /// Rights: `REMOTE_*` and `ZERO_BASED` of [`access`] (queried).
        access: u8 = 0 @ 40,
        /// The tag of its [key](super::entry::window_key) as it is now (queried).
        tag: u8 = 0 @ 48,
        /// The region that it is bound to, or 0 (queried).
        region: Number = 1 @ 0,
        /// Of a bound window of type 2 the queue pair that bound it (queried).
        qp: Number = 1 @ 32,
        /// Its first byte, an address of the region (queried).
        addr: u64 = 2 @ 0,
        /// Its length in bytes (queried).
        bytes: u64 = 3 @ 0,
    }
}

/// Types of memory windows.
pub mod mw_type {
    /// Any queue pair of its domain may bind it, again and again, and its peer use it.
    pub const ONE: u8 = 1;
    /// It belongs to the queue pair that binds it (type 2B), and is invalidated before it is bound
    /// again.
    pub const TWO: u8 = 2;
}

layout! {
    /// The context of an FRMR, a fast registration memory region.
    pub struct FrmrContext: 8 {
        /// The domain that it belongs to.
        pd: Number = 0 @ 0,
        /// Rights: `LOCAL_WRITE` and `REMOTE_*` of [`access`] (queried).
        access: u8 = 0 @ 32,
        /// The tag of its [key](super::entry::frmr_key) as it is now (queried).
        tag: u8 = 0 @ 40,
        /// 1: it is registered; else 0 (queried).
        valid: u8 = 0 @ 48,
        /// Address of its first byte in its own address space (queried).
        addr: u64 = 1 @ 0,
        ..;
        /// Its memory (queried).
        buffer: BufferList = 2,
    }
}

/// What a memory region is.
pub mod mr_flags {
    /// All memory that the function can access: an address is a DMA address. `addr` and the buffer
    /// list are 0.
    pub const ALL_MEMORY: u8 = 1 << 0;
}

layout! {
    /// An entry of the port's table of GIDs, or the GID of a group.
    pub struct GidContext: 2 {
        /// Bytes 0 to 7 as in memory.
        gid: u64 = 0 @ 0,
        /// Bytes 8 to 15. All 0: the entry of the table is empty.
        gid_high: u64 = 1 @ 0,
    }
}

/// Entries of the port's table of GIDs.
pub const GIDS: u32 = 128;

impl GidContext {
    /// A GID as it is in memory.
    pub const fn from_bytes(raw: [u8; 16]) -> Self {
        let both = u128::from_le_bytes(raw);
        Self {
            // CAST: Its halves.
            gid: both as u64,
            gid_high: (both >> 64) as u64,
        }
    }

    /// Whether it is that of a group: `ff..`, or an IPv4 address of multicast that is mapped to one of
    /// IPv6.
    pub const fn is_group(&self) -> bool {
        let is_mapped = self.gid == 0 && self.gid_high as u32 == 0xffff_0000;
        // The first byte of the IPv4 address: 224 to 239.
        let is_v4 = is_mapped && (self.gid_high >> 32) as u8 & 0xf0 == 0xe0;
        self.gid as u8 == 0xff || is_v4
    }
}

layout! {
    /// A shared receive queue's context.
    pub struct SrqContext: 8 {
        /// The domain of the regions that its receives name.
        pd: Number = 0 @ 0,
        /// The doorbell page that it answers to.
        page: u16 = 0 @ 32,
        /// Base-two logarithm of its WQEs.
        log_depth: u8 = 0 @ 48,
        /// Its stride is `64 << stride` bytes.
        stride: u8 = 0 @ 56,
        /// WQEs handed over (queried).
        producer: u32 = 1 @ 0,
        /// WQEs that the device has read (queried).
        consumer: u32 = 1 @ 32,
        /// An event is written once fewer receives than this are left; 0 is never. 0 in CREATE, and
        /// after the event.
        limit: u32 = 5 @ 0,
        /// Receives that are left (queried).
        left: u32 = 5 @ 32,
        /// [`srq_flags`].
        flags: u8 = 6 @ 0,
        ..;
        /// The buffer list of its ring.
        buffer: BufferList = 2,
    }
}

/// Attributes that a MODIFY of a shared receive queue changes.
pub mod srq_mask {
    /// `limit`: the event is armed.
    pub const LIMIT: u32 = 1 << 0;
    /// `log_depth` and `buffer`.
    pub const RING: u32 = 1 << 1;
    /// All known bits; a MODIFY with another is refused.
    pub const ALL: u32 = LIMIT | RING;
}

/// Flags of an SRQ.
pub mod srq_flags {
    /// Its memory could not be read: no queue pair gets a receive of it any more (queried).
    pub const FAILED: u8 = 1 << 0;
}
