// SPDX-License-Identifier: GPL-2.0
//! The point at which the rules of [`Faults`](crate::Faults) meet a frame: before the port takes one
//! that comes, and before the machine has one that goes.

use crate::datapath::DataPath;
use crate::faults::Direction;
use crate::faults::OnWire;
use crate::frames::Frame;
use crate::host::Host;
use crate::host::Trace;
use qpair_abi::Number;
use qpair_roce::frame::Datagram;

/// A frame of which a bit is wrong, by a random number. The frame is for the same queue pair, so the
/// ICRC alone can show it.
fn corrupted(frame: &[u8], random: u64) -> Frame {
    let mut wrong = frame.to_vec();
    let datagram = frame.first_chunk().and_then(|to| Datagram::of(frame, to));
    let protected = datagram.and_then(|datagram| wrong.get_mut(datagram.protected()));
    if let Some(bytes) = protected.filter(|bytes| !bytes.is_empty()) {
        let bit = random % (bytes.len() as u64).saturating_mul(8);
        if let Some(byte) = bytes.get_mut(bit as usize / 8) {
            *byte ^= 1 << (bit % 8);
        }
    }
    Frame::new(wrong)
}

impl<H: Host> DataPath<H> {
    /// Passes a frame for this queue pair on by `pass`, with the fault that a rule has for it.
    #[cold]
    pub(crate) fn pass_with_faults(
        &mut self,
        direction: Direction,
        dest: Number,
        frame: &[u8],
        pass: fn(&mut Self, &[u8]),
    ) {
        let fault = self.core.faults.meets_frame(direction, dest);
        if let Some((place, ..)) = fault {
            self.core.bus.host.trace(Trace::Fault {
                rule: place as u32 + 1,
                qp: dest,
                opcode: 0,
                past: 0,
            });
        }
        match fault.map(|(_, on_wire, random)| (on_wire, random)) {
            None => pass(self, frame),
            Some((OnWire::Drop, _)) => {}
            Some((OnWire::Repeat, _)) => {
                pass(self, frame);
                pass(self, frame);
            }
            Some((OnWire::Corrupt, random)) => pass(self, &corrupted(frame, random)),
            Some((OnWire::Reorder, _)) => {
                let before = self
                    .frames
                    .hold_behind(direction, Some(Frame::new(frame.to_vec())));
                if let Some(before) = before {
                    pass(self, &before);
                }
                return;
            }
            Some((OnWire::Delay(nanos), _)) => {
                let due = self.core.bus.host.now().saturating_add(nanos);
                if !self
                    .frames
                    .hold_until(due, direction, Frame::new(frame.to_vec()))
                {
                    pass(self, frame);
                }
                self.core.timers.frames = self.frames.due();
                self.core.set_timer();
            }
        }
        if let Some(behind) = self.frames.hold_behind(direction, None) {
            pass(self, &behind);
        }
    }
}
