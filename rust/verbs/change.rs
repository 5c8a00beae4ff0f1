// SPDX-License-Identifier: GPL-2.0

//! Changes of queue pairs, as the device has them.

use super::{
    address::{
        own,
        words, //
    },
    request::{
        peer_rights,
        timer, //
    }, //
};
use crate::{
    abi::{
        command::{
            qp_mask,
            qp_state,
            QpContext, //
        },
        Number, //
    },
    control::device::Device,
    kernel::rdma::{
        QpChange,
        QpState, //
    },
};
use kernel::prelude::*;

/// What MODIFY changes, and the new values.
///
/// # Errors
///
/// `EINVAL`: to SQE, or a timer that verbs do not have.
pub(super) fn of(device: &Device, change: &QpChange) -> Result<(u32, QpContext)> {
    let mut mask = 0;
    let mut context = QpContext::default();
    if let Some(state) = change.state {
        mask |= qp_mask::STATE;
        context.state = match state {
            QpState::Reset => qp_state::RESET,
            QpState::Init => qp_state::INIT,
            QpState::Rtr => qp_state::RTR,
            QpState::Rts => qp_state::RTS,
            QpState::Sqd => qp_state::SQD,
            QpState::Error => qp_state::ERROR,
            QpState::Sqe => return Err(EINVAL),
        };
    }
    if let Some(rights) = change.access {
        mask |= qp_mask::ACCESS;
        context.access = peer_rights(rights);
    }
    if let Some(peer) = change.peer {
        mask |= qp_mask::PEER;
        context.peer = Number::from_raw(peer);
    }
    if let Some((retry, rnr_retry)) = change.retries {
        mask |= qp_mask::RETRY;
        context.retry = retry;
        context.rnr_retry = rnr_retry;
    }
    if let Some((timeout, min_rnr_timer)) = change.timers {
        mask |= qp_mask::TIMERS;
        context.timeout = timer(timeout)?;
        context.min_rnr_timer = timer(min_rnr_timer)?;
    }
    if change.drained {
        mask |= qp_mask::NOTIFY;
    }
    if let Some(q_key) = change.q_key {
        mask |= qp_mask::Q_KEY;
        context.q_key = q_key;
    }
    // The GID of a port of InfiniBand is in no table. 0 is its own.
    let other = change.gid.map(words).filter(|gid| *gid != own(device));
    if let Some(gid) = other {
        (context.gid, context.gid_high) = gid;
    }
    Ok((mask, context))
}

/// The state of a queue pair, from its context, and whether its SQ drains.
pub(super) fn state(context: &QpContext) -> (QpState, bool) {
    let state = match context.state {
        qp_state::RESET => QpState::Reset,
        qp_state::INIT => QpState::Init,
        qp_state::RTR => QpState::Rtr,
        qp_state::RTS => QpState::Rts,
        qp_state::SQD => QpState::Sqd,
        _ => QpState::Error,
    };
    (state, context.draining != 0)
}
