// SPDX-License-Identifier: GPL-2.0
//! Packets that come from a peer at another port.
//!
//! A packet has an effect if it is of the connection of its queue pair and the next in order. A
//! request is executed by the [responder](crate::responder), as one of this function, packet by
//! packet: the memory of each is looked up anew. The turn of the queue pair answers it.

use crate::answer::Answer;
use crate::answer::Nak;
use crate::answer::Refusal;
use crate::atomic::Operands;
use crate::datapath::DataPath;
use crate::host::Host;
use crate::link::Flying;
use crate::link::Link;
use crate::link::Transport;
use crate::message::Kind;
use crate::message::Piece;
use crate::region::Range;
use crate::responder::nak_of_memory;
use crate::responder::serves;
use crate::responder::Responder;
use crate::timer;
use qpair_abi::command::access;
use qpair_abi::counters::Counter;
use qpair_abi::entry::opcode;
use qpair_abi::entry::FlushWqe;
use qpair_abi::entry::ATOMIC_BYTES;
use qpair_abi::status::Detail;
use qpair_abi::status::Status;
use qpair_abi::Number;
use qpair_roce::extended::Reth;
use qpair_roce::extended::With;
use qpair_roce::frame::Gid;
use qpair_roce::header::Headers;
use qpair_roce::header::Service;
use qpair_roce::operation::Operation;
use qpair_roce::receiver;
use qpair_roce::receiver::Effect;
use qpair_roce::receiver::Step;
use qpair_roce::segment;

/// The operation whose message a packet is of, and its immediate data or the key that it invalidates.
fn operation(operation: &Operation) -> (u8, u32) {
    match *operation {
        Operation::SendLast(With::Immediate(imm)) | Operation::SendOnly(With::Immediate(imm)) => {
            (opcode::SEND_IMM, u32::from_le_bytes(imm))
        }
        Operation::SendLast(With::Invalidate(key)) | Operation::SendOnly(With::Invalidate(key)) => {
            (opcode::SEND_INV, key)
        }
        Operation::WriteLast(Some(imm)) | Operation::WriteOnly(_, Some(imm)) => {
            (opcode::WRITE_IMM, u32::from_le_bytes(imm))
        }
        Operation::WriteFirst(_)
        | Operation::WriteMiddle
        | Operation::WriteLast(None)
        | Operation::WriteOnly(_, None) => (opcode::WRITE, 0),
        Operation::Read(_) => (opcode::READ, 0),
        Operation::CompareSwap(_) => (opcode::COMPARE_SWAP, 0),
        Operation::FetchAdd(_) => (opcode::FETCH_ADD, 0),
        Operation::AtomicWrite(_) => (opcode::ATOMIC_WRITE, 0),
        Operation::Flush(..) => (opcode::FLUSH, 0),
        _ => (opcode::SEND, 0),
    }
}

/// What a responder gets of a packet that names `reth`, after so many bytes of its message.
fn piece(headers: &Headers, reth: Reth, before: u32) -> Piece {
    let (opcode, imm) = operation(&headers.operation);
    Piece {
        opcode,
        kind: Kind::of(opcode).unwrap_or(Kind::NONE),
        solicited: headers.solicited,
        imm,
        bytes: before.wrapping_add(reth.bytes),
        range: Range {
            key: Number::from_raw(reth.key),
            addr: reth.addr.wrapping_add(u64::from(before)),
            bytes: u64::from(reth.bytes),
        },
    }
}

impl<H: Host> DataPath<H> {
    /// A packet for a queue pair of RC or UC, from one GID to another. False: it is not of its
    /// connection.
    pub(crate) fn receive_packet(
        &mut self,
        qp: Number,
        (from, to): (&Gid, &Gid),
        headers: &Headers,
        payload: &[u8],
    ) -> bool {
        let Some(found) = self.qps.get_mut(qp) else {
            return false;
        };
        let serves = serves(found.state);
        let by = Responder::of(qp, &found.attributes);
        let link = found.link.take_if(|link| {
            let has_service = match link.transport {
                Transport::Rc(_) => headers.service == Service::Rc,
                Transport::Uc(_) => headers.service == Service::Uc,
            };
            serves && has_service && link.is_between(from, to)
        });
        let Some(mut link) = link else {
            return false;
        };
        if matches!(link.transport, Transport::Uc(_)) {
            self.receive_unreliable(by, &mut link, headers, payload);
        } else if headers.operation.is_answer() {
            self.receive_answer(by, &mut link, headers, payload);
        } else {
            self.receive_request(by, &mut link, headers, payload);
        }
        link.is_due = true;
        if let Some(found) = self.qps.get_mut(qp) {
            found.link = Some(link);
        }
        true
    }

