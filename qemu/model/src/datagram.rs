// SPDX-License-Identifier: GPL-2.0
//! Datagrams: the messages of UD queue pairs.
//!
//! A datagram is delivered or dropped, as a whole and at once: it is not split over turns, and its
//! sender waits for nothing. A drop is counted, and its sender completes with success. Only the
//! WQE, the length and the memory of the sender can fail the sender, and only a receive that is
//! invalid by itself fails the destination. One to a [group](crate::group) is as many datagrams as
//! the group has members, and may take more turns.
//!
//! One to a GID of another port leaves the function, if it is wired, and one to a group leaves it besides. It
//! waits in the SQ until the network has room.
//!
//! | dropped because of | receive |
//! |---|---|
//! | a foreign GID, or no GID to send from | - |
//! | a destination that does not exist, is of another service, or is not ready | - |
//! | the Q_Key | - |
//! | no receive | - |
//! | a receive too short | stays |
//! | an invalid receive | local QP operation |
//! | the receive's memory | local protection |

use crate::attributes::Attributes;
use crate::datapath::DataPath;
use crate::group::charge;
use crate::group::is_for_group;
use crate::host::Host;
use crate::message::copy_inline;
use crate::message::next_range;
use crate::message::Cursor;
use crate::message::Message;
use crate::message::Piece;
use crate::message::Sender;
use crate::net::source_port;
use crate::path::bytes_of;
use crate::path::is_ipv4;
use crate::region::Range;
use crate::work_queue::NoReceive;
use crate::work_queue::Receive;
use qpair_abi::command::access;
use qpair_abi::command::qp_flags;
use qpair_abi::command::qp_state;
use qpair_abi::command::service;
use qpair_abi::counters::Counter;
use qpair_abi::entry::cqe_flags;
use qpair_abi::entry::opcode;
use qpair_abi::entry::send_flags;
use qpair_abi::entry::Cqe;
use qpair_abi::entry::RecvWqe;
use qpair_abi::entry::UdWqe;
use qpair_abi::entry::DATAGRAM_BYTES;
use qpair_abi::entry::GRH_BYTES;
use qpair_abi::entry::OWN_Q_KEY;
use qpair_abi::status::Detail;
use qpair_abi::status::Status;
use qpair_abi::Number;
use qpair_roce::extended::Deth;
use qpair_roce::extended::With;
use qpair_roce::frame::Route;
use qpair_roce::header::Headers;
use qpair_roce::header::Service;
use qpair_roce::operation::Operation;

/// The version of the GRH, which is that of IPv6, in its first word.
const GRH_VERSION: u32 = 6 << 28;
/// The next header of a GRH: the transport header of InfiniBand.
const GRH_NEXT: u8 = 0x1b;
/// That of a GRH of RoCE: UDP.
const UDP_NEXT: u8 = 17;
/// Bytes of the header of UDP.
const UDP_BYTES: u16 = 8;
/// The hop limit where the WQE has 0: the GRH is forwarded by no router.
const GRH_HOPS: u8 = 1;
/// Bytes of the transport headers and of the checksum that a GRH counts as payload.
const TRANSPORT_BYTES: u16 = 12 + 8 + 4;
/// Bytes of the header of immediate data.
const IMM_BYTES: u16 = 4;

/// The Q_Key of a datagram.
#[inline(always)]
fn q_key_of(from: &Attributes, wqe: &UdWqe) -> u32 {
    let own = wqe.q_key & OWN_Q_KEY != 0;
    if own {
        from.q_key
    } else {
        wqe.q_key
    }
}

/// The hop limit of a datagram.
fn hops(wqe: &UdWqe) -> u8 {
    match wqe.hop_limit {
        0 => GRH_HOPS,
        hops => hops,
    }
}

