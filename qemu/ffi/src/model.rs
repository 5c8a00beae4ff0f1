// SPDX-License-Identifier: GPL-2.0
//! The functions of `qpair_ffi.h`.
//!
//! # Safety
//!
//! Functions with a model need a pointer that [`qpair_model_new`] returned and [`qpair_model_free`]
//! has not freed, and must be called with the BQL; [`qpair_model_run_apart`] and
//! [`qpair_model_post`] without it.

use core::ffi::{
    c_char,
    c_void, //
};
use core::ptr;

use qpair_abi::counters::Counter;
use qpair_abi::{
    doorbell,
    regs, //
};
use qpair_model::{
    is_of_roce,
    Config,
    Function, //
};

use crate::host::Qemu;
use crate::inside::Inside;
use crate::settings::{
    defaults,
    Setting,
    SETTINGS, //
};
use crate::{
    QpairCounter,
    QpairFacts,
    QpairHost,
    QpairKind,
    QpairRun,
    QpairSetting, //
};

/// A function, and the thread that is inside.
pub struct QpairModel {
    inside: Inside,
}

/// Writes a terminated message, truncated to the size of the buffer.
///
/// # Safety
///
/// `room` bytes from `error` are valid for writes.
pub(crate) unsafe fn write_text(error: *mut c_char, room: usize, message: &str) {
    let Some(most) = room.checked_sub(1) else {
        return;
    };
    let bytes = message.len().min(most);
    // SAFETY: `bytes + 1 <= room`, and the message does not overlap the caller's buffer.
    unsafe {
        ptr::copy_nonoverlapping(message.as_ptr(), error.cast::<u8>(), bytes);
        error.add(bytes).write(0);
    }
}

/// Properties of the function that QEMU needs.
#[no_mangle]
pub extern "C" fn qpair_facts() -> QpairFacts {
    QpairFacts {
        vendor: qpair_abi::PCI_VENDOR as u16,
        device: qpair_abi::PCI_DEVICE as u16,
        revision: qpair_abi::PCI_REVISION,
        bar_registers: doorbell::BAR_REGS as u8,
        bar_doorbells: doorbell::BAR_DOORBELLS as u8,
        bar_msix: doorbell::BAR_MSIX as u8,
        register_bytes: regs::BYTES as u64,
        settings: SETTINGS.len() as u32,
        counters: Counter::COUNT as u32,
    }
}

/// The setting with this index; beyond the last one the name is empty.
#[no_mangle]
pub extern "C" fn qpair_setting(index: u32) -> QpairSetting {
    match SETTINGS.get(index as usize) {
        Some(setting) => QpairSetting {
            name: setting.name.into(),
            text: setting.text.into(),
            kind: setting.kind,
            live: setting.knob.is_some()
                || matches!(setting.kind, QpairKind::Words | QpairKind::Text),
            initial: setting.initial(&defaults()),
        },
        None => QpairSetting {
            name: "".into(),
            text: "".into(),
            kind: QpairKind::Number,
            live: false,
            initial: 0,
        },
    }
}

/// The counter with this index; beyond the last one the name is empty.
#[no_mangle]
pub extern "C" fn qpair_counter(index: u32) -> QpairCounter {
    let counter = Counter::ALL.get(index as usize);
    QpairCounter {
        name: counter.map_or("", |counter| counter.name()).into(),
        text: counter.map_or("", |counter| counter.text()).into(),
    }
}

/// Creates a function with `values`, one for each setting; NULL and a message in `error` if they
/// are invalid. On a deterministic machine only the guest's instructions determine when the core
/// runs. The port of a wired function sends and receives frames.
///
/// # Safety
///
/// The callbacks keep the contract of [`QpairHost`] until the model is freed; `values` has a number
/// for each setting; `room` bytes from `error` are valid for writes.
#[no_mangle]
pub unsafe extern "C" fn qpair_model_new(
    host: QpairHost,
    values: *const u64,
    deterministic: bool,
    wired: bool,
    error: *mut c_char,
    room: usize,
) -> *mut QpairModel {
    // SAFETY: `values` has that many numbers, and they do not change during the call.
    let values = unsafe { core::slice::from_raw_parts(values, SETTINGS.len()) };
    // SAFETY: The caller vouches for the callbacks.
    let host = unsafe { Qemu::new(host) };
    let config = Config {
        inline: deterministic,
        wired,
        ..Config::default()
    };
    match make(host, values, config) {
        Ok(function) => Box::into_raw(Box::new(QpairModel {
            inside: Inside::new(function),
        })),
        Err(message) => {
            // SAFETY: The caller vouches for the room.
            unsafe { write_text(error, room, &message) };
            ptr::null_mut()
        }
    }
}

