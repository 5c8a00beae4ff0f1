// SPDX-License-Identifier: GPL-2.0

//! The admin queue: typed commands, and who waits for them.
//!
//! A [`Command`] binds opcode, what the device reads, what it writes and what comes back, so that a
//! reply cannot be taken for another's. [`Admin::execute`] does one:
//!
//! ```text
//!   process:  take a slot -> write its context -> post (the poll is paused: it owns the SQ) -> wait
//!   poll:                                                  completion -> fill the slot -> wake
//!   process:  no answer for too long -> the device is fatal: all who wait are woken (abandon)
//! ```
//!
//! A slot has its own piece of context memory, so as many commands are in flight as there are
//! slots. Each command has a sequence number; a completion that does not carry the one that its
//! slot waits for gives nothing. Who waits cannot be interrupted, since the device may write to
//! the slot's memory until it answers; that ends with the answer or with the device.
//!
//! # Locks
//!
//! `free` guards which slots are taken, and is held for moments only. What the poll and a waiter
//! share is in atomics: the poll takes no lock.

use crate::{
    abi::{
        command::{
            kind,
            opcode,
            verb,
            Command as Wqe,
            CqContext,
            EqContext,
            MrContext,
            QpContext, //
        },
        counters::Counter,
        entry::{
            send_flags,
            Cqe,
            BLOCK_WORDS, //
        },
        status::{
            AdminError,
            Status, //
        },
        Number, //
    },
    cq::{
        Client,
        Done, //
    },
    event::EqPoller,
    function::{
        Failure,
        Function, //
    },
    qp::{
        QueuePair,
        Ready,
        Tag, //
    },
    queue::index::Index,
    sys::{
        barrier,
        completion::Completion,
        dma::Coherent,
        gate::Pass, //
    },
};
use core::marker::PhantomData;
use kernel::{
    new_condvar,
    new_mutex,
    prelude::*,
    sync::{
        atomic::{
            Acquire,
            Atomic,
            Full,
            Relaxed,
            Release, //
        },
        Arc,
        CondVar,
        Mutex, //
    },
    time::Msecs, //
};

/// Commands in flight.
pub(crate) const SLOTS: usize = 32;
/// Words of context memory of each: the largest context, and aligned to 64 bytes.
const CONTEXT_WORDS: usize = 32;
/// Sequence numbers of commands, as many as a tag can tell apart.
const SEQUENCES: u64 = (1 << 43) - 2;
/// How long a command may take.
const PATIENCE: Msecs = 10_000;

/// What a command hands to the device or gets from it, as words.
pub(crate) trait Payload: Sized {
    /// How many words.
    const WORDS: usize;
    /// Lays it into the first [`Self::WORDS`] of `words`.
    fn put(&self, words: &mut [u64; CONTEXT_WORDS]);
    /// Reads it out of the first [`Self::WORDS`] of `words`.
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
payloads!(EqContext, CqContext, QpContext, MrContext);

/// The results in a command's completion.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Results([u32; 3]);

/// An admin command.
pub(crate) trait Command {
    /// What is done to what.
    const OPCODE: u8;
    /// Whether a refusal leaves the driver without a way on.
    const MUST: bool = false;
    /// What the device reads.
    type Input: Payload;
    /// What the device writes.
    type Output: Payload;
    /// What it comes to.
    type Reply;

