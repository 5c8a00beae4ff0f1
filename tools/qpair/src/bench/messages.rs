// SPDX-License-Identifier: GPL-2.0
//! `qpair bench --ud` and `--srq`: SENDs as datagrams, and into receives that all queue pairs share.

use std::collections::HashMap;
use std::ops::Range;
use std::time::Instant;

use anyhow::{ensure, Context as _};
use qpair::{
    Access, Ah, Cq, Datagram, Memory, Mr, Number, Pages, Pd, PostError, Qp, QpOptions, Receive,
    Sge, Srq, SrqOptions, WorkRequest, DATAGRAM_BYTES, GRH_BYTES,
};

use super::{report, BATCHES};
use crate::args::Bench;
use crate::session::{self, Session, TAKE};

const Q_KEY: u32 = 1;

/// Posts the messages with these tags. Of N, counted back from the last, the first is signaled.
type Sends = Box<dyn Fn(Range<u64>, u64) -> Result<(), PostError>>;
/// Posts so many receives.
type Receives = Box<dyn Fn(u64) -> Result<(), PostError>>;

/// A queue pair that sends, one that receives, and their progress.
struct Lane {
    far: Number,
    send: Sends,
    receive: Receives,
    left: u64,
    posted: u64,
    done: u64,
    received: u64,
}

/// What all lanes have in common.
struct Common<'a> {
    pd: &'a Pd,
    cq: &'a Cq,
    srq: Option<&'a Srq>,
    depth: u32,
    /// Of the SQ of a sender.
    blocks: u32,
    here: Sge,
    there: Sge,
}

/// Posts receives by `queue`, which `ring` submits.
fn receives(
    there: Sge,
    queue: impl Fn(&Receive<'_>) -> Result<(), PostError> + 'static,
    ring: impl Fn() + 'static,
) -> Receives {
    Box::new(move |count| {
        for _ in 0..count {
            queue(&Receive::new(0, &[there]))?;
        }
        ring();
        Ok(())
    })
}

impl Common<'_> {
    fn sends(&self) -> QpOptions<'_> {
        QpOptions::new(self.cq, self.cq)
            .sq_blocks(self.blocks)
            .max_recv_wr(1)
    }

    fn datagrams(&self) -> QpOptions<'_, qpair::Ud> {
        QpOptions::ud(self.cq, self.cq)
    }

    /// The receiving end of datagrams.
    fn ud_receiver(&self) -> anyhow::Result<(Number, Receives)> {
        let options = self.datagrams().sq_blocks(1);
        let there = self.there;
        if let Some(srq) = self.srq.cloned() {
            let qp = Qp::new(self.pd, &options.srq(&srq))?;
            let qp = qp.init(Q_KEY)?.rtr()?;
            let (number, ringing) = (qp.number(), srq.clone());
            let queue = move |receive: &Receive<'_>| {
                // It lives as long as this.
                let _ = &qp;
                srq.queue_recv(receive)
            };
            return Ok((number, receives(there, queue, move || ringing.ring())));
        }
        let qp = Qp::new(self.pd, &options.max_recv_wr(self.depth))?;
        let qp = std::rc::Rc::new(qp.init(Q_KEY)?.rtr()?);
        let (number, ringing) = (qp.number(), qp.clone());
        let queue = move |receive: &Receive<'_>| qp.queue_recv(receive);
        Ok((number, receives(there, queue, move || ringing.ring())))
    }

    fn of_datagrams(&self, left: u64) -> anyhow::Result<Lane> {
        let (far, receive) = self.ud_receiver()?;
        let to = Ah::own(self.pd)?.to(far, Q_KEY);
        let near = self.datagrams().sq_blocks(self.blocks).max_recv_wr(1);
        let near = Qp::new(self.pd, &near)?.init(Q_KEY)?.rtr()?.rts()?;
        let here = self.here;
        let send: Sends = Box::new(move |tags, every| {
            let last = tags.end - 1;
            near.post_sends(tags.map(|tag| {
                let datagram = Datagram::send(tag, to, std::slice::from_ref(&here));
                match (last - tag) % every {
                    0 => datagram.signaled(),
                    _ => datagram,
                }
            }))
        });
        Ok(Lane::new(far, send, receive, left))
    }

    /// One of RC, whose receives are those of `srq`.
    fn sharing(&self, srq: &Srq, left: u64) -> anyhow::Result<Lane> {
        let near = Qp::new(self.pd, &self.sends())?;
        let far = Qp::new(self.pd, &self.sends().sq_blocks(1).srq(srq))?;
        let (to_near, to_far) = (near.number(), far.number());
        let near = near.init(Access::NONE)?.rtr(to_far)?.rts()?;
        let far = far.init(Access::NONE)?.rtr(to_near)?;
        let here = self.here;
        let send: Sends = Box::new(move |tags, every| {
            let last = tags.end - 1;
            near.post_sends(tags.map(|tag| {
                let request = WorkRequest::send(tag, std::slice::from_ref(&here));
                match (last - tag) % every {
                    0 => request.signaled(),
                    _ => request,
                }
            }))
        });
        let (queueing, ringing) = (srq.clone(), srq.clone());
        let queue = move |receive: &Receive<'_>| {
            // It lives as long as this.
            let _ = &far;
            queueing.queue_recv(receive)
        };
        let receive = receives(self.there, queue, move || ringing.ring());
        Ok(Lane::new(to_far, send, receive, left))
    }
}

