// SPDX-License-Identifier: GPL-2.0
//! The C interface, called from several threads as QEMU does with an IOThread.

use std::{
    ffi::c_void,
    ptr,
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
    counters::Counter,
    doorbell,
    regs::offset, //
};
use qpair_ffi::{
    model::*,
    QpairHost,
    QpairRun,
    QpairTrace, //
};

const EQ: u64 = 0x1000;
const SQ: u64 = 0x4000;
const CQ: u64 = 0x5000;
const ENABLE: u32 = 1;
const READY: u32 = 1;
const LOG: u32 = 4;
const LOG_EQ: u32 = 8;

/// Somebody inside waits here: it says that it has come, and goes on when it is told to.
type Stop = (mpsc::Sender<()>, mpsc::Receiver<()>);

const BELL: usize = 0;
const CORE: usize = 1;
const UP: usize = 2;

struct Machine {
    memory: Vec<AtomicU64>,
    mapped: AtomicI64,
    woken: AtomicBool,
    /// Threads inside, and whether they were ever two.
    inside: AtomicI64,
    crowd: AtomicBool,
    /// Values of the doorbells, as they were acted on.
    rung: Mutex<Vec<u64>>,
    /// Who acts on a doorbell, who runs the core, who brings the function up.
    stop: [Mutex<Option<Stop>>; 3],
    model: AtomicU64,
}

impl Machine {
    fn of<'a>(opaque: *mut c_void) -> &'a Self {
        // SAFETY: `new` hands out the address of a machine that outlives the model.
        unsafe { &*opaque.cast() }
    }

    fn new() -> Box<Self> {
        let machine = Box::new(Self {
            memory: (0..0x1000).map(|_| AtomicU64::new(0)).collect(),
            mapped: AtomicI64::new(0),
            woken: AtomicBool::new(false),
            inside: AtomicI64::new(0),
            crowd: AtomicBool::new(false),
            rung: Mutex::default(),
            stop: Default::default(),
            model: AtomicU64::new(0),
        });
        let values: Vec<u64> = (0..qpair_facts().settings)
            .map(|i| qpair_setting(i).initial)
            .collect();
        let host = QpairHost {
            opaque: ptr::from_ref(&*machine).cast_mut().cast(),
            read,
            write,
            write_word,
            map,
            written,
            unmap,
            raise,
            now,
            wake,
            wake_at,
            bus_master,
            trace,
        };
        // SAFETY: The callbacks are this file's; there is room for no message.
        let model = unsafe { qpair_model_new(host, values.as_ptr(), false, ptr::null_mut(), 0) };
        assert!(!model.is_null());
        machine.model.store(model as u64, SeqCst);
        machine.up();
        machine
    }

    fn up(&self) {
        self.rings();
        self.set(offset::CTRL, ENABLE);
        assert_eq!(self.status() & READY, READY);
    }

    fn rings(&self) {
        for (register, value) in [
            (offset::EQ0_BASE_LO, EQ as u32),
            (offset::ASQ_BASE_LO, SQ as u32),
            (offset::ACQ_BASE_LO, CQ as u32),
            (offset::ADMIN_DEPTH, LOG << 16 | LOG << 8 | LOG_EQ),
        ] {
            self.set(register, value);
        }
    }

    fn model(&self) -> *mut QpairModel {
        self.model.load(SeqCst) as *mut _
    }

    fn status(&self) -> u32 {
        // SAFETY: The model lives; one thread of a test plays the one that has the BQL.
        unsafe { qpair_model_reg_read(self.model(), offset::STATUS) }
    }

    fn set(&self, register: u64, value: u32) {
        // SAFETY: As above.
        unsafe { qpair_model_reg_write(self.model(), register, value) }
    }

    fn counter(&self, counter: Counter) -> u64 {
        // SAFETY: As above.
        unsafe { qpair_model_counter(self.model(), counter as u32) }
    }

    fn bind(&self, bound: bool) {
        // SAFETY: As above.
        unsafe { qpair_model_bind(self.model(), bound) }
    }

    /// Rings for a queue that there is not.
    fn post(&self, value: u64) -> bool {
        // SAFETY: The model lives.
        unsafe { qpair_model_post(self.model(), doorbell::SQ, 0xffff | value << 32, 8) }
    }

    fn run(&self) -> QpairRun {
        // SAFETY: The model lives.
        unsafe { qpair_model_run_apart(self.model()) }
    }

    fn rung(&self) -> Vec<u64> {
        self.rung.lock().unwrap().clone()
    }

