// SPDX-License-Identifier: GPL-2.0
//! Work requests, assembled field by field.

use qpair_abi::entry::opcode;
use qpair_abi::entry::send_flags;
use qpair_abi::entry::RecvWqe;
use qpair_abi::entry::SendWqe;
use qpair_abi::entry::Sge;
use qpair_abi::entry::BLOCK_WORDS;
use qpair_abi::entry::MAX_BLOCKS;

use super::memory::Buffer;

/// A work request. `head` is public and is posted as it is: a test can set any field after the
/// others were filled in.
#[derive(Clone, Debug)]
pub(crate) struct Wqe {
    /// The first four words.
    pub(crate) head: SendWqe,
    sges: Vec<Sge>,
    inline: Vec<u8>,
    /// The rest of the head: of UD the GID of the destination's port and the network device that
    /// leads there, of an atomic its operands, of a bind length and keys.
    rest: Vec<u64>,
}

/// The key that [`Wqe::bind`] gives a window.
pub(crate) fn bound(window: u32) -> u32 {
    window & !0xff | window.wrapping_add(1) & 0xff
}

impl Wqe {
    /// A signaled work request without data.
    pub(crate) fn new(opcode: u8, wr_id: u64) -> Self {
        Self {
            head: SendWqe {
                opcode,
                wr_id,
                flags: send_flags::SIGNALED,
                blocks: 1,
                ..Default::default()
            },
            sges: Vec::new(),
            inline: Vec::new(),
            rest: Vec::new(),
        }
    }

    pub(crate) fn send(wr_id: u64) -> Self {
        Self::new(opcode::SEND, wr_id)
    }

    /// RDMA WRITE to an address of the peer.
    pub(crate) fn write(wr_id: u64, remote_addr: u64, rkey: u32) -> Self {
        Self::new(opcode::WRITE, wr_id).remote(remote_addr, rkey)
    }

    /// RDMA READ from an address of the peer's.
    pub(crate) fn read(wr_id: u64, remote_addr: u64, rkey: u32) -> Self {
        Self::new(opcode::READ, wr_id).remote(remote_addr, rkey)
    }

    /// Adds to 8 bytes of the peer at an address.
    pub(crate) fn fetch_add(wr_id: u64, remote_addr: u64, rkey: u32, add: u64) -> Self {
        Self {
            rest: vec![add, 0],
            ..Self::new(opcode::FETCH_ADD, wr_id).remote(remote_addr, rkey)
        }
    }

    /// Makes 8 bytes of the peer at an address `swap` if they are `compare`.
    pub(crate) fn compare_swap(
        wr_id: u64,
        remote_addr: u64,
        rkey: u32,
        (compare, swap): (u64, u64),
    ) -> Self {
        Self {
            rest: vec![compare, swap],
            ..Self::new(opcode::COMPARE_SWAP, wr_id).remote(remote_addr, rkey)
        }
    }

    /// Binds a window to a part of a region: address, bytes and key; with these rights. The tag of
    /// its key counts up.
    pub(crate) fn bind(
        wr_id: u64,
        window: u32,
        (addr, bytes, region): (u64, u64, u32),
        access: u32,
    ) -> Self {
        let mut wqe = Self {
            rest: vec![bytes, u64::from(bound(window)) << 32 | u64::from(region)],
            ..Self::new(opcode::BIND, wr_id).remote(addr, window)
        };
        wqe.head.imm = access;
        wqe
    }

    pub(crate) fn invalidate(wr_id: u64, window: u32) -> Self {
        Self::new(opcode::LOCAL_INV, wr_id).remote(0, window)
    }

    /// SEND that invalidates a window of the peer.
    pub(crate) fn send_invalidate(wr_id: u64, window: u32) -> Self {
        let mut wqe = Self::new(opcode::SEND_INV, wr_id);
        wqe.head.imm = window;
        wqe
    }

    pub(crate) fn sge(mut self, addr: u64, bytes: u32, lkey: u32) -> Self {
        self.sges.push(Sge { addr, bytes, lkey });
        self.head.sges = self.sges.len() as u8;
        self.sized()
    }

    /// Carries these bytes inline.
    pub(crate) fn inline(mut self, bytes: &[u8]) -> Self {
        self.inline = bytes.to_vec();
        self.head.inline_bytes = bytes.len() as u32;
        self.head.flags |= send_flags::INLINE;
        self.sized()
    }

    /// Goes to this queue pair, of UD, whose Q_Key is `q_key`.
    pub(crate) fn to(mut self, gid: [u8; 16], qp: u32, q_key: u32) -> Self {
        let (low, high) = (u128::from_le_bytes(gid), u128::from_le_bytes(gid) >> 64);
        self.rest = vec![low as u64, high as u64, 0, 0];
        self.head.remote_addr = u64::from(q_key) << 32 | u64::from(qp);
        self.sized()
    }

    /// Adds immediate data: SEND and WRITE become SEND_IMM and WRITE_IMM.
    pub(crate) fn imm(mut self, imm: u32) -> Self {
        self.head.imm = imm;
        self.head.opcode = match self.head.opcode {
            opcode::SEND => opcode::SEND_IMM,
            opcode::WRITE => opcode::WRITE_IMM,
            other => other,
        };
        self
    }

    /// Without a CQE of its own.
    pub(crate) fn unsignaled(mut self) -> Self {
        self.head.flags &= !send_flags::SIGNALED;
        self
    }

    /// The peer's CQE is solicited.
    pub(crate) fn solicited(mut self) -> Self {
        self.head.flags |= send_flags::SOLICITED;
        self
    }

    fn remote(mut self, addr: u64, rkey: u32) -> Self {
        self.head.remote_addr = addr;
        self.head.rkey = rkey;
        self
    }

    fn sized(mut self) -> Self {
        self.head.blocks = self.used().div_ceil(BLOCK_WORDS) as u8;
        self
    }

    /// The words that it uses.
    fn used(&self) -> usize {
        SendWqe::WORDS
            + self.rest.len()
            + self.sges.len() * Sge::WORDS
            + self.inline.len().div_ceil(8)
    }

    /// The blocks that it takes in the SQ, independent of `head.blocks`.
    pub(crate) fn blocks(&self) -> u32 {
        self.used().div_ceil(BLOCK_WORDS).clamp(1, MAX_BLOCKS) as u32
    }

    /// Its words, filled up to whole blocks.
    pub(crate) fn words(&self) -> Vec<u64> {
        let mut words = self.head.encode().to_vec();
        words.extend(&self.rest);
        for sge in &self.sges {
            words.extend(sge.encode());
        }
        for chunk in self.inline.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            words.push(u64::from_le_bytes(word));
        }
        words.resize(self.blocks() as usize * BLOCK_WORDS, 0);
        words
    }
}

/// Writes a receive into slot `slot` of a ring of slots of `bytes` bytes.
pub(super) fn store_recv(ring: &Buffer, slot: u32, bytes: usize, wr_id: u64, sges: &[Sge]) {
    let head = RecvWqe {
        sges: sges.len() as u8,
        wr_id,
    };
    let mut words = head.encode().to_vec();
    for sge in sges {
        words.extend(sge.encode());
    }
    words.resize(bytes / 8, 0);
    for (i, word) in words[..bytes / 8].iter().enumerate() {
        ring.store(slot as usize * bytes + i * 8, *word);
    }
}
