// SPDX-License-Identifier: GPL-2.0
//! What a world is asked for: a program, limits, and what the link may do.

use qpair_roce::request::Kind;
use qpair_roce::tries::Limits;

/// Bytes of a packet.
pub const MTU: u32 = 256;

/// What a program asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    Send,
    Write,
    Read,
    Atomic,
    Flush,
    Local,
}

/// A request of a program.
#[derive(Clone, Copy, Debug)]
pub struct Wanted {
    pub what: What,
    pub packets: u32,
    pub fence: bool,
}

impl Wanted {
    pub const fn new(what: What, packets: u32) -> Self {
        let fence = false;
        Self {
            what,
            packets,
            fence,
        }
    }

    pub const fn fenced(self) -> Self {
        Self {
            fence: true,
            ..self
        }
    }

    pub fn kind(&self) -> Kind {
        match self.what {
            What::Send | What::Write => Kind::Message,
            What::Read => Kind::Read,
            What::Atomic => Kind::Atomic,
            What::Flush => Kind::Confirmed,
            What::Local => Kind::Local,
        }
    }

    /// The last packet is not full.
    pub fn bytes(&self) -> u32 {
        match self.what {
            What::Send | What::Write | What::Read => self.packets * MTU - 4,
            _ => 0,
        }
    }

    pub fn is_answered(&self) -> bool {
        matches!(self.what, What::Read | What::Atomic | What::Flush)
    }

    /// Packets that the receiver executes.
    pub fn executed(&self) -> u32 {
        match self.what {
            What::Send | What::Write => self.packets,
            What::Read | What::Atomic | What::Flush => 1,
            What::Local => 0,
        }
    }

    /// Answers with data.
    pub fn answers(&self) -> u32 {
        match self.what {
            What::Read => self.packets,
            What::Atomic | What::Flush => 1,
            _ => 0,
        }
    }
}

#[derive(Clone, Copy, Debug)]
pub struct Plan {
    pub program: &'static [Wanted],
    pub limits: Limits,
    /// Frames in flight in each direction.
    pub depth: usize,
    /// Frames that are lost, duplicated or swapped; `None` is without end.
    pub faults: Option<u8>,
    /// Receives that are posted at the beginning; others come at any time.
    pub receives: u32,
    /// A request that the peer refuses.
    pub refused: Option<u32>,
}

impl Plan {
    pub fn wanted(&self, id: u32) -> Wanted {
        self.program[id as usize]
    }

    pub fn count(&self) -> u32 {
        self.program.len() as u32
    }

    /// From the `id`th on the first request with packets to execute, or with answers.
    pub fn first_from(&self, id: u32, count: impl Fn(&Wanted) -> u32) -> u32 {
        let rest = self.program.iter().skip(id as usize);
        id + rest.take_while(|it| count(it) == 0).count() as u32
    }
}
