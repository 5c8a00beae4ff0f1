// SPDX-License-Identifier: GPL-2.0
//! QEMU as the model's [`Host`]: the callbacks of [`QpairHost`], made safe.
//!
//! vCPUs write guest memory while this code accesses it. So it is never the target of a Rust
//! reference: QEMU copies it into or out of buffers of the model or, if it is kept mapped, it is
//! loaded and stored one word at a time with atomics.

use core::ffi::c_void;
use core::ptr;
use core::sync::atomic::{
    AtomicU64,
    Ordering, //
};

use qpair_model::host::{
    DmaFault,
    Host,
    Mapping,
    Trace, //
};

use crate::{
    QpairHost,
    QpairTrace, //
};

const WORD: usize = 8;

/// The machine around one function.
pub(crate) struct Qemu {
    host: QpairHost,
    /// No mappings are kept.
    unmapped: bool,
    /// An interrupt was raised since [`take_raised`](Self::take_raised).
    raised: bool,
    /// When the last runs of the core end, by the clock of the host.
    until: u64,
}

// SAFETY: The callbacks may be called from any thread (contract of `QpairHost`); `&mut self`, or
// the lock around the function, serializes the calls.
unsafe impl Send for Qemu {}

impl Qemu {
    /// # Safety
    ///
    /// The callbacks keep the contract of [`QpairHost`] until the value is dropped.
    pub(crate) unsafe fn new(host: QpairHost) -> Self {
        Self {
            host,
            unmapped: false,
            raised: false,
            until: u64::MAX,
        }
    }

    pub(crate) fn is_unmapped(&self) -> bool {
        self.unmapped
    }

    /// Takes effect at the next mapping.
    pub(crate) fn set_unmapped(&mut self, unmapped: bool) {
        self.unmapped = unmapped;
    }

    /// Ends the runs of the core that begin now so many nanoseconds from now.
    pub(crate) fn limit_runs(&mut self, nanos: u64) {
        self.until = self.host_now().saturating_add(nanos);
    }

    fn host_now(&self) -> u64 {
        // SAFETY: `host` keeps its contract.
        unsafe { (self.host.host_now)(self.host.opaque) }
    }

    /// Whether an interrupt was raised since the last call.
    pub(crate) fn take_raised(&mut self) -> bool {
        core::mem::take(&mut self.raised)
    }

    fn tell(&mut self, what: QpairTrace, arguments: [u64; 6]) {
        // SAFETY: `host` keeps its contract (see `new`); the array outlives the call.
        unsafe { (self.host.trace)(self.host.opaque, what, arguments.as_ptr()) }
    }
}

impl Host for Qemu {
    type Map = Ram;

    fn read(&mut self, addr: u64, bytes: &mut [u8]) -> Result<(), DmaFault> {
        // SAFETY: `host` keeps its contract; the buffer is valid for writes of its length.
        let done = unsafe {
            (self.host.read)(
                self.host.opaque,
                addr,
                bytes.as_mut_ptr().cast(),
                bytes.len(),
            )
        };
        done.then_some(()).ok_or(DmaFault)
    }

    fn write(&mut self, addr: u64, bytes: &[u8]) -> Result<(), DmaFault> {
        let done = match <[u8; WORD]>::try_from(bytes) {
            // A single word may have an owner bit: it is written at once, and after all earlier
            // writes.
            Ok(word) if addr % WORD as u64 == 0 => {
                // SAFETY: `host` keeps its contract.
                unsafe { (self.host.write_word)(self.host.opaque, addr, u64::from_le_bytes(word)) }
            }
            // SAFETY: `host` keeps its contract; the buffer is valid for reads of its length.
            _ => unsafe {
                (self.host.write)(self.host.opaque, addr, bytes.as_ptr().cast(), bytes.len())
            },
        };
        done.then_some(()).ok_or(DmaFault)
    }

    fn map(&mut self, addr: u64, bytes: u64, _writable: bool) -> Option<Ram> {
        if self.unmapped {
            return None;
        }
        let bytes = usize::try_from(bytes).ok()?;
        let mut handle = ptr::null_mut();
        // SAFETY: `host` keeps its contract; `handle` is valid for a write.
        let base = unsafe { (self.host.map)(self.host.opaque, addr, bytes, &mut handle) };
        if base.is_null() {
            return None;
        }
        Some(Ram {
            base: base.cast(),
            bytes,
            handle,
            load: self.host.load,
            store: self.host.store,
            copy: self.host.copy,
            written: self.host.written,
            unmap: self.host.unmap,
        })
    }

