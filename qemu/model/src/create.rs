// SPDX-License-Identifier: GPL-2.0
//! CREATE commands.

use crate::attributes::Attributes;
use crate::context::check_access;
use crate::context::check_moderation;
use crate::context::check_reserved;
use crate::context::check_unset;
use crate::context::read;
use crate::context::Results;
use crate::cq::CompletionQueue;
use crate::eq::EventQueue;
use crate::frmr::Frmr;
use crate::function::Function;
use crate::host::Host;
use crate::list::List;
use crate::mr::Domain;
use crate::qp::QueuePair;
use crate::region::Region;
use crate::ring::Ring;
use crate::srq::SharedReceives;
use crate::table::Table;
use crate::window::Window;
use crate::work_queue::WorkQueue;
use qpair_abi::command::access;
use qpair_abi::command::cq_flags;
use qpair_abi::command::mr_flags;
use qpair_abi::command::mw_type;
use qpair_abi::command::qp_flags;
use qpair_abi::command::qp_mask;
use qpair_abi::command::qp_state;
use qpair_abi::command::service;
use qpair_abi::command::timer;
use qpair_abi::command::BufferList;
use qpair_abi::command::Command;
use qpair_abi::command::CqContext;
use qpair_abi::command::EqContext;
use qpair_abi::command::FrmrContext;
use qpair_abi::command::GidContext;
use qpair_abi::command::MrContext;
use qpair_abi::command::MwContext;
use qpair_abi::command::QpContext;
use qpair_abi::command::SrqContext;
use qpair_abi::entry::Cqe;
use qpair_abi::entry::Eqe;
use qpair_abi::entry::BLOCK_BYTES;
use qpair_abi::entry::MAX_STRIDE_SHIFT;
use qpair_abi::status::AdminError;
use qpair_abi::Number;
use qpair_queue::index::Depth;

/// The largest number of retries; as `rnr_retry`, no limit.
pub(crate) const MAX_RETRY: u8 = 7;

/// Whether a queue pair has only attributes of its service.
fn is_of_service(context: &QpContext) -> bool {
    let (gid, gid_high) = (context.gid, context.gid_high);
    let no_gid = (gid, gid_high) == (0, 0);
    let flags = match context.service {
        service::RC => qp_flags::REGISTERS,
        service::UD => qp_flags::NO_OWN_COPY,
        _ => 0,
    };
    if (GidContext { gid, gid_high }).is_group() || context.flags & !flags != 0 {
        return false;
    }
    let no_timers = (context.timeout, context.min_rnr_timer) == (0, 0);
    let no_retries = (context.retry, context.rnr_retry) == (0, 0) && no_timers;
    match context.service {
        service::RC => no_gid && context.port_qp == 0,
        service::UD => no_retries && context.access == 0,
        service::UC => {
            no_retries && no_gid && context.srq == Number::default() && context.port_qp == 0
        }
        _ => false,
    }
}

/// Whether a context has nothing of a path, which MODIFY sets.
fn has_no_path(context: &QpContext) -> bool {
    let [_, _, _, _, _, _, _, timers, .., a, b, c, d] = context.encode();
    (timers >> 24) | a | b | c | d == 0
}

/// Whether timers have codes.
pub(crate) fn timers_are_known(context: &QpContext) -> bool {
    context.timeout <= timer::ZERO && context.min_rnr_timer <= timer::ZERO
}

/// What MODIFY may not select of a queue pair of a service.
pub(crate) fn not_of_service(service: u8) -> u32 {
    match service {
        service::UD => {
            qp_mask::PEER
                | qp_mask::ACCESS
                | qp_mask::RETRY
                | qp_mask::TIMERS
                | qp_mask::PATH
                | qp_mask::SQ_PSN
        }
        service::UC => qp_mask::RETRY | qp_mask::TIMERS,
        _ => 0,
    }
}

/// The depth of a ring, within its limit.
fn depth(log: u8, most: u8) -> Result<Depth, AdminError> {
    let depth = Depth::from_log2(log).filter(|_| log <= most);
    depth.ok_or(AdminError::Depth)
}

