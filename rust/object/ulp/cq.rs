// SPDX-License-Identifier: GPL-2.0

//! The ring of a completion queue, and the queue pairs that complete in it.

use super::{
    super::registered::Registered,
    held::{
        Held,
        Inner, //
    },
    pending::Request, //
};
use crate::{
    abi::{
        doorbell,
        entry::{
            cqe_flags,
            Cqe, //
        },
        status::Status,
        Number, //
    },
    hw::{
        cq::CqRing,
        function::Function,
        handlers::CompletionHandler,
        ring::Ring,
        table::{
            Reservation,
            Table, //
        }, //
    },
    kernel::{
        gate::Pass,
        rdma::{
            Armed,
            Completions,
            Events,
            QpEvent, //
        },
        trace, //
    },
    life::client::Client,
    queue::{
        consumer::{
            CqConsumer,
            Published,
            Seen, //
        },
        credit::{
            Cq,
            RingId, //
        },
        index::Index, //
    }, //
};
use kernel::{
    fmt,
    prelude::*,
    static_lock_class,
    sync::Arc, //
};

/// Completions that are taken before the head is published.
const BATCH: usize = 16;

/// A queue pair that completes in a CQ, which calls it under its lock.
pub(crate) trait Completes: Send + Sync + 'static {
    /// A completion that names it was read, the `taken`th entry of a CQ of its: the request.
    fn complete(&self, cqe: &Cqe, seen: Seen<Cq>, taken: u64) -> Option<Request>;
    /// The head of a CQ was published: frees the slots that completions cover.
    fn reclaim(&self, published: Published<Cq>);
    /// Whether there is a request that completes in `cq`.
    fn has_pending(&self, cq: RingId) -> bool;
    /// The next request that is flushed in software, of the queues that complete in `cq`.
    fn pop(&self, cq: RingId) -> Option<Request>;
    /// The events that name the core's queue pair in completions.
    fn events(&self) -> &Events<QpEvent>;
}

struct CqState<Q> {
    /// All that is posted is flushed. A lost device that is not quiet may still access it: nothing
    /// completes meanwhile.
    is_quiet: bool,
    /// An empty table has a pointer for 32 queue pairs of the device: 4 KiB for 16384, at most 16 KiB.
    qps: Table<Arc<Q>>,
    /// Entries taken; does not wrap.
    taken: u64,
}

type CqInner<Q> = Inner<CqConsumer<Ring>, CqState<Q>>;

impl CompletionHandler for Armed {
    /// A ULP gets an event only for an arm of its own, whatever the device writes.
    fn completion(&self) {
        self.raise();
    }
}

/// A completion queue that a kernel ULP polls, of queue pairs `Q`.
#[pin_data]
pub(crate) struct UlpCq<Q> {
    function: Arc<Function>,
    number: Number,
    pub(super) ring: RingId,
    entries: u32,
    pub(in crate::object) armed: Arc<Armed>,
    #[pin]
    held: Held<CqConsumer<Ring>, CqState<Q>>,
}

