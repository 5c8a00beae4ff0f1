// SPDX-License-Identifier: GPL-2.0
//! Chains, and rings with a head and a tail: against a channel in any order of steps, and their
//! words one by one.

#[path = "../ladder/world.rs"]
mod world;

use super::checks;
use super::memory::Memory;
use super::prop::holds;
use proptest::collection::vec;
use proptest::prelude::any;
use qpair_abi::stream::chain::control;
use qpair_abi::stream::chain::status;
use qpair_abi::stream::chain::ChainDescriptor;
use qpair_abi::stream::headtail::cmd;
use qpair_abi::stream::headtail::sta;
use qpair_abi::stream::headtail::RingDescriptor;
use qpair_abi::stream::Side;
use qpair_queue::chain;
use qpair_queue::chain::acknowledge;
use qpair_queue::chain::Chain;
use qpair_queue::credit::RingId;
use qpair_queue::headtail;
use qpair_queue::headtail::owned;
use qpair_queue::headtail::Headtail;
use qpair_queue::index::Depth;
use qpair_queue::index::Index;
use qpair_queue::storage::Storage;
use std::cell::RefCell;
use world::Action;
use world::Rung;
use world::World;

checks![
    any_order_of_steps_is_right,
    a_chain_uses_all_of_its_descriptors,
    a_ring_keeps_one_descriptor_back,
    head_equal_to_tail_is_empty,
    a_chain_is_linked_and_its_words_lie_as_documented,
    a_chain_gives_back_what_the_channel_says,
    the_last_of_a_hand_over_asks_for_a_write_back,
    a_write_back_completes_all_before_it,
    a_received_buffer_comes_back_alone,
    a_reset_gives_all_back,
    what_makes_no_ring_is_refused,
    no_cause_is_left_without_a_message,
];

const BASE: u64 = 0x4000;

fn id() -> RingId {
    RingId::new(3, 0)
}

fn depth(entries: u32) -> Depth {
    Depth::new(entries).expect("a power of two")
}

fn chain(entries: u32) -> Chain<Memory> {
    let memory = Memory::new(entries as usize * ChainDescriptor::WORDS);
    Chain::new(id(), memory, BASE, depth(entries)).expect("a good chain")
}

fn ring(entries: u32, side: Side) -> Headtail<Memory> {
    let memory = Memory::new(entries as usize * RingDescriptor::WORDS);
    Headtail::new(id(), memory, side, depth(entries)).expect("a good ring")
}

/// Steps in any order, at any place of the wrap, with rings of any size.
pub fn any_order_of_steps_is_right() {
    let strategy = (0..3u8, 0..4u32, any::<u32>(), vec(any::<u8>(), 0..400));
    holds(300, strategy, |(rung, log, first, picks)| {
        let (rung, least) = match rung {
            0 => (Rung::Chain, 0),
            1 => (Rung::Transmit, 1),
            _ => (Rung::Receive, 1),
        };
        let entries = 1 << (least + log);
        let most = World::most(rung, entries);
        let mut world = World::new(rung, entries, most, Index::new(first));
        let check = |world: &World, action: Action| {
            assert_eq!(world.wrong, None, "{action:?}");
            assert!(world.is_whole(), "{action:?}: a descriptor is lost");
        };
        for pick in picks {
            let actions = world.actions();
            let action = actions[usize::from(pick) % actions.len()];
            world.act(action);
            check(&world, action);
        }
        // Then everything comes back: hand over, let the channel work, poll.
        for _ in 0..8 * entries {
            let actions = world.actions();
            let Some(&next) = actions.iter().rfind(|action| **action != Action::Fill) else {
                break;
            };
            world.act(next);
            check(&world, next);
        }
        assert!(world.is_over(), "no descriptor comes back");
    });
}