impl<H: Host> Function<H> {
    /// The memory of a ring.
    fn ring_of(
        &mut self,
        list: &BufferList,
        depth: Depth,
        entry: u64,
        writable: bool,
    ) -> Result<Ring<H::Map>, AdminError> {
        let core = &mut self.data.core;
        let limits = core.config.page_limits();
        let bytes = u64::from(depth.entries()).saturating_mul(entry);
        let (bus, pages) = (&mut core.bus, &mut core.ring_pages);
        Ring::new(bus, pages, list, bytes, writable, limits)
    }

    /// The depth and memory of a CQ's ring.
    pub(crate) fn ring_of_cq(
        &mut self,
        context: &CqContext,
    ) -> Result<(Depth, Ring<H::Map>), AdminError> {
        let depth = depth(context.log_depth, self.data.core.config.log_cq)?;
        let ring = self.ring_of(&context.buffer, depth, Cqe::BYTES as u64, true)?;
        Ok((depth, ring))
    }

    /// The depth and memory of an SRQ's ring.
    pub(crate) fn ring_of_srq(
        &mut self,
        context: &SrqContext,
        stride: u8,
    ) -> Result<(Depth, Ring<H::Map>), AdminError> {
        let depth = depth(context.log_depth, self.data.core.config.log_rq)?;
        let slot = (BLOCK_BYTES as u64) << (stride & 3);
        let ring = self.ring_of(&context.buffer, depth, slot, false)?;
        Ok((depth, ring))
    }

    /// Does the deferred frees of a table whose rings have been read. The number of its next
    /// object.
    fn next_number<T>(
        &mut self,
        table: fn(&mut Self) -> &mut Table<T>,
    ) -> Result<Number, AdminError> {
        let deferred = table(self).take_deferred().into_iter();
        let sorted = deferred.partition(|free| self.data.is_over(free));
        table(self).settle(sorted);
        table(self).next().ok_or(AdminError::Full)
    }

    pub(crate) fn create_eq(&mut self, command: &Command) -> Result<Results, AdminError> {
        let words = read(&mut self.data.core.bus, command)?;
        check_reserved(&words, &EqContext::RESERVED)?;
        let context = EqContext::decode(&words);
        check_unset([context.producer, context.consumer].into_iter())?;
        if u32::from(context.vector) >= self.data.core.config.vectors() {
            return Err(AdminError::Reference);
        }
        check_moderation(&context)?;
        let depth = depth(context.log_depth, self.data.core.config.log_eq)?;
        let ring = self.ring_of(&context.buffer, depth, Eqe::BYTES as u64, true)?;
        let number = self.next_number(|function| &mut function.data.events.eqs)?;
        let first = self.data.core.first_index();
        let eq = EventQueue::new(number, &context, depth, ring, first);
        self.data.events.eqs.insert(number, eq);
        Ok(Results::created(number))
    }

    pub(crate) fn create_cq(&mut self, command: &Command) -> Result<Results, AdminError> {
        let words = read(&mut self.data.core.bus, command)?;
        check_reserved(&words, &CqContext::RESERVED)?;
        let context = CqContext::decode(&words);
        check_unset([context.producer, context.consumer].into_iter())?;
        check_unset([context.flags & !cq_flags::USER].into_iter())?;
        if self.data.events.eqs.get(context.eq).is_none()
            || u32::from(context.page) >= self.data.core.config.pages
        {
            return Err(AdminError::Reference);
        }
        let (depth, ring) = self.ring_of_cq(&context)?;
        let number = self.next_number(|function| &mut function.data.cqs)?;
        let first = self.data.core.first_index();
        let producers = &self.data.producers;
        let cq = CompletionQueue::new(number, &context, depth, ring, first, producers);
        self.data.cqs.insert(number, cq);
        if let Some(eq) = self.data.events.eqs.get_mut(context.eq) {
            eq.users = eq.users.saturating_add(1);
        }
        Ok(Results::created(number))
    }

