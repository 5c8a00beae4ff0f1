// SPDX-License-Identifier: GPL-2.0
//! A connection by frames: its route, the state of its transport, and the requests in flight.
//!
//! A request in flight is a snapshot. What is sent again is sent from it, and its memory is looked up
//! anew for each packet.

use crate::attributes::Attributes;
use crate::frames::Frame;
use crate::frames::WAITING_OF_ONE;
use crate::message::Message;
use crate::message::WqeWords;
use crate::path::AddressVector;
use crate::timer;
use crate::tries::NO_LIMIT;
use qpair_abi::command::waits_for;
use qpair_abi::command::QpContext;
use qpair_abi::command::READS;
use qpair_abi::entry::SendWqe;
use qpair_abi::entry::BLOCK_WORDS;
use qpair_abi::entry::MAX_BLOCKS;
use qpair_abi::status::Detail;
use qpair_abi::status::Status;
use qpair_queue::index::Index;
use qpair_roce::extended::Reth;
use qpair_roce::frame::Gid;
use qpair_roce::frame::Route;
use qpair_roce::psn::Psn;
use qpair_roce::receiver::Receiver;
use qpair_roce::sender::Sender;
use qpair_roce::tries::Limits;
use qpair_roce::unreliable;
use std::collections::VecDeque;

/// Most requests of a queue pair in flight.
pub(crate) const REQUESTS: usize = 64;
/// Most packets of a queue pair in flight.
const PACKETS: u32 = 128;
/// Replies that are kept for a peer that asks again.
const KEPT: usize = READS as usize;
/// Answers that wait to be sent.
const ANSWERS: usize = 2 * KEPT + 2;

/// A request in flight.
pub(crate) struct Flying {
    pub(crate) message: Message,
    pub(crate) words: WqeWords,
    /// Why it fails, if its own memory is wrong.
    pub(crate) failed: (Status, Detail),
}

impl Flying {
    /// No request.
    fn none() -> Self {
        Self {
            message: Message::new(SendWqe::default(), Index::new(0)),
            words: [0; MAX_BLOCKS * BLOCK_WORDS],
            failed: (Status::Success, Detail::None),
        }
    }
}

/// The requester and the responder of a reliable connection.
pub(crate) struct Reliable {
    pub(crate) sender: Sender<REQUESTS>,
    pub(crate) receiver: Receiver<KEPT, ANSWERS>,
}

/// Those of an unreliable one.
pub(crate) struct Unreliable {
    pub(crate) sender: unreliable::Sender,
    pub(crate) receiver: unreliable::Receiver,
}

/// The transport, by service.
pub(crate) enum Transport {
    Rc(Box<Reliable>),
    Uc(Unreliable),
}

/// A connection by frames.
pub(crate) struct Link {
    pub(crate) route: Route,
    /// The queue pair of the peer.
    pub(crate) dest: u32,
    pub(crate) transport: Transport,
    /// The requests that were begun and not completed, the oldest first.
    pub(crate) flying: VecDeque<Box<Flying>>,
    /// The memory of those that were completed, for others.
    #[expect(clippy::vec_box, reason = "a request moves by its pointer")]
    spare: Vec<Box<Flying>>,
    /// The number of the oldest.
    pub(crate) oldest: u32,
    /// The index past the newest.
    pub(crate) begun: Index,
    /// Where the WRITE goes of which packets have come.
    pub(crate) write: Reth,
    /// A turn has more to do than to begin requests.
    pub(crate) is_due: bool,
    /// No request can begin until an answer, a time or room has come.
    pub(crate) is_blocked: bool,
    /// When the core is asked for a turn; `u64::MAX` is never.
    pub(crate) armed: u64,
}

// What QUERY has 8 bits for.
const _: () = assert!(REQUESTS <= u8::MAX as usize && PACKETS <= u8::MAX as u32);

// A connection, its requests in flight and its inbox are bounded. The frames in the inbox are not of
// one connection: the function has a bound for all.
const _: () = assert!(
    size_of::<Link>()
        + size_of::<Reliable>()
        + REQUESTS * (size_of::<Flying>() + 2 * size_of::<Box<Flying>>())
        + WAITING_OF_ONE * size_of::<Frame>()
        <= 32 << 10
);

/// The limits of a sender.
pub(crate) fn limits(attributes: &Attributes, reads: u8) -> Limits {
    Limits {
        timeout: timer::answer_by_frames(attributes.timeout),
        retry: attributes.retry,
        rnr_retry: (attributes.rnr_retry != NO_LIMIT).then_some(attributes.rnr_retry),
        reads: reads.max(1),
        window: PACKETS,
    }
}

