// SPDX-License-Identifier: GPL-2.0
//! Queue pairs.
//!
//! The state is a type; an operation that a state does not allow does not compile:
//!
//! ```text
//!   Reset --init--> Init --rtr(peer)--> Rtr --rts--> Rts
//!                   post_recv           post_recv    post_recv, post_send
//! ```
//!
//! So is the transport: [`Connected`] to one peer, or [`Ud`], whose `init` has a Q_Key, whose `rtr`
//! has no peer, and which sends [`Datagram`]s. And so is where its receives are: one with
//! [`SharedReceives`] has no `post_recv`; receives are posted to its [`Srq`](crate::Srq).
//!
//! A step that fails destroys the queue pair and returns the error. A work request that fails puts
//! the queue pair of the device into the error state, and what is still posted completes as
//! flushed; [`Qp::reset`] recovers it.
//!
//! Posting writes the request into the ring and takes its slots; one doorbell submits all that a
//! call posted, or, of requests that were only queued ([`Qp::queue_send`]), all since the last.

use std::marker::PhantomData;

use qpair_abi::Number;

use crate::datagram::Datagram;
use crate::error::{Error, PostError};
use crate::kernel::{Change, QpAttributes};
use crate::mr::{Access, Pd};
use crate::options::sealed::{Receiving, Transport};
use crate::queues::Queues;
use crate::wr::{Receive, WorkRequest};

pub use crate::kernel::{QpState, Service};
pub use crate::options::{Connected, OwnReceives, QpOptions, SharedReceives, Ud};

