// SPDX-License-Identifier: GPL-2.0
//! A device, the holder of its lock, its watchdog, and failures at any moment.
//!
//! The rules decide; this file keeps apart from them what is true: which memory the device may
//! access, which clients were notified of which loss, and whether it is suspended.

use qpair_queue::policy::lifecycle::Failure;
use qpair_queue::policy::lifecycle::Health;
use qpair_queue::policy::lifecycle::Lifecycle;
use qpair_queue::policy::lifecycle::Lost;
use qpair_queue::policy::lifecycle::Step;
use qpair_queue::policy::lifecycle::Task;
use qpair_queue::policy::recovery::LONGEST;

pub const ACCESSED: &str = "a suspended device, or one behind a failed link, is accessed";
pub const FREED: &str = "memory is freed that the device may access";
pub const FLUSHED: &str = "ULPs get memory back that the device may access";
pub const RELEASED: &str = "a destroy returns while the device may access its memory";
pub const MISTAKEN: &str = "the device has addresses of memory, or has none, against the life";
pub const WAITS: &str = "a destroy waits though the device accesses nothing";
pub const UNCUT: &str = "ULPs are flushed while they may post";
pub const EARLY: &str = "clients are told while the device may access their memory";
pub const TWICE: &str = "a loss is announced twice";
pub const UNTOLD: &str = "the RDMA device is registered though the device is lost";
pub const SLEPT: &str = "a device is suspended that may access memory";
pub const STUCK: &str = "the gate waits for commands behind a failed link";
pub const EPOCH: &str = "a reset begins no new epoch";
pub const BLAMED: &str = "a device is failed by a failure of an earlier epoch";
pub const FORGOTTEN: &str = "a device that has failed is up";
pub const LEAKED: &str = "memory is forgotten: neither freed nor leaked for good";
pub const PENDING: &str = "a failed device is announced, and its commands are pending";
pub const UNHEARD: &str = "a device that is up takes no commands";
pub const OVERLAP: &str = "two tasks are under way";
pub const UNENDED: &str = "no task is under way, and none begins";

/// Resets of an instance.
const EPOCHS: u32 = 3;

/// What the PCI core or the driver core calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Call {
    /// A reset from outside: `reset_prepare`, the reset, `reset_done`.
    Reset,
    Suspend,
    Resume,
    /// `error_detected`: the link is frozen until its slot is reset.
    Frozen,
    SlotReset,
    ErrorResume,
    /// `error_detected`: the link has failed permanently.
    Failed,
    Unbind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// The holder of the device lock goes on; a step that may fail does or does not.
    Go(bool),
    Call(Call),
    /// The watchdog looks, or continues to announce a loss.
    Look,
    Announce(bool),
    /// The watchdog resets the device.
    Recover,
    /// The device fails.
    Fail(Failure),
    /// A failure of the epoch before is reported late.
    Late,
}

/// What follows a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Then {
    Reset {
        by_watchdog: bool,
    },
    Sleep,
    Build,
    /// The bring-up has failed.
    Fatal,
    Nothing,
    Unbound,
}

/// What the holder of the device lock does.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Holder {
    /// No task holds it.
    Free,
    /// It waits to begin a shutdown.
    Waits(Lost, Then),
    Does(Task, Then),
    /// The function is being reset from outside.
    Resets {
        by_watchdog: bool,
    },
    /// The driver resets it by its register, to bring it up.
    Begins,
    /// The rings are made, and the RDMA device is registered.
    Builds,
    /// Unbound: for ever.
    Gone,
}

/// The whole.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct World {
    pub life: Lifecycle,
    holder: Holder,
    /// The watchdog announces.
    announces: Option<Task>,
    /// The epoch that it is to reset.
    recovers: Option<u32>,
    /// It looks at a device that works only once, for its counters are tested elsewhere.
    has_looked: bool,
    in_probe: bool,
    suspended: bool,
    frozen: bool,
    /// The epoch whose memory the device may access.
    dma: Option<u32>,
    /// The epoch whose memory is allocated.
    memory: Option<u32>,
    /// The last epoch in which ULPs posted memory.
    posted: Option<u32>,
    leaked: bool,
    cut: bool,
    commands: bool,
    registered: bool,
    announced: Option<Lost>,
    failed: bool,
    pub wrong: Option<&'static str>,
}

impl World {
    /// In probe: the bring-up begins.
    pub fn new() -> Self {
        Self {
            life: Lifecycle::new(),
            holder: Holder::Begins,
            announces: None,
            recovers: None,
            has_looked: false,
            in_probe: true,
            suspended: false,
            frozen: false,
            dma: None,
            memory: None,
            posted: None,
            leaked: false,
            cut: true,
            commands: false,
            registered: false,
            announced: None,
            failed: false,
            wrong: None,
        }
    }

    fn wrong(&mut self, what: &'static str) {
        self.wrong = self.wrong.or(Some(what));
    }

