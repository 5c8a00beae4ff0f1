// SPDX-License-Identifier: GPL-2.0

//! What most files of this folder use.

pub(super) use crate::{
    abi::{
        doorbell,
        Number, //
    },
    kernel::{
        gate::Pass,
        trace, //
    },
    policy::lifecycle::Failure,
    queue::index::{
        Depth,
        Index, //
    }, //
};
pub(super) use kernel::{
    device::Bound,
    prelude::*,
    sync::Arc, //
};
