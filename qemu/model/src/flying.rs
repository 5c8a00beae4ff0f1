// SPDX-License-Identifier: GPL-2.0
//! Requests in flight to a peer at another port: snapshots of WQEs, and their packets.

use crate::check::decode;
use crate::check::RC;
use crate::datapath::DataPath;
use crate::flush;
use crate::host::Host;
use crate::link::Flying;
use crate::link::Link;
use crate::link::Transport;
use crate::link::REQUESTS;
use crate::message::Message;
use crate::message::Sender;
use crate::qp::past;
use crate::subject::Subject;
use qpair_abi::command::qp_state;
use qpair_abi::command::service;
use qpair_abi::counters::Counter;
use qpair_abi::entry::opcode;
use qpair_abi::entry::send_flags;
use qpair_abi::entry::AtomicWqe;
use qpair_abi::entry::SendWqe;
use qpair_abi::entry::ATOMIC_BYTES;
use qpair_abi::entry::BLOCK_WORDS;
use qpair_abi::status::Detail;
use qpair_abi::status::Status;
use qpair_abi::Number;
use qpair_queue::index::Index;
use qpair_roce::extended::AtomicEth;
use qpair_roce::extended::Feth;
use qpair_roce::extended::Reth;
use qpair_roce::extended::With;
use qpair_roce::frame::AROUND;
use qpair_roce::header::Headers;
use qpair_roce::header::Service;
use qpair_roce::operation::Operation;
use qpair_roce::psn::Psn;
use qpair_roce::request::Kind;
use qpair_roce::segment::Piece;

/// What a packet costs of a turn.
pub(crate) fn cost(bytes: u32) -> u64 {
    u64::from(bytes).saturating_add(AROUND as u64)
}

/// What a request is to the transport.
pub(crate) fn kind(message: &Message) -> Kind {
    match message.wqe.opcode {
        opcode::READ => Kind::Read,
        opcode::COMPARE_SWAP | opcode::FETCH_ADD => Kind::Atomic,
        opcode::FLUSH | opcode::ATOMIC_WRITE => Kind::Confirmed,
        _ if message.kind.is_local => Kind::Local,
        _ => Kind::Message,
    }
}

/// Whether a request begins only when no other is in flight: a request that is sent again needs the
/// key that this one ends.
fn needs_idle(wqe: &SendWqe) -> bool {
    matches!(wqe.opcode, opcode::LOCAL_INV | opcode::BIND)
}

/// A packet of a request, and the bytes of its payload.
fn packet(message: &Message, words: &[u64], piece: &Piece) -> (Operation, u32) {
    let wqe = &message.wqe;
    let imm = wqe.imm.to_le_bytes();
    let reth = Reth {
        addr: wqe.remote_addr,
        key: wqe.rkey,
        bytes: message.bytes,
    };
    let position = piece.position;
    let operation = match wqe.opcode {
        opcode::SEND_IMM => Operation::send(position, With::Immediate(imm)),
        opcode::SEND_INV => Operation::send(position, With::Invalidate(wqe.imm)),
        opcode::WRITE => Operation::write_to(position, reth, None),
        opcode::WRITE_IMM => Operation::write_to(position, reth, Some(imm)),
        opcode::READ => {
            let offset = u64::from(piece.offset);
            let addr = reth.addr.wrapping_add(offset);
            let bytes = piece.bytes;
            return (
                Operation::Read(Reth {
                    addr,
                    bytes,
                    ..reth
                }),
                0,
            );
        }
        opcode::COMPARE_SWAP | opcode::FETCH_ADD => return (atomic(wqe, words), 0),
        opcode::ATOMIC_WRITE => return (Operation::AtomicWrite(reth), ATOMIC_BYTES as u32),
        opcode::FLUSH => {
            let flush = flush::decode(words);
            let feth = Feth {
                placement: flush.kinds,
                selectivity: flush.whole,
            };
            // A longer one has failed.
            let bytes = flush.bytes as u32;
            return (Operation::Flush(feth, Reth { bytes, ..reth }), 0);
        }
        _ => Operation::send(position, With::Nothing),
    };
    (operation, piece.bytes)
}

fn atomic(wqe: &SendWqe, words: &[u64]) -> Operation {
    let operands = words.first_chunk().map(AtomicWqe::decode);
    let operands = operands.unwrap_or_default();
    let eth = |swap_add, compare| AtomicEth {
        addr: wqe.remote_addr,
        key: wqe.rkey,
        swap_add,
        compare,
    };
    match wqe.opcode {
        opcode::COMPARE_SWAP => Operation::CompareSwap(eth(operands.swap, operands.compare_add)),
        _ => Operation::FetchAdd(eth(operands.compare_add, 0)),
    }
}

impl<H: Host> DataPath<H> {
    /// Takes the next request of the SQ into flight: its number. `None` if there is none, or it cannot
    /// begin.
    pub(crate) fn take_flying(
        &mut self,
        by: &Sender,
        link: &mut Link,
        left: &mut u32,
    ) -> Option<u32> {
        if !self.may_begin(by.qp, link) {
            return None;
        }
        let mut flying = link.blank();
        let Some(past) = self.snapshot(by, link, &mut flying) else {
            link.discard(flying);
            return None;
        };
        *left = left.saturating_sub(1);
        self.core.bus.count(Counter::SendWqes);
        let id = link.next_id();
        link.flying.push_back(flying);
        link.begun = past;
        Some(id)
    }

