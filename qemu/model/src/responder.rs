// SPDX-License-Identifier: GPL-2.0
//! The responder: serves the requests that arrive for a queue pair. It knows nothing of their sender.
//!
//! | a request is refused because of | answer | the queue pair gets |
//! |---|---|---|
//! | no receive | not ready | - |
//! | a receive too short | invalid request | local length |
//! | an invalid receive | remote operation | local QP operation |
//! | the receive's memory | remote operation | local protection |
//! | an operation that the queue pair does not allow | invalid request | local access |
//! | the alignment of an atomic, the rights of the queue pair for a FLUSH | invalid request | local access |
//! | the region, window or FRMR | remote access | local access |
//! | DMA to it | remote operation | local access |
//! | a window or FRMR that cannot be invalidated | none | local access |
//!
//! A queue pair that refuses a request fails before it answers. One of UC answers nothing, and fails
//! only if the receive is invalid by itself.

use crate::answer::Answer;
use crate::answer::Nak;
use crate::answer::Refusal;
use crate::attributes::Attributes;
use crate::datapath::DataPath;
use crate::host::Host;
use crate::message::next_range;
use crate::message::Kind;
use crate::message::Piece;
use crate::mr::Place;
use crate::region::Range;
use crate::work_queue::NoReceive;
use crate::work_queue::Receive;
use qpair_abi::command::access;
use qpair_abi::command::qp_state;
use qpair_abi::command::service;
use qpair_abi::counters::Counter;
use qpair_abi::entry::cqe_flags;
use qpair_abi::entry::frmr_of;
use qpair_abi::entry::window_of;
use qpair_abi::entry::RecvWqe;
use qpair_abi::status::Detail;
use qpair_abi::status::Status;
use qpair_abi::Number;

/// The queue pair that serves a request. Only commands change these fields, in a turn of their own.
#[derive(Clone, Copy)]
pub(crate) struct Responder {
    pub(crate) qp: Number,
    pub(crate) pd: Number,
    pub(crate) access: u8,
}

impl Responder {
    /// The queue pair of this number.
    #[inline(always)]
    pub(crate) fn of(qp: Number, attributes: &Attributes) -> Self {
        Self {
            qp,
            pd: attributes.pd,
            access: attributes.access,
        }
    }
}

/// How a request is refused for the memory that it names.
pub(crate) fn nak_of_memory(detail: Detail) -> Nak {
    match detail {
        Detail::Dma => Nak::RemoteOperation,
        _ => Nak::RemoteAccess,
    }
}

/// Whether a queue pair in this state serves its peer.
#[inline(always)]
pub(crate) fn serves(state: u8) -> bool {
    matches!(state, qp_state::RTR | qp_state::RTS | qp_state::SQD)
}

impl<H: Host> DataPath<H> {
    /// Admits a request: takes the receive that it needs, and checks the right to it.
    #[inline(always)]
    pub(crate) fn admit(&mut self, by: Responder, piece: &Piece) -> Answer<()> {
        if piece.kind.receives {
            self.admit_to_receive(by, piece.kind, piece.bytes)?;
        }
        let right = piece.kind.remote;
        if right != 0 && by.access & right == 0 {
            return Err(self.nak_access(by, Nak::InvalidRequest, Detail::Rights));
        }
        Ok(())
    }

    /// Finds the memory that a WRITE, READ or atomic names.
    #[inline(always)]
    pub(crate) fn find(&mut self, by: Responder, piece: &Piece) -> Answer<Place> {
        let found = self.find_remote(by, piece.kind.remote, piece.range);
        found.map_err(|detail| self.nak_range(by, piece.is_misaligned(), detail))
    }

    /// Takes the next receive, and checks that the message fits into it.
    fn admit_to_receive(&mut self, by: Responder, kind: &Kind, bytes: u32) -> Answer<()> {
        let detail = match self.take_receive(by.qp, 0) {
            Ok(()) if kind.remote != 0 => return Ok(()),
            Ok(()) => return self.admit_more(by, bytes),
            Err(NoReceive::Empty | NoReceive::Short) => {
                let found = self.qps.get(by.qp);
                let timer = found.map_or(0, |found| found.min_rnr_timer);
                return Err(Refusal::NotReady { timer });
            }
            Err(NoReceive::Dma) => Detail::Dma,
            Err(NoReceive::Bad(detail)) => detail,
        };
        let status = Status::LocalQpOperation;
        Err(self.nak(by, Nak::RemoteOperation, status, detail))
    }

