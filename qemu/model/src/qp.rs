// SPDX-License-Identifier: GPL-2.0
//! Queue pairs: their states, their receives, and how they end.
//!
//! A queue pair that fails stops: it goes to the error state by itself, its owner is told, and what is posted is
//! flushed, each work request with a completion. What its peer sends finds nobody.
//!
//! A sender that must try again waits, for a time or for its peer. Whatever a peer could
//! have been waited for (a receive, a state, its end) wakes the one that it names.

use crate::eq::Subject;
use crate::host::Host;
use crate::host::Trace;
use crate::mutant::mutant;
use crate::ring::Ring;
use crate::transfer::Cursor;
use crate::transfer::Paused;
use crate::Function;
use qpair_abi::command::qp_state;
use qpair_abi::counters::Counter;
use qpair_abi::entry::cqe_flags;
use qpair_abi::entry::opcode;
use qpair_abi::entry::recv_sges;
use qpair_abi::entry::Cqe;
use qpair_abi::entry::RecvWqe;
use qpair_abi::entry::SendWqe;
use qpair_abi::entry::BLOCK_BYTES;
use qpair_abi::entry::BLOCK_WORDS;
use qpair_abi::entry::MAX_BLOCKS;
use qpair_abi::status::Detail;
use qpair_abi::status::Status;
use qpair_abi::Number;
use qpair_queue::index::Depth;
use qpair_queue::index::Index;
use qpair_queue::index::Window;
use qpair_queue::mask::Notice;

/// An SQ or RQ.
pub(crate) struct Work<M> {
    pub(crate) ring: Ring<M>,
    pub(crate) window: Window,
    pub(crate) log_depth: u8,
    /// A slot has `64 << stride` bytes.
    pub(crate) stride: u8,
}

impl<M> Work<M> {
    pub(crate) fn new(
        ring: Ring<M>,
        depth: Depth,
        log_depth: u8,
        stride: u8,
        first: Index,
    ) -> Self {
        Self {
            ring,
            window: Window::new(depth, first),
            log_depth,
            stride,
        }
    }

    /// Where a slot lies in the ring.
    #[inline]
    pub(crate) fn at(&self, index: Index) -> u64 {
        let position = u64::from(self.window.depth().position(index));
        position * BLOCK_BYTES as u64 * (1 << (self.stride & 3))
    }

    /// Makes it new.
    pub(crate) fn clear(&mut self, first: Index) {
        self.window = Window::new(self.window.depth(), first);
    }
}

/// What a queue pair is, besides its memory.
#[derive(Clone, Copy, Default)]
pub(crate) struct Attributes {
    pub(crate) pd: Number,
    pub(crate) page: u16,
    pub(crate) state: u8,
    pub(crate) send_cq: Number,
    pub(crate) recv_cq: Number,
    pub(crate) peer: Number,
    pub(crate) q_key: u32,
    pub(crate) access: u8,
    pub(crate) retry: u8,
    pub(crate) rnr_retry: u8,
}

/// A receive that a message is filling.
pub(crate) struct Receive {
    pub(crate) wr_id: u64,
    /// Index past it.
    pub(crate) past: Index,
    pub(crate) words: [u64; MAX_BLOCKS * BLOCK_WORDS],
    pub(crate) cursor: Cursor,
}

/// A queue pair.
pub(crate) struct Qp<M> {
    pub(crate) number: Number,
    pub(crate) attributes: Attributes,
    pub(crate) sq: Work<M>,
    pub(crate) rq: Work<M>,
    /// A message that took longer than its turn.
    pub(crate) sending: Option<Paused>,
    pub(crate) receiving: Option<Receive>,
    /// It waits for its peer.
    pub(crate) waiting: bool,
    /// When it tries again, if it stands in the line of those who do.
    pub(crate) retry_at: u64,
    /// How often it tried.
    pub(crate) tries: u8,
    pub(crate) fatal_notice: Notice,
    pub(crate) fatal_status: u8,
}

impl<M> core::ops::Deref for Qp<M> {
    type Target = Attributes;
    fn deref(&self) -> &Attributes {
        &self.attributes
    }
}

impl<M> Qp<M> {
    pub(crate) fn new(number: Number, attributes: Attributes, sq: Work<M>, rq: Work<M>) -> Self {
        Self {
            number,
            attributes,
            sq,
            rq,
            sending: None,
            receiving: None,
            waiting: false,
            retry_at: 0,
            tries: 0,
            fatal_notice: Notice::default(),
            fatal_status: 0,
        }
    }
}

