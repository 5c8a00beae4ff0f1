// SPDX-License-Identifier: GPL-2.0
//! The order of memory, explored by loom on the ring code itself.
//!
//! loom runs two threads in every interleaving, and lets each load see every value that the C11
//! model permits. One thread is software: the consumers and producers of the rules, on a
//! [`Storage`] whose ordering points are fences. The other is the device, with the ordering of PCI:
//! its writes arrive in order, and a doorbell makes visible whatever was written before it in the
//! order of [`Storage::before_tail`] and [`Storage::before_head`].
//!
//! The word that has the owner bit is an atomic. All others are plain cells, for which loom
//! requires that accesses of the device and of software never race: a chain of barriers must be
//! between them. That detects faults that values cannot show. In the C11 model a load never returns
//! a store that comes later in time, so no value shows a body that is still being read when its
//! slot has been freed; the missing chain does.
//!
//! loom cannot express compiler barriers (a volatile access is here a relaxed atomic, which may be
//! reordered more, never less), the difference between `dma_rmb` and a full barrier (both are at
//! least the fence here), and write-combining of the bus. A doorbell is an atomic, so loom also
//! tries orders of doorbells that PCI forbids.

#![allow(unreachable_pub)]
extern crate proofs_queue as qpair_model;
extern crate proofs_queue as qpair_queue;

use loom::cell::UnsafeCell;
use loom::sync::atomic::fence;
use loom::sync::atomic::AtomicU32;
use loom::sync::atomic::AtomicU64;
use loom::sync::atomic::Ordering::Acquire;
use loom::sync::atomic::Ordering::Relaxed;
use loom::sync::atomic::Ordering::Release;
use loom::sync::Arc;
use loom::sync::Mutex;
use loom::thread;
use qpair_abi::entry::Cqe;
use qpair_abi::entry::Eqe;
use qpair_abi::status::Event;
use qpair_abi::stream::chain;
use qpair_abi::stream::Side;
use qpair_abi::Number;
use qpair_model::rules::channel::Channel;
use qpair_model::rules::channel::Fire;
use qpair_model::rules::channel::Wants;
use qpair_queue::chain::Buffer;
use qpair_queue::chain::Chain;
use qpair_queue::consumer::CqConsumer;
use qpair_queue::consumer::EqConsumer;
use qpair_queue::credit::RingId;
use qpair_queue::headtail;
use qpair_queue::headtail::Headtail;
use qpair_queue::index::Depth;
use qpair_queue::index::Index;
use qpair_queue::mutant::activate;
use qpair_queue::mutant::Mutant;
use qpair_queue::producer::SqProducer;
use qpair_queue::storage::Storage;
use std::any::Any;
use std::cell::Cell;
use std::panic::catch_unwind;
use std::panic::AssertUnwindSafe;
use std::sync::atomic::AtomicU64 as Counter;
use std::sync::atomic::Ordering::Relaxed as Plainly;
use std::sync::Once;

const CQ: RingId = RingId::new(1, 0);
const SQ: RingId = RingId::new(2, 0);
const EQ: RingId = RingId::new(3, 0);
const OWNER: u64 = 1 << 63;
const ONE: Depth = match Depth::new(1) {
    Some(depth) => depth,
    None => Depth::MAX,
};

/// The omitted barrier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Without {
    Nothing,
    AfterOwner,
    BeforeHead,
    BeforeTail,
    /// The device's own: it writes the owner word first; the event first; it publishes the producer
    /// index first; it samples that index without a barrier.
    DeviceOrder,
    EventFirst,
    ProducerFirst,
    Sample,
}

enum Word {
    /// With the owner bit.
    Last(AtomicU64),
    Plain(UnsafeCell<u64>),
}

/// A ring's memory. Entries have `entry` words.
struct Shared {
    words: Vec<Word>,
    entry: usize,
    without: Without,
}

// SAFETY: loom checks that no two accesses of a plain word race; the test exists for that.
unsafe impl Sync for Shared {}
// SAFETY: Nothing in it belongs to a thread.
unsafe impl Send for Shared {}

