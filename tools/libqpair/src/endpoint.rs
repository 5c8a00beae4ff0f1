// SPDX-License-Identifier: GPL-2.0
//! Messages between two processes, which never meet an empty receive queue.
//!
//! An endpoint is a queue pair with its CQ, its buffers, and the credits of `flow`:
//!
//! ```text
//!        this side                                                  the peer
//!   send -> backlog -> buffers -> SQ ============ data ============> RQ -> held -> recv
//!             takes a local and a remote slot                          posted again, and owed
//!   local slot: back with the completion
//!   remote slot: back with <==== acknowledgement: 16 bits of data, 16 of acknowledgements ==== due
//!                                                  past half of the receives
//! ```
//!
//! The send queue has a slot for each message in flight, each acknowledgement, each READ and each
//! WRITE; the CQ one for each slot of both queues. So nothing here is ever full but the credits. A
//! message without a credit waits in the backlog, in order, and a full backlog is what the caller
//! sees: [`Endpoint::try_send`] returns `None`, [`Endpoint::send`] waits.
//!
//! A message stays in its receive until the caller takes it. The receive is posted again at once,
//! but the doorbell of receives is rung only with the acknowledgement that grants them.
//!
//! # Waiting
//!
//! [`Endpoint::send`], [`Endpoint::recv`] and the others block. A program with an event loop calls
//! the `try_` methods until they have nothing, then [`Endpoint::arm`], and waits until the
//! [descriptor](AsFd::as_fd) is readable; then [`Endpoint::woken`], and the `try_` methods again.
//! The feature `tokio` has [`AsyncEndpoint`](crate::AsyncEndpoint), which does that.
//!
//! Two programs that both send and never receive wait for each other, as on a socket.
//!
//! # The end
//!
//! [`Endpoint::close`] waits until all is delivered. A peer that ends without it is
//! [gone](EndpointError::Gone). Either way the messages that had arrived can still be received. A
//! peer that breaks the protocol is told why on the stream and disconnected.

mod options;
mod progress;

use std::collections::VecDeque;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::time::{Duration, Instant};

use qpair_queue::credit::RingId;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};

use crate::channel::Channel;
use crate::cq::{Cq, CqOptions};
use crate::device::Context;
use crate::ended::{End, EndpointError};
use crate::error::{CompletionError, Error};
use crate::flow::{Credits, Direct, Flow};
use crate::hello::{self, Fault, Hello, NoHello};
use crate::memory::Memory;
use crate::mr::{Access, Mr, Pd};
use crate::qp::{Qp, QpOptions, Rts};
use crate::stream::{self, Stream};
use crate::wr::{Completion, Receive, Remote, Sge, WorkRequest};

pub use self::options::EndpointOptions;

/// Sends that one doorbell submits, and completions taken at a time.
const BATCH: usize = 32;
/// Polls without anything between two looks at the stream.
const LOOK: u32 = 256;
/// The longest sleep before the queue pair is looked at.
pub(crate) const NAP: Duration = Duration::from_secs(1);
/// The most of each number in the options.
const MAX_RECEIVES: u32 = 1 << 14;
/// Keys of the descriptors in the epoll.
const EVENTS: u64 = 0;
const STREAM: u64 = 1;

/// What a call has begun; [`Endpoint::is_done`] is whether it has completed: a message is in the
/// peer's receive, a READ or a WRITE has moved its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ticket {
    work: Work,
    number: u64,
}

/// A kind of work request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Work {
    Data,
    Ack,
    Read,
    Write,
}

/// Work of one kind: begun, and completed. It completes in order.
#[derive(Clone, Copy, Debug, Default)]
struct Count {
    begun: u64,
    done: u64,
}

/// A message of the peer, in its receive.
#[derive(Clone, Copy, Debug)]
struct Held {
    receive: u32,
    bytes: u32,
}

/// A work request that failed.
#[derive(Clone, Copy, Debug)]
struct Failure {
    is_receive: bool,
    error: CompletionError,
}

