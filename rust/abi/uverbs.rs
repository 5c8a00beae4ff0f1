// SPDX-License-Identifier: GPL-2.0 WITH Linux-syscall-note
//! The driver's part of uverbs commands, as `include/uapi/rdma/qpair-abi.h` has it.
//!
//! A structure may grow at its end. Fields that one side does not know are zero. Reserved fields
//! must be zero.

#![allow(non_camel_case_types)]

#[cfg(MODULE)]
use zerocopy_derive::{
    FromBytes,
    Immutable,
    IntoBytes, //
};

/// The version of these structures.
pub const QPAIR_UVERBS_ABI_VERSION: u32 = 2;
/// No eventfd for completions.
pub const QPAIR_NO_COMPLETION_FD: i32 = -1;

macro_rules! structures {
    ($( $(#[$attr:meta])* $name:ident { $( $(#[$of:meta])* $field:ident: $type:ty, )* } )*) => { $(
        $(#[$attr])*
        #[repr(C)]
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        #[cfg_attr(MODULE, derive(FromBytes, IntoBytes, Immutable))]
        pub struct $name { $( $(#[$of])* pub $field: $type, )* }

        impl $name {
            /// Bytes of a request in the first version of the structure; a shorter one is refused.
            pub const LEAST: usize = size_of::<Self>();
        }
    )* };
}

structures! {
    /// The answer to opening the device: limits, and the doorbell page.
    qpair_uresp_alloc_ucontext {
        /// Blocks of a send queue.
        max_sq_blocks: u32,
        /// Entries of a receive queue.
        max_rq_depth: u32,
        /// Entries of a completion queue.
        max_cq_depth: u32,
        /// SGEs of a send.
        max_send_sge: u32,
        /// SGEs of a receive.
        max_recv_sge: u32,
        /// Inline bytes of a send.
        max_inline: u32,
        /// How often the device was reset.
        epoch: u32,
        /// The index of the doorbell page.
        page: u32,
    }

    /// A completion queue in the memory of the process.
    qpair_ureq_create_cq {
        /// The ring, of page-aligned memory.
        buffer: u64,
        /// Bytes of that memory.
        buffer_bytes: u64,
        /// An eventfd for completions, or QPAIR_NO_COMPLETION_FD.
        eventfd: i32,
        /// Must be 0 in a request; is 0 in an answer.
        reserved: u32,
    }

    /// The completion queue that was created.
    qpair_uresp_create_cq {
        /// The device's number, for doorbells.
        number: u32,
        /// Entries of the ring.
        depth: u32,
    }

    /// The ring with which a completion queue goes on.
    qpair_ureq_resize_cq {
        /// The ring, of page-aligned and zeroed memory.
        buffer: u64,
        /// Bytes of that memory.
        buffer_bytes: u64,
    }

    /// How it goes on: the completions at and past `begin` are in the new ring, those before `end`
    /// in the old one; there are none between.
    qpair_uresp_resize_cq {
        /// Entries of the ring.
        depth: u32,
        /// Index past the last completion in the old ring.
        end: u32,
        /// Index of the first completion in the new ring.
        begin: u32,
        /// Must be 0 in a request; is 0 in an answer.
        reserved: u32,
    }

    /// A queue pair in the memory of the process. On a shared receive queue the fields of the
    /// receive queue are 0.
    qpair_ureq_create_qp {
        /// The ring of the send queue, of page-aligned memory.
        sq_buffer: u64,
        /// Bytes of that memory.
        sq_buffer_bytes: u64,
        /// The ring of the receive queue, of page-aligned memory.
        rq_buffer: u64,
        /// Bytes of that memory.
        rq_buffer_bytes: u64,
        /// Entries of the send queue: blocks of 64 bytes.
        sq_blocks: u32,
        /// Entries of the receive queue.
        rq_depth: u32,
        /// log2 of the blocks of a receive.
        rq_stride: u32,
        /// Must be 0 in a request; is 0 in an answer.
        reserved: u32,
    }

    /// A shared receive queue in the memory of the process.
    qpair_ureq_create_srq {
        /// The ring, of page-aligned memory.
        buffer: u64,
        /// Bytes of that memory.
        buffer_bytes: u64,
        /// Entries of the ring.
        depth: u32,
        /// log2 of the blocks of a receive.
        stride: u32,
    }

    /// The memory in which a shared receive queue goes on.
    qpair_ureq_modify_srq {
        /// The ring, of page-aligned memory, with the receives in flight.
        buffer: u64,
        /// Bytes of that memory.
        buffer_bytes: u64,
        /// Entries of the ring.
        depth: u32,
        /// Must be 0 in a request; is 0 in an answer.
        reserved: u32,
    }

    /// The shared receive queue that was created.
    qpair_uresp_create_srq {
        /// The device's number, for doorbells.
        number: u32,
        /// Entries of the ring.
        depth: u32,
    }

    /// The queue pair that was created.
    qpair_uresp_create_qp {
        /// The device's number, for doorbells.
        number: u32,
        /// Blocks of the send queue.
        sq_blocks: u32,
        /// Entries of the receive queue.
        rq_depth: u32,
        /// Must be 0 in a request; is 0 in an answer.
        reserved: u32,
    }

    /// The address handle that was created, as send work requests have it.
    qpair_uresp_create_ah {
        /// GID of the destination's port.
        gid: [u8; 16],
        /// Where the table of the port has the GID that is sent from.
        source: u32,
        /// Address of the network device that leads to the destination; 0 of a port that is not of
        /// RoCE.
        mac: [u8; 6],
        /// Must be 0 in a request; is 0 in an answer.
        reserved: u16,
    }

    /// The answer to a change of a queue pair.
    qpair_uresp_modify_qp {
        /// After a change to RESET: the CQs have no entry of the queue pair at or past these indices.
        send_cq_index: u32,
        /// As `send_cq_index`, of the CQ of receives.
        recv_cq_index: u32,
    }
}
