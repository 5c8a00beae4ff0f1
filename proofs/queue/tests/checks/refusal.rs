// SPDX-License-Identifier: GPL-2.0
//! A refused operation changes nothing: afterwards the rule's whole state is as before.
//!
//! Each check takes a rule through random states by random operations, valid and invalid. The state
//! is compared as its `Debug` text, which has every field. A counter of refusals may change and is
//! removed from the text. A check fails if one of its named refusals never occurs.

use super::checks;
use super::memory::Memory;
use qpair::flow::Credits;
use qpair::flow::Flow;
use qpair_abi::entry::MAX_BLOCKS;
use qpair_model::rules::channel::Channel;
use qpair_model::rules::channel::Wants;
use qpair_model::rules::eq_irq::EventQueue;
use qpair_model::rules::eq_irq::Gate;
use qpair_model::rules::eq_irq::Moderation;
use qpair_model::rules::eq_irq::Notice;
use qpair_model::rules::window::Place;
use qpair_model::rules::window::Window;
use qpair_queue::consumer::CqConsumer;
use qpair_queue::consumer::EqConsumer;
use qpair_queue::credit::RingId;
use qpair_queue::credit::Slots;
use qpair_queue::deferred::DeferredFree;
use qpair_queue::eq_slots::Arming;
use qpair_queue::eq_slots::EventSlots;
use qpair_queue::eq_slots::SlotShares;
use qpair_queue::index::Depth;
use qpair_queue::index::Index;
use qpair_queue::producer::SqProducer;
use qpair_testkit::with_seeds;
use qpair_testkit::Rng;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt::Debug;

checks![
    a_refused_bundle_moves_nothing,
    a_refused_index_moves_nothing,
    a_refused_arm_or_head_opens_nothing,
    a_refused_acknowledgement_gives_nothing,
    a_refused_post_takes_nothing,
    a_refused_completion_frees_nothing,
    a_refused_event_slot_is_not_taken,
];

const RING: RingId = RingId::new(7, 0);
const OTHER: RingId = RingId::new(7, 1);
const SEEDS: u64 = 40;
const STEPS: u32 = 60;

/// How often each operation was refused.
struct Refusals(RefCell<BTreeMap<&'static str, u32>>);

impl Refusals {
    /// Runs `body` on random schedules. Each of `names` must be refused in one of them.
    fn of(check: &'static str, names: &[&'static str], body: impl Fn(&mut Rng, &Self)) {
        let met = Self(
            names
                .iter()
                .map(|name| (*name, 0))
                .collect::<BTreeMap<_, _>>()
                .into(),
        );
        let all = with_seeds(check, SEEDS, |rng| body(rng, &met));
        let unmet: Vec<_> = met
            .0
            .into_inner()
            .into_iter()
            .filter(|(_, count)| *count == 0)
            .collect();
        assert!(!all || unmet.is_empty(), "never refused: {unmet:?}");
    }

    /// Runs `operation`, which returns whether it was refused; `text` is the state that must not
    /// change.
    fn check<T>(
        &self,
        name: &'static str,
        state: &mut T,
        text: impl Fn(&T) -> String,
        operation: impl FnOnce(&mut T) -> bool,
    ) {
        let before = text(state);
        if operation(state) {
            *self
                .0
                .borrow_mut()
                .get_mut(name)
                .expect("a refusal that the check names") += 1;
            assert_eq!(
                text(state),
                before,
                "{name} was refused, and changed something"
            );
        }
    }
}

fn whole<T: Debug>(state: &T) -> String {
    format!("{state:?}")
}

/// The text without the counter `name`.
fn without<T: Debug>(name: &'static str) -> impl Fn(&T) -> String {
    let field = format!("{name}: ");
    move |state| {
        let text = whole(state);
        let (before, after) = text.split_once(&field).expect("the counter is in the text");
        format!(
            "{before}{}",
            after.trim_start_matches(|c: char| c.is_ascii_digit())
        )
    }
}

/// An index near `at`, often a wrong one.
fn near(rng: &mut Rng, at: Index) -> Index {
    match rng.below32(8) {
        0 => Index::new(rng.next() as u32),
        1 => at.plus(1 << 31),
        _ => at.plus(rng.below32(12)).plus(0u32.wrapping_sub(4)),
    }
}

fn first(rng: &mut Rng) -> Index {
    Index::new(if rng.one_in(2) { 0 } else { u32::MAX - 20 })
}