    /// The object.
    fn number(&self) -> Number {
        Number::ADMIN
    }
    /// What a MODIFY changes.
    fn mask(&self) -> u32 {
        0
    }
    /// What the device reads.
    fn input(&self) -> Self::Input;
    /// Makes the reply.
    fn reply(results: Results, output: Self::Output) -> Self::Reply;
}

/// A kind of object.
pub(crate) trait Object {
    /// Its code.
    const KIND: u8;
    /// What creates and describes it.
    type Context: Payload + Copy;
    /// What its end reports.
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

/// Which events of a destroyed CQ may still be in its EQ: those before this index.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CqEnded {
    /// Of its EQ.
    pub(crate) eq: Index,
}

impl From<Results> for CqEnded {
    fn from(Results([eq, _, _]): Results) -> Self {
        Self { eq: Index::new(eq) }
    }
}

/// Nothing of it is left.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Nothing;

impl From<Results> for Nothing {
    fn from(_: Results) -> Self {
        Self
    }
}

macro_rules! objects {
    ($($(#[$doc:meta])* $name:ident: $kind:ident, $context:ty, $ended:ty;)*) => { $(
        $(#[$doc])*
        pub(crate) enum $name {}
        impl Object for $name {
            const KIND: u8 = kind::$kind;
            type Context = $context;
            type Ended = $ended;
        }
    )* };
}
objects! {
    /// Event queue.
    Eq: EQ, EqContext, Nothing;
    /// Completion queue.
    Cq: CQ, CqContext, CqEnded;
    /// Queue pair.
    Qp: QP, QpContext, Ended;
    /// Memory region; its number is its key.
    Mr: MR, MrContext, Nothing;
    /// Protection domain.
    Pd: PD, (), Nothing;
}

/// Makes an object: its number.
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
    /// Which.
    pub(crate) number: Number,
    /// What.
    pub(crate) mask: u32,
    /// How.
    pub(crate) context: O::Context,
}

impl<O: Object> Command for Modify<O> {
    const OPCODE: u8 = opcode(O::KIND, verb::MODIFY);
    type Input = O::Context;
    type Output = ();
    type Reply = O::Ended;
    fn number(&self) -> Number {
        self.number
    }
    fn mask(&self) -> u32 {
        self.mask
    }
    fn input(&self) -> O::Context {
        self.context
    }
    fn reply(results: Results, (): ()) -> O::Ended {
        results.into()
    }
}

/// A command that names an object and nothing else.
macro_rules! by_number {
    ($($(#[$doc:meta])* $name:ident;)*) => { $(
        $(#[$doc])*
        pub(crate) struct $name<O: Object>(Number, PhantomData<O>);
        impl<O: Object> $name<O> {
            /// Of this object.
            pub(crate) fn new(number: Number) -> Self {
                Self(number, PhantomData)
            }
        }
    )* };
}
by_number! {
    /// Tells about an object: its context.
    Query;
    /// Ends an object.
    Destroy;
}

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

/// Tells what the device has counted.
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

/// Takes the count of a doorbell page's violations; the next one is reported again.
pub(crate) struct TakeViolations(pub(crate) u16);

impl Command for TakeViolations {
    const OPCODE: u8 = opcode(kind::PAGE, verb::MODIFY);
    type Input = ();
    type Output = ();
    type Reply = u32;
    fn number(&self) -> Number {
        Number::from_raw(self.0.into())
    }
    fn input(&self) {}
    fn reply(Results([count, ..]): Results, (): ()) -> u32 {
        count
    }
}

/// Where the answer to a command arrives.
#[pin_data]
struct Slot {
    /// Tag of the command that is waited for, 0 if none is. Whoever takes it away answers.
    wanted: Atomic<u64>,
    /// [`Self::ANSWERED`], status and detail.
    status: Atomic<u32>,
    results: [Atomic<u32>; 3],
    #[pin]
    done: Completion,
}

impl Slot {
    /// In `status`: the device has answered.
    const ANSWERED: u32 = 1 << 31;

    /// Takes the wait for `tag` away, once; who got it must call [`Self::answer`].
    fn claim(&self, tag: u64) -> bool {
        tag != 0 && self.wanted.cmpxchg(tag, 0, Full).is_ok()
    }

    fn answer(&self, cqe: Option<&Cqe>) {
        if let Some(cqe) = cqe {
            let [first, second, third] = &self.results;
            first.store(cqe.bytes, Relaxed);
            second.store(cqe.imm, Relaxed);
            third.store(cqe.src, Relaxed);
            let code = u32::from(cqe.status) | u32::from(cqe.vendor) << 8;
            self.status.store(Self::ANSWERED | code, Release);
        } else {
            self.status.store(0, Release);
        }
        self.done.complete();
    }
}

/// All slots: what the poll and those who wait share.
type Slots = KVec<Arc<Slot>>;

/// The poll's side: answers.
pub(crate) struct Answers {
    slots: Slots,
    stale: u32,
}

impl Client for Answers {
    fn completed(&mut self, _queues: &mut [QueuePair<Ready>], done: &Done) {
        let tag = done.tag.get();
        let slot = self.slots.get(tag as usize % SLOTS);
        match slot.filter(|slot| slot.claim(tag)) {
            Some(slot) => slot.answer(Some(&done.cqe)),
            None => self.stale = self.stale.wrapping_add(1),
        }
    }
}

struct Free {
    /// A bit for each slot that is free.
    slots: u32,
    sequence: u64,
    /// The context memory; `None` while no command is taken.
    contexts: Option<Arc<Coherent>>,
    /// The same, while the device may still write to it and no command is taken any more.
    abandoned: Option<Arc<Coherent>>,
}

/// The admin queue, for those who want something of the device.
#[pin_data]
pub(crate) struct Admin {
    function: Arc<Function>,
    eq: Arc<EqPoller>,
    slots: Slots,
    #[pin]
    free: Mutex<Free>,
    #[pin]
    freed: CondVar,
    commands: Atomic<u64>,
    refused: Atomic<u64>,
}

impl Admin {
    /// Makes one for `function`, whose EQ 0 is polled by `eq`. It does nothing before
    /// [`Self::open`].
    pub(crate) fn new(
        function: Arc<Function>,
        eq: Arc<EqPoller>,
    ) -> Result<impl PinInit<Self, Error>> {
        let mut slots = KVec::with_capacity(SLOTS, GFP_KERNEL)?;
        for _ in 0..SLOTS {
            let slot = pin_init!(Slot {
                wanted: Atomic::new(0),
                status: Atomic::new(0),
                results: [Atomic::new(0), Atomic::new(0), Atomic::new(0)],
                done <- Completion::new(),
            });
            slots.push(Arc::pin_init(slot, GFP_KERNEL)?, GFP_KERNEL)?;
        }
        Ok(try_pin_init!(Self {
            function,
            eq,
            slots,
            free <- new_mutex!(
                Free {
                    slots: u32::MAX,
                    sequence: 0,
                    contexts: None,
                    abandoned: None,
                },
                "Admin::free"
            ),
            freed <- new_condvar!("Admin::freed"),
            commands: Atomic::new(0),
            refused: Atomic::new(0),
        }))
    }

    /// The poll's side of it, for a new admin CQ.
    pub(crate) fn answers(&self) -> Result<Answers> {
        let mut slots = KVec::with_capacity(SLOTS, GFP_KERNEL)?;
        for slot in &self.slots {
            slots.push(slot.clone(), GFP_KERNEL)?;
        }
        Ok(Answers { slots, stale: 0 })
    }

    /// Commands are taken from now on.
    pub(crate) fn open(&self, pass: &Pass<'_>) -> Result {
        let bytes = SLOTS * CONTEXT_WORDS * 8;
        let contexts = Arc::new(Coherent::zeroed(pass, bytes)?, GFP_KERNEL)?;
        let mut free = self.free.lock();
        free.contexts = Some(contexts);
        free.slots = u32::MAX;
        Ok(())
    }

    /// No command is taken any more, and all that wait are woken with an error. What the device
    /// may still write to stays until [`Self::close`]. Process context.
    pub(crate) fn abandon(&self) {
        // Who takes a slot does so under the lock, and not without the memory.
        let mut free = self.free.lock();
        if let Some(contexts) = free.contexts.take() {
            free.abandoned = Some(contexts);
        }
        for slot in &self.slots {
            if slot.claim(slot.wanted.load(Acquire)) {
                slot.answer(None);
            }
        }
        drop(free);
        self.freed.notify_all();
    }

    /// After [`Self::abandon`], when the device is quiet: the context memory goes.
    pub(crate) fn close(&self) {
        let abandoned = self.free.lock().abandoned.take();
        drop(abandoned);
    }

    /// Commands done, and those of them that were refused.
    pub(crate) fn counts(&self) -> (u64, u64) {
        (self.commands.load(Relaxed), self.refused.load(Relaxed))
    }

    /// Does a command. Sleeps until the device has answered or is given up; whatever signals come.
    ///
    /// # Errors
    ///
    /// What the device's refusal means; `EIO` or `ENODEV` if it does not answer.
    pub(crate) fn execute<C: Command>(&self, pass: &Pass<'_>, command: C) -> Result<C::Reply> {
        const {
            assert!(C::Input::WORDS <= CONTEXT_WORDS && C::Output::WORDS <= CONTEXT_WORDS);
            assert!(C::Input::WORDS == 0 || C::Output::WORDS == 0);
        }
        let (index, tag, contexts) = self.take()?;
        let result = self.run(pass, &command, index, tag, &contexts);
        drop(contexts);
        if !matches!(result, Err(Refusal::NoAnswer)) {
            self.free.lock().slots |= 1 << index;
            self.freed.notify_one();
        }
        let result = result.map_err(|refusal| match refusal {
            Refusal::NoAnswer => self.function.error(),
            Refusal::Error(error) => error,
        });
        self.commands.fetch_add(1, Relaxed);
        if result.is_err() {
            self.refused.fetch_add(1, Relaxed);
        }
        result
    }

    /// Takes a slot, the tag of its next command and its memory.
    fn take(&self) -> Result<(usize, u64, Arc<Coherent>)> {
        let mut free = self.free.lock();
        loop {
            let contexts = free.contexts.clone().ok_or_else(|| self.function.error())?;
            if free.slots != 0 {
                let index = free.slots.trailing_zeros() as usize;
                free.slots &= !(1 << index);
                free.sequence = free.sequence % SEQUENCES + 1;
                // Never 0, and the remainder by the number of slots is the slot's index.
                let tag = free.sequence * SLOTS as u64 + index as u64;
                self.slots[index].wanted.store(tag, Release);
                return Ok((index, tag, contexts));
            }
            self.freed.wait(&mut free);
        }
    }

    fn run<C: Command>(
        &self,
        pass: &Pass<'_>,
        command: &C,
        index: usize,
        tag: u64,
        contexts: &Coherent,
    ) -> Result<C::Reply, Refusal> {
        let base = index * CONTEXT_WORDS;
        let count = C::Input::WORDS.max(C::Output::WORDS);
        let mut words = [0; CONTEXT_WORDS];
        command.input().put(&mut words);
        for (i, word) in words.iter().take(count).enumerate() {
            contexts.write(base + i, *word).ok_or(EINVAL)?;
        }
        let wqe = Wqe {
            opcode: C::OPCODE,
            flags: send_flags::SIGNALED,
            blocks: 1,
            number: command.number(),
            wr_id: 0,
            context: if count == 0 {
                0
            } else {
                contexts.address() + base as u64 * 8
            },
            mask: command.mask(),
            // CAST: At most `CONTEXT_WORDS` words.
            context_bytes: count as u32 * 8,
        };
        let mut block = [0; BLOCK_WORDS];
        block[..Wqe::WORDS].copy_from_slice(&wqe.encode());

        let slot = &self.slots[index];
        let posted = self.eq.paused(|_, state| {
            let queue = state.admin_queue().ok_or_else(|| self.function.error())?;
            queue.post_block(Tag::new(tag), block).map_err(|_| EBUSY)?;
            queue.ring_send(&self.function.bells(pass.dev()));
            Ok(())
        });
        match posted {
            Err(error) if slot.claim(tag) => return Err(Refusal::Error(error)),
            // Posted; or given up at this very moment, then the answer is there.
            _ => {}
        }
        while !slot.done.wait_timeout(PATIENCE) {
            if slot.claim(tag) {
                self.function.fail(Failure::Timeout);
                return Err(Refusal::NoAnswer);
            }
            // Whoever claimed it before is just about to answer.
        }

        let status = slot.status.load(Acquire);
        if status & Slot::ANSWERED == 0 {
            return Err(Refusal::NoAnswer);
        }
        // CAST: Each of them is a byte.
        self.check::<C>(status as u8, (status >> 8) as u8)?;
        barrier::dma_rmb();
        for (i, word) in words.iter_mut().take(C::Output::WORDS).enumerate() {
            *word = contexts.read(base + i).ok_or(EINVAL)?;
        }
        let [first, second, third] = &slot.results;
        let results = Results([
            first.load(Relaxed),
            second.load(Relaxed),
            third.load(Relaxed),
        ]);
        Ok(C::reply(results, C::Output::get(&words)))
    }

    /// What the status of a command means.
    fn check<C: Command>(&self, status: u8, detail: u8) -> Result {
        if status == Status::Success.code() {
            return Ok(());
        }
        let error = match AdminError::from_code(detail) {
            Some(error) if status == Status::General.code() => error,
            _ => AdminError::Command,
        };
        dev_dbg!(
            self.function.device(),
            "admin command {:#x}: status {status}, {}\n",
            C::OPCODE,
            error.text()
        );
        let expected = matches!(error, AdminError::Busy | AdminError::Number);
        if C::MUST && !expected {
            self.function.fail(Failure::Destroy);
        }
        Err(errno(error))
    }
}

/// Why a command was not done.
enum Refusal {
    /// There is no answer, and what the device may still do with the slot is not known: it is not
    /// used again before the device has been reset.
    NoAnswer,
    /// Refused.
    Error(Error),
}

impl From<Error> for Refusal {
    fn from(error: Error) -> Self {
        Self::Error(error)
    }
}

/// What a refusal is called for those who asked.
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
        AdminError::Command | AdminError::Context | AdminError::Injected => EIO,
    }
}
