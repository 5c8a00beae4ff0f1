// SPDX-License-Identifier: GPL-2.0
//! The channel against its definition: a list of completions and an index.

use super::checks;
use super::prop::holds;
use proptest::collection::vec;
use proptest::prelude::any;
use proptest::sample::select;
use qpair_model::rules::channel::Channel;
use qpair_model::rules::channel::Fire;
use qpair_model::rules::channel::Violation;
use qpair_model::rules::channel::Wants;
use qpair_queue::index::Depth;
use qpair_queue::index::Index;

checks![
    channels_follow_their_definition,
    next_is_not_weakened,
    a_remembered_arm_waits_for_the_head,
    a_notify_counts_from_its_doorbell,
    notifies_add_up,
    a_remembered_notify_waits_for_the_head,
    an_index_past_the_producer_changes_nothing,
];

/// The definition, in 64 bits, with every completion kept.
struct Definition {
    user: bool,
    head: u64,
    /// Solicited or not, from the beginning.
    completions: Vec<bool>,
    start: u64,
    /// The last arm, and the notifies since: the first completion of each that counts.
    open: Vec<(Wants, u64)>,
    /// The index of one of them was behind the head, or past the producer.
    at_once: bool,
    in_eq: bool,
}

impl Definition {
    fn tail(&self) -> u64 {
        self.start + self.completions.len() as u64
    }

    /// What it is open for.
    fn wants(&self) -> Option<Wants> {
        let next = self.open.iter().find(|(wants, _)| *wants == Wants::Next);
        next.or(self.open.first()).map(|(wants, _)| *wants)
    }

    /// Open, and holds a completion past the index.
    fn fires(&mut self) -> bool {
        let holds = self.open.iter().any(|&(wants, index)| {
            let past = self.completions.get((index - self.start) as usize..);
            past.is_some_and(|past| match wants {
                Wants::Next => !past.is_empty(),
                Wants::Solicited => past.contains(&true),
            })
        });
        if (holds || self.at_once) && !(self.user && self.in_eq) {
            self.open.clear();
            self.at_once = false;
            self.in_eq = true;
            return true;
        }
        false
    }
}

fn channels_follow_their_definition() {
    let step = (0..8u8, any::<bool>(), 0..5u64);
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
                open: Vec::new(),
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
                    4..=5 => {
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
                        let wants = match is.wants() {
                            Some(Wants::Next) => Wants::Next,
                            _ => wants,
                        };
                        is.open = vec![(wants, index)];
                        assert_eq!(fire == Ok(Fire::Now), is.fires());
                    }
                    _ => {
                        let wants = if flag { Wants::Next } else { Wants::Solicited };
                        // Behind the head, in the ring, or past it.
                        let sample = (is.tail() + 1).saturating_sub(amount).max(start);
                        let fire = channel.notify(wants, narrow(sample));
                        is.at_once |= sample < is.head || sample > is.tail();
                        is.open.push((wants, sample));
                        assert_eq!(fire == Fire::Now, is.fires());
                    }
                }
                assert_eq!(channel.open(), is.wants());
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

fn a_notify_counts_from_its_doorbell() {
    let (mut channel, at) = fresh(false);
    assert_eq!(channel.push(true), Some((at, Fire::No)));
    let sample = channel.window().tail();
    let now = |channel: &mut Channel, wants| channel.notify(wants, channel.window().tail());
    assert_eq!(now(&mut channel, Wants::Next), Fire::No, "it was there");
    assert_eq!(channel.push(false), Some((at.plus(1), Fire::Now)));
    assert_eq!(
        channel.notify(Wants::Next, sample),
        Fire::Now,
        "it was written after the doorbell, and before the device acts on it"
    );
    // The newest of those that count is not solicited.
    assert_eq!(channel.notify(Wants::Solicited, sample), Fire::No);
    assert_eq!(channel.push(true), Some((at.plus(2), Fire::Now)));
    assert_eq!(channel.notify(Wants::Solicited, sample), Fire::Now);
    assert_eq!(channel.notify(Wants::Solicited, at.plus(3)), Fire::No);
    assert_eq!(channel.window().head(), at, "no head is published");
    // The head passes a sample: another thread has published.
    assert_eq!(channel.head(at.plus(3)), Ok(()));
    assert_eq!(channel.notify(Wants::Solicited, sample), Fire::Now);
}

fn notifies_add_up() {
    for (first, second) in [
        (Wants::Next, Wants::Solicited),
        (Wants::Solicited, Wants::Next),
    ] {
        let (mut channel, at) = fresh(false);
        assert_eq!(channel.notify(first, at), Fire::No);
        assert_eq!(channel.notify(second, at), Fire::No);
        assert_eq!(channel.push(false), Some((at, Fire::Now)), "{first:?}");
        assert_eq!(channel.push(true), Some((at.plus(1), Fire::No)), "once");
    }
    // An arm looks at what is there, and replaces a notify.
    let (mut channel, at) = fresh(false);
    assert_eq!(channel.push(false), Some((at, Fire::No)));
    assert_eq!(channel.notify(Wants::Next, at.plus(1)), Fire::No);
    assert_eq!(channel.arm(Wants::Solicited, at), Ok(Fire::Now));
    assert_eq!(channel.open(), None);
}

fn a_remembered_notify_waits_for_the_head() {
    let (mut channel, at) = fresh(true);
    assert_eq!(channel.notify(Wants::Next, at), Fire::No);
    assert_eq!(channel.push(false), Some((at, Fire::Now)));
    assert_eq!(channel.notify(Wants::Next, at.plus(1)), Fire::No);
    assert_eq!(channel.push(false), Some((at.plus(1), Fire::No)));
    assert_eq!(
        channel.notify(Wants::Next, at.plus(2)),
        Fire::No,
        "it does not replace the one that is due"
    );
    assert_eq!(channel.passed(), Fire::Now, "the notify was remembered");
    assert_eq!(channel.passed(), Fire::No, "both were for one event");
}

fn an_index_past_the_producer_changes_nothing() {
    let (mut channel, at) = fresh(false);
    assert_eq!(channel.head(at.plus(1)), Err(Violation));
    assert_eq!(channel.arm(Wants::Next, at.plus(1)), Err(Violation));
    assert_eq!((channel.open(), channel.window().head()), (None, at));
    assert_eq!(channel.push(true), Some((at, Fire::No)));
}
