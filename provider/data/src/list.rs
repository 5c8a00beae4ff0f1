// SPDX-License-Identifier: GPL-2.0
//! Lists of sends: `ibv_post_send()`.

use qpair_abi::entry::send_flags;
use qpair_queue::credit::Sq;
use qpair_queue::producer::Batch;

use crate::atomic::Atomic;
use crate::datagram::{Address, Datagram};
use crate::queue::Work;
use crate::request::{put_send, Limits, Payload, Refusal, Request};
use crate::ring::Ring;
use crate::template::{Row, Template, Templates};
use crate::window::Bind;

/// What all sends of a queue pair have in common.
#[derive(Clone, Copy, Debug)]
pub struct SendParts {
    /// The device refuses what exceeds them.
    pub limits: Limits,
    /// Whether all sends are signaled.
    pub sq_sig_all: bool,
    /// The common forms of sends.
    pub templates: Templates,
    /// Whether the queue pair is of UD.
    pub is_ud: bool,
}

impl SendParts {
    /// `request` with the flags that all sends have.
    #[inline(always)]
    pub(crate) fn flagged(&self, request: Request) -> Request {
        let always = match self.sq_sig_all {
            true => send_flags::SIGNALED,
            false => 0,
        };
        Request {
            flags: request.flags | always,
            ..request
        }
    }
}

/// A list of sends that one doorbell submits.
#[derive(Debug)]
pub struct List<'a> {
    work: &'a mut Work<Sq>,
    parts: &'a SendParts,
}

impl<'a> List<'a> {
    #[inline(always)]
    pub(crate) fn new(work: &'a mut Work<Sq>, parts: &'a SendParts) -> Self {
        Self { work, parts }
    }

    /// Posts of any opcode, without a doorbell.
    #[inline(always)]
    pub fn sends(&mut self) -> Sends<'_> {
        Sends {
            batch: self.work.batch(),
            parts: self.parts,
        }
    }

    /// The form of a send of one SGE, by opcode of verbs and flags, if it has one.
    #[inline(always)]
    pub fn template(&self, [operation, flags]: [u32; 2]) -> Option<Template> {
        self.parts.templates.get(operation, flags)
    }

    /// Posts of one form, without a doorbell.
    #[inline(always)]
    pub fn row(&mut self, template: Template) -> Row<'_> {
        Row::new(self.work.batch(), template)
    }

    /// Whether the queue pair is of UD.
    #[inline(always)]
    pub fn is_ud(&self) -> bool {
        self.parts.is_ud
    }
}

/// A batch of posts of any opcode, without a doorbell.
#[derive(Debug)]
pub struct Sends<'a> {
    batch: Batch<'a, Ring, Sq>,
    parts: &'a SendParts,
}

impl Sends<'_> {
    /// Posts a SEND, WRITE or READ.
    ///
    /// # Errors
    ///
    /// [`Refusal::Invalid`]: the data exceed a limit. [`Refusal::Full`].
    ///
    /// # Safety
    ///
    /// The memory of inline data can be read.
    #[inline(always)]
    pub unsafe fn put(&mut self, request: Request, payload: Payload<'_>) -> Result<(), Refusal> {
        let request = self.parts.flagged(request);
        // SAFETY: By the caller's promise.
        unsafe { put_send(&mut self.batch, request, payload, &self.parts.limits) }
    }

    /// Posts a send of UD.
    ///
    /// # Errors
    ///
    /// As of [`put`](Self::put). [`Refusal::Unsupported`]: not a SEND.
    ///
    /// # Safety
    ///
    /// The memory of inline data can be read.
    pub unsafe fn put_datagram(
        &mut self,
        request: Request,
        address: Address,
        payload: Payload<'_>,
    ) -> Result<(), Refusal> {
        let mut datagram = Datagram::new(self.parts.flagged(request))?;
        datagram.to(address);
        // SAFETY: By the caller's promise.
        unsafe { datagram.data(payload, &self.parts.limits) }?;
        datagram.put(&mut self.batch)
    }

    /// Posts an atomic.
    ///
    /// # Errors
    ///
    /// [`Refusal::Invalid`]: not one SGE. [`Refusal::Full`].
    pub fn put_atomic(&mut self, mut atomic: Atomic, payload: Payload<'_>) -> Result<(), Refusal> {
        atomic.request = self.parts.flagged(atomic.request);
        atomic.put(&mut self.batch, payload, &self.parts.limits)
    }

    /// Posts a bind.
    ///
    /// # Errors
    ///
    /// [`Refusal::Full`].
    pub fn put_bind(&mut self, mut bind: Bind) -> Result<(), Refusal> {
        bind.request = self.parts.flagged(bind.request);
        bind.put(&mut self.batch)
    }
}
