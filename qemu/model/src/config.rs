// SPDX-License-Identifier: GPL-2.0
//! The properties of the function. Software reads most of them from registers.

use core::fmt;
use qpair_abi::entry;
use qpair_queue::buflist::PageLimits;

/// The properties of a function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Queue pairs, the admin queue pair included.
    pub qps: u32,
    /// Completion queues, the admin one included.
    pub cqs: u32,
    /// Event queues, EQ 0 included; and vectors.
    pub eqs: u32,
    /// Memory regions.
    pub mrs: u32,
    /// Protection domains.
    pub pds: u32,
    /// Shared receive queues.
    pub srqs: u32,
    /// Memory windows.
    pub mws: u32,
    /// Fast registration memory regions.
    pub frmrs: u32,
    /// Groups that have members.
    pub groups: u32,
    /// Members of a group.
    pub group_members: u32,
    /// Doorbell pages, page 0 included.
    pub pages: u32,
    /// Base-two logarithm of the most blocks of an SQ.
    pub log_sq: u8,
    /// Base-two logarithm of the most WQEs of an RQ.
    pub log_rq: u8,
    /// Base-two logarithm of the most entries of a CQ.
    pub log_cq: u8,
    /// Base-two logarithm of the most entries of an EQ.
    pub log_eq: u8,
    /// Pages of rings that are described by lists, of all queues together.
    pub ring_pages: u32,
    /// Most SGEs of a send work request.
    pub send_sges: u8,
    /// Most SGEs of a receive work request.
    pub recv_sges: u8,
    /// Most bytes of inline data.
    pub inline_bytes: u16,
    /// Bytes of the largest message.
    pub message_bytes: u32,
    /// Base-two logarithm of the most bytes of a region.
    pub log_region: u8,
    /// Base-two logarithm of the smallest page of a buffer list.
    pub min_page_shift: u8,
    /// Base-two logarithm of the largest page of a buffer list.
    pub max_page_shift: u8,
    /// Most asynchronous events that are in EQ 0 at a time.
    pub async_events: u32,
    /// Work requests of a doorbell page's turn in the core.
    pub turn_wqes: u32,
    /// Payload bytes of a doorbell page's turn in the core. A run ends once it has moved as many.
    pub turn_bytes: u32,
    /// Work requests that the thread of a doorbell executes itself; 0 leaves all to the core.
    pub doorbell_wqes: u32,
    /// Payload bytes that the thread of a doorbell moves itself.
    pub doorbell_bytes: u32,
    /// How long after a doorbell an idle core begins.
    pub core_delay_ns: u64,
    /// How long the core takes for a WQE.
    pub wqe_ns: u64,
    /// How long a sender waits before it tries again.
    pub retry_ns: u64,
    /// The seed of the keys of memory regions; 0 is a random number at each reset.
    pub key_seed: u64,
    /// The port sends and receives frames.
    pub wired: bool,
    /// The core works inside the doorbell if both of its times are 0. For deterministic machines.
    pub inline: bool,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            qps: 16384,
            cqs: 32768,
            eqs: 64,
            mrs: 32768,
            pds: 16384,
            srqs: 8192,
            mws: 1024,
            frmrs: 16384,
            groups: 512,
            group_members: 512,
            pages: 1024,
            log_sq: 15,
            log_rq: 15,
            log_cq: 17,
            log_eq: 15,
            ring_pages: 1 << 23,
            send_sges: entry::send_sges(entry::MAX_BLOCKS) as u8,
            recv_sges: entry::recv_sges(entry::MAX_STRIDE_SHIFT) as u8,
            inline_bytes: entry::inline_bytes(entry::MAX_BLOCKS) as u16,
            message_bytes: 1 << 30,
            log_region: 36,
            min_page_shift: 12,
            max_page_shift: 30,
            async_events: 16,
            turn_wqes: 16,
            turn_bytes: 64 << 10,
            doorbell_wqes: 0,
            doorbell_bytes: 64 << 10,
            core_delay_ns: 0,
            wqe_ns: 0,
            retry_ns: 4_000_000,
            key_seed: 0,
            wired: false,
            inline: false,
        }
    }
}

/// A property that is out of range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadConfig {
    /// The property.
    pub property: &'static str,
    /// The least that it may be.
    pub least: u64,
    /// The most that it may be.
    pub most: u64,
}

