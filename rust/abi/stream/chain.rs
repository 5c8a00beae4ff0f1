// SPDX-License-Identifier: GPL-2.0
//! Channels of linked descriptors, as those of the AXI DMA engine.
//!
//! A descriptor has the address of the next one. Software writes the address of the first to
//! `CURDESC` while the channel is halted, sets `CR.run`, and hands descriptors over by the address
//! of the last of them in `TAILDESC`: the channel owns those from the current one to that one, both
//! included. It completes each by its status, which software clears before it hands the descriptor
//! over again. A descriptor that is complete already when the channel reads it halts the channel.
//!
//! The channel counts completed descriptors down from `CR.threshold`. At zero it sets `SR.done`,
//! and it sets `SR.delay` once the first completion that is not counted out is as old as
//! `CR.delay`. It sends the interrupt message when a cause that `CR` enables becomes set and none
//! was; so it sends no other until software has written these bits of `SR` as 1, which clears them.

/// Hands the table of registers to the macro whose name is given.
macro_rules! registers {
    ($($with:tt)*) => {
        $($with)*! {
            /// What software asks of the channel.
            pub CR(u32) @ 0x00 {
                /// Age of a completion at which `SR.delay` is set, in units of 8 microseconds;
                /// 0 is never.
                31:24 delay;
                /// Completed descriptors for `SR.done`; 0 is as 1.
                23:16 threshold;
                /// `SR.error` interrupts.
                14:14 error_enable;
                /// `SR.delay` interrupts.
                13:13 delay_enable;
                /// `SR.done` interrupts.
                12:12 done_enable;
                /// Returns the channel to power-on. Reads as 0.
                2:2 reset;
                /// The channel runs. The channel clears it when it halts by itself.
                0:0 run;
            }

            /// State of the channel.
            pub SR(u32) @ 0x04 {
                /// Completions that are left until `SR.done`.
                23:16 left;
                /// It halted by itself. Writing 1 clears it.
                14:14 error;
                /// A completion is as old as `CR.delay`. Writing 1 clears it.
                13:13 delay;
                /// As many descriptors were completed as `CR.threshold`. Writing 1 clears it.
                12:12 done;
                /// Why it halted by itself; kept until it runs again.
                11:4 cause;
                /// It has met the tail.
                1:1 idle;
                /// It does not run.
                0:0 halted;
            }

            /// Address of the descriptor that the channel reads next or works on, low half.
            /// Writable while halted.
            pub CURDESC(u32) @ 0x08 {
                31:0 value;
            }

            /// The high half of that address.
            pub CURDESC_MSB(u32) @ 0x0c {
                31:0 value;
            }

            /// Address of the last descriptor that the channel owns, low half. A write hands
            /// descriptors over; it is ignored while the channel is halted.
            pub TAILDESC(u32) @ 0x10 {
                31:0 value;
            }

            /// The same, high half. To be written before the low half.
            pub TAILDESC_MSB(u32) @ 0x14 {
                31:0 value;
            }

            /// Frames that were dropped, modulo 2^32.
            pub DROPS(u32) @ 0x34 {
                31:0 count;
            }

            /// The pair whose receive channel gets the frames of this transmit channel; of a
            /// receive channel its own pair.
            pub PEER(u32) @ 0x38 {
                31:0 pair;
            }

            /// The kind of this channel: 1.
            pub KIND(u32) @ 0x3c {
                7:0 kind;
            }
        }
    };
}
#[cfg(MODULE)]
pub(crate) use registers;

registers!(fields);

/// The offset of each register in the channel's block, in bytes.
pub mod offset {
    registers!(offsets);
}

/// What addresses of descriptors are multiples of.
pub const ALIGN: u64 = 64;
/// The unit of `CR.delay`, in nanoseconds.
pub const DELAY_NS: u64 = 8000;

layout! {
    /// A descriptor of a chain.
    pub struct ChainDescriptor: 8 {
        /// Address of the next descriptor, a multiple of 64.
        next: u64 = 0 @ 0,
        /// Address of the buffer.
        addr: u64 = 1 @ 0,
        /// The buffer's bytes and, for transmit, [`control`].
        control: u32 = 3 @ 0,
        /// [`status`]; software writes 0, the channel completes.
        status: u32 = 3 @ 32,
        /// User word, carried from the first descriptor of the frame to its last one.
        app0: u32 = 4 @ 0,
        /// User word, as `app0`.
        app1: u32 = 4 @ 32,
        /// User word, as `app0`.
        app2: u32 = 5 @ 0,
        /// User word, as `app0`.
        app3: u32 = 5 @ 32,
        /// User word, as `app0`.
        app4: u32 = 6 @ 0,
    }
}

/// What software says of a descriptor's buffer.
pub mod control {
    /// Bytes of the buffer.
    pub const LENGTH: u32 = 0x3ffffff;
    /// Transmit: the frame ends with this buffer.
    pub const EOF: u32 = 1 << 26;
    /// Transmit: the frame starts with this buffer.
    pub const SOF: u32 = 1 << 27;
}

/// What the channel says of a descriptor.
pub mod status {
    /// Bytes that were read from the buffer or written to it.
    pub const LENGTH: u32 = 0x3ffffff;
    /// Receive: the frame ends with this buffer.
    pub const EOF: u32 = 1 << 26;
    /// Receive: the frame starts with this buffer.
    pub const SOF: u32 = 1 << 27;
    /// The channel is done with the descriptor and its buffer.
    pub const COMPLETE: u32 = 0x80000000;
}
