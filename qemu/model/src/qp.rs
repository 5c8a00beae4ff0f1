// SPDX-License-Identifier: GPL-2.0
//! Queue pairs: their states and their work queues.
//!
//! A sender that retries waits for a time or for its peer. A change of the peer (a posted receive,
//! a new state, its destruction) wakes it.

use crate::attributes::Attributes;
use crate::bus::Bus;
use crate::event::Events;
use crate::faults::Hold;
use crate::faults::Then;
use crate::host::DmaFault;
use crate::host::Host;
use crate::host::Mapping;
use crate::host::Trace;
use crate::link::Link;
use crate::message::Cursor;
use crate::message::Message;
use crate::message::Paused;
use crate::message::Piece;
use crate::message::WqeWords;
use crate::path::Path;
use crate::schedule::Core;
use crate::subject::Subject;
use crate::table::Table;
use crate::tries::Step;
use crate::tries::Tries;
use crate::work_queue::fetch_receive;
use crate::work_queue::NoReceive;
use crate::work_queue::Receive;
use crate::work_queue::ReceiveAt;
use crate::work_queue::WorkQueue;
use qpair_abi::command::qp_state;
use qpair_abi::command::QpContext;
use qpair_abi::entry::cqe_flags;
use qpair_abi::entry::opcode;
use qpair_abi::entry::send_flags;
use qpair_abi::entry::Cqe;
use qpair_abi::entry::SendWqe;
use qpair_abi::entry::BLOCK_BYTES;
use qpair_abi::entry::BLOCK_WORDS;
use qpair_abi::entry::MAX_BLOCKS;
use qpair_abi::status::Detail;
use qpair_abi::status::Status;
use qpair_abi::Number;
use qpair_queue::index::Index;

/// Blocks that are fetched at once.
const FETCH_BLOCKS: u32 = 32;
/// Words that are fetched at once.
pub(crate) const FETCH_WORDS: usize = FETCH_BLOCKS as usize * BLOCK_WORDS;

/// Frames for a queue pair wait.
const FRAMES: u8 = 1;
/// It has a connection by frames.
const LINK: u8 = 1 << 1;

/// A queue pair.
pub(crate) struct QueuePair<M> {
    pub(crate) number: Number,
    pub(crate) attributes: Attributes,
    pub(crate) sq: WorkQueue<M>,
    pub(crate) rq: WorkQueue<M>,
    /// A message that took longer than its turn.
    pub(crate) sending: Option<Paused>,
    pub(crate) receiving: Option<Receive>,
    /// The sender waits for its peer, or for the retry interval.
    pub(crate) waiting: bool,
    /// How often the sender tried the first request of the SQ again.
    pub(crate) tries: Tries,
    /// A fault holds the request at the head of the SQ.
    pub(crate) hold: Option<Hold>,
    /// The index past the last request that the rules of faults have met.
    pub(crate) met: Option<Index>,
    /// It is in the line of queue pairs that wait for a receive of their SRQ.
    pub(crate) starved: bool,
    /// The SRQ of its peer, while the sender is woken for a receive there and has had no turn.
    pub(crate) fed_by: Number,
    /// The event that it takes no receive of its SRQ any more is due.
    pub(crate) last_due: bool,
    /// Its connection, if its peer is at another port and frames reach it.
    pub(crate) link: Option<Box<Link>>,
    /// An event is asked for when the SQ has drained.
    pub(crate) drain_asked: bool,
    /// What of it has to do with frames: [`FRAMES`], [`LINK`].
    by_frames: u8,
}

impl<M> core::ops::Deref for QueuePair<M> {
    type Target = Attributes;
    fn deref(&self) -> &Attributes {
        &self.attributes
    }
}

impl<M: Mapping> QueuePair<M> {
    pub(crate) fn new(
        number: Number,
        attributes: Attributes,
        sq: WorkQueue<M>,
        rq: WorkQueue<M>,
    ) -> Self {
        Self {
            number,
            attributes,
            sq,
            rq,
            sending: None,
            receiving: None,
            waiting: false,
            tries: Tries::default(),
            hold: None,
            met: None,
            starved: false,
            fed_by: Number::default(),
            last_due: false,
            link: None,
            drain_asked: false,
            by_frames: 0,
        }
    }

    /// Whether a fault has frozen it.
    pub(crate) fn is_frozen(&self) -> bool {
        // An answer that was lost, for which it waits without limit, is no freeze.
        let frozen = |hold: Hold| hold.due == u64::MAX && matches!(hold.then, Then::Perform);
        self.hold.is_some_and(frozen)
    }

