// SPDX-License-Identifier: GPL-2.0
//! A requester against a peer that a check plays.

use qpair_roce::extended::Aeth;
use qpair_roce::extended::Syndrome;
use qpair_roce::operation::Operation;
use qpair_roce::psn::Psn;
use qpair_roce::request::Failure;
use qpair_roce::request::Kind;
use qpair_roce::request::Outcome;
use qpair_roce::request::Request;
use qpair_roce::segment::Mtu;
use qpair_roce::sender::Next;
use qpair_roce::sender::Sender;
use qpair_roce::tries::Limits;

pub const LIMITS: Limits = Limits {
    timeout: Some(100),
    retry: 3,
    rnr_retry: Some(2),
    reads: 2,
    window: 128,
};

/// Time of a receiver that is not ready.
pub const RNR: u64 = 1000;

/// A requester whose peer is the check.
pub struct Peer {
    pub sender: Sender<8>,
    pub now: u64,
    begun: u32,
}

impl Peer {
    pub fn new(limits: Limits) -> Self {
        let mtu = Mtu::from_code(1).unwrap();
        Self {
            sender: Sender::new(mtu, limits, Psn::new(0)),
            now: 0,
            begun: 0,
        }
    }

    pub fn begin(&mut self, kind: Kind, bytes: u32) {
        let request = Request {
            id: self.begun,
            kind,
            bytes,
            fence: false,
        };
        assert!(self.sender.begin(request));
        self.begun += 1;
    }

    /// Sends what there is: the PSNs.
    pub fn send(&mut self) -> Vec<u32> {
        let mut sent = Vec::new();
        while let Some(next) = self.sender.next(self.now) {
            match next {
                Next::Packet { psn, .. } => sent.push(psn.get()),
                Next::Perform { id } => panic!("{id} is not local"),
            }
        }
        sent
    }

    /// Sends an acknowledgement.
    pub fn acknowledge(&mut self, psn: u32, syndrome: Syndrome) {
        let aeth = Aeth { syndrome, msn: 0 };
        self.answer(psn, Operation::Acknowledge(aeth), 0);
    }

    /// Of data the offset.
    pub fn answer(&mut self, psn: u32, operation: Operation, bytes: usize) -> Option<u32> {
        let psn = Psn::new(psn);
        let data = self
            .sender
            .answer(self.now, psn, &operation, bytes, |_| RNR);
        data.map(|data| data.offset)
    }

    pub fn deadline(&mut self) {
        self.now = self.sender.deadline().expect("a deadline");
        self.sender.expire(self.now);
    }

    pub fn completes(&mut self) -> Option<(u32, Outcome)> {
        self.sender.complete()
    }

    pub fn fails(&mut self, failure: Failure) {
        assert_eq!(self.completes(), Some((0, Outcome::Failed(failure))));
        assert_eq!(self.sender.deadline(), None);
    }
}
