// SPDX-License-Identifier: GPL-2.0
//! The life of a device: its health and epoch, what it may access, and what is done in which order.
//!
//! Any context may report a failure, and a watchdog looks at the device at equal times. All else
//! happens in tasks: a device is started, shut down, or its loss is announced. One task is under way
//! at a time. `TABLE` has the steps of all; the driver executes them, as [`Lifecycle::step`]
//! returns them.
//!
//! | from | event | to |
//! |---|---|---|
//! | `Down` | [`start`](Lifecycle::start), then [`up`](Lifecycle::up) | `Up` |
//! | `Down`, `Up` | [`fail`](Lifecycle::fail) | `Fatal` |
//! | `Down`, `Up`, `Fatal` | `fail` with [`Failure::Gone`] | `Gone` |
//! | `Up`, `Fatal`, `Gone` | [`shut_down`](Lifecycle::shut_down) with [`Lost::Reset`] | `Down`, in the next epoch |
//! | `Down`, `Fatal`, `Gone` | [`sleep`](Lifecycle::sleep), after a shutdown | `Asleep` |
//! | `Asleep` | [`wake`](Lifecycle::wake) | `Down` |
//! | any | `shut_down` with [`Lost::Gone`] | `Unbound`, for ever |

use super::recovery::Recovery;

/// The state of the function.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Health {
    /// Not brought up, or being reset.
    Down,
    /// Brought up: commands and doorbells reach the device.
    Up,
    /// It stopped or failed a command that must succeed, and needs a reset.
    Fatal,
    /// It reads as all ones: unplugged, or broken beyond a reset.
    Gone,
    /// Suspended: it is not accessed.
    Asleep,
    /// Not bound to the driver any more.
    Unbound,
}

/// Why the function is not [`Health::Up`] any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Failure {
    /// The device reports it: the cause.
    Stopped(u8),
    /// It is in its power-on state although it was up: all its objects are lost.
    NotReady,
    /// An admin command got no answer.
    Timeout,
    /// An object could not be destroyed.
    Destroy,
    /// Bring-up failed, or the registration of the RDMA device. The caller logs the reason.
    BringUp,
    /// It reads as all ones while the PCI core recovers the link.
    Link,
    /// It reads as all ones.
    Gone,
}

/// Why a client has lost the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Lost {
    /// It is reset, and can be opened again.
    Reset,
    /// It is unplugged, broken or unbound, and does not come back.
    Gone,
}

/// The memory whose addresses the device has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Memory {
    /// The device has no addresses of memory.
    Free,
    /// The device may access the memory of this epoch.
    Live,
    /// It may access the memory of an earlier epoch: the shutdown did not stop its DMA.
    Kept,
}

/// The next step of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Step {
    /// Read the status, and report a failure.
    Look,
    /// Fail pending commands, so that their tasks leave the gate.
    FailCommands,
    /// Close the gate, and wait until all tasks have left it.
    Close,
    /// The device was reset: [`Lifecycle::next_epoch`].
    NextEpoch,
    /// Stop all DMA; [`Lifecycle::quiesced`] gets the result.
    Quiesce,
    /// The queues of ULPs access the device no more.
    Cut,
    /// ULPs get back what they have posted.
    Flush,
    /// Clients hear of the loss: doorbell pages are taken away, the RDMA device is unregistered.
    Notify,
    /// Free all memory that the device had addresses of.
    Release,
    /// Leak it: the driver is unbound.
    Leak,
    /// Enable bus mastering: the device may access memory.
    Master,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Kind {
    /// The device was reset, and begins to work.
    Start,
    ShutDown(Lost),
    /// The watchdog announces that the device has failed, before it is reset: that may have to wait.
    Announce(Lost),
}

/// A task, to be executed step by step.
#[derive(Debug, Hash, PartialEq, Eq)]
pub struct Task {
    kind: Kind,
    /// The next row of [`TABLE`].
    row: u8,
    /// The first epoch that is not over.
    over: u32,
    /// Whether the device may be accessed.
    access: bool,
    /// Whether it certainly accesses no memory of the epochs that are over.
    quiet: bool,
}

impl Task {
    fn shuts_down(&self) -> bool {
        matches!(self.kind, Kind::ShutDown(_))
    }

    fn announces(&self) -> bool {
        matches!(self.kind, Kind::Announce(_))
    }

