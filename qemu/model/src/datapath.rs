// SPDX-License-Identifier: GPL-2.0
//! The data path: the objects that work requests use, and their completions.
//!
//! A queue pair that fails goes to the error state by itself. A completion reports it, or an event if
//! there is none, and each work request that is posted is flushed with a completion.
//!
//! A completion for a full CQ overruns it. Its completions are lost for good, so its queue pairs
//! stop, and an event reports it once. Other CQs go on.

use crate::config::Config;
use crate::cq::CompletionQueue;
use crate::cq::PutError;
use crate::event::Events;
use crate::fifo::Links;
use crate::frames::Frames;
use crate::group::Groups;
use crate::host::DmaFault;
use crate::host::Host;
use crate::mr::Regions;
use crate::port::Port;
use crate::producers::Producers;
use crate::qp::QueuePairs;
use crate::qp::FETCH_WORDS;
use crate::schedule::Core;
use crate::srq::SharedReceives;
use crate::subject::Subject;
use crate::table::Deferred;
use crate::table::Table;
use crate::table::Until;
use crate::window::Windows;
use crate::work_queue::NoReceive;
use qpair_abi::command::qp_state;
use qpair_abi::counters::Counter;
use qpair_abi::entry::Cqe;
use qpair_abi::entry::SendWqe;
use qpair_abi::status::Detail;
use qpair_abi::status::Status;
use qpair_abi::Number;
use qpair_queue::index::Index;

/// Bytes of a step of a message.
pub(crate) const BOUNCE_BYTES: usize = 32 << 10;

/// The core, and the objects that work requests use.
pub(crate) struct DataPath<H: Host> {
    pub(crate) core: Core<H>,
    pub(crate) events: Events<H::Map>,
    pub(crate) cqs: Table<CompletionQueue<H::Map>>,
    /// Their producer indices; the same through resets.
    pub(crate) producers: Producers,
    pub(crate) qps: QueuePairs<H::Map>,
    pub(crate) srqs: Table<SharedReceives<H::Map>>,
    /// Queue pairs that wait for a receive, each in the line of its SRQ.
    pub(crate) starved: Links,
    pub(crate) regions: Regions<H::Map>,
    pub(crate) windows: Windows,
    pub(crate) port: Port,
    pub(crate) groups: Groups,
    pub(crate) frames: Frames,
    /// Completions of a test, for which the CQs wait until the machine continues.
    pub(crate) injected: Vec<(Number, [u64; Cqe::WORDS])>,
    /// The rules of faults have changed while the machine was stopped.
    pub(crate) frees_held: bool,
    /// Blocks of the SQ that has the turn.
    pub(crate) blocks: Vec<u64>,
    /// Bytes between the two ends of a message.
    pub(crate) bounce: Vec<u8>,
}

impl<H: Host> DataPath<H> {
    pub(crate) fn new(host: H, config: Config) -> Self {
        Self {
            events: Events::new(&config),
            cqs: Table::new(config.cqs),
            producers: Producers::new(config.cqs),
            qps: QueuePairs::new(config.qps),
            srqs: Table::new(config.srqs),
            starved: Links::new(config.qps),
            regions: Regions::new(config.mrs, config.frmrs, 0),
            windows: Windows::new(config.mws, 0),
            port: Port::default(),
            groups: Groups::default(),
            frames: Frames::new(&config),
            injected: Vec::new(),
            frees_held: false,
            blocks: vec![0; FETCH_WORDS],
            bounce: vec![0; BOUNCE_BYTES],
            core: Core::new(host, config),
        }
    }

    /// Returns to power-on: no object is left.
    pub(crate) fn power_on(&mut self) {
        let core = &mut self.core;
        let seed = match core.knobs.key_seed {
            0 => core.bus.host.random(),
            seed => seed,
        };
        self.events = Events::new(&core.config);
        self.cqs = Table::new(core.config.cqs);
        self.qps = QueuePairs::new(core.config.qps);
        self.srqs = Table::new(core.config.srqs);
        self.starved = Links::new(core.config.qps);
        self.regions = Regions::new(core.config.mrs, core.config.frmrs, seed);
        // Orders of their own: a key tells nothing of a region's.
        self.windows = Windows::new(core.config.mws, !seed);
        self.port = Port::default();
        self.groups = Groups::default();
        self.frames = Frames::new(&core.config);
        self.injected.clear();
        self.frees_held = false;
        core.power_on();
    }