impl Lane {
    fn new(far: Number, send: Sends, receive: Receives, left: u64) -> Self {
        Self {
            far,
            send,
            receive,
            left,
            posted: 0,
            done: 0,
            received: 0,
        }
    }

    fn is_done(&self) -> bool {
        self.left == 0 && self.done == self.posted && self.received == self.posted
    }

    /// Posts a batch if there is room for one.
    fn post(&mut self, id: u64, args: &Bench) -> anyhow::Result<bool> {
        let batch = self.left.min(args.batch.into());
        let room = u64::from(BATCHES * args.batch) - (self.posted - self.done.min(self.received));
        if batch == 0 || room < batch {
            return Ok(false);
        }
        // The tag is the number of messages done with this one.
        let first = id << 48 | (self.posted + 1);
        (self.receive)(batch)?;
        let every = u64::from(args.signal.unwrap_or(args.batch));
        (self.send)(first..first + batch, every)?;
        self.posted += batch;
        self.left -= batch;
        Ok(true)
    }
}

pub(crate) fn run(device: Option<&str>, args: &Bench) -> anyhow::Result<()> {
    let context = session::open(device)?;
    let (largest, header) = match args.ud {
        true => (DATAGRAM_BYTES as u32, GRH_BYTES),
        false => (context.attributes().max_message, 0),
    };
    ensure!(
        args.size <= largest,
        "a message has at most {largest} bytes: use --size {largest}"
    );
    let depth = BATCHES * args.batch;
    // The address of a datagram is a block, and its SGE is in another.
    let blocks = if args.ud { 2 * depth } else { depth };
    let all = u64::from(depth) * u64::from(args.qps);
    let (own, shared) = if args.srq { (1, all) } else { (depth, 1) };
    let entries = session::entries(&[blocks, 1, 1, own]) * u64::from(args.qps);
    let mut session = Session::new(context, entries + shared.next_power_of_two(), args.wait)?;

    let size = args.size as usize;
    let memory = Memory::with_pages(2 * size + header, Pages::Large)?;
    let mr = Mr::new(&session.pd, memory, Access::LOCAL_WRITE)?;
    let pattern: Vec<u8> = (0..size).map(|i| (i * 7 + i / 251) as u8).collect();
    mr.write(0, &pattern);
    let srq = match args.srq {
        true => {
            // `Session::new` has refused more than the CQ may have.
            let options = SrqOptions::new(shared as u32);
            Some(Srq::new(&session.pd, &options)?)
        }
        false => None,
    };
    let common = Common {
        pd: &session.pd,
        cq: &session.cq,
        srq: srq.as_ref(),
        depth,
        blocks,
        here: mr.sge(0, size),
        there: mr.sge(size, header + size),
    };
    let qps = u64::from(args.qps);
    let mut lanes = Vec::new();
    for i in 0..qps {
        let left = args.count / qps + u64::from(i < args.count % qps);
        lanes.push(match &srq {
            Some(srq) if !args.ud => common.sharing(srq, left)?,
            _ => common.of_datagrams(left)?,
        });
    }
    let places: HashMap<u32, usize> = (0..)
        .zip(&lanes)
        .map(|(at, lane)| (lane.far.raw(), at))
        .collect();
    session.begin()?;
    let begin = Instant::now();
    while !lanes.iter().all(Lane::is_done) {
        let mut news = false;
        for (id, lane) in (0..).zip(&mut lanes) {
            while lane.post(id, args)? {
                news = true;
            }
        }
        loop {
            let taken = session.take();
            for completion in taken {
                completion.check()?;
                let at = match completion.is_receive() {
                    true => places.get(&completion.qp().raw()).copied(),
                    false => Some((completion.id() >> 48) as usize),
                };
                let lane = at.and_then(|at| lanes.get_mut(at));
                let lane = lane.context("a completion of an unknown work request")?;
                if completion.is_receive() {
                    lane.received += 1;
                } else {
                    lane.done = completion.id() & ((1 << 48) - 1);
                }
            }
            let count = taken.len();
            news |= count != 0;
            // Fewer than there was room for: the queue is empty.
            if count < TAKE {
                break;
            }
        }
        if news {
            session.go_on()?;
        } else {
            session.pause()?;
        }
    }
    let time = begin.elapsed();
    let counted = session.counted()?;
    let mut arrived = vec![0; size];
    mr.read(size + header, &mut arrived);
    ensure!(arrived == pattern, "what arrived is not what was sent");
    report(args, time, &counted, session.events)
}
