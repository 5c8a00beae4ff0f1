// SPDX-License-Identifier: GPL-2.0
//! Two senders and the wire between them: every interleaving.
//!
//! A message fills a receive of the peer at once, which is the worst case; the peer reads messages
//! in order, at any time. A send completes at any time after it was posted. Data is sent forever,
//! so a state without a next action is a deadlock, and a state in which only sending is possible
//! must let both sides send.

use ahash::AHasher;
use qpair::flow::Credits;
use qpair::flow::Flow;
use qpair_queue::credit::RingId;
use qpair_queue::mutant::activate;
use qpair_queue::mutant::Mutant;
use stateright::Checker;
use stateright::HasDiscoveries;
use stateright::Model;
use stateright::Property;
use std::collections::HashSet;
use std::hash::Hash;
use std::hash::Hasher;
use std::time::Instant;

pub const READY: &str = "the receiver is ready";
pub const TALK: &str = "both sides can send when all is read and answered";
pub const END: &str = "acknowledgements end";
pub const WHOLE: &str = "slots add up";
pub const ALL: &[&str] = &[READY, TALK, END, WHOLE];

/// Acknowledgements without data between them, of both sides together: with credits up to 4 there
/// are fewer.
const ANSWERS: u8 = 6;

/// The resources of each side: sends in flight, and posted receives.
#[derive(Clone, Copy, Debug)]
pub struct Pact {
    /// Sends complete when they are posted, not at any time after.
    pub prompt: bool,
    pub sends: [Credits; 2],
    pub receives: [Credits; 2],
}

