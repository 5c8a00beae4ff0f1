// SPDX-License-Identifier: GPL-2.0
//! Two sides and the wire between them, on random schedules: no send meets an empty receive queue,
//! no side waits forever, and acknowledgements end.

use super::checks;
use qpair::flow::Credits;
use qpair::flow::Direct;
use qpair::flow::Flow;
use qpair_queue::account::Account;
use qpair_queue::account::Bogus;
use qpair_queue::credit::RemoteData;
use qpair_queue::credit::RingId;
use qpair_testkit::with_seeds;
use std::collections::VecDeque;

checks![
    talk_goes_on_and_acknowledgements_end,
    one_acknowledgement_slot_is_refused,
    garbage_gives_nothing,
    a_peer_without_a_slot_is_found_out,
    an_account_repays_what_was_taken,
    reads_and_writes_have_slots_of_their_own,
];

const RING: RingId = RingId::new(1, 0);

#[derive(Clone, Copy, Debug)]
enum Message {
    Data,
    Ack(u32),
}

struct Side {
    flow: Flow,
    /// Messages of the peer that this side has not read. Each has filled a receive.
    inbox: VecDeque<Message>,
    ours: Credits,
    /// Sends that have not completed.
    data: u32,
    acks: u32,
    to_send: u32,
    got: u32,
}

fn talk_goes_on_and_acknowledgements_end() {
    with_seeds("talk_goes_on_and_acknowledgements_end", 3000, |rng| {
        let mut credits = || Credits {
            data: rng.below32(4) + 1,
            acks: rng.below32(3) + 2,
        };
        let ours = [credits(), credits()];
        let sends = [credits(), credits()];
        let messages = 40;
        let mut sides = [0, 1].map(|i| Side {
            flow: Flow::new(RING, sends[i], ours[i], ours[1 - i]).unwrap(),
            inbox: VecDeque::new(),
            ours: ours[i],
            data: 0,
            acks: 0,
            to_send: messages,
            got: 0,
        });
        let mut acks = 0;
        let mut idle = 0;
        // Long runs of one side's turns make acknowledgements cross.
        let (mut actor, mut what) = (0usize, 0);
        while idle < 400 {
            if rng.one_in(3) {
                (actor, what) = (rng.below32(2) as usize, rng.below32(4));
            }
            let (left, right) = sides.split_at_mut(1);
            let (side, peer) = if actor == 0 {
                (&mut left[0], &mut right[0])
            } else {
                (&mut right[0], &mut left[0])
            };
            idle += 1;
            match what {
                0 if side.to_send > 0 && side.flow.send() => {
                    side.to_send -= 1;
                    side.data += 1;
                    peer.inbox.push_back(Message::Data);
                    idle = 0;
                }
                1 => match side.inbox.pop_front() {
                    Some(Message::Data) => {
                        side.got += 1;
                        side.flow.received();
                        idle = 0;
                    }
                    Some(Message::Ack(immediate)) => {
                        side.flow.received_acknowledgement(immediate).unwrap();
                        idle = 0;
                    }
                    None => {}
                },
                2 => {
                    if let Some(immediate) = side.flow.acknowledge() {
                        side.acks += 1;
                        acks += 1;
                        peer.inbox.push_back(Message::Ack(immediate));
                        idle = 0;
                    }
                }
                _ => {
                    if side.data + side.acks > 0 {
                        side.flow.sent(side.data).unwrap();
                        side.flow.acknowledged(side.acks).unwrap();
                        (side.data, side.acks) = (0, 0);
                        idle = 0;
                    }
                }
            }
            // The messages of an inbox fill receives of one kind or the other.
            for side in &sides {
                let count = |data| {
                    let same = side
                        .inbox
                        .iter()
                        .filter(|m| matches!(m, Message::Data) == data);
                    same.count() as u32
                };
                assert!(count(true) <= side.ours.data, "receiver not ready (data)");
                assert!(count(false) <= side.ours.acks, "receiver not ready (acks)");
                assert!(side.flow.is_whole());
            }
            assert!(acks <= 8 * messages, "acknowledgements without end");
        }
        for side in &sides {
            assert_eq!(
                (side.to_send, side.got),
                (0, messages),
                "they wait for ever"
            );
        }
    });
}

