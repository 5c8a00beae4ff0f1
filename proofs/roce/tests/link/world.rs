// SPDX-License-Identifier: GPL-2.0
//! The world: both ends, the frames between them, and the records.

use super::action::Action;
use super::action::Way;
use super::plan::Plan;
use super::plan::Wanted;
use super::plan::What;
use super::plan::MTU;
use super::rules::*;
use qpair_roce::extended::Nak;
use qpair_roce::extended::Reth;
use qpair_roce::extended::Syndrome;
use qpair_roce::extended::With;
use qpair_roce::operation::Operation;
use qpair_roce::psn::Psn;
use qpair_roce::receiver::Effect;
use qpair_roce::receiver::Receiver;
use qpair_roce::receiver::Refusal;
use qpair_roce::receiver::Step;
use qpair_roce::request::Failure;
use qpair_roce::request::Outcome;
use qpair_roce::request::Request;
use qpair_roce::segment::Mtu;
use qpair_roce::sender::Next;
use qpair_roce::sender::Sender;

/// The first PSN: the numbers wrap in the first message.
const FIRST: Psn = Psn::new(Psn::MASK);
/// Requests in flight.
const REQUESTS: usize = 4;
/// Replies kept, and answers that wait.
const REPLIES: usize = 2;
const WAITING: usize = 2 * REPLIES + 2;
/// Addresses of a request's memory of the peer.
const SPACE: u64 = 1 << 20;

/// A packet of a request; `id` and `nth` are the records' own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Packet {
    psn: Psn,
    ack: bool,
    operation: Operation,
    bytes: u32,
    id: u32,
    nth: u32,
}

/// An answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Answer {
    psn: Psn,
    operation: Operation,
    /// What a READ's data were read from.
    from: Option<Reth>,
}

/// A place in the program: of a request the `nth` packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct At {
    id: u32,
    nth: u32,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct World {
    pub sender: Sender<REQUESTS>,
    pub receiver: Receiver<REPLIES, WAITING>,
    pub there: Vec<Packet>,
    pub back: Vec<Answer>,
    begun: u32,
    pub completed: u32,
    performed: u32,
    pub failed: bool,
    /// What is executed next, and of which answer data are taken next.
    next: At,
    data: At,
    /// The old values of the atomics: how many were executed before.
    atomics: Vec<u32>,
    receives: u32,
    faults: u8,
    /// Deadlines and answers since the last progress, and those of a receiver that was not ready.
    silence: u8,
    not_ready: u8,
    pub wrong: Option<&'static str>,
}

impl World {
    pub fn new(plan: &Plan) -> Self {
        let mtu = Mtu::from_code(1).expect("an MTU");
        let mut world = Self {
            sender: Sender::new(mtu, plan.limits, FIRST),
            receiver: Receiver::new(mtu, plan.limits.reads, FIRST),
            there: Vec::new(),
            back: Vec::new(),
            begun: 0,
            completed: 0,
            performed: 0,
            failed: false,
            next: At { id: 0, nth: 0 },
            data: At { id: 0, nth: 0 },
            atomics: Vec::new(),
            receives: plan.receives,
            faults: 0,
            silence: 0,
            not_ready: 0,
            wrong: None,
        };
        world.next.id = plan.first_from(0, Wanted::executed);
        world.data.id = plan.first_from(0, Wanted::answers);
        world.begin(plan);
        world
    }

    fn check(&mut self, holds: bool, what: &'static str) {
        if !holds && self.wrong.is_none() {
            self.wrong = Some(what);
        }
    }

    pub fn is_over(&self, plan: &Plan) -> bool {
        self.failed || self.wrong.is_some() || self.completed == plan.count()
    }

    /// Whether a budget is far from used up, so that nothing may fail any more.
    pub fn has_budget(&self, plan: &Plan) -> bool {
        self.silence < plan.limits.retry && plan.limits.rnr_retry.is_none()
    }

    pub fn actions(&self, plan: &Plan, actions: &mut Vec<Action>) {
        if self.is_over(plan) {
            return;
        }
        let faults = plan.faults.is_none_or(|most| self.faults < most);
        for (way, frames) in [(Way::There, self.there.len()), (Way::Back, self.back.len())] {
            if frames != 0 {
                actions.push(Action::Deliver(way));
            }
            if frames != 0 && faults {
                actions.push(Action::Lose(way));
                actions.extend((1..frames).map(|nth| Action::Swap(way, nth)));
            }
            if (1..plan.depth).contains(&frames) && faults {
                actions.push(Action::Duplicate(way));
            }
        }
        if self.there.len() < plan.depth {
            actions.push(Action::Send);
        }
        if self.back.len() < plan.depth && self.receiver.has_answers() {
            actions.push(Action::Answer);
        }
        if self.sender.deadline().is_some() {
            actions.push(Action::Deadline);
        }
        if self.receives == 0 && self.wants_receive(plan) {
            actions.push(Action::Supply);
        }
    }