    /// Drops the mappings of a range of DMA addresses.
    pub(crate) fn unmap(&mut self, first: u64, last: u64) {
        for eq in self.events.eqs.iter_mut() {
            eq.ring.unmap(first, last);
        }
        for cq in self.cqs.iter_mut() {
            cq.ring.unmap(first, last);
        }
        for qp in self.qps.iter_mut() {
            qp.sq.ring.unmap(first, last);
            qp.rq.ring.unmap(first, last);
        }
        for srq in self.srqs.iter_mut() {
            srq.ring.unmap(first, last);
        }
        self.regions.unmap(first, last);
    }

    /// Whether the rings of a deferred free have been read.
    pub(crate) fn is_over(&self, free: &Deferred) -> bool {
        let mut untils = free.untils.into_iter();
        untils.all(|until| self.has_passed(until))
    }

    fn has_passed(&self, until: Until) -> bool {
        match until {
            Until::Now => true,
            Until::Cq(cq, index) => self.cqs.get(cq).is_none_or(|cq| cq.passed() >= index),
            Until::Eq(eq, index) => {
                let eq = self.events.eqs.get(eq);
                eq.is_none_or(|eq| eq.passed() >= index)
            }
        }
    }

    /// The entries of a CQ written so far, and the index past them.
    pub(crate) fn cq_written(&self, cq: Number) -> (Until, Index) {
        let written = self.cqs.get(cq).map(CompletionQueue::written);
        written.unwrap_or((Until::Now, Index::ZERO))
    }

    /// Whether a CQ takes no completion any more.
    pub(crate) fn is_dead_cq(&self, cq: Number) -> bool {
        let cq = self.cqs.get(cq);
        cq.is_some_and(CompletionQueue::is_dead)
    }

    /// Stops a queue pair that failed, with an event if no completion reports it.
    pub(crate) fn stop(&mut self, qp: Number, event: Option<(Subject, Status)>) {
        self.qps.stop(&mut self.core, &mut self.events, qp, event);
    }

    /// Stops a sender whose request has failed, which its completion reports.
    pub(crate) fn stop_sender(&mut self, qp: Number) {
        self.stop(qp, None);
    }

    /// Writes a completion, and the event that it causes. False if the turn of the queue pair must
    /// end: the CQ is overrun, or the function stopped.
    #[inline(always)]
    pub(crate) fn complete(&mut self, cq: Number, cqe: &Cqe, solicited: bool) -> bool {
        if !self.core.is_ready() {
            return false;
        }
        let failed = cqe.status != Status::Success.code();
        if failed {
            self.core.bus.count(Counter::Errors);
            self.stop_dma();
        }
        let wakes = solicited || failed;
        self.put_completion(cq, cqe.encode(), wakes)
    }

    /// A DMA that failed since bus mastering has ended has no completion. The host clears that bit
    /// before it drops the mappings, so the CQ may still be mapped.
    #[cold]
    fn stop_dma(&mut self) {
        if !self.core.bus.host.bus_master() {
            self.unmap(0, u64::MAX);
        }
    }

    /// Writes an entry of a CQ, and the event that it causes. False as
    /// [`complete`](Self::complete).
    #[inline(always)]
    pub(crate) fn put_completion(
        &mut self,
        cq: Number,
        words: [u64; Cqe::WORDS],
        wakes: bool,
    ) -> bool {
        let Some(found) = self.cqs.get_mut(cq) else {
            return false;
        };
        match found.put(&mut self.core, &mut self.events, words, wakes) {
            Ok(()) => self.core.is_ready(),
            Err(PutError::Dead) => false,
            Err(PutError::Overrun) => {
                self.overrun(cq);
                false
            }
        }
    }