/// TAILDESC is inclusive: with all descriptors in flight it differs from an empty chain.
pub fn a_chain_uses_all_of_its_descriptors() {
    for entries in [1, 2, 64] {
        let mut chain = chain(entries);
        assert_eq!((chain.capacity(), chain.free()), (entries, entries));
        for place in 0..entries {
            let room = chain.room().expect("a descriptor is free");
            assert_eq!(room.fill(&chain::Buffer::default()), place);
        }
        assert!(chain.room().is_none());
        let mut tail = 0;
        assert!(chain.hand_over(|addr| tail = addr));
        assert_eq!(tail, BASE + u64::from(entries - 1) * 64);
        assert!(!chain.hand_over(|_| panic!("nothing was filled")));
        assert_eq!(chain.in_flight(), entries);
        assert!(chain.poll().is_none() && chain.room().is_none());
    }
}

/// TAIL is exclusive: with all descriptors in flight it would be equal to HEAD.
pub fn a_ring_keeps_one_descriptor_back() {
    for entries in [2, 8, 64] {
        for side in [Side::Transmit, Side::Receive] {
            let mut ring = ring(entries, side);
            assert_eq!((ring.capacity(), ring.free()), (entries - 1, entries - 1));
            while let Some(room) = ring.room() {
                room.fill(&headtail::Buffer::default());
            }
            let mut tail = 0;
            assert!(ring.hand_over(|index| tail = index));
            assert_eq!(tail, entries - 1);
            assert_eq!(owned(entries, 0, tail), ring.in_flight());
            assert!(!ring.hand_over(|_| panic!("nothing was filled")));
        }
    }
}

/// What the registers say, for rings that are no power of two as well.
pub fn head_equal_to_tail_is_empty() {
    for count in [8, 24, 4096] {
        for head in [0, 1, count / 2, count - 1] {
            assert_eq!(owned(count, head, head), 0);
            assert_eq!(owned(count, head, (head + 1) % count), 1);
            assert_eq!(owned(count, head, (head + count - 1) % count), count - 1);
        }
    }
}

pub fn a_chain_is_linked_and_its_words_lie_as_documented() {
    let mut chain = chain(4);
    let next = |place: usize| chain.storage().word(place * ChainDescriptor::WORDS);
    assert_eq!([0, 1, 2, 3].map(next), [0x4040, 0x4080, 0x40c0, 0x4000]);
    assert_eq!(chain.current(), BASE);
    let buffer = chain::Buffer {
        addr: 0x9000,
        bytes: 1500,
        start: true,
        end: false,
        user: [1, 2, 3, 4, 5],
    };
    chain.room().expect("one is free").fill(&buffer);
    let words = std::array::from_fn(|i| chain.storage().word(i));
    let found = ChainDescriptor::decode(&words);
    assert_eq!((found.next, found.addr), (0x4040, 0x9000));
    assert_eq!((found.control, found.status), (control::SOF | 1500, 0));
    let user = [found.app0, found.app1, found.app2, found.app3, found.app4];
    assert_eq!(user, [1, 2, 3, 4, 5]);
}

/// The channel's part of a chain: completes the descriptor at a place.
fn complete(chain: &Chain<Memory>, place: usize, flags: u32, user: u32) {
    let at = place * ChainDescriptor::WORDS;
    let found = ChainDescriptor {
        status: status::COMPLETE | flags,
        app0: user,
        ..ChainDescriptor::default()
    };
    let words = found.encode();
    chain.storage().store(at + 4, words[4]);
    chain.storage().store(at + 3, words[3]);
}

pub fn a_chain_gives_back_what_the_channel_says() {
    let mut chain = chain(2);
    for round in 0..5 {
        for _ in 0..2 {
            chain
                .room()
                .expect("one is free")
                .fill(&chain::Buffer::default());
        }
        complete(&chain, 0, status::SOF | 512, 0);
        assert_eq!(chain.poll(), None, "it is not handed over");
        // A status in a descriptor that is not handed over is overwritten by the next fill.
        assert_eq!(chain.reset(), 2);
        for _ in 0..2 {
            chain
                .room()
                .expect("one is free")
                .fill(&chain::Buffer::default());
        }
        chain.hand_over(|_| {});
        assert_eq!(chain.poll(), None, "the status was cleared");
        complete(&chain, 0, status::SOF | 512, 9);
        let first = chain.poll().expect("it is complete");
        assert_eq!((first.place, first.bytes), (0, 512));
        assert_eq!((first.start, first.end, first.user), (true, false, [0; 5]));
        assert_eq!(chain.poll(), None);
        complete(&chain, 1, status::EOF | 100, round);
        let second = chain.poll().expect("it is complete");
        assert_eq!((second.place, second.bytes), (1, 100));
        assert_eq!((second.start, second.end), (false, true));
        assert_eq!(second.user, [round, 0, 0, 0, 0]);
        assert_eq!(chain.poll(), None);
        assert_eq!((chain.free(), chain.audit()), (2, Ok(())));
    }
    assert!(chain.retire().is_ok());
}

