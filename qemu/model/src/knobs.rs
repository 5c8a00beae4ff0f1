// SPDX-License-Identifier: GPL-2.0
//! Faults and times that a test sets while the function runs.

/// The faults and times that are set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Knobs {
    /// The admin command from now that fails, 1 being the next; 0 is none.
    pub fail_command: u32,
    /// The number of interrupts that get lost.
    pub drop_interrupts: u32,
    /// The delay of interrupts in nanoseconds.
    pub delay_interrupts: u64,
    /// The core does nothing.
    pub stalled: bool,
    /// The number of attempts to stop the function that do nothing.
    pub ignore_stops: u32,
    /// The function is gone: all reads are ones.
    pub vanished: bool,
    /// The link is down.
    pub link_down: bool,
    /// The address of the network device that the port belongs to; 0 is none.
    pub mac: [u8; 6],
    /// How long after a doorbell an idle core begins.
    pub core_delay_ns: u64,
    /// How long the core takes for a WQE.
    pub wqe_ns: u64,
    /// The seed of the keys after the next reset; 0 is a random number.
    pub key_seed: u64,
    /// The first index of new rings. Software begins at 0; other values test the wrap.
    pub first_index: u32,
}

impl Knobs {
    /// Whether the core takes time.
    pub(crate) fn has_pace(&self) -> bool {
        self.core_delay_ns != 0 || self.wqe_ns != 0
    }
}
