// SPDX-License-Identifier: GPL-2.0
//! The functions of `qpair_ffi.h` for the function of channels.
//!
//! All of its calls are made with the BQL, so a thread that finds the function entered is itself
//! inside, in a callback: its accesses do nothing, and a reset or the end takes effect as soon as
//! the outer call is done.
//!
//! # Safety
//!
//! Functions with a stream need a pointer that [`qpair_stream_new`] returned and
//! [`qpair_stream_free`] has not freed, and must be called with the BQL.

use core::ffi::c_char;
use core::ptr;
use core::sync::atomic::{
    AtomicBool,
    Ordering::Relaxed, //
};

use parking_lot::Mutex;
use qpair_abi::stream::{
    self,
    counters::Counter,
    Kind, //
};
use qpair_model::stream::{
    Config,
    Kinds,
    Stream, //
};
use qpair_model::Run;

use crate::host::Qemu;
use crate::model::write_text;
use crate::{
    QpairCounter,
    QpairHost,
    QpairKnob,
    QpairStreamFacts, //
};

/// Turns of channels in one run, after which QEMU's main loop continues.
const TURNS: u32 = 256;

/// A function of channels.
pub struct QpairStream {
    function: Mutex<Stream<Qemu>>,
    reset_later: AtomicBool,
    end_later: AtomicBool,
}

fn end(function: &mut Stream<Qemu>) {
    function.set_vanish(true);
    function.reset();
}

impl QpairStream {
    /// Calls `act` with the function, unless this thread is inside already.
    fn enter<R>(&self, act: impl FnOnce(&mut Stream<Qemu>) -> R) -> Option<R> {
        let mut function = self.function.try_lock()?;
        let result = act(&mut function);
        loop {
            if self.end_later.swap(false, Relaxed) {
                end(&mut function);
            } else if self.reset_later.swap(false, Relaxed) {
                function.reset();
            } else {
                break;
            }
        }
        Some(result)
    }
}

/// Properties of the function of channels that QEMU needs.
#[no_mangle]
pub extern "C" fn qpair_stream_facts() -> QpairStreamFacts {
    QpairStreamFacts {
        vendor: qpair_abi::stream::PCI_VENDOR as u16,
        device: stream::PCI_DEVICE as u16,
        revision: stream::PCI_REVISION,
        bar_registers: stream::BAR_REGS as u8,
        bar_msix: stream::BAR_MSIX as u8,
        register_bytes: stream::regs::BYTES as u64,
        counters: Counter::COUNT as u32,
        channels: Config::default().pairs,
    }
}

/// The counter of the function of channels with this index; beyond the last one the name is empty.
#[no_mangle]
pub extern "C" fn qpair_stream_counter(index: u32) -> QpairCounter {
    let counter = Counter::ALL.get(index as usize);
    QpairCounter {
        name: counter.map_or("", |counter| counter.name()).into(),
        text: counter.map_or("", |counter| counter.text()).into(),
    }
}

/// Creates a function of `channels` pairs of channels, of the kind that the `bytes` bytes of `kind`
/// name; NULL and a message in `error` if they are invalid.
///
/// # Safety
///
/// The callbacks keep the contract of [`QpairHost`] until the stream is freed; `bytes` bytes from
/// `kind` are valid for reads, `room` from `error` for writes.
#[no_mangle]
pub unsafe extern "C" fn qpair_stream_new(
    host: QpairHost,
    channels: u32,
    kind: *const c_char,
    bytes: usize,
    error: *mut c_char,
    room: usize,
) -> *mut QpairStream {
    // SAFETY: The caller vouches for the text, which does not change during the call.
    let kind = unsafe { core::slice::from_raw_parts(kind.cast::<u8>(), bytes) };
    // SAFETY: The caller vouches for the callbacks.
    let host = unsafe { Qemu::new(host) };
    match make(host, channels, kind) {
        Ok(function) => Box::into_raw(Box::new(QpairStream {
            function: Mutex::new(function),
            reset_later: AtomicBool::new(false),
            end_later: AtomicBool::new(false),
        })),
        Err(message) => {
            // SAFETY: The caller vouches for the room.
            unsafe { write_text(error, room, &message) };
            ptr::null_mut()
        }
    }
}

fn make(host: Qemu, channels: u32, kind: &[u8]) -> Result<Stream<Qemu>, String> {
    let kinds = match kind {
        b"chain" => Kinds::All(Kind::Chain),
        b"headtail" => Kinds::All(Kind::Headtail),
        b"mixed" => Kinds::Mixed,
        other => {
            return Err(format!(
                "Property 'qpair-stream.kind' doesn't take value '{}' (chain, headtail, mixed)",
                String::from_utf8_lossy(other)
            ))
        }
    };
    let config = Config {
        pairs: channels,
        kinds,
    };
    Stream::new(host, config).map_err(|bad| {
        format!(
            "Property 'qpair-stream.{}' doesn't take value {channels} (minimum: {}, maximum: {})",
            bad.property, bad.least, bad.most
        )
    })
}

