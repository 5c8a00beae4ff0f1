// SPDX-License-Identifier: GPL-2.0
//! Objects with a part of the driver.

use std::os::fd::{AsRawFd as _, OwnedFd};

use nix::errno::Errno;
use nix::sys::eventfd::EventFd;
use qpair_abi::entry::BLOCK_BYTES;
use qpair_abi::uverbs::*;
use qpair_uverbs::abi::*;

use super::{bytes_of, keep, picked, word, Cq, Process, Queue, PORT, RESIZE_CQ};
use crate::call::{At, Pick, Size, Twist};
use crate::memory::PAGE;

impl Process {
    pub(super) fn create_cq(
        &mut self,
        at: At,
        depth: Size,
        short: u8,
        (vector, channel, eventfd): (u8, u8, u8),
        twist: Twist,
    ) -> Result<(), Errno> {
        let depth = depth.get();
        let bytes = shorter(ring_bytes(depth, 32), short);
        let ring = self.memory.at(at, bytes);
        let core = ib_uverbs_create_cq {
            user_handle: ring,
            cqe: depth,
            comp_vector: if vector < 224 {
                0
            } else {
                u32::from(vector - 224)
            },
            comp_channel: match channel {
                0..=127 => NO_COMP_CHANNEL,
                128..=239 => self.channels.last().copied().unwrap_or(NO_COMP_CHANNEL),
                240.. => i32::from(channel - 240),
            },
            ..Default::default()
        };
        let eventfd = match eventfd {
            0..=127 => QPAIR_NO_COMPLETION_FD,
            128..=239 => self.eventfd(),
            240.. => i32::from(eventfd - 242),
        };
        let driver = qpair_ureq_create_cq {
            buffer: ring,
            buffer_bytes: bytes,
            eventfd,
            reserved: 0,
        };
        let parts = (bytes_of(&core), bytes_of(&driver));
        let (core, made) = self.invoke(IB_USER_VERBS_CMD_CREATE_CQ, parts, (8, 8), twist)?;
        self.offered(&made);
        let cq = Cq {
            handle: word(&core, 0),
            number: word(&made, 0),
            ring,
            depth: word(&made, 1),
            head: 0,
        };
        keep(&mut self.cqs, cq);
        Ok(())
    }

    pub(super) fn eventfd(&mut self) -> i32 {
        let Ok(new) = EventFd::new() else {
            return QPAIR_NO_COMPLETION_FD;
        };
        let number = new.as_raw_fd();
        keep(&mut self.others, OwnedFd::from(new));
        number
    }

    /// An answer of soft-RoCE begins with an offset to map.
    pub(super) fn offered(&mut self, made: &[u8]) {
        if self.device.foreign {
            let offset = u64::from(word(made, 1)) << 32 | u64::from(word(made, 0));
            keep(&mut self.offsets, offset);
        }
    }

    pub(super) fn resize_cq(
        &mut self,
        cq: Pick,
        at: At,
        depth: Size,
        twist: Twist,
    ) -> Result<(), Errno> {
        let mut it = picked(&self.cqs, cq);
        let bytes = ring_bytes(depth.get(), 32);
        it.ring = self.memory.at(at, bytes);
        // The response, the handle and the entries.
        let mut core = vec![0; 8];
        core.extend(self.handle(it.handle, cq).to_ne_bytes());
        core.extend(depth.get().to_ne_bytes());
        let mut driver = it.ring.to_ne_bytes().to_vec();
        driver.extend(bytes.to_ne_bytes());
        let (_, made) = self.invoke(RESIZE_CQ, (core, driver), (8, 16), twist)?;
        for known in self
            .cqs
            .iter_mut()
            .filter(|known| known.handle == it.handle)
        {
            (known.ring, known.depth) = (it.ring, word(&made, 0));
        }
        Ok(())
    }

    pub(super) fn create_srq(
        &mut self,
        pd: Pick,
        at: At,
        depth: Size,
        stride: u8,
        limit: u8,
        twist: Twist,
    ) -> Result<(), Errno> {
        let (depth, stride) = (depth.get(), stride_of(stride));
        let bytes = ring_bytes(depth, BLOCK_BYTES << stride.min(4));
        let ring = self.memory.at(at, bytes);
        let core = ib_uverbs_create_srq {
            user_handle: ring,
            pd_handle: self.pd(pd),
            max_wr: 1,
            max_sge: 1,
            srq_limit: u32::from(limit.saturating_sub(192)),
            ..Default::default()
        };
        let driver = qpair_ureq_create_srq {
            buffer: ring,
            buffer_bytes: bytes,
            depth,
            stride,
        };
        let parts = (bytes_of(&core), bytes_of(&driver));
        let (core, made) = self.invoke(IB_USER_VERBS_CMD_CREATE_SRQ, parts, (16, 8), twist)?;
        self.offered(&made);
        let srq = Queue {
            handle: word(&core, 0),
            number: word(&made, 0),
            rq: ring,
            depth: word(&made, 1),
            stride,
            ..Default::default()
        };
        keep(&mut self.srqs, srq);
        Ok(())
    }

