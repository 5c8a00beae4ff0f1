// SPDX-License-Identifier: GPL-2.0

//! The admin queue: posts typed commands and waits for their answers.
//!
//! A [`Command`] binds the opcode, the input, the output and the reply, so that the reply of one
//! command cannot be read as that of another. [`Admin::execute`] executes one:
//!
//! ```text
//!   process:  take a slot -> write its context -> post (the poll is paused: it owns the SQ), wait
//!   poll:                                                 completion -> fill the slot -> wake
//!   process:  timeout -> the device is fatal: all waiters are woken (abandon)
//! ```
//!
//! The device answers in the order of the ring. The timeout of a command restarts when the device
//! answers a command ahead of it. At most [`SLOTS`] commands are in the ring, so a command waits at
//! most [`SLOTS`] times [`PATIENCE`].
//!
//! Each slot has its own context memory, so [`SLOTS`] commands can be in flight. Each command has a
//! sequence number; a completion with another number than its slot waits for is ignored.
//! The wait ignores signals: the device may write to the slot's memory until it answers or fails.
//!
//! # Locks
//!
//! `free` guards which slots are taken, and is held briefly. The poll takes no lock: it shares only
//! atomics with the waiters.

use super::{
    batch::Done,
    command::{
        errno,
        Command,
        Destroy,
        Object,
        Payload,
        Query,
        Results,
        CONTEXT_WORDS, //
    },
    cq::{
        CqClient,
        Queues, //
    },
    eq::EqPoller,
    function::Function,
    prelude::*,
    qp::Tag, //
};
use crate::{
    abi::{
        command::Command as Wqe,
        entry::Cqe,
        status::{
            AdminError,
            Status, //
        }, //
    },
    kernel::{
        dma::Coherent,
        sync::Completion, //
    }, //
};
use core::marker::PhantomData;
use kernel::{
    new_condvar,
    new_mutex,
    sync::{
        atomic::{
            Acquire,
            Atomic,
            Full,
            Relaxed,
            Release, //
        },
        barrier,
        CondVar,
        Mutex, //
    },
    time::Msecs, //
};

/// Commands that may be in flight.
pub(crate) const SLOTS: usize = 32;
/// The greatest sequence number of a command, whose tag is then at most [`Tag::MAX`].
const SEQUENCES: u64 = Tag::MAX / SLOTS as u64;
/// Timeout of a command at the head of the ring.
const PATIENCE: Msecs = 10_000;

/// The place of a command's answer.
#[pin_data]
struct Slot {
    /// Tag of the command that is waited for, 0 if none is. The task or poll that clears it
    /// answers.
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

    /// Claims the wait for `tag`, once. If it returns true, the caller must call [`Self::answer`].
    fn claim(&self, tag: u64) -> bool {
        tag != 0 && self.wanted.cmpxchg(tag, 0, Full).is_ok()
    }

    fn answer(&self, cqe: Option<&Cqe>) {
        if let Some(cqe) = cqe {
            for (result, value) in self.results.iter().zip([cqe.bytes, cqe.imm, cqe.src]) {
                result.store(value, Relaxed);
            }
            let code = u32::from(cqe.status) | u32::from(cqe.vendor) << 8;
            self.status.store(Self::ANSWERED | code, Release);
        } else {
            self.status.store(0, Release);
        }
        self.done.complete();
    }
}

/// All slots; shared by the poll and the waiters.
type Slots = Arc<KVec<Pin<KBox<Slot>>>>;

/// The poll's side: fills in the answers.
pub(crate) struct Answers {
    slots: Slots,
}

impl CqClient for Answers {
    fn completed(&mut self, _queues: &mut Queues, done: &[Done]) {
        for done in done {
            let tag = done.tag().get();
            let slot = self.slots.get(tag as usize % SLOTS);
            if let Some(slot) = slot.filter(|slot| slot.claim(tag)) {
                slot.answer(Some(&done.cqe()));
            }
        }
    }
}

struct Free {
    /// A bit for each slot that is free.
    slots: u32,
    sequence: u64,
    /// The context memory; `None` while commands are refused.
    contexts: Option<Arc<Coherent>>,
    /// The context memory after [`Admin::abandon`]: the device may still write to it.
    abandoned: Option<Arc<Coherent>>,
}

/// Memory that the device may still access, without any other use.
type Leaked = KVec<KBox<dyn Send>>;

/// The admin queue, for its callers.
#[pin_data]
pub(crate) struct Admin {
    function: Arc<Function>,
    eq: Arc<EqPoller>,
    slots: Slots,
    #[pin]
    free: Mutex<Free>,
    #[pin]
    freed: CondVar,
    #[pin]
    leaked: Mutex<Leaked>,
    commands: Atomic<u64>,
    refused: Atomic<u64>,
}

