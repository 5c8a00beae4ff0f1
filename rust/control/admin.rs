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
//! The device answers in the order of the ring. When it answers a command ahead of this one, the
//! wait begins anew. At most [`SLOTS`] commands are in the ring, so a command waits for at most
//! [`SLOTS`] times [`PATIENCE`], whatever the device does.
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

use super::command::{
    errno,
    Command,
    Payload,
    Results,
    CONTEXT_WORDS, //
};
use crate::{
    abi::{
        command::Command as Wqe,
        entry::{
            send_flags,
            Cqe, //
        },
        status::{
            AdminError,
            Status, //
        }, //
    },
    data::{
        batch::Done,
        cq::{
            Client,
            Queues, //
        },
        eq::EqPoller,
        function::{
            Failure,
            Function, //
        },
        qp::Tag, //
    },
    queue::index::Index,
    sys::{
        barrier,
        completion::Completion,
        dma::Coherent,
        gate::Pass,
        trace, //
    },
};
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
/// Sequence numbers of commands, as many as a tag can tell apart.
const SEQUENCES: u64 = (1 << 43) - 2;
/// How long the device may take to answer a command when it has answered those ahead.
const PATIENCE: Msecs = 10_000;

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
    fn completed(&mut self, _queues: &mut Queues, done: &[Done]) {
        for done in done {
            let tag = done.tag().get();
            let slot = self.slots.get(tag as usize % SLOTS);
            match slot.filter(|slot| slot.claim(tag)) {
                Some(slot) => slot.answer(Some(&done.cqe())),
                None => self.stale = self.stale.wrapping_add(1),
            }
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

/// What the device may still reach, although nobody needs it any more.
type Stranded = KVec<KBox<dyn Send>>;

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
    #[pin]
    stranded: Mutex<Stranded>,
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
            stranded <- new_mutex!(KVec::new(), "Admin::stranded"),
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

    /// After [`Self::abandon`], when the device is quiet: all memory goes that was kept for that.
    pub(crate) fn close(&self) {
        let abandoned = self.free.lock().abandoned.take();
        drop(abandoned);
        let stranded = core::mem::take(&mut *self.stranded.lock());
        drop(stranded);
    }

    /// Keeps what the device may still reach until it is quiet. Sleeps.
    pub(crate) fn strand<T: Send + 'static>(&self, thing: T) {
        let room = KBox::<T>::new_uninit(GFP_KERNEL);
        let mut stranded = self.stranded.lock();
        match (room, stranded.reserve(1, GFP_KERNEL)) {
            (Ok(room), Ok(())) => {
                let boxed: KBox<dyn Send> = room.write(thing);
                // Reserved above.
                let _: Result<_, _> = stranded.push_within_capacity(boxed);
            }
            _ => {
                let dev = self.function.device();
                dev_err!(dev, "no memory to keep what the device may reach: leaked\n");
                core::mem::forget(thing);
            }
        }
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
        self.attempt(pass, command)
            .map_err(|refusal| match refusal {
                Refusal::NoAnswer => self.function.error(),
                Refusal::Error(error) => error,
            })
    }

    /// Does a command that gives the device `memory`. Without an answer nobody knows whether it
    /// has it, so the memory is kept until the device is quiet. Sleeps, as [`Self::execute`].
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
                self.strand(memory);
                Err(self.function.error())
            }
        }
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
            let contexts = free.contexts.clone().ok_or_else(|| self.function.error())?;
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

        let slot = self.slots.get(index).ok_or(EINVAL)?;
        let posted = self.eq.paused(|_, state| {
            let queues = state.admin_queues().ok_or_else(|| self.function.error())?;
            queues
                .post_block(0, Tag::new(tag), wqe.encode())
                .map_err(|_| EBUSY)?;
            queues.ring(&self.function.bells(pass.dev()));
            // No error from here on: the device has the command.
            let pair = queues.pairs().first();
            Ok(pair.map_or((Index::ZERO, 0), |pair| (pair.tail(), pair.in_flight().0)))
        });
        let (past, mut left) = match posted {
            Ok(place) => place,
            Err(error) if slot.claim(tag) => return Err(Refusal::Error(error)),
            // Given up at this very moment: the answer is there.
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
                self.function.fail(Failure::Timeout);
                // Nobody else is to wait as long for a device that does not answer.
                self.abandon();
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

    /// How many commands the device has not answered, up to the one whose block ends at `past`.
    /// `None` if it has answered a later one, or the admin queue is down. Sleeps.
    fn unanswered(&self, past: Index) -> Option<u32> {
        self.eq.paused(|_, state| {
            let pair = state.admin_queues()?.pairs().first()?;
            pair.in_flight().0.checked_sub(pair.tail().since(past))
        })
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
