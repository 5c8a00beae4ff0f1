// SPDX-License-Identifier: GPL-2.0
//! The attributes of queue pairs, as CREATE and MODIFY set them.

use crate::path::AddressVector;
use crate::path::Gid;
use crate::path::Path;
use crate::tries::Step;
use crate::tries::NO_LIMIT;
use qpair_abi::command::qp_flags;
use qpair_abi::command::qp_state;
use qpair_abi::command::QpContext;
use qpair_abi::Number;

/// The attributes of a queue pair.
#[derive(Clone, Copy, Default)]
pub(crate) struct Attributes {
    pub(crate) pd: Number,
    pub(crate) page: u16,
    pub(crate) state: u8,
    pub(crate) send_cq: Number,
    pub(crate) recv_cq: Number,
    /// The SRQ in place of its RQ, or 0.
    pub(crate) srq: Number,
    pub(crate) path: Path,
    /// How frames reach its peer, if that is at another port.
    pub(crate) av: Option<AddressVector>,
    pub(crate) q_key: u32,
    pub(crate) access: u8,
    pub(crate) retry: u8,
    pub(crate) rnr_retry: u8,
    pub(crate) timeout: u8,
    pub(crate) min_rnr_timer: u8,
    pub(crate) service: u8,
    pub(crate) flags: u8,
    /// Of UD the GID that it has, or 0.
    pub(crate) gid: Gid,
}

impl Attributes {
    /// Those of a new queue pair.
    pub(crate) fn new(context: &QpContext) -> Self {
        Self {
            pd: context.pd,
            page: context.page,
            state: qp_state::RESET,
            send_cq: context.send_cq,
            recv_cq: context.recv_cq,
            srq: context.srq,
            path: Path::None,
            av: None,
            q_key: context.q_key,
            access: context.access,
            retry: context.retry,
            rnr_retry: context.rnr_retry,
            timeout: context.timeout,
            min_rnr_timer: context.min_rnr_timer,
            service: context.service,
            flags: context.flags,
            gid: [context.gid, context.gid_high],
        }
    }

    /// Whether its SQ may register memory.
    pub(crate) fn registers(&self) -> bool {
        self.flags & qp_flags::REGISTERS != 0
    }

    /// Whether its receives are those of an SRQ.
    #[inline]
    pub(crate) fn shares(&self) -> bool {
        self.srq != Number::default()
    }

    /// How often it retries a step.
    pub(crate) fn retries(&self, step: Step) -> u8 {
        match step {
            Step::Answer => self.retry,
            Step::Receive if self.rnr_retry == NO_LIMIT => u8::MAX,
            Step::Receive => self.rnr_retry,
        }
    }
}
