// SPDX-License-Identifier: GPL-2.0
//! A table of tests for each rule, for every place where the rules are compiled.
//!
//! Each test is a plain function that returns what does not hold. The module's KUnit suite runs
//! them with the kernel's compiler, flags and overflow checks; the host's tests run them too, with
//! many more (`tests/`). They neither allocate nor panic.

use super::buflist::BadShape;
use super::buflist::PageLimits;
use super::buflist::Plan;
use super::buflist::Segment;
use super::buflist::Shape;
use super::buflist::Spot;
use super::channel::Channel;
use super::channel::Fire;
use super::channel::Wants;
use super::credit::Cq;
use super::credit::Pool;
use super::credit::RingId;
use super::credit::Slots;
use super::eq_irq::EventQueue;
use super::eq_irq::Gate;
use super::eq_irq::Line;
use super::eq_irq::Moderation;
use super::eq_irq::Notice;
use super::flow::Credits;
use super::flow::Flow;
use super::index::Depth;
use super::index::Index;
use super::index::Place;
use super::index::Window;
use super::outcome::depth;
use super::outcome::holds;
use super::outcome::Outcome;
use super::outcome::SelfTest;

/// All of them.
pub const ALL: &[SelfTest] = &[
    ("depths", depths),
    ("owner_bits", owner_bits),
    ("windows", windows),
    ("slots", slots),
    ("channel_next", channel_next),
    ("channel_solicited", channel_solicited),
    ("channel_user", channel_user),
    ("channel_notify", channel_notify),
    ("interrupt", interrupt),
    ("moderation", moderation),
    ("notices", notices),
    ("page_sizes", page_sizes),
    ("page_walk", page_walk),
    ("flow", flow),
];

/// Depths are the powers of two up to 2^31.
pub fn depths() -> Outcome {
    for (entries, log2) in [(1, Some(0)), (0, None), (3, None), (1 << 31, Some(31))] {
        holds(Depth::new(entries).map(Depth::log2) == log2, "Depth::new")?;
    }
    for (entries, depth) in [(0, Some(1)), (5, Some(8)), (8, Some(8)), (u32::MAX, None)] {
        let found = Depth::at_least(entries).map(Depth::entries);
        holds(found == depth, "Depth::at_least")?;
    }
    holds(Depth::from_log2(32).is_none(), "Depth::from_log2")
}

/// The owner bit is 1 in the first pass, and flips.
pub fn owner_bits() -> Outcome {
    for (log2, index, owner, position) in [
        (3, 0, true, 0),
        (3, 7, true, 7),
        (3, 8, false, 0),
        (3, 16, true, 0),
        (3, u32::MAX, false, 7),
        (0, 0, true, 0),
        (0, 1, false, 0),
        (31, 1 << 31, false, 0),
        (31, u32::MAX, false, u32::MAX >> 1),
    ] {
        let (depth, index) = (depth(log2)?, Index::new(index));
        holds(depth.owner(index) == owner, "owner bit")?;
        holds(depth.is_valid(owner, index), "a valid entry is not seen")?;
        holds(!depth.is_valid(!owner, index), "an invalid entry is seen")?;
        holds(depth.position(index) == position, "position")?;
    }
    Ok(())
}

/// What lies in a ring, across the wrap.
pub fn windows() -> Outcome {
    let mut window = Window::new(depth(2)?, Index::new(u32::MAX - 1));
    for _ in 0..4 {
        holds(window.push().is_some(), "a free place is refused")?;
    }
    holds(window.push().is_none(), "a full ring takes more")?;
    for (index, place) in [
        (u32::MAX - 2, Place::Behind),
        (u32::MAX - 1, Place::Within(0)),
        (2, Place::Within(4)),
        (3, Place::Beyond),
    ] {
        holds(window.place(Index::new(index)) == place, "place")?;
    }
    holds(
        window.advance_head(Index::new(1)) == Place::Within(3),
        "head",
    )?;
    holds(window.used() == 1, "used")?;
    holds(window.advance_tail(Index::new(5)) == Some(3), "tail")?;
    holds(
        window.advance_tail(Index::new(6)).is_none(),
        "a tail past the room",
    )?;
    holds(
        window.advance_tail(Index::new(4)).is_none(),
        "a tail that goes back",
    )
}

