// SPDX-License-Identifier: GPL-2.0
//! The state graph for the model checker ([stateright]), and the properties of each of its states.
//!
//! | property | means |
//! |---|---|
//! | [`PROMISES`] | no EQ, CQ or SQ slot is used twice, none is lost; masks and doorbells follow the rules (the ghost state of the world) |
//! | [`EVENTS`] | while the driver sleeps no event is in the EQ, and no asynchronous event is pending |
//! | [`WAKE_UPS`] | while the driver sleeps each of its CQs is armed, and holds no CQE that its arm selects; the same for each CQ whose process sleeps |
//! | [`ASKED`] | a CQ's event is written when the manual requires it, and not otherwise |
//! | [`PROGRESS`] | if every actor finishes its work, everything is consumed and reported, and every slot is free again |
//! | [`FAIRNESS`] | the same for all others while one CQ is kept as full as possible, so that it never drains |
//!
//! Progress is checked from every state: stateright's own *eventually* misses cycles. There is only
//! one path that finishes all work, so each state on it is visited only once.
//!
//! stateright distinguishes states by a 64-bit hash: among a million, the probability of a
//! collision is 1 in 3 * 10^7.

use super::queues::Body;
use super::queues::Pair;
use super::state::Action;
use super::state::Instance;
use super::state::State;
use super::world::SoftCq;
use ahash::AHasher;
use qpair_model::rules::channel::Wants;
use qpair_queue::mutant::activate;
use qpair_queue::mutant::Mutant;
use stateright::Checker;
use stateright::HasDiscoveries;
use stateright::Model;
use stateright::Property;
use std::collections::HashSet;
use std::hash::BuildHasherDefault;
use std::sync::Mutex;

pub const PROMISES: &str = "no rule is broken";
pub const EVENTS: &str = "no event is lost";
pub const WAKE_UPS: &str = "no wake-up is lost";
pub const ASKED: &str = "events match their arms";
pub const PROGRESS: &str = "all work completes";
pub const FAIRNESS: &str = "other work completes";
/// All properties; an instance without a CQ that never drains has all but the last.
pub const ALL: &[&str] = &[PROMISES, EVENTS, WAKE_UPS, ASKED, PROGRESS, FAIRNESS];

