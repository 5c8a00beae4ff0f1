// SPDX-License-Identifier: GPL-2.0
//! MODIFY and DESTROY commands.
//!
//! The model moves bytes only in turns, and a command is a turn of its own: when an object is
//! removed from its table, nothing that uses it is in progress. A paused message or a queue may
//! still have its number, which finds no object from then on.

use crate::context::check_access;
use crate::context::check_moderation;
use crate::context::check_reserved;
use crate::context::read;
use crate::context::Results;
use crate::create::not_of_service;
use crate::create::timers_are_known;
use crate::create::MAX_RETRY;
use crate::function::Function;
use crate::host::Host;
use crate::rules::channel::Kept;
use crate::subject::Subject;
use crate::table::Until;
use qpair_abi::command::access;
use qpair_abi::command::mr_flags;
use qpair_abi::command::mr_mask;
use qpair_abi::command::qp_mask;
use qpair_abi::command::qp_state;
use qpair_abi::command::service;
use qpair_abi::command::srq_mask;
use qpair_abi::command::Command;
use qpair_abi::command::CqContext;
use qpair_abi::command::EqContext;
use qpair_abi::command::GidContext;
use qpair_abi::command::MrContext;
use qpair_abi::command::QpContext;
use qpair_abi::command::SrqContext;
use qpair_abi::command::GIDS;
use qpair_abi::status::AdminError;
use qpair_abi::Number;

impl<H: Host> Function<H> {
    pub(crate) fn modify_eq(&mut self, command: &Command) -> Result<Results, AdminError> {
        let words = read(&mut self.data.core.bus, command)?;
        check_reserved(&words, &EqContext::RESERVED)?;
        let context = EqContext::decode(&words);
        check_moderation(&context)?;
        let data = &mut self.data;
        let eq = data.events.eqs.get_mut(command.number);
        let eq = eq.ok_or(AdminError::Number)?;
        eq.moderate(&context);
        eq.look_at_interrupt(&mut data.core);
        Ok(Results::default())
    }

    pub(crate) fn destroy_eq(&mut self, eq: Number) -> Result<Results, AdminError> {
        let found = self.data.events.eqs.get(eq).ok_or(AdminError::Number)?;
        // EQ 0 has CQ 0, for as long as the function is enabled.
        if found.users != 0 {
            return Err(AdminError::Busy);
        }
        let delayed = &mut self.data.core.timers.delayed;
        delayed.retain(|&(_, delayed, _)| delayed != eq);
        self.data.events.eqs.remove(eq);
        Ok(Results::default())
    }

    /// Makes a CQ go on in another ring. All other fields of the context are ignored.
    pub(crate) fn modify_cq(&mut self, command: &Command) -> Result<Results, AdminError> {
        let words = read(&mut self.data.core.bus, command)?;
        check_reserved(&words, &CqContext::RESERVED)?;
        let context = CqContext::decode(&words);
        let cq = command.number;
        let found = self.data.cqs.get(cq).ok_or(AdminError::Number)?;
        if cq == Number::ADMIN {
            return Err(AdminError::Number);
        }
        if found.is_dead() {
            return Err(AdminError::Overrun);
        }
        let (depth, ring) = self.ring_of_cq(&context)?;
        let found = self.data.cqs.get_mut(cq).ok_or(AdminError::Number)?;
        let switch = found.resize(ring, depth, context.log_depth);
        let switch = switch.map_err(|kept| match kept {
            Kept::Unread => AdminError::Depth,
            Kept::Behind => AdminError::Busy,
        })?;
        Ok(Results {
            first: switch.end.get(),
            second: switch.begin.get(),
            third: 0,
        })
    }

