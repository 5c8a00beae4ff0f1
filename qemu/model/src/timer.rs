// SPDX-License-Identifier: GPL-2.0
//! How long a sender waits before it tries again, in nanoseconds of the machine's clock.

use crate::config::Config;
use qpair_abi::command::timer;

/// The code of `timeout` that programs have by default.
const USUAL: u32 = 14;

/// Nanoseconds of the unit of `timeout`.
const UNIT_NANOS: u64 = 4096;
/// Nanoseconds by code of verbs.
const RNR_NANOS: [u64; 32] = [
    655_360_000,
    10_000,
    20_000,
    30_000,
    40_000,
    60_000,
    80_000,
    120_000,
    160_000,
    240_000,
    320_000,
    480_000,
    640_000,
    960_000,
    1_280_000,
    1_920_000,
    2_560_000,
    3_840_000,
    5_120_000,
    7_680_000,
    10_240_000,
    15_360_000,
    20_480_000,
    30_720_000,
    40_960_000,
    61_440_000,
    81_920_000,
    122_880_000,
    163_840_000,
    245_760_000,
    327_680_000,
    491_520_000,
];

/// How long it waits for an answer; `None` is without end.
pub(crate) fn answer(config: &Config, timeout: u8) -> Option<u64> {
    match timeout {
        0 => Some(config.retry_ns),
        timer::ZERO => None,
        shift => Some(UNIT_NANOS << (shift & 31)),
    }
}

/// The same of an answer by frames. The device's own interval does not go with a network: it is that
/// of the usual code.
pub(crate) fn answer_by_frames(timeout: u8) -> Option<u64> {
    match timeout {
        0 => Some(UNIT_NANOS << USUAL),
        timer::ZERO => None,
        shift => Some(UNIT_NANOS << (shift & 31)),
    }
}

/// The code that a peer on the network gets of a queue pair with this timer: the device's own
/// interval, or a longer one, has one too.
pub(crate) fn receive_code(config: &Config, min_rnr_timer: u8) -> u8 {
    let codes = RNR_NANOS.iter().zip(0..).skip(1);
    match min_rnr_timer {
        0 => {
            let mut codes = codes.filter(|(nanos, _)| **nanos >= config.retry_ns);
            codes.next().map_or(0, |(_, code)| code)
        }
        code => code % timer::ZERO,
    }
}

/// How long a sender waits for a receive of a peer that says this code.
pub(crate) fn receive_by_frames(code: u8) -> u64 {
    let nanos = RNR_NANOS.get(usize::from(code % timer::ZERO));
    nanos.copied().unwrap_or(0)
}

/// How long it waits for a receive of a peer with this timer.
pub(crate) fn receive(config: &Config, min_rnr_timer: u8) -> u64 {
    let code = match min_rnr_timer {
        0 => None,
        code => RNR_NANOS.get(usize::from(code % timer::ZERO)),
    };
    code.copied().unwrap_or(config.retry_ns)
}
