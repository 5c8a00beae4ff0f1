// SPDX-License-Identifier: GPL-2.0
//! Queue memory, doorbells, events, and requests by their numbers.

use std::os::fd::{AsFd as _, AsRawFd as _};

use nix::errno::Errno;
use nix::poll::{poll, PollFd, PollFlags, PollTimeout};
use nix::sys::socket::{send, socket, AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType};
use qpair_abi::doorbell;
use qpair_abi::entry::{opcode, send_flags, RecvWqe, SendWqe, Sge, BLOCK_BYTES, BLOCK_WORDS};
use qpair_uverbs::abi::*;

use super::{bytes_of, picked, Process, Queue, MOST};
use crate::call::{At, Part, Pick, Work};
use crate::memory::DOORBELLS;

impl Process {
    /// A word that a command may have at any place.
    pub(super) fn any_word(&self, at: u8, object: Pick) -> u32 {
        match at % 12 {
            0..=2 => 0,
            3 => picked(&self.pds, object),
            4 => picked(&self.cqs, object).handle,
            5 => picked(&self.qps, object).handle,
            6 => picked(&self.mrs, object).handle,
            7 => picked(&self.srqs, object).handle,
            8 => 1,
            9 => u32::from(at),
            10 => u32::MAX,
            _ => 1 << (at % 32),
        }
    }

    pub(super) fn method(&mut self, object: u8, method: u8, parts: [Part; 4]) -> Result<(), Errno> {
        let mut room = [[0_u64; MOST / 8]; 4];
        let mut request = Vec::new();
        let count = parts
            .iter()
            .position(|part| part.kind >= 224)
            .unwrap_or(parts.len());
        // The number of the object's namespace: 0x1000 has those of a driver.
        let head = ib_uverbs_ioctl_hdr {
            length: (size_of::<ib_uverbs_ioctl_hdr>() + count * size_of::<ib_uverbs_attr>()) as u16,
            object_id: u16::from(object % 24) | u16::from(object > 250) << 12,
            method_id: u16::from(method % 12) | u16::from(method > 250) << 12,
            num_attrs: count as u16,
            driver_id: self.device.driver(),
            ..Default::default()
        };
        request.extend(bytes_of(&head));
        for (part, room) in parts[..count].iter().zip(&mut room) {
            let value = self.any_word(part.value, Pick(part.value));
            room[0] = value.into();
            let (len, data) = match part.kind % 4 {
                0 => (0, value.into()),
                1 => (u16::from(part.bytes % 9), value.into()),
                2 => (u16::from(part.bytes), room.as_mut_ptr() as u64),
                _ => (u16::from(part.bytes), self.memory.at(At(part.value), 1)),
            };
            let driver = if part.id >= 240 {
                UVERBS_ATTR_UHW_IN
            } else {
                0
            };
            request.extend(bytes_of(&ib_uverbs_attr {
                attr_id: u16::from(part.id % 20) | driver,
                len,
                flags: (part.bytes & 1).into(),
                attr_data: 0,
                data,
            }));
        }
        let file = self.file().ok_or(Errno::EBADF)?;
        // SAFETY: The request has the length that it says. What it names has its room, or is of no
        // Rust object.
        let ran = unsafe {
            libc::ioctl(
                file.as_raw_fd(),
                RDMA_VERBS_IOCTL.into(),
                request.as_mut_ptr(),
            )
        };
        Errno::result(ran).map(drop)
    }

    /// Writes work requests into a send queue, and may ring.
    pub(super) fn post(&mut self, qp: Pick, work: Work, times: u8, ring: bool) {
        let Some(it) = self
            .qps
            .len()
            .checked_sub(1)
            .map(|last| usize::from(qp.0) % (last + 1))
        else {
            return;
        };
        let it = self.qps[it];
        let words = self.words(it, work);
        let mut tail = it.tail;
        if it.blocks == 0 {
            return;
        }
        for _ in 0..times % 16 + 1 {
            for block in words.chunks(BLOCK_WORDS) {
                let slot = u64::from(tail % it.blocks);
                self.memory.store(it.sq + slot * BLOCK_BYTES as u64, block);
                tail = tail.wrapping_add(1);
            }
        }
        for known in self
            .qps
            .iter_mut()
            .filter(|known| known.handle == it.handle)
        {
            known.tail = tail;
        }
        if ring {
            self.ring(doorbell::SQ, it.number, tail);
        }
    }

