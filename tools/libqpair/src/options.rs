// SPDX-License-Identifier: GPL-2.0
//! What a queue pair shall be.
//!
//! The transport is a type: [`Connected`] or [`Ud`]. What the other has, as retries or a Q_Key, does
//! not compile.

use crate::cq::Cq;
use crate::kernel::{QpType, Retries, Service};
use crate::memory::Pages;

use self::sealed::Transport;

/// Of which types a queue pair may be.
pub(crate) mod sealed {
    /// A transport, with its options.
    pub trait Transport: std::fmt::Debug {
        /// The type for the kernel.
        fn qp_type(&self) -> super::QpType;
    }
}

/// The transport of a queue pair with one peer.
#[derive(Clone, Debug)]
pub struct Connected {
    pub(crate) retries: Retries,
    pub(crate) service: Service,
}

impl Transport for Connected {
    fn qp_type(&self) -> QpType {
        QpType::Connected(self.service)
    }
}

/// The transport of unreliable datagrams.
#[derive(Clone, Debug)]
pub struct Ud {
    _private: (),
}

impl Transport for Ud {
    fn qp_type(&self) -> QpType {
        QpType::Ud
    }
}

/// What a queue pair shall be.
///
/// ```compile_fail,E0599
/// # use qpair::{Cq, QpOptions};
/// fn with_retries(cq: &Cq) {
///     let _ = QpOptions::ud(cq, cq).retries(7, 7); // datagrams are not sent again
/// }
/// ```
#[derive(Clone, Debug)]
pub struct QpOptions<'a, T = Connected> {
    pub(crate) send_cq: &'a Cq,
    pub(crate) recv_cq: &'a Cq,
    pub(crate) sq_blocks: u32,
    pub(crate) rq_depth: u32,
    pub(crate) recv_sges: usize,
    pub(crate) pages: Pages,
    pub(crate) transport: T,
}

impl<'a> QpOptions<'a> {
    /// Has one peer, and completes its work in these queues, which may be one. 16 blocks and 16
    /// receives, if not told otherwise.
    pub fn new(send_cq: &'a Cq, recv_cq: &'a Cq) -> Self {
        let connected = Connected {
            retries: Retries::default(),
            service: Service::Rc,
        };
        Self::of(send_cq, recv_cq, connected)
    }

    /// How often a request is retried when the peer does not answer, and when it has no receive; 0
    /// to 7 each, and 0 if not set. 7 retries for ever when the peer has no receive.
    pub fn retries(mut self, answer: u8, receive: u8) -> Self {
        self.transport.retries = Retries { answer, receive };
        self
    }

    /// Its service, which is also the peer's; RC if it is not set.
    pub fn service(mut self, service: Service) -> Self {
        self.transport.service = service;
        self
    }
}

impl<'a> QpOptions<'a, Ud> {
    /// Sends and receives datagrams, and is otherwise as [`new`](QpOptions::new) has it. The address
    /// takes room: a datagram of one block has one piece or 16 inline bytes.
    pub fn ud(send_cq: &'a Cq, recv_cq: &'a Cq) -> Self {
        Self::of(send_cq, recv_cq, Ud { _private: () })
    }
}

impl<'a, T> QpOptions<'a, T> {
    fn of(send_cq: &'a Cq, recv_cq: &'a Cq, transport: T) -> Self {
        Self {
            send_cq,
            recv_cq,
            sq_blocks: 16,
            rq_depth: 16,
            recv_sges: 1,
            pages: Pages::Normal,
            transport,
        }
    }

    /// At least this many 64-byte blocks; a work request takes one for up to two pieces or 32 inline
    /// bytes, and one for each four pieces or 64 bytes more.
    pub fn sq_blocks(mut self, blocks: u32) -> Self {
        self.sq_blocks = blocks;
        self
    }

    /// At least this many receives.
    pub fn rq_depth(mut self, depth: u32) -> Self {
        self.rq_depth = depth;
        self
    }

    /// Pieces that a receive may have.
    pub fn recv_sges(mut self, sges: usize) -> Self {
        self.recv_sges = sges;
        self
    }

    /// The pages of its rings.
    pub fn pages(mut self, pages: Pages) -> Self {
        self.pages = pages;
        self
    }
}