impl<H: Host> DataPath<H> {
    /// Sends a datagram whose WQE and memory were checked: whether the turn goes on after it.
    ///
    /// # Errors
    ///
    /// The sender's memory could not be read.
    pub(crate) fn datagram(
        &mut self,
        sender: &Sender,
        message: &Message,
        words: &[u64],
        budget: &mut u64,
    ) -> Result<bool, (Status, Detail)> {
        // One that goes on is for a group.
        let begun = message.done != 0;
        let mut packet = core::mem::take(&mut self.bounce);
        let delivered = match begun {
            true => Ok(false),
            false => self.deliver(sender, message, words, &mut packet),
        };
        self.bounce = packet;
        if delivered? {
            *budget = budget.saturating_sub(u64::from(message.bytes));
        } else {
            let wqe = words.first_chunk().map(UdWqe::decode).unwrap_or_default();
            let route = if begun {
                None
            } else {
                self.route(sender, &wqe)
            };
            if let Some(route) = &route {
                if self.room() == 0 {
                    self.wait_for_room(sender.qp);
                    return Ok(false);
                }
                self.send_frame(sender, message, (wqe, words), route)?;
                *budget = budget.saturating_sub(u64::from(message.bytes));
            }
            if is_for_group(&wqe) {
                return self.copy_to_group(sender, message, (wqe, words), budget);
            }
            if route.is_none() {
                self.core.bus.count(Counter::Dropped);
            }
        }
        Ok(self.complete_unreliable(sender.qp, &message.wqe, message.past) && *budget != 0)
    }

    /// The route of a datagram that leaves the function: to another port, or to a group. One between
    /// an IPv4 and an IPv6 address has none.
    #[cold]
    fn route(&self, sender: &Sender, wqe: &UdWqe) -> Option<Route> {
        let from = self.qps.get(sender.qp)?.gid;
        let (from, to) = (self.port.sends_from(from, wqe)?, [wqe.gid, wqe.gid_high]);
        if !self.is_linked() || self.port.has(to) || is_ipv4(from) != is_ipv4(to) {
            return None;
        }
        let [a, b, c, d] = wqe.mac_low.to_le_bytes();
        let [e, f] = wqe.mac_high.to_le_bytes();
        Some(Route {
            from_mac: self.core.knobs.mac,
            to_mac: [a, b, c, d, e, f],
            from: bytes_of(from),
            to: bytes_of(to),
            source_port: source_port(sender.qp),
            hops: hops(wqe),
            class: wqe.traffic_class,
            flow: wqe.flow_label(),
        })
    }

    /// Sends a datagram to the network.
    fn send_frame(
        &mut self,
        sender: &Sender,
        message: &Message,
        (wqe, words): (UdWqe, &[u64]),
        route: &Route,
    ) -> Result<(), (Status, Detail)> {
        let from = self.qps.get(sender.qp).map(|found| found.attributes);
        let deth = Deth {
            q_key: q_key_of(&from.unwrap_or_default(), &wqe),
            source: self.port.name(sender.qp).raw(),
        };
        let with = match wqe.opcode {
            opcode::SEND_IMM => With::Immediate(wqe.imm.to_le_bytes()),
            _ => With::Nothing,
        };
        let headers = Headers {
            service: Service::Ud(deth),
            operation: Operation::SendOnly(with),
            solicited: wqe.flags & send_flags::SOLICITED != 0,
            ack: false,
            dest: wqe.dest.raw(),
            psn: self.frames.next_psn(),
        };
        let bytes = message.bytes as usize;
        let sent = self.transmit(route, &headers, bytes, |data, payload| {
            data.gather(sender, message, words, payload)
        });
        sent.map_err(|detail| (Status::LocalProtection, detail))?;
        let bytes = u64::from(message.bytes);
        self.core.bus.add(Counter::SendBytes, bytes);
        Ok(())
    }

    /// Copies a datagram to the members of a group, as far as the turn goes: whether the turn goes on
    /// after it.
    ///
    /// # Errors
    ///
    /// The sender's memory could not be read.
    #[cold]
    fn copy_to_group(
        &mut self,
        sender: &Sender,
        message: &Message,
        (wqe, words): (UdWqe, &[u64]),
        budget: &mut u64,
    ) -> Result<bool, (Status, Detail)> {
        let mut packet = core::mem::take(&mut self.bounce);
        let done = self.copy_to_members(sender, message, (wqe, words), budget, &mut packet);
        self.bounce = packet;
        let done = done?;
        // A copy for itself may have failed it: then its request is flushed.
        if !self.may_send(sender.qp) {
            return Ok(false);
        }
        let Some(last) = done else {
            return Ok(
                self.complete_unreliable(sender.qp, &message.wqe, message.past) && *budget != 0,
            );
        };
        let message = Message {
            done: last.raw(),
            ..*message
        };
        self.pause(sender.qp, &message, words);
        Ok(false)
    }