fn one_acknowledgement_slot_is_refused() {
    let good = Credits { data: 4, acks: 2 };
    let bad = [
        Credits { acks: 1, ..good },
        Credits { acks: 0, ..good },
        Credits { data: 0, ..good },
        Credits {
            data: 0x1_0000,
            ..good
        },
        Credits {
            acks: 0x1_0000,
            ..good
        },
    ];
    assert!(Flow::new(RING, good, good, good).is_ok());
    for bad in bad {
        assert!(Flow::new(RING, good, bad, good).is_err(), "{bad:?}");
        assert!(Flow::new(RING, good, good, bad).is_err(), "{bad:?}");
    }
}

fn garbage_gives_nothing() {
    let credits = Credits { data: 4, acks: 2 };
    let mut flow = Flow::new(RING, credits, credits, credits).unwrap();
    assert!(flow.send() && flow.send());
    for immediate in [3 << 16, 1, u32::MAX, 2 << 16 | 1] {
        assert_eq!(flow.received_acknowledgement(immediate), Err(Bogus));
        assert_eq!(flow.may_send(), 2);
    }
    assert_eq!(flow.sent(3), Err(Bogus));
    assert_eq!(flow.acknowledged(1), Err(Bogus));
    assert_eq!(flow.received_acknowledgement(2 << 16), Ok(()));
    assert_eq!(flow.may_send(), 2, "not before the sends have completed");
    flow.sent(2).unwrap();
    assert_eq!(flow.may_send(), 4);
}

fn a_peer_without_a_slot_is_found_out() {
    let credits = Credits { data: 4, acks: 2 };
    let mut flow = Flow::new(RING, credits, credits, credits).unwrap();
    assert!((0..4).all(|held| flow.may_arrive(held)));
    assert!(!flow.may_arrive(4), "four held, of four");
    // Posted again, they are owed: the peer has their slots only after the acknowledgement.
    for _ in 0..3 {
        flow.received();
    }
    assert!(flow.may_arrive(0) && !flow.may_arrive(1));
    assert_eq!(flow.acknowledge(), Some(3 << 16));
    assert!(flow.may_arrive(3) && !flow.may_arrive(4));
    // Acknowledgements of nothing, more than there are slots.
    let mut flow = Flow::new(RING, credits, credits, credits).unwrap();
    assert_eq!(flow.received_acknowledgement(0), Ok(()));
    assert_eq!(flow.received_acknowledgement(0), Ok(()));
    assert_eq!(flow.received_acknowledgement(0), Err(Bogus));
    assert!(flow.is_whole());
}

fn an_account_repays_what_was_taken() {
    let mut receives = Account::<RemoteData>::new(RING, 3);
    assert!(receives.pay(2) && !receives.pay(2) && receives.free() == 1);
    assert_eq!(receives.repay(3), Err(Bogus));
    assert_eq!((receives.repay(1), receives.free()), (Ok(()), 2));
    assert!(receives.pay(2) && receives.free() == 0 && receives.is_whole());
}

fn reads_and_writes_have_slots_of_their_own() {
    let mut direct = Direct::new(RING, 2, 1);
    assert!(direct.read() && direct.read() && !direct.read());
    assert!(direct.write() && !direct.write());
    assert!(direct.is_whole());
    assert_eq!(direct.has_read(3), Err(Bogus));
    assert_eq!(direct.has_read(1), Ok(()));
    assert!(direct.read() && !direct.read() && !direct.write());
    assert_eq!(direct.has_written(1), Ok(()));
    assert_eq!(direct.has_written(1), Err(Bogus));
    assert!(direct.write() && direct.is_whole());
}
