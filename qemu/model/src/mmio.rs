// SPDX-License-Identifier: GPL-2.0
//! Register accesses, and the bring-up of EQ 0 and the admin queue pair.

use crate::attributes::Attributes;
use crate::cq::CompletionQueue;
use crate::eq::EventQueue;
use crate::function::Function;
use crate::host::Host;
use crate::qp::QueuePair;
use crate::ring::Ring;
use crate::ring::ALIGN;
use crate::schedule::State;
use crate::work_queue::WorkQueue;
use qpair_abi::command::qp_state;
use qpair_abi::command::CqContext;
use qpair_abi::command::EqContext;
use qpair_abi::entry::Cqe;
use qpair_abi::entry::Eqe;
use qpair_abi::entry::BLOCK_BYTES;
use qpair_abi::regs;
use qpair_abi::regs::offset;
use qpair_abi::status::EnableError;
use qpair_abi::Number;
use qpair_queue::index::Depth;

const ENABLE: u32 = 1 << 0;
const RESET: u32 = 1 << 1;
const READY: u32 = 1 << 0;
const FATAL: u32 = 1 << 1;
const LINK_UP: u32 = 1 << 3;
/// The bit of `MAC_HI`.
const WIRED: u32 = 16;

impl<H: Host> Function<H> {
    /// Reads a register.
    pub fn reg_read(&mut self, offset: u64) -> u32 {
        if self.data.core.knobs.vanished {
            return u32::MAX;
        }
        let value = self.register(offset);
        self.data.core.garbled(offset, value)
    }

    fn register(&mut self, offset: u64) -> u32 {
        let c = &self.data.core.config;
        let [m0, m1, m2, m3, m4, m5] = self.data.core.knobs.mac;
        let log = |byte: u8, shift: u32| u32::from(byte) << shift;
        match offset {
            offset::MAGIC => regs::MAGIC_VALUE,
            offset::VERSION => regs::MAJOR << 16 | regs::MINOR,
            offset::CTRL => match self.data.core.state {
                State::Ready => ENABLE,
                State::Off | State::Fatal => 0,
            },
            offset::STATUS => self.status(),
            offset::LIMIT_QP => c.qps,
            offset::LIMIT_CQ => c.cqs,
            offset::LIMIT_EQ => c.eqs,
            offset::LIMIT_MR => c.mrs,
            offset::LIMIT_PD => c.pds,
            offset::LIMIT_SRQ => c.srqs,
            offset::LIMIT_MW => c.mws,
            offset::LIMIT_FRMR => c.frmrs,
            offset::LIMIT_PAGE => c.pages,
            offset::LIMIT_RING => {
                log(c.log_eq, 24) | log(c.log_cq, 16) | log(c.log_rq, 8) | log(c.log_sq, 0)
            }
            offset::LIMIT_WQE => {
                u32::from(c.inline_bytes) << 16 | log(c.recv_sges, 8) | log(c.send_sges, 0)
            }
            offset::LIMIT_MESSAGE => c.message_bytes,
            offset::LIMIT_REGION => {
                log(c.max_page_shift, 16) | log(c.min_page_shift, 8) | log(c.log_region, 0)
            }
            offset::LIMIT_ASYNC => c.async_events,
            offset::MAC_LO => u32::from_le_bytes([m0, m1, m2, m3]),
            offset::LIMIT_GROUP => c.group_members << 16 | c.groups,
            offset::MAC_HI => {
                let bytes = u16::from_le_bytes([m4, m5]);
                u32::from(c.wired) << WIRED | u32::from(bytes)
            }
            _ => self.registers.read(offset),
        }
    }

    /// The register `STATUS`.
    pub fn status(&self) -> u32 {
        let core = &self.data.core;
        let state = match core.state {
            State::Off => 0,
            State::Ready => READY,
            State::Fatal => FATAL,
        };
        let link = if core.knobs.link_down { 0 } else { LINK_UP };
        u32::from(core.cause.code()) << 8 | link | state
    }

    /// Writes a register. While the function is enabled only writes of `CTRL` have an effect.
    pub fn reg_write(&mut self, offset: u64, value: u32) {
        if self.data.core.knobs.vanished {
            return;
        }
        let off = self.data.core.state == State::Off;
        if offset == offset::CTRL {
            if value & RESET != 0 {
                if !self.ignores_stop() {
                    self.reset();
                }
            } else if value & ENABLE != 0 && off {
                self.data.core.cause = self.enable().err().unwrap_or(EnableError::None);
            }
        } else if off {
            self.registers.write(offset, value);
        }
    }

    fn enable(&mut self) -> Result<(), EnableError> {
        let data = &mut self.data;
        let core = &mut data.core;
        let logs = self.registers.log_depths().ok_or(EnableError::Depth)?;
        let [eq_log, sq_log, cq_log] = logs;
        let depth = |log: u8, most: u8| {
            let depth = Depth::from_log2(log).filter(|_| log <= most);
            depth.ok_or(EnableError::Depth)
        };
        let eq_depth = depth(eq_log, core.config.log_eq)?;
        let sq_depth = depth(sq_log, core.config.log_sq)?;
        let cq_depth = depth(cq_log, core.config.log_cq)?;
        if eq_depth.entries() < core.config.async_events {
            return Err(EnableError::Depth);
        }
        let [eq_base, sq_base, cq_base] = self.registers.bases();
        if (eq_base | sq_base | cq_base) % ALIGN != 0 {
            return Err(EnableError::Alignment);
        }
        if !core.bus.host.bus_master() {
            return Err(EnableError::BusMaster);
        }
        let bytes = |depth: Depth, entry: usize| u64::from(depth.entries()) * entry as u64;
        let rings = [
            (eq_base, bytes(eq_depth, Eqe::BYTES)),
            (sq_base, bytes(sq_depth, BLOCK_BYTES)),
            (cq_base, bytes(cq_depth, Cqe::BYTES)),
        ];
        for (base, bytes) in rings {
            // A ring is taken to be readable if both of its ends are.
            let last = base.checked_add(bytes - 8).ok_or(EnableError::Dma)?;
            for addr in [base, last] {
                let read = core.bus.load(addr, &mut [0]);
                read.map_err(|_| EnableError::Dma)?;
            }
        }
        let [eq_ring, sq_ring, cq_ring] = rings;
        let ring = |(base, bytes): (u64, u64), writable| Ring::contiguous(base, bytes, writable);
        let first = core.first_index();
        let admin = Number::ADMIN;
        let eq = EqContext {
            log_depth: eq_log,
            ..EqContext::default()
        };
        let cq = CqContext {
            eq: admin,
            log_depth: cq_log,
            ..CqContext::default()
        };
        let qp = Attributes {
            state: qp_state::RTS,
            ..Attributes::default()
        };
        let mut eq = EventQueue::new(admin, &eq, eq_depth, ring(eq_ring, true), first);
        let cq_ring = ring(cq_ring, true);
        let mut cq = CompletionQueue::new(admin, &cq, cq_depth, cq_ring, first, &data.producers);
        let sq = WorkQueue::new(ring(sq_ring, false), sq_depth, sq_log, 0, first);
        let rq = WorkQueue::new(Ring::contiguous(0, 0, false), Depth::MAX, 0, 0, first);
        eq.users = 1;
        cq.users = 1;
        data.events.eqs.insert_first(eq);
        data.cqs.insert_first(cq);
        data.qps.insert_first(QueuePair::new(admin, qp, sq, rq));
        core.state = State::Ready;
        Ok(())
    }
}