macro_rules! states {
    ($($(#[$attr:meta])* $name:ident),*) => { $(
        $(#[$attr])*
        #[derive(Debug)]
        pub enum $name {}
        impl sealed::State for $name {}
    )* };
}

mod sealed {
    /// A state of a queue pair.
    pub trait State {}
    /// A state in which receives may be posted.
    pub trait Receives: State {}
}

states! {
    /// Nothing can be posted.
    Reset,
    /// Receives may be posted.
    Init,
    /// Ready to receive: takes what its peer sends.
    Rtr,
    /// Ready to send: also executes what is posted.
    Rts
}

impl sealed::Receives for Init {}
impl sealed::Receives for Rtr {}
impl sealed::Receives for Rts {}

/// A queue pair in state `S`, with one peer or of datagrams, and receives of its own or shared ones.
#[derive(Debug)]
pub struct Qp<S: sealed::State, T: Transport = Connected, R: Receiving = OwnReceives> {
    inner: Queues,
    transport: T,
    state: PhantomData<(S, R)>,
}

impl<S: sealed::State, T: Transport, R: Receiving> Qp<S, T, R> {
    /// Its number, which its peer must know.
    pub fn number(&self) -> Number {
        self.inner.number()
    }

    /// Queries the device: also whether it is in the error state.
    pub fn query(&self) -> Result<QpAttributes, Error> {
        let inner = &self.inner;
        let found = inner.pd.context.kernel.query_qp(inner.object);
        found.map_err(Error::kernel("query a queue pair"))
    }

    /// Puts it into the error state: all that is posted completes as flushed.
    pub fn flush(&self) -> Result<(), Error> {
        self.inner.modify(Change::Error)?;
        Ok(())
    }

    /// Resets it. What was posted is dropped, and its entries that are still in the CQs are not
    /// reported.
    pub fn reset(self) -> Result<Qp<Reset, T, R>, Error> {
        self.inner.reset()?;
        Ok(self.become_())
    }

    /// Changes the state by a command to the device.
    fn step<N: sealed::State>(self, change: Change) -> Result<Qp<N, T, R>, Error> {
        self.inner.modify(change)?;
        Ok(self.become_())
    }

    fn become_<N: sealed::State>(self) -> Qp<N, T, R> {
        Qp {
            inner: self.inner,
            transport: self.transport,
            state: PhantomData,
        }
    }
}

impl<T: Transport + Clone, R: Receiving> Qp<Reset, T, R> {
    /// Makes a queue pair in a domain.
    pub fn new(pd: &Pd, options: &QpOptions<'_, T, R>) -> Result<Self, Error> {
        Ok(Self {
            inner: Queues::new(pd, options)?,
            transport: options.transport.clone(),
            state: PhantomData,
        })
    }
}

impl<R: Receiving> Qp<Reset, Connected, R> {
    /// Allows posting receives, and sets the peer's rights (`REMOTE_*`), which the regions must
    /// grant too.
    pub fn init(self, access: Access) -> Result<Qp<Init, Connected, R>, Error> {
        self.inner.reserve()?;
        let access = access.bits();
        self.step(Change::Init { access })
    }
}

impl<R: Receiving> Qp<Init, Connected, R> {
    /// Receives from `peer` only, a queue pair of the same port.
    ///
    /// # Errors
    ///
    /// [`Error::NoAddress`]: a port of RoCE whose network device has no address.
    pub fn rtr(self, peer: Number) -> Result<Qp<Rtr, Connected, R>, Error> {
        let service = self.transport.service;
        let at = self.inner.pd.context.address()?;
        self.step(Change::Rtr { peer, at, service })
    }
}

impl<R: Receiving> Qp<Rtr, Connected, R> {
    /// Allows posting sends.
    pub fn rts(self) -> Result<Qp<Rts, Connected, R>, Error> {
        let Connected { retries, service } = self.transport;
        self.step(Change::Rts { retries, service })
    }
}

impl<R: Receiving> Qp<Reset, Ud, R> {
    /// Allows posting receives. It receives datagrams that have this Q_Key; one whose bit 31 is set
    /// needs a privilege (`CAP_NET_RAW`).
    ///
    /// ```compile_fail,E0308
    /// # use qpair::{Access, Qp, Reset, Ud};
    /// fn init(qp: Qp<Reset, Ud>) {
    ///     let _ = qp.init(Access::REMOTE_WRITE); // a datagram writes to no other memory
    /// }
    /// ```
    pub fn init(self, q_key: u32) -> Result<Qp<Init, Ud, R>, Error> {
        self.inner.reserve()?;
        self.step(Change::InitUd { q_key })
    }
}

impl<R: Receiving> Qp<Init, Ud, R> {
    /// Receives from all that know its number and Q_Key.
    pub fn rtr(self) -> Result<Qp<Rtr, Ud, R>, Error> {
        self.step(Change::RtrUd)
    }
}

impl<R: Receiving> Qp<Rtr, Ud, R> {
    /// Allows posting sends.
    pub fn rts(self) -> Result<Qp<Rts, Ud, R>, Error> {
        self.step(Change::RtsUd)
    }
}

impl<S: sealed::Receives, T: Transport> Qp<S, T> {
    /// Posts receives, in order, and rings once.
    pub fn post_recv(&self, receives: &[Receive<'_>]) -> Result<(), PostError> {
        let posted = self.inner.post_recvs(receives);
        self.inner.ring_recv();
        posted
    }

    /// Posts a receive without ringing: [`ring`](Self::ring) submits all that were.
    pub fn queue_recv(&self, receive: &Receive<'_>) -> Result<(), PostError> {
        let posted = self.inner.post_recv(receive);
        posted.map_err(|refused| refused.after(0))
    }

    /// Submits queued requests: at most one doorbell for receives, then one for sends; none if
    /// nothing was queued.
    pub fn ring(&self) {
        self.inner.ring_recv();
        self.inner.ring_send();
    }

    /// Receives that can be posted before the queue is full; more once completions are polled.
    pub fn recv_room(&self) -> u32 {
        self.inner.recv_room()
    }
}

impl<R: Receiving> Qp<Rts, Connected, R> {
    /// Posts work requests, in order, and rings once.
    pub fn post_send(&self, requests: &[WorkRequest<'_>]) -> Result<(), PostError> {
        self.inner.post_sends(requests.iter().copied())
    }

    /// As [`post_send`](Self::post_send), with work requests from an iterator.
    #[inline]
    pub fn post_sends<'r>(
        &self,
        requests: impl IntoIterator<Item = WorkRequest<'r>>,
    ) -> Result<(), PostError> {
        self.inner.post_sends(requests)
    }

    /// Posts a work request without ringing: [`ring`](Self::ring) submits all that were.
    pub fn queue_send(&self, request: &WorkRequest<'_>) -> Result<(), PostError> {
        let posted = self.inner.post_send(request);
        posted.map_err(|refused| refused.after(0))
    }
}

impl<R: Receiving> Qp<Rts, Ud, R> {
    /// Posts datagrams, in order, and rings once.
    pub fn post_send(&self, datagrams: &[Datagram<'_>]) -> Result<(), PostError> {
        self.inner.post_sends(datagrams.iter().copied())
    }

    /// As [`post_send`](Self::post_send), with datagrams from an iterator.
    #[inline]
    pub fn post_sends<'r>(
        &self,
        datagrams: impl IntoIterator<Item = Datagram<'r>>,
    ) -> Result<(), PostError> {
        self.inner.post_sends(datagrams)
    }

    /// Posts a datagram without ringing: [`ring`](Self::ring) submits all that were.
    pub fn queue_send(&self, datagram: &Datagram<'_>) -> Result<(), PostError> {
        let posted = self.inner.post_send(datagram);
        posted.map_err(|refused| refused.after(0))
    }
}

impl<T: Transport> Qp<Rts, T, SharedReceives> {
    /// Submits queued sends with one doorbell; none if nothing was queued.
    pub fn ring(&self) {
        self.inner.ring_send();
    }
}

impl<T: Transport, R: Receiving> Qp<Rts, T, R> {
    /// Blocks that can be posted before the queue is full; more once completions are polled.
    pub fn send_room(&self) -> u32 {
        self.inner.send_room()
    }
}
