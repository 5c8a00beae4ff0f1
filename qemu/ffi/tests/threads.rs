// SPDX-License-Identifier: GPL-2.0
//! The C interface, called from several threads as QEMU does with an IOThread.

mod support;

use std::{
    sync::{
        atomic::{
            AtomicBool,
            AtomicI64,
            AtomicU64,
            Ordering::SeqCst, //
        },
        mpsc,
        Mutex, //
    },
    thread,
    time::Duration, //
};

use qpair_abi::{
    command::{
        self,
        service, //
    },
    counters,
    counters::Counter,
    doorbell,
    entry::{
        self,
        SendWqe, //
    },
    regs::offset,
    Number, //
};
use qpair_ffi::{
    model::*,
    QpairRun,
    QpairTrace, //
};
use support::{
    defaults,
    index_of,
    Board,
    Machine,
    CONTEXT,
    CQ,
    ENABLE,
    QP_LOG,
    QP_SQ,
    READY,
    RESET,
    SQ, //
};

/// A point at which a thread inside stops: it reports its arrival, and continues when it is
/// released.
type Stop = (mpsc::Sender<()>, mpsc::Receiver<()>);

const BELL: usize = 0;
const CORE: usize = 1;
const UP: usize = 2;

struct Threads {
    board: Board,
    woken: AtomicBool,
    /// The number of threads inside, and whether there were ever two.
    inside: AtomicI64,
    crowd: AtomicBool,
    /// Values of the doorbells, in the order of their execution.
    rung: Mutex<Vec<u64>>,
    /// The number of further doorbells to ring, each while the previous one is executed.
    more: AtomicU64,
    /// Stops for the thread that executes a doorbell, runs the core, or brings the function up.
    stop: [Mutex<Option<Stop>>; 3],
}

impl Threads {
    fn new() -> Box<Self> {
        let machine = Box::new(Self {
            board: Board::new(true),
            woken: AtomicBool::new(false),
            inside: AtomicI64::new(0),
            crowd: AtomicBool::new(false),
            rung: Mutex::default(),
            more: AtomicU64::new(0),
            stop: Default::default(),
        });
        machine.plug(&defaults()).unwrap();
        machine.up();
        machine
    }

    /// One whose function has this value of a setting.
    fn with(setting: &str, value: u64) -> Box<Self> {
        let machine = Self::new();
        machine.unplug();
        let mut settings = defaults();
        settings[index_of(setting) as usize] = value;
        machine.plug(&settings).unwrap();
        machine.up();
        machine
    }

    fn model(&self) -> *mut QpairModel {
        self.board.model()
    }

    fn bind(&self, bound: bool) {
        // SAFETY: The model exists; one thread of a test acts as the holder of the BQL.
        unsafe { qpair_model_bind(self.model(), bound) }
    }

    /// Rings for a nonexistent queue.
    fn post(&self, value: u64) -> bool {
        // SAFETY: The model exists.
        unsafe { qpair_model_post(self.model(), doorbell::SQ, 0xffff | value << 32, 8) }
    }

    fn ring(&self, place: u64, value: u64) {
        // SAFETY: The model exists.
        assert!(unsafe { qpair_model_post(self.model(), place, value, 8) });
    }

    fn run(&self) -> QpairRun {
        // SAFETY: The model exists.
        unsafe { qpair_model_run_apart(self.model()) }
    }

    fn rung(&self) -> Vec<u64> {
        self.rung.lock().unwrap().clone()
    }

    /// Stops the next thread that does this: returns the channels for its arrival and its release.
    fn hold_next(&self, what: usize) -> (mpsc::Receiver<()>, mpsc::Sender<()>) {
        let (here, came) = mpsc::channel();
        let (go, may_go) = mpsc::channel();
        *self.stop[what].lock().unwrap() = Some((here, may_go));
        (came, go)
    }

    fn stay(&self, what: usize) {
        let stop = self.stop[what].lock().unwrap().take();
        if let Some((here, go)) = stop {
            here.send(()).unwrap();
            go.recv().unwrap();
        }
    }
}

impl Machine for Threads {
    fn board(&self) -> &Board {
        &self.board
    }

    fn wake(&self) {
        self.woken.store(true, SeqCst);
    }

    fn looks_at_the_clock(&self) {
        self.stay(CORE);
    }

    fn asks_for_the_bus(&self) {
        self.stay(UP);
    }