    /// The context for QUERY.
    pub(crate) fn context(&self) -> QpContext {
        let (peer, [gid, gid_high]) = match self.path {
            Path::There(remote) => (remote.qp, remote.gid),
            path => (path.here().unwrap_or_default(), self.gid),
        };
        QpContext {
            pd: self.pd,
            page: self.page,
            service: self.service,
            state: self.state,
            send_cq: self.send_cq,
            recv_cq: self.recv_cq,
            srq: self.srq,
            log_sq: self.sq.log_depth,
            log_rq: self.rq.log_depth,
            rq_stride: self.rq.stride,
            peer,
            q_key: self.q_key,
            access: self.access,
            retry: self.retry,
            rnr_retry: self.rnr_retry,
            timeout: self.timeout,
            min_rnr_timer: self.min_rnr_timer,
            flags: self.flags,
            draining: u8::from(self.state == qp_state::SQD && self.is_sending()),
            sq_producer: self.sq.window.tail().get(),
            sq_consumer: self.sq.window.head().get(),
            rq_producer: self.rq.window.tail().get(),
            rq_consumer: self.rq.window.head().get(),
            gid,
            gid_high,
            sq: *self.sq.ring.described(),
            rq: *self.rq.ring.described(),
            ..self.av_context()
        }
    }

    /// The fields of its address vector and of its connection by frames, for QUERY.
    fn av_context(&self) -> QpContext {
        let Some(av) = self.av else {
            return QpContext::default();
        };
        let context = av.context();
        match self.link.as_deref() {
            Some(link) => link.context(context),
            None => context,
        }
    }

    /// Whether a request that was begun is not finished.
    pub(crate) fn is_sending(&self) -> bool {
        let flies = |link: &Link| !link.flying.is_empty();
        self.sending.is_some() || self.link.as_deref().is_some_and(flies)
    }

    /// Whether a turn would have work.
    #[inline]
    fn has_work(&self) -> bool {
        let sends = !self.sq.window.is_empty();
        match self.state {
            qp_state::RTS => sends && !self.waiting || self.has_frame_work(),
            qp_state::SQD => self.sending.is_some() && !self.waiting || self.has_frame_work(),
            qp_state::ERROR => {
                let receives = !self.rq.window.is_empty() || self.receiving.is_some();
                sends || receives || self.last_due || self.has_frame_work()
            }
            _ => self.has_frame_work(),
        }
    }

    /// Whether its turns have to do with frames.
    #[inline]
    pub(crate) fn is_by_frames(&self) -> bool {
        self.by_frames != 0
    }

    /// Whether it has a connection by frames.
    pub(crate) fn is_linked(&self) -> bool {
        self.by_frames & LINK != 0
    }

    /// Frames for it wait, or do not any more: whether that is new.
    pub(crate) fn set_frames(&mut self, wait: bool) -> bool {
        let before = self.by_frames;
        self.by_frames = before & LINK | u8::from(wait);
        self.by_frames != before
    }

    /// It begins a connection by frames, or ends it.
    pub(crate) fn set_link(&mut self, link: Option<Box<Link>>) {
        let is_linked = if link.is_some() { LINK } else { 0 };
        self.by_frames = self.by_frames & FRAMES | is_linked;
        // The connection says when there is work.
        self.waiting = link.is_some();
        self.link = link;
    }

    #[inline]
    fn has_frame_work(&self) -> bool {
        self.is_by_frames() && self.turns_by_frames()
    }

    /// Whether a turn would have frames to receive, or work for its connection.
    #[cold]
    fn turns_by_frames(&self) -> bool {
        let begins = self.state == qp_state::RTS;
        let tail = self.sq.window.tail();
        let has_work = |link: &Link| link.is_due || begins && link.can_begin(tail);
        self.by_frames & FRAMES != 0 || self.link.as_deref().is_some_and(has_work)
    }

    /// Takes the oldest request in flight to a peer at another port.
    pub(crate) fn pop_flying(&mut self) -> Option<Message> {
        self.link.as_mut()?.pop().map(|(message, _)| message)
    }

    /// Drops all work requests, and the peer.
    pub(crate) fn clear(&mut self, first: Index) {
        self.sq.clear(first);
        self.rq.clear(first);
        self.sending = None;
        self.receiving = None;
        self.set_link(None);
        self.tries.end();
        self.hold = None;
        self.met = None;
        self.last_due = false;
        self.drain_asked = false;
        self.attributes.path = Path::None;
        self.attributes.av = None;
    }