impl Link {
    /// A reliable connection whose SQ begins at `begun`.
    pub(crate) fn reliable(
        route: Route,
        dest: u32,
        av: &AddressVector,
        limits: Limits,
        begun: Index,
    ) -> Self {
        let sender = Sender::new(av.mtu, limits, Psn::new(av.sq_psn));
        let receiver = Receiver::new(av.mtu, av.peer_reads, Psn::new(av.rq_psn));
        let both = Reliable { sender, receiver };
        Self::new(route, dest, Transport::Rc(Box::new(both)), begun)
    }

    /// An unreliable one.
    pub(crate) fn unreliable(route: Route, dest: u32, av: &AddressVector, begun: Index) -> Self {
        let both = Unreliable {
            sender: unreliable::Sender::new(av.mtu, Psn::new(av.sq_psn)),
            receiver: unreliable::Receiver::new(av.mtu, Psn::new(av.rq_psn)),
        };
        Self::new(route, dest, Transport::Uc(both), begun)
    }

    fn new(route: Route, dest: u32, transport: Transport, begun: Index) -> Self {
        Self {
            route,
            dest,
            transport,
            flying: VecDeque::new(),
            spare: Vec::new(),
            oldest: 0,
            begun,
            write: Reth::default(),
            is_due: false,
            is_blocked: false,
            armed: u64::MAX,
        }
    }

    /// The first packet that it sends has the PSN of `av`. It has sent none.
    pub(crate) fn starts(&mut self, av: &AddressVector, limits: Limits) {
        let first = Psn::new(av.sq_psn);
        match &mut self.transport {
            Transport::Rc(both) => both.sender = Sender::new(av.mtu, limits, first),
            Transport::Uc(both) => both.sender = unreliable::Sender::new(av.mtu, first),
        }
    }

    /// The limits have changed.
    pub(crate) fn set_limits(&mut self, now: u64, limits: Limits) {
        if let Transport::Rc(both) = &mut self.transport {
            both.sender.set_limits(now, limits);
        }
    }

    /// Its state, for QUERY: the PSNs are those of the next packet that was not sent before, and of the
    /// next that is expected.
    pub(crate) fn context(&self, rest: QpContext) -> QpContext {
        let both = match &self.transport {
            Transport::Rc(both) => both,
            Transport::Uc(both) => {
                return QpContext {
                    sq_psn: both.sender.next_psn().get(),
                    rq_psn: both.receiver.expected().get(),
                    ..rest
                }
            }
        };
        let tries = both.sender.tries();
        let waits = [
            (tries.waits_for_answer(), waits_for::ANSWER),
            (tries.waits_for_receiver(), waits_for::RECEIVER),
            (self.is_blocked, waits_for::ROOM),
        ];
        QpContext {
            sq_psn: both.sender.sent().get(),
            rq_psn: both.receiver.expected().get(),
            acked_psn: both.sender.acked().get(),
            in_flight: self.flying.len() as u8,
            room: both.sender.room() as u8,
            repeats: tries.repeats(),
            waits_for: waits
                .into_iter()
                .filter(|it| it.0)
                .fold(0, |all, it| all | it.1),
            ..rest
        }
    }

    /// Whether frames between these addresses are of this connection.
    pub(crate) fn is_between(&self, from: &Gid, to: &Gid) -> bool {
        self.route.to == *from && self.route.from == *to
    }

    /// Whether a queue pair whose SQ has this tail has requests to begin.
    pub(crate) fn can_begin(&self, tail: Index) -> bool {
        self.begun != tail && !self.is_blocked
    }

    /// The request with this number.
    pub(crate) fn flying(&mut self, id: u32) -> Option<&mut Flying> {
        let flying = self.flying.get_mut(id.wrapping_sub(self.oldest) as usize);
        flying.map(Box::as_mut)
    }

    /// Memory for a request.
    pub(crate) fn blank(&mut self) -> Box<Flying> {
        self.spare.pop().unwrap_or_else(|| Box::new(Flying::none()))
    }

    /// A request did not begin.
    pub(crate) fn discard(&mut self, flying: Box<Flying>) {
        self.spare.push(flying);
    }

    /// The number of the next request.
    pub(crate) fn next_id(&self) -> u32 {
        self.oldest.wrapping_add(self.flying.len() as u32)
    }

    /// Takes the oldest request: its message, and why it fails.
    pub(crate) fn pop(&mut self) -> Option<(Message, (Status, Detail))> {
        let flying = self.flying.pop_front()?;
        self.oldest = self.oldest.wrapping_add(1);
        let ended = (flying.message, flying.failed);
        self.spare.push(flying);
        Some(ended)
    }

    /// The time that the core was asked for has come, or is not asked for any more.
    pub(crate) fn wake(&mut self) {
        self.is_due = true;
        self.armed = u64::MAX;
    }
}
