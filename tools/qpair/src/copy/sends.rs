// SPDX-License-Identifier: GPL-2.0
//! A copy by SEND: the blocks are messages between endpoints of this process.
//!
//! Block `n` goes by pair `n % pairs`. Those of a pair arrive in order, so the far ends are read in
//! turn.

use std::os::fd::AsFd as _;
use std::os::unix::net::UnixStream;
use std::thread;
use std::time::Duration;

use anyhow::Context as _;
use indicatif::ProgressBar;
use qpair::{Context, Endpoint, EndpointError, EndpointOptions};
use rustix::event::{poll, PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use sha2::{Digest as _, Sha256};

use super::{compared, Moved};
use crate::args::{Copy, Wait};
use crate::files::{Destination, Source};
use crate::session::{Session, LOOK};

/// Bytes of messages to the near end: there are none.
const NONE: u32 = 8;

pub(super) struct Engine {
    pairs: Vec<(Endpoint, Endpoint)>,
    /// The block that is filled from the source, and the one that arrives.
    block: Vec<u8>,
    into: Vec<u8>,
    wait: Wait,
    /// Blocks sent, submitted, and written.
    sent: u64,
    handed: u64,
    written: u64,
    /// Submit when this many wait.
    batch: u64,
    pub(super) session: Session,
}

impl Engine {
    pub(super) fn new(context: Context, args: &Copy) -> anyhow::Result<Self> {
        let near = EndpointOptions::new()
            .message(NONE)
            .max_send(args.block)
            .depth(args.depth)
            .backlog(0)
            .direct(0, 0)
            .timeout(Duration::from_secs(args.wait.stall_limit.into()));
        let far = near.clone().message(args.block).max_send(NONE);
        let pairs = (0..args.qps).map(|_| connect(&context, &near, &far));
        let pairs = pairs.collect::<anyhow::Result<_>>()?;
        // The endpoints have completion queues of their own.
        let polls = Wait {
            events: false,
            ..args.wait
        };
        Ok(Self {
            pairs,
            block: vec![0; args.block as usize],
            into: vec![0; args.block as usize],
            wait: args.wait,
            sent: 0,
            handed: 0,
            written: 0,
            batch: u64::from(args.qps) * u64::from((args.depth / 4).max(1)),
            session: Session::new(context, 1, polls)?,
        })
    }

    fn pair(&mut self, block: u64) -> &mut (Endpoint, Endpoint) {
        let at = block % self.pairs.len() as u64;
        &mut self.pairs[at as usize]
    }

    pub(super) fn copy(
        &mut self,
        mut source: Source,
        mut destination: Destination,
        progress: &ProgressBar,
    ) -> anyhow::Result<Moved> {
        let (mut read, mut written) = (Sha256::new(), Sha256::new());
        let (mut bytes, mut filled) = (0, 0);
        let mut ended = false;
        while !ended || filled > 0 || self.written < self.sent {
            let is_empty = self.written == self.sent;
            let mut news = false;
            let mut is_slow = false;
            if !ended && filled < self.block.len() {
                // Wait for it only if there is nothing else to do.
                let is_idle = is_empty && filled == 0;
                if source.is_ready(if is_idle { LOOK } else { Duration::ZERO })? {
                    let came = source.read(&mut self.block[filled..])?;
                    read.update(&self.block[filled..filled + came]);
                    filled += came;
                    ended = came == 0;
                    news = true;
                } else {
                    is_slow = is_empty;
                }
            }
            // If the source is slow, what was read so far.
            if filled > 0 && (filled == self.block.len() || ended || is_slow) {
                let block = std::mem::take(&mut self.block);
                let queued = self.pair(self.sent).0.queue(&block[..filled]);
                self.block = block;
                if queued?.is_some() {
                    self.sent += 1;
                    filled = 0;
                    news = true;
                }
            }
            if self.sent - self.handed >= self.batch || !news {
                for (near, _) in &mut self.pairs {
                    near.flush()?;
                }
                self.handed = self.sent;
            }
            let begin = bytes;
            while self.written < self.sent {
                let mut into = std::mem::take(&mut self.into);
                let came = self.pair(self.written).1.try_recv(&mut into);
                self.into = into;
                let Some(came) = came? else {
                    break;
                };
                written.update(&self.into[..came]);
                destination.write(&self.into[..came])?;
                bytes += came as u64;
                self.written += 1;
                news = true;
            }
            progress.inc(bytes - begin);
            self.session.check_signals()?;
            if news || is_slow {
                self.session.rest();
            } else {
                self.pause()?;
            }
        }
        let digest = compared(read, written)?;
        destination.finish();
        Ok(Moved {
            bytes,
            blocks: self.sent,
            digest,
        })
    }

    /// Called when nothing came: takes acknowledgements, or sleeps until something comes.
    fn pause(&mut self) -> anyhow::Result<()> {
        let mut news = false;
        for (near, far) in &mut self.pairs {
            news |= near.progress()?;
            if self.wait.events {
                near.arm()?;
                far.arm()?;
            }
        }
        if news {
            self.session.rest();
            return Ok(());
        }
        if !self.wait.events {
            return self.session.pause();
        }
        let ends = self.pairs.iter().flat_map(|(near, far)| [near, far]);
        let mut fds: Vec<_> = ends
            .map(|end| PollFd::from_borrowed_fd(end.as_fd(), PollFlags::IN))
            .collect();
        let time = Timespec::try_from(LOOK).context("an interval without end")?;
        let woken = match poll(&mut fds, Some(&time)) {
            Ok(0) | Err(Errno::INTR) => false,
            Ok(_) => true,
            Err(errno) => return Err(errno).context("cannot wait for the endpoints"),
        };
        if !woken {
            return self.session.look();
        }
        self.session.events += 1;
        for (near, far) in &mut self.pairs {
            near.woken()?;
            far.woken()?;
        }
        Ok(())
    }
}

fn connect(
    context: &Context,
    near: &EndpointOptions,
    far: &EndpointOptions,
) -> anyhow::Result<(Endpoint, Endpoint)> {
    let (here, there) = UnixStream::pair().context("cannot make a pair of sockets")?;
    thread::scope(|scope| {
        let far = scope.spawn(|| Endpoint::connect(context, far, there));
        let near = Endpoint::connect(context, near, here);
        let far: Result<Endpoint, EndpointError> = match far.join() {
            Ok(far) => far,
            Err(panic) => std::panic::resume_unwind(panic),
        };
        // If one of them failed, that is the cause of both.
        let far = far.map_err(|error| if error.is_gone() { None } else { Some(error) });
        match (near, far) {
            (Ok(near), Ok(far)) => Ok((near, far)),
            (_, Err(Some(error))) => Err(error.into()),
            (Err(error), _) => Err(error.into()),
            (Ok(_), Err(None)) => Err(EndpointError::Gone.into()),
        }
    })
}
