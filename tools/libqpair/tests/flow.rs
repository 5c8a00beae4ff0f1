// SPDX-License-Identifier: GPL-2.0
//! The range of credits, when an acknowledgement is due, and how slots return. `proofs/queue`
//! explores the whole flow control.

use qpair::flow::{Credits, Direct, Flow};
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

#[test]
fn credits_out_of_range_are_refused() {
    let ring = RingId::new(1, 0);
    let good = Credits { data: 1, acks: 2 };
    let of = |data, acks| Credits { data, acks };
    for bad in [of(0, 2), of(1 << 16, 2), of(1, 0), of(1, 1 << 16)] {
        for sides in [[bad, good, good], [good, bad, good], [good, good, bad]] {
            let [sends, ours, theirs] = sides;
            assert!(Flow::new(ring, sends, ours, theirs).is_err(), "{sides:?}");
        }
    }
    // A side that keeps receives needs two for acknowledgements.
    let most = of(0xffff, 0xffff);
    for (acks, is_good) in [(1, false), (2, true)] {
        assert_eq!(Flow::new(ring, most, of(1, acks), most).is_ok(), is_good);
        assert_eq!(Flow::new(ring, most, most, of(1, acks)).is_ok(), is_good);
    }
    assert!(Flow::new(ring, of(1, 1), good, good).is_ok());
}

#[test]
fn slots_are_taken_and_returned() {
    let mut flow = flow();
    assert!(flow.send() && flow.is_whole());
    assert_eq!(flow.may_send(), 3);
    flow.sent(1).unwrap();
    assert_eq!(flow.may_send(), 3, "the remote slot is still taken");
    flow.received_acknowledgement(1 << 16).unwrap();
    assert_eq!(flow.may_send(), 4);
    let mut direct = Direct::new(RingId::new(1, 0), 2, 1);
    assert!(direct.read() && direct.read() && !direct.read());
    assert!(direct.write() && !direct.write());
    direct.has_read(1).unwrap();
    direct.has_written(1).unwrap();
    assert!(direct.is_whole() && direct.read() && direct.write());
    assert!(direct.has_read(3).is_err() && direct.has_written(2).is_err());
}
