// SPDX-License-Identifier: GPL-2.0
//! Unreliable connections: every link of small depth, and what a receiver does with single packets.

use super::checks;
use qpair_roce::extended::Reth;
use qpair_roce::extended::With;
use qpair_roce::operation::Operation;
use qpair_roce::psn::Psn;
use qpair_roce::segment::Mtu;
use qpair_roce::segment::Piece;
use qpair_roce::segment::Position;
use qpair_roce::unreliable::Receiver;
use qpair_roce::unreliable::Sender;
use std::collections::HashSet;

checks![
    messages_are_whole_and_in_order_and_come_once,
    without_faults_every_message_comes,
    a_lost_packet_drops_its_message,
    a_long_silence_does_not_make_deaf,
    a_message_is_abandoned,
];

fn mtu() -> Mtu {
    Mtu::from_code(1).unwrap()
}

/// The packets of the messages.
const MESSAGES: [u32; 4] = [2, 1, 3, 1];
const FIRST: Psn = Psn::new(Psn::MASK - 1);

/// A packet: its message too.
type Packet = (u32, Psn, Piece);

#[derive(Clone, PartialEq, Eq, Hash)]
struct World {
    sender: Sender,
    receiver: Receiver,
    begun: u32,
    link: Vec<Packet>,
    /// The message of which pieces have come, and how many.
    partial: Option<(u32, u32)>,
    /// Messages from here on may come.
    next: u32,
}

impl World {
    fn new() -> Self {
        Self {
            sender: Sender::new(mtu(), FIRST),
            receiver: Receiver::new(mtu(), FIRST),
            begun: 0,
            link: Vec::new(),
            partial: None,
            next: 0,
        }
    }

    fn send(&mut self) -> bool {
        if let Some((psn, piece)) = self.sender.next_packet() {
            self.link.push((self.begun - 1, psn, piece));
            return true;
        }
        let Some(packets) = MESSAGES.get(self.begun as usize) else {
            return false;
        };
        assert!(self.sender.begin(packets * 256));
        assert!(!self.sender.begin(1), "one at a time");
        self.begun += 1;
        self.send()
    }

    fn receive(&mut self) {
        let (message, psn, piece) = self.link.remove(0);
        let operation = match message % 2 {
            0 => Operation::send(piece.position, With::Nothing),
            _ => {
                let bytes = MESSAGES[message as usize] * 256;
                let reth = Reth {
                    bytes,
                    ..Reth::default()
                };
                Operation::write_to(piece.position, reth, None)
            }
        };
        let found = self.receiver.receive(psn, &operation, piece.bytes as usize);
        let nth = piece.offset / 256;
        if found.lost {
            assert!(self.partial.take().is_some(), "nothing had begun");
        }
        let Some(same) = found.piece else {
            return;
        };
        assert_eq!(same, piece);
        let before = self.partial.take();
        match nth {
            0 => assert!(
                before.is_none() && message >= self.next,
                "twice, or out of order"
            ),
            _ => assert_eq!(before, Some((message, nth)), "pieces of two messages"),
        }
        match piece.position.ends() {
            true => self.next = message + 1,
            false => self.partial = Some((message, nth + 1)),
        }
    }
}

fn messages_are_whole_and_in_order_and_come_once() {
    let (mut known, mut todo) = (HashSet::new(), vec![World::new()]);
    while let Some(world) = todo.pop() {
        if !known.insert(world.clone()) {
            continue;
        }
        let mut then = |act: &dyn Fn(&mut World) -> bool| {
            let mut next = world.clone();
            if act(&mut next) {
                todo.push(next);
            }
        };
        let count = world.link.len();
        if count < 3 {
            then(&World::send);
        }
        if count == 0 {
            continue;
        }
        then(&|next| {
            next.receive();
            true
        });
        then(&|next| {
            next.link.remove(0);
            true
        });
        if count < 3 {
            then(&|next| {
                next.link.insert(1, next.link[0]);
                true
            });
        }
        for nth in 1..count {
            then(&|next| {
                next.link.swap(nth - 1, nth);
                true
            });
        }
    }
    assert!(known.len() > 1000);
    if std::env::var_os("QPAIR_QUIET").is_none() {
        println!("states: an unreliable connection: {}", known.len());
    }
}

fn without_faults_every_message_comes() {
    let mut world = World::new();
    while world.send() {
        world.receive();
    }
    assert_eq!((world.next, world.partial), (MESSAGES.len() as u32, None));
}

fn receive(receiver: &mut Receiver, psn: u32, operation: Operation) -> (bool, bool) {
    let found = receiver.receive(Psn::new(psn), &operation, 256);
    (found.lost, found.piece.is_some())
}

fn a_lost_packet_drops_its_message() {
    let mut receiver = Receiver::new(mtu(), Psn::new(0));
    let (first, middle, last) = (
        Operation::SendFirst,
        Operation::SendMiddle,
        Operation::SendLast(With::Nothing),
    );
    assert_eq!(receive(&mut receiver, 0, first), (false, true));
    assert_eq!(receive(&mut receiver, 2, last), (true, false));
    assert_eq!(receive(&mut receiver, 3, middle), (false, false));
    assert_eq!(receive(&mut receiver, 4, first), (false, true));
    assert_eq!(receive(&mut receiver, 5, first), (true, true));
    assert_eq!(receive(&mut receiver, 6, last), (false, true));
    assert_eq!(receive(&mut receiver, 7, first), (false, true));
    // A message that cannot be received is dropped to its end.
    receiver.abandon();
    assert_eq!(receive(&mut receiver, 8, last), (false, false));
    assert_eq!(receive(&mut receiver, 9, first), (false, true));
    assert_eq!(receive(&mut receiver, 9, first), (false, false), "twice");
}

fn a_long_silence_does_not_make_deaf() {
    let only = Operation::SendOnly(With::Nothing);
    for lost in [1, 1 << 22, (1 << 23) - 1, 1 << 23, (1 << 23) + 1000] {
        let mut receiver = Receiver::new(mtu(), Psn::new(0));
        assert_eq!(
            receive(&mut receiver, lost, only),
            (false, true),
            "{lost:#x}"
        );
    }
}

fn a_message_is_abandoned() {
    let mut sender = Sender::new(mtu(), Psn::new(7));
    assert!(sender.begin(1000));
    assert!(sender.next_packet().is_some());
    sender.abandon();
    assert_eq!(sender.next_packet(), None);
    assert!(sender.begin(0));
    let (psn, piece) = sender.next_packet().unwrap();
    assert_eq!((psn.get(), piece.position), (8, Position::Only));
}
