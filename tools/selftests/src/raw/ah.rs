// SPDX-License-Identifier: GPL-2.0
//! Requests for address handles, and GIDs of multicast groups.

use qpair_uverbs::abi::*;

use super::args::PORT;
use super::pd::Pd;

/// The request for an address handle to the port with this GID, or to the one with this LID.
pub(crate) fn address(pd: &Pd, dgid: Option<[u8; 16]>, dlid: u16) -> ib_uverbs_create_ah {
    ib_uverbs_create_ah {
        pd_handle: pd.handle,
        attr: ib_uverbs_ah_attr {
            grh: ib_uverbs_global_route {
                dgid: dgid.unwrap_or_default(),
                hop_limit: 1,
                ..Default::default()
            },
            dlid,
            is_global: dgid.is_some().into(),
            port_num: PORT,
            ..Default::default()
        },
        ..Default::default()
    }
}

/// The GID of a multicast group, of link scope.
pub(crate) fn group(number: u16) -> [u8; 16] {
    let [high, low] = number.to_be_bytes();
    [
        0xff, 0x12, 0x60, 0x1b, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, high, low,
    ]
}
