// SPDX-License-Identifier: GPL-2.0
//! The common forms of sends: a list of requests that are alike is posted by a loop that writes only
//! what differs.

use qpair_abi::entry::{send_flags, SendWqe, Sge, BLOCK_WORDS};
use qpair_queue::credit::Sq;
use qpair_queue::producer::Batch;

use crate::request::{has_imm, has_remote, put_block, room, Refusal, Request};
use crate::ring::Ring;

/// Opcodes of verbs, and sets of send flags, that have a form. Others are not common.
const WAYS: u32 = 8;

/// The forms of a queue pair's sends of one SGE, for each opcode with send flags.
#[derive(Clone, Copy, Debug)]
pub struct Templates([Template; (WAYS * WAYS) as usize]);

/// What all sends of an opcode with these flags and one SGE have: the first word of the WQE, without
/// immediate data.
#[derive(Clone, Copy, Debug)]
pub struct Template(u64);

impl Template {
    /// Of an opcode and flags that have no form.
    const NONE: Self = Self(0);

    #[inline(always)]
    fn head(self) -> SendWqe {
        SendWqe::decode(&[self.0, 0, 0, 0])
    }

    /// Whether it names memory of the peer.
    #[inline(always)]
    pub fn has_remote(self) -> bool {
        has_remote(self.head().opcode)
    }

    /// Whether a success has a completion, too.
    #[inline(always)]
    pub fn is_signaled(self) -> bool {
        self.head().flags & send_flags::SIGNALED != 0
    }

    /// Whether it carries immediate data, or a key in its place.
    #[inline(always)]
    pub fn has_imm(self) -> bool {
        has_imm(self.head().opcode)
    }
}

impl Templates {
    /// No send has a form.
    pub const NONE: Self = Self([Template::NONE; (WAYS * WAYS) as usize]);

    /// The forms of the requests that `request` makes of an opcode of verbs and flags, whose heads
    /// have so many words.
    pub fn new(head: usize, request: impl Fn(u32, u32) -> Option<Request>) -> Self {
        let blocks = (head + Sge::WORDS).div_ceil(BLOCK_WORDS);
        let mut all = Self::NONE;
        for (way, template) in (0..).zip(&mut all.0) {
            let made = request(way % WAYS, way / WAYS);
            *template = made.map_or(Template::NONE, |made| {
                let [first, ..] = made.head(made.flags, blocks, 1, 0).encode();
                Template(first)
            });
        }
        all
    }

    /// The form of a send of one SGE, if it has one.
    #[inline(always)]
    pub fn get(&self, operation: u32, flags: u32) -> Option<Template> {
        if (operation | flags) >= WAYS {
            return None;
        }
        let template = *self.0.get((flags * WAYS + operation) as usize)?;
        (template.0 != 0).then_some(template)
    }
}

/// Sends of a form. Their batch is their own, so that its indices stay in registers.
#[derive(Debug)]
pub struct Row<'a> {
    batch: Batch<'a, Ring, Sq>,
    template: Template,
}

impl<'a> Row<'a> {
    #[inline(always)]
    pub(crate) fn new(batch: Batch<'a, Ring, Sq>, template: Template) -> Self {
        Self { batch, template }
    }

    /// Posts a send. `REMOTE` and `IMM` are what its form has; `remote` and the second of `own` are
    /// not used without them. `SIGNALED` is set only if its form [is](Template::is_signaled).
    ///
    /// # Errors
    ///
    /// [`Refusal::Full`].
    #[inline(always)]
    pub fn put<const REMOTE: bool, const IMM: bool, const SIGNALED: bool>(
        &mut self,
        (wr_id, imm): (u64, u32),
        (remote_addr, rkey): (u64, u32),
        sge: &Sge,
    ) -> Result<(), Refusal> {
        let own = SendWqe {
            imm: if IMM { imm } else { 0 },
            wr_id,
            remote_addr: if REMOTE { remote_addr } else { 0 },
            rkey: if REMOTE { rkey } else { 0 },
            ..SendWqe::default()
        };
        let ([first, b, c, d], [addr, bytes]) = (own.encode(), sge.encode());
        let words = [self.first() | first, b, c, d, addr, bytes];
        self.write(&words, SIGNALED)
    }

    /// The first word, without immediate data.
    #[inline(always)]
    pub(crate) fn first(&self) -> u64 {
        self.template.0
    }

    /// Posts a send of one block; `signaled` if that is known.
    #[inline(always)]
    pub(crate) fn write<const N: usize>(
        &mut self,
        words: &[u64; N],
        signaled: bool,
    ) -> Result<(), Refusal> {
        let flags = match signaled {
            true => send_flags::SIGNALED,
            false => self.template.head().flags,
        };
        put_block(&mut self.batch, flags, words)
    }

    /// Posts a send whose head is a block, of which the device reads no more than its SGE behind
    /// that.
    #[inline(always)]
    pub(crate) fn write_behind(
        &mut self,
        head: &[u64; BLOCK_WORDS],
        sge: &[u64; Sge::WORDS],
    ) -> Result<(), Refusal> {
        let mut room = room(&mut self.batch, 2, self.template.head().flags)?;
        room.write(0, head);
        room.write(1, sge);
        room.post();
        Ok(())
    }
}
