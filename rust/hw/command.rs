// SPDX-License-Identifier: GPL-2.0

//! The commands. A type binds the opcode, the input, the output and the reply.
//!
//! Objects of all kinds are created, modified, queried and destroyed alike, so the commands are
//! generic over the kind: the reply of `Create::<Qp>(context)` is a number, that of
//! `Query::<Cq>::new(number)` a CQ's context, that of `Destroy::<Qp>::new(number)` an [`Ended`].

use super::prelude::*;
use crate::{
    abi::{
        command::{
            kind,
            opcode,
            verb,
            CqContext,
            EqContext,
            FrmrContext,
            GidContext,
            MrContext,
            MwContext,
            QpContext,
            SrqContext, //
        },
        counters::Counter,
        status::AdminError, //
    },
    queue::resize::Switch, //
};
use core::marker::PhantomData;

/// Words of context memory of a command: the largest context, aligned to 64 bytes.
pub(super) const CONTEXT_WORDS: usize = 40;

/// The input or output of a command, as words.
pub(crate) trait Payload: Sized {
    /// Words that it takes, at most [`CONTEXT_WORDS`].
    const WORDS: usize;
    /// Encodes it into the first [`Self::WORDS`] of `words`.
    fn put(&self, words: &mut [u64; CONTEXT_WORDS]);
    /// Decodes it from the first [`Self::WORDS`] of `words`.
    fn get(words: &[u64; CONTEXT_WORDS]) -> Self;
}

impl Payload for () {
    const WORDS: usize = 0;
    fn put(&self, _words: &mut [u64; CONTEXT_WORDS]) {}
    fn get(_words: &[u64; CONTEXT_WORDS]) -> Self {}
}

impl<const N: usize> Payload for [u64; N] {
    const WORDS: usize = N;
    fn put(&self, words: &mut [u64; CONTEXT_WORDS]) {
        for (word, value) in words.iter_mut().zip(self) {
            *word = *value;
        }
    }
    fn get(words: &[u64; CONTEXT_WORDS]) -> Self {
        core::array::from_fn(|i| words.get(i).copied().unwrap_or(0))
    }
}

macro_rules! payloads {
    ($($context:ty),* $(,)?) => { $(
        impl Payload for $context {
            const WORDS: usize = <$context>::WORDS;
            fn put(&self, words: &mut [u64; CONTEXT_WORDS]) {
                self.encode().put(words);
            }
            fn get(words: &[u64; CONTEXT_WORDS]) -> Self {
                Self::decode(&Payload::get(words))
            }
        }
    )* };
}
payloads!(
    EqContext,
    CqContext,
    QpContext,
    MrContext,
    SrqContext,
    MwContext,
    FrmrContext,
    GidContext
);

/// The results in a command's completion.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Results(pub(super) [u32; 3]);

/// An admin command: its opcode, what the device reads and what it writes.
pub(crate) trait Command {
    /// The verb and the kind of object.
    const OPCODE: u8;
    /// Whether a refusal makes the device fatal.
    const MUST: bool = false;
    /// Words that the device reads.
    type Input: Payload;
    /// Words that the device writes.
    type Output: Payload;
    /// The result for the caller.
    type Reply;

    /// The object that the command is about.
    fn number(&self) -> Number {
        Number::ADMIN
    }
    /// The attributes that a MODIFY changes; 0 of other commands.
    fn mask(&self) -> u32 {
        0
    }
    /// Words that the device reads.
    fn input(&self) -> Self::Input;
    /// The reply, from what the device has written.
    fn reply(results: Results, output: Self::Output) -> Self::Reply;
}

/// A kind of object that has commands.
pub(crate) trait Object {
    /// The low half of the opcode of its commands.
    const KIND: u8;
    /// What creates and describes it.
    type Context: Payload + Copy;
    /// The reply of MODIFY.
    type Modified: From<Results>;
    /// The reply of DESTROY.
    type Ended: From<Results>;
}

/// Which entries of a destroyed queue pair may still be in rings: those before these indices.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ended {
    /// Of the send CQ.
    pub(crate) send_cq: Index,
    /// Of the receive CQ.
    pub(crate) recv_cq: Index,
}

impl From<Results> for Ended {
    fn from(Results([send_cq, recv_cq, _]): Results) -> Self {
        Self {
            send_cq: Index::new(send_cq),
            recv_cq: Index::new(recv_cq),
        }
    }
}

/// Of a DESTROY of a CQ: the producer index of its EQ.
impl From<Results> for Index {
    fn from(Results([eq, ..]): Results) -> Self {
        Self::new(eq)
    }
}

impl From<Results> for Switch {
    fn from(Results([end, begin, _]): Results) -> Self {
        Self {
            end: Index::new(end),
            begin: Index::new(begin),
        }
    }
}

/// No entry of the object remains in a ring.
impl From<Results> for () {
    fn from(_: Results) -> Self {}
}