fn a_refused_bundle_moves_nothing() {
    Refusals::of(
        "a_refused_bundle_moves_nothing",
        &["split", "merge", "take", "give", "admit"],
        |rng, met| {
            let cq =
                |ring| CqConsumer::new(ring, Memory::new(64), Depth::new(8).unwrap(), 8).unwrap();
            let ((_, pool), (_, mut others)) = (cq(RING), cq(OTHER));
            let mut state = (
                pool,
                Slots::none(RING),
                DeferredFree::new(RING),
                others.take(1).unwrap(),
            );
            for _ in 0..STEPS {
                let wanted = rng.below32(6);
                match rng.below32(5) {
                    0 => met.check("take", &mut state, whole, |(pool, held, ..)| {
                        pool.take(wanted)
                            .map(|slots| held.merge(slots).unwrap())
                            .is_none()
                    }),
                    1 => met.check("split", &mut state, whole, |(pool, held, ..)| {
                        held.split(wanted)
                            .map(|slots| pool.give(slots).unwrap())
                            .is_none()
                    }),
                    2 => met.check("merge", &mut state, whole, |(_, held, _, foreign)| {
                        held.merge(foreign.take())
                            .map_err(|slots| foreign.merge(slots).unwrap())
                            .is_err()
                    }),
                    3 => met.check("give", &mut state, whole, |(pool, _, _, foreign)| {
                        pool.give(foreign.take())
                            .map_err(|slots| foreign.merge(slots).unwrap())
                            .is_err()
                    }),
                    _ => met.check(
                        "admit",
                        &mut state,
                        whole,
                        |(_, held, deferred, foreign)| {
                            let own = held.split(wanted).filter(|slots| !slots.is_empty());
                            match own {
                                Some(slots) => deferred.admit(slots, Index::new(wanted)).is_err(),
                                None => {
                                    let refused =
                                        deferred.admit(foreign.take(), Index::new(wanted));
                                    refused
                                        .map_err(|slots| foreign.merge(slots).unwrap())
                                        .is_err()
                                }
                            }
                        },
                    ),
                }
            }
        },
    );
}

fn a_refused_index_moves_nothing() {
    Refusals::of(
        "a_refused_index_moves_nothing",
        &["push", "head behind", "head beyond", "tail"],
        |rng, met| {
            let depth = Depth::new(8).unwrap();
            let mut window = Window::new(depth, first(rng));
            for _ in 0..STEPS {
                match rng.below32(3) {
                    0 => met.check("push", &mut window, whole, |window| window.push().is_none()),
                    1 => {
                        let head = near(rng, window.head());
                        let name = match window.place(head) {
                            Place::Behind => "head behind",
                            _ => "head beyond",
                        };
                        met.check(name, &mut window, whole, |window| {
                            !matches!(window.advance_head(head), Place::Within(_))
                        });
                    }
                    _ => {
                        let tail = near(rng, window.tail());
                        met.check("tail", &mut window, whole, |window| {
                            window.advance_tail(tail).is_none()
                        });
                    }
                }
            }
        },
    );
}

fn a_refused_arm_or_head_opens_nothing() {
    let names = ["push", "head", "arm", "event", "event head", "notice"];
    Refusals::of("a_refused_arm_or_head_opens_nothing", &names, |rng, met| {
        let depth = Depth::new(8).unwrap();
        let mut channel = Channel::starting_at(depth, rng.one_in(2), first(rng));
        let mut queue = EventQueue::starting_at(depth, Moderation::default(), first(rng));
        let mut notices = (Gate::new(2), [Notice::default(); 4]);
        for step in 0..STEPS {
            let now = u64::from(step);
            match rng.below32(6) {
                0 => {
                    let solicited = rng.one_in(2);
                    met.check("push", &mut channel, whole, |channel| {
                        channel.push(solicited).is_none()
                    });
                }
                1 => {
                    let head = near(rng, channel.window().head());
                    met.check("head", &mut channel, whole, |channel| {
                        channel.head(head).is_err()
                    });
                }
                2 => {
                    let index = near(rng, channel.window().head());
                    let wants = rng.pick(&[Wants::Next, Wants::Solicited]);
                    met.check("arm", &mut channel, whole, |channel| {
                        channel.arm(wants, index).is_err()
                    });
                }
                3 => met.check("event", &mut queue, whole, |queue| {
                    queue.push(now).is_none()
                }),
                4 => {
                    let head = near(rng, queue.window().head());
                    let unmask = rng.one_in(2);
                    met.check("event head", &mut queue, whole, |queue| {
                        queue.head(head, unmask).is_err()
                    });
                }
                _ => {
                    let which = rng.below32(4) as usize;
                    if rng.one_in(3) {
                        let _ = notices.1[which].happened();
                    }
                    met.check("notice", &mut notices, whole, |(gate, notices)| {
                        gate.write(&mut notices[which]).is_none()
                    });
                }
            }
        }
    });
}

