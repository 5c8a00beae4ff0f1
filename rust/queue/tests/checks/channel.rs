// SPDX-License-Identifier: GPL-2.0
//! The channel against its definition: a list of completions and an index.

use super::checks;
use super::prop::holds;
use proptest::collection::vec;
use proptest::prelude::any;
use proptest::sample::select;
use qpair_queue::channel::Channel;
use qpair_queue::channel::Fire;
use qpair_queue::channel::Violation;
use qpair_queue::channel::Wants;
use qpair_queue::index::Depth;
use qpair_queue::index::Index;

checks![
    channels_follow_their_definition,
    next_is_not_weakened,
    a_remembered_arm_waits_for_the_head,
    an_index_past_the_producer_changes_nothing,
];

/// The definition, in 64 bits, with every completion kept.
struct Definition {
    user: bool,
    head: u64,
    /// Solicited or not, from the beginning.
    completions: Vec<bool>,
    start: u64,
    open: Option<(Wants, u64)>,
    /// The arm's index was behind the head.
    at_once: bool,
    in_eq: bool,
}

impl Definition {
    fn tail(&self) -> u64 {
        self.start + self.completions.len() as u64
    }

    /// Open, and holds a completion past the index.
    fn fires(&mut self) -> bool {
        let Some((wants, index)) = self.open else {
            return false;
        };
        let past = &self.completions[(index - self.start) as usize..];
        let holds = match wants {
            Wants::Next => !past.is_empty(),
            Wants::Solicited => past.contains(&true),
        };
        if (holds || self.at_once) && !(self.user && self.in_eq) {
            self.open = None;
            self.at_once = false;
            self.in_eq = true;
            return true;
        }
        false
    }
}

fn channels_follow_their_definition() {
    let step = (0..6u8, any::<bool>(), 0..5u64);
    let start = select(vec![8u64, (1 << 31) - 5, (1 << 32) - 5]);
    holds(
        3000,
        (any::<bool>(), start, vec(step, 1..50)),
        |(user, start, steps)| {
            let depth = Depth::new(8).unwrap();
            let narrow = |index: u64| Index::new(index as u32);
            let mut channel = Channel::starting_at(depth, user, narrow(start));
            let mut is = Definition {
                user,
                head: start,
                completions: Vec::new(),
                start,
                open: None,
                at_once: false,
                in_eq: false,
            };
            for (kind, flag, amount) in steps {
                match kind {
                    0..=1 => {
                        let room = is.tail() - is.head < 8;
                        let pushed = channel.push(flag);
                        assert_eq!(pushed.is_some(), room);
                        let Some((index, fire)) = pushed else {
                            continue;
                        };
                        assert_eq!(index, narrow(is.tail()));
                        is.completions.push(flag);
                        assert_eq!(fire == Fire::Now, is.fires());
                    }
                    2 => {
                        let head = (is.head + amount).min(is.tail());
                        assert_eq!(channel.head(narrow(head)), Ok(()));
                        is.head = head;
                    }
                    3 => {
                        is.in_eq = false;
                        assert_eq!(channel.passed() == Fire::Now, is.fires());
                    }
                    _ => {
                        let wants = if flag { Wants::Next } else { Wants::Solicited };
                        // Behind the head, in the ring, or past it.
                        let index = (is.head + amount).max(start + 2) - 2;
                        let fire = channel.arm(wants, narrow(index));
                        if index > is.tail() {
                            assert_eq!(fire, Err(Violation));
                            continue;
                        }
                        is.at_once = index < is.head;
                        is.head = is.head.max(index);
                        let wants = match is.open {
                            Some((Wants::Next, _)) => Wants::Next,
                            _ => wants,
                        };
                        is.open = Some((wants, index));
                        assert_eq!(fire == Ok(Fire::Now), is.fires());
                    }
                }
                assert_eq!(channel.open(), is.open.map(|(wants, _)| wants));
                assert_eq!(channel.window().head(), narrow(is.head));
            }
        },
    );
}

fn fresh(user: bool) -> (Channel, Index) {
    (Channel::new(Depth::new(4).unwrap(), user), Index::ZERO)
}

fn next_is_not_weakened() {
    let (mut channel, at) = fresh(false);
    assert_eq!(channel.arm(Wants::Next, at), Ok(Fire::No));
    assert_eq!(channel.arm(Wants::Solicited, at), Ok(Fire::No));
    assert_eq!(
        channel.push(false),
        Some((at, Fire::Now)),
        "next still stands"
    );
    let (mut channel, at) = fresh(false);
    assert_eq!(channel.arm(Wants::Solicited, at), Ok(Fire::No));
    assert_eq!(channel.push(false), Some((at, Fire::No)));
    assert_eq!(
        channel.arm(Wants::Next, at),
        Ok(Fire::Now),
        "next replaces solicited"
    );
}

fn a_remembered_arm_waits_for_the_head() {
    let (mut channel, at) = fresh(true);
    assert_eq!(channel.arm(Wants::Next, at), Ok(Fire::No));
    assert_eq!(channel.push(false), Some((at, Fire::Now)));
    assert_eq!(
        channel.arm(Wants::Next, at),
        Ok(Fire::No),
        "one is in the EQ"
    );
    assert_eq!(channel.push(false), Some((at.plus(1), Fire::No)));
    assert_eq!(channel.passed(), Fire::Now, "the arm was remembered");
    assert_eq!(channel.passed(), Fire::No, "and was for one event");
}

fn an_index_past_the_producer_changes_nothing() {
    let (mut channel, at) = fresh(false);
    assert_eq!(channel.head(at.plus(1)), Err(Violation));
    assert_eq!(channel.arm(Wants::Next, at.plus(1)), Err(Violation));
    assert_eq!((channel.open(), channel.window().head()), (None, at));
    assert_eq!(channel.push(true), Some((at, Fire::No)));
}