    /// An answer to a request in flight.
    fn receive_answer(
        &mut self,
        by: Responder,
        link: &mut Link,
        headers: &Headers,
        payload: &[u8],
    ) {
        let now = self.core.bus.host.now();
        let Transport::Rc(both) = &mut link.transport else {
            return;
        };
        let waited = both.sender.waits_for_receiver();
        let (psn, bytes) = (headers.psn, payload.len());
        let taken = both.sender.answer(
            now,
            psn,
            &headers.operation,
            bytes,
            timer::receive_by_frames,
        );
        if both.sender.waits_for_receiver() && !waited {
            self.core.bus.count(Counter::RnrRetries);
        }
        let Some(data) = taken else {
            return;
        };
        let Some(Flying { message, words, .. }) = link.flying(data.id) else {
            return;
        };
        let written = match headers.operation {
            Operation::AtomicReply(_, old) => self.write_old(by.pd, message, words, old),
            _ => self.write_local(by.pd, message, words, data.offset, payload),
        };
        let written = written.map_err(|detail| (Status::LocalProtection, detail));
        self.refuse_flying(link, data.id, written);
    }

    /// A request of the peer.
    fn receive_request(
        &mut self,
        by: Responder,
        link: &mut Link,
        headers: &Headers,
        payload: &[u8],
    ) {
        let Transport::Rc(both) = &mut link.transport else {
            return;
        };
        let receiver = &mut both.receiver;
        let operation = &headers.operation;
        match receiver.receive(headers.psn, headers.ack, operation, payload.len()) {
            Step::Execute(packet) => {
                let effect = packet.effect();
                match self.execute(by, &mut link.write, effect, headers, payload) {
                    Ok(old) => packet.executed(old),
                    Err(Refusal::NotReady { timer }) => {
                        let code = timer::receive_code(&self.core.config, timer);
                        packet.refuse(receiver::Refusal::NotReady(code));
                    }
                    Err(Refusal::Nak(nak, _)) => packet.refuse(receiver::Refusal::Nak(nak.into())),
                    // It has failed, and is silent.
                    Err(Refusal::Silent(_)) => {}
                }
            }
            Step::Invalid => {
                self.nak(by, Nak::InvalidRequest, Status::LocalAccess, Detail::Opcode);
            }
            Step::Duplicate => self.core.bus.count(Counter::Duplicates),
            Step::Early => self.core.bus.count(Counter::OutOfSequence),
            Step::Dropped => {}
        }
    }

    /// Executes a packet of a request: the old value of an atomic.
    fn execute(
        &mut self,
        by: Responder,
        write: &mut Reth,
        effect: Effect,
        headers: &Headers,
        payload: &[u8],
    ) -> Answer<u64> {
        match (effect, headers.operation) {
            (Effect::Piece(part), _) => {
                self.take_part(by, write, &part, headers, payload)?;
            }
            (Effect::Read(reth), _) => {
                let piece = piece(headers, reth, 0);
                self.admit(by, &piece)?;
                if reth.bytes != 0 {
                    self.find(by, &piece)?;
                }
            }
            (_, Operation::CompareSwap(eth) | Operation::FetchAdd(eth)) => {
                let reth = Reth {
                    addr: eth.addr,
                    key: eth.key,
                    bytes: ATOMIC_BYTES as u32,
                };
                let piece = piece(headers, reth, 0);
                self.admit(by, &piece)?;
                let operands = match piece.opcode {
                    opcode::COMPARE_SWAP => Operands::new(eth.compare, eth.swap_add),
                    _ => Operands::new(eth.swap_add, 0),
                };
                return self.atomic(by, &piece, &operands);
            }
            (_, Operation::AtomicWrite(reth)) => {
                let bytes = ATOMIC_BYTES as u32;
                let piece = piece(headers, Reth { bytes, ..reth }, 0);
                self.admit(by, &piece)?;
                let value = payload.first_chunk().copied().unwrap_or_default();
                self.atomic_write(by, &piece, u64::from_le_bytes(value))?;
            }
            (_, Operation::Flush(feth, reth)) => {
                let wqe = FlushWqe {
                    kinds: feth.placement,
                    whole: feth.selectivity,
                    remote_addr: reth.addr,
                    rkey: reth.key,
                    bytes: u64::from(reth.bytes),
                    ..FlushWqe::default()
                };
                self.flush_remote(by, &wqe)?;
            }
            _ => {}
        }
        Ok(0)
    }

