// SPDX-License-Identifier: GPL-2.0
//! Builders of sends: `ibv_wr_*()`.
//!
//! Between `ibv_wr_start()` and `ibv_wr_complete()` a program begins one send after the other, and
//! gives each its data. A send is posted when it has its data, or when the next one begins; the
//! first error fails them all.

use qpair_queue::credit::Sq;
use qpair_queue::producer::Batch;

use crate::atomic::Atomic;
use crate::datagram::{Address, Datagram};
use crate::queue::Work;
use crate::request::{put_send, Limits, Payload, Refusal, Request};
use crate::ring::Ring;

/// The send that was begun.
#[derive(Debug)]
// A datagram is composed in place.
#[allow(clippy::large_enum_variant)]
pub(crate) enum Begun {
    /// Posted with its data, or with none if it gets none.
    Send(Request),
    /// Posted with its SGE, which it must get.
    Atomic(Atomic),
    /// Gets data and address in any order, and is posted when the next one begins.
    Datagram(Datagram),
}

/// The sends of a queue pair between `ibv_wr_start()` and `ibv_wr_complete()`.
#[derive(Debug, Default)]
pub(crate) struct Builder {
    begun: Option<Begun>,
    /// Why all sends fail: the first refusal.
    failed: Option<Refusal>,
}

impl Builder {
    /// `ibv_wr_start()`. Fails all sends if the state permits none.
    pub(crate) fn start(&mut self, ready: bool) {
        self.begun = None;
        self.failed = (!ready).then_some(Refusal::State);
    }

    /// Begins a send, after the one before it; a refused one fails them all.
    #[inline(always)]
    pub(crate) fn begin(
        &mut self,
        work: &mut Work<Sq>,
        limits: &Limits,
        begun: Result<Begun, Refusal>,
    ) {
        self.end(work, limits);
        match begun {
            Ok(begun) => self.begun = Some(begun),
            Err(refusal) => self.failed = self.failed.or(Some(refusal)),
        }
    }

    /// Gives the send that was begun its data.
    ///
    /// # Safety
    ///
    /// The memory of inline data can be read.
    #[inline(always)]
    pub(crate) unsafe fn data(
        &mut self,
        work: &mut Work<Sq>,
        limits: &Limits,
        payload: Payload<'_>,
    ) {
        if self.failed.is_some() {
            return;
        }
        let done = match &mut self.begun {
            // SAFETY: By the caller's promise.
            Some(Begun::Send(request)) => unsafe {
                put_send(&mut work.batch(), *request, payload, limits)
            },
            Some(Begun::Atomic(atomic)) => atomic.put(&mut work.batch(), payload, limits),
            Some(Begun::Datagram(datagram)) => {
                // SAFETY: By the caller's promise.
                self.failed = unsafe { datagram.data(payload, limits) }.err();
                return;
            }
            None => Err(Refusal::Invalid),
        };
        self.begun = None;
        self.failed = done.err();
    }

    /// Gives the datagram that was begun its address.
    pub(crate) fn address(&mut self, address: Address) {
        match &mut self.begun {
            Some(Begun::Datagram(datagram)) => datagram.to(address),
            _ => self.failed = self.failed.or(Some(Refusal::Invalid)),
        }
    }

    /// Posts by `put` a send that needs no data, after the one before it.
    pub(crate) fn put(
        &mut self,
        work: &mut Work<Sq>,
        limits: &Limits,
        put: impl FnOnce(&mut Batch<'_, Ring, Sq>) -> Result<(), Refusal>,
    ) {
        self.end(work, limits);
        if self.failed.is_none() {
            self.failed = put(&mut work.batch()).err();
        }
    }

    /// Posts the send that was begun, as it is.
    #[inline(always)]
    fn end(&mut self, work: &mut Work<Sq>, limits: &Limits) {
        if self.begun.is_some() {
            self.end_begun(work, limits);
        }
    }

    #[inline(never)]
    fn end_begun(&mut self, work: &mut Work<Sq>, limits: &Limits) {
        if let Some(Begun::Datagram(datagram)) = &mut self.begun {
            if self.failed.is_none() {
                self.failed = datagram.put(&mut work.batch()).err();
            }
            self.begun = None;
        } else {
            // SAFETY: No inline data. An atomic is refused.
            unsafe { self.data(work, limits, Payload::Gather(&[])) };
        }
    }

    /// The error of the sends, all of which have ended.
    pub(crate) fn complete(&mut self, work: &mut Work<Sq>, limits: &Limits) -> Result<(), Refusal> {
        self.end(work, limits);
        self.failed.map_or(Ok(()), Err)
    }
}
