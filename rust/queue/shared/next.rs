// SPDX-License-Identifier: GPL-2.0
//! An SRQ goes on in another ring.

use super::super::credit::Srq;
use super::super::index::Depth;
use super::super::producer::NextRing;
use super::super::producer::Producer;
use super::super::resize::Stays;
use super::super::storage::Storage;
use super::Shared;

impl<S: Storage> Shared<S> {
    /// Copies the receives in flight to `storage`, a ring of `capacity` work requests of the same
    /// stride, in which the device is to find them. Dropping the result stays in the old ring.
    ///
    /// # Errors
    ///
    /// [`Stays::Unread`]: more slots are not free than the ring has.
    pub fn resize(
        &mut self,
        storage: S,
        depth: Depth,
        capacity: u32,
    ) -> Result<Resize<'_, S>, Stays> {
        let next = self.producer.copy_to(storage, depth, capacity)?;
        let producer = &mut self.producer;
        Ok(Resize { producer, next })
    }
}

/// An SRQ whose receives in flight are in two rings. No receive can be posted meanwhile.
#[derive(Debug)]
#[must_use = "the SRQ stays in its ring"]
pub struct Resize<'a, S: Storage> {
    producer: &'a mut Producer<S, Srq>,
    next: NextRing<S>,
}

impl<S: Storage> Resize<'_, S> {
    /// The memory of the ring that the device reads until it switches.
    pub const fn storage(&self) -> &S {
        self.producer.storage()
    }

    /// The device has switched to the new ring. Returns the memory of the old one, which it does
    /// not access any more.
    pub fn end(self) -> S {
        self.producer.go_on(self.next)
    }
}
