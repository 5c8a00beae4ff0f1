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
/// Bytes of the headers of UDP and BTH.
const REST: usize = 8 + BTH_BYTES;
/// The CRC of the ones that stand for the local route header.
const ONES: u32 = 0x2144_df1c;

/// Ones for what changes in an IPv4 header: DSCP and ECN, time to live, checksum.
const IPV4: [u8; 20] = {
    let mut ones = [0; 20];
    (ones[1], ones[8], ones[10], ones[11]) = (0xff, 0xff, 0xff, 0xff);
    ones
};
/// In an IPv6 header: traffic class and flow label, hop limit.
const IPV6: [u8; 40] = {
    let mut ones = [0; 40];
    (ones[0], ones[1], ones[2], ones[3], ones[7]) = (0x0f, 0xff, 0xff, 0xff, 0xff);
    ones
};
/// In the headers of UDP and BTH: the checksum; FECN and BECN.
const UDP_BTH: [u8; REST] = {
    let mut ones = [0; REST];
    (ones[6], ones[7], ones[8 + 4]) = (0xff, 0xff, 0xff);
    ones
};

/// The ICRC of an IP header, of 20 or 40 bytes, and of all that follows it. `None` if there are
/// fewer bytes than headers.
pub fn icrc(ip: &[u8], rest: &[u8]) -> Option<[u8; BYTES]> {
    let (udp_bth, after) = rest.split_first_chunk()?;
    let mut crc = Hasher::new_with_initial(ONES);
    match ip.len() {
        20 => covered::<20, { 20 + REST }>(&mut crc, ip.first_chunk()?, &IPV4, udp_bth),
        _ => covered::<40, { 40 + REST }>(&mut crc, ip.first_chunk()?, &IPV6, udp_bth),
    }
    crc.update(after);
    Some(crc.finalize().to_le_bytes())
}

/// Adds the headers of which routers change some, `HEADERS` bytes.
#[inline(always)]
fn covered<const IP: usize, const HEADERS: usize>(
    crc: &mut Hasher,
    ip: &[u8; IP],
    ones: &[u8; IP],
    udp_bth: &[u8; REST],
) {
    let mut headers = [0; HEADERS];
    let (first, rest) = headers.split_at_mut(IP);
    put(first, ip, ones);
    put(rest, udp_bth, &UDP_BTH);
    crc.update(&headers);
}

#[inline(always)]
fn put<const N: usize>(to: &mut [u8], bytes: &[u8; N], ones: &[u8; N]) {
    for (place, (byte, ones)) in to.iter_mut().zip(bytes.iter().zip(ones)) {
        *place = byte | ones;
    }
}
