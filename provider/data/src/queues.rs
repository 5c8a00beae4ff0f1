// SPDX-License-Identifier: GPL-2.0
//! The queues of a queue pair.

use std::sync::Arc;

use qpair_queue::credit::{Rq, Sq};

use crate::builder::Builder;
use crate::lock::Mutex;
use crate::queue::Work;
use crate::srq::Srq;

/// The SQ of a queue pair.
#[derive(Debug)]
pub(crate) struct SendQueue {
    pub(crate) work: Work<Sq>,
    /// Whether the state permits sends.
    pub(crate) ready: bool,
    pub(crate) builder: Builder,
}

/// The RQ of a queue pair.
#[derive(Debug)]
pub(crate) struct RecvQueue {
    pub(crate) work: Work<Rq>,
    /// Whether the state permits receives.
    pub(crate) ready: bool,
}

/// The queues of a queue pair, as its posts and its CQs share them.
#[derive(Debug)]
pub(crate) struct Queues {
    /// The number as verbs have it.
    pub(crate) qpn: u32,
    pub(crate) send: Mutex<SendQueue>,
    pub(crate) recv: Mutex<RecvQueue>,
    /// Where the receives are, if not in an RQ.
    pub(crate) srq: Option<Arc<Srq>>,
}