/// A situation that must occur, and the test for it.
pub type Scene = (&'static str, fn(&EventPath, &State) -> bool);

fn bodies(state: &State) -> impl Iterator<Item = (&SoftCq, &Body)> {
    let cqs = state.world.cqs.iter();
    cqs.filter_map(|cq| Some((cq, cq.body.as_ref()?)))
}

fn pairs(state: &State) -> impl Iterator<Item = &Pair> {
    let places = bodies(state).flat_map(|(_, body)| &body.places);
    places.filter_map(|place| place.pair.as_ref())
}

/// Whether a CQ, of a process or of the kernel, sleeps on completions that it was not armed for.
fn sleeps_on(state: &State, user: bool) -> bool {
    let mut bodies = bodies(state).filter(|(cq, _)| cq.user == user);
    let solicited = Some(Wants::Solicited);
    state.is_asleep()
        && bodies.any(|(_, body)| body.channel.open() == solicited && body.unread() != 0)
}

// Each instance must reach the situations that it is for, otherwise it would show nothing.

pub const SCENES: &[Scene] = &[
    ("an arm of a process is remembered", |_, state| {
        let mut bodies = bodies(state);
        bodies.any(|(_, body)| body.channel.in_eq() && body.channel.open().is_some())
    }),
    (
        "the slot of a destroyed CQ waits for the EQ's head",
        |_, state| state.poller.slots().deferred() != 0,
    ),
    (
        "a CQ is gone, and one is made at its number",
        |model, state| {
            // Its index shows that it existed at first, and the possible actions show that it can
            // be created again.
            let born = model.instance.kernel + model.instance.process;
            let mut actions = Vec::new();
            state.actions(&model.instance, &mut actions);
            let mut actions = actions.into_iter();
            actions.any(|action| matches!(action, Action::Create(i) if i < born))
        },
    ),
    (
        "a queue pair is gone and its CQE lies unread",
        |_, state| bodies(state).any(|(_, body)| body.is_orphaned()),
    ),
    ("the EQ is full", |_, state| {
        state.world.eq.window().used() == state.world.capacity
    }),
    ("a CQ is full", |_, state| {
        bodies(state).any(|(_, body)| body.channel.window().is_full())
    }),
    ("the budget is spent while a CQ is pending", |_, state| {
        state.run.is_none() && state.scheduled && state.poller.pending() != 0
    }),
    (
        "an asynchronous event happens again before it is told",
        |_, state| {
            let counts = state.world.events.iter().map(|(_, count)| *count);
            let most = counts.max().unwrap_or(0);
            let mut sources = state.world.sources.iter();
            sources.any(|source| source.notice.in_eq() && u32::from(source.owed) > most)
        },
    ),
];

pub const TAKEN: &[Scene] = &[
    ("a CQ that is taken out is completed to", |_, state| {
        bodies(state).any(|(cq, body)| cq.taken && body.has_unread(Wants::Next))
    }),
    (
        "the event of a CQ that is taken out is in the EQ",
        |_, state| {
            let mut cqs = state.world.cqs.iter().enumerate();
            cqs.any(|(i, cq)| cq.taken && cq.body.is_some() && state.world.is_named(i))
        },
    ),
    (
        "a CQ that is taken out is armed, and another one is there for its slot",
        |_, state| {
            let mut bodies_of = bodies(state);
            let waits = bodies_of.any(|(cq, body)| cq.taken && body.channel.open().is_some());
            waits && bodies(state).any(|(cq, _)| !cq.taken)
        },
    ),
];

pub const SOLICITED_BY_KERNEL: &[Scene] = &[(
    "a kernel CQ sleeps on completions that are not solicited",
    |_, state| sleeps_on(state, false),
)];

pub const SOLICITED_BY_PROCESS: &[Scene] = &[(
    "a process sleeps on completions that are not solicited",
    |_, state| sleeps_on(state, true),
)];

pub const STALE_ARMS: &[Scene] = &[
    (
        "a process sleeps with an index before what it read",
        |_, state| {
            let mut bodies = bodies(state);
            bodies.any(|(cq, body)| cq.sleeps.is_some() && body.consumer.unpublished() != 0)
        },
    ),
    (
        "one that sleeps for solicited completions is armed for any",
        |_, state| {
            let mut bodies = bodies(state).filter(|(cq, _)| cq.sleeps == Some(Wants::Solicited));
            bodies.any(|(_, body)| body.channel.open() == Some(Wants::Next))
        },
    ),
    (
        "a CQ is gone, the driver knows it, and its event is in the EQ",
        |_, state| {
            let mut cqs = state.world.cqs.iter().enumerate();
            cqs.any(|(i, cq)| cq.ended.is_some() && state.world.is_named(i))
        },
    ),
];

pub const NOTIFIES: &[Scene] = &[
    (
        "a process sleeps, and a completion comes before the device acts on its notify",
        |_, state| {
            let mut bodies = bodies(state).filter(|(cq, _)| cq.sleeps.is_some());
            bodies.any(|(_, body)| body.bells() != 0 && body.unread() != 0)
        },
    ),
    ("the head passes the sample of a notify", |_, state| {
        bodies(state).any(|(_, body)| body.is_overtaken())
    }),
    ("a notify is remembered", |_, state| {
        let mut bodies = bodies(state);
        bodies.any(|(_, body)| body.channel.in_eq() && body.channel.open().is_some())
    }),
    (
        "an event is signaled before its process sleeps",
        |_, state| state.world.cqs.iter().any(|cq| cq.signaled),
    ),
];

pub const HOSTILITY: &[Scene] = &[
    ("its CQ is overrun", |_, state| {
        bodies(state).any(|(_, body)| body.is_overrun())
    }),
    ("its arm is remembered", |_, state| {
        let mut bodies = bodies(state).filter(|(_, body)| body.hostile);
        bodies.any(|(_, body)| body.channel.in_eq() && body.channel.open().is_some())
    }),
];

pub const SILENCE: &[Scene] = &[
    ("a completion gives back several slots", |_, state| {
        pairs(state).any(|pair| pair.sq.completed() > 1)
    }),
    (
        "the last work requests of a queue pair have no completion, and it may go",
        |_, state| state.run.is_none() && pairs(state).any(Pair::is_silent),
    ),
];

/// States from which the end is known to be reached.
#[derive(Default)]
struct Walked(Mutex<HashSet<u64, BuildHasherDefault<AHasher>>>);

impl Walked {
    /// Whether the path of `ending` leads from `state` to a state with `end`.
    fn ends(
        &self,
        model: &EventPath,
        state: &State,
        end: impl Fn(&State) -> bool,
        ending: impl Fn(&State) -> Option<Action>,
    ) -> bool {
        activate(model.mutant);
        let mut way = Vec::new();
        // The state at half of the path or later: meeting it again is a cycle.
        let mut mark = 0;
        let mut ahead: Option<State> = None;
        loop {
            let at = ahead.as_ref().unwrap_or(state);
            let print = at.print;
            if end(at) || self.0.lock().unwrap().contains(&print) {
                self.0.lock().unwrap().extend(way);
                return true;
            }
            if print == mark || at.world.fault.is_some() {
                return false;
            }
            if way.len().is_power_of_two() {
                mark = print;
            }
            way.push(print);
            let Some(action) = ending(at) else {
                return false;
            };
            ahead = Some(at.next(&model.instance, action));
        }
    }
}

pub struct EventPath {
    pub instance: Instance,
    mutant: Option<Mutant>,
    /// The properties to check.
    properties: Vec<&'static str>,
    /// The scenes that must happen.
    scenes: &'static [Scene],
    rest: Walked,
    beside: Walked,
}

impl Model for EventPath {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        activate(self.mutant);
        vec![State::new(&self.instance)]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        state.actions(&self.instance, actions);
    }

    fn next_state(&self, state: &State, action: Action) -> Option<State> {
        activate(self.mutant);
        Some(state.next(&self.instance, action))
    }

    fn properties(&self) -> Vec<Property<Self>> {
        let mut properties = vec![
            Property::always(PROMISES, |_, state: &State| state.world.fault.is_none()),
            Property::always(EVENTS, |_, state: &State| {
                let world = &state.world;
                let told = world.sources.iter().all(|source| source.owed == 0);
                !state.is_asleep() || (world.eq.window().is_empty() && told)
            }),
            Property::always(WAKE_UPS, |_, state: &State| {
                let mut bodies = bodies(state);
                !state.is_asleep()
                    || bodies.all(|(cq, body)| {
                        if cq.taken {
                            return true;
                        }
                        if body.bells() != 0 {
                            // The device acts on them in the end.
                            return true;
                        }
                        let open = body.channel.open();
                        let waits = if cq.user { cq.sleeps } else { open };
                        match waits {
                            Some(wants) => {
                                let armed = open == Some(wants) || open == Some(Wants::Next);
                                armed && !body.has_unread(wants)
                            }
                            None => cq.user,
                        }
                    })
            }),
            Property::always(ASKED, |_, state: &State| {
                bodies(state).all(|(_, body)| !body.unlike_the_manual)
            }),
            Property::always(PROGRESS, |model: &Self, state: &State| {
                model.rest.ends(model, state, State::is_rest, State::ending)
            }),
            Property::always(FAIRNESS, |model: &Self, state: &State| {
                model.instance.hog.is_none_or(|hog| {
                    let end = |state: &State| state.is_rest_beside(hog);
                    let coarse = model.instance.coarse;
                    let ending = |state: &State| state.ending_beside(hog, coarse);
                    model.beside.ends(model, state, end, ending)
                })
            }),
        ];
        properties.retain(|property| self.properties.contains(&property.name));
        let scenes = self.scenes.iter();
        properties.extend(scenes.map(|(name, scene)| Property::sometimes(name, *scene)));
        properties
    }
}