    /// Whether the SQ has a request that is not in flight, and the connection has room for it.
    fn may_begin(&self, qp: Number, link: &mut Link) -> bool {
        let found = self.qps.get(qp).filter(|qp| qp.state == qp_state::RTS);
        let posted = found.is_some_and(|qp| qp.sq.window.tail() != link.begun);
        let has_room = link.flying.len() < REQUESTS;
        link.is_blocked |= posted && !has_room;
        posted && has_room
    }

    /// Makes a snapshot of the next request of the SQ, and checks it: the index past it. `None` if it
    /// cannot be read, or cannot begin.
    fn snapshot(&mut self, by: &Sender, link: &mut Link, flying: &mut Flying) -> Option<Index> {
        let found = self.qps.get_mut(by.qp)?;
        let tail = found.sq.window.tail();
        let posted = tail.since(link.begun);
        let Flying {
            message,
            words,
            failed,
        } = flying;
        let bus = &mut self.core.bus;
        if found.fetch_at(bus, link.begun, words).is_none() {
            let event = (Subject::Fatal(by.qp), Status::LocalQpOperation);
            self.stop(by.qp, Some(event));
            return None;
        }
        let wqe = decode(words);
        if needs_idle(&wqe) && !link.flying.is_empty() {
            link.is_blocked = true;
            return None;
        }
        let Some(past) = past(&wqe, link.begun, posted) else {
            // The index of the next one is unknown, so this one ends all that is posted.
            *message = Message::new(wqe, tail);
            *failed = (Status::LocalQpOperation, Detail::Blocks);
            return Some(tail);
        };
        *message = Message::new(wqe, past);
        let own = usize::from(wqe.blocks) * BLOCK_WORDS;
        let whole = words.get(..own).unwrap_or(words);
        let checked = self.check::<RC>(by, message, whole);
        // Memory is looked up for each packet.
        message.local = None;
        let is_long =
            message.wqe.opcode == opcode::FLUSH && flush::decode(whole).bytes > u64::from(u32::MAX);
        *failed = match checked {
            Ok(()) if is_long => (Status::LocalLength, Detail::Message),
            Ok(()) => (Status::Success, Detail::None),
            Err(failed) => failed,
        };
        Some(past)
    }

    /// Whether the turn and the network have room for a packet. If not, the connection waits for another
    /// turn, or for room.
    pub(crate) fn may_transmit(&mut self, qp: Number, link: &mut Link, budget: u64) -> bool {
        if budget == 0 {
            link.is_due = true;
            return false;
        }
        if self.room() == 0 {
            link.is_blocked = true;
            self.wait_for_room(qp);
            return false;
        }
        true
    }

    /// Sends a packet of a request.
    pub(crate) fn send_packet(
        &mut self,
        by: &Sender,
        link: &mut Link,
        id: u32,
        (psn, ack): (Psn, bool),
        piece: &Piece,
    ) -> Result<(), (Status, Detail)> {
        let (route, dest) = (link.route, link.dest);
        let is_uc = by.service == service::UC;
        let Some(Flying { message, words, .. }) = link.flying(id) else {
            return Ok(());
        };
        let (operation, bytes) = packet(message, words, piece);
        let solicits = message.wqe.flags & send_flags::SOLICITED != 0;
        let headers = Headers {
            service: if is_uc { Service::Uc } else { Service::Rc },
            operation,
            solicited: solicits && piece.position.ends(),
            ack,
            dest,
            psn,
        };
        let sent = self.transmit(&route, &headers, bytes as usize, |data, payload| {
            data.read_local(by.pd, message, words, piece.offset, payload)
        });
        sent.map_err(|detail| (Status::LocalProtection, detail))
    }

    /// Performs a request that needs no peer.
    pub(crate) fn perform_flying(&mut self, by: &Sender, link: &mut Link, id: u32) {
        let Some(Flying { message, words, .. }) = link.flying(id) else {
            return;
        };
        let done = self.local(by, &message.wqe, words);
        let done = done.map_err(|detail| (Status::WindowBind, detail));
        self.refuse_flying(link, id, done);
    }

    /// A request fails for itself, when all before it are completed: whether it does.
    pub(crate) fn refuse_flying(
        &mut self,
        link: &mut Link,
        id: u32,
        done: Result<(), (Status, Detail)>,
    ) -> bool {
        let Err(failed) = done else {
            return false;
        };
        if let Some(flying) = link.flying(id) {
            flying.failed = failed;
        }
        if let Transport::Rc(both) = &mut link.transport {
            both.sender.refuse(id);
        }
        true
    }

    pub(crate) fn count_moved(&mut self, message: &Message) {
        let count = match message.wqe.opcode {
            opcode::COMPARE_SWAP | opcode::FETCH_ADD => 1,
            _ => u64::from(message.bytes),
        };
        self.core.bus.add(message.kind.counter, count);
    }
}