    /// The next one who does this stays inside: hears of it, and lets it go.
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

impl Drop for Machine {
    fn drop(&mut self) {
        // SAFETY: The model lives, and nobody uses it any more.
        unsafe { qpair_model_free(self.model()) };
        assert!(thread::panicking() || self.mapped.load(SeqCst) == 0);
        assert!(
            thread::panicking() || !self.crowd.load(SeqCst),
            "two were inside"
        );
    }
}

unsafe extern "C" fn read(_o: *mut c_void, _addr: u64, buffer: *mut c_void, n: usize) -> bool {
    // SAFETY: The model's buffer has `n` bytes.
    unsafe { buffer.cast::<u8>().write_bytes(0, n) };
    true
}

unsafe extern "C" fn write(_o: *mut c_void, _addr: u64, _b: *const c_void, _n: usize) -> bool {
    true
}

unsafe extern "C" fn write_word(_o: *mut c_void, _addr: u64, _word: u64) -> bool {
    true
}

unsafe extern "C" fn map(
    opaque: *mut c_void,
    addr: u64,
    _bytes: usize,
    handle: *mut *mut c_void,
) -> *mut c_void {
    let machine = Machine::of(opaque);
    machine.mapped.fetch_add(1, SeqCst);
    // SAFETY: The model's place for the handle.
    unsafe { handle.write(opaque) };
    machine.memory[addr as usize / 8].as_ptr().cast()
}

unsafe extern "C" fn written(_mapping: *mut c_void, _at: usize, _bytes: usize) {}

unsafe extern "C" fn unmap(mapping: *mut c_void) {
    Machine::of(mapping).mapped.fetch_sub(1, SeqCst);
}

unsafe extern "C" fn raise(_opaque: *mut c_void, _vector: u32) {}

unsafe extern "C" fn now(opaque: *mut c_void) -> u64 {
    Machine::of(opaque).stay(CORE);
    0
}

unsafe extern "C" fn wake(opaque: *mut c_void) {
    Machine::of(opaque).woken.store(true, SeqCst);
}

unsafe extern "C" fn wake_at(_opaque: *mut c_void, _nanos: u64) {}

unsafe extern "C" fn bus_master(opaque: *mut c_void) -> bool {
    Machine::of(opaque).stay(UP);
    true
}

unsafe extern "C" fn trace(opaque: *mut c_void, what: QpairTrace, arguments: *const u64) {
    let machine = Machine::of(opaque);
    if machine.inside.fetch_add(1, SeqCst) != 0 {
        machine.crowd.store(true, SeqCst);
    }
    if what == QpairTrace::Doorbell {
        // SAFETY: They are six.
        let value = unsafe { arguments.add(2).read() };
        machine.rung.lock().unwrap().push(value >> 32);
        machine.stay(BELL);
    }
    machine.inside.fetch_sub(1, SeqCst);
}

/// No doorbell is lost and each is acted on once, without anybody who comes later to look.
#[test]
fn all_doorbells_are_acted_on() {
    const THREADS: u64 = 4;
    const EACH: u64 = 20_000;
    let machine = Machine::new();
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(SeqCst) {
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

/// Who rings does not wait for who is inside; who is inside acts on it before or when he leaves.
#[test]
fn a_doorbell_does_not_wait() {
    let machine = Machine::new();
    let (came, go) = machine.hold_next(BELL);
    thread::scope(|scope| {
        let first = scope.spawn(|| assert!(machine.post(1)));
        came.recv().unwrap();
        for value in 2..=1025 {
            assert!(machine.post(value));
        }
        assert_eq!(machine.rung(), [1]);
        assert!(!machine.post(0), "a queue without an end");
        go.send(()).unwrap();
        first.join().unwrap();
    });
    assert_eq!(machine.rung(), (1..=1025).collect::<Vec<_>>());
}

/// Who leaves looks once more: what came when he had looked is not left to somebody who comes by chance.
#[test]
fn no_doorbell_stays() {
    let machine = Machine::new();
    let (came, go) = machine.hold_next(CORE);
    thread::scope(|scope| {
        scope.spawn(|| machine.run());
        came.recv().unwrap();
        assert!(machine.post(1));
        assert_eq!(machine.rung(), []);
        go.send(()).unwrap();
    });
    assert_eq!(machine.rung(), [1]);

    machine.set(offset::CTRL, 1 << 1);
    machine.rings();
    let (came, go) = machine.hold_next(UP);
    thread::scope(|scope| {
        scope.spawn(|| machine.set(offset::CTRL, ENABLE));
        came.recv().unwrap();
        assert!(machine.post(2));
        go.send(()).unwrap();
    });
    assert_eq!(machine.rung(), [1, 2]);
}

/// What a CPU wrote in doorbells is done before what it reads or writes in registers.
#[test]
fn registers_come_after_doorbells() {
    let machine = Machine::new();
    let (came, go) = machine.hold_next(BELL);
    thread::scope(|scope| {
        scope.spawn(|| assert!(machine.post(1)));
        came.recv().unwrap();
        assert!(machine.post(2));
        let reader = scope.spawn(|| machine.counter(Counter::SqDoorbells));
        go.send(()).unwrap();
        assert_eq!(reader.join().unwrap(), 2);
    });
    machine.set(offset::CTRL, 1 << 1);
    assert!(machine.post(3));
    assert_eq!(machine.counter(Counter::SqDoorbells), 0);
    assert_eq!(machine.rung(), [1, 2]);
}

/// A bound function is worked in under the BQL only; what was posted before is not forgotten.
#[test]
fn a_bound_function_wants_the_lock() {
    let machine = Machine::new();
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
        assert!(!binder.is_finished(), "bound with somebody inside");
        assert!(machine.post(3));
        go.send(()).unwrap();
    });
    assert_eq!(machine.rung(), [1, 2, 3]);
    assert!(!machine.post(4));
}

/// After its end a function is quiet, whoever still calls.
#[test]
fn the_end_waits_and_is_quiet() {
    let machine = Machine::new();
    assert!(machine.post(1));
    let (came, go) = machine.hold_next(BELL);
    thread::scope(|scope| {
        scope.spawn(|| assert!(machine.post(2)));
        came.recv().unwrap();
        // SAFETY: The model lives.
        let end = scope.spawn(|| unsafe { qpair_model_end(machine.model()) });
        thread::sleep(Duration::from_millis(10));
        assert!(!end.is_finished(), "ended with somebody inside");
        go.send(()).unwrap();
    });
    assert_eq!(machine.mapped.load(SeqCst), 0);
    machine.woken.store(false, SeqCst);
    assert!(machine.post(3));
    assert_eq!(machine.run(), QpairRun::Idle);
    assert_eq!(machine.status(), u32::MAX);
    assert_eq!(machine.rung(), [1, 2]);
    assert!(!machine.woken.load(SeqCst));
}
