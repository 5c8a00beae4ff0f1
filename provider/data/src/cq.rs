// SPDX-License-Identifier: GPL-2.0
//! Completion queues.
//!
//! A poll reads entries and reports each to its work queue. Entries of queue pairs that are gone,
//! or from before a reset, are left out: a program does not see them.
//!
//! A queue that is resized goes on in another ring, when the polls have read the one before.

use std::collections::VecDeque;
use std::sync::Arc;

use qpair_abi::doorbell;
use qpair_abi::entry::{cqe_flags, Cqe, OWNER};
use qpair_abi::Number;
use qpair_queue::consumer::{self, CqConsumer, Seen};
use qpair_queue::credit::{Cq as OfCq, Kind, RingId};
use qpair_queue::index::{Depth, Index};
use qpair_queue::resize::Switch;
use qpair_queue::storage::Storage;
use qpair_ring::served::Served;

use crate::lock::{self, Mutex};
use crate::queue::Work;
use crate::queues::Queues;
use crate::ring::{Doorbells, Ring};

/// An entry of a CQ, and proof that it was read.
type Entry = consumer::Entry<OfCq, { Cqe::WORDS }>;
/// The bits of a CQE's last word in which the entries of a row are alike: opcode, status, detail and
/// flags.
const ALIKE: u64 = u64::MAX << 32;

/// A completion, and the number of its queue pair as verbs have it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Completion {
    /// The entry, as the device wrote it.
    pub cqe: Cqe,
    /// The number of its queue pair.
    pub qpn: u32,
}

/// A ring in which a queue goes on.
#[derive(Clone, Copy, Debug)]
pub struct NextRing {
    /// The indices at which the queue goes on.
    pub switch: Switch,
    /// Zeroed entries, which the device writes next.
    pub ring: Ring,
    /// Entries of the ring, a power of two.
    pub depth: u32,
    /// Entries that the program may count on.
    pub usable: u32,
}

/// A [`NextRing`] whose parts fit together.
#[derive(Debug)]
struct Next {
    switch: Switch,
    ring: Ring,
    depth: Depth,
    slack: u32,
}

/// The state of a completion queue that polls change.
#[derive(Debug)]
struct State {
    consumer: CqConsumer<Ring>,
    /// Entries that may be read and unpublished.
    slack: u32,
    served: Served<Arc<Queues>>,
    /// The completion between [`Cq::start`] and [`Cq::end`].
    current: Completion,
    /// Whether the next poll publishes the head, for another reason than the slack: entries were
    /// left out, and the device keeps the index of a queue pair that is gone until the head has
    /// passed its entries; or a ring is next.
    due: bool,
    /// Rings in which it goes on, after what is unread in the ones before.
    next: VecDeque<Next>,
}

/// A completion queue of a process.
#[derive(Debug)]
pub struct Cq {
    number: Number,
    doorbells: Doorbells,
    state: Mutex<State>,
}

/// What a completion queue is made of.
#[derive(Clone, Copy, Debug)]
pub struct CqParts {
    /// The number of the device.
    pub number: Number,
    /// The ring, of zeroed entries.
    pub ring: Ring,
    /// Entries of the ring, a power of two.
    pub depth: u32,
    /// Entries that the program may count on.
    pub usable: u32,
    /// The doorbells of the process.
    pub doorbells: Doorbells,
}

impl Cq {
    /// A completion queue, for several threads. `None` if the parts do not fit together.
    pub fn new(parts: CqParts) -> Option<Self> {
        Some(Self::with(parts, lock::shared(State::new(parts)?)))
    }

    /// As [`new`](Self::new), for one thread.
    ///
    /// # Safety
    ///
    /// No two threads use it at a time, nor its queue pairs.
    pub unsafe fn single(parts: CqParts) -> Option<Self> {
        // SAFETY: By the caller's promise. No function here locks it twice.
        Some(Self::with(parts, unsafe {
            lock::alone(State::new(parts)?)
        }))
    }

