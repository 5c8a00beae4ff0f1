// SPDX-License-Identifier: GPL-2.0
//! What an endpoint shall be.

use std::time::Duration;

use super::MAX_RECEIVES;
use crate::mr::Access;

/// What an endpoint shall be.
#[derive(Clone, Debug)]
pub struct EndpointOptions {
    pub(super) message: u32,
    pub(super) largest: Option<u32>,
    pub(super) depth: u32,
    pub(super) acks: u32,
    pub(super) backlog: u32,
    pub(super) reads: u32,
    pub(super) writes: u32,
    pub(super) access: Access,
    pub(super) timeout: Duration,
}

impl Default for EndpointOptions {
    fn default() -> Self {
        Self {
            message: 4096,
            largest: None,
            depth: 16,
            acks: 4,
            backlog: 16,
            reads: 4,
            writes: 4,
            access: Access::NONE,
            timeout: Duration::from_secs(30),
        }
    }
}

impl EndpointOptions {
    /// Messages of up to 4 KiB, 16 in flight in each direction, if not told otherwise.
    pub fn new() -> Self {
        Self::default()
    }

    /// Bytes of the largest message that it receives.
    pub fn message(mut self, bytes: u32) -> Self {
        self.message = bytes.max(1);
        self
    }

    /// Bytes of the largest message that it sends, if the peer receives such; the same as it receives
    /// if not set.
    pub fn max_send(mut self, bytes: u32) -> Self {
        self.largest = Some(bytes.max(1));
        self
    }

    /// Messages in flight in each direction, up to 16384.
    pub fn depth(mut self, messages: u32) -> Self {
        self.depth = messages.clamp(1, MAX_RECEIVES);
        self
    }

    /// Messages that may wait for a credit, up to 16384.
    pub fn backlog(mut self, messages: u32) -> Self {
        self.backlog = messages.min(MAX_RECEIVES);
        self
    }

    /// READs and WRITEs in flight, up to 16384 of each.
    pub fn direct(mut self, reads: u32, writes: u32) -> Self {
        (self.reads, self.writes) = (reads.min(MAX_RECEIVES), writes.min(MAX_RECEIVES));
        self
    }

    /// What the peer may do to the regions of the domain that grant it: `REMOTE_READ`,
    /// `REMOTE_WRITE`; nothing if not set.
    pub fn access(mut self, access: Access) -> Self {
        self.access = access;
        self
    }

    /// How long the peer may take for the handshake, and to take a message.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }
}