    /// Whether clients lose the device by it. A loss that the watchdog announces waits until the
    /// device is quiet: clients free memory.
    fn loses(&self) -> bool {
        self.shuts_down() || self.announces() && self.quiet
    }

    /// Why clients lose the device.
    pub fn why(&self) -> Lost {
        match self.kind {
            Kind::ShutDown(why) | Kind::Announce(why) => why,
            Kind::Start => Lost::Reset,
        }
    }
}

/// A step, and whether a task takes it.
type Row = (Step, fn(&Lifecycle, &Task) -> bool);

/// The steps of all tasks, in their order.
const TABLE: [Row; 13] = [
    (Step::Look, |_, task| task.access),
    (Step::FailCommands, |_, task| task.announces()),
    // Else closing the gate would wait for them.
    (Step::FailCommands, |life, task| {
        task.shuts_down() && (!task.access || life.health != Health::Up)
    }),
    (Step::Close, |_, task| task.shuts_down()),
    (Step::NextEpoch, |_, task| {
        task.kind == Kind::ShutDown(Lost::Reset)
    }),
    (Step::Quiesce, |life, task| {
        task.kind != Kind::Start && life.memory != Memory::Free
    }),
    (Step::FailCommands, |_, task| task.shuts_down()),
    (Step::Cut, |_, task| task.loses()),
    (Step::Flush, |_, task| task.quiet),
    (Step::Notify, |_, task| task.loses()),
    (Step::Release, |_, task| !task.announces() && task.quiet),
    (Step::Leak, |_, task| {
        task.kind == Kind::ShutDown(Lost::Gone) && !task.quiet
    }),
    (Step::Master, |_, task| task.kind == Kind::Start),
];

/// What the watchdog does about a device that has failed.
#[derive(Debug)]
pub struct Failed {
    /// The task that announces the loss to clients.
    pub announce: Option<Task>,
    /// The epoch that failed, if the device is to be reset now; [`Lifecycle::tried`] follows.
    pub reset: Option<u32>,
}

/// The life of a device.
#[derive(Debug)]
pub struct Lifecycle {
    /// How often the device was reset: its objects belong to an epoch.
    epoch: u32,
    health: Health,
    memory: Memory,
    /// The first epoch whose memory the device may access.
    quiet: u32,
    /// The loss of this epoch that was announced.
    announced: Option<Lost>,
    /// Whether a task is under way.
    busy: bool,
    recovery: Recovery,
}

impl Default for Lifecycle {
    fn default() -> Self {
        Self::new()
    }
}

impl Lifecycle {
    /// Of a device that is down.
    pub const fn new() -> Self {
        Self {
            epoch: 0,
            health: Health::Down,
            memory: Memory::Free,
            quiet: 0,
            announced: None,
            busy: false,
            recovery: Recovery::new(),
        }
    }

    /// The number of resets so far.
    pub const fn epoch(&self) -> u32 {
        self.epoch
    }

    /// What may be done with the device.
    pub const fn health(&self) -> Health {
        self.health
    }

    /// Whether a task is under way: no other begins.
    pub const fn is_busy(&self) -> bool {
        self.busy
    }

    /// Whether the device accesses no memory of `epoch`, nor will.
    pub fn is_quiet(&self, epoch: u32) -> bool {
        epoch < self.quiet
    }

    /// Whether the device has no addresses of memory.
    pub fn is_free(&self) -> bool {
        self.memory == Memory::Free
    }

    /// Resets in a row by which the device did not come up, or not for long.
    pub const fn attempts(&self) -> u32 {
        self.recovery.attempts()
    }

    /// The device has failed, as was seen in `epoch`. Returns its state before, if that has changed.
    pub fn fail(&mut self, epoch: u32, why: Failure) -> Option<Health> {
        use Health::Down;
        use Health::Fatal;
        use Health::Gone;
        use Health::Up;
        if epoch != self.epoch {
            return None;
        }
        let to = match (self.health, why) {
            (Down | Up | Fatal, Failure::Gone) => Gone,
            // During a reset it is not ready.
            (Down, Failure::NotReady) => return None,
            (Down | Up, _) => Fatal,
            _ => return None,
        };
        Some(core::mem::replace(&mut self.health, to))
    }