/// An end of a connection; see the [module](self).
#[derive(Debug)]
pub struct Endpoint {
    // The queue pair ends before the memory that it names.
    qp: Qp<Rts>,
    cq: Cq,
    channel: Channel,
    epoll: OwnedFd,
    stream: Box<dyn Stream>,
    flow: Flow,
    direct: Direct,
    /// Buffers of messages to send, and the bytes of each message in the backlog and in flight.
    out: Mr,
    lengths: Vec<u32>,
    /// Receives, and the messages of the peer in them.
    into: Mr,
    held: VecDeque<Held>,
    /// Work requests in flight, in order, and the number of the first.
    flying: VecDeque<Work>,
    first: u64,
    data: Count,
    /// Messages that were posted: the others are the backlog.
    posted: u64,
    reads: Count,
    writes: Count,
    pd: Pd,
    message: usize,
    max_send: usize,
    timeout: Duration,
    /// The CQ is armed, and the event has not been taken.
    armed: bool,
    /// Polls without anything since the last look at the stream.
    empty: u32,
    /// The first work request that failed.
    failed: Option<Failure>,
    end: Option<End>,
    taken: [Completion; BATCH],
}

impl Endpoint {
    /// Connects to the endpoint at the other end of `stream`, which does the same. Blocks for the
    /// time of the options at most.
    pub fn connect(
        context: &Context,
        options: &EndpointOptions,
        stream: impl Stream + 'static,
    ) -> Result<Self, EndpointError> {
        Self::connect_in(&Pd::new(context)?, context, options, stream)
    }

    /// [`connect`](Self::connect) in a domain, with regions for READs and WRITEs.
    pub fn connect_in(
        pd: &Pd,
        context: &Context,
        options: &EndpointOptions,
        stream: impl Stream + 'static,
    ) -> Result<Self, EndpointError> {
        let deadline = stream::deadline(options.timeout);
        let seconds = options.timeout.as_secs();
        let mut stream: Box<dyn Stream> = Box::new(stream);
        let receives = Credits {
            data: options.depth,
            acks: options.acks,
        };
        let sends = receives;
        let blocks = sends.data + sends.acks + options.reads + options.writes;
        let posted = receives.data + receives.acks;

        let channel = Channel::new()?;
        let entries = blocks.next_power_of_two() + posted.next_power_of_two();
        let cq = Cq::new(context, &CqOptions::new(entries).channel(&channel))?;
        // A SEND without a receive fails at once: there is none between two endpoints.
        let queues = QpOptions::new(&cq, &cq)
            .sq_blocks(blocks)
            .max_recv_wr(posted);
        let qp = Qp::new(pd, &queues.retries(7, 0))?;
        let message = options.message as usize;
        let into = Memory::new(message * posted as usize)?;
        let into = Mr::new(pd, into, Access::LOCAL_WRITE)?;
        let qp = qp.init(options.access)?;
        for receive in 0..posted {
            let place = [into.sge(receive as usize * message, message)];
            qp.queue_recv(&Receive::new(receive.into(), &place))
                .map_err(Error::from)?;
        }
        qp.ring();

        let ours = Hello {
            number: qp.number(),
            message: options.message,
            receives,
        };
        let theirs = ours.exchange(stream.as_mut(), deadline);
        let theirs = theirs.and_then(|theirs| check(&theirs).map(|()| theirs));
        let theirs = theirs.map_err(|none| {
            match none {
                NoHello::Broken(fault) => hello::refuse(stream.as_mut(), fault),
                NoHello::Version(_) => hello::refuse(stream.as_mut(), Fault::Version),
                NoHello::Stream(_) | NoHello::Refused(_) => {}
            }
            EndpointError::hello(none, seconds)
        })?;
        let ring = RingId::new(qp.number().raw(), context.attributes().epoch);
        let flow = Flow::new(ring, sends, receives, theirs.receives);
        let flow = flow.map_err(|_| EndpointError::Broken(Fault::Sizes))?;
        let largest = options.largest.unwrap_or(options.message);
        let max_send = largest.min(theirs.message) as usize;
        let buffers = sends.data + options.backlog;
        let out = Memory::new(max_send * buffers as usize)?;
        let out = Mr::new(pd, out, Access::NONE)?;
        let qp = qp.rtr(theirs.number)?.rts()?;
        hello::ready(stream.as_mut(), deadline)
            .map_err(|none| EndpointError::hello(none, seconds))?;

        let epoll = watch(&channel, stream.as_ref())?;
        Ok(Self {
            qp,
            cq,
            channel,
            epoll,
            stream,
            flow,
            direct: Direct::new(ring, options.reads, options.writes),
            out,
            lengths: vec![0; buffers as usize],
            into,
            held: VecDeque::with_capacity(posted as usize),
            flying: VecDeque::with_capacity(blocks as usize),
            first: 0,
            data: Count::default(),
            posted: 0,
            reads: Count::default(),
            writes: Count::default(),
            pd: pd.clone(),
            message,
            max_send,
            timeout: options.timeout,
            armed: false,
            empty: 0,
            failed: None,
            end: None,
            taken: [Completion::default(); BATCH],
        })
    }