    /// A CQ was overrun: stops its queue pairs.
    #[cold]
    pub(crate) fn overrun(&mut self, cq: Number) {
        let (core, events) = (&mut self.core, &mut self.events);
        let found = self.cqs.get_mut(cq);
        if found.is_some_and(|found| found.overrun(core, events)) {
            self.qps.stop_users(core, events, cq);
        }
    }

    /// Ends a work request of the SQ, and completes it if it is signaled or failed. False as
    /// [`complete`](Self::complete).
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
        let cq = found.send_cq;
        match found.sent(wqe, past, bytes, outcome) {
            Some(cqe) => self.complete(cq, &cqe, false),
            None => true,
        }
    }

    /// Fails the receive that is being filled, and with it its queue pair.
    pub(crate) fn fail_receive(&mut self, qp: Number, status: Status, detail: Detail) {
        self.fail_receiver(qp, (status, detail), Subject::Fatal(qp));
    }

    /// Fails a queue pair, and the receive that is being filled. If there is none, an event of
    /// `subject` reports it.
    pub(crate) fn fail_receiver(
        &mut self,
        qp: Number,
        (status, detail): (Status, Detail),
        subject: Subject,
    ) {
        let mut event = Some((subject, status));
        if let Some(found) = self.qps.get_mut(qp) {
            let cq = found.recv_cq;
            if let Some(cqe) = found.receive_failed(status, detail) {
                self.complete(cq, &cqe, false);
                event = None;
            }
        }
        self.stop(qp, event);
    }

    /// A turn of a queue pair in the error state: flushes at most `left` work requests, and
    /// subtracts those that it has flushed.
    pub(crate) fn flush(&mut self, qp: Number, left: &mut u32) {
        while *left != 0 && (self.flush_receive(qp) || self.flush_send(qp)) {
            *left -= 1;
        }
        self.qps.enqueue(&mut self.core, qp);
    }

    fn flush_receive(&mut self, qp: Number) -> bool {
        let Some(found) = self.qps.get_mut(qp) else {
            return false;
        };
        match found.take_receive(&mut self.core) {
            Ok(()) | Err(NoReceive::Bad(_)) => {}
            Err(NoReceive::Empty | NoReceive::Short) => {
                self.last_receive(qp);
                return false;
            }
            Err(NoReceive::Dma) => {
                // The posted WQEs are unknown.
                found.rq.skip_posted();
                return true;
            }
        }
        self.core.bus.count(Counter::Flushes);
        self.fail_receive(qp, Status::Flush, Detail::None);
        true
    }

    /// A queue pair in the error state has no receive: reports that it takes none of its SRQ any
    /// more.
    fn last_receive(&mut self, qp: Number) {
        let Some(found) = self.qps.get_mut(qp) else {
            return;
        };
        if core::mem::take(&mut found.last_due) {
            let subject = Subject::LastReceive(qp);
            self.events.report(&mut self.core, subject, 0);
        }
    }

    /// Reports that the SQ of a queue pair in SQD has drained, if that was asked for.
    pub(crate) fn drained(&mut self, qp: Number) {
        let Some(found) = self.qps.get_mut(qp) else {
            return;
        };
        let waits = found.is_sending();
        if found.state != qp_state::SQD || waits {
            return;
        }
        if core::mem::take(&mut found.drain_asked) {
            let subject = Subject::Drained(qp);
            self.events.report(&mut self.core, subject, 0);
        }
    }

    fn flush_send(&mut self, qp: Number) -> bool {
        let Some(found) = self.qps.get_mut(qp) else {
            return false;
        };
        found.sending = None;
        if let Some(message) = found.pop_flying() {
            self.core.bus.count(Counter::Flushes);
            let flushed = Err((Status::Flush, Detail::None));
            self.complete_send(qp, &message.wqe, message.past, 0, flushed);
            return true;
        }
        match found.first_send(&mut self.core.bus) {
            Ok(Some((wqe, past))) => {
                self.core.bus.count(Counter::Flushes);
                let flushed = Err((Status::Flush, Detail::None));
                self.complete_send(qp, &wqe, past, 0, flushed);
                true
            }
            Ok(None) => false,
            Err(DmaFault) => {
                found.sq.skip_posted();
                true
            }
        }
    }
}
