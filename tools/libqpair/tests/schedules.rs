// SPDX-License-Identifier: GPL-2.0
//! Random schedules of both sides: the process posts, rings, polls and arms, the device works for some turns, in any
//! order, over small rings that wrap all the time. Each request must be done once, in order, with
//! the right bytes, and each armed wait must end.
//!
//! A failure prints its seed; `QPAIR_SEED=N` runs that one alone. `QPAIR_SCHEDULES=N` runs more of them.

mod support;

use std::collections::VecDeque;
use std::env;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use fastrand::Rng;
use qpair::{
    Access, Channel, Completion, Context, Cq, CqOptions, Memory, Mr, Pd, PostError, Qp, QpOptions,
    Receive, Rts, Wants, WorkRequest,
};
use support::machine;

const PEER: Access = Access::REMOTE_WRITE.union(Access::REMOTE_READ);
/// Bytes of a message at most.
const BYTES: usize = 192;

struct Lane {
    near: Qp<Rts>,
    far: Qp<Rts>,
    sq: u32,
    rq: u32,
    /// Sends and receives that are posted: what each must become.
    sends: VecDeque<Sent>,
    receives: VecDeque<u64>,
    /// What arrives next, in order.
    messages: VecDeque<Vec<u8>>,
    next: u64,
    ready: u64,
}

/// A posted work request.
struct Sent {
    id: u64,
    signaled: bool,
}

fn connect(pd: &Pd, near: &QpOptions<'_>, far: &QpOptions<'_>) -> (Qp<Rts>, Qp<Rts>) {
    let (near, far) = (pd.create_qp(near).unwrap(), pd.create_qp(far).unwrap());
    let (to_near, to_far) = (near.number(), far.number());
    let near = near.init(PEER).unwrap().rtr(to_far).unwrap();
    let far = far.init(PEER).unwrap().rtr(to_near).unwrap();
    (near.rts().unwrap(), far.rts().unwrap())
}

fn lane(pd: &Pd, cq: &Cq, rng: &mut Rng) -> Lane {
    let (sq, rq) = (1 << rng.u32(2..5), 1 << rng.u32(0..5));
    let near = QpOptions::new(cq, cq).sq_blocks(sq).rq_depth(1);
    let far = QpOptions::new(cq, cq).sq_blocks(1).rq_depth(rq);
    let (near, far) = connect(pd, &near, &far);
    // For ever: the peer's receive comes when the schedule wants it.
    near.set_retry(7, 7).unwrap();
    Lane {
        near,
        far,
        sq,
        rq,
        sends: VecDeque::new(),
        receives: VecDeque::new(),
        messages: VecDeque::new(),
        next: 0,
        ready: 0,
    }
}

impl Lane {
    /// Queues one SEND of a random form.
    fn send(&mut self, mr: &Mr, rng: &mut Rng) {
        let id = self.next;
        let inline = rng.bool();
        let len = rng.usize(0..=if inline { 96 } else { BYTES });
        let data: Vec<u8> = (0..len).map(|_| rng.u8(..)).collect();
        // The bytes stay where they are until the request is done: each slot of the SQ has a place.
        let at = (id % u64::from(self.sq)) as usize * BYTES;
        let split = rng.usize(0..=len);
        let sges = [mr.sge(at, split), mr.sge(at + split, len - split)];
        let mut request = if inline {
            WorkRequest::send_inline(id, &data)
        } else {
            WorkRequest::send(id, &sges)
        };
        let signaled = rng.u8(..4) == 0;
        if signaled {
            request = request.signaled();
        }
        if rng.bool() {
            request = request.imm(id as u32);
        }
        let room = self.near.send_room();
        if !inline {
            // A place is ours again when its slot is.
            if room == 0 {
                return;
            }
            mr.write(at, &data);
        }
        match self.near.queue_send(&request) {
            Ok(()) => {
                self.sends.push_back(Sent { id, signaled });
                self.messages.push_back(data);
                self.next += 1;
            }
            Err(PostError::Full { .. }) => assert!(room < 4, "full, with room for {room} blocks"),
            Err(other) => panic!("{other}"),
        }
    }

    fn receive(&mut self, mr: &Mr) {
        let id = self.ready;
        let at = (id % u64::from(self.rq)) as usize * BYTES;
        let room = self.far.recv_room();
        match self.far.queue_recv(&Receive::new(id, &[mr.sge(at, BYTES)])) {
            Ok(()) => {
                self.receives.push_back(id);
                self.ready += 1;
            }
            Err(PostError::Full { .. }) => assert_eq!(room, 0),
            Err(other) => panic!("{other}"),
        }
    }