    /// Bytes of the largest message that can be sent: what this side may send, and the peer receives.
    pub fn max_send(&self) -> usize {
        self.max_send
    }

    /// Bytes of the largest message that can come.
    pub fn max_recv(&self) -> usize {
        self.message
    }

    /// The domain of regions for READs and WRITEs.
    pub fn pd(&self) -> &Pd {
        &self.pd
    }

    /// Accepts a message, unless the backlog is full. It goes out with the next
    /// [`flush`](Self::flush), or the next call that finds credits.
    pub fn queue(&mut self, bytes: &[u8]) -> Result<Option<Ticket>, EndpointError> {
        self.check()?;
        if bytes.len() > self.max_send {
            return Err(EndpointError::Size {
                what: "the message",
                bytes: bytes.len(),
                limit: self.max_send,
            });
        }
        if !self.has_buffer() {
            self.progress()?;
            self.check()?;
            if !self.has_buffer() {
                return Ok(None);
            }
        }
        let number = self.data.begun;
        let buffer = self.buffer(number);
        self.out.write(buffer * self.max_send, bytes);
        self.lengths[buffer] = bytes.len() as u32;
        self.data.begun += 1;
        Ok(Some(Ticket {
            work: Work::Data,
            number,
        }))
    }

    /// Sends a message, unless the backlog is full.
    pub fn try_send(&mut self, bytes: &[u8]) -> Result<Option<Ticket>, EndpointError> {
        let ticket = self.queue(bytes)?;
        if ticket.is_some() {
            self.flush()?;
        }
        Ok(ticket)
    }

    /// Takes the next message into `into`, which has room for the [largest](Self::max_recv); its
    /// bytes, or `None` if there is none.
    pub fn try_recv(&mut self, into: &mut [u8]) -> Result<Option<usize>, EndpointError> {
        if into.len() < self.message {
            return Err(EndpointError::Size {
                what: "the largest message",
                bytes: self.message,
                limit: into.len(),
            });
        }
        if self.held.is_empty() {
            self.progress()?;
            // What has arrived before the end comes before it.
            if self.held.is_empty() {
                self.check()?;
            }
        }
        let Some(held) = self.held.pop_front() else {
            return Ok(None);
        };
        let bytes = held.bytes as usize;
        let place = held.receive as usize * self.message;
        self.into.read(place, &mut into[..bytes]);
        if self.end.is_none() {
            self.post_receive(held.receive)?;
            self.flow.received();
            if self.flow.is_due() {
                self.flush()?;
            }
        }
        Ok(Some(bytes))
    }

    /// READs the peer's memory, unless as many READs are in flight as there may be.
    pub fn try_read(&mut self, into: Sge, from: Remote) -> Result<Option<Ticket>, EndpointError> {
        self.check()?;
        if !self.direct.read() {
            self.progress()?;
            if !self.direct.read() {
                return Ok(None);
            }
        }
        let id = self.next();
        self.fly(Work::Read, WorkRequest::read(id, &[into], from))
            .map(Some)
    }

    /// WRITEs to the peer's memory, unless as many WRITEs are in flight as there may be.
    pub fn try_write(&mut self, from: Sge, to: Remote) -> Result<Option<Ticket>, EndpointError> {
        self.check()?;
        if !self.direct.write() {
            self.progress()?;
            if !self.direct.write() {
                return Ok(None);
            }
        }
        let id = self.next();
        self.fly(Work::Write, WorkRequest::write(id, &[from], to))
            .map(Some)
    }

    /// Whether what the ticket is of has completed.
    pub fn is_done(&mut self, ticket: Ticket) -> Result<bool, EndpointError> {
        if !self.has_done(ticket) {
            self.progress()?;
        }
        let is_done = self.has_done(ticket);
        if !is_done && !self.completes() {
            self.check()?;
        }
        Ok(is_done)
    }

    /// Whether everything that was sent is in the peer's receives, and nothing else is in flight that
    /// the peer still waits for.
    pub fn is_delivered(&mut self) -> Result<bool, EndpointError> {
        self.progress()?;
        let is_all = self.data.done == self.data.begun;
        if matches!(self.end, Some(End::Closed)) && is_all {
            // A peer that has closed waits for no acknowledgement.
            return Ok(true);
        }
        if !self.completes() {
            self.check()?;
        }
        Ok(is_all && self.flying.is_empty())
    }