impl fmt::Display for BadConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} must be from {} to {}",
            self.property, self.least, self.most
        )
    }
}

impl std::error::Error for BadConfig {}

impl Config {
    /// MSI-X vectors.
    pub fn vectors(&self) -> u32 {
        self.eqs
    }

    /// The pages that a buffer list may have.
    pub(crate) fn page_limits(&self) -> PageLimits {
        PageLimits {
            min_shift: self.min_page_shift,
            max_shift: self.max_page_shift,
        }
    }

    /// Bytes of BAR 2 that are doorbell pages.
    pub fn doorbell_bytes(&self) -> u64 {
        u64::from(self.pages) * qpair_abi::doorbell::PAGE_BYTES
    }

    /// Checks that all properties are in range.
    pub fn check(&self) -> Result<(), BadConfig> {
        let most_send = entry::send_sges(entry::MAX_BLOCKS) as u64;
        let most_recv = entry::recv_sges(entry::MAX_STRIDE_SHIFT) as u64;
        let most_inline = entry::inline_bytes(entry::MAX_BLOCKS) as u64;
        let ranges = [
            // Numbers have 16 bits of index, and MSI-X has 2048 vectors.
            ("max-qps", u64::from(self.qps), 2, 1 << 16),
            ("max-cqs", u64::from(self.cqs), 2, 1 << 16),
            ("eqs", u64::from(self.eqs), 1, 2048),
            ("max-mrs", u64::from(self.mrs), 1, 1 << 16),
            ("max-pds", u64::from(self.pds), 1, 1 << 16),
            ("max-srqs", u64::from(self.srqs), 0, 1 << 16),
            (
                "max-mws",
                u64::from(self.mws),
                0,
                u64::from(entry::MAX_WINDOWS),
            ),
            ("max-frmrs", u64::from(self.frmrs), 0, 1 << 16),
            ("max-groups", u64::from(self.groups), 0, u16::MAX.into()),
            (
                "max-group-members",
                u64::from(self.group_members),
                0,
                // A register of ones is one of a function that is gone.
                u64::from(u16::MAX) - 1,
            ),
            ("doorbell-pages", u64::from(self.pages), 1, 1 << 16),
            ("log-max-sq", u64::from(self.log_sq), 2, 24),
            ("log-max-rq", u64::from(self.log_rq), 0, 24),
            ("log-max-cq", u64::from(self.log_cq), 0, 24),
            ("log-max-eq", u64::from(self.log_eq), 1, 24),
            ("max-ring-pages", u64::from(self.ring_pages), 1, 1 << 31),
            ("max-send-sge", u64::from(self.send_sges), 1, most_send),
            ("max-recv-sge", u64::from(self.recv_sges), 1, most_recv),
            ("max-inline", u64::from(self.inline_bytes), 0, most_inline),
            ("max-message", u64::from(self.message_bytes), 4096, 1 << 31),
            ("log-max-region", u64::from(self.log_region), 12, 48),
            // Before the property that it bounds.
            ("max-page-shift", u64::from(self.max_page_shift), 12, 30),
            (
                "min-page-shift",
                u64::from(self.min_page_shift),
                12,
                u64::from(self.max_page_shift),
            ),
            // One of them is reserved for the event that the function stopped.
            (
                "async-reserve",
                u64::from(self.async_events),
                2,
                1 << self.log_eq.min(24),
            ),
            ("wqes-per-turn", u64::from(self.turn_wqes), 1, 1 << 16),
            ("bytes-per-turn", u64::from(self.turn_bytes), 64, 1 << 30),
            (
                "wqes-per-doorbell",
                u64::from(self.doorbell_wqes),
                0,
                1 << 16,
            ),
            (
                "bytes-per-doorbell",
                u64::from(self.doorbell_bytes),
                64,
                1 << 30,
            ),
            ("retry-ns", self.retry_ns, 1, 1 << 40),
            ("core-delay-ns", self.core_delay_ns, 0, 1 << 40),
            ("wqe-ns", self.wqe_ns, 0, 1 << 40),
        ];
        for (property, value, least, most) in ranges {
            if value < least || value > most {
                return Err(BadConfig {
                    property,
                    least,
                    most,
                });
            }
        }
        Ok(())
    }
}
