// SPDX-License-Identifier: GPL-2.0
//! Datagrams: address handles, and the work requests of queue pairs of UD.
//!
//! A queue pair of UD has no peer. Each of its sends names a [`Destination`]: a port by an address
//! handle ([`Ah`]), there a queue pair by its number, and the Q_Key that this one must have. The
//! send completes when the datagram was sent, and the sender does not learn whether it was
//! delivered: one that finds no queue pair, another Q_Key or no receive with enough room is dropped.
//!
//! A receive gets [`GRH_BYTES`] bytes of header, then the payload, so its pieces have so much more
//! room. The completion has the sender's number ([`Completion::src`](crate::Completion::src)), for
//! an answer.

use std::sync::Arc;

use qpair_abi::command::GidContext;
use qpair_abi::entry::{
    opcode, send_flags, ud_inline_bytes, ud_sges, Sge, UdWqe, BLOCK_WORDS, MAX_BLOCKS,
};
use qpair_abi::Number;
use rustix::io::Errno;

use crate::error::Error;
use crate::kernel::{Gid, Resolved};
use crate::mr::{Pd, PdInner};
use crate::wr::{Encode, Limits, Payload, WORDS};

pub use crate::kernel::Address;
pub use qpair_abi::entry::{DATAGRAM_BYTES, GRH_BYTES, OWN_Q_KEY};

/// An address handle: the address of a port, as the kernel has resolved it.
#[derive(Debug)]
pub struct Ah {
    pd: Arc<PdInner>,
    resolved: Resolved,
}

impl Ah {
    /// Makes one in a domain. An address that this port cannot reach is no error: what is sent
    /// there is dropped.
    ///
    /// # Errors
    ///
    /// [`Error::Kernel`] with `EDQUOT`: this context has as many as it may.
    pub fn new(pd: &Pd, address: Address) -> Result<Self, Error> {
        let pd = pd.inner.clone();
        let made = pd.context.kernel.create_ah(pd.handle, address);
        let resolved = made.map_err(Error::kernel("make an address handle"))?;
        Ok(Self { pd, resolved })
    }

    /// The address of the port itself, at which all queue pairs of the device are: by its LID, or on
    /// a port of RoCE by the first of its GIDs.
    ///
    /// # Errors
    ///
    /// As of [`Ah::new`]. [`Error::NoAddress`]: a port of RoCE whose network device has no address.
    pub fn own(pd: &Pd) -> Result<Self, Error> {
        Self::new(pd, pd.inner.context.address()?)
    }

    /// The GID of the port; 0 if it cannot be reached.
    pub fn gid(&self) -> Gid {
        self.resolved.gid
    }

    /// A queue pair at this address, whose Q_Key is `q_key`. With [`OWN_Q_KEY`] the Q_Key of the
    /// sender counts instead. The destination stays valid when the handle is dropped.
    pub const fn to(&self, number: Number, q_key: u32) -> Destination {
        let GidContext { gid, gid_high } = GidContext::from_bytes(self.resolved.gid);
        Destination {
            gid,
            gid_high,
            // CAST: Wider.
            route: self.resolved.source as u64,
            mac: self.resolved.mac,
            number,
            q_key,
        }
    }
}

impl Drop for Ah {
    fn drop(&mut self) {
        // Fails only if the context is dead, and then the object is gone.
        let _: Result<(), Errno> = self.pd.context.kernel.destroy_ah(self.resolved.handle);
    }
}

/// Where a datagram goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Destination {
    gid: u64,
    gid_high: u64,
    route: u64,
    mac: [u8; 6],
    number: Number,
    q_key: u32,
}

impl Destination {
    /// Sets the hop limit in the header of the datagram; it is 1 otherwise, and for 0.
    pub fn hop_limit(self, hops: u8) -> Self {
        self.with(|wqe| wqe.hop_limit = hops)
    }

    /// Sets the traffic class in the header; it is 0 otherwise.
    pub fn traffic_class(self, class: u8) -> Self {
        self.with(|wqe| wqe.traffic_class = class)
    }

    /// Sets the flow label in the header, of 20 bits; it is 0 otherwise.
    pub fn flow_label(self, label: u32) -> Self {
        self.with(|wqe| wqe.set_flow_label(label))
    }

    fn with(mut self, set: impl FnOnce(&mut UdWqe)) -> Self {
        let mut wqe = UdWqe::decode(&[0, 0, 0, self.route, 0, 0, 0, 0]);
        set(&mut wqe);
        let [_, _, _, route, ..] = wqe.encode();
        self.route = route;
        self
    }
}