    /// Sends a message; waits while the backlog is full.
    pub fn send(&mut self, bytes: &[u8]) -> Result<Ticket, EndpointError> {
        self.until("take a message", |this| this.try_send(bytes))
    }

    /// Takes the next message; waits for it, for ever if need be. Returns its bytes.
    pub fn recv(&mut self, into: &mut [u8]) -> Result<usize, EndpointError> {
        loop {
            if let Some(bytes) = self.try_recv(into)? {
                return Ok(bytes);
            }
            self.pause(NAP)?;
        }
    }

    /// The same, for at most this long; `None` if nothing came.
    pub fn recv_for(
        &mut self,
        into: &mut [u8],
        time: Duration,
    ) -> Result<Option<usize>, EndpointError> {
        let deadline = stream::deadline(time);
        loop {
            if let Some(bytes) = self.try_recv(into)? {
                return Ok(Some(bytes));
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(None);
            }
            self.pause(left)?;
        }
    }

    /// READs the peer's memory, and waits until it is done.
    pub fn read(&mut self, into: Sge, from: Remote) -> Result<(), EndpointError> {
        let ticket = self.until("answer a READ", |this| this.try_read(into, from))?;
        self.wait(ticket)
    }

    /// WRITEs to the peer's memory, and waits until it is done.
    pub fn write(&mut self, from: Sge, to: Remote) -> Result<(), EndpointError> {
        let ticket = self.until("answer a WRITE", |this| this.try_write(from, to))?;
        self.wait(ticket)
    }

    /// Waits until what the ticket is of has completed.
    pub fn wait(&mut self, ticket: Ticket) -> Result<(), EndpointError> {
        self.until("take what was sent", |this| {
            Ok(this.is_done(ticket)?.then_some(()))
        })
    }

    /// Waits until everything is delivered, and ends the connection.
    pub fn close(mut self) -> Result<(), EndpointError> {
        self.until("take the last messages", |this| {
            Ok(this.is_delivered()?.then_some(()))
        })?;
        self.leave();
        Ok(())
    }

    /// Ends the connection of an endpoint that has delivered everything.
    pub(crate) fn leave(mut self) {
        // The peer may have closed first.
        let _: Result<(), stream::NoBytes> = stream::write(self.stream.as_mut(), &[hello::BYE]);
    }

    /// Repeats a step until it has something, as long as the peer goes on.
    fn until<T>(
        &mut self,
        what: &'static str,
        mut step: impl FnMut(&mut Self) -> Result<Option<T>, EndpointError>,
    ) -> Result<T, EndpointError> {
        let mut seen = None;
        let mut deadline = Instant::now();
        loop {
            if let Some(result) = step(self)? {
                return Ok(result);
            }
            let gone = (self.first, self.posted);
            if seen != Some(gone) {
                seen = Some(gone);
                deadline = stream::deadline(self.timeout);
            }
            let now = Instant::now();
            if now >= deadline {
                let seconds = self.timeout.as_secs();
                return Err(EndpointError::Late { what, seconds });
            }
            self.pause(deadline.saturating_duration_since(now))?;
        }
    }
}

impl AsFd for Endpoint {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }
}

impl AsRawFd for Endpoint {
    fn as_raw_fd(&self) -> RawFd {
        self.epoll.as_raw_fd()
    }
}

/// Whether an endpoint can be the peer.
fn check(theirs: &Hello) -> Result<(), NoHello> {
    let Credits { data, acks } = theirs.receives;
    let is_good =
        theirs.message > 0 && (1..=0xffff).contains(&data) && (2..=0xffff).contains(&acks);
    match is_good {
        true => Ok(()),
        false => Err(NoHello::Broken(Fault::Sizes)),
    }
}

/// What an endpoint sleeps on.
fn watch(channel: &Channel, stream: &dyn Stream) -> Result<OwnedFd, Error> {
    let refused = Error::kernel("watch the stream to the peer");
    let epoll = epoll::create(CreateFlags::CLOEXEC).map_err(&refused)?;
    let events = EventData::new_u64(EVENTS);
    epoll::add(&epoll, channel, events, EventFlags::IN).map_err(&refused)?;
    let flags = EventFlags::IN | EventFlags::RDHUP;
    epoll::add(&epoll, stream.as_fd(), EventData::new_u64(STREAM), flags).map_err(&refused)?;
    Ok(epoll)
}
