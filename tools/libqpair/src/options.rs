// SPDX-License-Identifier: GPL-2.0
//! What a queue pair shall be.
//!
//! The transport is a type: [`Connected`] or [`Ud`]. So is where its receives are:
//! [`OwnReceives`] or [`SharedReceives`]. What the other has, as retries, a Q_Key or the depth of a
//! receive queue, does not compile.

use crate::cq::Cq;
use crate::kernel::{QpType, Retries, Service};
use crate::memory::Pages;
use crate::srq::Srq;

use self::sealed::{Receiving, Transport};

/// Of which types a queue pair may be.
pub(crate) mod sealed {
    /// A transport, with its options.
    pub trait Transport: std::fmt::Debug {
        /// The type for the kernel.
        fn qp_type(&self) -> super::QpType;
    }

    /// Where the receives are, with their options.
    pub trait Receiving: std::fmt::Debug {
        /// The same as a value.
        fn source(&self) -> super::Source<'_>;
    }
}

/// Where the receives of a queue pair are.
#[derive(Debug)]
pub enum Source<'a> {
    /// In an RQ of its own, which has so many receives of so many SGEs.
    Own(u32, usize),
    /// In this SRQ, with those of other queue pairs.
    Shared(&'a Srq),
}

/// The receives of a queue pair that has a receive queue.
#[derive(Clone, Debug)]
pub struct OwnReceives {
    max_wr: u32,
    max_sge: usize,
}

impl Receiving for OwnReceives {
    fn source(&self) -> Source<'_> {
        Source::Own(self.max_wr, self.max_sge)
    }
}

/// The receives of a queue pair on a shared receive queue: it has no `post_recv`.
///
/// ```compile_fail,E0599
/// # use qpair::{Connected, Qp, Receive, Rts, SharedReceives};
/// fn receive(qp: &Qp<Rts, Connected, SharedReceives>) {
///     let _ = qp.post_recv(&[Receive::new(1, &[])]); // receives are posted to the SRQ
/// }
/// ```
#[derive(Clone, Debug)]
pub struct SharedReceives {
    srq: Srq,
}

impl Receiving for SharedReceives {
    fn source(&self) -> Source<'_> {
        Source::Shared(&self.srq)
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
///
/// ```compile_fail,E0599
/// # use qpair::{Cq, QpOptions, Srq};
/// fn with_receives(cq: &Cq, srq: &Srq) {
///     let _ = QpOptions::new(cq, cq).srq(srq).max_recv_wr(16); // it has no receive queue
/// }
/// ```
#[derive(Clone, Debug)]
pub struct QpOptions<'a, T = Connected, R = OwnReceives> {
    pub(crate) send_cq: &'a Cq,
    pub(crate) recv_cq: &'a Cq,
    pub(crate) sq_blocks: u32,
    pub(crate) pages: Pages,
    pub(crate) transport: T,
    pub(crate) receives: R,
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
}

impl<R> QpOptions<'_, Connected, R> {
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
    /// takes room: a datagram of one block has one SGE or 16 inline bytes.
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
            pages: Pages::Normal,
            transport,
            receives: OwnReceives {
                max_wr: 16,
                max_sge: 1,
            },
        }
    }

    /// Has no receive queue: it takes the receives of this shared one. Those of UC cannot.
    pub fn srq(self, srq: &Srq) -> QpOptions<'a, T, SharedReceives> {
        QpOptions {
            send_cq: self.send_cq,
            recv_cq: self.recv_cq,
            sq_blocks: self.sq_blocks,
            pages: self.pages,
            transport: self.transport,
            receives: SharedReceives { srq: srq.clone() },
        }
    }

    /// At least this many receives.
    pub fn max_recv_wr(mut self, receives: u32) -> Self {
        self.receives.max_wr = receives;
        self
    }

    /// SGEs that a receive may have.
    pub fn max_recv_sge(mut self, sges: usize) -> Self {
        self.receives.max_sge = sges;
        self
    }
}

impl<T, R> QpOptions<'_, T, R> {
    /// At least this many 64-byte blocks; a work request takes one for up to two SGEs or 32 inline
    /// bytes, and one for each four SGEs or 64 bytes more. A datagram takes one for its address, and
    /// one for each four SGEs or 64 bytes.
    pub fn sq_blocks(mut self, blocks: u32) -> Self {
        self.sq_blocks = blocks;
        self
    }

    /// The pages of its rings.
    pub fn pages(mut self, pages: Pages) -> Self {
        self.pages = pages;
        self
    }
}
