// SPDX-License-Identifier: GPL-2.0
//! Receives that queue pairs share: full queues, resets with unread completions, random schedules.

use fastrand::Rng;
use qpair::{
    Completion, Connected, Context, Counter, Cq, CqOptions, Error, Memory, Mr, Number, Pd,
    PostError, Qp, QpOptions, Receive, Reset, Rts, SharedReceives, Srq, SrqOptions, WorkRequest,
};

use super::bench::{poll, ALL, PEER};
use super::{machine, Fake};

/// Bytes of a receive.
const PART: usize = 16;

/// A queue pair on an SRQ.
type Sharing = Qp<Rts, Connected, SharedReceives>;

/// A queue pair on the SRQ, and the one that sends to it.
struct Lane {
    near: Qp<Rts>,
    far: Sharing,
    /// The CQ of `far`, of those of the crowd.
    cq: usize,
}

/// Queue pairs on one SRQ, each on one of the CQs.
struct Crowd {
    pd: Pd,
    srq: Srq,
    mr: Mr,
    /// Those of the receives, and that of the sends.
    cqs: Vec<Cq>,
    sent: Cq,
    lanes: Vec<Lane>,
}

fn connected(
    near: Qp<Reset>,
    far: Qp<Reset, Connected, SharedReceives>,
) -> Result<(Qp<Rts>, Sharing), qpair::Error> {
    let (to_near, to_far) = (near.number(), far.number());
    let near = near.init(PEER)?.rtr(to_far)?.rts()?;
    Ok((near, far.init(PEER)?.rtr(to_near)?.rts()?))
}

impl Crowd {
    /// With room in the CQs for the receives and a block for each queue pair, and no more.
    fn new(context: &Context, depth: u32, cqs: usize, lanes: usize) -> Self {
        let pd = Pd::new(context).unwrap();
        let srq = Srq::new(&pd, &SrqOptions::new(depth)).unwrap();
        let entries = (depth + lanes as u32).next_power_of_two();
        let cq = || Cq::new(context, &CqOptions::new(entries).head_batch(u32::MAX)).unwrap();
        let memory = Memory::new(depth as usize * PART).unwrap();
        let mut crowd = Self {
            mr: Mr::new(&pd, memory, ALL).unwrap(),
            cqs: (0..cqs).map(|_| cq()).collect(),
            sent: Cq::new(context, &CqOptions::new(512)).unwrap(),
            lanes: Vec::new(),
            srq,
            pd,
        };
        for at in 0..lanes {
            let lane = crowd.lane(at % cqs);
            crowd.lanes.push(lane);
        }
        crowd
    }

    fn lane(&self, at: usize) -> Lane {
        let cq = &self.cqs[at];
        let near = QpOptions::new(&self.sent, &self.sent).max_recv_wr(1);
        let near = Qp::new(&self.pd, &near.retries(0, 7)).unwrap();
        let far = QpOptions::new(cq, cq).sq_blocks(1).srq(&self.srq);
        let far = Qp::new(&self.pd, &far).unwrap();
        let (near, far) = connected(near, far).unwrap();
        Lane { near, far, cq: at }
    }

    /// Posts the receive `id`, into its part of the memory.
    fn receive(&self, id: u64) -> Result<(), PostError> {
        let at = id as usize % self.srq.depth() as usize * PART;
        let piece = [self.mr.sge(at, PART)];
        self.srq.post_recv(&[Receive::new(id, &piece)])
    }

    /// Fills all that can be posted from receive `from` on; returns the next.
    fn fill(&self, from: u64) -> u64 {
        (from..)
            .find(|&id| self.receive(id).is_err())
            .expect("a full queue")
    }

    fn send(&self, lane: usize, id: u64) {
        let bytes = id.to_le_bytes();
        let request = WorkRequest::send_inline(id, &bytes).signaled();
        self.lanes[lane].near.post_send(&[request]).unwrap();
    }

    /// Resets the queue pair of a lane, and its peer, and connects them again, if the CQ has room.
    fn renew(&mut self, at: usize) {
        let Lane { near, far, cq } = self.lanes.swap_remove(at);
        let (near, far) = (near.reset().unwrap(), far.reset().unwrap());
        let (near, far) = connected(near, far).unwrap();
        self.lanes.push(Lane { near, far, cq });
    }
}

