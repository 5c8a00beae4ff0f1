// SPDX-License-Identifier: GPL-2.0

//! What the files of most objects use.

pub(super) use super::{
    buffer::UserBuffer,
    file::Process,
    memory::{
        MemoryId, //
        ObjectMemory,
    },
    owner::Owner,
    registered::{
        Registered,
        Verbs, //
    },
    request::answered, //
};
pub(super) use crate::{
    abi::Number,
    hw::command,
    kernel::rdma::{
        Caller,
        Udata, //
    },
    policy::quota::Kind, //
};
pub(super) use kernel::{
    prelude::*,
    sync::Arc, //
};
