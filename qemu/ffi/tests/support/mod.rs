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
    sync::{
        atomic::{
            AtomicI64,
            AtomicPtr,
            AtomicU32,
            AtomicU64,
            Ordering::SeqCst, //
        },
        Mutex, //
    },
};

use qpair_abi::{
    command::{
        access,
        kind,
        opcode,
        qp_mask,
        qp_state,
        service,
        verb,
        BufferList,
        Command,
        CqContext,
        QpContext, //
    },
    counters::Counter,
    doorbell,
    entry::{
        send_flags,
        Cqe, //
    },
    regs::offset,
    Number, //
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
pub(crate) const BYTES: u64 = 0x8000;
/// The rings of a [`Machine::queue_pair`], and the base-two logarithm of their entries.
pub(crate) const QP_CQ: u64 = 0x7000;
pub(crate) const QP_SQ: u64 = 0x7400;
pub(crate) const QP_RQ: u64 = 0x7800;
pub(crate) const QP_LOG: u8 = 4;

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
    /// Bytes of payload that were loaded from mappings, stored to them, and copied between them.
    pub(crate) moved: [AtomicU64; 3],
    /// The address and the length of all that the function has reported as written.
    pub(crate) written: Mutex<Vec<(u64, usize)>>,
    /// Commands that were executed since the function is up.
    commands: AtomicU32,
    model: AtomicPtr<QpairModel>,
}

impl Board {
    pub(crate) fn new(mappable: bool) -> Self {
        Self {
            memory: (0..BYTES / 8).map(|_| AtomicU64::new(0)).collect(),
            mappable,
            mapped: AtomicI64::new(0),
            maps: AtomicU64::new(0),
            moved: Default::default(),
            written: Mutex::default(),
            commands: AtomicU32::new(0),
            model: AtomicPtr::new(ptr::null_mut()),
        }
    }

    pub(crate) fn word(&self, addr: u64) -> &AtomicU64 {
        &self.memory[addr as usize / 8]
    }

    pub(crate) fn words<const N: usize>(&self, addr: u64) -> [u64; N] {
        std::array::from_fn(|i| self.word(addr + 8 * i as u64).load(SeqCst))
    }

    pub(crate) fn set_words(&self, addr: u64, words: &[u64]) {
        for (i, &word) in (0..).zip(words) {
            self.word(addr + 8 * i).store(word, SeqCst);
        }
    }

    pub(crate) fn bytes(&self, addr: u64, count: usize) -> Vec<u8> {
        let byte = |at| self.word(at).load(SeqCst).to_le_bytes()[at as usize % 8];
        (addr..).take(count).map(byte).collect()
    }

    pub(crate) fn set_bytes(&self, addr: u64, bytes: &[u8]) {
        for (at, &byte) in (addr..).zip(bytes) {
            let mut word = self.word(at).load(SeqCst).to_le_bytes();
            word[at as usize % 8] = byte;
            self.word(at).store(u64::from_le_bytes(word), SeqCst);
        }
    }

    /// Whether it has memory there. Elsewhere the system refuses DMA.
    fn has(addr: u64, bytes: usize) -> bool {
        addr.checked_add(bytes as u64)
            .is_some_and(|end| end <= BYTES)
    }

    /// Counts payload that went through mappings.
    fn count(&self, how: usize, bytes: usize) {
        self.moved[how].fetch_add(bytes as u64, SeqCst);
    }

    /// The function; null before it is plugged in.
    pub(crate) fn model(&self) -> *mut QpairModel {
        self.model.load(SeqCst)
    }
}

