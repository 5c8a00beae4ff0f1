// SPDX-License-Identifier: GPL-2.0
//! The C interface, called as QEMU calls it, by a machine of this test's own.

use std::{
    cell::{
        Cell,
        RefCell, //
    },
    ffi::{
        c_void,
        CStr, //
    },
    ptr,
    sync::atomic::{
        AtomicU64,
        Ordering::Relaxed, //
    },
};

use qpair_abi::{
    command,
    doorbell,
    regs::{
        offset,
        MAGIC_VALUE, //
    },
    Number, //
};
use qpair_ffi::{
    model::*,
    QpairHost,
    QpairKind,
    QpairTrace, //
};

const EQ: u64 = 0x1000;
const SQ: u64 = 0x4000;
const CQ: u64 = 0x5000;
const CONTEXT: u64 = 0x6000;
const ENABLE: u32 = 1;
const READY: u32 = 1;
const LOG: u32 = 4;
const LOG_EQ: u32 = 8;

type Reentry = Box<dyn Fn(*const QpairModel)>;

/// The machine: some memory, and what the function did to it.
struct Machine {
    memory: Vec<AtomicU64>,
    mappable: bool,
    mapped: Cell<i64>,
    maps: Cell<u64>,
    woken: Cell<bool>,
    model: Cell<*const QpairModel>,
    /// What comes back in while the model is at work.
    reentry: RefCell<Option<Reentry>>,
    reentries: Cell<u64>,
}

impl Machine {
    fn new(mappable: bool) -> Box<Self> {
        Box::new(Self {
            memory: (0..0x1000).map(|_| AtomicU64::new(0)).collect(),
            mappable,
            mapped: Cell::default(),
            maps: Cell::default(),
            woken: Cell::default(),
            model: Cell::new(ptr::null()),
            reentry: RefCell::default(),
            reentries: Cell::default(),
        })
    }

    fn word(&self, addr: u64) -> &AtomicU64 {
        &self.memory[addr as usize / 8]
    }

    /// From the callbacks' `opaque`.
    fn of<'a>(opaque: *mut c_void) -> &'a Self {
        // SAFETY: `plug` hands out the address of a machine that outlives the model.
        unsafe { &*opaque.cast() }
    }

    fn plug(&self, values: &[u64]) -> Result<*mut QpairModel, String> {
        let host = QpairHost {
            opaque: ptr::from_ref(self).cast_mut().cast(),
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
        let mut reason = [0; 256];
        // SAFETY: The callbacks are this file's; the lengths are those of the arrays.
        let model = unsafe {
            qpair_model_new(
                host,
                values.as_ptr(),
                false,
                reason.as_mut_ptr(),
                reason.len(),
            )
        };
        if model.is_null() {
            // SAFETY: A refusal leaves a terminated message.
            let words = unsafe { CStr::from_ptr(reason.as_ptr()) };
            return Err(words.to_string_lossy().into_owned());
        }
        self.model.set(model);
        Ok(model)
    }
}

unsafe extern "C" fn read(opaque: *mut c_void, addr: u64, buffer: *mut c_void, n: usize) -> bool {
    let machine = Machine::of(opaque);
    machine.reenter();
    for i in 0..n {
        let at = addr + i as u64;
        let byte = machine.word(at).load(Relaxed).to_le_bytes()[at as usize % 8];
        // SAFETY: The model's buffer has `n` bytes.
        unsafe { buffer.cast::<u8>().add(i).write(byte) };
    }
    true
}

unsafe extern "C" fn write(
    opaque: *mut c_void,
    addr: u64,
    buffer: *const c_void,
    n: usize,
) -> bool {
    for i in 0..n {
        let word = Machine::of(opaque).word(addr + i as u64);
        let mut bytes = word.load(Relaxed).to_le_bytes();
        // SAFETY: The model's buffer has `n` bytes.
        bytes[(addr as usize + i) % 8] = unsafe { buffer.cast::<u8>().add(i).read() };
        word.store(u64::from_le_bytes(bytes), Relaxed);
    }
    true
}

unsafe extern "C" fn write_word(opaque: *mut c_void, addr: u64, word: u64) -> bool {
    Machine::of(opaque).word(addr).store(word, Relaxed);
    true
}

/// The handle of a mapping is the machine.
unsafe extern "C" fn map(
    opaque: *mut c_void,
    addr: u64,
    _bytes: usize,
    handle: *mut *mut c_void,
) -> *mut c_void {
    let machine = Machine::of(opaque);
    if !machine.mappable {
        return ptr::null_mut();
    }
    machine.mapped.set(machine.mapped.get() + 1);
    machine.maps.set(machine.maps.get() + 1);
    // SAFETY: The model's place for the handle.
    unsafe { handle.write(opaque) };
    machine.word(addr).as_ptr().cast()
}

unsafe extern "C" fn written(_mapping: *mut c_void, _at: usize, _bytes: usize) {}

unsafe extern "C" fn unmap(mapping: *mut c_void) {
    let machine = Machine::of(mapping);
    machine.mapped.set(machine.mapped.get() - 1);
}

unsafe extern "C" fn raise(_opaque: *mut c_void, _vector: u32) {}

unsafe extern "C" fn now(_opaque: *mut c_void) -> u64 {
    0
}

unsafe extern "C" fn wake(opaque: *mut c_void) {
    Machine::of(opaque).woken.set(true);
}

unsafe extern "C" fn wake_at(_opaque: *mut c_void, _nanos: u64) {}

unsafe extern "C" fn bus_master(_opaque: *mut c_void) -> bool {
    true
}

unsafe extern "C" fn trace(opaque: *mut c_void, _what: QpairTrace, _arguments: *const u64) {
    Machine::of(opaque).reenter();
}

impl Machine {
    fn reenter(&self) {
        if let (Some(act), model) = (&*self.reentry.borrow(), self.model.get()) {
            self.reentries.set(self.reentries.get() + 1);
            act(model);
        }
    }