    fn raise(&mut self, vector: u16) {
        self.raised = true;
        // SAFETY: `host` keeps its contract.
        unsafe { (self.host.raise)(self.host.opaque, vector.into()) }
    }

    fn now(&self) -> u64 {
        // SAFETY: `host` keeps its contract.
        unsafe { (self.host.now)(self.host.opaque) }
    }

    fn time_is_up(&self) -> bool {
        self.until != u64::MAX && self.host_now() >= self.until
    }

    fn wake(&mut self) {
        // SAFETY: `host` keeps its contract.
        unsafe { (self.host.wake)(self.host.opaque) }
    }

    fn wake_at(&mut self, nanos: u64) {
        // SAFETY: `host` keeps its contract.
        unsafe { (self.host.wake_at)(self.host.opaque, nanos) }
    }

    fn room(&mut self) -> usize {
        // SAFETY: `host` keeps its contract.
        unsafe { (self.host.room)(self.host.opaque) }
    }

    fn transmit(&mut self, frame: &[u8]) {
        // SAFETY: `host` keeps its contract; the frame is valid for reads of its length.
        unsafe { (self.host.transmit)(self.host.opaque, frame.as_ptr().cast(), frame.len()) }
    }

    fn random(&mut self) -> u64 {
        // SAFETY: `host` keeps its contract.
        unsafe { (self.host.random)(self.host.opaque) }
    }

    fn bus_master(&self) -> bool {
        // SAFETY: `host` keeps its contract.
        unsafe { (self.host.bus_master)(self.host.opaque) }
    }

    fn trace(&mut self, what: Trace) {
        let raw = |number: qpair_abi::Number| u64::from(number.raw());
        match what {
            Trace::Doorbell { page, place, value } => self.tell(
                QpairTrace::Doorbell,
                [page.into(), place.into(), value, 0, 0, 0],
            ),
            Trace::Violation { page, value } => {
                self.tell(QpairTrace::Violation, [page.into(), value, 0, 0, 0, 0]);
            }
            Trace::Fetch { qp, index, blocks } => self.tell(
                QpairTrace::Fetch,
                [raw(qp), index.into(), blocks.into(), 0, 0, 0],
            ),
            Trace::FetchReceive { qp, index } => self.tell(
                QpairTrace::FetchReceive,
                [raw(qp), index.into(), 0, 0, 0, 0],
            ),
            Trace::Command {
                opcode,
                number,
                error,
            } => self.tell(
                QpairTrace::Command,
                [opcode.into(), raw(number), error.into(), 0, 0, 0],
            ),
            Trace::Completion {
                cq,
                index,
                qp,
                opcode,
                status,
                vendor,
            } => self.tell(
                QpairTrace::Completion,
                [
                    raw(cq),
                    index.into(),
                    raw(qp),
                    opcode.into(),
                    status.into(),
                    vendor.into(),
                ],
            ),
            Trace::Event {
                eq,
                index,
                kind,
                number,
            } => self.tell(
                QpairTrace::Event,
                [raw(eq), index.into(), kind.into(), raw(number), 0, 0],
            ),
            Trace::Interrupt { eq, vector } => {
                self.tell(QpairTrace::Interrupt, [raw(eq), vector.into(), 0, 0, 0, 0]);
            }
            Trace::State { qp, from, to } => {
                self.tell(
                    QpairTrace::State,
                    [raw(qp), from.into(), to.into(), 0, 0, 0],
                );
            }
            Trace::Fatal { cause } => self.tell(QpairTrace::Fatal, [cause.into(), 0, 0, 0, 0, 0]),
            Trace::Reset => self.tell(QpairTrace::Reset, [0; 6]),
            Trace::Fault {
                rule,
                qp,
                opcode,
                past,
            } => self.tell(
                QpairTrace::Fault,
                [rule.into(), raw(qp), opcode.into(), past.into(), 0, 0],
            ),
            Trace::Garbage { rule, number, word } => self.tell(
                QpairTrace::Garbage,
                [rule.into(), raw(number), word.into(), 0, 0, 0],
            ),
            Trace::Frame {
                from,
                to,
                bytes,
                dropped,
            } => self.tell(
                QpairTrace::Frame,
                [from.into(), to.into(), bytes.into(), dropped.into(), 0, 0],
            ),
            Trace::Halt { channel, cause } => {
                self.tell(QpairTrace::Halt, [channel.into(), cause.into(), 0, 0, 0, 0])
            }
        }
    }
}

