// SPDX-License-Identifier: GPL-2.0
//! Flow control between two senders, so that a SEND never meets an empty receive queue.
//!
//! Each side holds one *remote* slot for each receive that the other keeps posted, and one *local*
//! slot for each send that it may have in flight in its own SQ. Data and acknowledgements have
//! slots of their own:
//!
//! | message | takes | its local slot comes back | its remote slot comes back |
//! |---|---|---|---|
//! | data | 1 local, 1 remote data slot | when the send completes | with an acknowledgement |
//! | acknowledgement | 1 local, 1 remote ack slot | when the send completes | with an acknowledgement |
//!
//! A side posts a filled receive again at once; it then *owes* the peer the remote slot. An
//! acknowledgement is an immediate with two 16-bit counts: the data and the acknowledgement slots
//! owed. Sending it returns them all.
//!
//! It is due when either count **exceeds half** of the peer's initial slots:
//!
//! - More than half: the peer cannot cause a second acknowledgement before it has received the
//!   first, because that takes more data messages than it has slots. With half it can; then both
//!   sides can spend all their ack slots on acknowledgements that cross and return no ack slot, and
//!   wait for each other for ever.
//! - At least 2 ack slots: with 1, each acknowledgement makes another due at once, and two that
//!   cross leave none.
//! - Acknowledgements of acknowledgements end: each answers more than one.
//!
//! A peer that sends more than it has slots for is found out by what this side has not returned:
//! [`Flow::may_arrive`]. READs and WRITEs take no receive, so they have local slots only:
//! [`Direct`].

use qpair_queue::account::{Account, Bogus};
use qpair_queue::credit::{
    LocalAck, LocalData, LocalRead, LocalWrite, RemoteAck, RemoteData, RingId,
};

/// The initial number of slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Credits {
    /// Data messages, 1 to 65535.
    pub data: u32,
    /// Acknowledgements, 2 to 65535.
    pub acks: u32,
}

impl Credits {
    const fn is_good(self) -> bool {
        let data = self.data >= 1 && self.data <= 0xffff;
        data && self.acks >= 1 && self.acks <= 0xffff
    }
}

/// Credits out of range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadCredits;

/// One side of the flow control.
#[derive(Debug)]
pub struct Flow {
    local_data: Account<LocalData>,
    local_acks: Account<LocalAck>,
    remote_data: Account<RemoteData>,
    remote_acks: Account<RemoteAck>,
    /// The peer's initial remote slots: our receives.
    theirs: Credits,
    owed_data: u32,
    owed_acks: u32,
}

impl Flow {
    /// For the queue pair `ring`, which may have `sends` in flight and keeps `ours` receives
    /// posted; its peer keeps `theirs`.
    pub fn new(
        ring: RingId,
        sends: Credits,
        ours: Credits,
        theirs: Credits,
    ) -> Result<Self, BadCredits> {
        if !sends.is_good() || !ours.is_good() || !theirs.is_good() {
            return Err(BadCredits);
        }
        if ours.acks < 2 || theirs.acks < 2 {
            return Err(BadCredits);
        }
        Ok(Self {
            local_data: Account::new(ring, sends.data),
            local_acks: Account::new(ring, sends.acks),
            remote_data: Account::new(ring, theirs.data),
            remote_acks: Account::new(ring, theirs.acks),
            theirs: ours,
            owed_data: 0,
            owed_acks: 0,
        })
    }

    /// How many data messages may be sent now.
    #[inline]
    pub fn may_send(&self) -> u32 {
        self.local_data.free().min(self.remote_data.free())
    }

    /// Takes the slots of a data message; `false`, and takes none, if it may not be sent now.
    #[inline]
    #[must_use]
    pub fn send(&mut self) -> bool {
        self.may_send() != 0 && self.local_data.pay(1) && self.remote_data.pay(1)
    }

