// SPDX-License-Identifier: GPL-2.0
//! Frames that were received and wait for a turn of their queue pair, and senders that wait until
//! the network has room.
//!
//! A queue pair receives in its own turns, so a flood of frames takes the share of one doorbell
//! page. Frames for which there is no room are dropped, as on any network.

use crate::config::Config;
use crate::faults::Direction;
use crate::fifo::Ends;
use crate::fifo::Links;
use qpair_roce::frame::AROUND;
use qpair_roce::psn::Psn;
use std::collections::BTreeMap;
use std::collections::VecDeque;
use std::sync::Arc;

/// The most bytes of a frame: its payload is one packet, and no header of a packet is longer than
/// 64 bytes.
pub(crate) const FRAME_BYTES: usize = AROUND + 64 + 4096;
/// The most frames that wait.
const WAITING: usize = 1024;
/// The most of one queue pair.
pub(crate) const WAITING_OF_ONE: usize = 256;

/// The most buffers that are kept for frames to come.
const SPARE: usize = 64;

/// A frame, which each member of a group has.
pub(crate) type Frame = Arc<Vec<u8>>;

/// The frames of a function.
pub(crate) struct Frames {
    /// Those that wait, by the index of the queue pair; none if the function is not wired.
    inboxes: Vec<VecDeque<Frame>>,
    waiting: usize,
    /// The buffers of frames that were received.
    spare: Vec<Frame>,
    /// Senders that wait for room, by index.
    links: Links,
    line: Ends,
    /// A frame that is built.
    pub(crate) buffer: Vec<u8>,
    /// The number of the next datagram.
    psn: Psn,
    /// Those that a fault delays, by time and order: the direction of each.
    late: BTreeMap<(u64, u64), (Direction, Frame)>,
    order: u64,
    /// Those that come after the next one that comes, and that goes.
    behind: [Option<Frame>; 2],
}

impl Frames {
    pub(crate) fn new(config: &Config) -> Self {
        let (qps, bytes) = if config.wired {
            (config.qps, FRAME_BYTES)
        } else {
            (0, 0)
        };
        Self {
            inboxes: (0..qps).map(|_| VecDeque::new()).collect(),
            waiting: 0,
            spare: Vec::new(),
            links: Links::new(qps),
            line: Ends::default(),
            buffer: vec![0; bytes],
            psn: Psn::new(0),
            late: BTreeMap::new(),
            order: 0,
            behind: [None, None],
        }
    }

    /// A copy of a frame.
    pub(crate) fn copy(&mut self, frame: &[u8]) -> Frame {
        let mut copy = self.spare.pop().unwrap_or_default();
        let bytes = Arc::make_mut(&mut copy);
        bytes.clear();
        bytes.extend_from_slice(frame);
        copy
    }

    /// A frame was received.
    pub(crate) fn discard(&mut self, frame: Frame) {
        if self.spare.len() < SPARE && Arc::strong_count(&frame) == 1 {
            self.spare.push(frame);
        }
    }

    /// Whether no other frame can wait.
    pub(crate) fn are_full(&self) -> bool {
        self.waiting >= WAITING
    }

    /// Adds a frame for the queue pair at `index`: false if there is no room.
    pub(crate) fn push(&mut self, index: usize, frame: Frame) -> bool {
        let has_room = !self.are_full();
        let inbox = self.inboxes.get_mut(index).filter(|_| has_room);
        let Some(inbox) = inbox.filter(|inbox| inbox.len() < WAITING_OF_ONE) else {
            return false;
        };
        inbox.push_back(frame);
        self.waiting += 1;
        true
    }

    /// Takes the next frame of the queue pair at `index`, and whether it was the last one.
    pub(crate) fn pop(&mut self, index: usize) -> Option<(Frame, bool)> {
        let inbox = self.inboxes.get_mut(index)?;
        let frame = inbox.pop_front()?;
        self.waiting = self.waiting.saturating_sub(1);
        Some((frame, inbox.is_empty()))
    }

    /// Drops those of the queue pair at `index`.
    pub(crate) fn clear(&mut self, index: usize) {
        if let Some(inbox) = self.inboxes.get_mut(index) {
            self.waiting = self.waiting.saturating_sub(inbox.len());
            *inbox = VecDeque::new();
        }
    }

    /// Adds the sender at `index` to those that wait for room, unless it is one.
    pub(crate) fn wait(&mut self, index: usize) {
        self.links.push(&mut self.line, index);
    }

    /// Whether a sender waits.
    #[inline]
    pub(crate) fn has_waiting(&self) -> bool {
        self.line.first().is_some()
    }

    /// Takes the sender that waits longest.
    pub(crate) fn next_waiting(&mut self) -> Option<usize> {
        let first = self.line.first()?;
        self.links.remove(&mut self.line, first);
        Some(first)
    }

    /// The number of a datagram. Receivers ignore it.
    pub(crate) fn next_psn(&mut self) -> Psn {
        let psn = self.psn;
        self.psn = psn.plus(1);
        psn
    }

    /// Holds a frame until the next one has passed; returns the one that was held.
    pub(crate) fn hold_behind(
        &mut self,
        direction: Direction,
        frame: Option<Frame>,
    ) -> Option<Frame> {
        let [inward, outward] = &mut self.behind;
        let place = match direction {
            Direction::In => inward,
            Direction::Out => outward,
        };
        core::mem::replace(place, frame)
    }

    /// Holds a frame until this time: false if too many are held.
    pub(crate) fn hold_until(&mut self, due: u64, direction: Direction, frame: Frame) -> bool {
        let has_room = self.late.len() < WAITING;
        if has_room {
            self.order += 1;
            self.late.insert((due, self.order), (direction, frame));
        }
        has_room
    }

    /// When the first frame that is held is due; `u64::MAX` is never.
    pub(crate) fn due(&self) -> u64 {
        let first = self.late.first_key_value();
        first.map_or(u64::MAX, |((due, _), _)| *due)
    }

    /// Takes a frame that is due by now.
    pub(crate) fn next_due(&mut self, now: u64) -> Option<(Direction, Frame)> {
        if self.due() > now {
            return None;
        }
        self.late.pop_first().map(|(_, held)| held)
    }
}
