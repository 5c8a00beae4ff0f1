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

/// Bytes of a frame that no fault touches: what follows those of an IPv4 frame is covered by its
/// checksum.
const WHOLE: usize = 47;

/// One of the bits of a frame, by a random number, is wrong.
fn corrupted(frame: &[u8], random: u64) -> Frame {
    let mut wrong = frame.to_vec();
    let bits = (wrong.len().saturating_sub(WHOLE) as u64).saturating_mul(8);
    let bit = random % bits.max(1);
    if let Some(byte) = wrong.get_mut(WHOLE.saturating_add(bit as usize / 8)) {
        *byte ^= 1 << (bit % 8);
    }
    Frame::from(wrong)
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
                let before = self.frames.hold_behind(direction, Some(Frame::from(frame)));
                if let Some(before) = before {
                    pass(self, &before);
                }
                return;
            }
            Some((OnWire::Delay(nanos), _)) => {
                let due = self.core.bus.host.now().saturating_add(nanos);
                if !self.frames.hold_until(due, direction, Frame::from(frame)) {
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