fn sound(fake: &Fake) {
    let machine = fake.machine();
    for counter in [Counter::Violations, Counter::CqOverruns, Counter::DmaFaults] {
        assert_eq!(machine.function.counter(counter), 0, "{}", counter.text());
    }
}

/// The ids of the receives among completions, all of which have succeeded.
fn received(came: &[Completion]) -> Vec<u64> {
    let came = came.iter().map(|done| done.check().unwrap());
    came.filter(|done| done.is_receive())
        .map(Completion::id)
        .collect()
}

/// A receive makes room when its completion was polled, wherever that is, and not earlier.
pub(crate) fn a_full_queue_gets_room_by_polls() {
    let (fake, context) = machine();
    let crowd = Crowd::new(&context, 8, 2, 4);
    assert_eq!((crowd.srq.depth(), crowd.srq.recv_room()), (8, 8));
    let mut next = crowd.fill(0);
    assert_eq!((next, crowd.srq.recv_room()), (8, 0));
    for round in 0..200 {
        // One for each lane, then those of one CQ are polled, then the others.
        for lane in 0..4 {
            crowd.send(lane, round);
        }
        poll(&crowd.sent);
        assert_eq!(crowd.fill(next), next, "nothing was polled");
        for cq in &crowd.cqs {
            assert_eq!(received(&poll(cq)).len(), 2);
            assert_eq!(crowd.srq.recv_room(), 2);
            let heads = |fake: &Fake| fake.machine().function.counter(Counter::CqHeadDoorbells);
            let before = heads(&fake);
            next = crowd.fill(next);
            assert_eq!(crowd.srq.recv_room(), 0);
            assert!((1..=2).contains(&(heads(&fake) - before)), "one for both");
        }
    }
    assert_eq!(next, 8 + 800);
    // Of several the error says how many went, and those are submitted.
    crowd.send(0, 1);
    assert_eq!(received(&poll(&crowd.cqs[0])).len(), 1);
    let two = [Receive::new(1, &[]), Receive::new(2, &[])];
    assert_eq!(
        crowd.srq.post_recv(&two),
        Err(PostError::Full { posted: 1 })
    );
    let pieces = [crowd.mr.sge(0, 1); 8];
    let refused = crowd.srq.queue_recv(&Receive::new(3, &pieces));
    assert!(matches!(
        refused,
        Err(PostError::TooLarge { posted: 0, .. })
    ));
    sound(&fake);
}

/// Entries of a queue pair that is reset or destroyed keep the slots of their receives until they
/// are read. All of them come back.
pub(crate) fn receives_of_an_ended_queue_pair_come_back() {
    let (fake, context) = machine();
    let mut crowd = Crowd::new(&context, 8, 1, 2);
    let mut next = crowd.fill(0);
    for round in 0..100 {
        // Unread ones of both lanes.
        for id in 0..round % 7 {
            crowd.send((id % 3 == 0).into(), id);
        }
        poll(&crowd.sent);
        let unread = round % 7;
        let of_first = unread - unread.div_ceil(3);
        match round % 3 {
            0 => crowd.renew(0),
            1 => {
                drop(crowd.lanes.swap_remove(0));
                crowd.lanes.push(crowd.lane(0));
            }
            _ => crowd.lanes.swap(0, 1),
        }
        // The one that sends least is the second again.
        crowd.lanes.swap(0, 1);
        let ended = if round % 3 == 2 { 0 } else { of_first };
        assert_eq!(crowd.fill(next), next, "round {round}: nothing was polled");
        let came = received(&poll(&crowd.cqs[0]));
        assert_eq!(came.len() as u64, unread - ended, "round {round}");
        assert_eq!(u64::from(crowd.srq.recv_room()), unread, "round {round}");
        next = crowd.fill(next);
        assert_eq!(crowd.srq.recv_room(), 0, "round {round}");
    }
    // Both go, with unread entries; then the CQ; then the SRQ serves others.
    crowd.send(0, 1);
    crowd.send(1, 2);
    crowd.lanes.clear();
    let entries = CqOptions::new(16);
    crowd.cqs[0] = Cq::new(&context, &entries).unwrap();
    assert_eq!(crowd.srq.recv_room(), 2, "the CQ is gone, and its entries");
    crowd.lanes.push(crowd.lane(0));
    crowd.fill(next);
    crowd.send(0, 3);
    assert_eq!(received(&poll(&crowd.cqs[0])).len(), 1);
    sound(&fake);
}