    fn traces(&self, what: QpairTrace, arguments: &[u64; 6]) {
        if self.inside.fetch_add(1, SeqCst) != 0 {
            self.crowd.store(true, SeqCst);
        }
        if what == QpairTrace::Doorbell {
            let value = arguments[2] >> 32;
            self.rung.lock().unwrap().push(value);
            self.stay(BELL);
            let more = self.more.load(SeqCst);
            if more != 0 {
                self.more.store(more - 1, SeqCst);
                assert!(self.post(value + 1));
            }
        }
        self.inside.fetch_sub(1, SeqCst);
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        self.unplug();
        assert!(thread::panicking() || self.board.mapped.load(SeqCst) == 0);
        assert!(
            thread::panicking() || !self.crowd.load(SeqCst),
            "two were inside"
        );
    }
}

/// No doorbell is lost, and each is executed once: by the thread that posts it, by one that is
/// inside, or by the core, which was woken for it.
#[test]
fn all_doorbells_are_acted_on() {
    const THREADS: u64 = 4;
    const EACH: u64 = 20_000;
    let machine = Threads::new();
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(SeqCst) {
                machine.woken.store(false, SeqCst);
                machine.run();
                thread::sleep(Duration::from_micros(50));
            }
        });
        scope.spawn(|| {
            while !done.load(SeqCst) {
                assert_eq!(machine.status() & READY, READY);
                thread::sleep(Duration::from_micros(70));
            }
        });
        let posters: Vec<_> = (0..THREADS)
            .map(|thread| {
                let machine = &machine;
                scope.spawn(move || {
                    for i in 0..EACH {
                        while !machine.post(thread << 24 | i) {
                            thread::yield_now();
                        }
                    }
                })
            })
            .collect();
        posters
            .into_iter()
            .for_each(|poster| poster.join().unwrap());
        done.store(true, SeqCst);
    });
    // The core may have been woken after its thread's last check.
    while machine.woken.swap(false, SeqCst) {
        machine.run();
    }
    let rung = machine.rung();
    assert_eq!(rung.len() as u64, THREADS * EACH);
    for thread in 0..THREADS {
        let mine: Vec<u64> = rung.iter().copied().filter(|v| v >> 24 == thread).collect();
        assert!(
            mine.iter()
                .zip(0..)
                .all(|(value, i)| value & 0xff_ffff == i),
            "out of order"
        );
    }
    assert_eq!(machine.counter(Counter::Violations), THREADS * EACH);
}

/// A thread that rings does not wait for the thread inside, which executes the doorbell before or
/// when it leaves.
#[test]
fn a_doorbell_does_not_wait() {
    let machine = Threads::new();
    let (came, go) = machine.hold_next(BELL);
    thread::scope(|scope| {
        let first = scope.spawn(|| assert!(machine.post(1)));
        came.recv().unwrap();
        for value in 2..=1025 {
            assert!(machine.post(value));
        }
        assert_eq!(machine.rung(), [1]);
        assert!(!machine.post(0), "the queue has no limit");
        go.send(()).unwrap();
        first.join().unwrap();
    });
    assert_eq!(machine.rung(), (1..=1025).collect::<Vec<_>>());
}

/// A thread that leaves checks once more: a doorbell that arrived after its last check must not
/// wait for another caller.
#[test]
fn no_doorbell_stays() {
    let machine = Threads::new();
    let (came, go) = machine.hold_next(CORE);
    thread::scope(|scope| {
        scope.spawn(|| machine.run());
        came.recv().unwrap();
        assert!(machine.post(1));
        assert_eq!(machine.rung(), []);
        go.send(()).unwrap();
    });
    assert_eq!(machine.rung(), [1]);

    machine.reg_write(offset::CTRL, RESET);
    machine.rings();
    let (came, go) = machine.hold_next(UP);
    thread::scope(|scope| {
        scope.spawn(|| machine.reg_write(offset::CTRL, ENABLE));
        came.recv().unwrap();
        assert!(machine.post(2));
        go.send(()).unwrap();
    });
    assert_eq!(machine.rung(), [1, 2]);
}

/// Doorbells of a CPU take effect before its later register accesses.
#[test]
fn registers_come_after_doorbells() {
    let machine = Threads::new();
    let (came, go) = machine.hold_next(BELL);
    thread::scope(|scope| {
        scope.spawn(|| assert!(machine.post(1)));
        came.recv().unwrap();
        assert!(machine.post(2));
        let reader = scope.spawn(|| machine.counter(Counter::SqDoorbells));
        go.send(()).unwrap();
        assert_eq!(reader.join().unwrap(), 2);
    });
    machine.reg_write(offset::CTRL, RESET);
    assert!(machine.post(3));
    assert_eq!(machine.counter(Counter::SqDoorbells), 0);
    assert_eq!(machine.rung(), [1, 2]);
}

