// SPDX-License-Identifier: GPL-2.0
//! What happens between the calls: messages that get credits, completions, acknowledgements, and the
//! end.

use std::io::Read as _;
use std::os::fd::AsFd as _;
use std::time::Duration;

use qpair_abi::status::Status;
use qpair_queue::account::Bogus;
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::io::Errno;

use super::{Count, Endpoint, Failure, Held, Ticket, Work, BATCH, EVENTS, LOOK, NAP, STREAM};
use crate::channel::timespec;
use crate::cq::Wants;
use crate::ended::{End, EndpointError};
use crate::error::Error;
use crate::hello::{self, Fault};
use crate::kernel::QpState;
use crate::stream;
use crate::wr::{Completion, Done, Receive, Sge, WorkRequest};

impl Endpoint {
    /// Submits what has credits: an acknowledgement if one is due, then messages, in order. The
    /// last request of each doorbell is signaled.
    pub fn flush(&mut self) -> Result<(), EndpointError> {
        // What has arrived before the end comes before it.
        if self.end.is_some() && self.posted == self.data.begun && !self.held.is_empty() {
            return Ok(());
        }
        self.check()?;
        if let Some(immediate) = self.flow.acknowledge() {
            // The receives that it grants are the device's first.
            self.qp.post_recv(&[]).map_err(Error::from)?;
            let id = self.next();
            let request = WorkRequest::send(id, &[]).imm(immediate).signaled();
            self.qp.queue_send(&request).map_err(Error::from)?;
            self.flying.push_back(Work::Ack);
            if self.posted == self.data.begun || self.flow.may_send() == 0 {
                self.qp.ring();
                return Ok(());
            }
        }
        while self.posted < self.data.begun && self.flow.may_send() > 0 {
            self.post_batch()?;
        }
        Ok(())
    }

    /// Posts up to [`BATCH`] messages of the backlog.
    pub(super) fn post_batch(&mut self) -> Result<(), EndpointError> {
        let first = self.next();
        let mut pieces = [[Sge::default()]; BATCH];
        let mut count = 0;
        while count < BATCH && self.posted < self.data.begun && self.flow.send() {
            let buffer = self.buffer(self.posted);
            let bytes = self.lengths[buffer] as usize;
            pieces[count] = [self.out.sge(buffer * self.max_send, bytes)];
            self.flying.push_back(Work::Data);
            self.posted += 1;
            count += 1;
        }
        let requests = pieces[..count].iter().zip(first..).map(|(piece, id)| {
            let request = WorkRequest::send(id, piece);
            match id - first + 1 == count as u64 {
                true => request.signaled(),
                false => request,
            }
        });
        self.qp.post_sends(requests).map_err(Error::from)?;
        Ok(())
    }

    /// Posts a READ or a WRITE, whose slot was taken.
    pub(super) fn fly(
        &mut self,
        work: Work,
        request: WorkRequest<'_>,
    ) -> Result<Ticket, EndpointError> {
        self.qp
            .post_sends([request.signaled()])
            .map_err(Error::from)?;
        self.flying.push_back(work);
        let count: &mut Count = match work {
            Work::Read => &mut self.reads,
            _ => &mut self.writes,
        };
        let number = count.begun;
        count.begun += 1;
        Ok(Ticket { work, number })
    }

    /// Posts a receive; the doorbell comes with the acknowledgement that grants it.
    pub(super) fn post_receive(&mut self, receive: u32) -> Result<(), EndpointError> {
        let place = [self.into.sge(receive as usize * self.message, self.message)];
        let posted = self.qp.queue_recv(&Receive::new(receive.into(), &place));
        Ok(posted.map_err(Error::from)?)
    }

    /// The number of the next work request.
    pub(super) fn next(&self) -> u64 {
        self.first + self.flying.len() as u64
    }

    /// The buffer of a message.
    pub(super) fn buffer(&self, number: u64) -> usize {
        (number % self.lengths.len() as u64) as usize
    }