    fn with(parts: CqParts, state: Mutex<State>) -> Self {
        Self {
            number: parts.number,
            doorbells: parts.doorbells,
            state,
        }
    }

    /// The name of its ring.
    pub(crate) fn ring(&self) -> RingId {
        RingId::new(self.number.raw(), 0)
    }

    #[inline(always)]
    fn publish(&self, state: &mut State) {
        let (doorbells, number) = (self.doorbells, self.number);
        state
            .consumer
            .publish(|head| doorbells.ring(doorbell::CQ_HEAD, number, head));
    }

    /// What every poll ends with. Returns whether the queue goes on in another ring, which the poll
    /// has not read.
    #[inline(always)]
    fn settle(&self, state: &mut State) -> bool {
        let mut goes_on = false;
        if state.due {
            goes_on = self.catch_up(state);
        } else if state.consumer.unpublished() > state.slack {
            self.publish(state);
        }
        state.served.passed(state.consumer.published().head());
        goes_on
    }

    #[cold]
    fn catch_up(&self, state: &mut State) -> bool {
        let goes_on = state.follow();
        self.publish(state);
        state.due = !state.next.is_empty();
        goes_on
    }

    /// Takes as many completions as there are and fit; `fill` writes each to its place. Returns
    /// how many. The third argument of `fill` is whether the completion is like the one before, but
    /// for `wr_id`, `bytes`, `imm`, `src` and `index`.
    #[inline(always)]
    pub fn poll<T>(
        &self,
        into: &mut [T],
        mut fill: impl FnMut(&mut T, &Completion, bool),
    ) -> usize {
        let mut state = self.state.lock();
        let mut taken = 0;
        loop {
            taken = state.take(self, into, taken, &mut fill);
            if !self.settle(&mut state) {
                return taken;
            }
        }
    }

    /// Locks the queue and takes a completion. Returns whether there is one; if there is none, the
    /// queue is not locked.
    pub fn start(&self) -> bool {
        let mut state = self.state.lock();
        let found = self.step(&mut state);
        if found {
            lock::keep(state);
        }
        found
    }

    /// Takes the next completion. Returns whether there is one; if there is none, the last stays.
    ///
    /// # Safety
    ///
    /// This thread is between [`start`](Self::start), which returned true, and [`end`](Self::end).
    pub unsafe fn next(&self) -> bool {
        // SAFETY: By the caller's promise.
        let mut state = unsafe { lock::held(&self.state) };
        let found = self.step(&mut state);
        lock::keep(state);
        found
    }

    /// The completion that was taken last.
    ///
    /// # Safety
    ///
    /// As of [`next`](Self::next).
    #[inline(always)]
    pub unsafe fn current(&self) -> Completion {
        // SAFETY: By the caller's promise this thread has it locked.
        unsafe { (*self.state.data_ptr()).current }
    }

    /// Unlocks the queue.
    ///
    /// # Safety
    ///
    /// As of [`next`](Self::next).
    pub unsafe fn end(&self) {
        // SAFETY: By the caller's promise.
        drop(unsafe { lock::held(&self.state) });
    }

    fn step(&self, state: &mut State) -> bool {
        let mut place = [Completion::default()];
        let mut taken = 0;
        loop {
            taken = state.take(self, &mut place, taken, &mut |place, taken, _| {
                *place = *taken;
            });
            if !self.settle(state) {
                break;
            }
        }
        let found = taken == 1;
        if found {
            [state.current] = place;
        }
        found
    }

    /// Locks the queue for a resize, and publishes what was read. Returns how many entries are
    /// unread.
    pub fn hold(&self) -> u32 {
        let mut state = self.state.lock();
        self.publish(&mut state);
        let mut unread = 0;
        state.visit(|_, _| unread += 1);
        lock::keep(state);
        unread
    }

    /// The device goes on in another ring. Returns how many rings before it have unread entries;
    /// `None` if the parts do not fit together.
    ///
    /// # Safety
    ///
    /// This thread is between [`hold`](Self::hold) and [`release`](Self::release).
    pub unsafe fn resized(&self, next: NextRing) -> Option<usize> {
        // SAFETY: By the caller's promise.
        let mut state = unsafe { lock::held(&self.state) };
        let added = state.add(&next);
        self.catch_up(&mut state);
        let before = added.map(|()| state.next.len());
        lock::keep(state);
        before
    }

