// SPDX-License-Identifier: GPL-2.0
//! The registers: 32 bits each, in BAR 0.
//!
//! `registers!` passes one table to the macro that expands it: the driver expands it to
//! `kernel::io::register`, the device model and the manual to the offsets here.
//!
//! After power-on or a reset, `STATUS.ready` is 0 and everything but these registers is disabled.
//! The driver writes the addresses of EQ 0 and the admin queue pair, sets `CTRL.enable`, and reads
//! `STATUS.ready` as set, or an [enable error](super::status::EnableError) in `STATUS.cause`. A
//! write of `CTRL.reset` returns everything to the state after power-on; when the write has
//! completed, no DMA is under way and none will come. `STATUS.fatal`, instead of `STATUS.ready`,
//! says that the function stopped by itself and needs a reset. A function that is gone reads as all
//! ones.

/// Hands the table of registers to the macro whose name is given.
macro_rules! registers {
    ($($with:tt)*) => {
        $($with)*! {
            /// Always `MAGIC_VALUE`.
            pub MAGIC(u32) @ 0x00 {
                31:0 value;
            }

            /// The version of the programming model. Another major is another model.
            pub VERSION(u32) @ 0x04 {
                31:16 major;
                15:0 minor;
            }

            /// What software asks of the function.
            pub CTRL(u32) @ 0x08 {
                /// Returns the function to power-on. Reads as 0.
                1:1 reset;
                /// Brings up EQ 0 and the admin queue pair. Reads as `STATUS.ready`.
                0:0 enable;
            }

            /// State of the function.
            pub STATUS(u32) @ 0x0c {
                /// Why it is fatal or could not be enabled.
                15:8 cause;
                /// The link is up.
                3:3 link_up;
                /// It stopped, and wants a reset.
                1:1 fatal;
                /// EQ 0 and the admin queue pair are up, and the function works.
                0:0 ready;
            }

            /// Queue pairs, the admin queue pair included.
            pub LIMIT_QP(u32) @ 0x10 {
                31:0 count;
            }

            /// Completion queues, the admin one included.
            pub LIMIT_CQ(u32) @ 0x14 {
                31:0 count;
            }

            /// Event queues, EQ 0 included. EQ `i` may use any vector below this.
            pub LIMIT_EQ(u32) @ 0x18 {
                31:0 count;
            }

            /// Memory regions.
            pub LIMIT_MR(u32) @ 0x1c {
                31:0 count;
            }

            /// Protection domains.
            pub LIMIT_PD(u32) @ 0x20 {
                31:0 count;
            }

            /// Shared receive queues.
            pub LIMIT_SRQ(u32) @ 0x24 {
                31:0 count;
            }

            /// Doorbell pages in BAR 2, page 0 included.
            pub LIMIT_PAGE(u32) @ 0x28 {
                31:0 count;
            }

            /// What a ring may hold.
            pub LIMIT_RING(u32) @ 0x2c {
                /// Base-two logarithm of the most entries of an EQ.
                28:24 log_eq;
                /// Base-two logarithm of the most entries of a CQ.
                20:16 log_cq;
                /// Base-two logarithm of the most WQEs of an RQ.
                12:8 log_rq;
                /// Base-two logarithm of the most 64-byte blocks of an SQ.
                4:0 log_sq;
            }

            /// What a work request may hold.
            pub LIMIT_WQE(u32) @ 0x30 {
                /// Bytes of inline data.
                31:16 inline_bytes;
                /// Scatter entries of a receive.
                15:8 recv_sges;
                /// Gather or scatter entries of a send, write or read.
                7:0 send_sges;
            }

            /// Bytes of the largest message.
            pub LIMIT_MESSAGE(u32) @ 0x34 {
                31:0 bytes;
            }

            /// What a memory region may be.
            pub LIMIT_REGION(u32) @ 0x38 {
                /// Base-two logarithm of the largest page of a buffer list.
                23:16 max_page_shift;
                /// Base-two logarithm of the smallest page of a buffer list.
                15:8 min_page_shift;
                /// Base-two logarithm of the most bytes.
                7:0 log_bytes;
            }

            /// The most asynchronous events that are in EQ 0 at a time.
            pub LIMIT_ASYNC(u32) @ 0x3c {
                31:0 count;
            }

            /// DMA address of EQ 0's ring (one contiguous block), low half.
            pub EQ0_BASE_LO(u32) @ 0x40 {
                31:0 value;
            }

            /// DMA address of EQ 0's ring, high half.
            pub EQ0_BASE_HI(u32) @ 0x44 {
                31:0 value;
            }

            /// DMA address of the admin SQ's ring (one contiguous block), low half.
            pub ASQ_BASE_LO(u32) @ 0x48 {
                31:0 value;
            }

            /// DMA address of the admin SQ's ring, high half.
            pub ASQ_BASE_HI(u32) @ 0x4c {
                31:0 value;
            }

            /// DMA address of the admin CQ's ring (one contiguous block), low half.
            pub ACQ_BASE_LO(u32) @ 0x50 {
                31:0 value;
            }

            /// DMA address of the admin CQ's ring, high half.
            pub ACQ_BASE_HI(u32) @ 0x54 {
                31:0 value;
            }

            /// Depths of the three, as base-two logarithms. EQ 0 uses vector 0.
            pub ADMIN_DEPTH(u32) @ 0x58 {
                /// Entries of the admin CQ.
                20:16 log_cq;
                /// Blocks of the admin SQ.
                12:8 log_sq;
                /// Entries of EQ 0.
                4:0 log_eq;
            }

            /// Memory windows.
            pub LIMIT_MW(u32) @ 0x5c {
                31:0 count;
            }

            /// Address of the network device that the port belongs to, bytes 0 to 3 as in memory.
            /// 0, as the other half, if there is none.
            pub MAC_LO(u32) @ 0x60 {
                31:0 bytes;
            }

            /// The rest of the address.
            pub MAC_HI(u32) @ 0x64 {
                /// The port sends and receives frames on the network of that device.
                16:16 wired;
                15:0 bytes;
            }

            /// Multicast groups.
            pub LIMIT_GROUP(u32) @ 0x68 {
                /// Members that a group may have.
                31:16 members;
                /// Groups that may have members at a time.
                15:0 count;
            }

            /// Fast registration memory regions.
            pub LIMIT_FRMR(u32) @ 0x6c {
                31:0 count;
            }
        }
    };
}
#[cfg(MODULE)]
pub(crate) use registers;

#[cfg(not(MODULE))]
mod table;

#[cfg(not(MODULE))]
pub use self::table::{
    offset,
    FIELDS, //
};

/// What `MAGIC` reads as: "QPR1".
pub const MAGIC_VALUE: u32 = u32::from_le_bytes(*b"QPR1");
/// The major version of the programming model that this source describes.
pub const MAJOR: u32 = 2;
/// The minor version: additions that software of a lower one need not know.
pub const MINOR: u32 = 0;
/// Bytes of BAR 0 that are registers.
pub const BYTES: usize = 0x1000;