    pub(crate) fn create_qp(&mut self, command: &Command) -> Result<Results, AdminError> {
        let words = read(&mut self.data.core.bus, command)?;
        check_reserved(&words, &QpContext::RESERVED)?;
        let context = QpContext::decode(&words);
        let queried = [
            context.sq_producer,
            context.sq_consumer,
            context.rq_producer,
            context.rq_consumer,
            u32::from(context.draining),
            context.acked_psn,
            u32::from(context.in_flight | context.room | context.repeats | context.waits_for),
        ];
        check_unset(queried.into_iter())?;
        let known = match self.data.core.config.frmrs {
            0 => qp_flags::NO_OWN_COPY,
            _ => qp_flags::NO_OWN_COPY | qp_flags::REGISTERS,
        };
        check_unset([context.flags & !known].into_iter())?;
        check_access(context.access, access::GRANTS)?;
        let there = |cq: Number| cq != Number::ADMIN && self.data.cqs.get(cq).is_some();
        if self.domains.get(context.pd).is_none()
            || u32::from(context.page) >= self.data.core.config.pages
            || !there(context.send_cq)
            || !there(context.recv_cq)
        {
            return Err(AdminError::Reference);
        }
        let shares = context.srq != Number::default();
        if shares {
            if self.data.srqs.get(context.srq).is_none() {
                return Err(AdminError::Reference);
            }
            // It has no RQ of its own.
            check_unset([context.log_rq, context.rq_stride].into_iter())?;
            check_unset(context.rq.encode().into_iter())?;
        }
        let valid = is_of_service(&context)
            && context.state == qp_state::RESET
            && context.peer == Number::default()
            && context.peer_function == 0
            && has_no_path(&context)
            && context.port_qp <= 1
            && context.retry <= MAX_RETRY
            && context.rnr_retry <= MAX_RETRY
            && timers_are_known(&context);
        if !valid {
            return Err(AdminError::Attribute);
        }
        if self.data.is_dead_cq(context.send_cq) || self.data.is_dead_cq(context.recv_cq) {
            return Err(AdminError::Overrun);
        }
        let is_port_qp = context.port_qp != 0;
        if is_port_qp && self.data.port.qp.is_some() {
            return Err(AdminError::Full);
        }
        let sq_depth = depth(context.log_sq, self.data.core.config.log_sq)?;
        let rq_depth = depth(context.log_rq, self.data.core.config.log_rq)?;
        if context.rq_stride > MAX_STRIDE_SHIFT {
            return Err(AdminError::Depth);
        }
        let block = BLOCK_BYTES as u64;
        let sq = self.ring_of(&context.sq, sq_depth, block, false)?;
        let rq = if shares {
            Ring::contiguous(0, 0, false)
        } else {
            self.ring_of(&context.rq, rq_depth, block << context.rq_stride, false)?
        };
        let number = self.next_number(|function| &mut function.data.qps)?;
        let attributes = Attributes::new(&context);
        let first = self.data.core.first_index();
        let sq = WorkQueue::new(sq, sq_depth, context.log_sq, 0, first);
        let rq = WorkQueue::new(rq, rq_depth, context.log_rq, context.rq_stride, first);
        self.data
            .qps
            .insert(number, QueuePair::new(number, attributes, sq, rq));
        if is_port_qp {
            self.data.port.qp = Some(number);
        }
        for cq in [context.send_cq, context.recv_cq] {
            if let Some(cq) = self.data.cqs.get_mut(cq) {
                cq.users = cq.users.saturating_add(1);
            }
        }
        if let Some(srq) = self.data.srqs.get_mut(context.srq) {
            srq.users = srq.users.saturating_add(1);
        }
        self.domain_users(context.pd, 1);
        Ok(Results::created(number))
    }

    pub(crate) fn create_srq(&mut self, command: &Command) -> Result<Results, AdminError> {
        let words = read(&mut self.data.core.bus, command)?;
        check_reserved(&words, &SrqContext::RESERVED)?;
        let context = SrqContext::decode(&words);
        let queried = [
            context.producer,
            context.consumer,
            context.limit,
            context.left,
            u32::from(context.flags),
        ];
        check_unset(queried.into_iter())?;
        if self.domains.get(context.pd).is_none()
            || u32::from(context.page) >= self.data.core.config.pages
        {
            return Err(AdminError::Reference);
        }
        if context.stride > MAX_STRIDE_SHIFT {
            return Err(AdminError::Depth);
        }
        let (depth, ring) = self.ring_of_srq(&context, context.stride)?;
        let number = self.next_number(|function| &mut function.data.srqs)?;
        let first = self.data.core.first_index();
        let srq = SharedReceives::new(number, &context, depth, ring, first);
        self.data.srqs.insert(number, srq);
        self.domain_users(context.pd, 1);
        Ok(Results::created(number))
    }