fn make(host: Qemu, values: &[u64], mut config: Config) -> Result<Function<Qemu>, String> {
    for (setting, &value) in SETTINGS.iter().zip(values) {
        setting.check(value)?;
        if let Some((_, set)) = setting.config {
            set(&mut config, value);
        }
    }
    let mut function = Function::new(host, config).map_err(|bad| {
        let settings = SETTINGS.iter().zip(values);
        let value = settings
            .filter(|(setting, _)| setting.name == bad.property)
            .map(|(_, &value)| value)
            .next();
        Setting::refuse(bad.property, value.unwrap_or(0), bad.least, bad.most)
    })?;
    for (setting, &value) in SETTINGS.iter().zip(values) {
        if let Some((get, set)) = setting.knob {
            if get(&function) != value {
                set(&mut function, value);
            }
        }
    }
    Ok(function)
}

/// Ends the function: when this returns, nothing is mapped, no DMA is in flight, and the model
/// calls no callback any more. Registers read as ones, all other calls do nothing. If this is
/// called during a call into the model, all that holds when the outer call has returned.
///
/// # Safety
///
/// See the [module](self).
#[no_mangle]
pub unsafe extern "C" fn qpair_model_end(model: *const QpairModel) {
    // SAFETY: The caller vouches for the pointer.
    let model = unsafe { &*model };
    model.inside.end();
}

/// Frees a model.
///
/// # Safety
///
/// See the [module](self); no call into the model is in progress.
#[no_mangle]
pub unsafe extern "C" fn qpair_model_free(model: *mut QpairModel) {
    // SAFETY: The pointer came from `Box::into_raw` and is not used again.
    drop(unsafe { Box::from_raw(model) });
}

/// Reads a register.
///
/// # Safety
///
/// See the [module](self).
#[no_mangle]
pub unsafe extern "C" fn qpair_model_reg_read(model: *const QpairModel, offset: u64) -> u32 {
    // SAFETY: The caller vouches for the pointer.
    let model = unsafe { &*model };
    model.inside.enter(|f| f.reg_read(offset)).unwrap_or(0)
}

/// Writes a register.
///
/// # Safety
///
/// See the [module](self).
#[no_mangle]
pub unsafe extern "C" fn qpair_model_reg_write(model: *const QpairModel, offset: u64, value: u32) {
    // SAFETY: The caller vouches for the pointer.
    let model = unsafe { &*model };
    let _ = model.inside.enter(|f| f.reg_write(offset, value));
}

/// Writes `bytes` bytes at this offset of the doorbells' BAR.
///
/// # Safety
///
/// See the [module](self).
#[no_mangle]
pub unsafe extern "C" fn qpair_model_doorbell(
    model: *const QpairModel,
    offset: u64,
    value: u64,
    bytes: u32,
) {
    // SAFETY: The caller vouches for the pointer.
    let model = unsafe { &*model };
    let _ = model.inside.enter(|f| f.doorbell(offset, value, bytes));
}

/// The same from a CPU that does not hold the BQL, and without waiting for a lock. False if the
/// doorbell was not accepted: then the caller must repeat it with the BQL.
///
/// # Safety
///
/// See the [module](self).
#[no_mangle]
pub unsafe extern "C" fn qpair_model_post(
    model: *const QpairModel,
    offset: u64,
    value: u64,
    bytes: u32,
) -> bool {
    // SAFETY: The caller vouches for the pointer.
    let model = unsafe { &*model };
    model.inside.post(offset, value, bytes)
}

/// Runs the core for a while; true if there is more work.
///
/// # Safety
///
/// See the [module](self).
#[no_mangle]
pub unsafe extern "C" fn qpair_model_run(model: *const QpairModel) -> bool {
    // SAFETY: The caller vouches for the pointer.
    let model = unsafe { &*model };
    model.inside.run()
}

