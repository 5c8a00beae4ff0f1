// SPDX-License-Identifier: GPL-2.0
//! Asynchronous events, against a model: one for each failure that no completion reports, of its
//! kind, and none of an object that is gone.

use std::collections::BTreeSet;
use std::sync::Arc;

use anyhow::ensure;
use anyhow::Context as _;
use anyhow::Result;
use qpair_abi::entry::opcode;
use qpair_uverbs::abi::event;
use qpair_uverbs::abi::qp_state;

use crate::ktap::Setup;
use crate::raw::Buffer;
use crate::raw::Context;
use crate::raw::Cq;
use crate::raw::Kind;
use crate::raw::Pd;
use crate::raw::Qp;
use crate::raw::QpShape;
use crate::raw::Wqe;
use crate::wait;

/// A queue pair connected to itself, and its CQ.
struct Loop {
    qp: Qp,
    cq: Cq,
    /// The CQ has been overrun.
    dead: bool,
    /// Events of the queue pair and of the CQ that were read.
    read: [u32; 2],
}

impl Loop {
    fn new(pd: &Pd, ctx: &Arc<Context>) -> Result<Self> {
        let cq = Cq::in_buffer(ctx, 4, 0, Buffer::new(4096)?, None)?;
        let shape = QpShape {
            sq_blocks: 256,
            ..Default::default()
        };
        let qp = Qp::new(pd, &cq, &cq, shape)?;
        qp.connect(qp.number)?;
        Ok(Self {
            qp,
            cq,
            dead: false,
            read: [0; 2],
        })
    }

    /// Its events, as the model has them: those of the queue pair, then that of the CQ.
    fn events(&self) -> [(u32, u64); 4] {
        let of_qp = |kind| (kind, self.qp.element());
        [
            of_qp(event::QP_FATAL),
            of_qp(event::QP_ACCESS_ERR),
            of_qp(event::QP_REQ_ERR),
            (event::CQ_ERR, self.cq.element()),
        ]
    }

    fn works(&self) -> Result<bool> {
        Ok(self.qp.state()? == qp_state::RTS)
    }

    /// Waits until the queue pair has failed.
    fn has_failed(&self) -> Result<()> {
        wait::until("the error state", || Ok(self.qp.state()? == qp_state::ERR))
    }
}

/// Random failures, reads, resets and destroys. An event of the same object is not caused again
/// before the first was read, as the device may count it in that.
pub(super) fn asynchronous_events(setup: &Setup) -> Result<()> {
    const LOOPS: usize = 4;
    const STEPS: u32 = 400;
    let mut rng = setup.rng();
    let ctx = Context::open(0)?;
    let pd = Pd::new(&ctx)?;
    let mut loops = Vec::new();
    for _ in 0..LOOPS {
        loops.push(Loop::new(&pd, &ctx)?);
    }
    let mut unread = BTreeSet::new();
    for step in 0..STEPS {
        let chosen = rng.usize(0..LOOPS);
        let it = &mut loops[chosen];
        let of_it = it.events();
        let [fatal, access, request, of_cq] = of_it;
        let waits = of_it.iter().any(|event| unread.contains(event));
        let may_fail = !it.dead && it.works()? && !waits;
        match rng.u8(0..8) {
            0 | 1 if may_fail => {
                // It is its own peer. A completion alone reports the first of these.
                let (wqe, event) = match rng.u8(0..3) {
                    0 => (Wqe::new(99, 0), None),
                    1 => (Wqe::write(0, 0, 0).inline(b"x"), Some(access)),
                    _ => (Wqe::fetch_add(0, 1, 0, 1).sge(0, 8, 0), Some(request)),
                };
                it.qp.post(&wqe);
                unread.extend(event);
                it.has_failed()?;
                while it.cq.poll().is_some() {}
                it.cq.publish();
            }
            2 if may_fail => {
                for number in 0..=u64::from(it.cq.depth) {
                    it.qp.put(&Wqe::new(opcode::NOP, number));
                }
                it.qp.ring_sq();
                unread.extend([fatal, of_cq]);
                it.dead = true;
                it.has_failed()?;
            }
            3..=5 => read(&ctx, &mut unread, &mut loops).with_context(|| format!("step {step}"))?,
            6 if !it.dead => {
                it.qp.reset()?;
                it.qp.connect(it.qp.number)?;
            }
            7 => {
                let qp = ctx.destroy_counting(Kind::Qp, it.qp.handle)?;
                let cq = ctx.destroy_counting(Kind::Cq, it.cq.handle)?;
                ensure!(
                    [qp, cq] == it.read,
                    "step {step}: {:?} were read, [{qp}, {cq}] reported",
                    it.read
                );
                unread.retain(|event| !of_it.contains(event));
                *it = Loop::new(&pd, &ctx)?;
            }
            _ => {}
        }
    }
    while !unread.is_empty() {
        read(&ctx, &mut unread, &mut loops)?;
    }
    // Events are in order: if there was one too many, it comes before this.
    loops.push(Loop::new(&pd, &ctx)?);
    let last = &mut loops[LOOPS];
    last.qp.post(&Wqe::write(0, 0, 0).inline(b"x"));
    unread.insert(last.events()[1]);
    read(&ctx, &mut unread, &mut loops)?;
    read(&ctx, &mut unread, &mut loops)
}

/// Reads an event, which must be one of the model's; if the model has none, there must be none.
fn read(ctx: &Context, unread: &mut BTreeSet<(u32, u64)>, loops: &mut [Loop]) -> Result<()> {
    if unread.is_empty() {
        let event = ctx.async_event()?;
        ensure!(event.is_none(), "{event:?}, and nothing has failed");
        return Ok(());
    }
    let event = wait::for_some("an event", || Ok(ctx.async_event()?))?;
    let key = (event.kind, event.element);
    ensure!(unread.remove(&key), "{event:?} is none of {unread:?}");
    for it in loops {
        let [of_qp @ .., of_cq] = it.events();
        it.read[0] += u32::from(of_qp.contains(&key));
        it.read[1] += u32::from(of_cq == key);
    }
    Ok(())
}