    pub(crate) fn destroy_cq(&mut self, cq: Number) -> Result<Results, AdminError> {
        let found = self.data.cqs.get(cq).ok_or(AdminError::Number)?;
        let (eq, page) = (found.eq, found.page);
        if found.users != 0 {
            return Err(AdminError::Busy);
        }
        self.data.events.forget(Subject::Overrun(cq));
        let (until, index) = self.data.events.written(eq);
        let (until_async, async_index) = self.data.events.written(Number::ADMIN);
        let untils = [until, until_async, Until::Now];
        self.data.cqs.remove_of_page(cq, untils, page);
        if let Some(eq) = self.data.events.eqs.get_mut(eq) {
            eq.users = eq.users.saturating_sub(1);
        }
        Ok(Results {
            first: index.get(),
            second: 0,
            third: async_index.get(),
        })
    }

    pub(crate) fn destroy_mr(&mut self, key: Number) -> Result<Results, AdminError> {
        self.unbound(key)?;
        let region = self.data.regions.remove(key);
        let region = region.ok_or(AdminError::Number)?;
        self.domain_users(region.pd, -1);
        Ok(Results::default())
    }

    /// Changes a region, whose key stays what it is.
    pub(crate) fn modify_mr(&mut self, command: &Command) -> Result<Results, AdminError> {
        let words = read(&mut self.data.core.bus, command)?;
        check_reserved(&words, &MrContext::RESERVED)?;
        let context = MrContext::decode(&words);
        let (key, mask) = (command.number, command.mask);
        self.unbound(key)?;
        if mask & !mr_mask::ALL != 0 {
            return Err(AdminError::Reserved);
        }
        let wants = |bit: u32| mask & bit != 0;
        if wants(mr_mask::PD) {
            self.check_domain(context.pd)?;
        }
        if wants(mr_mask::ACCESS) {
            check_access(context.access, access::ALL)?;
        }
        let list = match wants(mr_mask::MEMORY) {
            true => Some(self.memory_of(&context)?),
            false => None,
        };
        let region = self.data.regions.get_mut(key);
        let region = region.ok_or(AdminError::Number)?;
        if let Some(list) = list {
            region.list = list;
            region.described = context.buffer;
            region.flags &= !mr_flags::ALL_MEMORY;
            region.addr = context.addr;
        }
        if wants(mr_mask::ACCESS) {
            region.access = context.access;
        }
        if wants(mr_mask::PD) {
            let before = core::mem::replace(&mut region.pd, context.pd);
            self.domain_users(before, -1);
            self.domain_users(context.pd, 1);
        }
        Ok(Results::default())
    }

    /// Checks that no window is bound to a region.
    fn unbound(&self, key: Number) -> Result<(), AdminError> {
        let region = self.data.regions.get(key).ok_or(AdminError::Number)?;
        if region.windows != 0 {
            return Err(AdminError::Busy);
        }
        Ok(())
    }

    pub(crate) fn destroy_mw(&mut self, window: Number) -> Result<Results, AdminError> {
        let data = &mut self.data;
        let found = data.windows.destroy(&mut data.regions, window);
        let found = found.ok_or(AdminError::Number)?;
        self.domain_users(found.pd, -1);
        Ok(Results::default())
    }

    pub(crate) fn destroy_frmr(&mut self, frmr: Number) -> Result<Results, AdminError> {
        let found = self.data.regions.frmrs.remove(frmr);
        let found = found.ok_or(AdminError::Number)?;
        self.domain_users(found.pd, -1);
        Ok(Results::default())
    }

    pub(crate) fn destroy_pd(&mut self, pd: Number) -> Result<Results, AdminError> {
        let domain = self.domains.get(pd).ok_or(AdminError::Number)?;
        if domain.users != 0 {
            return Err(AdminError::Busy);
        }
        self.domains.remove(pd);
        Ok(Results::default())
    }