    fn reg_read(&self, offset: u64) -> u32 {
        // SAFETY: The model lives, and this is the only thread.
        unsafe { qpair_model_reg_read(self.model.get(), offset) }
    }

    fn reg_write(&self, offset: u64, value: u32) {
        // SAFETY: As above.
        unsafe { qpair_model_reg_write(self.model.get(), offset, value) }
    }

    fn up(&self) {
        self.memory.iter().for_each(|word| word.store(0, Relaxed));
        for (register, ring) in [
            (offset::EQ0_BASE_LO, EQ),
            (offset::ASQ_BASE_LO, SQ),
            (offset::ACQ_BASE_LO, CQ),
        ] {
            self.reg_write(register, ring as u32);
        }
        self.reg_write(offset::ADMIN_DEPTH, LOG << 16 | LOG << 8 | LOG_EQ);
        self.reg_write(offset::CTRL, ENABLE);
        assert_eq!(self.reg_read(offset::STATUS) & READY, READY);
    }

    /// Asks for the counters by the first admin command; whether it is done.
    fn query(&self) -> bool {
        let opcode = command::opcode(command::kind::DEVICE, command::verb::QUERY);
        let bytes = qpair_abi::counters::BYTES as u64;
        let words = [
            u64::from(opcode) | 1 << 8 | 1 << 16,
            7,
            CONTEXT,
            bytes << 32,
        ];
        for (i, word) in words.into_iter().enumerate() {
            self.word(SQ + 8 * i as u64).store(word, Relaxed);
        }
        let value = doorbell::value(Number::ADMIN, 1);
        // SAFETY: The model lives, and this is the only thread.
        unsafe { qpair_model_doorbell(self.model.get(), doorbell::SQ, value, 8) };
        while self.woken.take() {
            // SAFETY: As above.
            self.woken.set(unsafe { qpair_model_run(self.model.get()) });
        }
        self.word(CQ + 24).load(Relaxed) >> 63 == 1
    }