    /// The device was just reset, and is to work. `None` if it may not: it is not down.
    ///
    /// The task ends with bus mastering enabled; then it is brought up.
    pub fn start(&mut self) -> Option<Task> {
        let quiet = self.memory == Memory::Kept;
        (self.health == Health::Down).then(|| self.begin(Kind::Start, self.epoch, false, quiet))
    }

    /// The device was brought up. False if it has failed meanwhile.
    pub fn up(&mut self) -> bool {
        let up = self.health == Health::Down;
        if up {
            self.health = Health::Up;
        }
        up
    }

    /// The device is to stop: `why`. `works` if its link does. `None` if it is suspended, and only
    /// reset.
    pub fn shut_down(&mut self, why: Lost, works: bool) -> Option<Task> {
        if why == Lost::Reset && self.health == Health::Asleep {
            return None;
        }
        let access = works && self.memory != Memory::Free;
        let (over, quiet) = (self.epoch.saturating_add(1), self.memory == Memory::Free);
        Some(self.begin(Kind::ShutDown(why), over, access, quiet))
    }

    /// Suspends a device that was shut down. False if it may access memory.
    #[must_use]
    pub fn sleep(&mut self) -> bool {
        if self.memory == Memory::Kept {
            return false;
        }
        // Also one that has failed since: the resume begins anew.
        if self.health != Health::Unbound {
            self.health = Health::Asleep;
        }
        true
    }

    /// It is not suspended any more.
    pub fn wake(&mut self) {
        if self.health == Health::Asleep {
            self.health = Health::Down;
        }
    }

    /// A look of the watchdog. Returns what it does if the device has failed.
    pub fn look(&mut self) -> Option<Failed> {
        let (why, reset) = match self.health {
            Health::Up => {
                self.recovery.works(self.epoch);
                return None;
            }
            Health::Fatal => (Lost::Reset, self.recovery.failed(self.epoch)),
            Health::Gone => (Lost::Gone, false),
            Health::Down | Health::Asleep | Health::Unbound => return None,
        };
        let announce = (self.announced != Some(why) && !self.busy).then(|| {
            let (over, quiet) = (self.epoch.saturating_add(1), self.memory == Memory::Free);
            self.begin(Kind::Announce(why), over, false, quiet)
        });
        Some(Failed {
            announce,
            reset: reset.then_some(self.epoch),
        })
    }

    /// Whether a device that failed in `epoch` is still to be reset.
    pub fn needs_reset(&self, epoch: u32) -> bool {
        self.epoch == epoch && self.health == Health::Fatal
    }

    /// The watchdog has reset the device, or could not. It was in `epoch` then.
    pub fn tried(&mut self, epoch: u32) {
        self.recovery.tried(epoch);
    }

    fn begin(&mut self, kind: Kind, over: u32, access: bool, quiet: bool) -> Task {
        self.busy = true;
        Task {
            kind,
            row: 0,
            over,
            access,
            quiet,
        }
    }

    /// The next step of a task; `None` at its end.
    pub fn step(&mut self, task: &mut Task) -> Option<Step> {
        while let Some((step, is_taken)) = TABLE.get(usize::from(task.row)) {
            task.row = task.row.wrapping_add(1);
            if !is_taken(self, task) {
                continue;
            }
            match step {
                // Before the gate: a task that finds it closed must get the right error.
                Step::Close if task.why() == Lost::Gone => self.health = Health::Unbound,
                Step::Flush => self.quiet = self.quiet.max(task.over),
                Step::Release => self.memory = Memory::Free,
                Step::Master => self.memory = Memory::Live,
                _ => {}
            }
            return Some(*step);
        }
        match task.kind {
            Kind::Announce(why) if task.quiet => self.announced = Some(why),
            _ => {}
        }
        self.busy = false;
        None
    }

    /// Begins a new epoch: all objects of earlier ones are invalid.
    pub fn next_epoch(&mut self) {
        self.epoch = self.epoch.wrapping_add(1);
        self.announced = None;
        if matches!(self.health, Health::Up | Health::Fatal | Health::Gone) {
            self.health = Health::Down;
        }
    }

    /// Whether the step [`Step::Quiesce`] of a task has stopped all DMA for certain.
    pub fn quiesced(&mut self, task: &mut Task, quiet: bool) {
        task.quiet = quiet;
        if task.shuts_down() && !quiet {
            self.memory = Memory::Kept;
        }
    }
}
