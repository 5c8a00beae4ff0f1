// SPDX-License-Identifier: GPL-2.0
//! Arguments of commands that have a part of the driver, and their valid values.

use qpair_abi::uverbs::qpair_ureq_create_cq;
use qpair_abi::uverbs::qpair_ureq_create_qp;
use qpair_abi::uverbs::qpair_ureq_create_srq;
use qpair_abi::uverbs::qpair_uresp_create_cq;
use qpair_abi::uverbs::qpair_uresp_create_qp;
use qpair_abi::uverbs::qpair_uresp_create_srq;
use qpair_abi::uverbs::QPAIR_NO_COMPLETION_FD;
use qpair_uverbs::abi::*;

/// The only port of a device.
pub(super) const PORT: u8 = 1;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Pd,
    Cq,
    Qp,
    Mr,
    Srq,
    Mw,
}

/// The request of CREATE_CQ.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CqArg {
    pub(crate) core: ib_uverbs_create_cq,
    pub(crate) driver: qpair_ureq_create_cq,
}

impl CqArg {
    /// `depth` entries in a ring, whose address is also its handle in events.
    pub(crate) fn new(addr: u64, bytes: u64, depth: u32) -> Self {
        Self {
            core: ib_uverbs_create_cq {
                user_handle: addr,
                cqe: depth,
                comp_channel: NO_COMP_CHANNEL,
                ..Default::default()
            },
            driver: qpair_ureq_create_cq {
                buffer: addr,
                buffer_bytes: bytes,
                eventfd: QPAIR_NO_COMPLETION_FD,
                reserved: 0,
            },
        }
    }
}

/// The answer of CREATE_CQ.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct CqMade {
    pub(crate) core: ib_uverbs_create_cq_resp,
    pub(crate) driver: qpair_uresp_create_cq,
}

/// The request of CREATE_QP.
#[derive(Clone, Copy, Debug)]
pub(crate) struct QpArg {
    pub(crate) core: ib_uverbs_create_qp,
    pub(crate) driver: qpair_ureq_create_qp,
}

/// The answer of CREATE_QP.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct QpMade {
    pub(crate) core: ib_uverbs_create_qp_resp,
    pub(crate) driver: qpair_uresp_create_qp,
}

/// The request of CREATE_SRQ.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SrqArg {
    pub(crate) core: ib_uverbs_create_srq,
    pub(crate) driver: qpair_ureq_create_srq,
}

/// The answer of CREATE_SRQ.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SrqMade {
    pub(crate) core: ib_uverbs_create_srq_resp,
    pub(crate) driver: qpair_uresp_create_srq,
}

/// MODIFY_QP of a queue pair of UD to the state after `from`.
pub(crate) fn change_ud(from: u8, q_key: u32) -> ib_uverbs_modify_qp {
    ib_uverbs_modify_qp {
        attr_mask: match from {
            qp_state::RESET => qp_mask::UD_TO_INIT,
            qp_state::RTR => qp_mask::UD_TO_RTS,
            _ => qp_mask::STATE,
        },
        qp_state: from + 1,
        qkey: q_key,
        port_num: PORT,
        ..Default::default()
    }
}

/// MODIFY_QP of a queue pair of UC to the state after `from`, with this peer, which has the rights
/// `access`.
pub(crate) fn change_uc(from: u8, peer: u32, access: u32) -> ib_uverbs_modify_qp {
    ib_uverbs_modify_qp {
        attr_mask: match from {
            qp_state::RESET => qp_mask::TO_INIT,
            qp_state::INIT => qp_mask::UC_TO_RTR,
            _ => qp_mask::UC_TO_RTS,
        },
        qp_access_flags: access,
        dest_qp_num: peer,
        ..change(from, from + 1)
    }
}

/// MODIFY_QP to a state, with what the core requires from the state before it: all zero but the
/// port.
pub(crate) fn change(from: u8, to: u8) -> ib_uverbs_modify_qp {
    ib_uverbs_modify_qp {
        attr_mask: match (from, to) {
            (qp_state::RESET, qp_state::INIT) => qp_mask::TO_INIT,
            (qp_state::INIT, qp_state::RTR) => qp_mask::TO_RTR,
            (qp_state::RTR, qp_state::RTS) => qp_mask::TO_RTS,
            _ => qp_mask::STATE,
        },
        dest: ib_uverbs_qp_dest {
            port_num: PORT,
            ..Default::default()
        },
        qp_state: to,
        path_mtu: MTU_4096,
        port_num: PORT,
        // About 4 ms each.
        timeout: 10,
        min_rnr_timer: 17,
        ..Default::default()
    }
}
