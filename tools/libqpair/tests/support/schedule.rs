// SPDX-License-Identifier: GPL-2.0
//! A random schedule of both sides: the process posts, rings, polls and arms, the device works for
//! some turns, in any order, over small rings that wrap all the time and a CQ that has room for
//! just what they can complete. Each request must be done once, in order, with the right bytes.

use std::collections::VecDeque;
use std::time::Duration;

use fastrand::Rng;
use qpair::{
    Access, Channel, Completion, Cq, CqOptions, Memory, Mr, Pd, PostError, Qp, QpOptions, Receive,
    Rts, Wants, WorkRequest,
};

use super::bench::connect;
use super::machine;

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

/// The queues that nothing is posted to are on a CQ of their own.
fn lane(pd: &Pd, cq: &Cq, idle: &Cq, depth: u32) -> Lane {
    let (sq, rq) = (depth, depth);
    // For ever: the peer's receive comes when the schedule wants it.
    let near = QpOptions::new(cq, idle)
        .sq_blocks(sq)
        .max_recv_wr(1)
        .retries(7, 7);
    let far = QpOptions::new(idle, cq).sq_blocks(1).max_recv_wr(rq);
    let (near, far) = connect(pd, &near, &far);
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
        if !completion.is_receive() {
            // All unsignaled ones before it are done as well.
            loop {
                let sent = self.sends.pop_front().expect("a send that was posted");
                if sent.id == completion.id() {
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
        assert_eq!(completion.id(), expected, "receives are filled in order");
        let message = self.messages.pop_front().expect("a message that was sent");
        assert_eq!(completion.bytes() as usize, message.len());
        let at = (expected % u64::from(self.rq)) as usize * BYTES;
        let mut came = vec![0; message.len()];
        into.read(at, &mut came);
        assert_eq!(came, message, "the bytes of receive {expected}");
    }
}

/// Runs one; it fails by a panic. `begun` is called when everything is made, and the random part
/// begins.
pub(crate) fn schedule<T>(seed: u64, begun: impl FnOnce() -> T) {
    let mut rng = Rng::with_seed(seed);
    let (fake, context) = machine();
    fake.by_hand();
    let channel = Channel::new().unwrap();
    let pd = Pd::new(&context).unwrap();
    let (count, depth) = (1 << rng.usize(..3), 1 << rng.u32(2..5));
    // Not an entry more than the lanes need.
    let entries = count as u32 * 2 * depth;
    let options = CqOptions::new(entries)
        .channel(&channel)
        .head_batch(rng.u32(1..=entries));
    let cq = Cq::new(&context, &options).unwrap();
    let idle = Cq::new(&context, &CqOptions::new(16)).unwrap();
    let region = || {
        let memory = Memory::new(32 * BYTES).unwrap();
        Mr::new(&pd, memory, Access::LOCAL_WRITE).unwrap()
    };
    let mut lanes: Vec<_> = (0..count).map(|_| lane(&pd, &cq, &idle, depth)).collect();
    assert_eq!(cq.unreserved(), 0);
    let regions: Vec<_> = (0..count).map(|_| (region(), region())).collect();
    let mut armed = false;
    let mut received = 0;
    let mut into = [Completion::default(); 32];
    let steps = 4000;
    // Ends before what the schedule is about, however that is.
    let _begun = begun();
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
                if armed && channel.wait(Some(Duration::ZERO)).unwrap() {
                    armed = false;
                }
                let most = rng.usize(1..=into.len());
                for completion in cq.poll(&mut into[..most]) {
                    let lane = lanes
                        .iter_mut()
                        .position(|l| [l.near.number(), l.far.number()].contains(&completion.qp()))
                        .expect("one of ours");
                    lanes[lane].complete(completion, &regions[lane].1);
                    received += u64::from(completion.is_receive());
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