    /// Fetches the next blocks of the SQ, at most `most`, into `blocks`: how many. `None` if they
    /// cannot be read.
    pub(crate) fn fetch<H: Host<Map = M>>(
        &mut self,
        bus: &mut Bus<H>,
        most: u32,
        blocks: &mut [u64],
    ) -> Option<u32> {
        let window = &self.sq.window;
        let head = window.head();
        let count = window.used().min(FETCH_BLOCKS).min(most);
        let words = blocks.get_mut(..count as usize * BLOCK_WORDS)?;
        // Where the ring ends, the run goes on at its beginning.
        let position = window.depth().position(head);
        let until_end = window.depth().entries().wrapping_sub(position);
        let first = count.min(until_end) as usize * BLOCK_WORDS;
        let (before, after) = words.split_at_mut_checked(first)?;
        let at = u64::from(position) * BLOCK_BYTES as u64;
        self.sq.ring.load(bus, at, before).ok()?;
        if !after.is_empty() {
            self.sq.ring.load(bus, 0, after).ok()?;
        }
        bus.host.trace(Trace::Fetch {
            qp: self.number,
            index: head.get(),
            blocks: count,
        });
        Some(count)
    }

    /// Fetches the WQE at `index`, or fewer of its blocks if they are not posted: how many blocks were
    /// fetched. `None` if they cannot be read. The rest of the words is 0.
    // Apart, so that the fetch of loopback stays in line.
    #[cold]
    #[inline(never)]
    pub(crate) fn fetch_at<H: Host<Map = M>>(
        &mut self,
        bus: &mut Bus<H>,
        index: Index,
        words: &mut WqeWords,
    ) -> Option<u32> {
        let posted = self.sq.window.tail().since(index);
        let mut count = 0;
        let mut blocks = 1;
        for block in words.chunks_exact_mut(BLOCK_WORDS) {
            if count == blocks || count == posted {
                break;
            }
            let at = self.sq.at(index.plus(count));
            self.sq.ring.load_once(bus, at, block).ok()?;
            if count == 0 {
                let head = block.first_chunk().map(SendWqe::decode);
                blocks = u32::from(head.unwrap_or_default().blocks);
            }
            count = count.wrapping_add(1);
        }
        let rest = words.get_mut(count as usize * BLOCK_WORDS..);
        rest.unwrap_or_default().fill(0);
        bus.host.trace(Trace::Fetch {
            qp: self.number,
            index: index.get(),
            blocks: count,
        });
        Some(count)
    }

    /// Ends a work request of the SQ: its completion, if it is signaled or failed.
    #[inline(always)]
    pub(crate) fn sent(
        &mut self,
        wqe: &SendWqe,
        past: Index,
        bytes: u32,
        outcome: Result<(), (Status, Detail)>,
    ) -> Option<Cqe> {
        // An index behind the head moves nothing, and none is beyond the tail.
        let _ = self.sq.window.advance_head(past);
        self.tries.end();
        let (status, detail) = outcome.err().unwrap_or((Status::Success, Detail::None));
        let signaled = wqe.flags & send_flags::SIGNALED != 0;
        if status == Status::Success && !signaled {
            return None;
        }
        Some(Cqe {
            wr_id: wqe.wr_id,
            qp: self.number,
            bytes,
            index: past.get(),
            opcode: wqe.opcode,
            status: status.code(),
            vendor: detail.code(),
            ..Cqe::default()
        })
    }

    /// The work request at the head of the SQ, and the index past it. `None` if nothing is posted.
    pub(crate) fn first_send<H: Host<Map = M>>(
        &mut self,
        bus: &mut Bus<H>,
    ) -> Result<Option<(SendWqe, Index)>, DmaFault> {
        let window = self.sq.window;
        if window.is_empty() {
            return Ok(None);
        }
        let mut words = [0; SendWqe::WORDS];
        let at = self.sq.at(window.head());
        self.sq.ring.load(bus, at, &mut words)?;
        let wqe = SendWqe::decode(&words);
        let past = past(&wqe, window.head(), window.used()).unwrap_or(window.tail());
        Ok(Some((wqe, past)))
    }

