// SPDX-License-Identifier: GPL-2.0
//! A CQ that is resized, on random schedules and step by step.

#[path = "../resize/world.rs"]
mod world;

use super::checks;
use super::memory::Memory;
use super::prop::holds;
use proptest::collection::vec;
use proptest::prelude::any;
use qpair_model::rules::channel::Channel;
use qpair_model::rules::channel::Fire;
use qpair_model::rules::channel::Kept;
use qpair_model::rules::channel::Violation;
use qpair_queue::consumer::CqConsumer;
use qpair_queue::credit::RingId;
use qpair_queue::index::Depth;
use qpair_queue::index::Index;
use qpair_queue::resize::Stays;
use qpair_queue::resize::Switch;
use world::World;

checks![
    any_order_of_steps_is_right,
    a_zeroed_ring_begins_with_an_even_pass,
    a_smaller_ring_holds_what_is_unread,
    heads_of_the_ring_before,
    a_head_that_never_comes,
    a_consumer_follows,
];

fn depth(entries: u32) -> Depth {
    Depth::new(entries).expect("a power of two")
}

fn any_order_of_steps_is_right() {
    let schedule = (0u8..=4, 0u8..=4, any::<u32>(), vec(any::<u16>(), 1..300));
    holds(400, schedule, |(log, most, first, steps)| {
        let mut world = World::new(log, most, Index::new(first));
        for step in steps {
            let actions = world.actions();
            world.act(actions[usize::from(step) % actions.len()]);
            assert_eq!(world.wrong, None);
        }
    });
}

fn a_zeroed_ring_begins_with_an_even_pass() {
    for (entries, index, begin) in [
        (4, 0, 0),
        (4, 1, 8),
        (4, 8, 8),
        (4, 9, 16),
        (1, 5, 6),
        (1, 6, 6),
        (16, u32::MAX, 0),
    ] {
        let (depth, begin) = (depth(entries), Index::new(begin));
        assert_eq!(depth.begin(Index::new(index)), begin);
        assert!(depth.owner(begin), "its first entry has owner bit 1");
    }
}

/// A CQ of `entries`, of which `unread` are.
fn with(entries: u32, unread: u32) -> Channel {
    let mut channel = Channel::new(depth(entries), true);
    for _ in 0..unread {
        let (_, fire) = channel.push(false).expect("room");
        assert_eq!(fire, Fire::No);
    }
    channel
}

fn a_smaller_ring_holds_what_is_unread() {
    let mut channel = with(8, 5);
    assert_eq!(channel.resize(depth(4)), Err(Kept::Unread));
    assert_eq!(
        (channel.window().tail(), channel.window().used()),
        (Index::new(5), 5)
    );
    channel.head(Index::new(1)).expect("a head");
    let switch = channel.resize(depth(4)).expect("4 are unread");
    let (end, begin) = (Index::new(5), Index::new(8));
    assert_eq!(switch, Switch { end, begin });
    // All of the new ring is free.
    for index in 8..12 {
        let pushed = channel.push(false).map(|(at, _)| at);
        assert_eq!(pushed, Some(Index::new(index)));
    }
    assert!(channel.push(false).is_none(), "overrun");
}

fn heads_of_the_ring_before() {
    let mut channel = with(8, 5);
    channel.resize(depth(8)).expect("room");
    assert_eq!(channel.published(), Index::ZERO);
    assert_eq!(channel.head(Index::new(3)), Ok(()));
    assert_eq!(channel.published(), Index::new(3));
    assert_eq!(channel.head(Index::new(2)), Ok(()), "behind");
    assert_eq!(channel.published(), Index::new(3));
    assert_eq!(channel.head(Index::new(17)), Err(Violation));
    assert_eq!(channel.head(Index::new(5)), Ok(()));
    assert_eq!(channel.published(), Index::new(16), "nothing is unread");
    // With nothing unread there is no ring before.
    let switch = channel.resize(depth(2)).expect("room");
    assert_eq!((switch.end, switch.begin), (Index::new(16), Index::new(16)));
    let _ = channel.push(false);
    channel.resize(depth(2)).expect("room");
    let _ = channel.push(false);
    assert_eq!(channel.published(), Index::new(16));
    assert_eq!(channel.head(Index::new(21)), Ok(()), "that of the new ring");
    assert_eq!(channel.published(), Index::new(21));
}

fn a_head_that_never_comes() {
    let mut channel = Channel::new(depth(1), true);
    let most = depth(1 << 27);
    let _ = channel.push(false);
    for _ in 0..4 {
        channel.resize(most).expect("not too far yet");
        let _ = channel.push(false);
    }
    assert_eq!(channel.resize(most), Err(Kept::Behind));
    let tail = channel.window().tail();
    assert_eq!(channel.head(tail), Ok(()));
    channel.resize(most).expect("all is read");
}

fn a_consumer_follows() {
    let (id, old, new) = (RingId::new(4, 0), depth(4), depth(2));
    let rings = [Memory::new(16), Memory::new(8)];
    let made = CqConsumer::new(id, rings[0].clone(), old, 4);
    let (mut consumer, _) = made.expect("a good ring");
    let switch = Switch {
        end: Index::new(1),
        begin: Index::new(4),
    };
    rings[0].write(old, Index::ZERO, [7, 0, 0, 0]);
    rings[1].write(new, Index::new(4), [8, 0, 0, 0]);
    let stays = consumer.switch(switch, rings[1].clone(), new);
    assert!(matches!(stays, Err((_, Stays::Unread))));
    let small = consumer.switch(switch, Memory::new(4), new);
    assert!(matches!(small, Err((_, Stays::BadRing))));
    assert_eq!(consumer.take().map(|entry| entry.words[0]), Some(7));
    assert!(consumer.take().is_none());
    assert!(consumer.switch(switch, rings[1].clone(), new).is_ok());
    assert_eq!(consumer.depth(), new);
    let entry = consumer.take().expect("the first of the new ring");
    assert_eq!((entry.words[0], entry.seen.past()), (8, Index::new(5)));
    let mut seen = Vec::new();
    rings[1].write(new, Index::new(5), [9, 0, 0, 0]);
    consumer.visit(|words, past| seen.push((words[0], past)));
    assert_eq!(seen, [(9, Index::new(6))]);
    assert_eq!(consumer.unpublished(), 5, "the gap as well");
}
