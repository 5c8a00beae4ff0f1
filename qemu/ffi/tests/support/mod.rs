// SPDX-License-Identifier: GPL-2.0
//! A small machine that calls the C interface as QEMU does.
//!
//! It has some memory with the rings of the admin queue pair, and gives the function access to it.
//! A test's own machine holds a [`Board`], and gets the function's callbacks ([`Machine`]).

#![allow(dead_code)] // Each test takes what it needs.

use std::{
    ffi::{
        c_void,
        CStr, //
    },
    ptr,
    sync::atomic::{
        AtomicI64,
        AtomicPtr,
        AtomicU64,
        Ordering::SeqCst, //
    },
};

use qpair_abi::{
    counters::Counter,
    regs::offset, //
};
use qpair_ffi::{
    model::*,
    QpairHost,
    QpairTrace, //
};

pub(crate) const EQ: u64 = 0x1000;
pub(crate) const SQ: u64 = 0x4000;
pub(crate) const CQ: u64 = 0x5000;
/// The address of commands' contexts.
pub(crate) const CONTEXT: u64 = 0x6000;
const BYTES: u64 = 0x8000;

pub(crate) const ENABLE: u32 = 1;
pub(crate) const RESET: u32 = 1 << 1;
pub(crate) const READY: u32 = 1;
const LOG: u32 = 4;
const LOG_EQ: u32 = 8;

/// Memory, and the function that is plugged in.
pub(crate) struct Board {
    memory: Vec<AtomicU64>,
    /// Whether the function may map it.
    mappable: bool,
    /// The present number of mappings, and the total number.
    pub(crate) mapped: AtomicI64,
    pub(crate) maps: AtomicU64,
    model: AtomicPtr<QpairModel>,
}

impl Board {
    pub(crate) fn new(mappable: bool) -> Self {
        Self {
            memory: (0..BYTES / 8).map(|_| AtomicU64::new(0)).collect(),
            mappable,
            mapped: AtomicI64::new(0),
            maps: AtomicU64::new(0),
            model: AtomicPtr::new(ptr::null_mut()),
        }
    }

    pub(crate) fn word(&self, addr: u64) -> &AtomicU64 {
        &self.memory[addr as usize / 8]
    }

    /// The function; null before it is plugged in.
    pub(crate) fn model(&self) -> *mut QpairModel {
        self.model.load(SeqCst)
    }
}

/// A machine with callbacks. It must not move while it has a function.
pub(crate) trait Machine: Sized {
    fn board(&self) -> &Board;
    /// The function has work.
    fn wake(&self);
    /// It reads memory.
    fn reads(&self) {}
    /// It reads the clock, which does not advance.
    fn looks_at_the_clock(&self) {}
    /// It reads the clock of the host.
    fn host_now(&self) -> u64 {
        0
    }
    /// It checks whether it may be bus master, which it may.
    fn asks_for_the_bus(&self) {}
    /// It traces an action, with six arguments.
    fn traces(&self, what: QpairTrace, arguments: &[u64; 6]);

    /// Its callbacks.
    fn host(&self) -> QpairHost {
        QpairHost {
            opaque: ptr::from_ref(self).cast_mut().cast(),
            read: read::<Self>,
            write: write::<Self>,
            write_word: write_word::<Self>,
            map: map::<Self>,
            load,
            store,
            copy,
            written,
            unmap: unmap::<Self>,
            raise,
            now: now::<Self>,
            host_now: host_now::<Self>,
            wake: wake::<Self>,
            wake_at,
            room,
            transmit,
            random,
            bus_master: bus_master::<Self>,
            trace: trace::<Self>,
        }
    }

    /// Plugs a function in; returns the error message if that fails.
    fn plug(&self, values: &[u64]) -> Result<*mut QpairModel, String> {
        self.plug_wired(values, false)
    }

    /// The same with a network, if it is `wired`.
    fn plug_wired(&self, values: &[u64], wired: bool) -> Result<*mut QpairModel, String> {
        let host = self.host();
        let mut reason = [0; 256];
        let (room, bytes) = (reason.as_mut_ptr(), reason.len());
        // SAFETY: The callbacks are of this machine, which outlives the model; the lengths are those of the arrays.
        let model = unsafe { qpair_model_new(host, values.as_ptr(), false, wired, room, bytes) };
        if model.is_null() {
            // SAFETY: A refusal leaves a terminated message.
            let words = unsafe { CStr::from_ptr(reason.as_ptr()) };
            return Err(words.to_string_lossy().into_owned());
        }
        self.board().model.store(model, SeqCst);
        Ok(model)
    }

    /// Ends the function, which is not used any more.
    fn unplug(&self) {
        let model = self.board().model.swap(ptr::null_mut(), SeqCst);
        // SAFETY: The model exists, and is not used again.
        unsafe { qpair_model_free(model) };
    }

    fn reg_read(&self, register: u64) -> u32 {
        // SAFETY: The model exists; one thread of a test acts as the holder of the BQL.
        unsafe { qpair_model_reg_read(self.board().model(), register) }
    }

    fn reg_write(&self, register: u64, value: u32) {
        // SAFETY: As above.
        unsafe { qpair_model_reg_write(self.board().model(), register, value) }
    }

    fn status(&self) -> u32 {
        self.reg_read(offset::STATUS)
    }

    fn counter(&self, counter: Counter) -> u64 {
        // SAFETY: As above.
        unsafe { qpair_model_counter(self.board().model(), counter as u32) }
    }