/// A queue pair that is ready to send, its CQ and its domain. One of RC is its own peer.
#[derive(Clone, Copy)]
pub(crate) struct Ready {
    pub(crate) pd: Number,
    pub(crate) cq: Number,
    pub(crate) qp: Number,
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
    /// How many frames the network takes, which takes one.
    fn room(&self) -> usize {
        1
    }
    /// It sends a frame.
    fn sends(&self, _frame: &[u8]) {}
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
            unmap,
            raise,
            now: now::<Self>,
            host_now: host_now::<Self>,
            wake: wake::<Self>,
            wake_at,
            room: room::<Self>,
            transmit: transmit::<Self>,
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
        self.board().commands.store(0, SeqCst);
        self.rings();
        self.reg_write(offset::CTRL, ENABLE);
        assert_eq!(self.status() & READY, READY);
    }

    /// Runs the core until it is idle.
    fn finish(&self) {
        // SAFETY: As above.
        let more = || unsafe { qpair_model_run(self.board().model()) };
        while more() {}
    }

    /// Rings a doorbell, and runs the core until it is idle.
    fn ring_and_run(&self, place: u64, number: Number, index: u32) {
        let value = doorbell::value(number, index);
        // SAFETY: As above.
        unsafe { qpair_model_doorbell(self.board().model(), place, value, 8) };
        self.finish();
    }

    /// Executes a command.
    fn execute(&self, kind: u8, verb: u8, number: Number, mask: u32, context: &[u64]) -> Cqe {
        let board = self.board();
        let at = board.commands.fetch_add(1, SeqCst);
        assert_eq!(at >> LOG, 0, "no place in the SQ");
        let command = Command {
            opcode: opcode(kind, verb),
            flags: send_flags::SIGNALED,
            blocks: 1,
            number,
            context: if context.is_empty() { 0 } else { CONTEXT },
            mask,
            context_bytes: context.len() as u32 * 8,
            ..Command::default()
        };
        board.set_words(CONTEXT, context);
        board.set_words(SQ + 64 * u64::from(at), &command.encode());
        self.ring_and_run(doorbell::SQ, Number::ADMIN, at + 1);
        let cqe = Cqe::decode(&board.words(CQ + 32 * u64::from(at)));
        assert_eq!(cqe.index, at + 1, "it is not done");
        cqe
    }

    /// The same, which succeeds; returns what it created.
    fn command(&self, kind: u8, verb: u8, number: Number, mask: u32, context: &[u64]) -> Number {
        let cqe = self.execute(kind, verb, number, mask, context);
        assert_eq!(cqe.status, 0, "{cqe:?}");
        Number::from_raw(cqe.bytes)
    }

    fn create(&self, kind: u8, context: &[u64]) -> Number {
        self.command(kind, verb::CREATE, Number::default(), 0, context)
    }

    /// Creates a queue pair of RC or UD, whose CQ reports to this EQ.
    fn queue_pair(&self, service: u8, eq: Number) -> Ready {
        let ring = |root, bytes: u64| BufferList {
            root,
            bytes: bytes << QP_LOG,
            ..BufferList::default()
        };
        let pd = self.create(kind::PD, &[]);
        let cq = CqContext {
            eq,
            log_depth: QP_LOG,
            buffer: ring(QP_CQ, 32),
            ..CqContext::default()
        };
        let cq = self.create(kind::CQ, &cq.encode());
        let is_rc = service == service::RC;
        let context = QpContext {
            pd,
            service,
            send_cq: cq,
            recv_cq: cq,
            log_sq: QP_LOG,
            log_rq: QP_LOG,
            access: if is_rc { access::GRANTS } else { 0 },
            sq: ring(QP_SQ, 64),
            rq: ring(QP_RQ, 64),
            ..QpContext::default()
        };
        let qp = self.create(kind::QP, &context.encode());
        for state in [qp_state::INIT, qp_state::RTR, qp_state::RTS] {
            let is_peer = is_rc && state == qp_state::RTR;
            let context = QpContext {
                state,
                peer: if is_peer { qp } else { Number::default() },
                ..QpContext::default()
            };
            let mask = qp_mask::STATE | if is_peer { qp_mask::PEER } else { 0 };
            self.command(kind::QP, verb::MODIFY, qp, mask, &context.encode());
        }
        Ready { pd, cq, qp }
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
    let has = Board::has(addr, n);
    if has {
        // SAFETY: The model's buffer has `n` bytes.
        unsafe { give(&machine.board().bytes(addr, n), buffer) }
    }
    has
}

unsafe extern "C" fn write<M: Machine>(
    opaque: *mut c_void,
    addr: u64,
    buffer: *const c_void,
    n: usize,
) -> bool {
    let has = Board::has(addr, n);
    if has {
        // SAFETY: The model's buffer has `n` bytes.
        let bytes = unsafe { taken(buffer, n) };
        of::<M>(opaque).board().set_bytes(addr, bytes);
    }
    has
}