/// A thread that enters first executes all queued doorbells, also those that another thread left;
/// no thread stays inside forever.
#[test]
fn what_was_rung_is_done_first() {
    // The maximum number of doorbells that a ringing thread executes.
    const MOST: u64 = 4 * 1024;
    let machine = Threads::new();
    let leaves_one = || {
        machine.more.store(MOST, SeqCst);
        machine.woken.store(false, SeqCst);
        machine.rung.lock().unwrap().clear();
        assert!(machine.post(1));
        assert_eq!(machine.rung().len() as u64, MOST);
        assert!(
            machine.woken.load(SeqCst),
            "the core was not woken for the rest"
        );
    };
    let all = (1..=MOST + 1).collect::<Vec<_>>();
    leaves_one();
    assert_eq!(machine.counter(Counter::SqDoorbells), MOST + 1);
    assert_eq!(machine.rung(), all);
    leaves_one();
    machine.reg_write(offset::CTRL, RESET);
    assert_eq!(machine.rung(), all, "before the reset");
}

/// A bound function runs under the BQL only; doorbells posted before are not lost.
#[test]
fn a_bound_function_wants_the_lock() {
    let machine = Threads::new();
    machine.bind(true);
    assert!(!machine.post(1));
    assert_eq!(machine.run(), QpairRun::Bound);
    machine.bind(false);
    assert!(machine.post(1));
    assert_eq!(machine.run(), QpairRun::Idle);

    let (came, go) = machine.hold_next(BELL);
    thread::scope(|scope| {
        scope.spawn(|| assert!(machine.post(2)));
        came.recv().unwrap();
        let binder = scope.spawn(|| machine.bind(true));
        thread::sleep(Duration::from_millis(10));
        assert!(!binder.is_finished(), "bound while a thread was inside");
        assert!(machine.post(3));
        go.send(()).unwrap();
    });
    assert_eq!(machine.rung(), [1, 2, 3]);
    assert!(!machine.post(4));
}

/// After its end a function does nothing, whatever thread still calls.
#[test]
fn the_end_waits_and_is_quiet() {
    let machine = Threads::new();
    assert!(machine.post(1));
    let (came, go) = machine.hold_next(BELL);
    thread::scope(|scope| {
        scope.spawn(|| assert!(machine.post(2)));
        came.recv().unwrap();
        // SAFETY: The model exists.
        let end = scope.spawn(|| unsafe { qpair_model_end(machine.model()) });
        thread::sleep(Duration::from_millis(10));
        assert!(!end.is_finished(), "ended while a thread was inside");
        go.send(()).unwrap();
    });
    assert_eq!(machine.board.mapped.load(SeqCst), 0);
    machine.woken.store(false, SeqCst);
    assert!(machine.post(3));
    assert_eq!(machine.run(), QpairRun::Idle);
    assert_eq!(machine.status(), u32::MAX);
    assert_eq!(machine.rung(), [1, 2]);
    assert!(!machine.woken.load(SeqCst));
}

/// A queue pair that is its own peer. The thread of a doorbell does 4 of its work requests.
struct Loop {
    machine: Box<Threads>,
    qp: Number,
}

impl Loop {
    fn new() -> Self {
        let machine = Threads::with("wqes-per-doorbell", 4);
        let qp = machine.queue_pair(service::RC, Number::ADMIN).qp;
        let nop = SendWqe {
            opcode: entry::opcode::NOP,
            blocks: 1,
            ..SendWqe::default()
        };
        for at in 0..1 << QP_LOG {
            machine.board.set_words(QP_SQ + 64 * at, &nop.encode());
        }
        machine.woken.store(false, SeqCst);
        Self { machine, qp }
    }

    /// Rings for this many work requests in all.
    fn ring(&self, tail: u32) {
        self.machine
            .ring(doorbell::SQ, doorbell::value(self.qp, tail));
    }

    fn done(&self) -> u64 {
        self.machine.counter(Counter::SendWqes)
    }

    fn is_called(&self) -> bool {
        self.machine.woken.swap(false, SeqCst)
    }
}

/// A CPU does the work of its doorbell if the core is idle, and calls the core for much work.
#[test]
fn a_cpu_works_in_its_doorbell() {
    let looped = Loop::new();
    for tail in 1..=4 {
        looped.ring(tail);
        assert_eq!((looped.done(), looped.is_called()), (tail.into(), false));
    }
    looped.ring(9);
    assert_eq!((looped.done(), looped.is_called()), (4, true));
    assert_eq!(looped.machine.run(), QpairRun::Idle);
    assert_eq!(looped.done(), 9);
}

/// A CPU that executes the doorbells of others does no more than in one of its own.
#[test]
fn a_cpu_works_a_little_for_others() {
    let looped = Loop::new();
    let (came, go) = looped.machine.hold_next(BELL);
    thread::scope(|scope| {
        let machine = &looped.machine;
        let value = doorbell::value(looped.qp, 1);
        let first = scope.spawn(move || machine.ring(doorbell::SQ, value));
        came.recv().unwrap();
        (2..=9).for_each(|tail| looped.ring(tail));
        go.send(()).unwrap();
        first.join().unwrap();
    });
    assert_eq!((looped.done(), looped.is_called()), (4, true));
    assert_eq!(looped.machine.run(), QpairRun::Idle);
    assert_eq!(looped.done(), 9);
}

