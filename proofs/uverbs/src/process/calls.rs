// SPDX-License-Identifier: GPL-2.0
//! A call.

use std::io::Write as _;
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::mman::MmapAdvise;
use qpair_abi::entry::BLOCK_BYTES;
use qpair_abi::uverbs::{qpair_ureq_modify_srq, qpair_uresp_create_ah};
use qpair_uverbs::abi::*;

use super::objects::{access_of, group_of, ring_bytes};
use super::{bytes_of, keep, picked, word, Mr, Process, PORT};
use super::{COMMANDS, COMP_CHANNEL, EXTENDED};
use crate::call::Call;
use crate::memory::{DOORBELLS, PAGE};

impl Process {
    pub(super) fn call(&mut self, call: Call) -> Result<(), Errno> {
        match call {
            Call::Open { legacy, events } => self.open(legacy, events)?,
            Call::AllocPd { twist } => {
                let core = ib_uverbs_alloc_pd::default();
                let (made, _) = self.plain(IB_USER_VERBS_CMD_ALLOC_PD, &core, 4, twist)?;
                keep(&mut self.pds, word(&made, 0));
            }
            Call::DeallocPd { pd, twist } => {
                let core = ib_uverbs_dealloc_pd {
                    pd_handle: self.pd(pd),
                };
                self.plain(IB_USER_VERBS_CMD_DEALLOC_PD, &core, 0, twist)?;
                self.pds.retain(|it| *it != core.pd_handle);
                keep(&mut self.gone, core.pd_handle);
            }
            Call::RegMr {
                pd,
                at,
                bytes,
                less,
                access,
                other,
                twist,
            } => {
                let length = (u64::from(bytes.get()) * 64).wrapping_sub(u64::from(less) % 8);
                let start = self.memory.at(at, length);
                let core = ib_uverbs_reg_mr {
                    start,
                    length,
                    hca_va: if other { start ^ 0x7000 } else { start },
                    pd_handle: self.pd(pd),
                    access_flags: access_of(access),
                    ..Default::default()
                };
                let (made, _) = self.plain(IB_USER_VERBS_CMD_REG_MR, &core, 12, twist)?;
                let [handle, lkey, rkey] = [0, 1, 2].map(|at| word(&made, at));
                keep(
                    &mut self.mrs,
                    Mr {
                        handle,
                        lkey,
                        rkey,
                        addr: core.hca_va,
                    },
                );
            }
            Call::ReregMr {
                mr,
                flags,
                pd,
                at,
                bytes,
                access,
                twist,
            } => {
                let length = u64::from(bytes.get()) * 64;
                let start = self.memory.at(at, length);
                let core = ib_uverbs_rereg_mr {
                    mr_handle: self.handle(picked(&self.mrs, mr).handle, mr),
                    flags: u32::from(flags % 9),
                    start,
                    length,
                    hca_va: start,
                    pd_handle: self.pd(pd),
                    access_flags: access_of(access),
                    ..Default::default()
                };
                let (made, _) = self.plain(IB_USER_VERBS_CMD_REREG_MR, &core, 8, twist)?;
                for it in self.mrs.iter_mut().filter(|it| it.handle == core.mr_handle) {
                    (it.lkey, it.rkey) = (word(&made, 0), word(&made, 1));
                    if u32::from(flags) & rereg::TRANS != 0 {
                        it.addr = start;
                    }
                }
            }
            Call::DeregMr { mr, twist } => {
                let core = ib_uverbs_dereg_mr {
                    mr_handle: self.handle(picked(&self.mrs, mr).handle, mr),
                };
                self.plain(IB_USER_VERBS_CMD_DEREG_MR, &core, 0, twist)?;
                keep(&mut self.gone, core.mr_handle);
            }
            Call::AllocMw { pd, kind, twist } => {
                let core = ib_uverbs_alloc_mw {
                    pd_handle: self.pd(pd),
                    mw_type: if kind < 224 { 2 } else { kind },
                    ..Default::default()
                };
                let (made, _) = self.plain(IB_USER_VERBS_CMD_ALLOC_MW, &core, 8, twist)?;
                let [handle, rkey] = [0, 1].map(|at| word(&made, at));
                keep(
                    &mut self.mws,
                    Mr {
                        handle,
                        lkey: rkey,
                        rkey,
                        addr: 0,
                    },
                );
            }
            Call::DeallocMw { mw, twist } => {
                let core = ib_uverbs_dealloc_mw {
                    mw_handle: self.handle(picked(&self.mws, mw).handle, mw),
                };
                self.plain(IB_USER_VERBS_CMD_DEALLOC_MW, &core, 0, twist)?;
                keep(&mut self.gone, core.mw_handle);
            }
            Call::CreateCq {
                at,
                depth,
                short,
                vector,
                channel,
                eventfd,
                twist,
            } => {
                self.create_cq(at, depth, short, (vector, channel, eventfd), twist)?;
            }
            Call::ResizeCq {
                cq,
                at,
                depth,
                twist,
            } => self.resize_cq(cq, at, depth, twist)?,
            Call::DestroyCq { cq, twist } => {
                let core = ib_uverbs_destroy_cq {
                    cq_handle: self.handle(picked(&self.cqs, cq).handle, cq),
                    ..Default::default()
                };
                self.plain(IB_USER_VERBS_CMD_DESTROY_CQ, &core, 8, twist)?;
                self.cqs.retain(|it| it.handle != core.cq_handle);
                keep(&mut self.gone, core.cq_handle);
            }
            Call::CreateSrq {
                pd,
                at,
                depth,
                stride,
                limit,
                twist,
            } => {
                self.create_srq(pd, at, depth, stride, limit, twist)?;
            }
            Call::ModifySrq {
                srq,
                mask,
                depth,
                limit,
                at,
                twist,
            } => {
                let mut it = picked(&self.srqs, srq);
                let bytes = ring_bytes(depth.get(), BLOCK_BYTES << it.stride.min(4));
                it.rq = self.memory.at(at, bytes);
                let core = ib_uverbs_modify_srq {
                    srq_handle: self.handle(it.handle, srq),
                    attr_mask: u32::from(mask % 5),
                    max_wr: depth.get(),
                    srq_limit: limit.into(),
                };
                let driver = qpair_ureq_modify_srq {
                    buffer: it.rq,
                    buffer_bytes: bytes,
                    depth: depth.get(),
                    reserved: 0,
                };
                let driver = if core.attr_mask & srq_mask::MAX_WR != 0 {
                    bytes_of(&driver)
                } else {
                    Vec::new()
                };
                self.invoke(
                    IB_USER_VERBS_CMD_MODIFY_SRQ,
                    (bytes_of(&core), driver),
                    (0, 0),
                    twist,
                )?;
            }
            Call::QuerySrq { srq, twist } => {
                let core = ib_uverbs_query_srq {
                    srq_handle: self.handle(picked(&self.srqs, srq).handle, srq),
                    ..Default::default()
                };
                self.plain(IB_USER_VERBS_CMD_QUERY_SRQ, &core, 16, twist)?;
            }
            Call::DestroySrq { srq, twist } => {
                let core = ib_uverbs_destroy_srq {
                    srq_handle: self.handle(picked(&self.srqs, srq).handle, srq),
                    ..Default::default()
                };
                self.plain(IB_USER_VERBS_CMD_DESTROY_SRQ, &core, 4, twist)?;
                self.srqs.retain(|it| it.handle != core.srq_handle);
                keep(&mut self.gone, core.srq_handle);
            }
            Call::CreateQp {
                pd,
                send,
                recv,
                srq,
                sort,
                sq,
                sq_at,
                rq,
                rq_at,
                stride,
                flags,
                twist,
            }
            | Call::AnotherQp {
                pd,
                send,
                recv,
                srq,
                sort,
                sq,
                sq_at,
                rq,
                rq_at,
                stride,
                flags,
                twist,
            } => {
                let rings = [(sq, sq_at), (rq, rq_at)];
                self.create_qp(pd, [send, recv], (srq, sort, stride, flags), rings, twist)?;
            }
            Call::ModifyQp {
                qp,
                to,
                mask,
                peer,
                access,
                values,
                twist,
            } => {
                self.modify_qp(qp, (to, mask), peer, access, values, twist)?;
            }
            Call::Connect { qp, peer, access } => self.connect(qp, peer, access)?,
            Call::QueryQp { qp, mask, twist } => {
                let core = ib_uverbs_query_qp {
                    qp_handle: self.handle(picked(&self.qps, qp).handle, qp),
                    attr_mask: mask,
                    ..Default::default()
                };
                let most = size_of::<ib_uverbs_query_qp_resp>();
                self.plain(IB_USER_VERBS_CMD_QUERY_QP, &core, most, twist)?;
            }
            Call::DestroyQp { qp, twist } => {
                let core = ib_uverbs_destroy_qp {
                    qp_handle: self.handle(picked(&self.qps, qp).handle, qp),
                    ..Default::default()
                };
                self.plain(IB_USER_VERBS_CMD_DESTROY_QP, &core, 4, twist)?;
                self.qps.retain(|it| it.handle != core.qp_handle);
                keep(&mut self.gone, core.qp_handle);
            }
            Call::CreateAh {
                pd,
                gid,
                source,
                global,
                twist,
            } => {
                let attr = ib_uverbs_ah_attr {
                    grh: ib_uverbs_global_route {
                        dgid: self.gid_of(gid),
                        sgid_index: self.index_of(source),
                        hop_limit: 1,
                        ..Default::default()
                    },
                    // A port of RoCE refuses the few that are not global.
                    is_global: (global || self.is_roce() && source < 240).into(),
                    dlid: u16::from(gid % 4),
                    port_num: PORT + u8::from(source > 250),
                    ..Default::default()
                };
                let core = ib_uverbs_create_ah {
                    pd_handle: self.pd(pd),
                    attr,
                    ..Default::default()
                };
                let made = size_of::<qpair_uresp_create_ah>();
                let parts = (bytes_of(&core), Vec::new());
                let (made, _) =
                    self.invoke(IB_USER_VERBS_CMD_CREATE_AH, parts, (4, made), twist)?;
                keep(&mut self.ahs, word(&made, 0));
            }
            Call::DestroyAh { ah, twist } => {
                let core = ib_uverbs_destroy_ah {
                    ah_handle: self.handle(picked(&self.ahs, ah), ah),
                };
                self.plain(IB_USER_VERBS_CMD_DESTROY_AH, &core, 0, twist)?;
                keep(&mut self.gone, core.ah_handle);
            }
            Call::Attach {
                qp,
                gid,
                lid,
                detach,
                twist,
            } => {
                let core = ib_uverbs_attach_mcast {
                    gid: group_of(gid),
                    qp_handle: self.handle(picked(&self.qps, qp).handle, qp),
                    mlid: 0xc000 + u16::from(lid % 4),
                    ..Default::default()
                };
                let number = IB_USER_VERBS_CMD_ATTACH_MCAST + u32::from(detach);
                self.plain(number, &core, 0, twist)?;
            }
            Call::Query { port, twist } => {
                let device = ib_uverbs_query_device::default();
                let most = size_of::<ib_uverbs_query_device_resp>();
                self.plain(IB_USER_VERBS_CMD_QUERY_DEVICE, &device, most, twist)?;
                let port = ib_uverbs_query_port {
                    port_num: port % 3,
                    ..Default::default()
                };
                let most = size_of::<ib_uverbs_query_port_resp>();
                self.plain(IB_USER_VERBS_CMD_QUERY_PORT, &port, most, twist)?;
            }
            Call::Other {
                number,
                extended,
                words,
                answer,
                driver,
                seed,
                object,
                twist,
            } => {
                let mut random = fastrand::Rng::with_seed(seed.into());
                let mut some = |count: u8| -> Vec<u8> {
                    let small = |at| self.any_word(at, object);
                    (0..count)
                        .flat_map(|_| small(random.u8(..)).to_ne_bytes())
                        .collect()
                };
                let number = u32::from(number % COMMANDS) | if extended { EXTENDED } else { 0 };
                let mut parts = (some(words % 32), some(driver % 16));
                if u32::from(number as u8) == COMP_CHANNEL {
                    parts.0.resize(8, 0);
                }
                let (made, _) =
                    self.invoke(number, parts, (usize::from(answer % 32) * 4, 32), twist)?;
                if number == COMP_CHANNEL {
                    keep(&mut self.channels, word(&made, 0) as i32);
                }
            }
            Call::Method {
                object,
                method,
                parts,
            } => self.method(object, method, parts)?,
            Call::Post {
                qp,
                work,
                times,
                ring,
            }
            | Call::PostMore {
                qp,
                work,
                times,
                ring,
            } => {
                self.post(qp, work, times, ring);
            }
            Call::PostRecv {
                qp,
                srq,
                mr,
                bytes,
                sges,
                times,
                odd,
                word,
            } => {
                self.post_recv(qp, srq, (mr, bytes, sges), times, (odd, word));
            }
            Call::Scribble {
                at,
                offset,
                words,
                seed,
            } => {
                let mut random = fastrand::Rng::with_seed(seed.into());
                let words: Vec<u64> = (0..words % 64).map(|_| random.u64(..)).collect();
                let at = self.memory.at(at, 1);
                self.memory
                    .store(at.wrapping_add(u64::from(offset % 512) * 8), &words);
            }
            Call::Ring {
                place,
                of,
                kind,
                ahead,
                back,
            } => {
                let (number, index) = match kind % 4 {
                    0 => (picked(&self.qps, of).number, picked(&self.qps, of).tail),
                    1 => (picked(&self.srqs, of).number, picked(&self.srqs, of).posted),
                    2 => (picked(&self.cqs, of).number, picked(&self.cqs, of).head),
                    _ => (u32::from(of.0), 0),
                };
                let ahead = ahead.get();
                let index = if back {
                    index.wrapping_sub(ahead)
                } else {
                    index.wrapping_add(ahead)
                };
                self.ring(u64::from(place % 16) * 8, self.handle(number, of), index);
            }
            Call::Narrow {
                offset,
                width,
                value,
            } => self.narrow(offset, width, value),
            Call::Poll { cq, most, arm } => self.poll(cq, most, arm),
            Call::Map {
                offset,
                pages,
                protection,
                private,
            } => {
                let usual = protection < 192;
                let pages = if pages < 192 { 1 } else { pages % 4 };
                self.map(
                    offset,
                    pages,
                    if usual { 3 } else { protection },
                    private && !usual,
                )?;
            }
            Call::Unmap { page: true, .. } => {
                self.has_page = false;
                self.memory.unmap(DOORBELLS, 1);
            }
            Call::Unmap { at, pages, .. } => {
                let at = self.memory.at(at, 1) & !(PAGE - 1);
                self.has_page &= at != DOORBELLS;
                self.memory.unmap(at, u64::from(pages % 8) + 1);
            }
            Call::Advise { at, pages, advice } => {
                let at = self.memory.at(at, 1) & !(PAGE - 1);
                let advice = match advice % 10 {
                    0 => MmapAdvise::MADV_DONTFORK,
                    1 => MmapAdvise::MADV_DOFORK,
                    2 => MmapAdvise::MADV_HUGEPAGE,
                    3 => MmapAdvise::MADV_NOHUGEPAGE,
                    4 => MmapAdvise::MADV_REMOVE,
                    5 => MmapAdvise::MADV_FREE,
                    6 => MmapAdvise::MADV_MERGEABLE,
                    7 => MmapAdvise::MADV_WILLNEED,
                    _ => MmapAdvise::MADV_DONTNEED,
                };
                self.memory.advise(at, u64::from(pages % 64) + 1, advice)?;
            }
            Call::Protect {
                at,
                pages,
                protection,
            } => {
                let at = self.memory.at(at, 1) & !(PAGE - 1);
                // The page of the doorbells stays writable, or a doorbell would end the process.
                if at < DOORBELLS {
                    self.memory
                        .protect(at, u64::from(pages % 8) + 1, protection);
                }
            }
            Call::Truncate { pages } => self.memory.truncate(pages % 80),
            Call::Close { file, dup } => {
                if self.files.is_empty() {
                    return Err(Errno::EBADF);
                }
                let file = self.files.remove(usize::from(file) % self.files.len());
                if dup {
                    let copy = file.try_clone();
                    self.files.extend(copy);
                }
            }
            Call::Events { read } => self.events(read),
            Call::Dump { command, id } => self.dump(command, id)?,
            Call::Wait { ticks } => std::thread::sleep(Duration::from_millis(u64::from(ticks % 8))),
            Call::Beside {
                what,
                rarely: 0..=15,
            } => {
                let _ = self.beside.write_all(&[what]);
            }
            Call::Beside { .. } | Call::Die { .. } | Call::Fork { .. } => {}
        }
        Ok(())
    }
}
