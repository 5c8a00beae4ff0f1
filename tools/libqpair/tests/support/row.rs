// SPDX-License-Identifier: GPL-2.0
//! Garbage between good entries of a row.
//!
//! The library takes completions of a queue in a row, and looks at less for each but the first.
//! What it must not take is put behind 1, 2, ... good ones: the entry that would be the next of the
//! row, with one thing wrong. It has to be counted, and to give nothing; those behind it have to
//! come as if it were not there.

use qpair::{
    Completion, Context, Cq, CqOptions, Number, Pd, Qp, QpOptions, Receive, Rts, WorkRequest,
};
use qpair_abi::entry::{cqe_flags, opcode, Cqe};

use super::bench::connect;
use super::machine;

/// Of the CQ.
const ENTRIES: u32 = 64;
/// Good ones.
const GOOD: u64 = 5;
/// A work request that was not posted.
const NOBODY: u64 = 99;

/// The queue whose completions come in a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Queue {
    Send,
    Receive,
}

/// What is wrong with the entry.
#[derive(Clone, Copy, Debug)]
enum Wrong {
    /// It completes what the one before it did.
    Again,
    /// It completes what had completed before the row.
    Old,
    /// It completes what was never posted.
    Beyond,
    /// It is of the queue pair that had the number before, or will.
    Generation,
    /// It is of the other end, which is there, and on the same CQ.
    Peer,
    /// It is of no queue pair.
    Stranger,
    /// It is of the queue pair's other queue.
    OtherQueue,
}

const ALL: [Wrong; 7] = [
    Wrong::Again,
    Wrong::Old,
    Wrong::Beyond,
    Wrong::Generation,
    Wrong::Peer,
    Wrong::Stranger,
    Wrong::OtherQueue,
];

/// Both queues of `near` are on one CQ; there the far end has its receives.
struct Lane {
    cq: Cq,
    /// Of what the far end sends.
    sent: Cq,
    near: Qp<Rts>,
    far: Qp<Rts>,
}

impl Lane {
    fn new(context: &Context) -> Self {
        let pd = Pd::new(context).unwrap();
        let cq = Cq::new(context, &CqOptions::new(ENTRIES)).unwrap();
        let sent = Cq::new(context, &CqOptions::new(ENTRIES)).unwrap();
        let (near, far) = (QpOptions::new(&cq, &cq), QpOptions::new(&sent, &cq));
        let (near, far) = connect(&pd, &near, &far);
        Self {
            cq,
            sent,
            near,
            far,
        }
    }

    /// Does one more work request of a queue.
    fn work(&self, queue: Queue, id: u64) {
        if queue == Queue::Send {
            let nop = WorkRequest::nop(id).signaled();
            return self.near.post_send(&[nop]).unwrap();
        }
        self.near.post_recv(&[Receive::new(id, &[])]).unwrap();
        let empty = WorkRequest::send_inline(id, b"").signaled();
        self.far.post_send(&[empty]).unwrap();
        assert_eq!(self.sent.poll(&mut [Completion::default(); 8]).len(), 1);
    }

    fn room(&self, queue: Queue) -> u32 {
        match queue {
            Queue::Send => self.near.send_room(),
            Queue::Receive => self.near.recv_room(),
        }
    }

    /// The entry that has `index` of a queue, with one thing wrong. The row began behind `before`.
    fn entry(&self, queue: Queue, wrong: Wrong, before: u32, index: u32) -> Cqe {
        let number = self.near.number();
        let (opcode, flags) = match queue {
            Queue::Send => (opcode::NOP, 0),
            Queue::Receive => (opcode::SEND, cqe_flags::RECV),
        };
        let good = Cqe {
            wr_id: NOBODY,
            qp: number,
            index,
            opcode,
            flags,
            ..Default::default()
        };
        let at = |index| Cqe { index, ..good };
        let of = |qp| Cqe { qp, ..good };
        match wrong {
            Wrong::Again => at(index - 1),
            Wrong::Old => at(before),
            Wrong::Beyond => at(before + GOOD as u32 + 1),
            Wrong::Generation => of(number.next()),
            Wrong::Peer => of(self.far.number()),
            Wrong::Stranger => of(Number::from_raw(!0)),
            Wrong::OtherQueue => Cqe {
                flags: flags ^ cqe_flags::RECV,
                ..good
            },
        }
    }
}

/// A row of [`GOOD`], with that behind the first `at`, where the CQ stands at `before`; polled into
/// `places` at a time.
fn row(queue: Queue, wrong: Wrong, at: u64, before: u32, places: usize) {
    let (fake, context) = machine();
    let lane = Lane::new(&context);
    let mut into = [Completion::default(); 8];
    for id in 0..before {
        lane.work(queue, id.into());
        assert_eq!(lane.cq.poll(&mut into).len(), 1);
    }
    lane.cq.publish();
    let room = lane.room(queue);

    for id in 0..GOOD {
        if id == at {
            let cq = lane.cq.number().index() as u16;
            let cqe = lane.entry(queue, wrong, before, before + at as u32 + 1);
            assert!(fake.machine().function.inject_cqe(cq, cqe.encode()));
        }
        lane.work(queue, id);
    }
    let mut came = Vec::new();
    loop {
        let taken = lane.cq.poll(&mut into[..places]);
        if taken.is_empty() {
            break;
        }
        came.extend(taken.iter().map(|c| (c.id(), c.is_receive())));
    }
    let is_receive = queue == Queue::Receive;
    let expected: Vec<_> = (0..GOOD).map(|id| (id, is_receive)).collect();
    let what = format!("{queue:?}, {wrong:?} behind {at}, at {before}, {places} at a time");
    assert_eq!(came, expected, "{what}");
    assert_eq!(lane.cq.stale(), 1, "{what}");
    lane.cq.publish();
    assert_eq!(lane.room(queue), room, "{what}");
}

/// Each kind of garbage behind some good entries of either queue, also where the CQ goes round.
pub(crate) fn garbage_in_a_row() {
    for queue in [Queue::Send, Queue::Receive] {
        for wrong in ALL {
            for (at, places) in [(1, 8), (2, 8), (GOOD - 1, 8), (1, 2), (2, 3)] {
                row(queue, wrong, at, 0, places);
            }
            for before in ENTRIES - 4..ENTRIES {
                row(queue, wrong, 2, before, 8);
            }
        }
    }
}
