// SPDX-License-Identifier: GPL-2.0
//! Changes of queue pairs, and address handles, as the core has them.

use qpair_uverbs::abi::*;

use crate::kernel::{Address, Change, QpState, Service};

use super::PORT;

/// RDMA READs in flight, of which the core wants to know. The device has no such limit.
const READS: u8 = 16;
/// About 270 ms until a retry without an answer: a code of `ibv_qp_attr`. An endpoint whose peer has
/// closed first may have an acknowledgement under way, and is to close before its retries end.
const ANSWER_TIMER: u8 = 16;
/// About 4 ms without a receive.
const RECEIVE_TIMER: u8 = 17;

/// The request for a change, without the path's MTU. What the device does not have, as sequence numbers,
/// is zero.
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
        Change::Rtr { peer, at, service } => ib_uverbs_modify_qp {
            attr_mask: match service {
                Service::Rc => qp_mask::TO_RTR,
                Service::Uc => qp_mask::UC_TO_RTR,
            },
            qp_state: qp_state::RTR,
            dest: destination(at),
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

/// The port of a peer.
fn destination(at: Address) -> ib_uverbs_qp_dest {
    let port = ib_uverbs_qp_dest {
        port_num: PORT,
        ..Default::default()
    };
    match at {
        Address::Lid(dlid) => ib_uverbs_qp_dest { dlid, ..port },
        Address::Gid { gid, source } => ib_uverbs_qp_dest {
            dgid: gid,
            sgid_index: source,
            hop_limit: 1,
            is_global: 1,
            ..port
        },
    }
}

/// The state of a queue pair, by the core's number.
pub(super) fn state(number: u8) -> QpState {
    match number {
        qp_state::RESET => QpState::Reset,
        qp_state::INIT => QpState::Init,
        qp_state::RTR => QpState::Rtr,
        qp_state::RTS => QpState::Rts,
        qp_state::SQD => QpState::Sqd,
        _ => QpState::Error,
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

#[cfg(test)]
mod tests {
    use qpair_abi::Number;

    use super::*;
    use crate::kernel::Retries;

    /// The attributes that `ib_modify_qp_is_ok()` of the core requires, besides the state.
    #[test]
    fn a_change_has_what_the_core_requires_of_the_type() {
        use qp_mask::*;

        let (rc, uc) = (Service::Rc, Service::Uc);
        let at = Address::Gid {
            gid: [7; 16],
            source: 3,
        };
        let (peer, access) = (Number::from_raw(0x1_0002), 2);
        let retries = Retries {
            answer: 3,
            receive: 5,
        };
        let path = AV | PATH_MTU | DEST_QPN | RQ_PSN;
        let limits = MAX_DEST_RD_ATOMIC | MIN_RNR_TIMER;
        let timers = TIMEOUT | RETRY_CNT | RNR_RETRY | MAX_QP_RD_ATOMIC;
        let cases = [
            (Change::Reset, qp_state::RESET, 0),
            (
                Change::Init { access },
                qp_state::INIT,
                PKEY_INDEX | PORT | ACCESS_FLAGS,
            ),
            (
                Change::Rtr {
                    peer,
                    at,
                    service: rc,
                },
                qp_state::RTR,
                path | limits,
            ),
            (
                Change::Rtr {
                    peer,
                    at,
                    service: uc,
                },
                qp_state::RTR,
                path,
            ),
            (
                Change::Rts {
                    retries,
                    service: rc,
                },
                qp_state::RTS,
                SQ_PSN | timers,
            ),
            (
                Change::Rts {
                    retries,
                    service: uc,
                },
                qp_state::RTS,
                SQ_PSN,
            ),
            (
                Change::InitUd { q_key: 9 },
                qp_state::INIT,
                PKEY_INDEX | PORT | QKEY,
            ),
            (Change::RtrUd, qp_state::RTR, 0),
            (Change::RtsUd, qp_state::RTS, SQ_PSN),
            (Change::Error, qp_state::ERR, 0),
        ];
        for (change, state, mask) in cases {
            let asked = modify(change);
            assert_eq!(asked.attr_mask, STATE | mask, "{change:?}");
            assert_eq!(asked.qp_state, state, "{change:?}");
            let has = |bit, value: u32| if mask & bit != 0 { value } else { 0 };
            assert_eq!(u32::from(asked.port_num), has(PORT, 1), "{change:?}");
            assert_eq!(
                asked.qp_access_flags,
                has(ACCESS_FLAGS, access),
                "{change:?}"
            );
            assert_eq!(asked.dest_qp_num, has(DEST_QPN, peer.raw()), "{change:?}");
            assert_eq!(asked.qkey, has(QKEY, 9), "{change:?}");
            assert_eq!(asked.dest.is_global, has(AV, 1) as u8, "{change:?}");
            assert_eq!(u32::from(asked.dest.sgid_index), has(AV, 3), "{change:?}");
            assert_eq!(asked.dest.dgid, [has(AV, 7) as u8; 16], "{change:?}");
            assert_eq!(u32::from(asked.dest.hop_limit), has(AV, 1), "{change:?}");
            assert_eq!(u32::from(asked.dest.port_num), has(AV, 1), "{change:?}");
            if mask & timers != 0 {
                assert_eq!((asked.retry_cnt, asked.rnr_retry), (3, 5));
                assert_eq!((asked.max_rd_atomic, asked.timeout), (READS, ANSWER_TIMER));
            }
            if mask & limits != 0 {
                let limits = (asked.max_dest_rd_atomic, asked.min_rnr_timer);
                assert_eq!(limits, (READS, RECEIVE_TIMER));
            }
        }
    }

    #[test]
    fn each_state_has_a_number() {
        // `enum ib_qp_state`; SQE is of UD.
        let all = [
            QpState::Reset,
            QpState::Init,
            QpState::Rtr,
            QpState::Rts,
            QpState::Sqd,
            QpState::Error,
            QpState::Error,
        ];
        assert!((0..7).map(state).eq(all));
    }

    #[test]
    fn an_address_is_a_lid_or_a_gid() {
        let by_lid = address(4, Address::Lid(7));
        assert_eq!((by_lid.pd_handle, by_lid.attr.dlid), (4, 7));
        assert_eq!((by_lid.attr.is_global, by_lid.attr.port_num), (0, 1));
        let gid = *b"0123456789abcdef";
        let by_gid = address(4, Address::Gid { gid, source: 3 }).attr;
        assert_eq!((by_gid.is_global, by_gid.port_num, by_gid.dlid), (1, 1, 0));
        let grh = by_gid.grh;
        assert_eq!((grh.dgid, grh.sgid_index, grh.hop_limit), (gid, 3, 1));
        let by_lid = destination(Address::Lid(7));
        assert_eq!((by_lid.dlid, by_lid.is_global, by_lid.port_num), (7, 0, 1));
    }
}