fn a_refused_acknowledgement_gives_nothing() {
    let names = [
        "send",
        "sent",
        "acknowledge",
        "acknowledged",
        "received acknowledgement",
    ];
    Refusals::of(
        "a_refused_acknowledgement_gives_nothing",
        &names,
        |rng, met| {
            let mut credits = || Credits {
                data: rng.below32(4) + 1,
                acks: rng.below32(3) + 2,
            };
            let mut flow = Flow::new(RING, credits(), credits(), credits()).unwrap();
            for _ in 0..STEPS {
                let count = rng.below32(4);
                match rng.below32(6) {
                    0 => met.check("send", &mut flow, whole, |flow| !flow.send()),
                    1 => met.check("sent", &mut flow, whole, |flow| flow.sent(count).is_err()),
                    2 => met.check("acknowledge", &mut flow, whole, |flow| {
                        flow.acknowledge().is_none()
                    }),
                    3 => met.check("acknowledged", &mut flow, whole, |flow| {
                        flow.acknowledged(count).is_err()
                    }),
                    4 => {
                        // Either count alone may be too large.
                        let immediate = rng.below32(4) << 16 | rng.below32(3);
                        met.check("received acknowledgement", &mut flow, whole, |flow| {
                            flow.received_acknowledgement(immediate).is_err()
                        });
                    }
                    _ => flow.received(),
                }
                assert!(flow.is_whole());
            }
        },
    );
}

fn a_refused_post_takes_nothing() {
    let names = ["room", "room in a batch", "doorbell"];
    Refusals::of("a_refused_post_takes_nothing", &names, |rng, met| {
        let depth = Depth::new(8).unwrap();
        let start = first(rng);
        let capacity = rng.below32(8) + 1;
        let memory = Memory::new(64);
        let mut sq =
            SqProducer::starting_at(RING, OTHER, memory, depth, 0, capacity, start).unwrap();
        for _ in 0..STEPS {
            // 0, a valid number, more than a work request may have, more than there are.
            let (blocks, signal) = (rng.below32(10), rng.one_in(2));
            let most = sq.free().min(MAX_BLOCKS as u32);
            let taken = || assert!((1..=most).contains(&blocks), "{blocks} of {most} blocks");
            match rng.below32(3) {
                0 => met.check("room", &mut sq, whole, |sq| match sq.room(blocks, signal) {
                    Ok(mut room) => {
                        taken();
                        room.write(0, &[1; 8]);
                        room.post();
                        false
                    }
                    Err(_) => true,
                }),
                1 => met.check("room in a batch", &mut sq, whole, |sq| {
                    let mut batch = sq.batch(|storage| storage);
                    let refused = batch.room(blocks, signal).map(|room| room.post()).is_err();
                    if !refused {
                        taken();
                    }
                    drop(batch);
                    refused
                }),
                _ => met.check("doorbell", &mut sq, whole, |sq| !sq.ring(|_| ())),
            }
            sq.audit().unwrap();
        }
    });
}