    /// Takes the next receive, unless one is being filled already: a new sender begins again in
    /// the receive that the one before it did not finish.
    #[inline(never)]
    pub(crate) fn take_receive<H: Host<Map = M>>(
        &mut self,
        core: &mut Core<H>,
    ) -> Result<(), NoReceive> {
        if let Some(receive) = &mut self.receiving {
            receive.cursor = Cursor::default();
            return Ok(());
        }
        let index = self.rq.window.head();
        if self.rq.window.is_empty() {
            return Err(NoReceive::Empty);
        }
        let place = ReceiveAt {
            index,
            at: self.rq.at(index),
            stride: self.rq.stride,
        };
        let (number, pd) = (self.number, self.attributes.pd);
        let fetched = fetch_receive(core, &mut self.rq.ring, &place, number, pd);
        let (receive, wrong) = fetched.map_err(|DmaFault| NoReceive::Dma)?;
        let _ = self.rq.window.advance_head(receive.past);
        self.receive(receive, wrong)
    }

    /// Begins to fill a receive that was taken.
    pub(crate) fn receive(
        &mut self,
        receive: Receive,
        wrong: Option<Detail>,
    ) -> Result<(), NoReceive> {
        self.receiving = Some(receive);
        match wrong {
            None => Ok(()),
            Some(detail) => Err(NoReceive::Bad(detail)),
        }
    }

    /// Ends the receive that is being filled: the completion of a message.
    pub(crate) fn received(&mut self, piece: &Piece) -> Option<Cqe> {
        let receive = self.receiving.take()?;
        let carries = match piece.opcode {
            opcode::SEND => 0,
            opcode::SEND_INV => cqe_flags::INV,
            _ => cqe_flags::IMM,
        };
        let solicited = match piece.solicited {
            true => cqe_flags::SOLICITED,
            false => 0,
        };
        Some(Cqe {
            wr_id: receive.wr_id,
            qp: self.number,
            bytes: piece.bytes,
            imm: if carries != 0 { piece.imm } else { 0 },
            index: receive.past.get(),
            opcode: match piece.opcode {
                opcode::WRITE_IMM => opcode::RECV_WRITE_IMM,
                _ => opcode::RECV,
            },
            flags: cqe_flags::RECV | carries | solicited,
            ..Cqe::default()
        })
    }

    /// Ends the receive that is being filled: the completion of a failure.
    pub(crate) fn receive_failed(&mut self, status: Status, detail: Detail) -> Option<Cqe> {
        let receive = self.receiving.take()?;
        Some(Cqe {
            wr_id: receive.wr_id,
            qp: self.number,
            index: receive.past.get(),
            opcode: opcode::RECV,
            status: status.code(),
            vendor: detail.code(),
            flags: cqe_flags::RECV,
            ..Cqe::default()
        })
    }
}

/// The index past a WQE. `None` if its number of blocks is invalid, so that the index of the next
/// one is unknown.
pub(crate) fn past(wqe: &SendWqe, index: Index, posted: u32) -> Option<Index> {
    let blocks = u32::from(wqe.blocks);
    let valid = blocks != 0 && blocks <= MAX_BLOCKS as u32 && blocks <= posted;
    valid.then(|| index.plus(blocks))
}

/// All queue pairs.
pub(crate) struct QueuePairs<M>(Table<QueuePair<M>>);

impl<M> core::ops::Deref for QueuePairs<M> {
    type Target = Table<QueuePair<M>>;
    fn deref(&self) -> &Table<QueuePair<M>> {
        &self.0
    }
}

impl<M> core::ops::DerefMut for QueuePairs<M> {
    fn deref_mut(&mut self) -> &mut Table<QueuePair<M>> {
        &mut self.0
    }
}

impl<M: Mapping> QueuePairs<M> {
    /// For at most `limit` queue pairs.
    pub(crate) fn new(limit: u32) -> Self {
        Self(Table::of_queue_pairs(limit))
    }

    /// Queues a queue pair for a turn if it has work.
    pub(crate) fn enqueue<H: Host<Map = M>>(&self, core: &mut Core<H>, qp: Number) {
        if let Some(found) = self.get(qp) {
            if found.has_work() {
                core.enqueue(qp.index(), found.page);
            }
        }
    }

    /// Makes the sender wait before it tries again: for the rest of the wait that it was woken from,
    /// or for so many nanoseconds, or for its peer alone. Returns false if no retry is left.
    pub(crate) fn retry_later<H: Host<Map = M>>(
        &mut self,
        core: &mut Core<H>,
        qp: Number,
        step: Step,
        nanos: Option<u64>,
    ) -> bool {
        let Some(found) = self.get_mut(qp).filter(|_| core.is_ready()) else {
            return true;
        };
        let now = core.bus.host.now();
        let due = match found.tries.rest(step, now) {
            Some(due) => due,
            None => {
                let due = nanos.map_or(u64::MAX, |nanos| now.saturating_add(nanos));
                let limit = found.retries(step);
                if !found.tries.begin(step, limit, due) {
                    return false;
                }
                core.bus.count(step.counter());
                due
            }
        };
        found.waiting = true;
        core.retry_at(qp.index(), due);
        true
    }