impl Shared {
    /// Memory of entries with `entry` words; with an `entry` of 0 there is no owner word.
    fn new(words: usize, entry: usize, without: Without) -> Arc<Self> {
        Self::with(words, entry, without, |i| {
            entry != 0 && i % entry == entry - 1
        })
    }

    /// Without plain words: the test is about another ring.
    fn atomic(words: usize, entry: usize, without: Without) -> Arc<Self> {
        Self::with(words, entry, without, |_| true)
    }

    fn with(
        words: usize,
        entry: usize,
        without: Without,
        last: impl Fn(usize) -> bool,
    ) -> Arc<Self> {
        let word = |i| match last(i) {
            true => Word::Last(AtomicU64::new(0)),
            false => Word::Plain(UnsafeCell::new(0)),
        };
        let words = (0..words).map(word).collect();
        Arc::new(Self {
            words,
            entry,
            without,
        })
    }

    /// The device writes an entry: its owner word last.
    fn write(&self, depth: Depth, index: Index, words: &[u64]) {
        let at = depth.position(index) as usize * self.entry;
        let owner = if depth.owner(index) { OWNER } else { 0 };
        let last = words[self.entry - 1] & !OWNER | owner;
        let tell = || match &self.words[at + self.entry - 1] {
            Word::Last(word) => word.store(last, Release),
            Word::Plain(_) => unreachable!("the last word"),
        };
        if self.without == Without::DeviceOrder {
            tell();
        }
        for (i, word) in words[..self.entry - 1].iter().enumerate() {
            self.store(at + i, *word);
        }
        if self.without != Without::DeviceOrder {
            tell();
        }
    }
}

#[derive(Clone)]
struct Ring(Arc<Shared>);

impl Ring {
    /// The device writes a buffer and then the status of its descriptor.
    fn complete(&self, buffer: usize, what: u64, at: usize, status: u64) {
        let Word::Last(word) = &self.0.words[at] else {
            unreachable!("a status")
        };
        if self.0.without == Without::DeviceOrder {
            word.store(status, Release);
        }
        self.store(buffer, what);
        word.store(status, Release);
    }
}

impl Storage for Ring {
    fn words(&self) -> usize {
        self.0.words.len()
    }
    fn load(&self, at: usize) -> u64 {
        self.0.load(at)
    }
    fn store(&self, at: usize, word: u64) {
        self.0.store(at, word);
    }
    fn after_owner(&self) {
        if self.0.without != Without::AfterOwner {
            fence(Acquire);
        }
    }
    fn before_head(&self) {
        if self.0.without != Without::BeforeHead {
            fence(Release);
        }
    }
    fn before_tail(&self) {
        if self.0.without != Without::BeforeTail {
            fence(Release);
        }
    }
}

impl Shared {
    fn load(&self, at: usize) -> u64 {
        match &self.words[at] {
            Word::Last(word) => word.load(Relaxed),
            // SAFETY: loom panics on a concurrent write.
            Word::Plain(word) => word.with(|word| unsafe { *word }),
        }
    }

    fn store(&self, at: usize, new: u64) {
        match &self.words[at] {
            Word::Last(word) => word.store(new, Relaxed),
            // SAFETY: loom panics on a concurrent read or write.
            Word::Plain(word) => word.with_mut(|word| unsafe { *word = new }),
        }
    }
}

/// A doorbell: software stores, the device sees it some time later.
#[derive(Clone)]
struct Bell(Arc<AtomicU32>);

impl Bell {
    fn new() -> Self {
        Self(Arc::new(AtomicU32::new(0)))
    }
    fn ring(&self, index: Index) {
        self.0.store(index.get(), Relaxed);
    }
    fn heard(&self) -> Index {
        Index::new(self.0.load(Acquire))
    }
    fn heard_in_any_order(&self) -> Index {
        Index::new(self.0.load(Relaxed))
    }
    /// The device's own: with what it has written before.
    fn publish(&self, index: Index) {
        self.0.store(index.get(), Release);
    }
    fn wait(&self, index: Index) {
        while self.heard() != index {
            thread::yield_now();
        }
    }
}