/// Slots are neither lost nor made, and stay with their ring.
pub fn slots() -> Outcome {
    let (ring, other) = (RingId::new(1, 0), RingId::new(1, 1));
    let mut pool = Pool::<Cq>::mint(ring, 5);
    holds(
        pool.take(6).is_none() && pool.free() == 5,
        "more than there are",
    )?;
    let mut held = pool.take(3).ok_or("slots that are there")?;
    let part = held.split(1).ok_or("part of a bundle")?;
    holds(pool.audit(held.count() + part.count()).is_ok(), "balance")?;
    holds(pool.give(part).is_ok() && pool.free() == 3, "give")?;
    holds(
        pool.give(Slots::none(other)).is_err(),
        "slots of another ring",
    )?;
    holds(pool.audit(1).is_err(), "a lost slot is not missed")?;
    holds(pool.retire(held).is_ok(), "retire")
}

/// A channel that is open for any completion.
pub fn channel_next() -> Outcome {
    let mut channel = Channel::new(depth(2)?, false);
    let at = Index::new;
    let arm = |channel: &mut Channel, index| channel.arm(Wants::Next, at(index));
    holds(
        channel.push(true) == Some((at(0), Fire::No)),
        "a closed channel writes",
    )?;
    holds(
        arm(&mut channel, 0) == Ok(Fire::Now),
        "an arm overlooks a completion",
    )?;
    holds(
        channel.push(true) == Some((at(1), Fire::No)),
        "writing does not close",
    )?;
    holds(
        arm(&mut channel, 2) == Ok(Fire::No),
        "an arm fires for nothing",
    )?;
    holds(
        channel.arm(Wants::Solicited, at(2)) == Ok(Fire::No),
        "solicited after next",
    )?;
    holds(
        channel.push(false) == Some((at(2), Fire::Now)),
        "next was weakened",
    )?;
    holds(arm(&mut channel, 4).is_err(), "an index past the producer")?;
    holds(
        arm(&mut channel, 1) == Ok(Fire::Now),
        "an index behind the head fires",
    )
}

/// A channel that is open for solicited completions.
pub fn channel_solicited() -> Outcome {
    let mut channel = Channel::new(depth(2)?, false);
    let at = Index::new;
    let arm = |channel: &mut Channel, index| channel.arm(Wants::Solicited, at(index));
    holds(
        arm(&mut channel, 0) == Ok(Fire::No),
        "an arm fires for nothing",
    )?;
    holds(
        channel.push(false) == Some((at(0), Fire::No)),
        "fires unasked",
    )?;
    holds(
        channel.push(true) == Some((at(1), Fire::Now)),
        "solicited does not fire",
    )?;
    holds(
        arm(&mut channel, 1) == Ok(Fire::Now),
        "a completion in the CQ is overlooked",
    )?;
    holds(
        arm(&mut channel, 2) == Ok(Fire::No),
        "a completion that was passed counts",
    )
}

/// The one event of a process's CQ.
pub fn channel_user() -> Outcome {
    let mut channel = Channel::new(depth(2)?, true);
    let at = Index::new;
    let arm = |channel: &mut Channel| channel.arm(Wants::Next, at(0));
    holds(
        arm(&mut channel) == Ok(Fire::No),
        "an arm fires for nothing",
    )?;
    holds(
        channel.push(false) == Some((at(0), Fire::Now)),
        "next does not fire",
    )?;
    holds(
        arm(&mut channel) == Ok(Fire::No),
        "a second event is in the EQ",
    )?;
    holds(channel.passed() == Fire::Now, "the arm was forgotten")?;
    holds(channel.passed() == Fire::No, "one arm, two events")
}

