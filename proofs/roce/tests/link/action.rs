// SPDX-License-Identifier: GPL-2.0
//! The steps of a world.

/// A direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Way {
    There,
    Back,
}

/// A step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    Send,
    Answer,
    Deliver(Way),
    Lose(Way),
    Duplicate(Way),
    Swap(Way, usize),
    Deadline,
    /// A receive is posted.
    Supply,
}

impl Action {
    pub fn is_fault(self) -> bool {
        matches!(self, Self::Lose(_) | Self::Duplicate(_) | Self::Swap(..))
    }
}
