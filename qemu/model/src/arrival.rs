// SPDX-License-Identifier: GPL-2.0
//! Frames that are received.
//!
//! The port belongs to a network device, and sees all its frames. Those of RoCEv2 to a GID of the
//! port are of this function, all others pass. Most unwanted frames are for queue pairs that are
//! gone: they are dropped before anything else of them is read.
//!
//! A frame is for a queue pair that receives, has the right checksum and well-formed headers, and is
//! what its connection expects. One that is not changes a counter, and nothing else.

use crate::datapath::DataPath;
use crate::faults::Direction;
use crate::frames::Frame;
use crate::frames::FRAME_BYTES;
use crate::function::Function;
use crate::host::Host;
use crate::message::Kind;
use crate::message::Piece;
use crate::path::gid_of;
use crate::path::Gid;
use crate::region::Range;
use crate::responder::serves;
use crate::run_queue::Budget;
use qpair_abi::command::GidContext;
use qpair_abi::counters::Counter;
use qpair_abi::entry::opcode;
use qpair_abi::entry::DATAGRAM_BYTES;
use qpair_abi::entry::GRH_BYTES;
use qpair_abi::Number;
use qpair_roce::extended::Deth;
use qpair_roce::extended::With;
use qpair_roce::frame::Bad;
use qpair_roce::frame::Datagram;
use qpair_roce::header::Headers;
use qpair_roce::header::Service;
use qpair_roce::operation::Operation;

/// The bit of the first byte of an address that is not of one device.
const GROUP: u8 = 1;

fn is_group([gid, gid_high]: Gid) -> bool {
    GidContext { gid, gid_high }.is_group()
}

/// Whether a frame is of RoCEv2, for whatever port.
pub fn is_of_roce(frame: &[u8]) -> bool {
    let to = frame.first_chunk();
    to.is_some_and(|to| Datagram::of(frame, to).is_some())
}

impl<H: Host> Function<H> {
    /// A frame from the network. Returns whether it is of this function alone; if not, it is also for
    /// the network device.
    pub fn frame(&mut self, frame: &[u8]) -> bool {
        let data = &mut self.data;
        if !data.core.config.wired || data.core.is_dead() {
            return false;
        }
        let Some(datagram) = Datagram::of(frame, &data.core.knobs.mac) else {
            return false;
        };
        let to = gid_of(datagram.to);
        let by_group = frame.first().is_some_and(|byte| byte & GROUP != 0);
        if by_group != is_group(to) || !(by_group || data.port.has(to)) {
            return false;
        }
        if data.core.faults.are_set() {
            let dest = Number::from_raw(datagram.dest().unwrap_or(0));
            data.pass_with_faults(Direction::In, dest, frame, DataPath::arrive);
        } else {
            data.take_in(frame, &datagram);
        }
        if data.core.works_in_doorbells() && !data.core.run_queue.is_empty() {
            data.core.bus.host.wake();
        }
        !by_group
    }
}

impl<H: Host> DataPath<H> {
    /// A frame that a fault may have made one of others.
    fn arrive(&mut self, frame: &[u8]) {
        if let Some(datagram) = Datagram::of(frame, &self.core.knobs.mac) {
            self.take_in(frame, &datagram);
        }
    }

    /// A frame to a GID of the port, or to a group.
    fn take_in(&mut self, frame: &[u8], datagram: &Datagram<'_>) {
        if !self.is_linked() {
            return;
        }
        let (from, to) = (gid_of(datagram.from), gid_of(datagram.to));
        let dest = datagram.dest().map(Number::from_raw);
        let is_own = self.port.has(from);
        let is_long = frame.len() > FRAME_BYTES;
        if is_group(to) {
            // Without members it is not even foreign.
            let first = self.groups.next(to, Number::default());
            if first.is_none() || dest != Some(Number::GROUP) || is_own {
                return;
            }
            self.core.bus.count(Counter::FramesIn);
            if is_long {
                self.core.bus.count(Counter::FramesMalformed);
                return;
            }
            let frame = self.frames.copy(frame);
            self.queue_for_members(to, &frame);
            return;
        }
        self.core.bus.count(Counter::FramesIn);
        let qp = dest.map(|dest| self.port.named(dest));
        match qp.filter(|qp| !is_own && self.receives(*qp)) {
            Some(_) if is_long => self.core.bus.count(Counter::FramesMalformed),
            Some(qp) => {
                let frame = self.frames.copy(frame);
                self.queue_frame(qp, frame);
            }
            None => self.core.bus.count(Counter::FramesForeign),
        }
    }

    /// Passes the frames on that rules of faults hold until now.
    pub(crate) fn frames_due(&mut self, now: u64) {
        while let Some((direction, frame)) = self.frames.next_due(now) {
            match direction {
                Direction::In => self.arrive(&frame),
                Direction::Out => self.send_frame_now(&frame),
            }
        }
        self.core.timers.frames = self.frames.due();
    }

