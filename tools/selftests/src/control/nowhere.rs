// SPDX-License-Identifier: GPL-2.0
//! Answers that cannot be written back.

use anyhow::ensure;
use anyhow::Context as _;
use anyhow::Result;
use nix::errno::Errno;
use qpair_abi::uverbs::qpair_ureq_create_qp;
use qpair_uverbs::abi::*;
use qpair_uverbs::Command;

use super::fails;
use crate::host::Host;
use crate::ktap::Setup;
use crate::pair::works;
use crate::pair::Peer;
use crate::raw::change;
use crate::raw::page_size;
use crate::raw::region;
use crate::raw::Buffer;
use crate::raw::Context;
use crate::raw::CqArg;
use crate::raw::Kind;
use crate::raw::QpArg;
use crate::raw::SrqArg;
use crate::world;
use crate::world::Baseline;

/// The state that a failed create must not change.
struct Nothing<'a> {
    ctx: &'a Context,
    /// A page that is only read.
    read_only: Buffer,
    host: Host,
    before: Baseline,
    charged: i64,
    objects: u64,
}

/// Bytes of an answer.
const ROOM: u16 = 64;

impl<'a> Nothing<'a> {
    fn new(ctx: &'a Context) -> Result<Self> {
        let mut host = Host::call()?;
        let read_only = Buffer::new(page_size())?;
        read_only.clear();
        read_only.protect(false)?;
        Ok(Self {
            ctx,
            read_only,
            before: Baseline::take()?,
            charged: world::charged_kib()?,
            objects: host.get(0, "objects")?,
            host,
        })
    }

    /// Runs a command that fails, since an answer cannot be written.
    fn fails(&self, what: &str, id: u16, command: Command<'_>) -> Result<()> {
        let command = command.part(id, ROOM, self.read_only.addr());
        fails(what, Errno::EFAULT, self.ctx.run(command))
    }

    /// The command fails, since the answer of core or driver cannot be written, and leaves nothing
    /// behind. `command` has all but that answer.
    fn stays_of<'c>(&mut self, what: &str, command: impl Fn(u16) -> Command<'c>) -> Result<()> {
        for id in [UVERBS_ATTR_CORE_OUT, UVERBS_ATTR_UHW_OUT] {
            let what = format!("{what}, answer {id:#x}");
            self.fails(&what, id, command(id))?;
            self.before.settled().with_context(|| what.clone())?;
            let now = (world::charged_kib()?, self.host.get(0, "objects")?);
            ensure!(
                now == (self.charged, self.objects),
                "{what}: KiB charged and objects of the device are {now:?}, were {:?}",
                (self.charged, self.objects)
            );
        }
        Ok(())
    }
}

/// The place for the other answer.
fn other<'c>(id: u16, command: Command<'c>, room: &Buffer) -> Command<'c> {
    let other = match id {
        UVERBS_ATTR_CORE_OUT => UVERBS_ATTR_UHW_OUT,
        _ => UVERBS_ATTR_CORE_OUT,
    };
    command.part(other, ROOM, room.addr())
}

/// If the answer to a create cannot be written back, the new object is destroyed.
pub(super) fn creates_without_a_result(setup: &Setup) -> Result<()> {
    let peer = Peer::new(&Context::open(0)?, 4096)?;
    let (rings, room) = (Buffer::new(4 * page_size())?, Buffer::new(page_size())?);
    let (at, bytes) = (rings.addr(), 8192);
    let pd = ib_uverbs_alloc_pd::default();
    let cq = CqArg::new(at, bytes, 256);
    let driver = qpair_ureq_create_qp {
        sq_buffer: at,
        sq_buffer_bytes: bytes,
        rq_buffer: at + bytes,
        rq_buffer_bytes: bytes,
        sq_blocks: 128,
        rq_depth: 128,
        ..Default::default()
    };
    let qp = QpArg::new(&peer.pd, (&peer.cq, &peer.cq), driver);
    let srq = SrqArg::new(&peer.pd, at, bytes, 128);
    let mr = region(&peer.pd, at, 2 * bytes, IB_UVERBS_ACCESS_LOCAL_WRITE);
    let mut nothing = Nothing::new(&peer.ctx)?;
    for _ in 0..3 {
        nothing.stays_of("ALLOC_PD", |id| {
            let command = Command::new(IB_USER_VERBS_CMD_ALLOC_PD).request(&pd);
            other(id, command, &room)
        })?;
        nothing.stays_of("CREATE_CQ", |id| {
            let command = Command::new(IB_USER_VERBS_CMD_CREATE_CQ).request(&cq.core);
            other(id, command.driver_request(&cq.driver), &room)
        })?;
        nothing.stays_of("CREATE_QP", |id| {
            let command = Command::new(IB_USER_VERBS_CMD_CREATE_QP).request(&qp.core);
            other(id, command.driver_request(&qp.driver), &room)
        })?;
        nothing.stays_of("CREATE_SRQ", |id| {
            let command = Command::new(IB_USER_VERBS_CMD_CREATE_SRQ).request(&srq.core);
            other(id, command.driver_request(&srq.driver), &room)
        })?;
        nothing.stays_of("REG_MR", |id| {
            let command = Command::new(IB_USER_VERBS_CMD_REG_MR).request(&mr);
            other(id, command, &room)
        })?;
    }
    peer.destroy().context("what they used")?;
    works(0, &mut setup.rng())
}

/// If its answer cannot be written back, MODIFY_QP has taken effect.
pub(super) fn calls_without_a_result(setup: &Setup) -> Result<()> {
    let peer = Peer::new(&Context::open(0)?, 4096)?;
    let room = Buffer::new(page_size())?;
    let nothing = Nothing::new(&peer.ctx)?;
    // Room for an answer that the driver does not have is cleared.
    let (request, pd) = (ib_uverbs_alloc_pd::default(), Buffer::new(page_size())?);
    room.write(0, &[0xff; 128]);
    let command = Command::new(IB_USER_VERBS_CMD_ALLOC_PD).request(&request);
    let command = command.part(UVERBS_ATTR_CORE_OUT, ROOM, pd.addr());
    peer.ctx
        .run(command.part(UVERBS_ATTR_UHW_OUT, 64, room.addr()))?;
    ensure!(
        room.read(0, 128) == [[0; 64], [0xff; 64]].concat(),
        "not cleared, or too much"
    );
    peer.ctx.destroy(Kind::Pd, pd.load(0) as u32)?;

    peer.qp.to(qp_state::INIT)?;
    let arg = ib_uverbs_modify_qp {
        qp_handle: peer.qp.handle,
        ..change(qp_state::INIT, qp_state::ERR)
    };
    let command = Command::new(IB_USER_VERBS_CMD_MODIFY_QP).request(&arg);
    nothing.fails("MODIFY_QP", UVERBS_ATTR_UHW_OUT, command)?;
    ensure!(peer.qp.state()? == qp_state::ERR, "it was not changed");
    nothing.before.settled()?;
    drop(nothing);
    peer.destroy()?;
    works(0, &mut setup.rng())
}