/// What is there sooner or later.
fn awaited<T>(mut look: impl FnMut() -> Option<T>) -> T {
    loop {
        match look() {
            Some(found) => break found,
            None => thread::yield_now(),
        }
    }
}

/// An entry with four equal words.
fn entry(what: u64) -> [u64; 4] {
    [what; 4]
}

fn is_whole(words: [u64; 4], what: u64) -> bool {
    let [a, b, c, d] = words;
    [a, b, c, d & !OWNER] == entry(what)
}

/// Owner word against body; and, since the only slot of the ring is used twice, the body against
/// the head that frees it.
fn entries_are_whole(without: Without) {
    let ring = Shared::new(4, 4, without);
    let head = Bell::new();
    let (device, told) = (ring.clone(), head.clone());
    let device = thread::spawn(move || {
        device.write(ONE, Index::ZERO, &entry(1));
        told.wait(Index::new(1));
        device.write(ONE, Index::new(1), &entry(2));
    });
    let (mut cq, _pool) = CqConsumer::new(CQ, Ring(ring), ONE, 1).expect("a good ring");
    let singly = |cq: &mut CqConsumer<Ring>| cq.take().map(|got| got.words);
    let in_a_row = |cq: &mut CqConsumer<Ring>| {
        let mut got = [None];
        cq.take_while(Ring::clone, &mut got, (0, 0), |place, words| {
            *place = Some(*words);
            true
        });
        got[0]
    };
    for (what, take) in [(1, singly as fn(&mut _) -> _), (2, in_a_row)] {
        let got = awaited(|| take(&mut cq));
        assert!(is_whole(got, what), "torn");
        cq.publish(|index| head.ring(index));
    }
    device.join().expect("a device");
}

/// A CQE is visible when its EQE is: the barrier after an EQE's owner word covers all that was
/// written before it.
fn an_event_comes_after_its_completion(without: Without) {
    let cq_ring = Shared::new(4, 4, Without::Nothing);
    let eq_ring = Shared::atomic(2, 2, without);
    let (cq_device, eq_device) = (cq_ring.clone(), eq_ring.clone());
    let device = thread::spawn(move || {
        if without == Without::EventFirst {
            eq_device.write(ONE, Index::ZERO, &[1, 1]);
        }
        cq_device.write(ONE, Index::ZERO, &entry(1));
        if without != Without::EventFirst {
            eq_device.write(ONE, Index::ZERO, &[1, 1]);
        }
    });
    let (mut cq, _pool) = CqConsumer::new(CQ, Ring(cq_ring), ONE, 1).expect("a good ring");
    let (mut eq, _pool) = EqConsumer::new(EQ, Ring(eq_ring), ONE, 1).expect("a good ring");
    if eq.take().is_some() {
        let got = cq.take().expect("an event without its completion");
        assert!(is_whole(got.words, 1), "torn");
    }
    device.join().expect("a device");
}

/// Doorbell against entry; and, since the only block of the SQ is used twice, the device's read of
/// it against the next post.
fn work_requests_are_whole(without: Without) {
    let (sq_ring, cq_ring) = (Shared::new(8, 0, without), Shared::new(4, 4, without));
    let (tail, head) = (Bell::new(), Bell::new());
    let device = {
        let (sq_ring, cq_ring) = (sq_ring.clone(), cq_ring.clone());
        let (tail, head) = (tail.clone(), head.clone());
        thread::spawn(move || {
            for i in 0..2u32 {
                tail.wait(Index::new(i + 1));
                let words: [u64; 8] = std::array::from_fn(|at| sq_ring.load(at));
                assert_eq!(words, [u64::from(i) + 1; 8], "torn");
                assert_eq!(head.heard(), Index::new(i), "a CQ that is full");
                let (index, cqe) = (i + 1, Cqe::default());
                let cqe = Cqe { index, ..cqe };
                cq_ring.write(ONE, Index::new(i), &cqe.encode());
            }
        })
    };
    let (mut cq, _pool) = CqConsumer::new(CQ, Ring(cq_ring), ONE, 1).expect("a good ring");
    let mut sq = SqProducer::new_sq(SQ, CQ, Ring(sq_ring), ONE, 1).expect("a good ring");
    for i in 0..2 {
        let mut room = sq.room(1, true).expect("a free slot");
        room.write(0, &[i + 1; 8]);
        room.post();
        sq.ring(|index| tail.ring(index));
        let got = awaited(|| cq.take());
        let cqe = Cqe::decode(&got.words);
        assert_eq!(sq.complete(Index::new(cqe.index), got.seen), Ok(1));
        if sq.reclaim(cq.published()) == 0 {
            sq.reclaim(cq.publish(|index| head.ring(index)));
        }
    }
    device.join().expect("a device");
}