fn a_refused_completion_frees_nothing() {
    let names = [
        "entry",
        "completion",
        "completion of another CQ",
        "completion in a row",
        "reclaim",
    ];
    Refusals::of("a_refused_completion_frees_nothing", &names, |rng, met| {
        let depth = Depth::new(8).unwrap();
        let start = first(rng);
        let (memory, others) = (
            Memory::aged::<4>(depth, start),
            Memory::aged::<4>(depth, start),
        );
        let cq = |ring, memory: &Memory| {
            CqConsumer::starting_at(ring, memory.clone(), depth, 8, start)
                .unwrap()
                .0
        };
        let (mut cq, mut other) = (cq(OTHER, &memory), cq(RING, &others));
        others.write(depth, start, [0; 4]);
        let foreign = other.take().unwrap().seen;
        let mut sq =
            SqProducer::starting_at(RING, OTHER, Memory::new(64), depth, 0, 8, start).unwrap();
        let mut written = start;
        for _ in 0..STEPS {
            match rng.below32(6) {
                0 => {
                    let _ = sq.room(rng.below32(3) + 1, true).map(|room| room.post());
                    sq.ring(|_| ());
                }
                1 if written.since(cq.published().head()) < 8 => {
                    memory.write(depth, written, [0; 4]);
                    written = written.plus(1);
                }
                2 => {
                    let mut seen = None;
                    met.check("entry", &mut cq, whole, |cq| {
                        seen = cq.take().map(|entry| entry.seen);
                        seen.is_none()
                    });
                    let index = near(rng, sq.tail());
                    if let Some(seen) = seen {
                        met.check("completion", &mut sq, whole, |sq| {
                            sq.complete(index, seen).is_err()
                        });
                        let index = near(rng, sq.tail());
                        met.check("completion in a row", &mut sq, whole, |sq| {
                            let mut row = sq.row();
                            let refused = row.complete(index).is_none();
                            row.end(seen).unwrap();
                            refused
                        });
                    }
                }
                3 => {
                    let index = near(rng, sq.tail());
                    met.check("completion of another CQ", &mut sq, whole, |sq| {
                        sq.complete(index, foreign).is_err()
                    });
                    met.check("completion of another CQ", &mut sq, whole, |sq| {
                        let mut row = sq.row();
                        let _ = row.complete(index);
                        row.end(foreign).is_err()
                    });
                }
                4 => {
                    cq.publish(|_| ());
                }
                _ => {
                    let published = cq.published();
                    met.check("reclaim", &mut sq, whole, |sq| sq.reclaim(published) == 0);
                }
            }
            sq.audit().unwrap();
        }
    });
}

fn a_refused_event_slot_is_not_taken() {
    let names = ["bind kernel", "bind process", "arm", "event", "published"];
    Refusals::of("a_refused_event_slot_is_not_taken", &names, |rng, met| {
        let depth = Depth::new(8).unwrap();
        let eq = |ring, memory: &Memory| EqConsumer::new(ring, memory.clone(), depth, 8).unwrap();
        let (memory, others) = (Memory::new(16), Memory::new(16));
        let ((mut eq, pool), (mut other, _)) = (eq(RING, &memory), eq(OTHER, &others));
        others.write(depth, Index::ZERO, [0; 2]);
        let foreign = other.take().unwrap().seen;
        let shares = SlotShares {
            reserve: 1,
            spare: rng.below32(2),
            kernel: rng.below32(3),
        };
        let mut state = (EventSlots::new(pool, shares).unwrap(), Vec::<Arming>::new());
        let mut written = Index::ZERO;
        let text = without("spurious");
        for _ in 0..STEPS {
            let which = state
                .1
                .len()
                .checked_sub(1)
                .map(|last| rng.below32(last as u32 + 1) as usize);
            match (rng.below32(6), which) {
                (0, _) => met.check("bind kernel", &mut state, whole, |(slots, cqs)| {
                    slots.bind_kernel().map(|cq| cqs.push(cq)).is_err()
                }),
                (1, _) => met.check("bind process", &mut state, whole, |(slots, cqs)| {
                    slots.bind_process().map(|cq| cqs.push(cq)).is_err()
                }),
                (2, Some(which)) => met.check("arm", &mut state, whole, |(slots, cqs)| {
                    !matches!(slots.arm(&mut cqs[which]), Ok(true))
                }),
                (3, Some(which)) => {
                    memory.write(depth, written, [0; 2]);
                    written = written.plus(1);
                    let own = eq.take().unwrap().seen;
                    eq.publish(|_| ());
                    let seen = if rng.one_in(2) { own } else { foreign };
                    met.check("event", &mut state, &text, |(slots, cqs)| {
                        let armed = matches!(cqs[which], Arming::Armed(_));
                        slots.event(&mut cqs[which], seen);
                        !armed || seen.ring() == OTHER
                    });
                }
                (4, _) => {
                    let head = other.published();
                    met.check("published", &mut state, whole, |(slots, _)| {
                        slots.published(head);
                        true
                    });
                    state.0.published(eq.published());
                }
                _ => {}
            }
        }
    });
}
