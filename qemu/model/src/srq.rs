// SPDX-License-Identifier: GPL-2.0
//! Shared receive queues.
//!
//! The rules (`queue::shared`) decide which receive is the next, and when the event of the limit is
//! due.

use crate::event::Events;
use crate::fifo::Ends;
use crate::host::Host;
use crate::host::Mapping;
use crate::message::Cursor;
use crate::ring::Ring;
use crate::rules::supply::Low;
use crate::rules::supply::Next;
use crate::rules::supply::Supply;
use crate::schedule::Core;
use crate::subject::Subject;
use crate::work_queue::fetch_receive;
use crate::work_queue::NoReceive;
use crate::work_queue::Receive;
use crate::work_queue::ReceiveAt;
use qpair_abi::command::srq_flags;
use qpair_abi::command::SrqContext;
use qpair_abi::entry::BLOCK_BYTES;
use qpair_abi::status::Detail;
use qpair_abi::Number;
use qpair_queue::index::Depth;
use qpair_queue::index::Index;

/// A shared receive queue.
pub(crate) struct SharedReceives<M> {
    number: Number,
    pub(crate) pd: Number,
    pub(crate) page: u16,
    pub(crate) stride: u8,
    pub(crate) ring: Ring<M>,
    supply: Supply,
    /// Receives that were given back.
    back: Vec<Receive>,
    /// Its memory could not be read.
    failed: bool,
    /// Queue pairs that use it.
    pub(crate) users: u32,
    /// The line of queue pairs that found no receive. Their peers may wait for one.
    pub(crate) starved: Ends,
    /// The sender of the first in line is woken, and has not had its turn yet.
    pub(crate) feeding: bool,
}

impl<M: Mapping> SharedReceives<M> {
    pub(crate) fn new(
        number: Number,
        context: &SrqContext,
        depth: Depth,
        ring: Ring<M>,
        first: Index,
    ) -> Self {
        Self {
            number,
            pd: context.pd,
            page: context.page,
            stride: context.stride,
            ring,
            supply: Supply::new(depth, first),
            back: Vec::new(),
            failed: false,
            users: 0,
            starved: Ends::default(),
            feeding: false,
        }
    }

    /// The context for QUERY.
    pub(crate) fn context(&self) -> SrqContext {
        let window = self.supply.window();
        SrqContext {
            pd: self.pd,
            page: self.page,
            log_depth: window.depth().log2(),
            stride: self.stride,
            producer: window.tail().get(),
            consumer: window.head().get(),
            limit: self.supply.limit(),
            left: self.supply.left(),
            flags: if self.failed { srq_flags::FAILED } else { 0 },
            buffer: *self.ring.described(),
        }
    }

    /// Its WQEs.
    pub(crate) fn depth(&self) -> u32 {
        self.supply.window().depth().entries()
    }

    /// The limit; 0 if it is not armed.
    pub(crate) fn limit(&self) -> u32 {
        self.supply.limit()
    }

    /// Goes on in another ring, to which software has copied the receives in flight. Returns false,
    /// and nothing changes, if more are left in the ring than the new one has places.
    pub(crate) fn resize(&mut self, depth: Depth, ring: Ring<M>) -> bool {
        if !self.supply.resize(depth) {
            return false;
        }
        self.ring = ring;
        true
    }

    /// Software has posted the receives before `tail`; returns how many came, or `None` if it may
    /// not.
    pub(crate) fn post(&mut self, tail: Index) -> Option<u32> {
        self.supply.post(tail)
    }

    /// Whether there is a receive.
    pub(crate) fn has_receive(&self) -> bool {
        self.supply.next().is_some()
    }

    /// Arms the event of the limit, and reports it if it is due.
    pub(crate) fn arm<H: Host<Map = M>>(
        &mut self,
        core: &mut Core<H>,
        events: &mut Events<M>,
        limit: u32,
    ) {
        let low = self.supply.arm(limit);
        self.look(core, events, low);
    }

    fn look<H: Host<Map = M>>(&self, core: &mut Core<H>, events: &mut Events<M>, low: Low) {
        if low == Low::Now {
            events.report(core, Subject::Limit(self.number), 0);
        }
    }

    /// Takes the next receive for a queue pair. Also the detail if it is invalid.
    pub(crate) fn take<H: Host<Map = M>>(
        &mut self,
        core: &mut Core<H>,
        events: &mut Events<M>,
        qp: Number,
        least: u64,
    ) -> Result<(Receive, Option<Detail>), NoReceive> {
        if self.failed {
            return Err(NoReceive::Dma);
        }
        let next = self.supply.next().ok_or(NoReceive::Empty)?;
        let taken = match next {
            // One that was invalid has failed its queue pair, and was not given back.
            Next::Back => self.back.pop().map(|receive| (receive, None)),
            Next::Ring(index) => {
                let slot = (BLOCK_BYTES as u64) << (self.stride & 3);
                let position = u64::from(self.supply.window().depth().position(index));
                let place = ReceiveAt {
                    index,
                    at: position * slot,
                    stride: self.stride,
                };
                fetch_receive(core, &mut self.ring, &place, qp, self.pd).ok()
            }
        };
        let Some(taken) = taken else {
            self.failed = true;
            events.report(core, Subject::Unreadable(self.number), 0);
            return Err(NoReceive::Dma);
        };
        let taken = match taken {
            (receive, None) if receive.room() < least => {
                if next == Next::Back {
                    self.back.push(receive);
                }
                return Err(NoReceive::Short);
            }
            enough => enough,
        };
        let low = self.supply.take();
        self.look(core, events, low);
        Ok(taken)
    }

    /// Takes a receive back from a queue pair. It begins again with its first byte.
    pub(crate) fn give_back(&mut self, receive: Receive) {
        self.supply.give_back();
        self.back.push(Receive {
            cursor: Cursor::default(),
            ..receive
        });
    }
}
