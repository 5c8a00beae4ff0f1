// SPDX-License-Identifier: GPL-2.0
//! What the device counts. Free-running 64-bit numbers since power-on or reset; `QUERY DEVICE`
//! writes them as an array in this order, and QMP reads each by its name.

macro_rules! counters {
    ($( $(#[$attr:meta])* $variant:ident = $name:literal, $sysfs:literal, $text:literal; )*) => {
        /// A counter; its value is its place in the array.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(usize)]
        pub enum Counter { $( #[doc = $text] $variant, )* }

        impl Counter {
            /// All of them, in the array's order.
            pub const ALL: &'static [Self] = &[$( Self::$variant ),*];
            /// How many there are.
            pub const COUNT: usize = Self::ALL.len();

            /// The names with the kernel's underscores, in the array's order.
            #[cfg(MODULE)]
            pub const SYSFS: &'static [&'static core::ffi::CStr] = &[$( $sysfs ),*];

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
    SqDoorbells = "sq-doorbells", c"sq_doorbells", "SQ doorbells";
    RqDoorbells = "rq-doorbells", c"rq_doorbells", "RQ doorbells";
    CqHeadDoorbells = "cq-head-doorbells", c"cq_head_doorbells", "CQ head doorbells";
    CqArmDoorbells = "cq-arm-doorbells", c"cq_arm_doorbells", "CQ arm and notify doorbells";
    EqHeadDoorbells = "eq-head-doorbells", c"eq_head_doorbells", "EQ head doorbells that unmask";
    EqMaskedDoorbells = "eq-masked-doorbells", c"eq_masked_doorbells", "EQ head doorbells that keep the mask";
    Violations = "violations", c"violations", "doorbells that make no sense";
    SendWqes = "send-wqes", c"send_wqes", "send WQEs fetched";
    RecvWqes = "recv-wqes", c"recv_wqes", "receive WQEs fetched";
    Commands = "commands", c"commands", "admin commands done";
    Cqes = "cqes", c"cqes", "CQEs written";
    Eqes = "eqes", c"eqes", "EQEs written";
    AsyncEvents = "async-events", c"async_events", "asynchronous events, repeats included";
    Interrupts = "interrupts", c"interrupts", "interrupts raised";
    DmaReads = "dma-reads", c"dma_reads", "DMA reads";
    DmaWrites = "dma-writes", c"dma_writes", "DMA writes";
    DmaFaults = "dma-faults", c"dma_faults", "DMA that the system refused";
    SendBytes = "send-bytes", c"send_bytes", "payload bytes moved by SENDs";
    WriteBytes = "write-bytes", c"write_bytes", "payload bytes moved by RDMA WRITEs";
    ReadBytes = "read-bytes", c"read_bytes", "payload bytes moved by RDMA READs";
    Errors = "errors", c"errors", "completions with an error";
    Flushes = "flushes", c"flushes", "work requests flushed";
    CqOverruns = "cq-overruns", c"cq_overruns", "CQs that had no room";
    Stale = "stale", c"stale", "doorbells and references with the generation of an object that is gone";
    Turns = "turns", c"turns", "turns of queue pairs in the core";
}

/// Bytes of the array that `QUERY DEVICE` writes.
pub const BYTES: usize = Counter::COUNT * 8;
