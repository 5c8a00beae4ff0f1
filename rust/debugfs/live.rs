// SPDX-License-Identifier: GPL-2.0

//! `live`: the current indices of all queues, queried from the device, for `qpair top`.
//!
//! A process posts and polls without the kernel, so the driver cannot count its requests. The
//! device reports the indices of its queues by command. The indices are free-running: the
//! difference of two reads is the work done in between. The data path has no extra cost. A read
//! costs a command for each object, whose completion and event are on CQ 0 and EQ 0.
//!
//! A line is a kind and `name=value` pairs. An object that is destroyed meanwhile has no line.
//! Numbers are raw.

use crate::{
    abi::Number,
    hw::{
        command::{
            self,
            Object, //
        },
        eq::Live, //
    },
    life::device::Device, //
};
use kernel::{
    fmt,
    prelude::*, //
};

/// Numbers that are copied while a poll is paused.
const BATCH: usize = 64;

/// A read of the file: a command for each queue, in turn.
pub(super) fn show(device: &Device, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let mut numbers = KVec::with_capacity(BATCH, GFP_KERNEL).map_err(|_| fmt::Error)?;
    for eq in device.eqs.polls() {
        let number = eq.handler().number();
        // EQ 0, which was set up by registers, can be queried as well.
        with::<command::Eq>(device, number, |eq| {
            writeln!(
                f,
                "eq number={} vector={} depth={} producer={} consumer={} moderation-count={} \
                 moderation-usecs={}",
                number.raw(),
                eq.vector,
                1u64.wrapping_shl(eq.log_depth.into()),
                eq.producer,
                eq.consumer,
                eq.moderation_count,
                eq.moderation_usecs
            )
        })?;
    }
    let cqs = |live: &Live, at, numbers: &mut _| live.nth_cqs(at, numbers);
    each(device, &mut numbers, cqs, |number| {
        with::<command::Cq>(device, number, |cq| {
            writeln!(
                f,
                "cq number={} page={} eq={} depth={} producer={} consumer={}",
                number.raw(),
                cq.page,
                cq.eq.raw(),
                1u64.wrapping_shl(cq.log_depth.into()),
                cq.producer,
                cq.consumer
            )
        })
    })?;
    let qps = |live: &Live, at, numbers: &mut _| live.nth_qps(at, numbers);
    each(device, &mut numbers, qps, |number| {
        with::<command::Qp>(device, number, |qp| {
            writeln!(
                f,
                "qp number={} page={} state={} send-cq={} recv-cq={} sq-depth={} sq-producer={} \
                 sq-consumer={} rq-depth={} rq-producer={} rq-consumer={}",
                number.raw(),
                qp.page,
                qp.state,
                qp.send_cq.raw(),
                qp.recv_cq.raw(),
                1u64.wrapping_shl(qp.log_sq.into()),
                qp.sq_producer,
                qp.sq_consumer,
                1u64.wrapping_shl(qp.log_rq.into()),
                qp.rq_producer,
                qp.rq_consumer
            )
        })
    })
}

/// Queries object `number`, and prints its line by `print`. Prints nothing if the object or the device
/// is gone.
fn with<O: Object>(
    device: &Device,
    number: Number,
    print: impl FnOnce(O::Context) -> fmt::Result,
) -> fmt::Result {
    let pass = device.enter(device.epoch());
    let query = |pass| device.admin.query::<O>(&pass, number);
    pass.and_then(query).map_or(Ok(()), print)
}

/// Calls `print` for all numbers that `nth` returns for all EQs, with the polls running.
fn each(
    device: &Device,
    numbers: &mut KVec<Number>,
    nth: impl Fn(&Live, usize, &mut KVec<Number>),
    mut print: impl FnMut(Number) -> fmt::Result,
) -> fmt::Result {
    for eq in device.eqs.polls() {
        let mut at = 0;
        loop {
            numbers.clear();
            eq.paused(|_, state| state.live.as_deref().map(|live| nth(live, at, numbers)));
            if numbers.is_empty() {
                break;
            }
            at += numbers.len();
            for number in &*numbers {
                print(*number)?;
            }
        }
    }
    Ok(())
}
