// SPDX-License-Identifier: GPL-2.0
//! Why an endpoint fails, or ends.

use std::io;

use crate::error::{CompletionError, Error};
use crate::hello::{Fault, NoHello, VERSION};
use crate::stream::NoBytes;

/// A call of an endpoint failed.
#[derive(Debug, thiserror::Error)]
pub enum EndpointError {
    /// The queues could not be made or used.
    #[error(transparent)]
    Device(#[from] Error),
    /// The stream cannot be used.
    #[error(
        "the stream to the peer fails: {0}: use a Unix socket, a TCP connection or a pair of pipes"
    )]
    Stream(io::Error),
    /// The peer's process ended, or its device is gone.
    #[error("the peer is gone: its process ended, or it lost its device; start it again, and connect anew")]
    Gone,
    /// The peer has closed its endpoint, and everything that it sent was received.
    #[error("the peer has closed the connection")]
    Closed,
    /// The peer speaks another version.
    #[error("the peer speaks version {theirs} of the endpoint's protocol, this side {VERSION}: use programs of one release")]
    Version {
        /// Version of the peer.
        theirs: u32,
    },
    /// The peer broke the protocol.
    #[error("the peer broke the protocol ({0}), and is disconnected: use a peer that is an endpoint of this library")]
    Broken(Fault),
    /// The peer refused this side.
    #[error("the peer refused this side ({0}): see its messages, and use programs of one release")]
    Refused(Fault),
    /// The peer takes too long.
    #[error("the peer did not {what} within {seconds} seconds: see that it runs and receives, or allow more time (EndpointOptions::timeout)")]
    Late {
        /// What was waited for.
        what: &'static str,
        /// Seconds of [`EndpointOptions::timeout`](crate::EndpointOptions::timeout).
        seconds: u64,
    },
    /// A message or a buffer has the wrong size.
    #[error("{what} has {bytes} bytes, and the limit is {limit}: split the message, or agree on larger ones (EndpointOptions::message)")]
    Size {
        /// The message, or the largest one that a buffer must hold.
        what: &'static str,
        /// Bytes of what has the wrong size.
        bytes: usize,
        /// The most bytes that it may have.
        limit: usize,
    },
    /// A work request failed.
    #[error("{0}: see that both ends use one device, and that the regions grant what a READ or WRITE needs")]
    Completion(CompletionError),
}

/// Why an endpoint has ended: every later call fails by this.
#[derive(Clone, Copy, Debug)]
pub(crate) enum End {
    Gone,
    Closed,
    Broken(Fault),
    Refused(Fault),
    Completion(CompletionError),
}

impl From<End> for EndpointError {
    fn from(end: End) -> Self {
        match end {
            End::Gone => Self::Gone,
            End::Closed => Self::Closed,
            End::Broken(fault) => Self::Broken(fault),
            End::Refused(fault) => Self::Refused(fault),
            End::Completion(error) => Self::Completion(error),
        }
    }
}

impl EndpointError {
    /// Of a handshake that may take `seconds`.
    pub(crate) fn hello(none: NoHello, seconds: u64) -> Self {
        match none {
            NoHello::Stream(none) => Self::stream(none, "answer the handshake", seconds),
            NoHello::Version(theirs) => Self::Version { theirs },
            NoHello::Broken(fault) => Self::Broken(fault),
            NoHello::Refused(fault) => Self::Refused(fault),
        }
    }

    fn stream(none: NoBytes, what: &'static str, seconds: u64) -> Self {
        match none {
            NoBytes::Ended => Self::Gone,
            NoBytes::Late => Self::Late { what, seconds },
            NoBytes::Failed(error) => Self::Stream(error),
        }
    }

    /// Whether the peer ended without a word: what arrived before is whole, the rest is not there.
    pub fn is_gone(&self) -> bool {
        matches!(self, Self::Gone)
    }
}