    /// Wakes the senders that have waited long enough.
    pub(crate) fn retries_due<H: Host<Map = M>>(&mut self, core: &mut Core<H>, now: u64) {
        while let Some((index, due)) = core.retries.first() {
            if due > now {
                return;
            }
            core.retries.remove(index);
            let qp = self.at(index);
            if let Some(found) = qp.and_then(|qp| self.get_mut(qp)) {
                let qp = found.number;
                self.wake(core, qp);
            }
        }
    }

    /// Ends the wait of a sender.
    #[inline(never)]
    pub(crate) fn wake<H: Host<Map = M>>(&mut self, core: &mut Core<H>, qp: Number) {
        if let Some(found) = self.get_mut(qp) {
            match &mut found.link {
                Some(link) => link.wake(),
                None => found.waiting = false,
            }
            core.retries.remove(qp.index());
            self.enqueue(core, qp);
        }
    }

    /// Wakes the peer of a queue pair if it waits for a change of this one.
    pub(crate) fn wake_peer<H: Host<Map = M>>(&mut self, core: &mut Core<H>, qp: Number) {
        let Some(peer) = self.get(qp).and_then(|found| found.path.here()) else {
            return;
        };
        let waits = |peer: &QueuePair<M>| peer.waiting && peer.path.leads_to(qp);
        if self.get(peer).is_some_and(waits) {
            self.wake(core, peer);
        }
    }

    /// Wakes the peer of a queue pair for a receive of an SRQ. Returns whether it has a turn next.
    pub(crate) fn feed_peer<H: Host<Map = M>>(
        &mut self,
        core: &mut Core<H>,
        qp: Number,
        srq: Number,
    ) -> bool {
        self.wake_peer(core, qp);
        let sender = self.get(qp).and_then(|found| found.path.here());
        let found = sender.and_then(|sender| self.get_mut(sender));
        let waits = |found: &&mut QueuePair<M>| found.path.leads_to(qp) && found.has_work();
        let Some(found) = found.filter(waits) else {
            return false;
        };
        found.fed_by = srq;
        // One that has its turn just now gets another.
        core.enqueue(found.number.index(), found.page);
        true
    }

    /// Changes the state of a queue pair.
    pub(crate) fn set_state<H: Host<Map = M>>(&mut self, core: &mut Core<H>, qp: Number, to: u8) {
        let Some(found) = self.get_mut(qp) else {
            return;
        };
        let from = core::mem::replace(&mut found.attributes.state, to);
        core.bus.host.trace(Trace::State { qp, from, to });
        if to == qp_state::ERROR {
            found.waiting = false;
            // One that is due stays due.
            found.last_due |= from != to && found.shares();
            core.retries.remove(qp.index());
        }
        self.wake_peer(core, qp);
        self.enqueue(core, qp);
    }

    /// Stops a queue pair that failed, with an event if no completion reports it.
    pub(crate) fn stop<H: Host<Map = M>>(
        &mut self,
        core: &mut Core<H>,
        events: &mut Events<M>,
        qp: Number,
        event: Option<(Subject, Status)>,
    ) {
        let runs = |found: &QueuePair<M>| found.state != qp_state::ERROR;
        if !self.get(qp).is_some_and(runs) {
            return;
        }
        self.set_state(core, qp, qp_state::ERROR);
        if let Some((subject, why)) = event {
            events.report(core, subject, why.code());
        }
    }

    /// Stops the queue pairs of a CQ that was overrun. This is a search, but at most once for each
    /// CQ.
    pub(crate) fn stop_users<H: Host<Map = M>>(
        &mut self,
        core: &mut Core<H>,
        events: &mut Events<M>,
        cq: Number,
    ) {
        for index in 0..self.indices() {
            let uses = |found: &&QueuePair<M>| found.send_cq == cq || found.recv_cq == cq;
            let qp = self.at(index).and_then(|qp| self.get(qp)).filter(uses);
            if let Some(qp) = qp.map(|found| found.number) {
                let event = (Subject::Fatal(qp), Status::General);
                self.stop(core, events, qp, Some(event));
            }
        }
    }
}