    pub(crate) fn create_mr(&mut self, command: &Command) -> Result<Results, AdminError> {
        let words = read(&mut self.data.core.bus, command)?;
        check_reserved(&words, &MrContext::RESERVED)?;
        let context = MrContext::decode(&words);
        self.check_domain(context.pd)?;
        check_access(context.access, access::ALL)?;
        check_unset([context.flags & !mr_flags::ALL_MEMORY].into_iter())?;
        let list = if context.flags & mr_flags::ALL_MEMORY != 0 {
            if (context.addr, context.buffer) != (0, BufferList::default()) {
                return Err(AdminError::Buffer);
            }
            List::of_all(self.data.core.config.page_limits()).ok_or(AdminError::Buffer)?
        } else {
            self.memory_of(&context)?
        };
        let number = self.next_number(|function| &mut function.data.regions)?;
        let region = Region {
            pd: context.pd,
            access: context.access,
            flags: context.flags,
            addr: context.addr,
            list,
            described: context.buffer,
            windows: 0,
        };
        self.data.regions.insert(number, region);
        self.domain_users(context.pd, 1);
        Ok(Results::created(number))
    }

    /// The memory of a region.
    pub(crate) fn memory_of(&self, context: &MrContext) -> Result<List<H::Map>, AdminError> {
        let config = &self.data.core.config;
        Region::memory(config, context.addr, &context.buffer).ok_or(AdminError::Buffer)
    }

    pub(crate) fn create_mw(&mut self, command: &Command) -> Result<Results, AdminError> {
        let words = read(&mut self.data.core.bus, command)?;
        check_reserved(&words, &MwContext::RESERVED)?;
        let context = MwContext::decode(&words);
        let queried = [
            u64::from(context.access),
            u64::from(context.tag),
            u64::from(context.region.raw()),
            u64::from(context.qp.raw()),
            context.addr,
            context.bytes,
        ];
        check_unset(queried.into_iter())?;
        self.check_domain(context.pd)?;
        if !matches!(context.kind, mw_type::ONE | mw_type::TWO) {
            return Err(AdminError::Attribute);
        }
        let number = self.next_number(|function| &mut function.data.windows)?;
        let window = Window::new(number, &context);
        self.data.windows.insert(number, window);
        self.domain_users(context.pd, 1);
        Ok(Results::created(number))
    }

    pub(crate) fn create_frmr(&mut self, command: &Command) -> Result<Results, AdminError> {
        let words = read(&mut self.data.core.bus, command)?;
        check_reserved(&words, &FrmrContext::RESERVED)?;
        let context = FrmrContext::decode(&words);
        // All else is queried.
        let given = FrmrContext {
            pd: context.pd,
            ..FrmrContext::default()
        };
        if context != given {
            return Err(AdminError::Reserved);
        }
        self.check_domain(context.pd)?;
        let number = self.next_number(|function| &mut function.data.regions.frmrs)?;
        let frmr = Frmr::new(context.pd);
        self.data.regions.frmrs.insert(number, frmr);
        self.domain_users(context.pd, 1);
        Ok(Results::created(number))
    }

    /// Checks that there is a domain with this number.
    pub(crate) fn check_domain(&self, pd: Number) -> Result<(), AdminError> {
        let found = self.domains.get(pd).map(drop);
        found.ok_or(AdminError::Reference)
    }

    pub(crate) fn create_pd(&mut self) -> Result<Results, AdminError> {
        let number = self.next_number(|function| &mut function.domains)?;
        self.domains.insert(number, Domain { users: 0 });
        Ok(Results::created(number))
    }

    /// Adds to the users of a domain, or subtracts.
    pub(crate) fn domain_users(&mut self, pd: Number, change: i32) {
        if let Some(domain) = self.domains.get_mut(pd) {
            domain.users = domain.users.saturating_add_signed(change);
        }
    }
}