    pub(super) fn words(&self, qp: Queue, work: Work) -> Vec<u64> {
        let (local, remote) = (
            picked(&self.mrs, work.local),
            picked(&self.mrs, work.remote),
        );
        let window = picked(&self.mws, work.remote);
        let dest = picked(&self.qps, work.dest);
        let opcode = work.opcode % 16;
        let (addr, rkey) = match opcode {
            _ if qp.sort == IB_UVERBS_QPT_UD => {
                (u64::from(work.imm % 4) << 32 | u64::from(dest.number), 0)
            }
            opcode::BIND => (remote.addr, window.rkey),
            opcode::LOCAL_INV => (0, window.rkey),
            _ if work.remote.0 > 200 => (remote.addr, window.rkey),
            _ => (remote.addr, remote.rkey),
        };
        let inline = work.flags % 32 < 4;
        let sges = if inline { 0 } else { work.sges % 5 };
        let head = SendWqe {
            opcode,
            flags: work.flags & (send_flags::ALL & !send_flags::INLINE)
                | if inline { send_flags::INLINE } else { 0 },
            blocks: if work.blocks < 192 {
                1 + work.blocks % 4
            } else {
                work.blocks
            },
            sges,
            imm: u32::from(work.imm),
            wr_id: work.word,
            remote_addr: addr,
            rkey,
            inline_bytes: if inline {
                u32::from(work.bytes % 240)
            } else {
                0
            },
        };
        let mut words = head.encode().to_vec();
        if qp.sort == IB_UVERBS_QPT_UD {
            words.resize(BLOCK_WORDS, 0);
        } else if opcode == opcode::BIND {
            let key = window.rkey & !0xff | window.rkey.wrapping_add(1) & 0xff;
            words.extend([
                u64::from(work.bytes),
                u64::from(key) << 32 | u64::from(remote.rkey),
            ]);
        } else if matches!(opcode, opcode::COMPARE_SWAP | opcode::FETCH_ADD) {
            words.extend([work.word, 1]);
        }
        for _ in 0..sges {
            let sge = Sge {
                addr: local.addr,
                bytes: work.bytes.into(),
                lkey: local.lkey,
            };
            words.extend(sge.encode());
        }
        if let Some(word) = words.get_mut(usize::from(work.odd)) {
            *word = work.word;
        }
        words.resize(
            usize::from(head.blocks.clamp(1, 4)) * BLOCK_WORDS,
            work.word,
        );
        words
    }

    pub(super) fn post_recv(
        &mut self,
        qp: Pick,
        shared: bool,
        (mr, bytes, sges): (Pick, u16, u8),
        times: u8,
        (odd, word): (u8, u64),
    ) {
        let list = if shared {
            &mut self.srqs
        } else {
            &mut self.qps
        };
        let count = list.len().max(1);
        let Some(it) = list.get_mut(usize::from(qp.0) % count) else {
            return;
        };
        let (mr, first) = (picked(&self.mrs, mr), it.posted);
        it.posted = it.posted.wrapping_add(u32::from(times % 16) + 1);
        let it = *it;
        if it.depth == 0 {
            return;
        }
        let mut words = RecvWqe {
            sges: sges % 5,
            wr_id: word,
        }
        .encode()
        .to_vec();
        for _ in 0..sges % 5 {
            words.extend(
                Sge {
                    addr: mr.addr,
                    bytes: bytes.into(),
                    lkey: mr.lkey,
                }
                .encode(),
            );
        }
        words.resize(BLOCK_WORDS << it.stride.min(2), 0);
        if let Some(place) = words.get_mut(usize::from(odd)) {
            *place = word;
        }
        for index in first..it.posted {
            let slot = u64::from(index % it.depth);
            self.memory
                .store(it.rq + slot * words.len() as u64 * 8, &words);
        }
        self.ring(
            if shared { doorbell::SRQ } else { doorbell::RQ },
            it.number,
            it.posted,
        );
    }

