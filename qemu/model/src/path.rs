// SPDX-License-Identifier: GPL-2.0
//! Paths: where the peer of a queue pair is, and how frames reach it.

use qpair_abi::command::QpContext;
use qpair_abi::command::READS;
use qpair_abi::entry::MAX_FLOW_LABEL;
use qpair_abi::Number;
use qpair_roce::frame::Mac;
use qpair_roce::psn::Psn;
use qpair_roce::segment::Mtu;

/// A GID, as two words of memory. 0 is none.
pub(crate) type Gid = [u64; 2];

/// The bytes of a GID.
pub(crate) fn bytes_of([low, high]: Gid) -> [u8; 16] {
    (u128::from(high) << 64 | u128::from(low)).to_le_bytes()
}

/// Whether a GID is an IPv4 address that is mapped to one of IPv6.
pub(crate) fn is_ipv4([low, high]: Gid) -> bool {
    low == 0 && high as u32 == 0xffff_0000
}

/// The GID of these bytes.
pub(crate) fn gid_of(bytes: [u8; 16]) -> Gid {
    let whole = u128::from_le_bytes(bytes);
    [whole as u64, (whole >> 64) as u64]
}

/// How frames reach the peer of a queue pair, and the attributes of its connection: the fields that
/// PATH and SQ_PSN set.
#[derive(Clone, Copy)]
pub(crate) struct AddressVector {
    /// The MAC of the next hop.
    pub(crate) mac: Mac,
    /// Where the port's table has the own GID.
    pub(crate) source: u16,
    pub(crate) mtu: Mtu,
    pub(crate) class: u8,
    pub(crate) hops: u8,
    pub(crate) flow: u32,
    /// READs and atomics of the peer whose answers are kept.
    pub(crate) peer_reads: u8,
    /// The first PSN that is expected.
    pub(crate) rq_psn: u32,
    /// The same of the own requests, and their first PSN.
    pub(crate) reads: u8,
    pub(crate) sq_psn: u32,
}

impl AddressVector {
    /// That of a context of PATH; `None` if a field is out of range.
    pub(crate) fn of(context: &QpContext) -> Option<Self> {
        let [a, b, c, d] = context.mac_low.to_le_bytes();
        let [e, f] = context.mac_high.to_le_bytes();
        let known = context.flow_label <= MAX_FLOW_LABEL
            && context.rq_psn <= Psn::MASK
            && context.peer_reads <= READS;
        let mtu = Mtu::from_code(context.log_mtu.wrapping_sub(7));
        Some(Self {
            mac: [a, b, c, d, e, f],
            source: context.source,
            mtu: mtu.filter(|_| known)?,
            class: context.traffic_class,
            hops: context.hop_limit,
            flow: context.flow_label,
            peer_reads: context.peer_reads,
            rq_psn: context.rq_psn,
            reads: 0,
            sq_psn: 0,
        })
    }

    /// With the fields of a context of SQ_PSN; `None` if one is out of range.
    pub(crate) fn with_sq(self, context: &QpContext) -> Option<Self> {
        let known = context.sq_psn <= Psn::MASK && context.reads <= READS;
        known.then_some(Self {
            reads: context.reads,
            sq_psn: context.sq_psn,
            ..self
        })
    }

    /// A context with its fields, for QUERY.
    pub(crate) fn context(&self) -> QpContext {
        let [a, b, c, d, e, f] = self.mac;
        QpContext {
            log_mtu: self.mtu.bytes().ilog2() as u8,
            source: self.source,
            reads: self.reads,
            peer_reads: self.peer_reads,
            mac_low: u32::from_le_bytes([a, b, c, d]),
            mac_high: u16::from_le_bytes([e, f]),
            traffic_class: self.class,
            hop_limit: self.hops,
            sq_psn: self.sq_psn,
            rq_psn: self.rq_psn,
            flow_label: self.flow,
            ..QpContext::default()
        }
    }
}

/// A queue pair at another port.
#[derive(Clone, Copy)]
pub(crate) struct RemoteQp {
    pub(crate) gid: Gid,
    pub(crate) qp: Number,
}

/// The path of a queue pair to its peer.
#[derive(Clone, Copy, Default)]
pub(crate) enum Path {
    /// It has no peer.
    #[default]
    None,
    /// The peer is this queue pair of this function.
    Here(Number),
    /// The peer is at another port. It does not answer unless frames reach it.
    There(RemoteQp),
}

impl Path {
    /// The peer, if it is of this function.
    #[inline]
    pub(crate) fn here(&self) -> Option<Number> {
        match *self {
            Self::Here(peer) => Some(peer),
            Self::None | Self::There(_) => None,
        }
    }

    /// Whether it leads to this queue pair of this function.
    #[inline]
    pub(crate) fn leads_to(&self, qp: Number) -> bool {
        self.here() == Some(qp)
    }
}