/// Reading the stale entry of a send frees no slot of a receive.
pub(crate) fn a_stale_send_frees_no_receive() {
    let (_fake, context) = machine();
    let mut crowd = Crowd::new(&context, 4, 1, 2);
    crowd.fill(0);
    let nop = WorkRequest::nop(1).signaled();
    crowd.lanes[0].far.post_send(&[nop]).unwrap();
    crowd.send(1, 2);
    crowd.send(0, 3);
    drop(crowd.lanes.swap_remove(0));
    let mut into = [Completion::default()];
    let came = crowd.cqs[0].poll(&mut into);
    assert_eq!((received(came).len(), crowd.cqs[0].stale()), (1, 1));
    assert_eq!(crowd.srq.recv_room(), 1);
    assert!(poll(&crowd.cqs[0]).is_empty());
    assert_eq!(crowd.srq.recv_room(), 2);
    crowd.fill(4);
    // That send was not counted as an unread receive: the end of the CQ frees no slot.
    crowd.lanes.clear();
    crowd.cqs.clear();
    assert_eq!(crowd.srq.recv_room(), 0);
}

/// The last queue pair on a CQ may go before the head past its entries is published.
pub(crate) fn a_receive_of_a_cq_without_queue_pairs_comes_back() {
    let (_fake, context) = machine();
    let mut crowd = Crowd::new(&context, 4, 1, 1);
    let next = crowd.fill(0);
    crowd.send(0, 1);
    assert_eq!(received(&poll(&crowd.cqs[0])), [0]);
    crowd.lanes.clear();
    let refused = crowd.receive(next);
    assert_eq!(refused, Err(PostError::Full { posted: 0 }));
    crowd.cqs[0].publish();
    crowd.receive(next).unwrap();
}

/// Random posts, polls, resets and turns of the device over small queues, and CQs that have room for
/// just what can complete. Each receive completes at most once, with the bytes that were sent; at
/// the end all have come back.
pub(crate) fn shared_schedule<T>(seed: u64, begun: impl FnOnce() -> T) {
    let mut rng = Rng::with_seed(seed);
    let (fake, context) = machine();
    fake.by_hand();
    let (cqs, lanes) = (rng.usize(1..=3), rng.usize(2..=5));
    let mut crowd = Crowd::new(&context, 1 << rng.u32(1..5), cqs, lanes);
    let depth = u64::from(crowd.srq.depth());
    // Whether each receive that was posted has completed.
    let mut done = Vec::new();
    let (mut came, mut sent) = (0, 0);
    let mut into = [Completion::default(); 16];
    let _begun = begun();
    for _ in 0..3000 {
        match rng.u8(..16) {
            0..=3 => match crowd.receive(done.len() as u64) {
                Ok(()) => done.push(false),
                Err(refused) => assert_eq!(refused, PostError::Full { posted: 0 }),
            },
            4..=7 => {
                let lane = rng.usize(..crowd.lanes.len());
                let request = WorkRequest::send_inline(sent, b"abcdefgh").signaled();
                sent += u64::from(crowd.lanes[lane].near.post_send(&[request]).is_ok());
            }
            8..=11 => {
                fake.machine().run(rng.u32(1..4));
            }
            12 if rng.u8(..8) == 0 => {
                let at = rng.usize(..crowd.lanes.len());
                let cq = crowd.lanes[at].cq;
                let others = crowd.lanes.iter().filter(|lane| lane.cq == cq).count() > 1;
                let needed = if others { 1 } else { depth as u32 + 1 };
                // With less room it could not begin anew.
                if crowd.cqs[cq].unreserved() >= needed {
                    crowd.renew(at);
                }
            }
            _ => {
                let at = rng.usize(..cqs);
                poll(&crowd.sent);
                let most = rng.usize(1..=into.len());
                for receive in crowd.cqs[at].poll(&mut into[..most]) {
                    receive.check().unwrap();
                    assert_eq!(receive.bytes(), 8);
                    let id = receive.id() as usize;
                    assert!(!std::mem::replace(&mut done[id], true), "{id} twice");
                    came += 1;
                }
            }
        }
    }
    assert!(came > 50, "the schedule did something: {came}");
    // All that is not at a queue pair comes back when all is polled.
    crowd.lanes.clear();
    fake.machine().settle();
    for cq in &crowd.cqs {
        poll(cq);
    }
    let left = crowd.left(&fake);
    assert_eq!(u64::from(crowd.srq.recv_room() + left), depth);
    sound(&fake);
}

