// SPDX-License-Identifier: GPL-2.0
//! Which asynchronous events of an object its process has not read.
//!
//! The kernel queues each event of an object for the process, without a bound. A process that causes
//! the same event again and again, and reads none, would fill the memory of the kernel. So while an
//! event is unread, it is not queued again: its reader hears of the next one by the first.

/// Kinds of events that an object may have.
pub const KINDS: usize = 5;

/// The events of an object that are queued, as far as is known.
#[derive(Debug)]
pub struct Unread {
    /// Past the last one that was queued; wraps.
    queued: u32,
    /// Past the last one of each kind of `kinds`.
    last: [u32; KINDS],
    /// A set of kinds: those that were queued since the process had read all.
    kinds: u8,
}

const _: () = assert!(KINDS <= u8::BITS as usize);

impl Unread {
    /// No event was queued.
    pub const NONE: Self = Self {
        queued: 0,
        last: [0; KINDS],
        kinds: 0,
    };

    /// Whether an event of this kind is to be queued now. `read` counts those that the process has
    /// read, in the order in which they were queued; `is_empty` if none is left.
    pub fn admits(&mut self, kind: usize, read: u32, is_empty: bool) -> bool {
        if is_empty {
            // Ends the wait for one that was never queued, for lack of memory.
            (self.queued, self.kinds) = (read, 0);
        }
        let Some(last) = self.last.get_mut(kind) else {
            return true;
        };
        let bit = 1 << kind;
        let is_read = read.wrapping_sub(*last) as i32 >= 0;
        if self.kinds & bit != 0 && !is_read {
            return false;
        }
        self.queued = self.queued.wrapping_add(1);
        *last = self.queued;
        self.kinds |= bit;
        true
    }
}
