// SPDX-License-Identifier: GPL-2.0
//! The invariant CRC of RoCEv2.
//!
//! It covers everything from the IP header to the end of the padding. What routers change counts as
//! ones, and eight bytes of ones, which stand for the local route header of InfiniBand, go before
//! it. It is the CRC of Ethernet, least significant byte first.

use crate::extended::BTH_BYTES;
use crc32fast::Hasher;

/// Bytes of an ICRC.
pub const BYTES: usize = 4;
/// Bytes of a UDP header.
const UDP_BYTES: usize = 8;
/// Bytes of the ones, of the longest IP header, of UDP and of the BTH.
const MOST: usize = 8 + 40 + UDP_BYTES + BTH_BYTES;

/// What counts as ones in an IPv4 header: DSCP and ECN, time to live, checksum.
const IPV4: &[(usize, u8)] = &[(1, 0xff), (8, 0xff), (10, 0xff), (11, 0xff)];
/// In an IPv6 header: traffic class and flow label, hop limit.
const IPV6: &[(usize, u8)] = &[(0, 0x0f), (1, 0xff), (2, 0xff), (3, 0xff), (7, 0xff)];
/// In the headers of UDP and BTH: the checksum; FECN and BECN.
const REST: &[(usize, u8)] = &[(6, 0xff), (7, 0xff), (UDP_BYTES + 4, 0xff)];

/// The ICRC of an IP header, of 20 or 40 bytes, and of all that follows it. `None` if there are
/// fewer bytes than headers.
pub fn icrc(ip: &[u8], rest: &[u8]) -> Option<[u8; BYTES]> {
    let mut head = [0xff; MOST];
    let (udp_bth, after) = rest.split_at_checked(UDP_BYTES + BTH_BYTES)?;
    let end = 8usize.checked_add(ip.len())?;
    head.get_mut(8..end)?.copy_from_slice(ip);
    let whole = end.checked_add(udp_bth.len())?;
    head.get_mut(end..whole)?.copy_from_slice(udp_bth);
    let changed = if ip.len() == 20 { IPV4 } else { IPV6 };
    let changed = changed.iter().map(|&(at, ones)| (at.wrapping_add(8), ones));
    let rest = REST.iter().map(|&(at, ones)| (at.wrapping_add(end), ones));
    for (at, ones) in changed.chain(rest) {
        *head.get_mut(at)? |= ones;
    }
    let mut crc = Hasher::new();
    crc.update(head.get(..whole)?);
    crc.update(after);
    Some(crc.finalize().to_le_bytes())
}