    /// The member that had the last copy, if others are to have theirs in another turn.
    fn copy_to_members(
        &mut self,
        sender: &Sender,
        message: &Message,
        (wqe, words): (UdWqe, &[u64]),
        budget: &mut u64,
        packet: &mut [u8],
    ) -> Result<Option<Number>, (Status, Detail)> {
        let gid = [wqe.gid, wqe.gid_high];
        let bytes = message.bytes as usize;
        let from = self.qps.get(sender.qp).map(|found| found.attributes);
        let from = from.unwrap_or_default();
        let mut last = Number::from_raw(message.done);
        let mut member = self.groups.next(gid, last);
        let no_source = self.port.source(from.gid, &wqe) == [0; 2];
        if message.done != 0 && no_source {
            // The rest of the copies.
            let left = self.groups.members_after(gid, last);
            self.core.bus.add(Counter::Dropped, left as u64);
            return Ok(None);
        }
        if member.is_none() && message.done == 0 || no_source {
            // One that has left for the network is not lost.
            let lost = no_source || !self.is_linked();
            self.core.bus.add(Counter::Dropped, u64::from(lost));
            return Ok(None);
        }
        let q_key = q_key_of(&from, &wqe);
        let cost = charge(&self.core.config, message.bytes);
        let whole = packet.get_mut(..bytes.saturating_add(GRH_BYTES));
        let whole = whole.unwrap_or(&mut []);
        if let Some((header, payload)) = whole.split_first_chunk_mut() {
            let gathered = self.gather(sender, message, words, payload);
            gathered.map_err(|detail| (Status::LocalProtection, detail))?;
            *header = self.grh(sender, &wqe, message);
        }
        while let Some(dest) = member {
            // The turn that sends the frame makes the first copy too: `done` says that both are done.
            if *budget == 0 && last != Number::default() {
                return Ok(Some(last));
            }
            let is_own = dest == sender.qp && from.flags & qp_flags::NO_OWN_COPY != 0;
            if !is_own {
                *budget = budget.saturating_sub(cost);
                let piece = message.piece();
                if !self.fill((dest, q_key), sender.qp, &piece, whole) {
                    self.core.bus.count(Counter::Dropped);
                }
            }
            // A completion may have stopped the function, or its own copy the sender.
            if !self.core.is_ready() || !self.may_send(sender.qp) {
                break;
            }
            last = dest;
            member = self.groups.next(gid, last);
        }
        Ok(None)
    }

    /// Fills a receive of the destination. False: the datagram is to be dropped.
    fn deliver(
        &mut self,
        sender: &Sender,
        message: &Message,
        words: &[u64],
        packet: &mut [u8],
    ) -> Result<bool, (Status, Detail)> {
        let mut wqe = words.first_chunk().map(UdWqe::decode).unwrap_or_default();
        wqe.dest = self.port.named(wqe.dest);
        let bytes = message.bytes as usize;
        let whole = bytes.saturating_add(GRH_BYTES);
        if !self.accepts(sender, &wqe) || !self.take_room(wqe.dest, whole as u64) {
            return Ok(false);
        }
        let Some((header, payload)) = packet
            .get_mut(..whole)
            .and_then(|packet| packet.split_first_chunk_mut())
        else {
            return Ok(false);
        };
        let gathered = self.gather(sender, message, words, payload);
        gathered.map_err(|detail| (Status::LocalProtection, detail))?;
        *header = self.grh(sender, &wqe, message);
        let packet = packet.get(..whole).unwrap_or(&[]);
        Ok(self.fill_taken(wqe.dest, sender.qp, &message.piece(), packet))
    }

