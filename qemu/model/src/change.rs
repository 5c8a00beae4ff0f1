// SPDX-License-Identifier: GPL-2.0
//! Changing and ending objects.
//!
//! The model moves bytes only inside of its turns, and a command is a turn of its own: when an object is
//! taken out of its table nothing of it is under way. What a paused message or a
//! line still knows of it is its number, which finds nobody from then on.

use crate::admin::Results;
use crate::create::check_access;
use crate::create::check_moderation;
use crate::create::check_reserved;
use crate::create::MAX_RETRY;
use crate::create::REMOTE;
use crate::eq::Subject;
use crate::host::Host;
use crate::mutant::mutant;
use crate::table::Until;
use crate::Function;
use qpair_abi::command::qp_mask;
use qpair_abi::command::qp_state;
use qpair_abi::command::Command;
use qpair_abi::command::EqContext;
use qpair_abi::command::QpContext;
use qpair_abi::status::AdminError;
use qpair_abi::Number;
use qpair_queue::index::Index;

impl<H: Host> Function<H> {
    pub(crate) fn modify_eq(&mut self, command: &Command) -> Result<Results, AdminError> {
        let words = self.context(command)?;
        check_reserved(&words, &EqContext::RESERVED)?;
        let context = EqContext::decode(&words);
        check_moderation(&context)?;
        let eq = self.eqs.get_mut(command.number).ok_or(AdminError::Number)?;
        eq.moderate(context.moderation_count, context.moderation_usecs);
        self.look_at_line(command.number);
        Ok(Results::default())
    }

    pub(crate) fn destroy_eq(&mut self, eq: Number) -> Result<Results, AdminError> {
        let found = self.eqs.get(eq).ok_or(AdminError::Number)?;
        // EQ 0 has CQ 0, for as long as the function is enabled.
        if found.users != 0 && !mutant!(BusyDestroyed) {
            return Err(AdminError::Busy);
        }
        self.timers.delayed.retain(|&(_, delayed, _)| delayed != eq);
        self.eqs.remove(eq);
        Ok(Results::default())
    }

    pub(crate) fn destroy_cq(&mut self, cq: Number) -> Result<Results, AdminError> {
        let found = self.cqs.get(cq).ok_or(AdminError::Number)?;
        let (eq, page) = (found.eq, found.page);
        if found.users != 0 && !mutant!(BusyDestroyed) {
            return Err(AdminError::Busy);
        }
        self.forget(Subject::Overrun(cq));
        let (until, index) = self.eq_written(eq);
        let (until_async, async_index) = self.eq_written(Number::ADMIN);
        let untils = [until, until_async, Until::Now];
        self.cqs.remove_of_page(cq, untils, page);
        if let Some(eq) = self.eqs.get_mut(eq) {
            eq.users = eq.users.saturating_sub(1);
        }
        Ok(Results {
            first: index.get(),
            second: 0,
            third: async_index.get(),
        })
    }

    pub(crate) fn destroy_mr(&mut self, key: Number) -> Result<Results, AdminError> {
        let region = self.regions.remove(key);
        let region = region.ok_or(AdminError::Number)?;
        self.domain_users(region.pd, -1);
        Ok(Results::default())
    }

    pub(crate) fn destroy_pd(&mut self, pd: Number) -> Result<Results, AdminError> {
        let domain = self.domains.get(pd).ok_or(AdminError::Number)?;
        if domain.users != 0 && !mutant!(BusyDestroyed) {
            return Err(AdminError::Busy);
        }
        self.domains.remove(pd);
        Ok(Results::default())
    }