    /// All that may happen now.
    pub fn actions(&self) -> Vec<Action> {
        let mut actions = Vec::new();
        match &self.holder {
            Holder::Free => {
                let may_reset = self.life.epoch() < EPOCHS;
                let calls = [
                    (Call::Reset, may_reset && !self.frozen),
                    (Call::Suspend, may_reset && !self.suspended),
                    (Call::Resume, self.suspended),
                    (Call::Frozen, may_reset && !self.frozen),
                    (Call::SlotReset, self.frozen),
                    (Call::ErrorResume, !self.frozen),
                    (Call::Failed, true),
                    (Call::Unbind, true),
                ];
                let all = calls.into_iter().filter(|(_, may)| *may);
                actions.extend(all.map(|(call, _)| Action::Call(call)));
            }
            Holder::Waits(..) if self.life.is_busy() => {}
            Holder::Gone => {}
            _ => actions.extend([Action::Go(false), Action::Go(true)]),
        }
        if self.recovers.is_some() && self.announces.is_none() {
            actions.push(Action::Recover);
        }
        let watches = !self.suspended && self.holder != Holder::Gone;
        match &self.announces {
            Some(_) => actions.extend([Action::Announce(false), Action::Announce(true)]),
            None if !watches || self.recovers.is_some() => {}
            None if self.life.health() == Health::Up && self.has_looked => {}
            None => actions.push(Action::Look),
        }
        actions.push(Action::Fail(Failure::Stopped(1)));
        actions.push(Action::Fail(Failure::Gone));
        actions.push(Action::Late);
        actions
    }

    /// One of them happens.
    pub fn act(&mut self, action: Action) {
        match action {
            Action::Go(done) => self.go(done),
            Action::Call(call) => self.call(call),
            Action::Look => {
                self.has_looked = self.life.health() == Health::Up;
                if let Some(failed) = self.life.look() {
                    self.recovers = failed.reset;
                    self.announces = failed.announce;
                }
            }
            Action::Announce(done) => {
                let Some(mut task) = self.announces.take() else {
                    return;
                };
                if self.step(&mut task, done, true) {
                    self.announces = Some(task);
                } else if self.commands {
                    self.wrong(PENDING);
                }
            }
            Action::Recover => {
                // The lock may be held.
                let may_reset = self.holder == Holder::Free && self.life.epoch() < EPOCHS;
                let epoch = self.recovers.take();
                if may_reset && epoch.is_some_and(|epoch| self.life.needs_reset(epoch)) {
                    self.holder = Holder::Waits(Lost::Reset, Then::Reset { by_watchdog: true });
                }
            }
            Action::Fail(why) => {
                if self.life.fail(self.life.epoch(), why).is_some() {
                    self.failed = true;
                }
            }
            Action::Late => {
                if let Some(epoch) = self.life.epoch().checked_sub(1) {
                    if self.life.fail(epoch, Failure::Stopped(1)).is_some() {
                        self.wrong(BLAMED);
                    }
                }
            }
        }
        self.check();
    }

    fn call(&mut self, call: Call) {
        let waits = Holder::Waits;
        self.holder = match call {
            Call::Reset => waits(Lost::Reset, Then::Reset { by_watchdog: false }),
            Call::Suspend => waits(Lost::Reset, Then::Sleep),
            Call::Resume => {
                self.suspended = false;
                self.life.wake();
                self.begins()
            }
            Call::Frozen => {
                self.frozen = true;
                waits(Lost::Reset, Then::Nothing)
            }
            Call::SlotReset => {
                (self.frozen, self.dma) = (false, None);
                match self.life.health() {
                    Health::Asleep | Health::Down => Holder::Free,
                    _ => waits(Lost::Reset, Then::Nothing),
                }
            }
            Call::ErrorResume => self.begins(),
            Call::Failed => {
                self.frozen = false;
                waits(Lost::Gone, Then::Nothing)
            }
            Call::Unbind => waits(Lost::Gone, Then::Unbound),
        };
    }

    /// The bring-up begins, if it may.
    fn begins(&self) -> Holder {
        match self.life.health() {
            Health::Down => Holder::Begins,
            _ => Holder::Free,
        }
    }

    /// The bring-up has failed.
    fn gives_up(&self) -> Holder {
        match self.in_probe {
            true => Holder::Waits(Lost::Gone, Then::Unbound),
            false => Holder::Waits(Lost::Reset, Then::Fatal),
        }
    }