    /// Checks that so many bytes of a SEND fit into the receive that it fills.
    pub(crate) fn admit_more(&mut self, by: Responder, bytes: u32) -> Answer<()> {
        let found = self.qps.get(by.qp);
        let receive = found.and_then(|found| found.receiving.as_ref());
        if receive.map_or(0, Receive::room) >= u64::from(bytes) {
            return Ok(());
        }
        let (nak, status) = (Nak::InvalidRequest, Status::LocalLength);
        Err(self.nak(by, nak, status, Detail::ShortReceive))
    }

    /// Refuses a request, for which its queue pair fails with this status.
    #[cold]
    pub(crate) fn nak(
        &mut self,
        by: Responder,
        nak: Nak,
        status: Status,
        detail: Detail,
    ) -> Refusal {
        let of_receive = matches!(status, Status::LocalQpOperation | Status::LocalProtection);
        let found = self.qps.get(by.qp);
        let unreliable = found.is_some_and(|found| found.service == service::UC);
        if !unreliable || of_receive {
            self.fail_receiver(by.qp, (status, detail), nak.subject(by.qp));
        }
        Refusal::Nak(nak, detail)
    }

    /// Refuses a request for its access.
    #[cold]
    pub(crate) fn nak_access(&mut self, by: Responder, nak: Nak, detail: Detail) -> Refusal {
        self.nak(by, nak, Status::LocalAccess, detail)
    }

    /// Refuses an atomic, or an atomic WRITE, for its alignment.
    #[cold]
    pub(crate) fn nak_alignment(&mut self, by: Responder) -> Refusal {
        self.nak_access(by, Nak::InvalidRequest, Detail::Alignment)
    }

    /// Refuses a request for the memory that it names. The alignment is checked before the key.
    #[cold]
    fn nak_range(&mut self, by: Responder, misaligned: bool, detail: Detail) -> Refusal {
        if misaligned {
            return self.nak_alignment(by);
        }
        self.nak_access(by, nak_of_memory(detail), detail)
    }

    /// Refuses a request, since DMA to the memory or the receive failed.
    #[cold]
    pub(crate) fn nak_dma(&mut self, by: Responder, piece: Piece) -> Refusal {
        let status = match piece.kind.remote {
            0 => Status::LocalProtection,
            _ => Status::LocalAccess,
        };
        self.nak(by, Nak::RemoteOperation, status, Detail::Dma)
    }

    /// Checks that a range is in a region that the queue pair has this right to, or in a window.
    #[inline(always)]
    fn find_remote(&self, by: Responder, right: u8, range: Range) -> Result<Place, Detail> {
        let found = self.regions.find(by.pd, right, range);
        found.or_else(|why| self.find_in_window(why, by, right, range))
    }

    /// [`find_remote`](Self::find_remote), if no region was found.
    #[cold]
    #[inline(never)]
    fn find_in_window(
        &self,
        why: Detail,
        by: Responder,
        right: u8,
        range: Range,
    ) -> Result<Place, Detail> {
        if why != Detail::Key {
            return Err(why);
        }
        let range = self.windows.find(by.qp, by.pd, right, range)?;
        // The bind has checked the rights of the region.
        self.regions.find(by.pd, 0, range)
    }

    /// Where the next bytes of a message are, and how many lie in one piece: at most `most` of a
    /// SEND.
    pub(crate) fn place(
        &mut self,
        by: Responder,
        piece: &Piece,
        most: u64,
    ) -> Answer<(Place, u64)> {
        if piece.kind.remote != 0 {
            return self.place_in_memory(by, piece);
        }
        let place = self.place_in_receive(by.qp, most);
        place.map_err(|detail| {
            let (nak, status) = (Nak::RemoteOperation, Status::LocalProtection);
            self.nak(by, nak, status, detail)
        })
    }