    /// Fills a receive of the destination with a packet of this function. False: it is to be dropped.
    fn fill(
        &mut self,
        (dest, q_key): (Number, u32),
        source: Number,
        piece: &Piece,
        packet: &[u8],
    ) -> bool {
        self.is_accepted(dest, q_key)
            && self.take_room(dest, packet.len() as u64)
            && self.fill_taken(dest, source, piece, packet)
    }

    /// Fills the receive that was taken with a packet of this function. False: it is to be dropped.
    #[inline(always)]
    fn fill_taken(&mut self, dest: Number, source: Number, piece: &Piece, packet: &[u8]) -> bool {
        let source = self.port.name(source);
        let filled = self.fill_and_complete(dest, source, piece, packet);
        if filled {
            self.core
                .bus
                .add(Counter::SendBytes, u64::from(piece.bytes));
        }
        filled
    }

    /// Fills a receive of the destination with a packet from the network, as it came. False: it is
    /// to be dropped.
    pub(crate) fn fill_from_network(
        &mut self,
        dest: Number,
        deth: Deth,
        piece: &Piece,
        packet: &[u8],
    ) -> bool {
        let source = Number::from_raw(deth.source);
        self.is_accepted(dest, deth.q_key)
            && self.take_room(dest, packet.len() as u64)
            && self.fill_and_complete(dest, source, piece, packet)
    }

    #[inline(always)]
    fn fill_and_complete(
        &mut self,
        dest: Number,
        source: Number,
        piece: &Piece,
        packet: &[u8],
    ) -> bool {
        if let Err(detail) = self.scatter(dest, packet) {
            self.fail_receive(dest, Status::LocalProtection, detail);
            return false;
        }
        self.complete_datagram(dest, source, piece, packet);
        true
    }

    /// Whether the destination of a datagram takes datagrams of this sender.
    fn accepts(&mut self, sender: &Sender, wqe: &UdWqe) -> bool {
        let Some(from) = self.qps.get(sender.qp) else {
            return false;
        };
        let q_key = q_key_of(&from.attributes, wqe);
        if !self.port.keeps(from.gid, wqe) {
            return false;
        }
        self.is_accepted(wqe.dest, q_key)
    }

    /// Whether a queue pair takes datagrams with this Q_Key.
    #[inline(always)]
    fn is_accepted(&mut self, dest: Number, q_key: u32) -> bool {
        let Some(dest) = self.qps.get(dest) else {
            if self.qps.is_stale(dest) {
                self.core.bus.count(Counter::Stale);
            }
            return false;
        };
        dest.service == service::UD
            && matches!(dest.state, qp_state::RTR | qp_state::RTS | qp_state::SQD)
            && dest.q_key == q_key
    }

    /// Takes the next receive of the destination, if one is posted and has room. One that is too
    /// short stays the next, of an SRQ that of all its queue pairs.
    fn take_room(&mut self, dest: Number, bytes: u64) -> bool {
        let detail = match self.take_receive(dest, bytes) {
            Ok(()) => {
                let found = self.qps.get(dest);
                let receive = found.and_then(|found| found.receiving.as_ref());
                return receive.map_or(0, Receive::room) >= bytes;
            }
            Err(NoReceive::Empty | NoReceive::Short) => return false,
            Err(NoReceive::Dma) => Detail::Dma,
            Err(NoReceive::Bad(detail)) => detail,
        };
        self.fail_receive(dest, Status::LocalQpOperation, detail);
        false
    }

    /// Reads the sender's bytes.
    fn gather(
        &mut self,
        sender: &Sender,
        message: &Message,
        words: &[u64],
        mut payload: &mut [u8],
    ) -> Result<(), Detail> {
        if message.is_inline() {
            copy_inline(words, UdWqe::BYTES, payload);
            return Ok(());
        }
        let mut cursor = Cursor::default();
        while !payload.is_empty() {
            let range = next_range(words, UdWqe::WORDS, &mut cursor).ok_or(Detail::Sges)?;
            let (regions, bus) = (&mut self.regions, &mut self.core.bus);
            let (place, bytes) = regions.resolve(bus, sender.pd, message.kind.local, range)?;
            let count = bytes.min(payload.len() as u64) as usize;
            let (part, rest) = payload.split_at_mut_checked(count).ok_or(Detail::Range)?;
            regions.read(bus, place, part).map_err(|_| Detail::Dma)?;
            cursor.done = cursor.done.wrapping_add(count as u32);
            payload = rest;
        }
        Ok(())
    }

