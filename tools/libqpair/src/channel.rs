// SPDX-License-Identifier: GPL-2.0
//! Channels: where a process sleeps until a completion queue has something for it.

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
    ticks: Option<OwnedFd>,
}

/// What the epoll tells of its descriptors.
const EVENTS: u64 = 0;
const TICKS: u64 = 1;

impl Channel {
    /// Makes one.
    pub fn new() -> Result<Self, Error> {
        Self::made(None)
    }

    /// Makes one whose wait ends after `every` at the latest, with a timer of its own. It is for who wants to look around now
    /// and then: a limit of a [`wait`](Self::wait) starts a timer and stops it, each time. Where several threads wait,
    /// each tick ends the wait of one of them.
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

    /// Waits until there was an event since the last wait, and takes all that there were; false if the time ran out, there
    /// was a [tick](Self::ticking), or a signal came. A tick that comes with an event is not told of: who always finds events
    /// has to look at a clock of his own.
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
                    // The timer goes on when it is read. Another thread may have done it.
                    let _: Result<usize, Errno> = read(ticks, &mut [0; 8]);
                }
                Ok(has(EVENTS))
            }
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

/// What ticks.
fn timer(every: Duration) -> Result<OwnedFd, Error> {
    let refused = Error::kernel("make a timer");
    let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
    let timer = timerfd_create(TimerfdClockId::Monotonic, flags).map_err(&refused)?;
    // None at all would stop it.
    let every = timespec(every.max(Duration::from_nanos(1)));
    let ticks = Itimerspec {
        it_interval: every,
        it_value: every,
    };
    timerfd_settime(&timer, TimerfdTimerFlags::empty(), &ticks).map_err(&refused)?;
    Ok(timer)
}

fn timespec(time: Duration) -> Timespec {
    Timespec {
        tv_sec: time.as_secs().try_into().unwrap_or(i64::MAX),
        tv_nsec: time.subsec_nanos().into(),
    }
}

#[cfg(test)]
mod tests {
    use super::{Channel, Duration, Errno};
    use rustix::io::write;

    fn event(channel: &Channel) -> Result<usize, Errno> {
        write(channel.eventfd(), &1u64.to_ne_bytes())
    }

    /// A wait without a limit: were there no tick, the tests would end by their time limit.
    #[test]
    fn each_tick_ends_a_wait() {
        let channel = Channel::ticking(Duration::from_millis(1)).unwrap();
        for _ in 0..3 {
            assert!(!channel.wait(None).unwrap(), "nothing came");
        }
        // The shortest there is.
        let channel = Channel::ticking(Duration::ZERO).unwrap();
        assert!(!channel.wait(None).unwrap());
    }

    #[test]
    fn a_tick_takes_no_event() {
        let channel = Channel::ticking(Duration::from_millis(1)).unwrap();
        for _ in 0..50 {
            event(&channel).unwrap();
            // A tick may be told first, or with it.
            while !channel.wait(None).unwrap() {}
            assert!(!channel.wait(Some(Duration::ZERO)).unwrap(), "taken");
        }
    }
}