    pub(super) fn has_buffer(&self) -> bool {
        self.data.begun - self.data.done < self.lengths.len() as u64
    }

    pub(super) fn has_done(&self, ticket: Ticket) -> bool {
        let count = match ticket.work {
            Work::Data | Work::Ack => &self.data,
            Work::Read => &self.reads,
            Work::Write => &self.writes,
        };
        ticket.number < count.done
    }

    /// Whether the peer has closed, and the device has not completed all that the peer received
    /// before.
    pub(super) fn completes(&self) -> bool {
        matches!(self.end, Some(End::Closed)) && self.failed.is_none() && !self.flying.is_empty()
    }

    /// The error of an endpoint that has ended.
    pub(super) fn check(&self) -> Result<(), EndpointError> {
        match self.end {
            Some(end) => Err(end.into()),
            None => Ok(()),
        }
    }

    /// Takes completions, and submits what has credits then. The `try_` methods do this when
    /// they need to; a program that only waits for tickets may call it. Whether anything came.
    pub fn progress(&mut self) -> Result<bool, EndpointError> {
        match self.end {
            None => {}
            // The device may not have completed what the peer has received.
            Some(End::Closed) => return self.poll(),
            Some(_) => return Ok(false),
        }
        let came = self.poll()?;
        if came {
            self.empty = 0;
        } else {
            self.empty += 1;
            // A program that never sleeps learns of the peer's end here.
            if self.empty >= LOOK {
                self.empty = 0;
                self.woken()?;
            }
        }
        if let Some(failure) = self.failed {
            self.judge(failure)?;
        }
        if self.end.is_none() {
            self.flush()?;
        }
        Ok(came)
    }

    /// Takes up to [`BATCH`] completions.
    pub(super) fn poll(&mut self) -> Result<bool, EndpointError> {
        let count = self.cq.poll(&mut self.taken).len();
        for at in 0..count {
            if !matches!(self.end, None | Some(End::Closed)) {
                break;
            }
            let completion = self.taken[at];
            match completion.check() {
                Ok(_) if completion.is_receive() => self.received(&completion)?,
                Ok(_) => self.completed(completion.id()),
                Err(error) => {
                    let is_receive = completion.is_receive();
                    self.failed = self.failed.or(Some(Failure { is_receive, error }));
                }
            }
        }
        Ok(count > 0)
    }

    /// A message has come.
    pub(super) fn received(&mut self, completion: &Completion) -> Result<(), EndpointError> {
        let receive = completion.id() as u32;
        let bytes = completion.bytes();
        match (completion.done(), completion.imm()) {
            (Done::Receive, None) if self.flow.may_arrive(self.held.len() as u32) => {
                self.held.push_back(Held { receive, bytes });
            }
            (Done::Receive, None) => self.finish(End::Broken(Fault::TooMany)),
            (Done::Receive, Some(immediate)) if bytes == 0 => {
                self.post_receive(receive)?;
                if self.flow.received_acknowledgement(immediate).is_err() {
                    self.finish(End::Broken(Fault::FalseCounts));
                }
            }
            _ => self.finish(End::Broken(Fault::Strange)),
        }
        Ok(())
    }

    /// The work request of this number has completed, and those before it.
    pub(super) fn completed(&mut self, id: u64) {
        let (mut data, mut acks, mut reads, mut writes) = (0, 0, 0, 0);
        while self.first <= id {
            let Some(work) = self.flying.pop_front() else {
                break;
            };
            self.first += 1;
            match work {
                Work::Data => data += 1,
                Work::Ack => acks += 1,
                Work::Read => reads += 1,
                Work::Write => writes += 1,
            }
        }
        self.data.done += u64::from(data);
        self.reads.done += u64::from(reads);
        self.writes.done += u64::from(writes);
        let returned = (self.flow.sent(data))
            .and_then(|()| self.flow.acknowledged(acks))
            .and_then(|()| self.direct.has_read(reads))
            .and_then(|()| self.direct.has_written(writes));
        // Each took its slot before it was posted.
        debug_assert_eq!(returned, Ok::<(), Bogus>(()));
    }

