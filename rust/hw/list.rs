// SPDX-License-Identifier: GPL-2.0

//! What a context says of a ring.

use super::ring::Ring;
use crate::{
    abi::command::BufferList,
    queue::storage::Storage, //
};

impl Ring {
    /// The buffer list for a context.
    pub(crate) fn list(&self) -> BufferList {
        BufferList {
            root: self.address(),
            bytes: (self.words() as u64) << 3,
            ..BufferList::default()
        }
    }
}
