// SPDX-License-Identifier: GPL-2.0
//! Making objects.

use crate::admin::Results;
use crate::cq::Cq;
use crate::eq::Eq;
use crate::host::Host;
use crate::list::List;
use crate::mr::Domain;
use crate::mr::Region;
use crate::mutant::mutant;
use crate::qp::Attributes;
use crate::qp::Qp;
use crate::qp::Work;
use crate::ring::Ring;
use crate::table::Deferred;
use crate::Function;
use qpair_abi::command::access;
use qpair_abi::command::cq_flags;
use qpair_abi::command::qp_state;
use qpair_abi::command::service;
use qpair_abi::command::BufferList;
use qpair_abi::command::Command;
use qpair_abi::command::CqContext;
use qpair_abi::command::EqContext;
use qpair_abi::command::MrContext;
use qpair_abi::command::QpContext;
use qpair_abi::entry::Cqe;
use qpair_abi::entry::Eqe;
use qpair_abi::entry::BLOCK_BYTES;
use qpair_abi::entry::MAX_STRIDE_SHIFT;
use qpair_abi::status::AdminError;
use qpair_abi::Number;
use qpair_queue::index::Depth;
use qpair_queue::index::Index;

/// What a peer may be allowed to do.
pub(crate) const REMOTE: u8 = access::REMOTE_WRITE | access::REMOTE_READ | access::REMOTE_ATOMIC;
/// The largest number of retries, or for ever.
pub(crate) const MAX_RETRY: u8 = 7;

/// Refuses what no field covers.
pub(crate) fn check_reserved<const N: usize>(
    words: &[u64; N],
    reserved: &[u64; N],
) -> Result<(), AdminError> {
    let mut pairs = words.iter().zip(reserved);
    if pairs.any(|(word, reserved)| word & reserved != 0) && !mutant!(ReservedIgnored) {
        return Err(AdminError::Reserved);
    }
    Ok(())
}

/// Refuses words or fields that this command does not use.
pub(crate) fn check_unset<T: PartialEq + Default>(
    mut unused: impl Iterator<Item = T>,
) -> Result<(), AdminError> {
    if unused.any(|value| value != T::default()) && !mutant!(ReservedIgnored) {
        return Err(AdminError::Reserved);
    }
    Ok(())
}

/// Refuses access rights other than `known`.
pub(crate) fn check_access(access: u8, known: u8) -> Result<(), AdminError> {
    check_unset([access & !known].into_iter())
}