    /// Writes a packet into the receive that was taken.
    fn scatter(&mut self, dest: Number, mut packet: &[u8]) -> Result<(), Detail> {
        let found = self.qps.get_mut(dest).ok_or(Detail::State)?;
        let receive = found.receiving.as_mut().ok_or(Detail::State)?;
        let pd = receive.pd;
        while !packet.is_empty() {
            let range = next_range(&receive.words, RecvWqe::WORDS, &mut receive.cursor);
            let range = range.ok_or(Detail::ShortReceive)?;
            let range = Range {
                bytes: range.bytes.min(packet.len() as u64),
                ..range
            };
            let (regions, bus) = (&mut self.regions, &mut self.core.bus);
            let (place, bytes) = regions.resolve(bus, pd, access::LOCAL_WRITE, range)?;
            let count = bytes.min(packet.len() as u64) as usize;
            let (part, rest) = packet.split_at_checked(count).ok_or(Detail::Range)?;
            regions.write(bus, place, part).map_err(|_| Detail::Dma)?;
            receive.cursor.done = receive.cursor.done.wrapping_add(count as u32);
            packet = rest;
        }
        Ok(())
    }

    /// The GRH of a datagram.
    fn grh(&self, sender: &Sender, wqe: &UdWqe, message: &Message) -> [u8; GRH_BYTES] {
        let own = self.qps.get(sender.qp).map_or([0; 2], |found| found.gid);
        let from = self.port.source(own, wqe);
        let (next, encapsulated) = if from == own {
            (GRH_NEXT, 0)
        } else {
            (UDP_NEXT, UDP_BYTES)
        };
        let imm = if wqe.opcode == opcode::SEND_IMM {
            IMM_BYTES
        } else {
            0
        };
        // At most that of a datagram. The transport pads it to whole words.
        let payload = message.bytes.next_multiple_of(4) as u16;
        let headers = TRANSPORT_BYTES.wrapping_add(encapsulated);
        let bytes = payload.wrapping_add(headers).wrapping_add(imm);
        let [high, low] = bytes.to_be_bytes();
        let mut grh = [0; GRH_BYTES];
        let class = u32::from(wqe.traffic_class) << 20;
        let [a, b, c, d] = (GRH_VERSION | class | wqe.flow_label()).to_be_bytes();
        let first = [a, b, c, d, high, low, next, hops(wqe)];
        let gids = from.into_iter().chain([wqe.gid, wqe.gid_high]);
        let rest = gids.flat_map(u64::to_le_bytes);
        for (byte, value) in grh.iter_mut().zip(first.into_iter().chain(rest)) {
            *byte = value;
        }
        grh
    }

    /// Completes the receive that a datagram has filled.
    fn complete_datagram(&mut self, dest: Number, source: Number, piece: &Piece, packet: &[u8]) {
        let Some(found) = self.qps.get_mut(dest) else {
            return;
        };
        let cq = found.recv_cq;
        let bytes = packet.len() as u32;
        let piece = Piece { bytes, ..*piece };
        // A header of IPv6 begins with its version.
        let header = match packet.first() {
            Some(0) => cqe_flags::GRH | cqe_flags::IPV4,
            _ => cqe_flags::GRH,
        };
        if let Some(cqe) = found.received(&piece) {
            let cqe = Cqe {
                src: source.raw(),
                flags: cqe.flags | header,
                ..cqe
            };
            self.complete(cq, &cqe, cqe.flags & cqe_flags::SOLICITED != 0);
        }
    }
}

const _: () = assert!(GRH_BYTES + DATAGRAM_BYTES <= crate::datapath::BOUNCE_BYTES);