/// Why there is no receive.
pub(crate) enum NoReceive {
    /// None is posted.
    Empty,
    /// The RQ's memory could not be read.
    Dma,
    /// It makes no sense. It has been taken.
    Bad(Detail),
}

impl<H: Host> Function<H> {
    /// Puts a queue pair in line if there is something that it could do.
    pub(crate) fn has_work(&mut self, qp: Number) {
        let Some(found) = self.qps.get(qp) else {
            return;
        };
        let sends = !found.sq.window.is_empty();
        let works = match found.state {
            qp_state::RTS => sends && !found.waiting,
            qp_state::SQD => found.sending.is_some() && !found.waiting,
            qp_state::ERROR => sends || !found.rq.window.is_empty() || found.receiving.is_some(),
            _ => false,
        };
        if works {
            let page = found.page;
            self.step_in(qp.index(), page);
        }
    }

    /// A queue pair's sender waits no longer.
    pub(crate) fn wake(&mut self, qp: Number) {
        if let Some(found) = self.qps.get_mut(qp) {
            found.waiting = false;
            self.retries.remove(qp.index());
            self.has_work(qp);
        }
    }

    /// Something changed at a queue pair that its peer may wait for.
    pub(crate) fn wake_peer(&mut self, qp: Number) {
        let Some(peer) = self.qps.get(qp).map(|found| found.peer) else {
            return;
        };
        if self
            .qps
            .get(peer)
            .is_some_and(|peer| peer.waiting && peer.peer == qp)
        {
            self.wake(peer);
        }
    }

    /// Changes a queue pair's state.
    pub(crate) fn set_state(&mut self, qp: Number, to: u8) {
        let Some(found) = self.qps.get_mut(qp) else {
            return;
        };
        let from = core::mem::replace(&mut found.attributes.state, to);
        self.bus.host.trace(Trace::State { qp, from, to });
        if to == qp_state::ERROR {
            found.waiting = false;
            self.retries.remove(qp.index());
        }
        self.wake_peer(qp);
        self.has_work(qp);
    }

    /// A queue pair failed: it stops by itself, and its owner is told.
    pub(crate) fn stop(&mut self, qp: Number, why: Status) {
        let Some(found) = self.qps.get_mut(qp) else {
            return;
        };
        if found.state == qp_state::ERROR {
            return;
        }
        if mutant!(ErrorGoesOn) {
            return;
        }
        found.fatal_status = why.code();
        self.set_state(qp, qp_state::ERROR);
        self.happened(Subject::Fatal(qp));
    }

    /// A work request of the SQ is done: completes it if it is signalled or failed. False as [`complete`](Self::complete).
    #[inline(always)]
    pub(crate) fn complete_send(
        &mut self,
        qp: Number,
        wqe: &SendWqe,
        past: Index,
        bytes: u32,
        outcome: Result<(), (Status, Detail)>,
    ) -> bool {
        let Some(found) = self.qps.get_mut(qp) else {
            return false;
        };
        // A place behind the head moves nothing, and none is beyond the tail.
        let _ = found.sq.window.advance_head(past);
        found.tries = 0;
        let cq = found.send_cq;
        let (status, detail) = outcome.err().unwrap_or((Status::Success, Detail::None));
        let signaled = wqe.flags & qpair_abi::entry::send_flags::SIGNALED != 0;
        if status == Status::Success && !signaled {
            return true;
        }
        if status == Status::Flush && !signaled && mutant!(FlushOnlySignaled) {
            return true;
        }
        let cqe = Cqe {
            wr_id: wqe.wr_id,
            qp,
            bytes,
            index: past.get(),
            opcode: wqe.opcode,
            status: status.code(),
            vendor: detail.code(),
            ..Cqe::default()
        };
        self.complete(cq, &cqe, false)
    }

    /// The receive that is being filled failed, and with it its queue pair.
    pub(crate) fn fail_receive(&mut self, qp: Number, status: Status, detail: Detail) {
        if let Some(found) = self.qps.get_mut(qp) {
            let cq = found.recv_cq;
            if let Some(receive) = found.receiving.take() {
                let cqe = receive_cqe(qp, receive.wr_id, receive.past, status, detail);
                self.complete(cq, &cqe, false);
            }
        }
        self.stop(qp, status);
    }