/// Ends the function: when this returns, the model calls no callback any more. Registers read as
/// ones, all other calls do nothing. If this is called during a call into the model, all that holds
/// when the outer call has returned.
///
/// # Safety
///
/// See the [module](self).
#[no_mangle]
pub unsafe extern "C" fn qpair_stream_end(stream: *const QpairStream) {
    // SAFETY: The caller vouches for the pointer.
    let stream = unsafe { &*stream };
    if stream.enter(end).is_none() {
        stream.end_later.store(true, Relaxed);
    }
}

/// Frees a stream.
///
/// # Safety
///
/// See the [module](self); no call into the model is in progress.
#[no_mangle]
pub unsafe extern "C" fn qpair_stream_free(stream: *mut QpairStream) {
    // SAFETY: The pointer came from `Box::into_raw` and is not used again.
    drop(unsafe { Box::from_raw(stream) });
}

/// Reads a register.
///
/// # Safety
///
/// See the [module](self).
#[no_mangle]
pub unsafe extern "C" fn qpair_stream_reg_read(stream: *const QpairStream, offset: u64) -> u32 {
    // SAFETY: The caller vouches for the pointer.
    let stream = unsafe { &*stream };
    stream.enter(|f| f.reg_read(offset)).unwrap_or(0)
}

/// Writes a register.
///
/// # Safety
///
/// See the [module](self).
#[no_mangle]
pub unsafe extern "C" fn qpair_stream_reg_write(
    stream: *const QpairStream,
    offset: u64,
    value: u32,
) {
    // SAFETY: The caller vouches for the pointer.
    let stream = unsafe { &*stream };
    let _ = stream.enter(|f| f.reg_write(offset, value));
}

/// Runs the channels for a while; true if there is more work.
///
/// # Safety
///
/// See the [module](self).
#[no_mangle]
pub unsafe extern "C" fn qpair_stream_run(stream: *const QpairStream) -> bool {
    // SAFETY: The caller vouches for the pointer.
    let stream = unsafe { &*stream };
    stream.enter(|f| f.run(TURNS)) == Some(Run::More)
}

/// Returns the function to power-on.
///
/// # Safety
///
/// See the [module](self).
#[no_mangle]
pub unsafe extern "C" fn qpair_stream_reset(stream: *const QpairStream) {
    // SAFETY: The caller vouches for the pointer.
    let stream = unsafe { &*stream };
    if stream.enter(Stream::reset).is_none() {
        stream.reset_later.store(true, Relaxed);
    }
}

/// MSI-X vectors.
///
/// # Safety
///
/// See the [module](self).
#[no_mangle]
pub unsafe extern "C" fn qpair_stream_vectors(stream: *const QpairStream) -> u32 {
    // SAFETY: The caller vouches for the pointer.
    let stream = unsafe { &*stream };
    stream.enter(|f| f.vectors()).unwrap_or(0)
}

/// The value of a counter.
///
/// # Safety
///
/// See the [module](self).
#[no_mangle]
pub unsafe extern "C" fn qpair_stream_count(stream: *const QpairStream, index: u32) -> u64 {
    // SAFETY: The caller vouches for the pointer.
    let stream = unsafe { &*stream };
    let value = stream.enter(|f| f.counters().get(index as usize).copied());
    value.flatten().unwrap_or(0)
}

/// The value of a knob.
///
/// # Safety
///
/// See the [module](self).
#[no_mangle]
pub unsafe extern "C" fn qpair_stream_get(stream: *const QpairStream, knob: QpairKnob) -> u64 {
    // SAFETY: The caller vouches for the pointer.
    let stream = unsafe { &*stream };
    let value = stream.enter(|f| match knob {
        QpairKnob::Stall => f.is_stalled().into(),
        QpairKnob::Vanish => f.is_vanished().into(),
        QpairKnob::DropInterrupts => f.lost_interrupts().into(),
    });
    value.unwrap_or(0)
}

/// Turns a knob.
///
/// # Safety
///
/// See the [module](self).
#[no_mangle]
pub unsafe extern "C" fn qpair_stream_set(stream: *const QpairStream, knob: QpairKnob, value: u32) {
    // SAFETY: The caller vouches for the pointer.
    let stream = unsafe { &*stream };
    let _ = stream.enter(|f| match knob {
        QpairKnob::Stall => f.set_stall(value != 0),
        QpairKnob::Vanish => f.set_vanish(value != 0),
        QpairKnob::DropInterrupts => f.drop_interrupts(value),
    });
}
