// SPDX-License-Identifier: GPL-2.0
//! Frames of RoCEv2: Ethernet, IPv4 or IPv6, UDP, the headers of the transport, payload, ICRC.
//!
//! A port sees every frame of its network device. So the steps are in the order of their cost, and
//! the caller stops at the first that fails: [`Datagram::of`] looks at addresses and ports, for most
//! frames only at one; [`Datagram::dest`] is the queue pair, without a look at the rest; and
//! [`Datagram::open`] computes the checksum and parses the headers.

use crate::extended::BTH_BYTES;
use crate::header::padding;
use crate::header::Headers;
use crate::icrc;
use crate::icrc::icrc;
use core::ops::Range;

/// The port of UDP.
pub const PORT: u16 = 4791;
const ETH: usize = 14;
const IPV4: usize = 20;
const IPV6: usize = 40;
const UDP: usize = 8;
/// The protocol number of UDP.
const IS_UDP: u8 = 17;
/// Where the BTH has the word of the PSN.
const PSN: usize = 8;
/// Bytes of the longest headers and of the ICRC, without the headers of the transport.
pub const AROUND: usize = ETH + IPV6 + UDP + icrc::BYTES;

/// An address of Ethernet.
pub type Mac = [u8; 6];
/// An IPv6 address, or an IPv4 one mapped to it.
pub type Gid = [u8; 16];

/// The GID of an IPv4 address.
pub const fn mapped([a, b, c, d]: [u8; 4]) -> Gid {
    [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, a, b, c, d]
}

/// The IPv4 address of a GID that has one.
fn ipv4(gid: &Gid) -> Option<[u8; 4]> {
    let rest = gid.strip_prefix(&[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff])?;
    rest.first_chunk().copied()
}

/// Why a frame to the port's address is dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bad {
    /// Its lengths or headers are wrong.
    Malformed,
    /// Its checksum is wrong.
    Checksum,
}

/// A datagram to the port of RoCEv2, of which addresses alone were looked at.
#[derive(Clone, Copy, Debug)]
pub struct Datagram<'a> {
    /// The source.
    pub from: Gid,
    /// The destination.
    pub to: Gid,
    ip: &'a [u8],
    /// From the UDP header to the end of the ICRC.
    rest: &'a [u8],
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    let bytes = bytes.get(at..)?.first_chunk()?;
    Some(u16::from_be_bytes(*bytes))
}

impl<'a> Datagram<'a> {
    /// The datagram of a frame to `mac` or to a group; `None` if it is none of RoCEv2.
    pub fn of(frame: &'a [u8], mac: &Mac) -> Option<Self> {
        let (head, packet) = frame.split_first_chunk::<ETH>()?;
        let (to, rest) = head.split_first_chunk::<6>()?;
        let is_group = to.first()? & 1 != 0;
        if to != mac && !is_group {
            return None;
        }
        let found = match u16_at(rest, 6)? {
            0x0800 => Self::of_ipv4(packet),
            0x86dd => Self::of_ipv6(packet),
            _ => None,
        }?;
        (u16_at(found.rest, 2)? == PORT).then_some(found)
    }

    fn of_ipv4(packet: &'a [u8]) -> Option<Self> {
        let (ip, _) = packet.split_first_chunk::<IPV4>()?;
        let is_fragment = u16_at(ip, 6)? & 0x3fff != 0;
        // No options.
        if *ip.first()? != 0x45 || *ip.get(9)? != IS_UDP || is_fragment {
            return None;
        }
        Some(Self {
            from: mapped(*ip.get(12..)?.first_chunk()?),
            to: mapped(*ip.get(16..)?.first_chunk()?),
            ip,
            rest: packet.get(IPV4..usize::from(u16_at(ip, 2)?))?,
        })
    }

    fn of_ipv6(packet: &'a [u8]) -> Option<Self> {
        let (ip, rest) = packet.split_first_chunk::<IPV6>()?;
        if *ip.first()? >> 4 != 6 || *ip.get(6)? != IS_UDP {
            return None;
        }
        Some(Self {
            from: *ip.get(8..)?.first_chunk()?,
            to: *ip.get(24..)?.first_chunk()?,
            ip,
            rest: rest.get(..usize::from(u16_at(ip, 4)?))?,
        })
    }

    /// The queue pair that it is for; nothing else of it was checked.
    pub fn dest(&self) -> Option<u32> {
        let bytes = self.rest.get(UDP + 5..)?.first_chunk::<3>()?;
        let [a, b, c] = *bytes;
        Some(u32::from_be_bytes([0, a, b, c]))
    }

    /// Bytes of the frame that only the ICRC protects: those from the PSN on to the end of the ICRC.
    pub fn protected(&self) -> Range<usize> {
        let ip = ETH + self.ip.len();
        ip + UDP + PSN..ip + self.rest.len()
    }

    /// Checks it: its headers and its payload.
    pub fn open(&self) -> Result<(Headers, &'a [u8]), Bad> {
        let rest = u16_at(self.rest, 4).and_then(|bytes| self.rest.get(..usize::from(bytes)));
        let rest = rest.filter(|rest| rest.len() >= UDP + BTH_BYTES + icrc::BYTES);
        let (rest, sum) = rest
            .and_then(|rest| rest.split_last_chunk())
            .ok_or(Bad::Malformed)?;
        if rest.len() % 4 != 0 {
            return Err(Bad::Malformed);
        }
        if icrc(self.ip, rest) != Some(*sum) {
            return Err(Bad::Checksum);
        }
        let bytes = rest.get(UDP..).ok_or(Bad::Malformed)?;
        Headers::parse(bytes).map_err(|_| Bad::Malformed)
    }

