// SPDX-License-Identifier: GPL-2.0
//! The interrupt and pending asynchronous events, rule by rule.

use super::checks;
use super::prop::holds;
use proptest::collection::vec;
use qpair_model::rules::channel::Violation;
use qpair_model::rules::eq_irq::EventQueue;
use qpair_model::rules::eq_irq::Gate;
use qpair_model::rules::eq_irq::Line;
use qpair_model::rules::eq_irq::Moderation;
use qpair_model::rules::eq_irq::Notice;
use qpair_queue::index::Depth;
use qpair_queue::index::Index;
use std::collections::VecDeque;

checks![
    raising_masks_until_unmasked,
    moderation_is_a_count_and_a_time,
    an_eq_head_past_the_producer_changes_nothing,
    asynchronous_events_are_bounded_and_told,
    a_cancelled_notice_is_not_written,
];

fn fresh(moderation: Moderation) -> EventQueue {
    EventQueue::starting_at(Depth::new(8).unwrap(), moderation, Index::new(u32::MAX - 2))
}

fn raising_masks_until_unmasked() {
    let mut eq = fresh(Moderation::default());
    assert_eq!(eq.line(0), Line::Quiet, "empty");
    let first = eq.push(0).unwrap();
    assert_eq!(eq.line(0), Line::Raise);
    assert_eq!(eq.line(0), Line::Quiet, "raising masks");
    eq.push(0).unwrap();
    assert_eq!(eq.line(0), Line::Quiet);
    assert_eq!(eq.head(first.plus(1), false), Ok((first, first.plus(1))));
    assert_eq!(eq.line(0), Line::Quiet, "keep masked keeps masked");
    assert_eq!(
        eq.head(first, true),
        Ok((first.plus(1), first.plus(1))),
        "behind: legal"
    );
    assert_eq!(eq.line(0), Line::Raise, "unmasked, not empty");
    assert!(eq.head(first.plus(2), true).is_ok());
    assert_eq!(eq.line(0), Line::Quiet, "unmasked, empty");
    assert!(!eq.is_masked());
}

fn moderation_is_a_count_and_a_time() {
    let moderation = Moderation {
        count: 3,
        nanos: 100,
    };
    let mut eq = fresh(moderation);
    let first = eq.push(10).unwrap();
    assert_eq!(eq.line(10), Line::At(110));
    eq.push(50).unwrap();
    assert_eq!(eq.line(50), Line::At(110), "the oldest counts");
    eq.push(60).unwrap();
    assert_eq!(eq.line(60), Line::Raise, "three wait");
    assert!(eq.head(first.plus(3), true).is_ok());
    eq.push(1000).unwrap();
    assert_eq!(eq.line(1000), Line::At(1100), "a new oldest");
    assert_eq!(eq.line(1099), Line::At(1100));
    assert_eq!(eq.line(1100), Line::Raise, "it has waited long enough");
    let mut eq = fresh(Moderation {
        count: 1,
        nanos: 100,
    });
    eq.push(0).unwrap();
    assert_eq!(eq.line(0), Line::Raise);
}

fn an_eq_head_past_the_producer_changes_nothing() {
    let mut eq = fresh(Moderation::default());
    let first = eq.push(0).unwrap();
    assert_eq!(eq.line(0), Line::Raise);
    assert_eq!(eq.head(first.plus(2), true), Err(Violation));
    assert!(eq.is_masked());
    assert_eq!(eq.window().head(), first);
}

/// A device with notices and gate, on any order of events and head updates.
fn asynchronous_events_are_bounded_and_told() {
    holds(1500, (1..4u32, vec(0..8usize, 1..80)), |(limit, steps)| {
        let mut gate = Gate::new(limit);
        let mut notices = [Notice::default(); 5];
        let (mut happened, mut told) = ([0u32; 5], [0u32; 5]);
        let (mut waiting, mut in_eq) = (VecDeque::new(), VecDeque::new());
        let rest = std::iter::repeat_n(7, 200);
        for step in steps.into_iter().chain(rest) {
            if step < 5 {
                happened[step] += 1;
                if notices[step].happened() {
                    waiting.push_back(step);
                }
            } else if let Some(i) = in_eq.pop_front() {
                if gate.passed(Some(&mut notices[i])) {
                    waiting.push_back(i);
                }
            }
            while let Some(&i) = waiting.front() {
                let Some(count) = gate.write(&mut notices[i]) else {
                    break;
                };
                assert!(count > 0);
                told[i] += count;
                waiting.pop_front();
                in_eq.push_back(i);
            }
            assert_eq!(gate.in_eq() as usize, in_eq.len());
            assert!(in_eq.len() <= limit as usize);
            for i in 0..5 {
                assert!(in_eq.iter().chain(&waiting).filter(|j| **j == i).count() <= 1);
            }
        }
        assert_eq!(told, happened);
    });
}

fn a_cancelled_notice_is_not_written() {
    let (mut gate, mut notice) = (Gate::new(1), Notice::default());
    assert!(notice.happened());
    notice.cancel();
    assert_eq!(gate.write(&mut notice), None);
    assert!(notice.happened());
    assert_eq!(gate.write(&mut notice), Some(1));
    let mut other = Notice::default();
    assert!(other.happened() && !other.happened());
    assert_eq!(gate.write(&mut other), None);
    assert!(!gate.passed(None), "its object is gone");
    assert_eq!(gate.write(&mut other), Some(2));
}
