// SPDX-License-Identifier: GPL-2.0
//! What the device counts. Free-running 64-bit numbers since power-on or reset; `QUERY DEVICE`
//! writes them as an array in this order, and QMP reads each by its name.

/// A name with underscores instead of hyphens, and a NUL.
#[cfg(MODULE)]
const fn underscored<const BYTES: usize>(name: &str) -> [u8; BYTES] {
    let (from, mut to, mut at) = (name.as_bytes(), [0; BYTES], 0);
    while at < from.len() {
        to[at] = if from[at] == b'-' { b'_' } else { from[at] };
        at += 1;
    }
    to
}

macro_rules! counters {
    ($( $(#[$attr:meta])* $variant:ident = $name:literal, $text:literal; )*) => {
        /// A counter; its value is its place in the array.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(usize)]
        pub enum Counter { $( #[doc = $text] $variant, )* }

        impl Counter {
            /// All of them, in the array's order.
            pub const ALL: &'static [Self] = &[$( Self::$variant ),*];
            /// Counters, and words that QUERY returns.
            pub const COUNT: usize = Self::ALL.len();

            /// The names with the kernel's underscores, in the array's order.
            #[cfg(MODULE)]
            pub const SYSFS: &'static [&'static core::ffi::CStr] = &[$( {
                const NAME: &[u8; $name.len() + 1] = &underscored($name);
                match core::ffi::CStr::from_bytes_with_nul(NAME) {
                    Ok(name) => name,
                    Err(_) => c"",
                }
            } ),*];

            /// Its name, as QMP and JSON have it.
            pub const fn name(self) -> &'static str {
                match self { $( Self::$variant => $name, )* }
            }

            /// What it counts, for people.
            pub const fn text(self) -> &'static str {
                match self { $( Self::$variant => $text, )* }
            }
        }
    };
}

counters! {
    SqDoorbells = "sq-doorbells", "SQ doorbells";
    RqDoorbells = "rq-doorbells", "RQ and SRQ doorbells";
    CqHeadDoorbells = "cq-head-doorbells", "CQ head doorbells";
    CqArmDoorbells = "cq-arm-doorbells", "CQ arm and notify doorbells";
    EqHeadDoorbells = "eq-head-doorbells", "EQ head doorbells that unmask";
    EqMaskedDoorbells = "eq-masked-doorbells", "EQ head doorbells that keep the mask";
    Violations = "violations", "doorbells that make no sense";
    SendWqes = "send-wqes", "send WQEs fetched";
    RecvWqes = "recv-wqes", "receive WQEs fetched";
    Commands = "commands", "admin commands done";
    Cqes = "cqes", "CQEs written";
    Eqes = "eqes", "EQEs written";
    AsyncEvents = "async-events", "asynchronous events, repeats included";
    Interrupts = "interrupts", "interrupts raised";
    DmaReads = "dma-reads", "DMA reads";
    DmaWrites = "dma-writes", "DMA writes";
    DmaFaults = "dma-faults", "DMA that the system refused";
    SendBytes = "send-bytes", "payload bytes moved by SENDs";
    WriteBytes = "write-bytes", "payload bytes moved by RDMA WRITEs";
    ReadBytes = "read-bytes", "payload bytes moved by RDMA READs";
    Errors = "errors", "completions with an error";
    Flushes = "flushes", "work requests flushed";
    CqOverruns = "cq-overruns", "CQs that had no room";
    Stale = "stale", "doorbells and references with the generation of an object that is gone";
    Turns = "turns", "turns of queue pairs in the core";
    Dropped = "dropped", "messages of UD and UC that were dropped";
    Atomics = "atomics", "atomics performed";
    Retries = "retries", "waits for a peer that did not answer";
    RnrRetries = "rnr-retries", "waits for a receive of a peer";
    Registrations = "registrations", "FRMRs registered";
    Invalidations = "invalidations", "FRMRs and windows invalidated by a request";
    FramesIn = "frames-in", "frames received";
    FramesOut = "frames-out", "frames sent";
    FramesForeign = "frames-foreign", "frames for no queue pair that receives";
    FramesMalformed = "frames-malformed", "frames with wrong lengths or headers";
    FramesCorrupt = "frames-corrupt", "frames with a wrong ICRC";
    FramesOverflowed = "frames-overflowed", "frames received for which there was no room";
    OutOfSequence = "out-of-sequence", "packets received before another that is missing";
    Duplicates = "duplicates", "packets received again";
}

/// Bytes of the array that `QUERY DEVICE` writes.
pub const BYTES: usize = Counter::COUNT * 8;
