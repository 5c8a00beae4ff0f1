// SPDX-License-Identifier: GPL-2.0
//! Changes of queue pairs, and address handles, as the core has them.

use qpair_uverbs::abi::*;

use crate::kernel::{Address, Change, Service};

use super::PORT;

/// RDMA READs in flight, of which the core wants to know. The device has no such limit.
const READS: u8 = 16;
/// About 270 ms until a retry without an answer: a code of `ibv_qp_attr`. An endpoint whose peer has
/// closed first may have an acknowledgement under way, and is to close before its retries end.
const ANSWER_TIMER: u8 = 16;
/// About 4 ms without a receive.
const RECEIVE_TIMER: u8 = 17;

/// The request for a change. What the device does not have, as sequence numbers, is zero.
pub(super) fn modify(change: Change) -> ib_uverbs_modify_qp {
    let all = ib_uverbs_modify_qp::default();
    match change {
        Change::Reset => ib_uverbs_modify_qp {
            attr_mask: qp_mask::STATE,
            qp_state: qp_state::RESET,
            ..all
        },
        Change::Init { access } => ib_uverbs_modify_qp {
            attr_mask: qp_mask::TO_INIT,
            qp_state: qp_state::INIT,
            qp_access_flags: access,
            port_num: PORT,
            ..all
        },
        Change::Rtr { peer, service } => ib_uverbs_modify_qp {
            attr_mask: match service {
                Service::Rc => qp_mask::TO_RTR,
                Service::Uc => qp_mask::UC_TO_RTR,
            },
            qp_state: qp_state::RTR,
            dest: ib_uverbs_qp_dest {
                port_num: PORT,
                ..Default::default()
            },
            path_mtu: MTU_4096,
            dest_qp_num: peer.raw(),
            max_dest_rd_atomic: READS,
            min_rnr_timer: RECEIVE_TIMER,
            ..all
        },
        Change::Rts { retries, service } => ib_uverbs_modify_qp {
            attr_mask: match service {
                Service::Rc => qp_mask::TO_RTS,
                Service::Uc => qp_mask::UC_TO_RTS,
            },
            qp_state: qp_state::RTS,
            retry_cnt: retries.answer,
            rnr_retry: retries.receive,
            max_rd_atomic: READS,
            timeout: ANSWER_TIMER,
            ..all
        },
        Change::InitUd { q_key } => ib_uverbs_modify_qp {
            attr_mask: qp_mask::UD_TO_INIT,
            qp_state: qp_state::INIT,
            qkey: q_key,
            port_num: PORT,
            ..all
        },
        Change::RtrUd => ib_uverbs_modify_qp {
            attr_mask: qp_mask::STATE,
            qp_state: qp_state::RTR,
            ..all
        },
        Change::RtsUd => ib_uverbs_modify_qp {
            attr_mask: qp_mask::UD_TO_RTS,
            qp_state: qp_state::RTS,
            ..all
        },
        Change::Error => ib_uverbs_modify_qp {
            attr_mask: qp_mask::STATE,
            qp_state: qp_state::ERR,
            ..all
        },
    }
}

/// The request for an address handle.
pub(super) fn address(pd: u32, address: Address) -> ib_uverbs_create_ah {
    let attr = match address {
        Address::Lid(lid) => ib_uverbs_ah_attr {
            dlid: lid,
            port_num: PORT,
            ..Default::default()
        },
        Address::Gid { gid, source } => ib_uverbs_ah_attr {
            grh: ib_uverbs_global_route {
                dgid: gid,
                sgid_index: source,
                hop_limit: 1,
                ..Default::default()
            },
            is_global: 1,
            port_num: PORT,
            ..Default::default()
        },
    };
    ib_uverbs_create_ah {
        pd_handle: pd,
        attr,
        ..Default::default()
    }
}