    pub(crate) fn destroy_qp(&mut self, qp: Number) -> Result<Results, AdminError> {
        let found = self.qps.get(qp).ok_or(AdminError::Number)?;
        if qp == Number::ADMIN {
            return Err(AdminError::Busy);
        }
        let (pd, page, send_cq, recv_cq) = (found.pd, found.page, found.send_cq, found.recv_cq);
        // Whoever waits for it waits for nobody now, and finds that out.
        self.wake_peer(qp);
        self.forget(Subject::Fatal(qp));
        self.run_queue.remove(qp.index(), page);
        self.retries.remove(qp.index());
        let (until_send, send_index) = self.cq_written(send_cq);
        let (until_recv, recv_index) = self.cq_written(recv_cq);
        let (until_async, async_index) = self.eq_written(Number::ADMIN);
        let untils = [until_send, until_recv, until_async];
        self.qps.remove_of_page(qp, untils, page);
        for cq in [send_cq, recv_cq] {
            if let Some(cq) = self.cqs.get_mut(cq) {
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

    /// What has been written to a CQ so far.
    fn cq_written(&self, cq: Number) -> (Until, Index) {
        self.cqs.get(cq).map_or((Until::Now, Index::ZERO), |found| {
            let index = found.channel.window().tail();
            (Until::Cq(cq, found.written()), index)
        })
    }

    /// What has been written to an EQ so far.
    fn eq_written(&self, eq: Number) -> (Until, Index) {
        self.eqs.get(eq).map_or((Until::Now, Index::ZERO), |found| {
            let index = found.queue.window().tail();
            (Until::Eq(eq, found.written()), index)
        })
    }

    pub(crate) fn modify_qp(&mut self, command: &Command) -> Result<Results, AdminError> {
        let words = self.context(command)?;
        check_reserved(&words, &QpContext::RESERVED)?;
        let context = QpContext::decode(&words);
        let (qp, mask) = (command.number, command.mask);
        let found = self.qps.get(qp).ok_or(AdminError::Number)?;
        if qp == Number::ADMIN {
            return Err(AdminError::Number);
        }
        let (send_cq, recv_cq) = (found.send_cq, found.recv_cq);
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
            if !ends && (self.is_dead_cq(send_cq) || self.is_dead_cq(recv_cq)) {
                return Err(AdminError::Overrun);
            }
            context.state
        } else {
            from
        };
        if wants(qp_mask::PEER) && (from != qp_state::INIT || !stays_or_connects(to)) {
            return Err(AdminError::Transition);
        }
        if wants(qp_mask::ACCESS) {
            check_access(context.access, REMOTE)?;
        }
        let peer_ok = !wants(qp_mask::PEER) || context.peer_function == 0;
        let retry_ok = !wants(qp_mask::RETRY)
            || (context.retry <= MAX_RETRY && context.rnr_retry <= MAX_RETRY);
        if !peer_ok || !retry_ok {
            return Err(AdminError::Attribute);
        }
        let found = self.qps.get_mut(qp).ok_or(AdminError::Number)?;
        let attributes = &mut found.attributes;
        if wants(qp_mask::PEER) {
            attributes.peer = context.peer;
        }
        if wants(qp_mask::ACCESS) {
            attributes.access = context.access;
        }
        if wants(qp_mask::RETRY) {
            attributes.retry = context.retry;
            attributes.rnr_retry = context.rnr_retry;
        }
        if wants(qp_mask::Q_KEY) {
            attributes.q_key = context.q_key;
        }
        if !wants(qp_mask::STATE) {
            return Ok(Results::default());
        }
        self.set_state(qp, to);
        if to != qp_state::RESET {
            return Ok(Results::default());
        }
        self.make_new(qp)
    }

    /// A queue pair is in RESET: what it held is dropped.
    fn make_new(&mut self, qp: Number) -> Result<Results, AdminError> {
        self.forget(Subject::Fatal(qp));
        self.retries.remove(qp.index());
        let first = Index::new(self.knobs.first_index);
        let found = self.qps.get_mut(qp).ok_or(AdminError::Number)?;
        self.run_queue.remove(qp.index(), found.page);
        found.sq.clear(first);
        found.rq.clear(first);
        found.sending = None;
        found.receiving = None;
        found.waiting = false;
        found.tries = 0;
        found.attributes.peer = Number::default();
        let (send_cq, recv_cq) = (found.send_cq, found.recv_cq);
        Ok(Results {
            first: self.cq_written(send_cq).1.get(),
            second: self.cq_written(recv_cq).1.get(),
            third: self.eq_written(Number::ADMIN).1.get(),
        })
    }
}

/// Whether a peer may be given on the way to this state.
fn stays_or_connects(to: u8) -> bool {
    matches!(to, qp_state::INIT | qp_state::RTR)
}

/// The ways that there are.
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