/// A depth within its limit.
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
        let limits = self.page_limits();
        let bytes = u64::from(depth.entries()).saturating_mul(entry);
        let ring = Ring::new(&mut self.bus, list, bytes, writable, limits);
        ring.ok_or(AdminError::Buffer)
    }

    /// Sorts deferred frees: those whose rings have been read, and the others.
    fn sort(&self, deferred: Vec<Deferred>) -> (Vec<Deferred>, Vec<Deferred>) {
        deferred.into_iter().partition(|free| self.is_over(free))
    }

    /// Whether the rings of a deferred free have been read.
    pub(crate) fn is_over(&self, free: &Deferred) -> bool {
        free.untils.into_iter().all(|until| self.has_passed(until)) || mutant!(IndexReusedAtOnce)
    }

    pub(crate) fn create_eq(&mut self, command: &Command) -> Result<Results, AdminError> {
        let words = self.context(command)?;
        check_reserved(&words, &EqContext::RESERVED)?;
        let context = EqContext::decode(&words);
        check_unset([context.producer, context.consumer].into_iter())?;
        if u32::from(context.vector) >= self.config.vectors() {
            return Err(AdminError::Reference);
        }
        check_moderation(&context)?;
        let depth = depth(context.log_depth, self.config.log_eq)?;
        let ring = self.ring_of(&context.buffer, depth, Eqe::BYTES as u64, true)?;
        let deferred = self.eqs.take_deferred();
        let sorted = self.sort(deferred);
        self.eqs.settle(sorted);
        let number = self.eqs.next().ok_or(AdminError::Full)?;
        let first = Index::new(self.knobs.first_index);
        let mut eq = Eq::new(context.vector, context.log_depth, depth, ring, first);
        eq.moderate(context.moderation_count, context.moderation_usecs);
        self.eqs.insert(number, eq);
        Ok(made(number))
    }

    pub(crate) fn create_cq(&mut self, command: &Command) -> Result<Results, AdminError> {
        let words = self.context(command)?;
        check_reserved(&words, &CqContext::RESERVED)?;
        let context = CqContext::decode(&words);
        check_unset([context.producer, context.consumer].into_iter())?;
        check_unset([context.flags & !cq_flags::USER].into_iter())?;
        if self.eqs.get(context.eq).is_none() || u32::from(context.page) >= self.config.pages {
            return Err(AdminError::Reference);
        }
        let depth = depth(context.log_depth, self.config.log_cq)?;
        let ring = self.ring_of(&context.buffer, depth, Cqe::BYTES as u64, true)?;
        let deferred = self.cqs.take_deferred();
        let sorted = self.sort(deferred);
        self.cqs.settle(sorted);
        let number = self.cqs.next().ok_or(AdminError::Full)?;
        let user = context.flags & cq_flags::USER != 0;
        let first = Index::new(self.knobs.first_index);
        let mut cq = Cq::new(
            number,
            context.eq,
            context.log_depth,
            depth,
            user,
            ring,
            first,
        );
        cq.page = context.page;
        self.cqs.insert(number, cq);
        if let Some(eq) = self.eqs.get_mut(context.eq) {
            eq.users = eq.users.saturating_add(1);
        }
        Ok(made(number))
    }

    pub(crate) fn create_qp(&mut self, command: &Command) -> Result<Results, AdminError> {
        let words = self.context(command)?;
        check_reserved(&words, &QpContext::RESERVED)?;
        let context = QpContext::decode(&words);
        let queried = [
            context.sq_producer,
            context.sq_consumer,
            context.rq_producer,
            context.rq_consumer,
            u32::from(context.draining),
        ];
        check_unset(queried.into_iter())?;
        check_access(context.access, REMOTE)?;
        let there = |cq: Number| cq != Number::ADMIN && self.cqs.get(cq).is_some();
        if self.domains.get(context.pd).is_none()
            || u32::from(context.page) >= self.config.pages
            || !there(context.send_cq)
            || !there(context.recv_cq)
            || context.srq != Number::default()
        {
            return Err(AdminError::Reference);
        }
        let sane = context.service == service::RC
            && context.state == qp_state::RESET
            && context.peer == Number::default()
            && context.peer_function == 0
            && context.retry <= MAX_RETRY
            && context.rnr_retry <= MAX_RETRY;
        if !sane {
            return Err(AdminError::Attribute);
        }
        if self.is_dead_cq(context.send_cq) || self.is_dead_cq(context.recv_cq) {
            return Err(AdminError::Overrun);
        }
        let sq_depth = depth(context.log_sq, self.config.log_sq)?;
        let rq_depth = depth(context.log_rq, self.config.log_rq)?;
        if context.rq_stride > MAX_STRIDE_SHIFT {
            return Err(AdminError::Depth);
        }
        let block = BLOCK_BYTES as u64;
        let sq = self.ring_of(&context.sq, sq_depth, block, false)?;
        let rq = self.ring_of(&context.rq, rq_depth, block << context.rq_stride, false)?;
        let deferred = self.qps.take_deferred();
        let sorted = self.sort(deferred);
        self.qps.settle(sorted);
        let number = self.qps.next().ok_or(AdminError::Full)?;
        let attributes = Attributes {
            pd: context.pd,
            page: context.page,
            state: qp_state::RESET,
            send_cq: context.send_cq,
            recv_cq: context.recv_cq,
            peer: Number::default(),
            q_key: context.q_key,
            access: context.access,
            retry: context.retry,
            rnr_retry: context.rnr_retry,
        };
        let first = Index::new(self.knobs.first_index);
        let sq = Work::new(sq, sq_depth, context.log_sq, 0, first);
        let rq = Work::new(rq, rq_depth, context.log_rq, context.rq_stride, first);
        self.qps.insert(number, Qp::new(number, attributes, sq, rq));
        for cq in [context.send_cq, context.recv_cq] {
            if let Some(cq) = self.cqs.get_mut(cq) {
                cq.users = cq.users.saturating_add(1);
            }
        }
        self.domain_users(context.pd, 1);
        Ok(made(number))
    }

    /// Whether a CQ was overrun: it takes no completion any more.
    pub(crate) fn is_dead_cq(&self, cq: Number) -> bool {
        self.cqs.get(cq).is_some_and(|found| found.overrun) && !mutant!(DeadCqTaken)
    }

    pub(crate) fn create_mr(&mut self, command: &Command) -> Result<Results, AdminError> {
        let words = self.context(command)?;
        check_reserved(&words, &MrContext::RESERVED)?;
        let context = MrContext::decode(&words);
        if self.domains.get(context.pd).is_none() {
            return Err(AdminError::Reference);
        }
        check_access(context.access, access::ALL)?;
        let most = 1u64 << (self.config.log_region & 63);
        // The last byte may be the last of the address space.
        let last = context.buffer.bytes.wrapping_sub(1);
        if context.buffer.bytes > most || context.addr.checked_add(last).is_none() {
            return Err(AdminError::Buffer);
        }
        let list = List::new(&context.buffer, self.page_limits(), 1);
        let list = list.ok_or(AdminError::Buffer)?;
        let deferred = self.regions.take_deferred();
        let sorted = self.sort(deferred);
        self.regions.settle(sorted);
        let number = self.regions.next().ok_or(AdminError::Full)?;
        let region = Region {
            pd: context.pd,
            access: context.access,
            addr: context.addr,
            list,
            described: context.buffer,
        };
        self.regions.insert(number, region);
        self.domain_users(context.pd, 1);
        Ok(made(number))
    }

    pub(crate) fn create_pd(&mut self) -> Result<Results, AdminError> {
        let deferred = self.domains.take_deferred();
        let sorted = self.sort(deferred);
        self.domains.settle(sorted);
        let number = self.domains.next().ok_or(AdminError::Full)?;
        self.domains.insert(number, Domain { users: 0 });
        Ok(made(number))
    }

    /// A domain has one user more, or less.
    pub(crate) fn domain_users(&mut self, pd: Number, change: i32) {
        if let Some(domain) = self.domains.get_mut(pd) {
            domain.users = domain.users.saturating_add_signed(change);
        }
    }
}

/// Moderation is a count and a time, never one alone.
pub(crate) fn check_moderation(context: &EqContext) -> Result<(), AdminError> {
    if (context.moderation_count == 0) != (context.moderation_usecs == 0) {
        return Err(AdminError::Attribute);
    }
    Ok(())
}

fn made(number: Number) -> Results {
    Results {
        first: number.raw(),
        ..Results::default()
    }
}