impl<Q: Completes> UlpCq<Q> {
    /// The driver's side of CQ `number`, created in `ring`. Sleeps.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn new(
        registered: &Registered,
        pass: &Pass<'_>,
        number: Number,
        ring: CqRing,
        armed: Arc<Armed>,
    ) -> Result<Arc<Self>> {
        // Its ULP counts its slots.
        let (consumer, _pool) = ring.consumer(number, registered.epoch)?;
        let (ring, entries) = (consumer.ring(), consumer.depth().entries());
        let function = registered.device.function.clone();
        let state = CqState {
            is_quiet: false,
            qps: Table::new(function.limits.qp)?,
            taken: 0,
        };
        let (lease, lock) = (pass.lease(), (c"UlpCq::held", static_lock_class!()));
        Arc::pin_init(
            pin_init!(Self {
                function,
                number,
                ring,
                entries,
                armed,
                held <- Held::new(consumer, Some(lease), state, lock),
            }),
            GFP_KERNEL,
        )
    }

    /// Adds queue pair `number`, which completes in it.
    ///
    /// # Errors
    ///
    /// `EEXIST`, `EINVAL`, as of the table.
    pub(super) fn add(&self, number: Number, qp: Arc<Q>, room: Reservation<Arc<Q>>) -> Result {
        let added = self.held.lock().state.qps.insert(number, qp, room);
        // The rest is dropped with the lock released.
        added.map_err(|(error, _qp)| error)
    }

    /// Removes a queue pair: none of its completions is taken from now on.
    pub(crate) fn remove(&self, number: Number) {
        let removed = self.held.lock().state.qps.remove(number);
        drop(removed);
    }

    /// Shows `look` the unread completions of receives of a queue pair that is destroyed, unless it is
    /// removed. Interrupts are off for as long as the ring is deep, if its ULP reads none of them.
    pub(super) fn each_recv(&self, number: Number, mut look: impl FnMut(&Cqe)) {
        let mut inner = self.held.lock();
        let Inner { memory, state, .. } = &mut *inner;
        let (Some(consumer), Some(_)) = (memory, state.qps.get_mut(number)) else {
            return;
        };
        consumer.visit(|words, _| {
            let cqe = Cqe::decode(words);
            if cqe.qp == number && cqe.flags & cqe_flags::RECV != 0 {
                look(&cqe);
            }
        });
    }

    /// The count of taken entries at which all before `past` are taken. `None`: it is reached.
    pub(super) fn taken_at(&self, past: Index) -> Option<u64> {
        let taken = self.held.lock().state.taken;
        taken_past(taken, past, self.entries)
    }

    /// Takes completions as long as there is room. Any context.
    pub(crate) fn poll(&self, into: &mut Completions<'_>) {
        // A device that writes entries of no queue pair holds the processor for no more of them than the
        // ring has, and keeps interrupts off for no more than a batch.
        let mut left = self.entries;
        while self.held.lock().batch(self, &mut left, into) {}
    }

    /// Asks for an event of the next completion, or of the next that is solicited or failed. Returns
    /// whether there is a completion that may have caused none. Any context.
    pub(crate) fn notify(&self, solicited: bool) -> bool {
        let mut inner = self.held.lock();
        self.armed.arm();
        if inner.state.is_quiet {
            // Its ULP polls once more, and finds what is flushed.
            return inner.has_pending(self.ring);
        }
        let Some((consumer, lease, _)) = inner.live() else {
            // It has an event once what is posted is flushed.
            return false;
        };
        let doorbells = self.function.doorbells(lease.dev());
        let place = if solicited {
            doorbell::CQ_NOTIFY_SOLICITED
        } else {
            doorbell::CQ_NOTIFY
        };
        trace::arm(self.number.raw(), consumer.head().get(), solicited);
        consumer.notify(|| doorbells.ring(place, self.number, 0));
        consumer.is_ready()
    }
}

impl<Q: Completes> Client for UlpCq<Q> {
    fn cut(&self) {
        self.held.cut();
    }

    /// Its ULP gets an event, and polls, if anything is posted. One without requests may be about to
    /// free the queue: it gets none.
    fn flush(&self) {
        let has_pending = {
            let mut inner = self.held.lock();
            inner.state.is_quiet = true;
            inner.has_pending(self.ring)
        };
        if has_pending {
            self.armed.raise();
        }
    }

    fn unmap(&self) {
        self.held.take(drop);
    }

    fn describe(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (taken, qps) = {
            let inner = self.held.lock();
            (inner.state.taken, inner.state.qps.len())
        };
        writeln!(f, "cq {} completions {taken} qps {qps}", self.number)
    }
}

impl<Q: Completes> CqInner<Q> {
    /// Whether there is a request that completes in `cq`, which this is of.
    fn has_pending(&self, cq: RingId) -> bool {
        self.state.qps.iter().any(|(_, qp)| qp.has_pending(cq))
    }

    /// Takes up to [`BATCH`] completions, and no more than `left` entries. Returns whether there may be
    /// more.
    fn batch(&mut self, of: &UlpCq<Q>, left: &mut u32, into: &mut Completions<'_>) -> bool {
        if self.state.is_quiet {
            return self.flush(of.ring, into);
        }
        if self.lease.is_none() {
            return false;
        }
        // The queue pairs whose slots the head frees.
        let mut seen = [None; BATCH];
        let mut more = true;
        for slot in &mut seen {
            more = *left != 0 && !into.is_full();
            if !more {
                break;
            }
            *left -= 1;
            *slot = self.next(of.number, into);
            more = slot.is_some();
            if !more {
                break;
            }
        }
        self.publish(&of.function, of.number, &seen);
        more && !into.is_full()
    }