    pub(super) fn create_qp(
        &mut self,
        pd: Pick,
        [send, recv]: [Pick; 2],
        (srq, sort, stride, flags): (u8, u8, u8, u8),
        [(sq, sq_at), (rq, rq_at)]: [(Size, At); 2],
        twist: Twist,
    ) -> Result<(), Errno> {
        let (blocks, depth, stride) = (sq.get(), rq.get(), stride_of(stride));
        let sq_bytes = shorter(ring_bytes(blocks, BLOCK_BYTES), flags);
        let rq_bytes = ring_bytes(depth, BLOCK_BYTES << stride.min(4));
        let sq = self.memory.at(sq_at, sq_bytes);
        let shares = srq >= 160;
        let rq = if shares {
            0
        } else {
            self.memory.at(rq_at, rq_bytes)
        };
        let cq = |pick| self.handle(picked(&self.cqs, pick).handle, pick);
        let sort = match sort {
            0..=99 => IB_UVERBS_QPT_RC,
            100..=159 => IB_UVERBS_QPT_UC,
            160..=239 => IB_UVERBS_QPT_UD,
            240.. => sort - 240,
        };
        let core = ib_uverbs_create_qp {
            user_handle: sq,
            pd_handle: self.pd(pd),
            send_cq_handle: cq(send),
            recv_cq_handle: cq(recv),
            srq_handle: if shares {
                self.handle(picked(&self.srqs, Pick(srq % 32)).handle, Pick(srq - 8))
            } else {
                0
            },
            max_send_wr: 1,
            max_recv_wr: 1,
            max_send_sge: 1,
            max_recv_sge: 1,
            sq_sig_all: flags & 1,
            is_srq: shares.into(),
            qp_type: sort,
            ..Default::default()
        };
        let driver = qpair_ureq_create_qp {
            sq_buffer: sq,
            sq_buffer_bytes: sq_bytes,
            rq_buffer: rq,
            rq_buffer_bytes: if shares { 0 } else { rq_bytes },
            sq_blocks: blocks,
            rq_depth: if shares { 0 } else { depth },
            rq_stride: if shares { 0 } else { stride },
            reserved: 0,
        };
        let parts = (bytes_of(&core), bytes_of(&driver));
        let (core, made) = self.invoke(IB_USER_VERBS_CMD_CREATE_QP, parts, (32, 16), twist)?;
        self.offered(&made);
        let foreign = self.device.foreign;
        let qp = Queue {
            handle: word(&core, 0),
            number: if foreign {
                word(&core, 1)
            } else {
                word(&made, 0)
            },
            sq,
            blocks: word(&made, 1),
            rq,
            depth: word(&made, 2),
            stride,
            sort,
            ..Default::default()
        };
        keep(&mut self.qps, qp);
        Ok(())
    }

    /// The change to the next state, with what the core requires, or any.
    pub(super) fn modify_qp(
        &mut self,
        qp: Pick,
        (to, mask): (u8, u32),
        peer: Pick,
        access: u8,
        values: [u8; 8],
        twist: Twist,
    ) -> Result<(), Errno> {
        let it = picked(&self.qps, qp);
        let state = to % 8;
        let core = ib_uverbs_modify_qp {
            qp_handle: self.handle(it.handle, qp),
            attr_mask: match to {
                0..=127 => mask_of(it.sort, state),
                128..=223 => mask_of(it.sort, state) ^ 1 << (mask % 32),
                224.. => mask,
            },
            qp_state: state,
            cur_qp_state: values[0] % 8,
            dest_qp_num: self.handle(picked(&self.qps, peer).number, peer),
            qp_access_flags: access_of(access),
            path_mtu: if values[1] < 224 { MTU_4096 } else { values[1] },
            port_num: if values[2] < 240 { PORT } else { values[2] },
            timeout: values[3] % 32,
            retry_cnt: values[4] % 9,
            rnr_retry: values[5] % 9,
            min_rnr_timer: values[6] % 33,
            qkey: u32::from(values[7] % 4),
            max_rd_atomic: values[7] % 20,
            max_dest_rd_atomic: values[6] % 20,
            dest: self.destination((values[0] >= 200) != self.is_roce(), values[2]),
            ..Default::default()
        };
        let parts = (bytes_of(&core), Vec::new());
        self.invoke(IB_USER_VERBS_CMD_MODIFY_QP, parts, (0, 8), twist)?;
        if state == qp_state::RESET {
            for it in self
                .qps
                .iter_mut()
                .filter(|other| other.handle == it.handle)
            {
                (it.tail, it.posted) = (0, 0);
            }
        }
        Ok(())
    }