/// The core's thread does the work of doorbells in turns of the core alone.
#[test]
fn the_core_works_in_its_turns() {
    let looped = Loop::new();
    let (came, go) = looped.machine.hold_next(CORE);
    thread::scope(|scope| {
        let core = scope.spawn(|| looped.machine.run());
        came.recv().unwrap();
        looped.ring(1);
        go.send(()).unwrap();
        assert_eq!(core.join().unwrap(), QpairRun::Idle);
    });
    assert_eq!((looped.done(), looped.is_called()), (0, true));
    assert_eq!(looped.machine.run(), QpairRun::Idle);
    assert_eq!(looped.done(), 1);
}

/// The number of commands that [`commands`] writes into the SQ.
const COMMANDS: u32 = 12;

/// A function that executes one command in each turn; CQ 0 is armed, and commands are in the SQ,
/// without a doorbell yet.
fn commands() -> Box<Threads> {
    let machine = commands_unarmed();
    machine.ring(doorbell::CQ_ARM_NEXT, 0);
    machine
}

/// The same, and CQ 0 is not armed.
fn commands_unarmed() -> Box<Threads> {
    let machine = Threads::with("wqes-per-turn", 1);
    let opcode = command::opcode(command::kind::DEVICE, command::verb::QUERY);
    let words = [
        u64::from(opcode) | 1 << 8 | 1 << 16,
        0,
        CONTEXT,
        (counters::BYTES as u64) << 32,
    ];
    for at in 0..u64::from(COMMANDS) {
        for (i, word) in words.into_iter().enumerate() {
            let place = machine.board.word(SQ + 64 * at + 8 * i as u64);
            place.store(word, SeqCst);
        }
    }
    machine.ring(doorbell::EQ_HEAD, 0);
    machine
}

/// The core's thread sends an interrupt when it has left the model, so it leaves soon.
#[test]
fn the_core_leaves_to_send_an_interrupt() {
    let machine = commands();
    machine.ring(doorbell::SQ, doorbell::value(Number::ADMIN, COMMANDS));
    assert_eq!(machine.run(), QpairRun::More);
    assert_eq!(machine.counter(Counter::Interrupts), 1);
    let done = machine.counter(Counter::Commands);
    assert!(
        done < COMMANDS.into(),
        "all commands ran before the interrupt could be sent"
    );
    while machine.run() != QpairRun::Idle {}
    assert_eq!(machine.counter(Counter::Commands), COMMANDS.into());
    assert_eq!(machine.counter(Counter::Interrupts), 1);
}

/// An interrupt that was raised earlier does not make the core's thread leave: it has been sent.
#[test]
fn the_core_leaves_once_for_an_interrupt() {
    let machine = commands();
    machine.ring(doorbell::SQ, doorbell::value(Number::ADMIN, 1));
    assert_eq!(machine.run(), QpairRun::Idle);
    assert_eq!(machine.counter(Counter::Interrupts), 1);
    machine.ring(doorbell::SQ, doorbell::value(Number::ADMIN, COMMANDS));
    assert_eq!(machine.run(), QpairRun::Idle, "left for an old interrupt");
    assert_eq!(machine.counter(Counter::Commands), COMMANDS.into());
}

/// A notify that is queued while the core works counts completions that the core writes before it
/// executes the notify. One that is written after a completion does not count it.
#[test]
fn a_notify_counts_from_its_write() {
    let machine = commands_unarmed();
    let (came, go) = machine.hold_next(CORE);
    machine.ring(doorbell::SQ, doorbell::value(Number::ADMIN, 1));
    thread::scope(|scope| {
        let core = scope.spawn(|| machine.run());
        came.recv().unwrap();
        machine.ring(doorbell::CQ_NOTIFY, 0);
        assert_eq!(machine.board.word(CQ + 24).load(SeqCst), 0, "already there");
        go.send(()).unwrap();
        assert_eq!(core.join().unwrap(), QpairRun::Idle);
    });
    assert_eq!(machine.counter(Counter::Commands), 1);
    assert_eq!(machine.counter(Counter::Eqes), 1, "slept through");
    machine.ring(doorbell::CQ_NOTIFY, 0);
    assert_eq!(machine.counter(Counter::Eqes), 1, "an event for nothing");
    machine.ring(doorbell::SQ, doorbell::value(Number::ADMIN, 2));
    assert_eq!(machine.run(), QpairRun::Idle);
    assert_eq!(machine.counter(Counter::Eqes), 2);
    assert_eq!(machine.counter(Counter::Violations), 0);
}