    fn complete(&mut self, completion: &Completion, into: &Mr) {
        completion.check().unwrap();
        if !completion.is_receive {
            // All before it that nobody asked for are done as well.
            loop {
                let sent = self.sends.pop_front().expect("a send that was posted");
                if sent.id == completion.id {
                    break;
                }
                assert!(!sent.signaled, "{} was passed over", sent.id);
            }
            return;
        }
        let expected = self
            .receives
            .pop_front()
            .expect("a receive that was posted");
        assert_eq!(completion.id, expected, "receives are filled in order");
        let message = self.messages.pop_front().expect("a message that was sent");
        assert_eq!(completion.bytes as usize, message.len());
        let at = (expected % u64::from(self.rq)) as usize * BYTES;
        let mut came = vec![0; message.len()];
        into.read(at, &mut came);
        assert_eq!(came, message, "the bytes of receive {expected}");
    }
}

fn schedule(seed: u64) {
    let mut rng = Rng::with_seed(seed);
    let (fake, context) = machine();
    fake.by_hand();
    let channel = Channel::new().unwrap();
    let pd = context.alloc_pd().unwrap();
    let options = CqOptions::new(256)
        .channel(&channel)
        .head_batch(rng.u32(1..=64));
    let cq = context.create_cq(&options).unwrap();
    let count = rng.usize(1..=3);
    let region = || {
        let memory = Memory::new(32 * BYTES).unwrap();
        pd.register(memory, Access::LOCAL_WRITE).unwrap()
    };
    let mut lanes: Vec<_> = (0..count).map(|_| lane(&pd, &cq, &mut rng)).collect();
    let regions: Vec<_> = (0..count).map(|_| (region(), region())).collect();
    let mut armed = false;
    let mut received = 0;
    let mut into = [Completion::default(); 32];
    let steps = 4000;
    for step in 0_u64.. {
        if step == steps {
            // From here on no new sends: everything must come to its end.
            fake.machine().eager = true;
        }
        let at = rng.usize(..count);
        let lane = &mut lanes[at];
        match rng.u8(..10) {
            0..=2 if step < steps => lane.send(&regions[at].0, &mut rng),
            0..=4 => lane.receive(&regions[at].1),
            5 => lane.near.ring(),
            6 => lane.far.ring(),
            7 => {
                fake.machine().run(rng.u32(1..5));
            }
            8 if !armed && rng.bool() => {
                cq.arm(if rng.bool() {
                    Wants::Next
                } else {
                    Wants::Solicited
                });
                armed = true;
            }
            _ => {
                if armed && channel.wait(Some(Duration::ZERO)).unwrap() > 0 {
                    armed = false;
                }
                let most = rng.usize(1..=into.len());
                for completion in cq.poll(&mut into[..most]) {
                    let lane = lanes
                        .iter_mut()
                        .position(|l| [l.near.number(), l.far.number()].contains(&completion.qp))
                        .expect("one of ours");
                    lanes[lane].complete(completion, &regions[lane].1);
                    received += u64::from(completion.is_receive);
                }
            }
        }
        if step >= steps && lanes.iter().all(|lane| lane.messages.is_empty()) {
            break;
        }
        assert!(step < 100 * steps, "it does not come to an end");
    }
    assert!(received > 50, "the schedule did something: {received}");
    assert_eq!(cq.stale(), 0);
    let machine = fake.machine();
    for counter in [
        qpair::Counter::Violations,
        qpair::Counter::Stale,
        qpair::Counter::CqOverruns,
        qpair::Counter::Errors,
        qpair::Counter::DmaFaults,
    ] {
        assert_eq!(machine.function.counter(counter), 0, "{}", counter.text());
    }
}

#[test]
fn random_schedules() {
    let number = |name: &str| {
        env::var(name)
            .ok()
            .map(|n| n.parse::<u64>().expect("a number"))
    };
    if let Some(seed) = number("QPAIR_SEED") {
        return schedule(seed);
    }
    let first = Rng::new().u64(..1 << 32);
    for seed in first..first + number("QPAIR_SCHEDULES").unwrap_or(60) {
        if std::panic::catch_unwind(|| schedule(seed)).is_err() {
            panic!("this schedule fails: QPAIR_SEED={seed}");
        }
    }
}

/// The device in a thread of its own, one thread that posts and one that polls: the order of memory is that of the processor.
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
        let pd = context.alloc_pd().unwrap();
        let cq = context.create_cq(&CqOptions::new(32)).unwrap();
        let near = QpOptions::new(&cq, &cq).sq_blocks(8).rq_depth(1);
        let far = QpOptions::new(&cq, &cq).sq_blocks(1).rq_depth(8);
        let (near, far) = connect(&pd, &near, &far);
        near.set_retry(7, 7).unwrap();
        let mr = pd
            .register(Memory::new(4096).unwrap(), Access::LOCAL_WRITE)
            .unwrap();
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
                if !completion.is_receive {
                    continue;
                }
                assert_eq!(completion.id % Self::DEPTH, received % Self::DEPTH);
                let at = (completion.id % Self::DEPTH) as usize * 8;
                let mut bytes = [0; 8];
                self.mr.read(at, &mut bytes);
                assert_eq!(u64::from_le_bytes(bytes), received * 0x9e37_79b9);
                received += 1;
                let id = completion.id + Self::DEPTH;
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