    fn go(&mut self, done: bool) {
        self.holder = match std::mem::replace(&mut self.holder, Holder::Free) {
            Holder::Free | Holder::Gone => return,
            Holder::Waits(why, then) => match self.life.shut_down(why, !self.frozen) {
                Some(task) => Holder::Does(task, then),
                None => self.then(then),
            },
            Holder::Does(mut task, then) => match self.step(&mut task, done, false) {
                true => Holder::Does(task, then),
                false => self.then(then),
            },
            Holder::Resets { by_watchdog } => {
                if done {
                    self.dma = None;
                }
                if by_watchdog {
                    self.life.tried(self.life.epoch());
                }
                self.begins()
            }
            Holder::Begins => {
                if self.suspended {
                    self.wrong(ACCESSED);
                }
                // Behind a frozen link it reads as ones.
                let done = done && !self.frozen;
                if done {
                    self.dma = None;
                }
                match done.then(|| self.life.start()).flatten() {
                    Some(task) => Holder::Does(task, Then::Build),
                    None => self.gives_up(),
                }
            }
            Holder::Builds => match done && self.life.up() {
                true => {
                    if self.failed {
                        self.wrong(FORGOTTEN);
                    }
                    self.registered = true;
                    self.in_probe = false;
                    Holder::Free
                }
                false => self.gives_up(),
            },
        };
    }

    fn then(&mut self, then: Then) -> Holder {
        match then {
            Then::Reset { by_watchdog } => Holder::Resets { by_watchdog },
            Then::Sleep => match self.life.sleep() {
                true => {
                    if self.dma.is_some() {
                        self.wrong(SLEPT);
                    }
                    (self.suspended, self.failed) = (true, false);
                    Holder::Free
                }
                false => self.begins(),
            },
            Then::Build => Holder::Builds,
            Then::Fatal => {
                if self
                    .life
                    .fail(self.life.epoch(), Failure::BringUp)
                    .is_some()
                {
                    self.failed = true;
                }
                Holder::Free
            }
            Then::Nothing => Holder::Free,
            Then::Unbound => Holder::Gone,
        }
    }

    /// A step of a task; false at the end of the task.
    fn step(&mut self, task: &mut Task, done: bool, by_watchdog: bool) -> bool {
        let epoch = self.life.epoch();
        let Some(step) = self.life.step(task) else {
            return false;
        };
        match step {
            Step::Look => {
                if self.suspended || self.frozen {
                    self.wrong(ACCESSED);
                }
            }
            Step::FailCommands => self.commands = false,
            Step::Close => {
                if self.commands && self.frozen {
                    self.wrong(STUCK);
                }
            }
            Step::NextEpoch => {
                self.life.next_epoch();
                if self.life.epoch() != epoch + 1 {
                    self.wrong(EPOCH);
                }
                (self.announced, self.failed, self.has_looked) = (None, false, false);
            }
            Step::Quiesce => {
                if self.suspended {
                    self.wrong(ACCESSED);
                }
                if done {
                    self.dma = None;
                }
                self.life.quiesced(task, done);
            }
            Step::Cut => self.cut = true,
            Step::Flush => {
                if self.dma.is_some() {
                    self.wrong(FLUSHED);
                }
                if !self.cut {
                    self.wrong(UNCUT);
                }
            }
            Step::Notify => {
                if by_watchdog {
                    if self.dma.is_some() {
                        self.wrong(EARLY);
                    }
                    if self.announced.replace(task.why()) == Some(task.why()) {
                        self.wrong(TWICE);
                    }
                }
                self.registered = false;
            }
            Step::Release => {
                if self.dma.is_some() {
                    self.wrong(FREED);
                }
                self.memory = None;
            }
            Step::Leak => self.leaked = true,
            Step::Master => {
                if self.suspended {
                    self.wrong(ACCESSED);
                }
                if self.memory.is_some() {
                    self.wrong(LEAKED);
                }
                (self.dma, self.memory, self.posted) = (Some(epoch), Some(epoch), Some(epoch));
                (self.cut, self.commands) = (false, true);
            }
        }
        true
    }

    /// What holds in every state.
    fn check(&mut self) {
        if self.dma.is_some_and(|epoch| self.life.is_quiet(epoch)) {
            self.wrong(RELEASED);
        }
        let holds = matches!(self.holder, Holder::Does(..));
        if holds && self.announces.is_some() {
            self.wrong(OVERLAP);
        }
        if self.announces.is_some() || !matches!(self.holder, Holder::Free | Holder::Gone) {
            return;
        }
        if self.life.is_busy() {
            self.wrong(UNENDED);
        }
        let health = self.life.health();
        if health == Health::Up && !self.commands {
            self.wrong(UNHEARD);
        }
        if self.registered && !matches!(health, Health::Up | Health::Fatal | Health::Gone) {
            self.wrong(UNTOLD);
        }
        if self.holder == Holder::Gone && self.memory.is_some() && !self.leaked {
            self.wrong(LEAKED);
        }
        let is_free = self.memory.is_none();
        if is_free != self.life.is_free() {
            self.wrong(MISTAKEN);
        }
        if is_free && self.posted.is_some_and(|epoch| !self.life.is_quiet(epoch)) {
            self.wrong(WAITS);
        }
    }
}

impl World {
    /// Whether the watchdog resets a device that has failed, if nothing else happens.
    pub fn recovers(&self) -> bool {
        if self.life.health() != Health::Fatal || self.life.is_busy() {
            return true;
        }
        let mut life = self.life.clone();
        (0..=LONGEST).any(|_| life.look().is_some_and(|failed| failed.reset.is_some()))
    }
}