/// A notify counts from the producer index at its doorbell.
pub fn channel_notify() -> Outcome {
    let mut channel = Channel::new(depth(2)?, false);
    let at = Index::new;
    holds(
        channel.push(true) == Some((at(0), Fire::No)),
        "a closed channel writes",
    )?;
    holds(
        channel.notify(Wants::Next, at(1)) == Fire::No,
        "a notify fires for a completion before it",
    )?;
    holds(
        channel.notify(Wants::Solicited, at(1)) == Fire::No,
        "solicited after next",
    )?;
    holds(
        channel.push(false) == Some((at(1), Fire::Now)),
        "next was weakened",
    )?;
    holds(
        channel.notify(Wants::Solicited, at(1)) == Fire::No,
        "solicited fires for any completion",
    )?;
    holds(
        channel.notify(Wants::Next, at(1)) == Fire::Now,
        "a completion since the doorbell is overlooked",
    )?;
    holds(
        channel.head(at(2)).is_ok() && channel.notify(Wants::Next, at(1)) == Fire::Now,
        "a sample behind the head fires",
    )
}

/// Raising masks, unmasking checks again.
pub fn interrupt() -> Outcome {
    let mut eq = EventQueue::new(depth(2)?, Moderation::default());
    let at = Index::new;
    holds(eq.push(0) == Some(at(0)), "push")?;
    holds(eq.line(0) == Line::Raise, "not raised")?;
    holds(eq.push(0) == Some(at(1)), "push")?;
    holds(eq.line(0) == Line::Quiet, "raising does not mask")?;
    holds(eq.head(at(1), false) == Ok((at(0), at(1))), "head")?;
    holds(eq.line(0) == Line::Quiet, "keep masked unmasks")?;
    holds(eq.head(at(3), true).is_err(), "a head past the producer")?;
    holds(eq.line(0) == Line::Quiet, "a violation unmasks")?;
    holds(eq.head(at(1), true) == Ok((at(1), at(1))), "head")?;
    holds(eq.line(0) == Line::Raise, "unmasking overlooks an event")
}

/// A count and a time.
pub fn moderation() -> Outcome {
    let (count, nanos) = (2, 100);
    let mut eq = EventQueue::new(depth(2)?, Moderation { count, nanos });
    holds(eq.push(5).is_some(), "push")?;
    holds(eq.line(5) == Line::At(105), "not delayed")?;
    holds(eq.line(105) == Line::Raise, "delayed for ever")?;
    holds(eq.head(Index::new(1), true).is_ok(), "head")?;
    holds(eq.push(200).is_some() && eq.push(210).is_some(), "push")?;
    holds(eq.line(210) == Line::Raise, "the count is ignored")
}

/// Asynchronous events are queued, bounded and counted.
pub fn notices() -> Outcome {
    let mut gate = Gate::new(1);
    let (mut first, mut second) = (Notice::default(), Notice::default());
    holds(first.happened() && second.happened(), "not queued")?;
    holds(!second.happened(), "queued twice")?;
    holds(gate.write(&mut first) == Some(1), "not written")?;
    holds(gate.write(&mut second).is_none(), "more than the limit")?;
    holds(!first.happened(), "queued while in the EQ")?;
    holds(gate.passed(Some(&mut first)), "a repeat is lost")?;
    holds(
        gate.write(&mut second) == Some(2),
        "repeats are not counted",
    )?;
    holds(!gate.passed(None), "an object that is gone")?;
    holds(gate.write(&mut first) == Some(1), "not written again")
}

const LIMITS: PageLimits = PageLimits {
    min_shift: 12,
    max_shift: 30,
};

fn plan(segments: &[(u64, u64)], flat: u64) -> Option<Plan> {
    let segments = segments.iter();
    let segments = segments.map(|&(addr, bytes)| Segment { addr, bytes });
    Plan::new(segments, LIMITS, flat).ok()
}