/// The number of the only CQ.
const NUMBER: Number = Number::new(1, 1);

/// A device with one CQ, which completes once and acts on one doorbell.
struct Device {
    channel: Channel,
    cq: Arc<Shared>,
    eq: Arc<Shared>,
    /// The published producer index.
    producer: Bell,
    /// The index of the doorbell plus 1; 0 is none.
    bell: Bell,
    acts: fn(&mut Channel, Index) -> Fire,
    heard: bool,
    without: Without,
}

impl Device {
    fn new(without: Without, acts: fn(&mut Channel, Index) -> Fire) -> Self {
        Self {
            channel: Channel::new(ONE, false),
            cq: Shared::new(4, 4, without),
            eq: Shared::new(2, 2, without),
            producer: Bell::new(),
            bell: Bell::new(),
            acts,
            heard: false,
            without,
        }
    }

    fn fire(&self, fire: Fire) {
        if fire == Fire::Now {
            let eqe = Eqe {
                number: NUMBER,
                count: 1,
                kind: Event::Completion.code(),
                code: 0,
            };
            self.eq.write(ONE, Index::ZERO, &eqe.encode());
        }
    }

    fn complete(&mut self) {
        let (index, fire) = self.channel.push(false).expect("room");
        let publish = || self.producer.publish(index.plus(1));
        if self.without == Without::ProducerFirst {
            publish();
        }
        self.cq.write(ONE, index, &entry(1));
        if self.without != Without::ProducerFirst {
            publish();
        }
        self.fire(fire);
    }

    fn listen(&mut self) {
        let heard = self.bell.heard();
        if heard != Index::ZERO && !self.heard {
            self.heard = true;
            let fire = (self.acts)(&mut self.channel, heard.plus(u32::MAX));
            self.fire(fire);
        }
    }
}

/// `asks` is software: it polls, and asks for an event before or after that. It returns whether it
/// has found nothing, and sleeps.
fn no_completion_is_slept_through(
    device: Device,
    asks: impl FnOnce(&mut CqConsumer<Ring>) -> bool,
) {
    let (cq, eq) = (device.cq.clone(), device.eq.clone());
    let (mut cq, _pool) = CqConsumer::new(CQ, Ring(cq), ONE, 1).expect("a good ring");
    let (mut eq, _pool) = EqConsumer::new(EQ, Ring(eq), ONE, 1).expect("a good ring");
    let device = Arc::new(Mutex::new(device));
    let works = device.clone();
    let works = thread::spawn(move || {
        let mut device = works.lock().expect("a device");
        device.listen();
        device.complete();
        device.listen();
    });
    let sleeps = asks(&mut cq);
    works.join().expect("a device");
    if sleeps {
        // The doorbell arrives in the end.
        device.lock().expect("a device").listen();
        assert!(eq.take().is_some(), "slept through");
        assert!(cq.take().is_some(), "an event without its completion");
    }
}

/// Arm against check: the device completes at any time, software polls, finds nothing and arms.
fn arms(without: Without) {
    let device = Device::new(without, |channel, index| {
        let fire = channel.arm(Wants::Next, index);
        fire.expect("a legal arm")
    });
    let arm = device.bell.clone();
    no_completion_is_slept_through(device, |cq| {
        let sleeps = cq.take().is_none();
        if sleeps {
            cq.publish(|index| arm.ring(index.plus(1)));
        }
        sleeps
    });
}

