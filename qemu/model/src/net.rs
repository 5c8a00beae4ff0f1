// SPDX-License-Identifier: GPL-2.0
//! Sends frames.
//!
//! The machine takes a bounded number of frames at a time. A sender that finds no room waits: its
//! request stays in the SQ, and nothing is dropped.

use crate::datapath::DataPath;
use crate::faults::Direction;
use crate::host::Host;
use qpair_abi::counters::Counter;
use qpair_abi::Number;
use qpair_roce::frame::build;
use qpair_roce::frame::NoFrame;
use qpair_roce::frame::Route;
use qpair_roce::header::Headers;

/// The first of the ports of UDP that RoCEv2 sends from.
const FIRST_PORT: u16 = 0xc000;

/// The port of UDP that a queue pair sends from. All frames of one take the same path.
pub(crate) fn source_port(qp: Number) -> u16 {
    FIRST_PORT | (qp.index() as u16 & !FIRST_PORT)
}

impl<H: Host> DataPath<H> {
    /// Whether frames go out and come in.
    pub(crate) fn is_linked(&self) -> bool {
        self.core.config.wired && !self.core.knobs.link_down
    }

    /// How many frames can be sent now.
    pub(crate) fn room(&mut self) -> usize {
        self.core.bus.host.room()
    }

    /// Makes a sender that found no room wait for it.
    pub(crate) fn wait_for_room(&mut self, qp: Number) {
        if let Some(found) = self.qps.get_mut(qp) {
            found.waiting = true;
            self.frames.wait(qp.index());
        }
    }

    /// Wakes the senders that wait for room, if there is some.
    pub(crate) fn wake_senders(&mut self) {
        if !self.frames.has_waiting() || self.room() == 0 {
            return;
        }
        while let Some(index) = self.frames.next_waiting() {
            if let Some(qp) = self.qps.at(index) {
                self.qps.wake(&mut self.core, qp);
            }
        }
    }

    /// Sends a frame, for which there is room. `fill` writes its payload, of `bytes` bytes. Without a
    /// link the frame is lost.
    pub(crate) fn transmit<E>(
        &mut self,
        route: &Route,
        headers: &Headers,
        bytes: usize,
        fill: impl FnOnce(&mut Self, &mut [u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut buffer = core::mem::take(&mut self.frames.buffer);
        let built = build(&mut buffer, route, headers, bytes, |payload| {
            fill(self, payload)
        });
        let frame = match &built {
            Ok(whole) => buffer.get(..*whole),
            Err(_) => None,
        };
        if let Some(frame) = frame.filter(|_| self.is_linked()) {
            if self.core.faults.are_set() {
                let dest = Number::from_raw(headers.dest);
                self.pass_with_faults(Direction::Out, dest, frame, Self::send_frame_now);
            } else {
                self.core.bus.count(Counter::FramesOut);
                self.core.bus.host.transmit(frame);
            }
        }
        self.frames.buffer = buffer;
        match built {
            Err(NoFrame::Payload(why)) => Err(why),
            // Of a packet that does not fit into a frame there is none.
            Ok(_) | Err(NoFrame::Room) => Ok(()),
        }
    }

    /// Sends a frame that a rule of faults had. Without a link it is lost, and without room, as one may
    /// be that the rule added.
    pub(crate) fn send_frame_now(&mut self, frame: &[u8]) {
        if self.is_linked() && self.room() != 0 {
            self.core.bus.count(Counter::FramesOut);
            self.core.bus.host.transmit(frame);
        }
    }

    /// Drops the frames that wait for a turn of a queue pair.
    pub(crate) fn drop_frames(&mut self, qp: Number) {
        self.frames.clear(qp.index());
        if let Some(found) = self.qps.get_mut(qp) {
            found.set_frames(false);
        }
    }
}