    /// A work request has failed: the stream may have the reason.
    pub(super) fn judge(&mut self, failure: Failure) -> Result<(), EndpointError> {
        self.woken()?;
        let Failure { is_receive, error } = failure;
        self.finish(match error.status {
            // The peer's queue pair is gone, or in the error state.
            Status::RetryExceeded | Status::Flush => End::Gone,
            Status::RnrRetryExceeded => End::Broken(Fault::NoReceive),
            // A message that is too long, or a WRITE that nothing grants.
            _ if is_receive => End::Broken(Fault::Strange),
            _ => End::Completion(error),
        });
        Ok(())
    }

    /// Ends it, unless it has ended.
    pub(super) fn finish(&mut self, end: End) {
        if self.end.is_some() {
            return;
        }
        self.end = Some(end);
        if let End::Broken(fault) = end {
            hello::refuse(self.stream.as_mut(), fault);
            // Fails only if the device is gone.
            let _: Result<(), Error> = self.qp.flush();
        }
        // The descriptor must not stay readable by the end of the stream.
        let _: Result<(), Errno> = epoll::delete(&self.epoll, self.stream.as_fd());
    }

    /// Reads the stream, which has something: the end of the connection.
    pub(super) fn look(&mut self) -> Result<(), EndpointError> {
        let mut byte = [0];
        let end = match self.stream.read(&mut byte) {
            Ok(0) => End::Gone,
            Ok(_) if byte[0] == hello::BYE => End::Closed,
            Ok(_) => match Fault::from_code(byte[0]) {
                Some(fault) => End::Refused(fault),
                None => End::Broken(Fault::Garbage),
            },
            Err(error) if stream::is_transient(&error) => return Ok(()),
            Err(error) if stream::is_end(&error) => End::Gone,
            Err(error) => return Err(EndpointError::Stream(error)),
        };
        // What the peer has sent before is there.
        while self.end.is_none() && self.poll()? {}
        self.finish(end);
        Ok(())
    }

    /// Makes the descriptor readable at the next completion, or at once if there is one.
    pub fn arm(&mut self) -> Result<(), EndpointError> {
        if self.armed && self.channel.wait(Some(Duration::ZERO))? {
            self.armed = false;
        }
        if !self.armed {
            self.cq.arm(Wants::Next);
            self.armed = true;
        }
        Ok(())
    }

    /// To be called when the descriptor was readable: learns of the peer's end.
    pub fn woken(&mut self) -> Result<(), EndpointError> {
        self.rest(Duration::ZERO).map(drop)
    }

    /// Waits for the descriptor; whether it became readable.
    pub(super) fn rest(&mut self, time: Duration) -> Result<bool, EndpointError> {
        let mut told = [epoll::Event {
            flags: EventFlags::empty(),
            data: EventData::new_u64(EVENTS),
        }; 2];
        let time = timespec(time);
        let count = match epoll::wait(&self.epoll, &mut told, Some(&time)) {
            Ok(count) => count,
            Err(Errno::INTR) => return Ok(true),
            Err(errno) => return Err(Error::kernel("wait for the peer")(errno).into()),
        };
        if told[..count].iter().any(|event| event.data.u64() == STREAM) {
            self.look()?;
        }
        Ok(count > 0)
    }

    /// Sleeps until something happens, for `time` and a second at most. After a whole second, checks
    /// the queue pair, since a device that is reset completes nothing.
    pub fn pause(&mut self, time: Duration) -> Result<(), EndpointError> {
        self.arm()?;
        if !self.rest(time.min(NAP))? && time >= NAP {
            self.check_pair()?;
        }
        Ok(())
    }

    /// Fails if the device is gone, or has put the queue pair into the error state.
    pub(crate) fn check_pair(&mut self) -> Result<(), EndpointError> {
        if self.end.is_none() && self.qp.query()?.state == QpState::Error {
            while self.end.is_none() && self.poll()? {}
            self.finish(End::Gone);
        }
        Ok(())
    }
}