    /// Takes the next receive, unless one is being filled already: a sender that was made new
    /// begins again where the one before it stopped.
    pub(crate) fn take_receive(&mut self, qp: Number) -> Result<(), NoReceive> {
        let most = usize::from(self.config.recv_sges);
        let found = self.qps.get_mut(qp).ok_or(NoReceive::Empty)?;
        if let Some(receive) = &mut found.receiving {
            receive.cursor = Cursor::default();
            return Ok(());
        }
        let index = found.rq.window.head();
        if found.rq.window.is_empty() {
            return Err(NoReceive::Empty);
        }
        let mut words = [0; MAX_BLOCKS * BLOCK_WORDS];
        let stride = found.rq.stride & 3;
        let used = words.get_mut(..BLOCK_WORDS << stride).unwrap_or(&mut []);
        let at = found.rq.at(index);
        let loaded = found.rq.ring.load(&mut self.bus, at, used);
        loaded.map_err(|_| NoReceive::Dma)?;
        self.bus.count(Counter::RecvWqes);
        self.bus.host.trace(Trace::FetchReceive {
            qp,
            index: index.get(),
        });
        let [first, second, ..] = words;
        let wqe = RecvWqe::decode(&[first, second]);
        let past = index.plus(1);
        let _ = found.rq.window.advance_head(past);
        found.receiving = Some(Receive {
            wr_id: wqe.wr_id,
            past,
            words,
            cursor: Cursor::default(),
        });
        let [reserved, _] = RecvWqe::RESERVED;
        if first & reserved != 0 {
            return Err(NoReceive::Bad(Detail::Flags));
        }
        if usize::from(wqe.sges) > most.min(recv_sges(stride)) {
            return Err(NoReceive::Bad(Detail::Sges));
        }
        Ok(())
    }

    /// A turn of a queue pair in the error state: flushes at most `left` work requests, and takes
    /// those that it has flushed from there.
    pub(crate) fn flush(&mut self, qp: Number, left: &mut u32) {
        while *left != 0 && (self.flush_receive(qp) || self.flush_send(qp)) {
            *left -= 1;
        }
        self.has_work(qp);
    }

    fn flush_receive(&mut self, qp: Number) -> bool {
        if mutant!(ReceivesNotFlushed) {
            return false;
        }
        match self.take_receive(qp) {
            Ok(()) | Err(NoReceive::Bad(_)) => {}
            Err(NoReceive::Empty) => return false,
            Err(NoReceive::Dma) => {
                // Nobody can say what was posted.
                if let Some(found) = self.qps.get_mut(qp) {
                    let tail = found.rq.window.tail();
                    let _ = found.rq.window.advance_head(tail);
                }
                return true;
            }
        }
        self.bus.count(Counter::Flushes);
        self.fail_receive(qp, Status::Flush, Detail::None);
        true
    }

    fn flush_send(&mut self, qp: Number) -> bool {
        let Some(found) = self.qps.get_mut(qp) else {
            return false;
        };
        found.sending = None;
        let window = found.sq.window;
        if window.is_empty() {
            return false;
        }
        let mut words = [0; SendWqe::WORDS];
        let at = found.sq.at(window.head());
        if found.sq.ring.load(&mut self.bus, at, &mut words).is_err() {
            let _ = found.sq.window.advance_head(window.tail());
            return true;
        }
        let wqe = SendWqe::decode(&words);
        self.bus.count(Counter::Flushes);
        let past = past(&wqe, window.head(), window.used()).unwrap_or(window.tail());
        let flushed = Err((Status::Flush, Detail::None));
        self.complete_send(qp, &wqe, past, 0, flushed);
        true
    }
}

/// The index past a WQE; `None` if its number of blocks makes no sense, and with it whatever follows.
pub(crate) fn past(wqe: &SendWqe, index: Index, posted: u32) -> Option<Index> {
    let blocks = u32::from(wqe.blocks);
    let sane = blocks != 0 && blocks <= MAX_BLOCKS as u32 && blocks <= posted;
    sane.then(|| index.plus(blocks))
}

/// The completion of a receive that failed.
fn receive_cqe(qp: Number, wr_id: u64, past: Index, status: Status, detail: Detail) -> Cqe {
    Cqe {
        wr_id,
        qp,
        index: past.get(),
        opcode: opcode::RECV,
        status: status.code(),
        vendor: detail.code(),
        flags: cqe_flags::RECV,
        ..Cqe::default()
    }
}