    /// Takes the next completion of the device.
    fn next(&mut self, number: Number, into: &mut Completions<'_>) -> Option<Number> {
        let entry = self.memory.as_mut()?.take()?;
        let CqState { taken, qps, .. } = &mut self.state;
        *taken = taken.wrapping_add(1);
        let cqe = Cqe::decode(&entry.words);
        let (qp, index) = (cqe.qp.raw(), entry.seen.past().get().wrapping_sub(1));
        trace::cqe(number.raw(), index, qp, u32::from(cqe.status));
        let completed = qps.get_mut(cqe.qp).and_then(|qp| {
            let request = qp.complete(&cqe, entry.seen, *taken)?;
            Some((request, request.completed(&cqe, qp.events())))
        });
        let Some((request, completed)) = completed else {
            // Of a queue pair that is destroyed, or it completes nothing.
            trace::wrong(trace::Wrong::Stale, number.raw(), cqe.index);
            return Some(cqe.qp);
        };
        let has_failed = completed.status != Status::Success.code();
        if has_failed {
            trace::wrong(trace::Wrong::Completion, qp, u32::from(cqe.status));
        }
        // A success is reported only if the request asked for it: the ULP has sized its CQ for those.
        if has_failed || request.signal {
            into.put(&completed);
        }
        Some(cqe.qp)
    }

    /// Takes up to [`BATCH`] requests that are flushed in software. Returns whether there may be more.
    fn flush(&mut self, cq: RingId, into: &mut Completions<'_>) -> bool {
        let flushed = Cqe {
            status: Status::Flush.code(),
            ..Cqe::default()
        };
        let mut left = BATCH;
        for (_, qp) in self.state.qps.iter() {
            while left != 0 && !into.is_full() {
                let Some(request) = qp.pop(cq) else {
                    break;
                };
                into.put(&request.completed(&flushed, qp.events()));
                left -= 1;
            }
            if left == 0 || into.is_full() {
                break;
            }
        }
        left == 0 && !into.is_full()
    }

    /// Publishes the head, and frees the slots of the queue pairs in `seen`.
    fn publish(&mut self, function: &Function, number: Number, seen: &[Option<Number>; BATCH]) {
        if let [None, ..] = seen {
            return;
        }
        let Some((consumer, lease, state)) = self.live() else {
            return;
        };
        let doorbells = function.doorbells(lease.dev());
        let place = doorbell::CQ_HEAD;
        let published = consumer.publish(|head| {
            trace::head(false, number.raw(), head.get(), false);
            doorbells.ring(place, number, head.get());
        });
        let mut before = None;
        for qp in seen.iter().flatten() {
            if before == Some(*qp) {
                continue;
            }
            before = Some(*qp);
            if let Some(qp) = state.qps.get_mut(*qp) {
                qp.reclaim(published);
            }
        }
    }
}

/// The count of taken entries at which all before `past` are taken, of a ring of `entries`. `None`: it
/// is reached.
fn taken_past(taken: u64, past: Index, entries: u32) -> Option<u64> {
    // CAST: The index of an entry is the lower half of its number.
    let next = Index::new(taken as u32);
    // The device says up to where: no further than its ring has entries.
    let left = past.since(next).min(entries);
    (!next.reaches(past)).then(|| taken.wrapping_add(left.into()))
}

#[kernel::macros::kunit_tests(qpair_ulp_cq)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_taken_up_to_an_index_or_a_ring_of_them() {
        let at = |taken, past| taken_past(taken, Index::new(past), 64);
        assert_eq!(at(5, 5), None);
        assert_eq!(at(5, 4), None);
        assert_eq!(at(5, 6), Some(6));
        assert_eq!(at(5, 5 + 64), Some(5 + 64));
        assert_eq!(at(5, 5 + 65), Some(5 + 64));
        // An index is the lower half of a number.
        assert_eq!(at(0x1_ffff_fffe, 3), Some(0x2_0000_0003));
    }
}