/// The page size that a buffer allows.
pub fn page_sizes() -> Outcome {
    const HUGE: u64 = 1 << 21;
    /// Segments, entries of a flat root; levels, page shift, pages.
    type Case = (&'static [(u64, u64)], u64, (u8, u8, u64));
    let cases: [Case; 6] = [
        (&[(0x5000, 0x1000), (0x6000, 0x800)], 9, (0, 0, 0)),
        (&[(0x5000, 0x1000), (0x9000, 0x800)], 9, (1, 12, 2)),
        (&[(0x5000, 0x1000), (0x9000, 0x800)], 1, (2, 12, 2)),
        (
            &[(HUGE * 3 + 4096, HUGE - 4096), (HUGE * 9, 64)],
            9,
            (1, 21, 2),
        ),
        (&[(0x10000, 0x3000), (0x53000, 0x3000)], 9, (1, 12, 6)),
        (&[(0x10000, 0x10000), (0x40000, 0x10000)], 9, (1, 16, 2)),
    ];
    for (segments, flat, expected) in cases {
        let plan = plan(segments, flat).ok_or("a good buffer is refused")?;
        let found = (plan.levels(), plan.page_shift(), plan.pages());
        holds(found == expected, "levels, page size or pages")?;
    }
    holds(
        plan(&[(0x1000, 0x100), (0x3000, 0x1000)], 9).is_none(),
        "a seam in a page",
    )?;
    holds(plan(&[], 9).is_none(), "no bytes")?;
    holds(
        plan(&[(u64::MAX, 2)], 9).is_none(),
        "past the end of the address space",
    )
}

/// From a byte to its page and back.
pub fn page_walk() -> Outcome {
    let segments = [(0x5800, 0x800), (0x9000, 0x1000), (0x2000, 0x10)];
    let root = 0x10_0000;
    for (flat, levels) in [(9, 1), (1, 2)] {
        let plan = plan(&segments, flat).ok_or("a good buffer is refused")?;
        let mut list = plan.describe(root);
        let shape = Shape::check(&list, LIMITS, 64).map_err(|_| "a good list is refused")?;
        for (at, page, expected, left) in [
            (0, 0, 0x800, 0x800),
            (0x7ff, 0, 0xfff, 1),
            (0x800, 1, 0, 0x1000),
            (0x1800, 2, 0, 0x10),
        ] {
            let spot = if levels == 1 {
                Spot::Page {
                    entry: root + 8 * page,
                    inside: expected,
                    left,
                }
            } else {
                Spot::Leaf {
                    entry: root,
                    leaf_offset: 8 * page,
                    inside: expected,
                    left,
                }
            };
            holds(shape.locate(at) == Some(spot), "a byte is at another place")?;
        }
        holds(shape.locate(0x1810).is_none(), "a byte past the end")?;
        list.offset = 4096;
        let bad = Shape::check(&list, LIMITS, 64);
        holds(bad == Err(BadShape::Offset), "an offset past the page")?;
    }
    let plan = plan(&segments, 9).ok_or("a good buffer is refused")?;
    let from = segments.iter();
    let from = from.map(|&(addr, bytes)| Segment { addr, bytes });
    holds(
        plan.entries(from).eq([0x5000, 0x9000, 0x2000]),
        "page addresses",
    )
}

/// Acknowledgements at more than half.
pub fn flow() -> Outcome {
    let credits = Credits { data: 2, acks: 2 };
    let make = || Flow::new(RingId::new(1, 0), credits, credits, credits).map_err(|_| "refused");
    let (mut ours, mut theirs) = (make()?, make()?);
    holds(ours.send() && ours.send() && !ours.send(), "data slots")?;
    theirs.received();
    holds(theirs.acknowledge().is_none(), "an acknowledgement at half")?;
    theirs.received();
    let ack = theirs.acknowledge().ok_or("no acknowledgement")?;
    holds(
        ours.received_acknowledgement(ack).is_ok(),
        "an acknowledgement is refused",
    )?;
    holds(ours.acknowledge().is_none(), "an acknowledgement of one")?;
    holds(
        !ours.send() && ours.sent(2).is_ok() && ours.send(),
        "completions free slots",
    )?;
    holds(
        ours.received_acknowledgement(5 << 16).is_err(),
        "more than is in flight",
    )?;
    let one = Credits { data: 2, acks: 1 };
    holds(
        Flow::new(RingId::new(1, 0), credits, one, one).is_err(),
        "one ack slot",
    )?;
    holds(ours.is_whole() && theirs.is_whole(), "balance")
}