    /// Where the memory is that a WRITE, READ or atomic names.
    pub(crate) fn place_in_memory(&mut self, by: Responder, piece: &Piece) -> Answer<(Place, u64)> {
        let place = self.resolve_remote(by, piece.kind.remote, piece.range);
        place.map_err(|detail| self.nak_range(by, piece.is_misaligned(), detail))
    }

    /// [`place_in_memory`](Self::place_in_memory), without a refusal.
    #[inline(always)]
    pub(crate) fn resolve_remote(
        &mut self,
        by: Responder,
        right: u8,
        range: Range,
    ) -> Result<(Place, u64), Detail> {
        let (regions, bus) = (&mut self.regions, &mut self.core.bus);
        match regions.resolve(bus, by.pd, right, range) {
            Err(Detail::Key) => {
                let found = self.windows.find(by.qp, by.pd, right, range);
                found.and_then(|range| regions.resolve(bus, by.pd, 0, range))
            }
            place => place,
        }
    }

    /// Where the next bytes of a SEND go. A receive may be longer than its region, as long as the
    /// message is not.
    fn place_in_receive(&mut self, qp: Number, most: u64) -> Result<(Place, u64), Detail> {
        let found = self.qps.get_mut(qp).ok_or(Detail::State)?;
        let receive = found.receiving.as_mut().ok_or(Detail::State)?;
        let pd = receive.pd;
        let range = next_range(&receive.words, RecvWqe::WORDS, &mut receive.cursor);
        let range = range.ok_or(Detail::ShortReceive)?;
        let range = Range {
            bytes: range.bytes.min(most),
            ..range
        };
        let right = access::LOCAL_WRITE;
        self.regions.resolve(&mut self.core.bus, pd, right, range)
    }

    /// Whether a queue pair has taken the receive of a message.
    pub(crate) fn is_receiving(&self, qp: Number) -> bool {
        let found = self.qps.get(qp);
        found.is_some_and(|found| found.receiving.is_some())
    }

    /// Bytes of a SEND are in the receive.
    pub(crate) fn filled(&mut self, qp: Number, count: u32) {
        let found = self.qps.get_mut(qp);
        if let Some(receive) = found.and_then(|found| found.receiving.as_mut()) {
            receive.cursor.done = receive.cursor.done.wrapping_add(count);
        }
    }

    /// Invalidates the window or FRMR that a message names. If it cannot be invalidated, the queue
    /// pair fails, and does not answer.
    #[inline(always)]
    pub(crate) fn invalidate(&mut self, by: Responder, key: u32) -> Answer<()> {
        let regions = &mut self.regions;
        let done = match frmr_of(key) {
            Some(_) => regions.frmrs.invalidate_by_peer(by.pd, key),
            None => self.windows.invalidate(regions, (by.qp, by.pd), key),
        };
        let Err(detail) = done else {
            self.core.bus.count(Counter::Invalidations);
            return Ok(());
        };
        self.count_stale(detail, key);
        self.fail_receive(by.qp, Status::LocalAccess, detail);
        Err(Refusal::Silent(Detail::NotReady))
    }

    /// Counts a request that was refused for a key, if the key is that of a destroyed region, window
    /// or FRMR.
    pub(crate) fn count_stale(&mut self, detail: Detail, key: u32) {
        let is_stale = match (window_of(key), frmr_of(key)) {
            (Some((window, _)), _) => self.windows.is_stale(window),
            (None, Some((frmr, _))) => self.regions.frmrs.is_stale(frmr),
            (None, None) => self.regions.is_stale(Number::from_raw(key)),
        };
        if detail == Detail::Key && is_stale {
            self.core.bus.count(Counter::Stale);
        }
    }

    /// Completes the receive that a message has filled or taken. False as
    /// [`complete`](Self::complete).
    // By value: a reference would keep the caller's message in memory, 20 instructions of a WRITE.
    pub(crate) fn complete_receive(&mut self, qp: Number, piece: Piece) -> bool {
        let Some(found) = self.qps.get_mut(qp) else {
            return true;
        };
        let cq = found.recv_cq;
        match found.received(&piece) {
            Some(cqe) => self.complete(cq, &cqe, cqe.flags & cqe_flags::SOLICITED != 0),
            None => true,
        }
    }
}