    /// What a receive of a datagram has before its payload: the IP header, at the end of 40 bytes.
    pub fn grh(&self) -> [u8; IPV6] {
        let mut grh = [0; IPV6];
        let before = IPV6.saturating_sub(self.ip.len());
        if let Some(place) = grh.get_mut(before..) {
            place.copy_from_slice(self.ip);
        }
        grh
    }
}

/// Where a frame goes, and how. Both GIDs are of IPv4 or neither is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Route {
    /// The network device's own address.
    pub from_mac: Mac,
    /// That of the peer, or of the router to it.
    pub to_mac: Mac,
    /// The own GID.
    pub from: Gid,
    /// The peer's.
    pub to: Gid,
    /// The source port of UDP, which selects among equal paths.
    pub source_port: u16,
    /// The hop limit.
    pub hops: u8,
    /// The traffic class.
    pub class: u8,
    /// The flow label, 20 bits; IPv6 alone has it.
    pub flow: u32,
}

/// Why a frame is not built.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoFrame<E> {
    /// It does not fit into the buffer, or into a datagram of IP.
    Room,
    /// The payload is not there.
    Payload(E),
}

/// Builds a frame in `out`, and returns its length. `fill` writes the payload, of `bytes` bytes.
pub fn build<E>(
    out: &mut [u8],
    route: &Route,
    headers: &Headers,
    bytes: usize,
    fill: impl FnOnce(&mut [u8]) -> Result<(), E>,
) -> Result<usize, NoFrame<E>> {
    let transport = headers.encode(bytes);
    let transport = transport.as_slice();
    let both = ipv4(&route.from).zip(ipv4(&route.to));
    let ip = if both.is_some() { IPV4 } else { IPV6 };
    let head = ETH + ip + UDP + transport.len();
    let pad = padding(bytes);
    let whole = head.checked_add(bytes);
    let whole = whole.and_then(|whole| whole.checked_add(pad + icrc::BYTES));
    let whole = whole.ok_or(NoFrame::Room)?;
    // The length of IPv4 counts its header, that of IPv6 does not.
    let counted = whole - ETH - if both.is_some() { 0 } else { IPV6 };
    let counted = u16::try_from(counted).map_err(|_| NoFrame::Room)?;
    let udp_bytes = u16::try_from(whole - ETH - ip).map_err(|_| NoFrame::Room)?;
    let frame = out.get_mut(..whole).ok_or(NoFrame::Room)?;
    let (before, rest) = frame.split_at_mut(head);
    let (payload, end) = rest.split_at_mut(bytes);
    fill(payload).map_err(NoFrame::Payload)?;
    let (pad, _) = end.split_at_mut(pad);
    pad.fill(0);
    let mut head = Head(before);
    head.put(route.to_mac).put(route.from_mac);
    match both {
        Some((from, to)) => head
            .put([0x08, 0])
            .put(ipv4_header(route, from, to, counted)),
        None => {
            let class = u32::from(route.class) << 20;
            head.put([0x86, 0xdd])
                .put((6 << 28 | class | route.flow & 0xf_ffff).to_be_bytes())
                .put(counted.to_be_bytes())
                .put([IS_UDP, route.hops])
                .put(route.from)
                .put(route.to)
        }
    };
    head.put(route.source_port.to_be_bytes())
        .put(PORT.to_be_bytes())
        .put(udp_bytes.to_be_bytes())
        // UDP has no checksum: the ICRC covers more.
        .put([0, 0]);
    head.0.copy_from_slice(transport);
    let covered = frame.get(ETH..whole - icrc::BYTES);
    let covered = covered.and_then(|covered| covered.split_at_checked(ip));
    let sum = covered.and_then(|(ip, rest)| icrc(ip, rest));
    let (sum, place) = sum.zip(frame.last_chunk_mut()).ok_or(NoFrame::Room)?;
    *place = sum;
    Ok(whole)
}

/// What is left of the headers of a frame to write.
struct Head<'a>(&'a mut [u8]);

impl Head<'_> {
    #[inline(always)]
    fn put<const N: usize>(&mut self, bytes: [u8; N]) -> &mut Self {
        if let Some((place, rest)) = core::mem::take(&mut self.0).split_first_chunk_mut() {
            *place = bytes;
            self.0 = rest;
        }
        self
    }
}

fn ipv4_header(route: &Route, from: [u8; 4], to: [u8; 4], bytes: u16) -> [u8; IPV4] {
    let [high, low] = bytes.to_be_bytes();
    let ([a, b, c, d], [e, f, g, h]) = (from, to);
    let (class, hops) = (route.class, route.hops);
    let words = [
        [0x45, class],
        [high, low],
        // Not to be fragmented.
        [0x40, 0],
        [hops, IS_UDP],
        [a, b],
        [c, d],
        [e, f],
        [g, h],
    ];
    let words = words
        .iter()
        .map(|word| u32::from(u16::from_be_bytes(*word)));
    let sum = words.fold(0u32, u32::wrapping_add);
    let sum = (sum & 0xffff) + (sum >> 16);
    let [s, t] = (!((sum & 0xffff) + (sum >> 16)) as u16).to_be_bytes();
    [
        0x45, class, high, low, 0, 0, 0x40, 0, hops, IS_UDP, s, t, a, b, c, d, e, f, g, h,
    ]
}
