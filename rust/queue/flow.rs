// SPDX-License-Identifier: GPL-2.0
//! Flow control between two senders, so that a SEND never meets an empty receive queue.
//!
//! Each side holds, of the other, as many *remote* slots as the other keeps receives posted,
//! and of its own SQ as many *local* slots as it may have sends under way, both apart for
//! data and for acknowledgements:
//!
//! | message | takes | its local slot comes back | its remote slot comes back |
//! |---|---|---|---|
//! | data | 1 local, 1 remote data slot | when the send completes | with an acknowledgement |
//! | acknowledgement | 1 local, 1 remote ack slot | when the send completes | with an acknowledgement |
//!
//! A receive that was filled is posted again at once, before anything else; the peer's slot for it
//! is then *owed*. An acknowledgement is an immediate with two 16-bit counts, the data and
//! the acknowledgement slots that are owed, and sending it pays them all.
//!
//! It is due when either count **exceeds half** of what the peer began with:
//!
//! - More than half, so that the peer cannot cause a second one before it has received the first: two would take more data than it
//!   has slots. At half it can, both sides can spend all their ack slots on acknowledgements that cross and carry nothing
//!   for each other, and then both wait for ever.
//! - At least 2 ack slots: with 1, an acknowledgement would at once make another due, and two that cross would leave none.
//! - It ends: each acknowledgement that only answers acknowledgements answers more than one of them.

use super::credit::Kind;
use super::credit::LocalAck;
use super::credit::LocalData;
use super::credit::Pool;
use super::credit::RemoteAck;
use super::credit::RemoteData;
use super::credit::RingId;
use super::credit::Slots;
use super::mutant::mutant;

/// How many of each, to begin with.
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

/// An acknowledgement or completion for more than is under way; nothing was given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bogus;

/// Slots of one kind: those that are here, and those that a message took.
#[derive(Debug)]
#[cfg_attr(feature = "explore", derive(Clone, PartialEq, Eq, Hash))]
struct Account<K: Kind> {
    here: Pool<K>,
    out: Slots<K>,
}

impl<K: Kind> Account<K> {
    const fn new(ring: RingId, count: u32) -> Self {
        Self {
            here: Pool::mint(ring, count),
            out: Slots::none(ring),
        }
    }

    fn pay(&mut self) {
        if let Some(slot) = self.here.take(1) {
            self.out.absorb(slot);
        }
    }

    fn repay(&mut self, count: u32) -> Result<(), Bogus> {
        self.here.reclaim(self.out.split(count).ok_or(Bogus)?);
        Ok(())
    }

    const fn is_whole(&self) -> bool {
        self.here.audit(self.out.count()).is_ok()
    }
}

/// One side.
#[derive(Debug)]
#[cfg_attr(feature = "explore", derive(Clone, PartialEq, Eq, Hash))]
pub struct Flow {
    local_data: Account<LocalData>,
    local_acks: Account<LocalAck>,
    remote_data: Account<RemoteData>,
    remote_acks: Account<RemoteAck>,
    /// What the peer began with.
    theirs: Credits,
    owed_data: u32,
    owed_acks: u32,
}

impl Flow {
    /// Of the queue pair `ring`, that may have `sends` under way, and keeps `ours` receives posted, to a peer that keeps `theirs`.
    pub fn new(
        ring: RingId,
        sends: Credits,
        ours: Credits,
        theirs: Credits,
    ) -> Result<Self, BadCredits> {
        if !sends.is_good() || !ours.is_good() || !theirs.is_good() {
            return Err(BadCredits);
        }
        if (ours.acks < 2 || theirs.acks < 2) && !mutant!(OneAckCredit) {
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
        self.local_data
            .here
            .free()
            .min(self.remote_data.here.free())
    }

    /// Takes what a data message takes; `false`, and nothing is taken, if it may not be sent now.
    #[inline]
    #[must_use]
    pub fn send(&mut self) -> bool {
        if self.may_send() == 0 {
            return false;
        }
        self.local_data.pay();
        self.remote_data.pay();
        true
    }

    /// Sends of `count` data messages have completed.
    #[inline]
    pub fn sent(&mut self, count: u32) -> Result<(), Bogus> {
        self.local_data.repay(count)
    }

    /// A data message was received, and its receive is posted again.
    #[inline]
    pub fn received(&mut self) {
        self.owed_data = self.owed_data.saturating_add(1);
    }

    /// Whether an acknowledgement is due, though it may have to wait.
    #[inline]
    pub fn is_due(&self) -> bool {
        if mutant!(AckAtHalf) {
            let at = |owed: u32, all: u32| owed != 0 && owed >= all / 2;
            return at(self.owed_data, self.theirs.data) || at(self.owed_acks, self.theirs.acks);
        }
        if mutant!(AckOfAck) && self.owed_acks != 0 {
            return true;
        }
        self.owed_data > self.theirs.data / 2 || self.owed_acks > self.theirs.acks / 2
    }

    /// Takes what an acknowledgement takes, if one is due and may be sent now: the immediate to send. To be asked after each
    /// message received and each send completed.
    #[inline]
    #[must_use]
    pub fn acknowledge(&mut self) -> Option<u32> {
        if !self.is_due() || self.local_acks.here.free() == 0 || self.remote_acks.here.free() == 0 {
            return None;
        }
        self.local_acks.pay();
        self.remote_acks.pay();
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
        if data > self.remote_data.out.count() {
            return Err(Bogus);
        }
        self.remote_acks.repay(acks)?;
        self.remote_data.repay(data)?;
        self.owed_acks = self.owed_acks.saturating_add(1);
        Ok(())
    }

    /// Whether every slot is here or with a message.
    pub const fn is_whole(&self) -> bool {
        self.local_data.is_whole()
            && self.local_acks.is_whole()
            && self.remote_data.is_whole()
            && self.remote_acks.is_whole()
    }
}