impl Crowd {
    /// Receives that no queue pair has taken, as the device counts them.
    fn left(&self, fake: &Fake) -> u32 {
        fake.machine().left(self.srq.number())
    }
}

/// The limit has its event once; a queue pair in the error state has one, and the others go on.
pub(crate) fn limits_and_last_receives() {
    use qpair::AsyncEvent::{LastReceive, SrqLimit};
    let (fake, context) = machine();
    let crowd = Crowd::new(&context, 4, 1, 2);
    let number: Number = crowd.srq.number();
    let event = || context.async_event().unwrap();
    crowd.fill(0);
    assert_eq!((crowd.srq.limit().unwrap(), event()), (0, None));
    crowd.srq.set_limit(3).unwrap();
    assert_eq!((crowd.srq.limit().unwrap(), event()), (3, None));
    crowd.send(0, 1);
    assert_eq!(event(), None, "three are left");
    crowd.send(1, 2);
    assert_eq!(event(), Some(SrqLimit(number)));
    assert_eq!((crowd.srq.limit().unwrap(), event()), (0, None));
    crowd.srq.set_limit(4).unwrap();
    assert_eq!(event(), Some(SrqLimit(number)), "at once");
    assert!(crowd.srq.set_limit(5).is_err());
    crowd.lanes[0].far.flush().unwrap();
    fake.machine().settle();
    let last = LastReceive(crowd.lanes[0].far.number());
    assert_eq!((event(), event()), (Some(last), None));
    // The other one goes on.
    crowd.send(1, 3);
    assert_eq!(received(&poll(&crowd.cqs[0])), [0, 1, 2]);
    sound(&fake);
}

/// A CQ has room for all receives as long as a queue pair of the SRQ completes there.
pub(crate) fn each_cq_reserves_room_once() {
    let (_fake, context) = machine();
    let pd = Pd::new(&context).unwrap();
    let srq = Srq::new(&pd, &SrqOptions::new(16)).unwrap();
    let cq = Cq::new(&context, &CqOptions::new(32)).unwrap();
    let options = QpOptions::new(&cq, &cq).sq_blocks(8).srq(&srq);
    let first = Qp::new(&pd, &options).unwrap();
    assert_eq!(cq.unreserved(), 8, "8 sends, and all receives");
    let second = Qp::new(&pd, &options).unwrap();
    assert_eq!(cq.unreserved(), 0, "these receives are the same");
    let third = Qp::new(&pd, &options);
    let small = matches!(third, Err(Error::CqTooSmall { free: 0, needed: 8 }));
    assert!(small, "{third:?}");
    drop(first);
    assert_eq!(cq.unreserved(), 8);
    // A reset gives all of it back, and the way out of RESET takes it again.
    let second = second.init(PEER).unwrap().reset().unwrap();
    assert_eq!(cq.unreserved(), 32);
    let second = second.init(PEER).unwrap();
    assert_eq!(cq.unreserved(), 8);
    drop(second);
    assert_eq!(cq.unreserved(), 32);
    let other = Cq::new(&context, &CqOptions::new(16)).unwrap();
    let made = Qp::new(&pd, &QpOptions::new(&other, &other).sq_blocks(1).srq(&srq));
    let small = matches!(
        made,
        Err(Error::CqTooSmall {
            free: 15,
            needed: 16
        })
    );
    assert!(small, "{made:?}");
    assert_eq!(other.unreserved(), 16);
    // Sends and receives on two.
    let made = Qp::new(&pd, &QpOptions::new(&other, &cq).sq_blocks(16).srq(&srq));
    assert_eq!((other.unreserved(), cq.unreserved()), (0, 16));
    drop(made.unwrap());
    assert_eq!((other.unreserved(), cq.unreserved()), (16, 32));
}
