// SPDX-License-Identifier: GPL-2.0
//! Completion queues of a context.

use std::os::fd::AsFd;
use std::os::fd::AsRawFd;
use std::os::fd::BorrowedFd;
use std::os::fd::FromRawFd;
use std::os::fd::OwnedFd;
use std::sync::atomic::fence;
use std::sync::atomic::Ordering;
use std::sync::Arc;

use anyhow::bail;
use anyhow::Context as _;
use anyhow::Result;
use nix::errno::Errno;
use qpair_abi::doorbell;
use qpair_abi::entry::Cqe;
use qpair_abi::entry::OWNER;

use super::args::CqArg;
use super::args::Kind;
use super::context::Context;
use super::memory::Buffer;
use super::shown;
use super::shown::CqNow;
use crate::wait;

pub(crate) struct Cq {
    ctx: Arc<Context>,
    ring: Buffer,
    eventfd: Option<OwnedFd>,
    /// Its handle, for commands.
    pub(crate) handle: u32,
    /// Its number, for doorbells.
    pub(crate) number: u32,
    pub(crate) depth: u32,
    /// Index of the next entry to read.
    pub(crate) head: u32,
}

impl Cq {
    /// Creates one on vector 0, with an eventfd.
    pub(crate) fn new(ctx: &Arc<Context>, depth: u32) -> Result<Self> {
        Self::on(ctx, depth, 0)
    }

    /// Creates one on a vector, with an eventfd.
    pub(crate) fn on(ctx: &Arc<Context>, depth: u32, vector: u32) -> Result<Self> {
        let ring = Buffer::new(depth.next_power_of_two() as usize * Cqe::BYTES)?;
        Self::in_buffer(ctx, depth, vector, ring, Some(eventfd()?)).context("CREATE_CQ")
    }

    /// Creates one in a buffer, which it keeps.
    pub(crate) fn in_buffer(
        ctx: &Arc<Context>,
        depth: u32,
        vector: u32,
        ring: Buffer,
        eventfd: Option<OwnedFd>,
    ) -> Result<Self, Errno> {
        let mut arg = CqArg::new(ring.addr(), ring.bytes() as u64, depth);
        arg.core.comp_vector = vector;
        if let Some(eventfd) = &eventfd {
            arg.driver.eventfd = eventfd.as_raw_fd();
        }
        let made = ctx.create_cq(&arg)?;
        Ok(Self {
            ctx: ctx.clone(),
            ring,
            eventfd,
            handle: made.core.cq_handle,
            number: made.driver.number,
            depth: made.driver.depth,
            head: 0,
        })
    }

    pub(crate) fn context(&self) -> &Arc<Context> {
        &self.ctx
    }

    /// Its handle in events.
    pub(crate) fn element(&self) -> u64 {
        self.ring.addr()
    }

    /// Takes the next entry: owner word, barrier, body.
    pub(crate) fn poll(&mut self) -> Option<Cqe> {
        let at = (self.head & (self.depth - 1)) as usize * Cqe::BYTES;
        let last = self.ring.load(at + 24);
        let pass = self.head & self.depth != 0;
        if (last & OWNER != 0) == pass {
            return None;
        }
        fence(Ordering::Acquire);
        let words = [
            self.ring.load(at),
            self.ring.load(at + 8),
            self.ring.load(at + 16),
            last & !OWNER,
        ];
        self.head = self.head.wrapping_add(1);
        Some(Cqe::decode(&words))
    }

    /// Waits for the next entry by polling, and publishes the head past it.
    pub(crate) fn take(&mut self) -> Result<Cqe> {
        let entry = wait::for_some("a completion", || Ok(self.poll()))?;
        self.publish();
        Ok(entry)
    }

    /// Frees the slots before the head.
    pub(crate) fn publish(&self) {
        self.ctx
            .page
            .ring(doorbell::CQ_HEAD, self.number, self.head);
    }

    /// Arms for any completion past the head.
    pub(crate) fn arm(&self) {
        self.ctx
            .page
            .ring(doorbell::CQ_ARM_NEXT, self.number, self.head);
    }

    /// Arms for a solicited or failed completion past the head.
    pub(crate) fn arm_solicited(&self) {
        self.ctx
            .page
            .ring(doorbell::CQ_ARM_SOLICITED, self.number, self.head);
    }

    /// Notifies for any completion, or for a solicited or failed one, that is written from now on.
    pub(crate) fn notify(&self, solicited: bool) {
        let place = match solicited {
            true => doorbell::CQ_NOTIFY_SOLICITED,
            false => doorbell::CQ_NOTIFY,
        };
        self.ctx.page.ring(place, self.number, 0);
        fence(Ordering::SeqCst);
    }

    /// Reads the number of signaled events; 0 if there was none.
    pub(crate) fn events(&self) -> Result<u64> {
        let Some(fd) = &self.eventfd else {
            bail!("no eventfd")
        };
        let mut count = [0; 8];
        match nix::unistd::read(fd, &mut count) {
            Ok(8) => Ok(u64::from_ne_bytes(count)),
            Ok(n) => bail!("an eventfd gave {n} bytes"),
            Err(Errno::EAGAIN) => Ok(0),
            Err(error) => Err(error).context("read of an eventfd"),
        }
    }

    /// The eventfd, to wait on.
    pub(crate) fn eventfd(&self) -> Option<BorrowedFd<'_>> {
        self.eventfd.as_ref().map(AsFd::as_fd)
    }

    /// Arms and waits for the event; the entries are still there afterwards.
    pub(crate) fn wait_event(&self) -> Result<()> {
        let Some(fd) = self.eventfd() else {
            bail!("no eventfd")
        };
        self.arm();
        wait::readable(fd, "a completion event")?;
        self.events().map(drop)
    }

    pub(crate) fn query(&self) -> Result<CqNow, Errno> {
        shown::cq(&self.ctx, self.number)
    }

    pub(crate) fn destroy(&self) -> Result<(), Errno> {
        self.ctx.destroy(Kind::Cq, self.handle)
    }
}

/// A new eventfd, non-blocking.
fn eventfd() -> Result<OwnedFd> {
    // SAFETY: no pointers.
    let fd = unsafe { libc::eventfd(0, libc::EFD_NONBLOCK | libc::EFD_CLOEXEC) };
    Errno::result(fd).context("eventfd")?;
    // SAFETY: just created, and not owned elsewhere.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}
