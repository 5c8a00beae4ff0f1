// SPDX-License-Identifier: GPL-2.0
//! When an acknowledgement is due. `proofs/queue` explores the whole flow control.

use qpair::flow::{Credits, Flow};
use qpair_queue::credit::RingId;

fn flow() -> Flow {
    let each = Credits { data: 4, acks: 4 };
    Flow::new(RingId::new(1, 0), each, each, each).unwrap()
}

#[test]
fn an_acknowledgement_returns_more_than_half_of_the_data_slots() {
    let mut flow = flow();
    flow.received();
    flow.received();
    assert_eq!(flow.acknowledge(), None);
    flow.received();
    assert_eq!(flow.acknowledge(), Some(3 << 16));
    assert!(!flow.is_due());
}

#[test]
fn an_acknowledgement_returns_more_than_half_of_the_ack_slots() {
    let mut flow = flow();
    for _ in 0..2 {
        flow.received_acknowledgement(0).unwrap();
        assert_eq!(flow.acknowledge(), None);
    }
    flow.received_acknowledgement(0).unwrap();
    assert_eq!(flow.acknowledge(), Some(3));
    assert!(!flow.is_due());
}
