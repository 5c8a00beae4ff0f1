// SPDX-License-Identifier: GPL-2.0
//! Channels: a process sleeps on one until a completion queue has an event.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::event::{eventfd, EventfdFlags, Timespec};
use rustix::io::{read, Errno};
use rustix::time::{
    timerfd_create, timerfd_settime, Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags,
};

use crate::error::Error;

/// Receives the events of completion queues.
///
/// The kernel adds each event to an eventfd; [`wait`](Self::wait) sleeps in an edge-triggered epoll
/// on it. So the eventfd need not be read, which saves a system call for each wake-up.
///
/// A program with its own event loop waits for [`as_fd`](AsFd::as_fd), the epoll's descriptor, with
/// poll, epoll or io_uring, and takes the events by [`wait`](Self::wait) with a zero timeout.
#[derive(Clone, Debug)]
pub struct Channel {
    fds: Arc<Fds>,
}

#[derive(Debug)]
struct Fds {
    events: OwnedFd,
    epoll: OwnedFd,
    ticks: Option<OwnedFd>,
}

/// Keys of the descriptors in the epoll.
const EVENTS: u64 = 0;
const TICKS: u64 = 1;

impl Channel {
    /// Creates a channel, on which a wait has no end but its timeout.
    pub fn new() -> Result<Self, Error> {
        Self::made(None)
    }

    /// Creates one with a periodic timer, so that a wait ends after `every` at the latest. For
    /// programs that check other conditions now and then: a timeout of [`wait`](Self::wait) starts
    /// and stops a timer each time. If several threads wait, each tick ends the wait of one.
    pub fn ticking(every: Duration) -> Result<Self, Error> {
        Self::made(Some(every))
    }

    fn made(every: Option<Duration>) -> Result<Self, Error> {
        let events = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(Error::kernel("make an eventfd"))?;
        let refused = Error::kernel("make an epoll");
        let epoll = epoll::create(CreateFlags::CLOEXEC).map_err(&refused)?;
        let edges = EventFlags::IN | EventFlags::ET;
        epoll::add(&epoll, &events, EventData::new_u64(EVENTS), edges).map_err(&refused)?;
        let ticks = every.map(timer).transpose()?;
        if let Some(ticks) = &ticks {
            let data = EventData::new_u64(TICKS);
            epoll::add(&epoll, ticks, data, EventFlags::IN).map_err(&refused)?;
        }
        Ok(Self {
            fds: Arc::new(Fds {
                events,
                epoll,
                ticks,
            }),
        })
    }

    /// Waits for an event since the last wait, and takes all of them; false on timeout, on a
    /// [tick](Self::ticking) or on a signal. A tick that comes with an event is not reported, so a
    /// caller that always finds events must look at the clock itself.
    pub fn wait(&self, timeout: Option<Duration>) -> Result<bool, Error> {
        let timeout = timeout.map(timespec);
        let mut told = [epoll::Event {
            flags: EventFlags::empty(),
            data: EventData::new_u64(TICKS),
        }; 2];
        match epoll::wait(&self.fds.epoll, &mut told, timeout.as_ref()) {
            Ok(count) => {
                let told = &told[..count];
                let has = |what| told.iter().any(|event| event.data.u64() == what);
                if let Some(ticks) = self.fds.ticks.as_ref().filter(|_| has(TICKS)) {
                    // Reading the timer rearms it in the epoll. Another thread may have read it.
                    let _: Result<usize, Errno> = read(ticks, &mut [0; 8]);
                }
                Ok(has(EVENTS))
            }
            // The caller checks its other conditions, and waits again.
            Err(Errno::INTR) => Ok(false),
            Err(errno) => Err(Error::kernel("wait for events")(errno)),
        }
    }

    /// The eventfd to which the kernel adds events.
    pub(crate) fn eventfd(&self) -> BorrowedFd<'_> {
        self.fds.events.as_fd()
    }
}

impl AsFd for Channel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fds.epoll.as_fd()
    }
}

/// A timer that expires every `every`, from now on.
fn timer(every: Duration) -> Result<OwnedFd, Error> {
    let refused = Error::kernel("make a timer");
    let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
    let timer = timerfd_create(TimerfdClockId::Monotonic, flags).map_err(&refused)?;
    // A period of zero would disarm it.
    let every = timespec(every.max(Duration::from_nanos(1)));
    let ticks = Itimerspec {
        it_interval: every,
        it_value: every,
    };
    timerfd_settime(&timer, TimerfdTimerFlags::empty(), &ticks).map_err(&refused)?;
    Ok(timer)
}

/// A time for system calls.
pub(crate) fn timespec(time: Duration) -> Timespec {
    Timespec {
        tv_sec: time.as_secs().try_into().unwrap_or(i64::MAX),
        tv_nsec: time.subsec_nanos().into(),
    }
}

#[cfg(test)]
mod tests {
    use super::{AsFd, Channel, Duration, Errno};
    use rustix::fs::{fcntl_getfl, OFlags};
    use rustix::io::{fcntl_getfd, write, FdFlags};

    fn event(channel: &Channel) -> Result<usize, Errno> {
        write(channel.eventfd(), &1u64.to_ne_bytes())
    }

    /// A wait without a timeout: without a tick, the test runs into its time limit.
    #[test]
    fn each_tick_ends_a_wait() {
        let channel = Channel::ticking(Duration::from_millis(1)).unwrap();
        for _ in 0..3 {
            assert!(!channel.wait(None).unwrap(), "nothing came");
        }
        // The shortest period.
        let channel = Channel::ticking(Duration::ZERO).unwrap();
        assert!(!channel.wait(None).unwrap());
    }

    #[test]
    fn a_tick_takes_no_event() {
        let channel = Channel::ticking(Duration::from_millis(1)).unwrap();
        for _ in 0..50 {
            event(&channel).unwrap();
            // A tick may be reported first, or with the event.
            while !channel.wait(None).unwrap() {}
            assert!(!channel.wait(Some(Duration::ZERO)).unwrap(), "taken");
        }
    }
    #[test]
    fn its_files_neither_block_nor_outlive_an_exec() {
        let channel = Channel::ticking(Duration::from_millis(1)).unwrap();
        let ticks = channel.fds.ticks.as_ref().unwrap();
        for fd in [channel.eventfd(), ticks.as_fd()] {
            assert!(fcntl_getfl(fd).unwrap().contains(OFlags::NONBLOCK));
        }
        for fd in [channel.eventfd(), ticks.as_fd(), channel.as_fd()] {
            assert!(fcntl_getfd(fd).unwrap().contains(FdFlags::CLOEXEC));
        }
    }
}