impl Admin {
    /// Makes the admin queue of `function`, whose EQ 0 is polled by `eq`. It refuses commands
    /// before [`Self::open`].
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
            slots.push(KBox::pin_init(slot, GFP_KERNEL)?, GFP_KERNEL)?;
        }
        let slots = Arc::new(slots, GFP_KERNEL)?;
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
            leaked <- new_mutex!(KVec::new(), "Admin::leaked"),
            commands: Atomic::new(0),
            refused: Atomic::new(0),
        }))
    }

    /// The poll's side, for a new admin CQ.
    pub(crate) fn answers(&self) -> Answers {
        Answers {
            slots: self.slots.clone(),
        }
    }

    /// Accepts commands from now on.
    pub(crate) fn open(&self, pass: &Pass<'_>) -> Result {
        let bytes = SLOTS * CONTEXT_WORDS * 8;
        let contexts = Arc::new(Coherent::zeroed(pass, bytes)?, GFP_KERNEL)?;
        let mut free = self.free.lock();
        free.contexts = Some(contexts);
        free.slots = u32::MAX;
        Ok(())
    }

    /// Refuses further commands and fails all waiters. Memory that the device may still write to
    /// stays until [`Self::close`]. Process context.
    pub(crate) fn abandon(&self) {
        // A slot is taken under this lock, and only while `contexts` is there.
        let mut free = self.free.lock();
        if let Some(contexts) = free.contexts.take() {
            free.abandoned = Some(contexts);
        }
        for slot in self.slots.iter() {
            if slot.claim(slot.wanted.load(Acquire)) {
                slot.answer(None);
            }
        }
        drop(free);
        self.freed.notify_all();
    }

    /// After [`Self::abandon`], when the device is quiet: frees all memory kept until then.
    pub(crate) fn close(&self) {
        let abandoned = self.free.lock().abandoned.take();
        drop(abandoned);
        let leaked = core::mem::take(&mut *self.leaked.lock());
        drop(leaked);
    }

    /// Keeps `thing`, which the device may still access, until the device is quiet. Sleeps.
    pub(crate) fn leak<T: Send + 'static>(&self, thing: T) {
        let room = KBox::<T>::new_uninit(GFP_KERNEL);
        let mut leaked = self.leaked.lock();
        match (room, leaked.reserve(1, GFP_KERNEL)) {
            (Ok(room), Ok(())) => {
                let boxed: KBox<dyn Send> = room.write(thing);
                // Reserved above.
                let _: Result<_, _> = leaked.push_within_capacity(boxed);
            }
            _ => {
                let dev = self.function.device();
                dev_err!(dev, "no memory to keep what the device may reach: leaked\n");
                core::mem::forget(thing);
            }
        }
    }

    /// Commands executed, and those of them that were refused.
    pub(crate) fn counts(&self) -> (u64, u64) {
        (self.commands.load(Relaxed), self.refused.load(Relaxed))
    }

    /// Executes a command. Sleeps until the device answers or fails; ignores signals.
    ///
    /// # Errors
    ///
    /// The errno of the device's refusal (see [`errno`]); `EIO` or `ENODEV` if it does not answer.
    pub(crate) fn execute<C: Command>(&self, pass: &Pass<'_>, command: C) -> Result<C::Reply> {
        self.attempt(pass, command)
            .map_err(|refusal| match refusal {
                Refusal::NoAnswer => self.function.supervisor.error(),
                Refusal::Error(error) => error,
            })
    }

    /// Executes a command that gives `memory` to the device. Without an answer the device may or
    /// may not use the memory, so it is kept until the device is quiet. Sleeps, as
    /// [`Self::execute`].
    ///
    /// # Errors
    ///
    /// Those of [`Self::execute`].
    pub(crate) fn create<C: Command, T: Send + 'static>(
        &self,
        pass: &Pass<'_>,
        command: C,
        memory: T,
    ) -> Result<(C::Reply, T)> {
        match self.attempt(pass, command) {
            Ok(reply) => Ok((reply, memory)),
            Err(Refusal::Error(error)) => Err(error),
            Err(Refusal::NoAnswer) => {
                self.leak(memory);
                Err(self.function.supervisor.error())
            }
        }
    }

    /// [`Self::execute`] of the query of an object.
    pub(crate) fn query<O: Object>(&self, pass: &Pass<'_>, number: Number) -> Result<O::Context> {
        self.execute(pass, Query::<O>(number, PhantomData))
    }

    /// [`Self::execute`] of the destroy of an object.
    pub(crate) fn destroy<O: Object>(&self, pass: &Pass<'_>, number: Number) -> Result<O::Ended> {
        self.execute(pass, Destroy::<O>(number, PhantomData))
    }

    fn attempt<C: Command>(&self, pass: &Pass<'_>, command: C) -> Result<C::Reply, Refusal> {
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
        self.commands.fetch_add(1, Relaxed);
        if let Err(Refusal::Error(error)) = &result {
            self.refused.fetch_add(1, Relaxed);
            trace::wrong(
                trace::Wrong::Command,
                command.number().raw(),
                error.to_errno().unsigned_abs(),
            );
        }
        result
    }

    /// Takes a slot, the tag of its next command and its memory.
    fn take(&self) -> Result<(usize, u64, Arc<Coherent>)> {
        let mut free = self.free.lock();
        loop {
            let contexts = free
                .contexts
                .clone()
                .ok_or_else(|| self.function.supervisor.error())?;
            if free.slots != 0 {
                let index = free.slots.trailing_zeros() as usize;
                free.slots &= !(1 << index);
                free.sequence = free.sequence % SEQUENCES + 1;
                // Never 0, and the remainder by the number of slots is the slot's index.
                let tag = free.sequence * SLOTS as u64 + index as u64;
                if let Some(slot) = self.slots.get(index) {
                    slot.wanted.store(tag, Release);
                }
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
            number: command.number(),
            context: if count == 0 {
                0
            } else {
                contexts.address() + base as u64 * 8
            },
            mask: command.mask(),
            // CAST: At most `CONTEXT_WORDS` words.
            context_bytes: count as u32 * 8,
            ..Wqe::default()
        };

        let slot = self.slots.get(index).ok_or(EINVAL)?;
        let posted = self.eq.paused(|_, state| {
            let queues = state
                .admin_queues()
                .ok_or_else(|| self.function.supervisor.error())?;
            let posted = queues.post_command(0, Tag::new(tag), wqe.encode());
            let past = posted.map_err(|_| EBUSY)?;
            queues.ring(&self.function.doorbells(pass.dev()));
            // No error from here on: the device has the command.
            let pair = queues.pairs().next();
            Ok((past, pair.map_or(0, |pair| pair.in_flight().0)))
        });
        let (past, mut left) = match posted {
            Ok(place) => place,
            Err(error) if slot.claim(tag) => return Err(Refusal::Error(error)),
            // Abandoned concurrently: the slot is answered.
            Err(_) => (Index::ZERO, 0),
        };
        while !slot.done.wait_timeout(PATIENCE) {
            let now = self.unanswered(past).unwrap_or(0);
            if (1..left).contains(&now) {
                // Fewer each time, so the loop ends.
                left = now;
                continue;
            }
            if slot.claim(tag) {
                self.function.supervisor.fail(Failure::Timeout);
                // Do not let other tasks run into the same timeout.
                self.abandon();
                return Err(Refusal::NoAnswer);
            }
            // Another task or the poll has claimed the wait and is about to answer.
        }

        let status = slot.status.load(Acquire);
        if status & Slot::ANSWERED == 0 {
            return Err(Refusal::NoAnswer);
        }
        // CAST: Each of them is a byte.
        self.check::<C>(status as u8, (status >> 8) as u8)?;
        barrier::dma_mb(barrier::Read);
        for (i, word) in words.iter_mut().take(C::Output::WORDS).enumerate() {
            *word = contexts.read(base + i).ok_or(EINVAL)?;
        }
        let results = slot.results.each_ref().map(|result| result.load(Relaxed));
        Ok(C::reply(Results(results), C::Output::get(&words)))
    }

    /// The number of unanswered commands, up to the one whose block ends at `past`. `None` if a
    /// later one is answered, or the admin queue is down. Sleeps.
    fn unanswered(&self, past: Index) -> Option<u32> {
        self.eq.paused(|_, state| {
            let pair = state.admin_queues()?.pairs().next()?;
            pair.in_flight().0.checked_sub(pair.sq.tail().since(past))
        })
    }

    /// Translates the status of a command.
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
            self.function.supervisor.fail(Failure::Destroy);
        }
        Err(errno(error))
    }
}

/// Why a command was not done.
enum Refusal {
    /// No answer. The device may still use the slot, so the slot stays taken until the device is
    /// reset.
    NoAnswer,
    /// The command was refused, or not posted.
    Error(Error),
}

impl From<Error> for Refusal {
    fn from(error: Error) -> Self {
        Self::Error(error)
    }
}