    pub(crate) fn destroy_qp(&mut self, qp: Number) -> Result<Results, AdminError> {
        let found = self.data.qps.get(qp).ok_or(AdminError::Number)?;
        if qp == Number::ADMIN {
            return Err(AdminError::Busy);
        }
        let (pd, page, send_cq, recv_cq) = (found.pd, found.page, found.send_cq, found.recv_cq);
        // A peer that waits finds that this queue pair is gone.
        let data = &mut self.data;
        data.qps.wake_peer(&mut data.core, qp);
        data.leave_srq(qp);
        data.fed(qp);
        data.windows.leave(&mut data.regions, qp);
        data.groups.leave(qp);
        data.end_hold(qp);
        data.drop_frames(qp);
        for subject in Subject::of_qp(qp) {
            data.events.forget(subject);
        }
        data.core.run_queue.remove(qp.index(), page);
        data.core.retries.remove(qp.index());
        let (until_send, send_index) = self.data.cq_written(send_cq);
        let (until_recv, recv_index) = self.data.cq_written(recv_cq);
        let (until_async, async_index) = self.data.events.written(Number::ADMIN);
        let untils = [until_send, until_recv, until_async];
        self.data.qps.remove_of_page(qp, untils, page);
        self.data.port.forget(qp);
        for cq in [send_cq, recv_cq] {
            if let Some(cq) = self.data.cqs.get_mut(cq) {
                cq.users = cq.users.saturating_sub(1);
            }
        }
        self.domain_users(pd, -1);
        Ok(Results {
            first: send_index.get(),
            second: recv_index.get(),
            third: async_index.get(),
        })
    }

    /// Sets an entry of the port's table of GIDs.
    pub(crate) fn modify_gid(&mut self, command: &Command) -> Result<Results, AdminError> {
        let words = read(&mut self.data.core.bus, command)?;
        let context = GidContext::decode(&words);
        let index = command.number.raw();
        if index >= GIDS {
            return Err(AdminError::Number);
        }
        if context.is_group() {
            return Err(AdminError::Attribute);
        }
        let gid = [context.gid, context.gid_high];
        self.data.port.set(index as usize, gid);
        Ok(Results::default())
    }

    /// Makes a queue pair of UD a member of a group.
    pub(crate) fn attach_qp(&mut self, command: &Command) -> Result<Results, AdminError> {
        let group = self.group_of(command)?;
        let found = self.data.qps.get(command.number);
        let is_ud = found.ok_or(AdminError::Number)?.service == service::UD;
        if !is_ud || !group.is_group() {
            return Err(AdminError::Attribute);
        }
        let (data, gid) = (&mut self.data, [group.gid, group.gid_high]);
        data.groups.attach(&data.core.config, gid, command.number)?;
        Ok(Results::default())
    }

    /// Ends that.
    pub(crate) fn detach_qp(&mut self, command: &Command) -> Result<Results, AdminError> {
        let group = self.group_of(command)?;
        let gid = [group.gid, group.gid_high];
        self.data.groups.detach(gid, command.number)?;
        Ok(Results::default())
    }

    fn group_of(&mut self, command: &Command) -> Result<GidContext, AdminError> {
        let words = read(&mut self.data.core.bus, command)?;
        Ok(GidContext::decode(&words))
    }

    /// Arms the event of an SRQ's limit, makes it go on in another ring, or both.
    pub(crate) fn modify_srq(&mut self, command: &Command) -> Result<Results, AdminError> {
        let words = read(&mut self.data.core.bus, command)?;
        check_reserved(&words, &SrqContext::RESERVED)?;
        let context = SrqContext::decode(&words);
        let (srq, mask) = (command.number, command.mask);
        if mask & !srq_mask::ALL != 0 {
            return Err(AdminError::Reserved);
        }
        let found = self.data.srqs.get(srq).ok_or(AdminError::Number)?;
        let (mut entries, stride) = (found.depth(), found.stride);
        let arms = mask & srq_mask::LIMIT != 0;
        let limit = if arms { context.limit } else { found.limit() };
        let ring = match mask & srq_mask::RING != 0 {
            true => Some(self.ring_of_srq(&context, stride)?),
            false => None,
        };
        if let Some((depth, _)) = &ring {
            entries = depth.entries();
        }
        if limit > entries {
            return Err(AdminError::Attribute);
        }
        let data = &mut self.data;
        let found = data.srqs.get_mut(srq).ok_or(AdminError::Number)?;
        if let Some((depth, ring)) = ring {
            if !found.resize(depth, ring) {
                return Err(AdminError::Depth);
            }
        }
        if arms {
            found.arm(&mut data.core, &mut data.events, limit);
        }
        Ok(Results::default())
    }