fn second(ring: &Headtail<Memory>, place: usize) -> RingDescriptor {
    let at = place * RingDescriptor::WORDS;
    RingDescriptor::decode(&[ring.storage().word(at), ring.storage().word(at + 1)])
}

/// The channel's part of a ring: writes the descriptor at a place back.
fn write_back(ring: &Headtail<Memory>, place: usize, length: u16, sta: u8) {
    let back = RingDescriptor {
        length,
        sta,
        ..second(ring, place)
    };
    let [_, word] = back.encode();
    ring.storage()
        .store(place * RingDescriptor::WORDS + 1, word);
}

fn fill(ring: &mut Headtail<Memory>, count: u32) {
    for i in 0..count {
        let buffer = headtail::Buffer {
            addr: 0x9000,
            bytes: 60,
            end: i + 1 == count,
        };
        ring.room().expect("one is free").fill(&buffer);
    }
}

pub fn the_last_of_a_hand_over_asks_for_a_write_back() {
    let mut sends = ring(8, Side::Transmit);
    fill(&mut sends, 3);
    sends.hand_over(|_| {});
    let asked = [0, 1, 2].map(|place| second(&sends, place).cmd);
    assert_eq!(asked, [0, 0, cmd::EOP | cmd::RS]);
    let last = second(&sends, 2);
    assert_eq!((last.addr, last.length, last.sta), (0x9000, 60, 0));
    let mut receives = ring(8, Side::Receive);
    fill(&mut receives, 1);
    receives.hand_over(|_| {});
    assert_eq!(second(&receives, 0).cmd & cmd::RS, 0);
}

pub fn a_write_back_completes_all_before_it() {
    let mut ring = ring(8, Side::Transmit);
    fill(&mut ring, 3);
    ring.hand_over(|_| {});
    fill(&mut ring, 2);
    ring.hand_over(|_| {});
    assert_eq!(ring.poll(), None);
    write_back(&ring, 4, 60, sta::DD);
    assert_eq!(ring.poll(), None, "the first hand-over is not written back");
    write_back(&ring, 2, 60, sta::DD);
    for place in 0..5 {
        let completed = ring.poll().expect("it is done");
        assert_eq!(completed.place, place);
    }
    assert_eq!(ring.poll(), None);
    assert_eq!((ring.free(), ring.audit()), (7, Ok(())));
}

pub fn a_received_buffer_comes_back_alone() {
    let mut ring = ring(4, Side::Receive);
    fill(&mut ring, 3);
    ring.hand_over(|_| {});
    write_back(&ring, 1, 7, sta::DD | sta::EOP);
    assert_eq!(ring.poll(), None, "the first is not written back");
    write_back(&ring, 0, 2048, sta::DD);
    let found = [ring.poll(), ring.poll(), ring.poll()];
    let completed = |place, bytes, end| Some(headtail::Completed { place, bytes, end });
    let wanted = [completed(0, 2048, false), completed(1, 7, true), None];
    assert_eq!(found, wanted);
    assert_eq!((ring.free(), ring.in_flight()), (2, 1));
    assert!(ring.retire().is_ok());
}