    /// Whether the next message needs a receive, and has none.
    fn wants_receive(&self, plan: &Plan) -> bool {
        let next = self.next;
        next.nth == 0 && next.id < plan.count() && plan.wanted(next.id).what == What::Send
    }

    /// Whether anything happened.
    pub fn act(&mut self, plan: &Plan, action: Action) -> bool {
        if action.is_fault() && plan.faults.is_some() {
            self.faults += 1;
        }
        let (acked, waited) = (self.sender.acked(), self.sender.waits_for_receiver());
        let mut acts = true;
        match action {
            Action::Send => acts = self.send(plan),
            Action::Answer => self.answer(),
            Action::Deliver(Way::There) => {
                let packet = self.there.remove(0);
                self.receive(plan, packet);
            }
            Action::Deliver(Way::Back) => {
                let answer = self.back.remove(0);
                self.answered(plan, answer);
            }
            Action::Lose(Way::There) => drop(self.there.remove(0)),
            Action::Lose(Way::Back) => drop(self.back.remove(0)),
            Action::Duplicate(Way::There) => self.there.insert(1, self.there[0]),
            Action::Duplicate(Way::Back) => self.back.insert(1, self.back[0]),
            Action::Swap(Way::There, nth) => self.there.swap(nth - 1, nth),
            Action::Swap(Way::Back, nth) => self.back.swap(nth - 1, nth),
            Action::Deadline => {
                if !self.sender.waits_for_receiver() {
                    self.silence = self.silence.saturating_add(1);
                }
                self.sender.expire(0);
            }
            Action::Supply => self.receives += 1,
        }
        self.complete(plan);
        self.begin(plan);
        if self.sender.acked() != acked {
            // The answer may also have told of a gap, or of a receiver that is not ready.
            let waits = self.sender.waits_for_receiver() && !waited;
            (self.silence, self.not_ready) = (self.sender.repeats().into(), waits.into());
        }
        self.look(plan);
        // Counts beyond the budgets are alike.
        self.silence = self.silence.min(plan.limits.retry + 1);
        self.not_ready = self
            .not_ready
            .min(plan.limits.rnr_retry.map_or(0, |most| most + 1));
        self.sender.forget_time();
        acts
    }

    fn begin(&mut self, plan: &Plan) {
        while self.begun < plan.count() {
            let wanted = plan.wanted(self.begun);
            let begun = self.sender.begin(Request {
                id: self.begun,
                kind: wanted.kind(),
                bytes: wanted.bytes(),
                fence: wanted.fence,
            });
            if !begun {
                return;
            }
            self.begun += 1;
        }
    }

    fn send(&mut self, plan: &Plan) -> bool {
        let Some(next) = self.sender.next(0) else {
            return false;
        };
        let (Next::Packet { id, .. } | Next::Perform { id }) = next;
        let wanted = plan.wanted(id);
        // Those before it that are not answered.
        let waits = |id: &u32| *id >= self.data.id && plan.wanted(*id).is_answered();
        let unanswered = (0..id).filter(waits).count();
        self.check(!wanted.fence || unanswered == 0, FENCE);
        if wanted.is_answered() {
            self.check(unanswered < usize::from(plan.limits.reads), WINDOW);
        }
        let Next::Packet {
            psn, piece, ack, ..
        } = next
        else {
            let first = plan.first_from(self.performed, |it| u32::from(it.what == What::Local));
            self.check(id == first, ORDER);
            self.performed = id + 1;
            return true;
        };
        let reth = Reth {
            addr: u64::from(id) * SPACE + u64::from(piece.offset),
            key: id,
            bytes: piece.bytes,
        };
        let whole = Reth {
            addr: u64::from(id) * SPACE,
            key: id,
            bytes: wanted.bytes(),
        };
        let operation = match wanted.what {
            What::Send => Operation::send(piece.position, With::Nothing),
            What::Write => Operation::write_to(piece.position, whole, None),
            What::Read => Operation::Read(reth),
            What::Atomic => Operation::FetchAdd(Default::default()),
            What::Flush => Operation::Flush(Default::default(), whole),
            What::Local => return true,
        };
        let has_data = matches!(wanted.what, What::Send | What::Write);
        self.there.push(Packet {
            psn,
            ack,
            operation,
            bytes: if has_data { piece.bytes } else { 0 },
            id,
            nth: piece.offset / MTU,
        });
        true
    }