    pub(crate) fn destroy_srq(&mut self, srq: Number) -> Result<Results, AdminError> {
        let found = self.data.srqs.get(srq).ok_or(AdminError::Number)?;
        let (pd, page) = (found.pd, found.page);
        if found.users != 0 {
            return Err(AdminError::Busy);
        }
        self.data.events.forget(Subject::Limit(srq));
        self.data.events.forget(Subject::Unreadable(srq));
        let (until_async, async_index) = self.data.events.written(Number::ADMIN);
        let untils = [until_async, Until::Now, Until::Now];
        self.data.srqs.remove_of_page(srq, untils, page);
        self.domain_users(pd, -1);
        Ok(Results {
            third: async_index.get(),
            ..Results::default()
        })
    }

    pub(crate) fn modify_qp(&mut self, command: &Command) -> Result<Results, AdminError> {
        let words = read(&mut self.data.core.bus, command)?;
        check_reserved(&words, &QpContext::RESERVED)?;
        let context = QpContext::decode(&words);
        let (qp, mask) = (command.number, command.mask);
        let found = self.data.qps.get(qp).ok_or(AdminError::Number)?;
        if qp == Number::ADMIN {
            return Err(AdminError::Number);
        }
        let (send_cq, recv_cq, service) = (found.send_cq, found.recv_cq, found.service);
        if mask & !qp_mask::ALL != 0 {
            return Err(AdminError::Reserved);
        }
        let wants = |bit: u32| mask & bit != 0;
        let from = found.state;
        let to = if wants(qp_mask::STATE) {
            if !is_step(from, context.state) {
                return Err(AdminError::Transition);
            }
            let ends = matches!(context.state, qp_state::RESET | qp_state::ERROR);
            if !ends && (self.data.is_dead_cq(send_cq) || self.data.is_dead_cq(recv_cq)) {
                return Err(AdminError::Overrun);
            }
            context.state
        } else {
            from
        };
        let drains = wants(qp_mask::STATE) && to == qp_state::SQD;
        if wants(qp_mask::NOTIFY) && !drains {
            return Err(AdminError::Transition);
        }
        if wants(qp_mask::PEER) && (from != qp_state::INIT || !stays_or_connects(to)) {
            return Err(AdminError::Transition);
        }
        if wants(qp_mask::ACCESS) {
            check_access(context.access, access::GRANTS)?;
        }
        let wired = self.data.core.config.wired || mask & OF_FRAMES == 0;
        let known = wired && mask & not_of_service(service) == 0;
        let peer_ok = !wants(qp_mask::PEER) || context.peer_function == 0;
        let retry_ok = !wants(qp_mask::RETRY)
            || (context.retry <= MAX_RETRY && context.rnr_retry <= MAX_RETRY);
        let timers_ok = !wants(qp_mask::TIMERS) || timers_are_known(&context);
        if !known || !peer_ok || !retry_ok || !timers_ok {
            return Err(AdminError::Attribute);
        }
        if wants(qp_mask::SQ_PSN) && (from, to) != (qp_state::RTR, qp_state::RTS) {
            return Err(AdminError::Transition);
        }
        let gid = [context.gid, context.gid_high];
        let path = self.data.port.path(gid, context.peer);
        let mut av = found.av.filter(|_| !wants(qp_mask::PEER));
        if wants(qp_mask::PATH) {
            let set = self.data.port.address_vector(gid, &context);
            let set = set.filter(|_| wants(qp_mask::PEER));
            av = Some(set.ok_or(AdminError::Attribute)?);
        }
        if let Some(set) = av.filter(|_| wants(qp_mask::SQ_PSN)) {
            av = Some(set.with_sq(&context).ok_or(AdminError::Attribute)?);
        }
        let found = self.data.qps.get_mut(qp).ok_or(AdminError::Number)?;
        let attributes = &mut found.attributes;
        attributes.av = av;
        if wants(qp_mask::PEER) {
            attributes.path = path;
        }
        if wants(qp_mask::ACCESS) {
            attributes.access = context.access;
        }
        if wants(qp_mask::RETRY) {
            attributes.retry = context.retry;
            attributes.rnr_retry = context.rnr_retry;
        }
        if wants(qp_mask::TIMERS) {
            attributes.timeout = context.timeout;
            attributes.min_rnr_timer = context.min_rnr_timer;
        }
        if wants(qp_mask::Q_KEY) {
            attributes.q_key = context.q_key;
        }
        if wants(qp_mask::PEER) {
            self.data.connect(qp);
        }
        if wants(qp_mask::SQ_PSN) {
            self.data.start(qp);
        }
        if mask & (qp_mask::RETRY | qp_mask::TIMERS) != 0 {
            self.data.limit(qp);
            let found = self.data.qps.get_mut(qp).ok_or(AdminError::Number)?;
            found.tries.begin_again(self.data.core.bus.host.now());
            self.data.qps.wake(&mut self.data.core, qp);
        }
        if !wants(qp_mask::STATE) {
            return Ok(Results::default());
        }
        let found = self.data.qps.get_mut(qp).ok_or(AdminError::Number)?;
        found.drain_asked = wants(qp_mask::NOTIFY);
        self.data.qps.set_state(&mut self.data.core, qp, to);
        self.data.drained(qp);
        if to != qp_state::RESET {
            return Ok(Results::default());
        }
        self.clear_qp(qp)
    }