/// # Safety
///
/// The buffer has as many bytes.
unsafe fn give(bytes: &[u8], buffer: *mut c_void) {
    // SAFETY: The caller's promise.
    unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), buffer.cast(), bytes.len()) }
}

/// # Safety
///
/// The buffer has `n` bytes, for as long as the slice is used.
unsafe fn taken<'a>(buffer: *const c_void, n: usize) -> &'a [u8] {
    // SAFETY: The caller's promise.
    unsafe { std::slice::from_raw_parts(buffer.cast(), n) }
}

unsafe extern "C" fn write_word<M: Machine>(opaque: *mut c_void, addr: u64, word: u64) -> bool {
    let has = Board::has(addr, 8);
    if has {
        of::<M>(opaque).board().word(addr).store(word, SeqCst);
    }
    has
}

/// What the handle of a mapping is: a part of memory.
struct Mapped {
    board: *const Board,
    addr: u64,
    bytes: usize,
}

impl Mapped {
    fn of<'a>(mapping: *mut c_void) -> &'a Self {
        // SAFETY: The model passes handles that `map` returned, before their `unmap`.
        unsafe { &*mapping.cast() }
    }

    fn board(&self) -> &Board {
        // SAFETY: The board is of a machine that outlives the model.
        unsafe { &*self.board }
    }

    /// The address of bytes, all of which are inside.
    fn addr(&self, at: usize, bytes: usize) -> u64 {
        let end = at.checked_add(bytes);
        assert!(end.is_some_and(|end| end <= self.bytes), "outside");
        self.addr + at as u64
    }
}

unsafe extern "C" fn map<M: Machine>(
    opaque: *mut c_void,
    addr: u64,
    bytes: usize,
    handle: *mut *mut c_void,
) -> *mut c_void {
    let board = of::<M>(opaque).board();
    if !board.mappable || !Board::has(addr, bytes) {
        return ptr::null_mut();
    }
    board.mapped.fetch_add(1, SeqCst);
    board.maps.fetch_add(1, SeqCst);
    let mapped = Box::new(Mapped { board, addr, bytes });
    // SAFETY: The model's place for the handle.
    unsafe { handle.write(Box::into_raw(mapped).cast()) };
    let memory = board.memory.as_ptr().cast_mut().cast::<u8>();
    memory.wrapping_add(addr as usize).cast()
}

unsafe extern "C" fn load(mapping: *mut c_void, at: usize, buffer: *mut c_void, n: usize) {
    let from = Mapped::of(mapping);
    let bytes = from.board().bytes(from.addr(at, n), n);
    from.board().count(0, n);
    // SAFETY: The model's buffer has `n` bytes.
    unsafe { give(&bytes, buffer) }
}

unsafe extern "C" fn store(mapping: *mut c_void, at: usize, buffer: *const c_void, n: usize) {
    let to = Mapped::of(mapping);
    // SAFETY: The model's buffer has `n` bytes.
    let bytes = unsafe { taken(buffer, n) };
    to.board().set_bytes(to.addr(at, n), bytes);
    to.board().count(1, n);
}

unsafe extern "C" fn copy(to: *mut c_void, at: usize, from: *mut c_void, from_at: usize, n: usize) {
    let (to, from) = (Mapped::of(to), Mapped::of(from));
    let bytes = from.board().bytes(from.addr(from_at, n), n);
    to.board().set_bytes(to.addr(at, n), &bytes);
    to.board().count(2, n);
}

unsafe extern "C" fn written(mapping: *mut c_void, at: usize, bytes: usize) {
    let mapped = Mapped::of(mapping);
    let addr = mapped.addr(at, bytes);
    mapped.board().written.lock().unwrap().push((addr, bytes));
}

unsafe extern "C" fn unmap(mapping: *mut c_void) {
    Mapped::of(mapping).board().mapped.fetch_sub(1, SeqCst);
    // SAFETY: `map` created it, and the model does not use it again.
    drop(unsafe { Box::from_raw(mapping.cast::<Mapped>()) });
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

unsafe extern "C" fn room<M: Machine>(opaque: *mut c_void) -> usize {
    of::<M>(opaque).room()
}

unsafe extern "C" fn transmit<M: Machine>(opaque: *mut c_void, frame: *const c_void, n: usize) {
    // SAFETY: The model's frame has `n` bytes.
    of::<M>(opaque).sends(unsafe { taken(frame, n) });
}

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