impl Pact {
    /// Whether both sides have the same, so that states that differ by swapping them are merged.
    fn is_alike(&self) -> bool {
        self.sends[0] == self.sends[1] && self.receives[0] == self.receives[1]
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Message {
    Data,
    Ack(u32),
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Side {
    flow: Flow,
    /// Messages of the peer, each in a receive of this side.
    inbox: Vec<Message>,
    /// Sends that have not completed.
    data: u32,
    acks: u32,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct State {
    sides: [Side; 2],
    /// Acknowledgements since the last data.
    answers: u8,
    refused: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    Send(usize),
    Read(usize),
    Acknowledge(usize),
    SendDone(usize),
    AcknowledgeDone(usize),
}

impl Side {
    fn filled(&self, data: bool) -> u32 {
        let same = |message: &&Message| matches!(message, Message::Data) == data;
        self.inbox.iter().filter(same).count() as u32
    }
}

impl State {
    /// Sorts the sides by their contents.
    fn order(&mut self) {
        self.sides.sort_by_cached_key(|side| {
            let mut hasher = AHasher::default();
            side.hash(&mut hasher);
            hasher.finish()
        });
    }

    /// Whether only sending data is possible.
    fn is_quiet(&self) -> bool {
        self.sides.iter().all(|side| {
            let answers = side.flow.clone().acknowledge().is_some();
            side.inbox.is_empty() && side.data == 0 && side.acks == 0 && !answers
        })
    }

    fn act(&mut self, action: Action) {
        let (Action::Send(i)
        | Action::Read(i)
        | Action::Acknowledge(i)
        | Action::SendDone(i)
        | Action::AcknowledgeDone(i)) = action;
        let [first, second] = &mut self.sides;
        let (side, peer) = match i {
            0 => (first, second),
            _ => (second, first),
        };
        let done = match action {
            Action::Send(_) => {
                if side.flow.send() {
                    side.data += 1;
                    peer.inbox.push(Message::Data);
                    self.answers = 0;
                }
                Ok(())
            }
            Action::Read(_) => match side.inbox.remove(0) {
                Message::Data => {
                    side.flow.received();
                    Ok(())
                }
                Message::Ack(immediate) => side.flow.received_acknowledgement(immediate),
            },
            Action::Acknowledge(_) => {
                if let Some(immediate) = side.flow.acknowledge() {
                    side.acks += 1;
                    peer.inbox.push(Message::Ack(immediate));
                    // Counts beyond the limit need not be distinguished.
                    self.answers = (self.answers + 1).min(ANSWERS + 1);
                }
                Ok(())
            }
            Action::SendDone(_) => {
                side.data -= 1;
                side.flow.sent(1)
            }
            Action::AcknowledgeDone(_) => {
                side.acks -= 1;
                side.flow.acknowledged(1)
            }
        };
        self.refused |= done.is_err();
    }
}

struct Talk {
    pact: Pact,
    mutant: Option<Mutant>,
}

impl Model for Talk {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        activate(self.mutant);
        let Pact {
            sends, receives, ..
        } = self.pact;
        let side = |i: usize| Side {
            flow: Flow::new(RingId::new(1, 0), sends[i], receives[i], receives[1 - i])
                .expect("good credits"),
            inbox: Vec::new(),
            data: 0,
            acks: 0,
        };
        vec![State {
            sides: [side(0), side(1)],
            answers: 0,
            refused: false,
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        activate(self.mutant);
        for (i, side) in state.sides.iter().enumerate() {
            if side.flow.may_send() != 0 {
                actions.push(Action::Send(i));
            }
            if !side.inbox.is_empty() {
                actions.push(Action::Read(i));
            }
            if side.flow.clone().acknowledge().is_some() {
                actions.push(Action::Acknowledge(i));
            }
            if side.data != 0 {
                actions.push(Action::SendDone(i));
            }
            if side.acks != 0 {
                actions.push(Action::AcknowledgeDone(i));
            }
        }
    }

    fn next_state(&self, state: &State, action: Action) -> Option<State> {
        activate(self.mutant);
        let mut next = state.clone();
        next.act(action);
        if self.pact.prompt {
            match action {
                Action::Send(i) => next.act(Action::SendDone(i)),
                Action::Acknowledge(i) => next.act(Action::AcknowledgeDone(i)),
                _ => {}
            }
        }
        if self.pact.is_alike() {
            next.order();
        }
        Some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(READY, |model: &Self, state: &State| {
                let mut sides = state.sides.iter().zip(model.pact.receives);
                sides.all(|(side, ours)| {
                    side.filled(true) <= ours.data && side.filled(false) <= ours.acks
                })
            }),
            Property::always(TALK, |model: &Self, state: &State| {
                activate(model.mutant);
                !state.is_quiet() || state.sides.iter().all(|side| side.flow.may_send() != 0)
            }),
            Property::always(END, |_, state: &State| state.answers <= ANSWERS),
            Property::always(WHOLE, |_, state: &State| {
                !state.refused && state.sides.iter().all(|side| side.flow.is_whole())
            }),
        ]
    }
}

/// Explores all states and checks `properties`: returns the number of states, or the violation and
/// the path to it.
pub fn explore(
    mutant: Option<Mutant>,
    pact: Pact,
    properties: &[&'static str],
) -> Result<usize, String> {
    let model = Talk { pact, mutant };
    let checker = model
        .checker()
        .threads(2)
        .finish_when(HasDiscoveries::AnyOf(properties.iter().copied().collect()))
        .spawn_bfs()
        .join();
    let found = checker.discoveries().into_iter();
    let found = found.filter(|(property, _)| properties.contains(property));
    let found = found.map(|(property, path)| (property, path.into_actions()));
    match found.min_by_key(|(_, way)| way.len()) {
        None => Ok(checker.unique_state_count()),
        Some((property, way)) => {
            let way: Vec<_> = way.iter().map(|action| format!("{action:?}")).collect();
            Err(format!("{property}: {}", way.join(" ")))
        }
    }
}

/// Credits up to 4 of both sides, in any combination except those that only swap the sides.
fn credits() -> impl Iterator<Item = [Credits; 2]> {
    let all = (1..=4).flat_map(|data| (2..=4).map(move |acks| Credits { data, acks }));
    let all: Vec<_> = all.collect();
    let pairs = (0..all.len()).flat_map(|i| (0..=i).map(move |j| (i, j)));
    let pairs: Vec<_> = pairs.map(|(i, j)| [all[i], all[j]]).collect();
    pairs.into_iter()
}

fn talks(name: &str, pacts: impl Iterator<Item = Pact>) {
    let (began, mut number, mut sum) = (Instant::now(), 0, 0);
    for pact in pacts {
        match explore(None, pact, ALL) {
            Ok(states) => (number, sum) = (number + 1, sum + states),
            Err(said) => panic!("{pact:?}: {said}"),
        }
    }
    let took = began.elapsed().as_secs_f32();
    println!("states: {name}: {sum} states of {number} instances, nothing wrong ({took:.1} s)");
}

const fn each(count: u32) -> [Credits; 2] {
    [Credits {
        data: count,
        acks: count,
    }; 2]
}

#[test]
fn senders_never_wait_for_ever() {
    let prompt = credits().map(|receives| Pact {
        prompt: true,
        sends: each(4),
        receives,
    });
    talks("flow, sends complete at once", prompt);
    let alike = |receives: &[Credits; 2]| receives[0] == receives[1];
    let tight = credits().filter(alike);
    let tight = tight.map(|receives| Pact {
        prompt: false,
        sends: each(1),
        receives,
    });
    talks("flow, one send under way that completes at any time", tight);
    let few = credits().filter(|[a, b]| a.data <= 2 && a.acks == 2 && b.data <= 2 && b.acks == 2);
    let few = few.map(|receives| Pact {
        prompt: false,
        sends: each(2),
        receives,
    });
    talks("flow, two sends under way that complete at any time", few);
    // Two minutes, of all instances the most: with `make test-all`.
    if std::env::var_os("QPAIR_ALL_INSTANCES").is_some() {
        let most = Pact {
            prompt: false,
            sends: each(4),
            receives: each(4),
        };
        talks(
            "flow, four sends under way that complete at any time, four credits",
            [most].into_iter(),
        );
    }
}

/// Every reachable state; if `forget`, without its sends in flight.
fn reached(pact: Pact, forget: bool) -> HashSet<State> {
    let talk = Talk { pact, mutant: None };
    let mut ahead = talk.init_states();
    let (mut known, mut images): (HashSet<_>, HashSet<_>) = Default::default();
    let mut actions = Vec::new();
    while let Some(state) = ahead.pop() {
        talk.actions(&state, &mut actions);
        for action in actions.drain(..) {
            let next = talk.next_state(&state, action);
            ahead.extend(next.filter(|next| known.insert(next.clone())));
        }
        let mut image = state;
        for i in (0..2).filter(|_| forget) {
            while image.sides[i].data != 0 {
                image.act(Action::SendDone(i));
            }
            while image.sides[i].acks != 0 {
                image.act(Action::AcknowledgeDone(i));
            }
        }
        if pact.is_alike() {
            image.order();
        }
        images.insert(image);
    }
    images
}

/// A send that completes later only delays its sender: the rest of the state is the same as if all
/// completed at once. So the results for all pairs of credits with prompt sends also hold for late
/// ones.
#[test]
fn when_a_send_completes_makes_no_difference_to_the_peer() {
    let (mut number, mut sum) = (0, 0);
    for receives in credits().filter(|both| both.iter().all(|it| it.data + it.acks <= 4)) {
        for sends in [1, 2].map(each) {
            let late = reached(
                Pact {
                    prompt: false,
                    sends,
                    receives,
                },
                true,
            );
            let prompt = reached(
                Pact {
                    prompt: true,
                    sends,
                    receives,
                },
                false,
            );
            assert!(late == prompt, "{sends:?} {receives:?}");
            (number, sum) = (number + 1, sum + prompt.len());
        }
    }
    println!("states: flow, late and prompt completions: {sum} states of {number} instances are the same");
}

#[test]
fn acknowledging_otherwise_is_a_deadlock_or_has_no_end() {
    for (mutant, acks, property) in [
        (Mutant::AckAtHalf, 2, TALK),
        (Mutant::AckAtHalf, 2, END),
        (Mutant::AckOfAck, 2, END),
        (Mutant::OneAckCredit, 1, TALK),
    ] {
        let receives = [Credits { data: 2, acks }; 2];
        let pact = Pact {
            prompt: true,
            sends: each(4),
            receives,
        };
        match explore(Some(mutant), pact, &[property]) {
            Ok(states) => panic!("{mutant:?} is not found in {states} states"),
            Err(said) => println!("{}: caught by interleavings ({said})", mutant.what()),
        }
    }
}