    fn unplug(&self) {
        // SAFETY: The model lives, and is not used again.
        unsafe { qpair_model_free(self.model.replace(ptr::null()).cast_mut()) };
        assert_eq!(self.mapped.get(), 0, "a mapping is left");
    }
}

fn defaults() -> Vec<u64> {
    (0..qpair_facts().settings)
        .map(|i| qpair_setting(i).initial)
        .collect()
}

fn index_of(name: &str) -> u32 {
    (0..qpair_facts().settings)
        .find(|&i| {
            let text = qpair_setting(i).name;
            // SAFETY: A text is that long, and lives for ever.
            let bytes = unsafe { std::slice::from_raw_parts(text.text.cast::<u8>(), text.bytes) };
            bytes == name.as_bytes()
        })
        .unwrap()
}

#[test]
fn commands_are_done_with_and_without_mappings() {
    for mappable in [false, true] {
        let machine = Machine::new(mappable);
        machine.plug(&defaults()).unwrap();
        assert_eq!(machine.reg_read(offset::MAGIC), MAGIC_VALUE);
        machine.up();
        assert!(machine.query());
        assert_eq!(machine.maps.get() > 0, mappable);
        machine.unplug();
    }
}

#[test]
fn nothing_is_mapped_that_is_not_wanted() {
    let machine = Machine::new(true);
    let model = machine.plug(&defaults()).unwrap();
    machine.up();
    assert!(machine.query() && machine.mapped.get() > 0);
    // SAFETY: The model lives; there is room for no message.
    let set = |on| unsafe { qpair_model_set(model, index_of("unmapped"), on, ptr::null_mut(), 0) };
    assert!(set(1));
    assert_eq!(machine.mapped.get(), 0);
    machine.reg_write(offset::CTRL, 1 << 1);
    machine.up();
    assert!(machine.query());
    assert_eq!(machine.mapped.get(), 0);
    assert!(set(0));
    machine.reg_write(offset::CTRL, 1 << 1);
    machine.up();
    assert!(machine.query() && machine.mapped.get() > 0);
    machine.unplug();
}

#[test]
fn a_reset_from_inside_is_done_after() {
    let machine = Machine::new(true);
    machine.plug(&defaults()).unwrap();
    machine.up();
    let first = Cell::new(true);
    *machine.reentry.borrow_mut() = Some(Box::new(move |model| {
        if first.take() {
            // SAFETY: The model lives for as long as it calls back.
            unsafe { qpair_model_reset(model) }
        }
    }));
    machine.query();
    assert!(machine.reentries.take() > 0);
    machine.reentry.take();
    assert_eq!(machine.reg_read(offset::STATUS) & READY, 0);
    assert_eq!(machine.mapped.get(), 0);
    machine.up();
    assert!(machine.query());
    machine.unplug();
}

#[test]
fn accesses_from_inside_do_nothing() {
    let machine = Machine::new(true);
    machine.plug(&defaults()).unwrap();
    machine.up();
    // SAFETY: The model lives for as long as it calls back.
    *machine.reentry.borrow_mut() = Some(Box::new(|model| unsafe {
        assert_eq!(qpair_model_reg_read(model, offset::MAGIC), 0);
        qpair_model_reg_write(model, offset::CTRL, 1 << 1);
        qpair_model_doorbell(model, doorbell::SQ, u64::MAX, 8);
        assert!(!qpair_model_run(model));
    }));
    assert!(machine.query());
    assert!(machine.reentries.take() > 0);
    machine.reentry.take();
    assert_eq!(machine.reg_read(offset::STATUS) & READY, READY);
    let violations = qpair_abi::counters::Counter::Violations as u32;
    // SAFETY: The model lives.
    let violations = unsafe { qpair_model_counter(machine.model.get(), violations) };
    assert_eq!(violations, 0);
    machine.unplug();
}

#[test]
fn mappings_that_are_lost_inside_are_dropped_after() {
    let machine = Machine::new(true);
    machine.plug(&defaults()).unwrap();
    machine.up();
    // SAFETY: The model lives for as long as it calls back.
    *machine.reentry.borrow_mut() = Some(Box::new(|model| unsafe { qpair_model_unmap_all(model) }));
    assert!(machine.query());
    assert!(machine.reentries.take() > 0);
    machine.reentry.take();
    assert_eq!(machine.mapped.get(), 0);
    machine.unplug();
}

#[test]
fn a_bad_setting_is_named() {
    let machine = Machine::new(true);
    let mut values = defaults();
    values[index_of("eqs") as usize] = 5000;
    let words = machine.plug(&values).unwrap_err();
    for part in ["'qpair.eqs'", "5000", "2048"] {
        assert!(words.contains(part), "{words}");
    }
    values[index_of("eqs") as usize] = (1 << 32) + 1;
    assert!(machine.plug(&values).is_err(), "a number was cut off");
    assert_eq!(machine.mapped.get(), 0);
}

#[test]
fn settings_turn_what_they_say() {
    let machine = Machine::new(true);
    let model = machine.plug(&defaults()).unwrap();
    let mut reason = [0; 8];
    machine.up();
    for i in 0..qpair_facts().settings {
        let setting = qpair_setting(i);
        // SAFETY: The model lives, and the room is the array's.
        let (done, value) = unsafe {
            let done = qpair_model_set(model, i, 1, reason.as_mut_ptr(), reason.len());
            let value = qpair_model_get(model, i);
            qpair_model_set(model, i, 0, reason.as_mut_ptr(), reason.len());
            (done, value)
        };
        match setting.kind {
            QpairKind::Words => assert!(!done),
            _ if setting.live => assert!(done && value == 1),
            _ => assert!(!done && value == setting.initial),
        }
        assert!(done || reason.contains(&0), "no end of the message");
    }
    machine.unplug();
}