/// What is filled, in flight or known to be done is free again, once; and it goes on where the
/// channel starts.
pub fn a_reset_gives_all_back() {
    let mut chain = chain(4);
    let mut ring = ring(4, Side::Transmit);
    for _ in 0..2 {
        chain
            .room()
            .expect("one is free")
            .fill(&chain::Buffer::default());
    }
    chain.hand_over(|_| {});
    complete(&chain, 0, 0, 0);
    assert!(chain.poll().is_some());
    chain
        .room()
        .expect("one is free")
        .fill(&chain::Buffer::default());
    assert_eq!((chain.oldest(), chain.reset()), (1, 2));
    assert_eq!((chain.free(), chain.audit()), (4, Ok(())));
    assert_eq!(chain.current(), BASE + 64);
    assert_eq!(chain.room().expect("all are free").place(), 1);

    fill(&mut ring, 2);
    ring.hand_over(|_| {});
    write_back(&ring, 1, 60, sta::DD);
    assert!(ring.poll().is_some());
    fill(&mut ring, 1);
    assert_eq!((ring.oldest(), ring.reset()), (1, 2));
    assert_eq!((ring.free(), ring.audit()), (3, Ok(())));
    assert_eq!(ring.poll(), None);
    assert_eq!(ring.room().expect("all are free").place(), 1);
}

pub fn what_makes_no_ring_is_refused() {
    let words = |count: usize| Memory::new(count);
    let new = |memory, base| Chain::new(id(), memory, base, depth(4)).is_ok();
    assert!(new(words(32), BASE));
    assert!(!new(words(31), BASE), "too few words");
    assert!(!new(words(32), BASE + 32), "misaligned");
    assert!(!new(words(32), u64::MAX - 63), "past the last address");
    let chain =
        |capacity| Chain::starting_at(id(), words(32), BASE, depth(4), capacity, Index::ZERO);
    assert!(chain(4).is_ok() && chain(0).is_err() && chain(5).is_err());

    let ring = |count, entries, capacity| {
        let (side, depth) = (Side::Transmit, depth(entries));
        Headtail::starting_at(id(), words(count), side, depth, capacity, Index::ZERO).is_ok()
    };
    assert!(ring(8, 4, 3));
    assert!(!ring(7, 4, 3) && !ring(8, 4, 4) && !ring(8, 4, 0));
    let one = Headtail::new(id(), words(2), Side::Transmit, depth(1));
    assert!(one.is_err(), "a ring of one would have no slot");
}

/// The causes of a channel and its message. At each step the next bit of `script` says whether a
/// descriptor completes, which sets a cause.
#[derive(Default)]
struct Causes {
    script: u32,
    completed: u32,
    is_set: bool,
    /// What the message was sent for.
    line: bool,
    messages: u32,
    /// The write that clears them is under way.
    posted: bool,
}

impl Causes {
    /// A cause may become set in the very step in which the others are cleared.
    fn step(&mut self, arrives: bool) {
        if arrives && self.posted {
            (self.posted, self.is_set) = (false, false);
        }
        let completes = self.script & 1;
        self.script >>= 1;
        self.completed += completes;
        self.is_set |= completes != 0;
        self.messages += u32::from(self.is_set && !self.line);
        self.line = self.is_set;
    }
}

/// Every order of completions and of the steps of software: what completed is always taken.
pub fn no_cause_is_left_without_a_message() {
    for script in 0..1 << 14 {
        let causes = RefCell::new(Causes {
            script,
            ..Causes::default()
        });
        let (mut taken, mut polls) = (0, 0);
        while causes.borrow().script != 0 || causes.borrow().messages != 0 {
            causes.borrow_mut().step(true);
            let messages = causes.borrow().messages;
            if messages == 0 {
                continue;
            }
            causes.borrow_mut().messages -= 1;
            loop {
                polls += 1;
                let is_clear = acknowledge(
                    || {
                        causes.borrow_mut().posted = true;
                        causes.borrow_mut().step(false);
                    },
                    || {
                        // The read waits for the write.
                        causes.borrow_mut().step(true);
                        causes.borrow_mut().step(true);
                        causes.borrow().is_set
                    },
                );
                causes.borrow_mut().step(false);
                taken = causes.borrow().completed;
                causes.borrow_mut().step(false);
                if is_clear {
                    break;
                }
            }
        }
        assert_eq!(taken, causes.borrow().completed, "script {script:#b}");
        assert!(polls <= 15, "script {script:#b}: {polls} polls");
    }
}
