// SPDX-License-Identifier: GPL-2.0
//! Datagrams and shared receives by the library.

use anyhow::ensure;
use anyhow::Context as _;
use anyhow::Result;
use qpair::Access;
use qpair::Address;
use qpair::Ah;
use qpair::AsyncEvent;
use qpair::Completion;
use qpair::Context;
use qpair::Counter;
use qpair::Cq;
use qpair::CqOptions;
use qpair::Datagram;
use qpair::Device;
use qpair::Memory;
use qpair::Mr;
use qpair::Pd;
use qpair::Qp;
use qpair::QpOptions;
use qpair::Receive;
use qpair::Rts;
use qpair::SharedReceives;
use qpair::Srq;
use qpair::SrqOptions;
use qpair::Ud;
use qpair::WorkRequest;
use qpair::GRH_BYTES;

use crate::ktap::Setup;
use crate::raw::vector_of_cq;
use crate::wait;

const KEY: u32 = 0x2222_2222;
/// Bytes of a region: what is sent, then what is received.
const BYTES: usize = 16 << 10;
const THERE: usize = BYTES / 2;

/// What a queue pair needs.
struct Home {
    context: Context,
    pd: Pd,
    cq: Cq,
    mr: Mr,
}

impl Home {
    fn new() -> Result<Self> {
        let context = Device::first()?.open()?;
        let pd = Pd::new(&context)?;
        let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
        Ok(Self {
            cq: Cq::new(&context, &CqOptions::new(128))?,
            mr: Mr::new(&pd, Memory::new(BYTES)?, access)?,
            pd,
            context,
        })
    }

    /// Waits for the next completion, which has to be of a success.
    fn next(&self) -> Result<Completion> {
        let mut into = [Completion::default()];
        let done = wait::for_some("a completion", || {
            Ok(self.cq.poll(&mut into).first().copied())
        })?;
        Ok(*done.check()?)
    }

    fn event(&self, expected: AsyncEvent) -> Result<()> {
        let fd = self.context.async_fd().context("no descriptor of events")?;
        wait::readable(fd, "an event")?;
        let found = self
            .context
            .async_event()?
            .context("readable, and no event")?;
        ensure!(found == expected, "{found}, expected {expected}");
        Ok(())
    }
}

fn start(home: &Home) -> Result<Qp<Rts, Ud>> {
    let qp = Qp::new(&home.pd, &QpOptions::ud(&home.cq, &home.cq))?;
    Ok(qp.init(KEY)?.rtr()?.rts()?)
}

/// Each CQ is bound to the EQ of its vector.
pub(super) fn vectors_by_the_library(_: &Setup) -> Result<()> {
    let context = Device::first()?.open()?;
    for vector in 0..context.attributes().vectors {
        let cq = Cq::new(&context, &CqOptions::new(16).vector(vector))?;
        let bound = vector_of_cq(0, cq.number().raw())?;
        ensure!(bound == vector, "vector {vector}: bound to {bound}");
    }
    Ok(())
}

/// Datagrams of all forms between two files; one with another Q_Key is dropped.
pub(super) fn datagrams_by_the_library(setup: &Setup) -> Result<()> {
    let mut rng = setup.rng();
    let (near, far) = (Home::new()?, Home::new()?);
    let (from, to) = (start(&near)?, start(&far)?);
    let ah = Ah::own(&near.pd)?;
    let gid = near.context.gid(0)?;
    ensure!(gid == ah.gid(), "{gid:x?} and {:x?}", ah.gid());
    let same = Ah::new(&near.pd, Address::Gid { gid, source: 0 })?;
    drop(ah);
    let before = near.context.counters()?;
    for round in 0..200 {
        let bytes = rng.usize(..=4096);
        let data: Vec<u8> = (0..bytes).map(|_| rng.u8(..)).collect();
        near.mr.write(0, &data);
        let room = [far.mr.sge(THERE, GRH_BYTES + bytes)];
        to.post_recv(&[Receive::new(1, &room)])?;
        let there = same.to(to.number(), KEY);
        let pieces = [
            near.mr.sge(0, bytes / 3),
            near.mr.sge(bytes / 3, bytes - bytes / 3),
        ];
        let datagram = match bytes {
            0..=192 => Datagram::send_inline(2, there, &data),
            _ => Datagram::send(2, there, &pieces),
        };
        let wrong = Datagram::send_inline(3, same.to(to.number(), KEY + 1), b"dropped");
        from.post_send(&[wrong, datagram.imm(round).signaled()])?;
        let done = far.next().context("the receive")?;
        ensure!(
            (done.src(), done.imm()) == (Some(from.number()), Some(round))
                && done.bytes() as usize == GRH_BYTES + bytes,
            "{done:?} of {bytes} bytes from {}",
            from.number()
        );
        let mut found = vec![0; bytes];
        far.mr.read(THERE + GRH_BYTES, &mut found);
        ensure!(found == data, "{bytes} bytes differ");
        let done = near.next().context("the datagram")?;
        ensure!(done.id() == 2, "{done:?}");
    }
    let counted = near.context.counters()?.since(&before);
    let dropped = counted.get(Counter::Dropped);
    ensure!(dropped == 200, "{dropped} drops");
    ensure!(near.context.async_event()?.is_none(), "an event");
    Ok(())
}

