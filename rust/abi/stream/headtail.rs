// SPDX-License-Identifier: GPL-2.0
//! Channels with a head and a tail, as the queues of the 82599.
//!
//! A ring is an array of descriptors. The channel owns those from `HEAD` to the one before `TAIL`:
//! the tail is an index, and exclusive. `HEAD` equal to `TAIL` is an empty ring, so one descriptor
//! of a ring is never handed over. The channel writes the second word of a descriptor back when it
//! is done: of each received buffer, and of a transmitted one where [`cmd::RS`] asks for it.
//!
//! A write-back sets `ICR.done`. The channel sends its interrupt message if a cause is set in `ICR`
//! and interrupts are enabled, at most once in the interval `ITR`. The message clears `ICR` and
//! disables interrupts; a write of `IMS` enables them again, at the end of a poll.

/// Hands the table of registers to the macro whose name is given.
macro_rules! registers {
    ($($with:tt)*) => {
        $($with)*! {
            /// Address of the ring, low half; a multiple of 128. Writable while disabled.
            pub BAL(u32) @ 0x00 {
                31:0 value;
            }

            /// The high half of that address.
            pub BAH(u32) @ 0x04 {
                31:0 value;
            }

            /// Bytes of the ring; a multiple of 128. Writable while disabled.
            pub LEN(u32) @ 0x08 {
                31:0 bytes;
            }

            /// State of the channel.
            pub SR(u32) @ 0x0c {
                /// Why it halted by itself; kept until it is enabled again.
                11:4 cause;
                /// `HEAD` is equal to `TAIL`.
                1:1 idle;
                /// It is disabled, or it halted by itself.
                0:0 halted;
            }

            /// Index of the descriptor that the channel reads next. Writable while disabled.
            pub HEAD(u32) @ 0x10 {
                31:0 index;
            }

            /// Receive: how frames are put into buffers.
            pub SRRCTL(u32) @ 0x14 {
                /// A frame is dropped if the ring has not enough buffers for it. Otherwise its
                /// transmitter waits.
                28:28 drop_enable;
                /// Bytes of each buffer in units of 1024, 1 to 16; 0 is as 2.
                4:0 buffer;
            }

            /// Index past the last descriptor that the channel owns. A write hands descriptors
            /// over.
            pub TAIL(u32) @ 0x18 {
                31:0 index;
            }

            /// The least time from one interrupt message to the next.
            pub ITR(u32) @ 0x1c {
                /// In microseconds; 0 is any.
                15:0 interval;
            }

            /// Causes of the interrupt. Writing 1 clears a cause, and so does the message.
            pub ICR(u32) @ 0x20 {
                /// It halted by itself.
                1:1 error;
                /// It wrote a descriptor back.
                0:0 done;
            }

            /// Writing 1 enables the interrupt. Reads as 1 if it is enabled.
            pub IMS(u32) @ 0x24 {
                0:0 enable;
            }

            /// What software asks of the channel.
            pub DCTL(u32) @ 0x28 {
                /// Returns the channel to power-on. Reads as 0.
                26:26 flush;
                /// The channel works. The channel clears it when it halts by itself.
                25:25 enable;
            }

            /// Writing 1 disables the interrupt.
            pub IMC(u32) @ 0x2c {
                0:0 disable;
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

            /// The kind of this channel: 2.
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

/// What the address and the bytes of a ring are multiples of.
pub const ALIGN: u64 = 128;
/// The unit of `SRRCTL.buffer`, in bytes.
pub const BUFFER_UNIT: u32 = 1024;
/// The bytes of a buffer if `SRRCTL.buffer` is 0.
pub const BUFFER_DEFAULT: u32 = 2048;
/// The most bytes of a buffer.
pub const BUFFER_MAX: u32 = 16384;
/// The unit of `ITR.interval`, in nanoseconds.
pub const INTERVAL_NS: u64 = 1000;

layout! {
    /// A descriptor of a ring with a head and a tail.
    pub struct RingDescriptor: 2 {
        /// Address of the buffer.
        addr: u64 = 0 @ 0,
        /// Transmit: bytes of the buffer. Receive: the channel writes the bytes of the frame in the
        /// buffer.
        length: u16 = 1 @ 0,
        /// Transmit: [`cmd`].
        cmd: u8 = 1 @ 24,
        /// [`sta`]; software writes 0, the channel writes back.
        sta: u8 = 1 @ 32,
    }
}

/// What software says of a descriptor's buffer.
pub mod cmd {
    /// End of packet: the frame ends with this buffer.
    pub const EOP: u8 = 1 << 0;
    /// Report status: the channel writes the descriptor back.
    pub const RS: u8 = 1 << 3;
}

/// What the channel says of a descriptor.
pub mod sta {
    /// Descriptor done: the channel is done with it and its buffer.
    pub const DD: u8 = 1 << 0;
    /// End of packet: the received frame ends with this buffer.
    pub const EOP: u8 = 1 << 1;
}