    pub(super) fn narrow(&self, offset: u16, width: u8, value: u64) {
        if !self.has_page {
            return;
        }
        let at = (DOORBELLS + u64::from(offset % 4088)) as usize;
        // SAFETY: Inside the page, which is mapped, and of no Rust object. x86 has such stores at any
        // address, so they are of its instructions.
        unsafe {
            match width % 5 {
                0 => std::ptr::without_provenance_mut::<u8>(at).write_volatile(value as u8),
                1 => std::ptr::without_provenance_mut::<u16>(at & !1).write_volatile(value as u16),
                2 => std::ptr::without_provenance_mut::<u32>(at & !3).write_volatile(value as u32),
                3 => std::ptr::without_provenance_mut::<u64>(at & !7).write_volatile(value),
                _ => drop(std::ptr::without_provenance::<u32>(at & !3).read_volatile()),
            }
        }
    }

    /// Gives back the slots of completions, which are not checked, and may arm.
    pub(super) fn poll(&mut self, cq: Pick, most: u8, arm: u8) {
        let count = self.cqs.len().max(1);
        let Some(it) = self.cqs.get_mut(usize::from(cq.0) % count) else {
            return;
        };
        for _ in 0..most {
            let depth = it.depth.max(1);
            let slot = u64::from(it.head % depth);
            let last = self.memory.load(it.ring + slot * 32 + 24).unwrap_or(0);
            let turn = u64::from((it.head / depth) & 1);
            if last >> 63 == turn {
                break;
            }
            it.head = it.head.wrapping_add(1);
        }
        let it = *it;
        let place = match arm % 6 {
            0 => doorbell::CQ_ARM_NEXT,
            1 => doorbell::CQ_ARM_SOLICITED,
            2 => doorbell::CQ_NOTIFY,
            3 => doorbell::CQ_NOTIFY_SOLICITED,
            _ => doorbell::CQ_HEAD,
        };
        let notify = matches!(place, doorbell::CQ_NOTIFY | doorbell::CQ_NOTIFY_SOLICITED);
        self.ring(place, it.number, if notify { 0 } else { it.head });
    }

    /// Looks for events of all files, and may read them.
    pub(super) fn events(&self, read: bool) {
        let mut all: Vec<PollFd<'_>> = self
            .others
            .iter()
            .map(|file| PollFd::new(file.as_fd(), PollFlags::POLLIN))
            .collect();
        let _ = poll(&mut all, PollTimeout::from(2_u8));
        for (file, ready) in self.others.iter().zip(&all) {
            let ready = ready
                .revents()
                .is_some_and(|events| events.contains(PollFlags::POLLIN));
            if read && ready {
                let _ = nix::unistd::read(file, &mut [0; 16]);
            }
        }
    }

    pub(super) fn dump(&self, command: u8, id: Pick) -> Result<(), Errno> {
        const NLDEV: u16 = 5 << 10;
        // All of a device, with the driver's details, or one by its number.
        let flags = if id.0 < 192 {
            libc::NLM_F_REQUEST | libc::NLM_F_DUMP
        } else {
            libc::NLM_F_REQUEST
        };
        let mut attributes = Vec::new();
        for (kind, value) in [
            (1_u16, 0_u32),
            (97, 1),
            (u16::from(id.0) % 64, self.any_word(id.0, id)),
        ] {
            let bytes = value.to_ne_bytes();
            let bytes = if kind == 97 { &bytes[..1] } else { &bytes[..] };
            attributes.extend((4 + bytes.len() as u16).to_ne_bytes());
            attributes.extend(kind.to_ne_bytes());
            attributes.extend(bytes);
            attributes.resize(attributes.len().next_multiple_of(4), 0);
        }
        let mut request = (16 + attributes.len() as u32).to_ne_bytes().to_vec();
        request.extend((NLDEV | u16::from(command % 40)).to_ne_bytes());
        request.extend((flags as u16).to_ne_bytes());
        request.extend([0; 8]);
        request.extend(attributes);
        let (family, kind) = (AddressFamily::Netlink, SockType::Raw);
        let socket = socket(
            family,
            kind,
            SockFlag::SOCK_NONBLOCK,
            SockProtocol::NetlinkRDMA,
        )?;
        send(socket.as_raw_fd(), &request, MsgFlags::empty())?;
        let mut room = vec![0; 1 << 14];
        for _ in 0..4 {
            nix::unistd::read(&socket, &mut room)?;
        }
        Ok(())
    }
}
