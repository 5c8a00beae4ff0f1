// SPDX-License-Identifier: GPL-2.0
//! Many random schedules of process and device, and one with threads, whose order the processor
//! makes.
//!
//! A failure prints its seed; `QPAIR_SEED=N` runs that one alone. `QPAIR_SCHEDULES=N` runs more of
//! them.

mod support;

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use fastrand::Rng;
use qpair::{
    Access, Completion, Context, Cq, CqOptions, Memory, Mr, Pd, PostError, Qp, QpOptions, Receive,
    Rts, WorkRequest,
};
use qpair_testkit::number;
use support::bench::connect;
use support::machine;
use support::schedule::schedule;

#[test]
fn random_schedules() {
    if let Some(seed) = number("QPAIR_SEED") {
        return schedule(seed, || ());
    }
    let first = Rng::new().u64(..1 << 32);
    for seed in first..first + number("QPAIR_SCHEDULES").unwrap_or(60) {
        if std::panic::catch_unwind(|| schedule(seed, || ())).is_err() {
            panic!("this schedule fails: QPAIR_SEED={seed}");
        }
    }
}

/// The device in a thread of its own, one thread that posts and one that polls: the order of memory
/// is that of the processor.
#[test]
fn threads() {
    const MESSAGES: u64 = 30_000;
    let (fake, context) = machine();
    fake.by_hand();
    let bench = Threads::new(&context);
    let stop = AtomicBool::new(false);
    let begin = Instant::now();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                if !fake.machine().run(4) {
                    std::thread::yield_now();
                }
            }
        });
        scope.spawn(|| bench.post(MESSAGES));
        scope.spawn(|| {
            bench.poll(MESSAGES, begin);
            stop.store(true, Ordering::Relaxed);
        });
    });
    assert_eq!(bench.cq.stale(), 0);
}

struct Threads {
    cq: Cq,
    near: Qp<Rts>,
    far: Qp<Rts>,
    mr: Mr,
}

impl Threads {
    const DEPTH: u64 = 8;

    fn new(context: &Context) -> Self {
        let pd = Pd::new(context).unwrap();
        let cq = Cq::new(context, &CqOptions::new(32)).unwrap();
        let near = QpOptions::new(&cq, &cq)
            .sq_blocks(8)
            .max_recv_wr(1)
            .retries(7, 7);
        let far = QpOptions::new(&cq, &cq).sq_blocks(1).max_recv_wr(8);
        let (near, far) = connect(&pd, &near, &far);
        let mr = Mr::new(&pd, Memory::new(4096).unwrap(), Access::LOCAL_WRITE).unwrap();
        for id in 0..Self::DEPTH {
            far.queue_recv(&Receive::new(id, &[mr.sge(id as usize * 8, 8)]))
                .unwrap();
        }
        far.ring();
        Self { cq, near, far, mr }
    }

    fn post(&self, messages: u64) {
        for id in 0..messages {
            let bytes = (id * 0x9e37_79b9).to_le_bytes();
            let request = WorkRequest::send_inline(id, &bytes);
            while let Err(refused) = self.near.post_send(&[request]) {
                assert_eq!(refused, PostError::Full { posted: 0 });
                std::thread::yield_now();
            }
        }
    }

    fn poll(&self, messages: u64, begin: Instant) {
        let mut into = [Completion::default(); 8];
        let mut received = 0;
        while received < messages {
            for completion in self.cq.poll(&mut into) {
                completion.check().unwrap();
                if !completion.is_receive() {
                    continue;
                }
                assert_eq!(completion.id() % Self::DEPTH, received % Self::DEPTH);
                let at = (completion.id() % Self::DEPTH) as usize * 8;
                let mut bytes = [0; 8];
                self.mr.read(at, &mut bytes);
                assert_eq!(u64::from_le_bytes(bytes), received * 0x9e37_79b9);
                received += 1;
                let id = completion.id() + Self::DEPTH;
                self.far
                    .post_recv(&[Receive::new(id, &[self.mr.sge(at, 8)])])
                    .unwrap();
            }
            assert!(
                begin.elapsed() < Duration::from_secs(120),
                "{received} of {messages}"
            );
            std::thread::yield_now();
        }
    }
}