/// A work request for the send queue of a queue pair of UD: one message of at most 4096 bytes.
///
/// ```compile_fail,E0308
/// # use qpair::{Qp, Rts, Ud, WorkRequest};
/// fn send(qp: &Qp<Rts, Ud>) {
///     let _ = qp.post_send(&[WorkRequest::send(1, &[])]); // without a destination
/// }
/// ```
///
/// ```compile_fail,E0308
/// # use qpair::{Datagram, Destination, Qp, Rts};
/// fn send(qp: &Qp<Rts>, to: Destination) {
///     let _ = qp.post_send(&[Datagram::send(1, to, &[])]); // to other than its peer
/// }
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Datagram<'a> {
    id: u64,
    to: Destination,
    opcode: u8,
    flags: u8,
    imm: u32,
    payload: Payload<'a>,
}

impl<'a> Datagram<'a> {
    /// Sends these pieces, at most 12.
    pub const fn send(id: u64, to: Destination, sges: &'a [Sge]) -> Self {
        Self {
            id,
            to,
            opcode: opcode::SEND,
            flags: 0,
            imm: 0,
            payload: Payload::Gather(sges),
        }
    }

    /// Sends these bytes, at most 192, which go into the queue itself.
    pub const fn send_inline(id: u64, to: Destination, bytes: &'a [u8]) -> Self {
        let mut datagram = Self::send(id, to, &[]);
        datagram.payload = Payload::Inline(bytes);
        datagram.flags = send_flags::INLINE;
        datagram
    }

    /// Carries 32 bits to the receiver's completion.
    pub const fn imm(mut self, imm: u32) -> Self {
        self.opcode = opcode::SEND_IMM;
        self.imm = imm;
        self
    }

    /// Requests a completion. A failed request always has one, and the library requests one where
    /// the queue could otherwise not free its slots.
    pub const fn signaled(mut self) -> Self {
        self.flags |= send_flags::SIGNALED;
        self
    }

    /// Makes the receiver's completion a solicited one.
    pub const fn solicited(mut self) -> Self {
        self.flags |= send_flags::SOLICITED;
        self
    }

    #[inline(always)]
    fn head(&self, blocks: u32, signaled: bool) -> [u64; UdWqe::WORDS] {
        let (sges, inline_bytes) = self.payload.counts();
        let wqe = UdWqe {
            opcode: self.opcode,
            flags: if signaled {
                self.flags | send_flags::SIGNALED
            } else {
                self.flags
            },
            blocks: blocks as u8,
            sges: sges as u8,
            imm: self.imm,
            wr_id: self.id,
            dest: self.to.number,
            q_key: self.to.q_key,
            inline_bytes: inline_bytes as u8,
            gid: self.to.gid,
            gid_high: self.to.gid_high,
            ..UdWqe::default()
        };
        let [a, b, c, d, e, f, ..] = wqe.encode();
        [a, b, c, d | self.to.route, e, f, UdWqe::mac(self.to.mac), 0]
    }

    /// Bytes of its payload, if they are of pieces; those of inline data are few.
    #[inline(always)]
    fn gathered(&self) -> u64 {
        match self.payload {
            Payload::Gather(sges) => sges.iter().map(|sge| u64::from(sge.bytes)).sum(),
            _ => 0,
        }
    }
}

/// The limits of datagrams, on a device with those of work requests.
pub(crate) fn limits(of_all: &Limits) -> Limits {
    Limits {
        send_sges: of_all.send_sges.min(ud_sges(MAX_BLOCKS)),
        inline: of_all.inline.min(ud_inline_bytes(MAX_BLOCKS)),
    }
}

impl Encode for Datagram<'_> {
    #[inline(always)]
    fn wants_signal(&self) -> bool {
        self.flags & send_flags::SIGNALED != 0
    }

    #[inline(always)]
    fn blocks(&self, limits: &Limits) -> Result<u32, &'static str> {
        if self.gathered() > DATAGRAM_BYTES as u64 {
            return Err("more bytes than a datagram has (4096)");
        }
        self.payload.blocks(UdWqe::WORDS, limits)
    }

    /// Of no piece: the head is a block.
    #[inline(always)]
    fn one_block(self) -> Option<impl FnOnce(bool) -> [u64; BLOCK_WORDS]> {
        match self.payload {
            Payload::Gather([]) => Some(move |signaled| self.head(1, signaled)),
            _ => None,
        }
    }

    #[inline]
    fn encode(&self, blocks: u32, signaled: bool) -> [u64; WORDS] {
        let mut words = [0; WORDS];
        let (head, body) = words.split_at_mut(UdWqe::WORDS);
        self.payload.put(body);
        head.copy_from_slice(&self.head(blocks, signaled));
        words
    }
}