    /// Writes the addresses of the rings to the registers.
    fn rings(&self) {
        for (register, value) in [
            (offset::EQ0_BASE_LO, EQ as u32),
            (offset::ASQ_BASE_LO, SQ as u32),
            (offset::ACQ_BASE_LO, CQ as u32),
            (offset::ADMIN_DEPTH, LOG << 16 | LOG << 8 | LOG_EQ),
        ] {
            self.reg_write(register, value);
        }
    }

    /// Brings the function up, with empty rings.
    fn up(&self) {
        let memory = &self.board().memory;
        memory.iter().for_each(|word| word.store(0, SeqCst));
        self.rings();
        self.reg_write(offset::CTRL, ENABLE);
        assert_eq!(self.status() & READY, READY);
    }
}

/// The defaults of all settings.
pub(crate) fn defaults() -> Vec<u64> {
    (0..qpair_facts().settings)
        .map(|i| qpair_setting(i).initial)
        .collect()
}

/// The index of the setting with this name.
pub(crate) fn index_of(name: &str) -> u32 {
    (0..qpair_facts().settings)
        .find(|&i| {
            let text = qpair_setting(i).name;
            // SAFETY: A text has this length, and is static.
            let bytes = unsafe { std::slice::from_raw_parts(text.text.cast::<u8>(), text.bytes) };
            bytes == name.as_bytes()
        })
        .unwrap()
}

/// From the callbacks' `opaque`.
fn of<'a, M: Machine>(opaque: *mut c_void) -> &'a M {
    // SAFETY: `plug` passes the address of a machine that outlives the model.
    unsafe { &*opaque.cast() }
}

unsafe extern "C" fn read<M: Machine>(
    opaque: *mut c_void,
    addr: u64,
    buffer: *mut c_void,
    n: usize,
) -> bool {
    let machine: &M = of(opaque);
    machine.reads();
    for i in 0..n {
        let at = addr + i as u64;
        let word = machine.board().word(at).load(SeqCst);
        let byte = word.to_le_bytes()[at as usize % 8];
        // SAFETY: The model's buffer has `n` bytes.
        unsafe { buffer.cast::<u8>().add(i).write(byte) };
    }
    true
}

unsafe extern "C" fn write<M: Machine>(
    opaque: *mut c_void,
    addr: u64,
    buffer: *const c_void,
    n: usize,
) -> bool {
    for i in 0..n {
        let at = addr + i as u64;
        let word = of::<M>(opaque).board().word(at);
        let mut bytes = word.load(SeqCst).to_le_bytes();
        // SAFETY: The model's buffer has `n` bytes.
        bytes[at as usize % 8] = unsafe { buffer.cast::<u8>().add(i).read() };
        word.store(u64::from_le_bytes(bytes), SeqCst);
    }
    true
}

unsafe extern "C" fn write_word<M: Machine>(opaque: *mut c_void, addr: u64, word: u64) -> bool {
    of::<M>(opaque).board().word(addr).store(word, SeqCst);
    true
}

/// The handle of a mapping is the machine.
unsafe extern "C" fn map<M: Machine>(
    opaque: *mut c_void,
    addr: u64,
    _bytes: usize,
    handle: *mut *mut c_void,
) -> *mut c_void {
    let board = of::<M>(opaque).board();
    if !board.mappable {
        return ptr::null_mut();
    }
    board.mapped.fetch_add(1, SeqCst);
    board.maps.fetch_add(1, SeqCst);
    // SAFETY: The model's place for the handle.
    unsafe { handle.write(opaque) };
    board.word(addr).as_ptr().cast()
}

/// No test moves payload.
unsafe extern "C" fn load(_: *mut c_void, _: usize, _: *mut c_void, _: usize) {
    unreachable!("payload was read");
}

unsafe extern "C" fn store(_: *mut c_void, _: usize, _: *const c_void, _: usize) {
    unreachable!("payload was written");
}

unsafe extern "C" fn copy(_: *mut c_void, _: usize, _: *mut c_void, _: usize, _: usize) {
    unreachable!("payload was moved");
}

unsafe extern "C" fn written(_mapping: *mut c_void, _at: usize, _bytes: usize) {}

unsafe extern "C" fn unmap<M: Machine>(mapping: *mut c_void) {
    of::<M>(mapping).board().mapped.fetch_sub(1, SeqCst);
}

unsafe extern "C" fn raise(_opaque: *mut c_void, _vector: u32) {}

unsafe extern "C" fn now<M: Machine>(opaque: *mut c_void) -> u64 {
    of::<M>(opaque).looks_at_the_clock();
    0
}

unsafe extern "C" fn host_now<M: Machine>(opaque: *mut c_void) -> u64 {
    of::<M>(opaque).host_now()
}

unsafe extern "C" fn wake<M: Machine>(opaque: *mut c_void) {
    of::<M>(opaque).wake();
}

unsafe extern "C" fn wake_at(_opaque: *mut c_void, _nanos: u64) {}

unsafe extern "C" fn room(_opaque: *mut c_void) -> usize {
    1
}

unsafe extern "C" fn transmit(_opaque: *mut c_void, _frame: *const c_void, _bytes: usize) {}

unsafe extern "C" fn random(_opaque: *mut c_void) -> u64 {
    1
}

unsafe extern "C" fn bus_master<M: Machine>(opaque: *mut c_void) -> bool {
    of::<M>(opaque).asks_for_the_bus();
    true
}

unsafe extern "C" fn trace<M: Machine>(
    opaque: *mut c_void,
    what: QpairTrace,
    arguments: *const u64,
) {
    // SAFETY: There are six.
    let arguments = unsafe { &*arguments.cast() };
    of::<M>(opaque).traces(what, arguments);
}