const DEPTH: u32 = 8;
/// Bytes of a shared receive.
const PART: usize = 256;

/// Fills the queue with receives, each into its part of the memory; returns how many there was room
/// for.
fn fill(home: &Home, srq: &Srq) -> Result<u32> {
    let room = srq.recv_room();
    for at in 0..room {
        let piece = [home.mr.sge(THERE + at as usize * PART, PART)];
        srq.queue_recv(&Receive::new(at.into(), &piece))?;
    }
    srq.ring();
    Ok(room)
}

/// Queue pairs of RC and UD on one SRQ: its receives, its limit, a queue pair that fails, and one
/// that is reset with unread completions.
pub(super) fn shared_receives_by_the_library(setup: &Setup) -> Result<()> {
    let mut rng = setup.rng();
    let home = Home::new()?;
    let others = Home::new()?;
    let counted = home.context.counters()?;
    let srq = Srq::new(&home.pd, &SrqOptions::new(DEPTH))?;
    let options = QpOptions::new(&home.cq, &home.cq).srq(&srq);
    let mut lanes = Vec::new();
    for _ in 0..3 {
        let near = QpOptions::new(&others.cq, &others.cq);
        let (near, far) = (Qp::new(&others.pd, &near)?, Qp::new(&home.pd, &options)?);
        let numbers = (near.number(), far.number());
        let near = near.init(Access::NONE)?.rtr(numbers.1)?.rts()?;
        let far = far.init(Access::NONE)?.rtr(numbers.0)?.rts()?;
        lanes.push((near, far));
    }
    let ud = QpOptions::ud(&home.cq, &home.cq).srq(&srq);
    let ud: Qp<Rts, Ud, SharedReceives> = Qp::new(&home.pd, &ud)?.init(KEY)?.rtr()?.rts()?;
    let ah = Ah::own(&home.pd)?;

    ensure!(fill(&home, &srq)? == DEPTH, "a new queue is not empty");
    for round in 0..400 {
        let data: Vec<u8> = (0..rng.usize(1..64)).map(|_| rng.u8(..)).collect();
        let header = if rng.bool() {
            let at = rng.usize(..lanes.len());
            let request = WorkRequest::send_inline(round, &data).signaled();
            lanes[at].0.post_send(&[request])?;
            others.next().context("the SEND")?;
            0
        } else {
            let to = ah.to(ud.number(), KEY);
            ud.post_send(&[Datagram::send_inline(round, to, &data)])?;
            GRH_BYTES
        };
        let done = loop {
            let done = home.next().context("the receive")?;
            if done.is_receive() {
                break done;
            }
        };
        let at = THERE + done.id() as usize * PART + header;
        let mut found = vec![0; data.len()];
        home.mr.read(at, &mut found);
        ensure!(found == data, "round {round}: {done:?}");
        let piece = [home.mr.sge(at - header, PART)];
        srq.post_recv(&[Receive::new(done.id(), &piece)])?;
    }

    srq.set_limit(DEPTH)?;
    ensure!(srq.limit()? == DEPTH, "the limit");
    let send = [WorkRequest::send_inline(1, b"below").signaled()];
    lanes[0].0.post_send(&send)?;
    home.event(AsyncEvent::SrqLimit(srq.number()))?;
    ensure!(srq.limit()? == 0, "it is still armed");
    lanes[1].1.flush()?;
    home.event(AsyncEvent::LastReceive(lanes[1].1.number()))?;

    // The completion of `lanes[0]` is unread when its queue pair goes.
    others.next().context("the SEND")?;
    drop(lanes);
    ensure!(srq.recv_room() == 0, "a slot of an unread completion");
    let mut into = [Completion::default(); 4];
    let came = home.cq.poll(&mut into);
    ensure!(came.iter().all(|done| !done.is_receive()), "{came:?}");
    ensure!(fill(&home, &srq)? == 1, "the slot has not come back");
    drop((ud, srq));
    ensure!(home.context.async_event()?.is_none(), "an event");
    let counted = home.context.counters()?.since(&counted);
    for which in [Counter::Violations, Counter::CqOverruns, Counter::DmaFaults] {
        ensure!(counted.get(which) == 0, "{}", which.text());
    }
    Ok(())
}
