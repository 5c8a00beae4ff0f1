// SPDX-License-Identifier: GPL-2.0
//! How long a sender waits before it tries again, in nanoseconds of the machine's clock.

use crate::config::Config;
use qpair_abi::command::timer;

/// How long it waits for an answer; `None` is without end.
pub(crate) fn answer(config: &Config, timeout: u8) -> Option<u64> {
    match timeout {
        0 => Some(config.retry_ns),
        timer::ZERO => None,
        shift => Some(timer::UNIT_NANOS << (shift & 31)),
    }
}

/// How long it waits for a receive of a peer with this timer.
pub(crate) fn receive(config: &Config, min_rnr_timer: u8) -> u64 {
    let code = match min_rnr_timer {
        0 => None,
        code => timer::RNR_NANOS.get(usize::from(code % timer::ZERO)),
    };
    code.copied().unwrap_or(config.retry_ns)
}