    /// Passes all frames on that rules of faults hold.
    pub(crate) fn release_frames(&mut self) {
        self.frames_due(u64::MAX);
        if let Some(frame) = self.frames.hold_behind(Direction::In, None) {
            self.arrive(&frame);
        }
        if let Some(frame) = self.frames.hold_behind(Direction::Out, None) {
            self.send_frame_now(&frame);
        }
    }

    /// Whether a queue pair has this number, and a state in which it receives.
    fn receives(&self, qp: Number) -> bool {
        let found = self.qps.get(qp).filter(|_| qp != Number::ADMIN);
        found.is_some_and(|found| serves(found.state))
    }

    /// Has a frame wait for a turn of each member of a group, as long as there is room.
    fn queue_for_members(&mut self, group: Gid, frame: &Frame) {
        let mut last = Number::default();
        while let Some(qp) = self.groups.next(group, last) {
            if self.frames.are_full() {
                let left = self.groups.members_after(group, last);
                self.core.bus.add(Counter::FramesOverflowed, left as u64);
                return;
            }
            self.queue_frame(qp, frame.clone());
            last = qp;
        }
    }

    /// Has a frame wait for a turn of its queue pair.
    fn queue_frame(&mut self, qp: Number, frame: Frame) {
        if !self.frames.push(qp.index(), frame) {
            self.core.bus.count(Counter::FramesOverflowed);
            return;
        }
        if let Some(found) = self.qps.get_mut(qp) {
            // With others it is queued already.
            if found.set_frames(true) {
                self.qps.enqueue(&mut self.core, qp);
            }
        }
    }

    /// Receives the frames that wait, as far as the turn goes: half of it if the queue pair also
    /// sends, requests or answers.
    pub(crate) fn receive_frames(&mut self, qp: Number, budget: &mut Budget) {
        let found = self.qps.get(qp);
        let sends = found.is_some_and(|found| found.is_linked() || !found.sq.window.is_empty());
        let mut left = budget.wqes.div_ceil(if sends { 2 } else { 1 });
        let kept = if sends { budget.bytes / 2 } else { 0 };
        while left != 0 && budget.bytes > kept && self.core.is_ready() {
            let Some((frame, is_last)) = self.frames.pop(qp.index()) else {
                break;
            };
            left -= 1;
            budget.wqes = budget.wqes.saturating_sub(1);
            budget.bytes = budget.bytes.saturating_sub(frame.len() as u64).max(kept);
            if let Some(found) = self.qps.get_mut(qp) {
                found.set_frames(!is_last);
            }
            self.receive_frame(qp, &frame);
            self.frames.discard(frame);
        }
    }

    fn receive_frame(&mut self, qp: Number, frame: &[u8]) {
        let datagram = Datagram::of(frame, &self.core.knobs.mac);
        let Some(datagram) = datagram.filter(|_| self.is_linked() && self.receives(qp)) else {
            self.core.bus.count(Counter::FramesForeign);
            return;
        };
        match datagram.open() {
            Ok((headers, payload)) => match headers.service {
                Service::Ud(deth) => {
                    self.receive_datagram(qp, &datagram, (&headers, deth), payload);
                }
                Service::Rc | Service::Uc => {
                    let ends = (&datagram.from, &datagram.to);
                    let is_of_it = self.receive_packet(qp, ends, &headers, payload);
                    self.core
                        .bus
                        .add(Counter::FramesForeign, u64::from(!is_of_it));
                }
            },
            Err(Bad::Malformed) => self.core.bus.count(Counter::FramesMalformed),
            Err(Bad::Checksum) => self.core.bus.count(Counter::FramesCorrupt),
        }
    }

    /// Fills a receive of a queue pair with a datagram.
    fn receive_datagram(
        &mut self,
        qp: Number,
        datagram: &Datagram<'_>,
        (headers, deth): (&Headers, Deth),
        payload: &[u8],
    ) {
        let (opcode, imm) = match headers.operation {
            Operation::SendOnly(With::Immediate(imm)) => (opcode::SEND_IMM, imm),
            _ => (opcode::SEND, [0; 4]),
        };
        let kind = Kind::of(opcode).filter(|_| payload.len() <= DATAGRAM_BYTES);
        let Some(kind) = kind else {
            self.core.bus.count(Counter::FramesMalformed);
            return;
        };
        let piece = Piece {
            opcode,
            kind,
            solicited: headers.solicited,
            imm: u32::from_le_bytes(imm),
            bytes: payload.len() as u32,
            range: Range {
                key: Number::default(),
                addr: 0,
                bytes: 0,
            },
        };
        let mut packet = core::mem::take(&mut self.bounce);
        let bytes = payload.len().saturating_add(GRH_BYTES);
        let whole = packet.get_mut(..bytes).unwrap_or(&mut []);
        if let Some((grh, rest)) = whole.split_first_chunk_mut() {
            *grh = datagram.grh();
            rest.copy_from_slice(payload);
        }
        let filled = self.fill_from_network(qp, deth, &piece, whole);
        self.core.bus.add(Counter::Dropped, u64::from(!filled));
        self.bounce = packet;
    }
}