/// Notify against check: software notifies, polls and finds nothing; the device completes at any
/// time, and acts on the notify at any time after that was written.
///
/// The write of the doorbell is a step of software's thread, as it is in the device: the CPU that
/// writes it takes the sample, and does not continue before.
fn notifies(without: Without) {
    let device = Device::new(without, |channel, sample| {
        channel.notify(Wants::Next, sample)
    });
    let (producer, bell) = (device.producer.clone(), device.bell.clone());
    no_completion_is_slept_through(device, |cq| {
        cq.notify(|| {
            let sample = match without {
                Without::Sample => producer.heard_in_any_order(),
                _ => producer.heard(),
            };
            bell.ring(sample.plus(1));
        });
        cq.take().is_none()
    });
}

std::thread_local! {
    /// A wrong variant is run: do not print its panic.
    static QUIET: Cell<bool> = const { Cell::new(false) };
}

/// Runs `body` in loom: returns the number of executions, or loom's message.
fn explore(mutant: Option<Mutant>, without: Without, body: fn(Without)) -> Result<u64, String> {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if !QUIET.get() {
                before(info);
            }
        }));
    });
    let executions = std::sync::Arc::new(Counter::new(0));
    let count = executions.clone();
    QUIET.set(mutant.is_some() || without != Without::Nothing);
    activate(mutant);
    let result = catch_unwind(AssertUnwindSafe(|| {
        loom::model(move || {
            count.fetch_add(1, Plainly);
            body(without);
        });
    }));
    activate(None);
    QUIET.set(false);
    let said = |panic: Box<dyn Any + Send>| {
        let said = panic.downcast_ref::<String>().cloned();
        let said = said.or(panic.downcast_ref::<&str>().map(|said| said.to_string()));
        let said = said.unwrap_or_default();
        said.split_whitespace().collect::<Vec<_>>().join(" ")
    };
    result.map(|()| executions.load(Plainly)).map_err(said)
}

/// `body` holds in all executions, and each wrong variant is caught, with the given message of
/// loom.
fn holds(name: &str, body: fn(Without), wrong: &[(Option<Mutant>, Without, &str)]) {
    let executions = explore(None, Without::Nothing, body).unwrap_or_else(|said| panic!("{said}"));
    println!("states: {name}: {executions} executions, nothing wrong");
    for &(mutant, without, what) in wrong {
        match explore(mutant, without, body) {
            Ok(executions) => {
                panic!("{name}: {mutant:?} {without:?} is not found in {executions} executions")
            }
            Err(said) => {
                assert!(said.contains(what), "{mutant:?} {without:?}: {said}");
                let wrong = mutant.map_or(format!("without {without:?}"), |m| m.what().into());
                println!("{name}, {wrong}: caught by loom ({said})");
            }
        }
    }
}

/// loom's message about a plain word that both sides access without a chain of barriers between
/// them.
const RACE: &str = "Causality violation: Concurrent";

#[test]
fn owner_word_against_body() {
    holds(
        "owner word against body",
        entries_are_whole,
        &[
            (None, Without::AfterOwner, RACE),
            (None, Without::BeforeHead, RACE),
            (None, Without::DeviceOrder, RACE),
            (Some(Mutant::OwnerAfterBody), Without::Nothing, RACE),
        ],
    );
}

#[test]
fn event_against_completion() {
    let missing = "an event without its completion";
    holds(
        "event against completion",
        an_event_comes_after_its_completion,
        &[
            (None, Without::AfterOwner, missing),
            (None, Without::EventFirst, missing),
        ],
    );
}

#[test]
fn doorbell_against_entry() {
    holds(
        "doorbell against entry",
        work_requests_are_whole,
        &[
            (None, Without::BeforeTail, RACE),
            (None, Without::AfterOwner, RACE),
            (
                Some(Mutant::FreeBeforePublish),
                Without::Nothing,
                "a CQ that is full",
            ),
        ],
    );
}