    /// Unlocks the queue.
    ///
    /// # Safety
    ///
    /// This thread has called [`hold`](Self::hold).
    pub unsafe fn release(&self) {
        // SAFETY: By the caller's promise.
        drop(unsafe { lock::held(&self.state) });
    }

    /// Requests an event of the next completion that is written after the call, or of the next
    /// solicited or failed one.
    pub fn notify(&self, solicited: bool) {
        let place = match solicited {
            false => doorbell::CQ_NOTIFY,
            true => doorbell::CQ_NOTIFY_SOLICITED,
        };
        let (doorbells, number) = (self.doorbells, self.number);
        let state = self.state.lock();
        state
            .consumer
            .notify(|| doorbells.ring(place, number, Index::ZERO));
    }

    /// Adds a queue pair, or gives it a new life; its entries are those from `since` on, or those
    /// that were not read yet. Returns how many receives of its earlier life were not read.
    pub(crate) fn serve(&self, number: Number, queues: Arc<Queues>, since: Option<Index>) -> u32 {
        let mut state = self.state.lock();
        let unread = state.unread_receives(number);
        let since = since.unwrap_or(state.consumer.head());
        state.served.insert(number, since, queues);
        unread
    }

    /// Removes a queue pair; its entries that are left are stale. Returns how many receives are
    /// among them.
    pub(crate) fn leave(&self, number: Number) -> u32 {
        let mut state = self.state.lock();
        let unread = state.unread_receives(number);
        let left = state.served.remove(number);
        if state.consumer.unpublished() != 0 {
            self.publish(&mut state);
        }
        drop(state);
        // Not with the lock held: this may be the last reference.
        drop(left);
        unread
    }
}

impl State {
    fn new(parts: CqParts) -> Option<Self> {
        let depth = Depth::new(parts.depth)?;
        let id = RingId::new(parts.number.raw(), 0);
        // The slots of the ring are not given out: the program may make a CQ that is too small, of
        // which the device tells it by an event.
        let (consumer, _) = CqConsumer::new(id, parts.ring, depth, depth.entries()).ok()?;
        Some(Self {
            consumer,
            slack: parts.depth.checked_sub(parts.usable)?,
            served: Served::default(),
            current: Completion::default(),
            due: false,
            next: VecDeque::new(),
        })
    }

    /// Adds a ring in which the queue goes on. `None` if the parts do not fit together.
    fn add(&mut self, next: &NextRing) -> Option<()> {
        let depth = Depth::new(next.depth)?;
        let words = (next.depth as usize).checked_mul(Cqe::WORDS)?;
        let slack = next.depth.checked_sub(next.usable)?;
        if words > next.ring.words() {
            return None;
        }
        self.next.push_back(Next {
            switch: next.switch,
            ring: next.ring,
            depth,
            slack,
        });
        Some(())
    }

    /// Goes on in the next ring, if all before it is read; returns whether it does.
    fn follow(&mut self) -> bool {
        let mut goes_on = false;
        while let Some(next) = self.next.pop_front() {
            let moved = self.consumer.switch(next.switch, next.ring, next.depth);
            if moved.is_err() {
                self.next.push_front(next);
                break;
            }
            self.slack = next.slack;
            goes_on = true;
        }
        goes_on
    }

    /// Shows the unread entries of all rings.
    fn visit(&self, mut look: impl FnMut(&[u64; Cqe::WORDS], Index)) {
        self.consumer.visit(&mut look);
        for next in &self.next {
            consumer::visit(&next.ring, next.depth, next.switch.begin, &mut look);
        }
    }

