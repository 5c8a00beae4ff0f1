// SPDX-License-Identifier: GPL-2.0
//! FLUSH and atomic WRITE: whole blocks in a series.

// The bench has more than this test uses.
#[allow(dead_code)]
mod support;

use qpair_abi::doorbell;
use qpair_abi::entry::{flush, opcode, send_flags};
use qpair_verbs::flush::Flush;
use qpair_verbs::request::{Payload, Refusal, Request};
use support::{send, Asked, Bench};

const FLUSH: Flush = Flush {
    remote: (0x1234_5678, 99),
    bytes: 1 << 33,
    kinds: flush::GLOBAL,
    whole: 1,
};

fn write(id: u64) -> Request {
    Request {
        opcode: opcode::WRITE,
        remote_addr: 0x4000,
        rkey: 5,
        ..send(id, true)
    }
}

#[test]
fn a_series_of_both() {
    let mut bench = Bench::new(Asked::default());
    // SAFETY: Between start and complete; no inline data.
    unsafe {
        bench.qp.start();
        bench.qp.begin(write(1));
        bench.qp.data(Payload::Gather(&[]));
        bench.qp.flush(send(2, false), FLUSH);
        bench.qp.atomic_write(write(3), 0x0102_0304_0506_0708);
        bench.qp.flush(send(4, true), FLUSH);
        bench.qp.complete().unwrap();
    }
    assert_eq!(bench.doorbell(doorbell::SQ), 4);
    assert_eq!(bench.execute(9), 4);
    let ids: Vec<_> = bench.poll(4).iter().map(|it| it.cqe.wr_id).collect();
    assert_eq!(ids, [1, 3, 4]);
    let (flush, value) = (&bench.sent[1], &bench.sent[2]);
    assert_eq!((flush.head.opcode, flush.head.flags), (opcode::FLUSH, 0));
    assert_eq!(flush.head.wr_id, 2);
    assert_eq!((flush.head.sges, flush.head.inline_bytes), (0, 0));
    assert_eq!((flush.head.remote_addr, flush.head.rkey), FLUSH.remote);
    assert_eq!(flush.head.imm, 1 << 8 | 1, "the whole region, of one kind");
    assert_eq!(flush.body, [1 << 33, 0, 0, 0]);
    let head = &value.head;
    assert_eq!((head.opcode, head.blocks), (opcode::ATOMIC_WRITE, 1));
    assert_eq!(head.flags, send_flags::SIGNALED | send_flags::INLINE);
    assert_eq!((head.sges, head.inline_bytes), (0, 8));
    assert_eq!((head.remote_addr, head.rkey), (0x4000, 5));
    assert_eq!(value.body[0], 0x0102_0304_0506_0708);
}

#[test]
fn data_after_one_are_of_none() {
    let bench = Bench::new(Asked::default());
    // SAFETY: As above.
    unsafe {
        bench.qp.start();
        bench.qp.flush(send(1, true), FLUSH);
        bench.qp.data(Payload::Gather(&[]));
        assert_eq!(bench.qp.complete(), Err(Refusal::Invalid));
    }
    assert_eq!(bench.doorbell(doorbell::SQ), 0, "nothing is posted");
}

#[test]
fn a_full_queue_refuses_the_series() {
    let bench = Bench::new(Asked::default());
    let mut posted = 0;
    loop {
        // SAFETY: As above.
        let done = unsafe {
            bench.qp.start();
            bench.qp.atomic_write(write(posted), 1);
            bench.qp.complete()
        };
        if done.is_err() {
            assert_eq!(done, Err(Refusal::Full));
            break;
        }
        posted += 1;
    }
    assert!(posted >= 4);
    assert_eq!(u64::from(bench.doorbell(doorbell::SQ)), posted);
}