    /// Sends of `count` data messages have completed.
    #[inline]
    pub fn sent(&mut self, count: u32) -> Result<(), Bogus> {
        self.local_data.repay(count)
    }

    /// Whether the peer had the slot of the data message that has arrived. `held` earlier ones are
    /// still in their receives.
    #[inline]
    pub fn may_arrive(&self, held: u32) -> bool {
        self.owed_data.saturating_add(held) < self.theirs.data
    }

    /// A data message was received, and its receive is posted again.
    #[inline]
    pub fn received(&mut self) {
        self.owed_data = self.owed_data.saturating_add(1);
    }

    /// Whether an acknowledgement is due, even if no slot for it is free.
    #[inline]
    pub fn is_due(&self) -> bool {
        self.owed_data > self.theirs.data / 2 || self.owed_acks > self.theirs.acks / 2
    }

    /// Takes the slots of an acknowledgement and returns the immediate to send, if one is due and
    /// may be sent now. The caller calls this after each message received and each send completed.
    #[inline]
    #[must_use]
    pub fn acknowledge(&mut self) -> Option<u32> {
        let may = self.is_due() && self.local_acks.free() != 0 && self.remote_acks.free() != 0;
        if !may || !self.local_acks.pay(1) || !self.remote_acks.pay(1) {
            return None;
        }
        let data = core::mem::replace(&mut self.owed_data, 0);
        let acks = core::mem::replace(&mut self.owed_acks, 0);
        Some(data.min(0xffff) << 16 | acks.min(0xffff))
    }

    /// Sends of `count` acknowledgements have completed.
    #[inline]
    pub fn acknowledged(&mut self, count: u32) -> Result<(), Bogus> {
        self.local_acks.repay(count)
    }

    /// An acknowledgement was received, and its receive is posted again.
    #[inline]
    pub fn received_acknowledgement(&mut self, immediate: u32) -> Result<(), Bogus> {
        let (data, acks) = (immediate >> 16, immediate & 0xffff);
        let had_slot = self.owed_acks < self.theirs.acks;
        if data > self.remote_data.taken() || !had_slot {
            return Err(Bogus);
        }
        self.remote_acks.repay(acks)?;
        self.remote_data.repay(data)?;
        self.owed_acks = self.owed_acks.saturating_add(1);
        Ok(())
    }

    /// Whether every slot is free or taken by a message.
    pub const fn is_whole(&self) -> bool {
        self.local_data.is_whole()
            && self.local_acks.is_whole()
            && self.remote_data.is_whole()
            && self.remote_acks.is_whole()
    }
}

/// The local slots of READs and WRITEs.
#[derive(Debug)]
pub struct Direct {
    reads: Account<LocalRead>,
    writes: Account<LocalWrite>,
}

impl Direct {
    /// For the queue pair `ring`, which may have so many of each in flight.
    pub const fn new(ring: RingId, reads: u32, writes: u32) -> Self {
        Self {
            reads: Account::new(ring, reads),
            writes: Account::new(ring, writes),
        }
    }

    /// Takes the slot of a READ; `false`, and takes none, if it may not be posted now.
    #[inline]
    #[must_use]
    pub fn read(&mut self) -> bool {
        self.reads.pay(1)
    }

    /// `count` READs have completed, and return their slots.
    #[inline]
    pub fn has_read(&mut self, count: u32) -> Result<(), Bogus> {
        self.reads.repay(count)
    }

    /// Takes the slot of a WRITE; `false`, and takes none, if it may not be posted now.
    #[inline]
    #[must_use]
    pub fn write(&mut self) -> bool {
        self.writes.pay(1)
    }

    /// `count` WRITEs have completed, and return their slots.
    #[inline]
    pub fn has_written(&mut self, count: u32) -> Result<(), Bogus> {
        self.writes.repay(count)
    }

    /// Whether every slot is free or taken.
    pub const fn is_whole(&self) -> bool {
        self.reads.is_whole() && self.writes.is_whole()
    }
}