    /// Takes entries until `into` is full, whose first `taken` places are; returns how many are
    /// then.
    #[inline(always)]
    fn take<T>(
        &mut self,
        cq: &Cq,
        into: &mut [T],
        mut taken: usize,
        fill: &mut impl FnMut(&mut T, &Completion, bool),
    ) -> usize {
        while let [place, places @ ..] = &mut into[taken..] {
            let Some(entry) = self.consumer.take() else {
                break;
            };
            let cqe = Cqe::decode(&entry.words);
            let Some(queues) = self.served.of_entry(cqe.qp, entry.seen.past()) else {
                self.due = true;
                continue;
            };
            let consumer = &mut self.consumer;
            let completion = Completion {
                cqe,
                qpn: queues.qpn,
            };
            let row = if cqe.flags & cqe_flags::RECV == 0 {
                let work = &mut queues.send.lock().work;
                row(consumer, cq, work, &completion, &entry, place, places, fill)
            } else if let Some(srq) = queues.srq.as_deref() {
                let more = srq.complete(|most| {
                    let Some(more) = most.checked_sub(1) else {
                        return 0;
                    };
                    let more = places.len().min(more);
                    let places = &mut places[..more];
                    1 + alike(consumer, &completion, &entry, place, places, fill, |_| true).0
                });
                Some(more)
            } else {
                let work = &mut queues.recv.lock().work;
                row(consumer, cq, work, &completion, &entry, place, places, fill)
            };
            taken += row.unwrap_or(0);
        }
        taken
    }

    /// Receives of an SRQ, of a queue pair's life, whose entries were not read.
    fn unread_receives(&mut self, number: Number) -> u32 {
        let served = self.served.get_mut(number);
        let on_srq = served.filter(|(_, queues)| queues.srq.is_some());
        let Some(life) = on_srq.map(|(life, _)| life) else {
            return 0;
        };
        let mut count = 0;
        self.visit(|words, past| {
            let cqe = Cqe::decode(words);
            let is_receive = cqe.flags & cqe_flags::RECV != 0;
            count += u32::from(cqe.qp == number && is_receive && life.includes(past));
        });
        count
    }
}

/// Fills the place of the entry `first`, and takes those that follow it, are alike and of the same
/// queue, as long as `completes` accepts their indices; returns how many follow.
#[inline(always)]
fn alike<T>(
    consumer: &mut CqConsumer<Ring>,
    completion: &Completion,
    first: &Entry,
    place: &mut T,
    places: &mut [T],
    fill: &mut impl FnMut(&mut T, &Completion, bool),
    mut completes: impl FnMut(Index) -> bool,
) -> (usize, Seen<OfCq>) {
    let Completion { cqe, qpn } = *completion;
    let of_pair = cqe.qp;
    let [.., last] = first.words;
    fill(place, completion, false);
    consumer.take_while(
        |ring| *ring,
        places,
        (ALIKE & !OWNER, last & ALIKE & !OWNER),
        |place, words| {
            let cqe = Cqe::decode(words);
            let is_its = cqe.qp == of_pair && completes(Index::new(cqe.index));
            if is_its {
                fill(place, &Completion { cqe, qpn }, true);
            }
            is_its
        },
    )
}

/// Reports the entry `first`, and those of the same work queue that follow it and are alike, to that
/// queue; returns how many were taken, `None` if `first` is stale. The life of the queue need not be
/// checked again for the later ones.
#[allow(clippy::too_many_arguments)]
#[inline(always)]
fn row<K: Kind, T>(
    consumer: &mut CqConsumer<Ring>,
    cq: &Cq,
    work: &mut Work<K>,
    completion: &Completion,
    first: &Entry,
    place: &mut T,
    places: &mut [T],
    fill: &mut impl FnMut(&mut T, &Completion, bool),
) -> Option<usize> {
    let index = Index::new(completion.cqe.index);
    let more = work.complete(index, first.seen, |row| {
        let completes = |index| row.complete(index).is_some();
        alike(consumer, completion, first, place, places, fill, completes)
    })?;
    let (doorbells, number) = (cq.doorbells, cq.number);
    work.settle(consumer, |head| {
        doorbells.ring(doorbell::CQ_HEAD, number, head)
    });
    Some(1 + more)
}