/// Guest RAM that stays mapped until this is dropped.
pub(crate) struct Ram {
    base: *mut u8,
    bytes: usize,
    handle: *mut c_void,
    load: unsafe extern "C" fn(*mut c_void, usize, *mut c_void, usize),
    store: unsafe extern "C" fn(*mut c_void, usize, *const c_void, usize),
    copy: unsafe extern "C" fn(*mut c_void, usize, *mut c_void, usize, usize),
    written: unsafe extern "C" fn(*mut c_void, usize, usize),
    unmap: unsafe extern "C" fn(*mut c_void),
}

// SAFETY: A mapping belongs to no thread: it is memory and a handle, whose callbacks may be called
// from any thread (contract of `QpairHost`) that is inside the function.
unsafe impl Send for Ram {}

impl Ram {
    /// The word at byte `at`, if it is aligned and in the mapping.
    fn word(&self, at: usize) -> Option<&AtomicU64> {
        let end = at.checked_add(WORD)?;
        if end > self.bytes {
            return None;
        }
        let word = self.base.wrapping_add(at).cast::<u64>();
        // SAFETY: `base` has `bytes` bytes of mapped, writable RAM until the drop (contract of
        // `QpairHost::map`), so the word is inside, and valid for reads and writes for as long as `self`; it is
        // aligned, which is checked here. No other code in this process creates a Rust reference to
        // guest memory, and all accesses through this one are atomic.
        word.is_aligned()
            .then(|| unsafe { AtomicU64::from_ptr(word) })
    }

    /// Whether `count` bytes from byte `at` on are in the mapping.
    fn has(&self, at: usize, count: usize) -> bool {
        at.checked_add(count).is_some_and(|end| end <= self.bytes)
    }
}

impl Mapping for Ram {
    fn load(&self, at: usize, words: &mut [u64]) {
        let mut order = Ordering::Acquire;
        for (i, word) in words.iter_mut().enumerate() {
            let place = at.checked_add(i * WORD).and_then(|at| self.word(at));
            *word = place.map_or(0, |place| u64::from_le(place.load(order)));
            order = Ordering::Relaxed;
        }
    }

    fn store(&self, at: usize, words: &[u64]) {
        let Some(last) = words.len().checked_sub(1) else {
            return;
        };
        let Some(end) = at.checked_add(words.len() * WORD) else {
            return;
        };
        if end > self.bytes {
            return;
        }
        for (i, word) in words.iter().enumerate() {
            let order = if i == last {
                Ordering::Release
            } else {
                Ordering::Relaxed
            };
            if let Some(place) = self.word(at + i * WORD) {
                place.store(word.to_le(), order);
            }
        }
        // SAFETY: `handle` is of the map that created `self` and is not unmapped yet; the range is
        // inside.
        unsafe { (self.written)(self.handle, at, words.len() * WORD) }
    }

    fn read(&self, at: usize, bytes: &mut [u8]) {
        if !self.has(at, bytes.len()) {
            bytes.fill(0);
            return;
        }
        // SAFETY: `handle` is of the map that created `self` and is not unmapped yet; the range is
        // inside, and the buffer is valid for writes of its length.
        unsafe { (self.load)(self.handle, at, bytes.as_mut_ptr().cast(), bytes.len()) }
    }

    fn write(&self, at: usize, bytes: &[u8]) {
        if !self.has(at, bytes.len()) {
            return;
        }
        // SAFETY: As in `read`; the buffer is valid for reads of its length.
        unsafe { (self.store)(self.handle, at, bytes.as_ptr().cast(), bytes.len()) }
    }

    fn copy(&self, at: usize, from: &Self, from_at: usize, bytes: usize) {
        if self.has(at, bytes) && from.has(from_at, bytes) {
            // SAFETY: As in `read`, of both mappings.
            unsafe { (self.copy)(self.handle, at, from.handle, from_at, bytes) }
        }
    }
}

impl Drop for Ram {
    fn drop(&mut self) {
        // SAFETY: `handle` is of the map that created `self`, and this is its only unmap.
        unsafe { (self.unmap)(self.handle) }
    }
}