#[test]
fn arm_against_check() {
    holds(
        "arm against check",
        arms,
        &[(
            Some(Mutant::ArmWithoutCheck),
            Without::Nothing,
            "slept through",
        )],
    );
    // No missing barrier can lose a completion here, since the arm carries the index up to which
    // software has read, and the device compares. `owner_word_against_body` tests the purpose of
    // the barrier before the arm.
    for without in [Without::BeforeHead, Without::BeforeTail] {
        let executions = explore(None, without, arms);
        assert!(executions.is_ok(), "{without:?}: {executions:?}");
    }
}

#[test]
fn notify_against_check() {
    let lost = "slept through";
    holds(
        "notify against check",
        notifies,
        &[
            (Some(Mutant::NotifySampledLate), Without::Nothing, lost),
            (None, Without::ProducerFirst, lost),
            (None, Without::Sample, lost),
        ],
    );
}

/// Tail against descriptor, and the status of a descriptor against its user words. The only
/// descriptor is used twice.
fn chains_are_whole(without: Without) {
    let ring = Ring(Shared::with(8, 8, without, |i| i == 3));
    let mut chain = Chain::new(SQ, ring.clone(), 0, ONE).expect("a good chain");
    let tail = Bell::new();
    let told = tail.clone();
    let device = thread::spawn(move || {
        for i in 1..=2u32 {
            told.wait(Index::new(i));
            assert_eq!(ring.load(1), i.into(), "torn");
            let status = chain::status::COMPLETE | chain::status::EOF;
            ring.complete(4, i.into(), 3, u64::from(status) << 32);
        }
    });
    for i in 1..=2 {
        let buffer = Buffer {
            addr: i.into(),
            ..Buffer::default()
        };
        chain.room().expect("it is free").fill(&buffer);
        chain.hand_over(|_| tail.ring(Index::new(i)));
        let got = awaited(|| chain.poll());
        assert_eq!(got.user, [i, 0, 0, 0, 0], "torn");
    }
    device.join().expect("a device");
}

/// The same of a ring with a head and a tail: a write-back against the buffer, here behind the ring.
fn rings_are_whole(without: Without) {
    const BUFFER: usize = 4;
    let two = Depth::new(2).expect("a depth");
    let ring = Shared::with(5, 2, without, |i| i < BUFFER && i % 2 == 1);
    let ring = Ring(ring);
    let receives = Headtail::new(SQ, ring.clone(), Side::Receive, two);
    let mut receives = receives.expect("a good ring");
    let tail = Bell::new();
    let (device, told) = (ring.clone(), tail.clone());
    let device = thread::spawn(move || {
        for i in 1..=2u32 {
            told.wait(Index::new(i));
            let at = (i as usize - 1) * 2;
            assert_eq!(device.load(at), i.into(), "torn");
            device.complete(BUFFER, i.into(), at + 1, 1 << 32);
        }
    });
    for i in 1..=2 {
        let (addr, bytes, end) = (u64::from(i), 0, true);
        let buffer = headtail::Buffer { addr, bytes, end };
        receives.room().expect("one is free").fill(&buffer);
        receives.hand_over(|_| tail.ring(Index::new(i)));
        awaited(|| receives.poll());
        assert_eq!(ring.load(BUFFER), i.into(), "torn");
    }
    device.join().expect("a device");
}

#[test]
fn descriptor_against_tail_and_status() {
    for (name, body, early) in [
        ("chain", chains_are_whole as fn(_), Mutant::ChainTailEarly),
        ("ring", rings_are_whole, Mutant::RingTailEarly),
    ] {
        let missing = [
            Without::BeforeTail,
            Without::AfterOwner,
            Without::DeviceOrder,
        ];
        let mut wrong = missing.map(|without| (None, without, RACE)).to_vec();
        wrong.push((Some(early), Without::Nothing, RACE));
        holds(name, body, &wrong);
    }
}
