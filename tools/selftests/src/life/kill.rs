// SPDX-License-Identifier: GPL-2.0
//! SIGKILL at any moment.

use anyhow::ensure;
use anyhow::Context as _;
use anyhow::Result;
use qpair_abi::status::Status;
use qpair_uverbs::abi::qp_state;

use crate::children::Child;
use crate::children::Link;
use crate::ktap::say;
use crate::ktap::Setup;
use crate::pair::Bystander;
use crate::pair::Peer;
use crate::raw::Context;
use crate::raw::Wqe;

/// A peer in another process, until it is killed.
fn other_side(link: &Link) -> Result<()> {
    let mut peer = Peer::new(&Context::open(0)?, 64 << 10)?;
    link.tell(u64::from(peer.qp.number))?;
    link.tell(peer.memory.addr())?;
    link.tell(u64::from(peer.mr.keys.rkey))?;
    for number in 0..64 {
        peer.qp.put_recv(number, &[]);
    }
    peer.qp.connect(link.hear()? as u32)?;
    peer.qp.ring_rq();
    link.tell(1)?;
    // Receives forever.
    loop {
        let Some(cqe) = peer.cq.poll() else { continue };
        peer.cq.publish();
        peer.qp.post_recv(cqe.wr_id, &[]);
    }
}

/// One of two connected processes is killed: the other gets error statuses, and continues with a
/// new peer.
pub(super) fn peer(setup: &Setup) -> Result<()> {
    let mut others = Bystander::new(0, setup.rng())?;
    let mut rng = setup.rng();
    let mut ours = Peer::new(&Context::open(0)?, 64 << 10)?;
    let mut cut_short = 0;
    for round in 0..30 {
        let place = || format!("round {round}");
        let mut child = Child::start(other_side)?;
        let (theirs, addr, key) = (
            child.link().hear()? as u32,
            child.link().hear()?,
            child.link().hear()? as u32,
        );
        ours.qp.connect(theirs).with_context(place)?;
        child.link().tell(u64::from(ours.qp.number))?;
        child.link().hear().with_context(place)?;
        // Messages without bytes and large writes, so that any of them may be interrupted.
        let mut next = 0;
        let mut dead = false;
        let kill_at = rng.u64(1..200);
        let mut outstanding = 0;
        loop {
            while outstanding < 60 && !dead {
                let wqe = match next % 4 {
                    0 => Wqe::send(next),
                    _ => ours.with(Wqe::write(next, addr, key), 0, 64 << 10),
                };
                ours.qp.post(&wqe);
                (next, outstanding) = (next + 1, outstanding + 1);
                if next == kill_at {
                    child.kill().with_context(place)?;
                    dead = true;
                }
            }
            if outstanding == 0 {
                break;
            }
            let cqe = ours.cq.take().with_context(place)?;
            outstanding -= 1;
            let status = Status::from_code(cqe.status);
            // The kernel may destroy its region before its queue pair or after it.
            let expected = match status {
                Some(Status::Success) => true,
                Some(
                    Status::RetryExceeded
                    | Status::RemoteAccess
                    | Status::Flush
                    | Status::RnrRetryExceeded,
                ) => {
                    cut_short += 1;
                    next >= kill_at
                }
                _ => false,
            };
            ensure!(expected, "{}: {cqe:?}", place());
        }
        // If all were completed, one more request fails because the peer is gone.
        if ours.qp.state()? == qp_state::RTS {
            ours.qp.post(&Wqe::write(9, addr, key).inline(b"x"));
            ours.ends(9, Status::RetryExceeded).with_context(place)?;
        }
        while ours.ctx.async_event()?.is_some() {}
        ours.qp.reset()?;
        while ours.cq.poll().is_some() {}
        ours.cq.publish();
    }
    say(&format!("{cut_short} requests were cut short"));
    others.unharmed()
}