macro_rules! objects {
    ($($(#[$doc:meta])* $name:ident: $kind:ident, $context:ty, $modified:ty, $ended:ty;)*) => { $(
        $(#[$doc])*
        pub(crate) enum $name {}
        impl Object for $name {
            const KIND: u8 = kind::$kind;
            type Context = $context;
            type Modified = $modified;
            type Ended = $ended;
        }
    )* };
}
objects! {
    Eq: EQ, EqContext, (), ();
    Cq: CQ, CqContext, Switch, Index;
    Qp: QP, QpContext, Ended, Ended;
    /// Memory region; its number is its key.
    Mr: MR, MrContext, (), ();
    Mw: MW, MwContext, (), ();
    /// Fast registration memory region.
    Frmr: FRMR, FrmrContext, (), ();
    Pd: PD, (), (), ();
    /// Shared receive queue. The driver reads EQ 0 itself, which may have an event of it.
    Srq: SRQ, SrqContext, (), ();
}

/// Creates an object. The reply is its number.
pub(crate) struct Create<O: Object>(pub(crate) O::Context);

impl<O: Object> Command for Create<O> {
    const OPCODE: u8 = opcode(O::KIND, verb::CREATE);
    type Input = O::Context;
    type Output = ();
    type Reply = Number;
    fn input(&self) -> O::Context {
        self.0
    }
    fn reply(Results([number, ..]): Results, (): ()) -> Number {
        Number::from_raw(number)
    }
}

/// Changes the attributes in `mask`.
pub(crate) struct Modify<O: Object> {
    /// The device's number of the object.
    pub(crate) number: Number,
    /// The attributes that change: `qp_mask`, `mr_mask`, `srq_mask`; of a CQ 0, depth and ring.
    pub(crate) mask: u32,
    /// The new values of these attributes.
    pub(crate) context: O::Context,
}

impl<O: Object> Command for Modify<O> {
    const OPCODE: u8 = opcode(O::KIND, verb::MODIFY);
    type Input = O::Context;
    type Output = ();
    type Reply = O::Modified;
    fn number(&self) -> Number {
        self.number
    }
    fn mask(&self) -> u32 {
        self.mask
    }
    fn input(&self) -> O::Context {
        self.context
    }
    fn reply(results: Results, (): ()) -> O::Modified {
        results.into()
    }
}

/// Queries an object. The reply is its context.
pub(super) struct Query<O: Object>(pub(super) Number, pub(super) PhantomData<O>);

impl<O: Object> Command for Query<O> {
    const OPCODE: u8 = opcode(O::KIND, verb::QUERY);
    type Input = ();
    type Output = O::Context;
    type Reply = O::Context;
    fn number(&self) -> Number {
        self.0
    }
    fn input(&self) {}
    fn reply(_: Results, context: O::Context) -> O::Context {
        context
    }
}

/// Destroys an object. A refusal makes the device fatal.
pub(super) struct Destroy<O: Object>(pub(super) Number, pub(super) PhantomData<O>);

impl<O: Object> Command for Destroy<O> {
    const OPCODE: u8 = opcode(O::KIND, verb::DESTROY);
    const MUST: bool = true;
    type Input = ();
    type Output = ();
    type Reply = O::Ended;
    fn number(&self) -> Number {
        self.0
    }
    fn input(&self) {}
    fn reply(results: Results, (): ()) -> O::Ended {
        results.into()
    }
}

/// Queries the counters of the device.
pub(crate) struct QueryCounters;

impl Command for QueryCounters {
    const OPCODE: u8 = opcode(kind::DEVICE, verb::QUERY);
    type Input = ();
    type Output = [u64; Counter::COUNT];
    type Reply = [u64; Counter::COUNT];
    fn input(&self) {}
    fn reply(_: Results, counters: [u64; Counter::COUNT]) -> Self::Reply {
        counters
    }
}

/// Sets an entry of the port's table of GIDs.
pub(crate) struct SetGid {
    /// The entry of the table, from 0.
    pub(crate) index: u16,
    /// The GID; 0 empties the entry.
    pub(crate) gid: GidContext,
}

impl Command for SetGid {
    const OPCODE: u8 = opcode(kind::GID, verb::MODIFY);
    type Input = GidContext;
    type Output = ();
    type Reply = ();
    fn number(&self) -> Number {
        Number::from_raw(self.index.into())
    }
    fn input(&self) -> GidContext {
        self.gid
    }
    fn reply(_: Results, (): ()) {}
}

/// Changes the membership of a queue pair in a group: `verb::ATTACH` makes it a member, `verb::DETACH`
/// ends that.
pub(crate) struct Member<const VERB: u8> {
    /// The queue pair, of UD.
    pub(crate) number: Number,
    /// The GID of the multicast group.
    pub(crate) gid: GidContext,
}

impl<const VERB: u8> Command for Member<VERB> {
    const OPCODE: u8 = opcode(kind::QP, VERB);
    type Input = GidContext;
    type Output = ();
    type Reply = ();
    fn number(&self) -> Number {
        self.number
    }
    fn input(&self) -> GidContext {
        self.gid
    }
    fn reply(_: Results, (): ()) {}
}

/// Queries how many indices of destroyed queue pairs, CQs and SRQs of a doorbell page the device
/// keeps, in this order.
pub(crate) struct QueryPage(pub(crate) u16);

impl Command for QueryPage {
    const OPCODE: u8 = opcode(kind::PAGE, verb::QUERY);
    type Input = ();
    type Output = ();
    type Reply = [u32; 3];
    fn number(&self) -> Number {
        Number::from_raw(self.0.into())
    }
    fn input(&self) {}
    fn reply(Results(kept): Results, (): ()) -> [u32; 3] {
        kept
    }
}

/// The errno of a refusal.
pub(crate) fn errno(error: AdminError) -> Error {
    match error {
        AdminError::Number | AdminError::Reference => ENOENT,
        AdminError::Full => ENOSPC,
        AdminError::Busy => EBUSY,
        AdminError::Reserved
        | AdminError::Depth
        | AdminError::Buffer
        | AdminError::Transition
        | AdminError::Attribute => EINVAL,
        AdminError::Overrun => EPIPE,
        AdminError::Command | AdminError::Context | AdminError::Injected => EIO,
    }
}