fn shown(way: Vec<Action>) -> String {
    let way: Vec<_> = way.iter().map(|action| format!("{action:?}")).collect();
    way.join(" ")
}

/// Explores all states and checks these properties: returns the number of states, or the violation
/// and the path to it.
pub fn explore(
    mutant: Option<Mutant>,
    instance: Instance,
    properties: &[&'static str],
    scenes: &'static [Scene],
) -> Result<usize, String> {
    let model = EventPath {
        instance,
        mutant,
        properties: properties.to_vec(),
        scenes,
        rest: Walked::default(),
        beside: Walked::default(),
    };
    let checker = model
        .checker()
        .threads(2)
        .finish_when(HasDiscoveries::AnyFailures)
        .spawn_bfs()
        .join();
    let mut found = checker.discoveries();
    let mut missing = Vec::new();
    for (scene, _) in scenes {
        if found.remove(scene).is_none() {
            missing.push(*scene);
        }
    }
    if !missing.is_empty() && found.is_empty() {
        return Err(format!("it never happens: {}", missing.join("; ")));
    }
    let found = found.into_iter().map(|(property, path)| {
        let fault = path.last_state().world.fault;
        (property, fault, path.into_actions())
    });
    match found.min_by_key(|(_, _, way)| way.len()) {
        None => Ok(checker.unique_state_count()),
        Some((property, None, way)) => Err(format!("not so: {property}: {}", shown(way))),
        Some((property, Some(fault), way)) => {
            Err(format!("not so: {property} ({fault}): {}", shown(way)))
        }
    }
}
