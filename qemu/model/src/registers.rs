// SPDX-License-Identifier: GPL-2.0
//! Registers, and bringing up EQ 0 and the admin queue pair.

use crate::cq::Cq;
use crate::eq::Eq;
use crate::host::Host;
use crate::mutant::mutant;
use crate::qp::Attributes;
use crate::qp::Qp;
use crate::qp::Work;
use crate::ring::Ring;
use crate::ring::ALIGN;
use crate::Function;
use crate::State;
use qpair_abi::command::qp_state;
use qpair_abi::entry::Cqe;
use qpair_abi::entry::Eqe;
use qpair_abi::entry::BLOCK_BYTES;
use qpair_abi::regs;
use qpair_abi::regs::offset;
use qpair_abi::status::EnableError;
use qpair_abi::Number;
use qpair_queue::index::Depth;
use qpair_queue::index::Index;

/// What software wrote.
#[derive(Clone, Copy, Default)]
pub(crate) struct Registers {
    eq0_lo: u32,
    eq0_hi: u32,
    asq_lo: u32,
    asq_hi: u32,
    acq_lo: u32,
    acq_hi: u32,
    depth: u32,
}

const ENABLE: u32 = 1 << 0;
const RESET: u32 = 1 << 1;
const READY: u32 = 1 << 0;
const FATAL: u32 = 1 << 1;
const LINK_UP: u32 = 1 << 3;
/// The bits of `ADMIN_DEPTH` that mean something.
const DEPTH_FIELDS: u32 = 0x001f_1f1f;

impl<H: Host> Function<H> {
    /// Reads a register.
    pub fn reg_read(&mut self, offset: u64) -> u32 {
        if self.knobs.vanished {
            return u32::MAX;
        }
        let c = &self.config;
        let log = |byte: u8, shift: u32| u32::from(byte) << shift;
        match offset {
            offset::MAGIC => regs::MAGIC_VALUE,
            offset::VERSION => regs::MAJOR << 16 | regs::MINOR,
            offset::CTRL => match self.state {
                State::Ready => ENABLE,
                State::Off | State::Fatal => 0,
            },
            offset::STATUS => self.status(),
            offset::LIMIT_QP => c.qps,
            offset::LIMIT_CQ => c.cqs,
            offset::LIMIT_EQ => c.eqs,
            offset::LIMIT_MR => c.mrs,
            offset::LIMIT_PD => c.pds,
            offset::LIMIT_SRQ => 0,
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
            offset::EQ0_BASE_LO => self.registers.eq0_lo,
            offset::EQ0_BASE_HI => self.registers.eq0_hi,
            offset::ASQ_BASE_LO => self.registers.asq_lo,
            offset::ASQ_BASE_HI => self.registers.asq_hi,
            offset::ACQ_BASE_LO => self.registers.acq_lo,
            offset::ACQ_BASE_HI => self.registers.acq_hi,
            offset::ADMIN_DEPTH => self.registers.depth,
            _ => 0,
        }
    }

    /// The register `STATUS`.
    pub fn status(&self) -> u32 {
        let state = match self.state {
            State::Off => 0,
            State::Ready => READY,
            State::Fatal if mutant!(ReadyThoughFatal) => READY | FATAL,
            State::Fatal => FATAL,
        };
        u32::from(self.cause.code()) << 8 | LINK_UP | state
    }

    /// Writes a register. What is written while the function is enabled changes nothing, but for `CTRL`.
    pub fn reg_write(&mut self, offset: u64, value: u32) {
        if self.knobs.vanished {
            return;
        }
        if offset == offset::CTRL {
            if value & RESET != 0 {
                self.reset();
            } else if value & ENABLE != 0 && self.state == State::Off {
                self.cause = self.enable().err().unwrap_or(EnableError::None);
            }
            return;
        }
        if self.state != State::Off {
            return;
        }
        let registers = &mut self.registers;
        match offset {
            offset::EQ0_BASE_LO => registers.eq0_lo = value,
            offset::EQ0_BASE_HI => registers.eq0_hi = value,
            offset::ASQ_BASE_LO => registers.asq_lo = value,
            offset::ASQ_BASE_HI => registers.asq_hi = value,
            offset::ACQ_BASE_LO => registers.acq_lo = value,
            offset::ACQ_BASE_HI => registers.acq_hi = value,
            offset::ADMIN_DEPTH => registers.depth = value,
            _ => {}
        }
    }

    fn enable(&mut self) -> Result<(), EnableError> {
        let r = self.registers;
        if r.depth & !DEPTH_FIELDS != 0 {
            return Err(EnableError::Depth);
        }
        let log = |shift: u32| (r.depth >> shift & 0x1f) as u8;
        let address = |lo: u32, hi: u32| u64::from(hi) << 32 | u64::from(lo);
        let depth = |log: u8, most: u8| {
            let depth = Depth::from_log2(log).filter(|_| log <= most);
            depth.ok_or(EnableError::Depth)
        };
        let eq_depth = depth(log(0), self.config.log_eq)?;
        let sq_depth = depth(log(8), self.config.log_sq)?;
        let cq_depth = depth(log(16), self.config.log_cq)?;
        if eq_depth.entries() < self.config.async_events {
            return Err(EnableError::Depth);
        }
        let (eq_base, sq_base, cq_base) = (
            address(r.eq0_lo, r.eq0_hi),
            address(r.asq_lo, r.asq_hi),
            address(r.acq_lo, r.acq_hi),
        );
        if (eq_base | sq_base | cq_base) % ALIGN != 0 {
            return Err(EnableError::Alignment);
        }
        if !self.bus.host.bus_master() {
            return Err(EnableError::BusMaster);
        }
        let bytes = |depth: Depth, entry: usize| u64::from(depth.entries()) * entry as u64;
        let rings = [
            (eq_base, bytes(eq_depth, Eqe::BYTES)),
            (sq_base, bytes(sq_depth, BLOCK_BYTES)),
            (cq_base, bytes(cq_depth, Cqe::BYTES)),
        ];
        for (base, bytes) in rings {
            // A ring whose ends can be read is believed to be there.
            let last = base.checked_add(bytes - 8).ok_or(EnableError::Dma)?;
            for addr in [base, last] {
                let read = self.bus.load(addr, &mut [0]);
                read.map_err(|_| EnableError::Dma)?;
            }
        }
        let [eq_ring, sq_ring, cq_ring] = rings;
        let ring = |(base, bytes): (u64, u64), writable| Ring::contiguous(base, bytes, writable);
        let first = Index::new(self.knobs.first_index);
        let admin = Number::ADMIN;
        let mut eq = Eq::new(0, log(0), eq_depth, ring(eq_ring, true), first);
        let mut cq = Cq::new(
            admin,
            admin,
            log(16),
            cq_depth,
            false,
            ring(cq_ring, true),
            first,
        );
        eq.users = 1;
        cq.users = 1;
        let qp = Qp::new(
            admin,
            Attributes {
                state: qp_state::RTS,
                ..Attributes::default()
            },
            Work::new(ring(sq_ring, false), sq_depth, log(8), 0, first),
            Work::new(Ring::contiguous(0, 0, false), Depth::MAX, 0, 0, first),
        );
        self.eqs.insert_first(eq);
        self.cqs.insert_first(cq);
        self.qps.insert_first(qp);
        self.state = State::Ready;
        Ok(())
    }
}
