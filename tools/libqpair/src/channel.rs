// SPDX-License-Identifier: GPL-2.0
//! Channels: where a process sleeps until a completion queue has something for it.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::event::{eventfd, EventfdFlags, Timespec};
use rustix::io::Errno;

use crate::error::Error;

/// Where the events of completion queues arrive.
///
/// The kernel adds each event to an eventfd; [`wait`](Self::wait) sleeps in an epoll that sees it edge by edge. So
/// nobody has to read the eventfd, which would be another system call for each wake-up.
///
/// Who has an event loop of his own waits for [`as_fd`](AsFd::as_fd), the epoll's descriptor, with poll, epoll or
/// io_uring, and takes what came with [`wait`](Self::wait) and no time.
#[derive(Clone, Debug)]
pub struct Channel {
    fds: Arc<Fds>,
}

#[derive(Debug)]
struct Fds {
    events: OwnedFd,
    epoll: OwnedFd,
}

impl Channel {
    /// Makes one.
    pub fn new() -> Result<Self, Error> {
        let events = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(Error::kernel("make an eventfd"))?;
        let refused = Error::kernel("make an epoll");
        let epoll = epoll::create(CreateFlags::CLOEXEC).map_err(&refused)?;
        let edges = EventFlags::IN | EventFlags::ET;
        epoll::add(&epoll, &events, EventData::new_u64(0), edges).map_err(&refused)?;
        Ok(Self {
            fds: Arc::new(Fds { events, epoll }),
        })
    }

    /// Waits until there was an event since the last wait, and takes all that there were; false if the time ran out, or a
    /// signal came.
    pub fn wait(&self, timeout: Option<Duration>) -> Result<bool, Error> {
        let timeout = timeout.map(|t| Timespec {
            tv_sec: t.as_secs().try_into().unwrap_or(i64::MAX),
            tv_nsec: t.subsec_nanos().into(),
        });
        let mut event = [epoll::Event {
            flags: EventFlags::empty(),
            data: EventData::new_u64(0),
        }];
        match epoll::wait(&self.fds.epoll, &mut event, timeout.as_ref()) {
            Ok(count) => Ok(count > 0),
            // Whoever waits looks around, and waits again.
            Err(Errno::INTR) => Ok(false),
            Err(errno) => Err(Error::kernel("wait for events")(errno)),
        }
    }

    /// What the kernel adds events to.
    pub(crate) fn eventfd(&self) -> BorrowedFd<'_> {
        self.fds.events.as_fd()
    }
}

impl AsFd for Channel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fds.epoll.as_fd()
    }
}