    pub(super) fn connect(&mut self, qp: Pick, peer: Pick, access: u8) -> Result<(), Errno> {
        let it = picked(&self.qps, qp);
        for state in [qp_state::INIT, qp_state::RTR, qp_state::RTS] {
            let core = ib_uverbs_modify_qp {
                qp_handle: it.handle,
                attr_mask: mask_of(it.sort, state),
                qp_state: state,
                dest_qp_num: picked(&self.qps, peer).number,
                qp_access_flags: access_of(access),
                path_mtu: MTU_4096,
                port_num: PORT,
                timeout: 8,
                retry_cnt: 1,
                rnr_retry: 1,
                min_rnr_timer: 1,
                max_rd_atomic: 4,
                max_dest_rd_atomic: 4,
                dest: self.destination(self.is_roce(), 0),
                ..Default::default()
            };
            let parts = (bytes_of(&core), Vec::new());
            self.invoke(IB_USER_VERBS_CMD_MODIFY_QP, parts, (0, 8), Twist::NONE)?;
        }
        Ok(())
    }

    pub(super) fn is_roce(&self) -> bool {
        self.device.address.is_some()
    }

    /// The device's own GID, one beside it, or others.
    pub(super) fn gid_of(&self, which: u8) -> [u8; 16] {
        match which % 8 {
            at @ 0..=3 => {
                let own = self.device.address.map(|address| address.gid);
                let mut gid = own.unwrap_or_else(|| v4([198, 51, 100, 1]));
                gid[15] ^= at % 2;
                gid
            }
            4 => v4([127, 0, 0, 1]),
            5 => [0; 16],
            6 => [0xff; 16],
            _ => [which; 16],
        }
    }

    /// The index of the device's own GID, or another.
    pub(super) fn index_of(&self, which: u8) -> u8 {
        match self.device.address {
            Some(address) if which < 224 => address.index,
            _ => which % 8,
        }
    }

    pub(super) fn destination(&self, global: bool, which: u8) -> ib_uverbs_qp_dest {
        ib_uverbs_qp_dest {
            dgid: self.gid_of(which),
            sgid_index: self.index_of(which),
            is_global: global.into(),
            hop_limit: 1,
            port_num: PORT,
            ..Default::default()
        }
    }
}

/// The GID that is an IPv4 address.
fn v4(last: [u8; 4]) -> [u8; 16] {
    let mut gid = [0; 16];
    gid[10..12].fill(0xff);
    gid[12..].copy_from_slice(&last);
    gid
}

/// Bytes of a ring of so many entries.
pub(super) fn ring_bytes(depth: u32, entry: usize) -> u64 {
    let depth = depth.checked_next_power_of_two().unwrap_or(depth);
    (u64::from(depth) * entry as u64).next_multiple_of(PAGE)
}

/// Now and then, too few bytes, or not of whole pages.
pub(super) fn shorter(bytes: u64, how: u8) -> u64 {
    match how {
        0..=223 => bytes,
        224..=239 => bytes.wrapping_sub(PAGE),
        240..=247 => bytes / 2 + 1,
        248..=251 => u64::MAX - PAGE + 1,
        252.. => 0,
    }
}

pub(super) fn stride_of(byte: u8) -> u32 {
    match byte {
        0..=239 => u32::from(byte % 3),
        240.. => u32::from(byte - 240) * 5,
    }
}

/// Rights of a region or a queue pair, mostly such that go together.
pub(super) fn access_of(byte: u8) -> u32 {
    match byte {
        0..=95 => 0x1f,
        96..=191 => u32::from(byte) & 0x0f | IB_UVERBS_ACCESS_LOCAL_WRITE,
        192..=223 => u32::from(byte) & 0x1f,
        224.. => 1 << (byte % 32),
    }
}

pub(super) fn mask_of(sort: u8, state: u8) -> u32 {
    match (sort, state) {
        (IB_UVERBS_QPT_UD, qp_state::INIT) => qp_mask::UD_TO_INIT,
        (_, qp_state::INIT) => qp_mask::TO_INIT,
        (IB_UVERBS_QPT_UC, qp_state::RTR) => qp_mask::UC_TO_RTR,
        (IB_UVERBS_QPT_RC, qp_state::RTR) => qp_mask::TO_RTR,
        (IB_UVERBS_QPT_RC, qp_state::RTS) => qp_mask::TO_RTS,
        (_, qp_state::RTS) => qp_mask::UD_TO_RTS,
        _ => qp_mask::STATE,
    }
}

pub(super) fn group_of(which: u8) -> [u8; 16] {
    let mut gid = [0; 16];
    gid[0] = if which < 240 { 0xff } else { which };
    gid[1] = 0x0e;
    gid[15] = which % 8;
    gid
}