    /// Drops all that a queue pair in RESET held.
    fn clear_qp(&mut self, qp: Number) -> Result<Results, AdminError> {
        let data = &mut self.data;
        data.give_back(qp);
        data.fed(qp);
        data.windows.leave(&mut data.regions, qp);
        data.groups.leave(qp);
        data.end_hold(qp);
        data.drop_frames(qp);
        for subject in Subject::of_qp(qp) {
            data.events.cancel(subject);
        }
        data.core.retries.remove(qp.index());
        let first = data.core.first_index();
        let found = data.qps.get_mut(qp).ok_or(AdminError::Number)?;
        data.core.run_queue.remove(qp.index(), found.page);
        found.clear(first);
        let (send_cq, recv_cq) = (found.send_cq, found.recv_cq);
        Ok(Results {
            first: data.cq_written(send_cq).1.get(),
            second: data.cq_written(recv_cq).1.get(),
            third: self.data.events.written(Number::ADMIN).1.get(),
        })
    }
}

/// What MODIFY may select only of a port that sends frames.
const OF_FRAMES: u32 = qp_mask::PATH | qp_mask::SQ_PSN;

/// Whether a peer may be set with this state.
fn stays_or_connects(to: u8) -> bool {
    matches!(to, qp_state::INIT | qp_state::RTR)
}

/// Whether MODIFY may change the state so.
fn is_step(from: u8, to: u8) -> bool {
    matches!(
        (from, to),
        (_, qp_state::RESET | qp_state::ERROR)
            | (qp_state::RESET, qp_state::INIT)
            | (qp_state::INIT, qp_state::RTR)
            | (qp_state::RTR, qp_state::RTS)
            | (qp_state::RTS, qp_state::SQD)
            | (qp_state::SQD, qp_state::RTS)
    )
}