/// The same in a thread that does not hold the BQL.
///
/// # Safety
///
/// See the [module](self).
#[no_mangle]
pub unsafe extern "C" fn qpair_model_run_apart(model: *const QpairModel) -> QpairRun {
    // SAFETY: The caller vouches for the pointer.
    let model = unsafe { &*model };
    model.inside.run_apart()
}

/// A frame from the network. Returns whether it is of the function alone; if not, it is also for the
/// network device.
///
/// # Safety
///
/// See the [module](self); `bytes` bytes from `frame` are valid for reads.
#[no_mangle]
pub unsafe extern "C" fn qpair_model_frame(
    model: *const QpairModel,
    frame: *const c_void,
    bytes: usize,
) -> bool {
    // SAFETY: The caller vouches for the pointer.
    let model = unsafe { &*model };
    // SAFETY: The caller vouches for the frame.
    let frame = unsafe { core::slice::from_raw_parts(frame.cast::<u8>(), bytes) };
    // Most frames of a network device are others, and do not wait for the thread inside.
    is_of_roce(frame) && model.inside.enter(|f| f.frame(frame)).unwrap_or(false)
}

/// Binds the function to the BQL, because an IOMMU translates for it, or unbinds it. When this
/// returns, no thread without the BQL works in a bound function.
///
/// # Safety
///
/// See the [module](self).
#[no_mangle]
pub unsafe extern "C" fn qpair_model_bind(model: *const QpairModel, bound: bool) {
    // SAFETY: The caller vouches for the pointer.
    let model = unsafe { &*model };
    model.inside.bind(bound);
}

/// Halts the core, because the machine stops, or lets it go on. When this returns, a core that is
/// halted accesses no memory.
///
/// # Safety
///
/// See the [module](self).
#[no_mangle]
pub unsafe extern "C" fn qpair_model_halt(model: *const QpairModel, halted: bool) {
    // SAFETY: The caller vouches for the pointer.
    let model = unsafe { &*model };
    let _ = model.inside.enter(|f| f.set_halted(halted));
}

/// Returns the function to power-on.
///
/// # Safety
///
/// See the [module](self).
#[no_mangle]
pub unsafe extern "C" fn qpair_model_reset(model: *const QpairModel) {
    // SAFETY: The caller vouches for the pointer.
    let model = unsafe { &*model };
    model.inside.reset();
}

/// Drops all mappings; they are created again when needed.
///
/// # Safety
///
/// See the [module](self).
#[no_mangle]
pub unsafe extern "C" fn qpair_model_unmap_all(model: *const QpairModel) {
    // SAFETY: The caller vouches for the pointer.
    let model = unsafe { &*model };
    model.inside.unmap_all();
}

/// Whether the function is made to vanish: all reads are ones.
///
/// # Safety
///
/// See the [module](self).
#[no_mangle]
pub unsafe extern "C" fn qpair_model_vanished(model: *const QpairModel) -> bool {
    // SAFETY: The caller vouches for the pointer.
    let model = unsafe { &*model };
    model.inside.enter(|f| f.is_vanished()).unwrap_or(false)
}

/// Bus mastering is to be switched off; whether that is to be ignored.
///
/// # Safety
///
/// See the [module](self).
#[no_mangle]
pub unsafe extern "C" fn qpair_model_ignores_stop(model: *const QpairModel) -> bool {
    // SAFETY: The caller vouches for the pointer.
    let model = unsafe { &*model };
    model.inside.enter(|f| f.ignores_stop()).unwrap_or(false)
}

/// Whether the core's work takes (virtual) time.
///
/// # Safety
///
/// See the [module](self).
#[no_mangle]
pub unsafe extern "C" fn qpair_model_paced(model: *const QpairModel) -> bool {
    // SAFETY: The caller vouches for the pointer.
    let model = unsafe { &*model };
    model
        .inside
        .enter(|f| f.knobs().core_delay_ns != 0 || f.knobs().wqe_ns != 0)
        .unwrap_or(true)
}

/// MSI-X vectors.
///
/// # Safety
///
/// See the [module](self).
#[no_mangle]
pub unsafe extern "C" fn qpair_model_vectors(model: *const QpairModel) -> u32 {
    // SAFETY: The caller vouches for the pointer.
    let model = unsafe { &*model };
    model.inside.enter(|f| f.config().vectors()).unwrap_or(0)
}