    fn receive(&mut self, plan: &Plan, packet: Packet) {
        let Packet { id, nth, .. } = packet;
        let (next, receives) = (self.next, self.receives);
        let bytes = packet.bytes as usize;
        let step = self
            .receiver
            .receive(packet.psn, packet.ack, &packet.operation, bytes);
        let Step::Execute(expected) = step else {
            let invalid = matches!(step, Step::Invalid);
            return self.check(!invalid, REASON);
        };
        let wanted = plan.wanted(id);
        let takes = wanted.what == What::Send && nth == 0;
        let effect = expected.effect();
        let mut old = 0;
        if plan.refused == Some(id) && nth + 1 == wanted.executed() {
            return expected.refuse(Refusal::Nak(Nak::RemoteAccess));
        } else if takes && receives == 0 {
            return expected.refuse(Refusal::NotReady(1));
        } else if effect == Effect::Atomic {
            old = self.atomics.len() as u32;
        }
        expected.executed(old.into());
        self.check(next == At { id, nth }, ORDER);
        match effect {
            Effect::Atomic => self.atomics.push(id),
            Effect::Piece(piece) => {
                self.receives -= u32::from(takes);
                self.check(piece.offset == nth * MTU, ORDER);
            }
            Effect::Read(reth) => self.check(reth.bytes == wanted.bytes(), ORDER),
            Effect::Confirmed => {}
        }
        self.next.nth += 1;
        if self.next.nth >= wanted.executed() {
            self.next = At {
                id: plan.first_from(id + 1, Wanted::executed),
                nth: 0,
            };
        }
    }

    fn answer(&mut self) {
        let Some(answer) = self.receiver.answer() else {
            return;
        };
        self.back.push(Answer {
            psn: answer.psn,
            operation: answer.operation,
            from: answer.payload,
        });
    }

    fn answered(&mut self, plan: &Plan, answer: Answer) {
        self.silence = self.silence.saturating_add(1);
        let waited = self.sender.waits_for_receiver();
        let bytes = answer.from.map_or(0, |from| from.bytes as usize);
        if let Operation::Acknowledge(aeth) = answer.operation {
            let refused = matches!(aeth.syndrome, Syndrome::NotReady(_));
            self.not_ready = self.not_ready.saturating_add(refused.into());
        }
        let data = self
            .sender
            .answer(0, answer.psn, &answer.operation, bytes, |_| 1);
        if !waited && self.sender.waits_for_receiver() {
            self.silence = 0;
        }
        let Some(data) = data else {
            return;
        };
        let At { id, nth } = self.data;
        let awaited = id < plan.count() && data.id == id && data.offset == nth * MTU;
        self.check(awaited, DATA);
        if self.wrong.is_some() {
            return;
        }
        let wanted = plan.wanted(id);
        let same = match (wanted.what, answer.operation) {
            (What::Atomic, Operation::AtomicReply(_, old)) => {
                self.atomics.get(old as usize) == Some(&id)
            }
            (What::Flush, _) => answer.from.is_none(),
            (What::Read, _) => answer.from.is_some_and(|from| {
                let addr = u64::from(id) * SPACE + u64::from(nth * MTU);
                let left = wanted.bytes() - nth * MTU;
                (from.key, from.addr, from.bytes) == (id, addr, left.min(MTU))
            }),
            _ => false,
        };
        self.check(same, DATA);
        self.data.nth += 1;
        if self.data.nth >= wanted.answers() {
            self.data = At {
                id: plan.first_from(id + 1, Wanted::answers),
                nth: 0,
            };
        }
    }

    fn complete(&mut self, plan: &Plan) {
        while let Some((id, outcome)) = self.sender.complete() {
            self.check(id == self.completed && id < self.begun, REPORT);
            let wanted = plan.wanted(id.min(plan.count() - 1));
            match outcome {
                Outcome::Done => {
                    let executed = self.next.id > id || wanted.executed() == 0;
                    let answered = self.data.id > id || wanted.answers() == 0;
                    let performed = self.performed > id || wanted.what != What::Local;
                    self.check(executed && answered && performed, EARLY);
                    self.check(!self.failed, REPORT);
                }
                Outcome::Failed(failure) => {
                    let has_reason = self.has_reason(plan, id, failure);
                    self.check(has_reason, REASON);
                    self.check(!self.failed, REPORT);
                    self.failed = true;
                }
            }
            self.completed += 1;
        }
    }

    fn has_reason(&self, plan: &Plan, id: u32, failure: Failure) -> bool {
        match failure {
            Failure::Local => false,
            Failure::Retries => self.silence > plan.limits.retry,
            Failure::RnrRetries => plan
                .limits
                .rnr_retry
                .is_some_and(|most| self.not_ready > most),
            Failure::Remote(nak) => {
                let refused = plan.refused == Some(id) && self.receiver.has_failed();
                refused && nak == Nak::RemoteAccess
            }
        }
    }

    /// What holds between any two steps.
    fn look(&mut self, plan: &Plan) {
        let longest = plan.program.iter().map(Wanted::answers).max().unwrap_or(0);
        let most = plan.limits.window + longest.max(1) - 1;
        self.check(self.sender.in_flight() <= most, WINDOW);
    }
}