    /// Takes a part of a SEND or WRITE, and completes the receive with the last one.
    fn take_part(
        &mut self,
        by: Responder,
        write: &mut Reth,
        part: &segment::Piece,
        headers: &Headers,
        payload: &[u8],
    ) -> Answer<()> {
        let (begins, ends) = (part.position.begins(), part.position.ends());
        if let Operation::WriteFirst(reth) | Operation::WriteOnly(reth, _) = headers.operation {
            *write = reth;
        }
        let whole = *write;
        let bytes = part.bytes;
        let piece = piece(headers, Reth { bytes, ..whole }, part.offset);
        if piece.kind.remote != 0 || begins {
            self.admit(by, &piece)?;
        } else {
            self.admit_more(by, piece.bytes)?;
        }
        // A packet that is all of its message has the same range.
        if piece.kind.remote != 0 && begins && !ends && whole.bytes != 0 {
            let whole = self::piece(headers, whole, 0);
            self.find(by, &whole)?;
        }
        self.take_bytes(by, piece, payload)?;
        if piece.opcode == opcode::SEND_INV {
            self.invalidate(by, piece.imm)?;
        }
        if ends && piece.kind.receives {
            self.complete_receive(by.qp, piece);
        }
        Ok(())
    }

    /// Puts the bytes of a packet where they go.
    fn take_bytes(&mut self, by: Responder, mut piece: Piece, mut payload: &[u8]) -> Answer<()> {
        while !payload.is_empty() {
            let most = payload.len() as u64;
            piece.range.bytes = most;
            let (place, near) = self.place(by, &piece, most)?;
            let count = near.min(most);
            let (bytes, rest) = payload.split_at_checked(count as usize).unwrap_or_default();
            let written = self.regions.write(&mut self.core.bus, place, bytes);
            written.map_err(|_| self.nak_dma(by, piece))?;
            if piece.kind.remote == 0 {
                self.filled(by.qp, count as u32);
            }
            piece.range.addr = piece.range.addr.wrapping_add(count);
            payload = rest;
        }
        Ok(())
    }

    /// A packet of an unreliable connection. A message that cannot be received is dropped; a receive
    /// that was taken for it is the next one.
    fn receive_unreliable(
        &mut self,
        by: Responder,
        link: &mut Link,
        headers: &Headers,
        payload: &[u8],
    ) {
        let Transport::Uc(both) = &mut link.transport else {
            return;
        };
        let received = both
            .receiver
            .receive(headers.psn, &headers.operation, payload.len());
        let mut dropped = received.lost;
        if let Some(part) = received.piece {
            let taken = self.take_part(by, &mut link.write, &part, headers, payload);
            if taken.is_err() {
                both.receiver.abandon();
                dropped = true;
            }
        }
        self.core.bus.add(Counter::Dropped, u64::from(dropped));
    }

    /// Reads the memory of an answer to a READ.
    ///
    /// # Errors
    ///
    /// How the answer is refused.
    pub(crate) fn read_for_peer(
        &mut self,
        by: Responder,
        range: Reth,
        mut to: &mut [u8],
    ) -> Result<(), (Nak, Detail)> {
        if by.access & access::REMOTE_READ == 0 {
            return Err((Nak::InvalidRequest, Detail::Rights));
        }
        let mut range = Range {
            key: Number::from_raw(range.key),
            addr: range.addr,
            bytes: 0,
        };
        let refused = |detail| (nak_of_memory(detail), detail);
        while !to.is_empty() {
            range.bytes = to.len() as u64;
            let found = self.resolve_remote(by, access::REMOTE_READ, range);
            let (place, near) = found.map_err(refused)?;
            let count = near.min(to.len() as u64);
            let (part, rest) = to.split_at_mut_checked(count as usize).unwrap_or_default();
            let read = self.regions.read(&mut self.core.bus, place, part);
            read.map_err(|_| refused(Detail::Dma))?;
            range.addr = range.addr.wrapping_add(count);
            to = rest;
        }
        Ok(())
    }
}