/// Bytes of doorbell pages.
///
/// # Safety
///
/// See the [module](self).
#[no_mangle]
pub unsafe extern "C" fn qpair_model_doorbell_bytes(model: *const QpairModel) -> u64 {
    // SAFETY: The caller vouches for the pointer.
    let model = unsafe { &*model };
    model
        .inside
        .enter(|f| f.config().doorbell_bytes())
        .unwrap_or(0)
}

/// The value of a counter.
///
/// # Safety
///
/// See the [module](self).
#[no_mangle]
pub unsafe extern "C" fn qpair_model_counter(model: *const QpairModel, index: u32) -> u64 {
    // SAFETY: The caller vouches for the pointer.
    let model = unsafe { &*model };
    let value = model
        .inside
        .enter(|f| f.counters().get(index as usize).copied());
    value.flatten().unwrap_or(0)
}

/// The value of a setting.
///
/// # Safety
///
/// See the [module](self).
#[no_mangle]
pub unsafe extern "C" fn qpair_model_get(model: *const QpairModel, index: u32) -> u64 {
    // SAFETY: The caller vouches for the pointer.
    let model = unsafe { &*model };
    let setting = SETTINGS.get(index as usize);
    let value = model
        .inside
        .enter(|f| setting.map(|setting| setting.get(f)));
    value.flatten().unwrap_or(0)
}

/// Changes a setting; false and a message in `error` if that fails.
///
/// # Safety
///
/// See the [module](self); `room` bytes from `error` are valid for writes.
#[no_mangle]
pub unsafe extern "C" fn qpair_model_set(
    model: *const QpairModel,
    index: u32,
    value: u64,
    error: *mut c_char,
    room: usize,
) -> bool {
    // SAFETY: The caller vouches for the pointer.
    let model = unsafe { &*model };
    let setting = SETTINGS.get(index as usize);
    let done = setting.map(|setting| model.inside.enter(|f| setting.set(f, value)));
    // SAFETY: The caller vouches for the room.
    unsafe { tell(done.flatten(), error, room) }
}

/// Writes the terminated value of a setting of text.
///
/// # Safety
///
/// See the [module](self); `room` bytes from `text` are valid for writes.
#[no_mangle]
pub unsafe extern "C" fn qpair_model_get_text(
    model: *const QpairModel,
    index: u32,
    text: *mut c_char,
    room: usize,
) {
    // SAFETY: The caller vouches for the pointer.
    let model = unsafe { &*model };
    let setting = SETTINGS.get(index as usize);
    let value = setting.and_then(|setting| model.inside.enter(|f| setting.get_text(f)));
    // SAFETY: The caller vouches for the room.
    unsafe { write_text(text, room, &value.unwrap_or_default()) };
}

/// Changes a setting of text, or executes one of several numbers; false and a message in `error` if
/// that fails.
///
/// # Safety
///
/// See the [module](self); `bytes` bytes from `text` are valid for reads, `room` from `error` for writes.
#[no_mangle]
pub unsafe extern "C" fn qpair_model_set_text(
    model: *const QpairModel,
    index: u32,
    text: *const c_char,
    bytes: usize,
    error: *mut c_char,
    room: usize,
) -> bool {
    // SAFETY: The caller vouches for the pointer.
    let model = unsafe { &*model };
    // SAFETY: The caller vouches for the text.
    let text = unsafe { core::slice::from_raw_parts(text.cast::<u8>(), bytes) };
    let setting = SETTINGS.get(index as usize);
    let done = setting.map(|setting| model.inside.enter(|f| setting.set_text(f, text)));
    // SAFETY: The caller vouches for the room.
    unsafe { tell(done.flatten(), error, room) }
}

/// # Safety
///
/// `room` bytes from `error` are valid for writes.
unsafe fn tell(done: Option<Result<(), String>>, error: *mut c_char, room: usize) -> bool {
    let message = match done {
        Some(Ok(())) => return true,
        Some(Err(message)) => message,
        None => "the device is busy".into(),
    };
    // SAFETY: The caller vouches for the room.
    unsafe { write_text(error, room, &message) };
    false
}
